"""Facts about what passes the relay on sockets: it is untouched, sent once, no later than it comes, and a break is no clean end."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from harness import (
    connected,
    http,
    looped,
    playing,
    post,
    raw_body,
    read,
    request,
    taping,
    until_stopped,
)
from messages import compact, message, result
from standin import (
    EVENTS,
    JSON,
    Visit,
    answering,
    chunk,
    event,
    json_response,
    response,
    stream_head,
    upstream,
)

from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.runs.recording import recording

ODD_BODIES = {
    "numbers": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1E2,"b":-0,"c":1.0,"d":18446744073709551616}}',
    "duplicate keys": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}',
    "lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}',
    "escapes": b'{"jsonrpc":"2.0","id":"\\u0041","method":"\\/m","params":{"\\u00e9":"\xc3\xa9"}}',
    "spaces and CRLF": b' {\r\n\t"jsonrpc" : "2.0",\r\n "id":1 , "method":"m" }\r\n\r\n',
    "no UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
    "deep": b"[" * 5000 + b"]" * 5000,
    "no JSON": b"hello=world&\x00\x01\r\n",
    "batch": b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]',
}


@looped
async def test_request_headers_arrive_with_spelling_and_order(tmp_path: Path) -> None:
    """All end-to-end headers of a request reach the upstream, repeated ones too; `Host` is its own."""
    sent = (
        ("Mcp-Method", "tools/call"),
        ("mcp-name", "=?base64?w6k=?="),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Param-Region", "eu"),
        ("ACCEPT", "application/json;q=0.5, text/event-stream"),
        ("x-Twice", "one"),
        ("content-type", "application/json; charset=utf-8"),
        ("X-twice", "two, three"),
        ("Cookie", 'a=b; c="d e"; =odd'),
        ("Cookie", "second=1"),
        ("Authorization", "Bearer abc"),
        ("User-Agent", "client/1"),
        ("Accept-Encoding", "br, gzip"),
        ("Origin", "http://localhost:3000"),
        ("X-Empty", ""),
        ("Content-Length", "2"),
    )

    async with taping(tmp_path / "c.json", answering(response(b"ok"))) as tape:
        await http(
            "POST",
            tape.url,
            *(f"{name}: {value}" for name, value in sent[:-1]),
            body=b"{}",
        )

    head = tape.server.only.head

    assert head.line == "POST /mcp HTTP/1.1"
    assert head.values("host") == [tape.server.authority]
    assert head.without("host") == sent


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PROPFIND", "POST"])
@pytest.mark.parametrize("body", [None, b"", b"abc"])
@looped
async def test_nothing_is_added_to_a_bare_request(
    tmp_path: Path, method: str, body: bytes | None
) -> None:
    """A request reaches the upstream with the length that it announces alone, `Host` aside."""
    async with taping(tmp_path / "c.json", answering(response())) as tape:
        await http(method, tape.url, body=body)

    assert tape.server.only.head.line == f"{method} /mcp HTTP/1.1"

    length = () if body is None else (("Content-Length", str(len(body))),)

    assert tape.server.only.head.without("host") == length


@looped
async def test_headers_of_one_connection_stay_behind(tmp_path: Path) -> None:
    """What `Connection` names, and the other hop-by-hop headers, pass in neither direction."""
    answer = response(
        b"", "Connection: X-Back", "X-Back: 1", "Keep-Alive: timeout=5", "X-End: 2"
    )
    async with taping(tmp_path / "c.json", answering(answer)) as tape:
        back = await http(
            "GET",
            tape.url,
            "Connection: keep-alive, X-Once",
            "X-Once: 1",
            "TE: trailers",
            "Proxy-Connection: keep-alive",
            "Keep-Alive: 1",
            "X-Kept: 1",
        )

    assert tape.server.only.head.without("host") == (("X-Kept", "1"),)
    assert back.head.without("connection") == (("X-End", "2"), ("Content-Length", "0"))


@pytest.mark.parametrize("name", ODD_BODIES)
@looped
async def test_bodies_are_untouched_in_both_directions(
    tmp_path: Path, name: str
) -> None:
    """Whatever bytes a body has, the upstream and the client get them, and replay gives them back."""
    body = ODD_BODIES[name]
    async with taping(tmp_path / "c.json", answering(response(body, JSON))) as tape:
        answer = await post(tape.url, body)

    assert tape.server.only.body == body
    assert answer.body == body

    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, body)).body == body


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/mcp/",
        "/mcp?a=1&a=2&b",
        "/mcp?redirect=http://x/%2F?y",
        "/a%2Fb%20c%7E%c3%A9",
        "/a%zz%",
        "//double//slash",
        "/a/../b/./c",
        "/.well-known/oauth-protected-resource",
        "/semi;colon=1:2@3!$&'()*+,=",
        "/sp+ace?x=%20+%2B&y=[1]|{2}",
    ],
)
@looped
async def test_targets_are_sent_as_they_came(tmp_path: Path, target: str) -> None:
    """Escapes, doubled slashes, dots and queries reach the upstream in their spelling."""
    async with taping(tmp_path / "c.json", answering(response(b"here"))) as tape:
        assert (await http("GET", tape.url, target=target)).body == b"here"

    assert tape.server.only.head.line == f"GET {target} HTTP/1.1"

    async with playing(tmp_path / "c.json") as replay:
        assert (await http("GET", replay.url, target=target)).body == b"here"


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT", "OPTIONS", "POST"])
@looped
async def test_a_request_is_sent_once_whatever_happens(
    tmp_path: Path, method: str
) -> None:
    """A request whose kept connection breaks is not sent again: the client is told instead."""

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.send(response(b"first"))
        else:
            visit.close()

    async with taping(tmp_path / "c.json", script) as tape:
        assert (await http("GET", tape.url)).body == b"first"
        assert (await http(method, tape.url)).status == 502
        assert tape.server.connections == 1

    assert len(tape.server.received) == 2
    assert (
        tape.recording_run.exchange_count,
        tape.recording_run.unreachable_count,
    ) == (1, 1)


@looped
async def test_added_headers_take_the_place_of_the_clients(tmp_path: Path) -> None:
    """`--header` adds to every request and replaces the client's of that name; it is not kept."""
    headers = (("x-api-key", "from-option"), ("Mcp-Extra", "option-only"))
    async with taping(
        tmp_path / "c.json", answering(response()), headers=headers
    ) as tape:
        await http("GET", tape.url, "X-Api-Key: from-client", "X-Other: 1")

    sent = tape.server.only.head.without("host")

    assert sent == (("X-Other", "1"), *headers)
    assert "option" not in (tmp_path / "c.json").read_text()


@looped
async def test_the_proxys_own_address_is_shown_whatever_is_secret(
    tmp_path: Path,
) -> None:
    """A rule of the user that fits a port hides nothing of an address that is not the server's."""
    path = tmp_path / "c.json"
    rules = {"redact": ["[0-9]{2,}"]}
    async with taping(path, answering(response()), path="/v2024/", **rules) as tape:
        await http("GET", tape.url)
        url, shown = tape.recording_run.url, tape.recording_run.shown_url

    assert (url.endswith("/v2024/"), shown.endswith("/v%3Ccustom-1:1%3E/")) == (
        True,
    ) * 2
    assert url.split("/")[2] == shown.split("/")[2]

    async with playing(path) as replay:
        url, shown = replay.url, replay.shown_url

    assert url.split("/")[2] == shown.split("/")[2]


@looped
async def test_secrets_of_the_upstreams_url_are_sent_and_written_nowhere(
    tmp_path: Path,
) -> None:
    """User and password are sent as Basic; other secrets are the same placeholders in all recordings."""
    path = tmp_path / "c.json"
    log = list[str]()
    async with upstream(answering(response())) as server:
        named = server.url.replace("//", "//us%40er:p%3Aw@")
        named += "/ghp_abcdefghijklmnopqrstuvwxyz0123456789?api_key=sup3rs3cret"
        async with recording(
            named, path, RecordOptions(log=log.append)
        ) as recording_run:
            await http("GET", recording_run.url)
            journal = (tmp_path / "c.json.journal").read_text()

    expected = "Basic " + base64.b64encode(b"us@er:p:w").decode()

    assert server.only.head.values("authorization") == [expected]
    assert recording_run.url.endswith("?api_key=sup3rs3cret")

    shown = "/%3Cgithub:1%3E?api_key=%3Capi-key:1%3E"

    assert recording_run.shown_url.endswith(shown)
    assert read(path)["upstream"] == server.url + shown

    for text in (journal, path.read_text(), *log):
        for part in (
            "us%40er",
            "us@er",
            "p%3Aw",
            "p:w",
            expected,
            "sup3rs3cret",
            "ghp_",
        ):
            assert part not in text


@looped
async def test_response_headers_arrive_with_spelling_and_order(tmp_path: Path) -> None:
    """All end-to-end headers of a response reach the client, repeated ones too, and no others."""
    sent = (
        ("server", "upstream/1"),
        ("Set-Cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("WWW-Authenticate", 'Bearer realm="x", scope="y"'),
        ("WWW-Authenticate", "Basic"),
        ("X-Empty", ""),
        ("Content-Type", "application/problem+json"),
        ("ETag", 'W/"1"'),
        ("Content-Length", "2"),
    )

    reply = response(b"{}", *(f"{name}: {value}" for name, value in sent[:-1]))
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await http("GET", tape.url)

    assert answer.head.headers == sent


STATUSES = {
    "200": ("200 OK", "Server: s/1", "X-Powered-By: Express", "X-Accel-Buffering: no"),
    "401": (
        "401 Unauthorized",
        'WWW-Authenticate: Bearer resource_metadata="http://x/y"',
    ),
    "403": ("403 No Way", "WWW-Authenticate: Bearer", "WWW-Authenticate: Basic"),
    "405": ("405 Method Not Allowed", "Allow: POST"),
    "500": ("500 Oh No!", "Content-Type: text/plain"),
    "503": ("503 ", "Cache-Control: no-store"),
    "599": ("599 Odder", "X-A: 1"),
    "307": ("307 Temporary Redirect", "Location: http://127.0.0.1:1/mcp"),
}


@pytest.mark.parametrize("status", STATUSES)
@looped
async def test_statuses_pass_with_their_reason(tmp_path: Path, status: str) -> None:
    """A status reaches the client with its phrase and headers, no redirect is followed, and plays."""
    line, *headers = STATUSES[status]
    reply = response(b"why", *headers, status=line)
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await http("POST", tape.url, body=b"a")

    assert len(tape.server.received) == 1
    assert answer.head.line == f"HTTP/1.1 {line}"
    assert [
        f"{name}: {value}" for name, value in answer.head.without("content-length")
    ] == headers
    assert answer.body == b"why"

    async with playing(tmp_path / "c.json") as replay:
        played = await http("POST", replay.url, body=b"a")

    assert (played.status, played.body) == (int(status), b"why")

    kept = [header for header in headers if not header.startswith("X-A:")]

    assert [
        f"{name}: {value}" for name, value in played.head.without("content-length")
    ] == kept


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("POST", response(status="202 Accepted")),
        ("POST", response(b"", JSON, status="202 Accepted")),
        ("DELETE", response(status="204 No Content", length=False)),
        ("GET", response(b"", 'ETag: "1"', status="304 Not Modified", length=False)),
        ("HEAD", response(b"", JSON, "Content-Length: 1234", length=False)),
        ("GET", response(b"", "X-A: 1")),
    ],
)
@looped
async def test_empty_answers_pass_as_they_are(
    tmp_path: Path, method: str, reply: bytes
) -> None:
    """An answer without a body reaches the client with its headers alone, and replay has none too."""
    condition = 'If-None-Match: "1"'
    async with (
        taping(tmp_path / "c.json", answering(reply)) as tape,
        connected(tape.url) as client,
    ):
        await client.write(request(method, "/mcp", "Connection: close", condition))
        seen = b""
        while part := await client.raw():
            seen += part

    assert seen.replace(b"Connection: close\r\n", b"") == reply

    async with playing(tmp_path / "c.json") as replay:
        played = await http(method, replay.url, condition)

    assert (played.status, played.body, played.is_whole) == (
        int(reply.split()[1]),
        b"",
        True,
    )
    assert played.head.values("content-type") == (
        ["application/json"] if JSON.encode() in reply else []
    )


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@looped
async def test_traffic_that_is_no_rpc_passes_and_plays(
    tmp_path: Path, method: str
) -> None:
    """Other paths and bodies that are no JSON-RPC are relayed, kept and played by path and body."""
    replies = (response(b"one", "Content-Type: text/plain"), response(b"two"))
    body = None if method != "POST" else b"grant_type=x"
    async with taping(tmp_path / "c.json", answering(*replies)) as tape:
        assert (
            await http(method, tape.url, target="/token?a=1", body=body)
        ).body == b"one"
        assert (
            await http(method, tape.url, target="/token?a=2", body=body)
        ).body == b"two"

    async with playing(tmp_path / "c.json") as replay:
        assert (
            await http(method, replay.url, target="/token?a=2", body=body)
        ).body == b"two"
        assert (
            await http(method, replay.url, target="/token?a=1", body=body)
        ).body == b"one"

        missed = await http(method, replay.url, target="/token?a=3", body=body)

    assert (missed.status, missed.head.values("content-type")) == (
        404,
        ["text/plain; charset=utf-8"],
    )

    assert missed.body.startswith(b"miss: unknown-method: ")
    assert f"{method} /token?a=3".encode() in missed.body


PREFLIGHT = ("Origin: http://localhost:3000", "Access-Control-Request-Method: POST")
ALLOWED = (
    "Access-Control-Allow-Origin: http://localhost:3000",
    "Access-Control-Expose-Headers: Mcp-Session-Id",
    "Vary: Origin",
)


@looped
async def test_what_a_page_needs_to_read_comes_back(tmp_path: Path) -> None:
    """A preflight gets the answer for the headers that it names, and responses their permission."""
    wanted = [
        "Access-Control-Request-Headers: a",
        "Access-Control-Request-Headers: a, b",
    ]

    replies = [
        response(
            b"",
            *ALLOWED,
            wanted_name.replace("Request", "Allow"),
            status="204 No Content",
        )
        for wanted_name in wanted
    ]

    path = tmp_path / "c.json"
    async with taping(
        path, answering(*replies, json_response(result({}), *ALLOWED))
    ) as tape:
        for wanted_name in wanted:
            await http("OPTIONS", tape.url, *PREFLIGHT, wanted_name)

        await post(tape.url, message("ping"), PREFLIGHT[0])

    async with playing(path) as replay:
        # A browser remembers an answer, or asks again.
        for header in reversed(wanted * 2):
            preflight = await http("OPTIONS", replay.url, *PREFLIGHT, header)
            allowed = (*ALLOWED, header.replace("Request", "Allow"))

            assert preflight.status == 204
            assert preflight.head.without("connection") == _pairs(*allowed)

        pong = await post(replay.url, message("ping"), PREFLIGHT[0])

        assert set(_pairs(*ALLOWED)) <= set(pong.head.headers)


def _pairs(*headers: str) -> tuple[tuple[str, str], ...]:
    parts = (header.partition(": ") for header in headers)
    return tuple((name, value) for name, _, value in parts)


@looped
async def test_a_stream_passes_as_it_comes(tmp_path: Path) -> None:
    """The head passes before any event, and then each byte, though no event, line or text is whole."""
    whole = event(result({"a": "é"}), b"\r\n")
    gates = [asyncio.Event() for _ in whole]

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(EVENTS, "X-A: 1"))
        for at, gate in enumerate(gates):
            await gate.wait()
            await visit.send(chunk(whole[at : at + 1]))

        await visit.send(chunk(b""))

    async with (
        taping(tmp_path / "c.json", script) as tape,
        connected(tape.url) as client,
    ):
        head, body = await client.ask(
            "POST", "/mcp", JSON, body=compact(message("ping"))
        )

        assert head.values("x-a") == ["1"]

        for at, gate in enumerate(gates):
            gate.set()

            assert await body.some() == whole[at : at + 1]

        assert await body.some() == b""

    assert len(read(tmp_path / "c.json")["interactions"][0]["response"]["events"]) == 1


@pytest.mark.parametrize("is_stream", [False, True])
@looped
async def test_a_response_that_is_too_large_passes_unrecorded(
    tmp_path: Path, *, is_stream: bool
) -> None:
    """A response larger than allowed reaches the client whole, and the recording says that it lacks it."""
    body = b"data: " + b"x" * 2000 + b"\n\n"
    large = stream_head() + chunk(body) + chunk(b"") if is_stream else response(body)
    script = answering(large, response(b"small"))
    async with taping(tmp_path / "c.json", script, max_body=1000) as tape:
        answer = await http("GET", tape.url, target="/large")

        assert (answer.body, answer.is_whole) == (body, True)
        assert (await http("GET", tape.url, target="/small")).body == b"small"

    kept = [
        interaction["request"]["http"]["path"]
        for interaction in read(tmp_path / "c.json")["interactions"]
    ]

    # Of a listening stream there is what had passed before.
    assert kept == (["/large", "/small"] if is_stream else ["/small"])
    assert tape.recording_run.problem is not None
    assert any(line.startswith("RECORDING FAILED: ") for line in tape.log)


@looped
async def test_a_client_that_leaves_a_stream_ends_it_upstream(tmp_path: Path) -> None:
    """When the client leaves an open stream the upstream sees that, and what came is kept as open."""
    left = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b": hello\n\n"))
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream")

            assert await body.some() == b": hello\n\n"

        await left.wait()

    (kept,) = read(tmp_path / "c.json")["interactions"]

    assert (kept["response"]["end"], raw_body(kept["response"])) == (
        "open",
        b": hello\n\n",
    )


@looped
async def test_a_client_that_leaves_before_the_response_ends_the_call_upstream(
    tmp_path: Path,
) -> None:
    """When the client leaves before the head has come the upstream sees that; others go on."""
    came = asyncio.Event()
    left = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number > 1:
            await visit.send(response(b"ok"))
            return

        came.set()
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            await client.write(
                request("POST", "/mcp", JSON, body=compact(message("ping")))
            )
            await came.wait()

        await left.wait()

        assert (await http("GET", tape.url)).body == b"ok"

    assert len(tape.server.received) == 2

    left_alone, _ = read(tmp_path / "c.json")["interactions"]

    assert left_alone["request"]["body"]["method"] == "ping"
    assert "response" not in left_alone


@looped
async def test_streams_that_are_open_at_the_end_are_kept(tmp_path: Path) -> None:
    """Stopping a recording ends its open streams and keeps what they had, as open."""
    async with (
        upstream(_open_stream) as server,
        until_stopped(recording(server.url, tmp_path / "c.json")) as (session, stop),
        connected(session.url) as client,
    ):
        _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream")

        assert await body.some() == b": hello\n\n"

        await stop()

        assert await body.rest() == b""
        assert not body.is_whole

    (kept,) = read(tmp_path / "c.json")["interactions"]

    assert (kept["response"]["end"], raw_body(kept["response"])) == (
        "open",
        b": hello\n\n",
    )


async def _open_stream(visit: Visit) -> None:
    await visit.send(stream_head(), chunk(b": hello\n\n"))
    await visit.left()


@pytest.mark.parametrize("identity", [b'"a\\u00e9"', b"123456789012345678901234567890"])
@looped
async def test_an_upstream_that_is_away_is_a_502_with_the_callers_id(
    tmp_path: Path, identity: bytes
) -> None:
    """Without an upstream the client gets a JSON-RPC error of its own id, and nothing is recorded."""
    log: list[str] = []
    async with upstream(answering()) as server:
        url = server.url

    async with recording(
        url, tmp_path / "c.json", RecordOptions(log=log.append)
    ) as recording_run:
        body = b'{"jsonrpc":"2.0","method":"ping","id":%b}' % identity
        answer = await post(recording_run.url, body)

    assert answer.status == 502
    assert answer.head.values("content-type") == ["application/json"]
    assert answer.body.startswith(
        b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32011,' % identity
    )
    assert url.removesuffix("/mcp") in answer.json["error"]["message"]
    assert recording_run.publishing.published is None
    assert not (tmp_path / "c.json").exists()
    assert (recording_run.exchange_count, recording_run.unreachable_count) == (0, 1)
    assert len(log) == 1


BREAKS: dict[str, tuple[bytes, bytes]] = {
    "stream": (stream_head() + chunk(b"data: 1\n\n"), b"data: 1\n\n"),
    "chunk": (
        stream_head() + chunk(b"data: 1\n\n") + b"20\r\ndata: 2",
        b"data: 1\n\ndata: 2",
    ),
    "chunk's size": (stream_head() + chunk(b"data: 1\n\n") + b"2", b"data: 1\n\n"),
    "length": (
        response(b"", JSON, "Content-Length: 100", length=False) + b'{"a":',
        b'{"a":',
    ),
    "chunked JSON": (stream_head(JSON) + chunk(b'{"a":'), b'{"a":'),
    "nothing of it": (stream_head(JSON), b""),
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("how", ["closes", "resets", "closes at once"])
@looped
async def test_a_broken_response_is_no_clean_end(
    tmp_path: Path, name: str, how: str
) -> None:
    """A response that the upstream breaks off is broken off for the client, and again on replay.

    Bytes that arrive together with the upstream's end still reach the client and the cassette.
    """
    sent, expected = BREAKS[name]
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(sent)
        if how != "closes at once":
            await gate.wait()

        if how == "resets":
            visit.reset()
        else:
            visit.close()

    async with (
        taping(tmp_path / "c.json", script) as tape,
        connected(tape.url) as client,
    ):
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        seen = (
            await body.until(expected) if expected and how != "closes at once" else b""
        )
        gate.set()
        seen += await body.rest()

        assert (seen, body.is_whole) == (expected, False)

        await client.closed()

    kept = read(tmp_path / "c.json")["interactions"][0]["response"]

    assert kept["end"] == "broken"
    assert raw_body(kept) == expected if expected else "sha256" not in kept

    async with playing(tmp_path / "c.json") as replay:
        answer = await post(replay.url, message("ping"))

    assert (answer.body, answer.is_whole) == (expected, False)
