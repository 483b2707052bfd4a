"""Facts about a cassette as text, as data and as a diagram."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
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
from goldens import DATA, read_case
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, array_asks, asks, form, text
from pushing import asked_once, branched, elicit
from tasking import task_steps

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.details import CassetteDetails, details_of
from mrtr_cassette.core.report.text import (
    diagram,
    inspection_data,
    inspection_text,
    json_text,
    review_text,
)
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.core.wire.jsonbytes import parse

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
UNUSUAL: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), refusal(CALL, -32602, "no")),
    (tool("other"), {"resultType": "input_required", "inputRequests": {"b": {"method": "sampling/createMessage", "params": {"maxTokens": 9}}}}),
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
)  # fmt: skip
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
            (post(retry(CALL, {"a": YES}), ("Mrtr-Cassette-Answered-By", "rule 1")), text("x")),
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
    "inspect --markdown": diagram,
}


@pytest.mark.parametrize("name", CASSETTES)
def test_cassette_is_shown(name: str, *, updates_goldens: bool) -> None:
    """In short, whole, for programs and drawn: the sections of a file say how."""
    shown, path = details_of(CASSETTES[name]), DATA / "reports" / f"{name}.case"
    for title in (section.title for section in read_case(path).sections if section.title):
        read_case(path).expect(title, f"{FORMS[title](shown)}\n", updates=updates_goldens)


def details(*script: Step) -> CassetteDetails:
    """Return what is on a script's cassette."""
    return details_of(loaded(cassette_of(*script), "talk.json"))


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
    shown = diagram(details((tool(words), ask), (answered, text("x"))))

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
