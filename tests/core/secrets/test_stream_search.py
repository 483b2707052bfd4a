from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from mrtr_cassette.core.secrets.escapes import Finding
from mrtr_cassette.core.secrets.stream_search import secrets_in_stream


def find(text: str) -> Iterator[Finding]:
    """Find what stands between `x` and `y`, across lines too."""
    for match in re.finditer(r"x[^y]*y", text):
        yield Finding(*match.span(), "jwt", match[0])


def redacted(text: str) -> str:
    """Return a stream with each finding replaced by a hash."""
    for finding in sorted(secrets_in_stream(text, find, find), key=lambda one: -one.start):
        text = text[: finding.start] + finding.spell("#") + text[finding.end :]
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data: axyb\n\n", "data: a#b\n\n"),
        ("data:xy\r\n\r\n", "data:#\r\n\r\n"),
        ("data: ax1\ndata: 2yb\n\n", "data: a#\ndata: b\n\n"),
        ("data: x1\r\ndata\r\ndata: 2y\r\n\r\n", "data: #\r\ndata\r\ndata: \r\n\r\n"),
        ("id: xy\n: xy\nevent: xy\ndata\n\n", "id: #\n: #\nevent: #\ndata\n\n"),
        ("\ufeffdata: xy\n\n", "\ufeffdata: #\n\n"),
        ("xy\n\n", "#\n\n"),
        ("xy: a\nidxy: xy\nid\ndata\n\n", "#: a\nid#: #\nid\ndata\n\n"),
        ("data: x\n\ndata: y\n\n", "data: x\n\ndata: y\n\n"),
    ],
)
def test_framing_stays(text: str, expected: str) -> None:
    """The data of an event is one text, other lines are texts of their own, and lines stay lines."""
    assert redacted(text) == expected


def test_placeholder_in_several_lines_stays() -> None:
    """A finding that is a placeholder already is left alone."""

    def find_all(text: str) -> Iterator[Finding]:
        yield Finding(0, len(text), "jwt", text)

    assert secrets_in_stream("data: <jwt:\ndata: 1>\n\n", find_all, find_all) == []
