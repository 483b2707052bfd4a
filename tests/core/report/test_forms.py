"""Facts about questions as forms, and about the time axis beside them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrtr_cassette.core.report.details import Stretch
from mrtr_cassette.core.report.page import Choice, FormField, axis_of, form_fields, shown_time
from mrtr_cassette.core.wire.jsonbytes import parse


def field_of(definition: Any, *answer: Any) -> FormField:
    """Return the field of a property, with an answer or without."""
    content = {"x": answer[0]} if answer else None
    (field,) = form_fields({"properties": {"x": definition}}, content)
    return field


def test_field_has_what_its_schema_says() -> None:
    """Title, description, limits and what is required are told; what was not asked comes last."""
    bags = {"type": "integer", "title": "Bags", "description": "To check in.", "minimum": 0}
    bags |= {"maximum": 3, "default": 1}

    assert form_fields({"properties": {"x": bags}, "required": ["x"]}, {"y": True, "x": 2}) == [
        FormField(
            name="x",
            label="Bags",
            description="To check in.",
            kind="one line",
            helps=("integer", "at least 0", "at most 3", "default 1", "required"),
            choices=(),
            value="2",
        ),
        FormField("y", "y", "", "one line", ("not in the schema",), (), "true"),
    ]


@pytest.mark.parametrize(
    ("definition", "answer", "kind", "value"),
    [
        ({"type": "string"}, "Ada", "one line", "Ada"),
        ({"type": "string"}, "two\nlines", "lines", "two\nlines"),
        ({"type": "string"}, "x" * 81, "lines", "x" * 81),
        ({"type": "number"}, parse(b"1e400"), "one line", "1e400"),
        ({"type": "boolean"}, True, "check", "true"),
        ({"type": "boolean"}, "yes", "one line", "yes"),
        ({"type": "object"}, {"a": 1}, "lines", '{\n  "a": 1\n}'),
        ("not a schema", None, "one line", "null"),
    ],
)
def test_kind_of_a_field_fits_its_answer(
    definition: Any, answer: Any, kind: str, value: str
) -> None:
    """A field is drawn so that the answer can be read in it, whatever it is."""
    field = field_of(definition, answer)

    assert (field.kind, field.value) == (kind, value)


RED = Choice("red", is_chosen=False)
GREEN = Choice("green", is_chosen=True)


@pytest.mark.parametrize(
    ("definition", "answer", "kind", "choices"),
    [
        ({"enum": ["r", "g"], "enumNames": ["red", "green"]}, ["g"], "choice", (RED, GREEN)),
        (
            {"oneOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}]},
            ["g"],
            "choice",
            (RED, GREEN),
        ),
        (
            {"anyOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}]},
            ["g"],
            "choice",
            (RED, GREEN),
        ),
        (
            {"type": "array", "items": {"enum": ["red"]}, "minItems": 1},
            [["z"]],
            "choices",
            (RED, Choice("z", is_chosen=True)),
        ),
        ({"enum": ["red"]}, [], "choice", (RED,)),
        ({"type": "boolean"}, [], "check", ()),
    ],
)
def test_choices_have_labels(
    definition: Any, answer: list[Any], kind: str, choices: tuple[Choice, ...]
) -> None:
    """Each way to spell choices is read; an answer that was never offered is shown all the same."""
    field = field_of(definition, *answer)

    assert (field.kind, field.choices) == (kind, choices)


MEMBERS = [
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
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=3)
    ),
    max_leaves=20,
)


@settings(max_examples=40)
@given(JSON, JSON)
def test_whatever_a_server_says_is_a_form(schema: Any, content: Any) -> None:
    """No schema and no answer is an error, and each answered member is in a field."""
    names = [field.name for field in form_fields(schema, content)]

    assert {*names} >= {*(content if isinstance(content, dict) else ())}
    assert len({*names}) == len(names)


# Time


def busy(*times: tuple[float, float]) -> list[Stretch]:
    """Return stretches of the server's time."""
    return [Stretch("server", start, end) for start, end in times]


@pytest.mark.parametrize(
    ("stretches", "places", "cuts"),
    [
        (busy((10, 20), (15, 40), (40, 110)), {0: 0, 10: 0, 60: 50, 110: 100, 999: 100}, 0),
        (busy((0, 50), (55, 100)), {50: 50, 55: 55}, 0),
        (busy((0, 50), (1000, 1050)), {0: 0, 1000: 51.22, 1050: 100}, 1),
        (busy((0, 50), (900_000, 900_050)), {0: 0, 900_000: 51.22, 900_050: 100}, 1),
    ],
    ids=["linear while something happens", "short pauses stay", "idle time", "however long"],
)
def test_axis_is_linear_but_for_idle_time(
    stretches: list[Stretch], places: dict[int, float], cuts: int
) -> None:
    """Stretches that overlap or follow one another are one, and idle time is cut."""
    axis = axis_of(stretches)

    found = {at: axis.position(at) for at in places}
    assert found == pytest.approx(places, abs=0.01)
    assert len(axis.cuts) == cuts
    assert all(50 / 1.025 < cut < 51.22 for cut in axis.cuts)


@pytest.mark.parametrize("stretches", [[], busy((5, 5)), busy((5, 5), (9, 9))])
def test_axis_without_time(stretches: list[Stretch]) -> None:
    """Where nothing takes any time, each moment still has a place."""
    axis = axis_of(stretches)

    assert all(0 <= axis.position(at) <= 100 for at in (0, 5, 7, 9, 10))


def test_durations_are_said_as_people_do() -> None:
    """A duration has the unit that fits it."""
    durations = [0.2, 12.4, 1234, 59_999, 60_000, 84_400]

    assert [*map(shown_time, durations)] == [
        "under 1 ms",
        "12 ms",
        "1.2 s",
        "60.0 s",
        "1 min",
        "1 min 24 s",
    ]
