"""Pages on disk.

Rule: a page takes the place of a page only, never of another file.
"""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from mrtr_cassette.core.view.page import START, TEMPLATES, Assets, View, page
from mrtr_cassette.shell.files import WrittenKind, write_own

PAGE: Final = WrittenKind("page", re.compile(re.escape(START.encode())))


@cache
def page_assets() -> Assets:
    """Return what a page is made with, from the files of the package."""
    folder = resources.files("mrtr_cassette.core.view")
    style, script, *templates = (
        (folder / name).read_text("utf-8") for name in ("page.css", "page.js", *TEMPLATES)
    )
    return Assets(style, script, tuple(templates))


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
    write_own(path, PAGE, _pieces(view, progress))


def _pieces(view: View, progress: Callable[[int, int], None]) -> Iterator[bytes]:
    total = len(view.details.interactions)
    for done, piece in enumerate(page(view, page_assets()), start=1):
        yield piece.encode("utf-8")
        progress(done, total)


def open_page(path: Path) -> bool:
    """Open a page in the user's browser; return whether there is one."""
    return webbrowser.open(path.resolve().as_uri())
