"""Reports and pages on disk: they take the places of earlier ones only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mrtr_cassette.core.report.text import PAGE_START
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.files.disk import check_writable, system_reason, write_whole

if TYPE_CHECKING:
    from mrtr_cassette.core.cassette.recorded import Cassette
    from mrtr_cassette.core.compare.conversations import IgnoredFor
    from mrtr_cassette.core.report.page import Assets
    from mrtr_cassette.core.report.runs import ReplayReport

_OWN_REPORT = re.compile(
    rb"""\{\s*"cassette":\s*"(?:[^"\\]|\\.)*",\s*"interactions":
    |\{\s*"cassettes":\s*\[\s*(?:\]|\{\s*"cassette":)
    |<\?xml[^>]*>\s*<testsuites\ name="mrtr-cassette\ (?:replay|verify|probe|trials)"
    |\{\s*"trials":\s*\[\s*(?:\]|\{\s*"trial":)
    |\|\ trial\ \|\ valid\ \|\ served\ \|
    |\#\#\#\ [^\n]*\ against\ [^\n]*:\ \d+\ interactions?:[ ]
    |\*\*[^\n]*\ against\ [^\n]*:\ \d+\ findings?\ in\ \d+\ probes?:\ |"""
    + re.escape(PAGE_START.encode()),
    re.VERBOSE,
)
"""How our reports and pages begin."""

_OPEN_FILE_PATH = re.compile(
    "/dev/(fd/[0-9]+|stdin|stdout|stderr)|/proc/[^/]+/fd/[0-9]+"
)
"""What is open already, such as redirected output, is written to, and not replaced."""

_URL_START = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
"""How the path of an address begins, which has one slash less."""

_BEGINNING_BYTES: Final = 32 * 1024
"""Bytes in which that shows; a report begins with the path of a cassette."""


def check_place(path: Path) -> None:
    """Make sure that a report or a page can be written to this place.

    Raises:
        CassetteError: there can be no folder for it, or the system refuses the name.
        UsageError: it is an address, or a file of another kind is there.
    """
    if _URL_START.match(str(path)) and not Path(path.parts[0]).exists():
        problem = f"{path} is an address, and reports and pages are written to files"
        hint = "name a file"
        raise UsageError(problem, hint=hint)

    try:
        check_writable(path)
        if not _is_own_file(path):
            return

        with path.open("rb") as file:
            start = file.read(_BEGINNING_BYTES)
    except OSError as error:
        raise CassetteError(path, system_reason(error)) from None

    if start and not _OWN_REPORT.match(start):
        problem = f"{path} exists and is not a report or page of this program"
        hint = "name another file"
        raise UsageError(problem, hint=hint)


def write_own(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a report or a page, in the place of an earlier one, or to a pipe or a device.

    Raises:
        CassetteError: it can't be written.
        UsageError: a file of another kind is there.
    """
    check_place(path)
    try:
        if _is_own_file(path) or not path.exists():
            write_whole(path, pieces, replace=True)
            return

        # A pipe that nobody reads is an error at once, and not a wait without an end.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        os.set_blocking(handle, True)
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise CassetteError(path, f"can't be written: {system_reason(error)}") from None


def _is_own_file(path: Path) -> bool:
    """Tell whether a path is a regular file's, and not an open stream's such as /dev/stdout."""
    return path.is_file() and not _OPEN_FILE_PATH.fullmatch(os.path.abspath(path))  # noqa: PTH100  links stay


def saved_report(raw: bytes) -> ReplayReport:
    """Return the report that `summary_data` made JSON of.

    Raises:
        ValueError: it is no such report.
    """
    # Most reports are written, and never read.
    from pydantic import TypeAdapter

    from mrtr_cassette.core.report.runs import ReplayReport

    return TypeAdapter(ReplayReport).validate_json(raw)


@cache
def page_assets() -> Assets:
    """Return what a page is made with, from the files of the package."""
    # The library of templates takes a tenth of a start: only who makes a page waits for it.
    from mrtr_cassette.core.report.page import TEMPLATES, Assets

    folder = resources.files("mrtr_cassette.core.report")
    style, script, *templates = (
        (folder / name).read_text("utf-8")
        for name in ("page.css", "page.js", *TEMPLATES)
    )
    return Assets(style, script, tuple(templates))


def write_page(
    path: Path,
    cassette: Cassette,
    replay: ReplayReport | None = None,
    first: Cassette | None = None,
    ignored_for: IgnoredFor | None = None,
) -> None:
    """Write a page as `write_own` does."""
    from mrtr_cassette.core.compare.conversations import ignores_nothing
    from mrtr_cassette.core.report.page import cassette_page

    is_ignored = ignored_for or ignores_nothing
    pieces = cassette_page(cassette, page_assets(), replay, first, is_ignored)
    write_own(path, (piece.encode("utf-8") for piece in pieces))
