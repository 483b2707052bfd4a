"""A recording of one transport as it would be of the other.

Rule: what was said stays; what can't be said over the other transport is named, before anything is
played.
Source: MCP 2026-07-28, basic, "Transports".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from mrtr_cassette.core.exchange.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, classify
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    EVENT_STREAM,
    JSON_HEADERS,
    NO_STATUS,
    POST_HEADERS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
)
from mrtr_cassette.core.wire.lines import line_request, opens_channel
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import CassetteError, printable

ENDPOINT: Final = "/mcp"
"""Where a server on pipes is served over HTTP: both official SDKs' default."""
FIRST_SESSION: Final = "mrtr-session:0"
"""The session of what was recorded with the first start of a server on pipes."""

_STREAM: Headers = (("Content-Type", EVENT_STREAM),)
_HEADER_MISMATCH = -32020


class _Changed(NamedTuple):
    """A response over the other transport.

    Attributes:
        response: the response; None where it says nothing.
        places: for each piece of the old response, its index in the new one.
    """

    response: Response | None
    places: tuple[int, ...]


class _UnsayableError(Exception):
    """Something can't be said over the other transport; the text says why."""


def over_pipes(cassette: Cassette) -> Cassette:
    """Return a cassette as one of a server on pipes, in which every request has a session.

    Raises:
        CassetteError: something in it can't be said over pipes.
    """
    if cassette.transport == "stdio":
        return _changed(cassette, _with_session, _kept)
    targets = {each.exchanges[0].request.target for each in cassette.interactions}
    if len(targets) > 1:
        reason = f"it has {len(targets)} endpoints, and a server on pipes has one"
        raise _unsayable(cassette, reason)
    return _changed(cassette, _line_of, _lines_of)


def over_http(cassette: Cassette) -> Cassette:
    """Return a cassette as one of a server that is called over HTTP.

    Raises:
        CassetteError: something in it can't be said over HTTP.
    """
    if cassette.transport == "http":
        return cassette
    upstream = f"http://localhost{ENDPOINT}"
    return replace(_changed(cassette, _post_of, _body_of), upstream=upstream)


def _unsayable(cassette: Cassette, reason: str) -> CassetteError:
    other = "HTTP" if cassette.transport == "stdio" else "pipes"
    return CassetteError(
        cassette.path,
        printable(f"it can't be played over {other}: {reason}"),
        hint=f"record it over {other}",
    )


def _changed(
    cassette: Cassette,
    request_of: Callable[[Request], Request],
    response_of: Callable[[Request, Response | None], _Changed],
) -> Cassette:
    changes = _Changes(request_of, response_of)
    interactions = []
    for interaction in cassette.interactions:
        try:
            interactions.append(changes.of(interaction))
        except _UnsayableError as error:
            raise _unsayable(cassette, f"interaction {interaction.number}: {error}") from None
    return replace(
        cassette, interactions=tuple([changes.with_turns(each) for each in interactions])
    )


@dataclass(slots=True)
class _Changes:
    """Changes exchanges, each once: branches share some."""

    request_of: Callable[[Request], Request]
    response_of: Callable[[Request, Response | None], _Changed]
    _made: dict[RecordedExchange, RecordedExchange] = field(default_factory=dict)
    _places: dict[RecordedExchange, tuple[int, ...]] = field(default_factory=dict)

    def of(self, interaction: RecordedInteraction) -> RecordedInteraction:
        """Return an interaction with other exchanges, and its pushed turns as they were."""
        exchanges = tuple([self._exchange(each) for each in interaction.exchanges])
        for turn in interaction.pushed_turns:
            for answer in turn.answers:
                self._exchange(answer.exchange)
        return replace(interaction, exchanges=exchanges)

    def _exchange(self, exchange: RecordedExchange) -> RecordedExchange:
        if exchange not in self._made:
            changed = self.response_of(exchange.request, exchange.response)
            request = self.request_of(exchange.request)
            self._made[exchange] = replace(exchange, request=request, response=changed.response)
            self._places[exchange] = changed.places
        return self._made[exchange]

    def with_turns(self, interaction: RecordedInteraction) -> RecordedInteraction:
        """Put the other exchanges into the pushed turns too, when all are known."""
        if not interaction.pushed_turns:
            return interaction
        turns = tuple([self._turn(turn) for turn in interaction.pushed_turns])
        return replace(interaction, pushed_turns=turns)

    def _turn(self, turn: PushedTurn) -> PushedTurn:
        asked = tuple(
            replace(
                each,
                exchange=self._made[each.exchange],
                piece=self._places[each.exchange][each.piece],
            )
            for each in turn.asked
        )
        answers = tuple(replace(each, exchange=self._made[each.exchange]) for each in turn.answers)
        return replace(turn, asked=asked, answers=answers)


# Pipes as they were recorded


def _with_session(request: Request) -> Request:
    if request.header(SESSION_HEADER):
        return request
    return line_request(request.body, FIRST_SESSION)


def _kept(_request: Request, response: Response | None) -> _Changed:
    return _Changed(response, () if response is None else tuple(range(len(response.pieces))))


# From HTTP to pipes


def _line_of(request: Request) -> Request:
    if request.method != "POST":
        raise _UnsayableError(f"{request.method} {request.target} means nothing there")
    if request.header(SESSION_HEADER):
        raise _UnsayableError("it is part of an HTTP session (protocol versions before 2026-07-28)")
    return line_request(on_one_line(request.body), FIRST_SESSION)


def _lines_of(request: Request, response: Response | None) -> _Changed:
    if response is None:
        return _Changed(None, ())
    said = list(_said_over_http(response))
    messages = [classify(raw) for raw, _ in said if raw]
    if _is_about_headers(messages):
        raise _UnsayableError("its headers decided the response, and pipes have none")
    if response.status >= 300 and not any(messages):
        raise _UnsayableError(f"its response is HTTP {response.status}, which is no message")
    message = classify(request.body)
    if message is not None and message.kind is not Kind.REQUEST and not any(messages):
        return _Changed(None, tuple(0 for _ in said))
    pieces: list[Piece] = []
    places = []
    for raw, piece in said:
        places.append(len(pieces))
        if raw:
            pieces.append(piece._replace(raw=on_one_line(raw) + b"\n"))
    return _Changed(Response(NO_STATUS, (), tuple(pieces), response.end), tuple(places))


def _said_over_http(response: Response) -> Iterator[tuple[bytes, Piece]]:
    """Yield what each piece of a response says; of a body that is no stream, all of it at once."""
    if response.is_event_stream:
        for index, piece in enumerate(response.pieces):
            data = read_event(piece.raw, first=index == 0).data or b""
            if data and classify(data) is None:
                raise _UnsayableError("an event is no message")
            yield data, piece
    elif response.pieces:
        yield response.body, response.pieces[-1]


def _is_about_headers(messages: list[Message | None]) -> bool:
    errors = [message.tree.get("error") for message in messages if message is not None]
    codes = [error.get("code") for error in errors if isinstance(error, dict)]
    return _HEADER_MISMATCH in codes


def on_one_line(raw: bytes) -> bytes:
    """Return JSON on one line, without its end: others stand between its tokens."""
    return raw.strip(b"\r\n").replace(b"\r\n", b"  ").replace(b"\n", b" ")


# From pipes to HTTP


def _post_of(request: Request) -> Request:
    if opens_channel(request):
        return request
    if classify(request.body) is None:
        raise _UnsayableError("a line of the client is no message")
    return Request("POST", ENDPOINT, POST_HEADERS, request.body)


def _body_of(request: Request, response: Response | None) -> _Changed:
    if response is None:
        return _Changed(Response(ACCEPTED, (), (), End.COMPLETE), ())
    said: list[Piece] = []
    places = []
    for piece in response.pieces:
        places.append(len(said))
        # Clients pass over what servers print by mistake.
        if classify(piece.raw) is not None:
            said.append(piece)
    if opens_channel(request) and said:
        raise _UnsayableError("the server speaks of its own accord")
    is_response = len(said) == 1 and _is_response(said[0].raw) and response.end is End.COMPLETE
    pieces = [piece._replace(raw=piece.raw.strip(b"\r\n")) for piece in said]
    if is_response:
        return _Changed(Response(200, JSON_HEADERS, tuple(pieces), End.COMPLETE), tuple(places))
    events = [piece._replace(raw=b"event: message\ndata: %b\n\n" % piece.raw) for piece in pieces]
    return _Changed(Response(200, _STREAM, tuple(events), response.end), tuple(places))


def _is_response(raw: bytes) -> bool:
    message = classify(raw)
    return message is not None and message.kind is Kind.RESPONSE
