"""The journal of a recording on disk, which one process writes; an earlier one stays."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mrtr_cassette.core.cassette.journal import (
    JournalContent,
    JournalHeader,
    decode_header,
    decode_journal,
    encode_header,
)
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files.disk import check_link, is_locked, reason_of, stands_at
from mrtr_cassette.shell.files.stores import Location

_JOURNAL_SUFFIX = ".journal"


def journal_path(cassette: Location) -> Path:
    """Return where the journal of a recording to `cassette` stands: on this machine always."""
    if isinstance(cassette, Path):
        return cassette.parent / (cassette.name + _JOURNAL_SUFFIX)
    return cassette.folder / (cassette.local_name + _JOURNAL_SUFFIX)


class Journal:
    """The append-only file of a running recording, which only one process can have."""

    def __init__(self, path: Path, header: JournalHeader, cassette: Location | None = None) -> None:
        """Create the journal of a recording to `cassette`, by default the one that its name says.

        Raises:
            CassetteError: another recorder is at work, or a killed one left its journal.
        """
        self.path = path
        self._is_torn = False
        check_link(path)
        try:
            self._file = _created(path)
        except FileExistsError:
            raise journal_in_the_way(path, cassette) from None
        except OSError as error:
            is_local = cassette is None or isinstance(cassette, Path)
            hint = None if is_local else "record in a folder where the journal can be written"
            raise CassetteError(path, reason_of(error), hint=hint) from None
        try:
            self.append(encode_header(header))
        except OSError as error:
            os.close(self._file)
            raise CassetteError(path, reason_of(error)) from None

    def append(self, line: bytes) -> None:
        """Hand one line to the operating system; it survives the death of this process.

        Raises:
            OSError: it could not be written whole.
        """
        # What was cut short by a full disk must not spoil the line that fits again.
        rest = b"\n" + line if self._is_torn else line
        self._is_torn = True
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._is_torn = not line.endswith(b"\n")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody take the file for one that was left behind, until the block ends."""
        # The lock is the open file's, however many descriptors there are of it.
        lock = os.dup(self._file)
        try:
            yield
        finally:
            os.close(lock)

    def close(self) -> None:
        """Let go of the file, which stays.

        Raises:
            CassetteError: another program has removed it, or put another file in its place.
        """
        is_in_place = stands_at(self.path, self._file)
        os.close(self._file)
        if not is_in_place:
            raise CassetteError(
                self.path, "another program removed or replaced the journal; what it had is lost"
            )


def _created(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        path.unlink()
        os.close(file)
        raise
    return file


def journal_in_the_way(path: Path, cassette: Location | None = None) -> CassetteError:
    """Return the error for a journal that stands where another one would be written."""
    cassette = cassette or path.with_name(path.name.removesuffix(_JOURNAL_SUFFIX))
    if is_locked(path):
        return CassetteError(
            path, "another recorder is writing this recording", hint="choose another <<cassette>>"
        )
    return CassetteError(
        path,
        "an earlier recording ended before it was published",
        hint=f"publish it with: mrtr-cassette recover {cassette} (or delete the journal)",
    )


def client_of(path: Path) -> str | None:
    """Return which client's recording a journal is of, if that can be told."""
    with suppress(OSError, CassetteError), path.open("rb") as file:
        return decode_header(file.readline(), str(path)).client
    return None


def stands(journal: Path) -> bool:
    """Tell whether there is a journal; the name of a cassette may be too long for one."""
    return os.path.lexists(journal)


def unpublished(cassette: Location) -> str | None:
    """Return what to know of a cassette beside which a killed recording left its journal."""
    journal = journal_path(cassette)
    if not stands(journal) or is_locked(journal):
        return None
    place = "beside it" if isinstance(cassette, Path) else "on this machine"
    return (
        f"{journal} stands {place}: a later recording ended before it was published; "
        f"publish it with: mrtr-cassette recover {cassette} (or delete the journal)"
    )


def read_journal(path: Path) -> JournalContent:
    """Read a journal whole.

    Raises:
        CassetteError: there is no journal, or its first line is not one of ours.
    """
    check_link(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None
    return decode_journal(data, str(path))
