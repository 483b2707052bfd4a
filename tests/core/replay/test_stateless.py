from __future__ import annotations

import pytest
from builders import (
    Step,
    cassette_of,
    loaded,
    missed,
    play,
    player_of,
    post,
    result_of,
    retry,
    rpc,
    said,
    state_in,
    tool,
    with_id,
    with_meta,
    with_token,
)
from messages import CLIENT_KEY, NO, YES, asks, text

from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.errors import CassetteError, in_terms

CALL = tool("deploy", env="prod")
FIRST, SECOND = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m", "eyJzdGVwIjoyfQ.c2lnbmF0dXJlLW9n"
BOTH: tuple[Step, ...] = (
    (CALL, asks("a", state=FIRST)),
    (retry(CALL, {"a": YES}, state=FIRST), text("done")),
    (CALL, asks("a", state=SECOND)),
    (retry(CALL, {"a": NO}, state=SECOND), text("left")),
)
"""The same call twice, answered in two ways."""


def replicas(*script: Step, number: int = 2, **options: bool) -> list[Player]:
    """Return several replays of one cassette, without memory."""
    cassette = cassette_of(*script, **options)
    return [Player(loaded(cassette, "talk.json"), stateless=True) for _ in range(number)]


def refused(*script: Step, **options: bool) -> str:
    """Return why a cassette can't be played without memory."""
    with pytest.raises(CassetteError) as error:
        player_of(*script, stateless=True, **options)
    return in_terms(error.value.in_terms({}))


def test_retry_is_played_by_a_process_that_never_asked() -> None:
    """What a client was asked by one replica it answers to any other."""
    one, other = replicas(*BOTH)
    state = state_in(play(one, CALL))

    assert said(play(other, retry(CALL, {"a": YES}, state=state))) == "done"
    assert (one.misses, other.misses) == ([], [])


@pytest.mark.parametrize("options", [{}, {"seals": False}])
def test_either_state_finds_the_branch_that_its_answers_choose(options: dict[str, bool]) -> None:
    """Equal asks of equal calls stand for each other, whichever state a client carries."""
    states = [
        state_in(play(player, CALL))
        for player in (player_of(*BOTH, **options), player_of(*BOTH[2:], *BOTH[:2], **options))
    ]
    in_order = player_of(*BOTH, **options)
    states += [state_in(play(in_order, with_id(CALL, number))) for number in (8, 9)]
    states += [FIRST, SECOND]
    (player,) = replicas(*BOTH, number=1, **options)

    for state in states:
        assert said(play(player, retry(CALL, {"a": YES}, state=state))) == "done"
        assert said(play(player, retry(CALL, {"a": NO}, state=state))) == "left"


def test_call_may_be_played_as_often_as_anybody_likes() -> None:
    """What was recorded once has the same answer each time."""
    (player,) = replicas(*BOTH, number=1)

    assert {state_in(play(player, with_id(CALL, number))) for number in range(5)} == {
        state_in(play(player, CALL))
    }


def test_forged_state_is_a_miss() -> None:
    """A state that no recorded ask issued gets nothing, and a state is of its own call."""
    (player,) = replicas(*BOTH, (tool("deploy", env="test"), text("tested")), number=1)
    state = state_in(play(player, CALL))
    for forged in (state[:-1] + "9", state + "x", "mrtr-state:0000000000000000:1:1", "made up"):
        miss = missed(player, retry(CALL, {"a": YES}, state=forged))
        assert miss.reason is Reason.STATE_UNKNOWN
    missed(player, retry(tool("deploy", env="test"), {"a": YES}, state=state))
    assert missed(player, retry(CALL, {"a": YES})).reason is Reason.STATE_MISSING


def test_changed_state_gets_the_recorded_refusal_whichever_ask_it_is_made_of() -> None:
    """What a test makes of the state that it got is what was recorded of an equal one."""
    (player,) = replicas(
        *BOTH, (retry(CALL, {"a": YES}, state=SECOND + "x"), text("tampered")), number=1
    )
    state = state_in(play(player, CALL))

    assert said(play(player, retry(CALL, {"a": YES}, state=state + "x"))) == "tampered"


def test_equal_answers_stand_for_each_other() -> None:
    """Spelling, ids and progress tokens don't make two answers of one."""
    (player,) = replicas(
        (with_id(CALL, 7), text("done")), (with_id(CALL, "x"), text("done")), number=1
    )

    assert b'"id":"mine"' in play(player, with_id(CALL, "mine"))
    assert player.unplayed == []
    assert [each.played for own in player.interactions for each in own] == [1, 0]


def test_interaction_of_which_only_the_beginning_is_like_another_is_unplayed() -> None:
    """Who answers one way has not played what follows the other answer."""
    (player,) = replicas(*BOTH, number=1)
    play(player, retry(CALL, {"a": YES}, state=state_in(play(player, CALL))))

    assert player.unplayed == [2]


def test_poll_is_refused_by_name() -> None:
    """A request that was answered otherwise later is no function of the request."""
    poll = rpc("tasks/get", {"taskId": "t1"})
    words = refused(
        (CALL, text("x")), (poll, text("working")), (poll, text("working")), (poll, text("done"))
    )

    assert "#2, #3, #4: tasks/get" in words
    assert "#1" not in words
    assert "serve it without, from one process" in words


def test_ask_that_leads_to_two_ends_for_one_answer_is_refused() -> None:
    """Equal asks with equal answers and different ends are the same request with two answers."""
    again = (retry(CALL, {"a": YES}, state=SECOND), text("done, number 2"))

    assert '#1, #2: tools/call "deploy"' in refused(*BOTH[:3], again)


def test_header_progress_token_and_client_tell_requests_apart() -> None:
    """What tells them apart is named, and each client gets its own."""
    by_client = [
        with_meta(tool("who"), **{CLIENT_KEY: {"name": name, "version": "1"}}) for name in "ab"
    ]
    with_header = [
        post(tool("where"), ("Mcp-Param-Region", region), ("Accept", "application/json"))
        for region in ("eu", "us")
    ]
    (player,) = replicas(
        *zip(by_client, map(text, "ab"), strict=True),
        *zip(with_header, map(text, ("eu", "us")), strict=True),
        (tool("slow"), text("quiet")),
        (with_token(tool("slow"), 5), text("told")),
        number=1,
    )

    assert [str(each) for each in player.told_apart] == [
        '#1, #2: tools/call "who", told apart by the client',
        '#3, #4: tools/call "where", told apart by the header Mcp-Param-Region',
        '#5, #6: tools/call "slow", told apart by a progress token',
    ]
    for _ in range(2):
        assert [said(play(player, each)) for each in by_client] == ["a", "b"]
        assert [said(play(player, each)) for each in with_header] == ["eu", "us"]
        assert said(play(player, with_token(tool("slow"), 6))) == "told"
        assert said(play(player, tool("slow"))) == "quiet"


def test_cursors_are_requests_of_their_own() -> None:
    """Pages of a list differ in what is asked."""
    pages = [rpc("tools/list", {"cursor": cursor} if cursor else {}) for cursor in ("", "a", "b")]
    one, other = replicas(*[(page, {"tools": [], "at": at}) for at, page in enumerate(pages)])

    assert [result_of(play(one, page))["at"] for page in pages] == [0, 1, 2]
    assert [result_of(play(other, page))["at"] for page in reversed(pages)] == [2, 1, 0]
    assert one.told_apart == ()
