"""The commands about files alone: cassettes, journals and pages."""

# Nobody waits for an import that only another command needs: these are in its functions.

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    FILE,
    LEFT_NOTHING_OUT,
    TERMS,
    Log,
    ignore_from_option,
    ignore_option,
    json_report,
    named_value,
    places_argument,
    read_place,
    refuse_together,
    tell_of_journal,
    tell_unused,
    with_fetched,
)
from mrtr_cassette.cli.group import coloured_line, say, tell, tell_error
from mrtr_cassette.core.answers.forms import ACTIONS
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import is_not_meant_as_cassette, load
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    numbers_needed_by_others,
    without_interactions,
)
from mrtr_cassette.core.compare.conversations import (
    CassetteComparison,
    IgnoredFor,
    ignores_nothing,
)
from mrtr_cassette.core.protocol.methods import CALL_TOOL
from mrtr_cassette.core.report.details import (
    CassetteDetails,
    details_of,
    redaction_lines,
    redactions_of,
)
from mrtr_cassette.core.report.text import (
    inspection_data,
    inspection_text,
    mermaid_diagram,
    review_text,
)
from mrtr_cassette.errors import CassetteError, UsageError, counted
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import (
    cassettes_in,
    journal_path,
    load_cassette,
    publish_cassette,
    read_file,
    without_garbage_collection,
)
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.reports import saved_report
from mrtr_cassette.shell.files.stores import Location, location_of, path_of
from mrtr_cassette.terms import shell_command

if TYPE_CHECKING:
    from mrtr_cassette.core.report.runs import ReplayReport

_cassettes_argument = places_argument("cassettes")
_as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs."
)


@click.command()
@_cassettes_argument
@_as_json
@click.option(
    "--full",
    is_flag=True,
    help="Show questions, answers and results in full, for a review.",
)
@click.option(
    "--markdown",
    is_flag=True,
    help="Print Markdown for a pull request: a sequence diagram, or tables of --coverage.",
)
@click.option(
    "--coverage",
    "shows_coverage",
    is_flag=True,
    help="Show which answers, arguments and histories all cassettes have together, by tool.",
)
@click.option(
    "--fail-under",
    "thresholds",
    metavar="ANSWER=PERCENT",
    multiple=True,
    help="With --coverage: exit with 1 if fewer questions have this answer recorded, such as "
    "decline=80; may be repeated.",
)
@click.option(
    "--git",
    "for_git",
    is_flag=True,
    help="Be git's textconv: show a file whole; a file that isn't a cassette, as it is.",
)
def inspect(
    cassettes: tuple[str, ...],
    *,
    as_json: bool,
    full: bool,
    markdown: bool,
    shows_coverage: bool,
    thresholds: tuple[str, ...],
    for_git: bool,
) -> None:
    """Show calls, questions and answers.

    Shows the turns of every interaction, its ending, the size of its result, and its time. A folder
    or a glob means all cassettes in it, and what an address (https://...) names is fetched; JSON of
    several cassettes is a list.
    """
    refuse_together({"--markdown": markdown, "--git": for_git, "--full": full})
    refuse_together({"--markdown": markdown, "--git": for_git, "--json": as_json})
    refuse_together({"--coverage": shows_coverage, "--git": for_git, "--full": full})
    least_shares = _least_shares(thresholds)
    if least_shares and not shows_coverage:
        raise UsageError("--fail-under needs --coverage")

    if for_git:
        _show_to_git(cassettes)
        return

    with without_garbage_collection():
        details = []
        for cassette in cassettes_in(with_fetched(cassettes)):
            tell_of_journal(cassette, Log())
            details.append(details_of(load_cassette(cassette)))

        if shows_coverage:
            _show_coverage(details, least_shares, as_json=as_json, markdown=markdown)
            return

        if as_json:
            data = [inspection_data(detail) for detail in details]
            shown_text = json_report(data if len(data) > 1 else data[0])
        elif markdown:
            shown_text = "\n\n".join(map(mermaid_diagram, details))
        else:
            details_as_text = review_text if full else inspection_text
            shown_text = "\n\n".join(map(details_as_text, details))

    click.echo(shown_text)


def _least_shares(thresholds: Sequence[str]) -> dict[str, int]:
    """Return the least percentage of questions that each answer is to be recorded for."""
    shares = {}
    for threshold in thresholds:
        answer, _, percent = threshold.partition("=")
        is_share = percent.isdecimal() and int(percent) <= 100
        if answer not in ACTIONS or not is_share:
            raise UsageError(
                f"--fail-under {threshold!r} is not an answer with a percentage",
                hint=f"the answers are {', '.join(ACTIONS)}, such as decline=80",
            )

        shares[answer] = int(percent)

    return shares


def _show_coverage(
    details: Sequence[CassetteDetails],
    least_shares: Mapping[str, int],
    *,
    as_json: bool,
    markdown: bool,
) -> None:
    """Print what cassettes cover; exit with 1 if that is less than asked for."""
    from mrtr_cassette.core.report.coverage import (
        coverage_data,
        coverage_markdown,
        coverage_of,
        coverage_text,
        untried_questions,
    )

    covered = coverage_of(details)
    if as_json:
        click.echo(json_report(coverage_data(covered)))
    elif markdown:
        click.echo(coverage_markdown(covered))
    else:
        click.echo(coverage_text(covered))

    lacking_sentences = []
    for answer, percent in least_shares.items():
        sentence = untried_questions(covered, answer, percent)
        if sentence is not None:
            lacking_sentences.append(f"--fail-under {answer}={percent}: {sentence}")

    if lacking_sentences:
        say(*lacking_sentences)
        sys.exit(1)


def _show_to_git(words: Sequence[str]) -> None:
    """Show one file of a history, in which cassettes may have been damaged or something else."""
    if len(words) != 1:
        raise UsageError("--git needs the file that git gives a textconv")

    data = read_file(Path(words[0]))
    shown_bytes = data
    with suppress(CassetteError):
        text = review_text(details_of(load(data, words[0])))
        shown_bytes = f"{text}\n".encode()

    click.echo(shown_bytes, nl=False)


@click.command()
@places_argument("words", "OLD NEW")
@click.option(
    "--git",
    "for_git",
    is_flag=True,
    help="Take the seven arguments of git's external diff, and exit with 0.",
)
@_as_json
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request.")
@ignore_option(
    "Leave a value out of the comparison: a JSON Pointer into params or results, such as "
    "/params/arguments/at or /result/structuredContent/at; may be repeated."
)
@ignore_from_option("Leave out the places that this file names, as `verify` does.")
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="REGEX",
    help="Let no difference count within a text that this regular expression matches; may be "
    "repeated.",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=TEXT",
    help="Read this text as {NAME} in a cassette that doesn't know the name; may be repeated.",
)
@click.pass_context
def diff(
    context: click.Context,
    /,
    words: tuple[str, ...],
    *,
    for_git: bool,
    as_json: bool,
    markdown: bool,
    ignored: tuple[str, ...],
    values: tuple[str, ...],
    **settings: Any,
) -> None:
    """Show the differences between two cassettes.

    OLD and NEW are compared call by call and turn by turn; of two folders, cassettes with the same
    name are compared. The exit code is 1 if there are differences that count, else 0.
    """
    refuse_together({"--json": as_json, "--markdown": markdown})
    are_folders = not for_git and any(Path(word).is_dir() for word in words)
    if for_git:
        file_pairs = {words[0]: _files_from_git(words)}
    else:
        file_pairs = _file_pairs(words, are_folders=are_folders)

    try:
        settings["values"] = list(map(named_value, values))
        comparisons = _comparisons_by_name(file_pairs, ignore=ignored, **settings)
    except CassetteError as error:
        if not for_git:
            raise

        # Git shows no other file after a diff that failed.
        click.echo(f"{words[0]}: {error.in_terms(TERMS)}")
        return

    if for_git:
        ((name, only),) = comparisons.items()
        comparisons = {name: replace(only, recorded=f"a/{name}", received=f"b/{name}")}

    differing_comparisons = _differing_comparisons(comparisons)
    if as_json:
        # A start takes a quarter less time without it.
        from mrtr_cassette.core.report.comparison import comparison_data

        data = list(map(comparison_data, comparisons.values()))
        click.echo(json_report(data if are_folders else data[0]))
    elif are_folders:
        _show_comparisons(differing_comparisons, markdown=markdown, has_names=True)
        verb = "differs" if len(differing_comparisons) == 1 else "differ"
        cassette_count = counted(len(comparisons), "cassette")
        click.echo(f"{len(differing_comparisons)} of {cassette_count} {verb}")
    else:
        _show_comparisons(comparisons, markdown=markdown, has_names=for_git)

    unused = _unused_values("ignore", ignored, file_pairs)
    unused += _unused_values("masks", settings["masks"], file_pairs)
    tell_unused(unused, Log(), LEFT_NOTHING_OUT)
    context.exit(1 if differing_comparisons and not for_git else 0)


def _file_pairs(
    words: tuple[str, ...], *, are_folders: bool
) -> dict[str, tuple[str, ...]]:
    """Return the files to compare, by their common name or that of the first one."""
    if len(words) != 2:
        raise UsageError("diff needs two cassettes", hint="name them: OLD NEW")

    fetched = tuple(with_fetched(words))
    if are_folders:
        return _pairs_of_same_name(fetched)

    return {fetched[0]: fetched}


def _differing_comparisons(
    comparisons: Mapping[str, CassetteComparison],
) -> dict[str, CassetteComparison]:
    """Return the comparisons with differences that count, by the names of the cassettes."""
    differing_by_name = {}
    for name, comparison in comparisons.items():
        if not comparison.is_same:
            differing_by_name[name] = comparison

    return differing_by_name


def _comparisons_by_name(
    pairs: Mapping[str, Sequence[str]], **options: Any
) -> dict[str, CassetteComparison]:
    """Compare each pair of files, under its name."""
    from mrtr_cassette.api import diff as files_diff

    comparisons = {}
    for name, pair in pairs.items():
        old_place, new_place = map(location_of, pair)
        comparisons[name] = files_diff(old_place, new_place, **options)

    return comparisons


def _unused_values(
    option: str, values: Sequence[str], pairs: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """Return the pointers or masks that leave nothing out, neither alone nor with the others."""
    if not values:
        return []

    comparisons_with_none = _comparisons_by_name(pairs)
    comparisons_with_all = _comparisons_by_name(pairs, **{option: values})
    unused = []
    for value in values:
        comparisons = _comparisons_by_name(pairs, **{option: [value]})
        if comparisons != comparisons_with_none:
            continue

        other_values = [candidate for candidate in values if candidate != value]
        comparisons = _comparisons_by_name(pairs, **{option: other_values})
        if comparisons == comparisons_with_all:
            unused.append((option, value))

    return unused


def _show_comparisons(
    comparisons: Mapping[str, CassetteComparison], *, markdown: bool, has_names: bool
) -> None:
    """Print comparisons as coloured lines, or as Markdown, with titles if it `has_names`."""
    from mrtr_cassette.core.report.comparison import (
        comparison_markdown,
        comparison_text,
    )

    for name, comparison in comparisons.items():
        if markdown:
            title = f"### {name}\n\n" if has_names else ""
            click.echo(title + comparison_markdown(comparison) + "\n" * has_names)
        else:
            lines = comparison_text(comparison).split("\n")
            click.echo("\n".join(map(coloured_line, lines)))


def _pairs_of_same_name(folders: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the cassettes of two folders by name; the null device stands for a missing one."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder} is not a folder, but the other one is")

    names_of_folders = []
    for folder in folders:
        paths = map(path_of, cassettes_in([folder]))
        names_of_folders.append({str(path.relative_to(folder)) for path in paths})

    pairs = {}
    for name in sorted(names_of_folders[0] | names_of_folders[1]):
        pair = []
        for folder, names_in_folder in zip(folders, names_of_folders, strict=True):
            pair.append(
                str(Path(folder, name)) if name in names_in_folder else os.devnull
            )

        pairs[name] = tuple(pair)

    return pairs


def _files_from_git(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return both files of `path old-file old-hex old-mode new-file new-hex new-mode`.

    Source: git, "GIT_EXTERNAL_DIFF"; of an unmerged file there is the path alone.
    """
    if len(words) == 1:
        unmerged_path = words[0]
        return unmerged_path, unmerged_path
    if len(words) < 7:
        raise UsageError("--git needs the seven arguments of git's external diff")
    return words[1], words[4]


@click.command()
@_cassettes_argument
def recover(cassettes: tuple[str, ...]) -> None:
    """Publish killed recordings from their journals.

    Writes a cassette from the journal beside it, and deletes the journal. The journal of a cassette
    in a store is in this directory. A folder or a glob means all journals in it.
    """
    exit_code = 0
    for journal in cassettes_in(cassettes, (".journal",)):
        cassette = journal
        if isinstance(journal, Path) and journal.suffix == ".journal":
            cassette = journal.with_suffix("")

        try:
            _recover_cassette(cassette)
        except CassetteError as error:
            exit_code = tell_error(error)

    sys.exit(exit_code)


def _recover_cassette(cassette: Location) -> None:
    """Publish a killed recording from its journal, and say what was written or lost."""
    from mrtr_cassette.core.report.runs import RecordingReport, recording_text
    from mrtr_cassette.shell.files.journals import recover_journal

    journal = journal_path(cassette)
    if not os.path.lexists(journal):
        raise CassetteError(journal, "there is no journal to recover")
    if is_locked(journal):
        raise CassetteError(
            journal, "its recorder is still running", hint="stop it first"
        )

    recovered = recover_journal(cassette)
    if recovered is None:
        say(f"{cassette} is complete; removed {journal}, which was published before")
        return

    publication, lost = recovered
    if lost is not None:
        say(f"{journal}: {lost}")

    if publication is None:
        say(f"{journal} has no complete exchange; no cassette was written")
    else:
        recording_report = RecordingReport(str(cassette), **publication._asdict())
        say(recording_text(recording_report))


@click.command()
@places_argument("recordings", "JOURNAL-OR-CASSETTE...")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="CASSETTE",
    type=CASSETTE,
    help="The cassette to write.",
)
@click.option("--force", is_flag=True, help="Replace the cassette if it exists.")
def merge(recordings: tuple[str, ...], output: Location, *, force: bool) -> None:
    """Merge the recordings of several recorders into a cassette.

    The result is what a single recorder would have written: a call whose rounds went through
    several recorders is one call. The files are cassettes and journals, also of killed runs, in
    any order, or folders and globs of them. They are not changed. Exchanges in several files count
    once.
    """
    from mrtr_cassette.shell.files.journals import merge_files

    files = cassettes_in(recordings, (".json", ".journal"))
    merged_cassette, notes = merge_files(files, output, replaces=force)
    for note in notes:
        say(f"note: {note}")

    interactions = counted(len(merged_cassette.interactions), "interaction")
    recorders = counted(len(merged_cassette.recorders), "recorder")
    say(f"wrote {output}: {interactions} of {recorders}")


@click.group()
def answers() -> None:
    """Write an answers file from a recording."""


@answers.command("from")
@click.argument("cassette")
def from_cassette(cassette: str) -> None:
    """Print an answers file that gives the answers of CASSETTE."""
    place = read_place(cassette)
    from mrtr_cassette.core.answers.written import answers_text

    click.echo(answers_text(load_cassette(place), place.name), nl=False)


@click.command()
def schema() -> None:
    """Print the JSON Schema of the cassette format."""
    from mrtr_cassette.core.cassette.model import cassette_schema

    click.echo(cassette_schema(), nl=False)


@click.command()
@_cassettes_argument
@click.option("--fix", "fixes", is_flag=True, help="Accept edits by hand.")
def check(cassettes: tuple[str, ...], *, fixes: bool) -> None:
    """Check that cassettes are as recorded, without secrets.

    A folder or a glob means all JSON files in it; other JSON is skipped with a note. The exit code
    is 3 if a file is empty or damaged, or a cassette was edited, else 1 if the rules of redaction
    find a secret. With --fix, the digests are computed anew, and the file is formatted like a
    recording.
    """
    exit_code = 0
    for cassette in cassettes_in(with_fetched(cassettes), takes_all=True):
        try:
            if is_not_meant_as_cassette(read_file(cassette)):
                say(f"note: {cassette} is not a cassette and was not checked")
                continue

            has_secrets = _check_cassette(cassette, fixes=fixes)
            exit_code = max(exit_code, int(has_secrets))
        except CassetteError as error:
            exit_code = tell_error(error)

    sys.exit(exit_code)


def _check_cassette(cassette: Location, *, fixes: bool) -> bool:
    """Check a cassette, and accept its edits first if it `fixes`; return whether it has secrets."""
    from mrtr_cassette.core.record.publish_check import exposed_secrets

    if fixes:
        exchanges = counted(cassettes.accept_edits(cassette), "exchange")
        say(f"{cassette}: {exchanges} changed; accepted")

    loaded = cassettes.load_cassette(cassette)
    secrets = list(exposed_secrets(loaded))
    interactions = counted(len(loaded.interactions), "interaction")
    tell(f"{cassette}: {interactions}, all as recorded")
    for interaction in loaded.interactions:
        if any(exchange.number is None for exchange in interaction.unshared_exchanges):
            tell(
                f"{cassette}: #{interaction.number} was written by hand: `recording` has no digest "
                "to check it by"
            )

    for place, side, rule in secrets:
        shown_place = f"#{place.interaction}, {side}"
        if place.turn:
            shown_place = f"#{place.interaction}, answer of turn {place.turn}, {side}"

        tell(f"{cassette}: {shown_place}: a secret by the rule {rule!r}")

    if secrets:
        accept_command = shell_command("accept_edit", path=str(cassette))
        say(
            f"record it again, or replace them by hand and accept that with: {accept_command}"
        )

    return bool(secrets)


@click.command()
@_cassettes_argument
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="PLACE",
    help="The page, or the folder of several pages; by default the cassette's name with .html, in "
    "this directory.",
)
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help="A JSON report of a replay: misses appear beside the nearest recorded requests.",
)
@click.option(
    "--against",
    metavar="OTHER",
    help="Show the differences from this cassette, such as an earlier recording.",
)
@ignore_from_option(
    "With --against: leave out the places that this file names, as `verify` does."
)
@ignore_option("With --against: leave a value out of the comparison, as `diff` does.")
def view(
    cassettes: tuple[str, ...],
    output: Path | None,
    report: Path | None,
    against: str | None,
    ignore_from: Path | None,
    ignored: tuple[str, ...],
) -> None:
    """Write cassettes as pages for a browser.

    A page is an HTML file that needs no network. It shows the time of every call and its waits for
    the server and for a person, questions as forms with their answers, results, and branches side
    by side. With --against, changed questions appear beside those of another cassette. A folder or
    a glob means all cassettes in it.
    """
    from mrtr_cassette.shell.files.ignored import ignored_for_options

    cassette_places = cassettes_in(with_fetched(cassettes))
    if len(cassette_places) > 1 and (report or against):
        raise UsageError("--report and --against take a single cassette")

    earlier_cassette = None
    if against is not None:
        earlier_cassette = read_place(against)
    elif ignored or ignore_from:
        raise UsageError("--ignore and --ignore-from need --against OTHER")

    if len(cassette_places) == 1:
        page = output or Path(f"{cassette_places[0].stem}.html")
        _write_page(
            cassette_places[0],
            page,
            report,
            earlier_cassette,
            ignored_for_options(ignored, ignore_from),
        )
        return

    _write_pages(cassette_places, output or Path())


def _write_pages(cassettes: Sequence[Location], folder: Path) -> None:
    """Write cassettes as pages in a folder, each in the folders below their common one."""
    paths = [Path(os.path.abspath(str(place))) for place in cassettes]  # noqa: PTH100  without parts such as ..
    common_folder = os.path.commonpath([path.parent for path in paths])
    for place, path in zip(cassettes, paths, strict=True):
        page = path.relative_to(common_folder).with_suffix(".html")
        _write_page(place, folder / page)


def _write_page(
    cassette: Location,
    page: Path,
    report: Path | None = None,
    against: Location | None = None,
    ignored_for: IgnoredFor = ignores_nothing,
) -> None:
    """Write a cassette as a page, with a replay's misses and the changes since another cassette."""
    from mrtr_cassette.shell.files.reports import check_place, write_page

    check_place(page)
    tell_of_journal(cassette, Log())
    with without_garbage_collection():
        cassette_to_show = load_cassette(cassette)
        replay = None if report is None else _replay_report(report, cassette_to_show)
        earlier_cassette = None if against is None else load_cassette(against)
        write_page(page, cassette_to_show, replay, earlier_cassette, ignored_for)

    say(f"wrote {page}")


def _replay_report(path: Path, cassette: Cassette) -> ReplayReport:
    """Return the JSON report of a replay, or refuse a file that has none of this cassette."""
    from mrtr_cassette.core.report.runs import report_of_cassette

    with suppress(ValueError):
        report = report_of_cassette(saved_report(path.read_bytes()), cassette)
        if report is not None:
            return report

    ending = "-report.json" if path.suffix == ".json" else ".json"
    report_path = f"{path.with_suffix('')}{ending}"
    report_command = shell_command(
        "report_replay", path=cassette.path, report=report_path
    )
    raise UsageError(
        f"--report {path} is not a JSON report of a replay of this cassette",
        hint=f"write one with: {report_command}",
    )


@click.command()
@click.argument("cassette", type=CASSETTE)
@click.option(
    "--report",
    required=True,
    type=FILE,
    metavar="FILE",
    help="The JSON report of a replay of the cassette without misses.",
)
def prune(cassette: Location, report: Path) -> None:
    """Remove calls that a replay never played.

    The report comes from `replay CASSETTE --report FILE.json -- CLIENT`. The rest of the cassette
    keeps its lines. Removed calls are printed; commit the cassette before, so that git has them.
    """
    recording = load_cassette(cassette)
    replay = _replay_report(report, recording)
    if replay.misses:
        raise UsageError(
            f"the replay of --report {report} missed requests, and may be cut short"
        )

    unplayed_numbers = set()
    for interaction in replay.interactions:
        if interaction.outcome == "never played":
            unplayed_numbers.add(interaction.number)

    unplayed_numbers -= numbers_needed_by_others(recording, unplayed_numbers)
    kept_recording = without_interactions(recording, unplayed_numbers)
    if not kept_recording.interactions:
        raise UsageError(f"the replay of --report {report} played nothing")

    if not unplayed_numbers:
        say(f"{cassette}: everything was played; nothing was removed")
        return

    publish_cassette(cassette, [dump(kept_recording)], replace=True)
    for outcome in replay.interactions:
        if outcome.number in unplayed_numbers:
            tell(f"removed #{outcome.number} {outcome.call}")

    say(f"wrote {cassette}: {counted(len(kept_recording.interactions), 'interaction')}")


_numbers_argument = click.argument("numbers", nargs=-1, metavar="[NUMBER]...")
_only_option = click.option(
    "--only",
    metavar="PATTERN",
    multiple=True,
    help="Take calls by method, name or both, as `verify` does, or tool=NAME; may be repeated.",
)
_last_option = click.option("--last", is_flag=True, help="Take the last call.")


@click.command()
@click.argument("cassette")
@_numbers_argument
@_only_option
@_last_option
@click.option(
    "--alone", is_flag=True, help="Leave out the writes before the calls, too."
)
@click.option(
    "--share",
    "for_sharing",
    is_flag=True,
    help="Take out what could identify somebody: the server's address, user names in paths, "
    "e-mail addresses, IP addresses, what clients say of themselves.",
)
@click.option(
    "--blank-text",
    "blanks_text",
    is_flag=True,
    help="With --share: take out all texts of several words, too.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=CASSETTE,
    help="The cassette to write; by default it is printed.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def cut(
    cassette: str,
    output: Location | None,
    *,
    alone: bool,
    for_sharing: bool,
    blanks_text: bool,
    force: bool,
    **selection: Any,
) -> None:
    """Cut calls out of a cassette.

    NUMBER is the number of a call, such as '#7'. The result is a cassette by itself: it has the
    calls as they were recorded, and what they need: what opens the session or describes the server,
    the lists that name their tools, and the writes before them.
    """
    from mrtr_cassette.core.drive.cut import cut_out_calls

    recording = load_cassette(read_place(cassette))
    numbers_to_cut = _chosen_calls(recording, **selection)
    excerpt = cut_out_calls(recording, numbers_to_cut, alone=alone)
    if for_sharing:
        excerpt = _excerpt_to_share(excerpt, blanks_text=blanks_text)
    elif blanks_text:
        raise UsageError("--blank-text needs --share")

    if output is None:
        click.echo(dump(excerpt), nl=False)
        return

    hint = "use --force to replace it"
    publish_cassette(output, [dump(excerpt)], replace=force, hint=hint)
    say(f"wrote {output}: {counted(len(excerpt.interactions), 'interaction')}")


@click.command()
@click.argument("cassette")
@_numbers_argument
@_only_option
@_last_option
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="The Markdown file to write; by default it is printed.",
)
def report(cassette: str, output: Path | None, **selection: Any) -> None:
    """Write a call as an issue.

    NUMBER is the number of a call, such as '#7'. The Markdown has who was recorded, the
    conversation as a diagram, request and response, and the commands that replay the call, without
    what `cut --share` takes out.
    """
    from mrtr_cassette.core.drive.cut import cut_out_calls
    from mrtr_cassette.core.record.sharing import shareable_cassette
    from mrtr_cassette.core.report.bug import bug_report
    from mrtr_cassette.shell.files.reports import check_place, write_own

    place = read_place(cassette)
    recording = load_cassette(place)
    chosen_numbers = _chosen_calls(recording, **selection)
    if len(chosen_numbers) != 1:
        raise UsageError("report takes a single call")

    excerpt = cut_out_calls(recording, chosen_numbers)
    last_exchange = None
    for recorded_interaction in recording.interactions:
        if recorded_interaction.number == chosen_numbers[0]:
            last_exchange = recorded_interaction.exchanges[-1]

    number_in_excerpt = 0
    for interaction in excerpt.interactions:
        if interaction.exchanges[-1] is last_exchange:
            number_in_excerpt = interaction.number

    text = bug_report(
        shareable_cassette(excerpt).cassette,
        number_in_excerpt,
        place.name,
        chosen_numbers[0],
    )
    if output is None:
        click.echo(text, nl=False)
        return

    check_place(output)
    write_own(output, [text.encode()])
    say(f"wrote {output}")


def _excerpt_to_share(excerpt: Cassette, *, blanks_text: bool) -> Cassette:
    """Return a cassette for strangers, and say what was taken out of it."""
    from mrtr_cassette.core.record.sharing import shareable_cassette

    shareable = shareable_cassette(excerpt, blanks_text=blanks_text)
    for line in redaction_lines(redactions_of(shareable.cassette, excerpt)):
        say(line)

    if shareable.cassette.server != excerpt.server:
        say("redacted: the address of the server, or its command")

    if shareable.shortened_client_count:
        count = shareable.shortened_client_count
        say(f"redacted: clientInfo, but for name and version ×{count}")

    if not blanks_text:
        say("note: other text stays; read it, or take it out with --blank-text")

    return shareable.cassette


def _chosen_calls(
    recording: Cassette, numbers: Sequence[str], only: Sequence[str], *, last: bool
) -> list[int]:
    """Return the numbers of the calls that the arguments and options of a command name."""
    from mrtr_cassette.core.drive.cut import last_call
    from mrtr_cassette.core.drive.plan import is_selected, refuse_unmatched_patterns

    known_numbers = [interaction.number for interaction in recording.interactions]
    if not known_numbers:
        raise CassetteError(recording.path, "there is no interaction in it")

    chosen_numbers = []
    for word in numbers:
        digits = word.removeprefix("#")
        if not digits.isdecimal() or int(digits) not in known_numbers:
            raise UsageError(
                f"{word!r} is not the number of a call in {recording.path}",
                hint=f"`mrtr-cassette inspect` shows them, from #1 to #{known_numbers[-1]}",
            )

        chosen_numbers.append(int(digits))

    patterns = []
    for pattern in only:
        tool = pattern.removeprefix("tool=")
        patterns.append(pattern if tool == pattern else f"{CALL_TOOL} {tool}")

    refuse_unmatched_patterns(recording.interactions, patterns)
    for interaction in recording.interactions:
        if is_selected(interaction, interaction.exchanges[0].call, patterns):
            chosen_numbers.append(interaction.number)

    if last:
        chosen_numbers.append(last_call(recording))

    if not chosen_numbers:
        raise UsageError(
            "no call is named", hint="give its number, such as '#7', or --last"
        )

    return [*dict.fromkeys(chosen_numbers)]
