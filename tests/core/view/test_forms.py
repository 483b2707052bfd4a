"""Facts about questions as forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.view.forms import Choice, FormField, form_fields, listed_field
from mrtr_cassette.core.wire.jsonbytes import parse


def field_of(definition: Any, *answer: Any) -> FormField:
    """Return the field of a property, with an answer or without."""
    content = {"x": answer[0]} if answer else None
    (field,) = form_fields({"properties": {"x": definition}}, content)
    return field


def test_field_has_what_its_schema_says() -> None:
    """Title, description, limits and what is required are told."""
    schema = {
        "properties": {
            "x": {
                "type": "integer",
                "title": "Bags",
                "description": "To check in.",
                "minimum": 0,
                "maximum": 3,
                "default": 1,
            }
        },
        "required": ["x"],
    }

    assert form_fields(schema, {"x": 2}) == (
        FormField(
            name="x",
            label="Bags",
            description="To check in.",
            kind="text",
            hints=("integer", "at least 0", "at most 3", "default 1"),
            choices=(),
            value="2",
            is_required=True,
            is_answered=True,
            is_asked=True,
        ),
    )


@pytest.mark.parametrize(
    ("definition", "answer", "kind", "value"),
    [
        ({"type": "string"}, "Ada", "text", "Ada"),
        ({"type": "string"}, "two\nlines", "long", "two\nlines"),
        ({"type": "string"}, "x" * 81, "long", "x" * 81),
        ({"type": "number"}, parse(b"1e400"), "text", "1e400"),
        ({"type": "boolean"}, True, "check", "true"),
        ({"type": "boolean"}, "yes", "text", "yes"),
        ({"type": "object"}, {"a": 1}, "long", '{\n  "a": 1\n}'),
        ("not a schema", None, "text", "null"),
    ],
)
def test_kind_of_a_field_fits_its_answer(
    definition: Any, answer: Any, kind: str, value: str
) -> None:
    """A field is drawn so that the answer can be read in it, whatever it is."""
    field = field_of(definition, answer)

    assert (field.kind, field.value, field.is_answered) == (kind, value, True)


@pytest.mark.parametrize(
    "definition",
    [
        {"enum": ["r", "g"], "enumNames": ["red", "green"]},
        {"oneOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}]},
        {"anyOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}]},
    ],
)
def test_choices_have_labels(definition: Any) -> None:
    """Each way to spell choices is read; the chosen one is known by its value."""
    field = field_of(definition, "g")

    assert field.kind == "choice"
    assert field.choices == (Choice("red", is_chosen=False), Choice("green", is_chosen=True))


def test_several_choices() -> None:
    """An array of choices may have several; one that was never offered is shown all the same."""
    field = field_of({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}, ["b", "z"])

    assert field.kind == "choices"
    assert field.choices == (Choice("a", False), Choice("b", True), Choice("z", True))
    assert field.hints == ("choices: at least 1",)


def test_unanswered_fields_are_empty() -> None:
    """A form that was declined has its fields, with nothing in them."""
    assert (field_of({"type": "boolean"}).kind, field_of({"type": "string"}).value) == ("check", "")
    assert field_of({"enum": ["a"]}).choices == (Choice("a", is_chosen=False),)


def test_answers_that_nobody_asked_for_are_fields() -> None:
    """What the schema lacks comes after the rest, and is known as such."""
    asked, other = form_fields({"properties": {"a": {}}}, {"b": 1, "a": 2})

    assert (asked.name, asked.is_asked) == ("a", True)
    assert (other.name, other.is_asked, other.value) == ("b", False, "1")


def test_question_of_the_array_dialect_is_one_field() -> None:
    """Its key is the label, its kind the type, and it is required unless it says otherwise."""
    field = listed_field({"id": "name", "kind": "number", "description": "Name?"}, {"value": 5})
    optional = listed_field({"id": "name", "kind": "string", "required": False}, None)

    assert (field.label, field.description, field.hints) == ("name", "Name?", ("number",))
    assert (field.value, field.is_required) == ("5", True)
    assert (optional.is_answered, optional.is_required) == (False, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "a",
                    "anyOf",
                    "const",
                    "enum",
                    "enumNames",
                    "items",
                    "oneOf",
                    "properties",
                    "required",
                    "title",
                    "type",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_whatever_a_server_says_is_a_form(schema: Any, content: Any) -> None:
    """No schema and no answer is an error, and each answered member is in a field."""
    fields = form_fields(schema, content)

    answered = [field.name for field in fields if field.is_answered]
    assert sorted(answered) == sorted(content if isinstance(content, dict) else ())
