"""Facts about the relay between ends that are no sockets: what a pipe will need."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from harness import looped, read
from messages import compact, message, result
from standin import event

from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import CLOCK
from mrtr_cassette.shell.journal_file import Journal, journal_path
from mrtr_cassette.shell.publishing import publish_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.transport import RawHeaders
from mrtr_cassette.shell.watching import Watcher

PING = Request("POST", "/mcp", (("Content-Type", "application/json"),), compact(message("ping")))
TOLD = Request("POST", "/mcp", (), compact({"jsonrpc": "2.0", "method": "notifications/x"}))
STREAM: RawHeaders = ((b"Content-Type", b"text/event-stream"),)


@dataclass
class Client:
    """A downstream that keeps what it gets."""

    got: list[object] = field(default_factory=list)
    has_left: bool = False

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        self.got.append((status, headers))

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        if self.has_left:
            raise ConnectionResetError
        self.got.append((chunk, is_last))

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.got += [(status, headers), (body, True)]

    def break_off(self) -> None:
        self.got.append("broken off")


@dataclass
class Response:
    """A response whose chunks come one by one; an error among them breaks it."""

    chunks: list[bytes | OSError]
    headers: RawHeaders = STREAM
    status: int = 200
    reason: bytes = b"OK"
    is_closed: bool = False

    @property
    def is_read(self) -> bool:
        return not self.chunks

    def read_now(self) -> bytes:
        return b""

    async def read(self) -> bytes:
        chunk = self.chunks.pop(0)
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Server:
    """An upstream that gives one response, or none."""

    response: Response | OSError
    requests: list[Request] = field(default_factory=list)

    async def send(self, request: Request, headers: Headers) -> Response:
        self.requests.append(request)
        if isinstance(self.response, OSError):
            raise self.response
        return self.response


@asynccontextmanager
async def relaying(path: Path, server: Server) -> AsyncIterator[tuple[Relay, RecordSession]]:
    """Give a relay to a server; the cassette is there after the block."""
    header = JournalHeader(
        "http://h/mcp", "verbatim", "2026-01-01T00:00:00+00:00", "keep", None, None
    )
    journal = Journal(journal_path(path), header)
    session = RecordSession("", "", path)
    watcher = Watcher(
        Recorder(seals=False), journal, session, Announcer(), CLOCK, started=CLOCK.now()
    )
    try:
        yield Relay(server, "server", (), watcher), session
    finally:
        journal.close()
        publish_journal(path)


@looped
async def test_chunks_pass_one_by_one_and_are_recorded(tmp_path: Path) -> None:
    """Each chunk is passed on as it comes, and the last one says so; the upstream is asked once."""
    path = tmp_path / "c.json"
    raw = event(result({}))
    server, client = Server(Response([raw[:5], raw[5:]])), Client()
    async with relaying(path, server) as (relay, _):
        await relay.handle(PING, client)

    assert client.got == [
        (200, (("Content-Type", "text/event-stream"),)),
        (b"", False),
        (raw[:5], False),
        (raw[5:], True),
    ]
    assert server.requests == [PING]
    assert len(read(path)["interactions"]) == 1


@looped
async def test_response_that_breaks_is_broken_off(tmp_path: Path) -> None:
    """The client sees that the response is not whole, and it is recorded as broken."""
    path = tmp_path / "c.json"
    client = Client()
    async with relaying(path, Server(Response([b": a\n\n", ConnectionError("gone")]))) as (
        relay,
        _,
    ):
        await relay.handle(PING, client)

    assert client.got[-2:] == [(b": a\n\n", False), "broken off"]
    assert read(path)["interactions"][0]["response"]["end"] == "broken"


@looped
async def test_client_that_leaves_ends_the_response(tmp_path: Path) -> None:
    """What came is recorded, and the upstream's response is closed."""
    path = tmp_path / "c.json"
    response = Response([b": a\n\n"])
    async with relaying(path, Server(response)) as (relay, _):
        with pytest.raises(ConnectionResetError):
            await relay.handle(PING, Client(has_left=True))

    assert response.is_closed
    assert len(read(path)["interactions"]) == 1


@pytest.mark.parametrize(
    ("left", "status"),
    [(PING, 202), (TOLD, 200), (Request("DELETE", "/mcp", (), b""), 200)],
    ids=["accepted", "notification", "delete"],
)
@looped
async def test_acknowledgement_is_recorded_whole_though_its_client_leaves(
    tmp_path: Path, left: Request, status: int
) -> None:
    """Some clients leave before the body has come, or after it: every recording has it."""
    path = tmp_path / "c.json"
    acknowledgement = Response([b"Acc", b"epted"], (), status)
    async with relaying(path, Server(acknowledgement)) as (relay, _), relay.watcher.finishing():
        with pytest.raises(ConnectionResetError):
            await relay.handle(left, Client(has_left=True))

    assert acknowledgement.is_closed
    kept = read(path)["interactions"][0]["response"]
    assert (kept["text"], kept.get("end")) == ("Accepted", None)


@looped
async def test_acknowledgement_without_an_end_is_read_for_a_while_only(tmp_path: Path) -> None:
    """What is larger than any acknowledgement is kept as it had come, without an end."""
    path = tmp_path / "c.json"
    endless = Response([b"a" * 40_000] * 9, (), 202)
    async with relaying(path, Server(endless)) as (relay, _), relay.watcher.finishing():
        with pytest.raises(ConnectionResetError):
            await relay.handle(PING, Client(has_left=True))

    assert endless.is_closed
    kept = read(path)["interactions"][0]["response"]
    assert (kept["text"], kept["end"]) == ("a" * 80_000, "open")


@looped
async def test_acknowledgement_that_breaks_is_broken(tmp_path: Path) -> None:
    """The upstream was lost, whether the client was there or not."""
    path = tmp_path / "c.json"
    broken = Response([b"Acc", ConnectionError("gone")], (), 202)
    async with relaying(path, Server(broken)) as (relay, _), relay.watcher.finishing():
        with pytest.raises(ConnectionResetError):
            await relay.handle(PING, Client(has_left=True))

    assert read(path)["interactions"][0]["response"]["end"] == "broken"


@looped
async def test_upstream_that_gives_no_response_is_answered_for(tmp_path: Path) -> None:
    """The client gets a whole response that says so, and nothing is recorded."""
    client = Client()
    server = Server(ConnectionRefusedError(111, "refused"))
    async with relaying(tmp_path / "c.json", server) as (relay, session):
        await relay.handle(PING, client)

    assert client.got[0] == (502, (("Content-Type", "application/json"),))
    assert session.unreachable == 1
    assert not (tmp_path / "c.json").exists()
