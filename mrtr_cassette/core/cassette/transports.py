"""A recording of one transport as it would be of the other; what can't be said there is named.

Source: MCP 2026-07-28, basic, "Transports".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
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


_Changed = tuple[Response | None, Sequence[int]]
"""A response over the other transport, and for each old piece its index there.

The response is None where it says nothing.
"""


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
    """Return a cassette with other requests and responses; branches share some exchanges."""
    made: dict[RecordedExchange, RecordedExchange] = {}
    places: dict[RecordedExchange, Sequence[int]] = {}
    for interaction in cassette.interactions:
        answers = [each.exchange for turn in interaction.pushed_turns for each in turn.answers]
        for each in (*interaction.exchanges, *answers):
            if each in made:
                continue
            try:
                response, places[each] = response_of(each.request, each.response)
                made[each] = replace(each, request=request_of(each.request), response=response)
            except _UnsayableError as error:
                raise _unsayable(cassette, f"interaction {interaction.number}: {error}") from None
    return cassette.with_exchanges(made, places)


# Pipes as they were recorded


def _with_session(request: Request) -> Request:
    if request.header(SESSION_HEADER):
        return request
    return line_request(request.body, FIRST_SESSION)


def _kept(_request: Request, response: Response | None) -> _Changed:
    return response, () if response is None else range(len(response.pieces))


# From HTTP to pipes


def _line_of(request: Request) -> Request:
    if request.method != "POST":
        raise _UnsayableError(f"{request.method} {request.target} means nothing there")
    if request.header(SESSION_HEADER):
        raise _UnsayableError("it is part of an HTTP session (protocol versions before 2026-07-28)")
    return line_request(on_one_line(request.body), FIRST_SESSION)


def _lines_of(request: Request, response: Response | None) -> _Changed:
    if response is None:
        return None, ()
    said = list(_said_over_http(response))
    messages = [classify(raw) for raw, _ in said if raw]
    if _is_about_headers(messages):
        raise _UnsayableError("its headers decided the response, and pipes have none")
    if response.status >= 300 and not any(messages):
        raise _UnsayableError(f"its response is HTTP {response.status}, which is no message")
    message = classify(request.body)
    if message is not None and message.kind is not Kind.REQUEST and not any(messages):
        return None, [0] * len(said)
    pieces: list[Piece] = []
    places = []
    for raw, piece in said:
        places.append(len(pieces))
        if raw:
            pieces.append(piece._replace(raw=on_one_line(raw) + b"\n"))
    return Response(NO_STATUS, (), tuple(pieces), response.end), places


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
        return Response(ACCEPTED, (), (), End.COMPLETE), ()
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
        return Response(200, JSON_HEADERS, tuple(pieces), End.COMPLETE), places
    events = [piece._replace(raw=b"event: message\ndata: %b\n\n" % piece.raw) for piece in pieces]
    return Response(200, _STREAM, tuple(events), response.end), places


def _is_response(raw: bytes) -> bool:
    message = classify(raw)
    return message is not None and message.kind is Kind.RESPONSE
