"""Facts about publishing a journal: it goes only when the cassette stands."""

import errno
import os
from pathlib import Path

import pytest
from builders import JOURNAL_HEADER, exchange, tool
from messages import text

from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.journal_file import Journal
from mrtr_cassette.shell.publishing import publish_journal


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{", b"[]\n", b"{}\n", b'{"version":1}\n', b"\xff\n", b'"journal"\n']
)
def test_what_is_no_journal_is_refused(tmp_path: Path, data: bytes) -> None:
    """A file whose first line is not a journal's is an error that names it, and stays."""
    path = tmp_path / "c.json"
    journal = journal_file.journal_path(path)
    journal.write_bytes(data)
    with pytest.raises(CassetteError) as caught:
        publish_journal(path)
    assert str(caught.value).startswith(f"{journal}: ")
    assert journal.read_bytes() == data


def test_a_journal_of_nothing_is_removed(tmp_path: Path) -> None:
    """A journal without exchanges gives no cassette, and is in nobody's way afterwards."""
    path = tmp_path / "c.json"
    Journal(journal_file.journal_path(path), JOURNAL_HEADER).close()
    assert publish_journal(path) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_publish_that_fails_keeps_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that can't be published is still in its journal, and can be once there is room."""
    path = tmp_path / "c.json"
    journal = Journal(journal_file.journal_path(path), JOURNAL_HEADER)
    journal.append(encode_line(exchange(tool("x"), text("done"))))
    journal.close()
    data = journal.path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CassetteError):
        publish_journal(path)
    monkeypatch.undo()
    assert journal_file.journal_path(path).read_bytes() == data
    published, lost = publish_journal(path)
    assert (published, lost) == (len(cassette_file.load_cassette(path).interactions), None)
    assert not journal_file.journal_path(path).exists()
