"""Facts about a cassette as text, as data and as a diagram."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import orjson
from builders import (
    Answer,
    Step,
    answer,
    cassette_of,
    get,
    loaded,
    post,
    progress,
    refusal,
    retry,
    stream,
    tool,
)
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, array_asks, asks, form, text
from pushing import asked_once, elicit

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.details import CassetteDetails, details_of
from mrtr_cassette.core.report.text import (
    MOST_ARROWS,
    diagram,
    inspection_data,
    inspection_text,
    json_text,
    review_text,
)
from mrtr_cassette.core.wire.jsonbytes import parse

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
ASK_WITH_SCHEMA = asks("a", state=STATE)
ASK_WITH_SCHEMA["inputRequests"]["a"]["params"]["requestedSchema"] = {"type": "object"}
UNUSUAL: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), refusal(CALL, -32602, "no")),
    (tool("other"), {"resultType": "input_required", "inputRequests": {"b": {"method": "roots/list"}}}),
    (tool("x"), asks("a", state=STATE)),
    (retry(tool("x"), {"a": NO, "d": 5, "b": 1}, state=STATE), text("x")),
    (retry(CALL, {"a": YES}, state="unknown"), refusal(CALL)),
    (tool("waits"), asks(state="S")),
    (tool("list"), array_asks("k", state="T")),
    (retry(tool("list"), [{"id": "k", "value": 5}], state="T"), text("x")),
    (get("/page"), Answer((b"<html>\n</html>",), (), 404)),
    (tool("slow"), stream(progress(7), answer(CALL, text("x")))),
)  # fmt: skip
PUSHED = asked_once(elicit(words="Two\nlines"), YES, CALL, text("x"))
BY_PROXY: tuple[Step, ...] = (
    (CALL, asks("a")),
    (post(retry(CALL, {"a": YES}), ("Mrtr-Cassette-Answered-By", "rule 1")), text("x")),
)


def details(*script: Step, **options: Any) -> CassetteDetails:
    """Return what is on a script's cassette."""
    return details_of(loaded(cassette_of(*script, **options), "talk.json"))


def test_inspection_tells_what_is_out_of_the_ordinary() -> None:
    """Beside what the files of conversations show: missing and unasked answers, other answerers."""
    shown = inspection_text(details(*UNUSUAL, (tool("long"), text("x" * 5_000))))

    for line in (
        "      asked    b (roots)\n      not answered",
        "      answered b = 1, which was not asked\n      answered d = 5, which was not asked",
        "#8 GET /page",
        "    branch: shares the ask of turn 1 with #1",
    ):
        assert f"{line}\n" in shown, line
    assert re.search(r"\n    ended: HTTP 200, result \(5,[0-9]+ bytes, 3 ms\)$", shown)
    by_proxy = "      by the recording proxy (rule 1), and not by the client\n"
    assert by_proxy in inspection_text(details(*BY_PROXY))
    assert "asked    elicitation-1 (form) 'Two\\\\nlines'" in inspection_text(details_of(PUSHED))


def test_review_text_has_everything_whole() -> None:
    """Arguments, questions with their schema, answers and results stand in it in full."""
    words = "x" * 1000
    shown = review_text(
        details((CALL, ASK_WITH_SCHEMA), (retry(CALL, {"a": YES}, state=STATE), text(words)))
    )

    assert (
        shown
        == f"""\
recorded from http://localhost:8000/mcp
format version 1, request states sealed

#1 tools/call "deploy"
    arguments:
      {{
        "env": "prod"
      }}
    turn 1, with request state:
      asked    a (form)
        a?
        {{
          "requestedSchema": {{
            "type": "object"
          }}
        }}
      answered a
        {{
          "action": "accept",
          "content": {{
            "ok": true
          }}
        }}
    ended: HTTP 200, result
      {{
        "resultType": "complete",
        "content": [
          {{
            "type": "text",
            "text": "{words}"
          }}
        ]
      }}"""
    )


def test_review_text_is_the_same_for_every_recording() -> None:
    """Times and sizes, which differ between recordings of one conversation, are not in it."""
    recording = loaded(cassette_of((CALL, text("done"))), "talk.json")
    later: Cassette = replace(
        recording,
        recorded_at="2027-01-01T00:00:00+00:00",
        tool="mrtr-cassette 9",
        path="other.json",
        interactions=tuple(
            replace(each, exchanges=tuple(replace(one, ended_ms=9.0) for one in each.exchanges))
            for each in recording.interactions
        ),
    )

    assert review_text(details_of(later)) == review_text(details_of(recording))


def test_review_text_tells_what_is_out_of_the_ordinary() -> None:
    """Branches, orphans, unasked and missing answers, retries alone, errors and other bodies show."""
    shown = review_text(details(*UNUSUAL))

    for line in (
        "    shares the ask of turn 1 with #1",
        "    continues a request state that no recorded ask issued",
        "      answered b, which was not asked",
        "      not answered",
        "      asked for a retry only",
        "      asked    k (string)\n        k?",
        '    ended: HTTP 200, error -32602 "no"',
        '        "code": -32602,',
        "      <html>\n      </html>",
        "    said notifications/progress",
    ):
        assert f"{line}\n" in f"{shown}\n", line
    assert "    turn 1, pushed:\n" in review_text(details_of(PUSHED))
    assert "        Two\n        lines\n" in review_text(details_of(PUSHED))
    by_proxy = "      by the recording proxy (rule 1), and not by the client\n"
    assert by_proxy in review_text(details(*BY_PROXY))


def test_data_are_ready_for_json() -> None:
    """The data have everything about a cassette, with a number for each interaction."""
    data = inspection_data(details(*UNUSUAL[:3]))

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
    sizes = (CALL, retry(CALL, {"a": NO}, state="s" * 31), answer(CALL, asks("a", state="s" * 31)))
    assert first == {
        "number": 1,
        "call": 'tools/call "deploy"',
        "arguments": '{"env":"prod"}',
        "orphan": False,
        "branch": None,
        "turns": [
            {
                "via": "result",
                "asked": [{"key": "a", "kind": "form", "message": "a?"}],
                "request_state": True,
                "dialect": "2026-07-28",
                "answered": {"a": '{"action":"decline"}'},
            }
        ],
        "ended": "HTTP 200, result",
        "bytes": sum(map(len, (*sizes, answer(retry(CALL), text("left"))))),
        "ms": 6,
    }
    assert (second["branch"], second["ended"]) == (
        {"of": 1, "turn": 1},
        'HTTP 200, error -32602 "no"',
    )
    assert second["turns"][0]["answered"] == {"a": '{"action":"accept","content":{"ok":true}}'}
    by_proxy = inspection_data(details(*BY_PROXY))["interactions"][0]["turns"][0]
    assert by_proxy["answered_by"] == "rule 1"


def test_whole_data_add_definitions_and_final_responses() -> None:
    """What the outline leaves out is in them as canonical JSON."""
    call, page = inspection_data(
        details((CALL, asks("a")), (retry(CALL, {"a": YES}), text("x")), (get("/x"), b"x")),
        is_whole=True,
    )["interactions"]

    definition = json.loads(call["turns"][0]["asked"][0]["definition"])
    assert definition == {"mode": "form", "message": "a?"}
    assert call["final"]["kind"] == "result"
    assert json.loads(call["final"]["value"]) == text("x")
    assert page["final"] == {"kind": "text", "value": "x"}


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
    hostile = replace(shown, upstream=HOSTILE, recorded_at=HOSTILE, tool=HOSTILE, cassette=HOSTILE)

    assert_harmless(inspection_text(hostile))
    assert_harmless(review_text(hostile))
    assert inspection_text(hostile).count("\n") == inspection_text(shown).count("\n")


# Diagrams


def drawn(cassette: CassetteDetails) -> list[str]:
    """Return the lines of a diagram, without what stands around the arrows."""
    first, second, *lines, last = diagram(cassette).splitlines()
    assert (first, second, last) == ("```mermaid", "sequenceDiagram", "```")
    assert lines[:2] == ["    participant client", "    participant server"]
    return [line.strip() for line in lines[2:]]


def test_call_that_asks_is_drawn_turn_by_turn() -> None:
    """Each ask and each answer is an arrow; several questions are named without their words."""
    assert drawn(
        details(
            (CALL, asks("a")),
            (retry(CALL, {"a": YES}), asks("b", "c", state="x" * 40)),
            (retry(CALL, {"b": YES, "c": 5}, state="x" * 40), asks(state="y" * 40)),
            (retry(CALL, state="y" * 40), text("done")),
        )
    ) == [
        "client->>server: #35;1 tools/call #34;deploy#34;",
        "server-->>client: asks a (form)#58; a?",
        "client->>server: accept",
        "server-->>client: asks b (form), c (form)",
        "client->>server: b#58; accept, c#58; answer",
        "server-->>client: asks for a retry",
        "client->>server: retry",
        "server-->>client: result",
    ]
    assert drawn(details((CALL, asks("a"))))[1:] == ["server-->>client: asks a (form)#58; a?"]
    assert drawn(details_of(asked_once(elicit(), NO, CALL, text("x"))))[1:3] == [
        "server-->>client: asks elicitation-1 (form)#58; Deploy?",
        "client->>server: decline",
    ]


def test_calls_that_ask_come_before_others() -> None:
    """There is room for twelve arrows: calls without questions fill what others leave."""
    script: list[Step] = [(tool(f"plain-{number}"), text("x")) for number in range(9)]
    script += [(CALL, asks("a")), (retry(CALL, {"a": YES}), text("done"))]
    lines = drawn(details(*script))

    arrows = [line for line in lines if "->>" in line]
    assert len(arrows) == MOST_ARROWS
    assert arrows[0] == "client->>server: #35;1 tools/call #34;plain-0#34;"
    assert arrows[-4] == "client->>server: #35;10 tools/call #34;deploy#34;"
    assert lines[-1] == "Note over client,server: and 5 more calls"


def test_long_call_is_cut() -> None:
    """A call with more turns than there is room for ends with a note."""
    script: list[Step] = [(CALL, asks("k0"))]
    script += [(retry(CALL, {f"k{at}": YES}), asks(f"k{at + 1}")) for at in range(8)]
    lines = drawn(details(*script, (tool("other"), text("x"))))

    assert len([line for line in lines if "->>" in line]) == MOST_ARROWS
    assert lines[-2:] == [
        "Note over client,server: #35;1 goes on",
        "Note over client,server: and 1 more call",
    ]


def test_texts_are_no_part_of_the_diagram() -> None:
    """Nothing recorded is Mermaid, HTML, or the end of the block."""
    words = "```\n<img src=x onerror=alert(1)>; end %%{init}%% #59; " + HOSTILE
    ask = asks("a")
    ask["inputRequests"] = {"a": form(words)}
    lines = drawn(
        details((tool(words), ask), (retry(tool(words), {"a": {"action": words}}), text("x")))
    )

    assert_harmless("\n".join(lines))
    for line in lines:
        _, _, shown = line.partition(": ")
        assert re.fullmatch(r"[\w ,.?!'()/_=+*-]*", re.sub(r"#\d+;", "", shown)), line


def test_json_is_indented_for_people() -> None:
    """A value is shown with its members in their order, each number as it was, and all printable."""
    value = parse('{"b":[1.50,{}],"a":{"ü":null},"c":[],"d":"\\u202e\\u0001"}'.encode())

    assert json_text(value) == (
        '{\n  "b": [\n    1.5,\n    {}\n  ],\n  "a": {\n    "ü": null\n  },\n  "c": [],\n'
        '  "d": "\\u202e\\u0001"\n}'
    )
