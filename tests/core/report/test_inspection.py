"""Facts about what is told of a cassette."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Conversation,
    Step,
    answer,
    cassette_of,
    get,
    loaded,
    post,
    progress,
    refusal,
    response_of,
    retry,
    stream,
    tool,
)
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, array_asks, asks, text
from pushing import PushingSession, cassette_with, elicit, posted, roots, sample

from mrtr_cassette.core.exchange import recorded
from mrtr_cassette.core.exchange.recorded import RecordedInteraction
from mrtr_cassette.core.report.inspection import (
    Inspection,
    inspected,
    inspection_data,
    inspection_text,
)
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


def inspection_of(*script: Step, **options: Any) -> Inspection:
    """Return the inspection of a script's cassette."""
    return inspected(loaded(cassette_of(*script, **options), "talk.json"))


def test_inspection_is_ready_for_json() -> None:
    """An inspection has everything about a cassette, with a number for each interaction."""
    data = inspection_data(inspection_of(*BRANCHED))

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
            "via": "result",
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

    _, branch = inspection_of(*script).interactions

    assert [list(turn.asked) for turn in branch.turns] == [["a"], ["b"], ["c"]]
    assert [turn.answered for turn in branch.turns] == [{"a": 1}, {"b": 2}, None]


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
    (interaction,) = inspection_of((CALL, response)).interactions

    assert interaction.ended == ended


def test_other_traffic_is_told_without_arguments() -> None:
    """Traffic that is no JSON-RPC has neither arguments nor a result."""
    script: tuple[Step, ...] = (
        (get("/x"), answer(CALL, text("x"))),
        (b'{"arguments":1}', b"x"),
    )
    one, two = inspection_of(*script).interactions

    assert (one.call, one.arguments, one.ended) == ("GET /x", None, "HTTP 200")
    assert (two.call, two.arguments) == ("POST /mcp", None)


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
    told = inspection_text(inspection_of(*script))

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
    assert "      asked for a retry only" in paragraphs[5]
    assert paragraphs[6][2] == "      asked    k (string) 'k?'"
    assert paragraphs[6][3].startswith("      answered k = ")


def pushing_interaction() -> RecordedInteraction:
    """Return a call with a turn of both kinds of push, the result's ask, and an unanswered push."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit(), roots())
    posts = [session.post(posted(elicit(), YES)), session.post(posted(roots(), {"roots": []}))]
    session.end(call, answer(CALL, asks("a", state=STATE)))
    retried = session.open(retry(CALL, {"a": NO}, state=STATE))
    session.say(retried, sample())
    session.end(retried, answer(retry(CALL), text("done")))
    turns = [
        session.turn(
            {"elicitation-1": (call, 0), "roots-1": (call, 1)},
            {"elicitation-1": posts[0], "roots-1": posts[1]},
        ),
        session.turn({"sampling-1": (retried, 0)}, position=1),
    ]
    exchanges = [session.exchange(call), session.exchange(retried)]
    return cassette_with((exchanges, turns)).interactions[0]


def test_pushed_turns_are_inspected_like_others() -> None:
    """Turns of both kinds stand in the order of their asks, with what was asked and answered."""
    recorded = pushing_interaction()
    inspection = inspected(cassette_with((recorded.exchanges, recorded.pushed_turns)))
    (interaction,) = inspection.interactions

    assert [turn.via for turn in interaction.turns] == ["push", "result", "push"]
    assert [turn.asked for turn in interaction.turns] == [
        {"elicitation-1": "Deploy?", "roots-1": ""},
        {"a": "a?"},
        {"sampling-1": ""},
    ]
    assert [turn.answered for turn in interaction.turns] == [
        {"elicitation-1": YES, "roots-1": {"roots": []}},
        {"a": NO},
        None,
    ]
    assert [turn.dialect for turn in interaction.turns] == [None, "2026-07-28", None]
    posts = [post.exchange for turn in recorded.pushed_turns for post in turn.answers]
    assert interaction.size_bytes == sum(
        len(exchange.request.body) + len(exchange.response.body if exchange.response else b"")
        for exchange in (*recorded.exchanges, *posts)
    )
    assert inspection_text(inspection).splitlines()[3:-1] == [
        '#1 tools/call "deploy" {"env":"prod"}',
        "    turn 1, pushed:",
        "      asked    elicitation-1 (form) 'Deploy?'",
        '      answered elicitation-1 = {"action":"accept","content":{"ok":true}}',
        "      asked    roots-1 (roots)",
        '      answered roots-1 = {"roots":[]}',
        "    turn 2, with request state:",
        "      asked    a (form) 'a?'",
        '      answered a = {"action":"decline"}',
        "    turn 3, pushed:",
        "      asked    sampling-1 (sampling)",
        "      not answered",
    ]
    assert inspection_data(inspection)["interactions"][0]["turns"][0] == {
        "via": "push",
        "asked": [
            {"key": "elicitation-1", "kind": "form", "message": "Deploy?"},
            {"key": "roots-1", "kind": "roots", "message": ""},
        ],
        "request_state": False,
        "dialect": None,
        "answered": {
            "elicitation-1": '{"action":"accept","content":{"ok":true}}',
            "roots-1": '{"roots":[]}',
        },
    }


def test_answer_that_was_not_asked_for_is_told() -> None:
    """A recorded answer under a key that nobody asked for is shown as such."""
    script: tuple[Step, ...] = (
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES, "d": 4, "b": 2, "c": 3}, state=STATE), text("done")),
    )

    lines = inspection_text(inspection_of(*script)).splitlines()

    assert [line for line in lines if "not asked" in line] == [
        "      answered b = 2, which was not asked",
        "      answered c = 3, which was not asked",
        "      answered d = 4, which was not asked",
    ]


def test_inspection_steers_neither_terminal_nor_runner() -> None:
    """Whatever stands in a cassette, nothing of it is obeyed, and it forges no line."""
    call = tool(HOSTILE, **{HOSTILE: HOSTILE})
    ask = {"inputRequests": {HOSTILE: {"message": HOSTILE}}, "resultType": "input_required"}
    inspection = inspection_of(
        (call, ask), (retry(call, {HOSTILE: HOSTILE}), refusal(call, -1, HOSTILE))
    )
    shown = inspection_text(
        replace(inspection, upstream=HOSTILE, recorded_at=HOSTILE, tool=HOSTILE, cassette=HOSTILE)
    )
    assert_harmless(shown)
    assert len(shown.split("\n")) == len(inspection_text(inspection).split("\n"))


def test_one_interaction_is_singular() -> None:
    """One interaction is no plural, and numbers have separators."""
    told = inspection_text(inspection_of((CALL, text("x" * 5_000))))

    assert told.startswith("talk.json: 1 interaction, recorded from ")
    assert "(5,1" in told


def test_inspection_of_interleaved_streams_counts_events() -> None:
    """An interaction's size and time are those of its own exchanges."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(tool("other"))
    talk.response(two, Answer((b"data: 1\n\ndata: 2\n\n",), STREAM_HEADERS))
    talk.response(one, text("x"))

    first, second = inspected(loaded(talk.cassette())).interactions

    assert second.ended == "HTTP 200, stream of 2 events"
    assert (first.duration_ms, second.duration_ms) == (7, 3)


def test_values_are_given_as_python_has_them_and_shown_as_they_were_recorded() -> None:
    """Arguments and answers are JSON for Python; their text keeps what Python has no number for."""
    exact = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":%s}}}'
    )
    call = exact % b"123456789012345678901234567890"

    (interaction,) = inspection_of((call, text("x"))).interactions

    assert interaction.arguments == {"n": 1.2345678901234568e29}
    assert interaction.arguments_json == '{"n":12345678901234567890123456789e1}'


def test_interaction_of_a_fast_run_has_whole_milliseconds() -> None:
    """Each exchange's time is rounded as in the file, so that both tell the same sum."""
    request, response = post(CALL), response_of(text("x"), CALL)
    exchanges = tuple(
        recorded.RecordedExchange(number, request, response, 0.2, 0.9, None, None)
        for number in (1, 2)
    )
    interaction = recorded.RecordedInteraction(1, exchanges, None, is_orphan=False)
    cassette = replace(loaded(cassette_of()), interactions=(interaction,))

    (told,) = inspected(cassette).interactions

    assert told.duration_ms == 2


def test_turn_that_the_client_did_not_answer_says_who_did() -> None:
    """The recorded retry of the recording proxy names its source."""
    call = tool("deploy")
    ours = post(retry(call, {"a": YES}), ("Mrtr-Cassette-Answered-By", "rule 1"))
    inspection = inspection_of((call, asks("a")), (ours, text("done")))
    (turn,) = inspection.interactions[0].turns
    assert turn.answered_by == "rule 1"
    assert "by the recording proxy (rule 1), and not by the client" in inspection_text(inspection)
    (data,) = inspection_data(inspection)["interactions"]
    assert data["turns"][0]["answered_by"] == "rule 1"
