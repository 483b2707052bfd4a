"""What the commands have in common: errors, the log, and the options that the fronts share.

Rule: what is large is imported when a command runs, so that `--help` is quick.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from mrtr_cassette.errors import (
    CassetteError,
    MrtrCassetteError,
    Terms,
    UsageError,
    printable,
    printable_json,
    printable_lines,
)
from mrtr_cassette.options import (
    Option,
    Options,
    ProxyOptions,
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
    default_of,
    header_of,
    options_of,
)
from mrtr_cassette.shell.files.disk import reason_of
from mrtr_cassette.shell.files.stores import Location, location

if TYPE_CHECKING:
    import asyncio
    import signal

    from mrtr_cassette.core.cassette.recorded import Cassette
    from mrtr_cassette.core.report.events import Work
    from mrtr_cassette.core.secrets.rules import RedactionRules
    from mrtr_cassette.shell.files.log import Clock, OnEvent, Progress
    from mrtr_cassette.shell.runs.record_session import RecordSession
    from mrtr_cassette.shell.runs.replaying import ReplaySession
    from mrtr_cassette.shell.runs.running import CommandEnd

AnyOptions = TypeVar("AnyOptions", bound=Options)
Decorator = Callable[[Any], Any]

TERMS: Final[Terms] = {
    **{
        name: option.flag
        for options in (RecordOptions, ReplayOptions, VerifyOptions)
        for name, option in options_of(options).items()
        if option.flag
    },
    "accept_gzip": "--header 'Accept-Encoding: gzip'",
    "append": "--append",
    "cassette": "--output",
    "header_form": "--header 'Name: value'",
    "ignore_value": "--ignore POINTER",
    "record": "mrtr-cassette record --upstream URL --output FILE",
    "record_too": "mrtr-cassette record --append",
    "repeat_always": "--repeat always",
    "replace": "--force",
}
"""What the command line writes where a text names an option."""


class Group(click.Group):
    """A command group that shows errors as one line, with their exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program."""
        _open_closed_streams()
        try:
            return super().main(*args, **options)
        except OSError as error:
            place = error.filename
            try:
                sys.stdout.flush()
            except OSError:
                place = "stdout"
                # What is left in its buffer would fail again at the end.
                sys.stdout = _nowhere()
            say(f"error: {'' if place is None else f'{os.fsdecode(place)}: '}{reason_of(error)}")
            sys.exit(CassetteError.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except MrtrCassetteError as error:
            say(f"error: {error.in_terms(TERMS)}")
            ctx.exit(error.exit_code)
        except click.NoSuchOption as error:
            takes_command = error.ctx is not None and any(
                each.name == "command" for each in error.ctx.command.params
            )
            hint = " What belongs to COMMAND stands after --." if takes_command else ""
            raise click.UsageError(error.format_message() + hint, error.ctx) from None


def _open_closed_streams() -> None:
    """Put the null device in the place of standard streams that are closed.

    What is opened next would have their numbers, and get what is written to them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode))


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  it stays open


class TakesServer(click.Command):
    """A command with arguments of its own before `--`, and after it the command of a server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put aside what starts the server."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_SERVER] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show it too."""
        return [*super().collect_usage_pieces(ctx), "[-- SERVER ...]"]


def server_after_dashes(ctx: click.Context) -> list[str] | None:
    """Return what stands after `--`, which may be nothing; None without `--`."""
    server: list[str] | None = ctx.meta.get(_SERVER)
    return server


_SERVER: Final = "mrtr_cassette.server"


def say(text: str) -> None:
    """Write a line to stderr, or several; what is wrong has its colour there."""
    text = printable_lines(text)
    if has_colour(sys.stderr):
        first, end, rest = text.partition("\n")
        text = f"{painted(first.partition(':')[0], first)}{end}{rest}"
    _show(f"{text}\n")


def _show(text: str) -> None:
    """Write to stderr, as long as it takes anything: a run doesn't end for it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BlockingIOError:
        pass
    except OSError:
        sys.stderr = _nowhere()


@contextmanager
def progress_shown(work: Work, path: Location, clock: Clock | None = None) -> Iterator[Progress]:
    """Give what shows on a terminal how far long work on a cassette has come, until it is done."""
    from mrtr_cassette.core.report.events import progress_said
    from mrtr_cassette.shell.files.log import CLOCK, Progress

    is_shown = False

    def show(done: int, total: int, left_s: float) -> None:
        nonlocal is_shown
        if sys.stderr.isatty():
            is_shown = True
            line = printable(progress_said(work, str(path), done, total, left_s)[1])
            width = shutil.get_terminal_size().columns - 1
            _show(f"{_WIPED}{line[:width]}")

    try:
        yield Progress(show, clock or CLOCK)
    finally:
        if is_shown:
            _show(_WIPED)


_WIPED: Final = "\r\x1b[K"
"""What empties a terminal's line."""


def has_colour(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal whose user wants colour (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def painted(mark: str, line: str) -> str:
    """Return a line in the colour of its mark: what went, what came, what changed."""
    colour = _COLOURS.get(mark)
    return line if colour is None else click.style(line, fg=colour)


_COLOURS: Final = {
    "-": "red",
    "+": "green",
    "~": "yellow",
    "error": "red",
    "miss": "red",
    "not recorded": "red",
    "note": "yellow",
    "warning": "yellow",
    "WARNING": "yellow",
}


class Log:
    """What stderr gets of a run: lines for people, or one JSON object for each event.

    Attributes:
        line: takes a line, where people read it; else None.
        event: takes the facts of an event, where a program reads it; else None.
    """

    def __init__(self, log_format: str) -> None:
        """Log in the format `text` or `json`."""
        is_text = log_format == "text"
        self.line: Callable[[str], None] | None = say if is_text else None
        self.event: OnEvent | None = None if is_text else _say_json

    def tell(self, text: str, event: dict[str, Any]) -> None:
        """Log one thing, in the form that is read."""
        if self.line is not None:
            self.line(text)
        if self.event is not None:
            self.event(event)


def json_report(data: Any) -> str:
    """Return a report as JSON for programs and for people, safe for every screen."""
    import orjson

    try:
        text = orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()
    except TypeError:
        # The name of a file may be no UTF-8.
        text = json.dumps(data, indent=2)
    return printable_json(text)


def _say_json(event: dict[str, Any]) -> None:
    import orjson

    say(printable_json(orjson.dumps(event).decode()))


class _Cassette(click.Path):
    """A cassette: a file of this machine, or the URL of one in a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return where it stands."""
        return location(os.fsdecode(super().convert(value, param, ctx)))


CASSETTE: Final = _Cassette()

log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What stderr gets: lines for people, or one JSON object for each event.",
)

command_argument = click.argument(
    "command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ...]"
)


def shared_options(options: type[Options]) -> Decorator:
    """Return what gives a command the options of a class."""
    decorators = [
        decorator
        for name, option in options_of(options).items()
        for decorator in _click_options(name, option, default_of(options, name))
    ]

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _click_options(name: str, option: Option, default: Any) -> list[Decorator]:
    """Return an option as those of click; there is none for what only programs can give."""
    if option.flags is not None:
        return [
            click.option(flag, f"{name}_{value}", is_flag=True, help=f"{text}.")
            for value, (flag, text) in option.flags.items()
        ]
    if not option.flag:
        return []
    facts: dict[str, Any] = {"metavar": option.metavar}
    end = "."
    match option.kind:
        case "list" | "headers":
            facts["multiple"] = True
            end = "; may be repeated."
        case "switch":
            facts["is_flag"] = True
        case "file":
            facts["type"] = click.Path()
        case "choice":
            facts |= {"type": click.Choice(option.choices), "show_default": True}
        case "number":
            facts |= {"type": click.IntRange(option.smallest, option.largest)}
            facts["show_default"] = True
            end = ", in MiB." if option.unit > 1 else "."
            if default is not None:
                default = option.shell_default or default // option.unit
        case "text":
            facts["show_default"] = True
    return [click.option(option.flag, name, default=default, help=option.help + end, **facts)]


def read_options(options: type[AnyOptions], given: dict[str, Any], log: Log) -> AnyOptions:
    """Return the options that a command was given, and warn of what they open."""
    values: dict[str, Any] = {"log": log.line, "terms": TERMS}
    for name, option in options_of(options).items():
        if option.flags is not None:
            flags = [
                (flag, value)
                for value, (flag, _) in option.flags.items()
                if given[f"{name}_{value}"]
            ]
            if len(flags) > 1:
                raise UsageError(f"{flags[0][0]} and {flags[1][0]} don't go together")
            if flags:
                values[name] = flags[0][1]
        elif option.kind == "headers":
            values[name] = [header_of(text) for text in given[name]]
        elif option.kind == "number" and given[name] is not None:
            values[name] = given[name] * option.unit
        elif option.flag:
            values[name] = given[name]
    read = options(**values)
    if values.get("insecure"):
        say("WARNING: --insecure: the server is not verified; anyone may be answering")
    return read


def warn_of_strangers(options: ProxyOptions) -> None:
    """Warn where others than this machine can reach the proxy."""
    from mrtr_cassette.shell.http.access import is_loopback

    if not is_loopback(options.host):
        say(
            f"warning: listening on {options.host}: whoever reaches this machine can read what is "
            "played, or call the upstream through this proxy"
        )


def warn_of_path(
    upstream: object, cassettes: Sequence[Location], rules: RedactionRules | None = None
) -> None:
    """Warn of a secret in the path of an upstream's URL that neither rules nor cassettes' find."""
    from mrtr_cassette.core.secrets.credentials import shown_by
    from mrtr_cassette.core.secrets.rules import BUILT_IN
    from mrtr_cassette.core.secrets.search import patterns_of_path
    from mrtr_cassette.shell.files.cassettes import exists, load_cassette
    from mrtr_cassette.shell.runs.record_session import rules_of_both

    if not isinstance(upstream, str) or not patterns_of_path(upstream):
        return
    patterns: dict[str, None] = {}
    recorded: list[Cassette | None] = []
    # What can't be read is told of when it is needed.
    with suppress(CassetteError):
        recorded += [load_cassette(path) for path in cassettes if exists(path)]
    for earlier in recorded or [None]:
        shown = shown_by(rules_of_both(earlier, rules or BUILT_IN))
        patterns |= dict.fromkeys(patterns_of_path(shown(upstream)))
    if patterns:
        options = " ".join(f"--redact {shlex.quote(each)}" for each in patterns)
        say(
            "warning: the path of the upstream's URL has what looks like a secret, and it is "
            f"kept; record with {options}"
        )


def refuse_http_options(context: click.Context) -> None:
    """Make sure that no option is given that means something over HTTP only."""
    given = click.core.ParameterSource.COMMANDLINE
    for option in context.command.params:
        name = option.name or ""
        if name in _HTTP_ONLY and context.get_parameter_source(name) is given:
            raise UsageError(f"{option.opts[0]} and --stdio don't go together: pipes have no HTTP")


_HTTP_ONLY: Final = frozenset(
    {
        *("admin_port", "allow_hosts", "answers", "ca_file", "headers", "host"),
        *("insecure", "port", "stateless"),
    }
)


@contextmanager
def aside(log: Log) -> Iterator[Log]:
    """Give a log for which nothing that is told ever waits, until the block ends."""
    from mrtr_cassette.shell.files.log import Aside

    beside = Log("text")
    beside.line = line = None if log.line is None else Aside(log.line)
    beside.event = event = None if log.event is None else Aside(log.event)
    try:
        yield beside
    finally:
        for each in (line, event):
            if each is not None:
                each.finish(_LOG_S)


_LOG_S: Final = 0.3
"""Seconds that a log has for what is still to be said when a run ends."""


def tell_of_journal(cassette: Location, log: Log) -> None:
    """Say that a killed recording left something beside a cassette, which is whole all the same."""
    from mrtr_cassette.shell.files.cassettes import exists
    from mrtr_cassette.shell.files.journals import unpublished

    note = unpublished(cassette)
    if note is not None and exists(cassette):
        log.tell(f"note: {note}", {"event": "unpublished", "note": note})


def tell_unused(pointers: Iterable[str], log: Log) -> None:
    """Say what was to be ignored and was nowhere."""
    for pointer in pointers:
        text = f"note: --ignore {printable(pointer)} matched nothing"
        log.tell(text, {"event": "unused_ignore", "pointer": pointer})


def tell_no_client(command: Sequence[str], log: Log) -> None:
    """Say that a command has run and sent nothing to the proxy."""
    from mrtr_cassette.shell.runs.running import URL_VARIABLE

    text = f"error: no client came; does {command[0]!r} read {URL_VARIABLE}?"
    log.tell(text, {"event": "no_client", "command": command[0]})


async def until_stopped(
    session: RecordSession | ReplaySession,
    command: Sequence[str],
    signals: asyncio.Queue[signal.Signals],
) -> CommandEnd:
    """Announce the address, and wait for the command's end or a signal."""
    from mrtr_cassette.shell.runs.running import CommandEnd, run_command

    click.echo(printable_lines(f"listening on {session.shown_url}"))
    if command:
        return await run_command(command, session.url, signals, say)
    await signals.get()
    return CommandEnd(0, was_stopped=True)
