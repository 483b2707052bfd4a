"""Take what must not reach the disk out of an exchange; the framing of its response stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import endpoint_piece
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import (
    REQUEST_STATE,
    InputRequired,
    ask_in_result,
)
from mrtr_cassette.core.protocol.jsonrpc import response_to, splice_pieces
from mrtr_cassette.core.protocol.origins import origin_in
from mrtr_cassette.core.protocol.tasks import created_task_id, notified_states
from mrtr_cassette.core.secrets.credentials import RepeatedSecrets
from mrtr_cassette.core.secrets.names import HASH, is_name_of_kind, sealed_hash
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.sealed import (
    StatePlace,
    find_states_and_task_ids,
    is_searched_everywhere,
    may_have_states_or_task_ids,
    state_replacements,
    with_named_task_id,
)
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import (
    LAST_EVENT_ID_HEADER,
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    header_value,
    kept_request_headers,
    kept_response_headers,
)
from mrtr_cassette.core.wire.jsonbytes import Span, splice
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.core.wire.sse import event_id_spans, read_event

NO_RESPONSE = Response(NO_STATUS, (), (), End.COMPLETE)
"""The response of a request that got none."""

_ID_HEADERS = (SESSION_HEADER, LAST_EVENT_ID_HEADER)

Replacement = tuple[Span, bytes]
"""A span of a body, and the bytes in its place."""


def spliced_response(
    response: Response, replacements: Iterable[Replacement]
) -> Response:
    """Return a response with other bytes in some places of its body."""
    replacement_list = list(replacements)
    if not replacement_list:
        return response
    pieces = splice_pieces(response.pieces, replacement_list)
    return Response(response.status, response.headers, pieces, response.end)


# Headers come again with call after call; what is kept of them is worked out once.


@lru_cache(maxsize=2048)
def kept_headers_of_request(
    headers: Headers, user_header_names: frozenset[str]
) -> Headers:
    """Return the headers of a request that are kept, those too that the user has named."""
    return _with_sealed_ids(kept_request_headers(headers, user_header_names))


@lru_cache(maxsize=2048)
def kept_headers_of_response(headers: Headers) -> Headers:
    """Return the headers of a response that are kept."""
    return _with_sealed_ids(kept_response_headers(headers))


def _with_sealed_ids(headers: Headers) -> Headers:
    """Seal the id of a session, and that of an event beside it."""
    if not header_value(headers, SESSION_HEADER):
        return headers

    sealed_headers = []
    for name, value in headers:
        is_id = name.lower() in _ID_HEADERS
        sealed_headers.append((name, _sealed_id(value) if is_id else value))

    return tuple(sealed_headers)


def _sealed_id(plain_id: str) -> str:
    """Return the hash of the id of a session or of an event."""
    # A replay's id is sealed already when it is recorded.
    return plain_id if is_name_of_kind(plain_id, HASH) else sealed_hash(plain_id)


# Sessions in URLs and in events


def sealed_endpoint(target: str, id_spans: Sequence[Span], stream_number: int) -> str:
    """Return what the disk has for a target to which a client of HTTP+SSE posts.

    A session without an id in its target gets one of ours, by the number of its stream, so that a
    replay has it apart from others.
    """
    if not id_spans:
        separator = "&" if "?" in target else "?"
        own_id = sealed_hash(f"{stream_number} {target}")
        return f"{target}{separator}session_id={own_id}"

    raw_target = target.encode("latin-1")
    replacements: list[Replacement] = []
    for span in id_spans:
        session_id = span.slice_of(target)
        replacements.append((span, sealed_hash(session_id).encode()))

    return splice(raw_target, replacements).decode("latin-1")


def with_sealed_endpoint(response: Response, sealed_target: str) -> Response:
    """Replace the target to which the client of a stream posts."""
    index, url = endpoint_piece(response)
    if url is None:
        return response

    piece = response.pieces[index]
    url_span = read_event(piece.raw, first=index == 0).raw_span(Span(0, len(url)))
    if url_span is None:
        return response

    origin = origin_in(url.decode("latin-1"))
    sealed_event = splice(
        piece.raw, [(url_span, (origin + sealed_target).encode("latin-1"))]
    )
    pieces = list(response.pieces)
    pieces[index] = piece._replace(raw=sealed_event)

    return replace(response, pieces=tuple(pieces))


def sealed_event_ids(response: Response) -> Iterator[Replacement]:
    """Yield a hash for the id of each event, from which a client may resume its stream."""
    offset = 0
    for piece in response.pieces:
        event_bytes = piece.raw
        for span in event_id_spans(event_bytes):
            event_id = span.slice_of(event_bytes).decode("utf-8", "surrogateescape")
            yield span.moved(offset), _sealed_id(event_id).encode()

        offset += len(event_bytes)


# States and ids of tasks


class ExchangeNames(NamedTuple):
    """The states and the tasks that the messages of an exchange name."""

    is_response_found: bool = False
    """The JSON-RPC response to the request was found."""

    ask: InputRequired | None = None
    """What it asks."""

    issued_name: str | None = None
    """The state that it issues, or the id of the task that it creates."""

    echoed_name: str | None = None
    """The state that the request echoes, or the id of the task that it names."""

    ids: tuple[str, ...] = ()
    """The ids of tasks that are replaced from now on."""


def names_in_exchange(call: Call, response: Response) -> ExchangeNames:
    """Return the states and the tasks that a call and its response name."""
    mentioned_ids = [state.id for state in notified_states(response)]
    if call.named_task_id:
        mentioned_ids.insert(0, call.named_task_id)

    # A short id whose creation is not recorded is no secret.
    ids = list(filter(is_searched_everywhere, mentioned_ids))
    located_response = response_to(call.message, response)
    if located_response is None:
        return ExchangeNames(echoed_name=call.echoed, ids=tuple(ids))

    result = located_response.message.tree.get("result")
    issued_state = members_of(result).get(REQUEST_STATE)
    if not isinstance(issued_state, str):
        issued_state = None

    new_task_id = created_task_id(call.message, located_response.message)
    if new_task_id:
        ids.insert(0, new_task_id)

    return ExchangeNames(
        is_response_found=True,
        ask=ask_in_result(result),
        issued_name=new_task_id or issued_state,
        echoed_name=call.echoed,
        ids=tuple(ids),
    )


def with_sealed_states(request: Request, known_states: RepeatedSecrets) -> Request:
    """Replace states and ids of tasks in a request, which are known from now on."""

    def sealed_state(state: str) -> str:
        if state in known_states:
            return sealed_hash(state)

        # A state that the client tampered with may contain the one that it was given.
        # With that one replaced in its place, the tampering can be matched on replay.
        with_known_sealed = known_states.sealed_text(state)
        return sealed_hash(state) if with_known_sealed == state else with_known_sealed

    def sealed_id(named_task_id: str) -> str:
        return (
            sealed_hash(named_task_id)
            if named_task_id in known_states
            else named_task_id
        )

    request = with_named_task_id(request, sealed_id)
    places = find_states_and_task_ids(request.body, known_states)
    if not places:
        return request

    body = splice(request.body, state_replacements(places, sealed_state))
    for place in places:
        known_states.remember_state(place.state)

    return Request(request.method, request.target, request.headers, body)


def state_places(response: Response, known_states: RepeatedSecrets) -> list[StatePlace]:
    """Return the states and ids in the messages of a response, by their spans in its body."""
    if not response.is_message_stream:
        return find_states_and_task_ids(response.body, known_states)

    places: list[StatePlace] = []
    offset = 0
    for index, piece in enumerate(response.pieces):
        if may_have_states_or_task_ids(piece.raw):
            if response.is_event_stream:
                piece_places = _places_in_event(
                    piece.raw, known_states, is_first=index == 0
                )
            else:
                piece_places = find_states_and_task_ids(piece.raw, known_states)

            for place in piece_places:
                places.append(place._replace(span=place.span.moved(offset)))

        offset += len(piece.raw)

    return places


def _places_in_event(
    raw: bytes, known_states: RepeatedSecrets, *, is_first: bool
) -> list[StatePlace]:
    """Return the states and ids in the data of an event, by their spans in its bytes."""
    event = read_event(raw, first=is_first)
    places: list[StatePlace] = []
    for place in find_states_and_task_ids(event.data or b"", known_states):
        span_in_event = event.raw_span(place.span)
        if span_in_event is not None:
            places.append(place._replace(span=span_in_event))

    return places


# Secrets and credentials


def redacted_messages(
    request: Request, response: Response, redactor: Redactor
) -> tuple[Request, Response]:
    """Replace the secrets in an exchange by placeholders."""
    request = redactor.redacted_request(request)
    headers = redactor.redacted_headers(response.headers)
    content_type = header_value(response.headers, "content-type")
    redact = partial(redactor.redacted_body, content_type=content_type)

    return request, _response_with_changed_text(response, headers, redact)


def without_known_secrets(
    request: Request, response: Response, known_secrets: RepeatedSecrets
) -> tuple[Request, Response]:
    """Replace the states or the credentials that an exchange repeats."""
    header_values = [value for _, value in (*request.headers, *response.headers)]
    heads = "\0".join([request.target, *header_values])
    raw_heads = heads.encode("utf-8", "surrogatepass")
    whole_exchange = b"\0".join((raw_heads, request.body, response.body))
    # One look at all that both say: most exchanges repeat none.
    if not known_secrets.may_occur_in(whole_exchange):
        return request, response

    return with_references(request, response, known_secrets)


def exchange_without_known_secrets(
    exchange: RecordedExchange, known_secrets: RepeatedSecrets
) -> RecordedExchange:
    """Replace the secrets that an exchange repeats."""
    response = exchange.response or NO_RESPONSE
    request, response = without_known_secrets(exchange.request, response, known_secrets)
    return with_messages(exchange, request, response)


def with_messages(
    exchange: RecordedExchange, request: Request, response: Response
) -> RecordedExchange:
    """Return an exchange with another request, and another response if it has one."""
    if exchange.response is None:
        return replace(exchange, request=request)
    return replace(exchange, request=request, response=response)


def with_references(
    request: Request, response: Response, texts: RepeatedSecrets | Values
) -> tuple[Request, Response]:
    """Put what stands for known secrets, or for texts that vary, in their place."""
    headers = texts.sealed_headers(response.headers)
    sealed_response = _response_with_changed_text(response, headers, texts.sealed_bytes)
    return texts.sealed_request(request), sealed_response


def _response_with_changed_text(
    response: Response, headers: Headers, change_text: Callable[[bytes], bytes]
) -> Response:
    """Change a body: piece by piece, or whole, as a changed text may go over two chunks."""
    body = response.body
    pieces = response.pieces
    changed_body = change_text(body)
    if changed_body == body:
        if headers == response.headers:
            return response
        return replace(response, headers=headers)

    if len(pieces) == 1 or not response.is_message_stream:
        whole_piece = pieces[-1]._replace(raw=changed_body)
        return Response(response.status, headers, (whole_piece,), response.end)

    raw_pieces = _cut_into_pieces(changed_body, pieces)
    if raw_pieces is None:
        raw_pieces = [change_text(piece.raw) for piece in pieces]

    changed_pieces = list(pieces)
    for index, raw in enumerate(raw_pieces):
        if raw != pieces[index].raw:
            changed_pieces[index] = pieces[index]._replace(raw=raw)

    return Response(response.status, headers, tuple(changed_pieces), response.end)


def _cut_into_pieces(
    changed_body: bytes, pieces: Sequence[Piece]
) -> list[bytes] | None:
    """Cut a changed body where its pieces ended, by their lines; None where they end otherwise."""
    changed_lines = changed_body.splitlines(keepends=True)
    raw_pieces = []
    start = 0
    for piece in pieces:
        end = start + len(piece.raw.splitlines())
        raw_piece = b"".join(changed_lines[start:end])
        # What is replaced may have gone on in the next event.
        if not raw_piece.endswith(_trailing_line_ends(piece.raw)):
            return None

        raw_pieces.append(raw_piece)
        start = end

    if start != len(changed_lines):
        return None

    return raw_pieces


def _trailing_line_ends(raw: bytes) -> bytes:
    """Return the line ends with which a text ends."""
    return raw[len(raw.rstrip(b"\r\n")) :]
