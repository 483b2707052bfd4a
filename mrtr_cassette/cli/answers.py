"""The commands about answers files: `answers check`, `answers from` and `answers schema`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mrtr_cassette.cli.common import CASSETTE
from mrtr_cassette.errors import counted, printable, printable_lines, shorten
from mrtr_cassette.shell.stores import Location


@click.group()
def answers() -> None:
    """Check an answers file, or write one from a recording."""


@answers.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("cassette", type=CASSETTE)
def check(file: Path, cassette: Location) -> None:
    """Say which rule of FILE answers which question of CASSETTE, and which question none.

    The exit code is 1 where a question has no answer, or one that doesn't fit it.
    """
    from mrtr_cassette.core.answers.recorded_questions import coverage_of, recorded_questions
    from mrtr_cassette.shell.answers_file import load_answers
    from mrtr_cassette.shell.cassette_file import load_cassette

    read = load_answers(file)
    coverage = coverage_of(recorded_questions(load_cassette(cassette)), read)
    for each in coverage:
        question = each.question
        request = question.request
        message = f" {shorten(request.message)!r}" if request.message else ""
        asked = f"#{question.interaction} turn {question.turn}: {question.key} ({request.kind})"
        answered = each.answered_by or "NO ANSWER"
        problem = "" if each.problem is None else f", which doesn't fit: {each.problem}"
        click.echo(printable_lines(printable(f"{asked}{message}: {answered}{problem}")))
    bad = sum(not each.is_good for each in coverage)
    used = {each.answered_by for each in coverage}
    for rule in read.rules:
        if f"rule {rule.number}" not in used:
            click.echo(f"rule {rule.number} answers nothing")
    click.echo(f"{counted(len(coverage), 'question')}, {bad} without an answer that fits")
    sys.exit(1 if bad else 0)


@answers.command("from")
@click.argument("cassette", type=CASSETTE)
def from_cassette(cassette: Location) -> None:
    """Print an answers file that gives the answers of CASSETTE."""
    from mrtr_cassette.core.answers.recorded_questions import answers_text, recorded_questions
    from mrtr_cassette.shell.cassette_file import load_cassette

    questions = recorded_questions(load_cassette(cassette))
    click.echo(answers_text(questions, cassette.name), nl=False)


@answers.command()
def schema() -> None:
    """Print the JSON Schema of answers files."""
    import orjson

    from mrtr_cassette.core.answers.file_model import answers_schema

    click.echo(orjson.dumps(answers_schema(), option=orjson.OPT_INDENT_2).decode())
