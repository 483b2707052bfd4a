"""Cassettes and journals on disk.

Owns: appending to a journal, publishing a cassette atomically, and reading both.
Rule: what exists is never overwritten unasked, and a reader sees the old file or the new one,
never a part.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.format.codec import decode_cassette, encode_cassette
from mrtr_cassette.core.format.journal import (
    JournalHeader,
    decode_header,
    decode_line,
    encode_header,
)
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.errors import CassetteError

_JOURNAL_SUFFIX = ".journal"


def journal_path(cassette: Path) -> Path:
    """Return where the journal of a recording to `cassette` stands."""
    return cassette.with_name(cassette.name + _JOURNAL_SUFFIX)


class Journal:
    """The append-only file of a running recording, which only one process can have."""

    def __init__(self, path: Path, header: JournalHeader, *, syncs: bool = False) -> None:
        """Create the journal.

        Args:
            path: the file.
            header: what the recording says of itself.
            syncs: each line is on the medium before `append` returns.

        Raises:
            CassetteError: another recorder is at work, or a killed one left its journal.
        """
        self.path = path
        self._is_torn = False
        self._syncs = syncs
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.open(path, flags, 0o600)
        except FileExistsError:
            raise _journal_in_the_way(path) from None
        except OSError as error:
            raise CassetteError(path, _reason(error)) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.append(encode_header(header))
        except OSError as error:
            os.close(self._file)
            raise CassetteError(path, _reason(error)) from None

    def append(self, line: bytes) -> None:
        """Hand one line to the operating system; it survives the death of this process.

        Raises:
            OSError: it could not be written whole.
        """
        # What was cut short by a full disk must not spoil the line that fits again.
        rest = memoryview(b"\n" + line if self._is_torn else line)
        self._is_torn = True
        while rest:
            rest = rest[os.write(self._file, rest) :]
        if self._syncs:
            os.fsync(self._file)
        self._is_torn = not line.endswith(b"\n")

    def close(self) -> None:
        """Let go of the file, which stays."""
        os.close(self._file)


def _journal_in_the_way(path: Path) -> CassetteError:
    cassette = path.with_name(path.name.removesuffix(_JOURNAL_SUFFIX))
    if is_being_written(path):
        return CassetteError(
            path, "another recorder is writing this recording", hint="choose another --output"
        )
    return CassetteError(
        path,
        "an earlier recording ended before it was published",
        hint=f"publish it with: mrtr-cassette recover {cassette} (or delete the journal)",
    )


def is_being_written(path: Path) -> bool:
    """Tell whether a living process has this journal."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What a journal holds.

    Attributes:
        exchanges: by number; the last line about an exchange counts.
        lost: what could not be read, in words, or None.
    """

    header: JournalHeader
    exchanges: dict[int, RecordedExchange]
    lost: str | None


def read_journal(path: Path) -> JournalContent:
    """Read a journal up to the first line that is not whole.

    Raises:
        CassetteError: there is none, or its first line is none of ours.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CassetteError(path, _reason(error)) from None
    first, *lines = data.split(b"\n")
    header = decode_header(first, str(path))
    exchanges: dict[int, RecordedExchange] = {}
    lost = []
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        try:
            exchange = decode_line(line)
        except ValueError:
            lost.append(f"line {number} is not whole ({len(line):,} bytes); it is left out")
            continue
        exchanges[exchange.number or 0] = exchange
    return JournalContent(header, exchanges, "; ".join(lost) or None)


@contextmanager
def without_collection() -> Iterator[None]:
    """Let nothing look for garbage while very many objects are made, of which none is."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_cassette(path: Path) -> CassetteModel:
    """Read a cassette.

    Raises:
        CassetteError: it is missing or damaged; where only a journal stands, it says so.
    """
    with without_collection():
        return decode_cassette(_read(path), str(path))


def load_cassette(path: Path, progress: Callable[[int], None] = lambda _count: None) -> Cassette:
    """Load a cassette.

    Args:
        path: the file.
        progress: called with the number of interactions that have been read, after each.

    Raises:
        CassetteError: as `read_cassette`.
    """
    return load(_read(path), str(path), progress=progress)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        journal = journal_path(path)
        if journal.exists():
            raise _journal_in_the_way(journal) from None
        raise CassetteError(
            path,
            "there is no such cassette",
            hint="record one with: mrtr-cassette record --upstream URL --output FILE",
        ) from None
    except OSError as error:
        raise CassetteError(path, _reason(error)) from None


def publish(path: Path, cassette: CassetteModel, *, replace: bool) -> None:
    """Write a cassette so that a reader sees the old file or the new one.

    Args:
        path: the file.
        cassette: what to write.
        replace: an existing file is replaced; else it is left alone.

    Raises:
        CassetteError: it exists, or could not be written.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".mrtr-cassette-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(encode_cassette(cassette))
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        if replace:
            Path(temporary).replace(path)
        else:
            _put_where_nothing_is(temporary, path)
        _sync_directory(path.parent)
    except FileExistsError:
        raise CassetteError(
            path,
            "the cassette exists",
            hint=f"move it away and publish the recording with: mrtr-cassette recover {path}",
        ) from None
    except OSError as error:
        raise CassetteError(
            path,
            _reason(error),
            hint=f"the recording is in the journal; publish it with: mrtr-cassette recover {path}",
        ) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def write_report(path: Path, report: bytes) -> None:
    """Write what a replay came to, in the place of an earlier report.

    Raises:
        CassetteError: it can't be written.
    """
    try:
        path.write_bytes(report)
    except OSError as error:
        raise CassetteError(path, f"can't write the report: {_reason(error)}") from None


def unpublished(cassette: Path) -> str | None:
    """Return what to know of a cassette beside which a killed recording left its journal."""
    journal = journal_path(cassette)
    if not journal.exists() or is_being_written(journal):
        return None
    return (
        f"{journal} stands beside it: a later recording ended before it was published; "
        f"publish it with: mrtr-cassette recover {cassette} (or delete the journal)"
    )


def _put_where_nothing_is(temporary: str, path: Path) -> None:
    """Give a file its name, unless something else has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links; there the look and the move are two steps.
        if path.exists():
            raise FileExistsError from None
        Path(temporary).replace(path)


def cassette_exists(path: Path) -> CassetteError:
    """Return the error for a cassette that would be overwritten unasked."""
    return CassetteError(
        path, "the cassette exists", hint="use --force to replace it or --append to add to it"
    )


def check_writable(path: Path) -> None:
    """Make sure that a cassette can be written to this place.

    Raises:
        CassetteError: its directory is missing or no directory, or it is itself one.
    """
    if path.is_dir():
        raise CassetteError(path, "is a directory", hint="name a file")
    if not path.parent.is_dir():
        raise CassetteError(path, f"there is no directory {path.parent}", hint="create it first")


@contextmanager
def locked(cassette: Path, patience_s: float) -> Iterator[None]:
    """Be the only one who may record a cassette, until the block ends.

    The lock is a file beside the cassette that goes when the block ends. What a dead process
    left of it holds nobody up.

    Raises:
        CassetteError: somebody else has had it all the while, or it can't be had.
    """
    path = cassette.with_name(cassette.name + ".lock")
    try:
        file = _lock(path, time.monotonic() + patience_s)
    except OSError as error:
        raise CassetteError(path, _reason(error)) from None
    if file is None:
        raise CassetteError(
            cassette,
            f"another process has been recording this cassette for {patience_s:.0f} s",
            hint="wait for its end, or end it",
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _lock(path: Path, deadline: float) -> int | None:
    """Return the locked file; None where it could not be had in time."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed the file that we opened.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(file)
                return None
            time.sleep(_LOOK_S)
        except FileNotFoundError:
            pass
        os.close(file)


_LOOK_S = 0.05
"""Seconds between two looks at a lock that somebody has."""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left on the device"
    return (error.strerror or str(error)).lower()
