"""A recording proxy that answers in its client's place.

Rule: it is not transparent: what the sources can answer is declared for the client, and a call's
response is passed on when it is whole. What nobody answers is passed on as the server asked it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from mrtr_cassette.core.answers.fulfilment import Sources
from mrtr_cassette.core.answers.rounds import LeavesToSources, Rounds
from mrtr_cassette.core.drive.conversation import (
    Answered,
    Conversation,
    Finished,
    LiveAsk,
    LivePush,
    NeedsAnswers,
    Posted,
)
from mrtr_cassette.core.drive.own_client import declaring, is_modern, with_id_of
from mrtr_cassette.core.drive.server_session import ServerSession
from mrtr_cassette.core.protocol.calls import NAMED_BY, read_call
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER, Headers, Request
from mrtr_cassette.option_values import FilePath
from mrtr_cassette.shell.answers_file import load_answers
from mrtr_cassette.shell.fulfilling import Answerers, answerers
from mrtr_cassette.shell.live_server import LiveServer
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.transport import Downstream, RawHeaders

_OF_LENGTH: Final = frozenset({"content-length"})


@dataclass(slots=True)
class _Taken:
    """A downstream that takes a response of the relay, and the response to read from it."""

    status: int = 0
    reason: bytes = b""
    headers: RawHeaders = ()
    passed: Headers = ()
    body: list[bytes] = field(default_factory=list)
    is_broken: bool = False
    called: str = ""

    @property
    def is_read(self) -> bool:
        return not self.body

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        self.status = status
        self.passed = headers
        self.headers = tuple((name.encode(), value.encode()) for name, value in headers)
        self.reason = (reason or "").encode("utf-8", "surrogateescape")

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:  # noqa: ARG002
        if chunk:
            self.body.append(chunk)

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.begin(status, headers)
        await self.send(body, is_last=True)

    def break_off(self) -> None:
        self.is_broken = True

    def read_now(self) -> bytes:
        chunks, self.body = b"".join(self.body), []
        return chunks

    async def read(self) -> bytes:
        if self.is_broken and self.is_read:
            raise ConnectionResetError("the upstream was lost")
        return self.read_now()

    def close(self) -> None:
        """Everything has come."""


@dataclass(slots=True)
class _OneCall:
    """The upstream as one call of a client sees it: through the relay, which records."""

    relay: Relay
    request: Request
    sources: Sources
    answerers: Answerers
    rounds: Rounds
    last: _Taken = field(default_factory=_Taken)
    answered_by: str = ""

    async def send(self, request: Request, _headers: Headers) -> _Taken:
        """Relay a request as what was received, with the capabilities of the sources."""
        received = request
        if self.answered_by:
            marked = (*request.headers, (ANSWERED_BY_HEADER, self.answered_by))
            received = replace(request, headers=marked)
        self.last = _Taken()
        await self.relay.handle(received, self.last, declaring(request, self.sources.kinds))
        return self.last

    async def supply(self, ask: LiveAsk | LivePush) -> Answered | Posted | None:
        """Have an ask answered."""
        if isinstance(ask, LivePush):
            return None
        reply = await self.answerers.answer(self.rounds, ask)
        if self.rounds.turns:
            who = dict.fromkeys(self.rounds.turns[-1].answered_by.values())
            self.answered_by = ", ".join(who) or "nobody: a retry only"
        return reply


@dataclass(frozen=True, slots=True)
class AnsweringRelay:
    """A relay that has the conversations of calls in its client's place."""

    relay: Relay
    sources: Sources
    answerers: Answerers

    async def handle(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        call = read_call(request)
        if call.method not in NAMED_BY or not is_modern(call) or call.answers is not None:
            await self.relay.handle(request, downstream)
            return
        own = _OneCall(self.relay, request, self.sources, self.answerers, Rounds(self.sources))
        session = ServerSession(Recorder(seals=False))
        conversation = Conversation(request, LeavesToSources(), session)
        server = LiveServer(own, self.relay.shown_as)
        await server.follow(conversation, own.supply)
        standing = conversation.standing
        exchange = standing.exchange if isinstance(standing, Finished) else None
        if exchange is None and isinstance(standing, NeedsAnswers):
            exchange = standing.ask.exchange
        response = None if exchange is None else exchange.response
        if exchange is None or response is None:
            downstream.break_off()
            return
        downstream.called = call.method
        headers = tuple(pair for pair in own.last.passed if pair[0].lower() not in _OF_LENGTH)
        await downstream.send_whole(own.last.status, headers, with_id_of(call, exchange))


@asynccontextmanager
async def answering(
    relay: Relay, answers: FilePath | None
) -> AsyncIterator[AnsweringRelay | Relay]:
    """Give a relay that answers by a file in its client's place, or without one the relay itself.

    Raises:
        UsageError: the file can't be read or meant, or its endpoint's URL is none.
    """
    if answers is None:
        yield relay
        return
    sources = Sources(file=load_answers(Path(answers)))
    async with answerers(sources, relay.watcher.announcer) as those:
        yield AnsweringRelay(relay, sources, those)
