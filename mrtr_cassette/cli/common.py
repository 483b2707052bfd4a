"""What the commands have in common: the log, reports, and the options that the fronts share."""

# What reports and pages need is imported when one is written: it takes half of a start.

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mrtr_cassette.cli.group import say
from mrtr_cassette.core.protocol.origins import lacks_scheme
from mrtr_cassette.core.secrets.credentials import text_redactor
from mrtr_cassette.core.secrets.rules import RedactionRules, random_segment_patterns
from mrtr_cassette.errors import UsageError, printable, printable_json
from mrtr_cassette.options import (
    AnyOptions,
    ListeningOptions,
    Option,
    Options,
    default_of,
    flag_of,
    options_of,
    shell_terms,
)
from mrtr_cassette.shell.files.cassettes import cassette_exists, unpublished_warning
from mrtr_cassette.shell.files.disk import system_reason
from mrtr_cassette.shell.files.log import OnEvent
from mrtr_cassette.shell.files.stores import (
    Location,
    is_address,
    keep_fetched,
    location_of,
)

Decorator = Callable[[Any], Any]
Listening = TypeVar("Listening", bound=ListeningOptions)

TERMS: Final = shell_terms()
"""What the command line writes where a text names an option."""


class Log:
    """What stderr gets of a run: lines for people, or one JSON object for each event."""

    def __init__(self, log_format: str = "text") -> None:
        """Log lines, or events as `json`; what takes the other is None."""
        self.write_line: Callable[[str], None] | None = say
        self.write_event: OnEvent | None = None
        if log_format == "json":
            self.write_line = None
            self.write_event = _say_events

    def tell(self, text: str, event: dict[str, Any]) -> None:
        """Log one thing, in the form that is read."""
        if self.write_line is not None:
            self.write_line(text)

        if self.write_event is not None:
            self.write_event(event)


def _say_events(*events: dict[str, Any]) -> None:
    """Write events to stderr as lines of JSON; a target may have bytes that are not UTF-8."""
    lines = []
    for event in events:
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        lines.append(printable_json(text))

    say(*lines)


def json_report(data: Any) -> str:
    """Return a report as JSON for programs and for people, safe for every screen."""
    return printable_json(json.dumps(data, indent=2, ensure_ascii=False))


_REPORT_FORMS: Final = {".json": "JSON", ".xml": "JUnit XML", ".md": "Markdown"}
"""The forms of reports, by the endings of their files' names."""


class _ReportType(click.Path):
    """A file for a report, in the form that its name ends in; JSON where it has no ending."""

    def __init__(self, endings: Sequence[str]) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._report_endings = endings

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return its path, to which a report in this form can be written."""
        from mrtr_cassette.shell.files.reports import check_place

        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if _ending_of(path) not in self._report_endings:
            endings = ", ".join(self._report_endings)
            problem = (
                f"--report {path}: this command can't write a {path.suffix} report"
            )
            hint = f"use a name that ends in {endings}"
            raise UsageError(problem, hint=hint)

        check_place(path)
        return path


def _ending_of(path: Path) -> str:
    """Return the ending, in lower case, that says a report's form; `.json` if there is none."""
    return path.suffix.lower() or ".json"


def report_option(text: str, *endings: str, markdown_of: str = "") -> Decorator:
    """Return what gives a command its option for reports with these endings.

    Args:
        markdown_of: the option with which alone there is a report in Markdown, if there is one.
    """
    forms = ", ".join([f"{_REPORT_FORMS[ending]} ({ending})" for ending in endings])
    if markdown_of:
        forms = forms.replace("Markdown", f"with {markdown_of} also Markdown")

    return click.option(
        "--report",
        "reports",
        multiple=True,
        type=_ReportType(endings),
        metavar="FILE",
        help=f"{text}, as the name's ending says: {forms}; may be repeated.",
    )


def write_reports(
    paths: Sequence[Path], outcome: Any, forms: Mapping[str, Callable[[Any], Any]]
) -> None:
    """Write an outcome to files, each in the form that its name ends in.

    Args:
        forms: by ending, what turns the outcome into JSON data, a text, or the bytes of XML.
    """
    from mrtr_cassette.shell.files.reports import write_own

    for path in paths:
        ending = _ending_of(path)
        report = forms[ending](outcome)
        if ending == ".json":
            report = f"{json_report(report)}\n"

        if isinstance(report, str):
            report = report.encode()

        write_own(path, [report])


def print_annotations(lines: Iterable[str]) -> None:
    """Print annotations under GitHub Actions, whose runner reads both streams."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in lines:
            click.echo(line)


class _CassetteType(click.Path):
    """A cassette: a file of this machine, or the URL of one in a store."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return its place."""
        return location_of(os.fsdecode(super().convert(value, param, ctx)))


CASSETTE: Final = _CassetteType()


FILE: Final = click.Path(path_type=Path)


def places_argument(name: str, metavar: str | None = None) -> Decorator:
    """Return what gives a command an argument that names one place or several."""
    return click.argument(
        name, nargs=-1, required=True, type=click.Path(), metavar=metavar
    )


class _FaultsType(click.Path):
    """A file of faults."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return its tables."""
        if not isinstance(value, str):
            # It is the default.
            return value

        import tomllib

        from mrtr_cassette.core.replay.faults import read_faults

        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"--faults {value}: {system_reason(error)}") from None
        except ValueError as error:
            text = f"{value}: this is not TOML: {str(error).lower()}"
            raise UsageError(text) from None

        faults = tables.pop("fault", [])
        if tables or not faults:
            problem = f"{value}: a file of faults has [[fault]] tables and nothing else"
            raise UsageError(problem)

        read_faults(faults, value)
        return faults


class _NumberType(click.IntRange):
    """A whole number, as a message calls it."""

    name = "whole number"


def with_fetched(words: Sequence[str]) -> list[str]:
    """Fetch the cassettes that are named by addresses; return what names all of them then."""
    names_after_fetching = []
    for word in words:
        names_after_fetching.append(
            _fetched_cassette_name(word) if is_address(word) else word
        )

    return names_after_fetching


def read_place(word: str) -> Location:
    """Return where a cassette is that is only read; it is fetched if an address names it."""
    (name,) = with_fetched([word])
    return location_of(name)


def _fetched_cassette_name(address: str) -> str:
    """Fetch a cassette, say its size and digest, and return the name by which it is read."""
    # Who plays a file loads no client.
    import asyncio

    from mrtr_cassette.shell.http.fetched import fetch_cassette

    fetched = asyncio.run(fetch_cassette(address))
    say(
        f"fetched {fetched.shown}: {len(fetched.data):,} bytes, #sha256={fetched.sha256}"
    )
    return keep_fetched(fetched.shown, fetched.data)


log_option = click.option(
    "--log-format",
    "log",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    callback=lambda _context, _option, form: Log(form),
    help="Write lines for people to stderr, or a JSON object for every event.",
)


def ignore_option(text: str) -> Decorator:
    """Return the decorator that gives a command `--ignore`, with this help text."""
    return click.option(
        "--ignore", "ignored", metavar="POINTER", multiple=True, help=text
    )


def ignore_from_option(text: str) -> Decorator:
    """Return the decorator that gives a command `--ignore-from`, with this help text."""
    return click.option("--ignore-from", type=FILE, metavar="FILE", help=text)


def shared_options(options_class: type[Options]) -> Decorator:
    """Return what gives a command the options of a class."""

    def add_options(command: Any) -> Any:
        """Add the options to a command, which then shows them in the order of the class."""
        for name, option in reversed(options_of(options_class).items()):
            decorators = _click_options(name, option, default_of(options_class, name))
            for decorator in reversed(decorators):
                command = decorator(command)

        return command

    return add_options


def _click_options(name: str, option: Option, default: Any) -> list[Decorator]:
    """Return what gives a command an option, or one flag for each of its values."""
    if option.flags is not None:
        flag_decorators = []
        for value, (flag, text) in option.flags.items():
            flag_decorators.append(
                click.option(flag, f"{name}_{value}", is_flag=True, help=f"{text}.")
            )

        return flag_decorators

    flag = flag_of(name, option)
    if not flag:
        return []

    end_of_help = "."
    click_arguments: dict[str, Any] = {"metavar": option.metavar}
    if option.kind in ("list", "headers", "values", "match"):
        click_arguments["multiple"] = True
        end_of_help = "; may be repeated."
    elif option.kind == "switch":
        click_arguments["is_flag"] = True
    elif option.kind == "file":
        click_arguments["type"] = click.Path()
    elif option.kind == "faults":
        click_arguments["type"] = _FaultsType()
    else:
        click_arguments["show_default"] = True

    if option.kind == "choice":
        click_arguments["type"] = click.Choice(option.choices)

    if option.kind == "number":
        click_arguments["type"] = _NumberType(option.smallest, option.largest)
        click_arguments["metavar"] = option.metavar or "NUMBER"
        default, end_of_help = _default_number(option, default)

    help_text = option.help + end_of_help
    click_arguments |= {"default": default, "help": help_text}
    return [click.option(flag, name, **click_arguments)]


def _default_number(option: Option, default: Any) -> tuple[Any, str]:
    """Return the default of a number as users give it, and the end of its help."""
    if option.shell_default is not None:
        return option.shell_default, ", and so does -- CLIENT."

    if default is not None:
        default //= option.unit

    return default, ", in MiB." if option.unit > 1 else "."


def is_given(context: click.Context, name: str) -> bool:
    """Tell whether the command line has an option."""
    source = context.get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def with_free_port(
    options: Listening, context: click.Context, command: Sequence[str]
) -> Listening:
    """Return options by which a command that is told the address is served on a free port."""
    if command and not is_given(context, "port"):
        return replace(options, port=0)
    return options


def read_options(
    options_class: type[AnyOptions], given_options: dict[str, Any], log: Log
) -> AnyOptions:
    """Return the options that a command was given, and warn of what they open.

    Raises:
        UsageError: two options don't go together.
    """
    values: dict[str, Any] = {"log": log.write_line, "terms": TERMS}
    for name, option in options_of(options_class).items():
        if option.flags is not None:
            chosen_values = []
            for value in option.flags:
                if given_options[f"{name}_{value}"]:
                    chosen_values.append(value)

            refuse_together({option.flags[value][0]: True for value in chosen_values})
            if chosen_values:
                values[name] = chosen_values[0]
        elif option.in_shell:
            values[name] = _option_value(option, given_options[name])

    if values.get("insecure"):
        say("WARNING: --insecure: the server is not verified; anyone may be answering")

    return options_class(**values)


def _option_value(option: Option, given_value: Any) -> Any:
    """Return the value of an option, from what was given on a command line."""
    if option.kind == "headers":
        return [_parsed_header(text) for text in given_value]
    if option.kind == "values":
        return [named_value(text) for text in given_value]

    if option.kind == "match":
        from mrtr_cassette.core.cassette.matchers import matcher_kinds_by_pointer

        return matcher_kinds_by_pointer(given_value) or None

    if option.kind == "number" and given_value is not None:
        return given_value * option.unit

    return given_value


def named_value(text: str) -> tuple[str, str]:
    """Return the name and the text of a value.

    Raises:
        UsageError: the text is missing.
    """
    name, equals_sign, value = text.partition("=")
    if not equals_sign:
        hint = "give it as <<give_value>>"
        raise UsageError(f"--value {text}: the text is missing", hint=hint)

    return name, value


def _parsed_header(text: str) -> tuple[str, str]:
    """Return the name and the value of a header that is given as `NAME: VALUE`."""
    name, colon, value = text.partition(":")
    if not colon:
        # Its name may be a secret that lacks one.
        hint = "give it as <<header_form>>"
        raise UsageError("--header: the value is missing", hint=hint)

    return name.strip(), value.strip()


def warn_of_path(upstream: object, rules: RedactionRules) -> None:
    """Warn of a secret in the path of the recorded URL that the rules of redaction don't find."""
    if not isinstance(upstream, str):
        return

    secret_patterns = random_segment_patterns(text_redactor(rules)(upstream))
    if secret_patterns:
        redact_options = " ".join(
            [f"--redact {shlex.quote(text)}" for text in secret_patterns]
        )
        say(
            "warning: the path of the upstream's URL seems to have a secret, which is kept; "
            f"record with {redact_options}"
        )


def tell_of_journal(cassette: Location, log: Log) -> None:
    """Say that a killed recording left something beside a cassette, which is whole all the same."""
    note = unpublished_warning(cassette)
    if note is not None and cassette_exists(cassette):
        log.tell(f"note: {note}", {"event": "unpublished", "note": note})


LEFT_NOTHING_OUT: Final = "left nothing out"
"""What an option did that should leave something out of a comparison."""


def tell_unused(
    options: Iterable[tuple[str, str]], log: Log, effect: str = "matched nothing"
) -> None:
    """Say which options made no difference, each with its value; `effect` says it in words."""
    for name, value in options:
        text = f"note: {TERMS[name]} {printable(value)} {effect}"
        log.tell(text, {"event": "unused", "option": name, "value": value})


# Common mistakes


def refuse_misplaced(words: Sequence[str]) -> None:
    """Refuse a URL without its scheme, and a program whose `--` was forgotten.

    Raises:
        UsageError: there is one in the words.
    """
    for index, word in enumerate(words):
        if os.path.lexists(word):
            continue

        refuse_without_scheme(word)
        if shutil.which(word) is not None:
            command = shlex.join(words[index:])
            hint = f"put -- before it: -- {command}"
            raise UsageError(f"{word!r} is a program", hint=hint)


def refuse_without_scheme(word: str) -> None:
    """Refuse a URL without its scheme.

    Raises:
        UsageError: the word has no scheme.
    """
    if lacks_scheme(word):
        raise UsageError(f"{word!r} has no scheme", hint=f"write http://{word}")


def refuse_together(options: Mapping[str, object]) -> None:
    """Refuse several options of which one may be given.

    Raises:
        UsageError: more than one has a value.
    """
    given_options = [option for option, value in options.items() if value]
    if len(given_options) > 1:
        raise UsageError(f"{' and '.join(given_options)} don't go together")
