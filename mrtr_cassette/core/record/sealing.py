"""Take what must not reach the disk out of an exchange; the framing of its response stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from mrtr_cassette.core.cassette.digests import Announced, may_announce
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import endpoint_in
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import (
    INPUT_RESPONSES,
    REQUEST_STATE,
    InputRequired,
    may_ask,
    recognise,
)
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.messages import messages_in, response_to, splice_pieces
from mrtr_cassette.core.protocol.tasks import created_id, named_task, notified_state
from mrtr_cassette.core.secrets.credentials import Credentials, KnownStates, KnownTexts
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.sealed import (
    SEALED_HASH,
    StatePlace,
    find_states,
    find_task_ids,
    is_searched,
    may_have_states,
    may_name_tasks,
    replaced_states,
    seal_answers,
    sealed_hash,
    sha256_of,
    with_task,
)
from mrtr_cassette.core.wire.http import (
    LAST_EVENT_ID_HEADER,
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    content_coding,
    header_value,
    kept_request_headers,
    kept_response_headers,
    why_unread,
)
from mrtr_cassette.core.wire.jsonbytes import Span, splice
from mrtr_cassette.core.wire.sse import event_id_spans, read_event

Side = Literal["request", "response"]

_OF_RETRIES = frozenset({INPUT_RESPONSES, REQUEST_STATE})
_IDS = (SESSION_HEADER, LAST_EVENT_ID_HEADER)
NOTHING = Response(NO_STATUS, (), (), End.COMPLETE)


class Unread(NamedTuple):
    """A body that can't be read, and why, as the rest of a sentence."""

    side: Side
    reason: str


class Sealed(NamedTuple):
    """An exchange ready for the disk."""

    exchange: RecordedExchange
    ask: InputRequired | None
    """What its response asks; None for a final response."""
    unread: Sequence[Unread]


@dataclass(slots=True)
class Sealer:
    """Takes out of exchanges what must not reach the disk."""

    seals: bool
    """Raw states are replaced by their hash."""
    redactor: Redactor | None = None
    credentials: Credentials | None = None
    """Those that have passed, which are replaced wherever they are repeated."""
    seals_answers: bool = False
    """Of what users answer only hashes reach the disk."""
    kept_headers: frozenset[str] = frozenset()
    """Lower-case names of headers of requests that are kept besides MCP's."""
    known: KnownStates = field(default_factory=KnownStates)
    """The states that were issued or echoed."""
    announced: Announced = field(default_factory=Announced)
    _opening: set[int | None] = field(default_factory=set)
    """Numbers of the exchanges whose stream says where to post, and so opens a session."""

    def seal(self, seen: RecordedExchange, call: Call) -> Sealed:
        """Take out what must not reach the disk; the states are known from now on."""
        request, sent = call.request, seen.response or NOTHING
        body, response = sent.body, sent
        raw = request.body + body
        request = replace(request, headers=_kept_of_request(request.headers, self.kept_headers))
        if b"id:" in body and response.is_event_stream and self._is_in_session(seen):
            response = replace(response, pieces=tuple(map(_with_sealed_event_id, response.pieces)))
        # Most exchanges have no state and no task: one look at both bodies says so.
        has_tasks = may_name_tasks(raw)
        may_tell = has_tasks or may_ask(raw)
        echoed = _echoed_by(call) if may_tell else None
        located = response_to(call.message, response) if may_tell else None
        issued = None if located is None else _issued_by(located.message)
        if has_tasks:
            created = None if located is None else created_id(call.message, located.message)
            echoed, issued = named_task(call.message) or echoed, created or issued
            for task in _tasks_of(call, created, response) if self.seals else ():
                self.known.remember(task)
        if self.seals and (self.known.texts or may_tell):
            request, response, states = _seal_states(request, response, self.known)
            if located is None and states:
                # What was not understood, such as an ask that broke off, may issue one too.
                issued = states[0]
        if self.seals_answers:
            request = replace(request, body=seal_answers(request.body))
        if self.redactor is not None:
            request, response = redacted(request, response, self.redactor)
        if self.credentials is not None and self.credentials.known.texts:
            request, response = _without_known(request, response, self.credentials.known)
        ask = None if located is None else recognise(located.message.tree.get("result"))
        digests: tuple[tuple[str, str], ...] = ()
        # Most responses announce nothing, and have no secret.
        if ask is None and (response.pieces != sent.pieces or may_announce(body)):
            digests = self.announced.add(sent, response)
        exchange = replace(
            seen,
            request=request,
            response=None if seen.response is None else response,
            issued_sha256=None if issued is None else sha256_of(issued),
            echoed_sha256=None if echoed is None else sha256_of(echoed),
            digests=digests,
        )
        return Sealed(exchange, ask, _unread_bodies(call.request, sent, raw))

    def _is_in_session(self, seen: RecordedExchange) -> bool:
        response = seen.response or NOTHING
        if response.pieces and endpoint_in(response.pieces[0].raw) is not None:
            self._opening.add(seen.number)
        session = seen.request.header(SESSION_HEADER)
        session = session or header_value(response.headers, SESSION_HEADER)
        return bool(session) or seen.number in self._opening


def _echoed_by(call: Call) -> str | None:
    is_retry = call.message is not None and not _OF_RETRIES.isdisjoint(call.message.params)
    answers = call.answers if is_retry else None
    return None if answers is None else answers.request_state


def _issued_by(response: Message) -> str | None:
    result = response.tree.get("result")
    state = result.get(REQUEST_STATE) if isinstance(result, dict) else None
    return state if isinstance(state, str) else None


def _tasks_of(call: Call, created: str | None, response: Response) -> Iterator[str]:
    """Yield the id of the task that an exchange creates, and those that it names.

    Where it is short, and the task's creation is not recorded, an id is no secret.
    """
    if created is not None:
        yield created
    named = named_task(call.message)
    ids = [] if named is None else [named]
    if may_name_tasks(response.body):
        states = [notified_state(each.message) for each in messages_in(response)]
        ids += [state.id for state in states if state is not None]
    yield from filter(is_searched, ids)


# Headers come again with call after call; what is kept of them is worked out once.


@lru_cache(maxsize=1024)
def _kept_of_request(headers: Headers, named: frozenset[str]) -> Headers:
    return _with_sealed_ids(kept_request_headers(headers, named))


@lru_cache(maxsize=1024)
def kept_of_response(headers: Headers) -> Headers:
    """Return the headers of a response that are kept."""
    return _with_sealed_ids(kept_response_headers(headers))


def _with_sealed_ids(headers: Headers) -> Headers:
    """Replace the id of a session, and the id of an event that stands beside it."""
    if not header_value(headers, SESSION_HEADER):
        return headers
    return tuple(
        (name, _sealed_id(value) if name.lower() in _IDS else value) for name, value in headers
    )


def _sealed_id(identity: str) -> str:
    # That of a replay, which is recorded, is sealed already.
    return identity if SEALED_HASH.fullmatch(identity) else sealed_hash(identity)


# States and ids of tasks


def _seal_states(
    request: Request, response: Response, known: KnownStates
) -> tuple[Request, Response, list[str]]:
    """Replace states and ids where they are known to stand, then wherever they are repeated.

    Returns also the raw states of the response; the states of both are known from now on.
    """

    def sealed(state: str) -> str:
        # A state that the client tampered with may contain the one that it was given.
        # With that one replaced in its place, the tampering can be matched on replay.
        partly = state if state in known else known.seal_text(state)
        return sealed_hash(state) if partly == state else partly

    echoed, issued = find_states(request.body), _places_in(response, may_have_states, find_states)
    ids_in = partial(find_task_ids, known=known)
    received = _places_in(response, may_name_tasks, ids_in)
    if echoed:
        body = splice(request.body, replaced_states(echoed, sealed))
        request = replace(request, body=body)
    if may_name_tasks(request.body):
        request = with_task(request, lambda it: sealed_hash(it) if it in known else it)
        body = splice(request.body, replaced_states(ids_in(request.body), sealed_hash))
        request = replace(request, body=body)
    if issued or received:
        pieces = splice_pieces(response.pieces, replaced_states([*issued, *received], sealed_hash))
        response = replace(response, pieces=pieces)
    for place in (*echoed, *issued):
        known.remember(place.state)
    request, response = _without_known(request, response, known)
    return request, response, [place.state for place in issued]


def _all_text(request: Request, response: Response) -> bytes:
    """Return all that both say, for one look at all of it."""
    values = [value for _, value in (*request.headers, *response.headers)]
    head = "\0".join([request.target, *values]).encode("utf-8", "surrogatepass")
    return b"\0".join((head, request.body, response.body))


def _places_in(
    response: Response, may_have: Callable[[bytes], bool], find: Callable[[bytes], list[StatePlace]]
) -> list[StatePlace]:
    """Return what is found in the messages of a response, and where in its body that stands."""
    body = response.body
    if not may_have(body):
        return []
    if not response.is_framed:
        return find(body)
    places: list[StatePlace] = []
    offset = 0
    for index, piece in enumerate(response.pieces):
        if may_have(piece.raw):
            event = read_event(piece.raw, first=index == 0) if response.is_event_stream else None
            for place in find(piece.raw if event is None else event.data or b""):
                span = place.span if event is None else event.raw_span(place.span)
                if span is not None:
                    span = Span(span.start + offset, span.end + offset)
                    places.append(place._replace(span=span))
        offset += len(piece.raw)
    return places


def _with_sealed_event_id(piece: Piece) -> Piece:
    """Replace the id of an event, from which a client of its session may resume the stream."""
    raw, sealed = piece.raw, []
    for span in event_id_spans(raw):
        identity = raw[span.start : span.end].decode("utf-8", "surrogateescape")
        sealed.append((span, _sealed_id(identity).encode()))
    return piece._replace(raw=splice(raw, sealed)) if sealed else piece


# Secrets and credentials


def redacted(request: Request, response: Response, redactor: Redactor) -> tuple[Request, Response]:
    """Replace the secrets in an exchange by placeholders."""
    content_type = header_value(response.headers, "content-type")
    request, headers = redactor.request(request), redactor.headers(response.headers)
    return request, _changed(response, headers, partial(redactor.body, content_type=content_type))


def _without_known(
    request: Request, response: Response, known: KnownTexts
) -> tuple[Request, Response]:
    """Replace the states or the credentials that an exchange repeats."""
    if not known.may_be_in(_all_text(request, response)):
        return request, response
    headers = known.sealed_headers(response.headers)
    return known.sealed_request(request), _changed(response, headers, known.seal)


def _changed(response: Response, headers: Headers, change: Callable[[bytes], bytes]) -> Response:
    """Change a body: piece by piece, or whole, as what is changed may stand across two chunks."""
    pieces, body = response.pieces, response.body
    changed = change(body)
    if changed == body:
        return response if headers == response.headers else replace(response, headers=headers)
    if len(pieces) > 1 and response.is_framed:
        pieces = tuple([piece._replace(raw=change(piece.raw)) for piece in pieces])
    else:
        pieces = (pieces[-1]._replace(raw=changed),)
    return Response(response.status, headers, pieces, response.end)


def _unread_bodies(request: Request, response: Response, both: bytes) -> list[Unread]:
    is_coded = content_coding(request.headers) or content_coding(response.headers)
    if both.isascii() and b"\0" not in both and not is_coded:
        return []
    unread = [Unread("request", why_unread(request)), Unread("response", why_unread(response))]
    return [each for each in unread if each.reason]
