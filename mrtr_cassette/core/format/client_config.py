"""A client's configuration of servers on pipes, in which this program takes the place of one.

Rule: every byte that is not the server's `command` or `args` stays, comments too; wrapping and
unwrapping gives back the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, splice
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
_decode = json.JSONDecoder().raw_decode


class _Element(NamedTuple):
    """An element of an array: its value, and where it stands."""

    value: Any
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
        if not start and name not in (_PROGRAM, f"{_PROGRAM}.exe"):
            return None
        if words[start + 1 : start + 2] != ["--stdio"] or _DASHES not in words:
            return None
        place = words.index(_DASHES)
        return place if place + 1 < len(words) else None


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
    replacements = [(entry.command, json.dumps(program).encode())]
    if entry.array is None:
        behind = Span(entry.command.end, entry.command.end)
        replacements.append((behind, _ADDED + b"[%b]" % inner))
    else:
        begin = Span(entry.array.start, entry.array.start + 1)
        replacements.append((begin, b"[" + inner + (b", " if entry.args else b"")))
    return splice(data, replacements)


def unwrapped(data: bytes, path: str, server: str) -> bytes:
    """Return a configuration in which a server is started by its own command again.

    Raises:
        CassetteError: it is no such file, has no such server, or that is not wrapped.
    """
    entry = _entry(data, path, server)
    place = entry.dashes
    if place is None or entry.array is None:
        raise CassetteError(path, printable(f"the server {server!r} is not wrapped"))
    own = entry.args[place + 1].span
    replacements = [(entry.command, data[own.start : own.end])]
    between = data[entry.command.end : entry.array.start]
    if place + 2 < len(entry.args):
        # The comma before the next one, and the space behind it, are ours.
        comma = data.index(b",", own.end) + 1
        end = comma + data.startswith(b" ", comma)
        replacements.append((Span(entry.array.start + 1, end), b""))
    elif between == _ADDED:
        replacements.append((Span(entry.command.end, entry.array.end), b""))
    else:
        replacements.append((Span(entry.array.start + 1, own.end), b""))
    return splice(data, replacements)


def _entry(data: bytes, path: str, server: str) -> _Entry:
    plain = _without_comments(data)
    tree = _read(plain, path)
    named = [name for name in _SERVERS if isinstance(tree.get(name), dict)]
    if not named:
        raise CassetteError(path, "it has no `mcpServers`", hint="name a client's configuration")
    at = next((name for name in named if server in tree[name]), None)
    if at is None:
        known = ", ".join(repr(name) for each in named for name in tree[each]) or "none"
        raise CassetteError(path, printable(f"it has no server {server!r}; it has {known}"))
    entry = tree[at][server]
    program = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(program, str):
        raise CassetteError(
            path,
            printable(f"the server {server!r} has no `command`"),
            hint="one with a URL is recorded by a proxy: <<record>>",
        )
    args = entry.get("args")
    if args is not None and not (
        isinstance(args, list) and all(isinstance(each, str) for each in args)
    ):
        raise CassetteError(path, printable(f"`args` of the server {server!r} is no list of texts"))
    # A name is found as its bytes spell it, or escaped.
    names = (server, server.encode("utf-8", "surrogatepass").decode("latin-1"))
    spans = find_spans(plain, [(at, name, key) for name in names for key in ("command", "args")])
    command, array = (
        max((span for name in names for span in spans.get((at, name, key), ())), default=None)
        for key in ("command", "args")
    )
    if command is None:
        raise CassetteError(path, printable(f"the server {server!r} is spelled in an odd way"))
    if array is None or args is None:
        return _Entry(command, program, None, ())
    return _Entry(command, program, array, _elements(plain, array))


def _read(plain: bytes, path: str) -> dict[str, Any]:
    try:
        tree = json.loads(plain)
    except ValueError as error:
        raise CassetteError(path, f"not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise CassetteError(path, "it has no `mcpServers`", hint="name a client's configuration")
    return tree


def _without_comments(data: bytes) -> bytes:
    """Return the same JSON in the same places, without comments and last commas."""

    def blank(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\r\n]", b" ", text)

    if data.startswith(_BOM):
        data = b"   " + data[len(_BOM) :]
    return _LAST_COMMAS.sub(blank, _COMMENTS.sub(blank, data))


def _elements(plain: bytes, array: Span) -> tuple[_Element, ...]:
    """Return the elements of an array of texts; one byte is one character of the Latin-1 text."""
    text = plain.decode("latin-1")
    values = json.loads(plain[array.start : array.end])
    elements = []
    at = array.start + 1
    for value in values:
        at = text.index('"', at)
        end = _decode(text, at)[1]
        elements.append(_Element(value, Span(at, end)))
        at = end
    return tuple(elements)
