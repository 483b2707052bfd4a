"""Facts about journals on disk: one recorder has one, and it goes only when its cassette stands."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from builders import JOURNAL_HEADER, Answer, exchange, rpc, tool
from harness import http, looped, taping
from messages import message, text
from standin import answering, event, response

from mrtr_cassette.core.cassette.journal import (
    JournalContent,
    decode_journal,
    encode_journal_line,
)
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import EVENT_STREAM, End, Request
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files import journals
from mrtr_cassette.shell.files.cassettes import journal_path, load_cassette
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.journals import Journal, Publication, publish_journal
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.runs.journaling import (
    ExchangeRecording,
    RecordedServer,
    journaling,
)


def test_a_journal_belongs_to_one_recorder(tmp_path: Path) -> None:
    """A journal that is open is another's; one that was left behind is to be recovered."""
    cassette = tmp_path / "c.json"
    path = tmp_path / "c.json.journal"
    journal = Journal(cassette, JOURNAL_HEADER)

    assert is_locked(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    with pytest.raises(CassetteError, match="another recorder is writing"):
        Journal(cassette, JOURNAL_HEADER)

    journal.close()

    assert not is_locked(path)

    with pytest.raises(CassetteError, match=r"mrtr-cassette recover .*c\.json"):
        Journal(cassette, JOURNAL_HEADER)

    assert not is_locked(tmp_path / "none")


def test_who_looks_for_a_lock_is_not_taken_for_its_holder(tmp_path: Path) -> None:
    """Several processes may look at a file at the same moment."""
    path = tmp_path / "c.json.journal"
    path.touch()
    with path.open("rb") as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)

        assert not is_locked(path)


def test_one_recorder_takes_the_place_of_a_journal_of_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another one finds it too, it doesn't remove the journal that has come in its place."""
    cassette = tmp_path / "c.json"
    left = Journal(cassette, JOURNAL_HEADER)
    left.append(encode_journal_line(exchange(tool("x"), Answer((b"x",), (), 404))))
    left.close()
    started: list[Journal] = []

    def start() -> None:
        with suppress(CassetteError):
            started.append(Journal(cassette, JOURNAL_HEADER))

    def decode_after_another_start(data: bytes, shown: str) -> JournalContent:
        monkeypatch.undo()
        start()
        return decode_journal(data, shown)

    monkeypatch.setattr(journals, "decode_journal", decode_after_another_start)
    start()

    (journal,) = started
    journal.check_in_place()
    journal.close()


def test_a_journal_takes_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that writes a line in parts gets the rest, too."""
    journal = Journal(tmp_path / "j", JOURNAL_HEADER)
    before = journal.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:3]))
    journal.append(b"0123456789\n")
    monkeypatch.undo()
    journal.close()

    assert journal.path.read_bytes() == before + b"0123456789\n"


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file, which is not left behind: nothing was recorded in it."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(CassetteError, match=r"/j\.journal: no locks available"):
        Journal(tmp_path / "j", JOURNAL_HEADER)

    assert not (tmp_path / "j.journal").exists()


@looped
async def test_a_journal_of_another_recorder_is_not_published(tmp_path: Path) -> None:
    """Where the file went, and the next recorder began its own, that one keeps what it has."""
    path = tmp_path / "c.json"
    tape = taping(path, answering(response(b"x")))
    await http("GET", (await tape.__aenter__()).url)
    journal_path(path).unlink()
    of_another_program = Journal(path, JOURNAL_HEADER)
    with pytest.raises(
        CassetteError, match="another program removed or replaced the journal"
    ):
        await tape.__aexit__(None, None, None)

    assert (path.exists(), is_locked(journal_path(path))) == (False, True)

    of_another_program.close()


def test_a_journal_of_nothing_is_removed(tmp_path: Path) -> None:
    """A journal without exchanges gives no cassette; what is no journal stays, and is named."""
    path = tmp_path / "c.json"
    journal_path(path).write_bytes(b"{}\n")
    with pytest.raises(
        CassetteError, match=f"^{journal_path(path)}: its first line is not"
    ):
        publish_journal(path)

    journal_path(path).unlink()
    Journal(path, JOURNAL_HEADER).close()

    assert publish_journal(path) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_publish_that_fails_keeps_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that can't be published is still in its journal, and can be once there is room."""
    path = tmp_path / "c.json"
    journal = Journal(path, JOURNAL_HEADER)
    journal.append(encode_journal_line(exchange(tool("x"), text("done"))))
    journal.close()
    data = journal.path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        CassetteError, match=f"no space left on the device; .* recover {path}"
    ):
        publish_journal(path)

    monkeypatch.undo()

    assert journal_path(path).read_bytes() == data

    published, lost = publish_journal(path)

    assert len(load_cassette(path).interactions) == 1
    assert (published, lost) == (Publication(1, exchanges=1), None)
    assert not journal_path(path).exists()


def test_who_looks_at_a_recording_writes_nothing_to_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test looks in its own thread, in which what comes at the same time would be lost."""
    path = tmp_path / "c.json"
    token = "k3Jx9QpLm2Zt8VwR5YbN7cDf"
    get = Request("GET", "/mcp", (("Accept", EVENT_STREAM),), b"")
    with journaling(
        path, RecordOptions(), Announcer(), None, None, RecordedServer("http://x/mcp")
    ) as recording_run:
        listening = ExchangeRecording(recording_run, get)
        listening.response_started(200, (("Content-Type", EVENT_STREAM),))
        listening.response_bytes(
            event(message("notifications/x", {"at": token}, id=None))
        )
        login = rpc("tools/call", {"arguments": {"password": token}})
        naming = ExchangeRecording(recording_run, Request("POST", "/mcp", (), login))
        naming.response_started(202, ())
        naming.response_ended(End.COMPLETE)
        without_repeated_secrets = ExchangeSealer.without_repeated_secrets

        def late(
            sealer: ExchangeSealer, exchange: RecordedExchange
        ) -> RecordedExchange:
            if exchange.number == 1:
                late_event = event(message("notifications/late", id=None))
                listening.response_bytes(late_event)

            return without_repeated_secrets(sealer, exchange)

        monkeypatch.setattr(ExchangeSealer, "without_repeated_secrets", late)
        seen = recording_run.cassette_so_far()
        monkeypatch.undo()
        listening.response_ended(End.OPEN)

    assert seen is not None
    for cassette in (seen, load_cassette(path)):
        listened, _ = cassette.exchanges

        assert listened.response is not None
        assert token.encode() not in listened.response.body

    assert b"notifications/late" in listened.response.body
