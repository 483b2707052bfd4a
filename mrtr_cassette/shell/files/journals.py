"""Journals on this machine, and the cassettes that are made of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from mrtr_cassette import __version__
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.journal import (
    JournalContent,
    JournalHeader,
    decode_journal,
    decode_journal_header,
    encode_journal_header,
)
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.compare.conversations import IgnoredFor, ignores_nothing
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.record.merge import Source, merged_cassette, sources_of
from mrtr_cassette.core.record.publish_check import Outcomes
from mrtr_cassette.core.report.details import Redaction, redactions_of
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.options import Existing
from mrtr_cassette.shell.files.cassettes import (
    cassette_exists,
    check_replaceable,
    journal_in_the_way,
    journal_path,
    load_cassette,
    load_if_readable,
    publish_cassette,
    read_file,
    without_garbage_collection,
)
from mrtr_cassette.shell.files.disk import (
    check_link_stays_in_folder,
    is_locked,
    remove_leftovers,
    system_reason,
)
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.terms import shell_command

_TOOL_AND_VERSION: Final = f"mrtr-cassette {__version__}"
_JOURNAL_MARK: Final = b'{"journal":'


class Publication(NamedTuple):
    """What became of a cassette: how many interactions it has, and how many stand as before."""

    interactions: int
    kept: int = 0
    is_same: bool = False
    """All stand as before, and the file was left alone."""

    redacted: tuple[Redaction, ...] = ()
    """What redaction replaced in what is new."""

    exchanges: int = 0
    """How many exchanges of a journal are in it."""


def publish_recording(
    path: Location,
    recorded: Cassette,
    existing: Existing,
    *,
    ignored_for: IgnoredFor,
    renews: bool = False,
    hint: str | None = None,
) -> Publication:
    """Write a recording as `publish` does.

    A cassette that is replaced keeps what is the same in the recording, or differs at ignored
    places only. Where that is all of it, the file stays, or with `renews` only its date is new.
    """
    earlier = None
    if existing == "replace":
        # What can't be read as a cassette is replaced whole.
        earlier = load_if_readable(path)

    new_cassette = recorded
    kept_count = 0
    if earlier is not None:
        # A client that waits for its server doesn't wait for the import.
        from mrtr_cassette.core.drive.rerecording import recorded_over

        new_cassette, kept_count = recorded_over(earlier, recorded, ignored_for)

    is_same = new_cassette is earlier and not renews
    redactions = _redactions_in(new_cassette, path, existing)
    publication = Publication(
        len(new_cassette.interactions), kept_count, is_same, redactions
    )
    if not publication.is_same:
        new_cassette = replace(new_cassette, recorded_at=recorded.recorded_at)
        publish_cassette(
            path, [dump(new_cassette)], replace=existing != "keep", hint=hint
        )

    return publication


def _redactions_in(
    recorded: Cassette, path: Location, existing: Existing
) -> tuple[Redaction, ...]:
    """Return what redaction replaced, without what the cassette that is added to has already."""
    redactions = redactions_of(recorded)
    if redactions and existing == "append" and cassette_exists(path):
        return redactions_of(recorded, load_cassette(path))
    return redactions


class Journal:
    """The append-only file of a running recording, which only one process can have."""

    def __init__(self, cassette: Location, header: JournalHeader) -> None:
        """Create the journal of a recording to a cassette.

        It takes the place of one that has nothing but errors that are not MCP's, such as 404, and
        of one of a server on pipes that responded to nothing.

        Raises:
            CassetteError: another recorder is at work, or a killed one left its journal.
        """
        self.path = path = journal_path(cassette)
        self._is_torn = False
        check_link_stays_in_folder(path)
        try:
            # Where a file is in its place, opening the journal tells.
            with suppress(FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)

            _remove_if_useless(path)
            self._descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600
            )
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                self.append(encode_journal_header(header))
            except OSError:
                path.unlink()
                os.close(self._descriptor)
                raise
        except FileExistsError:
            raise journal_in_the_way(cassette) from None
        except OSError as error:
            hint = None
            if not isinstance(cassette, Path):
                hint = "record in a folder where the journal can be written"

            raise CassetteError(path, system_reason(error), hint=hint) from None

    def append(self, line: bytes) -> None:
        """Hand one line to the operating system; it survives the death of this process.

        Raises:
            OSError: it could not be written whole.
        """
        # What was cut short by a full disk must not spoil the line that fits again.
        unwritten = b"\n" + line if self._is_torn else line
        self._is_torn = True
        while unwritten:
            unwritten = unwritten[os.write(self._descriptor, unwritten) :]

        self._is_torn = not line.endswith(b"\n")

    def check_in_place(self) -> None:
        """Make sure that no other program has removed the file, or put another in its place.

        Raises:
            CassetteError: the journal is gone, and what it had is lost.
        """
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), os.fstat(self._descriptor)):
                return

        reason = "another program removed or replaced the journal; what it had is lost"
        raise CassetteError(self.path, reason)

    def close(self) -> None:
        """Close the file, which stays; it is locked until then, so that nobody recovers it."""
        os.close(self._descriptor)


def _remove_if_useless(path: Path) -> None:
    """Remove an unlocked journal that has exchanges, but only errors or a server that was silent.

    Its lock is held meanwhile: another recorder that finds it too must not remove the next one.
    """
    with suppress(OSError, CassetteError), path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return

        outcomes = Outcomes()
        journal = read_journal(path)
        for exchange in journal.exchanges.values():
            outcomes.note_outcome(exchange)

        is_on_pipes = journal.header.transport == "stdio" and bool(journal.exchanges)
        was_silent = is_on_pipes and not outcomes.has_response
        if outcomes.has_only_errors or was_silent:
            path.unlink()


def client_of(path: Path) -> str | None:
    """Return which client's recording a journal is of, if that can be told."""
    with suppress(OSError, CassetteError), path.open("rb") as file:
        return decode_journal_header(file.readline(), str(path)).client

    return None


def read_journal(path: Path) -> JournalContent:
    """Read a journal whole.

    Raises:
        CassetteError: there is no journal, or its first line is not one of ours.
    """
    check_link_stays_in_folder(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CassetteError(path, system_reason(error)) from None

    return decode_journal(data, str(path))


def publish_journal(output: Location) -> tuple[Publication | None, str | None]:
    """Turn the journal of a recording into its cassette, and remove the journal, which else stays.

    Returns:
        what became of the cassette, or None where nothing was recorded and there is none; and what
        was lost, or None.
    """
    path_of_journal = journal_path(output)
    journal = read_journal(path_of_journal)
    recorded_cassette = _assembled_cassette(journal, output)
    publication = None
    if recorded_cassette is not None:
        ignored_for: IgnoredFor = ignores_nothing
        if journal.header.ignored:
            # A client that waits for its server doesn't wait for the import.
            from mrtr_cassette.shell.files.ignored import ignored_for_header

            ignored_for = ignored_for_header(journal.header)

        publication = publish_recording(
            output,
            recorded_cassette,
            journal.header.existing,
            ignored_for=ignored_for,
            hint=hint_at_journal(output),
        )
        publication = publication._replace(exchanges=len(journal.exchanges))

    path_of_journal.unlink()
    return publication, journal.lost


def recorded_in_journal(output: Location) -> tuple[Cassette | None, str | None]:
    """Return what the journal of a recording becomes, if it has anything, and what was lost."""
    journal = read_journal(journal_path(output))
    return _assembled_cassette(journal, output), journal.lost


def hint_at_journal(output: Location) -> str:
    """Return how to publish a journal that stays, as its cassette could not be written."""
    return (
        "the recording is in the journal; make way for the cassette, and publish it with: "
        f"{shell_command('publish_journal', path=str(output))}"
    )


def recover_journal(output: Location) -> tuple[Publication | None, str | None] | None:
    """Publish what a killed recording left as `publish_journal` does.

    None is returned where the cassette has all of it already, and the journal is just removed.
    """
    check_replaceable(output)
    recorder = read_journal(journal_path(output)).header.recorder
    with suppress(CassetteError):
        earlier_recorders = load_cassette(output).recorders
        if recorder in {earlier.id for earlier in earlier_recorders}:
            discard_journal(output)
            if isinstance(output, Path):
                remove_leftovers(output)

            return None

    return publish_journal(output)


def discard_journal(output: Location) -> None:
    """Remove the journal of a recording that is not published."""
    journal_path(output).unlink(missing_ok=True)


def recorded_so_far(
    output: Location,
    in_final_form: Callable[[RecordedExchange], RecordedExchange] = lambda exchange: (
        exchange
    ),
) -> Cassette | None:
    """Return what the journal of a recording under way would become; None where it has nothing.

    Args:
        in_final_form: returns an exchange as it will be in the end.
    """
    try:
        journal = read_journal(journal_path(output))
    except CassetteError:
        return None

    for number, exchange in journal.exchanges.items():
        journal.exchanges[number] = in_final_form(exchange)

    recorded_cassette = _assembled_cassette(journal, output)
    if recorded_cassette is None:
        return None
    return load(dump(recorded_cassette), str(output))


def _assembled_cassette(journal: JournalContent, output: Location) -> Cassette | None:
    """Return the cassette of a journal, added to the one that there is, if it is to be.

    None is returned where the journal has nothing.
    """
    if not journal.exchanges:
        return None

    earlier = None
    if journal.header.existing == "append" and cassette_exists(output):
        earlier = load_cassette(output)

    return assemble(journal.header, journal.exchanges, _TOOL_AND_VERSION, earlier)


def merge_files(
    paths: Sequence[Location], output: Location, *, replaces: bool = False
) -> tuple[Cassette, tuple[str, ...]]:
    """Write one cassette of what several recorders recorded, in journals and cassettes.

    Returns also what to know of it, in words.
    """
    if not paths:
        raise UsageError("there is nothing to merge", hint="name journals or cassettes")

    check_replaceable(output)
    if is_locked(journal_path(output)):
        # Its recorder could not publish it any more, and `recover` would take it for complete.
        raise journal_in_the_way(output)

    if cassette_exists(output) and not replaces:
        hint = "use <<replace>> to replace it"
        raise CassetteError(output, "the cassette exists", hint=hint)

    with without_garbage_collection():
        notes: list[str] = []
        sources = list(_merge_sources(dict.fromkeys(paths), notes))
        if not any(source.exchanges for source in sources):
            raise CassetteError(paths[0], "no file has a complete exchange")

        cassette, further_notes = merged_cassette(sources, _TOOL_AND_VERSION)
        publish_cassette(output, [dump(cassette)], replace=replaces)
        return cassette, (*notes, *further_notes)


def _merge_sources(places: Iterable[Location], notes: list[str]) -> Iterator[Source]:
    """Yield the exchanges of the files by recorder; add notes about files."""
    for place in places:
        file_content = read_file(place)
        if not file_content.startswith(_JOURNAL_MARK):
            yield from sources_of(load(file_content, str(place)))
            continue

        header, exchanges, lost = decode_journal(file_content, str(place))
        if header.existing == "append":
            path_of_cassette = str(place).removesuffix(".journal")
            publish_command = shell_command("publish_journal", path=path_of_cassette)
            reason = "it adds to a cassette, whose request states it repeats"
            hint = f"publish it with: {publish_command}, and merge that"
            raise CassetteError(place, reason, hint=hint)

        if isinstance(place, Path) and is_locked(place):
            notes.append(
                f"{place}: its recorder is still running; its exchanges so far are merged"
            )

        if lost is not None:
            notes.append(f"{place}: {lost}")

        yield Source(str(place), header, exchanges)
