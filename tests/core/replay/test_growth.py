"""What a replay does for a request doesn't grow with all that was recorded beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import (
    INITIALIZED,
    Step,
    hit,
    open_session,
    player_of,
    session_steps,
    tool,
    within,
)
from counting import steps
from messages import text

from mrtr_cassette.core.replay.player import Player

FEW = 8
MANY = 8 * FEW

WRITE = tool("send", text="x")


def sessions_with_a_write(count: int) -> Player:
    """Replay sessions that write once each."""
    script: list[Step] = []
    for number in range(count):
        script += session_steps(f"session-{number:04}-abcdef", (WRITE, text("a")))

    return player_of(*script)


def write_in_a_session(player: Player) -> None:
    """Open a session, and write."""
    session = open_session(player)
    player.request_received(within(session, INITIALIZED))
    hit(player, within(session, WRITE))


@pytest.mark.parametrize(("make", "run"), [(sessions_with_a_write, write_in_a_session)])
def test_request_takes_as_many_steps_beside_many_others(
    make: Callable[[int], Player], run: Callable[[Player], None]
) -> None:
    """What is found out once for all requests has been found out by the first ones."""
    counts = []
    for size in (FEW, MANY):
        player = make(size)
        run(player)
        run(player)
        counts.append(steps(lambda player=player: run(player)))  # type: ignore[misc]

    assert counts[1] < 1.5 * counts[0]
