"""HTML, of which no text can become a part.

Rule: this module alone makes `Markup`; whatever else is put into an element is escaped. Names of
elements and attributes are written in this package, never recorded.
Source: WHATWG HTML, "Writing HTML documents"; "Elements", "Attributes".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias, Union

from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER
from mrtr_cassette.errors import printable

_VOID: Final = frozenset({"input", "meta"})
"""Elements that have no end tag; those of SVG have one."""
_TAB: Final = 4

_REPLACED: Final = re.compile(
    rf"(?P<redacted>{re.sub(r'[?]P<[a-z]+>', '?:', PLACEHOLDER.pattern)})"
    rf"|(?P<sealed>{SEALED_ANSWER.pattern}|mrtr-(?:state|session|event):[0-9a-f:]+"
    r"|sha256:[0-9a-f]{64})",
    re.ASCII,
)
"""What stands in a cassette for something else: for a secret, or for what is sealed."""
_TITLES: Final = {
    "redacted": "A secret stood here; the cassette has a placeholder.",
    "sealed": "Sealed: the cassette has a surrogate or a hash.",
}


class Markup(str):
    """HTML that stands in a page as it is."""

    __slots__ = ()


Child: TypeAlias = Union[str, Iterable["Child"], None]  # noqa: UP007  it names itself
Attribute: TypeAlias = str | int | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element.

    Args:
        children: markup as it is, text escaped; None is nothing.
        attributes: `class_` stands for `class`, and an underscore for a hyphen; True is an
            attribute without a value, None and False are none.
    """
    start = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = key.rstrip("_").replace("_", "-")
        start.append(f" {spelled}" if value is True else f' {spelled}="{plain(str(value))}"')
    if name in _VOID:
        return Markup(f"{''.join(start)}>")
    return Markup(f"{''.join(start)}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Return children one after another."""
    parts: list[str] = []
    _collect(children, parts)
    return Markup("".join(parts))


def _collect(children: Iterable[Child], parts: list[str]) -> None:
    for child in children:
        if isinstance(child, str):
            parts.append(child if isinstance(child, Markup) else plain(child))
        elif child is not None:
            _collect(child, parts)


def plain(text: str) -> Markup:
    """Return a text as HTML: escaped, and with nothing that is invisible or turns it round."""
    if not text.isprintable():
        text = "\n".join(printable(line.expandtabs(_TAB)) for line in text.split("\n"))
    return Markup(escape(text))


def recorded(text: str) -> Markup:
    """Return a recorded text as HTML in which what stands for something else is marked."""
    parts: list[str] = []
    end = 0
    for match in _REPLACED.finditer(text):
        kind = match.lastgroup or "redacted"
        parts.append(plain(text[end : match.start()]))
        parts.append(element("mark", match[0], class_=kind, title=_TITLES[kind]))
        end = match.end()
    return Markup("".join([*parts, plain(text[end:])]))


def replaced_in(text: str) -> str:
    """Say what in a text stands for something else: `redacted`, `sealed`, or an empty string."""
    match = _REPLACED.search(text)
    return "" if match is None else match.lastgroup or "redacted"
