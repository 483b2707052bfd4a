"""Facts about reports of requests that can't be played or recorded, and what clients get."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    Answer,
    Step,
    cassette_of,
    get,
    loaded,
    missed,
    notification,
    play,
    player_of,
    post,
    retry,
    rpc,
    tool,
    with_id,
)
from goldens import DATA, read_case
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, asks, form, text
from pushing import asked_once, elicit, in_sealed_session, posted

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.drive.appending import unrecorded
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.ci import annotation
from mrtr_cassette.core.report.runs import (
    MissesError,
    MissReport,
    error_body,
    report_of_miss,
    upstream_error_body,
)
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


def test_misses_are_an_error_of_the_library() -> None:
    """It has how many requests were missed, and of each what a report says."""
    report = report_of_miss(missed(player_of((CALL, text("x"))), tool("b")), "c.json")

    error = MissesError("c.json", [report, report])

    head = "2 requests had no recorded answer on c.json"
    assert str(error) == f"{head}\n\n{report.text}\n\n{report.text}"
    assert (error.misses, error.exit_code) == ((report, report), 1)


# Texts and facts

ASKED = {
    "resultType": "input_required",
    "inputRequests": {"a": form("Sure?"), "b": {"method": "roots/list"}, "c": form("Why?")},
}
ASKING: tuple[Step, ...] = (
    (CALL, ASKED),
    (retry(CALL, {"a": YES, "b": 1, "c": 1}), text("done")),
)


def recording(*script: Step) -> Cassette:
    """Return the cassette of a script."""
    return loaded(cassette_of(*script))


PUSHING = asked_once(elicit(), YES, CALL, text("done"))
IN_SESSION = post(CALL, ("Mcp-Session-Id", "s"))
MISSES: dict[str, tuple[Cassette, list[Any]]] = {
    "nothing near": (recording((CALL, text("x"))), [rpc("tools/list")]),
    "wrong answers": (recording(*ASKING), [CALL, retry(CALL, {"a": NO, "b": 2, "c": 1})]),
    "a wrong answer to a push": (PUSHING, [in_sealed_session(posted(elicit(), NO))]),
    "played up": (recording((CALL, text("x"))), [CALL, CALL]),
    "played up in a session": (recording((IN_SESSION, text("x"))), [IN_SESSION, IN_SESSION]),
    "another body": (recording((b"one", b"x")), [b"two"]),
    "a value that is absent": (recording((CALL, text("x"))), [tool("deploy", x=1)]),
    "a long value": (recording((CALL, text("x"))), [tool("deploy", env="v" * 300)]),
}


def expect(title: str, report: MissReport, *, updates: bool) -> None:
    """Compare a report, its text and its facts, with the golden one."""
    facts = json.dumps(report.facts, indent=1)
    case = read_case(DATA / "reports" / "misses.case")
    case.expect(title, f"{report.text}\n{facts}\n", updates=updates)


@pytest.mark.parametrize("name", MISSES)
def test_miss_has_text_and_facts(name: str, *, updates_goldens: bool) -> None:
    """Questions that were answered otherwise are repeated, and each reason has its ways out."""
    cassette, (*played, request) = MISSES[name]
    player = Player(cassette)
    for each in played:
        play(player, each)
    report = report_of_miss(missed(player, request), "talk.json")
    expect(name, report, updates=updates_goldens)


def not_recorded() -> Miss:
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
    return unrecorded(call, "the live server asks something else in turn 1", asking, differences)


@pytest.mark.parametrize("name", ["not recorded", "not recorded, without an ask"])
def test_unrecorded_request_tells_what_the_live_server_asks_instead(
    name: str, *, updates_goldens: bool
) -> None:
    """Text and facts name the request, the recorded ask, and where the live one differs."""
    failure = not_recorded()
    if name.endswith("without an ask"):
        failure = unrecorded(read_call(post(CALL)), "the live server opened no session: HTTP 500")
    expect(name, report_of_miss(failure, "talk.json"), updates=updates_goldens)
    redacted = report_of_miss(not_recorded(), "f", lambda shown: shown.replace('"b?"', "<x>"))
    assert "received <x>" in redacted.text


# Errors that clients get


def test_client_gets_text_and_facts_under_its_own_id() -> None:
    """The text is the message and the facts are the data of a JSON-RPC error."""
    miss = missed(player_of((CALL, text("x"))), rpc("tools/list", number="mine"))
    missing = report_of_miss(miss, "talk.json")
    failure = not_recorded()
    failed = report_of_miss(failure, "talk.json")

    for body, code, report in (
        (error_body(missing, miss.call), -32010, missing),
        (error_body(missing, b'"mine"'), -32010, missing),
        (error_body(failed, failure.call), -32012, failed),
    ):
        assert json.loads(body) == {
            "jsonrpc": "2.0",
            "id": "mine",
            "error": {"code": code, "message": report.text, "data": report.facts},
        }


@pytest.mark.parametrize("identity", [b"7", b'"a"', b"1.0e3"])
def test_error_has_the_id_as_the_client_spelled_it(identity: bytes) -> None:
    """The id of the request is copied, not written anew; other traffic has none."""
    request = post(b'{"jsonrpc":"2.0","id": %s ,"method":"x"}' % identity)
    error = b'"error":{"code":-32011,"message":"refused"}}'

    assert upstream_error_body(request, "refused") == (
        b'{"jsonrpc":"2.0","id":%s,%s' % (identity, error)
    )
    for other in (post(notification("n")), post(b"junk"), get("/")):
        assert upstream_error_body(other, "refused") == b'{"jsonrpc":"2.0","id":null,' + error
