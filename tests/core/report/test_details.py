"""Facts about all that a cassette has of each call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    Answer,
    Step,
    answer,
    cassette_of,
    get,
    loaded,
    notification,
    post,
    progress,
    refusal,
    retry,
    rpc,
    stream,
    tool,
    with_meta,
)
from messages import CLIENT_KEY, NO, YES, asks, text
from pushed_cassettes import branched
from pushing import SESSION, asked_once, elicit

from mrtr_cassette.core.report.details import (
    FinalResponse,
    InteractionDetails,
    Stretch,
    detailed,
)
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")


def details_of(*script: Step, **options: Any) -> tuple[InteractionDetails, ...]:
    """Return what there is of each call of a script."""
    return detailed(loaded(cassette_of(*script, **options), "talk.json")).interactions


def test_details_of_a_call_are_what_was_sent_and_what_came_back() -> None:
    """Method, name, arguments, client and the final result are told whole."""
    asked = with_meta(CALL, **{CLIENT_KEY: {"name": "agent", "version": "2"}})
    (details,) = details_of((asked, text("done")))

    assert (details.method, details.name, details.parameters) == (
        "tools/call",
        "deploy",
        {"env": "prod"},
    )
    assert (details.client, details.session, details.listens) == ("agent 2", "", False)
    assert details.final == FinalResponse("result", text("done"))
    assert details.interaction.number == 1


def test_parameters_are_those_of_the_first_request() -> None:
    """Where a method names nothing, all params count, but `_meta`; other traffic has none."""
    hello = rpc("initialize", {"clientInfo": {"title": "Agent", "name": "a"}, "_meta": {"x": 1}})
    first, *others = details_of(
        (hello, {"serverInfo": {}}), (tool("x"), {}), (get("/x"), Answer((b"x",))), (b"[]", b"x")
    )

    assert first.parameters == {"clientInfo": {"title": "Agent", "name": "a"}}
    assert first.client == "Agent"
    assert [(each.method, each.parameters, each.client) for each in others] == [
        ("tools/call", None, ""),
        ("GET /x", None, ""),
        ("POST /mcp", None, ""),
    ]


@pytest.mark.parametrize(
    ("response", "final"),
    [
        ({"isError": True}, FinalResponse("failed result", {"isError": True})),
        (refusal(CALL, -1, "bad"), FinalResponse("error", {"code": -1, "message": "bad"})),
        (asks("a"), FinalResponse("nothing", None)),
        (Answer((), status=0, end=End.OPEN), FinalResponse("nothing", None)),
        (Answer((), (), 202), FinalResponse("nothing", None)),
        (stream(progress(1), end=End.OPEN), FinalResponse("nothing", None)),
        (Answer((b"<html>",), (), 404), FinalResponse("text", "<html>")),
        (Answer((b"\xff\xfe\xfd",), (), 404), FinalResponse("text", "(3 bytes that are no text)")),
    ],
)
def test_final_response_is_told_whole(response: Any, final: FinalResponse) -> None:
    """The end of a call is its result, its error, or the text of another body."""
    (details,) = details_of((CALL, response))

    assert details.final == final


def test_what_the_server_said_meanwhile_is_told() -> None:
    """Notifications on the stream of a call are told with their time, in order."""
    said = notification("notifications/message", data="half")
    (details,) = details_of((CALL, stream(progress(7), said, answer(CALL, text("done")))))

    assert [(each.method, dict(each.params)) for each in details.said] == [
        ("notifications/progress", {"progressToken": 7, "progress": 1}),
        ("notifications/message", {"data": "half"}),
    ]
    assert [each.at_ms for each in details.said] == [2, 3]


def test_time_is_the_servers_or_the_persons() -> None:
    """Between a question and its answer a person's time passes, else the server's."""
    (details,) = details_of((CALL, asks("a", "b")), (retry(CALL, {"a": YES, "b": NO}), text("x")))

    assert [each.whose for each in details.stretches] == ["server", "person", "server"]
    assert [each.start_ms for each in details.stretches[1:]] == [
        each.end_ms for each in details.stretches[:-1]
    ]
    assert details.answering_ms == (1,)


def test_question_without_an_answer_took_nobodys_time() -> None:
    """An ask that nobody answered has no time of a person."""
    (details,) = details_of((CALL, asks("a")))

    assert [each.whose for each in details.stretches] == ["server"]
    assert details.answering_ms == (None,)


def test_branch_has_its_own_time_only() -> None:
    """The time that a branch shares with another interaction is that one's."""
    script = ((CALL, asks("a")), (retry(CALL, {"a": YES}), {}), (retry(CALL, {"a": NO}), {}))
    first, second = details_of(*script)

    assert [each.whose for each in first.stretches] == ["server", "person", "server"]
    assert [each.whose for each in second.stretches] == ["server"]
    assert len(second.answering_ms) == 1


def test_answers_sent_early_take_no_time() -> None:
    """An answer that is sent before the response that asks has ended never takes less than none."""
    cassette = loaded(cassette_of((CALL, asks("a")), (retry(CALL, {"a": YES}), text("x"))))
    (interaction,) = cassette.interactions
    asking, answered = interaction.exchanges
    early = replace(interaction, exchanges=(replace(asking, ended_ms=9.0), answered))
    (details,) = detailed(replace(cassette, interactions=(early,))).interactions

    assert details.answering_ms == (0,)
    assert all(each.end_ms >= each.start_ms for each in details.stretches)


def test_pushed_question_waits_within_the_call() -> None:
    """The time from a pushed request to its posted answer is a person's, though the call goes on."""
    pushed = elicit()
    cassette = asked_once(pushed, YES, CALL, text("done"))
    (details,) = detailed(cassette).interactions
    exchange = cassette.interactions[0].exchanges[0]

    assert [each.whose for each in details.stretches] == ["server", "person", "server"]
    assert details.stretches[0].start_ms == exchange.started_ms
    assert details.stretches[-1].end_ms == exchange.ended_ms
    assert details.answering_ms == (details.stretches[1].end_ms - details.stretches[1].start_ms,)
    assert details.session == SESSION[1] or details.session.startswith("sha256:")


def test_turns_of_all_kinds_have_their_time_in_order() -> None:
    """Pushed turns and those of results have their times under their own numbers."""
    _, whole, branch = detailed(branched()).interactions

    assert len(whole.answering_ms) == len(whole.interaction.turns) == 3
    assert whole.answering_ms[1] is None
    assert len(branch.answering_ms) == len(branch.interaction.turns) == 4
    assert whole.stretches[0] == Stretch("server", 2, 3)


def test_listening_stream_is_one() -> None:
    """A stream that tells what other calls caused is marked, and says which session it is of."""
    head, *_ = detailed(branched()).interactions

    assert head.listens
    assert [each.method for each in head.said] == ["notifications/x"]


def test_cassette_tells_how_it_keeps_secrets() -> None:
    """Details say what was recorded over, and which secrets are not in the file."""
    sealed = loaded(cassette_of((post(CALL), text("x")), redacts=True, seals_answers=True))
    plain = loaded(cassette_of((post(CALL), text("x"))))

    assert (detailed(sealed).redacts, detailed(sealed).seals_answers) == (True, True)
    assert (detailed(plain).redacts, detailed(plain).transport) == (False, "http")
