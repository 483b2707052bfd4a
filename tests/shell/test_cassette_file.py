"""Facts about cassettes on disk: none is half written, and none overwritten unasked."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import JOURNAL_HEADER
from harness import looped, read, some_cassette

from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.journal_file import Journal


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask within a block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
@looped
async def test_a_cassette_has_the_rights_that_the_user_gives(
    tmp_path: Path, mask: int, mode: int
) -> None:
    """A published cassette has the rights of any new file under the user's umask."""
    cassette = await some_cassette(tmp_path / "c.json")
    with umask(mask):
        cassette_file.publish(tmp_path / "c.json", cassette, replace=False)
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == mode


@looped
async def test_what_exists_is_replaced_only_when_asked(tmp_path: Path) -> None:
    """Publishing leaves an existing file alone, or replaces it whole."""
    path = tmp_path / "c.json"
    cassette = await some_cassette(path)
    path.write_text("precious")
    with pytest.raises(CassetteError, match="the cassette exists"):
        cassette_file.publish(path, cassette, replace=False)
    assert path.read_text() == "precious"
    cassette_file.publish(path, cassette, replace=True)
    assert path.read_bytes() == b"".join(cassette)
    assert [one.name for one in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize("failing", ["fsync", "fchmod"])
@pytest.mark.parametrize("replace", [False, True])
@looped
async def test_a_publish_that_fails_leaves_everything_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    *,
    replace: bool,
) -> None:
    """On a full disk the old cassette stays whole, no part of the new one is left, and it is said."""
    path = tmp_path / "c.json"
    cassette = await some_cassette(path)
    if replace:
        path.write_text("precious")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(CassetteError, match="no space left on the device"):
        cassette_file.publish(path, cassette, replace=replace)
    monkeypatch.undo()
    assert [one.read_text() for one in tmp_path.iterdir()] == ["precious"] * replace


@looped
async def test_a_file_system_without_hard_links_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no hard links a cassette is published, and what exists still refused."""
    path = tmp_path / "c.json"
    cassette = await some_cassette(path)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    cassette_file.publish(path, cassette, replace=False)
    assert path.read_bytes() == b"".join(cassette)
    with pytest.raises(CassetteError, match="the cassette exists"):
        cassette_file.publish(path, cassette, replace=False)


@pytest.mark.parametrize("length", [240, 247])
@looped
async def test_a_name_that_a_journal_can_have_can_be_published(tmp_path: Path, length: int) -> None:
    """A long name, as a parametrised test may have, is refused at once or can be published."""
    cassette = await some_cassette(tmp_path / "c.json")
    path = tmp_path / ("n" * (length - 5) + ".json")
    try:
        Journal(journal_file.journal_path(path), JOURNAL_HEADER).close()
    except CassetteError:
        return
    cassette_file.publish(path, cassette, replace=False)
    assert path.read_bytes() == b"".join(cassette)


@looped
async def test_a_cassette_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """Writing what was read gives the same bytes, in the order that people read."""
    path = tmp_path / "c.json"
    cassette = await some_cassette(path)
    cassette_file.publish(path, cassette, replace=False)
    data = path.read_bytes()
    cassette_file.publish(path, [dump(cassette_file.load_cassette(path))], replace=True)
    assert path.read_bytes() == data
    assert data.endswith(b"}\n")
    tree = read(path)
    assert [*tree][:2] == ["$schema", "version"]
    assert [*tree][-1] == "recording"


def test_a_missing_cassette_says_how_to_make_one(tmp_path: Path) -> None:
    """Where there is no cassette the message names the file and the command that makes it."""
    path = tmp_path / "c.json"
    with pytest.raises(CassetteError) as caught:
        cassette_file.load_cassette(path)
    assert str(caught.value).startswith(f"{path}: there is no such cassette; record one with: ")


def test_a_cassette_that_was_never_published_says_recover(tmp_path: Path) -> None:
    """Where only the journal of a killed recording stands the message names `recover`."""
    path = tmp_path / "c.json"
    Journal(journal_file.journal_path(path), JOURNAL_HEADER).close()
    with pytest.raises(CassetteError, match=f"mrtr-cassette recover {path}"):
        cassette_file.load_cassette(path)


def test_a_directory_is_no_cassette(tmp_path: Path) -> None:
    """A directory in the place of a cassette is refused for reading and for writing."""
    with pytest.raises(CassetteError, match="is a directory"):
        cassette_file.load_cassette(tmp_path)
    with pytest.raises(CassetteError, match="is a directory; name a file"):
        cassette_file.check_writable(tmp_path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A cassette in a directory that doesn't exist is refused, and the directory is named."""
    with pytest.raises(CassetteError, match=f"there is no directory {tmp_path / 'none'}"):
        cassette_file.check_writable(tmp_path / "none" / "c.json")
    (tmp_path / "file").touch()
    with pytest.raises(CassetteError, match="there is no directory"):
        cassette_file.check_writable(tmp_path / "file" / "c.json")
