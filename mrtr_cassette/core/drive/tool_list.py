"""The lists of a live server, page after page, and what it says of its tools.

Source: MCP 2026-07-28, "Tools", `ToolAnnotations`; "Pagination".
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from mrtr_cassette.core.drive.server_session import ServerSession, with_body
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import canonical, parse, replace_members

_MOST_PAGES: Final = 100
"""Pages that are read; a server may have no last one."""
_OF_CALL: Final = ("mcp-name", "mcp-param-")


class Pages:
    """A list of a live server, page after page.

    Attributes:
        listing: the request for the next page, or for the last one once there is none.
        last: the exchange of the last page so far; None before the first one.
        is_over: there is no further page, or none that is wanted.
    """

    def __init__(self, listing: Request, session: ServerSession, most: int = _MOST_PAGES) -> None:
        """Begin before the first of `most` pages, which `listing` requests in a session."""
        self.listing = listing
        self.last: RecordedExchange | None = None
        self.is_over = False
        self._session = session
        self._left = most

    def next(self) -> Observation | None:
        """Return the request for the next page; None where there is none."""
        return None if self.is_over else self._session.request(self.listing, self)

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that stood in a response; it may belong to a conversation."""
        return self._session.pushed(push)

    def push_received(self, _push: OpenPush) -> None:
        """Leave a request of the server unanswered."""

    def responded(self, observation: Observation) -> None:
        """Take the next page."""
        self._session.responded(observation)
        self.last = observation.seal(End.COMPLETE, 0.0)
        cursor = self.last.next_cursor
        self._left -= 1
        self.is_over = cursor is None or not self._left
        if cursor is not None:
            self.listing = page_at(self.listing, cursor)


def page_at(listing: Request, cursor: str | None) -> Request:
    """Return the request for the page at a cursor; None stands for the first page."""
    value = None if cursor is None else encode_basestring_ascii(cursor).encode()
    return with_body(listing, replace_members(listing.body, ("params",), {"cursor": value}))


class ToolList(Pages):
    """The tools of a live server, while they are listed and after.

    Attributes:
        tools: what has been listed so far, as the server spelled it.
        is_whole: each response so far was a list.
    """

    def __init__(self, listing: Request, session: ServerSession) -> None:
        """Begin before the first page, which `listing` requests in a session."""
        super().__init__(listing, session)
        self.tools: list[Any] = []
        self.is_whole = True

    def responded(self, observation: Observation) -> None:
        """Take the next page."""
        super().responded(observation)
        result = None if self.last is None else self.last.rpc_members.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        self.is_whole = isinstance(tools, list)
        self.is_over = self.is_over or not self.is_whole
        self.tools += tools if isinstance(tools, list) else ()

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
