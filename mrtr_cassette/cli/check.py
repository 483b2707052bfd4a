"""The command `check`."""

from __future__ import annotations

import sys

import click

from mrtr_cassette.cli.common import CASSETTE, TERMS, progress_shown, say
from mrtr_cassette.errors import CassetteError, counted
from mrtr_cassette.shell.stores import Location


@click.command()
@click.argument("cassettes", nargs=-1, required=True, type=CASSETTE)
@click.option("--fix", "fixes", is_flag=True, help="Accept what was edited by hand.")
def check(cassettes: tuple[Location, ...], *, fixes: bool) -> None:
    """Tell whether cassettes are as recorded, without secrets.

    The exit code is 3 where one is damaged or was edited, else 1 where the rules of redaction find
    a secret in one. With --fix, the digests in a cassette become those of what stands in it now;
    nothing outside its recording block changes.
    """
    code = 0
    for cassette in cassettes:
        try:
            has_secrets = _check(cassette, fixes=fixes)
            code = max(code, int(has_secrets))
        except CassetteError as error:
            say(f"error: {error.in_terms(TERMS)}")
            code = error.exit_code
    sys.exit(code)


def _check(cassette: Location, *, fixes: bool) -> bool:
    """Check one cassette; return whether there are secrets in it."""
    from mrtr_cassette.shell import checking

    if fixes:
        accepted = checking.fix(cassette)
        say(
            f"{cassette}: {counted(accepted.edited, 'exchange')} edited, {accepted.moved} moved, "
            f"{accepted.removed} removed; accepted"
        )
    with progress_shown("reading", cassette) as progress:
        count, secrets = checking.check(cassette, progress)
    say(f"{cassette}: {counted(count, 'interaction')}, all as recorded")
    for number, place, side, rule in secrets:
        where = f"#{number}, {f'answer of turn {place.turn}, ' if place.turn else ''}{side}"
        say(f"{cassette}: {where}: a secret by the rule {rule!r}")
    if secrets:
        say("record it again, or replace them by hand and accept that with --fix")
    return bool(secrets)
