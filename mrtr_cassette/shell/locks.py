"""Locks between processes that record the same cassette."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files import reason_of


@contextmanager
def locked(
    cassette: Path, patience_s: float, tell: Callable[[str], None] = lambda _text: None
) -> Iterator[None]:
    """Lock a cassette for recording until the block ends.

    The lock is a file beside the cassette, which is removed when the block ends. The lock file of a
    dead process blocks no other process. While a process waits for a lock, the files of those that
    it holds name it.

    Args:
        tell: takes a line about a wait that lasts.

    Raises:
        CassetteError: another process holds the lock for too long, or waits for one that this
            process holds; or the lock can't be made.
    """
    path = _lock_of(cassette)
    try:
        _held[path] = _lock(cassette, patience_s, tell)
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None
    finally:
        _note(b"")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(_held.pop(path))


def _lock_of(cassette: Path) -> Path:
    # Tests name one file in several ways, and processes find each other by it.
    return cassette.with_name(cassette.name + ".lock").resolve()


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock of a file, which need not be there."""
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


def _lock(cassette: Path, patience_s: float, tell: Callable[[str], None]) -> int:
    """Return the locked file of a cassette."""
    path, began = _lock_of(cassette), time.monotonic()
    is_told = False
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held it may have removed the file that this one opened.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(file)
            waited_s = time.monotonic() - began
            _give_up(cassette, waited_s, patience_s)
            if waited_s > _SILENT_S and not is_told:
                is_told = True
                tell(f"waiting for {cassette}, which another process records")
            time.sleep(_LOOK_S)
            continue
        os.close(file)


def _give_up(cassette: Path, waited_s: float, patience_s: float) -> None:
    """Raise if waiting for a cassette any longer makes no sense.

    Of processes that wait for each other only that one gives up which waits for the last name.
    """
    if waited_s > patience_s:
        raise CassetteError(
            cassette,
            f"another process has been recording this cassette for {patience_s:.0f} s",
            hint="wait for its end, or end it",
        )
    path = _lock_of(cassette)
    _note(os.fsencode(path))
    circle = [path]
    while circle[-1] not in _held:
        try:
            awaited = circle[-1].read_bytes()
        except OSError:
            return
        if not awaited or Path(os.fsdecode(awaited)) in circle:
            return
        circle.append(Path(os.fsdecode(awaited)))
    if path == max(circle):
        raise CassetteError(
            cassette,
            "another process records this cassette, and waits for "
            f"{circle[-1].with_suffix('')}, which this one records",
            hint="open them in the same order in each test",
        )


def _note(awaited: bytes) -> None:
    """Write into the lock files that this process holds which one it waits for."""
    for file in _held.values():
        os.ftruncate(file, 0)
        os.pwrite(file, awaited, 0)


_held: Final[dict[Path, int]] = {}
"""The locks of this process."""
_SILENT_S: Final = 1.0
"""Seconds of waiting before it is told."""
_LOOK_S: Final = 0.05
"""Seconds between two attempts to lock."""
