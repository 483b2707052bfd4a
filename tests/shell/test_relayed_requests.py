"""Facts about requests that pass the relay: they are untouched, and each is sent once."""

import base64
import socket
from pathlib import Path

import pytest
from harness import (
    connected,
    http,
    looped,
    playing,
    post,
    read,
    request,
    taping,
)
from messages import compact, message, result, tool_call
from standin import (
    CHUNKED,
    JSON,
    Visit,
    answering,
    chunk,
    event_stream,
    json_response,
    response,
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
    asked, answered = tool_call("x", arguments={"a": text}), result({"b": text})
    async with taping(tmp_path / "c.json", answering(json_response(answered))) as tape:
        answer = await post(tape.url, asked)
    assert tape.server.only.body == compact(asked)
    assert answer.body == compact(answered)
    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, asked)).body == answer.body


@pytest.mark.parametrize(
    "head",
    [
        b"GET /?api_key=hunter2 HTTP/9.9.9\r\n",
        b"GET / HTTP/1.1\r\nAuth\x01orization: Bearer hunter2\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: hunter2\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: hunter2\r\n",
        b"GET / HTTP/1.1\r\nCookie: " + b"hunter2" * 50_000 + b"\r\n",
    ],
    ids=["version", "name", "length", "framing", "long"],
)
@looped
async def test_malformed_request_is_told_without_what_it_has(tmp_path: Path, head: bytes) -> None:
    """The log says that a request is no HTTP, and repeats nothing of its target and its headers."""
    log: list[str] = []
    async with (
        upstream(answering()) as server,
        recording(server.url, tmp_path / "c.json", RecordOptions(log=log.append)) as session,
        connected(session.url) as client,
    ):
        await client.write(head, b"Host: h\r\n\r\n")
        while await client.raw():
            pass
    assert "hunter2" not in "".join(log)
    assert any("a request could not be handled: " in line for line in log)
