from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    cassette_of,
    get,
    loaded,
    retry,
    sse,
    tool,
    values_of,
)
from messages import NO, YES, asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedBy, RecorderFacts
from mrtr_cassette.core.format.dump import dump, dump_pieces, response_text
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
TALK = (
    (CALL, asks("ok", state="S" * 30)),
    (retry(CALL, {"ok": YES}, state="S" * 30), text("done")),
    (retry(CALL, {"ok": NO}, state="S" * 30), asks("again")),
    (retry(CALL, {"ok": YES}, state="T" * 30), text("refused")),
    (get("/mcp", ("Accept", "a"), ("Accept", "b")), Answer((b"\xff", b"x"), end=End.OPEN)),
    (tool("flow"), Answer((sse(b"{}"), b": ping\n\n"), STREAM_HEADERS, end=End.BROKEN)),
    (tool("gone"), Answer((), status=0, end=End.OPEN)),
)


def values(cassette: Cassette) -> Any:
    """Return what is known of a recording, for comparing."""
    interactions = [
        (each.number, each.branch, each.is_orphan, list(map(values_of, each.exchanges)))
        for each in cassette.interactions
    ]
    return replace(cassette, path="", interactions=()), interactions


@pytest.mark.parametrize("script", [(), TALK[:1], TALK])
def test_what_was_dumped_is_loaded(script: Sequence[Any]) -> None:
    """A recording comes back from its file, and its file from the recording."""
    cassette = loaded(cassette_of(*script))

    assert values(load(dump(cassette), "f")) == values(cassette)
    assert dump(load(dump(cassette), "f")) == dump(cassette)


def test_client_comes_back() -> None:
    """The process that started a recorder over pipes is told by its hash."""
    cassette = replace(loaded(cassette_of()), transport="stdio", client="0" * 64)
    assert load(dump(cassette), "f").client == "0" * 64


def test_rules_and_sealed_answers_come_back() -> None:
    """What a file says of its recording is what the recording said."""
    rules = RedactionRules(("x+y",), ("pin",), ("jwt",))
    cassette = replace(loaded(cassette_of(*TALK)), redaction=rules, seals_answers=True)

    assert values(load(dump(cassette), "f")) == values(cassette)


@pytest.mark.parametrize("script", [(), TALK])
def test_file_is_indented_and_has_one_exchange_a_line(script: Sequence[Any]) -> None:
    """A person reads the interactions and skips the recording block."""
    data = dump(loaded(cassette_of(*script)))
    tree = json.loads(data)
    before, block = data.split(b'  "recording": ')
    head = {key: value for key, value in tree.items() if key != "recording"}

    assert orjson.dumps(head, option=orjson.OPT_INDENT_2).removesuffix(b"\n}") + b",\n" == before
    lines = [line for line in block.split(b"\n") if line.startswith(b"      {")]
    assert [json.loads(line.rstrip(b",")) for line in lines] == tree["recording"]["exchanges"]
    assert len(lines) == len(script)
    assert data.endswith(b"]\n  }\n}\n")


def test_interactions_are_asked_for_one_at_a_time() -> None:
    """What has been written is not needed any more, however many there are."""
    cassette = loaded(cassette_of(*TALK))
    given = []

    def interactions() -> Any:
        for interaction in cassette.interactions:
            given.append(interaction.number)
            yield interaction

    pieces = dump_pieces(cassette, interactions())
    next(pieces)
    for count in range(1, len(cassette.interactions) + 1):
        next(pieces)
        assert len(given) == count


def test_pushed_turns_stand_before_what_they_held_up() -> None:
    """A turn names the events that asked, here or in another interaction, and has the answers."""
    _, first, branch = json.loads(dump(branched()))["interactions"]

    pushed, unanswered, result = first["elicitation_turns"]
    assert [each["via"] for each in first["elicitation_turns"]] == ["push", "push", "result"]
    assert pushed["ask"]["events"] == [
        {"key": "elicitation-1", "event": 0},
        {"key": "roots-1", "interaction": 1, "event": 1},
    ]
    responses = pushed["answer"]["responses"]
    assert [each["key"] for each in responses] == ["roots-1", "elicitation-1"]
    assert responses[0]["request"]["http"]["method"] == "POST"
    assert responses[0]["response"] == {"status": 202, "headers": {}}
    assert "answer" not in unanswered
    assert list(result) == ["via", "ask", "answer"]
    assert [each["via"] for each in branch["elicitation_turns"]] == [
        "push",
        "push",
        "result",
        "push",
    ]


def test_posted_answers_have_facts() -> None:
    """Each exchange is in the recording block, with its place and when it ended."""
    exchanges = json.loads(dump(branched()))["recording"]["exchanges"]

    assert [
        (each["number"], each["interaction"], each["turn"], each.get("answer"), each["ended_after"])
        for each in exchanges
    ] == [
        (1, 1, 0, None, 1),
        (2, 2, 0, None, 2),
        (3, 2, 1, 0, 3),
        (4, 2, 1, 1, 4),
        (5, 2, 3, None, 5),
        (6, 3, 3, None, 6),
        (7, 3, 4, 0, 7),
    ]


def test_a_response_alone_is_spelled_as_in_the_file():
    """Its text stands in the file of its cassette, indented as deep."""
    cassette = loaded(cassette_of((tool("a"), text("b"))))
    response = cassette.interactions[0].exchanges[0].response
    assert b'"response": ' + response_text(response, 3) in dump(cassette)


def of_recorders(*numbers: int) -> Cassette:
    """Return a cassette of several recorders, of which these saw the exchanges in turn."""
    cassette = loaded(cassette_of((tool("a"), text("b")), (tool("c"), text("d"))))
    owners = [RecordedBy(f"recorder {number}", 1) for number in numbers]
    interactions = tuple(
        replace(each, exchanges=(replace(each.exchanges[0], recorded_by=owner),))
        for each, owner in zip(cassette.interactions, owners, strict=True)
    )
    recorders = RecorderFacts("recorder 1", 7.4), RecorderFacts("recorder 2", 8.6, 1.2)
    return replace(cassette, interactions=interactions, recorders=recorders)


def test_recorders_and_their_exchanges_come_back() -> None:
    """In whole milliseconds; the first recorder and a number that is the same are left out."""
    tree = json.loads(dump(of_recorders(1, 2)))
    first, second = tree["recording"]["exchanges"]

    assert tree["recording"]["recorders"] == [
        {"id": "recorder 1", "wall_ms": 7},
        {"id": "recorder 2", "wall_ms": 9, "offset_ms": 1},
    ]
    assert not first.keys() & {"recorder", "own_number"}
    assert (second["recorder"], second["own_number"]) == (2, 1)
    again = load(dump(of_recorders(1, 2)), "f")
    assert [each.own[0].recorded_by for each in again.interactions] == [
        RecordedBy("recorder 1", 1),
        RecordedBy("recorder 2", 1),
    ]
    assert again.recorders[1] == RecorderFacts("recorder 2", 9, 1)


def test_exchange_of_no_recorder_of_the_file_is_one_of_the_first() -> None:
    """Where a response was replaced by that of another recording."""
    cassette = replace(of_recorders(1, 2), recorders=())

    exchanges = json.loads(dump(cassette))["recording"]["exchanges"]

    assert not any(each.keys() & {"recorder", "own_number"} for each in exchanges)
