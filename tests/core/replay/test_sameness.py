from __future__ import annotations

from typing import Any

from builders import (
    JSON_HEADERS,
    Answer,
    Step,
    answer,
    cassette_of,
    changed,
    loaded,
    post,
    progress,
    retry,
    rpc,
    stream,
    tool,
    with_id,
    with_meta,
    with_token,
)
from messages import CLIENT_KEY, NO, YES, Json, asks, text

from mrtr_cassette.core.replay.matching import Secret
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.replay.sameness import Sameness
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
FIRST, SECOND = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m", "eyJzdGVwIjoyfQ.c2lnbmF0dXJlLW9n"


def compared(*script: Step, **options: Any) -> tuple[Sameness, list[Playable]]:
    """Return what is the same in a recording, and its exchanges in their order."""
    player = Player(loaded(cassette_of(*script, **options)))
    playables = sorted(player.playables, key=lambda each: each.arrival)
    return Sameness(playables, {}), playables


def says_one(*responses: Json, request: bytes = CALL) -> bool:
    """Tell whether all of these responses to a request say the same."""
    same, playables = compared(*((request, response) for response in responses))
    return len({same.says[each] for each in playables}) == 1


def roots(same: Sameness, playables: list[Playable]) -> list[str]:
    """Return what the states of all asks are known by, also as the server issued them."""
    states = [
        state for each in playables for state in (each.issued_sha256, each.exchange.issued_sha256)
    ]
    return [same.root(state) for state in states if state is not None]


def test_equal_asks_of_the_same_request_have_states_that_are_one() -> None:
    """The surrogates are, and the states of the server are, whichever client was asked."""
    other = with_meta(CALL, **{CLIENT_KEY: {"name": "other", "version": "1"}})
    for second in (CALL, other):
        same, playables = compared(
            (CALL, asks("a", state=FIRST)), (second, asks("a", state=SECOND))
        )
        known = roots(same, playables)
        assert known[:2] == known[2:]
        assert set(same.states) == {playables[1].issued_sha256, playables[1].exchange.issued_sha256}


def test_states_of_other_asks_stay_apart() -> None:
    """Other questions, other arguments and other traits have states of their own."""
    for second, asked in (
        (CALL, asks("b", state=SECOND)),
        (tool("deploy", env="test"), asks("a", state=SECOND)),
        (with_token(CALL, 1), asks("a", state=SECOND)),
    ):
        same, playables = compared((CALL, asks("a", state=FIRST)), (second, asked))
        assert same.states == {}
        assert len(set(roots(same, playables))) == 4


def test_states_of_later_rounds_follow_from_those_before() -> None:
    """Equal answers to equal asks are the same request, so the next asks are equal too."""
    states = [f"{which}-{'x' * 30}" for which in range(4)]
    script = [
        step
        for one, two in (states[:2], states[2:])
        for step in (
            (CALL, asks("a", state=one)),
            (retry(CALL, {"a": YES}, state=one), asks("b", state=two)),
        )
    ]
    same, playables = compared(*script)

    assert len(same.states) == 4
    assert same.identity(playables[1]) == same.identity(playables[3])


def test_verbatim_states_are_told_wherever_they_stand() -> None:
    """A state that the server repeats in its text makes no other text."""
    asked = [{**asks("a", state=state), "log": f"for {state}"} for state in (FIRST, SECOND)]
    same, playables = compared(*((CALL, each) for each in asked), seals=False)

    assert len({same.says[each] for each in playables}) == 1
    assert len(set(roots(same, playables))) == 1


def test_state_that_a_client_changed_follows_what_it_was_made_of() -> None:
    """What one test did with its state is what another one does with an equal one."""
    same, playables = compared(
        (CALL, asks("a", state=FIRST)),
        (retry(CALL, {"a": NO}, state=FIRST + "x"), text("tampered")),
        (CALL, asks("a", state=SECOND)),
        (retry(CALL, {"a": NO}, state=SECOND + "x"), text("tampered")),
    )

    assert same.identity(playables[1]) == same.identity(playables[3])


def test_what_differs_whenever_it_is_recorded_says_nothing() -> None:
    """Spelling, ids, progress tokens, event ids, comments and who left a stream aside."""
    assert says_one(text("a"), answer(CALL, text("a")).replace(b":", b" : "))
    same, playables = compared((with_id(CALL, 1), text("a")), (with_id(CALL, "b"), text("a")))
    assert len({same.says[each] for each in playables}) == 1
    told = [with_token(CALL, token) for token in (1, "t")]
    same, playables = compared(
        *(
            (each, stream(progress(token), answer(CALL, text("a"))))
            for each, token in zip(told, (1, "t"), strict=True)
        )
    )
    assert len({same.says[each] for each in playables}) == 1
    plain = stream(answer(CALL, text("a")))
    commented = plain._replace(chunks=(b": ping\n\n", b"id: 7\n" + plain.chunks[0]))
    assert says_one(plain, commented)
    listen = rpc("subscriptions/listen", {})
    opened = stream(answer(listen, {}), end=End.OPEN)
    assert says_one(opened, opened._replace(end=End.COMPLETE), request=listen)


def test_what_a_client_can_tell_is_another_answer() -> None:
    """Text, status, headers, the end of a stream, no response, and bytes that are no message."""
    whole = stream(answer(CALL, text("a")))
    body = answer(CALL, text("a"))
    for one, other in (
        (text("a"), text("b")),
        (Answer((body,)), Answer((body,), JSON_HEADERS, 400)),
        (whole, Answer((body,))),
        (stream(progress("t")), stream(progress("t"), end=End.BROKEN)),
        (whole, Answer((), (), 0, End.OPEN)),
        (b"<html>a", b"<html>b"),
    ):
        assert says_one(one, one)
        assert not says_one(one, other)


def test_secrets_are_known_by_who_had_them_first() -> None:
    """Those of clients are all alike; those of the server are one where it gave them out alike."""
    tokens = ["ghp_" + part * 9 for part in ("a1B2", "c3D4", "e5F6")]
    use = [tool("who", token=token) for token in tokens]
    same, playables = compared(
        (tool("login", user="a"), text(tokens[0])),
        (tool("login", user="a"), text(tokens[1])),
        (tool("login", user="b"), text(tokens[2])),
        *((each, text("you")) for each in use),
        (tool("login", password="horse-a-1"), text("in")),
        (tool("login", password="horse-b-1"), text("horse-b-1 is in")),
        redacts=True,
    )
    identities = [same.identity(each) for each in playables]

    assert identities[3] == identities[4] != identities[5]
    assert identities[6] == identities[7]
    assert same.secret(Secret("github", "2")) == "<github:1>"
    assert same.secret(Secret("github", "received.0")) == "<github>"


def test_sessions_are_one_where_the_same_client_opened_them() -> None:
    """A client that says who it is has sessions of its own."""
    initialize = rpc("initialize", {"clientInfo": {"name": "c"}}, number=0)
    other = changed(initialize, "params", "clientInfo", to={"name": "other"})
    script: list[Step] = []
    for number, request in enumerate((initialize, initialize, other)):
        session = ("Mcp-Session-Id", str(number) * 32)
        script += [
            (request, Answer((answer(initialize, {}),), (*JSON_HEADERS, session))),
            (post(CALL, session), text("a")),
        ]
    same, playables = compared(*script)
    calls = playables[1::2]

    assert [same.identity(each).traits.session[-1] for each in calls] == ["1", "1", "3"]
    assert same.caller(calls[0]) == same.caller(calls[1]) != same.caller(calls[2])


def test_recorders_answers_are_part_of_the_answer() -> None:
    """What the call gets is the end of the conversation, and its ask has the state."""
    script: list[Step] = []
    for state, words in ((FIRST, "one"), (SECOND, "two")):
        script += [
            (CALL, asks("a", state=state)),
            (retry(CALL, {"a": YES}, state=state), text(words)),
        ]
    _, playables = compared(*script)
    ends = dict(zip(playables[::2], playables[1::2], strict=True))

    same = Sameness(playables, ends)

    assert same.says[playables[0]] != same.says[playables[2]]
    assert same.says.keys() == ends.keys()
    assert len({same.root(each.issued_sha256 or "") for each in ends}) == 2
