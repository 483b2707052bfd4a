"""Facts about the HTTP server side, which record and replay share."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import connected, http, looped, playing, post, request, taping
from messages import message, result
from standin import (
    Visit,
    answering,
    chunk,
    event,
    event_stream,
    json_response,
    response,
    stream_head,
)

from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.http.access import Listener, listening, refusal_of
from mrtr_cassette.shell.http.server import RequestTimeouts, serving
from mrtr_cassette.shell.http.transport import Downstream, end_to_end, header_text
from mrtr_cassette.shell.runs.recording import recording

MODES = ["record", "replay"]


@asynccontextmanager
async def serving_ping(mode: str, cassette: Path) -> AsyncIterator[str]:
    """Serve one recorded or one live answer to `ping`, and give the URL."""
    reply = json_response(result({}))
    if mode == "record":
        async with taping(cassette, answering(reply)) as tape:
            yield tape.url
            assert all("evil" not in str(one.head) for one in tape.server.received)
        return
    async with taping(cassette, answering(reply)) as tape:
        await post(tape.url, message("ping"))
    async with playing(cassette) as replay:
        yield replay.url


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "header",
    [
        "Host: evil.example",
        "Host: evil.example:8722",
        "Host: localhost.evil.example",
        "Host: 127.0.0.1.evil.example",
        "Host: evil@evil.example",
        "Host: 192.168.0.1:8722",
        "Host: ",
        "Host: [::1",
        "Origin: http://evil.example",
        "Origin: https://localhost.evil.example:8722",
        "Origin: null",
        "Origin: ",
        "Origin: http://localhost@evil.example",
        "Host: localhost#.evil.example",
        "Host: localhost/.evil.example",
        "Host: localhost?.evil.example",
        "Host: localhost\\.evil.example",
        "Host: localhost:8722.evil.example",
        "Host: //localhost/evil",
        "Host: http://localhost/evil",
        "Host: localhost, evil.example",
        "Origin: http://localhost#.evil.example",
        "Origin: http://localhost/evil",
        "Origin: localhost/evil",
    ],
)
@looped
async def test_foreign_hosts_and_origins_are_refused(
    tmp_path: Path, mode: str, header: str
) -> None:
    """Whoever comes under a foreign `Host` or from a foreign `Origin` gets a 403 that says so."""
    async with serving_ping(mode, tmp_path / "c.json") as url:
        refused = await post(url, message("ping"), header)
        assert refused.status == 403
        assert refused.body.startswith(b"refused: the ")
        assert b"evil" in refused.body or b"evil" not in header.encode()
        assert (await post(url, message("ping"))).json == result({})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "headers",
    [
        ("Host: localhost", "Host: evil.example"),
        ("Host: evil.example", "Host: localhost"),
        ("Origin: http://evil.example", "Origin: http://localhost"),
        ("Origin: http://localhost", "Origin: http://localhost"),
        ("Sec-Fetch-Site: cross-site",),
        ("Sec-Fetch-Site: none", "sec-fetch-site: Cross-Site"),
    ],
)
@looped
async def test_what_another_site_may_have_sent_is_refused(
    tmp_path: Path, mode: str, headers: tuple[str, ...]
) -> None:
    """Two hosts, two origins, or another site's page that sends no origin get a 403."""
    async with serving_ping(mode, tmp_path / "c.json") as url:
        # A parser may refuse two hosts itself.
        assert (await post(url, message("ping"), *headers)).status in {400, 403}


def test_several_hosts_are_refused_whoever_parses_them() -> None:
    """Of several hosts or origins none is believed."""
    for name in ("Host", "Origin"):
        twice = (("Host", "localhost"), (name, "http://localhost"), (name.lower(), "localhost"))
        assert refusal_of(twice, ReplayOptions()) == f"refused: the {name} is there more than once"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "headers",
    [
        ("Sec-Fetch-Site: same-origin",),
        ("Sec-Fetch-Site: none",),
        # A page of localhost calls 127.0.0.1: its origin says who it is.
        ("Sec-Fetch-Site: cross-site", "Origin: http://localhost:3000"),
        ("Host: localhost",),
        ("Host: LOCALHOST:1",),
        ("Host: 127.0.0.1:8722",),
        ("Host: [::1]:8722",),
        ("Origin: http://localhost:3000",),
        ("Origin: http://127.0.0.1",),
        ("Origin: https://[::1]:5173",),
    ],
)
@looped
async def test_this_machine_is_let_in(tmp_path: Path, mode: str, headers: tuple[str, ...]) -> None:
    """Every loopback name is this machine, with any port, as host and as origin."""
    async with serving_ping(mode, tmp_path / "c.json") as url:
        assert (await post(url, message("ping"), *headers)).json == result({})


@looped
async def test_a_refused_request_is_not_recorded(tmp_path: Path) -> None:
    """What is refused neither reaches the upstream nor the cassette."""
    async with taping(tmp_path / "c.json", answering()) as tape:
        assert (await post(tape.url, message("ping"), "Host: evil.example")).status == 403
    assert tape.server.received == []
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("Host: proxy.test:1", {"allow_hosts": ["Proxy.test"]}),
        ("Origin: https://app.test", {"allow_hosts": ["https://app.test"]}),
        (
            "Origin: https://app.test\r\nSec-Fetch-Site: cross-site",
            {"allow_hosts": ["https://app.test"]},
        ),
        ("Host: 192.168.0.1:1", {"host": "0.0.0.0"}),
    ],
)
@looped
async def test_who_is_named_is_let_in(tmp_path: Path, header: str, options: dict[str, Any]) -> None:
    """A host or an origin that the user allows is let in, and nobody else is."""
    async with taping(tmp_path / "c.json", answering(response(b"x")), **options) as tape:
        url = tape.url.replace("0.0.0.0", "127.0.0.1")
        assert (await http("GET", url, header.replace(".", "x."))).status == 403
        assert (await http("GET", url, header)).body == b"x"


@looped
async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """A request with more bytes than allowed gets a 413 and goes nowhere."""
    path = tmp_path / "c.json"
    async with taping(path, answering(response(b"x")), max_body=1000) as tape:
        assert (await http("POST", tape.url, body=b"a" * 1000)).body == b"x"
        answer = await http("POST", tape.url, body=b"a" * 1001)
    assert len(tape.server.received) == 1
    assert answer.status == 413
    assert answer.body == b"the body has more than 1,000 bytes; see max_body\n"


@looped
async def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    """A client that announces a body and doesn't send it gets a 408 when its time is up."""
    async with (
        taping(tmp_path / "c.json", answering(), timeouts=RequestTimeouts(body_s=0)) as tape,
        connected(tape.url) as client,
    ):
        await client.write(request("POST", "/mcp", "Content-Length: 5"))
        assert (await client.answer())[0].line.split()[1] == "408"


@looped
async def test_requests_on_a_kept_connection_are_served_in_turn(tmp_path: Path) -> None:
    """A client may keep its connection, and send a request before the last one is answered."""
    replies = [response(b"one"), response(b"two"), response(b"three")]
    async with (
        taping(tmp_path / "c.json", answering(*replies)) as tape,
        connected(tape.url) as client,
    ):
        _, body = await client.ask("GET", "/1")
        assert await body.rest() == b"one"
        await client.write(*(request("GET", target) for target in ("/2", "/3")))
        for expected in (b"two", b"three"):
            assert await (await client.answer())[1].rest() == expected
    assert [one.head.line for one in tape.server.received] == [
        "GET /1 HTTP/1.1",
        "GET /2 HTTP/1.1",
        "GET /3 HTTP/1.1",
    ]


@looped
async def test_long_headers_pass_in_both_directions(tmp_path: Path) -> None:
    """Headers of 100 kB, as long tokens make them, reach the other end."""
    long = "X-Long: " + "a" * 100_000
    async with taping(tmp_path / "c.json", answering(response(b"", long))) as tape:
        answer = await http("GET", tape.url, long)
    assert tape.server.only.head.values("x-long") == answer.head.values("x-long") == ["a" * 100_000]


@looped
async def test_header_values_in_utf_8_keep_their_bytes(tmp_path: Path) -> None:
    """A header that is UTF-8 has the same bytes at the other end, in both directions."""
    header = "X-Name: " + "café ☕".encode().decode("latin-1")
    async with taping(tmp_path / "c.json", answering(response(b"", header))) as tape:
        answer = await http("GET", tape.url, header)
    for head in (tape.server.only.head, answer.head):
        assert [f"X-Name: {value}" for value in head.values("x-name")] == [header]


@looped
async def test_header_values_in_latin_1_become_utf_8(tmp_path: Path) -> None:
    """A header that is no UTF-8 has the same characters, in UTF-8, at the other end (docs/limits.md)."""
    async with taping(tmp_path / "c.json", answering(response(b"", "X-Back: caf\xe9"))) as tape:
        answer = await http("GET", tape.url, "X-There: caf\xe9")
    expected = "café".encode().decode("latin-1")
    assert answer.head.values("x-back") == [expected]
    assert tape.server.only.head.values("x-there") == [expected]


@looped
async def test_reason_phrases_pass_as_they_are(tmp_path: Path) -> None:
    """A reason phrase reaches the client byte for byte, whatever its encoding."""
    async with taping(tmp_path / "c.json", answering(response(status="200 Tr\xe8s bien"))) as tape:
        answer = await http("GET", tape.url)
    assert answer.head.line == "HTTP/1.1 200 Tr\xe8s bien"


@looped
async def test_many_response_headers_pass(tmp_path: Path) -> None:
    """A response may have 500 headers."""
    headers = [f"X-{number}: 1" for number in range(500)]
    async with taping(tmp_path / "c.json", answering(response(b"", *headers))) as tape:
        assert len((await http("GET", tape.url)).head.headers) == 501


@pytest.mark.parametrize(("count", "status"), [(1000, 200), (1001, 400)])
@looped
async def test_a_request_may_have_1000_headers(tmp_path: Path, count: int, status: int) -> None:
    """A request with 1,000 headers passes; one with more is refused, and goes nowhere (docs/limits.md)."""
    headers = [f"X-{number}: 1" for number in range(count - 1)]
    async with taping(tmp_path / "c.json", answering(response())) as tape:
        assert (await http("GET", tape.url, *headers)).status == status
    assert len(tape.server.received) == (status == 200)


@looped
async def test_a_header_that_cannot_be_passed_on_is_a_502(tmp_path: Path) -> None:
    """A response with a control character in a header is an upstream error, and not recorded as passed."""
    async with taping(tmp_path / "c.json", answering(response(b"x", "X-A: a\x01b"))) as tape:
        answer = await http("GET", tape.url)
    assert answer.status in {200, 502}
    assert (answer.status == 200) == (tmp_path / "c.json").exists()


@pytest.mark.parametrize("mode", MODES)
@looped
async def test_old_clients_are_served(tmp_path: Path, mode: str) -> None:
    """A client of HTTP/1.0 gets a body that ends with the connection, without chunks."""
    path = tmp_path / "c.json"
    reply = event_stream(result({}))
    old = b"GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n"

    async def ask(url: str) -> bytes:
        async with connected(url) as client:
            await client.write(old)
            seen = b""
            while part := await client.raw():
                seen += part
            return seen

    async with taping(path, answering(reply)) as tape:
        seen = await ask(tape.url)
    if mode == "replay":
        async with playing(path) as replay:
            seen = await ask(replay.url)
    assert seen.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"chunked" not in seen
    assert seen.endswith(b"\r\n\r\n" + event(result({})))


@looped
async def test_a_broken_response_is_no_clean_end_for_an_old_client(tmp_path: Path) -> None:
    """A client of HTTP/1.0, for which the close is the end, sees a reset where the upstream broke."""
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b"data: 1\n\n"))
        await gate.wait()
        visit.reset()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        await client.write(b"GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n")
        seen = b""
        while b"data: 1\n\n" not in seen:
            seen += await client.raw()
        gate.set()
        with pytest.raises(ConnectionResetError):
            await client.raw()


@looped
async def test_a_target_may_be_a_whole_url(tmp_path: Path) -> None:
    """A client that takes us for its proxy names a whole URL; the upstream gets the path."""
    async with taping(tmp_path / "c.json", answering(response(b"x"))) as tape:
        target = tape.url.replace("/mcp", "/a%2Fb?c=1")
        assert (await http("GET", tape.url, target=target)).body == b"x"
    assert tape.server.only.head.line == "GET /a%2Fb?c=1 HTTP/1.1"


# --- Binding ---


@looped
async def test_a_port_in_use_is_a_usage_error(tmp_path: Path) -> None:
    """A port that somebody has is named, with what to do, and no journal is left."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"^port {port} on 127.0.0.1 is in use; choose "):
            async with recording(
                "http://127.0.0.1:1/", tmp_path / "c.json", RecordOptions(port=port)
            ):
                pass
    assert list(tmp_path.iterdir()) == []


@looped
async def test_an_address_of_another_machine_is_a_usage_error(tmp_path: Path) -> None:
    """An address that is not this machine's can't be listened on, and the message names it."""
    host = "192.0.2.1"
    with pytest.raises(UsageError, match=rf"^can't listen on {host} port 0: "):
        async with recording("http://127.0.0.1:1/", tmp_path / "c.json", RecordOptions(host=host)):
            pass
    assert list(tmp_path.iterdir()) == []


@looped
async def test_a_port_is_free_again_after_the_block(tmp_path: Path) -> None:
    """The port of a recording can be taken by the next one at once."""
    port = 0
    for name in ("1.json", "2.json"):
        async with (
            taping(tmp_path / name, answering(response(b"x")), port=port) as tape,
            connected(tape.url) as client,
        ):
            _, body = await client.ask("GET", "/")
            assert await body.rest() == b"x"
            port = int(tape.url.split(":")[2].partition("/")[0])
    assert len(list(tmp_path.iterdir())) == 2


def test_addresses_are_urls() -> None:
    """An address gives URLs, in brackets where it is IPv6."""
    assert Listener((), "127.0.0.1", 1).url("/mcp") == "http://127.0.0.1:1/mcp"
    assert Listener((), "::1", 80).url("/mcp?a=1") == "http://[::1]:80/mcp?a=1"


# --- Headers as values ---


def test_headers_of_one_connection_are_left_out() -> None:
    """What `Connection` lists is left out in any spelling, as are the hop-by-hop headers."""
    headers = [
        ("Connection", "close, X-Once , "),
        ("x-once", "1"),
        ("X-ONCE", "2"),
        ("Transfer-Encoding", "chunked"),
        ("X-Kept", "3"),
        ("x-kept", "4"),
        ("Connection", "upgrade"),
        ("Upgrade", "h2c"),
    ]
    assert end_to_end(headers) == (("X-Kept", "3"), ("x-kept", "4"))


def test_header_bytes_are_text_in_their_own_way() -> None:
    """Bytes that are UTF-8 are read so, others as Latin-1, in which all bytes are text."""
    assert header_text("é☕".encode()) == "é☕"
    assert header_text(b"caf\xe9") == "café"
    assert header_text(bytes(range(128, 256))).encode("latin-1") == bytes(range(128, 256))


@looped
async def test_request_that_comes_while_the_serving_ends_is_not_handled() -> None:
    """It would be sent upstream when nobody records any more; its client sees the close."""
    handled = []
    started = asyncio.Event()
    late: list[BaseException] = []

    async def handler(request: Request, _: Downstream) -> None:
        handled.append(request.target)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await http("GET", url, target="/late")
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                late.append(error)
            raise
        raise AssertionError("unreachable because nobody sets the event")

    with listening(ReplayOptions()) as listener:
        url = listener.url("/early")
        async with serving(handler, listener, ReplayOptions(), None):
            early = asyncio.ensure_future(http("GET", url))
            await started.wait()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await early
    assert handled == ["/early"]
    assert len(late) == 1


@looped
async def test_what_has_begun_is_finished_where_there_is_time() -> None:
    """With time to drain, an idle connection is closed, and a request that has begun is answered."""
    started = asyncio.Event()
    go_on = asyncio.Event()

    async def handler(request: Request, downstream: Downstream) -> None:
        if request.target == "/slow":
            started.set()
            await go_on.wait()
        await downstream.send_whole(200, (), request.target.encode())

    with listening(ReplayOptions()) as listener:
        url = listener.url("/slow")
        timeouts = RequestTimeouts(drain_s=60)
        taken = serving(handler, listener, ReplayOptions(), None, timeouts=timeouts)
        async with connected(url) as idle, taken:
            await (await idle.ask("GET", "/quick"))[1].rest()
            slow = asyncio.ensure_future(http("GET", url))
            await started.wait()
            closing = asyncio.ensure_future(idle.closed())
            closing.add_done_callback(lambda _: go_on.set())
    answer = await slow
    assert answer.body == b"/slow"
    assert answer.head.values("connection") == ["close"]
