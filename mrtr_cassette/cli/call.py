"""The command `call`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mrtr_cassette.call_options import CallOptions
from mrtr_cassette.cli.common import (
    CASSETTE,
    Log,
    TakesServer,
    log_format,
    read_options,
    say,
    server_after_dashes,
    shared_options,
    warn_of_path,
)
from mrtr_cassette.errors import UsageError, printable_json, printable_lines
from mrtr_cassette.shell.stores import Location

if TYPE_CHECKING:
    from mrtr_cassette.core.answers.fulfilment import Sources
    from mrtr_cassette.core.report.calls import CallResult


@click.command(cls=TakesServer)
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
@click.option("--record", "cassette", type=CASSETTE, metavar="CASSETTE", help="Record the call.")
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

    Without URL and SERVER it calls what MRTR_CASSETTE_URL names, as after `replay CASSETTE --`.
    What it asks is answered by --answer, by the rules and the endpoint of --answers, and by you, at
    a terminal. What nobody answers is printed as JSON, with the exit code 5; it is 1 where the tool
    or the server says that the call failed, and 4 where the server can't be used.
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    from mrtr_cassette.core.answers.arguments import wanted_of
    from mrtr_cassette.core.report.calls import problem_lines
    from mrtr_cassette.shell.announcing import Announcer
    from mrtr_cassette.shell.calling import call as call_server
    from mrtr_cassette.shell.running import run_until_signal
    from mrtr_cassette.shell.terminal import Terminal, has_terminal

    log = Log(log_format)
    options = read_options(CallOptions, others, log)
    upstream, rest = _server_of(words, server_after_dashes(context))
    wanted = wanted_of(rest)
    warn_of_path(upstream, [])
    has_person = has_terminal()
    sources = _sources_of(given, answers_path, has_person=has_person)
    if cassette is None and options.existing != "keep":
        raise UsageError("--force and --append need --record CASSETTE")
    announcer = Announcer(log.line, log.event, options.terms)
    calling = call_server(
        upstream,
        wanted,
        sources,
        options,
        announcer,
        cassette=cassette,
        ask_person=Terminal().ask if has_person else None,
    )
    result = run_until_signal(calling)
    for line in problem_lines(result):
        say(line)
    _print(result, as_json=as_json)
    sys.exit(result.exit_code)


def _server_of(
    words: Sequence[str], command: list[str] | None
) -> tuple[str | list[str], Sequence[str]]:
    """Return the server, and what is called on it."""
    from mrtr_cassette.shell.running import URL_VARIABLE

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


def _sources_of(given: Sequence[str], path: Path | None, *, has_person: bool) -> Sources:
    from mrtr_cassette.core.answers.arguments import read_pairs
    from mrtr_cassette.core.answers.fulfilment import Sources
    from mrtr_cassette.core.answers.given import GivenAnswers
    from mrtr_cassette.core.answers.rules import AnswersFile
    from mrtr_cassette.shell.answers_file import load_answers

    own = GivenAnswers(read_pairs(given, "answer"))
    file = AnswersFile("") if path is None else load_answers(path)
    return Sources(own, file, has_person)


def _print(result: CallResult, *, as_json: bool) -> None:
    """Print what a call came to: what a person reads, or JSON."""
    from mrtr_cassette.core.report.calls import call_data
    from mrtr_cassette.core.wire.jsonbytes import canonical

    if as_json:
        click.echo(printable_json(canonical(call_data(result))))
    elif result.unanswered is not None:
        click.echo(printable_json(canonical(result.unanswered.asked.data())))
    elif result.result is not None:
        click.echo(printable_lines(result.text))
