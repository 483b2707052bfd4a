"""A client's configuration on disk.

Rule: a reader sees the old file or the new one, and what was there before stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files import reason_of, write_whole

_BACKUP: Final = ".mrtr-backup"


def change_config(path: Path, change: Callable[[bytes], bytes]) -> Path:
    """Change a file, and return where its backup stands.

    Raises:
        CassetteError: it can't be read, changed or written.
    """
    backup = path.with_name(path.name + _BACKUP)
    try:
        before = path.read_bytes()
        after = change(before)
        write_whole(backup, [before], replace=True)
        backup.chmod(path.stat().st_mode & 0o777)
        write_whole(path, [after], replace=True)
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None
    return backup
