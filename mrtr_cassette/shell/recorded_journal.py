"""What a journal has: its exchanges, read one at a time.

Owns: finding them in one file or in several pieces, and what is missing or damaged.
Does not own: which files there are, and writing them (`journal_file`).
Rule: a journal may be larger than memory; of an exchange only its place is kept.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.format.journal import (
    Continuation,
    PieceEnd,
    decode_header,
    decode_line,
    joined,
)
from mrtr_cassette.shell.journal_file import opened


class RecordedJournal(Mapping[int, RecordedExchange]):
    """The exchanges of a journal by number, each read when it is asked for.

    Attributes:
        header: what the recording says of itself.
        missing: which pieces are not among the files.
        lost: what can't be read, in words, or None.
    """

    def __init__(self, *paths: Path) -> None:
        """Find the exchanges; the last line about one counts, with those that continue it.

        Args:
            paths: the file, or the pieces of one journal in their order.

        Raises:
            CassetteError: there is no journal, or its first line is not one of ours.
        """
        # For each exchange which files its lines are in, where they begin, and their sizes.
        self._places: dict[int, array[int]] = {}
        self._files: list[BufferedReader] = []
        self._ends: dict[int, PieceEnd] = {}
        lost = []
        numbers: list[int] = []
        try:
            for path in paths:
                self._files.append(opened(path))
                header = decode_header(self._files[-1].readline(), str(path))
                numbers.append(header.piece)
            for index, path in enumerate(paths):
                name = f"{path.name}: " if len(paths) > 1 else ""
                lost += [f"{name}{problem}" for problem in self._find(index)]
        except BaseException:
            self.close()
            raise
        self.header = header
        self.missing = self._missing(numbers)
        self.lost = "; ".join(lost) or None

    def _missing(self, numbers: Sequence[int]) -> tuple[int, ...]:
        last = len(numbers) - 1
        is_open = last in self._ends and not self._ends[last].is_last
        return tuple(sorted({*range(1, numbers[-1] + 1 + is_open)} - {*numbers}))

    def _find(self, index: int) -> Iterator[str]:
        """Take note of the lines of one file; yield what is wrong with any."""
        file = self._files[index]
        at = file.tell()
        number = 1
        for number, line in enumerate(file, start=2):
            problem = self._problem_of(line, index, at)
            if problem is not None:
                yield f"line {number} {problem}; it is left out"
            at += len(line)
        end = self._ends.get(index)
        if end is not None and end.lines != number - 1:
            yield f"it had {end.lines} lines when it was closed, and has {number - 1}"
        if end is None and index + 1 < len(self._files):
            yield "its end is missing"

    def _problem_of(self, line: bytes, index: int, at: int) -> str | None:
        """Take note of the line at a place; return what is wrong with it, or None."""
        try:
            decoded = decode_line(line)
        except ValueError:
            size = len(line.rstrip(b"\n"))
            return f"is not whole ({size:,} bytes)" if size else None
        if isinstance(decoded, RecordedExchange):
            self._places[decoded.number or 0] = array("Q", (index, at, len(line)))
        elif isinstance(decoded, PieceEnd):
            self._ends[index] = decoded
        elif decoded.number in self._places:
            self._places[decoded.number].extend((index, at, len(line)))
        else:
            return "continues a response whose beginning is lost"
        return None

    def __getitem__(self, number: int) -> RecordedExchange:
        """Read one exchange, which may go on in further lines."""
        places = self._places[number]
        first: RecordedExchange | None = None
        further: list[Continuation] = []
        for index, at, size in zip(places[::3], places[1::3], places[2::3], strict=True):
            line = os.pread(self._files[index].fileno(), size, at)
            decoded = decode_line(line, self.header.recorder)
            if isinstance(decoded, Continuation):
                further.append(decoded)
            elif isinstance(decoded, RecordedExchange):
                first = decoded
        if first is None:
            raise AssertionError("unreachable because a continuation has no place of its own")
        return joined(first, further)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of the exchanges."""
        return iter(self._places)

    def __len__(self) -> int:
        """Count the exchanges."""
        return len(self._places)

    def close(self) -> None:
        """Let go of the files, which stay."""
        for file in self._files:
            file.close()
