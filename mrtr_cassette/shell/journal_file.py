"""The journal of a recording on disk.

Owns: appending to it, closing it in pieces, which files it has, and who is writing it.
Does not own: what its lines are (`core.format.journal`), reading them (`recorded_journal`), and its
publishing (`publishing`).
Rule: only one process writes a journal, and an earlier one is never written over.
"""

from __future__ import annotations

import fcntl
import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from io import BufferedReader
from pathlib import Path

from mrtr_cassette.core.format.journal import (
    JournalHeader,
    PieceEnd,
    decode_header,
    encode_end,
    encode_header,
)
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.option_values import Rotation
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.files import reason_of
from mrtr_cassette.shell.locks import is_locked
from mrtr_cassette.shell.stores import Location

_JOURNAL_SUFFIX = ".journal"
_LOOK_S = 1.0
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
        *,
        syncs: bool = False,
        cassette: Location | None = None,
        rotation: Rotation | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        """Create the journal.

        Args:
            syncs: each line is on the medium before `append` returns.
            cassette: what it will be, where that is not what its own name says.
            rotation: when it is closed as a piece, and goes on in the next one.

        Raises:
            CassetteError: another recorder is at work, or a killed one left its journal.
        """
        self.path = path
        self._name = os.fspath(path)
        self._facts = header
        self._header = encode_header(header)
        self._size = self._lines = 0
        self._is_torn = False
        self._syncs = syncs
        self._rotation = rotation
        self._clock = clock
        self._opened = clock.now()
        if closed_pieces(path):
            raise journal_in_the_way(path, cassette)
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
            restored = self._restore()
            self.rotate_if_due()
        finally:
            self._write(line)
        return restored

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
            self.rotate_if_due()
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
        self._lines += self._is_torn + line.endswith(b"\n")
        self._is_torn = True
        while rest:
            count = os.write(self._file, rest)
            self._size += count
            rest = rest[count:]
        if self._syncs:
            os.fsync(self._file)
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

    def due_s(self) -> float | None:
        """Return in how many seconds to look again whether the file is to be closed as a piece."""
        rotation = self._rotation
        if rotation is None or rotation.seconds is None:
            return None
        age = self._clock.now() - self._opened
        # An old one that is empty waits for its first line.
        return rotation.seconds - age if age < rotation.seconds else _LOOK_S

    def rotate_if_due(self) -> None:
        """Close the file as a piece if it is large or old enough and not empty.

        Raises:
            OSError: that is not possible; the file goes on.
        """
        if self._rotation is None or self._lines < 2:
            return
        if self._rotation.is_due(self._size, self._clock.now() - self._opened):
            self._rotate()

    def _rotate(self) -> None:
        following = replace(self._facts, piece=self._facts.piece + 1)
        header = encode_header(following)
        # Whatever fails, fails before the piece has its name.
        spare = spare_path(self.path)
        spare.unlink(missing_ok=True)
        file = _created(spare)
        try:
            with open(os.dup(file), "wb") as writer:  # noqa: PTH123  it is open already
                writer.write(header)
            self._write(encode_end(PieceEnd(self._lines, is_last=False)))
            self.path.rename(piece_path(self.path, self._facts.piece))
            spare.rename(self.path)
        except BaseException:
            os.close(file)
            spare.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._identity = file, os.fstat(file)
        self._facts, self._header = following, header
        self._size, self._lines = len(header), 1
        self._opened = self._clock.now()

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


def piece_path(journal: Path, number: int) -> Path:
    """Return what a piece of a journal is called once it is closed."""
    return journal.with_name(f"{journal.name}.{number:06}")


def spare_path(journal: Path) -> Path:
    """Return what the next piece of a journal is called until the one before it is closed."""
    return journal.with_name(f"{journal.name}~")


def closed_pieces(journal: Path) -> list[Path]:
    """Return the closed pieces that stand beside a journal, in their order."""
    prefix = f"{journal.name}."
    return sorted(
        path
        for path in journal.parent.glob(f"{glob.escape(prefix)}[0-9]*")
        if path.name.removeprefix(prefix).isdigit()
    )


def files_of(journal: Path) -> list[Path]:
    """Return all files of a journal in their order: the closed pieces, and the open one."""
    open_one = next((path for path in (journal, spare_path(journal)) if path.exists()), None)
    return [*closed_pieces(journal), *([] if open_one is None else [open_one])]


def close_last(journal: Path) -> None:
    """Close the last piece of a journal whose recording has ended.

    Raises:
        CassetteError: it can't be written, or is no journal.
    """
    number = header_of(journal).piece
    try:
        with journal.open("rb+") as file:
            lines = sum(1 for _ in file)
            file.write(encode_end(PieceEnd(lines, is_last=True)))
        journal.rename(piece_path(journal, number))
    except OSError as error:
        raise CassetteError(journal, reason_of(error)) from None


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
    if not files_of(journal) or is_locked(journal):
        return None
    place = "beside it" if isinstance(cassette, Path) else "on this machine"
    return (
        f"{journal} stands {place}: a later recording ended before it was published; "
        f"publish it with: mrtr-cassette recover {cassette} (or delete the journal)"
    )
