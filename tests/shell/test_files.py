"""Facts about cassettes and journals on disk: nothing is lost, nothing overwritten unasked."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import http, looped, post, read, taping
from messages import asks, result, tool, yes
from standin import answering, json_response, response

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.core.format.journal import JournalHeader, decode_line, encode_line
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import cassette_file, files, journal_file, locks
from mrtr_cassette.shell.journal_file import Journal, RecordedJournal, Restored
from mrtr_cassette.shell.publishing import publish_journal

HEADER = JournalHeader("http://x/mcp", "sealed", "2026-11-21T00:00:00+00:00", "keep")


async def journal_of_three(path: Path) -> bytes:
    """Record an ask, its answer and a request of another kind; return the journal's bytes."""
    state = "S" * 40
    replies = (
        json_response(asks(state, "ok")),
        json_response(result({"text": "é"}, id=2)),
        response(b"\xff\xfe"),
    )
    async with taping(path, answering(*replies)) as tape:
        await post(tape.url, tool("x"))
        await post(tape.url, tool("x", id=2, requestState=state, inputResponses=yes("ok")))
        await http("GET", tape.url)
        data = journal_file.journal_path(path).read_bytes()
    path.unlink()
    return data


class Found(NamedTuple):
    """What was found in a journal."""

    exchanges: dict[int, RecordedExchange]
    lost: str | None


def found_in(path: Path) -> Found:
    """Read a journal to its end."""
    with contextlib.closing(RecordedJournal(path)) as journal:
        return Found(dict(journal), journal.lost)


@looped
async def test_every_prefix_of_a_journal_gives_its_whole_lines(tmp_path: Path) -> None:
    """Wherever a journal was cut, its whole lines come back and the torn one is reported."""
    path = tmp_path / "c.json"
    data = await journal_of_three(path)
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    assert len(ends) == 4
    journal = journal_file.journal_path(path)
    for cut in range(ends[0], len(data) + 1):
        journal.write_bytes(data[:cut])
        content = found_in(journal)
        # A line is whole without the newline that ends it.
        whole = sum(end <= cut for end in ends[1:])
        assert sorted(content.exchanges) == list(range(1, whole + 1))
        rest = cut - max(end for end in ends if end <= cut) - 1
        assert (content.lost is not None) == (rest > 0)
        if content.lost is not None:
            assert content.lost.startswith(f"line {whole + 2} is not whole ({rest:,} bytes)")


@looped
async def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    """A line in the middle that can't be read is reported, and those around it are kept."""
    path = tmp_path / "c.json"
    lines = (await journal_of_three(path)).split(b"\n")
    journal = journal_file.journal_path(path)
    for bad in (b"\x00" * 30, b'{"number":2}', b"[]", b"2", lines[2][:-1], lines[2][1:]):
        journal.write_bytes(b"\n".join([*lines[:2], bad, *lines[3:]]))
        content = found_in(journal)
        assert sorted(content.exchanges) == [1, 3]
        assert content.lost is not None
        assert content.lost.startswith("line 3 is not whole")


@looped
async def test_every_damaged_line_is_reported(tmp_path: Path) -> None:
    """Of two damaged lines both are named."""
    path = tmp_path / "c.json"
    lines = (await journal_of_three(path)).split(b"\n")
    journal = journal_file.journal_path(path)
    journal.write_bytes(b"\n".join([lines[0], b"{", lines[2], b"["]))
    content = found_in(journal)
    assert content.lost is not None
    assert "line 2" in content.lost
    assert "line 4" in content.lost


@looped
async def test_the_last_line_about_an_exchange_counts(tmp_path: Path) -> None:
    """A journal that tells of an exchange twice, as of a stream that went on, gives the last state."""
    path = tmp_path / "c.json"
    lines = (await journal_of_three(path)).split(b"\n")
    journal = journal_file.journal_path(path)
    again = encode_line(replace(decode_line(lines[3]), number=1))
    journal.write_bytes(b"\n".join([*lines[:4], again]))
    content = found_in(journal)
    assert sorted(content.exchanges) == [1, 2, 3]
    assert content.exchanges[1].request == content.exchanges[3].request


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


@looped
async def test_a_journal_of_nothing_is_removed(tmp_path: Path) -> None:
    """A journal without exchanges gives no cassette, and is in nobody's way afterwards."""
    path = tmp_path / "c.json"
    Journal(journal_file.journal_path(path), HEADER).close()
    assert publish_journal(path) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_journal_belongs_to_one_recorder(tmp_path: Path) -> None:
    """A journal that is open is another's; one that was left behind is to be recovered."""
    path = tmp_path / "c.json.journal"
    journal = Journal(path, HEADER)
    assert journal_file.is_being_written(path)
    with pytest.raises(CassetteError, match="another recorder is writing"):
        Journal(path, HEADER)
    journal.close()
    assert not journal_file.is_being_written(path)
    with pytest.raises(CassetteError, match=r"mrtr-cassette recover .*c\.json"):
        Journal(path, HEADER)
    assert not journal_file.is_being_written(tmp_path / "none")


def test_a_journal_is_for_its_owner_only(tmp_path: Path) -> None:
    """Nobody else can read a journal."""
    Journal(tmp_path / "j", HEADER).close()
    assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o600


def test_a_journal_takes_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that writes a line in parts gets the rest, too."""
    journal = Journal(tmp_path / "j", HEADER)
    before = (tmp_path / "j").read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:3]))
    journal.append(b"0123456789\n")
    monkeypatch.undo()
    journal.close()
    assert (tmp_path / "j").read_bytes() == before + b"0123456789\n"


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_journal_that_went_is_written_anew(tmp_path: Path, *, is_moved: bool) -> None:
    """What another program removed or moved away stands there again, whole, and belongs to us."""
    path = tmp_path / "j"
    journal = Journal(path, HEADER)
    assert journal.append(b"1\n") is None
    whole = path.read_bytes()
    if is_moved:
        path.rename(tmp_path / "away")
    else:
        path.unlink()
    assert journal.append(b"2\n") is Restored.ANEW
    assert path.read_bytes() == whole + b"2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert journal_file.is_being_written(path)
    assert journal.append(b"3\n") is None
    path.unlink()
    assert journal.close() is Restored.ANEW
    assert path.read_bytes() == whole + b"2\n3\n"


@pytest.mark.parametrize("kept", [0, 10, -3])
def test_a_journal_that_was_cut_goes_on(tmp_path: Path, kept: int) -> None:
    """What is left of a journal that shrank stays readable, and it is said at the next line."""
    path = tmp_path / "j"
    journal = Journal(path, HEADER)
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
    journal = Journal(path, HEADER)
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
    journal = Journal(path, HEADER)
    path.unlink()
    other = Journal(path, HEADER)
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


def test_a_journal_that_syncs_has_each_line_on_the_medium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `syncs` each line, the first included, is synced before `append` returns; else none is."""
    synced: list[bytes] = []
    path = tmp_path / "j"
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    for syncs in (False, True):
        journal = Journal(path, HEADER, syncs=syncs)
        journal.append(b"1\n")
        journal.append(b"2\n")
        journal.close()
        data = path.read_bytes()
        path.unlink()
    assert synced == [data[:-4], data[:-2], data]


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


# --- Publishing ---


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask within a block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def some_cassette(path: Path) -> list[bytes]:
    """Record something, remove the file, and return what it held, in pieces."""
    async with taping(path, answering(response(b"x"))) as tape:
        await http("GET", tape.url)
    data = path.read_bytes()
    path.unlink()
    return [data[:10], data[10:]]


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
async def test_a_publish_that_fails_keeps_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that can't be published is still in its journal, and can be once there is room."""
    path = tmp_path / "c.json"
    data = await journal_of_three(path)
    journal_file.journal_path(path).write_bytes(data)

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


def test_a_file_system_without_locks_is_told_or_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no locks a journal works without, or the error names the file."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with contextlib.suppress(CassetteError):
        Journal(tmp_path / "j", HEADER).close()


@pytest.mark.parametrize("length", [240, 247])
@looped
async def test_a_name_that_a_journal_can_have_can_be_published(tmp_path: Path, length: int) -> None:
    """A long name, as a parametrised test may have, is refused at once or can be published."""
    cassette = await some_cassette(tmp_path / "c.json")
    path = tmp_path / ("n" * (length - 5) + ".json")
    try:
        Journal(journal_file.journal_path(path), HEADER).close()
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


# --- Reading ---


def test_a_missing_cassette_says_how_to_make_one(tmp_path: Path) -> None:
    """Where there is no cassette the message names the file and the command that makes it."""
    path = tmp_path / "c.json"
    with pytest.raises(CassetteError) as caught:
        cassette_file.load_cassette(path)
    assert str(caught.value).startswith(f"{path}: there is no such cassette; record one with: ")


def test_a_cassette_that_was_never_published_says_recover(tmp_path: Path) -> None:
    """Where only the journal of a killed recording stands the message names `recover`."""
    path = tmp_path / "c.json"
    Journal(journal_file.journal_path(path), HEADER).close()
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
