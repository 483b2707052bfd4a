from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    Step,
    get,
    missed,
    notification,
    play,
    player_of,
    post,
    refusal,
    retry,
    rpc,
    state_in,
    tool,
)
from messages import NO, YES, asks, text
from pushing import SESSION, asked_once, elicit, posted

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.diagnosis import Miss, Reason, no_match
from mrtr_cassette.core.replay.playable import CassettePlace, PushedQuestion, playable
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod", replicas=3)
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def miss_of(request: bytes | Request, *script: Step) -> Miss:
    """Return why a request has no reply in a replay of which nothing was played."""
    return missed(player_of(*script), request)


def found(miss: Miss) -> list[tuple[str, str | None, str | None]]:
    """Return the differences as plain tuples."""
    return [tuple(difference) for difference in miss.differences]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("request_", "reason", "detail"),
    [
        (rpc("tools/list"), Reason.UNKNOWN_METHOD, "tools/list was not recorded"),
        (get("/x"), Reason.UNKNOWN_METHOD, "GET /x was not recorded"),
        (b"opaque", Reason.UNKNOWN_METHOD, "only JSON-RPC requests were recorded at POST /mcp"),
        (
            post(CALL, target="/mcp/"),
            Reason.UNKNOWN_METHOD,
            "tools/call was recorded at POST /mcp, not at POST /mcp/",
        ),
        (
            tool("drop"),
            Reason.UNKNOWN_NAME,
            'tools/call was recorded only for "deploy", "undeploy"',
        ),
        (
            tool("deploy", env="test"),
            Reason.ARGUMENTS_DIFFER,
            'tools/call "deploy" was recorded with other arguments',
        ),
        (
            retry(CALL, {"a": YES}),
            Reason.ANSWERS_DIFFER,
            "the server asked for no input when this call was recorded",
        ),
        (
            retry(CALL, state="S"),
            Reason.STATE_UNEXPECTED,
            "no recorded ask of this call has a request state",
        ),
        (
            retry(tool("deploy"), {"a": YES}),
            Reason.ARGUMENTS_DIFFER,
            'tools/call "deploy" was recorded with other arguments',
        ),
        (
            retry(tool("deploy"), {"a": YES}, state="S"),
            Reason.ARGUMENTS_DIFFER,
            'tools/call "deploy" was recorded with other arguments',
        ),
    ],
)
def test_reason_of_what_was_recorded_without_asks(
    request_: bytes | Request, reason: Reason, detail: str
) -> None:
    """The first part of a request that was not recorded is the reason."""
    miss = miss_of(request_, (CALL, text("done")), (tool("undeploy"), text("gone")))

    assert (miss.reason, miss.detail) == (reason, detail)


def test_arguments_are_compared_with_the_nearest() -> None:
    """Of several recorded calls the one with the fewest differences is shown."""
    script = (
        (tool("deploy", env="a", size=1, x=1), text("1")),
        (tool("deploy", env="b", size=2), text("2")),
    )

    miss = miss_of(tool("deploy", env="b", size=3), *script)

    assert miss.nearest is not None
    assert miss.nearest.interaction == 2
    assert found(miss) == [("/arguments/size", "2", "3")]


def test_opaque_body_is_compared_as_a_whole() -> None:
    """What is no JSON differs at the top."""
    assert found(miss_of(b"one", (b"other", b"x"))) == [("", '"other"', '"one"')]


def test_ignored_members_are_not_shown() -> None:
    """What doesn't count is no difference, in arguments and in answers."""
    player = player_of(
        (tool("log", at=1, text="x"), asks("a", "note")),
        (retry(tool("log", at=1, text="x"), {"a": YES, "note": 1}), text("done")),
        ignored=[("arguments", "at"), ("inputResponses", "note")],
    )

    assert found(missed(player, tool("log", at=2, text="y"))) == [("/arguments/text", '"x"', '"y"')]
    play(player, tool("log", at=3, text="x"))
    miss = missed(player, retry(tool("log", at=4, text="x"), {"a": NO, "note": 2}))
    assert {pointer.split("/")[2] for pointer, *_ in found(miss)} == {"a"}


ASKED: tuple[Step, ...] = (
    (CALL, asks("a", "b", state=STATE)),
    (retry(CALL, {"a": YES, "b": {"n": 1}}, state=STATE), text("done")),
)


@pytest.mark.parametrize(
    ("answers", "reason", "differences"),
    [
        (
            {"a": YES, "b": {"n": 2}},
            Reason.ANSWERS_DIFFER,
            [("/inputResponses/b/n", "1", "2")],
        ),
        (
            {"a": YES, "b": {"n": 1}, "c": 1},
            Reason.ANSWERS_DIFFER,
            [("/inputResponses/c", None, "1")],
        ),
        ({"a": YES}, Reason.ANSWERS_MISSING, [("/inputResponses/b", '{"n":1}', None)]),
        ({"a": YES, "b": {}}, Reason.ANSWERS_MISSING, [("/inputResponses/b/n", "1", None)]),
        ({"a": YES, "b": None}, Reason.ANSWERS_MISSING, None),
        (
            {"b": {"n": 2}},
            Reason.ANSWERS_DIFFER,
            [
                ("/inputResponses/a", '{"action":"accept","content":{"ok":true}}', None),
                ("/inputResponses/b/n", "1", "2"),
            ],
        ),
        ({}, Reason.ANSWERS_MISSING, None),
        (None, Reason.ANSWERS_MISSING, None),
    ],
)
def test_answers_are_compared_with_the_recorded_ones(
    answers: object, reason: Reason, differences: list[object] | None
) -> None:
    """What lacks is missing if nothing else differs; each difference has its pointer."""
    player = player_of(*ASKED)
    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, answers, state=state))

    assert miss.reason is reason
    assert miss.nearest is not None
    assert (miss.nearest.interaction, miss.nearest.turn) == (1, 1)
    if differences is not None:
        assert found(miss) == differences


def test_nearest_of_several_branches_is_shown() -> None:
    """The branch with the fewest differences is the nearest."""
    player = player_of(*ASKED, (retry(CALL, {"a": NO, "b": {"n": 7}}, state=STATE), text("left")))
    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, {"a": NO, "b": {"n": 8}}, state=state))

    assert miss.nearest is not None
    assert miss.nearest.interaction == 2
    assert found(miss) == [("/inputResponses/b/n", "7", "8")]


def test_answers_to_the_raw_state_are_compared_too() -> None:
    """A literal state that was recorded is known, so other answers to it are other answers."""
    player = player_of(*ASKED)
    play(player, CALL)

    miss = missed(player, retry(CALL, {"a": NO, "b": {"n": 1}}, state=STATE))

    assert miss.reason is Reason.ANSWERS_DIFFER
    assert miss.nearest is not None
    assert miss.nearest.turn == 1


def test_ask_that_nobody_answered_has_no_answers_to_compare() -> None:
    """The recording's own end is named where the ask was abandoned."""
    for issued in (None, STATE):
        player = player_of((CALL, asks("a", state=issued)))
        state = state_in(play(player, CALL)) if issued else play(player, CALL) and None

        miss = missed(player, retry(CALL, {"a": YES}, state=state))

        assert (miss.reason, miss.detail) == (
            Reason.ANSWERS_DIFFER,
            "the recording ends with this ask, so no answer to it was recorded",
        )
        assert found(miss) == []


def test_answers_to_an_orphan_are_compared_with_its_own() -> None:
    """A retry that was recorded without its ask is known by its state."""
    orphan = retry(CALL, {"a": YES}, state=STATE + "?")
    player = player_of((CALL, asks("a", state=STATE)), (orphan, refusal(CALL)))
    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, {"a": NO}, state=state + "?"))

    assert miss.reason is Reason.ANSWERS_DIFFER
    assert miss.nearest is not None
    assert miss.nearest.interaction == 2


def test_state_of_the_same_tool_with_other_arguments_shows_the_arguments() -> None:
    """A state that belongs to other arguments of the same tool is explained by those."""
    player = player_of(*ASKED, (tool("deploy", env="test"), text("x")))
    state = state_in(play(player, CALL))

    miss = missed(player, retry(tool("deploy", env="prod", replicas=4), {"a": YES}, state=state))

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert found(miss) == [("/arguments/replicas", "3", "4")]


def test_call_that_was_recorded_as_a_retry_only_lacks_its_state() -> None:
    """Where only an orphan was recorded, its first request is not known."""
    miss = miss_of(CALL, (retry(CALL, {"a": YES}, state="S"), refusal(CALL)))

    assert (miss.reason, miss.detail) == (
        Reason.STATE_MISSING,
        "this call was recorded only as a retry",
    )


def test_call_that_was_recorded_as_a_stateless_retry_only_lacks_its_answers() -> None:
    """Where the only recorded exchange is a retry without state, no state is asked for."""
    miss = miss_of(CALL, (retry(CALL, {"a": YES}), text("done")))

    assert (miss.reason, miss.detail) == (
        Reason.ANSWERS_MISSING,
        "this call was recorded only as a retry",
    )


def test_what_was_recorded_as_another_kind_of_message_says_so() -> None:
    """A notification that was recorded as a request, with an id, differs in nothing else."""
    miss = miss_of(notification("notes/add", a=1), (rpc("notes/add", {"a": 1}), text("done")))

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert miss.detail == "notes/add was recorded as a request, but this is a notification"


def test_arguments_of_a_call_recorded_as_a_retry_only_are_compared() -> None:
    """A first request is compared with retries where nothing else was recorded."""
    miss = miss_of(
        tool("deploy", env="prod", replicas=4), (retry(CALL, {"a": YES}, state="S"), refusal(CALL))
    )

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert found(miss) == [("/arguments/replicas", "3", "4")]


def test_answers_where_nothing_was_asked_are_shown_as_they_are() -> None:
    """The difference at `/inputResponses` shows what stands there, and not what surrounds it."""
    miss = miss_of(retry(CALL, {"a": 1}), (CALL, text("done")))

    assert found(miss) == [("/inputResponses", None, '{"a":1}')]


def test_second_round_without_its_state_lacks_the_state() -> None:
    """Right answers to an ask with state, without it, lack the state; earlier asks don't matter."""
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), asks("b", state=STATE)),
        (retry(CALL, {"b": YES}, state=STATE), text("done")),
    )
    play(player, CALL)
    play(player, retry(CALL, {"a": YES}))

    miss = missed(player, retry(CALL, {"b": YES}))

    assert miss.reason is Reason.STATE_MISSING
    assert miss.nearest is not None
    assert (miss.nearest.interaction, miss.nearest.turn) == (1, 1)


def test_answers_that_fit_an_ask_without_state_are_compared_with_its_own() -> None:
    """Where an ask without state has these keys, nothing says that a state is missing."""
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
    )
    play(player, CALL)

    miss = missed(player, retry(CALL, {"a": NO}))

    assert miss.reason is Reason.ANSWERS_DIFFER
    assert miss.nearest is not None
    assert miss.nearest.turn == 1


def test_answers_that_fit_no_ask_lack_the_state_of_the_first() -> None:
    """Where every ask has a state and none has these keys, the first ask is shown."""
    player = player_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), asks("b", state=STATE + "2")),
        (retry(CALL, {"b": YES}, state=STATE + "2"), text("done")),
    )

    for answers, turn in (({"c": YES}, 0), ({"b": YES}, 1), ({"a": YES}, 0)):
        miss = missed(player, retry(CALL, answers))

        assert miss.reason is Reason.STATE_MISSING
        assert miss.nearest is not None
        assert miss.nearest.turn == turn


@pytest.mark.parametrize(
    ("request_", "script"),
    [
        (retry(CALL, {"a": 1}), [(CALL, text("one")), (CALL, text("two"))]),
        (retry(CALL, state="S"), [(CALL, text("one")), (CALL, text("two"))]),
        (
            CALL,
            [
                (retry(CALL, {"a": 1}, state="S"), refusal(CALL)),
                (retry(CALL, {"a": 1}, state="T"), refusal(CALL)),
            ],
        ),
        (
            retry(CALL, {"a": 1}, state="S"),
            [(CALL, asks("a", state="T")), (CALL, asks("a", state="U"))],
        ),
    ],
)
def test_first_of_equally_near_exchanges_is_shown(request_: bytes, script: list[Step]) -> None:
    """Of several exchanges that come as near, the first is named."""
    nearest = miss_of(request_, *script).nearest

    assert nearest is not None
    assert nearest.interaction == 1


@pytest.mark.parametrize(
    ("times", "detail"),
    [
        (1, "this was recorded once, and has been played once already"),
        (2, "this was recorded 2 times, and has been played 2 times already"),
    ],
)
def test_played_calls_are_counted(times: int, detail: str) -> None:
    """A call that was played as often as recorded says how often that was."""
    player = player_of(*[(CALL, text("x"))] * times)
    for _ in range(times):
        play(player, CALL)

    miss = missed(player, CALL)

    assert (miss.reason, miss.detail) == (Reason.ALREADY_PLAYED, detail)
    assert miss.nearest is not None
    assert miss.nearest.interaction == times


def test_first_call_that_issued_a_state_is_shown() -> None:
    """A state that several other calls issued is explained by the first of them."""
    miss = missed(
        player_of(
            (tool("one"), asks("a", state=STATE)),
            (tool("two"), asks("a", state=STATE)),
            (CALL, text("x")),
            seals=False,
        ),
        retry(CALL, {"a": YES}, state=STATE),
    )

    assert (miss.reason, miss.detail) == (
        Reason.STATE_UNKNOWN,
        "this request state belongs to another call",
    )
    assert miss.nearest is not None
    assert miss.nearest.interaction == 1


def test_answer_that_was_recorded_for_another_state_is_named() -> None:
    """An answer that was given to an equal call's ask, but not to this one, says where it was."""
    player = player_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        (CALL, asks("a", state=STATE + "2")),
        (retry(CALL, {"a": NO}, state=STATE + "2"), text("left")),
    )
    first = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, {"a": NO}, state=first))

    assert miss.reason is Reason.ANSWERS_DIFFER
    assert miss.detail == (
        "#2 has this answer, to another ask of an equal call; "
        "equal calls are played in the order of the recording"
    )


def test_first_of_several_unasked_retries_is_shown() -> None:
    """Where a retry fits several asks that haven't been played, the first is named."""
    script = [(CALL, asks("a")), (retry(CALL, {"a": 1}), text("x"))] * 2
    miss = miss_of(retry(CALL, {"a": 1}), *script)

    assert miss.reason is Reason.OUT_OF_ORDER
    assert miss.nearest is not None
    assert miss.nearest.interaction == 1


def test_retry_before_its_ask_is_out_of_order() -> None:
    """A retry whose ask has not been played is named so, with what it would answer."""
    miss = miss_of(retry(CALL, {"a": YES, "b": {"n": 1}}, state=STATE), *ASKED)

    assert (miss.reason, miss.detail) == (
        Reason.OUT_OF_ORDER,
        "this retry answers an ask that has not been played yet",
    )
    assert miss.nearest is not None
    assert (miss.nearest.interaction, miss.nearest.turn) == (1, 1)


def posted_miss(request: Request, *answered: Cassette, played: int = 0) -> Miss:
    """Return why a posted response is none of the recorded ones, each the answer to one push."""
    playables = []
    for cassette in answered:
        (interaction,) = cassette.interactions
        (turn,) = interaction.pushed_turns
        pending, exchange = interaction.exchanges[0], turn.answers[0].exchange
        asking = playable(pending, CassettePlace(interaction.number, 0), pending.request, (), ())
        question = PushedQuestion(asking, turn.asked[0])
        place = CassettePlace(interaction.number, 1, answers=question)
        playables.append(playable(exchange, place, exchange.request, (), ()))
    for each in playables[:played]:
        each.played = 1
    sealed = [
        (name, sealed_hash(value) if name == SESSION[0] else value)
        for name, value in request.headers
    ]
    return no_match(read_call(replace(request, headers=tuple(sealed))), playables, ())


def test_wrong_answer_to_a_pushed_question_is_told_by_its_field() -> None:
    """The pushed request with the same id in the same session is the question."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))

    miss = posted_miss(posted(elicit(), NO), cassette)

    assert (miss.reason, miss.detail) == (
        Reason.ANSWERS_DIFFER,
        "the question was answered in another way",
    )
    assert miss.nearest is not None
    assert miss.nearest.answers is not None
    assert (str(miss.nearest.answers.pending.key), miss.nearest.answers.request.key) == (
        'tools/call "deploy"',
        "elicitation-1",
    )
    assert found(miss) == [
        ("/action", '"accept"', '"decline"'),
        ("/content", '{"ok":true}', None),
    ]


def test_error_in_the_place_of_a_posted_result_is_a_difference() -> None:
    """A client that can't answer posts an error, which is none of the recorded answers."""
    cassette = asked_once(elicit(), NO, CALL, text("done"))

    miss = posted_miss(posted(elicit(), ValueError("no user")), cassette)

    assert found(miss) == [
        ("/action", '"decline"', None),
        ("/error", None, '{"code":-1,"message":"no user"}'),
    ]


def test_question_whose_answer_has_not_come_is_nearest() -> None:
    """Where a server uses an id again, the first question that was not answered yet is meant."""
    first, second = (asked_once(elicit(), value, CALL, text("done")) for value in (YES, NO))
    cancelled = posted(elicit(), {"action": "cancel"})

    assert found(posted_miss(cancelled, second, first)) == [
        ("/action", '"decline"', '"cancel"'),
    ]
    assert len(found(posted_miss(cancelled, second, first, played=1))) == 2
    assert found(posted_miss(cancelled, second, played=1))


def test_answer_to_nothing_that_was_asked_is_like_other_traffic() -> None:
    """A response with another id, or in another session, answers no recorded question."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    elsewhere = posted(elicit(), NO)
    elsewhere = replace(elsewhere, headers=elsewhere.headers[:-1])

    for request in (posted(elicit("other"), NO), elsewhere):
        miss = posted_miss(request, cassette)
        assert miss.reason is Reason.ARGUMENTS_DIFFER


def test_answers_of_another_shape_say_so() -> None:
    """Equal answers in an array where a map was recorded are explained by their shape."""
    ask = (CALL, asks("a", state=STATE))
    answered = (retry(CALL, {"a": {"value": 1}}, state=STATE), text("done"))
    player = player_of(ask, answered)
    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, [{"id": "a", "value": 1}], state=state))
    assert miss.reason is Reason.ANSWERS_DIFFER
    assert miss.detail == "the answers have the shape `array`, recorded was `map`"
