"""The requests of the built-in client, which `call` is, and what is declared for another one."""
# Source: MCP 2026-07-28, "Versioning", "Transports" (`Mcp-Param-*`); MCP 2025-11-25, "Lifecycle".

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import header_text, with_body
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.methods import DISCOVER, INITIALIZE, INITIALIZED, method_of
from mrtr_cassette.core.protocol.tasks import TASKS
from mrtr_cassette.core.wire.http import EVENT_STREAM, POST_HEADERS, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import canonical, replace_members
from mrtr_cassette.core.wire.pointers import value_at

Era = Literal["legacy", "modern"]

MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
_META: Final = "io.modelcontextprotocol/"
_VERSION_HEADER: Final = "MCP-Protocol-Version"


class OwnClient:
    """The built-in client; its `era`, which revision the server speaks, is None until known."""

    def __init__(self, target: str, kinds: Collection[str], version: str) -> None:
        self.era: Era | None = None
        self._target = target
        self._about = {"name": "mrtr-cassette", "version": version}
        self._capabilities = _capabilities(kinds)
        self._version = MODERN_VERSION

    def discover(self) -> Request:
        """Return the request by which the newer revision is tried."""
        return self.call(DISCOVER, {})

    def discovered(self, exchange: RecordedExchange) -> None:
        """Take the response to it."""
        result = exchange.rpc_members.get("result")
        versions = result.get("supportedVersions") if isinstance(result, dict) else None
        is_modern = isinstance(versions, list) and MODERN_VERSION in versions
        if TASKS in (value_at(result, ("capabilities", "extensions")) or ()):
            self._capabilities = {**self._capabilities, "extensions": {TASKS: {}}}
        self.era = "modern" if is_modern else "legacy"
        self._version = MODERN_VERSION if is_modern else LEGACY_VERSION

    def initialize(self) -> Request:
        """Return the request that opens a session of an earlier revision."""
        params = {
            "protocolVersion": self._version,
            "capabilities": self._capabilities,
            "clientInfo": self._about,
        }
        return self._post(INITIALIZE, params, ())

    def initialized(self, exchange: RecordedExchange) -> Request | None:
        """Take the response to `initialize`; return the next request, or None if there is none."""
        result = exchange.rpc_members.get("result")
        if not isinstance(result, dict):
            return None
        version = result.get("protocolVersion")
        self._version = version if isinstance(version, str) else self._version
        return self._post(INITIALIZED, None, ((_VERSION_HEADER, self._version),))

    def listening(self) -> Request:
        """Return the request for the stream on which a server of an earlier revision asks too."""
        headers = (("Accept", EVENT_STREAM), (_VERSION_HEADER, self._version))
        return Request("GET", self._target, headers, b"")

    def leaving(self) -> Request:
        """Return the request that ends a session."""
        return Request("DELETE", self._target, ((_VERSION_HEADER, self._version),), b"")

    def call(
        self, method: str, params: Mapping[str, Any], input_schema: Mapping[str, Any] | None = None
    ) -> Request:
        """Return the first request of a call; the tool's schema may want arguments in headers."""
        version = (_VERSION_HEADER, self._version)
        if self.era == "legacy":
            return self._post(method, params, (version,))
        meta = {
            f"{_META}protocolVersion": self._version,
            f"{_META}clientInfo": self._about,
            f"{_META}clientCapabilities": self._capabilities,
        }
        name = params.get(method_of(method).named_by)
        named = (("Mcp-Name", header_text(name)),) if isinstance(name, str) else ()
        arguments = _argument_headers(input_schema or {}, params.get("arguments"))
        headers = (version, ("Mcp-Method", method), *named, *arguments)
        return self._post(method, {**params, "_meta": meta}, headers)

    def _post(self, method: str, params: Mapping[str, Any] | None, headers: Headers) -> Request:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            message["id"] = 0
        if params is not None:
            message["params"] = params
        return Request("POST", self._target, (*POST_HEADERS, *headers), canonical(message).encode())


def is_modern(call: Call) -> bool:
    """Tell whether a request says for itself who sends it, as the newer revision has it."""
    return call.message is not None and f"{_META}protocolVersion" in call.message.meta


def declaring(request: Request, kinds: Collection[str]) -> Request:
    """Return a request of the newer revision that declares these kinds besides its own."""
    call = read_call(request)
    own = {} if call.message is None else call.message.meta.get(f"{_META}clientCapabilities")
    both = dict(own) if isinstance(own, dict) else {}
    for name, value in _capabilities(kinds).items():
        inner = both.get(name)
        both[name] = {**inner, **value} if isinstance(inner, dict) else value
    member = {f"{_META}clientCapabilities": canonical(both).encode()}
    return with_body(request, replace_members(request.body, ("params", "_meta"), member))


def _capabilities(kinds: Collection[str]) -> dict[str, Any]:
    modes = {kind: dict[str, Any]() for kind in ("form", "url") if kind in kinds}
    others = {kind: dict[str, Any]() for kind in ("sampling", "roots") if kind in kinds}
    return {"elicitation": modes, **others} if modes else others


def _argument_headers(schema: Mapping[str, Any], arguments: Any) -> Iterator[tuple[str, str]]:
    fields = schema.get("properties")
    for name, member in fields.items() if isinstance(fields, dict) else ():
        header = member.get("x-mcp-header") if isinstance(member, dict) else None
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(header, str) and value is not None:
            text = value if isinstance(value, str) else canonical(value)
            yield f"Mcp-Param-{header}", header_text(text)
