"""A session with a live server, as its client knows it.

Rule: a server without sessions has one, without an id.
Source: MCP 2025-11-25, "Session Management"; MCP 2024-11-05, "HTTP with SSE".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from mrtr_cassette.core.compare.own_ids import OWN_ID
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message, classify
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealer import Seen
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    JSON_HEADERS,
    POST_HEADERS,
    SESSION_HEADER,
    End,
    Piece,
    Request,
    Response,
)
from mrtr_cassette.core.wire.jsonbytes import find_spans, splice
from mrtr_cassette.core.wire.lines import line_request
from mrtr_cassette.core.wire.sse import event_id, retry_ms

_OF_ALL: Final = frozenset({"authorization", "mcp-protocol-version", SESSION_HEADER})
"""Headers that all requests of a session have alike."""
_PAUSE_MS: Final = 1000
"""How long the SDKs' clients wait where no server says it, and the longest wait of ours."""


class TakesPushes(Protocol):
    """Whoever can answer what a server pushes."""

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a pushed request; return the request that posts its answer, or None."""
        ...


class ServerSession:
    """What all conversations in one session with a live server have in common.

    Attributes:
        recorder: sees the exchanges, and gives them the form in which they would be recorded.
        id: the server's id for the session; empty where it has none.
    """

    def __init__(self, recorder: Recorder, session_id: str = "") -> None:
        """Begin before the first request, or in a session that is open."""
        self.recorder = recorder
        self.id = session_id
        self._sent = 0
        self._owners: dict[int, TakesPushes] = {}

    def request(self, request: Request, owner: TakesPushes) -> Observation:
        """Return a request as it is sent in this session, to be shown its response.

        Args:
            request: a call gets an id of its own.
            owner: gets what the server pushes because of it.
        """
        self._sent += 1
        call = read_call(request)
        if call.message is not None and call.message.kind is Kind.REQUEST:
            body, identity = request.body, b'"%b%d"' % (OWN_ID, self._sent)
            spans = find_spans(body, [ID_PATH])[ID_PATH]
            request = with_body(request, splice(body, [(span, identity) for span in spans]))
        request = readable(in_session(request, self.id))
        observation = self.recorder.request_received(request, 0.0)
        self._owners[observation.number] = owner
        return observation

    def post(self, first: Request, body: bytes, owner: TakesPushes) -> Observation:
        """Return the request that posts a message which is no call.

        Args:
            first: a request of this session.
            owner: gets what the server pushes because of it.
        """
        if first.is_line:
            return self.request(line_request(body), owner)
        kept = tuple(pair for pair in first.headers if pair[0].lower() in _OF_ALL)
        return self.request(Request("POST", first.target, (*POST_HEADERS, *kept), body), owner)

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed, on whatever stream.

        Returns:
            the request that posts the answer to it; None where it is not answered now.
        """
        owner = self._owners.get(push.exchange)
        return None if owner is None else owner.push_received(push)

    def as_recorded(self, push: OpenPush) -> tuple[RecordedExchange, Message]:
        """Return a pushed request as it would be recorded: as the response to its call."""
        piece = Piece(push.message.raw, 0.0, 0)
        response = Response(200, JSON_HEADERS, (piece,), End.COMPLETE)
        seen = Seen(push.exchange, push.call, response, True, True, 0.0, 0.0, 0)
        exchange = self.recorder.seal(seen).exchange
        sealed = None if exchange.response is None else classify(exchange.response.body)
        return exchange, sealed or push.message

    def responded(self, observation: Observation) -> None:
        """Take the whole response to one of its requests.

        A session has the id that comes with the result of `initialize` (MCP 2025-11-25, "Session
        Management"); servers name one in errors too, which they forget at once.
        """
        if observation.call.method == "initialize" and observation.status == 200:
            self.id = observation.session or self.id
        self._owners.pop(observation.number, None)


class Resumption(NamedTuple):
    """How a client comes back for the rest of a response.

    Attributes:
        request: what it sends.
        after_s: how many seconds it waits before that.
    """

    request: Request
    after_s: float


def resumption(observation: Observation) -> Resumption | None:
    """Return how the rest of a response is asked for that the server let go of; None if it didn't.

    A server may end the stream of a call before the response, once it has sent an event with an id;
    the client waits as long as `retry` says (MCP 2025-11-25, "Resumability and Redelivery").
    """
    call, events = observation.call, observation.events
    is_call = call.message is not None and call.message.kind is Kind.REQUEST
    if observation.is_answered or observation.is_listening or not is_call:
        return None
    last = next(filter(None, map(event_id, reversed(events))), "")
    if not last:
        return None
    waits = [wait for wait in map(retry_ms, events) if wait is not None]
    kept = tuple(pair for pair in call.request.headers if pair[0].lower() in _OF_ALL)
    headers = (("Accept", EVENT_STREAM), *kept, ("Last-Event-ID", last))
    request = readable(Request("GET", call.request.target, headers, b""))
    return Resumption(request, min(waits[-1] if waits else _PAUSE_MS, _PAUSE_MS) / 1000)


def in_session(request: Request, session: str) -> Request:
    """Return a request in a session, or in none."""
    if request.header(SESSION_HEADER) == session:
        return request
    kept = tuple(pair for pair in request.headers if pair[0].lower() != SESSION_HEADER)
    added = (("Mcp-Session-Id", session),) if session else ()
    return replace(request, headers=(*kept, *added))


def readable(request: Request) -> Request:
    """Return a request whose response comes in no coding, as it is for us and not the client."""
    if request.is_line:
        return request
    kept = tuple(pair for pair in request.headers if pair[0].lower() != "accept-encoding")
    return replace(request, headers=(*kept, ("Accept-Encoding", "identity")))


def with_body(request: Request, body: bytes) -> Request:
    """Return a request with another body; the length that it announced goes."""
    headers = tuple(pair for pair in request.headers if pair[0].lower() != "content-length")
    return replace(request, headers=headers, body=body)
