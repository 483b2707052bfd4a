"""Facts about the relay between ends that are no sockets: what a pipe will need."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from harness import looped, read
from messages import compact, message, result
from standin import event

from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.shell.files.cassettes import journal_path
from mrtr_cassette.shell.files.journals import Journal, publish_journal
from mrtr_cassette.shell.http.transport import RawHeaders
from mrtr_cassette.shell.runs.journaling import RecordingRun
from mrtr_cassette.shell.runs.recording import Relay

PING = Request(
    "POST", "/mcp", (("Content-Type", "application/json"),), compact(message("ping"))
)
TOLD = Request(
    "POST", "/mcp", (), compact({"jsonrpc": "2.0", "method": "notifications/x"})
)
STREAM: RawHeaders = ((b"Content-Type", b"text/event-stream"),)


@dataclass
class Client:
    """A downstream that keeps what it gets."""

    got: list[object] = field(default_factory=list)
    has_left: bool = False
    journal: Path | None = None
    """Where it looks, whenever it gets something, how many lines are written."""

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        self.got.append((status, headers))

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        if self.has_left:
            raise ConnectionResetError

        self.got.append((chunk, is_last))
        if self.journal is not None:
            self.got.append(self.journal.read_bytes().count(b"\n") - 1)

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
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

    async def send_request(self, request: Request) -> Response:
        self.requests.append(request)
        if isinstance(self.response, OSError):
            raise self.response
        return self.response


@asynccontextmanager
async def relaying(
    path: Path, server: Server
) -> AsyncIterator[tuple[Relay, RecordingRun]]:
    """Give a relay to a server; the cassette is there after the block."""
    header = JournalHeader(
        "http://h/mcp", "verbatim", "2026-01-01T00:00:00+00:00", "keep", None, None
    )
    journal = Journal(path, header)
    recorder = Recorder(ExchangeSealer(seals_states=False))
    recording_run = RecordingRun(
        "", "", path, None, None, recorder=recorder, journal=journal
    )
    try:
        yield Relay(server, "server", recording_run), recording_run
    finally:
        journal.close()
        publish_journal(path)


@looped
async def test_response_is_in_the_journal_before_its_last_byte_is_passed_on(
    tmp_path: Path,
) -> None:
    """A client that has its response whole finds it on disk, whenever the recorder is killed."""
    path = tmp_path / "c.json"
    raw = event(result({}))
    for rest in ([raw[5:]], [raw[5:], b": bye\n\n"]):
        client = Client(journal=journal_path(path))
        async with relaying(path, Server(Response([raw[:5], *rest]))) as (relay, _):
            await relay.relay_exchange(PING, client)

        at = [
            index
            for index, step in enumerate(client.got)
            if step == (raw[5:], len(rest) == 1)
        ]

        assert (client.got[at[0] - 1], client.got[at[0] + 1]) == (0, 1)

        path.unlink()


@looped
async def test_a_write_that_fails_is_told_with_the_name_of_the_cassette(
    tmp_path: Path,
) -> None:
    """As it is spelled, so that it can be copied."""
    path = tmp_path / "MyCassette.json"
    async with relaying(path, Server(Response([]))) as (_, recording_run):
        recording_run.report_failure(OSError(errno.EACCES, "Permission denied"))

    assert recording_run.problem == f"{path}: permission denied"


DELETE = Request("DELETE", "/mcp", (), b"")
ACKNOWLEDGED: dict[str, tuple[Request, int, list[bytes | OSError], str, str | None]] = {
    "accepted": (PING, 202, [b"Acc", b"epted"], "Accepted", None),
    "notification": (TOLD, 200, [b"Acc", b"epted"], "Accepted", None),
    "delete": (DELETE, 200, [b"Acc", b"epted"], "Accepted", None),
    "larger than any": (PING, 202, [b"a" * 40_000] * 9, "a" * 80_000, "open"),
    "breaks": (PING, 202, [b"Acc", ConnectionError("gone")], "Acc", "broken"),
}


@pytest.mark.parametrize("name", ACKNOWLEDGED)
@looped
async def test_acknowledgement_is_read_on_though_its_client_leaves(
    tmp_path: Path, name: str
) -> None:
    """Some clients leave before the body has come, or after it: every recording has it."""
    left, status, chunks, text, end = ACKNOWLEDGED[name]
    path = tmp_path / "c.json"
    response = Response(list(chunks), (), status)
    async with (
        relaying(path, Server(response)) as (relay, _),
        relay.recording_run.background_work.finished_at_end(),
    ):
        with pytest.raises(ConnectionResetError):
            await relay.relay_exchange(left, Client(has_left=True))

    assert response.is_closed

    kept = read(path)["interactions"][0]["response"]

    assert (kept["text"], kept.get("end")) == (text, end)


LISTENING = Request("GET", "/mcp", (("Accept", "text/event-stream"),), b"")
INCOMPLETE: dict[str, tuple[Request, list[bytes | OSError], bool, int]] = {
    "whole": (PING, [event(result({}))], False, 0),
    "whole, and then broken off": (PING, [event(result({})), OSError()], False, 0),
    "broken off": (PING, [b": hello\n\n", OSError()], False, 1),
    "left by its client": (PING, [b": hello\n\n", event(result({}))], True, 1),
    "listening": (LISTENING, [b": hello\n\n", event(result({}))], True, 0),
    "listening, and broken off": (LISTENING, [b": hello\n\n", OSError()], False, 0),
}


@pytest.mark.parametrize("name", INCOMPLETE)
@looped
async def test_responses_that_clients_did_not_get_whole_are_counted(
    tmp_path: Path, name: str
) -> None:
    """A stream that listens has no end but that its client leaves, or the server goes."""
    request, chunks, has_left, count = INCOMPLETE[name]
    async with relaying(tmp_path / "c.json", Server(Response(list(chunks)))) as given:
        relay, session = given
        with suppress(ConnectionResetError):
            await relay.relay_exchange(request, Client(has_left=has_left))

    assert session.report.incomplete == count


@looped
async def test_stream_that_says_where_to_post_leads_its_client_back(
    tmp_path: Path,
) -> None:
    """A client of HTTP+SSE posts to the recorder, whatever the upstream calls itself."""
    path = tmp_path / "c.json"
    client = Client()
    chunks: list[bytes | OSError] = [
        b"event: endpoint\ndata: http://ser",
        b"ver/post?id=1\n\n",
        b": x",
    ]

    get = Request("GET", "/sse", (("Accept", "text/event-stream"),), b"")
    async with relaying(path, Server(Response(chunks))) as (relay, _):
        await replace(relay, shown_as="http://server").relay_exchange(get, client)

    passed = b"".join(step[0] for step in client.got[1:] if isinstance(step, tuple))

    assert passed == b"event: endpoint\ndata: /post?id=1\n\n: x"
