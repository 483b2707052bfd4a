"""JSON-RPC 2.0 messages: one of them, where those of a response stand, and which one asks."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.protocol.dialect import InputRequired, ask_in_result, may_ask
from mrtr_cassette.core.protocol.methods import CANCELLED, method_of
from mrtr_cassette.core.wire.codings import content_coding
from mrtr_cassette.core.wire.http import End, Piece, Response
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Number,
    Span,
    canonical,
    find_spans,
    is_json,
    item_spans,
    parse,
    parse_tolerantly,
    spelled_at,
    splice,
)
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.core.wire.sse import Event, read_event
from mrtr_cassette.errors import NotJsonError

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

ID_PATH: Final[MemberPath] = ("id",)
TOKEN_PATH: Final[MemberPath] = ("params", "_meta", "progressToken")
"""Where a request has its progress token."""
CANCELLED_ID_PATH: Final[MemberPath] = ("params", "requestId")
"""Where a cancellation has the id of the request that it cancels."""

ID_KEY = b'"id"'
TOKEN_KEY = b'"progressToken"'
_PLAIN_VALUE = (
    rb'[ \t\n\r]*:[ \t\n\r]*(-?(?:0|[1-9]\d*)|"[ !#-\[\]-~]*")(?=[ \t\n\r]*[,}])'
)
PLAIN_ID = re.compile(ID_KEY + _PLAIN_VALUE)
PLAIN_TOKEN = re.compile(TOKEN_KEY + _PLAIN_VALUE)
"""Members whose value has only one spelling; it is group 1."""

_NUMBER_AS_TEXT = re.compile(r'"(-?(?:0|[1-9][0-9]{0,17}))"')
_LOWEST_REFUSED_STATUS = 300
"""HTTP statuses from which on a body is none that a client reads as a message."""

_START_OF_JSON_OBJECT = re.compile(rb"[\xef\xbb\xbf\xfe\xff\0\s]*(?:\[[\0\s]*)?\{")
"""How an object begins, or an array of them, in any encoding of Unicode."""

_MOST_SMALL_BYTES: Final = 1 << 14
"""Bytes up to which a message is a small one, of which many are remembered."""

_MOST_MEDIUM_BYTES: Final = 1 << 20
"""Bytes up to which a few larger ones are."""

_MOST_LARGE_BYTES: Final = 1 << 24
"""Bytes up to which a single one is, until the next: while it is matched it is asked for often."""


class Kind(Enum):
    """The three kinds of JSON-RPC message."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


class Message(NamedTuple):
    """One JSON-RPC message."""

    raw: bytes
    kind: Kind
    tree: dict[str, Any]
    method: str
    id: str | None
    params: dict[str, Any]
    meta: dict[str, Any]

    @property
    def comparable_id(self) -> str | None:
        """The id as clients compare it, to which `1` and `"1"` are the same; None without one."""
        return comparable_id_or_token(self.id)

    @property
    def progress_token(self) -> str | None:
        """Canonical text of the request's progress token, or None."""
        return id_or_token_text(self.meta.get("progressToken"))

    @property
    def named_task_id(self) -> str | None:
        """The id, which a response issued, of the task that it is about; None for any other."""
        method = method_of(self.method)
        if not method.names_task:
            return None

        task_id = self.params.get(method.named_by)
        return task_id if isinstance(task_id, str) else None

    @property
    def cancelled_id(self) -> str | None:
        """Canonical text of the id of the request that it cancels; None if it cancels nothing."""
        request_id = self.params.get("requestId")
        if self.method != CANCELLED or request_id is None:
            return None
        return canonical(request_id)

    @property
    def spelled_id(self) -> bytes | None:
        """The id as it is spelled, or None without one."""
        has_single_key = self.raw.count(ID_KEY) == 1 and b"\\u" not in self.raw
        if self.id is not None and has_single_key:
            # So the key is the id's, and what is behind it need not be read.
            id_member = PLAIN_ID.search(self.raw)
            if id_member is not None:
                return id_member[1]

        return self.spelled(ID_PATH)

    def spelled(self, path: MemberPath) -> bytes | None:
        """Return the value at a path as it is spelled; of duplicate keys the last one counts."""
        return spelled_at(self.raw, path)


def message_in(raw: bytes) -> Message | None:
    """Read one message; return None for anything opaque, which a batch is.

    What was read lately is not read again: its tree is for all who ask, and nobody changes it.
    """
    if len(raw) <= _MOST_SMALL_BYTES:
        return _small_message_in(raw)
    if len(raw) <= _MOST_MEDIUM_BYTES:
        return _medium_message_in(raw)
    if len(raw) <= _MOST_LARGE_BYTES:
        return _large_message_in(raw)
    return _unremembered_message(raw)


def _unremembered_message(raw: bytes) -> Message | None:
    """Read one message without remembering it; return None for anything opaque."""
    try:
        return message_of(raw, parse(raw))
    except NotJsonError:
        return None


_small_message_in = lru_cache(maxsize=2048)(_unremembered_message)
_medium_message_in = lru_cache(maxsize=16)(_unremembered_message)
_large_message_in = lru_cache(maxsize=1)(_unremembered_message)


def server_messages(raw: bytes) -> list[tuple[Message, int]]:
    """Return the messages that clients read in a text of a server, and the offset of each.

    Many clients read what is no JSON, such as Python's `NaN`, and an array of messages.
    """
    message = message_in(raw)
    if message is not None:
        return [(message, 0)]
    if b"jsonrpc" not in raw:
        return []

    try:
        message_trees = parse_tolerantly(raw)
        message_spans = [Span(0, len(raw))]
        if isinstance(message_trees, list):
            ((_, array),) = find_spans(raw, [()])
            message_spans = item_spans(raw, array)
        else:
            message_trees = [message_trees]
    except NotJsonError:
        return []

    messages = []
    for span, item in zip(message_spans, message_trees, strict=True):
        message = message_of(span.slice_of(raw), item)
        if message is not None:
            messages.append((message, span.start))

    return messages


def server_message(raw: bytes) -> Message | None:
    """Return the message that clients read in a text of a server, the last of several, or None."""
    messages = server_messages(raw)
    if not messages:
        return None
    return messages[-1][0]


def message_of(raw: bytes, tree: Any) -> Message | None:
    """Return JSON as a message of JSON-RPC 2.0, or None if it isn't any."""
    if not isinstance(tree, dict) or tree.get("jsonrpc") != "2.0":
        return None

    method = tree.get("method")
    message_id = id_or_token_text(tree.get("id"))
    if not isinstance(method, str):
        if "result" not in tree and "error" not in tree:
            return None

        kind = Kind.RESPONSE
        method = ""
        drop_null_outcome(tree)
    elif "id" not in tree:
        kind = Kind.NOTIFICATION
    elif message_id is None:
        return None
    else:
        kind = Kind.REQUEST

    params = members_of(tree.get("params"))
    meta = members_of(params.get("_meta"))
    return Message(raw, kind, tree, method, message_id, params, meta)


def drop_null_outcome(tree: dict[str, Any]) -> None:
    """Drop the null member of `result` and `error` from a response that has both."""
    if "result" in tree and "error" in tree:
        for name in ("error", "result"):
            if tree[name] is None:
                del tree[name]
                return


def id_or_token_text(value: Any) -> str | None:
    """Return the canonical text of an id or a progress token; None for what can be neither."""
    if type(value) is int:
        return str(value)
    if isinstance(value, str | Number):
        return canonical(value)
    return None


def comparable_id_or_token(id_or_token: str | None) -> str | None:
    """Return what ids or progress tokens share that clients take for the same: `1` and `"1"`."""
    if id_or_token is None:
        return None

    number_as_text = _NUMBER_AS_TEXT.fullmatch(id_or_token)
    if number_as_text is None:
        return id_or_token

    return number_as_text[1]


def meant_id_or_token(
    candidates: Container[str], id_or_token: str | None
) -> str | None:
    """Return which of some ids or tokens a server means: the same, or one that clients take for it.

    Both `1` and `"1"` may be pending, and a server that tells them apart means the same one.
    """
    if id_or_token is None or id_or_token in candidates:
        return id_or_token

    equivalent = comparable_id_or_token(id_or_token)
    if equivalent == id_or_token:
        equivalent = f'"{id_or_token}"'

    return equivalent if equivalent in candidates else None


def repeated_token(message: Message) -> str | None:
    """Return the canonical text of the progress token that a notification repeats, or None."""
    return id_or_token_text(message.params.get("progressToken"))


class EchoPlace(NamedTuple):
    """A place where a server repeats a value of the request that its message belongs to.

    Attributes:
        kind: of which messages it is; pushed requests count as notifications.
        value: the caller's value, a member of `CallerValues`.
        method: the only method of messages in which the place means that; empty for any.
    """

    kind: Literal["response", "notification"]
    path: MemberPath
    value: Literal["id", "progress_token"]
    method: str = ""


ECHO_PLACES: Final = (
    # Only a response has the caller's id: a request that a server of the 2025 era pushes inside
    # the stream may have the same id as the pending call.
    EchoPlace("response", ID_PATH, "id"),
    EchoPlace("response", ("result", "_meta", SUBSCRIPTION_ID), "id"),
    EchoPlace("notification", ("params", "_meta", SUBSCRIPTION_ID), "id"),
    EchoPlace("notification", ("params", "progressToken"), "progress_token"),
    EchoPlace("notification", CANCELLED_ID_PATH, "id", CANCELLED),
)
"""All of them. Source: the schemas of MCP 2025-11-25 and 2026-07-28, RequestId, ProgressToken."""


class Echo(NamedTuple):
    """Where a message from the server repeats a value of the caller.

    `value` names it, as `CallerValues` does: some servers make texts of numbers, and others
    numbers of texts.
    """

    span: Span
    value: str


def echoes_of_request(message: Message, request: Message) -> list[Echo]:
    """Return where a server's message echoes the request's id and progress token."""
    echoes = _echoes_by_search(message, request)
    if echoes is None:
        return _echoes_by_path(message, request)
    return echoes


def _echoes_by_search(message: Message, request: Message) -> list[Echo] | None:
    """Return the same by a search, which takes a moment; None where that is not certain."""
    if message.kind is Kind.RESPONSE:
        id_or_token = message.id
        id_or_token_key = ID_KEY
        pattern = PLAIN_ID
        echoed_member = _echoed_member("id", id_or_token, request.id)
    else:
        id_or_token = repeated_token(message)
        id_or_token_key = TOKEN_KEY
        pattern = PLAIN_TOKEN
        echoed_member = _echoed_member(
            "progress_token", id_or_token, request.progress_token
        )

    raw = message.raw
    # A key that stands once in the bytes, in its only spelling, is the message's own.
    own_key_count = 0 if id_or_token is None else 1
    is_certain = raw.count(id_or_token_key) == own_key_count and b"\\u" not in raw
    if not is_certain or b"subscriptionId" in raw or method_of(request.method).listens:
        return None
    if echoed_member is None:
        return []

    match = pattern.search(raw)
    if match is None:
        return None

    return [Echo(Span(*match.span(1)), echoed_member)]


def _echoes_by_path(message: Message, request: Message) -> list[Echo]:
    """Return the caller's values in a message, looked for at all paths that may have them."""
    request_values = {"id": request.id, "progress_token": request.progress_token}
    value_name_by_path = {}
    for place in ECHO_PLACES:
        if _may_have_echo(place, message, request):
            value_name_by_path[place.path] = place.value

    echoes: list[Echo] = []
    for path, span in find_spans(message.raw, value_name_by_path.keys()):
        name = value_name_by_path[path]
        value = id_or_token_text(parse_tolerantly(span.slice_of(message.raw)))
        echoed_member = _echoed_member(name, value, request_values[name])
        if echoed_member is not None:
            echoes.append(Echo(span, echoed_member))

    return echoes


def _may_have_echo(place: EchoPlace, message: Message, request: Message) -> bool:
    """Tell whether a message about a request has the caller's value at a place."""
    kind = "response" if message.kind is Kind.RESPONSE else "notification"
    if place.kind != kind:
        return False
    if not place.method:
        return True

    # A server of the 2025 era cancels what it has asked itself, maybe under the id of the call.
    return message.method == place.method and method_of(request.method).listens


def _echoed_member(
    name: str, value: str | None, request_value: str | None
) -> str | None:
    """Return the member of the caller's values that a value repeats, or None."""
    if value is None or request_value is None:
        return None
    if value == request_value:
        return name
    if comparable_id_or_token(value) != comparable_id_or_token(request_value):
        return None

    spelling = "text" if value.startswith('"') else "number"
    return f"{name} as {spelling}"


# The messages of a response


@dataclass(frozen=True, slots=True)
class LocatedMessage:
    """A message of a response."""

    message: Message
    piece: int
    offset: int
    event: Event | None = None
    in_text: int = 0
    """Where it begins in its line or in the data of its event, which may have several."""

    def in_body(self, span: Span) -> Span | None:
        """Return where in the body a span of the message stands, or None if it crosses lines."""
        span_in_text: Span | None = span.moved(self.in_text)
        if span_in_text is not None and self.event is not None:
            span_in_text = self.event.raw_span(span_in_text)

        return None if span_in_text is None else span_in_text.moved(self.offset)


def messages_in(response: Response) -> list[LocatedMessage]:
    """Return the messages of a response, in order.

    An HTTP body that is no event stream is one message, or one per line: a server may respond to
    `subscriptions/listen` with newline-delimited JSON.
    """
    if response.is_message_stream:
        return list(_messages_of_pieces(response))

    body = response.body
    last_piece = len(response.pieces) - 1
    whole_message = message_in(body) if body else None
    if whole_message is not None:
        return [LocatedMessage(whole_message, last_piece, 0)]

    if b"\n" in body.strip():
        messages_of_lines = list(_messages_of_lines(response.pieces, body))
        if messages_of_lines:
            return messages_of_lines

    messages_of_body = []
    for message, offset in server_messages(body):
        messages_of_body.append(LocatedMessage(message, last_piece, offset))

    return messages_of_body


def _messages_of_pieces(response: Response) -> Iterator[LocatedMessage]:
    """Yield the messages in the events or lines of a response."""
    offset = 0
    for index, piece in enumerate(response.pieces):
        event = None
        data: bytes | None = piece.raw
        if response.is_event_stream:
            event = read_event(piece.raw, first=index == 0)
            data = event.data

        if data:
            for message, in_text in server_messages(data):
                yield LocatedMessage(message, index, offset, event, in_text)

        offset += len(piece.raw)


def _messages_of_lines(
    pieces: tuple[Piece, ...], body: bytes
) -> Iterator[LocatedMessage]:
    """Yield the messages in the lines of a body, with the pieces in which the lines end."""
    piece_ends = list(accumulate(len(piece.raw) for piece in pieces))
    offset = 0
    for line in body.splitlines(keepends=True):
        piece_index = bisect_left(piece_ends, offset + len(line))
        for message, in_text in server_messages(line):
            yield LocatedMessage(message, piece_index, offset, None, in_text)

        offset += len(line)


def response_to(request: Message | None, response: Response) -> LocatedMessage | None:
    """Return the response to a request; other messages may have the same id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None

    response_with_equivalent_id: LocatedMessage | None = None
    for located in messages_in(response):
        message = located.message
        if message.kind is not Kind.RESPONSE:
            continue
        if message.id == request.id:
            return located

        is_first_alike = response_with_equivalent_id is None
        if is_first_alike and message.comparable_id == request.comparable_id:
            response_with_equivalent_id = located

    return response_with_equivalent_id


def unread_texts(response: Response) -> list[bytes]:
    """Return what a client may read in a response as messages, and what can't be read here."""
    texts = list(_texts_read_as_messages(response))
    if content_coding(response.headers):
        return texts
    return [text for text in texts if _is_unreadable_message(text)]


def _texts_read_as_messages(response: Response) -> Iterator[bytes]:
    """Yield what clients may read as messages in a response: its body, its lines or its events."""
    is_refusal = response.status >= _LOWEST_REFUSED_STATUS
    if is_refusal or response.is_acknowledgement or not response.body:
        return

    if not response.is_message_stream or content_coding(response.headers):
        if response.end is End.COMPLETE:
            yield response.body

        return

    for index, piece in enumerate(response.pieces):
        # What broke off is no event, and no line.
        if not piece.raw.endswith((b"\n", b"\r")):
            continue
        # A stream has many notifications, which needn't be read.
        if not _may_have_id(piece.raw):
            continue

        if response.is_event_stream:
            yield read_event(piece.raw, first=index == 0).data or b""
        else:
            yield piece.raw


def _may_have_id(text: bytes) -> bool:
    """Tell, quickly, whether a text in any encoding may have a message with an id."""
    return b"id" in text.replace(b"\0", b"")


def _is_unreadable_message(text: bytes) -> bool:
    """Tell whether a text looks like a message with an id, and none is found."""
    if not _may_have_id(text):
        return False

    # A small response is remembered for whoever reads its outcome.
    is_small_response = len(text) <= _MOST_SMALL_BYTES and b'"method"' not in text
    if is_small_response and message_in(text) is not None:
        return False

    is_certain = b"2.0" in text and is_json(text)
    if is_certain or _START_OF_JSON_OBJECT.match(text) is None:
        return False

    return not any(map(server_messages, [text, *text.splitlines()]))


def hides_response(request: Message | None, response: Response) -> bool:
    """Tell whether a client may have read the response to its request, and it can't be found.

    Then nobody knows where the id stands, under which a client with another one looks for it.
    """
    if request is None or request.kind is not Kind.REQUEST:
        return False
    return bool(unread_texts(response)) and response_to(request, response) is None


def last_response(response: Response) -> Message | None:
    """Return the last JSON-RPC response in the body of a response, or None."""
    if not response.is_message_stream:
        for located in reversed(messages_in(response)):
            if located.message.kind is Kind.RESPONSE:
                return located.message

        return None

    # Of a long stream only the end is read.
    for index in reversed(range(len(response.pieces))):
        message = message_completed_by(response, index)
        if message is not None and message.kind is Kind.RESPONSE:
            return message

    return None


def message_completed_by(response: Response, piece: int) -> Message | None:
    """Return the message that a piece of a response completes, or None."""
    raw = response.pieces[piece].raw
    if response.is_event_stream:
        return server_message(read_event(raw, first=piece == 0).data or b"")

    # A message of its own line needs nothing of what came before it.
    message_of_piece = server_message(raw)
    if message_of_piece is not None:
        return message_of_piece

    for located in messages_in(response):
        if located.piece == piece:
            return located.message

    return None


Via = Literal["result", "push", "task"]
"""How a server asks for input: its response to the call is an input-required result; or it sends a
request of its own, which the client answers by a JSON-RPC response; or the state of the call's task
says so, which the client answers by an update of the task."""


@dataclass(frozen=True, slots=True)
class Ask(InputRequired):
    """A response that asks for input: an input-required result."""

    message: Message
    piece: int


def ask_in(request: Message | None, response: Response) -> Ask | None:
    """Return where a response asks for input, or None."""
    if not may_ask(response.body):
        return None

    located = response_to(request, response)
    if located is None:
        return None

    required_input = ask_in_result(located.message.tree.get("result"))
    if required_input is None:
        return None

    return Ask(
        required_input.dialect,
        required_input.input_requests,
        required_input.request_state,
        located.message,
        located.piece,
    )


def splice_pieces(
    pieces: tuple[Piece, ...], replacements: Iterable[tuple[Span, bytes]]
) -> tuple[Piece, ...]:
    """Replace spans of the whole body; a replacement stands in the piece where its span begins."""
    ordered_replacements = deque(sorted(replacements))
    if not ordered_replacements:
        return pieces

    body = splice(b"".join([piece.raw for piece in pieces]), ordered_replacements)
    changed_pieces = []
    piece_end = 0
    replaced_end = 0
    growth = 0
    start_of_piece = 0
    for piece in pieces:
        piece_end += len(piece.raw)
        while ordered_replacements and ordered_replacements[0][0].start < piece_end:
            span, new_bytes = ordered_replacements.popleft()
            if span.start >= replaced_end:
                growth += len(new_bytes)
                replaced_end = span.start

            growth -= max(0, span.end - replaced_end)
            replaced_end = max(replaced_end, span.end)

        # A span that begins in one piece may end in a later one.
        end_of_piece = max(piece_end, replaced_end) + growth
        changed_pieces.append(piece._replace(raw=body[start_of_piece:end_of_piece]))
        start_of_piece = end_of_piece

    return tuple(changed_pieces)
