"""Facts about the phrases that several reports share."""

from __future__ import annotations

import pytest
from builders import get, post, retry, rpc, tool

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import Answers
from mrtr_cassette.core.report.wording import (
    annotation_line,
    answering_text,
    arguments_json,
    difference_line,
    fix_lines,
    json_text,
    printable_difference,
    request_text,
)
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.core.wire.pointers import Difference


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (post(tool("x", b=1, a=0.5)), 'tools/call "x" with {"a":0.5,"b":1}'),
        (post(tool("x")), 'tools/call "x"'),
        (post(retry(tool("x", a=1), {"k": 1})), 'tools/call "x" with {"a":1}, answering k'),
        (post(rpc("tools/list")), "tools/list"),
        (get("/x?y"), "GET /x?y"),
    ],
)
def test_request_is_named_with_arguments_and_keys(request_: Request, named: str) -> None:
    """A request is named by its call, its arguments, and what it answers."""
    assert request_text(read_call(request_)) == named


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (post(tool("x", b=1, a="é")), '{"a":"\\u00e9","b":1}'),
        (post(tool("x")), None),
        (post(rpc("x/y", [1])), None),
        (post(b'{"arguments":{"a":1}}'), None),
    ],
)
def test_arguments_are_those_of_a_call(request_: Request, text: str | None) -> None:
    """Only a JSON-RPC call has arguments, and an empty object counts as none."""
    assert arguments_json(read_call(request_)) == text


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (Answers({"b": 1, "a\n": 2}, None), "answering a\\n, b"),
        (Answers(None, "S"), "answering nothing, echoing a request state"),
    ],
)
def test_answers_are_named_by_their_keys(answers: Answers, text: str) -> None:
    """Neither a value nor the request state is shown."""
    assert answering_text(answers) == text


def test_difference_is_one_line() -> None:
    """Pointer and values are printable and short; an absent value reads as nothing."""
    shown = printable_difference(Difference("/a\x1b", "1" * 250, None))

    assert shown == ("/a\\x1b", "1" * 200 + "… (50 more characters)", None)
    assert difference_line(shown, "live") == f"  /a\\x1b: recorded {shown.recorded}, live nothing"
    assert difference_line(Difference("", None, "2"), "received") == (
        "  /: recorded nothing, received 2"
    )


def test_annotation_can_neither_end_early_nor_be_another_command() -> None:
    """Each part is escaped as GitHub's workflow commands want it."""
    line = annotation_line("a,b:c.json", "50% more\n::debug::", "two\r\nlines, 100%")
    assert line == (
        "::error file=a%2Cb%3Ac.json,title=50%25 more%0A%3A%3Adebug%3A%3A::two%0D%0Alines, 100%25"
    )


def test_fixes_are_alternatives() -> None:
    """Each fix has a line of its own, and the first one the label."""
    assert fix_lines(["try this"]) == ["  fix:      try this"]
    assert fix_lines(["try this", "that"]) == ["  fix:      try this", "       or:  that"]


def test_json_is_indented_for_people() -> None:
    """A value is shown with its members in their order, each number as it was, and all printable."""
    value = parse('{"b":[1.50,{}],"a":{"ü":null},"c":[],"d":"\\u202e\\u0001"}'.encode())

    assert json_text(value) == (
        '{\n  "b": [\n    1.5,\n    {}\n  ],\n  "a": {\n    "ü": null\n  },\n  "c": [],\n'
        '  "d": "\\u202e\\u0001"\n}'
    )
