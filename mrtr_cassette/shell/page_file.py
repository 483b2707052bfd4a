"""Pages on disk.

Owns: the style and the script that every page has, writing a page, and opening it in a browser.
Does not own: what a page shows (`core.view`).
Rule: a page takes the place of a page only, never of another file.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from mrtr_cassette.core.view.page import START, Assets, View, page
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.cassette_file import check_writable
from mrtr_cassette.shell.files import reason_of, write_whole


@cache
def _assets() -> Assets:
    folder = resources.files("mrtr_cassette.core.view")
    return Assets(*((folder / name).read_text("utf-8") for name in ("page.css", "page.js")))


def check_page_place(path: Path) -> None:
    """Make sure that a page can be written to this place.

    Raises:
        CassetteError: there is no folder for it, or the system refuses the name.
        UsageError: another file is there.
    """
    start = START.encode()
    try:
        check_writable(path)
        if path.exists() and (not path.is_file() or _first_bytes(path, len(start)) != start):
            raise UsageError(
                f"{path} exists and is no page of this program", hint="name another file"
            )
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None


def _first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


def write_page(
    path: Path, view: View, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Write a page, in the place of an earlier one.

    Args:
        progress: called with how many pieces are written, of how many at least.

    Raises:
        CassetteError: it can't be written.
        UsageError: another file is there.
    """
    check_page_place(path)
    try:
        write_whole(path, _pieces(view, progress), replace=True)
    except OSError as error:
        raise CassetteError(path, f"can't write the page: {reason_of(error)}") from None


def _pieces(view: View, progress: Callable[[int, int], None]) -> Iterator[bytes]:
    total = len(view.details.interactions)
    for done, piece in enumerate(page(view, _assets()), start=1):
        yield piece.encode("utf-8")
        progress(done, total)


def open_page(path: Path) -> bool:
    """Open a page in the user's browser; return whether there is one."""
    return webbrowser.open(path.resolve().as_uri())
