"""What the calls of a recorded server do: which only read, which write, and which it refuses.

docs/agents.md, "Trials", says when tools are unknown to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.protocol.any_server import HarmlessReply, json_rpc_reply
from mrtr_cassette.core.protocol.calls import Call, CallKey, depends_on_writes
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import CALL_TOOL, LIST_TOOLS, method_of
from mrtr_cassette.core.wire.pointers import members_of

_UNKNOWN_TOOL_CODES: Final = (-32601, -32602)
"""The codes with which servers refuse a tool that they don't have."""


class CallEffects:
    """Which calls only read, and which may have changed something.

    All but `reads` is found out when it is asked for.

    Attributes:
        unknown_tools: answers calls of tools that the server doesn't have.
    """

    def __init__(
        self,
        by_arrival: Sequence[ReplayEntry],
        reads: Collection[str],
        *,
        refuses_unknown_tools: bool,
    ) -> None:
        """Read a recording; `reads` change nothing, whatever the recording says of them."""
        self._by_arrival = by_arrival
        self._read_only_names = frozenset(reads)
        self._live_names: set[str] = set()
        """What a live server was called for: names of tools, and methods."""
        self._repeating_by_entry: dict[ReplayEntry, bool] = {}
        """Whether requests are repeated as time goes by, of those that were asked for."""
        self.unknown_tools = UnknownTools(by_arrival if refuses_unknown_tools else ())

    def is_known_to_only_read(self, key: CallKey) -> bool:
        """Tell whether a call is known to change nothing."""
        if key.tool_or_method in self._read_only_names:
            return True
        if key.method == CALL_TOOL:
            return self._read_only_hints.get(key.name, False)
        return method_of(key.method).reads

    def note_live_call(self, key: CallKey) -> None:
        """Take note that a live server got a call."""
        self._live_names.add(key.tool_or_method)

    def unused_reads(self) -> list[str]:
        """Return the names said to only read that neither a call nor a list of tools has."""
        if not self._read_only_names:
            return []

        known_names = self._live_names | self._read_only_hints.keys()
        for entry in self._by_arrival:
            if entry.call_of_step is None:
                known_names.add(entry.key.tool_or_method)

        return sorted(self._read_only_names - known_names)

    @cached_property
    def _read_only_hints(self) -> dict[str, bool]:
        """Whether every recorded list that has a tool says that it only reads."""
        hint_by_tool: dict[str, bool] = {}
        for entry in self._by_arrival:
            if entry.key.method != LIST_TOOLS:
                continue

            for name, is_hinted in _listed_tools(entry):
                hint_by_tool[name] = hint_by_tool.get(name, True) and is_hinted

        return hint_by_tool

    def repeats_with_time(self, entry: ReplayEntry) -> bool:
        """Tell whether clients repeat a request as time goes by: a poll, or what a cache held."""
        if entry not in self._repeating_by_entry:
            self._repeating_by_entry[entry] = self._is_repeating(entry)

        return self._repeating_by_entry[entry]

    def _is_repeating(self, entry: ReplayEntry) -> bool:
        """Find out whether clients repeat a request as time goes by."""
        if entry.kind is not Kind.REQUEST or not self.is_known_to_only_read(entry.key):
            return False

        response = entry.exchange.response
        is_cached = response is not None and b'"ttlMs"' in response.body
        return is_cached or method_of(entry.key.method).repeats

    def is_write(self, entry: ReplayEntry) -> bool:
        """Tell whether the response to a request ends a call that may have changed something."""
        if entry.kind is not Kind.REQUEST or entry.call_of_step is not None:
            return False
        if entry.is_ask or entry.is_listening or self.is_known_to_only_read(entry.key):
            return False

        if entry.key.name in self.unknown_tools.refused_calls:
            return False

        return not entry.is_refused


# Tools that the server doesn't have


def _listed_tools(entry: ReplayEntry) -> Iterator[tuple[str, bool]]:
    """Yield the tools in a list, and whether it says that they only read."""
    tools = entry.exchange.result_members.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        members = members_of(tool)
        name = members.get("name")
        if isinstance(name, str):
            hints = members_of(members.get("annotations"))
            yield name, hints.get("readOnlyHint") is True


class UnknownTools:
    """Answers calls of tools that a recorded server doesn't have.

    They are known only where a whole list of its tools was recorded.
    """

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._tool_lists: list[ReplayEntry] = []
        self._tool_calls: list[ReplayEntry] = []
        for entry in by_arrival:
            if entry.key.method == LIST_TOOLS:
                self._tool_lists.append(entry)
            elif entry.kind is Kind.REQUEST and entry.key.method == CALL_TOOL:
                self._tool_calls.append(entry)

    @cached_property
    def _listed_tool_names(self) -> frozenset[str] | None:
        """The names in all recorded lists; None where a page is missing, or there is none."""
        names: set[str] = set()
        issued_cursors: set[str | None] = set()
        # The last page issues no cursor.
        asked_cursors: set[str | None] = {None}
        for entry in self._tool_lists:
            if entry.is_refused:
                continue

            names.update(name for name, _ in _listed_tools(entry))
            asked_cursors.add(entry.exchange.call.cursor)
            issued_cursors.add(entry.exchange.next_cursor)

        if not names or issued_cursors - asked_cursors:
            return None

        return frozenset(names)

    @cached_property
    def refused_calls(self) -> dict[str, ReplayEntry]:
        """The first call of each tool that is in no list and was refused whenever it was called."""
        call_by_refused_name: dict[str, ReplayEntry] = {}
        listed_names = self._listed_tool_names
        if listed_names is None:
            return call_by_refused_name

        for entry in self._tool_calls:
            name = entry.key.name
            if name not in listed_names and name not in self._accepted_tool_names:
                call_by_refused_name.setdefault(name, entry)

        return call_by_refused_name

    @cached_property
    def _accepted_tool_names(self) -> frozenset[str]:
        """The tools that were called with another outcome than that there is no such tool."""
        names = [
            entry.key.name
            for entry in self._tool_calls
            if not _may_say_unknown_tool(entry)
        ]
        return frozenset(names)

    def unknown_tool_answer(self, call: Call) -> HarmlessReply | None:
        """Return what the server says to a call of a tool that it doesn't have; None to others."""
        name = call.name
        if call.kind is not Kind.REQUEST:
            return None
        if call.method != CALL_TOOL or self._listed_tool_names is None:
            return None
        if call.endpoint not in {entry.key.endpoint for entry in self._tool_lists}:
            return None
        if name in self._listed_tool_names or name in self._accepted_tool_names:
            return None

        return json_rpc_reply(call, self._outcome_for_name(name), "unknown tool")

    def _outcome_for_name(self, name: str) -> bytes:
        """Return the error, or the result, as the server spelled it for another such tool."""
        for refused_name, entry in self.refused_calls.items():
            outcome = _outcome_with_other_name(entry, refused_name, name)
            if outcome is not None:
                return outcome

        text = json.dumps(f"Unknown tool: {name}", ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        return b'"error":{"code":-32602,"message":%b}' % text


def _may_say_unknown_tool(entry: ReplayEntry) -> bool:
    """Tell whether a response may say that there is no such tool."""
    members = entry.exchange.rpc_members
    error = members.get("error")
    if isinstance(error, dict):
        return error.get("code") in _UNKNOWN_TOOL_CODES

    if entry.exchange.result_members.get("isError") is not True:
        return False

    name_pattern = _whole_name_pattern(entry.key.name)
    return name_pattern.search(_error_or_result_text(members)) is not None


def _whole_name_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of a name that is no part of another one."""
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")


def _error_or_result_text(members: Any) -> str:
    """Return the text of an error, or the texts of a result."""
    error = members.get("error")
    if isinstance(error, dict):
        return str(error.get("message"))

    content = members["result"].get("content")
    texts = []
    for block in content if isinstance(content, list) else ():
        text = members_of(block).get("text")
        if isinstance(text, str):
            texts.append(text)

    return "\n".join(texts)


def _outcome_with_other_name(
    entry: ReplayEntry, known_name: str, new_name: str
) -> bytes | None:
    """Return the outcome of a refused call with another name; None where it can't be put in."""
    response = entry.exchange.rpc_response
    if response is None:
        return None

    member = "error" if "error" in response.tree else "result"
    spelled_outcome = response.spelled((member,))
    if spelled_outcome is None:
        return None

    text = spelled_outcome.decode("utf-8", "surrogatepass")
    pattern = _whole_name_pattern(known_name)
    names_in_text = pattern.findall(text)
    if len(names_in_text) > 1 or names_in_text != pattern.findall(
        _error_or_result_text(response.tree)
    ):
        return None

    quoted_name = json.dumps(new_name, ensure_ascii=False)[1:-1]
    text = pattern.sub(lambda _: quoted_name, text)
    return f'"{member}":{text}'.encode("utf-8", "surrogatepass")


def reads_what_is_written(entry: ReplayEntry) -> bool:
    """Tell whether a response depends on what was written before."""
    return not entry.is_listening and depends_on_writes(entry.kind, entry.key.method)
