"""This machine: files as a careful program writes them, locks between processes, and clocks."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Final

from mrtr_cassette.errors import CassetteError

_BACKUP_SUFFIX: Final = ".mrtr-backup"


def system_reason(error: OSError) -> str:
    """Return why the system refused something."""
    if error.errno == errno.ENOSPC:
        return "no space left on the device"

    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def check_file_name(path: Path) -> None:
    """Make sure that a file may have this name, whether its folder exists or not.

    Raises:
        CassetteError: it is too long, or has a NUL.
    """
    if "\0" in str(path):
        raise CassetteError(path, "no name of a file has a NUL")

    longest_part = max(len(os.fsencode(part)) for part in (*path.parts, ""))
    if longest_part > _MOST_BYTES_OF_PART or len(os.fsencode(path)) > _MOST_BYTES:
        raise CassetteError(path, "file name too long")


_MOST_BYTES_OF_PART: Final = 255
_MOST_BYTES: Final = 4095
"""Bytes of a path, and of the name of a file or folder in it, that systems take."""


def check_writable(path: Path) -> None:
    """Make sure that a file can be written to this place; a missing folder is made with it.

    Raises:
        CassetteError: its folder is none and can't be made, or it is itself a folder.
    """
    if path.is_dir():
        raise CassetteError(path, "is a directory", hint="name a file")

    folder = real_path(path).parent if path.is_symlink() else path.parent
    existing_folder = folder
    while not os.path.lexists(existing_folder):
        existing_folder = existing_folder.parent

    if not existing_folder.is_dir():
        hint = "name another place"
        raise CassetteError(path, f"{existing_folder} is not a directory", hint=hint)

    if existing_folder != folder and not os.access(existing_folder, os.W_OK | os.X_OK):
        reason = f"the directory {folder} doesn't exist and can't be made in {existing_folder}"
        raise CassetteError(path, reason, hint="name another place")


def check_link_stays_in_folder(path: Path) -> None:
    """Make sure that a file which came with a stranger's folder leads to no file elsewhere.

    Raises:
        CassetteError: it is a symbolic link that leads out of its folder.
    """
    if path.is_symlink() and not real_path(path).is_relative_to(real_path(path.parent)):
        reason = "is a symbolic link that leads out of its folder"
        hint = "name the file that it leads to, or delete the link"
        raise CassetteError(path, reason, hint=hint)


def real_path(path: Path) -> Path:
    """Return where a path leads, through links; the last of them may lead to nothing."""
    return Path(os.path.realpath(path))


def write_whole(
    path: Path, pieces: Iterable[bytes], *, replace: bool, like: Path | None = None
) -> None:
    """Write a file, through links and with its mode; a reader sees the old one or the new one.

    Its folder is made where there is none. It gets the mode of another file, `like`, if that is
    given.

    Raises:
        FileExistsError: it exists, and is not to be replaced.
        OSError: it could not be written.
    """
    target = real_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    mode = _mode_if_exists(like or target)
    # What will be private is so from the beginning; a new file gets what the umask leaves of this.
    file, temporary = _locked_temporary(target, 0o666 if mode is None else 0o600)
    try:
        with file:
            file.writelines(pieces)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)

            os.fsync(file.fileno())
            if replace:
                temporary.replace(target)
            else:
                _link_if_free(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what runs left that were killed while they wrote a file.

    A live writer has a lock on what it writes.
    """
    target = real_path(path)
    for leftover in target.parent.glob(f"{_prefix_for(target)}*"):
        with suppress(OSError), leftover.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def _locked_temporary(target: Path, mode: int) -> tuple[BinaryIO, Path]:
    """Create the temporary file of a file, and lock it so that nobody takes it for a leftover."""
    while True:
        temporary = target.parent / f"{_prefix_for(target)}{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        file = os.fdopen(descriptor, "wb")
        # A file system without locks has no leftovers that can be told from what is being written.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)

        # Another writer may have removed it before it was locked.
        if temporary.exists():
            return file, temporary

        file.close()


def _prefix_for(target: Path) -> str:
    """Return how the names of a file's temporary files begin, which is the same in every run."""
    # A name of the greatest length has to fit in.
    return f".mrtr-cassette-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]}-"


def _link_if_free(temporary: Path, target: Path) -> None:
    """Give a file its final path; raise a `FileExistsError` if a file is there already."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links; there the look and the move are two steps.
        if target.exists():
            raise FileExistsError from None

        temporary.replace(target)


def _mode_if_exists(path: Path) -> int | None:
    """Return the permission bits of a file; None if there is none."""
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777

    return None


def change_config(
    path: Path, change: Callable[[bytes], bytes], is_own: Callable[[bytes], bool]
) -> Path:
    """Change a client's configuration; return where the backup of the user's own one stands.

    Raises:
        CassetteError: it can't be read or written.
    """
    try:
        old_content = path.read_bytes()
        new_content = change(old_content)
        # Only now it is a file, which has a name.
        backup = path.with_name(path.name + _BACKUP_SUFFIX)
        if is_own(old_content):
            write_whole(backup, [old_content], replace=True, like=path)

        write_whole(path, [new_content], replace=True)
    except OSError as error:
        raise CassetteError(path, system_reason(error)) from None

    return backup


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock of a file, which need not be there."""
    with suppress(OSError), path.open("rb") as file:
        try:
            # Several may look at the same time.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True

    return False


def is_free_within(path: Path, seconds: float) -> bool:
    """Wait until no living process holds the lock of a file; return whether that was in time."""

    def wait_for_lock() -> None:
        with suppress(OSError), path.open("rb") as file:
            # Several processes may share it, and all of them have to be gone.
            fcntl.flock(file, fcntl.LOCK_EX)

    # Nothing ends the wait for a lock but the lock: a thread may be left behind.
    lock_waiter = Thread(target=wait_for_lock, daemon=True)
    lock_waiter.start()
    lock_waiter.join(seconds)

    return not lock_waiter.is_alive()


def monotonic() -> float:
    """Return the seconds of a clock that only goes forward.

    A test that freezes the time replaces `time.monotonic`, by which nothing would ever be waited
    for again; no library for that replaces this clock.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class UnfrozenLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers run while a test has frozen the time."""

    def time(self) -> float:
        """Return the loop's time in seconds."""
        return monotonic()


@dataclass(frozen=True, slots=True)
class Clock:
    """A monotonic clock in seconds, a way to wait, and the seconds since 1970."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    wall: Callable[[], float] = time.time


CLOCK: Final = Clock(monotonic, asyncio.sleep)
"""This machine's."""
