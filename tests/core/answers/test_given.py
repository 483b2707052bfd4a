"""Facts about the answers that a call brings: which request each is for."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.arguments import read_pairs
from mrtr_cassette.core.answers.given import GivenAnswers
from mrtr_cassette.core.protocol.dialect import InputRequest


def form(**fields: Any) -> InputRequest:
    """Return a form with these fields."""
    return InputRequest("form", "?", {"requestedSchema": {"properties": fields}})


def given(*texts: str) -> GivenAnswers:
    """Return what a call brings."""
    return GivenAnswers(read_pairs(texts, "answer"))


SURE = form(confirm={"type": "boolean"})
PLAN = form(env={"type": "string"}, count={"type": "integer"})
URL = InputRequest("url", "Sign in")
VALUE = InputRequest("number", "How many?", takes_value=True)
ROOTS: Any = {"roots": [{"uri": "file:///a"}]}


def accepted(**content: Any) -> Any:
    """Return an accepted form."""
    return {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("texts", "key", "request_", "answer"),
    [
        (["confirm=yes"], "confirm", SURE, accepted(confirm=True)),
        (["confirm=yes"], "elicitation-1", SURE, accepted(confirm=True)),
        (["sure=yes"], "sure", SURE, accepted(confirm=True)),
        (["sure.confirm:=false"], "sure", SURE, accepted(confirm=False)),
        (["confirm=decline"], "confirm", SURE, {"action": "decline"}),
        (["sure=cancel"], "sure", SURE, {"action": "cancel"}),
        (["env=decline"], "env", form(env={"type": "string"}), accepted(env="decline")),
        (['env:={"action":"decline"}'], "env", form(env={}), {"action": "decline"}),
        (["env=a", "count=2", "other=1"], "plan", PLAN, accepted(env="a", count=2)),
        (["count=two"], "plan", PLAN, accepted(count="two")),
        (["plan=accept"], "plan", PLAN, {"action": "accept"}),
        (["link=accept"], "link", URL, {"action": "accept"}),
        (["n=5"], "n", VALUE, {"value": 5}),
        (["sum=All fine"], "sum", InputRequest("sampling", ""), "All fine"),
        (['r:={"roots":[{"uri":"file:///a"}]}'], "r", InputRequest("roots", ""), ROOTS),
        (["other=1"], "confirm", SURE, None),
    ],
)
def test_name_is_a_key_or_a_field(
    texts: list[str], key: str, request_: InputRequest, answer: Any
) -> None:
    """What a field's schema can't mean as its text is what the word says."""
    found = given(*texts).answer_to(key, request_)
    if request_.kind == "sampling":
        found = found["content"]["text"]
    assert found == answer


def test_unused_answers_are_known() -> None:
    """What nothing was asked for is told in the end."""
    answers = given("confirm=yes", "other=1")
    assert answers.unused == ["confirm", "other"]
    answers.answer_to("confirm", SURE)
    assert answers.unused == ["other"]


def test_kinds_that_are_declared() -> None:
    """Only an object can be the result of sampling or roots."""
    assert not given()
    assert given("a=1").kinds == {"form", "url"}
    assert given("a:={}").kinds == {"form", "url", "sampling", "roots"}
