"""A wrong answer is never served: whatever isn't the recorded request is a miss with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import (
    Step,
    changed,
    missed,
    play,
    player_of,
    post,
    retry,
    rpc,
    said,
    state_in,
    tool,
    with_id,
    with_token,
)
from messages import NO, YES, asks, text
from verifying import reported_miss

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.report.runs import error_body
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.secrets.sealed import seal_answers
from mrtr_cassette.core.wire.pointers import pointer_path

DEPLOY = tool("deploy", env="prod", replicas=3)
SELL = tool("sell", item="lamp")
WIPE = tool("wipe")
ANSWERS = {
    "confirm": {"action": "accept", "content": {"sure": True, "note": None}},
    "why": "fix",
}
STATES = (
    "deploy-state-1-aaaaaaaaaaaaaaaa",
    "deploy-state-2-bbbbbbbbbbbbbbbb",
    "sell-state-cccccccccccccccccccc",
)

TALK: tuple[Step, ...] = (
    (DEPLOY, asks("confirm", "why", state=STATES[0])),
    (retry(DEPLOY, ANSWERS, state=STATES[0]), asks("when", state=STATES[1])),
    (retry(DEPLOY, {"when": 2}, state=STATES[1]), text("deployed")),
    (SELL, asks("price", state=STATES[2])),
    (retry(SELL, {"price": 9}, state=STATES[2]), text("sold")),
    (WIPE, asks("sure")),
    (retry(WIPE, {"sure": YES}), text("wiped")),
    (rpc("tools/list"), text("listed")),
)


class Replay:
    """A replay of the talk in which every ask has been played; `states` are as the client got them."""

    def __init__(self, **options: Any) -> None:
        self.player = player_of(*TALK, **options)
        first = state_in(play(self.player, DEPLOY))
        second = state_in(play(self.player, retry(DEPLOY, ANSWERS, state=first)))
        third = state_in(play(self.player, SELL))
        play(self.player, WIPE)
        self.states = (first, second, third)

    def miss(self, request: bytes) -> Miss:
        """Return the miss that a request is."""
        return missed(self.player, request)


Asking = Callable[[tuple[str, ...]], bytes]


def deploy(**arguments: Any) -> bytes:
    """Return the first call with other arguments."""
    return tool("deploy", **{"env": "prod", "replicas": 3, **arguments})


def sell(answers: Any, state: Any) -> bytes:
    """Return a retry of the second call."""
    return retry(SELL, answers, state=state)


def when(state: str, **answers: Any) -> bytes:
    """Return the second retry of the first call, with other answers."""
    return retry(DEPLOY, {"when": 2, **answers}, state=state)


# What is asked, the reason, interaction and turn of the nearest recording, and what differs: where,
# as recorded, as received; "-" stands for nothing.
WRONG: dict[str, tuple[Asking, str, str, list[str]]] = {
    "method": (lambda _: rpc("tools/listing"), "unknown-method", "", []),
    "name": (lambda _: tool("deploi", env="prod", replicas=3), "unknown-name", "", []),
    "argument": (
        lambda _: deploy(replicas=4),
        "arguments-differ",
        "1.0",
        ["replicas 3 4"],
    ),
    "more": (lambda _: deploy(force=True), "arguments-differ", "1.0", ["force - true"]),
    "less": (
        lambda _: tool("deploy", env="prod"),
        "arguments-differ",
        "1.0",
        ["replicas 3 -"],
    ),
    "type": (
        lambda _: deploy(replicas="3"),
        "arguments-differ",
        "1.0",
        ['replicas 3 "3"'],
    ),
    "argument of a retry": (
        lambda s: retry(deploy(env="test"), {"when": 2}, state=s[1]),
        "arguments-differ",
        "1.1",
        ['env "prod" "test"'],
    ),
    "decline": (
        lambda s: sell({"price": NO}, s[2]),
        "answers-differ",
        "2.1",
        ['price 9 {"action":"decline"}'],
    ),
    "decline without state": (
        lambda _: retry(WIPE, {"sure": NO}),
        "answers-differ",
        "3.1",
        ['action "accept" "decline"', 'content {"ok":true} -'],
    ),
    "value": (lambda s: when(s[1], when=2.5), "answers-differ", "1.2", ["when 2 2.5"]),
    "answer more": (
        lambda s: when(s[1], who="me"),
        "answers-differ",
        "1.2",
        ['who - "me"'],
    ),
    "answer under another key": (
        lambda s: retry(DEPLOY, {"When": 2}, state=s[1]),
        "answers-differ",
        "1.2",
        ["When - 2", "when 2 -"],
    ),
    "answer less": (
        lambda s: retry(DEPLOY, {}, state=s[1]),
        "answers-missing",
        "1.2",
        ["when 2 -"],
    ),
    "no answers": (
        lambda s: retry(SELL, state=s[2]),
        "answers-missing",
        "2.1",
        ["price 9 -"],
    ),
    "answers of another turn": (lambda s: when(s[0]), "answers-differ", "1.1", []),
    "state of another tool": (
        lambda s: sell({"price": 9}, s[0]),
        "state-unknown",
        "1.0",
        [],
    ),
    "made-up state": (
        lambda _: sell({"price": 9}, "made up"),
        "state-unknown",
        "2.0",
        [],
    ),
    "empty state": (lambda _: sell({"price": 9}, ""), "state-unknown", "2.0", []),
    "other letters": (
        lambda s: sell({"price": 9}, s[2].upper()),
        "state-unknown",
        "2.0",
        [],
    ),
    "space": (lambda s: sell({"price": 9}, s[2] + " "), "state-unknown", "2.0", []),
    "no string": (lambda s: sell({"price": 9}, [s[2]]), "state-unknown", "2.0", []),
    "none issued": (
        lambda _: retry(WIPE, {"sure": YES}, state="any"),
        "state-unexpected",
        "3.0",
        [],
    ),
    "no state": (lambda _: sell({"price": 9}, None), "state-missing", "2.0", []),
    "null state": (
        lambda _: changed(sell({"price": 9}, None), "params", "requestState", to=None),
        "state-missing",
        "2.0",
        [],
    ),
    "second request": (lambda _: DEPLOY, "already-played", "1.0", []),
    "second answer": (
        lambda s: retry(DEPLOY, ANSWERS, state=s[0]),
        "already-played",
        "1.1",
        [],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_was_not_recorded_is_a_miss(name: str) -> None:
    """A request that differs in anything that counts gets the reason, as text and as JSON."""
    asking, reason, place, differences = WRONG[name]
    replay = Replay()
    plays = replay.player.tally.reply_count

    miss = replay.miss(with_id(asking(replay.states), "my-id"))

    assert miss.reason.value == reason

    nearest = miss.nearest

    assert ("" if nearest is None else f"{nearest.interaction}.{nearest.turn}") == place

    found = [
        f"{difference.pointer.rpartition('/')[2]} {difference.recorded or '-'} {difference.received or '-'}"
        for difference in miss.differences
    ]

    assert found == differences or name == "answers of another turn"
    assert replay.player.tally.misses == [miss]
    assert replay.player.tally.reply_count == plays

    report = reported_miss(miss, Cassette("talk.json"))
    body = json.loads(error_body(report, miss.call))
    told = report.text
    data = report.facts

    assert (body["jsonrpc"], body["id"]) == ("2.0", "my-id")
    assert body["error"] == {"code": -32010, "message": told, "data": data}
    assert data["reason"] == reason
    assert told.startswith(f"miss: {reason}: {miss.detail}\n")
    assert all(fix in told for fix in report.fixes)
    assert data["fixes"] == [*report.fixes]
    assert "talk.json" in told
    assert all(difference["pointer"] in told for difference in data["differences"])
    # Neither the raw state nor the client's is repeated in a text that ends up in logs.
    assert not any(state in told for state in (*STATES, *replay.states))


@pytest.mark.parametrize("seals", [True, False])
def test_hash_of_a_state_is_no_state(*, seals: bool) -> None:
    """The hash of a state, as in a journal or a file, doesn't stand for it."""
    replay = Replay(seals=seals)
    state = replay.states[2]

    for wrong in (sealed_hash(state), sealed_hash(STATES[2])):
        assert replay.miss(sell({"price": 9}, wrong)).reason is Reason.STATE_UNKNOWN

    assert said(play(replay.player, sell({"price": 9}, state))) == "sold"


def test_sealed_answer_is_no_answer() -> None:
    """Whoever reads a sealed cassette doesn't know what was answered."""
    replay = Replay(seals_answers=True)
    sealed = seal_answers(retry(SELL, {"price": 9}, state=replay.states[2]))

    assert b"mrtr-answer:" in sealed

    assert replay.miss(sealed).reason is Reason.ANSWERS_DIFFER
    assert (
        said(play(replay.player, retry(SELL, {"price": 9}, state=replay.states[2])))
        == "sold"
    )


@pytest.mark.parametrize(
    "token", ["<password:1>", "<password:7>", "<password:received.0>"]
)
def test_placeholder_is_no_secret(token: str) -> None:
    """A placeholder that the client was never given is not what it stands for."""
    player = player_of(
        (tool("login", password="correct-horse"), text("welcome")), redacts=True
    )

    assert (
        missed(player, tool("login", password=token)).reason is Reason.ARGUMENTS_DIFFER
    )
    assert said(play(player, tool("login", password="correct-horse"))) == "welcome"


def test_wrong_secret_gets_the_recorded_denial() -> None:
    """Where a denial and a welcome were recorded, a secret that was denied is never welcome."""
    wrong = tool("login", password="wrong-horse")
    right = tool("login", password="right-horse")
    script: tuple[Step, ...] = ((wrong, text("denied")), (right, text("welcome")))
    player = player_of(*script, redacts=True, repeat=Repeat.ALWAYS)

    assert [said(play(player, wrong)) for _ in range(3)] == ["denied"] * 3
    assert [said(play(player, right)) for _ in range(3)] == ["welcome"] * 3
    assert said(play(player, wrong)) == "denied"


def test_states_of_parallel_identical_calls_are_not_exchanged() -> None:
    """The answers of one of two identical calls don't fit the state of the other."""
    first, second, *_ = STATES
    player = player_of(
        (SELL, asks("price", state=first)),
        (SELL, asks("price", state=second)),
        (retry(SELL, {"price": 1}, state=first), text("cheap")),
        (retry(SELL, {"price": 2}, state=second), text("dear")),
    )

    first_name = state_in(play(player, SELL))
    second_name = state_in(play(player, SELL))
    miss_of_first = missed(player, retry(SELL, {"price": 2}, state=first_name))
    miss_of_second = missed(player, retry(SELL, {"price": 1}, state=second_name))

    assert miss_of_first.reason is Reason.ANSWERS_DIFFER
    assert miss_of_second.reason is Reason.ANSWERS_DIFFER

    assert said(play(player, retry(SELL, {"price": 2}, state=second_name))) == "dear"
    assert said(play(player, retry(SELL, {"price": 1}, state=first_name))) == "cheap"


def test_retry_before_its_ask_is_out_of_order() -> None:
    """A recorded retry with a state is not played before its ask, with any repeats allowed.

    Without a state and a session no server knows what it asked.
    """
    states = Replay().states
    for repeat in Repeat:
        player = player_of(*TALK, repeat=repeat)
        miss = missed(player, retry(DEPLOY, ANSWERS, state=states[0]))

        assert miss.reason is Reason.OUT_OF_ORDER
        assert miss.nearest is not None
        assert miss.nearest.turn == 1
        assert said(play(player, retry(WIPE, {"sure": YES}))) == "wiped"


def test_miss_changes_nothing() -> None:
    """After any number of misses the conversation plays as if nothing had been asked."""
    replay = Replay()
    for asking, *_ in WRONG.values():
        replay.miss(asking(replay.states))

    player = replay.player
    states = replay.states

    assert said(play(player, retry(DEPLOY, {"when": 2}, state=states[1]))) == "deployed"
    assert said(play(player, retry(SELL, {"price": 9}, state=states[2]))) == "sold"
    assert said(play(player, retry(WIPE, {"sure": YES}))) == "wiped"
    assert said(play(player, rpc("tools/list"))) == "listed"
    assert len(player.tally.misses) == len(WRONG)
    assert player.played_part.unplayed_numbers == []


@pytest.mark.parametrize(
    ("pointer", "asking"),
    [
        ("/arguments/replicas", lambda _: tool("deploy", env="prod", replicas=4)),
        ("/arguments/replicas", lambda _: tool("deploy", env="prod")),
        ("/arguments", lambda _: tool("deploy", env="test")),
        ("/inputResponses/price", lambda s: retry(SELL, {"price": 10}, state=s[2])),
        ("/inputResponses/price", lambda s: retry(SELL, {}, state=s[2])),
        ("/inputResponses/price", lambda s: retry(SELL, state=s[2])),
        ("/inputResponses", lambda s: retry(SELL, {"other": 1}, state=s[2])),
        (
            "/inputResponses/sure/content/ok",
            lambda _: retry(WIPE, {"sure": {"action": "accept", "content": {"ok": 5}}}),
        ),
    ],
)
def test_ignored_value_does_not_count(pointer: str, asking: Asking) -> None:
    """A value that is nobody's to fix may be any, or absent."""
    ignored = [pointer_path(pointer)]
    replay = Replay(ignored=ignored, repeat=Repeat.ALWAYS)

    play(replay.player, asking(replay.states))


def test_ignoring_one_value_ignores_no_other() -> None:
    """Everything that is not named counts as before."""
    ignored = [
        pointer_path("/arguments/replicas"),
        pointer_path("/inputResponses/price"),
    ]

    replay = Replay(ignored=ignored, repeat=Repeat.ALWAYS)

    replay.miss(deploy(env="test"))
    replay.miss(sell({"price": 9, "more": 1}, replay.states[2]))
    replay.miss(sell({"price": 9}, replay.states[2] + "x"))
    replay.miss(when(replay.states[1], when=3))


@pytest.mark.parametrize("pointer", ["/requestState", "/name", "/_meta"])
def test_state_and_name_cannot_be_ignored(pointer: str) -> None:
    """What a request is found by counts, whatever pointers say."""
    replay = Replay(ignored=[pointer_path(pointer)], repeat=Repeat.ALWAYS)

    replay.miss(retry(SELL, {"price": 9}, state="other"))
    replay.miss(tool("other"))


def test_repeat_allows_what_was_played_and_nothing_else() -> None:
    """With every repeat allowed, wrong requests are misses all the same."""
    replay = Replay(repeat=Repeat.ALWAYS)
    for asking, reason, *_ in WRONG.values():
        if reason == "already-played":
            play(replay.player, asking(replay.states))
        else:
            assert replay.miss(asking(replay.states)).reason.value == reason


def test_id_and_token_do_not_count_and_the_endpoint_does() -> None:
    """What is the caller's own never makes a miss; the same body at another path was not recorded."""
    player = player_of(*TALK)

    listing = with_token(with_id(rpc("tools/list"), "x"), "y")

    assert said(play(player, listing)) == "listed"
    assert missed(player, post(DEPLOY, target="/other")).reason is Reason.UNKNOWN_METHOD
