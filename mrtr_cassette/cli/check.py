"""The command `check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mrtr_cassette.cli.common import TERMS, say
from mrtr_cassette.errors import CassetteError, counted


@click.command()
@click.argument("cassettes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--fix", "fixes", is_flag=True, help="Accept what was edited by hand.")
def check(cassettes: tuple[Path, ...], *, fixes: bool) -> None:
    """Tell whether cassettes are as they were recorded.

    The exit code is 3 where one is damaged or was edited. With --fix, the digests in a cassette
    become those of what stands in it now; nothing outside its recording block changes.
    """
    code = 0
    for cassette in cassettes:
        try:
            _check(cassette, fixes=fixes)
        except CassetteError as error:
            say(f"error: {error.in_terms(TERMS)}")
            code = error.exit_code
    sys.exit(code)


def _check(cassette: Path, *, fixes: bool) -> None:
    from mrtr_cassette.shell import checking

    if fixes:
        accepted = checking.fix(cassette)
        say(
            f"{cassette}: {counted(accepted.edited, 'exchange')} edited, {accepted.moved} moved, "
            f"{accepted.removed} removed; accepted"
        )
    say(f"{cassette}: {counted(checking.check(cassette), 'interaction')}, all as recorded")
