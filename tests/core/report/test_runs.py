"""Facts about what replays, recordings and calls came to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from builders import (
    cassette_of,
    get,
    loaded,
    missed,
    play,
    player_of,
    post,
    retry,
    rpc,
    state_in,
    tool,
)
from goldens import DATA, read_case
from harmless import assert_harmless
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import NO, YES, asks, text

from mrtr_cassette.core.answers.checking import Asked
from mrtr_cassette.core.answers.fulfilment import CallTurn, Unanswered
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.ci import junit
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.events import (
    call_ended_event,
    recording_said,
    replay_said,
    turn_said,
)
from mrtr_cassette.core.report.runs import (
    CallResult,
    InteractionOutcome,
    RecordingReport,
    ReplayReport,
    UnplayedError,
    UnpublishedError,
    call_data,
    problem_lines,
    recording_text,
    report_of_replay,
    saved_report,
    summary_data,
    summary_text,
)

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def test_long_summaries_are_cut() -> None:
    """At most ten interactions and ten harmless requests are listed, and the rest is counted."""
    player = player_of(*[(CALL, text("x"))] * 12)
    for number in range(13):
        player.request_received(get(f"/.well-known/{number}"))
    for request in (tool("deploy", env="dev"), tool("x"), tool("x")):
        missed(player, request)
    lines = summary_text(report_of_replay(player)).splitlines()

    assert lines[0].endswith("3 misses (arguments-differ 1, unknown-name 2)")
    assert (len(lines), lines[11], lines[-1]) == (23, "  and 2 more", "  and 3 more")


def test_unplayed_interactions_are_an_error_of_the_library() -> None:
    """The error has the interactions, each with its number and its call."""
    (one,) = details_of(loaded(cassette_of((tool("a"), text("x"))))).interactions
    error = UnplayedError("c.json", [one])

    assert str(error) == 'not all that is on c.json was played:\n  #1 tools/call "a"'
    assert (error.unplayed, error.exit_code) == ((one,), 1)


# Reports that are read back from files


def saved() -> dict[str, Any]:
    """Return a report with a miss that has a nearest call, one that has none, and harmless traffic."""
    player = player_of((tool("deploy", env="prod"), text("x")), (tool("ask"), asks("a")))
    play(player, tool("deploy", env="prod"))
    missed(player, tool("deploy", env="test"))
    missed(player, rpc("odd/method"))
    player.request_received(post(rpc("ping")))
    data: dict[str, Any] = json.loads(orjson.dumps(summary_data(report_of_replay(player))))
    return data


def test_report_is_read_as_it_was() -> None:
    """What a report says is the same after it went through a file."""
    report = saved_report(orjson.dumps(saved()))

    assert summary_data(report) == saved()
    assert [miss.nearest is None for miss in report.misses] == [False, True]


@pytest.mark.parametrize(
    ("raw", "said"),
    [(b"<testsuite/>", "."), (b"[]", "list"), (b'{"cassette":"c.json"}', "interactions")],
)
def test_other_files_are_no_reports(raw: bytes, said: str) -> None:
    """XML, a list and other JSON are refused."""
    with pytest.raises(ValueError, match=said):
        saved_report(raw)


# Recordings


def test_report_has_no_secrets() -> None:
    """A secret that a client sends is redacted, also where the cassette has none."""
    player = player_of((tool("login", user="ada"), text("in")), redacts=True)
    player.request_received(post(tool("login", user="ada", password="correct-horse")))
    data = summary_data(report_of_replay(player))

    assert "correct-horse" not in str(data)
    assert data["misses"][0]["differences"] == [
        {"pointer": "/arguments/password", "recorded": None, "received": '"<password>"'}
    ]


# Calls

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
        ({"content": [{"uri": "a:b"}]}, '{\n  "uri": "a:b"\n}'),
    ],
)
def test_result_is_shown_as_a_person_reads_it(result: Any, text: str) -> None:
    """Texts are themselves, what is large is its size, the rest is JSON."""
    assert called(result=result).text == text
    assert called(error={"code": -32602, "message": text}).text == text


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


def replayed(*, answers: Any = YES) -> Player:
    """Return a replay in which one interaction was played, one in part, and one not at all."""
    player = player_of(
        (tool("add"), text("1")),
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        (tool("drop"), text("gone")),
    )
    play(player, tool("add"))
    state = state_in(play(player, CALL))
    player.request_received(post(retry(CALL, {"a": answers}, state=state)))
    return player


# Golden texts


def replay(report: ReplayReport) -> str:
    """Return a replay as text, as its event, as data and as XML."""
    event, line = replay_said(report)
    assert line == summary_text(report)
    forms = (json_of(event), json_of(summary_data(report), indent=1), junit(report).decode())
    return "\n".join([line, *forms])


def json_of(value: Any, indent: int | None = None) -> str:
    """Return what is ready for JSON."""
    assert orjson.loads(orjson.dumps(value)) == value
    return json.dumps(value, indent=indent)


def harmless() -> ReplayReport:
    """Return a replay of which all was played, and that got what any server answers."""
    player = player_of((CALL, text("x")))
    play(player, CALL)
    for request in (post(rpc("ping")), post(rpc("ping", number=2)), get("/.well-known/x")):
        player.request_received(request)
    return report_of_replay(player)


def recordings() -> str:
    """Return what recordings came to: line and event."""
    lines = []
    for report in (
        RecordingReport("c.json", 3, 4, None, 0),
        RecordingReport("c.json", 1, 1, 2, 3),
        RecordingReport("c.json", None, 0, 5, 0),
        RecordingReport("c.json", None, 0, None, 0),
        RecordingReport("c.json", None, 2, None, 0, "all 2 requests got 404"),
        RecordingReport("c.json", 3, 4, None, 0, kept=2),
        RecordingReport("c.json", 3, 4, None, 0, kept=3, is_same=True),
    ):
        event, line = recording_said(report)
        assert line == recording_text(report)
        lines += [line, json_of(event)]
    return "\n".join(lines)


def calls() -> str:
    """Return what calls came to: problems, event, and data."""
    lines = []
    for result in (
        called(result={"content": []}),
        called(unanswered=ASKED, unused=("env",)),
        called(problem="gone"),
        called(error={"code": -32602, "message": "no such tool"}),
    ):
        lines += [*problem_lines(result), json_of(call_ended_event(result))]
        lines.append(json_of(call_data(result)))
    return "\n".join(lines)


def turns() -> str:
    """Return what was asked in turns of calls, and who answered: no answer is in it."""
    lines = []
    for turn in (
        TURN,
        CallTurn(2, "result", {}, {}, {}, "sha256:1"),
        CallTurn(2, "push", REQUESTS, {}, {}, None),
    ):
        event, line = turn_said(turn)
        lines += [line, json_of(event)]
    assert "sesame" not in str(lines)
    return "\n".join(lines)


RUNS: dict[str, Callable[[], str]] = {
    "replay with a miss": lambda: replay(report_of_replay(replayed(answers=NO))),
    "replay with harmless requests": lambda: replay(harmless()),
    "recordings": recordings,
    "calls": calls,
    "turns": turns,
}


@pytest.mark.parametrize("name", RUNS)
def test_run_is_told(name: str, *, updates_goldens: bool) -> None:
    """People get a few lines, programs every fact; what is harmless is no miss and no failure."""
    case = read_case(DATA / "reports" / "runs.case")
    case.expect(name, f"{RUNS[name]()}\n", updates=updates_goldens)


def test_recording_that_was_not_published_is_an_error() -> None:
    """It has the reason, and an exit code of its own."""
    error = UnpublishedError("c.json", "all 2 requests got 404")
    assert (error.reason, error.exit_code) == ("all 2 requests got 404", 4)


@settings(max_examples=25)
@given(st.text(st.characters()))
def test_junit_is_well_formed_whatever_the_names(words: str) -> None:
    """Control characters, lone surrogates and markup are spelled so that XML can hold them."""
    report = report_of_replay(replayed(answers=NO))
    (miss,) = report.misses
    first, *others = report.interactions
    hostile = ReplayReport(
        words,
        (InteractionOutcome(1, words, first.outcome, 1), *others),
        (replace(miss, request=words, detail=words, text=words),),
    )
    root = ET.fromstring(junit(hostile))

    assert len(list(root.iter("testcase"))) == 4
    assert_harmless(junit(hostile).decode().replace("\t", ""))
