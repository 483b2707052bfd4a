"""Facts about what a trace tells of an interaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import get, post, sse
from messages import compact, message, result, tool_call

from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.spans import (
    WaitingForRetries,
    failure_attributes,
    kinds_of,
    operation_attributes,
    request_attributes,
    span_name,
    target_attributes,
)

VERSION = "io.modelcontextprotocol/protocolVersion"
ERROR = compact({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no secret"}})


def called(value: Any, *headers: tuple[str, str]) -> Call:
    """Return a posted message, read."""
    request = post(compact(value))
    return read_call(replace(request, headers=(*request.headers, *headers)))


@pytest.mark.parametrize(
    ("call", "attributes"),
    [
        (called(message("ping", id="x" * 99)), {"jsonrpc.request.id": "x" * 64}),
        (
            called(message("ping", {"_meta": {VERSION: "2026-07-28"}}, id=0)),
            {"jsonrpc.request.id": "0", "mcp.protocol.version": "2026-07-28"},
        ),
        (
            called({"jsonrpc": "2.0", "method": "ping"}, ("MCP-Protocol-Version", "2025-06-18")),
            {"mcp.protocol.version": "2025-06-18"},
        ),
        (called(message("ping", {"_meta": {VERSION: "my-secret"}})), {"jsonrpc.request.id": "1"}),
        (read_call(get("/x")), {}),
    ],
)
def test_a_request_is_told_without_what_it_carries(call: Call, attributes: dict[str, str]) -> None:
    """Its id, cut, and a version that has the form of one."""
    common = operation_attributes(call)
    told = request_attributes(call)
    assert {key: value for key, value in told.items() if key not in common} == attributes


def test_kinds_are_those_that_are_known() -> None:
    """A server may spell any other."""
    requests = [InputRequest(kind, "") for kind in ("form", "my-secret")]
    assert kinds_of(requests) == ["form", "other"]


def test_a_target_is_part_of_the_name() -> None:
    """Tools and prompts are targets, and a made-up method is not named."""
    assert span_name("tools/call", "book") == "tools/call book"
    assert span_name("tools/call") == "tools/call"
    assert span_name("made/up", "book") == "other"
    assert target_attributes("prompts/get", "p") == {"gen_ai.prompt.name": "p"}
    assert target_attributes("resources/read", "file:///x") == {}


@pytest.mark.parametrize(
    ("status", "body", "is_event_stream", "failed"),
    [
        (200, compact(result({})), False, {}),
        (200, ERROR, False, {"error.type": "-32602", "rpc.response.status_code": "-32602"}),
        (200, compact(result({"isError": True})), False, {"error.type": "tool_error"}),
        (200, sse(compact(message("x"))) + sse(ERROR), True, {"error.type": "-32602", "rpc.response.status_code": "-32602"}),
        (200, b"cut off\n\n" + sse(compact(result({}))), True, {}),
        (200, b"", True, {}),
        (404, b"not found", False, {"error.type": "404"}),
    ],
)  # fmt: skip
def test_a_response_tells_how_it_failed(
    status: int,
    body: bytes,
    is_event_stream: bool,  # noqa: FBT001  pytest passes it by name
    failed: dict[str, str],
) -> None:
    """By its code; by what a tool says of its result; or else by the status of HTTP."""
    call = called(tool_call("book"))
    told = failure_attributes(call, status, body, is_event_stream=is_event_stream)
    assert told == failed


def test_what_is_no_request_fails_by_its_status_only() -> None:
    """A notification gets no response."""
    call = called({"jsonrpc": "2.0", "method": "notifications/x"})
    assert failure_attributes(call, 200, ERROR, is_event_stream=False) == {}


def test_a_retry_finds_its_owners_interaction_or_else_the_oldest() -> None:
    """What another client waits for is taken only where nothing else is left."""
    waiting = WaitingForRetries[str]()
    for number, owner in enumerate(("a", "b", "b")):
        assert not waiting.add(f"{owner}{number}", "key", owner, 0.0)
    assert waiting.take("other key", "a") is None
    assert waiting.take("key", "b") == "b1"
    assert waiting.take("key", "c") == "a0"
    assert waiting.take_all() == ["b2"]
    assert waiting.take("key", "b") is None


def test_who_never_comes_again_is_given_up() -> None:
    """After a time, or when too many wait."""
    waiting = WaitingForRetries[int](most=2, longest_s=10.0)
    assert [waiting.add(number, number, None, number) for number in range(3)] == [[], [], [0]]
    assert waiting.add(3, 3, None, 13.0) == [1, 2]
