"""Saying what happens while a proxy runs, as lines for people and as facts for programs.

Owns: who wants to know, how they spell the options, and that nobody who stops listening breaks
what passes.
Does not own: the texts and the facts (`core.report`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mrtr_cassette.errors import LIBRARY_TERMS, Terms, printable_lines

Log = Callable[[str], None]
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Announcer:
    """Says what happens to whoever wants to know.

    Attributes:
        log: takes lines; None where nobody wants them.
        on_event: takes facts; None where nobody wants them.
        terms: how texts spell the options.
    """

    log: Log | None = None
    on_event: OnEvent | None = None
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)

    def say(self, event: Callable[[], dict[str, Any]], line: Callable[[], str] | None) -> None:
        """Say one thing in either form; each is made only if somebody wants it.

        A log that nobody reads any more must not break what passes.
        """
        if self.on_event is None and (self.log is None or line is None):
            return
        with suppress(OSError):
            if self.on_event is not None:
                self.on_event(event())
            if self.log is not None and line is not None:
                self.log(printable_lines(line()))
