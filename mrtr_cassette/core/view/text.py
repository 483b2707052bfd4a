"""Texts on a page: what can't be seen is spelled out, what stands for something else is marked.

Rule: every value of a template is text, which the template escapes; only `recorded` makes markup.
"""

from __future__ import annotations

import re
from typing import Any, Final

from markupsafe import Markup, escape

from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER
from mrtr_cassette.errors import printable

_TAB: Final = 4
_REPLACED: Final = re.compile(
    rf"(?P<redacted>{re.sub(r'[?]P<[a-z]+>', '?:', PLACEHOLDER.pattern)})"
    rf"|(?P<sealed>{SEALED_ANSWER.pattern}|mrtr-(?:state|session|event):[0-9a-f:]+"
    r"|sha256:[0-9a-f]{64})",
    re.ASCII,
)
"""What stands in a cassette for something else: for a secret, or for what is sealed."""
_MARK: Final = Markup('<mark class="{}" title="{}">{}</mark>')
_TITLES: Final = {
    "redacted": "A secret stood here; the cassette has a placeholder.",
    "sealed": "Sealed: the cassette has a surrogate or a hash.",
}


def plain(value: Any) -> str:
    """Return a value as text with nothing that is invisible or turns it round; markup as it is."""
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "\n".join(printable(line.expandtabs(_TAB)) for line in text.split("\n"))


def recorded(text: str) -> Markup:
    """Return a recorded text as HTML in which what stands for something else is marked."""
    if isinstance(text, Markup):
        return text
    parts: list[Markup] = []
    end = 0
    for match in _REPLACED.finditer(text):
        kind = match.lastgroup or "redacted"
        parts.append(escape(plain(text[end : match.start()])))
        parts.append(_MARK.format(kind, _TITLES[kind], plain(match[0])))
        end = match.end()
    return Markup("").join([*parts, escape(plain(text[end:]))])


def replaced_in(text: str) -> str:
    """Say what in a text stands for something else: `redacted`, `sealed`, or an empty string."""
    match = _REPLACED.search(text)
    return "" if match is None else match.lastgroup or "redacted"
