"""Facts about the requests of our own client: what they say in each era."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import exchange, post, tool
from messages import compact, message, result

from mrtr_cassette.core.drive.own_client import OwnClient, declaring, is_modern
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.wire.http import Request

MODERN = {"supportedVersions": ["2026-07-28"]}


def client(*kinds: str, discovered: Any = MODERN) -> OwnClient:
    """Return a client that knows its server."""
    own = OwnClient("/mcp", kinds, "1.2.3")
    own.discovered(responded(own.discover(), discovered))
    return own


def responded(request: Request, value: Any) -> Any:
    """Return an exchange with a result."""
    return exchange(request, compact(result(value, id=0)))


def body_of(request: Request) -> Any:
    """Return what a request says."""
    return json.loads(request.body)


def test_modern_server_is_called_at_once() -> None:
    """Each request says who calls, and what it can answer."""
    own = client("form", "url", "sampling", "roots")
    assert own.era == "modern"
    request = own.call("tools/call", {"name": "deploy", "arguments": {"env": "prod"}})
    assert request.header("mcp-method") == "tools/call"
    assert request.header("mcp-name") == "deploy"
    assert request.header("mcp-protocol-version") == "2026-07-28"
    params = body_of(request)["params"]
    assert params["arguments"] == {"env": "prod"}
    assert params["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "mrtr-cassette", "version": "1.2.3"},
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {},
        },
    }


@pytest.mark.parametrize("discovered", [{"supportedVersions": ["2025-11-25"]}, [], {}])
def test_earlier_server_is_opened(discovered: Any) -> None:
    """It is initialized, told so, and heard; the version is the server's."""
    own = client("roots", discovered=discovered)
    assert own.era == "legacy"
    opening = own.initialize()
    assert body_of(opening)["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "mrtr-cassette", "version": "1.2.3"},
    }
    initialized = own.initialized(responded(opening, {"protocolVersion": "2025-06-18"}))
    assert initialized is not None
    assert body_of(initialized) == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    listening, leaving = own.listening(), own.leaving()
    assert (listening.method, leaving.method) == ("GET", "DELETE")
    call = own.call("tools/call", {"name": "add"})
    assert "_meta" not in body_of(call)["params"]
    assert call.header("mcp-method") == ""
    for request in (initialized, listening, leaving, call):
        assert request.header("mcp-protocol-version") == "2025-06-18"


def test_refused_session_is_no_session() -> None:
    """What is no result opens nothing."""
    own = client(discovered={})
    refusal = compact({"jsonrpc": "2.0", "id": 0, "error": {"code": 1, "message": "no"}})
    assert own.initialized(exchange(own.initialize(), refusal)) is None
    opened = own.initialized(responded(own.initialize(), {"protocolVersion": 5}))
    assert opened is not None
    assert opened.header("mcp-protocol-version") == "2025-11-25"
    assert exchange(own.initialize(), b"nothing").rpc_members == {}


def test_arguments_stand_in_the_headers_that_the_tool_wants() -> None:
    """What a header can't carry is spelled in base64."""
    fields = {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "city": {"type": "string", "x-mcp-header": "City"},
        "gone": {"x-mcp-header": "Gone"},
        "plain": {"type": "string"},
        "odd": True,
    }
    arguments = {"region": "eu", "count": 5, "city": "Zürich", "plain": "a"}
    params = {"name": "=?x", "arguments": arguments}
    request = client().call("tools/call", params, {"properties": fields})
    assert request.header("mcp-param-region") == "eu"
    assert request.header("mcp-param-count") == "5"
    assert request.header("mcp-param-city") == "=?base64?WsO8cmljaA==?="
    assert request.header("mcp-name") == "=?base64?PT94?="
    names = {name for name, _ in request.headers}
    assert not names & {"Mcp-Param-Gone", "Mcp-Param-Plain"}


def test_another_client_is_spoken_for() -> None:
    """What the sources can answer is declared besides its own."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}, "x": {}},
    }
    theirs = post(compact(message("tools/call", {"name": "a", "_meta": meta}, id="theirs")))
    call = read_call(theirs)
    assert is_modern(call)
    assert not is_modern(read_call(post(tool("a"))))
    declared = body_of(declaring(theirs, {"form", "roots"}))["params"]["_meta"]
    assert declared["io.modelcontextprotocol/clientCapabilities"] == {
        "elicitation": {"url": {}, "form": {}},
        "x": {},
        "roots": {},
    }
