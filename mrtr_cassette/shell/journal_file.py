"""The journal of a recording on disk.

Owns: appending to it, where it stands, and who is writing it.
Does not own: what its lines are (`core.format.journal`), reading them (`recorded_journal`), and its
publishing (`publishing`).
Rule: only one process writes a journal, and an earlier one is never written over.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from io import BufferedReader
from pathlib import Path

from mrtr_cassette.core.format.journal import (
    JournalHeader,
    decode_header,
    encode_header,
)
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files import reason_of
from mrtr_cassette.shell.locks import is_locked
from mrtr_cassette.shell.stores import Location

_JOURNAL_SUFFIX = ".journal"
_COPIED_AT_ONCE = 1024 * 1024


def journal_path(cassette: Location) -> Path:
    """Return where the journal of a recording to `cassette` stands: on this machine always."""
    if isinstance(cassette, Path):
        return cassette.parent / (cassette.name + _JOURNAL_SUFFIX)
    return cassette.folder / (cassette.local_name + _JOURNAL_SUFFIX)


class Restored(Enum):
    """What became of a journal that another program had touched."""

    ANEW = "anew"
    """It was removed, and is written anew."""
    CUT = "cut"
    """It was cut short, and goes on without what is lost."""


class Journal:
    """The append-only file of a running recording, which only one process can have."""

    def __init__(
        self,
        path: Path,
        header: JournalHeader,
        cassette: Location | None = None,
    ) -> None:
        """Create the journal.

        Args:
            cassette: what it will be, where that is not what its own name says.

        Raises:
            CassetteError: another recorder is at work, or a killed one left its journal.
        """
        self.path = path
        self._name = os.fspath(path)
        self._header = encode_header(header)
        self._size = 0
        self._is_torn = False
        try:
            self._file = _created(path)
        except FileExistsError:
            raise journal_in_the_way(path, cassette) from None
        except OSError as error:
            is_local = cassette is None or isinstance(cassette, Path)
            hint = None if is_local else "record in a folder where the journal can be written"
            raise CassetteError(path, reason_of(error), hint=hint) from None
        self._identity = os.fstat(self._file)
        try:
            self._write(self._header)
        except OSError as error:
            os.close(self._file)
            raise CassetteError(path, reason_of(error)) from None

    def append(self, line: bytes) -> Restored | None:
        """Hand one line to the operating system; it survives the death of this process.

        Returns:
            what another program did to the journal meanwhile, or None.

        Raises:
            OSError: it could not be written whole.
            CassetteError: another file has taken the journal's place.
        """
        try:
            return self._restore()
        finally:
            self._write(line)

    def append_parts(self, parts: Iterable[bytes]) -> Iterator[Restored | None]:
        """Do the same with a line that comes in parts; yield as often as others may have a turn.

        Nothing else may be appended meanwhile.

        Raises:
            OSError: it could not be written whole.
            CassetteError: another file has taken the journal's place.
        """
        problem: Exception | None = None
        restored = None
        try:
            restored = self._restore()
        except (OSError, CassetteError) as error:
            problem = error
        for part in parts:
            self._write(part)
            yield restored
            # What follows goes on in the same line.
            restored, self._is_torn = None, False
        if problem is not None:
            raise problem

    def _write(self, line: bytes) -> None:
        # What was cut short by a full disk must not spoil the line that fits again.
        rest = b"\n" + line if self._is_torn else line
        self._is_torn = True
        while rest:
            count = os.write(self._file, rest)
            self._size += count
            rest = rest[count:]
        self._is_torn = not line.endswith(b"\n")

    def _restore(self) -> Restored | None:
        """Mend what another program did to the journal."""
        try:
            # A look at the name tells all of a file that nobody has touched.
            there = os.stat(self._name)  # noqa: PTH116  a path takes as long as the system call
            is_in_place = os.path.samestat(there, self._identity)
            if is_in_place and there.st_size >= self._size:
                return None
        except FileNotFoundError:
            is_in_place = False
        except OSError:
            # Nobody can tell.
            is_in_place = True
        ours = os.fstat(self._file)
        if not is_in_place:
            self._write_anew()
        if ours.st_size >= self._size:
            return None if is_in_place else Restored.ANEW
        if ours.st_size < len(self._header):
            os.ftruncate(self._file, 0)
            self._is_torn = False
            self._write(self._header)
        else:
            self._is_torn = True
        self._size = os.fstat(self._file).st_size
        return Restored.CUT

    def _write_anew(self) -> None:
        """Write what the open file has to a file of the old name.

        Raises:
            CassetteError: a file stands there that is no copy of this journal.
        """
        with suppress(FileNotFoundError):
            with self.path.open("rb") as file:
                start = file.read(len(self._header))
            if not self._header.startswith(start) or is_locked(self.path):
                raise CassetteError(self.path, "another file has taken the journal's place")
            self.path.unlink()
        copy = _created(self.path)
        try:
            at = 0
            while chunk := os.pread(self._file, _COPIED_AT_ONCE, at):
                at += os.write(copy, chunk)
        except BaseException:
            self.path.unlink()
            os.close(copy)
            raise
        os.close(self._file)
        self._file, self._identity = copy, os.fstat(copy)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody take the file for one that was left behind, until the block ends."""
        # The lock is the open file's, however many descriptors there are of it.
        lock = os.dup(self._file)
        try:
            yield
        finally:
            os.close(lock)

    def close(self) -> Restored | None:
        """Let go of the file, which stays.

        Returns:
            what another program did to the journal meanwhile, or None.

        Raises:
            CassetteError: another file has taken the journal's place, or it can't be written anew.
        """
        try:
            return self._restore()
        except OSError as error:
            raise CassetteError(self.path, reason_of(error)) from None
        finally:
            os.close(self._file)


def _created(path: Path) -> int:
    """Create a journal's file, locked, and return it open."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        path.unlink()
        os.close(file)
        raise
    return file


def cut_short(path: Path) -> CassetteError:
    """Return the error for a journal that another program cut short."""
    return CassetteError(path, "another program cut the journal short; what it had is lost")


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
    """Return which client's recording a journal is of; None where nobody can tell."""
    try:
        return header_of(path).client
    except CassetteError:
        return None


def header_of(path: Path, place: Location | None = None) -> JournalHeader:
    """Return what a journal says of its recording.

    Args:
        place: where it is from, if it was fetched.

    Raises:
        CassetteError: there is no journal, or its first line is not one of ours.
    """
    with opened(path) as file:
        return decode_header(file.readline(), str(place or path))


def opened(path: Path) -> BufferedReader:
    """Open a journal to read it.

    Raises:
        CassetteError: there is none, or it can't be read.
    """
    try:
        return path.open("rb")
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None


def unpublished(cassette: Location) -> str | None:
    """Return what to know of a cassette beside which a killed recording left its journal."""
    journal = journal_path(cassette)
    if not journal.exists() or is_locked(journal):
        return None
    place = "beside it" if isinstance(cassette, Path) else "on this machine"
    return (
        f"{journal} stands {place}: a later recording ended before it was published; "
        f"publish it with: mrtr-cassette recover {cassette} (or delete the journal)"
    )
