"""Laws of the answers that hints name: taken as they are told, they answer and fit."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mrtr_cassette.core.answers.forms import (
    AskedTurn,
    UnansweredQuestion,
    example_answer,
)
from mrtr_cassette.core.answers.fulfilment import AnswerSources, answer_from_sources
from mrtr_cassette.core.answers.written import GivenAnswers, WrittenPair, read_pairs
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.runs import CallResult, UnansweredError, problem_lines

NAMES = ("ok", "env", "a.b", "a=b", "c:", "it's")
FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "boolean"},
    {"type": "integer", "minimum": 3},
    {"type": "number", "maximum": -0.5},
    {"type": "string", "minLength": 9, "maxLength": 12},
    {"type": "string", "maxLength": 2},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "enum": ["prod", "decline"]},
    {"oneOf": [{"const": "a", "title": "A"}], "type": "string"},
    {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 2},
    {"type": "array", "items": {"type": "string"}},
    {"type": "integer", "minimum": 5, "maximum": 1},
    {"type": "string", "default": "x"},
)


@st.composite
def forms(draw: st.DrawFn) -> InputRequest:
    """Return a form of a few fields, of which some are required."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    fields = {name: draw(st.sampled_from(FIELDS)) for name in names}
    required = draw(
        st.lists(st.sampled_from((*names, "none of them")), unique=True, max_size=2)
    )
    schema = {"type": "object", "properties": fields, "required": required}

    return InputRequest("form", "?", {"requestedSchema": schema})


others = st.sampled_from(
    [InputRequest(kind, "?") for kind in ("url", "sampling", "roots")]
    + [
        InputRequest(kind, "?", {}, takes_bare_value=True)
        for kind in ("string", "number", "boolean")
    ]
)
keys = st.sampled_from(
    ["confirm", "ok", "1c0ffee2", "__main__:ask", "a-b", "#2", "x=y"]
)
requests = st.one_of(forms(), others)
turns = st.lists(st.dictionaries(keys, requests, max_size=2), max_size=3)


def answered(
    asks: list[dict[str, InputRequest]], pairs: tuple[WrittenPair, ...]
) -> Any:
    """Return the first ask that these answers don't answer, or None."""
    sources = AnswerSources(GivenAnswers(pairs))
    first = 1
    for turn, requests in enumerate(asks, start=1):
        asked = AskedTurn("tools/call", "deploy", {}, turn, requests, first)
        first += len(requests)
        try:
            next(answer_from_sources(asked, sources))
        except StopIteration as end:
            if isinstance(end.value, UnansweredQuestion):
                return end.value

    return None


def renamed(
    asks: list[dict[str, InputRequest]], run: int
) -> list[dict[str, InputRequest]]:
    """Return what is asked in another run, in which keys that are no plain words differ."""
    lasting = ("confirm", "ok", "a-b")
    found = []
    for requests in asks:
        of_turn = {}
        for key, request in requests.items():
            of_turn[key if key in lasting else f"{run}{key}"] = request

        found.append(of_turn)

    return found


def test_an_example_too_large_to_be_written_is_none() -> None:
    """No memory is taken for it; the hint is to decline."""
    texts = {"type": "string", "minLength": 10_000_000}
    lists = {"type": "array", "minItems": 10_000_000, "items": {"type": "string"}}
    long_texts = {"type": "string", "minLength": 100}
    lists_of_lists = {"type": "array", "minItems": 1_000, "items": long_texts}
    for field in (texts, lists, lists_of_lists):
        form = {"requestedSchema": {"properties": {"field": field}}}

        assert example_answer(InputRequest("form", "?", form)).whole == "decline"


@settings(max_examples=60)
@given(turns)
def test_every_question_is_answered_by_what_its_hint_says(
    asks: list[dict[str, InputRequest]],
) -> None:
    """On the command line and in Python, in runs whose keys are others, one hint after another."""
    for is_shell in (True, False):
        told: list[str] = []
        python: dict[str, Any] = {}
        for run in range(1 + sum(map(len, asks))):
            pairs = read_pairs(told, "answer")
            if not is_shell:
                pairs = tuple(
                    WrittenPair(key, value, is_json=True)
                    for key, value in python.items()
                )

            unanswered = answered(renamed(asks, run), pairs)
            if unanswered is None:
                break

            result = CallResult("tools/call", "deploy", unanswered=unanswered)

            assert unanswered.detail.startswith("nothing answers it")

            (line,) = problem_lines(result, is_miss_told=False)
            told += shlex.split(line.partition("; write ")[2])[1::2]
            shown = str(UnansweredError(result)).partition("; write answers=")[2]
            python |= eval(shown)
            json.dumps(python)
        else:
            raise AssertionError((told, python))
