"""Transcripts of verifying: what is sent for an interaction, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    answer,
    cassette_of,
    changed,
    converse,
    follow,
    get,
    loaded,
    notification,
    pipe_cassette,
    post,
    push_on,
    refusal,
    retry,
    rpc,
    show,
    stream,
    tool,
)
from messages import NO, YES, Json, asks, compact, text
from pushing import PushingSession, asked_once, cassette_with, elicit, posted, roots
from verifying import verifier_for

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.cassette.transports import FIRST_SESSION, cassette_over_pipes
from mrtr_cassette.core.compare.responses import response_changes
from mrtr_cassette.core.drive.ignored import (
    IgnoredPlaces,
    call_name,
    ignored_file_with_places,
    ignored_pointers,
    learned_places,
    read_ignored_file,
)
from mrtr_cassette.core.drive.plan import PlannedInteraction, planned_interactions
from mrtr_cassette.core.drive.script import Findings, LivePair
from mrtr_cassette.core.drive.updating import proposals_for_cassette
from mrtr_cassette.core.drive.verification import (
    RepeatedInteraction,
    VerifiedInteraction,
    Verifier,
)
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.report.comparison import interaction_lines
from mrtr_cassette.core.wire.http import NO_STATUS, End, Request, line_request

CALL = tool("deploy", env="prod")
STATE = "recorded-state-0123456789"
LIVE = "live-state-0123456789"
SCRIPT = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


def plan_of(
    *script: object, only: tuple[str, ...] = (), **options: bool
) -> list[PlannedInteraction]:
    """Return the plan of a script."""
    return planned_interactions(loaded(cassette_of(*script, **options), "c.json"), only)


def verifier_of(
    cassette: Cassette, **options: Any
) -> tuple[Verifier, list[PlannedInteraction]]:
    """Return what verifies a cassette, and its plan."""
    is_on_pipes = options.pop("is_on_pipes", False)
    plan = planned_interactions(
        cassette, options.pop("only", ()), is_on_pipes=is_on_pipes
    )
    ignored = options.pop("ignored", ())

    return verifier_for(cassette, "/live?x=1", ignored, **options), plan


def scripted(*script: Any, **options: Any) -> tuple[Verifier, list[PlannedInteraction]]:
    """Do the same for a script."""
    return verifier_of(loaded(cassette_of(*script), "c.json"), **options)


def begun(verifier: Verifier, plan: PlannedInteraction) -> Any:
    """Return how an interaction is repeated, or what came of it at once."""
    return verifier.begin_interaction(plan)


def repeated(
    verifier: Verifier, plan: PlannedInteraction, *responses: Json
) -> tuple[VerifiedInteraction, list[Request]]:
    """Repeat an interaction with a server that gives these responses; return what was sent too."""
    running = begun(verifier, plan)
    sent = follow(running.conversation, *responses)
    return verifier.end_interaction(running), sent


@pytest.mark.parametrize(
    "params", [b"null", b"[]", b'{"cursor":null}', b'{"_meta":null}', b"5"]
)
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "initialize", "x/y"])
def test_requests_without_params_are_repeated(params: bytes, method: str) -> None:
    """Whatever a client sends for absent params, its call is repeated, and so are the tools."""
    call = rpc(method).replace(b"}", b',"params":%b}' % params)
    verifier, (plan,) = scripted((call, {}))
    tools = verifier.tools.list_needed_for(plan)
    if tools is not None:
        pages = {"tools": [], "nextCursor": "2"}, {"tools": []}
        listed = follow(tools, *pages)

        assert [read_call(request).cursor for request in listed] == [None, "2"]

    found, (sent,) = repeated(verifier, plan, {})

    assert found.verdict == "same"

    recorded_key = read_call(post(call)).key()

    assert read_call(sent).key() == recorded_key._replace(endpoint="POST /live?x=1")


# The plan

EVENTS = (("Content-Type", "text/event-stream"),)
POSTED = compact({"jsonrpc": "2.0", "id": "x", "result": {}})
TASK = "a-task-0123456789-abcdef"
CANCELLED = notification("notifications/cancelled", requestId=1)
SECRET_ANSWER = retry(CALL, {"a": {"content": {"password": "hunter22"}}}, state=STATE)


def test_each_kind_of_traffic_has_its_part() -> None:
    """Calls, openings, notices, listening streams and the rest of HTTP."""
    plan = plan_of(
        (rpc("initialize"), {}),
        (notification("notifications/initialized"), Answer((), (), 202)),
        (get("/mcp"), Answer((b": hello\n\n",), EVENTS)),
        (CALL, text("done")),
        (notification("notifications/progress"), Answer((), (), 202)),
        (get("/.well-known/x"), Answer((b"no",), (), 404)),
    )

    assert [planned.part for planned in plan] == [
        "opening",
        "opening",
        "listening",
        "call",
        "notice",
        "other",
    ]
    assert [planned.why_skipped for planned in plan] == [None] * 6


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        (
            [(retry(CALL, {"a": YES}, state="unknown" * 4), text("x"))],
            {},
            "begins with a retry",
        ),
        ([(CALL, stream(end=End.BROKEN))], {}, "no complete response"),
        ([(CANCELLED, Answer((), (), 202))], {}, "cancels"),
        (
            [(post(POSTED), Answer((), (), 202))],
            {},
            "answers a question that was pushed",
        ),
        (
            [(get("/mcp", ("Last-Event-ID", "7")), Answer((b": x\n\n",), EVENTS))],
            {},
            "resumes",
        ),
        (
            [(get("/a", ("If-None-Match", "t")), Answer((), (), 304))],
            {},
            "asks about a copy",
        ),
        ([(rpc("subscriptions/listen"), stream())], {}, "listens to effects"),
        (
            [(get("/x"), Answer((b"a",), (), end=End.BROKEN))],
            {},
            "no complete response",
        ),
        (
            [(tool("a", at="sha256:" + "0" * 64), text("x"))],
            {},
            "that no recorded response issued",
        ),
        (
            SCRIPT,
            {"seals_answers": True},
            "answer of turn 1 is sealed: only its hash is known",
        ),
        (
            (SCRIPT[0], (SECRET_ANSWER, text("done"))),
            {"redacts": True},
            "the recorded answer of turn 1 has redacted secrets",
        ),
        (
            [(tool("a", password="hunter22"), text("x"))],
            {"redacts": True},
            "its request has redacted secrets",
        ),
    ],
)
def test_what_cannot_be_sent_as_recorded_is_skipped(
    script: Any, options: Any, reason: str
) -> None:
    """The reason says what is not known any more, or what else it depends on."""
    assert reason in str(plan_of(*script, **options)[0].why_skipped)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("deploy", [1]),
        ("tools/*", [1, 2]),
        ("tools/call deploy", [1]),
        ("2", [2]),
        ("none", []),
        ("", []),
    ],
)
def test_patterns_select_by_method_name_both_or_number(
    pattern: str, wanted: list[int]
) -> None:
    """One of them has to match."""
    plan = plan_of(
        (CALL, text("x")), (rpc("tools/list"), {"tools": []}), only=(pattern,)
    )

    assert [
        planned_call.interaction.number
        for planned_call in plan
        if planned_call.is_compared
    ] == wanted


def test_beginning_of_a_pipe_means_nothing_over_http() -> None:
    """Over pipes everything is sent in its start of the server."""
    cassette = loaded(cassette_of((CALL, asks("a", state=STATE))), "c.json")

    assert [
        planned_call.why_skipped
        for planned_call in planned_interactions(
            cassette_over_pipes(cassette), is_on_pipes=True
        )
    ] == [None]
    assert "beginning of a pipe" in str(
        planned_interactions(cassette_over_pipes(cassette))[0].why_skipped
    )


# Conversations


def test_recorded_answers_are_sent_with_live_states_to_where_the_server_is() -> None:
    """The request is the recorded one, its endpoint the live one, its answers the recorded ones."""
    verifier, (plan,) = scripted(*SCRIPT)
    verified, sent = repeated(verifier, plan, asks("a", state=LIVE), text("done"))

    assert (verified.verdict, verified.changes) == ("same", ())
    assert [request.target for request in sent] == ["/live?x=1"] * 2

    params = json.loads(sent[1].body)["params"]

    assert (params["inputResponses"], params["requestState"]) == ({"a": YES}, LIVE)
    assert len(verified.findings.response_pairs) == 2


@pytest.mark.parametrize(
    ("responses", "verdict", "turn"),
    [
        ([asks("b", state=LIVE)], "question-changed", 1),
        ([text("done")], "rounds-changed", 1),
        ([asks("a", state=LIVE), asks("a", state=LIVE)], "rounds-changed", 2),
        ([asks("a", state=LIVE), text("other")], "text-changed", 0),
        ([asks("a")], "question-changed", 1),
        ([Answer((b"<html>",), (), 503)], "not-reached", 1),
    ],
)
def test_what_differs_has_its_turn_and_its_verdict(
    responses: list[Json], verdict: str, turn: int
) -> None:
    """A question that is another one ends the conversation; a result is compared."""
    verifier, (plan,) = scripted(*SCRIPT)
    verified, _ = repeated(verifier, plan, *responses)

    assert (verified.verdict, verified.changes[0].turn) == (verdict, turn)


def test_each_branch_is_repeated_from_its_start() -> None:
    """A declined one too; one that its client abandoned ends with an ask that nobody answers."""
    branch = (retry(CALL, {"a": NO}, state=STATE), text("no"))
    verifier, (accepting, declining) = scripted(*SCRIPT, branch)
    for plan, end in ((accepting, "done"), (declining, "no")):
        verified, _ = repeated(verifier, plan, asks("a", state=LIVE), text(end))

        assert verified.verdict == "same"

    verifier, (plan,) = scripted(SCRIPT[0])
    verified, _ = repeated(verifier, plan, asks("a", state=LIVE))

    assert verified.verdict == "same"


RELATED = "io.modelcontextprotocol/related-task"


@pytest.mark.parametrize(
    ("issued", "sent_back"),
    [
        (lambda value: {"nextCursor": value}, lambda value: {"cursor": value}),
        (
            lambda value: {"task": {"taskId": value, "status": "working"}},
            lambda value: {"taskId": value},
        ),
        (
            lambda value: {"task": {"taskId": value}},
            lambda value: {"_meta": {RELATED: {"taskId": value}}},
        ),
    ],
    ids=["cursor", "task", "related task"],
)
def test_what_the_live_server_issued_is_sent_back_to_it(
    issued: Any, sent_back: Any
) -> None:
    """In its place; the same text elsewhere stays."""
    verifier, (issuing, using) = scripted(
        (rpc("tools/list"), issued("old")),
        (rpc("tasks/get", {**sent_back("old"), "note": "old"}, 2), {}),
    )

    repeated(verifier, issuing, issued('new "one"'))
    _, (sent,) = repeated(verifier, using, {})

    assert json.loads(sent.body)["params"] == {**sent_back('new "one"'), "note": "old"}


def test_call_under_an_unknown_session_id_is_repeated_under_one() -> None:
    """What the server refuses then is no difference; the live session's id is not sent."""
    opening = rpc("initialize", {"capabilities": {}})
    refused = Answer((b"unknown session",), (), 404)

    def opened_by(request: bytes) -> Answer:
        session = ("Mcp-Session-Id", "session-0123456789")
        return Answer((answer(request, {"serverInfo": {}}),), (*JSON_HEADERS, session))

    lost = post(CALL, ("Mcp-Session-Id", "lost-0123456789"))
    verifier, (first, second) = scripted((opening, opened_by(opening)), (lost, refused))
    repeated(verifier, first, opened_by)

    verified, (sent,) = repeated(verifier, second, refused)

    assert verified.verdict == "same"
    assert sent.header("mcp-session-id") == "mrtr-session:2"


def test_calls_of_a_session_that_is_not_opened_are_not_reached() -> None:
    """The refusal is told once, and nothing is sent in a session that is none."""
    session = ("Mcp-Session-Id", "session-0123456789")
    opening = rpc("initialize", {"capabilities": {}})

    def opened_by(request: bytes) -> Answer:
        body = answer(request, {"serverInfo": {}})
        return Answer((body,), (("Content-Type", "application/json"), session))

    script = (opening, opened_by(opening)), (post(CALL, session), text("done"))
    verifier, (first, second) = scripted(*script)

    assert repeated(verifier, first, opened_by)[0].verdict == "same"
    assert (
        repeated(verifier, second, text("done"))[1][0].header("mcp-session-id")
        == session[1]
    )

    verifier, (first, second) = scripted(*script)
    refused, _ = repeated(verifier, first, Answer((b"no",), (), 403))

    assert refused.verdict == "not-reached"
    assert "its session was not opened: HTTP 403" in str(begun(verifier, second).reason)

    verifier, (first, second) = scripted(*script)
    verifier.unreached_interaction(first, "it is away")

    assert "it is away" in str(begun(verifier, second).reason)


@pytest.mark.parametrize(
    ("allows", "hint", "is_called"),
    [(False, True, False), (True, True, True), (False, False, True)],
)
def test_tool_that_may_destroy_is_not_called(
    *, allows: bool, hint: bool, is_called: bool
) -> None:
    """What the live server says of its tools decides, once for each session."""
    verifier, (plan,) = scripted((CALL, text("done")), allows_destructive=allows)
    tools = verifier.tools.list_needed_for(plan)
    follow(
        tools, {"tools": [{"name": "deploy", "annotations": {"destructiveHint": hint}}]}
    )

    assert verifier.tools.list_needed_for(plan) is None
    assert (
        isinstance(verifier.begin_interaction(plan), RepeatedInteraction) is is_called
    )
    assert verifier.tools.only_reads(plan) is False


HINTS = {"tools": [
    {"name": "wipe", "annotations": {"destructiveHint": True}},
    {"name": "get", "annotations": {"readOnlyHint": True}},
]}  # fmt: skip


@pytest.mark.parametrize(
    ("allows", "script", "skipped"),
    [
        (
            False,
            [tool("get"), tool("wipe"), tool("get", at=2), tool("set"), rpc("ping")],
            [2, 3, 4],
        ),
        (True, [tool("get"), tool("wipe"), tool("get", at=2)], []),
        (False, [tool("get", password="hunter22"), tool("get")], [1]),
        (False, [tool("set", password="hunter22"), rpc("resources/read")], [1, 2]),
    ],
    ids=["destructive", "allowed", "redacted read", "redacted write"],
)
def test_what_may_depend_on_a_call_that_is_not_sent_is_skipped_with_it(
    *, allows: bool, script: list[bytes], skipped: list[int]
) -> None:
    """Reads and writes after it are; what came before it, and what nothing changes, is compared."""
    steps = [(request, text("done")) for request in script]
    cassette = loaded(cassette_of(*steps, redacts=True), "c.json")
    verifier, plans = verifier_of(cassette, allows_destructive=allows)
    found = {}
    for plan in plans:
        tools = verifier.tools.list_needed_for(plan)
        if tools is not None:
            follow(tools, HINTS)

        running = begun(verifier, plan)
        if isinstance(running, VerifiedInteraction):
            found[plan.interaction.number] = running

    assert [*found] == skipped

    for number in skipped[1:]:
        assert (
            found[number].reason
            == f"it may depend on #{skipped[0]}, which was not sent"
        )


def test_what_was_not_selected_is_skipped() -> None:
    """What opens a session is sent all the same; nothing of it is told."""
    opening = rpc("initialize", {"capabilities": {}})
    verifier, (first, second) = scripted(
        (opening, {}), (CALL, text("done")), only=("other",)
    )
    verified, sent = repeated(verifier, first, {"more": 1})

    assert (verified.verdict, verified.changes, len(sent)) == ("skipped", (), 1)
    assert str(begun(verifier, second).reason) == "it was not selected"
    assert verifier.tools.list_needed_for(second) is None


def all_repeated(
    verifier: Verifier, plan: list[PlannedInteraction], said: Json
) -> dict[int, VerifiedInteraction]:
    """Repeat a plan with a server that gives every call one result; return what came of it."""
    found = {}
    for item in plan:
        tools = verifier.tools.list_needed_for(item)
        if tools is not None:
            follow(tools, HINTS)

        running = begun(verifier, item)
        if isinstance(running, RepeatedInteraction):
            follow(running.conversation, said)
            running = verifier.end_interaction(running)

        found[item.interaction.number] = running

    return found


READ = tool("get")
PUT = tool("put")
WIPE = tool("wipe")


@pytest.mark.parametrize(
    ("script", "only", "sent", "skipped"),
    [
        ([PUT, rpc("ping"), READ, PUT], "get", [1, 3], [1, 2, 4]),
        ([READ, PUT, READ], "3", [2, 3], [1, 2]),
        ([PUT, rpc("ping")], "ping", [2], [1]),
        ([PUT, WIPE, PUT, READ], "get", [1], [1, 2, 3, 4]),
    ],
    ids=["a write", "a read before", "nothing depends", "destructive"],
)
def test_writes_that_a_selected_call_may_need_are_sent_and_not_compared(
    script: list[bytes], only: str, sent: list[int], skipped: list[int]
) -> None:
    """What destroys is not sent either, and what may depend on it is skipped with it."""
    verifier, plan = scripted(*[(call, text("done")) for call in script], only=(only,))
    found = all_repeated(verifier, plan, text("done"))

    assert [number for number in found if found[number].findings.response_pairs] == sent
    assert [number for number in found if found[number].verdict == "skipped"] == skipped
    assert all(found[number].verdict == "same" for number in found.keys() - {*skipped})


def test_what_differs_after_a_write_that_was_not_selected_is_told_with_it() -> None:
    """The write is not accepted, so nothing that may depend on it can be taken either."""
    cassette = loaded(cassette_of((PUT, text("done")), (READ, text("done"))), "c.json")
    verifier, plan = verifier_of(
        cassette, only=("get",), accepts=lambda _verified, _turn: True
    )
    found = all_repeated(verifier, plan, text("other"))

    assert (found[1].verdict, found[1].changes) == ("skipped", ())
    assert (found[2].verdict, found[2].diverged_call_number) == ("text-changed", 1)
    assert found[2].reason == "it may depend on #1, which did not end as recorded"

    (proposal,) = proposals_for_cassette(cassette, found.values())

    assert proposal.problem == found[2].reason


def logged(words: str, asked: bytes) -> list[bytes]:
    """Return what a server on pipes logs and responds."""
    log = notification("notifications/message", level="info", data=words)
    return [log, answer(asked, text("done"))]


def test_what_is_logged_during_the_first_call_over_pipes_belongs_to_no_call() -> None:
    """The server may still be starting; what is logged during a later call is that call's."""
    steps = []
    for asked in (rpc("tools/list"), READ, PUT):
        lines = logged("at 10:15", asked)
        steps.append((line_request(asked, FIRST_SESSION), lines, End.COMPLETE))

    verifier, plan = verifier_of(pipe_cassette(*steps), is_on_pipes=True)
    verdicts = []
    for item in plan:
        running = begun(verifier, item)
        observation = running.conversation.next_request()
        observation.response_started(NO_STATUS, ())
        for line in logged("at 11:30", observation.call.request.body):
            observation.response_bytes(line + b"\n", 0.0)

        running.conversation.response_received(observation)
        verdicts.append(verifier.end_interaction(running).verdict)

    assert verdicts == ["same", "same", "text-changed"]


# Pushed questions


DONE = text("done")


def pushed_to(running: Any, *pushed: bytes, end: Json = DONE) -> list[Json]:
    """Have a live server push questions during its call, which ends so; return the answers."""
    observation = running.conversation.next_request()
    observation.response_started(200, STREAM_HEADERS)
    answers = []
    for question in pushed:
        sent = running.conversation.session.give_push_to_owner(
            push_on(observation, question)
        )
        answers.append(None if sent is None else json.loads(sent.call.request.body))

    if not running.conversation.is_over:
        show(observation, lambda body: stream(answer(body, end)))
        running.conversation.response_received(observation)

    return answers


ACCEPT = {"action": "accept"}


@pytest.mark.parametrize(
    ("pushed", "answered", "verdict"),
    [
        ([elicit("x")], [ACCEPT], "same"),
        ([elicit("x", "Sure?")], [None], "question-changed"),
        ([elicit("x"), elicit("y")], [ACCEPT, None], "rounds-changed"),
        ([], [], "rounds-changed"),
    ],
    ids=["the recorded one", "another one", "one more", "none"],
)
def test_pushed_question_is_answered_if_it_is_the_recorded_one(
    pushed: list[bytes], answered: list[Json], verdict: str
) -> None:
    """The recorded answer is posted under the live id; another question gets none."""
    verifier, (plan,) = verifier_of(asked_once(elicit(), ACCEPT, CALL, text("done")))
    running = begun(verifier, plan)
    answers = pushed_to(running, *pushed)

    results = [answer["result"] if answer else None for answer in answers]
    ids = [answer["id"] for answer in answers if answer]

    assert results == answered
    assert ids == ["x"] * sum(result is not None for result in answered)
    assert running.verified_interaction().verdict == verdict


@pytest.mark.parametrize(
    ("end", "verdict", "shown"),
    [
        (text("done"), "rounds-changed", '+ "done"'),
        ({**text("Unknown tool"), "isError": True}, "refused", "Unknown tool"),
    ],
    ids=["result", "error"],
)
def test_what_comes_in_place_of_a_pushed_question_is_shown(
    end: Json, verdict: str, shown: str
) -> None:
    """An error refuses the question; the question and what came are shown whole."""
    verifier, (plan,) = verifier_of(asked_once(elicit(), ACCEPT, CALL, text("done")))
    running = begun(verifier, plan)
    pushed_to(running, end=end)
    verified = running.verified_interaction()
    (response,) = verified.reached
    lines = interaction_lines(verified)

    assert verified.verdict == verdict
    assert response.turn == 1
    assert list(response.expected["inputRequests"]) == ["elicitation-1"]
    assert response.received["content"] == end["content"]
    assert '- asks elicitation-1: "Deploy?"' in lines[-2]
    assert shown in lines[-1]


def test_what_was_answered_by_an_error_or_not_at_all_is_so_again() -> None:
    """An error is posted as it was; a question that the client left unanswered ends the call."""
    verifier, (plan,) = verifier_of(
        asked_once(elicit(), ValueError("no"), CALL, text("done"))
    )
    (posted_,) = pushed_to(begun(verifier, plan), elicit("x"))

    assert posted_["error"] == {"code": -1, "message": "no"}

    talk = PushingSession()
    call = talk.open(CALL)
    talk.say(call, elicit())
    talk.end(call, answer(CALL, text("done")))
    cassette = cassette_with(
        ([talk.exchange(call)], [talk.turn({"elicitation-1": (call, 0)})])
    )
    verifier, (plan,) = verifier_of(cassette)

    assert pushed_to(begun(verifier, plan), elicit("x")) == [None]


def test_listening_stream_is_compared_by_its_beginning() -> None:
    """What it says depends on other calls; that there is one does not, though its head may."""
    recorded = Answer((b": hello\n\n",), STREAM_HEADERS)
    for status, verdict in ((200, "skipped"), (405, "not-reached"), (0, "skipped")):
        verifier, (plan,) = scripted((get("/mcp"), recorded))
        running = begun(verifier, plan)
        observation = running.conversation.next_request()
        observation.response_started(status, recorded.headers)
        running.stream = observation

        assert verifier.end_interaction(running).verdict == verdict


def test_what_was_pushed_while_several_calls_were_pending_is_answered_in_one() -> None:
    """It was recorded on the listening stream, as it could belong to either call."""
    talk = PushingSession()
    listening = talk.listen()
    calls = [talk.open(changed(CALL, "id", to=number)) for number in (1, 2)]
    for number in ("p1", "p2"):
        talk.say(listening, elicit(number, number))

    answers = [
        talk.post(posted(elicit(number, number), {"n": number}))
        for number in ("p1", "p2")
    ]

    for number, call in enumerate(calls, start=1):
        talk.end(call, answer(changed(CALL, "id", to=number), text("done")))

    talk.end(listening)
    turn = talk.turn(
        {"elicitation-1": (listening, 0), "elicitation-2": (listening, 1)},
        {"elicitation-1": answers[0], "elicitation-2": answers[1]},
    )

    cassette = cassette_with(
        ([talk.exchange(listening)], [turn]),
        *(([talk.exchange(call)], []) for call in calls),
    )

    verifier, (first, *plans) = verifier_of(cassette)

    assert begun(verifier, first).conversation.next_request() is not None

    for plan, words, result in zip(
        plans, ("p2", "other"), ({"n": "p2"}, None), strict=True
    ):
        running = begun(verifier, plan)
        (sent,) = pushed_to(running, elicit("live", words))

        assert (sent and sent["result"]) == result
        assert running.verified_interaction().verdict == (
            "same" if result else "rounds-changed"
        )


def told_roots(*, during_call: bool) -> Cassette:
    """Return a session whose server asks for roots on its stream, before a call or during it."""
    talk = PushingSession()
    stream_ = talk.listen()
    call = talk.open(CALL) if during_call else None
    talk.say(stream_, roots())
    answered = talk.post(posted(roots(), {"roots": []}))
    call = talk.open(CALL) if call is None else call
    talk.end(call, answer(CALL, text("done")))
    talk.end(stream_)
    turns = [talk.turn({"roots-1": (stream_, 0)}, {"roots-1": answered})]
    owned = (turns, []) if not during_call else ([], turns)

    return cassette_with(
        ([talk.exchange(stream_)], owned[0]), ([talk.exchange(call)], owned[1])
    )


@pytest.mark.parametrize("during_call", [False, True])
def test_what_a_server_asks_of_its_own_accord_may_come_at_another_time(
    *, during_call: bool
) -> None:
    """It is answered before the call and during it; a call after the answer waits for it."""
    for is_early in (True, False):
        verifier, (listening, calling) = verifier_of(
            told_roots(during_call=during_call)
        )
        stream_ = begun(verifier, listening)
        observation = stream_.conversation.next_request()

        assert (
            verifier.expected_turns.awaits_question_before_call(calling)
            is not during_call
        )

        if is_early:
            push = push_on(observation, roots("early"))

            assert stream_.conversation.session.give_push_to_owner(push) is not None
            assert not verifier.expected_turns.awaits_question_before_call(calling)

        running = begun(verifier, calling)
        calls = running.conversation.next_request()
        if not is_early:
            push = push_on(observation, roots("late"))
            assert stream_.conversation.session.give_push_to_owner(push) is not None

        show(calls, lambda body: stream(answer(body, text("done"))))
        running.conversation.response_received(calls)

        assert not verifier.expected_turns.awaits_question_of_pending_call(calling)
        assert verifier.end_interaction(running).verdict == "same"
        assert verifier.end_interaction(stream_).verdict == "skipped"


def test_what_a_server_does_not_ask_any_more_is_told() -> None:
    """Of the call during which it was asked, or of the stream; nothing waits for it twice."""
    verifier, (listening, calling) = verifier_of(told_roots(during_call=False))
    stream_ = begun(verifier, listening)
    stream_.conversation.next_request()
    verifier.give_up_overdue_turns(calling)

    assert not verifier.expected_turns.awaits_question_before_call(calling)
    assert verifier.end_interaction(stream_).verdict == "rounds-changed"

    verifier, (_, calling) = verifier_of(told_roots(during_call=True))
    running = begun(verifier, calling)
    calls = running.conversation.next_request()
    show(calls, lambda body: stream(answer(body, text("done"))))
    running.conversation.response_received(calls)

    assert verifier.expected_turns.awaits_question_of_pending_call(calling)
    assert verifier.end_interaction(running).verdict == "rounds-changed"
    assert not verifier.expected_turns.awaits_question_of_pending_call(calling)


# Places that don't count

CLOCK = read_call(post(tool("clock")))
LIST = read_call(post(rpc("tools/list")))


def test_places_are_written_and_read_again() -> None:
    """What stands in the file stays, comments too."""
    before = "# ours\n" + ignored_file_with_places("", "tools/list", ["/tools/0/title"])
    after = ignored_file_with_places(
        before, call_name(CLOCK), ["/content/0/text", '/a"b']
    )

    assert after.startswith(before)

    rules = read_ignored_file(after)

    assert rules == [
        IgnoredPlaces("tools/list", ("/tools/0/title",)),
        IgnoredPlaces("tools/call clock", ("/content/0/text", '/a"b')),
    ]

    assert ignored_pointers(rules, CLOCK) == ("/content/0/text", '/a"b')
    assert ignored_pointers(rules, LIST) == ("/tools/0/title",)
    assert ignored_file_with_places("x = 1", "a", ["/b"]).startswith("x = 1\n\n[[")


def test_call_is_a_pattern_of_method_name_or_both() -> None:
    """Without one, the places are those of every call."""
    for pattern in ("clock", "tools/call", "tools/* clock", "*"):
        assert ignored_pointers([IgnoredPlaces(pattern, ("/result/a",))], CLOCK) == (
            "/a",
        )

    assert ignored_pointers([IgnoredPlaces("clock", ("/a",))], LIST) == ()
    assert ignored_pointers(
        read_ignored_file('[[ignore]]\npointers = ["/a"]'), LIST
    ) == ("/a",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "Expected"),
        ("x = 1", "may have tables"),
        ('[ignore]\npointers = ["/a"]', "may have tables"),
        ("ignore = [5]", r"\[\[ignore\]\] 1 has"),
        ('[[ignore]]\npointer = ["/a"]', "nothing else"),
        ('[[ignore]]\ncall = 5\npointers = ["/a"]', "`call`, a text"),
        ('[[ignore]]\npointers = ["a"]', "begin with a slash"),
    ],
)
def test_file_that_is_none_is_told_with_its_place(text: str, problem: str) -> None:
    """Nothing is ignored by mistake."""
    with pytest.raises(ValueError, match=problem):
        read_ignored_file(text)


# What is learned

TICK = tool("clock")


def run(*results: Json) -> VerifiedInteraction:
    """Return what came of a conversation in which the server gave these results."""
    exchanges = tuple(converse(*((TICK, result) for result in results)))
    interaction = RecordedInteraction(1, exchanges, None, False)
    cassette = Cassette(
        "c.json", "http://h/mcp", "sealed", None, False, "now", "tool", (interaction,)
    )

    pairs = [LivePair(exchange, exchange) for exchange in exchanges]
    return VerifiedInteraction(
        planned_interactions(cassette)[0],
        "same",
        findings=Findings(complete_pairs=pairs),
    )


@pytest.mark.parametrize(
    ("first", "second", "pointer", "reason"),
    [
        ({"at": "2026-08-01T10:00:00Z"}, {"at": "2026-08-01T10:00:01Z"}, "/at", None),
        ({"count": 1, "a": "b"}, {"count": 2, "a": "b"}, "/count", None),
        ({"items": [1, {"a": [3]}]}, {"items": [{"a": [3]}, 1]}, "/items#order", None),
        (text('{"n":1,"m":2}'), text('{"n":5,"m":2}'), "/content/0/text#json/n", None),
        ({"a": "3 of 7 done"}, {"a": "4 of 7 done"}, "/a#word/0", None),
        ({"a": "3 of 7 done"}, {"a": "All done"}, "/a", "the words 'done'"),
        ({"a": 1}, {"a": "1"}, "/a", "more than its value"),
        ({"a": [1]}, {"a": [1, 2]}, "/a/1", "more than its value"),
        (asks("a"), asks("b"), "/inputRequests/a", "never answered"),
        (asks("a"), text("done"), "/inputRequests", "never answered"),
        (text("done"), refusal(TICK), "/#error", "more than its value"),
    ],
)
def test_exact_places_are_learned_and_what_would_hide_more_is_refused(
    first: Json, second: Json, pointer: str, reason: str | None
) -> None:
    """A refusal says what leaving the place out would also hide."""
    place = learned_places(run(first), run(second))[0]

    assert place.pointer == pointer
    assert place.reason is None if reason is None else reason in str(place.reason)
    assert learned_places(run(first), run(first)) == []

    (place,) = learned_places(run(first, second), run(first))

    assert "more questions" in str(place.reason)


def test_other_words_of_a_tool_that_was_called_once_are_no_proof() -> None:
    """The refusal says that there was one call; after a second one it says what both calls said."""
    recorded = run({"a": "All is well"})
    today = run({"a": "All is lost"})
    changes = response_changes(
        recorded.findings.response_pairs[0].live, today.findings.response_pairs[0].live
    )
    changed = replace(today, changes=tuple((1, change) for change in changes))
    (once,) = learned_places(changed, None)

    assert str(once.reason).startswith("it was called once, as it may change something")
    assert str(once.reason).endswith("else write this place into the file")

    (twice,) = learned_places(changed, today)

    assert str(twice.reason).startswith("both calls of today say the same")


def test_what_is_left_out_already_is_not_learned() -> None:
    """Neither a place, nor what is below it, nor the order of a list in it."""
    first = run({"a": {"b": "1 of x"}, "c": [1, 2]})
    second = run({"a": {"b": "2 of x"}, "c": [2, 1]})

    assert [place.pointer for place in learned_places(first, second)] == [
        "/a/b#word/0",
        "/c#order",
    ]

    for known in (["/a", "/c"], ["/a/b", "/c#order"], ["/a/b#word/0", "/*#order"]):
        assert learned_places(first, second, known) == []
