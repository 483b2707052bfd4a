"""Pages of the cassettes that failing tests use.

Rule: a page that can't be written is told of, and changes nothing for the test.
Source: docs.github.com, "Workflow commands", "Adding a job summary".
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.page import View
from mrtr_cassette.core.report.runs import InteractionOutcome, Outcome, ReplayReport
from mrtr_cassette.errors import MrtrCassetteError, printable
from mrtr_cassette.shell.files.reports import write_page
from mrtr_cassette.shell.runs.plays import CassetteUse
from mrtr_cassette.shell.runs.views import Replay

FOLDER: Final = "mrtr-view"
"""Where pages stand, from the root directory; a job hands it on as an artifact."""
_TITLE: Final = "mrtr-cassette: page"
_SUMMARY_VARIABLE: Final = "GITHUB_STEP_SUMMARY"


class FailurePages:
    """The pages of one run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._told: dict[str, list[str]] = {}

    def write(self, test: str, uses: Iterable[CassetteUse]) -> None:
        """Write the pages of the cassettes that a test uses; those of earlier runs go."""
        for use in uses:
            try:
                text = self._write(use)
            except (MrtrCassetteError, OSError) as error:
                text = f"could not be written: {error}"
            if text is not None:
                self._told.setdefault(test, []).append(text)

    def tell(self, report: pytest.TestReport) -> None:
        """Name the pages that were written for a test since, in its report."""
        for text in dict.fromkeys(self._told.pop(report.nodeid, ())):
            report.sections.append((_TITLE, text))

    def _write(self, use: CassetteUse) -> str | None:
        """Write a page and return its path; None where there is nothing to show."""
        recording = use.load_recorded()
        if recording is None:
            return None
        path = use.path
        inner = path.relative_to(self._root) if path.is_relative_to(self._root) else path.name
        page = (self._root / FOLDER / inner).with_suffix(".html")
        page.parent.mkdir(parents=True, exist_ok=True)
        # Nobody commits what every failing run writes.
        (self._root / FOLDER / ".gitignore").write_text("*\n")
        write_page(page, View(details_of(recording), _replay_of(use)))
        return str(page.relative_to(self._root))


def _replay_of(use: CassetteUse) -> ReplayReport | None:
    """Return what a replay has come to so far; None where the test records."""
    replay = use.shown
    if not isinstance(replay, Replay):
        return None
    unplayed = {each.number for each in replay.unplayed}
    outcomes = (
        InteractionOutcome(
            each.number,
            each.call,
            Outcome.UNPLAYED if each.number in unplayed else Outcome.PLAYED,
            int(each.number not in unplayed),
        )
        for each in replay.interactions
    )
    return ReplayReport(str(use.path), tuple(outcomes), replay.misses)


def summarise(reports: Iterable[pytest.TestReport], environment: os._Environ[str]) -> None:
    """Add to the summary of a job of GitHub Actions which pages failed tests have."""
    pages = [
        (report.nodeid, text)
        for report in reports
        for title, text in report.sections
        if title == _TITLE
    ]
    summary = environment.get(_SUMMARY_VARIABLE)
    if not pages or not summary:
        return
    lines = ["### Cassettes of failed tests", "", "| test | page |", "| --- | --- |"]
    lines += [f"| {_cell(test)} | {_cell(page)} |" for test, page in pages]
    lines += ["", f"The pages are in the folder `{FOLDER}`{_artifacts(environment)}.", ""]
    with Path(summary).open("a", encoding="utf-8") as file:
        file.write("\n".join(lines))


def _cell(text: str) -> str:
    """Return a text as code in a cell of a Markdown table."""
    shown = printable(text).replace("`", "'").replace("|", r"\|")
    return f"`{shown}`"


def _artifacts(environment: os._Environ[str]) -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (environment.get(name, "") for name in names)
    if not (server and repository and run):
        return ""
    url = f"{server}/{repository}/actions/runs/{run}#artifacts"
    return f"; where the job uploads it, it is among [the artifacts of this run]({url})"
