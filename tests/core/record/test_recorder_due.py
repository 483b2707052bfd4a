"""When an exchange is due on disk, as transcripts: what passes, and what is written before it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from gzip import compress

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    answer,
    get,
    post,
    progress,
    rpc,
    sse,
    tool,
)
from messages import asks, text

from mrtr_cassette.core.record.recorder import DueExchange, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.errors import BodyTooLargeError

CALL = tool("deploy", env="prod")
DONE = answer(CALL, text("done"))
ASK = answer(CALL, asks("ok", state="s" * 20))
NOTE = sse(progress(1))

Line = tuple[End, bytes]
"""How the response ended as far as it is written, and the body that is written."""


@dataclass
class Transcript:
    """One exchange: `passes` and `ends` put something in, `writes` says what has to come out.

    Each entry is shown with its arrow when something else comes out than was expected.
    """

    headers: Headers
    recorder: Recorder = field(
        default_factory=lambda: Recorder(ExchangeSealer(seals_states=False))
    )
    lines: list[str] = field(default_factory=list)
    asked: list[bool] = field(default_factory=list)
    request: Request = field(default_factory=lambda: post(CALL))
    due: Line | None = None
    continues: bool = False

    def __post_init__(self) -> None:
        """Let the request and the response's head pass."""
        self.observation = self.recorder.request_received(self.request, 1.0)
        self._came(">> head", self.observation.response_started(200, self.headers, 1.5))

    def passes(self, chunk: bytes) -> Transcript:
        """Let bytes of the response come."""
        return self._came(f">> {chunk!r}", self.observation.response_bytes(chunk, 2.0))

    def ends(self, end: End) -> Transcript:
        """Let the response end."""
        return self._came(f">> {end}", self.observation.response_ended(3.0, end))

    def writes(self, body: bytes, end: End = End.COMPLETE) -> Transcript:
        """Expect that this is written before the last input is passed on."""
        assert self.due == (end, body), "\n".join(self.lines)
        assert not self.continues, "\n".join(self.lines)
        self.due = None

        return self

    def adds(self, body: bytes, end: End = End.OPEN) -> Transcript:
        """Expect that this is added to what was written before."""
        assert self.continues, "\n".join(self.lines)
        self.continues = False
        return self.writes(body, end)

    def done(self) -> None:
        """Expect that nothing else was written."""
        assert self.due is None, "\n".join(self.lines)

    def _came(self, entry: str, due: DueExchange | None) -> Transcript:
        self.done()
        self.lines.append(entry)
        if due is not None:
            exchange, ask, _ = self.recorder.sealer.seal(due.exchange, due.call)
            response = exchange.response
            assert response is not None
            self.due = (response.end, response.body)
            self.continues = due.continues_written
            self.lines.append(f"<< {self.due}")
            self.asked.append(ask is not None)

        return self


def length(body: bytes) -> Headers:
    """Return the headers of a JSON response whose length is announced."""
    return (*JSON_HEADERS, ("Content-Length", str(len(body))))


def test_response_of_known_length_is_due_with_its_last_byte() -> None:
    """It is written before the byte that makes it whole is passed on, and not again at the end."""
    (
        Transcript(length(DONE))
        .passes(DONE[:5])
        .passes(DONE[5:])
        .writes(DONE)
        .ends(End.COMPLETE)
        .done()
    )


@pytest.mark.parametrize("end", [End.OPEN, End.BROKEN])
def test_response_that_is_cut_short_is_due_as_far_as_it_came(end: End) -> None:
    """What came is written with how it ended."""
    Transcript(length(DONE)).passes(DONE[:5]).ends(end).writes(DONE[:5], end).done()


def test_what_comes_after_the_answer_is_due_once_at_the_end() -> None:
    """Later events are not written one by one; the end writes all, and the response stays whole."""
    (
        Transcript(STREAM_HEADERS)
        .passes(sse(DONE))
        .writes(sse(DONE))
        .passes(NOTE)
        .passes(NOTE)
        .ends(End.BROKEN)
        .writes(sse(DONE) + NOTE + NOTE)
        .done()
    )


def listening(request: Request) -> Transcript:
    """Return a stream that tells what other requests cause; its head is written at once."""
    return Transcript(STREAM_HEADERS, request=request).writes(b"", End.OPEN)


def test_each_event_of_a_listening_stream_is_due_before_it_passes() -> None:
    """A client acts on such an event at once; nothing is written twice, however long it goes on."""
    (
        listening(get("/mcp"))
        .passes(NOTE)
        .adds(NOTE)
        .passes(NOTE[:9])
        .passes(NOTE[9:] + NOTE)
        .adds(NOTE + NOTE)
        .passes(b": by")
        .ends(End.BROKEN)
        .adds(b": by", End.BROKEN)
        .done()
    )


@pytest.mark.parametrize("method", ["subscriptions/listen", "events/stream"])
def test_subscription_is_due_whole_with_its_response(method: str) -> None:
    """With the response the exchange is complete, and its line replaces what was written."""
    request = rpc(method)
    final = sse(answer(request, {}))
    (
        listening(post(request))
        .passes(NOTE)
        .adds(NOTE)
        .passes(final)
        .writes(NOTE + final)
        .passes(NOTE)
        .ends(End.COMPLETE)
        .writes(NOTE + final + NOTE)
        .done()
    )


def test_compressed_listening_stream_is_due_at_its_end() -> None:
    """Whether it can be decoded shows at its end."""
    headers = (*STREAM_HEADERS, ("Content-Encoding", "gzip"))
    raw = compress(NOTE)
    Transcript(headers, request=get("/mcp")).passes(raw).ends(End.OPEN).writes(
        NOTE, End.OPEN
    )


def test_request_without_a_response_is_due_when_its_client_leaves() -> None:
    """A request that nobody answered is written, without a response."""
    recorder = Recorder(ExchangeSealer(seals_states=False))
    due = recorder.request_received(post(CALL), 1.0).response_ended(2.0, End.OPEN)

    assert due is not None

    exchange, ask, _ = recorder.sealer.seal(due.exchange, due.call)

    assert (exchange.response, ask) == (None, None)


def test_response_that_becomes_too_large_is_never_due() -> None:
    """More than is kept is an error, before anything of it is written."""
    talk = Transcript(
        JSON_HEADERS, Recorder(ExchangeSealer(seals_states=False), largest_body=10)
    ).passes(b"0123456789")

    with pytest.raises(BodyTooLargeError):
        talk.passes(b"0")

    talk.done()
