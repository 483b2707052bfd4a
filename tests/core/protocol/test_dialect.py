from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from builders import tool
from messages import array_asks, asks, form, text

from mrtr_cassette.core.protocol.dialect import (
    QUESTION_KINDS,
    Answers,
    InputRequest,
    InputRequired,
    KindName,
    answers_in,
    answers_text,
    ask_in_result,
    spelled_requests,
    with_answer_keys,
    write_answers,
    write_retry,
)
from mrtr_cassette.core.wire.jsonbytes import Number
from mrtr_cassette.errors import NotJsonError

ASKED = {"a": InputRequest("form", "a?")}
ITEMS = [
    {"id": "city", "kind": "string"},
    {"id": "n", "kind": "x", "description": "N?", "required": False},
]


@pytest.mark.parametrize(
    ("result", "ask"),
    [
        (asks("a"), InputRequired("2026-07-28", ASKED, None)),
        (asks(state="S"), InputRequired("2026-07-28", {}, "S")),
        (asks(state=""), InputRequired("2026-07-28", {}, "")),
        (asks("a", state="S"), InputRequired("2026-07-28", ASKED, "S")),
        (
            {**asks("a", state="S"), "resultType": "incomplete"},
            InputRequired("draft", ASKED, "S"),
        ),
        (
            {"inputRequests": ITEMS, "requestState": "S"},
            InputRequired(
                "array",
                {"city": InputRequest("string", ""), "n": InputRequest("x", "N?")},
                "S",
            ),
        ),
    ],
)
def test_ask_is_recognised_in_each_dialect(result: Any, ask: InputRequired) -> None:
    """The release has requests, a state or both; the drafts say `incomplete`; arrays need a state."""
    assert ask_in_result(result) == ask


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (form("Sure?"), "form", "Sure?"),
        ({"method": "elicitation/create"}, "form", ""),
        (
            {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Go"},
            },
            "url",
            "Go",
        ),
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
    ask = ask_in_result(
        {"resultType": "input_required", "inputRequests": {"k": request_}}
    )

    assert ask is not None
    assert (ask.input_requests["k"].kind, ask.input_requests["k"].message) == (
        kind,
        message,
    )


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        "input_required",
        {},
        text("done"),
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": None, "requestState": None},
        {
            "resultType": "input_required",
            "inputRequests": {"a": form()},
            "requestState": 5,
        },
        {"resultType": "input_required", "inputRequests": {"a": {"method": 5}}},
        {"resultType": "input_required", "inputRequests": "a"},
        {**array_asks("a", state="S"), "resultType": "input_required"},
        {"resultType": "complete", "requestState": "S"},
        {"resultType": 5, "requestState": "S"},
        {"inputRequests": {"a": form()}, "requestState": "S"},
        {"requestState": "S"},
        {**array_asks("a", state="S"), "resultType": "complete"},
        {"inputRequests": ["a"], "requestState": "S"},
        {"inputRequests": [{"id": "a"}], "requestState": "S"},
        {
            "inputRequests": [{"id": "a", "kind": "s", "required": 1}],
            "requestState": "S",
        },
        {"inputRequests": [{"id": "a", "kind": "s"}] * 2, "requestState": "S"},
        {
            "inputRequests": [{"id": "a", "kind": "s", "description": 5}],
            "requestState": "S",
        },
        {"inputRequests": [], "requestState": "S"},
        *(
            {"inputRequests": [{"id": "a", "kind": "s"}], "requestState": s}
            for s in ("", None, 5)
        ),
    ],
)
def test_half_shaped_result_is_final(result: Any) -> None:
    """A result that no dialect has in whole asks for nothing."""
    assert ask_in_result(result) is None


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
            {"inputResponses": [{"id": "a", "value": None}]},
            Answers({"a": {"value": None}}, None, "array"),
        ),
        ({"inputResponses": []}, Answers({}, None, "array")),
        ({"inputResponses": "x"}, Answers({"": "x"}, None, "other")),
        ({"inputResponses": ["x"]}, Answers({"": ["x"]}, None, "other")),
        (
            {"inputResponses": [{"value": 1}]},
            Answers({"": [{"value": 1}]}, None, "other"),
        ),
        (
            {"inputResponses": [{"id": "a"}, {"id": "a"}]},
            Answers({"": [{"id": "a"}, {"id": "a"}]}, None, "other"),
        ),
    ],
)
def test_answers_make_a_retry(params: dict[str, Any], answers: Answers | None) -> None:
    """Params with answers, a state or both are a retry's, in both spellings."""
    assert answers_in(params) == answers


def test_state_that_is_no_string_is_not_the_string() -> None:
    """A state of another type is kept apart from the string that looks like it."""
    number = answers_in({"requestState": Number("5")})
    string = answers_in({"requestState": "5"})

    assert number is not None
    assert number.request_state is not None
    assert number != string


# Writing

ORIGINAL = b'{ "jsonrpc":"2.0", "id" : 1E2, "params":{ "name" : "\\u0061", "n":1.0 } , "method":"m"}'


@pytest.mark.parametrize(
    ("dialect", "answers", "written"),
    [
        ("2026-07-28", {}, b"{}"),
        ("draft", {}, b"{}"),
        ("array", {}, b"[]"),
        (
            "2026-07-28",
            {"a": {"action": "accept"}, '\u00e9"': [Number("1.0"), None]},
            b'{"a":{"action":"accept"},"\\u00e9\\"":[1.0,null]}',
        ),
        (
            "draft",
            {"a": b'{ "action" : "\\u0061" }'},
            b'{"a":{ "action" : "\\u0061" }}',
        ),
        (
            "array",
            {"a": {"value": "v"}, "b": b'{ "value" : 1E2 }'},
            b'[{"value":"v","id":"a"},{ "value" : 1E2,"id":"b" }]',
        ),
        ("array", {"a": {}}, b'[{"id":"a"}]'),
    ],
)
def test_answers_are_spelled_as_their_dialect_does(
    dialect: str, answers: dict[str, Any], written: bytes
) -> None:
    """Answers stand in a map or in an array, and those that are given as bytes stay as they are."""
    assert write_answers(dialect, answers) == written


@pytest.mark.parametrize("answer", [5, b"[1]", "yes"])
def test_array_answer_that_is_no_object_is_refused(answer: Any) -> None:
    """In the array dialect an answer has members, of which `id` is one."""
    with pytest.raises(NotJsonError):
        write_answers("array", {"a": answer})


@pytest.mark.parametrize(
    ("request_", "answers", "state", "retry"),
    [
        (
            ORIGINAL,
            b"{}",
            "S",
            ORIGINAL.replace(b"1.0 }", b'1.0,"inputResponses":{},"requestState":"S" }'),
        ),
        (
            ORIGINAL,
            b"[ ]",
            None,
            ORIGINAL.replace(b"1.0 }", b'1.0,"inputResponses":[ ] }'),
        ),
        (ORIGINAL, None, None, ORIGINAL),
        (b'{"id":1}', b"{}", None, b'{"id":1,"params":{"inputResponses":{}}}'),
        (b'{"id":1}', None, None, b'{"id":1}'),
        (
            b'{"params":{"requestState":"S", "a":1, "inputResponses":{"a":1}}}',
            b'{"b":2}',
            'T\ud800"',
            b'{"params":{"requestState":"T\\ud800\\"", "a":1, "inputResponses":{"b":2}}}',
        ),
        (
            b'{"params":{"requestState":"S", "a":1, "inputResponses":{"a":1}}}',
            None,
            None,
            b'{"params":{"a":1}}',
        ),
        (
            b'{"params":{"requestState":"S","requestState":"T"}}',
            None,
            "U",
            b'{"params":{"requestState":"U","requestState":"U"}}',
        ),
    ],
)
def test_retry_is_the_request_with_answers_and_state(
    request_: bytes, answers: bytes | None, state: str | None, retry: bytes
) -> None:
    """Answers and state are added or replaced; no other byte changes."""
    assert write_retry(request_, answers, state) == retry


@pytest.mark.parametrize("request_", [b"{", b"[]", b'{"params":[1]}'])
def test_request_without_room_for_answers_is_refused(request_: bytes) -> None:
    """What is no object, or has other params than an object, can't be a retry."""
    with pytest.raises(NotJsonError):
        write_retry(request_, b"{}", "S")


def test_answers_get_other_keys_and_stay_as_they_are_spelled() -> None:
    """In both forms; a key that has no new one keeps its place."""
    for answers, renamed in (
        (b'{ "a" : 1E2, "b":2}', b'{ "b":2,"z":1E2}'),
        (
            b'[{"id":"a","value":1E2}, {"id":"b"}]',
            b'[{"id":"z","value":1E2}, {"id":"b"}]',
        ),
    ):
        request = b'{"params":{"inputResponses":%b,"q": 1}}'

        assert with_answer_keys(request % answers, {"a": "z"}) == request % renamed


@pytest.mark.parametrize(
    ("names", "renamed"),
    [
        ({"a": "b", "b": "a"}, {"a": 2, "b": 1}),
        ({"a": "b", "b": "c"}, {"b": 1, "c": 2}),
        ({"a": "b", "b": None}, {"b": 1}),
    ],
)
def test_answers_get_each_others_keys(
    names: dict[str, str | None], renamed: dict[str, int]
) -> None:
    """A server that numbers its questions may give one the key that another one had."""
    request = b'{"params":{"inputResponses":{"a":1,"b":2}}}'
    body = json.loads(with_answer_keys(request, names))

    assert body["params"]["inputResponses"] == renamed


def test_answer_without_an_id_gets_no_other_one() -> None:
    """An item of an array that names no question stays as it is."""
    request = b'{"params":{"inputResponses":[{"value":1}]}}'

    assert with_answer_keys(request, {"a": "z"}) == request


def test_answers_are_read_as_they_are_spelled() -> None:
    """The recorded spelling is returned, of duplicate keys the last one."""
    twice = b'{"params":{"inputResponses":{},"inputResponses":{ "a" : 1E2 }}}'

    assert answers_text(twice) == b'{ "a" : 1E2 }'
    assert answers_text(tool("deploy")) is None


def test_requests_for_input_are_spelled_as_they_came() -> None:
    """A map of methods and params, or the items of an array."""
    params = {"message": "?", "requestedSchema": {}}
    asked = {
        "a": {"method": "elicitation/create", "params": params},
        "b": {"method": "roots/list", "params": {}},
        "c": {"method": "tasks/ask", "params": {}},
    }

    ask = ask_in_result({"resultType": "input_required", "inputRequests": asked})

    assert ask is not None
    assert spelled_requests(ask.input_requests) == asked

    items = [{"id": "a", "kind": "string", "required": False}]
    ask = ask_in_result({"inputRequests": items, "requestState": "s"})

    assert ask is not None
    assert spelled_requests(ask.input_requests) == items


def test_a_rule_of_an_answers_file_can_name_every_kind() -> None:
    """`KindName`, which the file's schema has, lists the rows of `QUESTION_KINDS`."""
    assert get_args(KindName) == tuple(kind.name for kind in QUESTION_KINDS)
