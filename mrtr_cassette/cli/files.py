"""The commands about files alone: `inspect`, `recover` and `schema`."""

from __future__ import annotations

from pathlib import Path

import click

from mrtr_cassette.cli.common import Log, say, tell_of_journal


@click.command()
@click.argument("cassette", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def inspect(cassette: Path, *, as_json: bool) -> None:
    """Show who asked what, and what was answered.

    Each interaction on CASSETTE with its turns, how it ended, its size and its time.
    """
    import orjson

    from mrtr_cassette.core.report.inspection import inspected, inspection_data, inspection_text
    from mrtr_cassette.errors import printable_json
    from mrtr_cassette.shell.cassette_file import load_cassette, without_collection

    tell_of_journal(cassette, Log("text"))
    with without_collection():
        inspection = inspected(load_cassette(cassette))
    if as_json:
        data = inspection_data(inspection)
        click.echo(printable_json(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()))
    else:
        click.echo(inspection_text(inspection))


@click.command()
@click.argument("cassette", type=click.Path(path_type=Path))
def recover(cassette: Path) -> None:
    """Publish what a killed recording left.

    CASSETTE is written from the journal beside it, which goes.
    """
    from mrtr_cassette.errors import CassetteError, counted
    from mrtr_cassette.shell.journal_file import journal_path
    from mrtr_cassette.shell.locks import is_locked
    from mrtr_cassette.shell.publishing import recover_journal

    journal = journal_path(cassette)
    if not journal.exists():
        raise CassetteError(journal, "there is no journal to recover from")
    if is_locked(journal):
        raise CassetteError(journal, "its recorder is still at work", hint="stop that one first")
    recovered = recover_journal(cassette)
    if recovered is None:
        say(f"{cassette} has all that was recorded; {journal} was published before, and is removed")
        return
    published, lost = recovered
    if lost is not None:
        say(f"{journal}: {lost}")
    if published is None:
        say(f"{journal} held no whole exchange, no cassette was written")
    else:
        say(f"wrote {cassette}: {counted(published, 'interaction')}")


@click.command()
def schema() -> None:
    """Print the JSON Schema of the cassette format."""
    from mrtr_cassette.core.format.codec import schema as generated

    click.echo(generated(), nl=False)
