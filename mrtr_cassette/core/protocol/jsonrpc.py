"""Read one JSON-RPC 2.0 message; anything else, a batch included, is opaque."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Number,
    Span,
    canonical,
    find_spans,
    parse,
    spelled_at,
)
from mrtr_cassette.errors import NotJsonError

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

ID_PATH: Final[MemberPath] = ("id",)
TOKEN_PATH: Final[MemberPath] = ("params", "_meta", "progressToken")
"""Where a request has its progress token."""
NOTIFIED_TOKEN_PATH: Final[MemberPath] = ("params", "progressToken")
"""Where a notification repeats it."""
RESULT_SUBSCRIPTION_PATH: Final[MemberPath] = ("result", "_meta", SUBSCRIPTION_ID)
NOTIFIED_SUBSCRIPTION_PATH: Final[MemberPath] = ("params", "_meta", SUBSCRIPTION_ID)
_SUBSCRIPTION_PATHS = (RESULT_SUBSCRIPTION_PATH, NOTIFIED_SUBSCRIPTION_PATH)

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
    """Read one message; return None for anything opaque."""
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
    else:
        return None
    params = tree.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    return Message(raw, kind, tree, method, identity, params, meta)


def _scalar(value: Any) -> str | None:
    if type(value) is int:
        return str(value)
    return canonical(value) if isinstance(value, str | Number) else None


def repeated_token(message: Message) -> str | None:
    """Return the canonical text of the progress token that a notification repeats, or None."""
    return _scalar(message.params.get("progressToken"))


@dataclass(frozen=True, slots=True)
class Echoes:
    """Where a message from the server repeats the caller's own values."""

    id: tuple[Span, ...] = ()
    progress_token: tuple[Span, ...] = ()
    id_as_text: tuple[Span, ...] = ()


def echoes(message: Message, request: Message) -> Echoes:
    """Return the spans in a server's message that echo the request's id and progress token.

    Only a *response* has the caller's id: a request that a server of the 2025 era pushes inside
    the stream may have the same id as the pending call.
    """
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
    if not is_certain or b"subscriptionId" in raw:
        return None
    if value is None or value != wanted:
        return Echoes()
    match = plain.search(raw)
    if match is None:
        return None
    spans = (Span(*match.span(1)),)
    return Echoes(spans) if message.kind is Kind.RESPONSE else Echoes((), spans)


def _echoes_by_path(message: Message, request: Message) -> Echoes:
    wanted: dict[MemberPath, str | None] = {}
    if message.kind is Kind.RESPONSE:
        wanted[ID_PATH] = request.id
        wanted[RESULT_SUBSCRIPTION_PATH] = request.id
    else:
        wanted[NOTIFIED_SUBSCRIPTION_PATH] = request.id
        if request.progress_token is not None:
            wanted[NOTIFIED_TOKEN_PATH] = request.progress_token
    spans = find_spans(message.raw, wanted.keys())
    ids: list[Span] = []
    tokens: list[Span] = []
    texts: list[Span] = []
    for path, candidates in spans.items():
        for span in candidates:
            value = parse(message.raw[span.start : span.end])
            if _scalar(value) == wanted[path]:
                (tokens if path == NOTIFIED_TOKEN_PATH else ids).append(span)
            elif (
                path in _SUBSCRIPTION_PATHS
                and isinstance(value, str)
                and value == wanted[path]
                # The canonical text of an id that is a string is never the id itself.
                and not value.startswith('"')
            ):
                texts.append(span)
    return Echoes(tuple(ids), tuple(tokens), tuple(texts))
