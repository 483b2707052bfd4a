"""What a trace tells of an interaction, by OpenTelemetry's semantic conventions for MCP.

Owns: names and attributes, how a response failed, and which interactions wait for a retry.
Does not own: spans themselves, and when they begin and end (`shell.tracing`).
Rule: no value that anybody sent but methods, versions, request ids, and names of tools and prompts
that a server or a cassette has answered for. Session ids are credentials, and are left out too.
Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mrtr_cassette.core.answers.fulfilment import ALL_KINDS
from mrtr_cassette.core.protocol.calls import Call, traits_of_headers
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, classify
from mrtr_cassette.core.protocol.methods import OTHER, known_method, target_of
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.errors import printable

Attributes = dict[str, str | int]
T = TypeVar("T")

DURATION: Final = "mcp.server.operation.duration"
BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Seconds that the conventions advise as the bounds of its buckets."""
_TRANSPORT: Final[Attributes] = {"network.transport": "tcp", "network.protocol.name": "http"}
_VERSION: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_LONGEST_ID: Final = 64
_LONGEST_NAME: Final = 128
_CALLS_A_TOOL: Final = "tools/call"


def operation_attributes(call: Call) -> Attributes:
    """Return what is told of a request with spans and metrics alike."""
    return {"mcp.method.name": known_method(call.method), **_TRANSPORT}


def request_attributes(call: Call) -> Attributes:
    """Return what is told of one request."""
    attributes = operation_attributes(call)
    message = call.message
    if message is None:
        return attributes
    identity = message.tree.get("id")
    if identity is not None:
        attributes["jsonrpc.request.id"] = printable(str(identity)[:_LONGEST_ID])
    version = message.meta.get(_PROTOCOL_VERSION)
    if not isinstance(version, str):
        version = traits_of_headers(call.request.headers).protocol_version
    if _VERSION.fullmatch(version):
        attributes["mcp.protocol.version"] = version
    return attributes


def target_attributes(method: str, name: str) -> Attributes:
    """Return what is told of the tool or prompt that a call names."""
    target = target_of(method, name)[:_LONGEST_NAME]
    if not target:
        return {}
    if method == _CALLS_A_TOOL:
        return {"gen_ai.tool.name": target, "gen_ai.operation.name": "execute_tool"}
    return {"gen_ai.prompt.name": target}


def kinds_of(requests: Iterable[InputRequest]) -> list[str]:
    """Return of what kinds requests for input are."""
    return [each.kind if each.kind in ALL_KINDS else OTHER for each in requests]


def span_name(method: str, name: str = "") -> str:
    """Return the name of a call's span."""
    return f"{known_method(method)} {target_of(method, name)[:_LONGEST_NAME]}".rstrip()


def failure_attributes(
    call: Call, status: int, body: bytes, *, is_event_stream: bool
) -> Attributes:
    """Return how a response failed; nothing where it is none that failed, or can't be read.

    Args:
        body: the body, or its last bytes.
    """
    response = _response_in(call, body, is_event_stream=is_event_stream)
    tree = {} if response is None else response.tree
    error, result = tree.get("error"), tree.get("result")
    if isinstance(error, dict):
        code = str(error.get("code"))[:_LONGEST_ID]
        return {"error.type": code, "rpc.response.status_code": code}
    if isinstance(result, dict) and result.get("isError") is True:
        return {"error.type": "tool_error"}
    return {"error.type": str(status)} if status >= 400 else {}


def _response_in(call: Call, body: bytes, *, is_event_stream: bool) -> Message | None:
    """Return the response to a call, the last message of a body."""
    if call.message is None or call.message.kind is not Kind.REQUEST:
        return None
    if is_event_stream:
        framer = SseFramer()
        events = [*framer.feed(body), framer.finish()[0]]
        last = next((event for event in reversed(events) if event), b"")
        body = read_event(last, first=False).data or b""
    message = classify(body)
    return message if message is not None and message.kind is Kind.RESPONSE else None


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    """What waits for a retry, which is found by the key."""

    value: T
    key: Hashable
    owner: object
    since_s: float


class WaitingForRetries(Generic[T]):
    """What waits for retries: so many at most, and each for so long at most."""

    def __init__(self, most: int = 1000, longest_s: float = 600.0) -> None:
        self._most = most
        self._longest_s = longest_s
        self._waiting: dict[int, _Waiting[T]] = {}
        self._numbers = 0

    def add(self, value: T, key: Hashable, owner: object, now_s: float) -> list[T]:
        """Let something wait; return what has waited too long, or is too much."""
        self._numbers += 1
        self._waiting[self._numbers] = _Waiting(value, key, owner, now_s)
        given_up = []
        for number, each in list(self._waiting.items()):
            if len(self._waiting) <= self._most and now_s - each.since_s <= self._longest_s:
                break
            given_up.append(self._waiting.pop(number).value)
        return given_up

    def take(self, key: Hashable, owner: object) -> T | None:
        """Return what waits for a retry with a key: the owner's, or else the oldest."""
        numbers = [number for number, each in self._waiting.items() if each.key == key]
        if not numbers:
            return None
        of_owner = [number for number in numbers if self._waiting[number].owner == owner]
        return self._waiting.pop((of_owner or numbers)[0]).value

    def take_all(self) -> list[T]:
        """Return all that waits."""
        values = [each.value for each in self._waiting.values()]
        self._waiting.clear()
        return values
