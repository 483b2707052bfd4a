"""Locks between processes that record the same cassette.

Owns: waiting for a lock, and letting go of it.
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
