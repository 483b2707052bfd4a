"""The command about answers files: `answers from`."""

from __future__ import annotations

import click

from mrtr_cassette.cli.common import CASSETTE
from mrtr_cassette.shell.stores import Location


@click.group()
def answers() -> None:
    """Write an answers file from a recording."""


@answers.command("from")
@click.argument("cassette", type=CASSETTE)
def from_cassette(cassette: Location) -> None:
    """Print an answers file that gives the answers of CASSETTE."""
    from mrtr_cassette.core.answers.recorded_questions import answers_text, recorded_questions
    from mrtr_cassette.shell.cassette_file import load_cassette

    questions = recorded_questions(load_cassette(cassette))
    click.echo(answers_text(questions, cassette.name), nl=False)
