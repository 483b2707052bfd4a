"""Facts about misses, events, and what replays, recordings and calls came to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Step,
    as_request,
    cassette_of,
    conversation,
    get,
    hit,
    loaded,
    missed,
    notification,
    play,
    player_of,
    post,
    retry,
    rpc,
    sent_now,
    state_in,
    tool,
    with_id,
)
from goldens import DATA, read_case
from harmless import HOSTILE, assert_harmless
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import NO, YES, asks, form, text
from pushing import (
    SESSION,
    PushingSession,
    asked_once,
    elicit,
    in_sealed_session,
    posted,
)
from verifying import reported_miss

from mrtr_cassette.core.answers.forms import AskedTurn, CallTurn, UnansweredQuestion
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.drive.appending import unrecorded_miss
from mrtr_cassette.core.protocol import jsonrpc
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer, UnreadBody
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.ci import miss_annotation, replay_junit
from mrtr_cassette.core.report.details import RedactedCall, Redaction, details_of
from mrtr_cassette.core.report.events import (
    call_ended_event,
    caught_up_log_line,
    failure_log_line,
    push_log_line,
    recording_log_line,
    replay_log_line,
    request_event,
    response_log_line,
    turn_log_line,
    unreachable_log_line,
    unread_log_line,
)
from mrtr_cassette.core.report.replay_events import (
    Event,
    LogLine,
    asking_events,
    harmless_event,
    missed_event,
    played_events,
)
from mrtr_cassette.core.report.runs import (
    CallResult,
    InteractionOutcome,
    MissesError,
    RecordingReport,
    ReplayReport,
    UnplayedError,
    UnpublishedError,
    call_data,
    error_body,
    problem_lines,
    recording_text,
    report_of_cassette,
    report_of_miss,
    report_of_replay,
    summary_data,
    summary_text,
    upstream_error_body,
)
from mrtr_cassette.core.wire.http import NO_STATUS, End, Request, line_request
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.shell.files.reports import saved_report
from mrtr_cassette.terms import LIBRARY_TERMS, SHELL_TERMS, SUITE_TERMS, Terms

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def test_long_summaries_are_cut() -> None:
    """At most ten interactions and ten harmless requests are listed, and the rest is counted."""
    player = player_of(*[(CALL, text("x"))] * 12)
    for number in range(13):
        player.request_received(get(f"/.well-known/{number}"))

    lines = summary_text(report_of_replay(player)).splitlines()

    assert (len(lines), lines[11], lines[-1]) == (23, "  and 2 more", "  and 3 more")


def test_what_was_not_played_is_counted_after_a_miss() -> None:
    """The list would take the place of the miss at the end of the output."""
    player = player_of(*[(CALL, text("x"))] * 12)
    for request in (tool("deploy", env="dev"), tool("x"), tool("x")):
        missed(player, request)

    assert summary_text(report_of_replay(player)).splitlines() == [
        "played 0 of 12 interactions, 3 misses (arguments-differ 1, unknown-name 2)",
        "  12 interactions not fully played; --report FILE lists them",
    ]


def test_reads_after_other_writes_are_told() -> None:
    """How many, which, how often, and by what they are held to the writes before them."""
    player = player_of(
        (tool("set"), text("x")), (tool("get"), text("1")), reads=["get"]
    )
    for _ in range(2):
        play(player, tool("get"))

    report = report_of_replay(player)

    assert summary_text(report, SHELL_TERMS).splitlines()[-2:] == [
        '  played after other writes than recorded 2 times: #2 tools/call "get"',
        "  reads are held to the writes before them with --history strict",
    ]

    assert replay_log_line(report)[0]["after_other_writes"] == [2]
    assert saved_report(orjson.dumps(summary_data(report))) == report


# Reports that are read back from files


def saved() -> dict[str, Any]:
    """Return a report with a miss that has a nearest call, one that has none, and harmless traffic."""
    player = player_of(
        (tool("deploy", env="prod"), text("x")), (tool("ask"), asks("a"))
    )
    play(player, tool("deploy", env="prod"))
    missed(player, tool("deploy", env="test"))
    missed(player, rpc("odd/method"))
    player.request_received(post(rpc("ping")))
    data: dict[str, Any] = json.loads(
        orjson.dumps(summary_data(report_of_replay(player)))
    )

    return data


def test_report_is_read_as_it_was() -> None:
    """What a report says is the same after it went through a file."""
    report = saved_report(orjson.dumps(saved()))

    assert summary_data(report) == saved()
    assert [miss.nearest is None for miss in report.misses] == [False, True]


def test_report_keeps_where_clients_were_sent() -> None:
    """Its summary is the same after it went through a file."""
    report = replace(
        report_of_replay(player_of((CALL, text("x")))), elsewhere=("https://a.example",)
    )

    assert saved_report(orjson.dumps(summary_data(report))) == report


def test_report_of_a_call_with_a_secret_is_its_cassettes() -> None:
    """In a URI a placeholder is escaped, and the report names its rule only."""
    place = {"uri": "https://a.example/?token=%3Cgithub:1%3E"}
    player = player_of((rpc("resources/read", place), text("x")))
    report = report_of_replay(player)

    assert "<github>" in report.interactions[0].call
    assert report_of_cassette(report, player.recording) == report


def replay_of_several() -> Player:
    """Return a replay of two files as one: with a play, a stray read and a miss in the second."""
    first = cassette_of((tool("one"), text("1")), (tool("two"), text("2")))
    second = cassette_of((tool("set"), text("set")), (tool("get"), text("3")))
    cassettes = [loaded(first, "a.json"), loaded(second, "b.json")]
    player = Player(combine_cassettes(cassettes), reads=["get"])
    play(player, tool("get"))
    missed(player, tool("get", key="x"))

    return player


def test_interactions_of_several_files_have_their_own_numbers() -> None:
    """A person finds them under these with `inspect`; programs get the file beside each number."""
    player = replay_of_several()
    report = report_of_replay(player)
    (miss,) = report.misses
    event, summary = replay_log_line(report)

    assert '\n  nearest:  #2 (tools/call "get") in b.json\n' in miss.text
    assert 'after other writes than recorded: #2 tools/call "get" in b.json' in summary
    assert event["unplayed"] == [[1, "a.json"], [2, "a.json"], [1, "b.json"]]
    assert missed_event(player.tally.misses[0])["nearest"] == [2, 0]
    assert missed_event(player.tally.misses[0])["cassette"] == "b.json"
    assert miss_annotation(miss).startswith("::error file=b.json,")
    assert b'name="#2 tools/call &quot;get&quot; in b.json"' in replay_junit(report)
    assert saved_report(orjson.dumps(summary_data(report))) == report


def test_report_of_several_files_tells_of_each() -> None:
    """A miss is shown beside the nearest recording in its own file, and without one elsewhere."""
    report = report_of_replay(replay_of_several())
    first = cassette_of((tool("one"), text("1")), (tool("two"), text("2")))
    of_first = report_of_cassette(report, loaded(first, "elsewhere/a.json"))
    of_second = report.report_of_file("b.json")

    assert of_first is not None
    assert [call.number for call in of_first.interactions] == [1, 2]
    assert (of_first.misses[0].nearest, of_first.after_other_writes) == (None, ())
    assert of_second.misses == report.misses
    assert of_second.after_other_writes == report.after_other_writes
    assert report_of_cassette(report, loaded(cassette_of(), "b.json")) is None


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<testsuite/>", "."),
        (b"[]", "list"),
        (b'{"cassette":"c.json"}', "interactions"),
    ],
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

REQUESTS = {
    "confirm": InputRequest("form", "Deploy?"),
    "where": InputRequest("roots", ""),
}
SECRET = {"action": "accept", "content": {"pin": "sesame"}}
TURN = CallTurn(
    1, "result", REQUESTS, {"confirm": SECRET}, {"confirm": "rule 1"}, "sha256:0"
)
ASKED = UnansweredQuestion(
    AskedTurn("tools/call", "deploy", {}, 2, REQUESTS), "where", "nothing answers it"
)


def called(**facts: Any) -> CallResult:
    """Return what a call came to."""
    return CallResult("tools/call", "deploy", (TURN,), **facts)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            "a\nb",
        ),
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
    event, line = replay_log_line(report)
    assert line == summary_text(report)
    forms = (
        json_of(event),
        json_of(summary_data(report), indent=1),
        replay_junit(report).decode(),
    )

    return "\n".join([line, *forms])


def json_of(value: Any, indent: int | None = None) -> str:
    """Return what is ready for JSON."""
    assert orjson.loads(orjson.dumps(value)) == value
    return json.dumps(value, indent=indent)


def harmless() -> ReplayReport:
    """Return a replay of which all was played, and that got what any server answers."""
    player = player_of((CALL, text("x")))
    play(player, CALL)
    for request in (
        post(rpc("ping")),
        post(rpc("ping", number=2)),
        get("/.well-known/x"),
    ):
        player.request_received(request)

    return report_of_replay(player)


DROPS = [RedactedCall(number, 'tools/call "drop"') for number in range(1, 13)]
REDACTED = (
    Redaction("password", 2, (DROPS[0], RedactedCall(2, "ping"), DROPS[2])),
    Redaction("custom-1", 30, (*DROPS,)),
)


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
        RecordingReport("c.json", 1, 2, None, 0, unread=1),
        RecordingReport("c.json", 1, 2, None, 0, incomplete=1),
        RecordingReport("c.json", 12, 12, None, 0, redacted=REDACTED),
    ):
        event, line = recording_log_line(report)
        assert line == recording_text(report)
        lines += [line, json_of(event)]

    return "\n".join(lines)


def calls() -> str:
    """Return what calls came to: problems, event with the exit code, and data."""
    lines = []
    for result in (
        called(result={"content": []}),
        called(result={"isError": True}),
        called(unanswered=ASKED, unused=("env",)),
        called(problem="gone"),
        called(error={"code": -32602, "message": "no such tool"}),
    ):
        lines += [
            *problem_lines(result, is_miss_told=False),
            json_of(call_ended_event(result)),
        ]
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
        event, line = turn_log_line(turn)
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


@settings(max_examples=10)
@given(st.text(st.characters()))
def test_junit_is_well_formed_whatever_the_names(words: str) -> None:
    """Control characters, lone surrogates and markup are spelled so that XML can hold them."""
    report = report_of_replay(replayed(answers=NO))
    (miss,) = report.misses
    first, *others = report.interactions
    hostile = ReplayReport(
        words,
        (InteractionOutcome(1, words, first.outcome, 1, words), *others),
        (replace(miss, request=words, detail=words, text=words),),
    )

    root = ET.fromstring(replay_junit(hostile))

    assert len(list(root.iter("testcase"))) == 4

    assert_harmless(replay_junit(hostile).decode().replace("\t", ""))


def test_what_a_run_came_to_is_an_error_of_the_library() -> None:
    """It has the misses, the calls that were not played, or why nothing was published."""
    miss = reported_miss(miss_of(ONE, tool("b")), Cassette("c.json"))
    (call,) = details_of(loaded(cassette_of((tool("a"), text("x"))))).interactions
    missed_ = MissesError("c.json", [miss, miss])
    unplayed = UnplayedError("c.json", [call])
    unpublished = UnpublishedError("c.json", "all 2 requests got 404")

    head = "2 requests had no recorded answer on c.json"

    assert str(missed_) == f"{head}\n\n{miss.text}\n\n{miss.text}"
    assert str(unplayed) == 'not all that is on c.json was played:\n  #1 tools/call "a"'
    assert (missed_.misses, unplayed.unplayed) == ((miss, miss), (call,))
    assert (missed_.exit_code, unplayed.exit_code) == (1, 1)
    assert unpublished.exit_code == 4


def test_recovery_is_told_as_a_command() -> None:
    """The path is one word of the shell, whatever is in it."""
    assert "recover 'my c.json' (or delete" in str(UnpublishedError("my c.json", "404"))


# Misses


def test_every_reason_has_a_way_out() -> None:
    """Each reason comes with what the user can do about it."""
    call = missed(player_of((CALL, text("x"))), tool("y")).call
    for reason in Reason:
        assert all(reported_miss(Miss(call, reason, "detail"), Cassette("f")).fixes), (
            reason
        )


def test_way_out_is_the_whole_command_of_the_front() -> None:
    """With file, server and options of the cassette, quoted; what a client sent is no slot."""
    miss = missed(player_of((CALL, text("x"))), tool("deploy", env="<<ignore_values>>"))
    piped = replace(miss, call=read_call(line_request(miss.call.request.body)))
    over_http = Cassette("my c.json", "http://ada:pw@h:1/m?a&b", "verbatim")
    on_pipes = Cassette(
        "c.json", "node ~/s.mjs 'a b' ;", seals_answers=True, transport="stdio"
    )
    server = "node '~/my s.mjs' '{port}'"
    started = Cassette("c.json", "http://localhost/api", command=server)
    unknown = (
        Cassette("c.json", "http://localhost/mcp"),
        Cassette("c.json", "http://h/<jwt:1>/mcp"),
    )

    def told(cassette: Cassette, terms: Terms, miss: Miss = miss) -> str:
        report = reported_miss(miss, cassette, terms=terms)

        assert (
            '/arguments/env: recorded "prod", received "<<ignore_values>>"'
            in report.text
        )

        first, second = report.fixes

        assert first == "send the recorded arguments"

        return second.removeprefix("record this call too with ")

    record = "mrtr-cassette record"

    assert told(over_http, SHELL_TERMS) == (
        f"{record} --append --request-state verbatim --output 'my c.json' "
        "--upstream 'http://h:1/m?a&b'"
    )

    assert told(on_pipes, SHELL_TERMS, piped) == (
        f"{record} --stdio --append --seal-answers --output c.json -- node ~/s.mjs 'a b' ';'"
    )

    upstream = shlex.quote(server)

    assert told(started, SHELL_TERMS) == (
        f"{record} --append --output c.json --upstream {upstream}"
    )
    assert told(started, LIBRARY_TERMS) == (
        "record(['node', '~/my s.mjs', '{port}'], 'c.json', existing=\"append\")"
    )

    hidden = replace(started, command="node --key <jwt:1> s.mjs")

    assert told(hidden, SHELL_TERMS).endswith("--upstream 'SERVER ARGS'")

    for cassette in unknown:
        assert (
            told(cassette, SHELL_TERMS)
            == f"{record} --append --output c.json --upstream URL"
        )

    assert told(over_http, LIBRARY_TERMS) == (
        "record('http://h:1/m?a&b', 'my c.json', existing=\"append\", request_state=\"verbatim\")"
    )
    assert told(on_pipes, SUITE_TERMS, piped) == "pytest --mrtr-mode=append"

    again = "record all of this cassette again over"

    assert told(over_http, SHELL_TERMS, piped) == (
        f"{again} pipes with {record} --stdio --force --request-state verbatim "
        "--output 'my c.json' -- SERVER ARGS"
    )

    assert told(started, SHELL_TERMS, piped).endswith("--output c.json -- SERVER ARGS")

    server = shlex.quote("node ~/s.mjs 'a b' ;")

    assert told(on_pipes, SHELL_TERMS) == (
        f"{again} HTTP with {record} --force --seal-answers --output c.json --upstream {server}"
    )


@pytest.mark.parametrize(
    ("recorded", "received", "is_offered"),
    [
        ("prod", "test", False),
        (1, 2, False),
        ("2026-11-28T12:00:00Z", "2026-11-29T09:30:00Z", True),
        (1764331200, 1764417600.5, True),
        (
            "8d2f6a1e-3b4c-4d5e-8f90-a1b2c3d4e5f6",
            "0d2f6a1e3b4c4d5e8f90a1b2c3d4e5f6",
            True,
        ),
        ("2026-11-28T12:00:00Z", "never", False),
    ],
)
def test_only_what_differs_in_every_run_may_be_left_out(
    recorded: Any, received: Any, *, is_offered: bool
) -> None:
    """Times and random ids are, and no value that a client chose: it would get another's answer."""
    player = player_of((tool("note", at=recorded), text("x")))
    fixes = report_of_miss(
        missed(player, tool("note", at=received)), player, SHELL_TERMS
    ).fixes
    offered = "leave values that change in every run out of matching with --ignore /arguments/at"

    assert (offered in fixes) == is_offered
    assert ("--ignore" in str(fixes)) == is_offered


def test_sampled_text_may_be_left_out() -> None:
    """No model says the same thing twice."""
    asked = {"say": {"method": "sampling/createMessage", "params": {}}}
    ask = {"resultType": "input_required", "inputRequests": asked}
    said = [{"say": {"content": {"type": "text", "text": word}}} for word in ("a", "b")]
    player = player_of((CALL, ask), (retry(CALL, said[0]), text("x")))
    play(player, CALL)
    miss = missed(player, retry(CALL, said[1]))
    last = report_of_miss(miss, player, SHELL_TERMS).fixes[-1]

    assert last.endswith(
        "out of matching with --ignore /inputResponses/say/content/text"
    )


@pytest.mark.parametrize(
    ("repeat", "called", "offered"),
    [
        (Repeat.AUTO, tool("get it"), "say so with --reads 'get it'"),
        (Repeat.NEVER, tool("get it"), "allow it again with --repeat always"),
        (Repeat.AUTO, rpc("odd/method"), "say so with --reads odd/method"),
    ],
)
def test_what_was_played_may_be_said_to_read(
    repeat: Repeat, called: Any, offered: str
) -> None:
    """The way out names it; where that doesn't help, the call can be allowed again."""
    player = player_of((called, text("x")), repeat=repeat)
    play(player, called)
    report = report_of_miss(missed(player, called), player, SHELL_TERMS)

    assert report.reason == "already-played"
    assert report.fixes[-1].endswith(offered)
    assert len(report.fixes) == 3

    again = player_of((called, text("x")), **option_in(report.fixes[-1]))

    assert play(again, called) == play(again, called)


def option_in(fix: str) -> dict[str, Any]:
    """Return what the option at the end of a way out means to a player."""
    flag, value = shlex.split(fix.partition(" --")[2])
    values = {"reads": [value], "repeat": value, "history": value}
    kinds: dict[str, Any] = {"reads": list, "repeat": Repeat, "history": History}

    return {flag: kinds[flag](values[flag])}


def test_other_history_names_the_tool_that_may_only_read() -> None:
    """The one that is called where it stands among the writes, else the first that differs."""
    writes = [(tool("set", to=1), text("done")), (tool("peek"), text("?"))]
    recording = [(tool("get"), text("0")), *writes, (tool("get"), text("1"))]
    by_read = player_of(*recording)
    play(by_read, tool("set", to=1))
    looked = player_of(*recording, reads=["get"])
    for called in (tool("get"), tool("peek")):
        play(looked, called)

    early = player_of(*recording, reads=["get"])
    play(early, tool("set", to=1))
    for player, name in ((by_read, "get"), (looked, "peek"), (early, "peek")):
        report = report_of_miss(missed(player, tool("get")), player, SHELL_TERMS)

        assert report.reason == "other-history"
        assert f"say so with --reads {name}" in report.text

        by_reads = option_in(report.fixes[1])
        by_order = option_in(report.fixes[-1])

        assert by_reads == {"reads": [name]}
        assert by_order == {"history": History.ORDER}

        for options in ({"reads": ["get", "peek"]}, by_order):
            again = player_of(*recording, **options)
            for called in (tool("set", to=1), tool("get")):
                play(again, called)


@pytest.mark.parametrize(("after", "ends"), [("", False), ("z" * 300, True)])
def test_long_texts_are_shown_where_they_differ(after: str, *, ends: bool) -> None:
    """Two long values that begin alike are cut around their difference, and are whole for programs."""
    before = "x" * 10_000
    recorded = f"{before}old{after}"
    received = f"{before}new{after}"
    player = player_of((tool("deploy", text=recorded), text("x")))
    miss = missed(player, tool("deploy", text=received))

    report = reported_miss(miss, Cassette("f"))

    (difference,) = report.facts["differences"]

    assert list(difference.values())[1:] == [f'"{recorded}"', f'"{received}"']

    (line,) = [line for line in report.text.splitlines() if "/arguments/text: " in line]
    shown = f"recorded … {'x' * 40}old"

    assert shown in line
    assert line.partition(", received ")[2].startswith(f"… {'x' * 40}new")
    assert ("more characters" in line) == ends


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (tool("x", b=1, a="é"), 'tools/call "x" with {"a":"\\u00e9","b":1}'),
        (tool("x"), 'tools/call "x"'),
        (retry(tool("x"), {}), 'tools/call "x", answering nothing'),
        (retry(tool("x"), {"b": 1, "a": 1}), 'tools/call "x", answering a, b'),
        (
            retry(tool("x"), state="S"),
            'tools/call "x", answering nothing, echoing a request state',
        ),
        (
            tool("x", long="v" * 300),
            f'tools/call "x" with {{"long":"{"v" * 191}… (111 more characters)',
        ),
        (b'{"arguments":{"a":1}}', "POST /mcp"),
        (rpc("x/y", [1]), "x/y"),
        (get("/x?y"), "GET /x?y"),
    ],
)
def test_request_is_named_as_a_person_would(request_: Any, named: str) -> None:
    """A request is named with its arguments and the keys of its answers."""
    miss = missed(player_of((CALL, text("x"))), request_)

    assert reported_miss(miss, Cassette("f")).request == named


def test_miss_steers_neither_terminal_nor_runner() -> None:
    """Names, arguments, answers and questions may be anything, and the path of the file too."""
    reports = []
    for recorded, received in (
        (tool("x"), tool(HOSTILE)),
        (tool(HOSTILE), tool("x")),
        (tool(HOSTILE, a=HOSTILE), tool(HOSTILE, a=1, **{HOSTILE: HOSTILE})),
        (get("/" + HOSTILE), get("/x" + HOSTILE)),
        (rpc(HOSTILE), rpc("x" + HOSTILE)),
    ):
        miss = missed(player_of((recorded, Answer((b"x",)))), received)
        reports.append(
            reported_miss(miss, Cassette(HOSTILE), lambda text: text + HOSTILE)
        )

    ask = {"inputRequests": {HOSTILE: form(HOSTILE)}, "resultType": "input_required"}
    player = player_of((CALL, ask), (retry(CALL, {HOSTILE: YES}), text("x")))
    play(player, CALL)
    miss = missed(player, retry(CALL, {HOSTILE: NO}))
    reports.append(reported_miss(miss, Cassette("f")))
    for report in reports:
        assert_harmless(report.text)

        assert miss_annotation(report).isprintable()

        for shown in (
            report.request,
            report.detail,
            *report.questions,
            *map(str, report.fixes),
        ):
            assert shown.isprintable()

        for difference in report.differences:
            assert all((value or "").isprintable() for value in difference)


def test_annotation_is_one_line_that_names_the_file() -> None:
    """Workflow commands end with the line, so what ends one is escaped, and so are separators."""
    miss = missed(player_of((CALL, text("x"))), rpc("tools/list"))
    report = replace(reported_miss(miss, Cassette("a,b:c%.json")), text="50%\r\n::x")

    assert miss_annotation(report) == (
        "::error file=a%2Cb%3Ac%25.json,title=miss%3A unknown-method::50%25%0D%0A::x"
    )


# Texts and facts

QUESTIONS = {
    "resultType": "input_required",
    "inputRequests": {
        "a": form("Sure?"),
        "b": {"method": "roots/list"},
        "c": form("Why?"),
    },
}
ASKING: tuple[Step, ...] = (
    (CALL, QUESTIONS),
    (retry(CALL, {"a": YES, "b": 1, "c": 1}), text("done")),
)


def miss_of(played: Cassette | Step, *requests: bytes | Request) -> Miss:
    """Return the miss that the last request is on a cassette, or on that of one call."""
    player = Player(played) if isinstance(played, Cassette) else player_of(played)
    for request in requests[:-1]:
        play(player, request)

    return missed(player, requests[-1])


def not_recorded() -> Miss:
    """Return a retry whose ask the live server no longer makes."""
    player = player_of(
        (CALL, asks("a", state="S")), (retry(CALL, {"a": YES}, state="S"), text("x"))
    )
    ((asking, _),) = player.entries.by_interaction
    call = read_call(post(with_id(retry(CALL, {"a": 1}, state="S"), "mine")))
    differences = (
        Difference("/inputRequests/a/params/message", '"a?"', '"b?"'),
        Difference("/requestState", '"…"', None),
    )

    return unrecorded_miss(
        call, "the live server asks something else in turn 1", asking, differences
    )


PUSHING = asked_once(elicit(), YES, CALL, text("done"))
IN_SESSION = post(CALL, ("Mcp-Session-Id", "s"))
ONE = (CALL, text("x"))
MISSES: dict[str, Miss] = {
    "nothing near": miss_of(ONE, rpc("tools/list")),
    "wrong answers": miss_of(
        loaded(cassette_of(*ASKING)), CALL, retry(CALL, {"a": NO, "b": 2, "c": 1})
    ),
    "a wrong answer to a push": miss_of(
        PUSHING, in_sealed_session(posted(elicit(), NO))
    ),
    "played up": miss_of(ONE, CALL, CALL),
    "played up in a session": miss_of((IN_SESSION, text("x")), IN_SESSION, IN_SESSION),
    "another body": miss_of((b"one", b"x"), b"two"),
    "a value that is absent": miss_of(ONE, tool("deploy", x=1)),
    "a long value": miss_of(ONE, tool("deploy", env="v" * 300)),
    "not recorded": not_recorded(),
    "not recorded, without an ask": unrecorded_miss(
        read_call(post(CALL)), "the live server opened no session: HTTP 500"
    ),
}


@pytest.mark.parametrize("name", MISSES)
def test_miss_has_text_and_facts(name: str, *, updates_goldens: bool) -> None:
    """Questions that were answered otherwise are repeated, and each reason has its ways out."""
    report = reported_miss(MISSES[name], Cassette("talk.json"))
    facts = json.dumps(report.facts, indent=1)
    case = read_case(DATA / "reports" / "misses.case")
    case.expect(name, f"{report.text}\n{facts}\n", updates=updates_goldens)


# Errors that clients get


def test_client_gets_text_and_facts_under_its_own_id() -> None:
    """The text is the message and the facts are the data of a JSON-RPC error."""
    failure = not_recorded()
    report = reported_miss(failure, Cassette("talk.json"))

    for answered in (failure.call, b'"mine"'):
        assert json.loads(error_body(report, answered)) == {
            "jsonrpc": "2.0",
            "id": "mine",
            "error": {"code": -32012, "message": report.text, "data": report.facts},
        }


@pytest.mark.parametrize("identity", [b"7", b'"a"', b"1.0e3"])
def test_error_has_the_id_as_the_client_spelled_it(identity: bytes) -> None:
    """The id of the request is copied, not written anew; other traffic has none."""
    request = post(b'{"jsonrpc":"2.0","id": %s ,"method":"x"}' % identity)
    error = b'"error":{"code":-32011,"message":"refused"}}'

    assert upstream_error_body(request, "refused") == (
        b'{"jsonrpc":"2.0","id":%s,%s' % (identity, error)
    )

    for without_id in (post(notification("n")), post(b"junk"), get("/")):
        body = upstream_error_body(without_id, "refused")

        assert body == b'{"jsonrpc":"2.0","id":null,' + error


# Events

BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)
Told = Iterator[Event | LogLine]


def observed(request: Any, response: Any) -> Any:
    """Return what is seen of an exchange that has ended."""
    talk = conversation()
    number = talk.request(request)
    talk.response(number, response)

    return talk.observation(number)


def ended(observation: Any, at_ms: float) -> LogLine:
    """Say the end of an exchange as it is recorded."""
    return response_log_line(
        observation, observation.seal(End.COMPLETE, at_ms), End.COMPLETE, at_ms
    )


def exchanges() -> Told:
    """Tell the beginning and the end of exchanges: only lines for people have what was said."""
    for request, response in (
        (CALL, text("x")),
        (CALL, asks("a", state=STATE)),
        (CALL, asks(state=STATE)),
        (retry(CALL, {"a": 2}, state=STATE), asks("b")),
        (get("/x"), Answer((), status=0, end=End.OPEN)),
    ):
        observation = observed(request, response)
        yield request_event(observation)
        yield ended(observation, observation.started_ms + 3.04)


def responses_without_an_end() -> Told:
    """Tell who did not get a whole response; a stream that listens ends when its client leaves."""
    for request, end in (
        (CALL, End.BROKEN),
        (CALL, End.OPEN),
        (post(rpc("subscriptions/listen")), End.OPEN),
        (line_request(CALL), End.BROKEN),
        (line_request(CALL), End.OPEN),
    ):
        observation = conversation().recorder.request_received(as_request(request), 0)
        status = NO_STATUS if observation.call.request.is_line else 200
        observation.response_started(status, STREAM_HEADERS)
        exchange = observation.seal(end, 0)
        yield response_log_line(observation, exchange, end, observation.started_ms + 1)


def pushes_of_a_recording() -> Told:
    """Tell a pushed request as an ask of the call that is pending, and the response as an answer."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.say(stream, elicit(words=STATE))
    listening = session.talk.observation(stream)
    (push,) = listening.take_pushes()
    answering = session.talk.observation(session.post(posted(elicit(), YES)))
    yield push_log_line(listening, push)
    yield request_event(answering)
    yield ended(answering, answering.started_ms + 1)


def replay_events() -> Told:
    """Tell the place of a hit, and reason and pointers of a miss."""
    player = player_of(*BRANCHED)
    harmless = player.request_received(post(rpc("ping")))
    assert isinstance(harmless, HarmlessReply)
    asking = hit(player, CALL)
    yield from played_events(asking)
    answer = retry(CALL, {"a": NO}, state=state_in(sent_now(asking)))
    yield from played_events(hit(player, answer))
    yield missed_event(missed(player, tool("deploy", env="secret")))
    yield missed_event(missed(player, tool("x")))
    yield harmless_event(harmless)


def pushes_of_a_replay() -> Told:
    """Tell what is pushed, and what is posted in return, like other asks and answers."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    ((asking,),) = asking_events(cassette.interactions).values()
    _, event = asking
    yield event
    player = Player(cassette)
    hit(player, in_sealed_session(post(CALL, SESSION)))
    yield from played_events(hit(player, in_sealed_session(posted(elicit(), YES))))


def unread_bodies() -> Told:
    """Tell the exchange, the reason and the way out; a terminal obeys nothing."""
    observation = Recorder(ExchangeSealer(seals_states=True)).request_received(
        post(CALL), 0
    )
    for side, reason in (
        ("response", "its content coding \x1b[1m can't be decoded here"),
        ("request", "it is no text"),
    ):
        yield unread_log_line(
            observation, UnreadBody(side, reason), {"no_coding": "IDENTITY"}
        )


def other_events() -> Told:
    """Tell what goes on in a run."""
    asker, _ = player_of(*BRANCHED).entries.by_interaction[0]
    yield unreachable_log_line("POST /mcp", "refused")
    yield failure_log_line("disk full")
    yield caught_up_log_line(asker)


TELLERS: tuple[Callable[[], Told], ...] = (
    exchanges,
    responses_without_an_end,
    pushes_of_a_recording,
    replay_events,
    pushes_of_a_replay,
    unread_bodies,
    other_events,
)


@pytest.mark.parametrize("teller", TELLERS)
def test_event_and_its_line(
    teller: Callable[[], Told], *, updates_goldens: bool
) -> None:
    """Programs get facts, and people the line below them."""
    lines = []
    for told in teller():
        event, *line = told if isinstance(told, tuple) else (told,)
        lines += [orjson.dumps(event).decode(), *line]

    case = read_case(DATA / "reports" / "events.case")
    case.expect(teller.__name__, "\n".join([*lines, ""]), updates=updates_goldens)


def line_of(
    request: Any, response: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, int]:
    """Return the line of an exchange, and how many texts were parsed for it."""
    observation = observed(request, response)
    exchange = observation.seal(End.COMPLETE, 1.0)
    parsed = []
    parse = jsonrpc.parse

    def counting(raw: bytes) -> Any:
        parsed.append(raw)
        return parse(raw)

    monkeypatch.setattr(jsonrpc, "parse", counting)
    _, line = response_log_line(observation, exchange, End.COMPLETE, 1.0)
    return line, len(parsed)


def test_line_reads_nothing_again_of_which_only_the_state_was_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was read while it passed is what is told."""
    request = retry(tool("told"), {"a": "first"}, state=STATE)
    line, parsed_count = line_of(request, asks("b", state=f"{STATE}-2"), monkeypatch)

    assert "a: first -> HTTP 200, asks: b?" in line
    assert parsed_count == 0


@pytest.mark.parametrize("repeats", [STATE, f"a {STATE} b"])
def test_line_of_what_repeats_a_state_is_told_as_it_was_sealed(
    repeats: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an answer, and in a question: then more than the state's own place was sealed."""
    request = retry(tool("repeated"), {"a": repeats}, state=STATE)
    response = asks("b", state=STATE)
    response["inputRequests"]["b"]["params"]["message"] = repeats
    line, _ = line_of(request, response, monkeypatch)

    assert STATE not in line
    assert line.count("sha256:") == 2


@pytest.mark.parametrize("name", [rb"\ud800", rb"a\u0000b", rb"\u001b[31m"])
def test_lines_for_programs_are_json_whatever_was_asked(name: bytes) -> None:
    """Every event can be written as JSON, and the text of a miss as UTF-8."""
    request = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % name
    )
    observation = observed(request, text("x"))
    player = player_of((request, text("x")))
    decision = hit(player, request)
    miss = missed(player, request)

    for event in (
        request_event(observation),
        ended(observation, 1.0)[0],
        *played_events(decision),
        missed_event(miss),
    ):
        assert orjson.loads(orjson.dumps(event)) == event

    assert reported_miss(miss, Cassette("f")).text.encode()
