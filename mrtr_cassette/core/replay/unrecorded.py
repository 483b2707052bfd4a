"""Answers to requests that were not recorded: of any server, and to calls of unknown tools.

docs/agents.md, "Trials", says when tools are unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.protocol.calls import Call, resumed_event
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    DISCOVER,
    INITIALIZE,
    LIST_TOOLS,
    PING,
)
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    EVENT_STREAM,
    JSON_HEADERS,
    SESSION_HEADER,
    Headers,
)

_NO_METHOD: Final = b'"error":{"code":-32601,"message":"Method not found"}'
"""A refusal of `server/discover` that clients take for a server of the 2025 era."""

_CODES: Final = (-32601, -32602)
"""The codes with which servers refuse a tool that they don't have."""


class Harmless(NamedTuple):
    """A request that was not recorded, and the HTTP answer of any server, also in a few words."""

    call: Call
    status: int
    headers: Headers
    body: bytes
    answer: str


def only_status(call: Call, status: int, headers: Headers = ()) -> Harmless:
    """Return an answer without a body."""
    return Harmless(call, status, headers, b"", str(status))


def _json_answer(call: Call, outcome: bytes, answer: str) -> Harmless:
    """Return a JSON-RPC response with the id of a request."""
    identity = b"null"
    if call.message is not None:
        identity = call.message.spelled(ID_PATH) or identity

    body = b'{"jsonrpc":"2.0","id":%b,%b}' % (identity, outcome)
    return Harmless(call, 200, JSON_HEADERS, body, answer)


def answer_of_any_server(
    call: Call, recorded: Collection[tuple[str, str]], *, lacks_session: bool
) -> Harmless | None:
    """Return what every server answers to a request that was not recorded, or None.

    To one that lacks the session which the server wants, most of this is no answer.

    Args:
        recorded: the endpoints and the methods of the calls that were recorded.
    """
    message = call.message
    endpoints = {endpoint for endpoint, _ in recorded}
    if message is None:
        path = call.endpoint.partition(" ")[2].partition("?")[0]
        if call.request.method == "GET" and "/.well-known/" in path:
            return only_status(call, 404)
        if lacks_session:
            return None
        return _answer_to_no_message(call, endpoints)

    if call.endpoint not in endpoints:
        return None
    if lacks_session and message.method != DISCOVER:
        return None

    initializes = (call.endpoint, INITIALIZE) in recorded
    return _answer_to_message(call, message, initializes=initializes)


def _answer_to_no_message(call: Call, endpoints: Collection[str]) -> Harmless | None:
    """Return what every server answers to a request of HTTP itself, such as an end of a session."""
    http_method, _, path = call.endpoint.partition(" ")
    if f"POST {path}" not in endpoints:
        return None
    if http_method == "DELETE" and call.request.header(SESSION_HEADER):
        return only_status(call, 204)

    wants_stream = EVENT_STREAM in call.request.header("accept")
    is_new = call.endpoint not in endpoints and not resumed_event(call.request)
    if http_method == "GET" and wants_stream and is_new:
        return only_status(call, 405, (("Allow", "POST, DELETE"),))

    return None


def _answer_to_message(
    call: Call, message: Message, *, initializes: bool
) -> Harmless | None:
    """Return what every server answers to a message; `initializes` is one of the 2025 era."""
    if message.kind is Kind.NOTIFICATION:
        if message.method.startswith("notifications/"):
            return only_status(call, ACCEPTED)
        return None

    if message.kind is not Kind.REQUEST:
        return None
    if message.method == PING:
        return _json_answer(call, b'"result":{}', "{}")
    if message.method == DISCOVER and initializes:
        return _json_answer(call, _NO_METHOD, "Method not found")

    return None


# Tools that the server doesn't have


def listed_tools(entry: ReplayEntry) -> Iterator[tuple[str, bool]]:
    """Yield the tools in a list, and whether it says that they only read."""
    result = entry.exchange.rpc_members.get("result")
    if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
        return

    for tool in result["tools"]:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            continue

        hints = tool.get("annotations")
        only_reads = isinstance(hints, dict) and hints.get("readOnlyHint") is True
        yield tool["name"], only_reads


class UnknownTools:
    """Answers calls of tools that a recorded server doesn't have.

    They are known only where a whole list of its tools was recorded.
    """

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._lists: list[ReplayEntry] = []
        self._calls: list[ReplayEntry] = []
        for entry in by_arrival:
            if entry.key.method == LIST_TOOLS:
                self._lists.append(entry)
            elif entry.kind is Kind.REQUEST and entry.key.method == CALL_TOOL:
                self._calls.append(entry)

    @cached_property
    def _listed(self) -> frozenset[str] | None:
        """The names in all recorded lists; None where a page is missing, or there is none."""
        names: set[str] = set()
        issued: set[str] = set()
        asked: set[str] = set()
        for entry in self._lists:
            if entry.is_refused:
                continue

            names.update(name for name, _ in listed_tools(entry))
            cursor = entry.exchange.call.arguments
            if isinstance(cursor, dict) and "cursor" in cursor:
                asked.add(str(cursor["cursor"]))

            if entry.exchange.next_cursor is not None:
                issued.add(entry.exchange.next_cursor)

        if not names or issued - asked:
            return None

        return frozenset(names)

    @cached_property
    def refusals(self) -> dict[str, ReplayEntry]:
        """The first call of each tool that is in no list and was refused whenever it was called."""
        refused: dict[str, ReplayEntry] = {}
        listed = self._listed
        if listed is None:
            return refused

        for entry in self._calls:
            name = entry.key.name
            if name not in listed and name not in self._accepted:
                refused.setdefault(name, entry)

        return refused

    @cached_property
    def _endpoints(self) -> frozenset[str]:
        """Where tools were listed."""
        return frozenset([entry.key.endpoint for entry in self._lists])

    @cached_property
    def _accepted(self) -> frozenset[str]:
        """The tools that were called with another outcome than that there is no such tool."""
        names = [entry.key.name for entry in self._calls if not _refuses(entry)]
        return frozenset(names)

    def answer(self, call: Call) -> Harmless | None:
        """Return what the server says to a call of a tool that it doesn't have; None to others."""
        message = call.message
        if message is None or message.kind is not Kind.REQUEST:
            return None

        name = call.name
        if call.method != CALL_TOOL or self._listed is None:
            return None
        if call.endpoint not in self._endpoints:
            return None
        if name in self._listed or name in self._accepted:
            return None

        return _json_answer(call, self._outcome(name), "unknown tool")

    def _outcome(self, name: str) -> bytes:
        """Return the error, or the result, as the server spelled it for another such tool."""
        for known, entry in self.refusals.items():
            spelled = _respelled(entry, known, name)
            if spelled is not None:
                return spelled

        text = json.dumps(f"Unknown tool: {name}", ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        return b'"error":{"code":-32602,"message":%b}' % text


def _refuses(entry: ReplayEntry) -> bool:
    """Tell whether a response may say that there is no such tool."""
    members = entry.exchange.rpc_members
    error = members.get("error")
    if isinstance(error, dict):
        return error.get("code") in _CODES

    result = members.get("result")
    if not isinstance(result, dict) or result.get("isError") is not True:
        return False

    return len(_named(entry.key.name).findall(_words_of(members))) > 0


def _named(name: str) -> re.Pattern[str]:
    """Return a pattern of a name that is no part of another one."""
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")


def _words_of(members: Any) -> str:
    """Return the text of an error, or the texts of a result."""
    error = members.get("error")
    if isinstance(error, dict):
        return str(error.get("message"))

    content = members["result"].get("content")
    texts = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])

    return "\n".join(texts)


def _respelled(entry: ReplayEntry, known: str, name: str) -> bytes | None:
    """Return the outcome of a refused call with another name; None where it can't be put in."""
    response = entry.exchange.rpc_response
    if response is None:
        return None

    member = "error" if "error" in response.tree else "result"
    spelled = response.spelled((member,))
    if spelled is None:
        return None

    text = spelled.decode("utf-8", "surrogatepass")
    pattern = _named(known)
    in_text = pattern.findall(text)
    if len(in_text) > 1 or in_text != pattern.findall(_words_of(response.tree)):
        return None

    quoted = json.dumps(name, ensure_ascii=False)[1:-1]
    text = pattern.sub(lambda _: quoted, text)
    return f'"{member}":{text}'.encode("utf-8", "surrogatepass")
