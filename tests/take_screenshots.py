"""Take the pictures of pages in `docs/` again.

    python tests/take_screenshots.py [FOLDER]

Needs Chromium with its driver. The pictures depend on the fonts of the machine, so they are looked
at, and not compared.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
from pathlib import Path
from typing import NamedTuple

from browsers import Browser, browser_in
from processes import CASSETTES

from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.files.reports import write_page

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"


class Picture(NamedTuple):
    """A picture of the page of a cassette or of two, with some calls open, in light or dark."""

    name: str
    paths: tuple[Path, ...]
    opens: tuple[str, ...]
    scheme: str


SHOW_ALL = """
const done = arguments[arguments.length - 1];
for (const call of document.querySelectorAll(".call")) {
  call.style.contentVisibility = "visible";
}
requestAnimationFrame(() => requestAnimationFrame(done));
"""
CLIP = {"x": 0, "y": 0, "width": 1200, "height": 1180, "scale": 1}
PICTURES = (
    Picture("view.png", (CASSETTES / "demo-server.json",), ("i7",), "light"),
    Picture("view-dark.png", (EXAMPLES / "flights-before.json",), ("i2",), "dark"),
    Picture(
        "view-two.png",
        (EXAMPLES / "flights-before.json", EXAMPLES / "flights-after.json"),
        ("i2",),
        "light",
    ),
)


def take(browser: Browser, picture: Picture, folder: Path) -> None:
    """Take a picture."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "page.html"
        # The folder of this machine is nobody's business.
        *first, shown = map(load_cassette, picture.paths)
        write_page(page, shown, None, *first)
        html = page.read_text("utf-8")
        for path in picture.paths:
            html = html.replace(f"{path.parent}/", "")

        page.write_text(html, "utf-8")
        browser.emulate(prefers_color_scheme=picture.scheme)
        browser.open(page)
        for call in browser.run(
            "[...document.querySelectorAll('li.call > details')].map(d => d.id)"
        ):
            browser.run(
                "document.getElementById(arguments[0]).open = arguments[1]",
                call,
                call in picture.opens,
            )

        # Rows out of sight are laid out, and are painted in the frame after that.
        browser.driver.execute_async_script(SHOW_ALL)
        options = {"clip": CLIP, "captureBeyondViewport": True}
        taken = browser.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        (folder / picture.name).write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as profile, browser_in(Path(profile)) as browser:
        for picture in PICTURES:
            take(browser, picture, folder)


if __name__ == "__main__":
    main()
