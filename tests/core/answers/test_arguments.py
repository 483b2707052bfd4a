"""Facts about the words of a call: which method they name, and of which types its arguments are."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.arguments import WrittenPair, read_pairs, tool_named, wanted_of
from mrtr_cassette.errors import UsageError

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


def test_text_and_json_are_told_apart() -> None:
    """What follows `=` is a text, read as its schema has it; what follows `:=` is JSON."""
    pairs = read_pairs(["a=1=2", "b:=[1]", "c=5"], "answer")
    assert pairs == (
        WrittenPair("a", "1=2", False),
        WrittenPair("b", [1], True),
        WrittenPair("c", "5", False),
    )
    assert [pair.read_as({"type": "integer"}) for pair in pairs] == ["1=2", [1], 5]


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
