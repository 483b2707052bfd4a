"""A law: pings of a server are no questions, and their answers mean nothing to anybody."""

from __future__ import annotations

from typing import Any

from builders import INITIALIZE, answer, hit, loaded, opened, rpc, told, tool, within
from hypothesis import given
from hypothesis import strategies as st
from messages import Json, text
from pushing import SESSION, PushingSession, elicit, posted

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End, Request

CALL = tool("deploy")
ACCEPT = {"action": "accept"}
PONGS: list[Any] = [None, {}, {"x": 1}, "pong", ValueError("no")]
"""Results of pongs, an error, and none at all."""


def recorded(pings: list[tuple[bool, Json]]) -> Cassette:
    """Return a recording of a call that asks a question, with pings before it and their answers.

    The first of each pair tells whether the ping comes on the stream of the session.
    """
    session = PushingSession()
    session.talk.exchange(INITIALIZE, opened(SESSION[1]))
    listening = session.listen()
    number = session.open(CALL)
    for at, (on_session, pong) in enumerate(pings):
        ping = rpc("ping", number=f"ping-{at}")
        session.say(listening if on_session else number, ping)
        assert session.talk.recorder.answers_open_push(read_call(posted(ping, {})))
        if pong is not None:
            session.post(posted(ping, pong))

    session.say(number, elicit())
    session.post(posted(elicit(), ACCEPT))
    session.end(number, answer(CALL, text("done")))
    session.end(listening, how=End.OPEN)

    return loaded(session.talk.cassette())


ANSWERED = st.lists(st.tuples(st.booleans(), st.sampled_from(PONGS)), max_size=4)


@given(ANSWERED, ANSWERED)
def test_pings_are_no_turns_and_no_difference(
    before: list[tuple[bool, Json]], after: list[tuple[bool, Json]]
) -> None:
    """However many came and however they were answered, a call has the turns of its questions."""
    old = recorded(before)
    new = recorded(after)
    (call,) = [
        interaction
        for interaction in new.interactions
        if interaction.exchanges[0].call.name == "deploy"
    ]

    assert len([*call.turns]) == 1
    assert cassette_comparison(old, new).is_same
    assert len(planned_interactions(old)) == len(planned_interactions(new)) == 3


@given(ANSWERED, st.lists(st.sampled_from(PONGS), min_size=4, max_size=4))
def test_replay_waits_for_no_pong_and_takes_any(
    pings: list[tuple[bool, Json]], pongs: list[Json]
) -> None:
    """The call goes on without them, none is a miss, and none is missing at the end."""
    player = Player(recorded(pings), strict=True)
    delivery = hit(player, INITIALIZE).delivery

    assert delivery is not None

    told(delivery)
    session = "mrtr-session:1"
    listening = hit(player, within(session, Request("GET", "/mcp", (), b""))).delivery

    assert listening is not None

    calling = hit(player, within(session, CALL)).delivery

    assert calling is not None

    pings_of_call = sum(not on_session for on_session, _ in pings)

    assert len(told(calling)) == pings_of_call + 1

    for at, _ in enumerate(pings):
        if pongs[at] is not None:
            pong = posted(rpc("ping", number=f"ping-{at}"), pongs[at]).body
            player.request_received(within(session, pong))

    accepting = posted(elicit(), ACCEPT).body
    hit(player, within(session, accepting))
    told(listening)

    assert told(calling)[-1] is End.COMPLETE
    assert (
        player.tally.misses,
        player.tally.harmless,
        player.played_part.unplayed_numbers,
    ) == ([], [], [])
