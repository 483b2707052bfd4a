"""Clients of the Python SDK whose requests go to two replicas in turns."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from harness import looped, playing
from in_turns import run_flows
from peers import client_python as peer
from processes import CASSETTES, TRANSCRIPTS


async def numbered(urls: list[str], number: int) -> None:
    """Have every flow; each line of the transcript begins with the client's number."""
    peer.PREFIX.set((str(number),))
    await run_flows(urls)


@looped
async def test_clients_see_the_same_whichever_replica_they_reach(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two clients that change the replica with every request print what one server made them."""
    cassette = CASSETTES / "python-sdk.json"
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(playing(cassette, stateless=True)) for _ in range(2)
        ]
        urls = [replica.url for replica in replicas]
        await asyncio.gather(*(numbered(urls[::turn], at) for at, turn in ((1, 1), (2, -1))))

    transcript = (TRANSCRIPTS / "python-sdk.txt").read_text().splitlines()
    printed = capsys.readouterr().out.splitlines()
    for number in (1, 2):
        own = [line.removeprefix(f"{number} ") for line in printed if line.startswith(f"{number} ")]
        assert own == transcript
    plays = [replica.player.plays for replica in replicas]
    assert min(plays) > 10
    assert [replica.misses for replica in replicas] == [(), ()]
    assert not {*replicas[0].unplayed} & {*replicas[1].unplayed}
