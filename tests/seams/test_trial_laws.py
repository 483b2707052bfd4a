"""A trial gets nothing that a live twin of the store would not have given (docs/agents.md, "Trials")."""

from __future__ import annotations

import json
from typing import NamedTuple

from builders import (
    Conversation,
    as_request,
    loaded,
    refusal,
    rpc,
    said,
    sent_now,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import text

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.order import History
from mrtr_cassette.core.replay.player import Player

TOOLS = {
    "tools": [
        {"name": "get", "annotations": {"readOnlyHint": True}},
        {"name": "keys", "annotations": {"readOnlyHint": True}},
        {"name": "add"},
        {"name": "clear"},
    ]
}


class Call(NamedTuple):
    """One call of an agent, which may be of a tool that it has made up."""

    name: str
    key: str = ""

    @property
    def request(self) -> bytes:
        return tool(self.name, **({"key": self.key} if self.key else {}))


class Store:
    """The live twin: counts by key."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def does(self, call: Call) -> str | None:
        """Return what a call says; None where there is no such tool."""
        counts = self.counts
        if call.name == "get":
            return str(counts.get(call.key, 0))
        if call.name == "keys":
            return str(sorted(counts))

        if call.name == "add":
            counts[call.key] = counts.get(call.key, 0) + 1
            return f"added {counts[call.key]}"

        if call.name == "clear":
            return f"cleared {counts.pop(call.key, 0)}"

        return None


KEYS = st.sampled_from("ab")
CALLS = st.one_of(
    st.builds(Call, st.sampled_from(["get", "add", "clear"]), KEYS),
    st.just(Call("keys")),
    st.builds(Call, st.sampled_from(["fly", "walk"]), KEYS),
)
RUNS = st.lists(CALLS, max_size=10)


def recorded(run: list[Call]) -> Cassette:
    """Return the cassette of a run, in which made-up tools are refused."""
    talk = Conversation()
    store = Store()
    talk.exchange(rpc("tools/list"), TOOLS)
    for call in run:
        number = talk.request(call.request)
        words = store.does(call)
        if words is None:
            refused = refusal(call.request, -32602, f"no tool {call.name}, sorry")
            talk.response(number, refused)
        else:
            talk.response(number, text(words))

    return loaded(talk.cassette())


@given(st.lists(RUNS, min_size=1, max_size=4), st.lists(RUNS, min_size=1, max_size=3))
def test_trial_gets_what_its_live_twin_gives_or_a_miss(
    runs: list[list[Call]], trials: list[list[Call]]
) -> None:
    """It may read, write and call made-up tools in any order; a recorded one is valid."""
    template = Player(
        combine_cassettes([recorded(run) for run in runs]), history=History.STRICT
    )
    for trial in (*trials, *runs):
        player = template.fresh_player()
        twin = Store()
        for call in trial:
            decision = player.request_received(as_request(call.request))
            if isinstance(decision, Miss):
                break

            words = twin.does(call)
            if isinstance(decision, Play) and words is not None:
                assert said(sent_now(decision)) == words
            elif isinstance(decision, HarmlessReply):
                assert words is None

                message = json.loads(decision.body)["error"]["message"]

                assert call.name in message

        divergences = player.tally.divergences
        if trial in runs:
            assert not player.tally.misses
            assert divergences.longest_followed is None

        if player.tally.misses:
            assert divergences.longest_followed is not None
            assert len(divergences.first_divergences) == len(runs)
