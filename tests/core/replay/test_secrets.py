from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from builders import (
    Answer,
    Step,
    cassette_of,
    get,
    loaded,
    members,
    missed,
    play,
    player_of,
    progress,
    result_of,
    retry,
    said,
    state_in,
    stream,
    tool,
    with_id,
    with_token,
)
from messages import asks, text

from mrtr_cassette.core.cassette.model import RedactionModel
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


WRONG = "wrong-horse-1"
RIGHT = "right-horse-2"
OTHER = "other-horse-3"


def login(password: str) -> bytes:
    """Return a call with a secret."""
    return tool("login", user="ada", password=password)


LOGINS: tuple[Step, ...] = (
    (login(WRONG), text("denied")),
    (login(RIGHT), text("welcome")),
)


def test_each_secret_gets_what_was_recorded_for_it() -> None:
    """Whoever sends the secrets in the order of the recording gets its answers, as often as may be."""
    player = player_of(*LOGINS, redacts=True, repeat=Repeat.ALWAYS)

    for _ in range(3):
        assert said(play(player, login(WRONG))) == "denied"

    assert said(play(player, login(RIGHT))) == "welcome"
    assert said(play(player, login(WRONG))) == "denied"
    assert said(play(player, login(RIGHT))) == "welcome"


def test_a_secret_too_many_is_another_argument() -> None:
    """Where all recorded secrets are known, one more is none of them, whatever may be repeated."""
    player = player_of(*LOGINS, redacts=True, repeat=Repeat.ALWAYS)
    play(player, login(WRONG))
    play(player, login(RIGHT))

    miss = missed(player, login(OTHER))

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert (
        miss.detail
        == "this was recorded with another secret, and the difference counts here"
    )
    assert OTHER not in str(miss)


def test_where_one_secret_was_recorded_any_other_plays() -> None:
    """Nobody knows what the recorded secret was, so a client may have a new one, and many."""
    player = player_of(
        (login(RIGHT), text("welcome")), redacts=True, repeat=Repeat.ALWAYS
    )

    for secret in (OTHER, WRONG, OTHER):
        assert said(play(player, login(secret))) == "welcome"


def test_a_secret_is_one_for_all_calls() -> None:
    """What one call has told of a secret counts for every other call with several."""
    use = [tool("use", password=secret) for secret in (WRONG, RIGHT)]
    player = player_of(
        *LOGINS, (use[0], text("no")), (use[1], text("yes")), redacts=True
    )
    play(player, login(WRONG))
    play(player, login(RIGHT))

    assert said(play(player, use[1])) == "yes"
    assert said(play(player, use[0])) == "no"


def answered(password: str, state: str) -> bytes:
    """Return a retry that answers with a secret."""
    answers = {"login": {"action": "accept", "content": {"password": password}}}
    return retry(tool("open"), answers, state=state)


def test_a_secret_that_was_asked_for_again_is_another_one() -> None:
    """In one conversation, the secret that did not do is not taken for the one that did."""
    states = [f"state-{number}-aaaaaaaaaaaaaaaaaaaa" for number in (1, 2)]
    player = player_of(
        (tool("open"), asks("login", state=states[0])),
        (answered(WRONG, states[0]), asks("login", state=states[1])),
        (answered(RIGHT, states[1]), text("open")),
        redacts=True,
    )

    first = state_in(play(player, tool("open")))
    second = state_in(play(player, answered(WRONG, first)))

    assert missed(player, answered(WRONG, second)).reason is Reason.ANSWERS_DIFFER
    assert said(play(player, answered(RIGHT, second))) == "open"


@pytest.mark.parametrize(
    "spelled", [lambda word: word, lambda word: word.replace("<", "\\u003c")]
)
def test_a_placeholder_tells_which_secret_it_is(spelled: Callable[[str], str]) -> None:
    """A client that was given both sends each where it belongs, in any order."""
    secrets = ["made-up-0123456789", "made-up-9876543210"]
    issued = {
        "resultType": "complete",
        "tokens": [{"access_token": secret} for secret in secrets],
    }

    script: list[Step] = [(tool("issue"), issued)]
    script += [
        (tool("use", access_token=secret), text(secret[8:11])) for secret in secrets
    ]
    player = player_of(*script, redacts=True)
    tokens = result_of(play(player, tool("issue")))["tokens"]
    first, second = [token["access_token"] for token in tokens]

    assert (first, second) == ("<token:1>", "<token:2>")

    for given, answered in ((second, "987"), (first, "012")):
        request = tool("use", access_token=given).decode()
        played = play(player, spelled(request).encode())

        assert said(played) == answered


@pytest.mark.parametrize(
    ("recorded", "received"), [("87654321", 12345678), (12345678, "87654321")]
)
def test_secret_number_and_secret_text_are_different_questions(
    recorded: Any, received: Any
) -> None:
    """What stands for a secret keeps its type of JSON, and any other secret of the type plays."""
    say = tool("open", user="ada", pin=recorded)
    player = player_of((say, text("open")), redacts=True)

    assert (
        missed(player, tool("open", user="ada", pin=received)).reason
        is Reason.ARGUMENTS_DIFFER
    )

    another_pin = type(recorded)(int(recorded) + 1)

    assert said(play(player, tool("open", user="ada", pin=another_pin))) == "open"


@pytest.mark.parametrize(
    "other",
    [
        tool("login", user="eve", password="correct-horse"),
        tool("login", user="ada", password=""),
        tool("login", user="ada", password=["correct-horse"]),
        tool("login", user="correct-horse", password="ada"),
        tool("login", user="ada"),
    ],
)
def test_what_is_no_secret_counts_beside_one(other: bytes) -> None:
    """Everything but which secret it is counts as before."""
    player = player_of(
        (tool("login", user="ada", password="correct-horse"), text("welcome")),
        redacts=True,
    )

    miss = missed(player, other)

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert "correct-horse" not in str(miss.differences) or b'user":"correct' in other


TOKEN = "made-up-0123456789"

ISSUING: Step = (tool("login"), {"resultType": "complete", "access_token": TOKEN})


@pytest.mark.parametrize(
    "using",
    [
        lambda token: tool("use", api_key=token),
        lambda token: tool("use", header=f"Authorization: Bearer {token}"),
        lambda token: get(f"/files?password={quote(token)}"),
        lambda token: retry(
            CALL, {"a": {"action": "accept", "content": {"api_key": token}}}
        ),
    ],
)
def test_secret_that_the_cassette_gave_plays_under_another_name(
    using: Callable[[str], bytes | Request],
) -> None:
    """A client that got a placeholder finds what was recorded for that secret, whatever its rule."""
    script: list[Step] = [ISSUING, (CALL, asks("a")), (using(TOKEN), b"used")]
    player = player_of(*script, redacts=True)
    token = result_of(play(player, tool("login")))["access_token"]
    play(player, CALL)

    assert token == "<token:1>"
    assert play(player, using(token)) == b"used"


def test_secret_of_another_kind_is_another_argument() -> None:
    """What a client knows by itself is told apart by its rule, and so is a placeholder, if it can be."""
    github = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    script: list[Step] = [
        ISSUING,
        (tool("look"), text(github)),
        (tool("use", api_key=TOKEN), text("by name")),
        (tool("use", api_key=github), text("by shape")),
        (tool("use", other=github), text("by shape only")),
    ]

    player = player_of(*script, redacts=True)
    play(player, tool("login"))

    play(player, tool("look"))
    missed(
        player, tool("use", other="sk-ant-" + "0123456789abcdefghijABCDEFGHIJ012345")
    )

    assert said(play(player, tool("use", api_key="<github:1>"))) == "by shape"
    assert said(play(player, tool("use", api_key="<token:1>"))) == "by name"
    assert said(play(player, tool("use", other="<token:1>"))) == "by shape only"


def test_secret_that_was_recorded_as_it_is_plays() -> None:
    """A request from before a rule existed, as in a cassette that was added to, is found as well."""
    login = tool("login", password="correct-horse")
    by_door = tool("login", door="0000")
    cassette = cassette_of((login, text("one")), (by_door, text("two")), redacts=True)
    rules = RedactionModel(patterns=[], keys=["door"], disabled=[])
    player = Player(loaded(cassette.model_copy(update={"redaction": rules}), "f"))

    assert said(play(player, by_door)) == "two"
    assert said(play(player, login)) == "one"


def test_caller_gets_its_own_id_whatever_it_looks_like() -> None:
    """Ids and tokens are never redacted, on neither side."""
    request = with_token(with_id(tool("login", password="correct-horse"), "x"), "y")
    script: Step = (
        request,
        stream(progress("y"), b'{"jsonrpc":"2.0","id":"x","result":{}}'),
    )

    secret = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"

    got = play(
        player_of(script, redacts=True), with_token(with_id(request, secret), secret)
    )

    assert got.count(secret.encode()) == 2


def test_text_for_the_terminal_is_redacted() -> None:
    """A replay shows no secret that a recording hides, whether the cassette has rules or none."""
    words = "password=correct-horse"

    assert "correct" not in player_of(
        (CALL, text("x")), redacts=True
    ).normaliser.sent_secrets.shown_text(words)
    assert "correct" not in player_of(
        (CALL, text("x"))
    ).normaliser.sent_secrets.shown_text(words)


def test_sealed_answers_choose_the_branch() -> None:
    """Answers of which only hashes are kept are known by them, and others are misses."""

    def pin(number: float) -> Any:
        return {"pin": {"action": "accept", "content": {"pin": number}}}

    player = player_of(
        (CALL, asks("pin", state=STATE)),
        (retry(CALL, pin(1), state=STATE), text("one")),
        (retry(CALL, pin(2), state=STATE), text("two")),
        seals_answers=True,
    )

    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, pin(3), state=state))

    assert miss.reason is Reason.ANSWERS_DIFFER
    assert [difference.pointer for difference in miss.differences] == [
        "/inputResponses/pin/content"
    ]

    second = play(player, retry(CALL, pin(2.0), state=state))
    first = play(player, retry(CALL, pin(1), state=state))

    assert said(second) == "two"
    assert said(first) == "one"


@pytest.mark.parametrize(
    "answer_of",
    [
        b'{"jsonrpc":"2.0","id":"pushed","result":{"action":"accept","content":{"pin":%d}}}',
        b'[{"jsonrpc":"2.0","id":"pushed","result":{"action":"accept","content":{"pin":%d}}}]',
        retry(CALL, "pin %d", state=STATE),
        b'{"jsonrpc":"2.0","id":"pushed","result":{"content":{"pin":%d},}}',
    ],
)
def test_sealed_answers_of_any_form_play(answer_of: bytes) -> None:
    """The same answer is found by its hash, whatever carries it, and another one is a miss."""
    recorded = answer_of % 1234
    cassette = cassette_of(
        (recorded, Answer((), status=202)), redacts=True, seals_answers=True
    )
    player = Player(loaded(cassette, "f"))

    assert "1234" not in str(members(cassette))

    missed(player, answer_of % 4321)

    assert play(player, recorded) == b""


def test_a_verbatim_state_is_not_its_hash() -> None:
    """Where states are kept, one that looks like a hash is a state like any other."""
    hashed = sealed_hash(STATE)
    for recorded, received in ((STATE, hashed), (hashed, STATE)):
        go = tool("go")
        script: list[Step] = [(go, asks("a", state=recorded))]
        script.append((retry(go, {"a": 1}, state=recorded), text("gone")))
        player = player_of(*script, seals=False)
        play(player, go)

        missed(player, retry(go, {"a": 1}, state=received))

        assert said(play(player, retry(go, {"a": 1}, state=recorded))) == "gone"
