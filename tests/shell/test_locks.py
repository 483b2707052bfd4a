"""Facts about locks: one process at a time records a cassette."""

import fcntl
import os
from pathlib import Path

import pytest

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import locks


def test_a_lock_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    """Who can't have it in time is told; when the block has ended, nothing is left of it."""
    cassette = tmp_path / "c.json"
    with (
        locks.locked(cassette, 10),
        pytest.raises(CassetteError, match="another process has been recording this cassette for"),
        locks.locked(cassette, 0),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_a_lock_says_so(tmp_path: Path) -> None:
    """After a second it is told what is waited for, once; the lock is had as soon as it is free."""
    cassette, told = tmp_path / "c.json", []
    held = os.open(tmp_path / "c.json.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)

    def let_go(text: str) -> None:
        told.append(text)
        os.close(held)

    with locks.locked(cassette, 300, let_go):
        assert told == [f"waiting for {cassette}, which another process records"]


def test_a_lock_that_a_dead_process_left_holds_nobody_up(tmp_path: Path) -> None:
    """The file alone is no lock."""
    (tmp_path / "c.json.lock").touch()
    with locks.locked(tmp_path / "c.json", 0):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_went_meanwhile_is_asked_for_again(tmp_path, monkeypatch) -> None:
    """What was locked has to be what stands there now, or another process could have it too."""
    cassette, lock = tmp_path / "c.json", fcntl.flock
    stolen = []

    def flock(file: int, operation: int) -> None:
        lock(file, operation)
        if not stolen:
            stolen.append(file)
            (tmp_path / "c.json.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with locks.locked(cassette, 0):
        assert (tmp_path / "c.json.lock").exists()
    assert stolen


def test_a_lock_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    """The reason names the file."""
    with (
        pytest.raises(CassetteError, match=r"c\.json\.lock: no such file or directory"),
        locks.locked(tmp_path / "missing" / "c.json", 0),
    ):
        pass
