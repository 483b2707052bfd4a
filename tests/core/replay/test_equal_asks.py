"""Facts about equal calls that were asked the same, and answered in several ways."""

from __future__ import annotations

import pytest
from builders import Step, heard, play, player_of, retry, state_in, tool
from messages import NO, YES, asks, text

from mrtr_cassette.core.replay.player import Player

CALL = tool("deploy")
ANSWERS = {"yes": {"a": YES}, "no": {"a": NO}}


def answered(number: int, *answers: str) -> list[Step]:
    """Make the script of a call that asks as often as it is answered, each time with a new state."""
    states = [f"state-{number}-{turn}-{'x' * 20}" for turn in range(len(answers))]
    script: list[Step] = [(CALL, asks("a", state=states[0]))]
    for answer, state, next_state in zip(answers, states, states[1:], strict=False):
        script.append(
            (retry(CALL, ANSWERS[answer], state=state), asks("a", state=next_state))
        )

    last = retry(CALL, ANSWERS[answers[-1]], state=states[-1])
    return [*script, (last, text("-".join(answers)))]


def begins(player: Player) -> str:
    """Make the call; return the state of its question."""
    return state_in(play(player, CALL))


def ends(player: Player, state: str, *answers: str) -> str:
    """Answer the questions of a call; return what it gets in the end, or why it missed."""
    for answer in answers[:-1]:
        state = state_in(play(player, retry(CALL, ANSWERS[answer], state=state)))

    return heard(player, retry(CALL, ANSWERS[answers[-1]], state=state))


@pytest.mark.parametrize(
    ("recorded", "played"),
    [
        (["yes", "no"], ["no", "yes"]),
        (["yes-yes", "yes-no"], ["yes-no", "yes-yes"]),
        (["yes-yes", "no-no"], ["no-no", "yes-yes"]),
        (["no", "yes", "no"], ["yes", "no", "no"]),
        (["yes", "yes", "no"], ["no", "yes", "yes"]),
    ],
)
def test_client_that_answers_otherwise_gets_what_an_equal_call_got(
    recorded: list[str], played: list[str]
) -> None:
    """In whichever order: the state of a question stands for those of equal ones."""
    script: list[Step] = []
    for number, answers in enumerate(recorded):
        script += answered(number, *answers.split("-"))

    player = player_of(*script)
    for answers in played:
        assert ends(player, begins(player), *answers.split("-")) == answers

    assert (player.tally.misses, player.played_part.unplayed_numbers) == ([], [])


def test_answer_that_an_equal_call_got_is_played_once() -> None:
    """The other call stays to be played."""
    player = player_of(*answered(1, "yes"), *answered(2, "no"))

    assert ends(player, begins(player), "no") == "no"
    assert player.played_part.unplayed_numbers == [1]
    assert ends(player, begins(player), "no") == "miss answers-differ"


def test_state_of_a_question_that_was_not_asked_stands_for_no_other_one() -> None:
    """A client can't have it from this replay."""
    player = player_of(*answered(1, "yes"), *answered(2, "no"))
    state = begins(player_of(*answered(1, "yes"), *answered(2, "no")))

    assert ends(player, state, "no") == "miss answers-differ"
