"""Locks between processes that record the same cassette.

Owns: waiting for a lock, letting go of it, and telling whether anybody holds one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files import reason_of


@contextmanager
def locked(cassette: Path, patience_s: float) -> Iterator[None]:
    """Lock a cassette for recording until the block ends.

    The lock is a file beside the cassette, which is removed when the block ends. The lock file of a
    dead process blocks no other process.

    Raises:
        CassetteError: another process holds the lock for too long, or it can't be made.
    """
    path = cassette.with_name(cassette.name + ".lock")
    try:
        file = _lock(path, time.monotonic() + patience_s)
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None
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


def _lock(path: Path, deadline: float) -> int | None:
    """Return the locked file, or None if another process holds it until the deadline."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held it may have removed the file that this one opened.
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
"""Seconds between two attempts to lock."""
