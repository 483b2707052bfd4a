"""Facts about answers that fit what they answer, and those that don't."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.forms import (
    problem_of_answer,
    problem_of_value,
    sampling_answer,
    titled_choices,
    value_of_text,
)
from mrtr_cassette.core.protocol.dialect import InputRequest, ask_in_result
from mrtr_cassette.core.wire.jsonbytes import parse

FORM = InputRequest(
    "form",
    "Deploy?",
    {
        "requestedSchema": {
            "type": "object",
            "properties": {"confirm": {"type": "boolean"}},
            "required": ["confirm"],
        }
    },
)
URL = InputRequest("url", "Sign in", {"mode": "url", "url": "https://example.com"})
ROOTS = InputRequest("roots", "")
SAMPLING = InputRequest("sampling", "")


def bare(kind: str, **more: Any) -> InputRequest:
    """Return a request in the array dialect."""
    item = {"id": "x", "kind": kind, **more}
    ask = ask_in_result({"inputRequests": [item], "requestState": "s"})
    assert ask is not None

    return ask.input_requests["x"]


@pytest.mark.parametrize(
    ("request_", "answer", "problem"),
    [
        (FORM, {"action": "accept", "content": {"confirm": True}}, None),
        (FORM, {"action": "decline"}, None),
        (FORM, {"action": "accept"}, "/confirm is required and missing"),
        (
            FORM,
            {"action": "accept", "content": 1},
            "is a whole number, and not an object",
        ),
        (
            FORM,
            {"action": "decline", "content": {}},
            "has content, and a decline has none",
        ),
        (FORM, {"confirm": True}, "has no `action` that is accept, decline or cancel"),
        (InputRequest("form", ""), {"action": "accept", "content": {"any": 1}}, None),
        (URL, {"action": "accept"}, None),
        (
            URL,
            {"action": "accept", "content": {}},
            "has content, but an accepted URL has none",
        ),
        (ROOTS, {"roots": [{"uri": "file:///a"}]}, None),
        (ROOTS, {}, "has no `roots`"),
        (SAMPLING, sampling_answer("Fine"), None),
        (SAMPLING, {"role": "assistant", "content": {}}, "has no `model`"),
        (bare("number"), {"value": "5"}, "is a text, and not a number"),
        (bare("boolean"), {"value": 1}, "is a whole number, and not true or false"),
        (bare("date"), {"value": 1}, None),
        (bare("string"), "Rome", "is a text, and not an object with a `value`"),
        (InputRequest("tasks/ask", ""), 1, "is a whole number, and not an object"),
    ],
)
def test_answer_fits_or_says_why_not(
    request_: InputRequest, answer: Any, problem: str | None
) -> None:
    """The problem names the place and what is wrong, and never quotes the answer."""
    assert problem_of_answer(request_, answer) == problem


# Fields of forms

TITLED = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
NAME = {"type": "string", "minLength": 2, "maxLength": 5}
MAIL = {"type": "string", "format": "email"}
LINK = {"type": "string", "format": "uri"}
DAY = {"type": "string", "format": "date"}
AT = {"type": "string", "format": "date-time"}
COUNT = {"type": "integer", "minimum": 1, "maximum": 9}
SHARE = {"type": "number", "minimum": 0.5}
SURE = {"type": "boolean"}
ENV = {"type": "string", "enum": ["dev", "prod"]}
SIZE = {"type": "string", "oneOf": TITLED}
TAGS = {
    "type": "array",
    "items": {"type": "string", "enum": ["a", "b", "c"]},
    "minItems": 1,
    "maxItems": 2,
}
SIZES = {"type": "array", "items": {"anyOf": TITLED}}
NO_DATE = "is not a valid date, such as 2026-07-28"
NO_TIME = "is not a valid date and time, such as 2026-07-28T09:30:00Z"


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (NAME, '"abc"', None),
        (NAME, '"A"', "has 1 character, and must have at least 2"),
        (NAME, '"abcdef"', "has 6 characters, and must have at most 5"),
        (MAIL, '"a@example.com"', None),
        (MAIL, '"example.com"', "is not a valid e-mail address"),
        (LINK, '"https://example.com/a?b"', None),
        (LINK, '"example"', "is not a valid URI, such as https://example.com"),
        (DAY, '"2026-02-30"', NO_DATE),
        (AT, '"2026-07-28T09:30:00.5+02:00"', None),
        (AT, '"2026-07-28t09:30:60z"', None),
        (AT, '"2026-07-28"', NO_TIME),
        (AT, '"2026-07-28T::::::::Z"', NO_TIME),
        (AT, '"2026-07-28T25:30:00Z"', NO_TIME),
        (AT, '"2026-02-30T09:30:00Z"', NO_TIME),
        (DAY, '"2024-02-29"', None),
        (COUNT, "3.0", None),
        (COUNT, "3.5", "is a number, and not a whole number"),
        (COUNT, '"3"', "is a text, and not a whole number"),
        (COUNT, "true", "is true or false, and not a whole number"),
        (COUNT, "0", "must be at least 1"),
        (COUNT, "123456789012345678901", "must be at most 9"),
        (SHARE, "0.5", None),
        (SHARE, "0.4", "must be at least 0.5"),
        (SURE, '"no"', "is a text, and not true or false"),
        (ENV, '"live"', 'is not one of "dev", "prod"'),
        (SIZE, '"l"', None),
        (SIZE, '"Large"', 'is not one of "s", "l"'),
        (TAGS, '["a", "c"]', None),
        (TAGS, "[]", "has 0 values, and must have at least 1"),
        (TAGS, '["a", "b", "c"]', "has 3 values, and must have at most 2"),
        (TAGS, '["x"]', 'has a value that is not one of "a", "b", "c"'),
        (SIZES, '["l", "s"]', None),
        (SIZES, '"l"', "is a text, and not a list"),
        # What is no schema of a field is the server's to judge.
        (True, '"a"', None),
        ({"type": "decimal"}, '"a"', None),
        ({"type": ["integer", "null"]}, '"a"', None),
        (
            {"type": "string", "format": "hostname", "pattern": "b", "minLength": "2"},
            '"a"',
            None,
        ),
        ({"type": "string", "enum": [], "oneOf": {}, "not": {}}, '"a"', None),
        ({"$ref": "#/$defs/none"}, '"a"', None),
    ],
)
def test_value_fits_a_field_or_it_is_said_why_not(
    schema: Any, value: str, problem: str | None
) -> None:
    """Each kind of field has its type, and its choices, format or bounds."""
    assert problem_of_value(parse(value.encode()), schema) == problem


def test_choices_have_titles() -> None:
    """Each spelling of a list of choices is read."""
    pairs = [("s", "Small"), ("l", "Large")]

    assert (
        titled_choices({"enum": ["s", "l"], "enumNames": ["Small", "Large"]}) == pairs
    )
    assert titled_choices(SIZE) == titled_choices(SIZES) == pairs
    assert titled_choices({"enum": ["a", 1]}) == [("a", "a"), (1, "1")]
    assert titled_choices({"anyOf": [{"type": "string"}]}) == titled_choices(None) == []


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("five", {"type": "integer"}, "five"),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("5", {"type": ["integer", "null"]}, 5),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ("5", {"anyOf": {}}, "5"),
        ("Yes", {"type": "boolean"}, True),
        ("perhaps", {"type": "boolean"}, "perhaps"),
        ("a, b", {"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        ('["a"]', {"type": "array"}, ["a"]),
        ("", {"type": "array"}, []),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
    ],
)
def test_text_is_read_as_the_type_of_its_schema(
    text: str, schema: Any, value: Any
) -> None:
    """What doesn't read as the type stays a text."""
    assert value_of_text(text, schema) == value
