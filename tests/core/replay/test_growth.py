"""What a replay does for a request doesn't grow with all that was recorded beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from builders import (
    INITIALIZED,
    Step,
    hit,
    missed,
    open_session,
    player_of,
    session_steps,
    tool,
    within,
)
from counting import steps
from messages import text

from mrtr_cassette.core.cassette.matchers import Matchers, read_matchers
from mrtr_cassette.core.replay.player import Player

FEW = 8
MANY = 40 * FEW

WRITE = tool("send", text="x")
SECRET_CALL = tool("send", password="hunter2-Zq8vKx")


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


def equal_calls_with_a_secret(count: int) -> Player:
    """Replay equal calls with the same secret, which were answered in several ways."""
    script = [(SECRET_CALL, text(str(number))) for number in range(count)]
    return player_of(*script, redacts=True)


def call_with_a_secret(player: Player) -> None:
    """Make the next of these calls."""
    hit(player, SECRET_CALL)


def calls_that_match(count: int) -> Player:
    """Replay calls that differ in a number, which matches any other."""
    matchers = Matchers(read_matchers({"/arguments/id": "number"}))
    script = [(tool("send", id=number), text("a")) for number in range(count)]
    return player_of(*script, matchers=matchers)


def call_with_another_number(player: Player) -> None:
    """Make a call with a number that was not recorded."""
    hit(player, tool("send", id=1_000_000))


@pytest.mark.parametrize(
    ("make", "run"),
    [
        (sessions_with_a_write, write_in_a_session),
        (equal_calls_with_a_secret, call_with_a_secret),
        (calls_that_match, call_with_another_number),
    ],
)
def test_request_takes_as_many_steps_beside_many_others(
    make: Callable[[int], Player], run: Callable[[Player], None]
) -> None:
    """What is found out once for all requests has been found out by the first ones."""
    counts = []
    for size in (FEW, MANY):
        player = make(size)
        run(player)
        run(player)
        counts.append(steps(partial(run, player)))

    assert counts[1] < 1.5 * counts[0]


def test_miss_is_compared_with_equal_requests_once() -> None:
    """They have the same differences, however often a call was recorded."""
    counts = []
    for size in (FEW, MANY):
        script = [(WRITE, text(str(number))) for number in range(size)]
        player = player_of(*script)
        missed(player, tool("send", text="y"))
        counts.append(steps(partial(missed, player, tool("send", text="z"))))

    assert counts[1] - counts[0] < 100 * (MANY - FEW)


def test_first_miss_of_a_play_takes_as_many_steps_as_its_next() -> None:
    """Where recorded calls have secrets is found out in the first play that has to know."""
    login = tool("login", password="hunter2-Zq8vKx")
    script = [(login, text("a"))]
    for number in range(FEW):
        script.append((tool("send", password=f"hunter2-{number:04}"), text("a")))

    player = player_of(*script, redacts=True)
    missed(player.fresh_player(), tool("login", password="other-secret", user="ada"))

    play = player.fresh_player()
    counts = []
    for user in ("bob", "eve"):
        call = tool("login", password="other-secret", user=user)
        counts.append(steps(partial(missed, play, call)))

    assert counts[0] < 2 * counts[1]
