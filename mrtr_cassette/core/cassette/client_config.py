"""Put this program before a server in a client's configuration, and take it out again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from mrtr_cassette.core.secrets.credentials import text_redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, item_spans, splice
from mrtr_cassette.errors import CassetteError, printable
from mrtr_cassette.terms import shell_command

_SERVER_MEMBERS = ("mcpServers", "servers")
"""The members with a client's servers; the second one is that of VS Code."""

_OUR_PROGRAM = re.compile(r"(?:^|[/\\])mrtr-cassette(?:\.exe)?$")
_MODULE_ARGUMENTS = ["-m", "mrtr_cassette"]
_DASHES = "--"
_COMMENTS = re.compile(rb'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS = re.compile(rb'"(?:\\.|[^"\\])*"|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_ADDED_ARGUMENTS = b', "args":'
"""Stands before arguments where there were none; hardly anybody writes it like this."""

_BOM = b"\xef\xbb\xbf"


class _ServerEntry(NamedTuple):
    """Where the parts of a server's entry are in its file."""

    command: Span
    args_span: Span | None
    argument_spans: list[Span]
    """Of the items of `args`."""

    wrapped_command: int | None
    """Index in `args` of the command of a wrapped server; None if it is not wrapped."""


def wrapped_config(data: bytes, path: str, server: str, ours: Sequence[str]) -> bytes:
    """Return a configuration in which a server is started by `ours`, before its own command.

    Every other byte stays, comments too, and unwrapping gives back the same bytes.

    Raises:
        CassetteError: it is no such file, has no such server, or that is wrapped already.
    """
    entry = _server_entry(data, path, server, ours)
    if entry.wrapped_command is not None:
        raise CassetteError(
            path,
            printable(f"the server {server!r} is wrapped already"),
            hint=f"first: {shell_command('unwrap_server', path=str(path), server=server)}",
        )

    program, *arguments = [json.dumps(word).encode() for word in ours]
    command = entry.command
    arguments.append(json.dumps(_DASHES).encode())
    arguments.append(data[command.start : command.end])
    added_arguments = b", ".join(arguments)
    if entry.args_span is None:
        insert_at = command.end
        added_arguments = _ADDED_ARGUMENTS + b"[%b]" % added_arguments
    else:
        insert_at = entry.args_span.start + 1
        if entry.argument_spans:
            added_arguments += b", "

    changes = [(command, program), (Span(insert_at, insert_at), added_arguments)]
    return splice(data, changes)


def unwrapped_config(data: bytes, path: str, server: str) -> bytes:
    """Return a configuration in which a server is started by its own command again.

    Raises:
        CassetteError: it is no such file, has no such server, or that is not wrapped.
    """
    entry = _server_entry(data, path, server)
    command_index = entry.wrapped_command
    args_span = entry.args_span
    if command_index is None or args_span is None:
        raise CassetteError(path, printable(f"the server {server!r} is not wrapped"))

    command = entry.command
    program = entry.argument_spans[command_index]
    own_command = data[program.start : program.end]
    is_last = command_index + 1 == len(entry.argument_spans)
    if not is_last:
        # The comma behind the program, and the space behind the comma, are ours.
        end = data.index(b",", program.end) + 1
        if data.startswith(b" ", end):
            end += 1

        removed = Span(args_span.start + 1, end)
    elif data[command.end : args_span.start] == _ADDED_ARGUMENTS:
        removed = Span(command.end, args_span.end)
    else:
        removed = Span(args_span.start + 1, program.end)

    changes = [(command, own_command), (removed, b"")]
    return splice(data, changes)


def _server_entry(
    data: bytes, path: str, server: str, ours: Sequence[str] = ()
) -> _ServerEntry:
    """Return the parts of a server's entry; the server must have a command, and not a URL.

    `ours` is what is to start it.
    """
    plain = _without_comments(data)
    member, value = _server_value(plain, path, server)
    has_command = isinstance(value, dict) and isinstance(value.get("command"), str)
    if not has_command:
        raise CassetteError(
            path,
            printable(f"the server {server!r} has no `command`"),
            hint=_hint_at_proxy(value, ours),
        )

    args = value.get("args", [])
    is_list = isinstance(args, list)
    if not is_list or not all(isinstance(word, str) for word in args):
        raise CassetteError(
            path, printable(f"`args` of the server {server!r} is not a list of texts")
        )

    command_span = _last_span(plain, member, server, "command")
    if command_span is None:
        raise CassetteError(
            path, printable(f"the server {server!r} is spelled in an odd way")
        )

    arguments = []
    args_span = _last_span(plain, member, server, "args")
    if args_span is not None:
        arguments = item_spans(plain, args_span)

    return _ServerEntry(command_span, args_span, arguments, _wrapped_command(value))


def _hint_at_proxy(entry: Any, ours: Sequence[str]) -> str | None:
    """Return how to record a server that has a URL; None if it has none, or is to be played."""
    url = entry.get("url") if isinstance(entry, dict) else None
    if not isinstance(url, str) or "record" not in ours:
        return None

    shown = text_redactor(BUILT_IN_RULES)(url)
    command = shell_command("record_url", url=shown, path=ours[-1])
    return f"record a server with a URL by a proxy: {command}"


def _server_value(plain: bytes, path: str, server: str) -> tuple[str, Any]:
    """Return a server's entry, and the member of the file that has it."""
    by_member = _servers_by_member(plain, path)
    names: list[str] = []
    for member, servers in by_member.items():
        if server in servers:
            return member, servers[server]

        names.extend(repr(name) for name in servers)

    known = ", ".join(names) or "none"
    raise CassetteError(path, printable(f"it has no server {server!r}; it has {known}"))


def _last_span(plain: bytes, member: str, server: str, key: str) -> Span | None:
    """Return where the value of a server's key is; of several, the last one counts."""
    # A name is found as its bytes spell it, or escaped.
    as_bytes = server.encode("utf-8", "surrogatepass").decode("latin-1")
    paths = [(member, server, key), (member, as_bytes, key)]
    found = find_spans(plain, paths)
    spans: list[Span] = []
    for path in paths:
        spans.extend(found.get(path, ()))

    return max(spans, default=None)


def _wrapped_command(entry: Any) -> int | None:
    """Return the index of a wrapped server's own command in its arguments; None without one."""
    if not isinstance(entry, dict):
        return None

    program = entry.get("command")
    args = entry.get("args")
    if not isinstance(program, str) or not isinstance(args, list):
        return None

    options = args[1:]
    if args[: len(_MODULE_ARGUMENTS)] == _MODULE_ARGUMENTS:
        options = args[len(_MODULE_ARGUMENTS) + 1 :]
    elif not _OUR_PROGRAM.search(program):
        return None

    is_on_pipes = options[:1] == ["--stdio"]
    if not is_on_pipes or _DASHES not in args[:-1]:
        return None

    return args.index(_DASHES) + 1


def has_wrapped(data: bytes, path: str) -> bool:
    """Tell whether a configuration has a server that is wrapped."""
    by_member = _servers_by_member(_without_comments(data), path)
    for servers in by_member.values():
        for entry in servers.values():
            if _wrapped_command(entry) is not None:
                return True

    return False


def _servers_by_member(plain: bytes, path: str) -> dict[str, dict[str, Any]]:
    """Return the servers by name, for every member of a configuration that has servers."""
    try:
        tree = json.loads(plain)
    except ValueError as error:
        raise CassetteError(path, f"not JSON: {error}") from None

    by_member: dict[str, dict[str, Any]] = {}
    if isinstance(tree, dict):
        for member in _SERVER_MEMBERS:
            if isinstance(tree.get(member), dict):
                by_member[member] = tree[member]

    if not by_member:
        raise CassetteError(
            path, "it has no `mcpServers`", hint="name a client's configuration"
        )

    return by_member


def _without_comments(data: bytes) -> bytes:
    """Return the same JSON in the same places, without comments and last commas."""

    def blank(match: re.Match[bytes]) -> bytes:
        text = match[0]
        is_string = text.startswith(b'"')
        return text if is_string else re.sub(rb"[^\r\n]", b" ", text)

    if data.startswith(_BOM):
        data = b"   " + data[len(_BOM) :]

    without_comments = _COMMENTS.sub(blank, data)
    return _LAST_COMMAS.sub(blank, without_comments)
