"""Facts about failures in the system's words."""

import errno
import os

import pytest

from mrtr_cassette.shell.files import reason_of


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
