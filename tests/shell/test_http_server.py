"""Facts about the HTTP server side, which record and replay share."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from harness import connected, http, looped, playing, post, taping
from messages import message, result
from standin import answering, json_response, response

from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.http.access import listening, refusal_of
from mrtr_cassette.shell.http.server import serving
from mrtr_cassette.shell.http.transport import Downstream
from mrtr_cassette.shell.runs.recording import recording

ONLY_APP = {"allow_hosts": ["Proxy.test", "https://App.test"]}
EVERYWHERE = {"host": "0.0.0.0"}
CROSS = "Sec-Fetch-Site: cross-site"
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({}, f"Host: {name}")
        for name in (
            "evil.example",
            "evil.example:8722",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil@evil.example",
            "192.168.0.1:8722",
            "",
            "[::1",
            "localhost#.evil.example",
            "localhost/.evil.example",
            "localhost?.evil.example",
            "localhost\\.evil.example",
            "localhost:8722.evil.example",
            "//localhost/evil",
            "http://localhost/evil",
            "localhost, evil.example",
            "localhost|Host: evil.example",
            "evil.example|Host: localhost",
        )
    ),
    *(
        ({}, f"Origin: {origin}")
        for origin in (
            "http://evil.example",
            "https://localhost.evil.example:8722",
            "null",
            "",
            "http://localhost@evil.example",
            "http://localhost#.evil.example",
            "http://localhost/evil",
            "localhost/evil",
            "http://evil.example|Origin: http://localhost",
            "http://localhost|Origin: http://localhost",
        )
    ),
    ({}, CROSS),
    ({}, "Sec-Fetch-Site: none|sec-fetch-site: Cross-Site"),
    (ONLY_APP, "Host: proxyx.test:1"),
    (ONLY_APP, "Origin: https://appx.test"),
    (EVERYWHERE, "Host: 192x.168.0.1:1"),
]
LET_IN: list[tuple[dict[str, Any], str]] = [
    *(
        ({}, headers)
        for headers in (
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: none",
            "Host: localhost",
            # A page of localhost calls 127.0.0.1: its origin says who it is.
            f"{CROSS}|Origin: http://localhost:3000",
            "Host: LOCALHOST:1",
            "Host: 127.0.0.1:8722",
            "Host: [::1]:8722",
            "Origin: http://localhost:3000",
            "Origin: http://127.0.0.1",
            "Origin: https://[::1]:5173",
        )
    ),
    (ONLY_APP, "Host: proxy.test:1"),
    (ONLY_APP, "Origin: https://app.test"),
    (ONLY_APP, "Origin: HTTPS://app.TEST"),
    (ONLY_APP, f"Origin: https://app.test|{CROSS}"),
    (EVERYWHERE, "Host: 192.168.0.1:1"),
]


def refused(options: dict[str, Any], headers: str) -> str | None:
    """Return why a request with these headers is refused, or None."""
    parts = (header.partition(": ") for header in headers.split("|"))
    pairs = [(name, value) for name, _, value in parts]
    if not any(name == "Host" for name, _ in pairs):
        pairs.append(("Host", "localhost"))

    return refusal_of(tuple(pairs), ReplayOptions(**options))


@pytest.mark.parametrize(("options", "headers"), REFUSED)
def test_who_comes_from_elsewhere_is_refused(
    options: dict[str, Any], headers: str
) -> None:
    """Foreign hosts and origins, two of either, and another site's page that sends no origin."""
    assert str(refused(options, headers)).startswith("refused: the ")


@pytest.mark.parametrize(("options", "headers"), LET_IN)
def test_this_machine_and_who_is_named_are_let_in(
    options: dict[str, Any], headers: str
) -> None:
    """Every loopback name, with any port, and every host or origin that the user allows."""
    assert refused(options, headers) is None


@looped
async def test_a_refused_request_goes_nowhere(tmp_path: Path) -> None:
    """It gets a 403 that says why, from recording and from replay, and is not recorded."""
    path = tmp_path / "c.json"
    async with taping(path, answering(json_response(result({})))) as tape:
        answer = await post(tape.url, message("ping"), "Host: evil.example")

        assert (answer.status, answer.body[:28]) == (
            403,
            b"refused: the Host 'evil.exam",
        )

        await post(tape.url, message("ping"))

    assert len(tape.server.received) == 1

    async with playing(path) as replay:
        assert (
            await post(replay.url, message("ping"), "Host: evil.example")
        ).status == 403
        assert (await post(replay.url, message("ping"))).json == result({})


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("caf\u00e9 \u2615".encode(), "caf\u00e9 \u2615".encode()),
        (b"caf\xe9", "caf\u00e9".encode()),
    ],
    ids=["utf-8", "latin-1"],
)
@looped
async def test_header_values_reach_the_other_end_in_utf_8(
    tmp_path: Path, sent: bytes, received: bytes
) -> None:
    """UTF-8 keeps its bytes, and Latin-1 its characters, in both directions (docs/limits.md)."""
    header = "X-Name: " + sent.decode("latin-1")
    async with taping(tmp_path / "c.json", answering(response(b"", header))) as tape:
        answer = await http("GET", tape.url, header)

    for head in (tape.server.only.head, answer.head):
        assert head.values("x-name") == [received.decode("latin-1")]


# --- Binding ---


@looped
async def test_a_port_in_use_is_a_usage_error(tmp_path: Path) -> None:
    """A port that somebody has is named, with what to do, and no journal is left."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=rf"^port {port} on 127.0.0.1 is in use; choose "
        ):
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
        async with recording(
            "http://127.0.0.1:1/", tmp_path / "c.json", RecordOptions(host=host)
        ):
            pass

    assert list(tmp_path.iterdir()) == []


def addresses(*hosts: str, port: int = 0) -> list[tuple[Any, ...]]:
    """Return IPv4 addresses as a look-up of a name with several finds them."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]


def test_all_addresses_of_a_host_have_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL has a port, and a client may call any address; another port is tried if it is taken.

    An address that is found twice is one.
    """
    found = addresses("127.0.0.1", "127.0.0.2", "127.0.0.1")
    taken = socket.create_server(("127.0.0.2", 0))
    free_ports = [taken.getsockname()[1], 0]
    create_server = socket.create_server

    def create(address: tuple[str, int], **options: Any) -> socket.socket:
        host, port = address
        return create_server((host, port or free_ports.pop(0)), **options)

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_server", create)
    with taken, listening(ReplayOptions(host="localhost")) as listener:
        bound = [
            listening_socket.getsockname() for listening_socket in listener.sockets
        ]

        assert bound == [("127.0.0.1", listener.port), ("127.0.0.2", listener.port)]
        assert free_ports == []


def test_no_address_stays_bound_where_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next try finds the others free."""
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        found = addresses("127.0.0.1", "127.0.0.2", port=port)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        options = ReplayOptions(host="localhost", port=port)
        with pytest.raises(UsageError) as refusal, listening(options):
            pass

        monkeypatch.undo()
        socket.create_server(("127.0.0.1", port)).close()

    assert "is in use" in str(refusal.value)


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

        await downstream.send_response(200, (), request.target.encode())

    with listening(ReplayOptions()) as listener:
        url = listener.url("/slow")
        taken = serving(handler, listener, ReplayOptions(), None, drain_s=60)
        async with connected(url) as idle, taken:
            await (await idle.ask("GET", "/quick"))[1].rest()
            slow = asyncio.ensure_future(http("GET", url))
            await started.wait()
            closing = asyncio.ensure_future(idle.closed())
            closing.add_done_callback(lambda _: go_on.set())

    answer = await slow

    assert answer.body == b"/slow"
    assert answer.head.values("connection") == ["close"]
