"""The commands about files alone: `inspect`, `diff`, `merge`, `recover` and `schema`."""

from __future__ import annotations

import sys

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    Log,
    has_colour,
    json_report,
    painted,
    progress_shown,
    say,
    tell_of_journal,
    tell_unused,
)
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.stores import Location


@click.command()
@click.argument("cassette", type=CASSETTE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--full", is_flag=True, help="Show questions, answers and results whole, for a review."
)
@click.option("--mermaid", is_flag=True, help="Print a sequence diagram for a pull request.")
def inspect(cassette: Location, *, as_json: bool, full: bool, mermaid: bool) -> None:
    """Show who asked what, and what was answered.

    Each interaction on CASSETTE with its turns, how it ended, its size and its time.
    """
    from mrtr_cassette.core.report.details import detailed
    from mrtr_cassette.core.report.diagram import diagram
    from mrtr_cassette.core.report.inspection import inspected, inspection_data, inspection_text
    from mrtr_cassette.core.report.review import review_data, review_text
    from mrtr_cassette.shell.cassette_file import load_cassette, without_collection

    if mermaid and (full or as_json):
        raise UsageError(f"--mermaid and {'--full' if full else '--json'} don't go together")
    tell_of_journal(cassette, Log("text"))
    with without_collection(), progress_shown("reading", cassette) as progress:
        recording = load_cassette(cassette, progress)
        if full:
            details = detailed(recording)
            shown = json_report(review_data(details)) if as_json else review_text(details)
        else:
            inspection = inspected(recording)
            if mermaid:
                shown = diagram(inspection)
            else:
                shown = (
                    json_report(inspection_data(inspection))
                    if as_json
                    else inspection_text(inspection)
                )
    click.echo(shown)


@click.command()
@click.argument("recorded", type=click.Path())
@click.argument("received", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request.")
@click.option(
    "--ignore",
    "ignored",
    metavar="POINTER",
    multiple=True,
    help="A place in results and questions that doesn't count; may be repeated.",
)
@click.pass_context
def diff(
    context: click.Context,
    recorded: str,
    received: str,
    *,
    as_json: bool,
    markdown: bool,
    ignored: tuple[str, ...],
) -> None:
    """Show what differs between two cassettes.

    RECORDED and RECEIVED are compared call by call and turn by turn. The exit code is 1 where
    something differs that counts, else 0.
    """
    from mrtr_cassette.api import diff as compared
    from mrtr_cassette.core.compare.changes import unused_pointers
    from mrtr_cassette.core.report.comparison import (
        comparison_data,
        comparison_markdown,
        comparison_text,
        plain,
    )

    if as_json and markdown:
        raise UsageError("--json and --markdown don't go together")
    comparison = compared(recorded, received, ignore=ignored)
    if as_json:
        shown = json_report(comparison_data(comparison))
    elif markdown:
        shown = comparison_markdown(comparison)
    else:
        shown = comparison_text(comparison, painted if has_colour(sys.stdout) else plain)
    click.echo(shown)
    if ignored:
        tell_unused(unused_pointers(ignored, compared(recorded, received).changes), Log("text"))
    context.exit(0 if comparison.is_same else 1)


@click.command()
@click.argument("cassette", type=CASSETTE)
def recover(cassette: Location) -> None:
    """Publish what a killed recording left.

    CASSETTE is written from the journal beside it, which goes; that of a cassette in a store is in
    this directory.
    """
    from mrtr_cassette.errors import CassetteError, counted
    from mrtr_cassette.shell.journal_file import journal_path, stands
    from mrtr_cassette.shell.locks import is_locked
    from mrtr_cassette.shell.publishing import recover_journal

    journal = journal_path(cassette)
    if not stands(journal):
        raise CassetteError(journal, "there is no journal to recover from")
    if is_locked(journal):
        raise CassetteError(journal, "its recorder is still at work", hint="stop that one first")
    with progress_shown("writing", cassette) as progress:
        recovered = recover_journal(cassette, progress)
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
@click.argument(
    "recordings", nargs=-1, required=True, metavar="JOURNAL-OR-CASSETTE...", type=CASSETTE
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="CASSETTE",
    type=CASSETTE,
    help="The cassette to write.",
)
@click.option("--force", is_flag=True, help="Replace the cassette if it exists.")
def merge(recordings: tuple[Location, ...], output: Location, *, force: bool) -> None:
    """Make one cassette of what several recorders recorded.

    It is what one recorder would have made of all that passed: a call whose rounds went through
    several recorders is one call. The files may be cassettes and journals, also of killed runs, in
    any order; they are only read. What is in several of them counts once.
    """
    from mrtr_cassette.errors import counted
    from mrtr_cassette.shell.merging import merge_files

    with progress_shown("writing", output) as progress:
        merge = merge_files(recordings, output, replaces=force, progress=progress)
    for note in merge.notes:
        say(f"note: {note}")
    interactions = counted(merge.interactions, "interaction")
    say(f"wrote {output}: {interactions} of {counted(merge.recorders, 'recorder')}")


@click.command()
def schema() -> None:
    """Print the JSON Schema of the cassette format."""
    from mrtr_cassette.core.format.codec import schema as generated

    click.echo(generated(), nl=False)
