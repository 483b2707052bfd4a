"""What one JSON-RPC message is: a request, a notification or a response.

Owns: telling messages apart, the parts that matter to us, and where they stand in the bytes.
Does not own: what a result asks for (`dialect`).
Anything else, a batch included, is opaque: relayed, kept, and matched by its bytes.
Source: MCP 2026-07-28, basic, "Messages"; JSON-RPC 2.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from mrtr_cassette.core.jsonbytes import Number, Path, Span, canonical, find_spans, parse
from mrtr_cassette.errors import NotJsonError

ID: Path = ("id",)
PROGRESS_TOKEN: Path = ("params", "_meta", "progressToken")
REQUEST_STATE: Path = ("params", "requestState")
_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_REQUEST_PATHS = (ID, PROGRESS_TOKEN, REQUEST_STATE)


class Kind(Enum):
    """The three kinds of JSON-RPC message."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


@dataclass(frozen=True)
class Message:
    """One JSON-RPC message.

    Attributes:
        raw: its bytes.
        kind: which of the three it is.
        tree: the whole message as `jsonbytes.parse` returns it.
        method: the method; empty for a response.
        id: canonical text of the id, which tells `1` from `"1"`; None where there is none.
    """

    raw: bytes
    kind: Kind
    tree: dict[str, Any]
    method: str
    id: str | None

    @property
    def params(self) -> dict[str, Any]:
        """The params; empty where they are absent or no object."""
        params = self.tree.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta`; empty where it is absent or no object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> str | None:
        """Canonical text of the progress token that the message carries, or None."""
        return _scalar(self.meta.get("progressToken"))

    @cached_property
    def spans(self) -> dict[Path, list[Span]]:
        """Where a request's id, progress token and request state stand in `raw`."""
        return find_spans(self.raw, _REQUEST_PATHS)

    def spelled(self, path: Path) -> bytes | None:
        """Return the bytes of the last value at one of a request's paths, as they came."""
        spans = self.spans.get(path)
        return self.raw[spans[-1].start : spans[-1].end] if spans else None


def classify(raw: bytes) -> Message | None:
    """Read one message, or return None for what is opaque to us."""
    try:
        tree = parse(raw)
        if not isinstance(tree, dict) or tree.get("jsonrpc") != "2.0":
            return None
    except NotJsonError:
        return None
    method = tree.get("method")
    identity = _scalar(tree.get("id"))
    if isinstance(method, str):
        if "id" not in tree:
            return Message(raw, Kind.NOTIFICATION, tree, method, None)
        return Message(raw, Kind.REQUEST, tree, method, identity) if identity else None
    if "result" in tree or "error" in tree:
        return Message(raw, Kind.RESPONSE, tree, "", identity)
    return None


def _scalar(value: Any) -> str | None:
    is_scalar = isinstance(value, str | Number) or type(value) is int
    return canonical(value) if is_scalar else None


@dataclass(frozen=True, slots=True)
class Echoes:
    """Where a message from the server repeats what is the caller's own."""

    id: tuple[Span, ...] = ()
    progress_token: tuple[Span, ...] = ()


def echoes(message: Message, request: Message) -> Echoes:
    """Return the spans in a server's message that echo the request's id and progress token.

    Only a *response* has the caller's id: a server of the 2025 era that pushes a request inside
    the stream may give it the very id of the pending call.
    """
    wanted: dict[Path, str | None] = {}
    token_paths: tuple[Path, ...] = ()
    if message.kind is Kind.RESPONSE:
        wanted[ID] = request.id
        wanted["result", "_meta", _SUBSCRIPTION_ID] = request.id
    else:
        wanted["params", "_meta", _SUBSCRIPTION_ID] = request.id
        if request.progress_token is not None:
            token_paths = (("params", "progressToken"),)
            wanted[token_paths[0]] = request.progress_token
    spans = find_spans(message.raw, wanted.keys())
    ids: list[Span] = []
    tokens: list[Span] = []
    for path, found in spans.items():
        matching = [
            span
            for span in found
            if _scalar(parse(message.raw[span.start : span.end])) == wanted[path]
        ]
        (tokens if path in token_paths else ids).extend(matching)
    return Echoes(tuple(ids), tuple(tokens))
