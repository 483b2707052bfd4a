"""Facts about what is known of each call on a cassette, as text, as data and as a diagram."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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
    as_request,
    cassette_of,
    get,
    loaded,
    post,
    progress,
    refusal,
    retry,
    rpc,
    sse,
    stream,
    tool,
)
from goldens import DATA, read_case
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, array_asks, asks, form, text
from pushing import (
    ACCEPTED,
    SESSION,
    PushingSession,
    asked_once,
    branched,
    cassette_with,
    elicit,
)
from tasking import cancel, task_steps

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, details_of
from mrtr_cassette.core.report.text import (
    inspection_data,
    inspection_text,
    json_text,
    mermaid_diagram,
    review_text,
)
from mrtr_cassette.core.wire.http import NO_STATUS, End, Piece, Request, Response
from mrtr_cassette.core.wire.jsonbytes import parse

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
UNUSUAL: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), refusal(CALL, -32602, "no")),
    (
        tool("other"),
        {
            "resultType": "input_required",
            "inputRequests": {
                "b": {"method": "sampling/createMessage", "params": {"maxTokens": 9}}
            },
        },
    ),
    (tool("x"), asks("a", state=STATE)),
    (retry(tool("x"), {"a": NO, "d": 5, "b": 1}, state=STATE), text("x")),
    (retry(CALL, {"a": YES}, state="unknown"), refusal(CALL)),
    (tool("waits"), asks(state="S")),
    (tool("list"), array_asks("k", state="T")),
    (retry(tool("list"), [{"id": "k", "value": 5}], state="T"), text("x")),
    (get("/page"), Answer((b"<html>\n</html>",), (), 404)),
    (tool("slow"), stream(progress(7), answer(CALL, text("x")))),
    (tool("long"), text("x" * 1000)),
    (tool("json"), text('{"at":[1]}')),
)
ENDINGS: tuple[Any, ...] = (
    text("done"),
    {"isError": True},
    refusal(CALL, -32602, "bad"),
    b'{"jsonrpc":"2.0","id":1,"error":{}}',
    b'{"jsonrpc":"2.0","id":1,"error":"x"}',
    b'{"jsonrpc":"2.0","id":1,"result":5}',
    Answer((b"<html>",), (), 404),
    Answer((b"\xff\xfe\xfd",), (), 404),
    Answer((), (), 202),
    stream(progress(1), answer(CALL, text("done"))),
    stream(progress(1), end=End.OPEN),
    Answer((b"{",), end=End.BROKEN),
    Answer((), status=0, end=End.OPEN),
    asks("a"),
)
CASSETTES: dict[str, Cassette] = {
    name: loaded(cassette_of(*script), "talk.json")
    for name, script in {
        "unusual": UNUSUAL,
        "endings": tuple((CALL, response) for response in ENDINGS),
        "turn-by-turn": (
            (CALL, asks("a")),
            (retry(CALL, {"a": YES}), asks("b", "c", state="x" * 40)),
            (retry(CALL, {"b": YES, "c": 5}, state="x" * 40), asks(state="y" * 40)),
            (retry(CALL, state="y" * 40), text("done")),
        ),
        "answered-by-the-proxy": (
            (CALL, asks("a")),
            (
                post(retry(CALL, {"a": YES}), ("Mrtr-Cassette-Answered-By", "rule 1")),
                text("x"),
            ),
        ),
        "many-calls": (
            *((tool(f"plain-{number}"), text("x")) for number in range(9)),
            (CALL, asks("a")),
            (retry(CALL, {"a": YES}), text("done")),
        ),
        "many-turns": (
            (CALL, asks("k0")),
            *((retry(CALL, {f"k{at}": YES}), asks(f"k{at + 1}")) for at in range(8)),
            (tool("other"), text("x")),
        ),
        "handles": (
            (tool("commit", message="first"), text("[main 7f3a9c21] first")),
            (tool("show", revision="7f3a9c21"), text("commit 7f3a9c21")),
            (rpc("resources/read", {"uri": "git://7f3a9c21/first"}), text("x")),
        ),
        "tasks": (*task_steps(STATE), *task_steps(f"{STATE}2")[:3]),
    }.items()
} | {
    "pushed": asked_once(elicit(words="Two\nlines"), YES, CALL, text("x")),
    "pushed-and-asked": branched(),
}


def data_text(shown: CassetteDetails) -> str:
    """Return the data of a cassette, which is ready for JSON."""
    data = inspection_data(shown)
    assert orjson.loads(orjson.dumps(data)) == data
    return json.dumps(data, indent=1)


FORMS: dict[str, Callable[[CassetteDetails], str]] = {
    "inspect": inspection_text,
    "inspect --full": review_text,
    "inspect --json": data_text,
    "inspect --markdown": mermaid_diagram,
}


@pytest.mark.parametrize("name", CASSETTES)
def test_cassette_is_shown(name: str, *, updates_goldens: bool) -> None:
    """In short, whole, for programs and drawn: the sections of a file say how."""
    shown = details_of(CASSETTES[name])
    path = DATA / "reports" / f"{name}.case"
    for title in (
        section.title for section in read_case(path).sections if section.title
    ):
        read_case(path).expect(
            title, f"{FORMS[title](shown)}\n", updates=updates_goldens
        )


def details(*script: Step) -> CassetteDetails:
    """Return what is on a script's cassette."""
    return details_of(loaded(cassette_of(*script), "talk.json"))


def test_review_text_is_the_same_for_every_recording() -> None:
    """Times and sizes, which differ between recordings of one conversation, are not in it."""
    recording = loaded(cassette_of((CALL, text("done"))), "talk.json")
    (interaction,) = recording.interactions
    (exchange,) = interaction.exchanges
    slower = replace(interaction, exchanges=(replace(exchange, ended_ms=9.0),))
    later: Cassette = replace(
        recording,
        recorded_at="2027-01-01T00:00:00+00:00",
        tool="mrtr-cassette 9",
        path="other.json",
        interactions=(slower,),
    )

    assert review_text(details_of(later)) == review_text(details_of(recording))


def test_hostile_texts_steer_nothing() -> None:
    """Whatever stands in a cassette, no terminal or runner obeys it, and it forges no line."""
    ask = asks("a")
    ask["inputRequests"] = {HOSTILE: ask["inputRequests"]["a"]}
    ask["inputRequests"][HOSTILE]["params"]["message"] = HOSTILE
    call = tool(HOSTILE, **{HOSTILE: HOSTILE})
    shown = details(
        (call, ask),
        (retry(call, {HOSTILE: {"x": HOSTILE}}), refusal(call, -1, HOSTILE)),
        (get("/x"), Answer((HOSTILE.encode(),))),
    )

    told = dict.fromkeys(("path", "upstream", "recorded_at", "tool"), HOSTILE)
    hostile = replace(shown, recorded=replace(shown.recorded, **told))

    assert_harmless(inspection_text(hostile))
    assert_harmless(review_text(hostile))

    assert inspection_text(hostile).count("\n") == inspection_text(shown).count("\n")


def test_texts_are_no_part_of_the_diagram() -> None:
    """Nothing recorded is Mermaid, HTML, or the end of the block."""
    words = "```\n<img src=x onerror=alert(1)>; end %%{init}%% #59; " + HOSTILE
    ask = asks("a")
    ask["inputRequests"] = {"a": form(words)}
    answered = retry(tool(words), {"a": {"action": words}})
    shown = mermaid_diagram(details((tool(words), ask), (answered, text("x"))))

    assert_harmless(shown)
    for line in shown.splitlines()[4:-1]:
        _, _, shown = line.partition(": ")

        assert re.fullmatch(r"[\w ,.?!'()/_=+*-]*", re.sub(r"#\d+;", "", shown)), line


def test_json_is_indented_for_people() -> None:
    """A value is shown with its members in their order, each number as it was, and all printable."""
    value = parse('{"b":[1.50,{}],"a":{"ü":null},"c":[],"d":"\\u202e\\u0001"}'.encode())

    assert json_text(value) == (
        '{\n  "b": [\n    1.5,\n    {}\n  ],\n  "a": {\n    "ü": null\n  },\n  "c": [],\n'
        '  "d": "\\u202e\\u0001"\n}'
    )


# Values


def interactions_of(*script: Step, **options: Any) -> tuple[Interaction, ...]:
    """Return the calls of a script's cassette."""
    return details_of(loaded(cassette_of(*script, **options))).interactions


def test_refused_steps_of_a_task_are_shown_as_such() -> None:
    """An answer that the server refused has changed nothing, unlike the one after it."""
    call, _, asked, answered, ended = task_steps("t1")
    refused: list[Step] = []
    for request in (answered[0], cancel("t1")):
        refused.append((request, Answer((refusal(as_request(request).body),))))

    (interaction,) = interactions_of(call, asked, *refused, answered, ended)

    assert list(interaction.task) == [
        "input_required",
        "answer refused",
        "cancel refused",
        "answered",
        "completed",
    ]


def test_parameters_are_those_of_the_first_request() -> None:
    """Where a method names nothing, all params count, but `_meta`; other traffic has none."""
    hello = rpc(
        "initialize", {"clientInfo": {"title": "Agent", "name": "a"}, "_meta": {"x": 1}}
    )
    first, *others = interactions_of(
        (hello, {"serverInfo": {}}),
        (tool("x"), {}),
        (get("/x"), Answer((b"x",))),
        (b'{"arguments":1}', b"x"),
    )

    assert first.parameters == {"clientInfo": {"title": "Agent", "name": "a"}}
    assert first.client == "Agent"
    assert [
        (call.method, call.parameters, call.arguments, call.client) for call in others
    ] == [
        ("tools/call", None, None, ""),
        ("GET /x", None, None, ""),
        ("POST /mcp", None, None, ""),
    ]


def test_end_of_a_call_on_a_pipe() -> None:
    """A pipe has no status; its response is told by its lines."""
    line = answer(CALL, text("done")) + b"\n"
    response = Response(NO_STATUS, (), (Piece(line, 2, 1),), End.OPEN)
    exchange = RecordedExchange(1, post(CALL), response, 1, 2, None, None)
    (call,) = details_of(cassette_with(([exchange], ()))).interactions

    assert (
        call.ended
        == "result, 1 line, open until its client left or the recording ended"
    )


# Responses on listening streams


def calls_of(session: PushingSession, **changes: Any) -> list[Interaction]:
    """Return each exchange as a call of its own, in arrival order."""
    exchanges = sorted(session.talk.exchanges, key=lambda made: made.number or 0)
    calls = [([replace(exchange, **changes)], ()) for exchange in exchanges]
    return list(details_of(cassette_with(*calls)).interactions)


@pytest.mark.parametrize(
    ("response", "ended"),
    [
        (answer(CALL, text("done")), "HTTP 202, result on the stream of #1"),
        (answer(CALL, text("x")).replace(b'"id":1', b'"id":2'), "HTTP 202"),
        (progress(1), "HTTP 202"),
    ],
)
def test_response_is_found_on_the_stream_of_http_with_sse(
    response: bytes, ended: str
) -> None:
    """In HTTP+SSE the POST is accepted only; the response comes on the stream that was opened."""
    messages = "/messages?session_id=sha256:" + "0123456789abcdef" * 4
    session = PushingSession()
    opened = session.open(get("/sse"))
    first = b"event: endpoint\ndata: " + messages.encode() + b"\n\n"
    session.talk.observation(opened).response_bytes(first, 1)
    session.post(Request("POST", messages, (), CALL))
    session.say(opened, response)
    session.end(opened)

    assert calls_of(session)[1].ended == ended


def test_response_that_came_before_its_request_is_none() -> None:
    """A client may use an id again, also in another session: it is the response of neither."""
    session = PushingSession()
    another = session.open(get("/mcp", ("Mcp-Session-Id", "another")))
    opened = session.listen()
    session.post(CALL)
    session.say(opened, answer(CALL, text("done")))
    session.post(CALL)
    session.say(opened, refusal(CALL, -1, "used"))
    session.post(CALL)
    session.end(opened)
    session.end(another, answer(CALL, text("done")))

    assert [(call.ended, call.final.kind) for call in calls_of(session)[2:]] == [
        ("HTTP 202, result on the stream of #2", "result"),
        ('HTTP 202, error -1 "used" on the stream of #2', "error"),
        ("HTTP 202", "nothing"),
    ]
    # A cassette that was written by hand doesn't say when its requests arrived.
    assert {call.ended for call in calls_of(session, number=None)[2:]} == {
        "HTTP 202, result on the stream of #2"
    }


def test_response_on_a_resumed_stream_is_found() -> None:
    """A stream that broke off goes on where the client asks for what came after an event."""
    session = PushingSession()
    broken = session.talk.request(post(CALL, SESSION))
    cut_off = Answer((sse(progress(1)),), STREAM_HEADERS, end=End.BROKEN)
    session.talk.response(broken, cut_off)
    resumed = session.open(get("/mcp", SESSION, ("Last-Event-ID", "7")))
    session.end(resumed, answer(CALL, text("done")))

    assert [call.ended for call in calls_of(session)] == [
        "HTTP 200, result on the stream of #2, stream of 1 event, broken off by the upstream",
        "HTTP 200, stream of 1 event",
    ]


def test_response_in_place_is_not_looked_for_elsewhere() -> None:
    """A call ends with its own response, and a request without one is no HTTP response either."""
    session = PushingSession()
    opened = session.listen()
    session.post(CALL, asks("a"))
    session.post(CALL, Answer((), status=0, end=End.OPEN))
    session.post(Request("POST", "/mcp", (), b"no message"), ACCEPTED)
    session.say(opened, answer(CALL, text("done")))
    session.end(opened)

    assert [call.ended for call in calls_of(session)[1:]] == [
        "abandoned: the last ask has no answer",
        "no response, result on the stream of #1",
        "HTTP 202",
    ]


def test_values_are_given_as_python_has_them_and_kept_as_they_were_recorded() -> None:
    """Arguments and answers are JSON for Python; their text keeps what Python has no number for."""
    exact = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":%s}}'
    (call,) = interactions_of(
        (exact % b'{"n":123456789012345678901234567890}', text("x"))
    )

    assert call.arguments == {"n": 1.2345678901234568e29}
    assert call.arguments_json == '{"n":12345678901234567890123456789e1}'


# Time


@pytest.mark.parametrize(
    ("script", "times", "answered_after_ms"),
    [
        (
            [(CALL, asks("a", "b")), (retry(CALL, {"a": YES, "b": NO}), text("x"))],
            [(6, 1)],
            [[1]],
        ),
        ([(CALL, asks("a"))], [(3, 0)], [[None]]),
        (
            [(CALL, asks(state="s")), (retry(CALL, state="s"), text("x"))],
            [(6, 0)],
            [[1]],
        ),
        (
            [
                (CALL, asks("a")),
                (retry(CALL, {"a": YES}), {}),
                (retry(CALL, {"a": NO}), {}),
            ],
            [(6, 1), (3, 0)],
            [[1], [5]],
        ),
    ],
    ids=[
        "answered",
        "never answered",
        "nothing asked",
        "a branch has its own time only",
    ],
)
def test_time_is_the_servers_or_the_persons(
    script: list[Step],
    times: list[tuple[int, int]],
    answered_after_ms: list[list[float | None]],
) -> None:
    """Between a question and its answer a person's time passes, else the server's."""
    calls = interactions_of(*script)

    assert [(call.duration_ms, call.person_ms) for call in calls] == times
    assert [
        [turn.answered_after_ms for turn in call.turns] for call in calls
    ] == answered_after_ms


def test_pushed_question_waits_within_the_call() -> None:
    """The time from a pushed request to its posted answer is a person's, though the call goes on."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    (call,) = details_of(cassette).interactions
    exchange = cassette.interactions[0].exchanges[0]

    assert call.turns[0].answered_after_ms == call.person_ms > 0
    assert call.duration_ms + call.person_ms == exchange.ended_ms - exchange.started_ms
    assert call.session == SESSION[1] or call.session.startswith("sha256:")


def test_listening_stream_is_one_and_each_turn_has_its_own_time() -> None:
    """A stream that tells what other calls caused is marked; pushed turns have their own times."""
    head, whole, branch = details_of(branched()).interactions

    assert head.listens
    assert [notification.method for notification in head.notifications] == [
        "notifications/x"
    ]
    assert [turn.answered_after_ms is None for turn in whole.turns] == [
        False,
        True,
        False,
    ]
    assert len(branch.turns) == 4


def test_size_and_time_are_those_of_the_own_exchanges() -> None:
    """Calls that overlap are measured each for itself."""
    talk = Conversation()
    first_number = talk.request(CALL)
    second_number = talk.request(tool("other"))
    two_events = Answer((b"data: 1\n\ndata: 2\n\n",), STREAM_HEADERS)
    talk.response(second_number, two_events)
    talk.response(first_number, text("x"))
    first, second = details_of(loaded(talk.cassette())).interactions

    assert second.ended == "HTTP 200, stream of 2 events"
    assert (first.duration_ms, second.duration_ms) == (7, 3)
