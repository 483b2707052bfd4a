"""Check that all links of a built site lead somewhere, and that it loads nothing from elsewhere."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"src", "srcset", "poster"}


class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes that name something."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name == "href" and value:
                self.links.add(value)

            if value and (name in LOADS or (name == "href" and tag == "link")):
                self.loaded.add(value)


def broken_links(site: Path) -> list[str]:
    """Return a line for every link that leads nowhere, or loads what the site doesn't have."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        shown = path.relative_to(site)
        for target in sorted(page.links | page.loaded):
            address = urlsplit(target)
            if address.scheme or address.netloc:
                if target in page.loaded and address.scheme != "data":
                    problems.append(f"{shown} loads {target}")

                continue

            linked = path
            if address.path:
                linked = (path.parent / unquote(address.path)).resolve()

            anchor = unquote(address.fragment)
            if not linked.is_file():
                problems.append(f"{shown}: {target} does not exist")
            elif anchor and linked in pages and anchor not in pages[linked].anchors:
                problems.append(f"{shown}: {target} has no such section")

    return problems


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    sys.exit("\n".join(broken_links(folder)) or 0)
