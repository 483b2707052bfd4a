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

from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.report.misses import MISS_CODE, miss_body, report_of_miss
from mrtr_cassette.core.secrets.sealed import seal_answers, sealed_hash
from mrtr_cassette.core.wire.pointers import Difference, pointer_path

DEPLOY = tool("deploy", env="prod", replicas=3)
SELL = tool("sell", item="lamp")
WIPE = tool("wipe")
ANSWERS = {"confirm": {"action": "accept", "content": {"sure": True, "note": None}}, "why": "fix"}
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


def flipped(state: str, at: int) -> str:
    """Return a state with one character changed."""
    return state[:at] + ("x" if state[at] != "x" else "y") + state[at + 1 :]


Asking = Callable[[tuple[str, ...]], bytes]

WRONG: list[
    tuple[
        str, Asking, Reason, tuple[int, int] | None, list[tuple[str, str | None, str | None]] | None
    ]
] = [
    ("another method", lambda _: rpc("tools/listing"), Reason.UNKNOWN_METHOD, None, []),
    (
        "another name",
        lambda _: tool("deploi", env="prod", replicas=3),
        Reason.UNKNOWN_NAME,
        None,
        [],
    ),
    (
        "another argument",
        lambda _: tool("deploy", env="prod", replicas=4),
        Reason.ARGUMENTS_DIFFER,
        (1, 0),
        [("/arguments/replicas", "3", "4")],
    ),
    (
        "an argument more",
        lambda _: tool("deploy", env="prod", replicas=3, force=True),
        Reason.ARGUMENTS_DIFFER,
        (1, 0),
        [("/arguments/force", None, "true")],
    ),
    (
        "an argument less",
        lambda _: tool("deploy", env="prod"),
        Reason.ARGUMENTS_DIFFER,
        (1, 0),
        [("/arguments/replicas", "3", None)],
    ),
    (
        "another type",
        lambda _: tool("deploy", env="prod", replicas="3"),
        Reason.ARGUMENTS_DIFFER,
        (1, 0),
        [("/arguments/replicas", "3", '"3"')],
    ),
    (
        "another argument in a retry",
        lambda s: retry(tool("deploy", env="test", replicas=3), {"when": 2}, state=s[1]),
        Reason.ARGUMENTS_DIFFER,
        (1, 1),
        [("/arguments/env", '"prod"', '"test"')],
    ),
    (
        "a decline for an accept",
        lambda s: retry(SELL, {"price": NO}, state=s[2]),
        Reason.ANSWERS_DIFFER,
        (2, 1),
        [("/inputResponses/price", "9", '{"action":"decline"}')],
    ),
    (
        "a decline without state",
        lambda _: retry(WIPE, {"sure": NO}),
        Reason.ANSWERS_DIFFER,
        (3, 1),
        None,
    ),
    (
        "another value",
        lambda s: retry(DEPLOY, {"when": 2.5}, state=s[1]),
        Reason.ANSWERS_DIFFER,
        (1, 2),
        [("/inputResponses/when", "2", "2.5")],
    ),
    (
        "an answer more",
        lambda s: retry(DEPLOY, {"when": 2, "who": "me"}, state=s[1]),
        Reason.ANSWERS_DIFFER,
        (1, 2),
        [("/inputResponses/who", None, '"me"')],
    ),
    (
        "an answer under another key",
        lambda s: retry(DEPLOY, {"When": 2}, state=s[1]),
        Reason.ANSWERS_DIFFER,
        (1, 2),
        [("/inputResponses/When", None, "2"), ("/inputResponses/when", "2", None)],
    ),
    (
        "an answer less",
        lambda s: retry(DEPLOY, {}, state=s[1]),
        Reason.ANSWERS_MISSING,
        (1, 2),
        [("/inputResponses/when", "2", None)],
    ),
    (
        "no answers",
        lambda s: retry(SELL, state=s[2]),
        Reason.ANSWERS_MISSING,
        (2, 1),
        [("/inputResponses/price", "9", None)],
    ),
    (
        "answers of another turn",
        lambda s: retry(DEPLOY, {"when": 2}, state=s[0]),
        Reason.ANSWERS_DIFFER,
        (1, 1),
        None,
    ),
    (
        "a state of another tool",
        lambda s: retry(SELL, {"price": 9}, state=s[0]),
        Reason.STATE_UNKNOWN,
        (1, 0),
        [],
    ),
    (
        "a made-up state",
        lambda _: retry(SELL, {"price": 9}, state="made up"),
        Reason.STATE_UNKNOWN,
        (2, 0),
        [],
    ),
    (
        "an empty state",
        lambda _: retry(SELL, {"price": 9}, state=""),
        Reason.STATE_UNKNOWN,
        (2, 0),
        [],
    ),
    (
        "a state in other letters",
        lambda s: retry(SELL, {"price": 9}, state=s[2].upper()),
        Reason.STATE_UNKNOWN,
        (2, 0),
        [],
    ),
    (
        "a state with a space",
        lambda s: retry(SELL, {"price": 9}, state=s[2] + " "),
        Reason.STATE_UNKNOWN,
        (2, 0),
        [],
    ),
    (
        "a state that is no string",
        lambda s: retry(SELL, {"price": 9}, state=[s[2]]),
        Reason.STATE_UNKNOWN,
        (2, 0),
        [],
    ),
    (
        "a state where none was issued",
        lambda s: retry(WIPE, {"sure": YES}, state="any"),
        Reason.STATE_UNEXPECTED,
        (3, 0),
        [],
    ),
    (
        "no state where one was issued",
        lambda _: retry(SELL, {"price": 9}),
        Reason.STATE_MISSING,
        (2, 0),
        [],
    ),
    (
        "a null state where one was issued",
        lambda _: changed(retry(SELL, {"price": 9}), "params", "requestState", to=None),
        Reason.STATE_MISSING,
        (2, 0),
        [],
    ),
    ("a second first request", lambda _: DEPLOY, Reason.ALREADY_PLAYED, (1, 0), []),
    (
        "a second answer",
        lambda s: retry(DEPLOY, ANSWERS, state=s[0]),
        Reason.ALREADY_PLAYED,
        (1, 1),
        [],
    ),
]


@pytest.mark.parametrize(
    ("asking", "reason", "place", "differences"),
    [row[1:] for row in WRONG],
    ids=[row[0] for row in WRONG],
)
def test_what_was_not_recorded_is_a_miss(
    asking: Asking,
    reason: Reason,
    place: tuple[int, int] | None,
    differences: list[tuple[str, str | None, str | None]] | None,
) -> None:
    """A request that differs in anything that counts gets no recorded answer, but the reason."""
    replay = Replay()
    plays = replay.player.plays

    miss = replay.miss(asking(replay.states))

    assert miss.reason is reason
    nearest = miss.nearest
    assert (None if nearest is None else (nearest.interaction, nearest.turn)) == place
    if differences is not None:
        assert list(miss.differences) == [Difference(*one) for one in differences]
    assert replay.player.misses == [miss]
    assert replay.player.plays == plays


@pytest.mark.parametrize("at", [0, 4, 12, -3, -1])
@pytest.mark.parametrize("seals", [True, False])
def test_state_with_one_character_changed_is_unknown(at: int, seals: bool) -> None:  # noqa: FBT001
    """A state is compared whole: one other character anywhere is another state."""
    replay = Replay(seals=seals)
    state = replay.states[2]

    miss = replay.miss(retry(SELL, {"price": 9}, state=flipped(state, at % len(state))))

    assert miss.reason is Reason.STATE_UNKNOWN
    assert said(play(replay.player, retry(SELL, {"price": 9}, state=state))) == "sold"


@pytest.mark.parametrize("seals", [True, False])
def test_hash_of_a_state_is_unknown(seals: bool) -> None:  # noqa: FBT001
    """What stands for a state in a journal or a file is not the state itself."""
    replay = Replay(seals=seals)

    for state in (STATES[2], replay.states[2], sealed_hash(STATES[2])):
        miss = replay.miss(retry(SELL, {"price": 9}, state=sealed_hash(state)))
        assert miss.reason is Reason.STATE_UNKNOWN
    assert said(play(replay.player, retry(SELL, {"price": 9}, state=replay.states[2]))) == "sold"


def test_sealed_answer_is_no_answer() -> None:
    """Whoever reads a sealed cassette doesn't know what was answered."""
    replay = Replay(seals_answers=True)
    sealed = seal_answers(retry(SELL, {"price": 9}, state=replay.states[2]))
    assert b"mrtr-answer:" in sealed

    assert replay.miss(sealed).reason is Reason.ANSWERS_DIFFER
    assert said(play(replay.player, retry(SELL, {"price": 9}, state=replay.states[2]))) == "sold"


@pytest.mark.parametrize("token", ["<password:1>", "<password:7>", "<password:received.0>"])
def test_placeholder_is_no_secret(token: str) -> None:
    """A placeholder that the client was never given is not what it stands for."""
    player = player_of((tool("login", password="correct-horse"), text("welcome")), redacts=True)

    assert missed(player, tool("login", password=token)).reason is Reason.ARGUMENTS_DIFFER
    assert said(play(player, tool("login", password="correct-horse"))) == "welcome"


def test_wrong_secret_gets_the_recorded_denial() -> None:
    """Where a denial and a welcome were recorded, a secret that was denied is never welcome."""
    wrong, right = (tool("login", password=secret) for secret in ("wrong-horse", "right-horse"))
    script: tuple[Step, ...] = ((wrong, text("denied")), (right, text("welcome")))
    player = player_of(*script, redacts=True, repeat=Repeat.ALWAYS)

    assert [said(play(player, wrong)) for _ in range(3)] == ["denied"] * 3
    assert [said(play(player, right)) for _ in range(3)] == ["welcome"] * 3
    assert said(play(player, wrong)) == "denied"


def test_states_of_parallel_identical_calls_are_not_exchanged() -> None:
    """The answers of one of two identical calls don't fit the state of the other."""
    other = STATES[1]
    player = player_of(
        (SELL, asks("price", state=STATES[0])),
        (SELL, asks("price", state=other)),
        (retry(SELL, {"price": 1}, state=STATES[0]), text("cheap")),
        (retry(SELL, {"price": 2}, state=other), text("dear")),
    )
    one, two = (state_in(play(player, SELL)) for _ in range(2))

    assert missed(player, retry(SELL, {"price": 2}, state=one)).reason is Reason.ANSWERS_DIFFER
    assert missed(player, retry(SELL, {"price": 1}, state=two)).reason is Reason.ANSWERS_DIFFER
    assert said(play(player, retry(SELL, {"price": 2}, state=two))) == "dear"
    assert said(play(player, retry(SELL, {"price": 1}, state=one))) == "cheap"


def test_retry_before_its_ask_is_out_of_order() -> None:
    """A recorded retry is not played before the ask that it answers, with any repeats allowed."""
    states = Replay().states
    for repeat in Repeat:
        player = player_of(*TALK, repeat=repeat)
        for early in (retry(DEPLOY, ANSWERS, state=states[0]), retry(WIPE, {"sure": YES})):
            miss = missed(player, early)
            assert miss.reason is Reason.OUT_OF_ORDER
            assert miss.nearest is not None
            assert miss.nearest.turn == 1


def test_miss_changes_nothing() -> None:
    """After any number of misses the conversation plays as if nothing had been asked."""
    replay = Replay()
    for _, asking, *_ in WRONG:
        replay.miss(asking(replay.states))

    player, states = replay.player, replay.states
    assert said(play(player, retry(DEPLOY, {"when": 2}, state=states[1]))) == "deployed"
    assert said(play(player, retry(SELL, {"price": 9}, state=states[2]))) == "sold"
    assert said(play(player, retry(WIPE, {"sure": YES}))) == "wiped"
    assert said(play(player, rpc("tools/list"))) == "listed"
    assert len(player.misses) == len(WRONG)
    assert player.unplayed == []


@pytest.mark.parametrize(
    "answers",
    [
        ANSWERS,
        {"why": "fix", "confirm": {"content": {"sure": True}, "action": "accept"}},
        {**ANSWERS, "extra": None},
        {"why": "fix", "confirm": {"action": "accept", "content": {"sure": True}, "_meta": None}},
    ],
)
def test_null_equals_absent_in_answers(answers: Any) -> None:
    """The recorded answers are known in any order, with and without their null members."""
    player = player_of(*TALK)
    state = state_in(play(player, DEPLOY))

    assert state_in(play(player, retry(DEPLOY, answers, state=state)))


@pytest.mark.parametrize(
    "answers",
    [
        {**ANSWERS, "why": ""},
        {**ANSWERS, "confirm": {"action": "accept", "content": {"sure": 1}}},
        {**ANSWERS, "confirm": {"action": "accept", "content": {"sure": True, "note": ""}}},
        {**ANSWERS, "confirm": {"action": "accept", "content": {"sure": True, "note": False}}},
        {**ANSWERS, "confirm": {"action": "accept", "content": [{"sure": True}]}},
    ],
)
def test_nothing_but_null_equals_absent(answers: Any) -> None:
    """Empty, false and zero are values."""
    player = player_of(*TALK)
    state = state_in(play(player, DEPLOY))

    assert missed(player, retry(DEPLOY, answers, state=state)).reason is Reason.ANSWERS_DIFFER


def test_null_argument_is_not_an_absent_one() -> None:
    """In arguments a null member counts."""
    player = player_of((tool("a", x=None), text("null")), (tool("a"), text("absent")))

    assert said(play(player, tool("a"))) == "absent"
    assert said(play(player, tool("a", x=None))) == "null"


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


@pytest.mark.parametrize(
    "asking",
    [
        lambda _: tool("deploy", env="test", replicas=3),
        lambda s: retry(SELL, {"price": 9, "more": 1}, state=s[2]),
        lambda s: retry(SELL, {"price": 9}, state=s[2] + "x"),
        lambda s: retry(DEPLOY, {"when": 3}, state=s[1]),
    ],
)
def test_ignoring_one_value_ignores_no_other(asking: Asking) -> None:
    """Everything that is not named counts as before."""
    ignored = [pointer_path("/arguments/replicas"), pointer_path("/inputResponses/price")]
    replay = Replay(ignored=ignored, repeat=Repeat.ALWAYS)

    replay.miss(asking(replay.states))


@pytest.mark.parametrize("pointer", ["/requestState", "/name", "/_meta"])
def test_state_and_name_cannot_be_ignored(pointer: str) -> None:
    """What a request is found by counts, whatever pointers say."""
    replay = Replay(ignored=[pointer_path(pointer)], repeat=Repeat.ALWAYS)

    replay.miss(retry(SELL, {"price": 9}, state="other"))
    replay.miss(tool("other"))


def test_repeat_allows_what_was_played_and_nothing_else() -> None:
    """With every repeat allowed, wrong requests are misses all the same."""
    replay = Replay(repeat=Repeat.ALWAYS)
    for _, asking, reason, *_ in WRONG:
        if reason is Reason.ALREADY_PLAYED:
            play(replay.player, asking(replay.states))
        else:
            assert replay.miss(asking(replay.states)).reason is reason


# What the client is told


@pytest.mark.parametrize(
    ("asking", "reason"), [(row[1], row[2]) for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_miss_is_told_alike_as_text_and_as_json(asking: Asking, reason: Reason) -> None:
    """The client gets an error with its own id, whose text and data have the same facts."""
    replay = Replay()
    request = with_id(asking(replay.states), "my-id")
    miss = replay.miss(request)

    report = report_of_miss(miss, "talk.json")
    body = json.loads(miss_body(report, miss.call))
    told, data = report.text, report.facts

    assert (body["jsonrpc"], body["id"]) == ("2.0", "my-id")
    assert body["error"] == {"code": MISS_CODE, "message": told, "data": data}
    assert MISS_CODE == -32010
    assert data["reason"] == reason.value
    assert told.startswith(f"miss: {reason.value}: {miss.detail}\n")
    assert all(fix in told for fix in report.fixes)
    assert data["fix"] == ", or ".join(report.fixes)
    assert "talk.json" in told
    for difference in data["differences"]:
        assert difference["pointer"] in told


def test_text_of_a_miss() -> None:
    """A miss says what was asked, what comes nearest, where they differ, and what would help."""
    replay = Replay()

    miss = replay.miss(retry(DEPLOY, {"when": 3}, state=replay.states[1]))

    assert report_of_miss(miss, "talk.json").text.splitlines() == [
        "miss: answers-differ: other answers were recorded",
        '  request:  tools/call "deploy" with {"env":"prod","replicas":3}, answering when, echoing a request state',
        '  question: when (form) "when?"',
        '  nearest:  #1 (tools/call "deploy", answer of turn 2) in talk.json',
        "  /inputResponses/when: recorded 2, received 3",
        "  fix:      answer as recorded",
        '       or:  record this answer too with record(upstream, path, existing="append")',
        '       or:  leave what differs from run to run out of matching with ignore=["/POINTER"]',
    ]


def test_text_of_a_miss_has_no_request_state() -> None:
    """Neither the raw state nor the client's is repeated in a text that ends up in logs."""
    replay = Replay()
    for _, asking, *_ in WRONG:
        told = report_of_miss(replay.miss(asking(replay.states)), "talk.json").text
        assert not any(state in told for state in (*STATES, *replay.states))


def test_long_values_are_cut() -> None:
    """Values are cut to 200 characters, and it is said how many are left out."""
    player = player_of((tool("say", text="a" * 500), text("said")))

    miss = missed(player, tool("say", text="b" * 1_000))

    report = report_of_miss(miss, "f")
    (difference,) = report.differences
    assert difference.recorded == '"' + "a" * 199 + "… (302 more characters)"
    assert difference.received == '"' + "b" * 199 + "… (802 more characters)"
    assert max(map(len, report.text.splitlines())) < 600


def test_miss_of_what_is_no_request_has_no_id() -> None:
    """A notification, an opaque body and a response are missed without an id."""
    player = player_of((DEPLOY, text("x")))
    for body in (b"[]", b'{"jsonrpc":"2.0","method":"n"}', b'{"jsonrpc":"2.0","id":1,"result":{}}'):
        miss = missed(player, body)
        assert json.loads(miss_body(report_of_miss(miss, "f"), miss.call))["id"] is None


@pytest.mark.parametrize(
    "params",
    [
        rb'{"name":"\ud800"}',
        rb'{"name":"deploy","arguments":{"\udfff":1}}',
        rb'{"name":"deploy","arguments":{"env":"\ud83d"}}',
        rb'{"name":"deploy","inputResponses":{"\ud800":1}}',
        rb'{"name":"deploy","arguments":{"env":"prod","replicas":3},"inputResponses":{"\ud800":1},"requestState":"\udc00"}',
    ],
)
def test_miss_of_what_is_no_unicode_text_is_told(params: bytes) -> None:
    """A request with lone surrogates is a miss like any other, told in UTF-8."""
    replay = Replay()
    miss = replay.miss(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}' % params)

    body = json.loads(miss_body(report_of_miss(miss, "talk.json"), miss.call))

    assert body["id"] == 7
    assert body["error"]["message"].encode()


def test_ids_come_back_as_they_were_spelled() -> None:
    """A miss has the id in the client's own spelling."""
    player = player_of((DEPLOY, text("x")))
    request = b'{"jsonrpc":"2.0","id": 1.0e3 ,"method":"x","params":{}}'

    miss = missed(player, request)
    body = miss_body(report_of_miss(miss, "f"), miss.call)

    assert body.startswith(b'{"jsonrpc":"2.0","id":1.0e3,"error":')


def test_same_request_under_another_id_and_token_is_the_same() -> None:
    """What is the caller's own never makes a miss."""
    player = player_of(*TALK)

    assert said(play(player, with_token(with_id(rpc("tools/list"), "x"), "y"))) == "listed"


def test_other_endpoint_gets_nothing() -> None:
    """The same body at another path was not recorded."""
    player = player_of(*TALK)

    assert missed(player, post(DEPLOY, target="/other")).reason is Reason.UNKNOWN_METHOD
