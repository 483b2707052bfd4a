"""A client's configuration of servers on pipes, in which this program takes the place of one.

Rule: every other byte stays, comments too; wrapping and unwrapping gives back the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, item_spans, splice
from mrtr_cassette.errors import CassetteError, printable

_SERVERS: Final = ("mcpServers", "servers")
"""Where clients have their servers; the second one is the spelling of VS Code."""
_PROGRAM: Final = "mrtr-cassette"
_MODULE: Final = ("-m", "mrtr_cassette")
_DASHES: Final = "--"
_COMMENTS = re.compile(rb'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS = re.compile(rb'"(?:\\.|[^"\\])*"|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_ADDED: Final = b', "args":'
"""What stands before arguments where there were none; hardly anybody writes it like this."""
_BOM = b"\xef\xbb\xbf"


class _Element(NamedTuple):
    """An element of `args`, and where it stands."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class _Entry:
    """One server of a configuration.

    Attributes:
        command: where the value of `command` stands.
        program: that value.
        array: where the value of `args` stands; None where there is none.
        args: its elements.
    """

    command: Span
    program: str
    array: Span | None
    args: tuple[_Element, ...]

    @property
    def dashes(self) -> int | None:
        """At which argument the server's own command begins; None where it is not wrapped."""
        words = [element.value for element in self.args]
        name = self.program.replace("\\", "/").rpartition("/")[2]
        start = len(_MODULE) if tuple(words[: len(_MODULE)]) == _MODULE else 0
        is_ours = start or name in (_PROGRAM, f"{_PROGRAM}.exe")
        if not is_ours or words[start + 1 : start + 2] != ["--stdio"] or _DASHES not in words[:-1]:
            return None
        return words.index(_DASHES)


def wrapped(data: bytes, path: str, server: str, ours: Sequence[str]) -> bytes:
    """Return a configuration in which a server is started by this program.

    Args:
        ours: this program and its arguments, up to where the server's own command begins.

    Raises:
        CassetteError: it is no such file, has no such server, or that is wrapped already.
    """
    entry = _entry(data, path, server)
    if entry.dashes is not None:
        raise CassetteError(
            path,
            printable(f"the server {server!r} is wrapped already"),
            hint=f"first: {_PROGRAM} unwrap {path} {server}",
        )
    program, *arguments = ours
    own = data[entry.command.start : entry.command.end]
    inner = b", ".join([*(json.dumps(each).encode() for each in (*arguments, _DASHES)), own])
    if entry.array is None:
        added = Span(entry.command.end, entry.command.end), _ADDED + b"[%b]" % inner
    else:
        begin = Span(entry.array.start, entry.array.start + 1)
        added = begin, b"[" + inner + (b", " if entry.args else b"")
    return splice(data, [(entry.command, json.dumps(program).encode()), added])


def unwrapped(data: bytes, path: str, server: str) -> bytes:
    """Return a configuration in which a server is started by its own command again.

    Raises:
        CassetteError: it is no such file, has no such server, or that is not wrapped.
    """
    entry = _entry(data, path, server)
    place, array = entry.dashes, entry.array
    if place is None or array is None:
        raise CassetteError(path, printable(f"the server {server!r} is not wrapped"))
    own = entry.args[place + 1].span
    if place + 2 < len(entry.args):
        # The comma before the next one, and the space behind it, are ours.
        comma = data.index(b",", own.end) + 1
        removed = Span(array.start + 1, comma + data.startswith(b" ", comma))
    elif data[entry.command.end : array.start] == _ADDED:
        removed = Span(entry.command.end, array.end)
    else:
        removed = Span(array.start + 1, own.end)
    return splice(data, [(entry.command, data[own.start : own.end]), (removed, b"")])


def _entry(data: bytes, path: str, server: str) -> _Entry:
    """Find a server; a name is found as its bytes spell it, or escaped."""
    plain = _without_comments(data)
    at, entry = _member(plain, path, server)
    program = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(program, str):
        raise CassetteError(
            path,
            printable(f"the server {server!r} has no `command`"),
            hint="one with a URL is recorded by a proxy: <<record>>",
        )
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        raise CassetteError(path, printable(f"`args` of the server {server!r} is no list of texts"))
    names = (server, server.encode("utf-8", "surrogatepass").decode("latin-1"))
    spans = find_spans(plain, [(at, name, key) for name in names for key in ("command", "args")])
    command, array = (
        max((span for name in names for span in spans.get((at, name, key), ())), default=None)
        for key in ("command", "args")
    )
    if command is None:
        raise CassetteError(path, printable(f"the server {server!r} is spelled in an odd way"))
    places = () if array is None else item_spans(plain, array)
    return _Entry(command, program, array, tuple(map(_Element, args, places)))


def _member(plain: bytes, path: str, server: str) -> tuple[str, Any]:
    """Return the member in which a server stands, and what a configuration says of it."""
    try:
        tree = json.loads(plain)
    except ValueError as error:
        raise CassetteError(path, f"not JSON: {error}") from None
    servers = {name: tree.get(name) for name in _SERVERS} if isinstance(tree, dict) else {}
    named = {name: each for name, each in servers.items() if isinstance(each, dict)}
    if not named:
        raise CassetteError(path, "it has no `mcpServers`", hint="name a client's configuration")
    for name, each in named.items():
        if server in each:
            return name, each[server]
    known = ", ".join(repr(name) for each in named.values() for name in each) or "none"
    raise CassetteError(path, printable(f"it has no server {server!r}; it has {known}"))


def _without_comments(data: bytes) -> bytes:
    """Return the same JSON in the same places, without comments and last commas."""

    def blank(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\r\n]", b" ", text)

    if data.startswith(_BOM):
        data = b"   " + data[len(_BOM) :]
    return _LAST_COMMAS.sub(blank, _COMMENTS.sub(blank, data))
