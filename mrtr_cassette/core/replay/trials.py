"""Trials of an agent: calls of tools that the server doesn't have, and the nearest recording.

docs/agents.md, "Trials", says what a trial is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.protocol.methods import CALL_TOOL, LIST_TOOLS
from mrtr_cassette.core.replay.diagnosis import Harmless, Miss
from mrtr_cassette.core.wire.http import JSON_HEADERS

_CODES: Final = (-32601, -32602)
"""The codes with which servers refuse a tool that they don't have."""


def listed_tools(entry: ReplayEntry) -> Iterator[tuple[str, bool]]:
    """Yield the tools in a list, and whether it says that they only read."""
    result = entry.exchange.rpc_members.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str):
            hints = tool.get("annotations")
            only_reads = isinstance(hints, dict) and hints.get("readOnlyHint") is True
            yield name, only_reads


class UnknownTools:
    """Answers calls of tools that a recorded server doesn't have.

    They are known only where a whole list of its tools was recorded.
    """

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._by_arrival = by_arrival

    @cached_property
    def _listed(self) -> frozenset[str] | None:
        """The names in all recorded lists; None where a page is missing, or there is none."""
        names: set[str] = set()
        issued: set[str] = set()
        asked: set[str] = set()
        for entry in self._by_arrival:
            if entry.key.method != LIST_TOOLS or entry.is_refused:
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
        lists = [entry for entry in self._by_arrival if entry.key.method == LIST_TOOLS]
        return frozenset([entry.key.endpoint for entry in lists])

    @property
    def _calls(self) -> Iterator[ReplayEntry]:
        for entry in self._by_arrival:
            if entry.kind is Kind.REQUEST and entry.key.method == CALL_TOOL:
                yield entry

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
        identity = message.spelled(ID_PATH) or b"null"
        body = b'{"jsonrpc":"2.0","id":%b,%b}' % (identity, self._outcome(name))
        return Harmless(call, 200, JSON_HEADERS, body, "unknown tool")

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


# The nearest recording


class Divergence(NamedTuple):
    """The first request of a play that a recording doesn't have where the play is.

    Attributes:
        recording: the place of the recording among those that are played.
        after: how many requests had got a recorded reply.
        entry: what the request got from another recording, if it is no miss.
    """

    recording: int
    after: int
    entry: ReplayEntry | None = None
    miss: Miss | None = None


class Divergences:
    """Follows all recordings that are played together, each until a play leaves it.

    Attributes:
        recordings: how many; 1 where calls are not held to them.
    """

    def __init__(self, recordings: int) -> None:
        self.recordings = recordings
        self.found: list[Divergence] = []
        """The first one from each recording that the play has left, in that order."""
        self.followed = set(range(recordings))
        """The recordings that alone would have answered all requests."""

    def played(
        self, entry: ReplayEntry, recordings: Collection[int], after: int
    ) -> None:
        """Take note that a request was played that only these recordings have there."""
        for recording in sorted(self.followed.difference(recordings)):
            self.followed.discard(recording)
            self.found.append(Divergence(recording, after, entry=entry))

    def missed(self, miss: Miss, after: int) -> None:
        """Take note that no recording has a request there."""
        for recording in sorted(self.followed):
            self.found.append(Divergence(recording, after, miss=miss))
        self.followed.clear()

    @property
    def nearest(self) -> Divergence | None:
        """The divergence from the recording that was followed longest; None where one still is."""
        if self.followed or not self.found:
            return None
        latest = self.found[-1].after
        for divergence in self.found:
            if divergence.after == latest:
                return divergence
        return None
