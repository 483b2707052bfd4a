"""Files as a careful program writes them, and the system's words for failures of any file.

Rule: a link stays a link, what is no file is never replaced by one, and a file keeps its mode. What
is written for people takes the place of its own kind only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mrtr_cassette.errors import CassetteError, UsageError


class WrittenKind(NamedTuple):
    """What is written for people.

    Attributes:
        noun: how messages name it.
        start: how a file of this kind begins.
    """

    noun: str
    start: re.Pattern[bytes]


REPORT: Final = WrittenKind(
    "report",
    re.compile(
        rb"""\{\s*"cassette":\s*"(?:[^"\\]|\\.)*",\s*"interactions":
        |\{\s*"cassettes":\s*\[\s*(?:\]|\{\s*"cassette":)
        |<\?xml[^>]*>\s*<testsuites\ name="mrtr-cassette\ (?:replay|verify)"
        |\#\#\#\ [^\n]*\ against\ [^\n]*:\ \d+\ interactions?:\ """,
        re.VERBOSE,
    ),
)
"""What a replay or a verification came to, in any of its formats."""
_BEGINNING: Final = 32 * 1024
"""Bytes of a file by which its kind is known; a report begins with the path of a cassette."""


def reason_of(error: OSError) -> str:
    """Return why the system refused something."""
    if error.errno == errno.ENOSPC:
        return "no space left on the device"
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def check_place(path: Path, kind: WrittenKind) -> None:
    """Make sure that a report or a page can be written to this place.

    Raises:
        CassetteError: there is no folder for it, or the system refuses the name.
        UsageError: a file of another kind is there.
    """
    try:
        check_writable(path)
        if not (_can_be_replaced(path) and path.exists()):
            return
        with path.open("rb") as file:
            start = file.read(_BEGINNING)
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None
    if start and not kind.start.match(start):
        raise UsageError(
            f"{path} exists and is no {kind.noun} of this program", hint="name another file"
        )


def write_own(path: Path, kind: WrittenKind, pieces: Iterable[bytes]) -> None:
    """Write a report or a page, in the place of an earlier one, or to a pipe or a device.

    Raises:
        CassetteError: it can't be written.
        UsageError: a file of another kind is there.
    """
    check_place(path, kind)
    try:
        if _can_be_replaced(path):
            write_whole(path, pieces, replace=True)
            return
        # A pipe that nobody reads is an error at once, and not a wait without an end.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        os.set_blocking(handle, True)
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise CassetteError(path, f"can't write the {kind.noun}: {reason_of(error)}") from None


def check_writable(path: Path) -> None:
    """Make sure that a file can be written to this place.

    Raises:
        CassetteError: its directory is missing or no directory, or it is itself one.
    """
    if path.is_dir():
        raise CassetteError(path, "is a directory", hint="name a file")
    folder = real_path(path).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise CassetteError(path, f"there is no directory {folder}", hint="create it first")


_DESCRIPTOR = re.compile("/dev/(fd/[0-9]+|stdin|stdout|stderr)|/proc/[^/]+/fd/[0-9]+")


def _can_be_replaced(path: Path) -> bool:
    """Tell whether a path is one of a file, or of nothing, and not one of what is open already."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True
    return is_file and not _DESCRIPTOR.fullmatch(os.path.abspath(path))  # noqa: PTH100  links stay


def write_whole(path: Path, pieces: Iterable[bytes], *, replace: bool) -> None:
    """Write a file so that a reader sees the old one or the new one, through links.

    Args:
        replace: an existing file is replaced, and its mode is kept; else it is left alone.

    Raises:
        FileExistsError: it exists, and is not to be replaced.
        OSError: it could not be written.
    """
    target = real_path(path)
    remove_leftovers(target)
    handle, temporary = locked_file_for(target)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fchmod(file.fileno(), _mode_of(target))
            os.fsync(file.fileno())
            if replace:
                temporary.replace(target)
            else:
                _put_where_nothing_is(temporary, target)
        _sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def real_path(path: Path) -> Path:
    """Return where a path leads, through links; the last of them may lead to nothing."""
    return Path(os.path.realpath(path))


def remove_leftovers(target: Path) -> None:
    """Remove the files of runs that were killed while they wrote `target`."""
    for leftover in target.parent.glob(f"{_prefix_for(target)}*"):
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                # A living run has its file locked.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
            finally:
                os.close(handle)


def _prefix_for(target: Path) -> str:
    # A name of the greatest length has to fit in.
    return f".mrtr-cassette-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]}-"


def locked_file_for(target: Path) -> tuple[int, Path]:
    """Make a file beside another one, locked, so that no other run takes it for a leftover."""
    while True:
        handle, name = tempfile.mkstemp(prefix=_prefix_for(target), dir=target.parent)
        # Some file systems have no locks, and so no leftovers are removed from them.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        temporary = Path(name)
        if temporary.exists():
            return handle, temporary
        os.close(handle)


def _put_where_nothing_is(temporary: Path, target: Path) -> None:
    """Give a file its name, unless something else has it."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links; there the look and the move are two steps.
        if target.exists():
            raise FileExistsError from None
        temporary.replace(target)


def _mode_of(target: Path) -> int:
    """Return the mode that a file has, or that a new one gets."""
    try:
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
