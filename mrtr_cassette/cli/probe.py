"""The command `probe`: answers to recorded questions that nobody gave."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mrtr_cassette.cli.common import (
    TERMS,
    Log,
    annotate,
    json_form,
    read_options,
    report_option,
    shared_options,
    write_reports,
)
from mrtr_cassette.cli.group import TakesCommand, say, tell
from mrtr_cassette.cli.live import held_cassettes, held_to, live_server
from mrtr_cassette.core.report.ci import probing_annotations, probing_junit
from mrtr_cassette.core.report.probes import (
    Probing,
    probing_code_of,
    probings_data,
    probings_markdown,
    unmet_in,
)
from mrtr_cassette.errors import CassetteError, counted, printable
from mrtr_cassette.options import ProbeOptions
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.runs.probing import Progress, Watching, probe_cassette
from mrtr_cassette.shell.runs.running import run_until_signal
from mrtr_cassette.shell.runs.verifying import check_selection


@click.command(cls=TakesCommand, program="SERVER")
@held_cassettes
@live_server
@shared_options(ProbeOptions)
@report_option("Write the outcomes", ".json", ".xml", ".md")
@click.pass_context
def probe(
    context: click.Context,
    /,
    *,
    words: tuple[str, ...],
    upstream: str | None,
    reports: tuple[Path, ...],
    **given: Any,
) -> None:
    """Try answers on a live server that were never recorded.

    Brings the server to each recorded question, as `verify` does, and then declines, sends a wrong
    type, an altered request state, and so on. A finding is a server that goes on as if the recorded
    answers had been given, or that breaks down. It makes many calls: use a server whose data
    doesn't matter.

    The exit code is 0 without findings, 1 with a finding, and 4 if no question was reached.
    """
    log = Log()
    options = read_options(ProbeOptions, given, log)
    paths, server = held_to(context, words, upstream)
    check_selection(paths, options.only, options.texts)
    probings, code = run_until_signal(_probe(paths, server, options))
    for probing in probings:
        annotate(probing_annotations(probing))

    forms = {
        ".json": lambda: json_form(probings_data(probings)),
        ".xml": lambda: probing_junit(probings),
        ".md": lambda: probings_markdown(probings).encode(),
    }
    write_reports(reports, forms)
    sys.exit(code)


async def _probe(
    paths: Sequence[Location], upstream: str | Sequence[str], options: ProbeOptions
) -> tuple[list[Probing], int]:
    progress = _progress if sys.stderr.isatty() else _by_question()
    watching = Watching(say, progress)
    probings: list[Probing] = []
    problems = 0
    for path in paths:
        try:
            probing = await probe_cassette(path, upstream, options, watching)
        except CassetteError as error:
            say(f"error: {error.in_terms(TERMS)}")
            problems = error.exit_code
            continue

        probings.append(probing)
        tell(probing.text)

    for entry in unmet_in(probings):
        say(f"error: {options.expect}: not found: {printable(str(entry))}")

    return probings, problems or probing_code_of(probings)


def _by_question() -> Progress:
    """Return what says in a line, for each question, how far a run is."""
    said = ""

    def tell_of(done: int, total: int, name: str, question: str) -> None:
        nonlocal said
        if name and question != said:
            said = question
            say(f"{done} of {counted(total, 'probe')} made; next: {question}")

    return tell_of


def _progress(done: int, total: int, name: str, _question: str) -> None:
    """Show how far a run is, in the last line of the terminal."""
    end = f"probe {done + 1} of {total}: {name}" if done < total else ""
    click.echo(f"\r\x1b[K{end}", err=True, nl=False)
