"""Put this program before a server in a client's configuration, and take it out again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.secrets.credentials import text_redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Span,
    find_spans,
    item_spans,
    splice,
)
from mrtr_cassette.core.wire.pointers import ANY, members_of
from mrtr_cassette.errors import CassetteError, printable
from mrtr_cassette.terms import shell_command, shell_words

_SERVER_PLACES: Final[Sequence[MemberPath]] = (
    ("mcpServers",),
    ("servers",),
    ("context_servers",),
    ("amp.mcpServers",),
    ("mcp", "servers"),
    ("projects", ANY, "mcpServers"),
)
"""Where clients have their servers: most of them, VS Code, Zed, Amp, and Claude Code by project."""

_OUR_PROGRAM = re.compile(r"(?:^|[/\\])mrtr-cassette(?:\.exe)?$")
_MODULE_ARGUMENTS = ["-m", "mrtr_cassette"]
_DASHES = "--"
_COMMENTS = re.compile(rb'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS = re.compile(rb'"(?:\\.|[^"\\])*"|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_ADDED_ARGUMENTS = b', "args":'
"""Stands before arguments where there were none; hardly anybody writes it like this."""

_BOM = b"\xef\xbb\xbf"


class _ServerEntrySpans(NamedTuple):
    """Where the parts of a server's entry are in its file."""

    command: Span
    args_span: Span | None
    argument_spans: list[Span]
    """Of the items of `args`."""

    wrapped_command: int | None
    """Index in `args` of the command of a wrapped server; None if it is not wrapped."""


def wrapped_config(
    data: bytes, path: str, server: str, proxy_command: Sequence[str]
) -> bytes:
    """Return a configuration in which a proxy starts a server by the server's own command.

    Every other byte stays, comments too, and unwrapping gives back the same bytes.

    Raises:
        CassetteError: it is no such file, has no such server, or that is wrapped already.
    """
    entry = _spans_of_server_entry(data, path, server, proxy_command)
    if entry.wrapped_command is not None:
        raise CassetteError(
            path,
            printable(f"the server {server!r} is wrapped already"),
            hint=f"first: {shell_command('unwrap_server', path=str(path), server=server)}",
        )

    program, *arguments = [json.dumps(word).encode() for word in proxy_command]
    command = entry.command
    arguments.append(json.dumps(_DASHES).encode())
    arguments.append(command.slice_of(data))
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
    entry = _spans_of_server_entry(data, path, server)
    command_index = entry.wrapped_command
    args_span = entry.args_span
    if command_index is None or args_span is None:
        raise CassetteError(path, printable(f"the server {server!r} is not wrapped"))

    command = entry.command
    program = entry.argument_spans[command_index]
    own_command = program.slice_of(data)
    is_last_argument = command_index + 1 == len(entry.argument_spans)
    if not is_last_argument:
        # The comma behind the program, and the space behind the comma, are ours.
        end_of_removed = data.index(b",", program.end) + 1
        if data.startswith(b" ", end_of_removed):
            end_of_removed += 1

        removed_span = Span(args_span.start + 1, end_of_removed)
    elif data[command.end : args_span.start] == _ADDED_ARGUMENTS:
        removed_span = Span(command.end, args_span.end)
    else:
        removed_span = Span(args_span.start + 1, program.end)

    changes = [(command, own_command), (removed_span, b"")]
    return splice(data, changes)


def _spans_of_server_entry(
    data: bytes, path: str, server: str, proxy_command: Sequence[str] = ()
) -> _ServerEntrySpans:
    """Return the parts of a server's entry; the server must have a command, and not a URL.

    `proxy_command` is what is to start it.
    """
    data_without_comments = _without_comments(data)
    place, value = _server_place_and_entry(
        data_without_comments, path, server, proxy_command
    )
    has_command = isinstance(value, dict) and isinstance(value.get("command"), str)
    if not has_command:
        raise CassetteError(
            path,
            printable(f"the server {server!r} has no `command`"),
            hint=_hint_at_proxy(value, proxy_command),
        )

    args = value.get("args", [])
    is_list = isinstance(args, list)
    if not is_list or not all(isinstance(word, str) for word in args):
        raise CassetteError(
            path, printable(f"`args` of the server {server!r} is not a list of texts")
        )

    command_span = _last_span_at_path(data_without_comments, (*place, "command"))
    if command_span is None:
        raise CassetteError(
            path, printable(f"the server {server!r} is spelled in an odd way")
        )

    arguments = []
    args_span = _last_span_at_path(data_without_comments, (*place, "args"))
    if args_span is not None:
        arguments = item_spans(data_without_comments, args_span)

    return _ServerEntrySpans(
        command_span, args_span, arguments, _index_of_wrapped_command(value)
    )


def _hint_at_proxy(entry: Any, proxy_command: Sequence[str]) -> str | None:
    """Return how to record a server that has a URL; None if it has none, or is to be played."""
    url = entry.get("url") if isinstance(entry, dict) else None
    if not isinstance(url, str) or "record" not in proxy_command:
        return None

    shown_url = text_redactor(BUILT_IN_RULES)(url)
    command = shell_command("record_url", url=shown_url, path=proxy_command[-1])
    return f"record a server with a URL by a proxy: {command}"


def _server_place_and_entry(
    data_without_comments: bytes, path: str, server: str, proxy_command: Sequence[str]
) -> tuple[MemberPath, Any]:
    """Return a server's entry, and where the file has it.

    Raises:
        CassetteError: there is no such server, or several are called so.
    """
    names: list[str] = []
    places_and_entries: list[tuple[MemberPath, Any]] = []
    for place, servers in _servers_by_place(
        data_without_comments, path, proxy_command
    ).items():
        names.extend(repr(name) for name in servers)
        if server in servers:
            places_and_entries.append(((*place, server), servers[server]))

    if len(places_and_entries) > 1:
        raise CassetteError(
            path,
            printable(f"it has several servers {server!r}"),
            hint=_hint_by_hand(proxy_command),
        )

    if places_and_entries:
        return places_and_entries[0]

    known_names = ", ".join(names) or "none"
    raise CassetteError(
        path, printable(f"it has no server {server!r}; it has {known_names}")
    )


def _hint_by_hand(proxy_command: Sequence[str]) -> str:
    """Return how a server is wrapped, or unwrapped, in a configuration that is not changed here."""
    if not proxy_command:
        return "take the command before the server's own command out by hand"

    words = shell_words([*proxy_command, _DASHES])
    return f"start the server with this before its own command, by hand: {words}"


def _last_span_at_path(data_without_comments: bytes, path: MemberPath) -> Span | None:
    """Return where the value at a path is; of several, the last one counts."""
    # A name is found as its bytes spell it, or escaped.
    path_as_bytes_spell_it = []
    for name in path:
        path_as_bytes_spell_it.append(
            name.encode("utf-8", "surrogatepass").decode("latin-1")
        )

    spans = find_spans(data_without_comments, {path, tuple(path_as_bytes_spell_it)})
    return max([span for _, span in spans], default=None)


def _index_of_wrapped_command(entry: Any) -> int | None:
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


def has_wrapped_server(data: bytes, path: str) -> bool:
    """Tell whether a configuration has a server that is wrapped."""
    by_place = _servers_by_place(_without_comments(data), path)
    for servers in by_place.values():
        for entry in servers.values():
            if _index_of_wrapped_command(entry) is not None:
                return True

    return False


def _servers_by_place(
    data_without_comments: bytes, path: str, proxy_command: Sequence[str] = ()
) -> dict[MemberPath, dict[str, Any]]:
    """Return the servers by name, for every place of a configuration that has servers."""
    try:
        tree = json.loads(data_without_comments)
    except ValueError as error:
        raise CassetteError(
            path, f"not JSON: {error}", hint=_hint_by_hand(proxy_command)
        ) from None

    servers_by_place: dict[MemberPath, dict[str, Any]] = {}
    for pattern in _SERVER_PLACES:
        for place, servers in _members_at(tree, pattern):
            if isinstance(servers, dict):
                servers_by_place[place] = servers

    if not servers_by_place:
        raise CassetteError(
            path,
            "it has no `mcpServers`, `servers` or `context_servers`",
            hint=_hint_by_hand(proxy_command),
        )

    return servers_by_place


def _members_at(value: Any, pattern: MemberPath) -> Iterator[tuple[MemberPath, Any]]:
    """Yield the members of a JSON value at a path, in which `ANY` stands for every member."""
    if not pattern:
        yield (), value
        return

    for name, member in members_of(value).items():
        if pattern[0] in (name, ANY):
            for path, members in _members_at(member, pattern[1:]):
                yield (name, *path), members


def _without_comments(data: bytes) -> bytes:
    """Return the same JSON in the same places, without comments and last commas."""

    def blank_comment_or_comma(match: re.Match[bytes]) -> bytes:
        text = match[0]
        is_string = text.startswith(b'"')
        return text if is_string else re.sub(rb"[^\r\n]", b" ", text)

    if data.startswith(_BOM):
        data = b"   " + data[len(_BOM) :]

    without_comments = _COMMENTS.sub(blank_comment_or_comma, data)
    return _LAST_COMMAS.sub(blank_comment_or_comma, without_comments)
