"""Facts about what a user writes for a call: its words, and the answers that it brings."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.written import GivenAnswers, read_pairs, tool_named, wanted_of
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.errors import UsageError


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


# Words of a call

SCHEMA: Any = {
    "type": "object",
    "properties": {"env": {"type": "string"}, "count": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("words", "method", "params"),
    [
        (["deploy"], "tools/call", {"name": "deploy"}),
        (
            ["deploy", "env=5", "count=5", "other=x", "more:=[1]"],
            "tools/call",
            {"name": "deploy", "arguments": {"env": "5", "count": 5, "other": "x", "more": [1]}},
        ),
        (["tools/call", "tools/list"], "tools/call", {"name": "tools/list"}),
        (["prompts/get", "notes"], "prompts/get", {"name": "notes"}),
        (["resources/read", "file:///a?b=c"], "resources/read", {"uri": "file:///a?b=c"}),
        (["tools/list", "cursor=2"], "tools/list", {"cursor": "2"}),
        (["ping"], "ping", {}),
    ],
)
def test_words_name_a_tool_or_a_method(words: list[str], method: str, params: Any) -> None:
    """What is no method is a tool; a text is read as the type that the schema has."""
    wanted = wanted_of(words)
    assert wanted.method == method
    assert wanted.params(SCHEMA) == params


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "there is nothing to call; name a tool, or a method"),
        (["prompts/get"], "prompts/get needs what it names; write prompts/get NAME"),
        (["resources/read", "a", "b=c"], "resources/read takes no arguments"),
        (["deploy", "env"], "argument: 'env' has no name and value"),
    ],
)
def test_what_is_no_call_is_refused(words: list[str], reason: str) -> None:
    """The message says what is missing."""
    with pytest.raises(UsageError) as caught:
        wanted_of(words)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["confirm"], "answer: 'confirm' has no name and value; write name=text or name:=json"),
        (["=1"], "answer: an empty text has no name and value"),
        (["a=1", "a=2"], "answer 'a' is given twice"),
        (["a:=yes"], "answer 'a': what follows := is no JSON; a text is written a=text"),
    ],
)
def test_what_is_no_pair_is_refused(texts: list[str], reason: str) -> None:
    """The message names the pair and never its value."""
    with pytest.raises(UsageError) as caught:
        read_pairs(texts, "answer")
    assert reason in str(caught.value)


def test_tool_is_one_of_the_servers() -> None:
    """One that is nearly named so is suggested, else all are listed."""
    tools = [{"name": "deploy", "inputSchema": {}}, {"name": "add"}, "odd", {}]
    assert tool_named("deploy", tools) == tools[0]
    for name, hint in (("deplyo", "did you mean 'deploy'?"), ("zzz", "it has deploy, add")):
        with pytest.raises(UsageError, match="the server has no tool") as caught:
            tool_named(name, tools)
        assert caught.value.hint == hint
    with pytest.raises(UsageError, match="it has none"):
        tool_named("deploy", [])
