"""Facts about the relay over HTTP: what passes is untouched, and one request is one request."""

import asyncio
import base64
import gzip
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    ACCEPT,
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
from messages import compact, message, result, tool
from standin import (
    CHUNKED,
    EVENTS,
    JSON,
    Visit,
    answering,
    chunk,
    event,
    event_stream,
    json_response,
    response,
    stream_head,
    upstream,
)

from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.recording import recording

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

# --- What reaches the upstream ---


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
        ("x-Twice", "two, three"),
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
        await http("POST", tape.url, *(f"{name}: {value}" for name, value in sent[:-1]), body=b"{}")
    head = tape.server.only.head
    assert head.line == "POST /mcp HTTP/1.1"
    assert head.values("host") == [tape.server.authority]
    assert head.without("host") == sent


@looped
async def test_a_header_repeated_in_another_spelling_arrives_twice(tmp_path: Path) -> None:
    """A header that is repeated with other capitals reaches the upstream as often as it was sent."""
    sent = (("X-Twice", "one"), ("X-Other", "1"), ("x-twice", "two"))
    async with taping(tmp_path / "c.json", answering(response())) as tape:
        await http("GET", tape.url, *(f"{name}: {value}" for name, value in sent))
    assert tape.server.only.head.without("host") == sent


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "OPTIONS", "PROPFIND"])
@looped
async def test_nothing_is_added_to_a_bare_request(tmp_path: Path, method: str) -> None:
    """A request without headers and body reaches the upstream without headers, `Host` aside."""
    async with taping(tmp_path / "c.json", answering(response())) as tape:
        await http(method, tape.url)
    assert tape.server.only.head.line == f"{method} /mcp HTTP/1.1"
    assert tape.server.only.head.without("host") == ()


@looped
async def test_nothing_is_added_to_a_bare_body(tmp_path: Path) -> None:
    """A body without content type reaches the upstream with its length alone."""
    async with taping(tmp_path / "c.json", answering(response())) as tape:
        await http("POST", tape.url, body=b"abc")
    assert tape.server.only.head.without("host") == (("Content-Length", "3"),)


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
@looped
async def test_an_announced_empty_body_stays_announced(tmp_path: Path, method: str) -> None:
    """`Content-Length: 0` reaches the upstream where the client sent it."""
    async with taping(tmp_path / "c.json", answering(response())) as tape:
        await http(method, tape.url, body=b"")
    assert tape.server.only.head.without("host") == (("Content-Length", "0"),)


@looped
async def test_headers_of_one_connection_stay_behind(tmp_path: Path) -> None:
    """What `Connection` names, and the other hop-by-hop headers, pass in neither direction."""
    answer = response(b"", "Connection: X-Back", "X-Back: 1", "Keep-Alive: timeout=5", "X-End: 2")
    async with taping(tmp_path / "c.json", answering(answer)) as tape:
        back = await http(
            "GET", tape.url, "Connection: keep-alive, X-Once", "X-Once: 1", "TE: trailers",
            "Proxy-Connection: keep-alive", "Keep-Alive: 1", "X-Kept: 1",
        )  # fmt: skip
    assert tape.server.only.head.without("host") == (("X-Kept", "1"),)
    assert back.head.without("connection") == (("X-End", "2"), ("Content-Length", "0"))


@pytest.mark.parametrize("name", ODD_BODIES)
@looped
async def test_bodies_are_untouched_in_both_directions(tmp_path: Path, name: str) -> None:
    """Whatever bytes a body has, the upstream and the client get them, and replay gives them back."""
    body = ODD_BODIES[name]
    async with taping(tmp_path / "c.json", answering(response(body, JSON))) as tape:
        answer = await post(tape.url, body)
    assert tape.server.only.body == body
    assert answer.body == body
    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, body)).body == body


@looped
async def test_a_chunked_request_arrives_whole(tmp_path: Path) -> None:
    """A request body that comes in chunks is sent on once, whole."""
    parts = (b'{"jsonrpc":"2.0","id":1,', b'"method":"ping"}')
    async with taping(tmp_path / "c.json", answering(json_response(result({})))) as tape:
        body = b"".join(map(chunk, parts)) + chunk(b"")
        await http("POST", tape.url, JSON, CHUNKED, body=body)
    assert tape.server.only.body == b"".join(parts)
    assert read(tmp_path / "c.json")["interactions"][0]["request"]["body"]["method"] == "ping"


@looped
async def test_a_client_that_expects_to_be_told_to_go_on_is_told(tmp_path: Path) -> None:
    """`Expect: 100-continue` is answered here, as the body is read here."""
    async with (
        taping(tmp_path / "c.json", answering(response(b"done"))) as tape,
        connected(tape.url) as client,
    ):
        await client.write(
            request("POST", "/mcp", "Expect: 100-continue", "Content-Length: 2", host="localhost")
        )
        assert (await client.answer(is_empty=True))[0].line.split()[1] == "100"
        await client.write(b"{}")
        assert await (await client.answer())[1].rest() == b"done"
    assert tape.server.only.body == b"{}"


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


@looped
async def test_a_question_mark_without_a_query_passes(tmp_path: Path) -> None:
    """A target that ends in a bare `?` reaches the upstream as it is."""
    async with taping(tmp_path / "c.json", answering(response(b"here"))) as tape:
        await http("GET", tape.url, target="/mcp?")
    assert tape.server.only.head.line == "GET /mcp? HTTP/1.1"


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT", "OPTIONS", "POST"])
@looped
async def test_a_request_is_sent_once_whatever_happens(tmp_path: Path, method: str) -> None:
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
    assert (tape.session.exchanges, tape.session.unreachable) == (1, 1)


@looped
async def test_each_request_is_one_upstream_request(tmp_path: Path) -> None:
    """Plain, streamed and other requests each reach the upstream exactly once, in order."""

    async def script(visit: Visit) -> None:
        reply = event_stream if visit.number % 2 else json_response
        await visit.send(reply(result({}, id=visit.request.json["id"])))

    async with taping(tmp_path / "c.json", script) as tape:
        for number in range(1, 9):
            answer = await post(tape.url, message("ping", id=number))
            assert answer.body.endswith(b'"result":{}}' if number % 2 == 0 else b"\n\n")
    assert [one.json["id"] for one in tape.server.received] == list(range(1, 9))


@looped
async def test_added_headers_take_the_place_of_the_clients(tmp_path: Path) -> None:
    """`--header` adds to every request and replaces the client's of that name; it is not kept."""
    headers = (("x-api-key", "from-option"), ("Mcp-Extra", "option-only"))
    async with taping(tmp_path / "c.json", answering(response()), headers=headers) as tape:
        await http("GET", tape.url, "X-Api-Key: from-client", "X-Other: 1")
    sent = tape.server.only.head.without("host")
    assert sent == (("X-Other", "1"), *headers)
    assert "option" not in (tmp_path / "c.json").read_text()


@looped
async def test_userinfo_of_the_upstream_becomes_its_authorization(tmp_path: Path) -> None:
    """A user and password in the upstream's URL are sent as Basic, and written nowhere."""
    log: list[str] = []
    async with upstream(answering(response())) as server:
        named = server.url.replace("//", "//us%40er:p%3Aw@")
        async with recording(named, tmp_path / "c.json", RecordOptions(log=log.append)) as session:
            await http("GET", session.url)
            journal = (tmp_path / "c.json.journal").read_text()
    expected = "Basic " + base64.b64encode(b"us@er:p:w").decode()
    assert server.only.head.values("authorization") == [expected]
    assert read(tmp_path / "c.json")["upstream"] == server.url
    for text in (journal, (tmp_path / "c.json").read_text(), *log):
        assert not any(part in text for part in ("us%40er", "us@er", "p%3Aw", "p:w", expected))


@pytest.mark.parametrize("userinfo", ["a%3Ab:c", "us\u20acr:pw", "user:p\u20ac"])
@looped
async def test_odd_userinfo_is_used_or_refused(tmp_path: Path, userinfo: str) -> None:
    """A user or password that Basic can't carry is a usage error, else it is sent as UTF-8."""
    async with upstream(answering(response())) as server:
        named = server.url.replace("//", f"//{userinfo}@")
        try:
            async with recording(named, tmp_path / "c.json") as session:
                assert (await http("GET", session.url)).status == 200
                assert server.only.head.values("authorization")[0].startswith("Basic ")
        except UsageError:
            assert server.received == []


@looped
async def test_cookies_are_the_clients_own(tmp_path: Path) -> None:
    """A cookie that the upstream sets is the client's to send: we keep none for it."""
    replies = (response(b"", "Set-Cookie: a=1; Path=/"), response())
    async with upstream(answering(*replies)) as server:
        # An address has no cookies in many jars; a name has.
        named = server.url.replace("127.0.0.1", "localhost")
        async with recording(named, tmp_path / "c.json") as session:
            for _ in replies:
                await http("GET", session.url)
    assert [one.head.without("host") for one in server.received] == [(), ()]


@looped
async def test_the_environment_changes_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies and credentials that the environment names are not used: the client used none."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    async with taping(tmp_path / "c.json", answering(response(b"here"))) as tape:
        assert (await http("GET", tape.url)).body == b"here"
    assert tape.server.only.head.without("host") == ()


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
@looped
async def test_an_upstream_on_ipv6_is_reached(tmp_path: Path) -> None:
    """An upstream whose URL has an IPv6 address in brackets is called at it."""
    async with (
        upstream(answering(response(b"six")), host="::1") as server,
        recording(server.url, tmp_path / "c.json") as session,
    ):
        assert (await http("GET", session.url)).body == b"six"
    assert server.only.head.values("host") == [server.authority]


@looped
async def test_a_large_request_and_its_answer_pass(tmp_path: Path) -> None:
    """5 MB pass in both directions and play back."""
    text = "é" * 2_500_000
    asked, answered = tool("x", arguments={"a": text}), result({"b": text})
    async with taping(tmp_path / "c.json", answering(json_response(answered))) as tape:
        answer = await post(tape.url, asked)
    assert tape.server.only.body == compact(asked)
    assert answer.body == compact(answered)
    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, asked)).body == answer.body


# --- What reaches the client ---


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
    "401": ("401 Unauthorized", 'WWW-Authenticate: Bearer resource_metadata="http://x/y"'),
    "403": ("403 No Way", "WWW-Authenticate: Bearer", "WWW-Authenticate: Basic"),
    "404": ("404 Not Found", "X-A: 1"),
    "405": ("405 Method Not Allowed", "Allow: POST"),
    "429": ("429 Slow Down", "Retry-After: 5"),
    "500": ("500 Oh No!", "Content-Type: text/plain"),
    "503": ("503 ", "Cache-Control: no-store"),
    "299": ("299 Odd", "X-A: 1"),
    "599": ("599 Odder", "X-A: 1"),
    "301": ("301 Moved Permanently", "Location: /elsewhere"),
    "307": ("307 Temporary Redirect", "Location: http://127.0.0.1:1/mcp"),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("method", ["GET", "POST"])
@looped
async def test_statuses_pass_with_their_reason(tmp_path: Path, status: str, method: str) -> None:
    """A status reaches the client with its phrase and headers, no redirect is followed, and plays."""
    line, *headers = STATUSES[status]
    reply = response(b"why", *headers, status=line)
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await http(method, tape.url, body=b"a" if method == "POST" else None)
    assert len(tape.server.received) == 1
    assert answer.head.line == f"HTTP/1.1 {line}"
    assert [f"{name}: {value}" for name, value in answer.head.without("content-length")] == headers
    assert answer.body == b"why"
    async with playing(tmp_path / "c.json") as replay:
        played = await http(method, replay.url, body=b"a" if method == "POST" else None)
    assert (played.status, played.body) == (int(status), b"why")


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
async def test_empty_answers_pass_as_they_are(tmp_path: Path, method: str, reply: bytes) -> None:
    """An answer without a body reaches the client with its headers alone, and replay has none too."""
    async with taping(tmp_path / "c.json", answering(reply)) as tape, connected(tape.url) as client:
        await client.write(request(method, "/mcp", "Connection: close"))
        seen = b""
        while part := await client.raw():
            seen += part
    assert seen.replace(b"Connection: close\r\n", b"") == reply
    async with playing(tmp_path / "c.json") as replay:
        played = await http(method, replay.url)
    assert (played.status, played.body, played.is_whole) == (int(reply.split()[1]), b"", True)
    assert played.head.values("content-type") == (
        ["application/json"] if JSON.encode() in reply else []
    )


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@looped
async def test_traffic_that_is_no_rpc_passes_and_plays(tmp_path: Path, method: str) -> None:
    """Other paths and bodies that are no JSON-RPC are relayed, kept and played by path and body."""
    replies = (response(b"one", "Content-Type: text/plain"), response(b"two"))
    body = None if method != "POST" else b"grant_type=x"
    async with taping(tmp_path / "c.json", answering(*replies)) as tape:
        assert (await http(method, tape.url, target="/token?a=1", body=body)).body == b"one"
        assert (await http(method, tape.url, target="/token?a=2", body=body)).body == b"two"
    async with playing(tmp_path / "c.json") as replay:
        assert (await http(method, replay.url, target="/token?a=2", body=body)).body == b"two"
        assert (await http(method, replay.url, target="/token?a=1", body=body)).body == b"one"
        missed = await http(method, replay.url, target="/token?a=3", body=body)
    assert missed.status == 404
    assert missed.body.startswith(b"miss: unknown-method: ")


@looped
async def test_early_hints_pass_before_the_response(tmp_path: Path) -> None:
    """A 103 goes to the client as it comes, and is not taken for the response."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    has_hints = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 102 Processing\r\n\r\n", hints)
        await has_hints.wait()
        await visit.send(response(b"final"))
        visit.close()

    path = tmp_path / "c.json"
    async with taping(path, script) as tape, connected(tape.url) as connection:
        head, _ = await connection.ask("GET", "/mcp")
        assert head == ("HTTP/1.1 103 Early Hints", (("Link", "</a>"),))
        has_hints.set()
        head, content = await connection.answer()
        assert (head.line, await content.rest()) == ("HTTP/1.1 200 OK", b"final")
    async with playing(path) as replay:
        assert (await http("GET", replay.url)).body == b"final"


@looped
async def test_early_hints_are_no_more_than_the_client_takes(tmp_path: Path) -> None:
    """Headers of the connection stay out of hints; an older client gets no hints at all."""
    hints = b"Connection: link\r\nContent-Length: 5\r\nLink: </a>"
    reply = b"HTTP/1.1 103 Early Hints\r\n%b\r\n\r\n%b" % (hints, response(b"final"))
    async with taping(tmp_path / "c.json", answering(reply, reply)) as tape:
        async with connected(tape.url) as connection:
            await connection.write(b"GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n")
            head, _ = await connection.answer()
            assert head.line == "HTTP/1.0 200 OK"
        async with connected(tape.url) as connection:
            head, _ = await connection.ask("GET", "/mcp")
            assert head == ("HTTP/1.1 103 Early Hints", ())
            head, _ = await connection.answer()
            assert head.line == "HTTP/1.1 200 OK"


PREFLIGHT = ("Origin: http://localhost:3000", "Access-Control-Request-Method: POST")
ALLOWED = (
    "Access-Control-Allow-Origin: http://localhost:3000",
    "Access-Control-Expose-Headers: Mcp-Session-Id",
    "Vary: Origin",
)


@looped
async def test_what_a_page_needs_to_read_comes_back(tmp_path: Path) -> None:
    """A preflight gets the answer for the headers that it names, and responses their permission."""
    wanted = ["Access-Control-Request-Headers: a", "Access-Control-Request-Headers: a, b"]
    replies = [
        response(b"", *ALLOWED, each.replace("Request", "Allow"), status="204 No Content")
        for each in wanted
    ]
    path = tmp_path / "c.json"
    async with taping(path, answering(*replies, json_response(result({}), *ALLOWED))) as tape:
        for each in wanted:
            await http("OPTIONS", tape.url, *PREFLIGHT, each)
        await post(tape.url, message("ping"), PREFLIGHT[0])
    async with playing(path) as replay:
        # A browser remembers an answer, or asks again.
        for each in reversed(wanted * 2):
            preflight = await http("OPTIONS", replay.url, *PREFLIGHT, each)
            allowed = (*ALLOWED, each.replace("Request", "Allow"))
            assert preflight.status == 204
            assert preflight.head.without("connection") == _pairs(*allowed)
        pong = await post(replay.url, message("ping"), PREFLIGHT[0])
        assert set(_pairs(*ALLOWED)) <= set(pong.head.headers)


def _pairs(*headers: str) -> tuple[tuple[str, str], ...]:
    parts = (header.partition(": ") for header in headers)
    return tuple((name, value) for name, _, value in parts)


CODED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("is_stream", [False, True])
@looped
async def test_coded_bodies_are_readable_in_the_cassette(
    tmp_path: Path,
    coding: str,
    *,
    is_stream: bool,
) -> None:
    """The client sees the coded bytes; the cassette and the replay have the plain ones."""
    plain = event(result({"a": 1})) if is_stream else compact(result({"a": 1}))
    coded = CODED[coding](plain)
    kind = EVENTS if is_stream else JSON
    reply = response(coded, kind, f"Content-Encoding: {coding}")
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await post(tape.url, message("ping"), "Accept-Encoding: gzip, deflate")
    assert answer.body == coded
    assert answer.head.values("content-encoding") == [coding]
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert (
        kept["events"][0]["data"] == result({"a": 1})
        if is_stream
        else kept["body"] == result({"a": 1})
    )
    async with playing(tmp_path / "c.json") as replay:
        played = await post(replay.url, message("ping"), "Accept-Encoding: gzip, deflate")
    assert played.head.values("content-encoding") == []
    assert played.body == plain


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip"])
@looped
async def test_undecodable_bodies_stay_opaque(tmp_path: Path, coding: str) -> None:
    """A coding that is unknown, or bytes that are not in it, are kept and played as they came."""
    coded = b"\x8b\x02\x80\xff\x00{}\x03"
    reply = response(coded, JSON, f"Content-Encoding: {coding}")
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        assert (await post(tape.url, message("ping"))).body == coded
    async with playing(tmp_path / "c.json") as replay:
        played = await post(replay.url, message("ping"))
    assert played.body == coded
    assert played.head.values("content-encoding") == [coding]


@looped
async def test_events_pass_one_by_one(tmp_path: Path) -> None:
    """Each event reaches the client before the upstream sends the next."""
    gates = [asyncio.Event() for _ in range(3)]
    events = [event(message("notifications/n", {"step": step}, id=None)) for step in range(3)]

    async def script(visit: Visit) -> None:
        await visit.send(stream_head())
        for one, gate in zip(events, gates, strict=True):
            await visit.send(chunk(one))
            await gate.wait()
        await visit.send(chunk(event(result({}))), chunk(b""))

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, ACCEPT, body=compact(message("ping")))
        for one, gate in zip(events, gates, strict=True):
            assert await body.until(b"\n\n") == one
            gate.set()
        assert await body.rest() == event(result({}))
        assert body.is_whole


@looped
async def test_a_head_passes_before_its_body(tmp_path: Path) -> None:
    """The head of a stream reaches the client before the upstream has sent any event."""
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(EVENTS, "X-A: 1"))
        await gate.wait()
        await visit.send(chunk(event(result({}))), chunk(b""))

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        head, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        assert head.values("x-a") == ["1"]
        gate.set()
        assert await body.rest() == event(result({}))


@looped
async def test_half_an_event_passes_too(tmp_path: Path) -> None:
    """What arrives is passed on even where an event, a line or a character is not whole."""
    whole = event(result({"a": "é"}), b"\r\n")
    gates = [asyncio.Event() for _ in whole]

    async def script(visit: Visit) -> None:
        await visit.send(stream_head())
        for at, gate in enumerate(gates):
            await visit.send(chunk(whole[at : at + 1]))
            await gate.wait()
        await visit.send(chunk(b""))

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        for at, gate in enumerate(gates):
            assert await body.some() == whole[at : at + 1]
            gate.set()
        assert await body.some() == b""
    assert len(read(tmp_path / "c.json")["interactions"][0]["response"]["events"]) == 1


@looped
async def test_a_large_body_passes_before_it_is_whole(tmp_path: Path) -> None:
    """The first bytes of an announced body reach the client before the last have been sent."""
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(response(b"", JSON, "Content-Length: 6", length=False), b"abc")
        await gate.wait()
        await visit.send(b"def")

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=b"{}")
        assert await body.some() == b"abc"
        gate.set()
        assert await body.rest() == b"def"


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
    kept = [one["request"]["http"]["path"] for one in read(tmp_path / "c.json")["interactions"]]
    assert kept == ["/small"]
    assert tape.session.problem is not None
    assert any(line.startswith("RECORDING FAILED: ") for line in tape.log)


@looped
async def test_a_body_that_would_be_too_large_decoded_stays_coded(tmp_path: Path) -> None:
    """A body that is small on the wire and huge decoded is kept and played as it came."""
    coded = gzip.compress(b"x" * 100_000)
    reply = response(coded, JSON, "Content-Encoding: gzip")
    async with taping(tmp_path / "c.json", answering(reply), max_body=1000) as tape:
        assert (await post(tape.url, message("ping"))).body == coded
    async with playing(tmp_path / "c.json") as replay:
        played = await post(replay.url, message("ping"))
    assert (played.body, played.head.values("content-encoding")) == (coded, ["gzip"])


# --- Clients that leave ---


@pytest.mark.parametrize("method", ["GET", "POST"])
@looped
async def test_a_client_that_leaves_a_stream_ends_it_upstream(tmp_path: Path, method: str) -> None:
    """When the client leaves an open stream the upstream sees that, and what came is kept as open."""
    left = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b": hello\n\n"))
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            _, body = await client.ask(method, "/mcp", "Accept: text/event-stream")
            assert await body.some() == b": hello\n\n"
        await left.wait()
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert (kept["response"]["end"], raw_body(kept["response"])) == ("open", b": hello\n\n")


@looped
async def test_a_client_that_leaves_before_the_response_ends_the_call_upstream(
    tmp_path: Path,
) -> None:
    """When the client leaves before the head has come the upstream sees that; others go on."""
    came, left = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number > 1:
            await visit.send(response(b"ok"))
            return
        came.set()
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            await client.write(request("POST", "/mcp", JSON, body=compact(message("ping"))))
            await came.wait()
        await left.wait()
        assert (await http("GET", tape.url)).body == b"ok"
    assert len(tape.server.received) == 2


@looped
async def test_a_call_that_was_left_before_its_response_is_kept(tmp_path: Path) -> None:
    """A request that its client abandoned is in the cassette, without a response."""
    came, left = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        came.set()
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            await client.write(request("POST", "/mcp", JSON, body=compact(message("ping"))))
            await came.wait()
        await left.wait()
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert kept["request"]["body"]["method"] == "ping"
    assert "response" not in kept


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
    assert (kept["response"]["end"], raw_body(kept["response"])) == ("open", b": hello\n\n")


async def _open_stream(visit: Visit) -> None:
    await visit.send(stream_head(), chunk(b": hello\n\n"))
    await visit.left()


# --- Upstreams that fail ---


@pytest.mark.parametrize(
    "identity", [b"7", b'"a\\u00e9"', b"1E2", b"123456789012345678901234567890"]
)
@looped
async def test_an_upstream_that_is_away_is_a_502_with_the_callers_id(
    tmp_path: Path, identity: bytes
) -> None:
    """Without an upstream the client gets a JSON-RPC error of its own id, and nothing is recorded."""
    log: list[str] = []
    async with upstream(answering()) as server:
        url = server.url
    async with recording(url, tmp_path / "c.json", RecordOptions(log=log.append)) as session:
        body = b'{"jsonrpc":"2.0","method":"ping","id":%b}' % identity
        answer = await post(session.url, body)
    assert answer.status == 502
    assert answer.head.values("content-type") == ["application/json"]
    assert answer.body.startswith(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32011,' % identity)
    assert url.removesuffix("/mcp") in answer.json["error"]["message"]
    assert session.published is None
    assert not (tmp_path / "c.json").exists()
    assert (session.exchanges, session.unreachable) == (0, 1)
    assert len(log) == 1


@looped
async def test_recording_goes_on_after_an_upstream_was_away(tmp_path: Path) -> None:
    """What the upstream answers after it was away is recorded, and numbered without regard to it."""

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            visit.reset()
        else:
            await visit.send(json_response(result({}, id=2)))

    async with taping(tmp_path / "c.json", script) as tape:
        assert (await post(tape.url, message("ping", id=1))).status == 502
        assert (await post(tape.url, message("ping", id=2))).json == result({}, id=2)
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert kept["request"]["body"]["id"] == 2
    assert (tape.session.exchanges, tape.session.unreachable) == (1, 1)


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Le", b"what is this?\r\n\r\n"]
)
@pytest.mark.parametrize("is_reset", [False, True])
@looped
async def test_half_a_head_is_no_response(
    tmp_path: Path,
    reply: bytes,
    *,
    is_reset: bool,
) -> None:
    """An upstream that ends or breaks off before its head is whole gives a 502."""

    async def script(visit: Visit) -> None:
        await visit.send(reply)
        if is_reset:
            visit.reset()
        else:
            visit.close()

    async with taping(tmp_path / "c.json", script) as tape:
        answer = await post(tape.url, message("ping", id=3))
    assert (answer.status, answer.json["id"]) == (502, 3)
    assert not (tmp_path / "c.json").exists()
    assert len(tape.server.received) == 1


BREAKS: dict[str, tuple[bytes, bytes]] = {
    "stream": (stream_head() + chunk(b"data: 1\n\n"), b"data: 1\n\n"),
    "chunk": (stream_head() + chunk(b"data: 1\n\n") + b"20\r\ndata: 2", b"data: 1\n\ndata: 2"),
    "chunk's size": (stream_head() + chunk(b"data: 1\n\n") + b"2", b"data: 1\n\n"),
    "length": (response(b"", JSON, "Content-Length: 100", length=False) + b'{"a":', b'{"a":'),
    "chunked JSON": (stream_head(JSON) + chunk(b'{"a":'), b'{"a":'),
    "nothing of it": (stream_head(JSON), b""),
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("is_reset", [False, True])
@looped
async def test_a_broken_response_is_no_clean_end(
    tmp_path: Path,
    name: str,
    *,
    is_reset: bool,
) -> None:
    """A response that the upstream breaks off is broken off for the client, and again on replay."""
    sent, expected = BREAKS[name]
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(sent)
        await gate.wait()
        if is_reset:
            visit.reset()
        else:
            visit.close()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        seen = await body.until(expected) if expected else b""
        gate.set()
        seen += await body.rest()
        assert (seen, body.is_whole) == (expected, False)
        await client.closed()
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert kept["end"] == "broken"
    async with playing(tmp_path / "c.json") as replay:
        answer = await post(replay.url, message("ping"))
    assert (answer.body, answer.is_whole) == (expected, False)


@pytest.mark.parametrize("name", BREAKS)
@looped
async def test_what_came_just_before_the_break_is_passed_on(tmp_path: Path, name: str) -> None:
    """Bytes that arrive together with the upstream's end still reach the client and the cassette."""
    sent, expected = BREAKS[name]
    async with taping(tmp_path / "c.json", answering(sent)) as tape:
        answer = await post(tape.url, message("ping"))
    assert (answer.body, answer.is_whole) == (expected, False)
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert kept["end"] == "broken"
    assert raw_body(kept) == expected if expected else "sha256" not in kept


@looped
async def test_a_break_behind_what_the_client_has_not_read_yet_is_no_clean_end(
    tmp_path: Path,
) -> None:
    """However much is on its way to a slow client, a broken stream never gets its last chunk."""
    gate = asyncio.Event()
    large = b"data: " + b"x" * 2**20 + b"\n\n"

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(large))
        await gate.wait()
        visit.reset()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream")
        gate.set()
        await body.rest()
        assert not body.is_whole


@looped
async def test_a_body_that_ends_with_its_connection_is_whole(tmp_path: Path) -> None:
    """A response without length or chunks ends where the upstream closes, which is no break."""
    reply = response(compact(result({})), JSON, length=False)
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await post(tape.url, message("ping"))
    assert (answer.json, answer.is_whole) == (result({}), True)
    assert "end" not in read(tmp_path / "c.json")["interactions"][0]["response"]
