"""Having a conversation with a live server: one call, from its first request to where it stands.

An ask is answered only by who has answers to this very ask.
Source: MCP 2026-07-28, "Multi Round-Trip Requests": a retry is the original call with
`inputResponses` and the exact `requestState` of the last ask, under a new id. MCP 2025-11-25,
"Elicitation", "Sampling", "Roots": what a server pushes is answered by a JSON-RPC response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.drive.server_session import Requests, ServerSession, with_body
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import write_retry
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message
from mrtr_cassette.core.record.linking import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request


@dataclass(frozen=True, slots=True)
class LiveAsk:
    """An ask of the live server: a response to the call, or a request pushed while it is pending.

    Attributes:
        turn: how many asks there were in the conversation, with this one.
        exchange: the call with the ask as its response, as it would be recorded.
        request_state: the state that the server issued with it, as it is; or None.
        push: the pushed request, as it would be recorded; None where the response asks.
        key: our name for a pushed request within its turn, such as `elicitation-1`.
    """

    turn: int
    exchange: RecordedExchange
    request_state: str | None = None
    push: Message | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to an ask.

    Attributes:
        value: JSON text of `inputResponses`, which None leaves out; to a pushed request, of the
            member of its response.
        member: of the response to a pushed request.
    """

    value: bytes | None
    member: Literal["result", "error"] = "result"


@dataclass(frozen=True, slots=True)
class NeedsAnswers:
    """The server asks what the script expects, or anything, and the script has no answer."""

    ask: LiveAsk


@dataclass(frozen=True, slots=True)
class AskedOtherwise:
    """The server asks something else than the script answers, with these differences."""

    ask: LiveAsk
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The server asks nothing: it has given its result, an error, or no answer at all.

    Attributes:
        turn: the turn in which it would have asked, from 1.
        exchange: the last exchange, in the form in which it would be recorded.
    """

    turn: int
    exchange: RecordedExchange


class Script(Protocol):
    """What is answered in a conversation."""

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Answer an ask, or say why it is not answered."""
        ...


class Conversation(Requests):
    """One call on a live server, or another request that is no part of one.

    Attributes:
        standing: where it has come to; None while there is a request to send or a response to
            come. `NeedsAnswers` ends with `answer`.
        request_state: the state that the server issued last, or None.
    """

    def __init__(self, request: Request, script: Script, session: ServerSession) -> None:
        """Begin with the call; what makes the request a retry is left out of it."""
        super().__init__(request, session)
        self.standing: NeedsAnswers | AskedOtherwise | Finished | None = None
        self.request_state: str | None = None
        self._asked = 0
        self._script = script
        self._input_responses: bytes | None = None
        self._is_due = True
        self._pending: Observation | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing that still comes is of interest."""
        return self.standing is not None

    def next(self) -> Observation | None:
        """Return the next request to send, to be shown its response; None where there is none.

        Where a pushed request is not answered, this is the one that cancels the call.
        """
        if self.standing is not None and self._pending is not None:
            return self._cancellation(self._pending)
        if self.standing is not None or not self._is_due:
            return None
        self._is_due = False
        request = self.request
        message = read_call(request).message
        if message is not None and message.kind is Kind.REQUEST:
            body = write_retry(request.body, self._input_responses, self.request_state)
            request = with_body(request, body)
        self._pending = self._session.request(request, self)
        return self._pending

    def _cancellation(self, pending: Observation) -> Observation | None:
        """Return the request that tells the server that nobody waits for its response."""
        self._pending = None
        message = pending.call.message
        identity = None if message is None else message.spelled(ID_PATH)
        if identity is None:
            return None
        cancelled = (
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
        )
        return self._session.post(self.request, cancelled % identity, self)

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed because of this call."""
        if self.standing is not None:
            return None
        self._asked += 1
        exchange, message = self._session.as_recorded(push)
        ask = LiveAsk(self._asked, exchange, None, message, push.key)
        return self._replied(ask, self._script.answer(ask))

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self._session.responded(observation)
        # A server may also give its result without waiting for an answer.
        is_late = isinstance(self.standing, NeedsAnswers) and observation.is_answered
        if observation is not self._pending or not (self.standing is None or is_late):
            return
        self._pending = self.standing = None
        exchange = observation.seal(End.COMPLETE, 0.0)
        self._asked += 1
        if observation.ask is None:
            self.standing = Finished(self._asked, exchange)
            return
        self.request_state = observation.ask.request_state
        ask = LiveAsk(self._asked, exchange, self.request_state)
        self._replied(ask, self._script.answer(ask))

    def answer(self, answer: Answered) -> Observation | None:
        """Answer what the script had no answer to.

        Returns:
            the request that posts the answer to a pushed request; None for any other, which `next`
            has, and where the server has not waited for it.
        """
        if not isinstance(self.standing, NeedsAnswers):
            return None
        ask, self.standing = self.standing.ask, None
        return self._replied(ask, answer)

    def _replied(
        self, ask: LiveAsk, reply: Answered | NeedsAnswers | AskedOtherwise
    ) -> Observation | None:
        if not isinstance(reply, Answered):
            self.standing = reply
        elif ask.push is None:
            self._input_responses = reply.value
            self._is_due = True
        else:
            response = b'{"jsonrpc":"2.0","id":%b,"%b":%b}'
            identity = ask.push.spelled(ID_PATH) or b"null"
            body = response % (identity, reply.member.encode(), reply.value or b"{}")
            return self._session.post(self.request, body, self)
        return None
