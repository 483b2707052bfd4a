"""The commands that need no client: `call`, `answers from` and `demo`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    Log,
    TakesCommand,
    after_dashes,
    log_format,
    read_options,
    say,
    shared_options,
    warn_of_path,
)
from mrtr_cassette.core.answers.fulfilment import Sources
from mrtr_cassette.core.answers.written import (
    AnswersFile,
    GivenAnswers,
    answers_text,
    read_pairs,
    wanted_of,
)
from mrtr_cassette.core.report.runs import CallResult, call_data, problem_lines
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import UsageError, printable_json, printable_lines
from mrtr_cassette.options import CallOptions
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.files.log import Announcer, heard_by
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.runs.answerers import ask_at_terminal, has_terminal, load_answers
from mrtr_cassette.shell.runs.calling import call as call_server
from mrtr_cassette.shell.runs.running import URL_VARIABLE, run_until_signal


@click.command(cls=TakesCommand)
@click.argument("words", nargs=-1, metavar="[URL] TOOL|METHOD [NAME=VALUE | NAME:=JSON ...]")
@click.option(
    "--answer",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Answer the field or the question of this name; NAME:=JSON takes JSON; may be repeated.",
)
@click.option(
    "--answers",
    "answers_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rules that answer, in TOML.",
)
@click.option(
    "-o", "--record", "cassette", type=CASSETTE, metavar="CASSETTE", help="Record the call."
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole conversation as JSON.")
@shared_options(CallOptions)
@log_format
@click.pass_context
def call(
    context: click.Context,
    /,
    words: tuple[str, ...],
    given: tuple[str, ...],
    answers_path: Path | None,
    cassette: Location | None,
    log_format: str,
    *,
    as_json: bool,
    **others: Any,
) -> None:
    """Make one call on a live server, and answer what it asks.

    \b
      mrtr-cassette call http://localhost:8000/mcp deploy env=prod --answer confirm=yes
      mrtr-cassette call http://localhost:8000/mcp prompts/get release-notes version=2
      mrtr-cassette call deploy env=prod -- python server.py

    Without URL and COMMAND it calls what MRTR_CASSETTE_URL names, as after `replay CASSETTE --`.
    What it asks is answered by --answer, by the rules and the endpoint of --answers, and by you, at
    a terminal. What nobody answers is printed as JSON, with the exit code 5; it is 1 where the tool
    or the server says that the call failed, and 4 where the server can't be used.
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    log = Log(log_format)
    options = read_options(CallOptions, others, log)
    upstream, rest = _server_of(words, after_dashes(context))
    wanted = wanted_of(rest)
    if cassette is not None:
        warn_of_path(upstream, BUILT_IN)
    has_person = has_terminal()
    file = AnswersFile() if answers_path is None else load_answers(answers_path)
    sources = Sources(GivenAnswers(read_pairs(given, "answer")), file, has_person)
    if cassette is None and options.existing != "keep":
        raise UsageError("--force and --append need --record CASSETTE")
    announcer = Announcer(log.line, heard_by(log.event), options.terms)
    ask_person = ask_at_terminal if has_person else None
    result = run_until_signal(
        call_server(
            *(upstream, wanted, sources, options, announcer),
            cassette=cassette,
            ask_person=ask_person,
        )
    )
    for line in problem_lines(result):
        say(line)
    _print(result, as_json=as_json)
    sys.exit(result.exit_code)


def _server_of(
    words: Sequence[str], command: list[str] | None
) -> tuple[str | list[str], Sequence[str]]:
    if command is not None:
        if not command:
            raise UsageError("there is no server after --")
        return command, words
    if words and "://" in words[0]:
        return words[0], words[1:]
    url = os.environ.get(URL_VARIABLE)
    if not url:
        raise UsageError(
            "there is no server to call",
            hint=f"begin with its URL, end with -- and its command, or set {URL_VARIABLE}",
        )
    return url, words


def _print(result: CallResult, *, as_json: bool) -> None:
    """Print what a call came to: what a person reads, or JSON."""
    if as_json:
        click.echo(printable_json(canonical(call_data(result))))
    elif result.unanswered is not None:
        click.echo(printable_json(canonical(result.unanswered.asked.data())))
    elif result.result is not None:
        click.echo(printable_lines(result.text))


@click.group()
def answers() -> None:
    """Write an answers file from a recording."""


@answers.command("from")
@click.argument("cassette", type=CASSETTE)
def from_cassette(cassette: Location) -> None:
    """Print an answers file that gives the answers of CASSETTE."""
    click.echo(answers_text(load_cassette(cassette), cassette.name), nl=False)


@click.command()
def demo() -> None:
    """Show the main job on a server of our own.

    Record it, stop it, replay it, and compare every byte.
    """
    from mrtr_cassette.demo.run import run_demo

    run_demo(click.echo)
