"""What a journal has: its exchanges, read one at a time.

Rule: a journal may be larger than memory; of an exchange only its place is kept.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.format.journal import Continuation, decode_header, decode_line, joined
from mrtr_cassette.shell.journal_file import opened


class RecordedJournal(Mapping[int, RecordedExchange]):
    """The exchanges of a journal by number, each read when it is asked for.

    Attributes:
        header: what the recording says of itself.
        lost: what can't be read, in words, or None.
    """

    def __init__(self, path: Path) -> None:
        """Find the exchanges; the last line about one counts, with those that continue it.

        Raises:
            CassetteError: there is no journal, or its first line is not one of ours.
        """
        # For each exchange where its lines begin, and their sizes.
        self._places: dict[int, array[int]] = {}
        self._file = opened(path)
        try:
            self.header = decode_header(self._file.readline(), str(path))
            self.lost = "; ".join(self._find()) or None
        except BaseException:
            self.close()
            raise

    def _find(self) -> Iterator[str]:
        """Take note of the lines; yield what is wrong with any."""
        at = self._file.tell()
        for number, line in enumerate(self._file, start=2):
            problem = self._problem_of(line, at)
            if problem is not None:
                yield f"line {number} {problem}; it is left out"
            at += len(line)

    def _problem_of(self, line: bytes, at: int) -> str | None:
        """Take note of the line at a place; return what is wrong with it, or None."""
        try:
            decoded = decode_line(line)
        except ValueError:
            size = len(line.rstrip(b"\n"))
            return f"is not whole ({size:,} bytes)" if size else None
        if isinstance(decoded, RecordedExchange):
            self._places[decoded.number or 0] = array("Q", (at, len(line)))
        elif decoded.number in self._places:
            self._places[decoded.number].extend((at, len(line)))
        else:
            return "continues a response whose beginning is lost"
        return None

    def __getitem__(self, number: int) -> RecordedExchange:
        """Read one exchange, which may go on in further lines."""
        places = self._places[number]
        first: RecordedExchange | None = None
        further: list[Continuation] = []
        for at, size in zip(places[::2], places[1::2], strict=True):
            line = os.pread(self._file.fileno(), size, at)
            decoded = decode_line(line, self.header.recorder)
            if isinstance(decoded, Continuation):
                further.append(decoded)
            else:
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
        """Let go of the file, which stays."""
        self._file.close()
