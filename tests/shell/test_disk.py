"""Facts about files: written whole and with care, locked, and never another kind's."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from builders import JOURNAL_HEADER, cassette_of, loaded, tool
from messages import text
from samples import sample

from mrtr_cassette.cli.common import json_report
from mrtr_cassette.core.report.ci import replay_junit, trials_junit
from mrtr_cassette.core.report.comparison import (
    Verification,
    verification_data,
    verification_junit,
    verification_markdown,
)
from mrtr_cassette.core.report.probes import (
    Probing,
    probing_junit,
    probings_data,
    probings_markdown,
)
from mrtr_cassette.core.report.runs import RecordingReport, ReplayReport, summary_data
from mrtr_cassette.core.report.text import PAGE_START
from mrtr_cassette.core.report.trials import TrialsReport, trials_data, trials_markdown
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.disk import change_config
from mrtr_cassette.shell.files.journals import Journal
from mrtr_cassette.shell.files.reports import write_own, write_page

NEW = [b"ne", b"w"]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask within a block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def names_in(folder: Path) -> set[str]:
    """Return the names of all files in a folder, hidden ones too."""
    return {path.name for path in folder.iterdir()}


# Files that are written whole


def test_a_file_has_the_rights_that_the_user_gives(tmp_path: Path) -> None:
    """A new file those of the umask; what was made readable for others, or for nobody, stays so."""
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        path = tmp_path / f"{mask}.json"
        with umask(mask):
            cassettes.publish_cassette(path, NEW, replace=False)

        assert stat.S_IMODE(path.stat().st_mode) == mode

    for mode in (0o640, 0o600, 0o666, 0o444):
        path.chmod(mode)
        cassettes.publish_cassette(path, NEW, replace=True)

        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_leaves_the_umask_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads share it: who sets it to look at it opens the files of the others to anybody."""
    with umask(0o022):
        changed: list[int] = []
        monkeypatch.setattr(os, "umask", changed.append)
        cassettes.publish_cassette(tmp_path / "c.json", NEW, replace=True)
        monkeypatch.undo()

    assert changed == []
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o644


def test_a_backup_is_at_no_time_readable_for_others_than_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's configuration may have keys: its copy comes with its rights, not before them."""
    config = tmp_path / "config.json"
    config.write_bytes(b"{}")
    config.chmod(0o600)
    old_backup = tmp_path / "config.json.mrtr-backup"
    old_backup.touch(0o644)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    backup = change_config(config, lambda _: b"{} ", lambda _: True)

    assert backup == old_backup
    assert (backup.read_bytes(), config.read_bytes()) == (b"{}", b"{} ")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


@pytest.mark.parametrize("has_links", [True, False])
def test_what_exists_is_replaced_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    """It is left alone or replaced whole, also where the file system has no hard links."""
    path = tmp_path / "c.json"

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", refused)

    cassettes.publish_cassette(path, [b"precious"], replace=False)
    with pytest.raises(CassetteError, match="the cassette exists"):
        cassettes.publish_cassette(path, NEW, replace=False)

    assert path.read_bytes() == b"precious"

    cassettes.publish_cassette(path, NEW, replace=True)

    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == {"c.json"}


@pytest.mark.parametrize(
    ("failing", "replace"), [("fsync", False), ("fsync", True), ("fchmod", True)]
)
def test_a_write_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, *, replace: bool
) -> None:
    """On a full disk the old file stays whole, no part of the new one is left, and it is said."""
    path = tmp_path / "c.json"
    if replace:
        path.write_text("precious")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(CassetteError, match="no space left on the device"):
        cassettes.publish_cassette(path, NEW, replace=replace)

    monkeypatch.undo()

    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"] * replace


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_is_written_through_a_link(tmp_path: Path, *, exists: bool) -> None:
    """A link stays one, and what it leads to is written, also where that is not there yet."""
    target = tmp_path / "there" / "real.json"
    link = tmp_path / "c.json"
    target.parent.mkdir()
    link.symlink_to(Path("there") / "real.json")
    if exists:
        target.write_text("old")

    cassettes.publish_cassette(link, NEW, replace=exists)

    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert names_in(target.parent) == {"real.json"}


def test_a_pipe_or_a_device_is_no_cassette(tmp_path: Path) -> None:
    """It is refused, and nothing takes its place."""
    pipe = tmp_path / "pipe"
    link = tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        with pytest.raises(CassetteError, match="is not a regular file"):
            cassettes.publish_cassette(path, NEW, replace=True)

    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()


def test_leftovers_of_killed_runs_go(tmp_path: Path) -> None:
    """What a killed run left of the same file goes with the next write, and nothing else does."""
    left: list[Path] = []

    def pieces() -> Iterator[bytes]:
        left.extend(path for path in tmp_path.iterdir() if path.name.startswith("."))
        yield b""

    for name in ("c.json", "d.json"):
        cassettes.publish_cassette(tmp_path / name, pieces(), replace=True)

    for path in left:
        path.touch()

    cassettes.publish_cassette(tmp_path / "c.json", NEW, replace=True)

    assert names_in(tmp_path) == {"c.json", "d.json", left[1].name}


def test_two_writers_of_a_file_leave_each_other_alone(tmp_path: Path) -> None:
    """What a live writer has begun is no leftover for another one; the last to end has its text."""
    path = tmp_path / "c.json"

    def pieces() -> Iterator[bytes]:
        yield b"fi"
        cassettes.publish_cassette(path, NEW, replace=True)
        assert path.read_bytes() == b"new"
        yield b"rst"

    cassettes.publish_cassette(path, pieces(), replace=True)

    assert path.read_bytes() == b"first"
    assert names_in(tmp_path) == {"c.json"}


def test_a_file_that_is_gone_before_its_lock_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer may remove what has no lock yet."""
    flock = fcntl.flock
    removed: list[Path] = []

    def late(file: IO[bytes], operation: int) -> None:
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()

        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    cassettes.publish_cassette(tmp_path / "c.json", NEW, replace=True)

    assert removed
    assert (tmp_path / "c.json").read_bytes() == b"new"
    assert names_in(tmp_path) == {"c.json"}


def test_a_file_is_written_where_no_locks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems have none; there nothing counts as a leftover."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    cassettes.publish_cassette(tmp_path / "c.json", NEW, replace=True)

    assert (tmp_path / "c.json").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("", "is a directory; name a file"),
        ("file/c.json", "file is not a directory; name another place"),
        ("file/none/c.json", "file is not a directory; name another place"),
    ],
)
def test_a_place_without_a_folder_is_refused(
    tmp_path: Path, place: str, reason: str
) -> None:
    """So is a folder in the place of a file, before anything is written."""
    (tmp_path / "file").touch()
    with pytest.raises(CassetteError, match=reason):
        cassettes.check_replaceable(tmp_path / place)


def test_a_missing_cassette_says_how_to_make_one(tmp_path: Path) -> None:
    """Where only the journal of a killed recording stands, the message names `recover`."""
    path = tmp_path / "c.json"
    with pytest.raises(
        CassetteError, match=f"^{path}: there is no such cassette; record one with"
    ):
        cassettes.load_cassette(path)

    Journal(path, JOURNAL_HEADER).close()
    with pytest.raises(CassetteError, match=f"mrtr-cassette recover {path}"):
        cassettes.load_cassette(path)

    with pytest.raises(CassetteError, match="is a directory"):
        cassettes.load_cassette(tmp_path)


# Reports and pages


def test_a_report_is_written_as_a_careful_program_does(tmp_path: Path) -> None:
    """Through a link, with the file's mode; to a pipe that is read, or to what is open already."""
    report = tmp_path / "r.json"
    link = tmp_path / "link"
    pipe = tmp_path / "pipe"
    new = b'{"cassette": "c", "interactions": []}'
    report.write_bytes(b'{"cassettes": []}')
    report.chmod(0o640)
    link.symlink_to(report)
    write_own(link, [new])

    assert link.is_symlink()
    assert (report.read_bytes(), stat.S_IMODE(report.stat().st_mode)) == (new, 0o640)

    os.mkfifo(pipe)
    with pytest.raises(CassetteError, match="can't be written"):
        write_own(pipe, [b"x"])

    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_own(pipe, [b"piped"])

    assert os.read(reader, 100) == b"piped"

    os.close(reader)

    assert stat.S_ISFIFO(pipe.stat().st_mode)

    with (tmp_path / "out").open("wb", buffering=0) as file:
        file.write(b"before\n")
        write_own(Path(f"/dev/fd/{file.fileno()}"), [b"report"])

    assert (tmp_path / "out").read_bytes() == b"before\nreport"


PROBING = Probing("c.json", "http://h/mcp")
REPORTS = {
    "probe.json": json_report(probings_data([PROBING])),
    "probe.md": probings_markdown([PROBING]),
    "probe.xml": probing_junit([PROBING]),
    "record.json": json_report(summary_data(sample(RecordingReport))),
    "replay.json": json_report(summary_data(sample(ReplayReport))),
    "replay.xml": replay_junit(sample(ReplayReport)),
    "serve.json": json_report(trials_data(sample(TrialsReport))),
    "serve.md": trials_markdown(sample(TrialsReport)),
    "serve.xml": trials_junit(sample(TrialsReport)),
    "verify.json": json_report(verification_data([sample(Verification)])),
    "verify.md": verification_markdown([sample(Verification)]),
    "verify.xml": verification_junit([sample(Verification)]),
}
"""A report in each form that a command writes."""


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_every_form_takes_the_place_of_an_earlier_one(
    name: str, tmp_path: Path
) -> None:
    """A command that is run again writes to the same file."""
    report = REPORTS[name]
    raw = report.encode() if isinstance(report, str) else report
    path = tmp_path / name
    path.write_bytes(raw)
    write_own(path, [raw, b"\n"])

    assert path.read_bytes() == raw + b"\n"


def test_a_page_replaces_a_page_only(tmp_path: Path) -> None:
    """An earlier page is written anew; any other file, and a folder, stays as it is."""
    cassette = loaded(cassette_of((tool("deploy"), text("done"))))
    path = tmp_path / "page.html"
    for _ in range(2):
        write_page(path, cassette)

    assert path.read_text("utf-8").startswith(PAGE_START)

    for file in (tmp_path / "notes.html", tmp_path / "c.json"):
        file.write_text("<!doctype html>\nmine")
        with pytest.raises(
            UsageError, match="exists and is not a report or page of this"
        ):
            write_page(file, cassette)

        assert file.read_text() == "<!doctype html>\nmine"

    for place, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / "c.json" / "page.html", "c.json is not a directory"),
        (tmp_path / f"{'x' * 300}.html", "file name too long"),
        (Path("/proc/page.html"), "can't be written: "),
    ):
        with pytest.raises(CassetteError, match=reason):
            write_page(place, cassette)


@pytest.mark.parametrize("address", ["http://localhost/r.json", "s3://bucket/r.json"])
def test_no_folder_is_made_of_the_address_that_a_report_is_given(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with the name of a scheme would be a surprise; one that is there is taken."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is an address, and reports and pages are"):
        write_own(Path(address), [b"report"])

    assert list(tmp_path.iterdir()) == []

    (tmp_path / Path(address).parts[0]).mkdir()
    write_own(Path(address), [b"report"])

    assert Path(address).read_bytes() == b"report"
