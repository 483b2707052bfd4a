"""What a live server says of its tools: whether they only read, or may destroy something.

Owns: listing the tools in the session of a call, page after page, and reading their hints.
Does not own: what follows from a hint (`verification`).
Source: MCP 2026-07-28, "Tools", `ToolAnnotations`.
"""

from __future__ import annotations

from typing import Any, Final

from mrtr_cassette.core.drive.server_session import ServerSession, with_body
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import canonical, parse

_MOST_PAGES: Final = 100
_OF_CALL: Final = ("mcp-name", "mcp-param-")


class ToolHints:
    """The tools of a live server, while they are listed and after.

    Attributes:
        is_over: there is no further page.
    """

    def __init__(self, call: Request, session: ServerSession) -> None:
        """Begin before the first page.

        Args:
            call: a call of a tool, as it was recorded.
            session: in which it will be sent.
        """
        self.is_over = False
        self._session = session
        self._call = call
        self._cursor: Any = None
        self._pages = 0
        self._hints: dict[str, dict[str, Any]] = {}

    def next(self) -> Observation | None:
        """Return the request for the next page; None where there is none."""
        if self.is_over:
            return None
        self._pages += 1
        return self._session.request(self._request(), self)

    def _request(self) -> Request:
        tree = parse(self._call.body)
        meta = tree.get("params", {}).get("_meta")
        params = {} if meta is None else {"_meta": meta}
        if self._cursor is not None:
            params["cursor"] = self._cursor
        listing = {"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": params}
        headers = tuple(
            (name, "tools/list" if name.lower() == "mcp-method" else value)
            for name, value in self._call.headers
            if not name.lower().startswith(_OF_CALL)
        )
        request = Request(self._call.method, self._call.target, headers, self._call.body)
        return with_body(request, canonical(listing).encode())

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that stood in a response; it may belong to a conversation."""
        return self._session.pushed(push)

    def push_received(self, _push: OpenPush) -> None:
        """Leave a request of the server unanswered."""

    def responded(self, observation: Observation) -> None:
        """Take the next page."""
        self._session.responded(observation)
        response = observation.seal(End.COMPLETE, 0.0).rpc_response
        result = {} if response is None else response.tree.get("result")
        result = result if isinstance(result, dict) else {}
        for tool in result.get("tools") or ():
            hints = tool.get("annotations") if isinstance(tool, dict) else None
            if isinstance(hints, dict):
                self._hints[str(tool.get("name"))] = hints
        self._cursor = result.get("nextCursor")
        self.is_over = self._cursor is None or self._pages == _MOST_PAGES

    def destroys(self, name: str) -> bool:
        """Tell whether the server says that a tool may destroy something."""
        hints = self._hints.get(name, {})
        return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True

    def only_reads(self, name: str) -> bool:
        """Tell whether the server says that a tool changes nothing."""
        return self._hints.get(name, {}).get("readOnlyHint") is True
