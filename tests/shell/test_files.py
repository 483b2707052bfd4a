"""Facts about reports on disk, and about failures in the system's words."""

import errno
import os
from pathlib import Path

import pytest

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files import reason_of, write_report


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no space left on the device"),
        (OSError(errno.EACCES, "Permission denied"), "permission denied"),
        (OSError("Odd"), "odd"),
    ],
)
def test_a_refusal_is_told_in_the_systems_words(error: OSError, reason: str) -> None:
    """The reason begins small, as it stands behind a colon."""
    assert reason_of(error) == reason


def test_a_report_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    """A report is written whole, whatever stood there."""
    path = tmp_path / "report.xml"
    for report in (b"a longer one", b"short"):
        write_report(path, report)
        assert path.read_bytes() == report


def test_a_report_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    path = tmp_path / "missing" / "report.xml"
    with pytest.raises(CassetteError) as caught:
        write_report(path, b"")
    assert str(caught.value) == f"{path}: can't write the report: no such file or directory"
