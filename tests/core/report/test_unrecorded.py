"""Facts about how a request is reported that appending could not record."""

from __future__ import annotations

import json

from builders import player_of, post, retry, tool, with_id
from messages import YES, asks, text

from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.report.unrecorded import report_of_unrecorded, unrecorded_body
from mrtr_cassette.core.wire.pointers import Difference

CALL = tool("deploy", env="prod")


def unrecorded() -> Unrecorded:
    """Return a retry whose ask the live server no longer makes."""
    player = player_of(
        (CALL, asks("a", state="S")), (retry(CALL, {"a": YES}, state="S"), text("x"))
    )
    ((asking, _),) = player.interactions
    call = read_call(post(with_id(retry(CALL, {"a": 1}, state="S"), "mine")))
    differences = (
        Difference("/inputRequests/a/params/message", '"a?"', '"b?"'),
        Difference("/requestState", '"…"', None),
    )
    return Unrecorded(call, "the live server asks something else in turn 1", asking, differences)


def test_report_tells_what_the_live_server_asks_instead() -> None:
    """The text names the request, the recorded ask, and where the live one differs."""
    assert report_of_unrecorded(unrecorded(), "talk.json").text.splitlines() == [
        "not recorded: the live server asks something else in turn 1",
        (
            '  request:  tools/call "deploy" with {"env":"prod"}, answering a, '
            "echoing a request state"
        ),
        '  recorded: #1 (tools/call "deploy", ask of turn 1) in talk.json',
        '  /inputRequests/a/params/message: recorded "a?", live "b?"',
        '  /requestState: recorded "…", live nothing',
        "  fix:      record the whole call again, into another cassette",
        '       or:  record all of this cassette again with existing="replace"',
    ]


def test_client_gets_the_text_and_the_same_as_facts() -> None:
    """The JSON-RPC error has the client's id, the text, and its facts as data."""
    failure = unrecorded()
    report = report_of_unrecorded(failure, "talk.json")

    assert json.loads(unrecorded_body(report, failure.call)) == {
        "jsonrpc": "2.0",
        "id": "mine",
        "error": {"code": -32012, "message": report.text, "data": report.facts},
    }
    assert report.facts == {
        "detail": "the live server asks something else in turn 1",
        "request": 'tools/call "deploy" with {"env":"prod"}, answering a, echoing a request state',
        "cassette": "talk.json",
        "recorded": {"interaction": 1, "turn": 1, "call": 'tools/call "deploy"'},
        "differences": [
            {"pointer": "/inputRequests/a/params/message", "recorded": '"a?"', "live": '"b?"'},
            {"pointer": "/requestState", "recorded": '"…"', "live": None},
        ],
        "fix": "record the whole call again, into another cassette, or record all of this cassette "
        'again with existing="replace"',
    }


def test_report_without_a_recorded_ask_names_none() -> None:
    """Where no ask of the cassette is concerned, the report is shorter by that."""
    failure = Unrecorded(read_call(post(CALL)), "the live server opened no session: HTTP 500")
    report = report_of_unrecorded(failure, "talk.json")

    assert len(report.text.splitlines()) == 4
    assert report.facts["recorded"] is None


def test_text_has_no_secret_that_the_cassette_knows() -> None:
    """Secrets are taken out of the whole text."""
    report = report_of_unrecorded(unrecorded(), "f", lambda text: text.replace('"b?"', "<secret>"))

    assert "live <secret>" in report.text
