"""Facts about plays in this process: what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import Request, urlopen

import pytest
from builders import conversation, encode_cassette, tool
from messages import text
from patience import HANGS_S
from playing import JSON, Answer, Serve

from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.runs import MissReport
from mrtr_cassette.core.report.trials import TrialReport
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.options import ServeOptions
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import StoreFile
from mrtr_cassette.shell.http.access import listening
from mrtr_cassette.shell.http.server import serving
from mrtr_cassette.shell.pipes.processes import ProcessGroup
from mrtr_cassette.shell.runs import upstreams
from mrtr_cassette.terms import PLAY_TERMS
from mrtr_cassette.testing.plays import CassettePlay, Plays, Trials
from mrtr_cassette.testing.suite_cassette import TestOutcome

KEPT = (CassettePlay, Player, MissReport, TrialReport)


def alive() -> Counter[str]:
    """Return how many objects there are of those that a play makes."""
    gc.collect()
    found = [type(thing).__name__ for thing in gc.get_objects() if type(thing) in KEPT]
    return Counter(found)


@asynccontextmanager
async def served(plays: Plays) -> AsyncIterator[Serve]:
    """Serve plays on a port of their own."""
    options = ServeOptions(port=0)
    with listening(options) as listener:
        plays.url = listener.url("")
        async with serving(plays.answer_request, listener, options, None):
            yield Serve(cast("Any", SimpleNamespace(url=plays.url)))


def store_cassette(folder: Path) -> None:
    """Put a cassette of a call into a folder."""
    cassette = conversation((tool("get"), text("0"))).cassette()
    (folder / "store.json").write_bytes(encode_cassette(cassette))


def play_and_miss(serve: Serve) -> None:
    """Make a call that is recorded, and one that is not, in a play of its own."""
    play = serve.begin("store", history="strict", on_miss="stop")
    for request in (tool("get"), tool("get", other=1), tool("get")):
        with urlopen(Request(play["url"], request, dict(JSON))) as response:
            response.read()

    assert not serve.end(play)["valid"]


@pytest.mark.parametrize("keeps", [False, True])
def test_only_what_a_report_will_have_is_kept_of_ended_plays(
    tmp_path: Path, *, keeps: bool
) -> None:
    """Without a report a process that serves plays doesn't grow by them."""
    store_cassette(tmp_path)

    async def ended() -> Plays:
        plays = Plays(tmp_path, "none", "", Announcer(), keeps_trials=keeps)
        async with served(plays) as serve:
            for _ in range(3):
                await asyncio.to_thread(play_and_miss, serve)

        await plays.close()

        return plays

    before = alive()
    plays = asyncio.run(ended())

    assert plays.ended_plays.validity_counts == {False: 3}

    kept = {"TrialReport": 3, "MissReport": 3} if keeps else {}

    # The player from which further plays would be made.
    assert alive() - before == Counter(kept, Player=1)


def test_a_play_that_is_being_begun_is_given_up_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end waits for no upstream that is still starting, and stops its process."""
    started: asyncio.Queue[subprocess.Popen[bytes]] = asyncio.Queue()

    async def never_listens(process: subprocess.Popen[bytes], *_: object) -> None:
        started.put_nowait(process)
        await asyncio.Event().wait()

    async def process_at_end() -> subprocess.Popen[bytes]:
        plays = Plays(tmp_path, "once", "", Announcer())
        wanted = {"cassette": "slow", "upstream": ["sleep", "1000", "{port}"]}
        async with served(plays) as serve:
            request = asyncio.create_task(
                asyncio.to_thread(serve.request, "POST", "", wanted)
            )
            process = await started.get()

        async with asyncio.timeout(HANGS_S):
            await plays.close()

        with pytest.raises(ConnectionError):
            await request

        return process

    monkeypatch.setattr(upstreams, "_why_not_listening", never_listens)
    process = asyncio.run(process_at_end())

    assert process.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_play_ends_although_the_client_that_ends_it_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is counted, and the end of all plays waits for its upstream to stop."""
    may_stop = threading.Event()
    stop = ProcessGroup.stop

    async def listens_at_once(*_: object) -> None:
        return None

    async def ended() -> Plays:
        loop = asyncio.get_running_loop()
        is_stopping = asyncio.Event()

        def stop_slowly(group: ProcessGroup, grace_s: float) -> None:
            loop.call_soon_threadsafe(is_stopping.set)
            may_stop.wait(HANGS_S)
            stop(group, grace_s)

        monkeypatch.setattr(ProcessGroup, "stop", stop_slowly)
        plays = Plays(tmp_path, "once", "", Announcer())
        async with served(plays) as serve:
            wanted = {"upstream": ["sleep", "1000", "{port}"]}
            await asyncio.to_thread(partial(serve.begin, "slow", **wanted))
            (play,) = plays.open_plays.values()
            ending = asyncio.create_task(plays.end_play(play, "passed"))
            await is_stopping.wait()
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending

            still_open = dict(plays.open_plays)
            may_stop.set()

            assert still_open == {play.id: play}

        async with asyncio.timeout(HANGS_S):
            await plays.close()

        return plays

    monkeypatch.setattr(upstreams, "_why_not_listening", listens_at_once)
    plays = asyncio.run(ended())

    assert plays.open_plays == {}
    assert plays.ended_plays.outcome_counts.total() == 1


def test_all_forgotten_plays_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although one of them can't be: what the others have started is stopped."""
    store_cassette(tmp_path)
    end = CassettePlay.stop_and_publish
    ended = []

    def failing_end(play: CassettePlay, outcome: TestOutcome) -> dict[str, Any]:
        ended.append(play.id)
        report = end(play, outcome)
        if len(ended) == 1:
            raise CassetteError(tmp_path, "the disk is full")

        return report

    monkeypatch.setattr(CassettePlay, "stop_and_publish", failing_end)

    async def close() -> Plays:
        plays = Plays(tmp_path, "none", "", Announcer())
        async with served(plays) as serve:
            for _ in range(2):
                await asyncio.to_thread(serve.begin, "store")

        with pytest.raises(CassetteError):
            await plays.close()

        return plays

    plays = asyncio.run(close())

    assert len(ended) == 2
    assert plays.open_plays == {}


def test_trials_play_cassettes_of_a_store(tmp_path: Path) -> None:
    """They are read by their whole URLs, and shown without the credentials in these."""
    cassettes = [
        StoreFile("memory://me:hunter2@trials/a.json"),
        StoreFile("memory://trials/b.json"),
    ]
    for number, cassette in enumerate(cassettes):
        recorded = conversation((tool(f"get{number}"), text(str(number)))).cassette()
        cassette.write([encode_cassette(recorded)], replace=True)

    def played(serve: Serve) -> Answer:
        begun = serve.request("POST", headers={})
        for number in range(2):
            request = Request(begun.json["url"], tool(f"get{number}"), dict(JSON))
            with urlopen(request) as response:
                response.read()

        serve.end(begun.json)
        return begun

    async def begun_and_plays() -> tuple[Answer, Plays]:
        given = Trials(cassettes, {}, PLAY_TERMS)
        plays = Plays(tmp_path, "none", "", Announcer(), given)
        async with served(plays) as serve:
            begun = await asyncio.to_thread(played, serve)

        await plays.close()

        return begun, plays

    begun, plays = asyncio.run(begun_and_plays())

    assert begun.status == 201
    assert (
        begun.json["cassette"] == "memory://***@trials/a.json, memory://trials/b.json"
    )
    assert plays.ended_plays.validity_counts == {True: 1}
