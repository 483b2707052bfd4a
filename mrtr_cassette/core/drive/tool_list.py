"""The tools of a live server: which there are, and whether they only read or may destroy something.

Owns: listing them in a session, page after page, and reading their hints.
Does not own: what follows from a hint (`verification`), arguments (`answers.arguments`).
Source: MCP 2026-07-28, "Tools", `ToolAnnotations`; "Pagination".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mrtr_cassette.core.drive.server_session import ServerSession, with_body
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import canonical, parse, replace_members

_MOST_PAGES: Final = 100
"""Pages that are read; a server may have no last one."""
_OF_CALL: Final = ("mcp-name", "mcp-param-")


class ToolList:
    """The tools of a live server, while they are listed and after.

    Attributes:
        tools: what has been listed so far, as the server spelled it.
        is_over: there is no further page.
        is_whole: each response so far was a list.
    """

    def __init__(self, listing: Request, session: ServerSession) -> None:
        """Begin before the first page, which `listing` requests in a session."""
        self.tools: list[Any] = []
        self.is_over = False
        self.is_whole = True
        self._listing = listing
        self._session = session
        self._pages = 0

    def next(self) -> Observation | None:
        """Return the request for the next page; None where there is none."""
        if self.is_over:
            return None
        self._pages += 1
        return self._session.request(self._listing, self)

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that stood in a response; it may belong to a conversation."""
        return self._session.pushed(push)

    def push_received(self, _push: OpenPush) -> None:
        """Leave a request of the server unanswered."""

    def responded(self, observation: Observation) -> None:
        """Take the next page."""
        self._session.responded(observation)
        result = observation.seal(End.COMPLETE, 0.0).rpc_members.get("result")
        result = result if isinstance(result, dict) else {}
        tools, cursor = result.get("tools"), result.get("nextCursor")
        self.is_whole = isinstance(tools, list)
        self.tools += tools if isinstance(tools, list) else ()
        self.is_over = not (self.is_whole and isinstance(cursor, str)) or self._pages == _MOST_PAGES
        member = {"cursor": canonical(cursor).encode()}
        body = replace_members(self._listing.body, ("params",), member)
        self._listing = with_body(self._listing, body)

    def destroys(self, name: str) -> bool:
        """Tell whether the server says that a tool may destroy something."""
        hints = self._hints_of(name)
        return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True

    def only_reads(self, name: str) -> bool:
        """Tell whether the server says that a tool changes nothing."""
        return self._hints_of(name).get("readOnlyHint") is True

    def _hints_of(self, name: str) -> Mapping[str, Any]:
        named = (each for each in self.tools if isinstance(each, dict) and each.get("name") == name)
        hints = next(named, {}).get("annotations")
        return hints if isinstance(hints, dict) else {}


def listing_beside(call: Request) -> Request:
    """Return the request that lists the tools as whoever sent a call would."""
    meta = parse(call.body).get("params", {}).get("_meta")
    params = {} if meta is None else {"_meta": meta}
    listing = {"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": params}
    headers = tuple(
        (name, "tools/list" if name.lower() == "mcp-method" else value)
        for name, value in call.headers
        if not name.lower().startswith(_OF_CALL)
    )
    request = Request(call.method, call.target, headers, b"")
    return with_body(request, canonical(listing).encode())
