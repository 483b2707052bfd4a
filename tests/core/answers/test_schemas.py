"""Facts about values against schemas, and texts that are read as values."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.schemas import problems_of, titled_choices, value_of_text
from mrtr_cassette.core.wire.jsonbytes import parse

FORM: Any = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "mail": {"type": "string", "format": "email"},
        "link": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "step": {"type": "integer", "multipleOf": 5},
        "sure": {"type": "boolean"},
        "env": {"type": "string", "enum": ["dev", "prod"]},
        "size": {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "tags": {
            "type": "array",
            "items": {"type": "string", "enum": ["a", "b", "c"]},
            "minItems": 1,
            "maxItems": 2,
            "uniqueItems": True,
        },
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "tree": {"$ref": "#/$defs/tree"},
        "pair": {
            "type": "array",
            "prefixItems": [{"type": "string"}],
            "items": {"type": "integer"},
        },
    },
    "additionalProperties": False,
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"child": {"$ref": "#/$defs/tree"}},
            "required": ["label"],
        }
    },
}


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ('"mail": "a@example.com"', None),
        ('"mail": "example.com"', "/mail is no e-mail address"),
        ('"link": "https://example.com/a?b"', None),
        ('"link": "example"', "/link is no URI, such as https://example.com"),
        ('"day": "2026-07-28"', None),
        ('"day": "2026-13-28"', "/day is no date, such as 2026-07-28"),
        ('"day": "2024-02-29"', None),
        ('"day": "2026-02-29"', "/day is no date, such as 2026-07-28"),
        ('"day": "2026-04-31"', "/day is no date, such as 2026-07-28"),
        (
            '"at": "2026-02-30T09:30:00Z"',
            "/at is no date and time, such as 2026-07-28T09:30:00Z",
        ),
        ('"at": "2026-07-28T09:30:00.5+02:00"', None),
        ('"at": "2026-07-28"', "/at is no date and time, such as 2026-07-28T09:30:00Z"),
        ('"count": 3', None),
        ('"count": 3.0', None),
        ('"count": 3.5', "/count is a number, and not a whole number"),
        ('"count": "3"', "/count is a text, and not a whole number"),
        ('"count": 0', "/count is not at least 1"),
        ('"count": 123456789012345678901', "/count is not at most 9"),
        ('"count": true', "/count is true or false, and not a whole number"),
        ('"share": 0.5', None),
        ('"share": 0', "/share is not more than 0"),
        ('"share": 1', "/share is not less than 1"),
        ('"step": 10', None),
        ('"step": 7', "/step is not a multiple of 5"),
        ('"sure": false', None),
        ('"sure": "no"', "/sure is a text, and not true or false"),
        ('"env": "prod"', None),
        ('"env": "live"', '/env is not one of "dev", "prod"'),
        ('"size": "l"', None),
        ('"size": "Large"', '/size is not one of "s", "l"'),
        ('"tags": ["a", "c"]', None),
        ('"tags": []', "/tags has 0 values, and not at least 1"),
        ('"tags": ["a", "b", "c"]', "/tags has 3 values, and not at most 2"),
        ('"tags": ["a", "a"]', "/tags has a value twice"),
        ('"tags": ["x"]', '/tags/0 is not one of "a", "b", "c"'),
        ('"maybe": null', None),
        ('"maybe": 1', None),
        ('"maybe": "1"', "/maybe is a text, and not a whole number"),
        ('"tree": {"label": 1, "child": {"label": 2}}', None),
        ('"tree": {"label": 1, "child": {}}', "/tree/child/label is required and missing"),
        ('"pair": ["a", 1]', None),
        ('"pair": ["a", "b"]', "/pair/1 is a text, and not a whole number"),
        ('"other": 1', f"/other is unknown; there are: {', '.join(FORM['properties'])}"),
    ],
)
def test_value_breaks_its_schema_at_a_place(member: str, text: str | None) -> None:
    """A problem has the place and what is wrong there; what fits has none."""
    value = parse(b'{"name": "abc", %b}' % member.encode())
    assert [" ".join(each) for each in problems_of(value, FORM)] == ([text] if text else [])


def test_text_has_its_bounds() -> None:
    """Length and pattern are told, and a required member that is missing."""
    assert [" ".join(each) for each in problems_of({}, FORM)] == ["/name is required and missing"]
    assert [each.text for each in problems_of({"name": "A"}, FORM)] == [
        "has 1 character, and not at least 2",
        "does not match ^[a-z]+$",
    ]
    assert problems_of({"name": "abcdef"}, FORM)[0].text == "has 6 characters, and not at most 5"


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, {"type": "decimal"}),
        ("a", {"pattern": "(?<=x)a"}),
        ("a", {"format": "hostname"}),
        ("a", True),
        ("a", {"$ref": "https://example.com/schema"}),
        ("a", {"$ref": "#/$defs/none"}),
        ({"a": 1}, {"patternProperties": {"a": {}}, "additionalProperties": False}),
        ([1], {"minItems": "two"}),
        (5, {"multipleOf": 0}),
        ({}, {"required": "name", "properties": [], "allOf": {}}),
    ],
)
def test_what_is_unknown_is_the_servers_to_judge(value: Any, schema: Any) -> None:
    """Nothing is refused because of a schema that this side can't read."""
    assert problems_of(value, schema) == []


def test_schema_may_refer_to_itself() -> None:
    """A reference that leads nowhere ends."""
    schema = {"$ref": "#"}
    assert problems_of(1, schema) == []
    assert problems_of({}, {"allOf": [{"required": ["a"]}, False]}) == [
        ("/a", "is required and missing"),
        ("", "must not be there"),
    ]


def test_choices_have_titles() -> None:
    """Each spelling of a list of choices is read."""
    pairs = [("a", "First"), ("b", "Second")]
    titled = [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]
    assert titled_choices({"enum": ["a", "b"], "enumNames": ["First", "Second"]}) == pairs
    assert titled_choices({"oneOf": titled}) == titled_choices({"anyOf": titled}) == pairs
    assert titled_choices({"enum": ["a", 1]}) == [("a", "a"), (1, "1")]
    assert titled_choices({"const": 1, "title": "One"}) == [(1, "One")]
    assert titled_choices({"anyOf": [{"type": "string"}]}) == titled_choices(None) == []


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("five", {"type": "integer"}, "five"),
        ("5", {"type": "string"}, "5"),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("5", {"type": ["integer", "null"]}, 5),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ("Yes", {"type": "boolean"}, True),
        ("off", {"type": "boolean"}, False),
        ("perhaps", {"type": "boolean"}, "perhaps"),
        ("a, b", {"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        ("1,2", {"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ('["a"]', {"type": "array"}, ["a"]),
        ("", {"type": "array"}, []),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("5", None, "5"),
    ],
)
def test_text_is_read_as_the_type_of_its_schema(text: str, schema: Any, value: Any) -> None:
    """What doesn't read as the type stays a text, which the schema refuses."""
    assert value_of_text(text, schema) == value
