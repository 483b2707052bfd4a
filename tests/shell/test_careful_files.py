"""Facts about journals that went, links, pipes and leftovers: files are written with care."""

import os
import stat
from pathlib import Path

import pytest
from harness import http, looped, read, some_cassette, taping
from standin import answering, response

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import cassette_file, files, journal_file


@pytest.mark.parametrize("is_replaced", [False, True])
@looped
async def test_a_journal_that_went_is_not_published(tmp_path: Path, *, is_replaced: bool) -> None:
    """The run says what happened, and neither publishes nor removes what is not its own."""
    path = tmp_path / "c.json"
    journal = journal_file.journal_path(path)
    async with taping(path, answering(response(b"x"))) as tape:
        journal.unlink()
        if is_replaced:
            journal.write_text("precious")
        await http("GET", tape.url)
    assert not path.exists()
    assert journal.exists() is is_replaced
    if is_replaced:
        assert journal.read_text() == "precious"
    assert tape.session.problem == (
        f"{journal}: another program removed or replaced the journal; what it had is lost"
    )


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
    old, new = (b'{"cassettes": []}', b'{"cassette": "c", "interactions": []}')
    report.write_bytes(old)
    report.chmod(0o640)
    link.symlink_to(report)
    files.write_own(link, files.REPORT, [new])
    assert link.is_symlink()
    assert (report.read_bytes(), stat.S_IMODE(report.stat().st_mode)) == (new, 0o640)
    os.mkfifo(pipe)
    with pytest.raises(CassetteError, match="can't write the report"):
        files.write_own(pipe, files.REPORT, [b"x"])
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_own(pipe, files.REPORT, [b"piped"])
    assert os.read(reader, 100) == b"piped"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    files.write_own(Path("/dev/null"), files.REPORT, [b"x"])
    assert not Path("/dev/null").is_file()


def test_a_report_goes_to_an_open_file(tmp_path: Path) -> None:
    """What the shell has opened for us is added to, and not replaced by another file."""
    with (tmp_path / "out").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        files.write_own(Path(f"/dev/fd/{file.fileno()}"), files.REPORT, [b"report"])
    assert (tmp_path / "out").read_bytes() == b"before\nreport"
