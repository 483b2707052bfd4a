"""Facts about journals: nothing that was written is lost, and one goes only when its cassette stands."""

import contextlib
import errno
import fcntl
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import JOURNAL_HEADER, Answer, converse, exchange, get, retry, tool
from harness import http, looped, taping
from messages import asks, text, yes
from standin import answering, response

from mrtr_cassette.core.cassette.journal import decode_line, encode_line
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.journals import Journal, RecordedJournal, journal_path
from mrtr_cassette.shell.files.publishing import publish_journal


def journal_of_three(path: Path) -> bytes:
    """Return the journal of an ask, its answer and a request of another kind."""
    state, first = "S" * 40, tool("x")
    script = (
        (first, asks("ok", state=state)),
        (retry(first, yes("ok"), state=state), {"text": "é"}),
        (get("/mcp"), Answer((b"\xff\xfe",))),
    )
    journal = Journal(path, JOURNAL_HEADER)
    for each in converse(*script):
        journal.append(encode_line(each))
    journal.close()
    return path.read_bytes()


class Found(NamedTuple):
    """What was found in a journal."""

    exchanges: dict[int, RecordedExchange]
    lost: str | None


def found_in(path: Path) -> Found:
    """Read a journal to its end."""
    with contextlib.closing(RecordedJournal(path)) as journal:
        return Found(dict(journal), journal.lost)


def test_every_prefix_of_a_journal_gives_its_whole_lines(tmp_path: Path) -> None:
    """Wherever a journal was cut, its whole lines come back and the torn one is reported."""
    journal = tmp_path / "c.json.journal"
    data = journal_of_three(journal)
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    assert len(ends) == 4
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


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    """Each line that can't be read is reported, and those around it are kept."""
    journal = tmp_path / "c.json.journal"
    lines = journal_of_three(journal).split(b"\n")
    for bad in (b"\x00" * 30, b'{"number":2}', b"[]", b"2", lines[2][:-1], lines[2][1:]):
        journal.write_bytes(b"\n".join([*lines[:2], bad, *lines[3:]]))
        content = found_in(journal)
        assert sorted(content.exchanges) == [1, 3]
        assert content.lost is not None
        assert content.lost.startswith("line 3 is not whole")
    journal.write_bytes(b"\n".join([lines[0], b"{", lines[2], b"["]))
    lost = found_in(journal).lost
    assert lost is not None
    assert lost.count("is not whole") == 2


def test_the_last_line_about_an_exchange_counts(tmp_path: Path) -> None:
    """A journal that tells of an exchange twice, as of a stream that went on, gives the last state."""
    journal = tmp_path / "c.json.journal"
    lines = journal_of_three(journal).split(b"\n")
    again = encode_line(replace(decode_line(lines[3]), number=1))
    journal.write_bytes(b"\n".join([*lines[:4], again]))
    content = found_in(journal)
    assert sorted(content.exchanges) == [1, 2, 3]
    assert content.exchanges[1].request == content.exchanges[3].request


def test_lines_that_continue_an_exchange_belong_to_it(tmp_path: Path) -> None:
    """What came of an exchange since stands in lines of its own; without a beginning it is lost."""
    journal = tmp_path / "c.json.journal"
    lines = journal_of_three(journal).split(b"\n")
    further = encode_line(decode_line(lines[3]), continues=True).rstrip(b"\n")
    journal.write_bytes(b"\n".join([*lines[:4], further, further]))
    whole = found_in(journal)
    assert whole.lost is None
    assert len(whole.exchanges[3].response.pieces) == 3
    journal.write_bytes(b"\n".join([*lines[:3], further]))
    content = found_in(journal)
    assert sorted(content.exchanges) == [1, 2]
    assert content.lost == ("line 4 continues a response whose beginning is lost; it is left out")


def test_a_journal_belongs_to_one_recorder(tmp_path: Path) -> None:
    """A journal that is open is another's; one that was left behind is to be recovered."""
    path = tmp_path / "c.json.journal"
    journal = Journal(path, JOURNAL_HEADER)
    assert is_locked(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CassetteError, match="another recorder is writing"):
        Journal(path, JOURNAL_HEADER)
    journal.close()
    assert not is_locked(path)
    with pytest.raises(CassetteError, match=r"mrtr-cassette recover .*c\.json"):
        Journal(path, JOURNAL_HEADER)
    assert not is_locked(tmp_path / "none")


def test_a_journal_takes_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that writes a line in parts gets the rest, too."""
    journal = Journal(tmp_path / "j", JOURNAL_HEADER)
    before = (tmp_path / "j").read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:3]))
    journal.append(b"0123456789\n")
    monkeypatch.undo()
    journal.close()
    assert (tmp_path / "j").read_bytes() == before + b"0123456789\n"


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file, which is not left behind: nothing was recorded in it."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(CassetteError, match="/j: no locks available"):
        Journal(tmp_path / "j", JOURNAL_HEADER)
    assert not (tmp_path / "j").exists()


def test_held_journal_is_being_written(tmp_path: Path) -> None:
    """Nobody takes a journal for one that was left behind while it is published."""
    path = tmp_path / "c.json.journal"
    journal = Journal(path, JOURNAL_HEADER)

    with journal.held():
        journal.close()
        assert is_locked(path)
    assert not is_locked(path)


@pytest.mark.parametrize("is_replaced", [False, True])
@looped
async def test_a_journal_that_went_is_not_published(tmp_path: Path, *, is_replaced: bool) -> None:
    """The run says what happened, and neither publishes nor removes what is not its own."""
    path = tmp_path / "c.json"
    journal = journal_path(path)
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


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{", b"[]\n", b"{}\n", b'{"version":1}\n', b"\xff\n", b'"journal"\n']
)
def test_what_is_no_journal_is_refused(tmp_path: Path, data: bytes) -> None:
    """A file whose first line is not a journal's is an error that names it, and stays."""
    path = tmp_path / "c.json"
    journal = journal_path(path)
    journal.write_bytes(data)
    with pytest.raises(CassetteError) as caught:
        publish_journal(path)
    assert str(caught.value).startswith(f"{journal}: ")
    assert journal.read_bytes() == data


def test_a_journal_of_nothing_is_removed(tmp_path: Path) -> None:
    """A journal without exchanges gives no cassette, and is in nobody's way afterwards."""
    path = tmp_path / "c.json"
    Journal(journal_path(path), JOURNAL_HEADER).close()
    assert publish_journal(path) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_publish_that_fails_keeps_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that can't be published is still in its journal, and can be once there is room."""
    path = tmp_path / "c.json"
    journal = Journal(journal_path(path), JOURNAL_HEADER)
    journal.append(encode_line(exchange(tool("x"), text("done"))))
    journal.close()
    data = journal.path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CassetteError):
        publish_journal(path)
    monkeypatch.undo()
    assert journal_path(path).read_bytes() == data
    published, lost = publish_journal(path)
    assert (published, lost) == (len(cassettes.load_cassette(path).interactions), None)
    assert not journal_path(path).exists()
