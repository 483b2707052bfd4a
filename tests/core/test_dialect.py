from __future__ import annotations

from typing import Any

import pytest
from builders import array_asks, asks, form, text

from mrtr_cassette.core.protocol.dialect import Answers, Ask, InputRequest, answers_in, recognise
from mrtr_cassette.core.wire.jsonbytes import Number


def kinds(ask: Ask | None) -> dict[str, tuple[str, str]]:
    """Return kind and message of what is asked, by key."""
    assert ask is not None
    return {key: (request.kind, request.message) for key, request in ask.input_requests.items()}


def test_ask_of_the_release_has_requests_state_or_both() -> None:
    """An ask has `inputRequests`, a `requestState`, or both, under `input_required`."""
    assert recognise(asks("a")) == Ask("2026-07-28", {"a": InputRequest("form", "a?")}, None)
    assert recognise(asks(state="S")) == Ask("2026-07-28", {}, "S")
    assert recognise(asks(state="")) == Ask("2026-07-28", {}, "")
    both = recognise(asks("a", "b", state="S"))
    assert both is not None
    assert (list(both.input_requests), both.request_state) == (["a", "b"], "S")


def test_draft_spelling_is_recognised() -> None:
    """The drafts' `incomplete` is an ask like the release's."""
    ask = recognise({**asks("a", state="S"), "resultType": "incomplete"})

    assert ask == Ask("draft", {"a": InputRequest("form", "a?")}, "S")


def test_array_dialect_is_recognised() -> None:
    """A non-empty array with a non-empty state and no `resultType` is an ask."""
    asked = [
        {"id": "city", "kind": "string"},
        {"id": "n", "kind": "x", "description": "N?", "required": False},
    ]

    ask = recognise({"inputRequests": asked, "requestState": "S"})

    assert ask == Ask(
        "array", {"city": InputRequest("string", ""), "n": InputRequest("x", "N?")}, "S"
    )


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (form("Sure?"), "form", "Sure?"),
        ({"method": "elicitation/create"}, "form", ""),
        ({"method": "elicitation/create", "params": {"mode": "url", "message": "Go"}}, "url", "Go"),
        ({"method": "elicitation/create", "params": [1]}, "form", ""),
        ({"method": "elicitation/create", "params": {"message": 5}}, "form", ""),
        ({"method": "sampling/createMessage", "params": {}}, "sampling", ""),
        ({"method": "roots/list"}, "roots", ""),
        ({"method": "x/y"}, "x/y", ""),
    ],
)
def test_kind_and_message_are_what_a_person_would_read(
    request_: dict[str, Any], kind: str, message: str
) -> None:
    """What is asked is named by its kind, and its message is shown."""
    ask = recognise({"resultType": "input_required", "inputRequests": {"k": request_}})

    assert kinds(ask) == {"k": (kind, message)}


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        "input_required",
        {},
        text("done"),
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {}},
        {"resultType": "input_required", "inputRequests": None, "requestState": None},
        {"resultType": "input_required", "inputRequests": {"a": form()}, "requestState": 5},
        {"resultType": "input_required", "inputRequests": {"a": None}, "requestState": "S"},
        {"resultType": "input_required", "inputRequests": {"a": {"method": 5}}},
        {"resultType": "input_required", "inputRequests": "a"},
        {
            "resultType": "input_required",
            "inputRequests": [{"id": "a", "kind": "s"}],
            "requestState": "S",
        },
        {"resultType": "complete", "requestState": "S"},
        {"resultType": 5, "requestState": "S"},
        {"inputRequests": {"a": form()}, "requestState": "S"},
        {"requestState": "S"},
        {**array_asks("a", state="S"), "resultType": "complete"},
    ],
)
def test_half_shaped_result_is_final(result: Any) -> None:
    """A result that no dialect has in whole asks for nothing."""
    assert recognise(result) is None


@pytest.mark.parametrize(
    ("params", "answers"),
    [
        ({}, None),
        ({"inputResponses": None, "requestState": None}, None),
        ({"requestState": "S"}, Answers(None, "S")),
        ({"requestState": ""}, Answers(None, "")),
        ({"inputResponses": {}}, Answers({}, None)),
        ({"inputResponses": {"a": {}}, "requestState": "S"}, Answers({"a": {}}, "S")),
        (
            {
                "inputResponses": [{"id": "a", "value": "v"}, {"id": "b", "value": None}],
                "requestState": "S",
            },
            Answers({"a": {"value": "v"}, "b": {"value": None}}, "S"),
        ),
        ({"inputResponses": []}, Answers({}, None)),
        ({"inputResponses": "x"}, Answers({"": "x"}, None)),
        ({"inputResponses": ["x"]}, Answers({"": ["x"]}, None)),
        ({"inputResponses": [{"value": 1}]}, Answers({"": [{"value": 1}]}, None)),
        (
            {"inputResponses": [{"id": "a"}, {"id": "a"}]},
            Answers({"": [{"id": "a"}, {"id": "a"}]}, None),
        ),
    ],
)
def test_answers_make_a_retry(params: dict[str, Any], answers: Answers | None) -> None:
    """Params with answers, a state or both are a retry's, in both spellings."""
    assert answers_in(params) == answers


def test_state_that_is_no_string_is_not_the_string() -> None:
    """A state of another type is kept apart from the string that looks like it."""
    number, string = (answers_in({"requestState": state}) for state in (Number("5"), "5"))

    assert number is not None
    assert number.request_state is not None
    assert number != string


def test_array_answer_with_a_further_member_is_another_answer() -> None:
    """What stands beside `id` and `value` is part of the answer."""
    plain = answers_in({"inputResponses": [{"id": "a", "value": "v"}]})
    more = answers_in({"inputResponses": [{"id": "a", "value": "v", "scope": "all"}]})

    assert plain != more


@pytest.mark.parametrize("value", [{"id": "a"}, {"id": "a", "value": "v", "scope": "all"}])
def test_array_answer_is_not_the_answer_that_it_is_the_value_of(value: dict[str, Any]) -> None:
    """An answer and one whose value looks like it are two answers."""
    bare = answers_in({"inputResponses": [value]})
    wrapped = answers_in({"inputResponses": [{"id": "a", "value": value}]})

    assert bare != wrapped
