"""The command `view`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mrtr_cassette.cli.common import CASSETTE, Log, progress_shown, say, tell_of_journal
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.stores import Location

if TYPE_CHECKING:
    from mrtr_cassette.core.report.summary import ReplayReport


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
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def view(
    cassette: Location,
    other: Location | None,
    output: Path | None,
    report: Path | None,
    *,
    opens: bool,
) -> None:
    """Write CASSETTE as a page for a browser.

    One HTML file that needs no network: when each call waited for the server and when for a person,
    each question as a form with its answer in it, results, branches side by side. With OTHER it
    is the page of that one, and shows what differs: changed questions stand side by side.
    """
    from mrtr_cassette.core.compare.cassettes import compared
    from mrtr_cassette.core.report.details import detailed
    from mrtr_cassette.core.view.differences import Earlier
    from mrtr_cassette.core.view.page import View
    from mrtr_cassette.shell.cassette_file import load_cassette, without_collection
    from mrtr_cassette.shell.files import check_place
    from mrtr_cassette.shell.page_file import PAGE, open_page, write_page

    if other is not None and report is not None:
        raise UsageError("--report is about one cassette; don't name a second one with it")
    shown = cassette if other is None else other
    page = output if output is not None else Path(f"{shown.stem}.html")
    check_place(page, PAGE)
    tell_of_journal(shown, Log("text"))
    with without_collection(), progress_shown("reading", shown) as progress:
        recording = load_cassette(shown, progress)
        details = detailed(recording)
        earlier = None
        if other is not None:
            first = load_cassette(cassette)
            earlier = Earlier(detailed(first), compared(first, recording))
        replay = None if report is None else _report(report, len(details.interactions))
    with without_collection(), progress_shown("writing", page) as progress:
        write_page(page, View(details, replay, earlier), progress)
    say(f"wrote {page}")
    if opens and not open_page(page):
        say(f"there is no browser to open it with; open {page.resolve().as_uri()}")


def _report(path: Path, interactions: int) -> ReplayReport:
    """Read the report of a replay of a cassette with so many interactions."""
    from mrtr_cassette.core.report.saved import UnreadableReportError, saved_report
    from mrtr_cassette.shell.files import reason_of

    try:
        report = saved_report(path.read_bytes())
    except OSError as error:
        raise UsageError(f"--report {path}: {reason_of(error)}") from None
    except UnreadableReportError as error:
        raise UsageError(
            f"--report {path} is no JSON report of a replay: {error}",
            hint=f"write one with: mrtr-cassette replay --report {path.with_suffix('.json')}",
        ) from None
    if len(report.interactions) != interactions:
        raise UsageError(
            f"--report {path} is about {report.cassette}, which has "
            f"{len(report.interactions)} interactions, and not {interactions}"
        )
    return report
