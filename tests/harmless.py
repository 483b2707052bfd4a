"""Text that steers neither a terminal nor a CI runner."""

from __future__ import annotations

import re

HOSTILE = "\x1b[2J\x9b1m\u202e\r\n::error::\t##[group]\x00"
"""What a terminal or a runner would obey in many ways."""


def assert_harmless(text: str) -> None:
    """Make sure that a terminal obeys nothing of a text, and a CI runner no line of it."""
    for line in text.split("\n"):
        assert line.isprintable(), line
        assert not line.lstrip().startswith("::"), line
        assert not re.search(r"##(\[|vso\[|teamcity\[)", line), line
