"""Help texts are read by people: a change of their words is seen in tests/data/help.txt."""

from __future__ import annotations

from collections.abc import Iterator

import click
from goldens import DATA
from harness import run_here

from mrtr_cassette.cli import main

GOLDEN = DATA / "help.txt"


def _paths_of(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the words that name every command, a group before its commands."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _paths_of(inner, (*path, name))


def test_help_texts_are_as_reviewed(monkeypatch, updates_goldens):
    """The help of every command is in one file; `pytest --update-goldens` writes it."""
    monkeypatch.setenv("COLUMNS", "80")
    texts = []
    for path in _paths_of(main):
        shown = run_here(*path, "--help")
        assert shown.code == 0
        texts.append(f"$ {' '.join(['mrtr-cassette', *path])} --help\n{shown.out}")
    text = "\n".join(texts)
    if updates_goldens:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
