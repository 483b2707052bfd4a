"""Facts about journals that went, links, pipes and leftovers: files are written with care."""

import os
import stat
from pathlib import Path

import pytest
from builders import JOURNAL_HEADER
from harness import http, looped, read, some_cassette, taping
from standin import answering, response

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import cassette_file, files, journal_file
from mrtr_cassette.shell.journal_file import Journal, Restored
from mrtr_cassette.shell.locks import is_locked


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_journal_that_went_is_written_anew(tmp_path: Path, *, is_moved: bool) -> None:
    """What another program removed or moved away stands there again, whole, and belongs to us."""
    path = tmp_path / "j"
    journal = Journal(path, JOURNAL_HEADER)
    assert journal.append(b"1\n") is None
    whole = path.read_bytes()
    if is_moved:
        path.rename(tmp_path / "away")
    else:
        path.unlink()
    assert journal.append(b"2\n") is Restored.ANEW
    assert path.read_bytes() == whole + b"2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_locked(path)
    assert journal.append(b"3\n") is None
    path.unlink()
    assert journal.close() is Restored.ANEW
    assert path.read_bytes() == whole + b"2\n3\n"


@pytest.mark.parametrize("kept", [0, 10, -3])
def test_a_journal_that_was_cut_goes_on(tmp_path: Path, kept: int) -> None:
    """What is left of a journal that shrank stays readable, and it is said at the next line."""
    path = tmp_path / "j"
    journal = Journal(path, JOURNAL_HEADER)
    header = path.read_bytes()
    for line in (b"1" * 20 + b"\n", b"2" * 20 + b"\n"):
        assert journal.append(line) is None
    size = kept if kept >= 0 else path.stat().st_size + kept
    os.truncate(path, size)
    assert journal.append(b"3\n") is Restored.CUT
    assert journal.append(b"4\n") is None
    lines = path.read_bytes().splitlines(keepends=True)
    assert lines[0] == header
    assert lines[-2:] == [b"3\n", b"4\n"]
    os.truncate(path, 0)
    assert journal.close() is Restored.CUT
    assert path.read_bytes() == header


def test_a_cut_copy_of_a_journal_gives_way_to_the_whole(tmp_path: Path) -> None:
    """An editor that writes a shorter file in the journal's place has no say."""
    path = tmp_path / "j"
    journal = Journal(path, JOURNAL_HEADER)
    journal.append(b"1\n")
    whole = path.read_bytes()
    for size in (0, 10, len(whole) - 1):
        (tmp_path / "copy").write_bytes(whole[:size])
        (tmp_path / "copy").rename(path)
        assert journal.append(b"2\n") is Restored.ANEW
        whole += b"2\n"
        assert path.read_bytes() == whole
    journal.close()


def test_what_took_a_journals_place_is_left_alone(tmp_path: Path) -> None:
    """A file of others, or a journal of a living recorder, is neither written to nor replaced."""
    path = tmp_path / "j"
    journal = Journal(path, JOURNAL_HEADER)
    path.unlink()
    other = Journal(path, JOURNAL_HEADER)
    with pytest.raises(CassetteError, match="another file has taken the journal's place"):
        journal.append(b"1\n")
    other.close()
    path.write_text("precious")
    with pytest.raises(CassetteError, match="another file has taken the journal's place"):
        journal.close()
    assert path.read_text() == "precious"


@pytest.mark.parametrize("is_cut", [False, True])
@looped
async def test_what_becomes_of_a_journal_is_told(tmp_path: Path, *, is_cut: bool) -> None:
    """A journal that went is a note and costs nothing; one that was cut makes the run fail."""
    path = tmp_path / "c.json"
    journal = journal_file.journal_path(path)
    async with taping(path, answering(response(b"x"), response(b"y"))) as tape:
        await http("GET", tape.url)
        if is_cut:
            os.truncate(journal, 0)
        else:
            journal.unlink()
        await http("POST", tape.url, body=b"2")
    count = 1 if is_cut else 2
    assert len(read(path)["interactions"]) == count
    assert bool(tape.session.problem) is is_cut
    said = "cut the journal short; what it had is lost" if is_cut else "has been written anew"
    assert sum(said in line for line in tape.log) == 1


@looped
async def test_what_took_the_place_of_a_journal_is_not_published(tmp_path: Path) -> None:
    """The run says what happened, and neither publishes nor removes what is not its own."""
    path = tmp_path / "c.json"
    journal = journal_file.journal_path(path)
    async with taping(path, answering(response(b"x"))) as tape:
        journal.unlink()
        journal.write_text("precious")
        await http("GET", tape.url)
    assert journal.read_text() == "precious"
    assert not path.exists()
    assert "another file has taken the journal's place" in str(tape.session.problem)


# --- Files that are written whole ---


@looped
async def test_a_cassette_keeps_its_mode(tmp_path: Path) -> None:
    """What the user has made readable for others, or for nobody, stays so."""
    path = tmp_path / "c.json"
    cassette = await some_cassette(path)
    for mode in (0o640, 0o600, 0o666, 0o444):
        path.touch()
        path.chmod(mode)
        cassette_file.publish(path, cassette, replace=True)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.chmod(0o600)


@pytest.mark.parametrize("exists", [False, True])
@looped
async def test_a_cassette_is_written_through_a_link(tmp_path: Path, *, exists: bool) -> None:
    """A link stays one, and what it leads to is written, also where that is not there yet."""
    target, link = tmp_path / "there" / "real.json", tmp_path / "c.json"
    target.parent.mkdir()
    link.symlink_to(Path("there") / "real.json")
    if exists:
        target.write_text("old")
    async with taping(link, answering(response(b"x")), existing="replace") as tape:
        await http("GET", tape.url)
    assert link.is_symlink()
    assert len(read(target)["interactions"]) == 1
    assert [each.name for each in target.parent.iterdir()] == ["real.json"]


@pytest.mark.parametrize("existing", ["keep", "replace", "append"])
@looped
async def test_a_pipe_or_a_device_is_no_cassette(tmp_path: Path, existing: str) -> None:
    """It is refused before anything is recorded, and nothing takes its place."""
    pipe, link = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        with pytest.raises(CassetteError, match="is no regular file"):
            async with taping(path, answering(), existing=existing):
                pass
        with pytest.raises(CassetteError, match="is no regular file"):
            cassette_file.publish(path, [b"x"], replace=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()


@looped
async def test_leftovers_of_killed_runs_go(tmp_path: Path) -> None:
    """The next run removes what a killed one left of the same cassette, and nothing else."""
    path, other = tmp_path / "c.json", tmp_path / "d.json"
    for each in (path, other):
        os.close(files.locked_file_for(each)[0])  # as a killed run leaves it
    handle, living = files.locked_file_for(path)  # as a living run has it
    before = set(tmp_path.iterdir())
    async with taping(path, answering()):
        (gone,) = before - set(tmp_path.iterdir())
    os.close(handle)
    assert living.exists()
    cassette = await some_cassette(tmp_path / "e.json")
    cassette_file.publish(path, cassette, replace=True)
    assert before - set(tmp_path.iterdir()) == {gone, living}
    assert path.read_bytes() == b"".join(cassette)


def test_a_report_is_written_as_a_careful_program_does(tmp_path: Path) -> None:
    """Through a link, with the mode that the file has; a pipe gets it; a pipe without a reader doesn't."""
    report, link, pipe = tmp_path / "r.json", tmp_path / "link", tmp_path / "pipe"
    report.write_text("old")
    report.chmod(0o640)
    link.symlink_to(report)
    files.write_report(link, b"new")
    assert link.is_symlink()
    assert (report.read_bytes(), stat.S_IMODE(report.stat().st_mode)) == (b"new", 0o640)
    os.mkfifo(pipe)
    with pytest.raises(CassetteError, match="can't write the report"):
        files.write_report(pipe, b"x")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_report(pipe, b"piped")
    assert os.read(reader, 100) == b"piped"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    files.write_report(Path("/dev/null"), b"x")
    assert not Path("/dev/null").is_file()


def test_a_report_goes_to_an_open_file(tmp_path: Path) -> None:
    """What the shell has opened for us is added to, and not replaced by another file."""
    with (tmp_path / "out").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        files.write_report(Path(f"/dev/fd/{file.fileno()}"), b"report")
    assert (tmp_path / "out").read_bytes() == b"before\nreport"
