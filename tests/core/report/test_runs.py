"""Facts about what replays, recordings and calls came to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from builders import (
    Step,
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
    UnreadableReportError,
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
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


def test_replay_tells_what_was_played_and_missed() -> None:
    """Each interaction has an outcome, each miss what its error has; misses are counted by reason."""
    player = player_of((tool("add"), text("1")), *BRANCHED[:2], (tool("drop"), text("gone")))
    for request in (tool("add"), CALL):
        play(player, request)
    missed(player, tool("deploy", env="dev"))
    assert ", 1 miss (arguments-differ 1)" in summary_text(report_of_replay(player))
    for _ in range(2):
        missed(player, tool("x"))

    report = report_of_replay(player)
    assert summary_text(report).splitlines() == [
        "played 1 of 3 interactions, 3 misses (arguments-differ 1, unknown-name 2)",
        '  played in part: #2 tools/call "deploy"',
        '  never played: #3 tools/call "drop"',
    ]
    assert summary_data(report) == {
        "cassette": "talk.json",
        "interactions": [
            {"number": 1, "call": 'tools/call "add"', "outcome": "played", "plays": 1},
            {"number": 2, "call": 'tools/call "deploy"', "outcome": "played in part", "plays": 1},
            {"number": 3, "call": 'tools/call "drop"', "outcome": "unplayed", "plays": 0},
        ],
        "misses": [{"text": miss.text, **miss.facts} for miss in report.misses],
        "harmless": [],
    }
    assert replay_said(report)[0] == {
        "event": "concluded",
        "interactions": 3,
        "unplayed": [2, 3],
        "misses": 3,
        "harmless": 0,
    }


def test_replay_lists_harmless_requests() -> None:
    """What was not recorded and got what any server answers is counted, and is no miss."""
    player = player_of((CALL, text("x")))
    play(player, CALL)
    assert summary_text(report_of_replay(player)) == "played 1 of 1 interactions, no misses"
    for request in (post(rpc("ping")), post(rpc("ping", number=2)), get("/.well-known/x")):
        player.request_received(request)
    report = report_of_replay(player)

    assert summary_text(report).splitlines() == [
        "played 1 of 1 interactions, no misses",
        "  not recorded, answered as by any server 2 times: ping",
        "  not recorded, answered as by any server: GET /.well-known/x",
    ]
    assert summary_data(report)["harmless"] == [
        {"call": "ping", "answer": "{}", "times": 2},
        {"call": "GET /.well-known/x", "answer": "404", "times": 1},
    ]
    assert replay_said(report)[0]["harmless"] == 3


def test_long_summaries_are_cut() -> None:
    """At most ten interactions and ten harmless requests are listed, and the rest is counted."""
    player = player_of(*[(CALL, text("x"))] * 12)
    for number in range(13):
        player.request_received(get(f"/.well-known/{number}"))
    lines = summary_text(report_of_replay(player)).splitlines()

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
    ("place", "value", "said"),
    [
        (["cassette"], 1.5, "/cassette is no text"),
        (["interactions"], 1.5, "/interactions is no list"),
        (["interactions", 0, "number"], 1.5, "/interactions/0/number is no whole number"),
        (["interactions", 0, "outcome"], "eaten", "/interactions/0/outcome is none of a replay"),
        (["misses", 0, "reason"], 1.5, "/misses/0/reason is no text"),
        (["misses", 0, "nearest", "turn"], 1.5, "/misses/0/nearest/turn is no whole number"),
        (
            ["misses", 0, "differences", 0, "recorded"],
            1.5,
            "/misses/0/differences/0/recorded is no text",
        ),
        (["harmless", 0, "times"], 1.5, "/harmless/0/times is no whole number"),
    ],
)
def test_place_of_what_is_wrong_is_named(place: list[Any], value: Any, said: str) -> None:
    """A report that somebody changed is refused with the place."""
    data = tree = saved()
    for step in place[:-1]:
        tree = tree[step]
    tree[place[-1]] = value

    with pytest.raises(UnreadableReportError, match=said):
        saved_report(orjson.dumps(data))


def test_other_files_are_no_reports() -> None:
    """XML and a list are refused."""
    with pytest.raises(UnreadableReportError, match="no JSON: "):
        saved_report(b"<testsuite/>")
    with pytest.raises(UnreadableReportError, match="/cassette is no text"):
        saved_report(b"[]")


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


@pytest.mark.parametrize(
    ("report", "told", "event"),
    [
        (
            RecordingReport("c.json", 3, 4, None, 0),
            "wrote c.json: 3 interactions, 4 exchanges recorded",
            {"interactions": 3, "exchanges": 4},
        ),
        (
            RecordingReport("c.json", 1, 1, 2, 3),
            "wrote c.json: 1 interaction, 1 exchange recorded, 2 played, 3 could not be recorded",
            {"interactions": 1, "exchanges": 1, "played": 2, "unrecorded": 3},
        ),
        (
            RecordingReport("c.json", None, 0, 5, 0),
            "c.json stays as it is, 0 exchanges recorded, 5 played",
            {"interactions": 0, "exchanges": 0, "played": 5, "unrecorded": 0},
        ),
        (
            RecordingReport("c.json", None, 0, None, 0),
            "nothing was recorded, no cassette was written",
            {"interactions": 0, "exchanges": 0},
        ),
    ],
)
def test_recording_tells_what_it_came_to(
    report: RecordingReport, told: str, event: dict[str, Any]
) -> None:
    """What was written, recorded, played and not recorded is told in one line and one event."""
    assert recording_text(report) == told
    assert recording_said(report)[0] == {"event": "concluded", **event}


def test_recording_that_was_not_published_tells_why() -> None:
    """The reason comes first, then both ways out; the log has it beside the counts."""
    report = RecordingReport("c.json", None, 2, None, 0, "all 2 requests got 404")
    error = UnpublishedError("c.json", "all 2 requests got 404")

    assert recording_text(report) == str(error)
    assert str(error).splitlines() == [
        "c.json was not written: all 2 requests got 404",
        (
            "what was recorded is in the journal beside it; publish it with: "
            "mrtr-cassette recover c.json (or delete the journal)"
        ),
    ]
    assert (error.reason, error.exit_code) == ("all 2 requests got 404", 4)
    assert recording_said(report)[0] == {
        "event": "concluded",
        "interactions": 0,
        "exchanges": 2,
        "unpublished": "all 2 requests got 404",
    }


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
    event, line = turn_said(TURN)
    assert event["event"] == "answered"
    assert event["answered_by"] == {"confirm": "rule 1"}
    assert event["request_state_sha256"] == "sha256:0"
    assert (
        line == "turn 1: confirm (form) 'Deploy?', answered by rule 1; where (roots), not answered"
    )
    assert "sesame" not in json.dumps(event) + line
    empty = CallTurn(2, "result", {}, {}, {}, "sha256:1")
    assert turn_said(empty)[1] == "turn 2: asked for a retry only"
    assert turn_said(empty)[0]["event"] == "answered"
    assert turn_said(CallTurn(2, "push", REQUESTS, {}, {}, None))[0]["event"] == "unanswered"
    assert call_ended_event(called(result={}))["event"] == "ended"
    assert call_ended_event(called(problem="x"))["event"] == "failed"


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


def test_junit_has_a_case_for_each_interaction_and_each_miss() -> None:
    """Misses are failures with the whole text, what was not played is skipped."""
    root = ET.fromstring(junit(report_of_replay(replayed(answers=NO))))
    cases = list(root.iter("testcase"))

    assert [case.get("name") for case in cases][:3] == [
        '#1 tools/call "add"',
        '#2 tools/call "deploy"',
        '#3 tools/call "drop"',
    ]
    assert [[child.tag for child in case] for case in cases] == [
        [],
        ["skipped"],
        ["skipped"],
        ["failure"],
    ]
    failure = cases[-1][0]
    assert failure.get("type") == "answers-differ"
    assert (failure.text or "").startswith("miss: answers-differ")
    for suite in (root, root[0]):
        assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["4", "1", "2"]


def test_harmless_requests_are_the_output_of_the_suite() -> None:
    """They are neither cases nor failures."""
    player = replayed()
    before = ET.fromstring(junit(report_of_replay(player)))
    assert before.find(".//system-out") is None
    assert before.find(".//failure") is None
    assert len(before.findall(".//skipped")) == 1
    player.request_received(post(rpc("ping")))
    root = ET.fromstring(junit(report_of_replay(player)))

    assert (root.findtext("testsuite/system-out") or "").strip().endswith("any server: ping")
    assert root.get("tests") == "3"


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
