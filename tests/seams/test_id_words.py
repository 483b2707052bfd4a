"""Laws of ids that read as words, and of members that only have the name of a request state.

What the protocol issues as an id is replaced where the protocol has it; other text that says the
same words is nobody's id, and comes back as it was.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from builders import (
    conversation,
    encode_cassette,
    follow,
    loaded,
    missed,
    open_session,
    play,
    retry,
    session_steps,
    tool,
    within,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import YES, asks, text
from verifying import verifier_for

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.sealed import SHORTEST_SEARCHED, reads_as_words

Place = Callable[[str], Any]

VOCABULARY = (
    "stateless",
    "session",
    "default",
    "Main",
    "TEST",
    "state",
    "waiting",
    "deploymentQueue",
    "user",
    "approval",
    "v2",
    "step3",
    "42",
    "a",
    "production",
    "responsibilities",
)
phrases = st.builds(
    lambda words, separator: separator.join(words),
    st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=8),
    st.sampled_from(["-", "_", " ", ":", "/", "."]),
)
PLACES: tuple[Place, ...] = (
    lambda words: text(f"A {words} server."),
    text,
    lambda words: {"structuredContent": {"mode": words}},
    lambda words: {"structuredContent": {words: [words, {"requestState": words}]}},
    lambda words: text(json.dumps({"requestState": words, "text": words})),
    lambda words: {"content": [], "_meta": {"note": f"{words}: {words}"}},
)
"""Results that say some words where no protocol has an id."""

places = st.sampled_from(PLACES)


def ids(chance: Random) -> dict[str, str]:
    """Return random ids in the forms in which servers make them."""
    raw = chance.randbytes(16)
    return {
        "uuid": str(uuid.UUID(bytes=raw, version=4)),
        "hex": raw.hex(),
        "base64": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "base32": base64.b32encode(raw).decode().rstrip("="),
        "named": f"session-{raw.hex()}",
        "short": raw[:6].hex() + "9f",
        "jwt": f"eyJhbGciOiJIUzI1NiJ9.{base64.urlsafe_b64encode(raw).decode()}.c2ln",
    }


@given(phrases, places, st.booleans())
def test_words_of_a_session_id_stay_in_other_text(
    words: str,
    place: Place,
    in_arguments: bool,  # noqa: FBT001
) -> None:
    """A session may be called by words: its header has a name, and all that is said stays."""
    call = tool("a", mode=words) if in_arguments else tool("a")
    script = session_steps(words, (call, place(words)))
    talk = conversation(*script, redacts=True)
    player = Player(loaded(talk.cassette()))

    session = open_session(player)

    assert session == "mrtr-session:1"
    assert json.loads(play(player, within(session, call)))["result"] == place(words)


@given(phrases, places)
def test_words_of_a_state_stay_in_other_text(words: str, place: Place) -> None:
    """A state is sealed where MCP has it, and a result that says the same words keeps them."""
    words = f"Waiting for {words}, or until it is over."
    call = tool("deploy", mode=words)
    script = (
        (call, asks("a", state=words)),
        (retry(call, {"a": YES}, state=words), place(words)),
    )

    cassette = conversation(*script, redacts=True).cassette()
    player = Player(loaded(cassette))

    asked = json.loads(play(player, call))["result"]["requestState"]

    assert asked.startswith("mrtr-state:")

    played = play(player, retry(call, {"a": YES}, state=asked))

    assert json.loads(played)["result"] == place(words)


@given(st.integers(0, 2**32).map(Random), places, st.data())
def test_random_ids_do_not_reach_the_disk(
    chance: Random, place: Place, data: st.DataObject
) -> None:
    """An id of a session or a state that is no words is replaced wherever it is repeated."""
    forms = ids(chance)
    identity = forms[data.draw(st.sampled_from(sorted(forms)))]
    call = tool("a", about=identity)
    steps = session_steps(identity, (call, place(identity)))

    assert identity.encode() not in encode_cassette(
        conversation(*steps, redacts=True).cassette()
    )

    if len(identity) < SHORTEST_SEARCHED:
        return

    asked = (call, asks("a", state=identity))
    done = (retry(call, {"a": YES}, state=identity), place(identity))

    assert identity.encode() not in encode_cassette(
        conversation(asked, done).cassette()
    )


# A member that is called as MCP's state is

seeds = st.integers(0, 2**32)
long_ids = seeds.map(lambda seed: ids(Random(seed))["base64"] * 2)
own_values = st.one_of(phrases, st.text(max_size=40), long_ids)
HOLDERS: tuple[Callable[[Any], Any], ...] = (
    lambda value: {"requestState": value},
    lambda value: {"deep": [{"requestState": value, "x": 1}]},
    lambda value: {"as_text": json.dumps({"result": {"requestState": value}})},
)
holders = st.sampled_from(HOLDERS)


def recorded_with(
    value: str, holder: Callable[[Any], Any]
) -> tuple[bytes, Any, Cassette]:
    """Return a call with a member of that name, its result with one too, and their cassette."""
    call = tool("remember", **holder(value))
    result = {"content": [], "structuredContent": holder(value)}
    return (
        call,
        result,
        loaded(conversation((call, result), redacts=False).cassette(), "c.json"),
    )


@given(own_values, holders)
def test_a_tools_own_member_is_played_as_it_was(
    value: str, holder: Callable[[Any], Any]
) -> None:
    """In arguments and in structured content it is a value like any other, and so it is matched."""
    call, result, cassette = recorded_with(value, holder)

    assert json.loads(play(Player(cassette), call))["result"] == result

    changed_call = tool("remember", **holder(f"{value}!"))

    assert missed(Player(cassette), changed_call).reason is Reason.ARGUMENTS_DIFFER


@given(own_values, holders)
def test_a_tools_own_member_is_verified(
    value: str, holder: Callable[[Any], Any]
) -> None:
    """The live server gets it as it was recorded, and one that gives back another has changed."""
    call, result, cassette = recorded_with(value, holder)
    for live, verdict in (
        (result, "same"),
        ({**result, "structuredContent": holder("?")}, ""),
    ):
        verifier = verifier_for(cassette)
        (plan,) = planned_interactions(cassette)
        running: Any = verifier.begin_interaction(plan)

        (sent,) = follow(running.conversation, live)

        arguments = json.loads(sent.body)["params"]["arguments"]

        assert arguments == json.loads(call)["params"]["arguments"]

        found = verifier.end_interaction(running).verdict

        assert found == verdict or (
            not verdict and found in ("text-changed", "shape-changed")
        )


@pytest.mark.parametrize(
    "words", ["stateless", "a", "A stateless server.", "user-42", "12345678"]
)
def test_words_are_told_from_ids(words: str) -> None:
    """Words, small numbers and both read as words; what is random doesn't."""
    assert reads_as_words(words)

    for seed in range(2000):
        for form, identity in ids(Random(seed)).items():
            assert form == "short" or not reads_as_words(identity), identity
