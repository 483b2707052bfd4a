"""Laws about secrets that are known by their names in one place and stand in others too."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest
from builders import (
    Conversation,
    encode_cassette,
    hit,
    loaded,
    missed,
    play,
    post,
    result_of,
    retry,
    state_in,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import asks
from verifying import reported_miss

from mrtr_cassette.core.cassette.model import CassetteModel
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.credentials import UserSettings
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.terms import LIBRARY_TERMS

SECRETS = (
    "hunter2hunter",
    "Tr0ub4dor&3<x>",
    'p"w\\é/1+x9',
    "qk/7+Jx0bW9kZWw/aGVsbG8+d29ybGQ=",
)
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda secret: f"the password is {secret}, keep it",
    lambda secret: json.dumps({"note": secret}),
    lambda secret: json.dumps({"note": json.dumps([secret])}),
    lambda secret: f"https://a.example/?q={quote(secret, safe='')}&page=1",
    lambda secret: b64encode(f"user:{secret}".encode()).decode(),
    lambda secret: urlsafe_b64encode(f"{secret}:x".encode()).decode(),
)
NAMED = ("named in the request", "named in the response")
WAYS: dict[str, Callable[[str], str]] = {
    "a setting of YAML": lambda secret: f"user: ada\npassword: {json.dumps(secret)}\n",
    "a row of SQL": lambda secret: (
        f"INSERT INTO u (n, password) VALUES (1, '{secret}'), (2, '')"
    ),
    "code of a browser": lambda secret: (
        f"page.getByLabel('Password').fill({json.dumps(secret)});"
    ),
    "an answer by key": lambda secret: json.dumps(
        {"password": {"action": "accept", "content": {"value": secret}}}
    ),
    "JSON with the value first": lambda secret: json.dumps(
        {"value": secret, "id": "password"}
    ),
}
"""How else a text says what a secret is called."""

PLACES = ("argument", "deep argument", "result", "none")


def text_of(place: str, spelled: str, number: int) -> tuple[bytes, dict[str, object]]:
    """Return a call and its result that have a text in a place."""
    if place == "argument":
        call = tool("note", text=spelled, number=number)
    elif place == "deep argument":
        call = tool("note", fields=[{"label": "a"}, {"text": spelled}], number=number)
    else:
        call = tool("note", number=number)

    result = spelled if place == "result" else f"noted {number}"
    return call, {"content": [{"type": "text", "text": result}]}


def named_in(where: str, secret: str) -> tuple[bytes, dict[str, object]]:
    """Return a call and its result of which one has a secret under a name."""
    if where == NAMED[0]:
        return tool("login", password=secret), {"content": []}
    if where in WAYS:
        return tool("show"), {
            "content": [{"type": "text", "text": WAYS[where](secret)}]
        }
    if where == "typed":
        return tool("browser_type", text=secret, element="Password field"), {
            "content": []
        }

    return tool("make"), {"content": [], "structuredContent": {"password": secret}}


def recorded(*steps: tuple[bytes, dict[str, object]]) -> CassetteModel:
    """Record some calls one after another."""
    made = Conversation(redacts=True)
    for call, result in steps:
        made.exchange(call, result)

    return made.cassette()


@given(
    secret=st.sampled_from(SECRETS),
    where=st.sampled_from((*NAMED, *WAYS, "typed")),
    before=st.sampled_from(PLACES),
    after=st.sampled_from(PLACES),
    spell=st.sampled_from(SPELLINGS),
)
def test_secret_that_is_named_once_is_nowhere_and_its_client_replays(
    secret: str, where: str, before: str, after: str, spell: Callable[[str], str]
) -> None:
    """The cassette has it in no spelling, and the client that recorded is played all of it."""
    steps = [
        text_of(before, spell(secret), 1),
        named_in(where, secret),
        text_of(after, spell(secret), 2),
    ]

    cassette = recorded(*steps)
    file = encode_cassette(cassette).decode()
    player = Player(loaded(cassette))

    for spelled in (secret, spell(secret), quote(secret, safe="")):
        for escaped in (
            spelled,
            json.dumps(spelled)[1:-1],
            json.dumps(json.dumps(spelled))[3:-3],
        ):
            assert escaped not in file

    for call, _ in steps:
        assert b"result" in play(player, call)


@pytest.mark.parametrize("value", ["production", "20260728", "short1", "two words"])
def test_word_or_number_under_a_name_stays_in_other_texts(value: str) -> None:
    """It may stand there in its own right, however it was found."""
    cassette = recorded(named_in(NAMED[0], value), text_of("argument", value, 1))

    assert encode_cassette(cassette).count(value.encode()) == 1


def test_text_in_the_place_of_a_placeholder_is_the_same_for_the_same() -> None:
    """What can be no secret there is a miss, and so are two texts for one recorded secret."""
    call = tool("send", a="hunter2hunter", b=["to hunter2hunter"])
    login = named_in(NAMED[1], "hunter2hunter")
    player = Player(loaded(recorded((call, {}), login)))

    missed(player, tool("send", a="other7other", b=["to hunter2hunter"]))
    missed(player, tool("send", a="hello", b=["to hello"]))
    missed(player, tool("send", a="some longer text 7", b=["to some longer text 7"]))

    assert hit(player, tool("send", a="other7other", b=["to other7other"]))


def test_text_in_the_place_of_a_placeholder_of_an_answer_is_the_secret() -> None:
    """A user has called it a secret to the recorder, and the replay isn't told again."""
    secret = "hunter2hunter"
    made = Conversation(redacts=True)
    made.recorder.sealer.credentials.add_settings(UserSettings(secrets=(secret,)))
    state = "state-of-the-question-xxxxx"
    made.exchange(tool("open"), asks("code", state=state))
    answers = {"code": {"action": "accept", "content": {"v": secret}}}
    made.exchange(retry(tool("open"), answers, state=state), {"content": []})
    player = Player(loaded(made.cassette()))
    issued = state_in(play(player, tool("open")))
    answers["code"]["content"] = {"v": "other7other"}

    assert hit(player, retry(tool("open"), answers, state=issued))


@pytest.mark.parametrize("note", ["{}", "the code is {}, keep it"])
@pytest.mark.parametrize("logs_in", [True, False])
def test_another_text_is_no_secret_that_the_client_has_told(
    note: str, *, logs_in: bool
) -> None:
    """After a login with a password, a note with the password is answered, and no other note."""
    login = named_in(NAMED[0], "hunter2hunter")
    noted = text_of("argument", note.format("hunter2hunter"), 1)
    player = Player(loaded(recorded(login, noted)))
    own_login = named_in(NAMED[0], "other7other")[0]
    if logs_in:
        play(player, own_login)

    missed(player, text_of("argument", note.format("dentist-at-9:30"), 1)[0])
    if not logs_in:
        play(player, own_login)

    assert hit(player, text_of("argument", note.format("other7other"), 1)[0])


def test_replay_without_memory_takes_any_text_that_could_be_the_secret() -> None:
    """Another process may have had the login; what this one had before changes no reply."""
    login = named_in(NAMED[0], "hunter2hunter")
    note = text_of("argument", "hunter2hunter", 1)
    player = Player(loaded(recorded(login, note)), stateless=True)
    for text in ("other7other", "third7third"):
        assert hit(player, text_of("argument", text, 1)[0])

        play(player, named_in(NAMED[0], "other7other")[0])


def test_secret_in_a_url_is_told_by_each_request() -> None:
    """Without memory, the request itself must tell which text of its body is its secret."""

    def noted(secret: str) -> Request:
        call, _ = text_of("argument", f"{secret} is {secret}", 1)
        return post(call, target=f"/mcp?api_key={secret}")

    made = Conversation(redacts=True)
    made.exchange(noted("hunter2hunter"), {"content": []})
    player = Player(loaded(made.cassette()), stateless=True)

    assert hit(player, noted("other7other"))
    assert hit(player, noted("other7other"))


def test_text_for_a_secret_that_is_told_later_is_held_to() -> None:
    """Nobody can tell it before; from then on it is the only one."""
    notes = [tool("note", text="hunter2hunter"), tool("keep", text="hunter2hunter")]
    steps = [(note, {"content": []}) for note in notes]
    login = named_in(NAMED[0], "hunter2hunter")
    player = Player(loaded(recorded(*steps, login)))

    assert hit(player, tool("note", text="other7other"))

    missed(player, tool("keep", text="third7third"))

    assert hit(player, tool("keep", text="other7other"))


def test_cassette_of_an_earlier_recorder_that_has_a_repeated_secret_plays() -> None:
    """What stands in a recorded request as it was sent is still matched as it is."""
    login = named_in(NAMED[0], "hunter2hunter")
    note = text_of("argument", "hunter2hunter", 1)
    made = Conversation(redacts=True)
    for call, result in (note, login):
        made.exchange(call, result)

    made.recorder.sealer.credentials = None
    player = Player(loaded(made.cassette()))

    assert hit(player, login[0])
    assert hit(player, note[0])


def test_miss_after_placeholders_says_so() -> None:
    """A client that was given a placeholder may send it, or go on from it, where nothing has one."""
    login = named_in(NAMED[1], "hunter2hunter")
    noted = text_of("argument", "a", 1)
    player = Player(loaded(recorded(login, noted)))

    call = tool("note", text="length of <password:1>", number=1)
    before = missed(player, call)
    play(player, named_in(NAMED[1], "")[0])

    assert "<password:1>" not in before.detail
    assert "have <password:1> in place of a secret" in missed(player, call).detail


def test_unknown_session_id_is_in_no_miss() -> None:
    """A client's id that the cassette doesn't have may be a bearer token."""
    identity = "kq7x-session-4714"
    player = Player(loaded(recorded(text_of("argument", "a", 1))))
    call = post(tool("note", text=f"in {identity}"), ("Mcp-Session-Id", identity))
    miss = missed(player, call)
    report = reported_miss(miss, Cassette("f"), str, LIBRARY_TERMS)

    assert identity not in repr(miss)
    assert identity not in repr(report)


def test_password_typed_into_a_page_is_known_from_then_on() -> None:
    """The description of a field names what is typed into it, which its result repeats as code."""
    secret = "hunter2hunter"
    call = tool("browser_type", element="Password textbox", ref="e5", text=secret)
    said = f"await page.getByRole('textbox', {{ name: 'Password' }}).fill('{secret}');"
    cassette = recorded((call, {"content": [{"type": "text", "text": said}]}))

    assert secret not in encode_cassette(cassette).decode()
    assert hit(Player(loaded(cassette)), call)


def test_state_that_is_the_text_of_the_arguments_leaves_them() -> None:
    """A server may keep its arguments in the state: beside them, the state alone is sealed."""
    fields = {"environment": "production", "replicas": 3}
    state = json.dumps(fields, separators=(",", ":"))
    call = tool("deploy", **fields)
    again = retry(call, {"roots": {"roots": []}}, state=state)
    result = {"content": [], "structuredContent": fields}
    cassette = recorded((call, asks("roots", state=state)), (again, result))

    player = Player(loaded(cassette))
    issued = state_in(play(player, call))
    played = play(player, retry(call, {"roots": {"roots": []}}, state=issued))

    assert json.dumps(state)[1:-1] not in encode_cassette(cassette).decode()
    assert result_of(played) == result
