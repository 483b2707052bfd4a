from __future__ import annotations

from builders import Answer, cassette_of, loaded, player_of, retry, tool
from messages import NO, YES, asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), asks("b")),
    (tool("other"), Answer((), status=0, end=End.OPEN)),
)


def playables() -> list[list[Playable]]:
    """Return what a replay of a cassette with a branch knows."""
    return Player(loaded(cassette_of(*BRANCHED))).interactions


def test_exchanges_form_a_tree() -> None:
    """Each retry knows the exchange whose ask it answers; a branch begins where it parts."""
    (ask, left), (again,), (other,) = playables()

    assert [(one.interaction, one.turn) for one in (ask, left, again, other)] == [
        (1, 0),
        (1, 1),
        (2, 1),
        (3, 0),
    ]
    assert (ask.parent, left.parent, again.parent, other.parent) == (None, ask, ask, None)
    assert (ask.ask is not None, left.ask, again.ask is not None) == (True, None, True)


def test_states_are_known_by_hash() -> None:
    """A state is known by what the replay issues, and by what was issued while recording."""
    (ask, left), _, _ = playables()

    assert ask.ask is not None
    assert ask.ask.request_state is not None
    assert ask.issued_sha256 == sha256_of(ask.ask.request_state) != sha256_of(STATE)
    assert ask.issued(sha256_of(STATE))
    assert ask.issued(ask.issued_sha256)
    assert not ask.issued(sha256_of("other"))
    assert not left.issued(sha256_of(STATE))


def test_question_is_that_of_an_ask_without_state() -> None:
    """Equal asks of a call are one question only where no state tells them apart."""
    (ask, left), (again,), (other,) = playables()

    assert [each.question is not None for each in (ask, left, again, other)] == [
        False,
        False,
        True,
        False,
    ]


def test_what_is_played_in_the_place_of_another_counts_for_it() -> None:
    """Without memory equal recordings are one."""
    one, other = (player_of((tool("a"), text("b"))).playables[0] for _ in range(2))
    other.same = one
    assert not other.was_played
    one.played = 1
    assert (one.was_played, other.was_played, other.played) == (True, True, 0)


def test_call_of_an_exchange_is_read_without_secrets() -> None:
    """It is the request as it is matched, where one secret is as good as another."""
    login = tool("login", user="ada", password="correct-horse")
    ((each,),) = player_of((login, text("in")), redacts=True).interactions

    assert each.call.arguments["arguments"] == {"user": "ada", "password": "<password>"}


def test_posted_answers_come_after_the_exchanges_of_their_interaction() -> None:
    """Each knows what it answers, during which exchange; a branch has those of its own turns."""
    (stream,), (asking, done, *posted), (left, *own) = Player(branched()).interactions

    assert all(each.answers is None for each in (stream, asking, done, left))
    assert left.parent is asking
    assert [
        (each.turn, each.answers.pending, each.answers.request.key)
        for each in (*posted, *own)
        if each.answers is not None
    ] == [
        (1, asking, "roots-1"),
        (1, asking, "elicitation-1"),
        (4, left, "elicitation-1"),
    ]
