"""A law: what a server made up and its client sends back is the live server's own, and counts nowhere."""

from __future__ import annotations

import json
from typing import Any

from builders import (
    cassette_of,
    conversation,
    follow,
    loaded,
    retry,
    rpc,
    tool,
    with_id,
)
from hypothesis import assume, example, given
from hypothesis import strategies as st
from messages import YES, Json, asks, text
from tasking import created, get, state, update
from verifying import verifier_for

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.compare.handles import sent_back_in
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.rerecording import recorded_over
from mrtr_cassette.core.drive.verification import Verifier

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_-"
UUIDS = st.uuids().map(str)
SHAS = st.text("0123456789abcdef", min_size=7, max_size=40)
NAMES = st.text(ALPHABET, min_size=6, max_size=24)
NUMBERS = st.integers(100_000, 10**12).map(str)


def made_up(value: str) -> bool:
    """Tell whether a text has a digit, as what is made up has, and doesn't begin as an option does."""
    has_digit = any(map(str.isdigit, value))
    has_word_ends = value[0].isalnum() and value[-1].isalnum()
    return has_digit and has_word_ends


SHAPES = (UUIDS, SHAS.filter(made_up), NAMES.filter(made_up), NUMBERS)
PAIRS = st.sampled_from(SHAPES).flatmap(lambda shape: st.tuples(shape, shape))

ISSUED: dict[str, Any] = {
    "member": lambda value: {
        "content": [],
        "structuredContent": {"id": value, "more": [1, 2]},
    },
    "sentence": lambda value: text(f"Created {value} in 3 steps."),
    "lines": lambda value: text(f"Created:\n{value}\n\u00e9{value}"),
    "lines in JSON": lambda value: text(json.dumps({"of": f"Created:\n{value}"})),
    "text": lambda value: text(json.dumps({"found": [{"id": value, "name": "first"}]})),
    "item": lambda value: {"content": [], "structuredContent": {"items": ["a", value]}},
}
SENT: dict[str, Any] = {
    "argument": lambda value: tool("open", id=value),
    "url": lambda value: tool("open", at=f"https://host/items/{value}?full=1"),
    "inner": lambda value: tool("open", of={"ids": ["first", value]}),
    "resource": lambda value: rpc("resources/read", {"uri": f"notes://{value}"}),
}


def verifying(*script: Any) -> tuple[Verifier, list[Any]]:
    """Return what verifies a recording of a script, and its plan."""
    cassette = loaded(conversation(*script).cassette())
    return verifier_for(cassette), planned_interactions(cassette)


def repeated(verifier: Verifier, plan: Any, response: Json) -> tuple[str, Any]:
    """Repeat a call; return what came of it, and its params as they were sent."""
    running: Any = verifier.begin_interaction(plan)
    (sent,) = follow(running.conversation, response)
    return verifier.end_interaction(running).verdict, json.loads(sent.body)["params"]


@given(PAIRS, st.sampled_from(sorted(ISSUED)), st.sampled_from(sorted(SENT)))
@example(("1234567", "7654321"), "sentence", "argument")
def test_a_live_server_gets_its_own_handles(
    pair: tuple[str, str], issued: str, sent: str
) -> None:
    """Wherever the value stands in a result, and wherever it is sent back; nothing differs by it."""
    old, new = pair
    assume(old != new)
    make = tool("make")
    call = with_id(SENT[sent](old), 2)
    verifier, (first, second) = verifying(
        (make, ISSUED[issued](old)), (call, text(f"The page {old}"))
    )
    verdict, _ = repeated(verifier, first, ISSUED[issued](new))

    assert verdict == "same"

    verdict, params = repeated(verifier, second, text(f"The page {new}"))

    assert params == json.loads(SENT[sent](new))["params"]
    assert verdict == "same"


@given(PAIRS)
def test_an_answer_has_the_live_handle(pair: tuple[str, str]) -> None:
    """What a client picks from an earlier result, it picks from the live server's."""
    old, new = pair
    assume(old != new)
    make = tool("make")
    call = with_id(tool("pick"), 2)
    answered = retry(
        call, {"which": {"action": "accept", "content": {"which": old}}}, number=3
    )
    verifier, (first, second) = verifying(
        (make, text(f"Created {old}")),
        (call, asks("which")),
        (answered, text("picked")),
    )

    assert repeated(verifier, first, text(f"Created {new}"))[0] == "same"

    running: Any = verifier.begin_interaction(second)
    _, sent = follow(running.conversation, asks("which"), text("picked"))
    given_now = json.loads(sent.body)["params"]["inputResponses"]["which"]

    assert given_now["content"]["which"] == new
    assert verifier.end_interaction(running).verdict == "same"


def recorded(value: str, issued: str, sent: str, words: str = "last") -> Cassette:
    """Return the recording of a client that sends back what the server made up, and reads more."""
    call = with_id(SENT[sent](value), 2)
    last = with_id(tool("last"), 3)
    talk = conversation(
        (tool("make"), ISSUED[issued](value)),
        (call, text(f"The page {value}")),
        (last, text(f"{words} {value}")),
    )

    return loaded(talk.cassette())


@given(PAIRS, st.sampled_from(sorted(ISSUED)), st.sampled_from(sorted(SENT)))
def test_another_recording_with_its_own_handles_is_the_same(
    pair: tuple[str, str], issued: str, sent: str
) -> None:
    """It differs in nothing, changes no line, and what has changed repeats the kept handle."""
    old, new = pair
    assume(old != new)
    before = recorded(old, issued, sent)

    assert cassette_comparison(before, recorded(new, issued, sent)).is_same
    assert recorded_over(before, recorded(new, issued, sent)) == (before, 3)

    whole, kept = recorded_over(before, recorded(new, issued, sent, "changed"))

    assert kept == 2

    result = whole.interactions[2].ending_exchange.rpc_members["result"]

    assert result["content"][0]["text"] == f"changed {old}"


COMMITS = st.text("0123456789abcdef", min_size=40, max_size=40).filter(made_up)


@given(COMMITS, COMMITS, st.integers(7, 39))
def test_a_shortened_sha_is_the_beginning_of_the_live_one(
    old: str, new: str, length: int
) -> None:
    """A client may send the first digits of a commit's sha, seven or more."""
    assume(old[:7] != new[:7] and made_up(old[:length]))
    make = tool("commit")
    call = with_id(tool("show", sha=old[:length]), 2)
    verifier, (first, second) = verifying(
        (make, text(f"Created {old}")), (call, text(f"It is {old[:length]}"))
    )

    assert repeated(verifier, first, text(f"Created {new}"))[0] == "same"

    verdict, params = repeated(verifier, second, text(f"It is {new[:length]}"))

    assert (verdict, params["arguments"]) == ("same", {"sha": new[:length]})


@given(PAIRS)
def test_what_the_client_said_first_is_no_handle(pair: tuple[str, str]) -> None:
    """A path or an id of its own is sent as recorded, though a server repeats it."""
    old, new = pair
    assume(old != new)
    calls = [with_id(tool("open", id=old), number) for number in (1, 2)]
    verifier, (first, second) = verifying(
        *((call, text(f"At {old}")) for call in calls)
    )

    assert repeated(verifier, first, text(f"At {new}"))[0] == "text-changed"
    assert repeated(verifier, second, text(f"At {old}"))[1]["arguments"] == {"id": old}


def test_names_of_a_cassette_are_no_handles() -> None:
    """Tasks of equal calls have names with the same digest, which no server made up."""
    script: list[Any] = []
    for task in (
        "786512e2-9e0d-44bd-8f29-789f320fe840",
        "0e6f4f3a-4f4a-4a0c-9c39-0fd6f5d3c7aa",
    ):
        key = f"{task}:a1"
        script += [
            (tool("build"), created(task)),
            (get(task), state(task, "input_required", key)),
            (update(task, {key: YES}), {}),
            (get(task), state(task, "completed", result=text("built"))),
        ]

    assert list(sent_back_in(loaded(cassette_of(*script)))) == []


def test_words_and_small_numbers_are_no_handles() -> None:
    """A state such as `running`, or a count, that a client sends is its own."""
    for old, new in (("running", "pending"), ("Completed", "Scheduled"), ("41", "42")):
        call = with_id(tool("list", state=old), 2)
        verifier, (first, second) = verifying(
            (tool("get"), text(f"It is {old}")), (call, text(""))
        )

        assert repeated(verifier, first, text(f"It is {new}"))[0] == "text-changed"
        assert repeated(verifier, second, text(""))[1]["arguments"] == {"state": old}
