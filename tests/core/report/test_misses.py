"""Facts about how a miss is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import Answer, get, missed, play, player_of, post, retry, rpc, tool
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, form, text
from pushing import asked_once, elicit, posted

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.playable import CassettePlace, PushedQuestion, playable
from mrtr_cassette.core.report.misses import annotation, miss_body, refusal_body, report_of_miss
from mrtr_cassette.core.wire.pointers import Difference

CALL = tool("deploy", env="prod")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_way_out(reason: Reason) -> None:
    """Each reason comes with what the user can do about it."""
    miss = Miss(missed(player_of((CALL, text("x"))), tool("y")).call, reason, "detail")

    report = report_of_miss(miss, "f")
    first, *others = report.fixes
    assert len(first) > 10
    assert report.text.splitlines()[-len(report.fixes) :] == [
        f"  fix:      {first}",
        *(f"       or:  {fix}" for fix in others),
    ]


def test_miss_without_anything_near_names_the_cassette() -> None:
    """Where nothing comes near, the text says which cassette was searched."""
    miss = missed(player_of((CALL, text("x"))), rpc("tools/list"))

    report = report_of_miss(miss, "talk.json")
    assert report.text == (
        "miss: unknown-method: tools/list was not recorded\n"
        "  request:  tools/list\n"
        "  cassette: talk.json\n"
        "  fix:      check the URL that the client uses\n"
        '       or:  record this request too with record(upstream, path, existing="append")'
    )
    assert report.facts == {
        "reason": "unknown-method",
        "detail": "tools/list was not recorded",
        "request": "tools/list",
        "questions": [],
        "cassette": "talk.json",
        "nearest": None,
        "differences": [],
        "fix": "check the URL that the client uses, or record this request too with "
        'record(upstream, path, existing="append")',
    }


def test_way_out_is_in_the_terms_of_the_front() -> None:
    """Each front spells its own options; what a client sent is no slot, whatever it looks like."""
    miss = missed(player_of((CALL, text("x"))), tool("deploy", env="<<ignore_value>>"))
    terms = {"record_too": "record --append", "ignore_value": "--ignore POINTER"}

    report = report_of_miss(miss, "f", terms=terms)

    assert report.fixes == (
        "send the recorded arguments",
        "record this call too with record --append",
        "leave what differs from run to run out of matching with --ignore POINTER",
    )
    assert '/arguments/env: recorded "prod", received "<<ignore_value>>"' in report.text


def test_difference_at_the_top_is_shown() -> None:
    """A body that differs as a whole is shown as a whole; an absent value reads as nothing."""
    player = player_of((b"one", b"x"), (CALL, text("x")))

    assert '  /: recorded "one", received "two"' in report_of_miss(missed(player, b"two"), "f").text
    assert (
        '  /arguments/env: recorded "prod", received nothing'
        in report_of_miss(missed(player, tool("deploy", x=1)), "f").text
    )


def test_question_of_a_wrong_answer_is_repeated() -> None:
    """A miss about answers says what was asked under each key that differs."""
    asked = {
        "resultType": "input_required",
        "inputRequests": {"a": form("Sure?"), "b": {"method": "roots/list"}, "c": form("Why?")},
    }
    player = player_of((CALL, asked), (retry(CALL, {"a": YES, "b": 1, "c": 1}), text("done")))
    play(player, CALL)

    report = report_of_miss(missed(player, retry(CALL, {"a": NO, "b": 2, "c": 1})), "f")

    assert report.questions == ('a (form) "Sure?"', "b (roots)")
    assert report.nearest == (1, 1, 'tools/call "deploy"')
    assert report.facts["questions"] == list(report.questions)
    assert report.facts["nearest"] == {"interaction": 1, "turn": 1, "call": 'tools/call "deploy"'}


def test_wrong_answer_to_a_pushed_question_is_told_like_any_other() -> None:
    """A miss names the call during which the server asked, its turn and the question."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    (interaction,) = cassette.interactions
    (turn,) = interaction.pushed_turns
    exchange = turn.answers[0].exchange
    pending = interaction.exchanges[0]
    asking = playable(pending, CassettePlace(1, 0), pending.request, (), ())
    place = CassettePlace(1, 1, answers=PushedQuestion(asking, turn.asked[0]))
    nearest = playable(exchange, place, exchange.request, (), ())
    differing = (Difference("/action", '"accept"', '"decline"'),)
    call = read_call(posted(elicit(), NO))
    miss = Miss(call, Reason.ANSWERS_DIFFER, "another answer", nearest, differing)

    report = report_of_miss(miss, "talk.json")

    assert report.nearest == (1, 1, 'tools/call "deploy"')
    assert report.text.splitlines()[1:5] == [
        "  request:  POST /mcp, answering elicitation-1",
        '  question: elicitation-1 (form) "Deploy?"',
        '  nearest:  #1 (tools/call "deploy", answer of turn 1) in talk.json',
        '  /action: recorded "accept", received "decline"',
    ]
    assert report.fixes[1] == "record the whole session with this answer, into another cassette"


def test_call_that_is_refused_gets_the_miss_under_its_own_id() -> None:
    """The error that the waiting call gets has the text and the facts of the wrong answer."""
    report = report_of_miss(missed(player_of((CALL, text("x"))), tool("y")), "f")

    refused = json.loads(refusal_body(report, b'"mine"'))

    assert (refused["id"], refused["error"]["code"]) == ("mine", -32010)
    assert (refused["error"]["message"], refused["error"]["data"]) == (report.text, report.facts)


@pytest.mark.parametrize(
    ("request_", "named"),
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
def test_request_is_named_as_a_person_would(request_: Any, named: str) -> None:
    """A request is named with its arguments and the keys of its answers."""
    miss = missed(player_of((CALL, text("x"))), request_)
    assert report_of_miss(miss, "f").request == named


def test_error_of_a_miss_has_text_and_facts_under_the_callers_id() -> None:
    """A client gets the text as the message and the facts as the data of a JSON-RPC error."""
    miss = missed(player_of((CALL, text("x"))), rpc("tools/list", number="mine"))
    report = report_of_miss(miss, "talk.json")

    assert json.loads(miss_body(report, miss.call)) == {
        "jsonrpc": "2.0",
        "id": "mine",
        "error": {"code": -32010, "message": report.text, "data": report.facts},
    }


def test_text_of_a_miss_has_no_secret_that_the_cassette_knows() -> None:
    """Secrets are taken out of the text as a whole, wherever in it they stand."""
    miss = missed(player_of((CALL, text("x"))), tool("deploy", env="hush"))

    report = report_of_miss(miss, "f", lambda text: text.replace("hush", "<secret>"))

    assert "hush" not in report.text
    assert report.text.count("<secret>") == 2


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
        reports.append(report_of_miss(miss, HOSTILE, lambda text: text + HOSTILE))
    ask = {"inputRequests": {HOSTILE: form(HOSTILE)}, "resultType": "input_required"}
    player = player_of((CALL, ask), (retry(CALL, {HOSTILE: YES}), text("x")))
    play(player, CALL)
    reports.append(report_of_miss(missed(player, retry(CALL, {HOSTILE: NO})), "f"))
    for report in reports:
        assert_harmless(report.text)
        assert annotation(report).isprintable()
        for shown in (report.request, report.detail, *report.questions, *map(str, report.fixes)):
            assert shown.isprintable()
        for difference in report.differences:
            assert all(each is None or each.isprintable() for each in difference)


def test_annotation_is_one_line_that_names_the_file() -> None:
    """Workflow commands end with the line, so what ends one is escaped, and so are separators."""
    miss = missed(player_of((CALL, text("x"))), rpc("tools/list"))
    report = replace(report_of_miss(miss, "a,b:c%.json"), text="50%\r\n::x")

    assert annotation(report) == (
        "::error file=a%2Cb%3Ac%25.json,title=miss%3A unknown-method::50%25%0D%0A::x"
    )


def test_facts_of_a_miss_are_redacted_like_its_text() -> None:
    """What reports take from a miss has no secret that its text lacks."""
    player = player_of((tool("s3cret", a="s3cret"), text("x")))
    miss = missed(player, tool("s3cret", a="s3cret too"))

    report = report_of_miss(miss, "f", lambda shown: shown.replace("s3cret", "<custom-1>"))

    assert "<custom-1>" in json.dumps(report.facts["differences"])
    assert "s3cret" not in json.dumps(report.facts)
    assert "s3cret" not in report.text


def test_what_was_played_up_says_what_would_play_it_again() -> None:
    """An option does, and where the recording has sessions, a new one."""
    call = tool("deploy", env="prod")
    session = ("Mcp-Session-Id", "s")
    for request, ways_out in ((post(call), 3), (post(call, session), 4)):
        player = player_of((request, text("done")))
        play(player, request)
        report = report_of_miss(missed(player, request), "f")

        assert report.fixes[2] == 'allow it again with repeat="always"'
        assert len(report.fixes) == ways_out
        assert any("new session" in fix for fix in report.fixes) is (ways_out == 4)


def test_header_that_contradicts_the_body_is_told_with_the_way_out() -> None:
    """A miss names the header, and what it has to repeat."""
    call = tool("deploy", env="prod")
    miss = missed(player_of((call, text("done"))), post(call, ("Mcp-Name", "drop\x1b")))
    report = report_of_miss(miss, "f")

    assert report.reason == "headers-contradict"
    assert "Mcp-Name: drop\\x1b" in report.detail
    assert report.fixes[0].startswith("send the method and the name of the body")
