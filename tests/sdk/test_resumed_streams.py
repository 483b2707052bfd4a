"""Calls whose streams the Python SDK's server lets go, and whose rest its client comes back for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import looped, playing
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from processes import PEERS, listening

from mrtr_cassette import VerifyOptions
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.verifying import verify_cassette

SERVER = (sys.executable, str(PEERS / "server_streams.py"))


async def worked(url: str, *rounds: str) -> dict[str, list[str]]:
    """Call the tool in one session, on all of a round at once; return what each call was told."""
    told: dict[str, list[str]] = {}

    async def work(session: ClientSession, on: str) -> None:
        async def progressed(
            _done: float, _total: float | None, message: str | None
        ) -> None:
            told[on].append(str(message))

        told[on] = []
        done = await session.call_tool("work", {"on": on}, progress_callback=progressed)
        assert isinstance(done.content[0], TextContent)
        told[on].append(done.content[0].text)

    async with (
        streamable_http_client(url) as (reading, writing, *_),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        for streams in rounds:
            await asyncio.gather(*(work(session, on) for on in streams))

    return told


def expected(names: str) -> dict[str, list[str]]:
    """Return what calls on these are told."""
    return {on: ["begun", "done", f"worked on {on}"] for on in names}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run the server."""
    with listening(SERVER) as started:
        yield started.url


@pytest.fixture(scope="module")
def recorded(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record two calls at once."""
    path = tmp_path_factory.mktemp("recorded") / "c.json"

    @looped
    async def record() -> None:
        async with recording(server, path, RecordOptions()) as recording_run:
            assert await worked(recording_run.url, "ab") == expected("ab")

    record()
    return path


@looped
async def test_each_call_gets_its_own_result(recorded: Path) -> None:
    """In the recorded order and in any other, and where some calls are never made."""
    for rounds in (["ab"], ["ba"], ["a", "b"], ["b", "a"], ["a"], ["b"]):
        async with playing(recorded) as replay_run:
            assert await worked(replay_run.url, *rounds) == expected("".join(rounds))
            assert not replay_run.player.tally.misses


@looped
async def test_appended_call_is_followed(tmp_path: Path) -> None:
    """What is recorded is played, what is missing goes to the server, and both are resumed there."""
    path = tmp_path / "c.json"
    for rounds in (["a"], ["a", "b"]):
        with listening(SERVER) as server:
            options = (
                RecordOptions(existing="append") if rounds[1:] else RecordOptions()
            )
            async with recording(server.url, path, options) as recording_run:
                assert await worked(recording_run.url, *rounds) == expected(
                    "".join(rounds)
                )

            assert recording_run.problem is None

    async with playing(path) as replay_run:
        assert await worked(replay_run.url, "ba") == expected("ab")
        assert not replay_run.player.tally.misses


@looped
async def test_verify_sees_the_result(server: str, recorded: Path) -> None:
    """An unchanged server is the same, and one with another result is not."""
    verification = await verify_cassette(recorded, server, VerifyOptions())

    assert verification.is_good, verification

    with listening((*SERVER, "--said", "slept on")) as changed:
        verification = await verify_cassette(recorded, changed.url, VerifyOptions())

        assert verification.counts["text-changed"] == 2
