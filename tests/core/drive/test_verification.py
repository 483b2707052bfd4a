"""Transcripts of verifying: what is sent for an interaction, and what comes of it."""

from __future__ import annotations

import json
from typing import Any

from builders import (
    Answer,
    answer,
    as_answer,
    cassette_of,
    changed,
    get,
    loaded,
    post,
    retry,
    rpc,
    tool,
)
from messages import NO, YES, Json, asks, text
from pushing import PushingSession, asked_once, cassette_with, elicit, posted

from mrtr_cassette.core.drive.plan import Planned, planned
from mrtr_cassette.core.drive.verification import Repeated, Verified, Verifier
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.record.recorder import Observation

CALL = tool("deploy", env="prod")
STATE, LIVE = "recorded-state-0123456789", "live-state-0123456789"
SCRIPT = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


def verifier_of(cassette: Cassette, **options: Any) -> tuple[Verifier, list[Planned]]:
    """Return what verifies a cassette, and its plan."""
    plan = planned(cassette, options.pop("only", ()))
    ignored = options.pop("ignored", ())
    return Verifier(cassette, "/live?x=1", lambda _call: ignored, **options), plan


def scripted(*script: Any, **options: Any) -> tuple[Verifier, list[Planned]]:
    """Do the same for a script."""
    return verifier_of(loaded(cassette_of(*script), "c.json"), **options)


def show(observation: Observation, response: Json) -> None:
    """Let the live server respond; a function makes the response of the request."""
    if callable(response):
        response = response(observation.call.request.body)
    given = as_answer(observation.call.request, response)
    observation.response_started(given.status, given.headers)
    for chunk in given.chunks:
        observation.response_bytes(chunk, 0.0)
    observation.response_ended(0.0)


def repeated(verifier: Verifier, plan: Planned, *responses: Json) -> tuple[Verified, list[Json]]:
    """Repeat an interaction with a server that gives these responses; return what was sent too."""
    running = verifier.begin(plan)
    assert isinstance(running, Repeated)
    coming, sent = list(responses), []
    while (observation := running.conversation.next()) is not None:
        sent.append(observation.call.request)
        show(observation, coming.pop(0))
        running.conversation.responded(observation)
    assert not coming
    return verifier.ended(running), sent


def test_recorded_answers_are_sent_with_live_states_to_where_the_server_is() -> None:
    """The request is the recorded one, its endpoint the live one, its answers the recorded ones."""
    verifier, (plan,) = scripted(*SCRIPT)
    verified, sent = repeated(verifier, plan, asks("a", state=LIVE), text("done"))

    assert (verified.verdict, verified.changes) == ("same", ())
    assert [request.target for request in sent] == ["/live?x=1"] * 2
    params = json.loads(sent[1].body)["params"]
    assert (params["inputResponses"], params["requestState"]) == ({"a": YES}, LIVE)
    assert len(verified.live) == 2


def test_what_differs_has_its_turn_and_its_verdict() -> None:
    """A question that is another one ends the conversation; a result is compared."""
    for responses, verdict, turn in (
        ([asks("b", state=LIVE)], "question-changed", 1),
        ([text("done")], "rounds-changed", 1),
        ([asks("a", state=LIVE), asks("a", state=LIVE)], "rounds-changed", 2),
        ([asks("a", state=LIVE), text("other")], "text-changed", 0),
        ([asks("a")], "question-changed", 1),
    ):
        verifier, (plan,) = scripted(*SCRIPT)
        verified, _ = repeated(verifier, plan, *responses)
        assert (verified.verdict, verified.changes[0].turn) == (verdict, turn)
    verifier, (plan,) = scripted(*SCRIPT, ignored=("/content",))
    assert repeated(verifier, plan, asks("a", state=LIVE), text("o"))[0].verdict == "same"


def test_abandoned_conversation_ends_where_its_client_left() -> None:
    """An ask without a recorded answer is compared and not answered."""
    verifier, (plan,) = scripted(SCRIPT[0])
    verified, sent = repeated(verifier, plan, asks("a", state=LIVE))
    assert verified.verdict == "same"
    assert len(sent) == 1


def test_no_response_of_mcp_is_not_reached() -> None:
    """A page in the place of a response is no difference, but nothing to compare."""
    verifier, (plan,) = scripted((CALL, text("done")))
    verified, _ = repeated(verifier, plan, Answer((b"<html>",), (), 503))
    assert verified.verdict == "not-reached"
    assert verified.reason == "HTTP 503, which is no response of MCP"
    assert verifier.failed(plan, "it is away").reason == "it is away"


def test_cursor_of_the_live_server_is_sent() -> None:
    """The next page is the live server's, whose cursor is another one."""
    second = rpc("tools/list", {"cursor": "recorded"}, 2)
    verifier, (one, two) = scripted(
        (rpc("tools/list"), {"tools": [], "nextCursor": "recorded"}), (second, {"tools": []})
    )
    repeated(verifier, one, {"tools": [], "nextCursor": "live"})
    verified, sent = repeated(verifier, two, {"tools": []})
    assert verified.verdict == "same"
    assert json.loads(sent[0].body)["params"]["cursor"] == "live"


def test_calls_of_a_session_that_is_not_opened_are_not_reached() -> None:
    """The refusal is told once, and nothing is sent in a session that is none."""
    session = ("Mcp-Session-Id", "session-0123456789")
    opening = rpc("initialize", {"capabilities": {}})
    headers = (("Content-Type", "application/json"), session)

    def opened_by(request: bytes) -> Answer:
        return Answer((answer(request, {"serverInfo": {}}),), headers)

    opened = opened_by(opening)
    verifier, (first, second) = scripted((opening, opened), (post(CALL, session), text("done")))
    good, _ = repeated(verifier, first, opened_by)
    assert good.verdict == "same"
    _, sent = repeated(verifier, second, text("done"))
    assert sent[0].header("mcp-session-id") == session[1]

    verifier, (first, second) = scripted((opening, opened), (post(CALL, session), text("done")))
    refused, _ = repeated(verifier, first, Answer((b"no",), (), 403))
    assert refused.verdict == "not-reached"
    unreached = verifier.begin(second)
    assert isinstance(unreached, Verified)
    assert "its session was not opened: HTTP 403" in str(unreached.reason)
    verifier, (first, second) = scripted((opening, opened), (post(CALL, session), text("done")))
    verifier.failed(first, "it is away")
    unreached = verifier.begin(second)
    assert isinstance(unreached, Verified)
    assert "it is away" in str(unreached.reason)


def test_tool_that_may_destroy_is_not_called() -> None:
    """What the live server says of its tools decides, once for each session."""
    for allows, hint, is_called in ((False, True, False), (True, True, True), (False, False, True)):
        verifier, (plan,) = scripted((CALL, text("done")), allows_destructive=allows)
        hints = verifier.tools_for(plan)
        assert hints is not None
        listing = hints.next()
        assert listing is not None
        show(listing, {"tools": [{"name": "deploy", "annotations": {"destructiveHint": hint}}]})
        hints.responded(listing)
        assert verifier.tools_for(plan) is None
        assert isinstance(verifier.begin(plan), Repeated) is is_called
        assert verifier.only_reads(plan) is False


def test_what_was_not_selected_is_skipped() -> None:
    """What opens a session is sent all the same; nothing of it is told."""
    opening = rpc("initialize", {"capabilities": {}})
    verifier, (first, second) = scripted((opening, {}), (CALL, text("done")), only=("other",))
    verified, sent = repeated(verifier, first, {"more": 1})
    assert (verified.verdict, verified.changes, len(sent)) == ("skipped", (), 1)
    skipped = verifier.begin(second)
    assert isinstance(skipped, Verified)
    assert skipped.reason == "it was not selected"
    assert verifier.tools_for(second) is None


def test_pushed_question_is_answered_if_it_is_the_recorded_one() -> None:
    """The recorded answer is posted; another question gets none, and its call is cancelled."""
    pushed = elicit("live-push")
    for words, verdict in (("Deploy?", "same"), ("Sure?", "question-changed")):
        cassette = asked_once(elicit(), {"action": "accept"}, CALL, text("done"))
        verifier, (plan,) = verifier_of(cassette)
        running = verifier.begin(plan)
        assert isinstance(running, Repeated)
        conversation = running.conversation
        observation = conversation.next()
        assert observation is not None
        observation.response_started(200, (("Content-Type", "text/event-stream"),))
        raw = elicit("live-push", words)
        observation.response_bytes(b"data: " + raw + b"\n\n", 0.0)
        (open_push,) = observation.take_pushed()
        sent = conversation.pushed(open_push)
        if verdict == "same":
            assert sent is not None
            body = json.loads(sent.call.request.body)
            assert (body["id"], body["result"]) == ("live-push", {"action": "accept"})
            final = answer(observation.call.request.body, text("done"))
            observation.response_bytes(b"data: " + final + b"\n\n", 0.0)
            observation.response_ended(0.0)
            conversation.responded(observation)
        else:
            assert sent is None
            cancelled = conversation.next()
            assert cancelled is not None
            assert cancelled.call.method == "notifications/cancelled"
            assert conversation.next() is None
        assert running.verified().verdict == verdict
    assert pushed == elicit("live-push")


def test_listening_stream_is_compared_by_its_beginning() -> None:
    """What it says depends on other calls; that there is one does not."""
    recorded = Answer((b": hello\n\n",), (("Content-Type", "text/event-stream"),))
    for status, verdict in ((200, "skipped"), (405, "error-changed"), (0, "not-reached")):
        verifier, (plan,) = scripted((get("/mcp"), recorded))
        running = verifier.begin(plan)
        assert isinstance(running, Repeated)
        observation = running.conversation.next()
        assert observation is not None
        observation.response_started(status, recorded.headers)
        running.has_begun(observation)
        running.has_begun(None)
        assert verifier.ended(running).verdict == verdict


def test_conversation_without_end_is_not_reached() -> None:
    """Where no response came, there is nothing to compare."""
    verifier, (plan,) = scripted((CALL, text("done")))
    running = verifier.begin(plan)
    assert isinstance(running, Repeated)
    assert running.verified().verdict == "not-reached"


def test_declined_branch_is_repeated_from_its_start() -> None:
    """Each branch is a conversation of its own."""
    verifier, (one, two) = scripted(*SCRIPT, (retry(CALL, {"a": NO}, state=STATE), text("no")))
    for plan, end in ((one, "done"), (two, "no")):
        verified, sent = repeated(verifier, plan, asks("a", state=LIVE), text(end))
        assert verified.verdict == "same"
        assert len(sent) == 2


def test_what_was_pushed_while_several_calls_were_pending_is_answered_in_one() -> None:
    """It was recorded on the listening stream, as it could belong to either call."""
    talk = PushingSession()
    stream = talk.listen()
    calls = [talk.open(changed(CALL, "id", to=number)) for number in (1, 2)]
    for number in ("p1", "p2"):
        talk.say(stream, elicit(number, number))
    answers = [talk.post(posted(elicit(number, number), {"n": number})) for number in ("p1", "p2")]
    for number, call in enumerate(calls, start=1):
        talk.end(call, answer(changed(CALL, "id", to=number), text("done")))
    talk.end(stream)
    turn = talk.turn(
        {"elicitation-1": (stream, 0), "elicitation-2": (stream, 1)},
        {"elicitation-1": answers[0], "elicitation-2": answers[1]},
    )
    cassette = cassette_with(
        ([talk.exchange(stream)], [turn]), *(([talk.exchange(call)], []) for call in calls)
    )
    verifier, plans = verifier_of(cassette)
    listening = verifier.begin(plans[0])
    assert isinstance(listening, Repeated)
    assert listening.conversation.next() is not None
    for plan, words in zip(plans[1:], ("p2", "other"), strict=True):
        running = verifier.begin(plan)
        assert isinstance(running, Repeated)
        observation = running.conversation.next()
        assert observation is not None
        observation.response_started(200, (("Content-Type", "text/event-stream"),))
        observation.response_bytes(b"data: " + elicit("live", words) + b"\n\n", 0.0)
        (push,) = observation.take_pushed()
        sent = running.conversation.pushed(push)
        if words == "other":
            assert sent is None
            assert running.verified().verdict == "rounds-changed"
        else:
            assert sent is not None
            assert json.loads(sent.call.request.body)["result"] == {"n": "p2"}


def test_what_was_learned_meanwhile_does_not_count() -> None:
    """The verdict is worked out again; one that is refused makes it unstable."""
    ignored: list[str] = []
    cassette = loaded(cassette_of((CALL, {"at": 1, "items": [1, 2], "b": 1})), "c.json")
    verifier = Verifier(cassette, "/mcp", lambda _call: ignored)
    (plan,) = planned(cassette)
    verified, _ = repeated(verifier, plan, {"at": 2, "items": [2, 1], "b": 2})
    assert [change.pointer for _, change in verified.changes] == [
        "/at", "/b", "/items/0", "/items/1",
    ]  # fmt: skip
    ignored += ["/at", "/items#order"]
    again = verifier.verified_again(verified)
    assert [change.pointer for _, change in again.changes] == ["/b"]
    ignored.append("/b")
    assert verifier.verified_again(verified).verdict == "same"
    unstable = verifier.unstable(verified, "it hides all")
    assert (unstable.verdict, unstable.reason) == ("unstable", "it hides all")
