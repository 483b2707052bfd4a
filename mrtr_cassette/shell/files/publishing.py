"""From journals to a cassette: one recording published or recovered, several merged.

Rule: a journal goes only when its cassette stands, and files that are merged are only read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from mrtr_cassette import __version__
from mrtr_cassette.core.cassette.dump import dump_pieces
from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.record.assembly import assemble, head_of
from mrtr_cassette.core.record.merge import Source, merged, reopened
from mrtr_cassette.core.record.publish_check import has_recording
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.disk import is_locked, reason_of
from mrtr_cassette.shell.files.journals import RecordedJournal, header_of, journal_path
from mrtr_cassette.shell.files.log import Progress
from mrtr_cassette.shell.files.stores import Location

_TOOL: Final = f"mrtr-cassette {__version__}"
_JOURNAL_MARK: Final = b'{"journal":'


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
    path = journal_path(output)
    written: list[int] | None = None
    with closing(RecordedJournal(path)) as journal:
        if journal:
            written = []
            pieces = _pieces_of(journal, output, progress, written)
            cassettes.publish(output, pieces, replace=journal.header.existing != "keep")
    path.unlink()
    return None if written is None else len(written), journal.lost


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
    cassettes.tidy(output)
    path = journal_path(output)
    with closing(RecordedJournal(path)) as journal:
        try:
            cassette = cassettes.load_cassette(output)
            was_published = has_recording(cassette, journal.header, journal)
        except CassetteError:
            was_published = False
    if not was_published:
        return publish_journal(output, progress)
    path.unlink()
    return None


def discard_journal(output: Location) -> None:
    """Remove the journal of a recording that is not published."""
    journal_path(output).unlink(missing_ok=True)


def recorded_so_far(output: Location) -> Cassette | None:
    """Return what the journal of a recording under way would become; None where it has nothing."""
    try:
        journal = RecordedJournal(journal_path(output))
    except CassetteError:
        return None
    with closing(journal):
        if not journal:
            return None
        return load(b"".join(_pieces_of(journal, output, None, [])), str(output))


def _pieces_of(
    journal: RecordedJournal, output: Location, progress: Progress | None, written: list[int]
) -> Iterator[bytes]:
    """Return the cassette of a journal, added to the one that there is, if it is to be."""
    earlier = None
    if journal.header.existing == "append" and cassettes.exists(output):
        earlier = cassettes.load_cassette(output)
    head = head_of(journal.header, _TOOL, earlier)
    return dump_pieces(head, _told(journal, earlier, progress, written))


def _told(
    exchanges: Mapping[int, RecordedExchange],
    earlier: Cassette | None,
    progress: Progress | None,
    written: list[int],
) -> Iterator[RecordedInteraction]:
    """Yield the interactions of a recording; `written` gets the size of each."""
    for interaction in assemble(exchanges, earlier):
        written.append(len(interaction.own))
        if progress is not None:
            progress(sum(written), len(exchanges))
        yield interaction


class Merge(NamedTuple):
    """What became of a merge: how much the cassette has, from how many recorders, and notes."""

    interactions: int
    recorders: int
    notes: tuple[str, ...]


def merge_files(
    paths: Sequence[Location],
    output: Location,
    *,
    replaces: bool = False,
    progress: Progress | None = None,
) -> Merge:
    """Write one cassette of what several recorders recorded, in journals and cassettes.

    Raises:
        CassetteError: a file can't be read, or they contradict each other, or the cassette exists
            or can't be written.
        UsageError: there is no file.
    """
    if not paths:
        raise UsageError("there is nothing to merge", hint="name journals or cassettes")
    cassettes.check_replaceable(output)
    exists = CassetteError(output, "the cassette exists", hint="use <<replace>> to replace it")
    if cassettes.exists(output) and not replaces:
        raise exists
    with cassettes.without_collection(), ExitStack() as stack:
        notes: list[str] = []
        sources = list(_sources(dict.fromkeys(paths), notes, stack))
        whole = merged(sources)
        if not whole.exchanges:
            raise CassetteError(paths[0], "no file has a whole exchange")
        written: list[int] = []
        head = replace(head_of(whole.header, _TOOL), recorders=whole.recorders)
        pieces = dump_pieces(head, _told(whole.exchanges, None, progress, written))
        try:
            cassettes.write(output, pieces, replace=replaces)
        except FileExistsError:
            raise exists from None
        except OSError as error:
            raise CassetteError(output, reason_of(error)) from None
        return Merge(len(written), len(whole.recorders), (*notes, *whole.notes))


def _sources(places: Iterable[Location], notes: list[str], stack: ExitStack) -> Iterator[Source]:
    """Yield what the files have, recorder by recorder; say what to know of them."""
    for place in places:
        path = _on_disk(place, stack)
        if not _is_journal(path):
            yield from _of_cassette(path, str(place))
            continue
        header = header_of(path, place)
        if header.existing == "append":
            raise CassetteError(
                place,
                "it adds to a cassette, whose request states it repeats",
                hint="publish it with: mrtr-cassette recover CASSETTE, and merge that",
            )
        if is_locked(path):
            notes.append(f"{place}: its recorder is still at work; what came so far is merged")
        journal = stack.enter_context(closing(RecordedJournal(path)))
        if journal.lost is not None:
            notes.append(f"{place}: {journal.lost}")
        yield Source(str(place), header, journal, namespace=header.recorder or "")


def _on_disk(place: Location, stack: ExitStack) -> Path:
    """Return where a file stands on this machine; from a store it is fetched, once."""
    if isinstance(place, Path):
        return place
    data = cassettes.read_file(place)
    path = Path(stack.enter_context(TemporaryDirectory(prefix="mrtr-cassette-"))) / place.name
    path.write_bytes(data)
    return path


def _is_journal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_JOURNAL_MARK)) == _JOURNAL_MARK
    except OSError:
        return False  # reading it as a cassette says what is wrong


def _of_cassette(path: Path, name: str) -> Iterator[Source]:
    data = cassettes.read_file(path)
    cassette = load(data, name)
    digest = hashlib.sha256(data).hexdigest()
    clocks = {recorder.id: recorder.wall_ms for recorder in cassette.recorders}
    # Older cassettes name no recorder.
    unnamed = sha256_of(f"{cassette.recorded_at}\n{cassette.upstream}")[:32]
    try:
        began_ms = datetime.fromisoformat(cassette.recorded_at).timestamp() * 1000
    except ValueError:
        began_ms = 0.0
    for recorder, exchanges in reopened(cassette, digest).items():
        header = JournalHeader(
            upstream=cassette.upstream,
            request_state=cassette.request_state,
            recorded_at=cassette.recorded_at,
            existing="keep",
            redaction=cassette.redaction,
            answers="sealed" if cassette.seals_answers else None,
            transport=cassette.transport,
            client=cassette.client,
            recorder=recorder or unnamed,
            wall_ms=clocks.get(recorder, began_ms),
        )
        yield Source(name, header, exchanges, digest, is_published=True)
