"""From the journal of a recording to its cassette.

Owns: publishing a journal, whether its recording ended or was killed.
Does not own: the files as such (`files`), and how exchanges become interactions (`core.record`).
Rule: the journal goes only when the cassette stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from mrtr_cassette import __version__
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.format.dump import dump_pieces
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.record.assembly import assemble, has_recording, head_of
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.progress import Progress
from mrtr_cassette.shell.recorded_journal import RecordedJournal
from mrtr_cassette.shell.stores import Location

_MOST_NAMED = 10
TOOL = f"mrtr-cassette {__version__}"


def publish_journal(
    output: Location, progress: Progress | None = None
) -> tuple[int | None, str | None]:
    """Turn the journal of a recording into its cassette, and remove the journal.

    Returns:
        how many interactions the cassette has, or None where nothing was recorded and there is
        none; and what was lost, or None.

    Raises:
        CassetteError: the journal can't be read, or the cassette not be written. The journal stays.
    """
    files = _files_of(output)
    with closing(RecordedJournal(*files)) as journal:
        if journal.missing:
            raise CassetteError(files[-1], _pieces_missing(output, journal.missing))
        publication = None
        if journal:
            publication = _Publication(journal, output, progress)
            cassette_file.publish(
                output, publication.pieces(), replace=journal.header.existing != "keep"
            )
    _remove(output, files)
    return None if publication is None else publication.count, journal.lost


def recover_journal(
    output: Location, progress: Progress | None = None
) -> tuple[int | None, str | None] | None:
    """Publish what a killed recording left, unless it was published before it was killed.

    Returns:
        the same as `publish_journal`; None where the cassette has all of it, and the journal is
        just removed.

    Raises:
        CassetteError: the journal can't be read, or the cassette not be written. The journal stays.
    """
    cassette_file.tidy(output)
    files = _files_of(output)
    with closing(RecordedJournal(*files)) as journal:
        was_published = _is_published(journal, output)
    if not was_published:
        return publish_journal(output, progress)
    _remove(output, files)
    return None


def _files_of(output: Location) -> list[Path]:
    path = journal_file.journal_path(output)
    # Reading what is not there says so.
    return journal_file.files_of(path) or [path]


def _remove(output: Location, files: Sequence[Path]) -> None:
    """Remove a journal, the last piece last: whoever is killed meanwhile leaves that."""
    for path in files:
        path.unlink()
    journal_file.spare_path(journal_file.journal_path(output)).unlink(missing_ok=True)


def discard_journal(output: Location) -> None:
    """Remove the journal of a recording that is not published."""
    _remove(output, journal_file.files_of(journal_file.journal_path(output)))


def _pieces_missing(output: Location, missing: Sequence[int]) -> str:
    """Return which pieces of a journal were taken away, and how they become a cassette."""
    journal = journal_file.journal_path(output)
    numbers = ", ".join(map(str, missing[:_MOST_NAMED]))
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return (
        f"piece {numbers}{more} of {journal} was taken away; with it, make the cassette by: "
        f"mrtr-cassette merge {journal}* FILES -o {output}"
    )


def close_shipped(output: Location) -> str | None:
    """Close the last piece of a recording that ended, where others were taken away.

    Returns:
        which ones, and how they become a cassette; None where all are there.

    Raises:
        CassetteError: the journal can't be read or written.
    """
    journal = journal_file.journal_path(output)
    last = journal_file.header_of(journal).piece
    there = set(journal_file.closed_pieces(journal))
    missing = [
        number for number in range(1, last) if journal_file.piece_path(journal, number) not in there
    ]
    if not missing:
        return None
    journal_file.close_last(journal)
    return _pieces_missing(output, missing)


def _is_published(journal: RecordedJournal, output: Location) -> bool:
    try:
        cassette = cassette_file.load_cassette(output)
    except CassetteError:
        return False
    return has_recording(cassette, journal.header, journal)


def recorded_so_far(output: Location) -> Cassette | None:
    """Return what the journal of a recording under way would become; None where it has nothing."""
    try:
        journal = RecordedJournal(*_files_of(output))
    except CassetteError:
        return None
    with closing(journal):
        if not journal:
            return None
        return load(b"".join(_Publication(journal, output).pieces()), str(output))


class CountedInteractions:
    """Interactions, counted while they are written.

    Attributes:
        count: how many were written.
    """

    def __init__(
        self, interactions: Iterable[RecordedInteraction], total: int, progress: Progress | None
    ) -> None:
        """Count none before they are asked for.

        Args:
            total: how many exchanges they have.
        """
        self.count = 0
        self._interactions = interactions
        self._total = total
        self._progress = progress

    def __iter__(self) -> Iterator[RecordedInteraction]:
        """Iterate over them."""
        written = 0
        for interaction in self._interactions:
            self.count = interaction.number
            if self._progress is not None:
                written += len(interaction.own)
                self._progress(written, self._total)
            yield interaction


class _Publication:
    """A journal on its way to a cassette."""

    def __init__(
        self, journal: RecordedJournal, output: Location, progress: Progress | None = None
    ) -> None:
        """Load the cassette that the recording is added to, if there is one."""
        self._journal = journal
        self._earlier = None
        if journal.header.existing == "append" and cassette_file.exists(output):
            self._earlier = cassette_file.load_cassette(output)
        assembled = assemble(journal, self._earlier)
        self._interactions = CountedInteractions(assembled, len(journal), progress)

    @property
    def count(self) -> int:
        """How many interactions were written."""
        return self._interactions.count

    def pieces(self) -> Iterator[bytes]:
        """Yield the cassette, piece by piece."""
        head = head_of(self._journal.header, TOOL, self._earlier)
        return dump_pieces(head, self._interactions)
