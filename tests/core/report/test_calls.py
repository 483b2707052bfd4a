"""Facts about what a call came to: its texts, its data, its exit code, and its events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.fulfilment import Unanswered
from mrtr_cassette.core.answers.rounds import CallTurn
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.calls import (
    CallResult,
    call_data,
    ended_event,
    problem_lines,
    turn_event,
    turn_line,
)

REQUESTS = {"confirm": InputRequest("form", "Deploy?"), "where": InputRequest("roots", "")}
SECRET = {"action": "accept", "content": {"pin": "sesame"}}
TURN = CallTurn(1, "result", REQUESTS, {"confirm": SECRET}, {"confirm": "rule 1"}, "sha256:0")
ASKED = Unanswered(Asked("tools/call", "deploy", {}, 2, REQUESTS), "where", "nothing answers it")


def called(**facts: Any) -> CallResult:
    """Return what a call came to."""
    return CallResult("tools/call", "deploy", (TURN,), **facts)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        (
            {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
            "[image/png, about 3 bytes]",
        ),
        ({"contents": [{"uri": "a:b", "blob": "AAAA"}]}, "[data, about 3 bytes]"),
        (
            {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}]},
            "user: Hi",
        ),
        ({"content": [], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}'),
        ({"tools": []}, '{\n  "tools": []\n}'),
    ],
)
def test_result_is_shown_as_a_person_reads_it(result: Any, text: str) -> None:
    """Texts are themselves, what is large is its size, the rest is JSON."""
    assert called(result=result).text == text


def test_links_are_shown_as_json() -> None:
    """What has no text of its own is shown whole."""
    text = called(result={"content": [{"type": "resource_link", "uri": "a:b"}]}).text
    assert json.loads(text) == {"type": "resource_link", "uri": "a:b"}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"result": {}}, 0),
        ({"result": {"isError": True}}, 1),
        ({"error": {"code": -32602, "message": "no"}}, 1),
        ({"problem": "gone"}, 4),
        ({"unanswered": ASKED}, 5),
    ],
)
def test_exit_code_says_what_happened(facts: Any, code: int) -> None:
    """A result, the tool's or the server's error, no server, no answer."""
    result = called(**facts)
    assert result.exit_code == code
    assert result.is_error is (code != 0)


def test_data_is_the_whole_conversation() -> None:
    """With what was asked, what was answered, and who answered."""
    assert call_data(called(result={"content": []}))["result"] == {"content": []}
    data = call_data(called(unanswered=ASKED))
    assert data["unanswered"]["key"] == "where"
    (turn,) = data["turns"]
    assert turn["asked"]["confirm"] == {"kind": "form", "message": "Deploy?"}
    assert turn["answered"] == {"confirm": SECRET}
    assert turn["answered_by"] == {"confirm": "rule 1"}
    assert data.keys() == {"method", "name", "turns", "unanswered"}


def test_events_have_no_answer() -> None:
    """Each round says who answered and has a hash of its state."""
    event = turn_event(TURN)
    assert event["event"] == "answered"
    assert event["answered_by"] == {"confirm": "rule 1"}
    assert event["request_state_sha256"] == "sha256:0"
    line = turn_line(TURN)
    assert (
        line == "turn 1: confirm (form) 'Deploy?', answered by rule 1; where (roots), not answered"
    )
    assert "sesame" not in json.dumps(event) + line
    empty = CallTurn(2, "result", {}, {}, {}, "sha256:1")
    assert turn_line(empty) == "turn 2: asked for a retry only"
    assert turn_event(empty)["event"] == "answered"
    assert turn_event(CallTurn(2, "push", REQUESTS, {}, {}, None))["event"] == "unanswered"
    assert ended_event(called(result={}))["event"] == "ended"
    assert ended_event(called(problem="x"))["event"] == "failed"


def test_problems_are_told() -> None:
    """And answers that were given for nothing."""
    result = called(unanswered=ASKED, unused=("env",))
    assert problem_lines(result) == [
        "error: turn 2 is not answered: 'where': nothing answers it",
        "warning: nothing asked for the answer 'env'",
    ]
    assert problem_lines(called(problem="gone")) == ["error: gone"]
    refused = called(error={"code": -32602, "message": "no such tool"})
    assert problem_lines(refused) == ["error: -32602: no such tool"]
    assert refused.text == "no such tool"
