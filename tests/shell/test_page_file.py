"""Facts about pages on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import cassette_of, loaded, tool
from messages import text
from pages import assert_readable, assert_safe, parsed

from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.view.page import START, View
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.page_file import open_page, write_page


@pytest.fixture(scope="module")
def view() -> View:
    """A view of a cassette with one call."""
    return View(detailed(loaded(cassette_of((tool("deploy"), text("done"))))))


def test_page_is_written_with_its_style_and_script(tmp_path: Path, view: View) -> None:
    """The file is whole: its policy allows the style and the script that stand in it."""
    path = tmp_path / "page.html"
    write_page(path, view)
    html = path.read_text("utf-8")
    page = parsed(html.removeprefix("<!doctype html>\n"))

    assert html.startswith(START)
    assert_safe(page)
    assert_readable(page)
    assert "prefers-color-scheme: dark" in page.one("style").raw_text
    assert "use strict" in page.one("script").raw_text


def test_progress_of_a_large_page_is_told(tmp_path: Path, view: View) -> None:
    """Whoever waits for a large page is told how much of it is written."""
    told: list[tuple[int, int]] = []
    write_page(tmp_path / "page.html", view, lambda done, total: told.append((done, total)))

    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert {total for _, total in told} == {1}


def test_page_replaces_a_page_only(tmp_path: Path, view: View) -> None:
    """An earlier page is written anew; any other file, and a folder, stays as it is."""
    path = tmp_path / "page.html"
    write_page(path, view)
    write_page(path, view)
    for other in (tmp_path / "notes.html", tmp_path / "c.json"):
        other.write_text("<!doctype html>\nmine")
        with pytest.raises(UsageError, match="exists and is no page of this program; name another"):
            write_page(other, view)
        assert other.read_text() == "<!doctype html>\nmine"
    with pytest.raises(CassetteError, match="is a directory"):
        write_page(tmp_path, view)


def test_page_that_cannot_be_written_is_an_error(tmp_path: Path, view: View) -> None:
    """A missing folder is named, and so is why the system refuses the file."""
    with pytest.raises(CassetteError, match="there is no directory"):
        write_page(tmp_path / "none" / "page.html", view)
    with pytest.raises(CassetteError, match="file name too long"):
        write_page(tmp_path / f"{'x' * 300}.html", view)
    with pytest.raises(CassetteError, match="can't write the page: "):
        write_page(Path("/proc/page.html"), view)


def test_page_is_opened_in_the_users_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser gets the URL of the file."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)

    assert open_page(tmp_path / "a b.html")
    assert opened == [(tmp_path / "a b.html").as_uri()]
