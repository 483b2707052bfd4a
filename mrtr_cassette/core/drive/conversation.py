"""Having a conversation with a live server: one call, from its first request to where it stands.

Owns: what to send next, with the live request state in it, and how the conversation stands.
Does not own: what is answered (a script), sending (the shell).
Rule: an ask is answered only by a script that has answers to this very ask.
Source: MCP 2026-07-28, "Multi Round-Trip Requests": a retry is the original call with
`inputResponses` and the exact `requestState` of the last ask, under a new id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.dialect import write_retry
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import find_spans, splice
from mrtr_cassette.core.wire.pointers import Difference


@dataclass(frozen=True, slots=True)
class LiveAsk:
    """An ask of the live server.

    Attributes:
        turn: its turn, from 1.
        exchange: its exchange, in the form in which it would be recorded.
        request_state: the state that the server issued with it, as it is; or None.
    """

    turn: int
    exchange: RecordedExchange
    request_state: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The script answers the ask.

    Attributes:
        input_responses: JSON text of the member `inputResponses`; None leaves it out.
    """

    input_responses: bytes | None


@dataclass(frozen=True, slots=True)
class NeedsAnswers:
    """The server asks what the script expects, but the script ends here: its answer is missing."""

    ask: LiveAsk


@dataclass(frozen=True, slots=True)
class AskedOtherwise:
    """The server asks something else than the script answers.

    Attributes:
        ask: what it asks.
        differences: where that differs from what was expected, by JSON Pointer into the result.
    """

    ask: LiveAsk
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The server asks nothing: it has given its result, an error, or no answer at all.

    Attributes:
        turn: the turn in which it would have asked, from 1.
        exchange: the last exchange, in the form in which it would be recorded.
    """

    turn: int
    exchange: RecordedExchange


Standing = NeedsAnswers | AskedOtherwise | Finished
"""Where a conversation has come to, once there is nothing to send."""


class Script(Protocol):
    """What is answered in a conversation."""

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Answer an ask, or say why it is not answered."""
        ...


class Conversation:
    """One call on a live server.

    Attributes:
        standing: where it has come to; None while there is a request to send.
        request_state: the state that the server issued last, or None.
    """

    def __init__(self, request: Request, script: Script, recorder: Recorder) -> None:
        """Begin with the first request.

        Args:
            request: the call; what makes a request a retry is left out of it.
            script: answers what the server asks.
            recorder: sees the exchanges, and gives them the form in which they would be recorded.
        """
        self.standing: Standing | None = None
        self.request_state: str | None = None
        self._request = request
        self._script = script
        self._recorder = recorder
        self._input_responses: bytes | None = None
        self._sent = 0

    def next(self) -> Observation | None:
        """Return the next request to send, to be shown its response; None where there is none."""
        if self.standing is not None:
            return None
        self._sent += 1
        body = write_retry(self._request.body, self._input_responses, self.request_state)
        identity = b'"mrtr-cassette-%d"' % self._sent
        body = splice(body, [(span, identity) for span in find_spans(body, [ID_PATH])[ID_PATH]])
        request = readable(with_body(self._request, body))
        return self._recorder.request_received(request, 0.0)

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        exchange = observation.seal(End.COMPLETE, 0.0)
        if observation.ask is None:
            self.standing = Finished(self._sent, exchange)
            return
        self.request_state = observation.ask.request_state
        reply = self._script.answer(LiveAsk(self._sent, exchange, self.request_state))
        if isinstance(reply, Answered):
            self._input_responses = reply.input_responses
        else:
            self.standing = reply


def readable(request: Request) -> Request:
    """Return a request whose response comes in no coding, as it is for us and not the client."""
    kept = tuple(pair for pair in request.headers if pair[0].lower() != "accept-encoding")
    return replace(request, headers=(*kept, ("Accept-Encoding", "identity")))


def with_body(request: Request, body: bytes) -> Request:
    """Return a request with another body; the length that it announced goes."""
    headers = tuple(pair for pair in request.headers if pair[0].lower() != "content-length")
    return replace(request, headers=headers, body=body)
