"""Take what must not reach the disk out of an exchange; the framing of its response stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from mrtr_cassette.core.cassette.digests import AnnouncedDigests, may_have_sha256
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import (
    endpoint_piece,
    post_target,
    without_empty_query,
)
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    line_label,
    session_ids_in_target,
)
from mrtr_cassette.core.protocol.dialect import (
    REQUEST_STATE,
    InputRequired,
    ask_in_result,
    may_ask,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    hides_response,
    response_to,
    splice_pieces,
    unread_texts,
)
from mrtr_cassette.core.protocol.origins import origin_in
from mrtr_cassette.core.protocol.tasks import created_task_id, notified_states
from mrtr_cassette.core.secrets.credentials import (
    Credentials,
    RepeatedSecrets,
    UserSettings,
)
from mrtr_cassette.core.secrets.names import (
    HASH,
    is_name_of_kind,
    sealed_hash,
    sha256_of,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.sealed import (
    StatePlace,
    find_states_and_task_ids,
    is_searched_everywhere,
    may_have_states_or_task_ids,
    seal_answers,
    state_replacements,
    with_named_task_id,
)
from mrtr_cassette.core.secrets.values import NO_VALUES, Values
from mrtr_cassette.core.wire.codings import why_body_unreadable
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
    why_line_is_no_message,
)
from mrtr_cassette.core.wire.jsonbytes import Span, is_json, splice
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.core.wire.sse import event_id_spans, read_event
from mrtr_cassette.errors import printable

NO_RESPONSE = Response(NO_STATUS, (), (), End.COMPLETE)
"""The response of a request that got none."""

_ID_HEADERS = (SESSION_HEADER, LAST_EVENT_ID_HEADER)

Side = Literal["request", "response"]

Replacement = tuple[Span, bytes]
"""A span of a body, and the bytes in its place."""


class UnreadBody(NamedTuple):
    """A body that can't be read, and why, as the rest of a sentence."""

    side: Side
    reason: str
    hides_id: bool = False
    """Nobody knows where the response has the caller's id, so it is played to no other caller."""


class SealedExchange(NamedTuple):
    """An exchange ready for the disk."""

    exchange: RecordedExchange
    ask: InputRequired | None
    """What its response asks; None for a final response."""

    unread: Sequence[UnreadBody]


@dataclass(slots=True)
class Endpoints:
    """What the disk has for the targets to which clients of HTTP+SSE post."""

    by_stream: dict[int | None, str] = field(default_factory=dict)
    """By the number of the exchange whose stream names the target."""

    by_target: dict[str, str] = field(default_factory=dict)

    def sealed_target(self, target: str) -> str:
        """Return what the disk has for the target of a request."""
        return self.by_target.get(without_empty_query(target), target)


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


# All of it, one exchange after the other


@dataclass(slots=True)
class ExchangeSealer:
    """Takes out of exchanges, and of what logs say of them, what must not reach the disk."""

    seals_states: bool
    """Raw states are replaced by their hash."""

    redactor: Redactor | None = None
    credentials: Credentials | None = None
    """Credentials seen and secrets found so far; replaced wherever they are repeated."""

    seals_answers: bool = False
    """Only hashes of users' answers reach the disk."""

    values: Values = NO_VALUES
    """Texts that references replace."""

    kept_headers: frozenset[str] = frozenset()
    """Lower-case names of headers of requests that are kept besides MCP's."""

    known_states: RepeatedSecrets = field(default_factory=RepeatedSecrets)
    """The states that were issued or echoed."""

    announced: AnnouncedDigests = field(default_factory=AnnouncedDigests)
    endpoints: Endpoints = field(default_factory=Endpoints)

    def add_settings(self, settings: UserSettings) -> None:
        """Look for the credentials in what the user gives for the server."""
        if self.credentials is not None:
            self.credentials.add_settings(settings)

    def note_endpoint(self, stream_number: int, listening_target: str, url: str) -> str:
        """Return the target of the URL to which the client of a stream posts from now on."""
        target = post_target(listening_target, url)
        id_spans = session_ids_in_target(target, listening_target)
        sealed_target = sealed_endpoint(target, id_spans, stream_number)
        self.endpoints.by_stream[stream_number] = sealed_target
        self.endpoints.by_target[target] = sealed_target
        if self.credentials is not None:
            for span in id_spans:
                session_id = span.slice_of(target)
                self.credentials.add_headers(((SESSION_HEADER, session_id),))

        return target

    def loggable_text(self, text: str, *, is_target: bool = False) -> str:
        """Return a text, or a request's target, as a log may have it: sealed and redacted."""
        if is_target:
            text = self.endpoints.sealed_target(text)

        if self.credentials is not None:
            text = self.credentials.known_secrets.sealed_text(text)

        if self.seals_states:
            text = self.known_states.sealed_text(text)

        if self.redactor is None:
            return printable(text)
        if is_target:
            return printable(self.redactor.redacted_target(text))

        return printable(self.redactor.redacted_text(text))

    def label(self, call: Call, *, is_sealed: bool = False) -> str:
        """Return a call as a log may name it: without arguments, sealed and redacted.

        The call of a sealed exchange is so already.
        """
        request = call.request
        method = call.method
        if method:
            is_id = self.seals_states and call.named_task_id is not None
            name = "" if is_id else call.name
            title = str(CallKey("", method, name, ""))

            return title if is_sealed else self.loggable_text(title)

        if request.is_line:
            return line_label(call)

        if is_sealed:
            target = printable(request.target)
        else:
            target = self.loggable_text(request.target, is_target=True)

        return f"{printable(request.method)} {target}"

    def seal(self, observed: RecordedExchange, call: Call) -> SealedExchange:
        """Take out what must not reach the disk; the states are known from now on.

        Each step searches the result of the one before. The hash of an answer, or of a secret, is
        that of a text whose states have been replaced, and a secret found in one place is replaced
        in all others by the last step: so these steps can't share the splice for ids and states.
        """
        sent_response = observed.response or NO_RESPONSE
        request, response, exchange_names = self._without_names(
            observed.number, call, sent_response
        )
        if self.seals_answers:
            request = replace(request, body=seal_answers(request.body))

        if self.redactor is not None:
            request, response = redacted_messages(request, response, self.redactor)

        if self.credentials is not None and self.credentials.known_secrets.texts:
            known_secrets = self.credentials.known_secrets
            request, response = without_known_secrets(request, response, known_secrets)

        digests = observed.digests
        # Most responses announce nothing, and have no secret.
        is_changed = response.pieces != sent_response.pieces
        may_need_digests = is_changed or may_have_sha256(sent_response.body)
        if may_need_digests and exchange_names.ask is None:
            digests = self.announced.add_response(sent_response, response)

        if self.values.names:
            request, response = with_references(request, response, self.values)

        # For every exchange, `replace` would take longer than the rest of this function.
        sealed_exchange = RecordedExchange(
            observed.number,
            request,
            None if observed.response is None else response,
            observed.started_ms,
            observed.ended_ms,
            issued_sha256=hash_of_state(exchange_names.issued_name),
            echoed_sha256=hash_of_state(exchange_names.echoed_name),
            ended_after=observed.ended_after,
            recorded_by=observed.recorded_by,
            played_writes=observed.played_writes,
            digests=digests,
        )
        unread_bodies = _unread_bodies(call, sent_response)
        return SealedExchange(sealed_exchange, exchange_names.ask, unread_bodies)

    def _without_names(
        self, number: int | None, call: Call, sent_response: Response
    ) -> tuple[Request, Response, ExchangeNames]:
        """Replace the ids of sessions and events, and states and other ids; return the latter."""
        request = self._kept_request(call.request)
        response = sent_response
        if number in self.endpoints.by_stream:
            response = with_sealed_endpoint(response, self.endpoints.by_stream[number])

        # Most exchanges have no state and no such id: one look at both bodies says so.
        both_bodies = call.request.body + sent_response.body
        has_names = may_have_states_or_task_ids(both_bodies) or may_ask(both_bodies)
        exchange_names = ExchangeNames()
        if has_names:
            exchange_names = names_in_exchange(call, response)

        replacements: list[Replacement] = []
        if response.is_event_stream and self._is_in_session(number, request, response):
            replacements.extend(sealed_event_ids(response))

        if not self.seals_states or not (has_names or self.known_states.texts):
            return request, spliced_response(response, replacements), exchange_names

        for issued_id in exchange_names.ids:
            self.known_states.remember_state(issued_id)

        places = state_places(response, self.known_states)
        replacements.extend(state_replacements(places, sealed_hash))
        response = spliced_response(response, replacements)
        request = with_sealed_states(request, self.known_states)
        states = [place.state for place in places if place.is_state]
        if states and not exchange_names.is_response_found:
            # What was not understood, such as an ask that broke off, may issue one too.
            exchange_names = exchange_names._replace(issued_name=states[0])

        for place in places:
            self.known_states.remember_state(place.state)

        request, response = without_known_secrets(request, response, self.known_states)
        return request, response, exchange_names

    def _kept_request(self, request: Request) -> Request:
        """Return a request with what is kept of its target and its headers."""
        target = self.endpoints.sealed_target(request.target)
        headers = kept_headers_of_request(request.headers, self.kept_headers)
        return Request(request.method, target, headers, request.body)

    def _is_in_session(
        self, number: int | None, request: Request, response: Response
    ) -> bool:
        """Whether an exchange opens a session or belongs to one, by its headers."""
        if number in self.endpoints.by_stream:
            return True

        if header_value(request.headers, SESSION_HEADER):
            return True

        return bool(header_value(response.headers, SESSION_HEADER))

    def may_repeat_secrets(self, journal: bytes) -> bool:
        """Tell, quickly, whether a journal may have secrets that were found after its lines."""
        if self.credentials is None or not self.credentials.has_found_repeatable_secret:
            return False
        return self.credentials.known_secrets.may_occur_in(journal)

    def without_repeated_secrets(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange without the secrets that were found after it was sealed."""
        if self.credentials is None or not self.credentials.has_found_repeatable_secret:
            return exchange

        return exchange_without_known_secrets(exchange, self.credentials.known_secrets)


def hash_of_state(state: str | None) -> str | None:
    """Return the hash of a state, if there is one."""
    return None if state is None else sha256_of(state)


def _unread_bodies(call: Call, response: Response) -> list[UnreadBody]:
    """Return which bodies can't be read, and what on a pipe was no line."""
    request = call.request
    has_unread_texts = False
    for text in unread_texts(response):
        if not _is_other_json(text, call, response):
            has_unread_texts = True

    hides_id = has_unread_texts and hides_response(call.message, response)
    response_reason = why_body_unreadable(response)
    if has_unread_texts and not response_reason:
        response_reason = "it is not readable JSON-RPC"

    unread_bodies = []
    request_reason = why_body_unreadable(request)
    if request_reason:
        unread_bodies.append(UnreadBody("request", request_reason))

    if response_reason:
        unread_bodies.append(UnreadBody("response", response_reason, hides_id))

    if call.message is None and request.is_line:
        unread_bodies += _misframed_lines(request, response)

    return unread_bodies


def _is_other_json(text: bytes, call: Call, response: Response) -> bool:
    """Tell whether a text is JSON that is read, where no message is awaited: of OAuth, say."""
    awaits_message = call.message is not None or bool(call.batch)
    return not awaits_message and not response.is_message_stream and is_json(text)


def _misframed_lines(request: Request, response: Response) -> list[UnreadBody]:
    """Return which lines of a pipe are no messages as MCP has them."""
    unread_lines = []
    request_reason = why_line_is_no_message(request.body)
    if request_reason:
        unread_lines.append(UnreadBody("request", request_reason))

    for piece in response.pieces:
        response_reason = why_line_is_no_message(piece.raw)
        if response_reason:
            unread_lines.append(UnreadBody("response", response_reason))

    return unread_lines
