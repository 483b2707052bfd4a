"""Merging the recordings of several recorders into one cassette.

Rule: the files are only read. The cassette is written whole, or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mrtr_cassette.core.format.dump import dump_pieces
from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.record.assembly import assemble, head_of
from mrtr_cassette.core.record.merging import Source, merged
from mrtr_cassette.core.record.reopened import reopened
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.files import reason_of
from mrtr_cassette.shell.locks import is_locked
from mrtr_cassette.shell.progress import Progress
from mrtr_cassette.shell.publishing import TOOL, CountedInteractions
from mrtr_cassette.shell.recorded_journal import RecordedJournal
from mrtr_cassette.shell.stores import Location

_JOURNAL_MARK = b'{"journal":'


class Merge(NamedTuple):
    """What became of a merge.

    Attributes:
        interactions: how many the cassette has.
        recorders: how many recorders they are from.
        notes: what to know of it, in words.
    """

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
    """Write one cassette of what several recorders recorded.

    Args:
        paths: journals and cassettes, in any order.

    Raises:
        CassetteError: a file can't be read, or they contradict each other, or the cassette exists
            or can't be written.
        UsageError: there is no file.
    """
    if not paths:
        raise UsageError("there is nothing to merge", hint="name journals or cassettes")
    cassette_file.check_replaceable(output)
    exists = CassetteError(output, "the cassette exists", hint="use <<replace>> to replace it")
    if cassette_file.exists(output) and not replaces:
        raise exists
    with cassette_file.without_collection(), ExitStack() as stack:
        notes: list[str] = []
        sources = list(_sources(dict.fromkeys(paths), notes, stack))
        whole = merged(sources)
        if not whole.exchanges:
            raise CassetteError(paths[0], "no file has a whole exchange")
        assembled = assemble(whole.exchanges)
        interactions = CountedInteractions(assembled, len(whole.exchanges), progress)
        head = replace(head_of(whole.header, TOOL), recorders=whole.recorders)
        try:
            cassette_file.write(output, dump_pieces(head, interactions), replace=replaces)
        except FileExistsError:
            raise exists from None
        except OSError as error:
            raise CassetteError(output, reason_of(error)) from None
        return Merge(interactions.count, len(whole.recorders), (*notes, *whole.notes))


def _sources(places: Iterable[Location], notes: list[str], stack: ExitStack) -> Iterator[Source]:
    """Yield what the files have, recorder by recorder; say what to know of them."""
    for place in places:
        path = _on_disk(place, stack)
        if not _is_journal(path):
            yield from _of_cassette(path, str(place))
            continue
        header = journal_file.header_of(path, place)
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
    data = cassette_file.read_file(place)
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
    data = cassette_file.read_file(path)
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
