from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import Step, missed, play, player_of, result_of, retry, said, state_in, tool
from messages import asks, text

from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.in_order import Repeat

WRONG, RIGHT, OTHER = "wrong-horse-1", "right-horse-2", "other-horse-3"


def login(password: str) -> bytes:
    """Return a call with a secret."""
    return tool("login", user="ada", password=password)


LOGINS: tuple[Step, ...] = ((login(WRONG), text("denied")), (login(RIGHT), text("welcome")))


def test_each_secret_gets_what_was_recorded_for_it() -> None:
    """Whoever sends the secrets in the order of the recording gets its answers, as often as may be."""
    player = player_of(*LOGINS, redacts=True, repeat=Repeat.ALWAYS)

    for _ in range(3):
        assert said(play(player, login(WRONG))) == "denied"
    assert said(play(player, login(RIGHT))) == "welcome"
    assert said(play(player, login(WRONG))) == "denied"
    assert said(play(player, login(RIGHT))) == "welcome"


def test_a_denied_secret_is_never_welcome() -> None:
    """A secret that was played as one recorded secret is not the next one when that is used up."""
    player = player_of(*LOGINS, redacts=True)
    play(player, login(WRONG))

    assert missed(player, login(WRONG)).reason is Reason.ALREADY_PLAYED
    assert said(play(player, login(RIGHT))) == "welcome"


def test_a_secret_too_many_is_another_argument() -> None:
    """Where all recorded secrets are known, one more is none of them, whatever may be repeated."""
    player = player_of(*LOGINS, redacts=True, repeat=Repeat.ALWAYS)
    play(player, login(WRONG))
    play(player, login(RIGHT))

    miss = missed(player, login(OTHER))

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert miss.detail == "this was recorded with another secret, and which one it is counts here"
    assert OTHER not in str(miss)


def test_where_one_secret_was_recorded_any_other_plays() -> None:
    """Nobody knows what the recorded secret was, so a client may have a new one, and many."""
    player = player_of((login(RIGHT), text("welcome")), redacts=True, repeat=Repeat.ALWAYS)

    for secret in (OTHER, WRONG, OTHER):
        assert said(play(player, login(secret))) == "welcome"


def test_a_secret_is_one_for_all_calls() -> None:
    """What one call has told of a secret counts for every other call with several."""
    use = [tool("use", password=secret) for secret in (WRONG, RIGHT)]
    player = player_of(*LOGINS, (use[0], text("no")), (use[1], text("yes")), redacts=True)
    play(player, login(WRONG))
    play(player, login(RIGHT))

    assert said(play(player, use[1])) == "yes"
    assert said(play(player, use[0])) == "no"


def answer(password: str, state: str) -> bytes:
    """Return a retry that answers with a secret."""
    answers = {"login": {"action": "accept", "content": {"password": password}}}
    return retry(tool("open"), answers, state=state)


def test_a_secret_that_was_asked_for_again_is_another_one() -> None:
    """In one conversation, the secret that did not do is not taken for the one that did."""
    states = [f"state-{number}-aaaaaaaaaaaaaaaaaaaa" for number in (1, 2)]
    player = player_of(
        (tool("open"), asks("login", state=states[0])),
        (answer(WRONG, states[0]), asks("login", state=states[1])),
        (answer(RIGHT, states[1]), text("open")),
        redacts=True,
    )
    first = state_in(play(player, tool("open")))
    second = state_in(play(player, answer(WRONG, first)))

    assert missed(player, answer(WRONG, second)).reason is Reason.ANSWERS_DIFFER
    assert said(play(player, answer(RIGHT, second))) == "open"


@pytest.mark.parametrize("spelled", [lambda word: word, lambda word: word.replace("<", "\\u003c")])
def test_a_placeholder_tells_which_secret_it_is(spelled: Callable[[str], str]) -> None:
    """A client that was given both sends each where it belongs, in any order."""
    secrets = ["made-up-0123456789", "made-up-9876543210"]
    issued = {"resultType": "complete", "tokens": [{"access_token": each} for each in secrets]}
    script: list[Step] = [(tool("issue"), issued)]
    script += [(tool("use", access_token=each), text(each[8:11])) for each in secrets]
    player = player_of(*script, redacts=True)
    first, second = (
        each["access_token"] for each in result_of(play(player, tool("issue")))["tokens"]
    )

    assert (first, second) == ("<token:1>", "<token:2>")
    for given, answered in ((second, "987"), (first, "012")):
        request = tool("use", access_token=given).decode()
        assert said(play(player, spelled(request).encode())) == answered
