"""Pages as their elements, read by Python's own HTML parser."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"img", "input", "meta"})
CONTROLS = frozenset({"input", "select"})
FETCHES = frozenset(
    {"action", "cite", "data", "formaction", "poster", "src", "srcset", "style"}
)
"""Attributes that fetch or run something, which no page has."""

ELEMENTS_THAT_FETCH = frozenset(
    {"audio", "base", "embed", "form", "image", "link", "object", "use", "video"}
)


@dataclass
class Node:
    """An element of a page."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def every(self, *names: str, class_: str = "") -> Iterator[Node]:
        """Yield the elements within this one, of some names or all, of some class or any."""
        for child in self.children:
            if isinstance(child, Node):
                fits = not names or child.name in names
                if fits and (
                    not class_ or class_ in child.attributes.get("class", "").split()
                ):
                    yield child

                yield from child.every(*names, class_=class_)

    def one(self, *names: str, class_: str = "") -> Node:
        """Return the only element of this kind."""
        (node,) = self.every(*names, class_=class_)
        return node

    def by_id(self, place: str) -> Node:
        """Return the element with an id."""
        (node,) = [node for node in self.every() if node.attributes.get("id") == place]
        return node

    @property
    def text(self) -> str:
        """All text within, with spaces put together."""
        return " ".join(self.raw_text.split())

    @property
    def raw_text(self) -> str:
        """All text within, as it is."""
        return "".join(
            child.raw_text if isinstance(child, Node) else child
            for child in self.children
        )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("document")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a page has no comments: {data}")


def parsed(html: str) -> Node:
    """Return a page, or a part of one, whose elements are all closed where they should be."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert [node.name for node in reader.open] == ["document"]

    return reader.open[0]


def assert_safe(page: Node) -> None:
    """Make sure that nothing but the page's own style and script takes effect."""
    policies = []
    for node in page.every("meta"):
        if node.attributes.get("http-equiv") == "Content-Security-Policy":
            policies.append(node.attributes["content"])

    (policy,) = policies

    style = page.one("style").raw_text
    script = page.one("script").raw_text
    hashes = []
    for text in (style, script):
        digest = hashlib.sha256(text.encode()).digest()
        hashes.append(base64.b64encode(digest).decode())

    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )

    assert not re.search(r"@import|url\((?!#)", style)
    assert not list(page.every(*ELEMENTS_THAT_FETCH))
    for node in page.every():
        # A frame has what a server wrote, and may do nothing.
        assert node.name != "iframe" or node.attributes["sandbox"] == ""
        for name, value in node.attributes.items():
            # A picture stands in the page itself.
            is_picture = node.name == "img" and value.startswith("data:image/")
            assert name not in FETCHES or is_picture, (node.name, name)
            assert not name.startswith("on"), (node.name, name)

        href = node.attributes.get("href")
        assert href is None or href.startswith("#"), href


def assert_readable(page: Node) -> None:
    """Make sure that ids are unique, links lead somewhere, and each control has a label."""
    ids = [node.attributes["id"] for node in page.every() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    named = set(ids)
    for link in page.every("a"):
        assert link.attributes["href"].removeprefix("#") in named, link.attributes[
            "href"
        ]

    for node in page.every():
        assert node.attributes.get("aria-labelledby", "") in {"", *named}

    labelled: set[int] = set()
    for label in page.every("label"):
        labelled.update(map(id, label.every(*CONTROLS)))

    assert {id(control) for control in page.every(*CONTROLS)} == labelled
