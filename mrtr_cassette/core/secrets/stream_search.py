"""Finding secrets in event streams.

Owns: which lines of a stream make one text, and mapping its findings back to the lines.
Does not own: what a text is searched for (`text_search`).
Rule: the framing of events stays: a finding never contains the end of a line.
Source: WHATWG HTML, "Interpreting an event stream".
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from mrtr_cassette.core.secrets.escapes import Finding, shifted, spell_nothing
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER

_LINE = re.compile(r"([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_FIELDS = frozenset({"", "event", "id", "retry"})
"""Names of the fields, and of a comment; a reader passes over any other line."""
_Find = Callable[[str], Iterable[Finding]]


def secrets_in_stream(text: str, in_data: _Find, in_line: _Find) -> list[Finding]:
    """Return the secrets in whole events.

    Args:
        text: the events.
        in_data: searches the data of an event, which is one text.
        in_line: searches the value of any other field, or a line that is no field.
    """
    findings: list[Finding] = []
    lines: list[tuple[int, int]] = []
    for line in _LINE.finditer(text, text.startswith("\ufeff")):
        name, colon, value = line[1].partition(":")
        start = line.end(1) - len(value)
        if not line[1]:
            findings += _in_event(text, lines, in_data)
            lines = []
        elif name == "data" and colon:
            lines.append((start + value.startswith(" "), line.end(1)))
        elif name in _FIELDS and colon:
            findings += shifted(in_line(value), start)
        elif name != "data":
            findings += shifted(in_line(line[1]), line.start(1))
    return findings


def _in_event(text: str, lines: Sequence[tuple[int, int]], in_data: _Find) -> Iterator[Finding]:
    data = "\n".join(text[start:end] for start, end in lines)
    offsets = [0, *accumulate(end - start + 1 for start, end in lines)]
    for finding in in_data(data) if data else ():
        # A JSON string can't continue in the next line, but other text may.
        parts = []
        first_line = bisect_right(offsets, finding.start) - 1
        for index in range(first_line, bisect_left(offsets, finding.end)):
            start, end = lines[index]
            first = start + max(finding.start - offsets[index], 0)
            last = min(start + finding.end - offsets[index], end)
            if first < last:
                parts.append((first, last))
        if PLACEHOLDER.fullmatch("".join(text[first:last] for first, last in parts)):
            continue
        spell = finding.spell
        for first, last in parts:
            yield finding._replace(start=first, end=last, spell=spell)
            spell = spell_nothing
