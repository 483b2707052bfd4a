"""The command `check`."""

from __future__ import annotations

from pathlib import Path

import click

from mrtr_cassette.cli.common import say
from mrtr_cassette.errors import counted


@click.command()
@click.argument("cassette", type=click.Path(path_type=Path))
@click.option("--fix", "fixes", is_flag=True, help="Accept what was edited by hand.")
def check(cassette: Path, *, fixes: bool) -> None:
    """Tell whether a cassette is as it was recorded.

    With --fix, the digests in CASSETTE become those of what stands in it now; nothing outside
    its recording block changes.
    """
    from mrtr_cassette.shell import checking

    if fixes:
        accepted = checking.fix(cassette)
        say(
            f"{cassette}: {counted(accepted.edited, 'exchange')} edited, {accepted.moved} moved, "
            f"{accepted.removed} removed; accepted"
        )
    say(f"{cassette}: {counted(checking.check(cassette), 'interaction')}, all as recorded")
