"""From the journal of a recording to its cassette.

Rule: the journal goes only when the cassette stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

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
    path = journal_file.journal_path(output)
    with closing(RecordedJournal(path)) as journal:
        publication = None
        if journal:
            publication = _Publication(journal, output, progress)
            cassette_file.publish(
                output, publication.pieces(), replace=journal.header.existing != "keep"
            )
    path.unlink()
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
    path = journal_file.journal_path(output)
    with closing(RecordedJournal(path)) as journal:
        was_published = _is_published(journal, output)
    if not was_published:
        return publish_journal(output, progress)
    path.unlink()
    return None


def discard_journal(output: Location) -> None:
    """Remove the journal of a recording that is not published."""
    journal_file.journal_path(output).unlink(missing_ok=True)


def _is_published(journal: RecordedJournal, output: Location) -> bool:
    try:
        cassette = cassette_file.load_cassette(output)
    except CassetteError:
        return False
    return has_recording(cassette, journal.header, journal)


def recorded_so_far(output: Location) -> Cassette | None:
    """Return what the journal of a recording under way would become; None where it has nothing."""
    try:
        journal = RecordedJournal(journal_file.journal_path(output))
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
