"""Reports on disk, and the system's words for failures of any file.

Owns: why the system refused a file operation, and writing reports.
Does not own: journals (`journal_file`), cassettes (`cassette_file`), locks (`locks`).
"""

from __future__ import annotations

import errno
from pathlib import Path

from mrtr_cassette.errors import CassetteError


def reason_of(error: OSError) -> str:
    """Return why the system refused something."""
    if error.errno == errno.ENOSPC:
        return "no space left on the device"
    return (error.strerror or str(error)).lower()


def write_report(path: Path, report: bytes) -> None:
    """Write what a replay came to, in the place of an earlier report.

    Raises:
        CassetteError: it can't be written.
    """
    try:
        path.write_bytes(report)
    except OSError as error:
        raise CassetteError(path, f"can't write the report: {reason_of(error)}") from None
