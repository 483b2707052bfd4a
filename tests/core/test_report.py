from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from builders import (
    NO,
    STREAM_HEADERS,
    YES,
    Answer,
    Conversation,
    Step,
    answer,
    array_asks,
    asks,
    cassette_of,
    conversation,
    form,
    get,
    missed,
    notification,
    play,
    player_of,
    post,
    progress,
    refusal,
    retry,
    rpc,
    state_in,
    stream,
    text,
    tool,
)

from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.report.report import (
    UPSTREAM_CODE,
    inspection,
    inspection_text,
    miss_data,
    miss_text,
    missed_event,
    observation_line,
    played_event,
    request_event,
    response_event,
    summary,
    upstream_error_body,
)
from mrtr_cassette.core.secrets.states import sha256_of
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


# Misses


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_way_out(reason: Reason) -> None:
    """Each reason comes with what the user can do about it."""
    miss = Miss(missed(player_of((CALL, text("x"))), tool("y")).call, reason, "detail")

    assert len(miss_data(miss, "f")["fix"]) > 20
    assert miss_text(miss, "f").splitlines()[-1].startswith("  fix:      ")


def test_miss_without_anything_near_names_the_cassette() -> None:
    """Where nothing comes near, the text says which cassette was searched."""
    miss = missed(player_of((CALL, text("x"))), rpc("tools/list"))

    assert miss_text(miss, "talk.json") == (
        "miss: unknown-method: no request like tools/list was recorded\n"
        "  asked:    tools/list\n"
        "  cassette: talk.json\n"
        "  fix:      record this request too, or check the URL that the client uses"
    )
    assert miss_data(miss, "talk.json") == {
        "reason": "unknown-method",
        "detail": "no request like tools/list was recorded",
        "asked": "tools/list",
        "questions": [],
        "cassette": "talk.json",
        "nearest": None,
        "differences": [],
        "fix": "record this request too, or check the URL that the client uses",
    }


def test_difference_at_the_top_is_shown() -> None:
    """A body that differs as a whole is shown as a whole; an absent value reads as nothing."""
    player = player_of((b"one", b"x"), (CALL, text("x")))

    assert '  /: recorded "one", received "two"' in miss_text(missed(player, b"two"), "f")
    assert '  /arguments/env: recorded "prod", received nothing' in miss_text(
        missed(player, tool("deploy", x=1)), "f"
    )


def test_question_of_a_wrong_answer_is_repeated() -> None:
    """A miss about answers says what was asked under each key that differs."""
    asked = {
        "resultType": "input_required",
        "inputRequests": {"a": form("Sure?"), "b": {"method": "roots/list"}, "c": form("Why?")},
    }
    player = player_of((CALL, asked), (retry(CALL, {"a": YES, "b": 1, "c": 1}), text("done")))
    play(player, CALL)

    data = miss_data(missed(player, retry(CALL, {"a": NO, "b": 2, "c": 1})), "f")

    assert data["questions"] == ['a (form) "Sure?"', 'b (roots) ""']
    assert data["nearest"] == {"interaction": 1, "turn": 1, "call": 'tools/call "deploy"'}


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (tool("x", b=1, a="é"), 'tools/call "x" with {"a":"\\u00e9","b":1}'),
        (tool("x"), 'tools/call "x"'),
        (retry(tool("x"), {}), 'tools/call "x", answering nothing'),
        (retry(tool("x"), {"b": 1, "a": 1}), 'tools/call "x", answering a, b'),
        (retry(tool("x"), state="S"), 'tools/call "x", answering nothing, echoing a request state'),
        (
            tool("x", long="v" * 300),
            f'tools/call "x" with {{"long":"{"v" * 191}… (111 more characters)',
        ),
        (b'{"arguments":{"a":1}}', "POST /mcp"),
        (rpc("x/y", [1]), "x/y"),
        (get("/x?y"), "GET /x?y"),
    ],
)
def test_asked_is_what_a_person_would_say(request_: Any, asked: str) -> None:
    """What was asked is named with its arguments and the keys of its answers."""
    assert miss_data(missed(player_of((CALL, text("x"))), request_), "f")["asked"] == asked


# Summaries


def test_summary_of_a_clean_replay_is_one_line() -> None:
    """All played and nothing missed is said in one line."""
    player = player_of((CALL, text("x")))
    play(player, CALL)

    assert summary(player) == "played 1 of 1 interactions, no misses"


def test_summary_lists_what_was_not_played_and_counts_misses() -> None:
    """What was played in part or never is listed, and misses are counted by reason."""
    player = player_of(*BRANCHED, (get("/x"), b"x"))
    play(player, CALL)
    missed(player, CALL)
    assert "1 miss (already-played 1)" in summary(player)
    missed(player, CALL)
    missed(player, tool("x"))

    assert summary(player).splitlines() == [
        "played 0 of 3 interactions, 3 misses (already-played 2, unknown-name 1)",
        '  played in part: #1 tools/call "deploy"',
        '  never played: #2 tools/call "deploy"',
        "  never played: #3 GET /x",
    ]


def test_summary_of_much_unplayed_is_cut() -> None:
    """At most ten interactions are listed, and the rest is counted."""
    lines = summary(player_of(*[(CALL, text("x"))] * 12)).splitlines()

    assert len(lines) == 12
    assert lines[-1] == "  and 2 more"


# Inspections


def inspected(*script: Step, **options: Any) -> dict[str, Any]:
    """Return the inspection of a script's cassette."""
    cassette = cassette_of(*script, **options)
    return inspection(cassette, Player(cassette, "talk.json"))


def test_inspection_is_ready_for_json() -> None:
    """An inspection has everything about a cassette, with a number for each interaction."""
    data = inspected(*BRANCHED)

    assert json.loads(orjson.dumps(data)) == data
    assert {key: data[key] for key in data if key != "interactions"} == {
        "cassette": "talk.json",
        "version": 1,
        "upstream": "http://localhost:8000/mcp",
        "request_state": "sealed",
        "recorded_at": "2026-08-01T00:00:00+00:00",
        "tool": "mrtr-cassette test",
    }
    first, second = data["interactions"]
    assert (first["number"], first["call"], first["arguments"]) == (
        1,
        'tools/call "deploy"',
        '{"env":"prod"}',
    )
    assert (first["branch"], second["branch"]) == (None, {"of": 1, "turn": 1})
    assert first["turns"] == [
        {
            "asked": [{"key": "a", "kind": "form", "message": "a?"}],
            "request_state": True,
            "dialect": "2026-07-28",
            "answered": {"a": '{"action":"decline"}'},
        }
    ]
    assert second["turns"][0]["answered"] == {"a": '{"action":"accept","content":{"ok":true}}'}
    assert (first["bytes"], first["ms"]) == (
        sum(
            len(one)
            for one in (
                CALL,
                retry(CALL, {"a": NO}, state="s" * 31),
                answer(CALL, asks("a", state="s" * 31)),
                answer(retry(CALL), text("left")),
            )
        ),
        6,
    )


def test_branch_of_a_later_turn_is_inspected_whole() -> None:
    """A branch shows all its turns, the shared ones too, in their order."""
    script: tuple[Step, ...] = (
        (CALL, asks("a")),
        (retry(CALL, {"a": 1}), asks("b", state=STATE)),
        (retry(CALL, {"b": 1}, state=STATE), text("x")),
        (retry(CALL, {"b": 2}, state=STATE), asks("c")),
    )

    _, branch = inspected(*script)["interactions"]

    assert [[one["key"] for one in turn["asked"]] for turn in branch["turns"]] == [
        ["a"],
        ["b"],
        ["c"],
    ]
    assert [turn["answered"] for turn in branch["turns"]] == [{"a": "1"}, {"b": "2"}, None]


@pytest.mark.parametrize(
    ("response", "ended"),
    [
        (text("done"), "HTTP 200, result"),
        ({"isError": True}, "HTTP 200, result with isError"),
        (refusal(CALL, -32602, "bad"), 'HTTP 200, error -32602 "bad"'),
        (b'{"jsonrpc":"2.0","id":1,"error":{}}', "HTTP 200, error null null"),
        (b'{"jsonrpc":"2.0","id":1,"error":"x"}', "HTTP 200, result"),
        (b'{"jsonrpc":"2.0","id":1,"result":5}', "HTTP 200, result"),
        (Answer((b"<html>",), (), 404), "HTTP 404"),
        (Answer((), (), 202), "HTTP 202"),
        (stream(answer(CALL, text("done"))), "HTTP 200, result, stream of 1 event"),
        (stream(progress(1), answer(CALL, text("done"))), "HTTP 200, result, stream of 2 events"),
        (
            stream(progress(1), end=End.OPEN),
            "HTTP 200, stream of 1 event, still open when the recording ended",
        ),
        (Answer((b"{",), end=End.BROKEN), "HTTP 200, broken off by the upstream"),
        (Answer((), status=0, end=End.OPEN), "no response"),
        (asks("a"), "abandoned: the last ask has no answer"),
    ],
)
def test_end_of_an_interaction_is_told(response: Any, ended: str) -> None:
    """How an interaction ended is said in a few words."""
    (one,) = inspected((CALL, response))["interactions"]

    assert one["ended"] == ended


def test_other_traffic_is_told_without_arguments() -> None:
    """Traffic that is no JSON-RPC has neither arguments nor a result."""
    one, two = inspected((get("/x"), answer(CALL, text("x"))), (b'{"arguments":1}', b"x"))[
        "interactions"
    ]

    assert (one["call"], one["arguments"], one["ended"]) == ("GET /x", None, "HTTP 200")
    assert (two["call"], two["arguments"]) == ("POST /mcp", None)


def test_inspection_reads_well() -> None:
    """The text has a paragraph for each interaction, with what was asked and answered."""
    other = tool("other")
    script: tuple[Step, ...] = (
        *BRANCHED,
        (other, {"resultType": "input_required", "inputRequests": {"b": {"method": "roots/list"}}}),
        (retry(other, {"b": [1], "c": 2}), text("surplus")),
        (retry(CALL, {"a": YES}, state="unknown"), refusal(CALL)),
        (tool("waits"), asks(state="S")),
        (tool("list"), array_asks("k", state="T")),
        (retry(tool("list"), [{"id": "k", "value": 5}], state="T"), text("x")),
    )
    told = inspection_text(inspected(*script))

    assert told.splitlines()[:3] == [
        "talk.json: 7 interactions, recorded from http://localhost:8000/mcp at 2026-08-01T00:00:00+00:00",
        "format version 1, request states sealed, mrtr-cassette test",
        "",
    ]
    paragraphs = [one.splitlines() for one in told.split("\n\n")[1:]]
    assert [one[0] for one in paragraphs] == [
        '#1 tools/call "deploy" {"env":"prod"}',
        '#2 tools/call "deploy" {"env":"prod"}',
        '#3 tools/call "other"',
        '#4 tools/call "other"',
        '#5 tools/call "deploy" {"env":"prod"}',
        '#6 tools/call "waits"',
        '#7 tools/call "list"',
    ]
    assert paragraphs[0][1:4] == [
        "    turn 1, with request state:",
        "      asked    a (form) 'a?'",
        '      answered a = {"action":"decline"}',
    ]
    assert paragraphs[0][4].startswith("    ended: HTTP 200, result (")
    assert paragraphs[1][1] == "    branch: shares the ask of turn 1 with #1"
    assert paragraphs[2][1:4] == [
        "    turn 1, without request state:",
        "      asked    b (roots)",
        "      not answered",
    ]
    assert "    orphan: continues a request state that no recorded ask issued" in paragraphs[4]
    assert "      asked nothing but to be called again" in paragraphs[5]
    assert paragraphs[6][2] == "      asked    k (string) 'k?'"
    assert paragraphs[6][3].startswith("      answered k = ")


def test_answer_that_was_not_asked_for_is_told() -> None:
    """A recorded answer under a key that nobody asked for is shown as such."""
    script: tuple[Step, ...] = (
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES, "d": 4, "b": 2, "c": 3}, state=STATE), text("done")),
    )

    lines = inspection_text(inspected(*script)).splitlines()

    assert [line for line in lines if "not asked" in line] == [
        "      answered b = 2, which was not asked",
        "      answered c = 3, which was not asked",
        "      answered d = 4, which was not asked",
    ]


def test_one_interaction_is_singular() -> None:
    """One interaction is no plural, and numbers have separators."""
    told = inspection_text(inspected((CALL, text("x" * 5_000))))

    assert told.startswith("talk.json: 1 interaction, recorded from ")
    assert "(5,1" in told


# Logs


def observed(request: Any, response: Any, *, before: tuple[Step, ...] = ()) -> Any:
    """Return what is seen of an exchange that has ended."""
    talk = conversation(*before)
    number = talk.request(request)
    talk.response(number, response)
    return talk.observation(number)


@pytest.mark.parametrize(
    ("request_", "response", "line"),
    [
        (CALL, text("x"), '   1  tools/call "deploy" -> HTTP 200 (3 ms)'),
        (
            CALL,
            asks("a", state=STATE),
            '   1  tools/call "deploy" -> HTTP 200, asks a (form), with request state (3 ms)',
        ),
        (
            CALL,
            asks(state=STATE),
            '   1  tools/call "deploy" -> HTTP 200, asks to be called again, with request state (3 ms)',
        ),
        (
            retry(CALL, {"b": 1, "a": 2}),
            asks("a", "b"),
            '   1  tools/call "deploy", answering a, b -> HTTP 200, asks a (form), b (form) (3 ms)',
        ),
        (get("/x"), Answer((), status=0, end=End.OPEN), "   1  GET /x -> no response (3 ms)"),
    ],
)
def test_exchange_is_one_line_in_the_log(request_: Any, response: Any, line: str) -> None:
    """A recorded exchange is named with what was asked, and without any value."""
    observation = observed(request_, response)

    assert observation_line(observation, observation.started_ms + 3) == line


def test_events_of_a_recording_tell_the_turns() -> None:
    """A log for programs has keys, kinds and hashes, and no value that anybody sent."""
    asked = observed(CALL, asks("a", state=STATE))
    assert request_event(asked) == {
        "event": "started",
        "exchange": 1,
        "call": 'tools/call "deploy"',
    }
    assert response_event(asked, End.COMPLETE, asked.started_ms + 2.04) == {
        "event": "asked",
        "exchange": 1,
        "call": 'tools/call "deploy"',
        "status": 200,
        "end": "complete",
        "bytes": len(answer(CALL, asks("a", state=STATE))),
        "duration_ms": 2.0,
        "keys": {"a": "form"},
        "request_state_sha256": sha256_of(STATE),
    }

    answered = observed(retry(CALL, {"b": NO, "a": YES}, state=STATE), text("done"))
    assert request_event(answered) == {
        "event": "answered",
        "exchange": 1,
        "call": 'tools/call "deploy"',
        "keys": ["a", "b"],
        "request_state_sha256": sha256_of(STATE),
    }
    assert response_event(answered, End.OPEN, answered.started_ms)["event"] == "ended"
    assert (
        request_event(observed(retry(CALL, {"a": YES}), text("x")))["request_state_sha256"] is None
    )


def test_events_of_a_replay_tell_hits_and_misses() -> None:
    """A log for programs has the place of a hit, and reason and pointers of a miss."""
    player = player_of(*BRANCHED)
    decision = player.request_received(post(CALL))
    assert isinstance(decision, Play)
    assert played_event(decision) == {
        "event": "played",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 0,
        "times": 1,
    }
    assert missed_event(missed(player, tool("deploy", env="secret"))) == {
        "event": "missed",
        "call": 'tools/call "deploy"',
        "reason": "arguments-differ",
        "nearest": [1, 0],
        "pointers": ["/arguments/env"],
    }
    assert missed_event(missed(player, tool("x")))["nearest"] is None


@pytest.mark.parametrize("name", [rb"\ud800", rb"a\u0000b", rb"\u001b[31m"])
def test_lines_for_programs_are_json_whatever_was_asked(name: bytes) -> None:
    """Every event can be written as JSON, and the text of a miss as UTF-8."""
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % name
    observation = observed(request, text("x"))
    player = player_of((request, text("x")))
    decision = player.request_received(post(request))
    assert isinstance(decision, Play)
    miss = missed(player, request)

    for event in (
        request_event(observation),
        response_event(observation, End.COMPLETE, 1.0),
        played_event(decision),
        missed_event(miss),
        inspected((request, text("x"))),
    ):
        assert orjson.loads(orjson.dumps(event)) == event
    assert miss_text(miss, "f").encode()


def test_error_of_an_upstream_has_the_callers_id() -> None:
    """An upstream that gives no response is a JSON-RPC error to whoever called."""
    error = {"code": UPSTREAM_CODE, "message": "refused"}

    assert json.loads(upstream_error_body(post(rpc("x", number="i")), "refused")) == {
        "jsonrpc": "2.0",
        "id": "i",
        "error": error,
    }
    for other in (post(notification("n")), post(b"junk"), get("/")):
        assert json.loads(upstream_error_body(other, "refused"))["id"] is None


def test_inspection_of_interleaved_streams_counts_events() -> None:
    """An interaction's size and time are those of its own exchanges."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(tool("other"))
    talk.response(two, Answer((b"data: 1\n\ndata: 2\n\n",), STREAM_HEADERS))
    talk.response(one, text("x"))
    cassette = talk.cassette()

    first, second = inspection(cassette, Player(cassette, "f"))["interactions"]

    assert second["ended"] == "HTTP 200, stream of 2 events"
    assert (first["ms"], second["ms"]) == (7, 3)
    assert state_in(answer(CALL, asks(state="S"))) == "S"
