"""The answers file on disk."""

from __future__ import annotations

from pathlib import Path

from mrtr_cassette.core.answers.rules import AnswersFile, read_answers
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.files import reason_of


def load_answers(path: Path) -> AnswersFile:
    """Return an answers file.

    Raises:
        UsageError: it can't be read, or a member can't be meant.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {path}: {reason_of(error)}") from None
    return read_answers(raw, str(path))
