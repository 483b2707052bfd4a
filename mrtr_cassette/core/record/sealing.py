"""What must not reach the disk, taken out of one exchange.

Rule: the framing of a response stays; an event that is changed is still one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

from mrtr_cassette.core.protocol.messages import splice_pieces
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import (
    KnownStates,
    StatePlace,
    find_states,
    may_have_states,
    replaced_states,
)
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH_BYTES, sealed_hash
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response, header_value
from mrtr_cassette.core.wire.jsonbytes import Span, splice
from mrtr_cassette.core.wire.readable import content_coding, is_plain_ascii, why_unread
from mrtr_cassette.core.wire.sse import event_id_spans, read_event


def seal_states(
    request: Request, response: Response, known: KnownStates
) -> tuple[Request, Response, list[str]]:
    """Replace states where they are known to stand, then wherever they are repeated.

    The states of both are known from now on.

    Args:
        request: the request.
        response: its response.
        known: the states that are known.

    Returns:
        what was sealed, and the raw states that the response has.
    """

    def sealed(state: str) -> str:
        # A state that the client tampered with may contain the one that it was given.
        # With that one replaced in its place, the tampering can be matched on replay.
        partly = state if state in known else known.seal_text(state)
        return sealed_hash(state) if partly == state else partly

    echoed = find_states(request.body)
    issued = _states_in(response)
    if not (echoed or issued or len(known)):
        return request, response, []
    bodies = request.body, response.body
    if echoed:
        replaced = replaced_states(echoed, sealed)
        body = splice(request.body, replaced)
        bodies = _without_hashes(request.body, replaced), response.body
        request = Request(request.method, request.target, request.headers, body)
    if issued:
        replaced = replaced_states(issued, sealed_hash)
        bodies = bodies[0], _without_hashes(response.body, replaced)
        pieces = splice_pieces(response.pieces, replaced)
        response = Response(response.status, response.headers, pieces, response.end)
    for place in (*echoed, *issued):
        known.remember(place.state)
    if known.may_be_in(all_text(request, response, *bodies)):
        request = replace(
            request,
            target=known.seal_text(request.target),
            headers=_sealed_headers(request.headers, known),
            body=known.seal(request.body),
        )
        response = _with_headers(response, _sealed_headers(response.headers, known))
        response = _with_body(response, known.seal)
    return request, response, [place.state for place in issued]


def _without_hashes(raw: bytes, replaced: Iterable[tuple[Span, bytes]]) -> bytes:
    """Return a body without the states for which hashes will stand: there is nothing to find."""
    return splice(raw, [(span, b"") for span, new in replaced if SEALED_HASH_BYTES.fullmatch(new)])


def _sealed_headers(headers: Headers, known: KnownStates) -> Headers:
    return tuple([(name, known.seal_text(value)) for name, value in headers])


def all_text(
    request: Request, response: Response, request_body: bytes, response_body: bytes
) -> bytes:
    """Return all that both say with these bodies, for one look at all of it."""
    return b"\0".join(
        (
            request.target.encode("utf-8", "surrogatepass"),
            _text_of(request.headers),
            request_body,
            _text_of(response.headers),
            response_body,
        )
    )


@lru_cache(maxsize=1024)
def _text_of(headers: Headers) -> bytes:
    return "\0".join([value for _, value in headers]).encode("utf-8", "surrogatepass")


def _states_in(response: Response) -> list[StatePlace]:
    """Return the states of a response, and where in its body they stand."""
    if not response.is_framed:
        return find_states(response.body)
    states: list[StatePlace] = []
    if not may_have_states(response.body):
        return states
    offset = 0
    for index, piece in enumerate(response.pieces):
        if may_have_states(piece.raw):
            event = read_event(piece.raw, first=index == 0) if response.is_event_stream else None
            for place in find_states(piece.raw if event is None else event.data or b""):
                span = place.span if event is None else event.raw_span(place.span)
                if span is not None:
                    span = Span(span.start + offset, span.end + offset)
                    states.append(place._replace(span=span))
        offset += len(piece.raw)
    return states


def seal_event_ids(response: Response) -> Response:
    """Replace the ids of events: servers make them up anew in each recording."""
    if not response.is_event_stream or b"id:" not in response.body:
        return response
    pieces = [_with_sealed_id(piece) for piece in response.pieces]
    if all(new is old for new, old in zip(pieces, response.pieces, strict=True)):
        return response
    return replace(response, pieces=tuple(pieces))


def _with_sealed_id(piece: Piece) -> Piece:
    raw = piece.raw
    ids = [(span, raw[span.start : span.end]) for span in event_id_spans(raw)]
    if not ids:
        return piece
    sealed = [
        (span, sealed_hash(each.decode("utf-8", "surrogateescape")).encode()) for span, each in ids
    ]
    return Piece(splice(raw, sealed), piece.at_ms, piece.after)


def redacted(request: Request, response: Response, redactor: Redactor) -> tuple[Request, Response]:
    """Replace the secrets in an exchange by placeholders."""
    content_type = header_value(response.headers, "content-type")
    request = redactor.request(request)
    response = _with_body(response, lambda raw: redactor.body(raw, content_type))
    return request, _with_headers(response, redactor.headers(response.headers))


def without_credentials(
    request: Request, response: Response, credentials: Credentials
) -> tuple[Request, Response]:
    """Replace the credentials that an exchange repeats."""
    if not credentials.known.may_be_in(all_text(request, response, request.body, response.body)):
        return request, response
    response = _with_headers(response, credentials.sealed_headers(response.headers))
    return credentials.sealed_request(request), _with_body(response, credentials.sealed)


def _with_headers(response: Response, headers: Headers) -> Response:
    return response if headers == response.headers else replace(response, headers=headers)


class Unread(NamedTuple):
    """A body that can't be read.

    Attributes:
        side: whose it is.
        reason: why, as the rest of a sentence.
    """

    side: Literal["request", "response"]
    reason: str


def unread_bodies(request: Request, response: Response) -> list[Unread]:
    """Return which bodies of an exchange can't be read."""
    codings = content_coding(request.headers), content_coding(response.headers)
    bodies = request.body, response.body
    if not any(codings) and all(map(is_plain_ascii, bodies)):
        return []
    unread = [Unread("request", why_unread(request)), Unread("response", why_unread(response))]
    return [each for each in unread if each.reason]


def _with_body(response: Response, change: Callable[[bytes], bytes]) -> Response:
    """Change a body: piece by piece, or whole, as what is changed may stand across two chunks."""
    body = response.body
    changed = change(body)
    if changed == body:
        return response
    if response.is_framed:
        pieces = tuple(piece._replace(raw=change(piece.raw)) for piece in response.pieces)
        return replace(response, pieces=pieces)
    return _with_whole(response, changed)


def _with_whole(response: Response, body: bytes) -> Response:
    return replace(response, pieces=(response.pieces[-1]._replace(raw=body),))
