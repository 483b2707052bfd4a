from __future__ import annotations

import json

import pytest
from builders import (
    JSON_HEADERS,
    Step,
    cassette_of,
    get,
    loaded,
    post,
    response_of,
    retry,
    rpc,
    tool,
)
from messages import YES, asks, text

from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.given import GivenOut
from mrtr_cassette.core.replay.matching import (
    MatchedForm,
    Secret,
    alike,
    by_any_rule,
    has_placeholders,
    redactor_of,
)
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
SURROGATE = "mrtr-state:0123456789abcdef:1:1"
SECRET = "ghp_" + "a1B2c3D4e5" * 4
LOGIN = tool("login", key=SECRET)


def form(*script: Step, **options: bool) -> MatchedForm:
    """Return the matched form of a script's cassette."""
    cassette = loaded(cassette_of(*(script or ((CALL, text("done")),)), **options))
    given = GivenOut("/mcp")
    given.played(response_of((SURROGATE + sealed_hash(STATE)).encode()))
    return MatchedForm(cassette, given)


def with_secret() -> MatchedForm:
    """Return the matched form of a cassette whose request had a secret."""
    return form((LOGIN, text("done")), redacts=True)


def lookup_of(body: bytes) -> LookupKey:
    """Return the lookup key of a request."""
    return lookup_key(read_call(post(body)))


def test_states_are_matched_as_the_cassette_has_them() -> None:
    """A raw state becomes its hash; what this replay gave out stays, and what it didn't does not."""
    raw = post(retry(CALL, {"a": YES}, state=STATE))
    hashed = post(retry(CALL, {"a": YES}, state=sealed_hash(STATE)))
    surrogate = post(retry(CALL, {"a": YES}, state=SURROGATE))
    made_up = post(retry(CALL, {"a": YES}, state=sealed_hash("another")))

    assert form().received(raw) == form().recorded(raw) == hashed
    assert form(seals=False).received(raw) is raw
    for given in (hashed, surrogate, post(CALL)):
        assert form().received(given) is given
        assert form().recorded(given) is given
    assert form().received(made_up) != made_up
    assert form().recorded(made_up) is made_up


def test_answers_are_matched_as_hashes_where_they_were_sealed() -> None:
    """Only a cassette with sealed answers compares their hashes; an action stays readable."""
    request = post(retry(CALL, {"a": YES}))
    matched = form(seals_answers=True)

    (answer,) = json.loads(matched.received(request).body)["params"]["inputResponses"].values()

    assert answer["action"] == "accept"
    assert answer["content"].startswith("mrtr-answer:")
    assert matched.recorded(matched.recorded(request)) == matched.received(request)
    assert form().received(request) is request


def test_secrets_are_told_without_their_numbers() -> None:
    """A secret and its placeholder are the same in what is told, wherever in a request they stand."""
    matched = with_secret()

    def request(secret: str, spelled: str) -> Request:
        return Request(
            "POST", f"/mcp?s={spelled}", (("Mcp-Param-Key", secret),), tool("go", key=secret)
        )

    assert matched.told(request(SECRET, SECRET)) == request("<github>", "<github>")


def test_request_without_secrets_is_matched_as_it_is() -> None:
    """What has neither a secret nor a placeholder stays the same request."""
    request = post(tool("login", key="none"), ("Mcp-Name", "login"))

    assert with_secret().received(request) == request
    assert with_secret().told(request) == request


def test_secrets_count_only_where_some_were_recorded() -> None:
    """A cassette without placeholders in its requests is matched without a search for secrets."""
    redacting = form(redacts=True)
    request = post(LOGIN)

    assert not redacting.has_placeholders
    assert redacting.received(request) is request
    assert redacting.told(request) == post(tool("login", key="<github>"))
    assert form().told(request) == request
    assert with_secret().has_placeholders


def test_credentials_of_a_missed_request_are_not_told() -> None:
    """What a header has as a credential is none of what is told, wherever else the request has it."""
    request = post(tool("go", note="it is made.up-word"), ("Authorization", "Bearer made.up-word"))

    for matched in (form(redacts=True), with_secret()):
        assert b"made.up-word" not in matched.told(request).body


def test_placeholder_of_a_response_is_none_of_a_request() -> None:
    """Only what requests have decides how requests are matched."""
    assert not form((CALL, text(SECRET)), redacts=True).has_placeholders


def test_placeholder_in_a_branch_counts() -> None:
    """Every request of a cassette is looked at, also a late answer."""
    answers = {"a": {"action": "accept", "content": {"key": SECRET}}}
    assert form(
        (CALL, asks("a")), (retry(CALL, answers), text("done")), redacts=True
    ).has_placeholders


@pytest.mark.parametrize(
    ("matched", "keeps"),
    [
        (form(), True),
        (form(seals=False), True),
        (form(redacts=True), True),
        (form(seals_answers=True), False),
        (with_secret(), False),
    ],
)
def test_body_matches_by_itself_unless_something_in_it_is_replaced(
    matched: MatchedForm, *, keeps: bool
) -> None:
    """Bytes are compared only where neither secrets, answers nor hashes of states are replaced."""
    assert matched.keeps_body(post(CALL)) is keeps
    assert not matched.keeps_body(post(retry(CALL, state=sealed_hash(STATE))))


def test_text_for_the_terminal_has_no_known_secret() -> None:
    """A text is shown without what the cassette's rules know, or ours where it has none."""
    assert form(redacts=True).shown(f"key {SECRET}") == "key <github:0>"
    assert form().shown(f"key {SECRET}") == "key <github:0>"


def test_redactor_is_that_of_the_cassettes_rules() -> None:
    """Only a cassette that was redacted has one, and all secrets of a rule are alike to it."""
    redactor = redactor_of(loaded(cassette_of((CALL, text("done")), redacts=True)))

    assert redactor is not None
    assert redactor.text(f"{SECRET} {SECRET[::-1]} {SECRET[:-1]}x") == (
        f"<github:0> {SECRET[::-1]} <github:0>"
    )
    assert redactor_of(loaded(cassette_of((CALL, text("done"))))) is None


def test_key_by_any_rule_does_not_tell_rules() -> None:
    """Placeholders of two rules are the same, in the call and in the answers; the state stays."""

    def retried(secret: str, key: str = "k", state: str = STATE) -> LookupKey:
        answers = {"a": {"action": "accept", "content": {key: secret}}}
        return lookup_of(retry(tool("login", key=secret), answers, state=state))

    assert by_any_rule(retried("<github>")) == by_any_rule(retried("<password>"))
    assert by_any_rule(retried("<github>")) != by_any_rule(retried("<github>", "other"))
    assert by_any_rule(retried("<github>")) != by_any_rule(retried("<github>", state="s"))
    assert by_any_rule(lookup_of(CALL)) == lookup_of(CALL)


@pytest.mark.parametrize(
    ("request_", "has_some"),
    [
        (post(tool("go", key="<github:1>")), True),
        (post(tool("go", key="a").replace(b'"a"', rb'"\u003cgithub:1\u003e"')), True),
        (post(rpc("resources/read", {"uri": "x:%3Cgithub:1%3E"})), True),
        (get("/mcp?s=%3Cgithub%3A1%3E"), True),
        (get("/mcp", ("Mcp-Name", "<github:1>")), True),
        (get("/mcp", ("Mcp-Name", "<none:1>")), False),
        (get("/mcp?s=%3Cnone%3A1%3E"), False),
        (post(tool("go", html="<b>bold</b>")), False),
        (post(CALL), False),
        (Request("POST", "/mcp", JSON_HEADERS, b"\xff<github:1>\xff"), True),
    ],
)
def test_placeholders_of_a_request_are_recognised(request_: Request, *, has_some: bool) -> None:
    """A placeholder counts in a body, a target and a header, in every spelling of it."""
    assert has_placeholders(request_) is has_some


def test_secret_that_a_client_sends_is_told_from_one_that_was_recorded() -> None:
    """All secrets of a rule are alike in what is compared, and each has a token of its own."""
    matched = with_secret()
    other = "ghp_" + "Z9y8X7w6V5" * 4

    def secrets(request: Request) -> tuple[Secret, ...]:
        same, those = alike(matched, request, ())
        assert b"<github>" in same.body
        return those

    first, second, again = (
        secrets(matched.received(post(tool("login", key=key)))) for key in (SECRET, other, SECRET)
    )
    assert first == again != second
    assert all(each.is_received for each in (*first, *second))
    recorded = secrets(matched.recorded(post(tool("login", key="<github:3>"))))
    assert recorded == (Secret("github", "3"),)
    assert not recorded[0].is_received


def test_request_without_a_secret_has_none_told_apart() -> None:
    """Nothing is searched for where no recorded request has a placeholder."""
    request = post(CALL)

    assert alike(with_secret(), request, ()) == (request, ())
    assert alike(form(), post(LOGIN), ()) == (post(LOGIN), ())


def test_placeholder_that_was_not_given_is_the_clients_own_text() -> None:
    """Only what this replay gave out stands for a secret in what a client sends."""
    matched = with_secret()
    own = matched.received(post(tool("login", key="<github:9>")))

    assert b"~not-given" in own.body
    assert not has_placeholders(own)
    given = GivenOut("/mcp")
    given.played(response_of(b"<github:9>"))
    cassette = loaded(cassette_of((LOGIN, text("done")), redacts=True))
    request = post(tool("login", key="<github:9>"))
    assert MatchedForm(cassette, given).received(request) == request


def test_text_beside_a_placeholder_that_was_not_given_stays() -> None:
    """A placeholder that was given, and the secret itself, stand beside it as ever."""
    cassette = loaded(cassette_of((LOGIN, text("done")), redacts=True))
    given = GivenOut("/mcp")
    given.played(response_of(b"<github:1>"))

    body = MatchedForm(cassette, given).received(post(tool("x", a="<github:1>", b="<jwt:2>"))).body

    assert json.loads(body)["params"]["arguments"] == {"a": "<github:1>", "b": "<jwt:2~not-given>"}


def test_hash_in_a_cassette_with_raw_states_is_a_state_like_any_other() -> None:
    """What looks like a hash was the server's own word, and is compared by its own hash."""
    matched = form(seals=False)
    looks = sealed_hash("a state")
    request = post(retry(CALL, {"a": YES}, state=looks))

    assert matched.received(request) == matched.recorded(request)
    assert json.loads(matched.received(request).body)["params"]["requestState"] == sealed_hash(
        looks
    )
    plain = post(retry(CALL, {"a": looks}, state=STATE))
    assert json.loads(matched.received(plain).body)["params"]["requestState"] == STATE
