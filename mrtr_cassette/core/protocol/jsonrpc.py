"""JSON-RPC 2.0 messages: one of them, where those of a response stand, and which one asks."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.protocol.dialect import InputRequired, may_ask, recognise
from mrtr_cassette.core.protocol.methods import CANCELLED, LISTEN
from mrtr_cassette.core.wire.http import Piece, Response
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Number,
    Span,
    canonical,
    find_spans,
    parse,
    spelled_at,
    splice,
)
from mrtr_cassette.core.wire.sse import Event, read_event
from mrtr_cassette.errors import NotJsonError

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

ID_PATH: Final[MemberPath] = ("id",)
TOKEN_PATH: Final[MemberPath] = ("params", "_meta", "progressToken")
"""Where a request has its progress token."""

ID_KEY = b'"id"'
TOKEN_KEY = b'"progressToken"'
_PLAIN = rb'[ \t\n\r]*:[ \t\n\r]*(-?(?:0|[1-9]\d*)|"[ !#-\[\]-~]*")(?=[ \t\n\r]*[,}])'
PLAIN_ID = re.compile(ID_KEY + _PLAIN)
PLAIN_TOKEN = re.compile(TOKEN_KEY + _PLAIN)
"""Members whose value has only one spelling; it is group 1."""


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
    def progress_token(self) -> str | None:
        """Canonical text of the request's progress token, or None."""
        return _scalar(self.meta.get("progressToken"))

    def spelled(self, path: MemberPath) -> bytes | None:
        """Return the value at a path as it is spelled; of duplicate keys the last one counts."""
        return spelled_at(self.raw, path)


def classify(raw: bytes) -> Message | None:
    """Read one message; return None for anything opaque, which a batch is."""
    try:
        tree = parse(raw)
        if not isinstance(tree, dict) or tree.get("jsonrpc") != "2.0":
            return None
    except NotJsonError:
        return None
    method = tree.get("method")
    identity = _scalar(tree.get("id"))
    if isinstance(method, str):
        kind = Kind.REQUEST if "id" in tree else Kind.NOTIFICATION
        if kind is Kind.REQUEST and identity is None:
            return None
    elif "result" in tree or "error" in tree:
        kind, method = Kind.RESPONSE, ""
        drop_null_outcome(tree)
    else:
        return None
    params = tree.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    return Message(raw, kind, tree, method, identity, params, meta)


def drop_null_outcome(tree: dict[str, Any]) -> None:
    """Drop the null member of `result` and `error` from a response that has both."""
    if "result" in tree and "error" in tree:
        for name in ("error", "result"):
            if tree[name] is None:
                del tree[name]
                return


def _scalar(value: Any) -> str | None:
    if type(value) is int:
        return str(value)
    return canonical(value) if isinstance(value, str | Number) else None


def repeated_token(message: Message) -> str | None:
    """Return the canonical text of the progress token that a notification repeats, or None."""
    return _scalar(message.params.get("progressToken"))


class EchoPlace(NamedTuple):
    """A place where a server repeats a value of the request that its message belongs to.

    Attributes:
        kind: of which messages it is; pushed requests count as notifications.
        value: the caller's value, a member of `Echoes`.
        method: the only method of messages in which the place means that; empty for any.
        is_text_too: whether some servers repeat a number as a string there.
    """

    kind: Literal["response", "notification"]
    path: MemberPath
    value: Literal["id", "progress_token"]
    method: str = ""
    is_text_too: bool = False


ECHO_PLACES: Final = (
    # Only a response has the caller's id: a request that a server of the 2025 era pushes inside
    # the stream may have the same id as the pending call.
    EchoPlace("response", ID_PATH, "id"),
    EchoPlace("response", ("result", "_meta", SUBSCRIPTION_ID), "id", is_text_too=True),
    EchoPlace("notification", ("params", "_meta", SUBSCRIPTION_ID), "id", is_text_too=True),
    EchoPlace("notification", ("params", "progressToken"), "progress_token"),
    EchoPlace("notification", ("params", "requestId"), "id", CANCELLED, is_text_too=True),
)
"""All of them. Source: the schemas of MCP 2025-11-25 and 2026-07-28, RequestId, ProgressToken."""


@dataclass(frozen=True, slots=True)
class Echoes:
    """Where a message from the server repeats the caller's own values."""

    id: tuple[Span, ...] = ()
    progress_token: tuple[Span, ...] = ()
    id_as_text: tuple[Span, ...] = ()


def echoes(message: Message, request: Message) -> Echoes:
    """Return the spans in a server's message that echo the request's id and progress token."""
    quick = _echoes_by_search(message, request)
    return _echoes_by_path(message, request) if quick is None else quick


def _echoes_by_search(message: Message, request: Message) -> Echoes | None:
    raw = message.raw
    if message.kind is Kind.RESPONSE:
        key, plain, value, wanted = ID_KEY, PLAIN_ID, message.id, request.id
    else:
        value, wanted = repeated_token(message), request.progress_token
        key, plain = TOKEN_KEY, PLAIN_TOKEN
    # A key that stands once in the bytes, in its only spelling, is the message's own.
    is_certain = raw.count(key) == (value is not None) and b"\\u" not in raw
    if not is_certain or b"subscriptionId" in raw or message.method == CANCELLED:
        return None
    if value is None or value != wanted:
        return Echoes()
    match = plain.search(raw)
    if match is None:
        return None
    spans = (Span(*match.span(1)),)
    return Echoes(spans) if message.kind is Kind.RESPONSE else Echoes((), spans)


def _echoes_by_path(message: Message, request: Message) -> Echoes:
    wanted = {"id": request.id, "progress_token": request.progress_token}
    places = {place.path: place for place in ECHO_PLACES if _is_used(place, message, request)}
    found: dict[str, list[Span]] = {"id": [], "progress_token": [], "id_as_text": []}
    for path, spans in find_spans(message.raw, places.keys()).items():
        place = places[path]
        expected = wanted[place.value]
        for span in spans:
            value = parse(message.raw[span.start : span.end])
            if expected is None:
                continue
            if _scalar(value) == expected:
                found[place.value].append(span)
            # The canonical text of an id that is a string is never the id itself.
            elif place.is_text_too and value == expected and value[:1] != '"':
                found["id_as_text"].append(span)
    return Echoes(**{name: tuple(spans) for name, spans in found.items()})


def _is_used(place: EchoPlace, message: Message, request: Message) -> bool:
    """Tell whether a message about a request has the caller's value at a place."""
    kind = "response" if message.kind is Kind.RESPONSE else "notification"
    if place.kind != kind:
        return False
    if not place.method:
        return True
    # A server of the 2025 era cancels what it has asked itself, maybe under the id of the call.
    return message.method == place.method and request.method == LISTEN


# The messages of a response


@dataclass(frozen=True, slots=True)
class Located:
    """A message of a response."""

    message: Message
    piece: int
    offset: int
    event: Event | None = None

    def in_body(self, span: Span) -> Span | None:
        """Return where in the body a span of the message stands, or None if it crosses lines."""
        inner = span if self.event is None else self.event.raw_span(span)
        return None if inner is None else Span(inner.start + self.offset, inner.end + self.offset)


def messages_in(response: Response) -> list[Located]:
    """Return the messages of a response, in order.

    An HTTP body that is no event stream is one message, or one per line: a server may respond to
    `subscriptions/listen` with newline-delimited JSON.
    """
    if response.is_framed:
        return list(_messages_of_pieces(response))
    body = response.body
    whole = classify(body) if body else None
    if whole is not None:
        return [Located(whole, len(response.pieces) - 1, 0)]
    return list(_messages_of_lines(response.pieces, body)) if b"\n" in body.strip() else []


def _messages_of_pieces(response: Response) -> Iterator[Located]:
    offset = 0
    for index, piece in enumerate(response.pieces):
        event = read_event(piece.raw, first=index == 0) if response.is_event_stream else None
        data = piece.raw if event is None else event.data
        message = classify(data) if data else None
        if message is not None:
            yield Located(message, index, offset, event)
        offset += len(piece.raw)


def _messages_of_lines(pieces: tuple[Piece, ...], body: bytes) -> Iterator[Located]:
    ends = list(accumulate(len(piece.raw) for piece in pieces))
    offset = 0
    for line in body.splitlines(keepends=True):
        message = classify(line)
        if message is not None:
            yield Located(message, bisect_left(ends, offset + len(line)), offset)
        offset += len(line)


def response_to(request: Message | None, response: Response) -> Located | None:
    """Return the response to a request; other messages may have the same id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None
    responses = (it for it in messages_in(response) if it.message.kind is Kind.RESPONSE)
    return next((it for it in responses if it.message.id == request.id), None)


def last_response(response: Response) -> Message | None:
    """Return the last JSON-RPC response in the body of a response, or None."""
    messages: Iterator[Message | None]
    if response.is_framed:
        # Of a long stream only the end is read.
        messages = (completed_by(response, at) for at in reversed(range(len(response.pieces))))
    else:
        messages = (each.message for each in reversed(messages_in(response)))
    return next((each for each in messages if each and each.kind is Kind.RESPONSE), None)


def completed_by(response: Response, piece: int) -> Message | None:
    """Return the message that a piece of a response completes, or None."""
    raw = response.pieces[piece].raw
    if response.is_event_stream:
        data = read_event(raw, first=piece == 0).data
        return None if data is None else classify(data)
    # A message of its own line needs nothing of what came before it.
    alone = classify(raw)
    if alone is not None:
        return alone
    return next((each.message for each in messages_in(response) if each.piece == piece), None)


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
    required = recognise(located.message.tree.get("result")) if located is not None else None
    if located is None or required is None:
        return None
    asked = required.dialect, required.input_requests, required.request_state
    return Ask(*asked, located.message, located.piece)


def splice_pieces(
    pieces: tuple[Piece, ...], replacements: Iterable[tuple[Span, bytes]]
) -> tuple[Piece, ...]:
    """Replace spans of the whole body; a replacement stands in the piece where its span begins."""
    ordered = sorted(replacements)
    changed = []
    start = index = 0
    for piece in pieces:
        end = start + len(piece.raw)
        here = []
        while index < len(ordered) and ordered[index][0].start < end:
            span, new = ordered[index]
            if span.end > start:
                inner = Span(max(span.start, start) - start, min(span.end, end) - start)
                here.append((inner, new if span.start >= start else b""))
            if span.end > end:
                break
            index += 1
        changed.append(Piece(splice(piece.raw, here), *piece[1:]) if here else piece)
        start = end
    return tuple(changed)
