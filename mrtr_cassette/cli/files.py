"""The commands about files alone: cassettes, journals, pages, and a client's configuration."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    TERMS,
    Log,
    cassettes_in,
    has_colour,
    json_report,
    painted,
    say,
    tell,
    tell_of_journal,
    tell_unused,
)
from mrtr_cassette.errors import CassetteError, UsageError, counted
from mrtr_cassette.shell.files.stores import Location, path_of

if TYPE_CHECKING:
    from mrtr_cassette.core.report.runs import ReplayReport


@click.command()
@click.argument("cassettes", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--full", is_flag=True, help="Show questions, answers and results whole, for a review."
)
@click.option("--markdown", is_flag=True, help="Print a sequence diagram for a pull request.")
def inspect(cassettes: tuple[str, ...], *, as_json: bool, full: bool, markdown: bool) -> None:
    """Show who asked what, and what was answered.

    Each interaction with its turns, how it ended, the size of its result, and its time. A folder or
    a glob stands for all cassettes in it; JSON of several cassettes is a list.
    """
    from mrtr_cassette.core.report.details import details_of
    from mrtr_cassette.core.report.text import (
        diagram,
        inspection_data,
        inspection_text,
        review_text,
    )
    from mrtr_cassette.shell.files.cassettes import load_cassette, without_collection

    if markdown and (full or as_json):
        raise UsageError(f"--markdown and {'--full' if full else '--json'} don't go together")
    form = diagram if markdown else review_text if full else inspection_text
    with without_collection():
        details = []
        for cassette in cassettes_in(cassettes):
            tell_of_journal(cassette, Log())
            details.append(details_of(load_cassette(cassette)))
        if as_json:
            data = [inspection_data(each, is_whole=full) for each in details]
            shown = json_report(data if len(data) > 1 else data[0])
        else:
            shown = "\n\n".join(map(form, details))
    click.echo(shown)


@click.command()
@click.argument("words", nargs=-1, required=True, type=click.Path(), metavar="RECORDED RECEIVED")
@click.option(
    "--git",
    "for_git",
    is_flag=True,
    help="Take the seven arguments that git gives an external diff, and exit with 0.",
)
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
    words: tuple[str, ...],
    *,
    for_git: bool,
    as_json: bool,
    markdown: bool,
    ignored: tuple[str, ...],
) -> None:
    """Show what differs between two cassettes.

    RECORDED and RECEIVED are compared call by call and turn by turn. The exit code is 1 where
    something differs that counts, else 0.
    """
    from mrtr_cassette.api import diff as compared
    from mrtr_cassette.core.compare.values import unused_pointers
    from mrtr_cassette.core.report.comparison import (
        comparison_data,
        comparison_markdown,
        comparison_text,
        plain,
    )

    if as_json and markdown:
        raise UsageError("--json and --markdown don't go together")
    if len(words) != 2 and not for_git:
        raise click.UsageError("diff needs two cassettes: RECORDED RECEIVED")
    recorded, received = _given_by_git(words) if for_git else words
    try:
        comparison = compared(recorded, received, ignore=ignored)
    except CassetteError as error:
        if not for_git:
            raise
        # Git shows no other file after a diff that failed.
        click.echo(f"{words[0]}: {error.in_terms(TERMS)}")
        return
    if for_git:
        comparison = replace(comparison, recorded=f"a/{words[0]}", received=f"b/{words[0]}")
    if as_json:
        shown = json_report(comparison_data(comparison))
    elif markdown:
        shown = comparison_markdown(comparison)
        shown = f"### {words[0]}\n\n{shown}\n" if for_git else shown
    else:
        shown = comparison_text(comparison, painted if has_colour(sys.stdout) else plain)
    click.echo(shown)
    if ignored:
        tell_unused(unused_pointers(ignored, compared(recorded, received).changes), Log())
    context.exit(0 if comparison.is_same or for_git else 1)


def _given_by_git(words: tuple[str, ...]) -> tuple[str, str]:
    """Return both files of `path old-file old-hex old-mode new-file new-hex new-mode`.

    Source: git, "GIT_EXTERNAL_DIFF"; of an unmerged file there is the path alone.
    """
    if len(words) == 1:
        return words[0], words[0]
    if len(words) < _FROM_GIT:
        raise click.UsageError("--git needs the seven arguments that git gives an external diff")
    return words[1], words[4]


_FROM_GIT: Final = 7


@click.command()
@click.argument("cassette", type=CASSETTE)
def recover(cassette: Location) -> None:
    """Publish what a killed recording left.

    CASSETTE is written from the journal beside it, which goes; that of a cassette in a store is in
    this directory.
    """
    from mrtr_cassette.core.report.runs import replaced_digests
    from mrtr_cassette.shell.files.cassettes import journal_path, recover_journal, stands
    from mrtr_cassette.shell.files.disk import is_locked

    journal = journal_path(cassette)
    if not stands(journal):
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
    elif published.is_same:
        say(f"{cassette}: {counted(published.interactions, 'interaction')}, same, kept")
    else:
        outcome = f"wrote {cassette}: {counted(published.interactions, 'interaction')}"
        say(", ".join([outcome, *replaced_digests(published.digests)]))


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
    from mrtr_cassette.shell.files.cassettes import merge_files

    merge = merge_files(recordings, output, replaces=force)
    for note in merge.notes:
        say(f"note: {note}")
    interactions = counted(merge.interactions, "interaction")
    say(f"wrote {output}: {interactions} of {counted(merge.recorders, 'recorder')}")


@click.command()
def schema() -> None:
    """Print the JSON Schema of the cassette format."""
    from mrtr_cassette.core.cassette.model import schema as generated

    click.echo(generated(), nl=False)


@click.command()
@click.argument("cassettes", nargs=-1, required=True, type=click.Path())
@click.option("--fix", "fixes", is_flag=True, help="Accept what was edited by hand.")
def check(cassettes: tuple[str, ...], *, fixes: bool) -> None:
    """Tell whether cassettes are as recorded, without secrets.

    A folder or a glob stands for all cassettes in it. The exit code is 3 where one is damaged or
    was edited, else 1 where the rules of redaction find a secret in one. With --fix, the digests in
    a cassette become those of what stands in it now, and the file is spelled as a recording is.
    """
    code = 0
    for cassette in cassettes_in(cassettes):
        try:
            has_secrets = _check(cassette, fixes=fixes)
            code = max(code, int(has_secrets))
        except CassetteError as error:
            say(f"error: {error.in_terms(TERMS)}")
            code = error.exit_code
    sys.exit(code)


def _check(cassette: Location, *, fixes: bool) -> bool:
    from mrtr_cassette.core.record.publish_check import exposed_secrets
    from mrtr_cassette.shell.files import cassettes

    if fixes:
        accepted = cassettes.fix(cassette)
        say(
            f"{cassette}: {counted(accepted.edited, 'exchange')} edited, {accepted.moved} moved, "
            f"{accepted.removed} removed; accepted"
        )
    checked = cassettes.load_cassette(cassette)
    secrets = list(exposed_secrets(checked))
    tell(f"{cassette}: {counted(len(checked.interactions), 'interaction')}, all as recorded")
    for number, place, side, rule in secrets:
        where = f"#{number}, {f'answer of turn {place.turn}, ' if place.turn else ''}{side}"
        tell(f"{cassette}: {where}: a secret by the rule {rule!r}")
    if secrets:
        say("record it again, or replace them by hand and accept that with --fix")
    return bool(secrets)


@click.command()
@click.argument("cassette", type=CASSETTE)
@click.argument("other", type=CASSETTE, required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The page; the cassette's name with .html in this directory where it isn't given.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A JSON report of a replay: misses stand beside the nearest recorded requests.",
)
def view(
    cassette: Location,
    other: Location | None,
    output: Path | None,
    report: Path | None,
) -> None:
    """Write CASSETTE as a page for a browser.

    One HTML file that needs no network: when each call waited for the server and when for a person,
    each question as a form with its answer in it, results, branches side by side. With OTHER it
    is the page of that one, and shows what differs: changed questions stand side by side.
    """
    from mrtr_cassette.core.compare.conversations import compared
    from mrtr_cassette.core.report.details import details_of
    from mrtr_cassette.core.report.page import Earlier, View
    from mrtr_cassette.shell.files.cassettes import load_cassette, without_collection
    from mrtr_cassette.shell.files.reports import PAGE, check_place, write_page

    if other is not None and report is not None:
        raise UsageError("--report is about one cassette; don't name a second one with it")
    shown = cassette if other is None else other
    page = output if output is not None else Path(f"{shown.stem}.html")
    check_place(page, PAGE)
    tell_of_journal(shown, Log())
    with without_collection():
        recording = load_cassette(shown)
        details = details_of(recording)
        earlier = None
        if other is not None:
            first = load_cassette(cassette)
            earlier = Earlier(details_of(first), compared(first, recording))
        replay = None if report is None else _replay_report(report, len(details.interactions))
        write_page(page, View(details, replay, earlier))
    say(f"wrote {page}")


def _replay_report(path: Path, interactions: int) -> ReplayReport:
    from mrtr_cassette.core.report.runs import saved_report
    from mrtr_cassette.shell.files.disk import reason_of

    try:
        report = saved_report(path.read_bytes())
    except OSError as error:
        raise UsageError(f"--report {path}: {reason_of(error)}") from None
    except ValueError:
        raise UsageError(
            f"--report {path} is no JSON report of a replay",
            hint=f"write one with: mrtr-cassette replay --report {path.with_suffix('.json')}",
        ) from None
    if len(report.interactions) != interactions:
        raise UsageError(
            f"--report {path} is about {report.cassette}, which has "
            f"{len(report.interactions)} interactions, and not {interactions}"
        )
    return report


_file = click.argument("file", type=click.Path(path_type=Path))
_server = click.argument("server")


@click.command()
@_file
@_server
@click.option("--record", type=CASSETTE, metavar="CASSETTE", help="Record the server to this.")
@click.option("--replay", type=CASSETTE, metavar="CASSETTE", help="Play this in its place.")
def wrap(file: Path, server: str, record: Location | None, replay: Location | None) -> None:
    """Put a recorder or a replay in the place of a server.

    FILE is the client's configuration (its `mcpServers`), SERVER a name in it. Everything else in
    FILE stays, and a copy without wrapped servers stands beside it. `unwrap` takes it back.
    """
    from mrtr_cassette.core.cassette.client_config import has_wrapped, wrapped
    from mrtr_cassette.shell.files.disk import change_config

    if record is not None and replay is None:
        # The journal of any other would stand wherever the client runs.
        ours = ["record", "--stdio", "--output", str(path_of(record).absolute())]
    elif replay is not None and record is None:
        place = replay.absolute() if isinstance(replay, Path) else replay.url
        ours = ["replay", "--stdio", str(place)]
    else:
        raise UsageError("give either --record or --replay, with a cassette")
    command = [*_program(), *ours]
    backup = change_config(
        file,
        lambda data: wrapped(data, str(file), server, command),
        lambda data: not has_wrapped(data, str(file)),
    )
    say(f"wrote {file}; it stands as it was in {backup}; restart the client")


@click.command()
@_file
@_server
def unwrap(file: Path, server: str) -> None:
    """Give a server that was wrapped its own command again."""
    from mrtr_cassette.core.cassette.client_config import unwrapped
    from mrtr_cassette.shell.files.disk import change_config

    change_config(file, lambda data: unwrapped(data, str(file), server), lambda _data: False)
    say(f"wrote {file}; restart the client")


def _program() -> list[str]:
    """Return how a client starts this program, whatever PATH it has."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "mrtr-cassette" and script.is_file():
        return [str(script)]
    return [sys.executable, "-m", "mrtr_cassette"]
