"""Journals in pieces: each is whole by itself, and together they are what one file would be."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from builders import JOURNAL_HEADER, Conversation, converse, progress, retry, tool
from harness import looped, post, taping
from messages import asks, result, text, tool_call, yes
from patience import HANGS_S
from standin import answering, json_response

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.option_values import Rotation, rotation_of
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell import journal_file
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.journal_file import Journal, closed_pieces, files_of, journal_path
from mrtr_cassette.shell.merging import merge_files
from mrtr_cassette.shell.publishing import close_shipped, publish_journal, recover_journal
from mrtr_cassette.shell.recorded_journal import RecordedJournal

HEADER = replace(JOURNAL_HEADER, redaction=RedactionRules(), recorder="1" * 32, wall_ms=1e12)
CALL = tool("deploy")
STATE = "a state that the server signed"
EXCHANGES = converse(
    (CALL, asks("ok", state=STATE)),
    (retry(CALL, yes("ok"), state=STATE), text("done")),
    (tool("look"), text("seen")),
)


def write(path: Path, *exchanges: RecordedExchange) -> list[Path]:
    """Write a journal with a piece for each exchange, and return its files."""
    journal = Journal(path, HEADER, rotation=Rotation(size=1))
    for exchange in exchanges:
        journal.append(encode_line(exchange))
    journal.close()
    return files_of(path)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return a cassette beside which there is a journal of three pieces, the last one open."""
    path = tmp_path / "c.json"
    write(journal_path(path), *EXCHANGES)
    return path


def numbers_in(*paths: Path) -> list[int]:
    """Return the exchanges of some files, of which nothing may be lost."""
    with closing(RecordedJournal(*paths)) as journal:
        assert journal.lost is None
        return list(journal)


def test_each_piece_is_whole_by_itself(output: Path) -> None:
    """A closed piece has its number in its name, and can be read alone."""
    files = files_of(journal_path(output))

    assert [file.name for file in files] == [
        "c.json.journal.000001",
        "c.json.journal.000002",
        "c.json.journal",
    ]
    assert [numbers_in(file) for file in files] == [[1], [2], [3]]
    assert numbers_in(*files) == [1, 2, 3]


def test_pieces_become_the_cassette_of_one_file(output: Path, tmp_path: Path) -> None:
    """Published where they are, or merged where they were brought, in any order."""
    files = files_of(journal_path(output))
    shutil.copytree(tmp_path, tmp_path / "there")
    merge = merge_files(list(reversed(files)), tmp_path / "merged.json")
    one = tmp_path / "one.json"
    journal = Journal(journal_path(one), HEADER)
    for exchange in EXCHANGES:
        journal.append(encode_line(exchange))
    journal.close()

    assert publish_journal(output) == publish_journal(one) == (2, None)
    assert recover_journal(tmp_path / "there" / "c.json") == (2, None)

    assert merge.notes == ()
    assert output.read_bytes() == one.read_bytes() == (tmp_path / "merged.json").read_bytes()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["c.json"]


def test_piece_is_closed_by_age(tmp_path: Path) -> None:
    """One that is old and has something in it; looking does that, or the next line."""
    now = [0.0]
    clock = replace(CLOCK, now=lambda: now[0])
    path = tmp_path / "c.json.journal"
    journal = Journal(path, HEADER, rotation=rotation_of("10m"), clock=clock)
    now[0] = 600.0
    assert journal.due_s() == 1.0
    journal.rotate_if_due()
    assert closed_pieces(path) == []

    journal.append(encode_line(EXCHANGES[0]))
    journal.rotate_if_due()
    assert len(closed_pieces(path)) == 1
    assert journal.due_s() == 600.0
    journal.append(encode_line(EXCHANGES[1]))
    now[0] = 1300.0
    list(journal.append_parts([encode_line(EXCHANGES[2])]))
    journal.close()

    assert [numbers_in(file) for file in files_of(path)] == [[1], [2], [3]]


def test_stream_goes_on_in_the_next_piece(tmp_path: Path) -> None:
    """Its beginning stands in an earlier one; without that, what came later is lost and told."""
    talk = Conversation()
    number = talk.stream(tool("watch"))
    for done in range(3):
        talk.event(number, progress(1, done))
    talk.end(number, End.OPEN)
    (whole,) = talk.exchanges
    response = whole.response
    assert response is not None
    journal = Journal(tmp_path / "c.json.journal", HEADER, rotation=Rotation(size=1))
    for at, piece in enumerate(response.pieces):
        part = replace(whole, response=replace(response, pieces=(piece,)))
        journal.append(encode_line(part, continues=at > 0))
    journal.close()
    files = files_of(journal.path)

    with closing(RecordedJournal(*files)) as read:
        found = read[1].response
    assert found is not None
    assert found.body == response.body
    merge = merge_files([files[0], files[2]], tmp_path / "merged.json")
    assert merge.notes == (f"{files[0]}: piece 2 of this journal is in none of the files",)
    with closing(RecordedJournal(*files[1:])) as read:
        assert str(read.lost).count("continues a response whose beginning is lost") == 2


def test_pieces_that_were_taken_away_are_named(output: Path, tmp_path: Path) -> None:
    """Nothing is published in part; the last piece is closed, so that it can be taken too."""
    journal = journal_path(output)
    piece = files_of(journal)[0]
    taken = piece.rename(tmp_path / "taken")
    with pytest.raises(CassetteError, match=r"piece 1 of .*c\.json\.journal was taken away"):
        recover_journal(output)

    told = close_shipped(output)

    assert told is not None
    assert told.endswith(f"mrtr-cassette merge {journal}* FILES -o {output}")
    assert not output.exists()
    assert not journal.exists()
    merge = merge_files([*files_of(journal), taken], tmp_path / "merged.json")
    assert (merge.interactions, merge.notes) == (2, ())
    merge = merge_files([taken], tmp_path / "part.json")
    assert merge.notes == (f"{taken}: piece 2 of this journal is in none of the files",)


def test_all_pieces_are_there(output: Path) -> None:
    """Then nothing is closed, and the recording is published."""
    assert close_shipped(output) is None
    assert journal_path(output).exists()


def test_piece_that_lacks_lines_is_told(output: Path, tmp_path: Path) -> None:
    """Its last line says how many there were."""
    first, second, last = files_of(journal_path(output))
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(lines[0] + lines[2])
    second.write_bytes(b"".join(second.read_bytes().splitlines(keepends=True)[:2]))

    merge = merge_files([first, second, last], tmp_path / "merged.json")

    assert merge.notes[0] == (
        f"{first}: c.json.journal.000001: it had 2 lines when it was closed, and has 1; "
        "c.json.journal.000002: its end is missing"
    )


def test_recording_in_pieces_is_not_written_over(output: Path) -> None:
    """Closed pieces are as much of a recording as an open one."""
    journal_path(output).unlink()

    with pytest.raises(CassetteError, match="an earlier recording ended before it was published"):
        Journal(journal_path(output), HEADER)


def test_kill_between_two_pieces_loses_nothing(output: Path) -> None:
    """The next piece is there before the last one has its name."""
    journal = journal_path(output)
    journal.rename(journal_file.spare_path(journal))

    assert recover_journal(output) == (2, None)
    assert [path.name for path in output.parent.iterdir()] == ["c.json"]


def test_piece_that_cannot_be_closed_goes_on(tmp_path: Path) -> None:
    """The line is written all the same."""
    path = tmp_path / "c.json.journal"
    journal = Journal(path, HEADER, rotation=Rotation(size=1))
    journal.append(encode_line(EXCHANGES[0]))
    spare = journal_file.spare_path(path)
    spare.mkdir()

    with pytest.raises(OSError, match=r"directory|permitted"):
        journal.append(encode_line(EXCHANGES[1]))
    spare.rmdir()
    journal.append(encode_line(EXCHANGES[2]))
    journal.close()

    assert [numbers_in(file) for file in files_of(path)] == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("written", "rotation"),
    [
        ("64MB", Rotation(size=64_000_000)),
        ("5kB", Rotation(size=5_000)),
        ("1GB", Rotation(size=10**9)),
        ("30s", Rotation(seconds=30)),
        ("10m", Rotation(seconds=600)),
        ("2h", Rotation(seconds=7200)),
    ],
)
def test_rotation_is_a_size_or_a_time(written: str, rotation: Rotation) -> None:
    """One option says which by its unit."""
    assert RecordOptions(rotate=written).rotation == rotation


@pytest.mark.parametrize("written", ["64", "0s", "-1MB", "1.5m", "10 m", "1d", "MB"])
def test_what_is_no_rotation_is_refused(written: str) -> None:
    """It says what there is."""
    with pytest.raises(UsageError, match="neither a size nor a time"):
        RecordOptions(rotate=written)


def test_what_is_added_to_a_cassette_is_not_rotated() -> None:
    """A piece of it would mean nothing without the cassette."""
    with pytest.raises(UsageError, match="don't go together"):
        RecordOptions(rotate="1m", existing="append")


@looped
async def test_recording_is_published_from_its_pieces(tmp_path: Path) -> None:
    """As from one journal, where nobody has taken them away."""
    calls = 3
    script = answering(*[json_response(result({}, id=each)) for each in range(calls)])
    async with taping(tmp_path / "c.json", script, rotate="1kB") as tape:
        for each in range(calls):
            await post(tape.url, tool_call("x" * 500, id=each))
        assert len(closed_pieces(tmp_path / "c.json.journal")) >= 1
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]
    assert len(load((tmp_path / "c.json").read_bytes(), "c.json").interactions) == calls


@looped
async def test_recording_whose_pieces_were_shipped_says_so(tmp_path: Path) -> None:
    """It writes no cassette, and its last piece can be shipped too."""
    script = answering(*[json_response(result({}, id=each)) for each in range(3)])
    path = tmp_path / "c.json"
    async with taping(path, script, rotate="1kB") as tape:
        for each in range(3):
            await post(tape.url, tool_call("x" * 500, id=each))
        closed_pieces(journal_path(path))[0].rename(tmp_path / "shipped")
    assert tape.session.shipped is not None
    assert tape.session.published is None
    assert not path.exists()
    assert not journal_path(path).exists()
    merge = merge_files(list(tmp_path.iterdir()), path)
    assert (merge.interactions, merge.notes) == (3, ())


@looped
async def test_old_piece_is_closed_while_nothing_passes(tmp_path: Path) -> None:
    """Whoever ships pieces need not wait for the next call."""
    now, asleep, woken = [0.0], asyncio.Event(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        asleep.set()
        await woken.wait()
        woken.clear()

    clock = Clock(lambda: now[0], sleep)
    script = answering(json_response(result({}, id=0)))
    path = tmp_path / "c.json"
    async with taping(path, script, rotate="1h", clock=clock) as tape:
        await post(tape.url, tool_call("x", id=0))
        now[0] = 3600.0
        asleep.clear()
        woken.set()
        await asyncio.wait_for(asleep.wait(), HANGS_S)
        assert len(closed_pieces(journal_path(path))) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["c.json"]
