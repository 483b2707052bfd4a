"""Put this program before a server in a client's configuration, and take it out again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, item_spans, splice
from mrtr_cassette.errors import CassetteError, printable
from mrtr_cassette.terms import shell_words

_SERVERS: Final = ("mcpServers", "servers")
"""The members with a client's servers; the second one is that of VS Code."""
_OURS = re.compile(r"(?:^|[/\\])mrtr-cassette(?:\.exe)?$")
_MODULE: Final = ["-m", "mrtr_cassette"]
_DASHES: Final = "--"
_COMMENTS = re.compile(rb'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS = re.compile(rb'"(?:\\.|[^"\\])*"|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_ADDED: Final = b', "args":'
"""Stands before arguments where there were none; hardly anybody writes it like this."""
_BOM = b"\xef\xbb\xbf"


def wrapped(data: bytes, path: str, server: str, ours: Sequence[str]) -> bytes:
    """Return a configuration in which a server is started by `ours`, before its own command.

    Every other byte stays, comments too, and unwrapping gives back the same bytes.

    Raises:
        CassetteError: it is no such file, has no such server, or that is wrapped already.
    """
    command, array, items, there = _entry(data, path, server)
    if there is not None:
        raise CassetteError(
            path,
            printable(f"the server {server!r} is wrapped already"),
            hint=f"first: mrtr-cassette unwrap {shell_words([str(path), server])}",
        )
    program, *arguments = [json.dumps(each).encode() for each in (*ours, _DASHES)]
    inner = b", ".join([*arguments, data[command.start : command.end]])
    if array is None:
        added = Span(command.end, command.end), _ADDED + b"[%b]" % inner
    else:
        begin = array.start + 1
        added = Span(begin, begin), inner + (b", " if items else b"")
    return splice(data, [(command, program), added])


def unwrapped(data: bytes, path: str, server: str) -> bytes:
    """Return a configuration in which a server is started by its own command again.

    Raises:
        CassetteError: it is no such file, has no such server, or that is not wrapped.
    """
    command, array, items, ours = _entry(data, path, server)
    if ours is None or array is None:
        raise CassetteError(path, printable(f"the server {server!r} is not wrapped"))
    own, removed = items[ours], Span(array.start + 1, items[ours].end)
    if ours + 1 < len(items):
        # The comma before the next one, and the space behind it, are ours.
        comma = data.index(b",", own.end) + 1
        removed = Span(array.start + 1, comma + data.startswith(b" ", comma))
    elif data[command.end : array.start] == _ADDED:
        removed = Span(command.end, array.end)
    return splice(data, [(command, data[own.start : own.end]), (removed, b"")])


def _entry(data: bytes, path: str, server: str) -> tuple[Span, Span | None, list[Span], int | None]:
    """Return the places of `command`, of `args` and of its items, and which is the own command."""
    plain = _without_comments(data)
    named = _servers(plain, path)
    at = next((name for name, servers in named.items() if server in servers), None)
    if at is None:
        known = ", ".join(repr(name) for servers in named.values() for name in servers) or "none"
        raise CassetteError(path, printable(f"it has no server {server!r}; it has {known}"))
    entry = named[at][server]
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
    # A name is found as its bytes spell it, or escaped.
    names = (server, server.encode("utf-8", "surrogatepass").decode("latin-1"))
    spans = find_spans(plain, [(at, name, key) for name in names for key in ("command", "args")])
    command, array = (
        max((span for name in names for span in spans.get((at, name, key), ())), default=None)
        for key in ("command", "args")
    )
    if command is None:
        raise CassetteError(path, printable(f"the server {server!r} is spelled in an odd way"))
    items = [] if array is None else item_spans(plain, array)
    return command, array, items, _own_command(entry)


def _own_command(entry: Any) -> int | None:
    """Return the index of a wrapped server's own command in its arguments; None without one."""
    args = entry.get("args") if isinstance(entry, dict) else None
    if not isinstance(args, list) or not isinstance(program := entry.get("command"), str):
        return None
    start = len(_MODULE) if args[: len(_MODULE)] == _MODULE else 0
    is_ours = (start or _OURS.search(program)) and args[start + 1 : start + 2] == ["--stdio"]
    return args.index(_DASHES) + 1 if is_ours and _DASHES in args[:-1] else None


def has_wrapped(data: bytes, path: str) -> bool:
    """Tell whether a configuration has a server that is wrapped."""
    named = _servers(_without_comments(data), path).values()
    return any(_own_command(each) is not None for servers in named for each in servers.values())


def _servers(plain: bytes, path: str) -> dict[str, dict[str, Any]]:
    try:
        tree = json.loads(plain)
    except ValueError as error:
        raise CassetteError(path, f"not JSON: {error}") from None
    servers = {name: tree.get(name) for name in _SERVERS} if isinstance(tree, dict) else {}
    named = {name: each for name, each in servers.items() if isinstance(each, dict)}
    if not named:
        raise CassetteError(path, "it has no `mcpServers`", hint="name a client's configuration")
    return named


def _without_comments(data: bytes) -> bytes:
    """Return the same JSON in the same places, without comments and last commas."""

    def blank(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\r\n]", b" ", text)

    if data.startswith(_BOM):
        data = b"   " + data[len(_BOM) :]
    return _LAST_COMMAS.sub(blank, _COMMENTS.sub(blank, data))
