"""The program as a group of commands: how it shows texts, options and errors."""

# Its help needs no command: what only errors need is imported when there is one.

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, Final, TextIO

import click

from mrtr_cassette.errors import (
    CassetteError,
    MrtrCassetteError,
    StoppedError,
    printable_lines,
)

_LEAST_LIKENESS: Final = 0.8
"""From which on an option may have been meant by another spelling."""


class Group(click.Group):
    """A command group that shows errors as one line, with their exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program; what the system refuses is one line."""
        _open_closed_streams()
        _escape_what_stdout_lacks()
        try:
            return super().main(*args, **options)
        except OSError as error:
            failed_place = error.filename
            try:
                sys.stdout.flush()
            except OSError:
                failed_place = "stdout"
                # What is left in its buffer would fail again at the end.
                sys.stdout = _null_stream()

            from mrtr_cassette.shell.files.disk import system_reason

            prefix = "" if failed_place is None else f"{os.fsdecode(failed_place)}: "
            say(f"error: {prefix}{system_reason(error)}")
            sys.exit(CassetteError.exit_code)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the options before the name of a command."""
        with _errors_as_lines():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _errors_as_lines():
            return super().invoke(ctx)


@contextmanager
def _errors_as_lines() -> Iterator[None]:
    """Show errors as one line, and end with their exit code."""
    try:
        yield
    except MrtrCassetteError as error:
        sys.exit(tell_error(error))
    except KeyboardInterrupt:
        sys.exit(tell_error(StoppedError(signal.SIGINT)))
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        error_text = error.format_message().rstrip(".")
        error_text = f"{error_text[:1].lower()}{error_text[1:]}"
        command = None if error.ctx is None else error.ctx.command
        if isinstance(error, click.NoSuchOption):
            similar_options = _meant_option(error)
            error_text = f"no such option {error.option_name!r}"
            if similar_options:
                error_text += f" (did you mean {similar_options[0]}?)"

            if isinstance(command, TakesCommand):
                error_text += command.hint_at(
                    error.option_name, is_known=bool(similar_options)
                )

        if error.ctx is not None:
            error_text = f"{error_text}; see {error.ctx.command_path} --help"

        say(f"error: {error_text}")
        sys.exit(error.exit_code)


def tell_error(error: MrtrCassetteError) -> int:
    """Show an error as a line; return its exit code."""
    from mrtr_cassette.options import shell_terms

    say(f"error: {error.in_terms(shell_terms())}")
    return error.exit_code


def _open_closed_streams() -> None:
    """Put the null device in the place of standard streams that are closed.

    What is opened next would have their numbers, and get what is written to them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null_descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null_descriptor, True)
            setattr(sys, name, os.fdopen(null_descriptor, mode))


def _escape_what_stdout_lacks() -> None:
    """Let stdout escape the characters that its encoding lacks, as stderr always does."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _null_stream() -> TextIO:
    """Return a stream that drops the text, to replace a standard stream that fails."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  it stays open


def _meant_option(error: click.NoSuchOption) -> list[str]:
    """Return the option that may have been meant by one that there is not."""
    import difflib

    # A slip is rarely in the first letter, and a client has options of its own.
    first_letter = error.option_name.lstrip("-")[:1]
    known_options = []
    for name in error.possibilities or ():
        if name.lstrip("-").startswith(first_letter):
            known_options.append(name)

    return difflib.get_close_matches(
        error.option_name, known_options, n=1, cutoff=_LEAST_LIKENESS
    )


_OPTIONS_BY_TITLE: Final[Mapping[str, Collection[str]]] = {
    "Recording": (
        "match_headers",
        "request_state",
        "redact",
        "redact_keys",
        "no_redact",
        "redact_env",
        "redact_values",
        "seal_answers",
    ),
    "Matching": (
        "ignore",
        "match",
        "echo",
        "repeat",
        "history",
        "reads",
        "masks",
        "ignore_from",
        "learn",
    ),
    "TLS": ("ca_file", "insecure"),
    "Operation": (
        "host",
        "admin_port",
        "allow_hosts",
        "max_body",
        "pace",
        "poll_interval",
        "faults",
        "on_miss",
        "stateless",
        "log",
    ),
}
"""What the options in a help text are about; the others come first."""


class TakesCommand(click.Command):
    """A command with arguments of its own before `--`, and after it a program and its arguments.

    `program` says what that is: CLIENT or SERVER. With `has_tool`, a tool's arguments are among its
    own. Its help has the options in groups.
    """

    def __init__(
        self, *args: Any, program: str, has_tool: bool = False, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.program = program
        self.has_tool = has_tool

    def hint_at(self, option: str, *, is_known: bool) -> str:
        """Return what an option may have been that it doesn't have, or that `is_known`."""
        if self.has_tool:
            return f"; an argument of the tool is written {option.lstrip('-')}=VALUE"
        return "" if is_known else f"; options of {self.program} go after --"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put aside what starts the program."""
        if "--" in args:
            dashes_index = args.index("--")
            ctx.meta[_PROGRAM_KEY] = args[dashes_index + 1 :]
            args = args[:dashes_index]

        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options below the titles of their groups."""
        records_by_title: dict[str, list[tuple[str, str]]] = {"Options": []}
        title_by_option: dict[str | None, str] = {}
        for title, names in _OPTIONS_BY_TITLE.items():
            records_by_title[title] = []
            title_by_option |= dict.fromkeys(names, title)

        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                records_by_title[title_by_option.get(param.name, "Options")].append(
                    record
                )

        for title, title_records in records_by_title.items():
            if title_records:
                with formatter.section(title):
                    formatter.write_dl(title_records)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show it too."""
        return [*super().collect_usage_pieces(ctx), f"[-- {self.program} ...]"]


def after_dashes(ctx: click.Context) -> list[str] | None:
    """Return the words after `--`, of which there may be none; None without `--`."""
    program: list[str] | None = ctx.meta.get(_PROGRAM_KEY)
    return program


_PROGRAM_KEY: Final = "mrtr_cassette.program"


def tell(text: str) -> None:
    """Write a line to stdout, or several."""
    click.echo(printable_lines(text))


def say(*texts: str) -> None:
    """Write lines to stderr, as long as it takes any: a run doesn't end for it."""
    lines = []
    for text in texts:
        first_line, line_end, further_lines = printable_lines(text).partition("\n")
        lines.append(coloured_line(first_line) + line_end + further_lines)

    try:
        click.echo("\n".join(lines), err=True)
    except BlockingIOError:
        pass
    except OSError:
        sys.stderr = _null_stream()


def coloured_line(line: str) -> str:
    """Return a line in the colour of its first word, unless the user wants none (https://no-color.org).

    What is no terminal gets the line without the colour.
    """
    first_word = line.lstrip(" ").partition(" ")[0].rstrip(":")
    colour = _COLOUR_OF_WORD.get(first_word)
    if colour is None or os.environ.get("NO_COLOR"):
        return line

    return click.style(line, fg=colour)


_COLOUR_OF_WORD: Final = {
    "-": "red",
    "+": "green",
    "~": "yellow",
    "error": "red",
    "miss": "red",
    "note": "yellow",
    "warning": "yellow",
    "WARNING": "yellow",
}
