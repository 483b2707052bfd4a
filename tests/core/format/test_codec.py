from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from builders import (
    cassette_of,
    decode_cassette,
    encode_cassette,
    loaded,
    retry,
    tool,
    without_digests,
)
from messages import asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.format.codec import schema
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
TALK = (
    (CALL, asks("ok", state="S" * 30)),
    (retry(CALL, {"ok": 1}, state="S" * 30), text("done")),
    (retry(CALL, {"ok": 2}, state="S" * 30), text("left")),
)


def test_cassette_comes_back() -> None:
    """A written cassette is read as it was, and written as it was read."""
    cassette = cassette_of(*TALK)
    written = encode_cassette(cassette)

    assert decode_cassette(written, "f") == cassette
    assert encode_cassette(decode_cassette(written, "f")) == written
    assert written.endswith(b"\n}\n")
    assert b'\n  "version": 1,\n' in written


def edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the file of a talk after an edit by hand."""
    tree = without_digests(json.loads(encode_cassette(cassette_of(*TALK))))
    change(tree)
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"^f: the file is empty; record it again$"),
        (b" \n", r"^f: the file is empty; record it again$"),
        (b"{", r"^f: not JSON: .*; the file is damaged or no cassette; restore it"),
        (b"\xff", r"^f: not JSON: "),
        (b"[" * 100_000, r"^f: not JSON: "),
        (b'{"version":1,"interactions":"\\ud800"}', r"^f: not JSON: "),
        (b"[]", r"^f: JSON, but no mrtr-cassette file"),
        (b"null", r"^f: JSON, but no mrtr-cassette file"),
        (b'{"interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":1}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":true,"interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":1.0,"interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":"1","interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (
            b'{"version":2,"interactions":[]}',
            r"^f: cassette version 2, and this program reads version 1; update mrtr-cassette$",
        ),
        (
            b'{"version":0,"interactions":[]}',
            r"^f: cassette version 0, and this program reads version 1; record it again$",
        ),
        (b'{"version":1,"interactions":[]}', r"^f: at /upstream: field required(;|$)"),
        (
            edited(lambda tree: tree.update(upstream=5)),
            r"^f: at /upstream: input should be a valid string, found 5(;|$)",
        ),
        (
            edited(lambda tree: tree.update({"a/b": "x" * 300})),
            r"^f: at /a~1b: extra inputs are not permitted, found 'x{199}… \(102 more characters\)(;|$)",
        ),
        (
            edited(lambda tree: tree["interactions"][0]["request"]["http"].pop("path")),
            r"^f: at /interactions/0/request/http/path: field required(;|$)",
        ),
        (
            edited(
                lambda tree: tree["interactions"][0].update(
                    reqest=tree["interactions"][0].pop("request"), other=1
                )
            ),
            r"^f: at /interactions/0/request: field required; without a meaning there: `reqest`, `other`;",
        ),
        (
            edited(lambda tree: tree["interactions"][0]["response"].update(status="200")),
            r"^f: at /interactions/0/response/status: input should be a valid integer, found '200'(;|$)",
        ),
        (
            encode_cassette(cassette_of(*TALK)).replace(b'"request": {', b'"request": {{', 1),
            r"^f: not JSON: .* line \d+ column \d+ .*; the file is damaged",
        ),
        (
            edited(lambda tree: tree["recording"].update(sha256="x")),
            r"^f: at /recording/sha256: string should match pattern",
        ),
        (
            edited(lambda tree: tree["interactions"][1]["branch"].update(of=2)),
            r"^f: at /interactions/1/branch/of: 2 is no earlier interaction(;|$)",
        ),
        (
            edited(lambda tree: tree["interactions"][1]["branch"].update(turn=2)),
            r"^f: at /interactions/1/branch/turn: interaction 2 has no such turn(;|$)",
        ),
        (
            edited(
                lambda tree: (
                    tree["interactions"][1]["branch"].update(turn=2),
                    tree["interactions"][1]["elicitation_turns"].append(
                        tree["interactions"][1]["elicitation_turns"][0]
                    ),
                )
            ),
            r"^f: at /interactions/1/branch/turn: interaction 1 has no such turn(;|$)",
        ),
    ],
)
def test_file_that_is_no_whole_cassette_is_refused(data: bytes, message: str) -> None:
    """An error names file, place and reason, and what can be done."""
    with pytest.raises(CassetteError, match=message):
        decode_cassette(data, "f")


INDENTED = orjson.OPT_INDENT_2


@pytest.mark.parametrize("option", [None, INDENTED, INDENTED | orjson.OPT_SORT_KEYS])
@pytest.mark.parametrize("script", [(), TALK])
def test_file_is_the_same_however_it_is_spelled(script: Sequence[Any], option: int | None) -> None:
    """Spaces and the order of members don't count."""
    cassette = cassette_of(*script)
    tree = orjson.loads(encode_cassette(cassette))

    assert decode_cassette(orjson.dumps(tree, option=option), "f") == cassette


@pytest.mark.parametrize("option", [None, INDENTED, INDENTED | orjson.OPT_SORT_KEYS])
@pytest.mark.parametrize(
    ("place", "pointer"),
    [
        (("interactions", 1, "response", "status"), "/interactions/1/response/status"),
        (("recording", "exchanges", 2, "number"), "/recording/exchanges/2/number"),
        (("recording", "tool"), "/recording/tool"),
    ],
)
def test_wrong_value_is_named_by_its_place(
    place: Sequence[str | int], pointer: str, option: int | None
) -> None:
    """However the file is spelled, the error says where in it the value is."""
    tree = orjson.loads(encode_cassette(cassette_of(*TALK)))
    inner = tree
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = []

    with pytest.raises(CassetteError, match=rf"^f: at {pointer}: .*, found an array"):
        decode_cassette(orjson.dumps(tree, option=option), "f")


@pytest.mark.parametrize("broken", [b'"number":2', b'"status": 200'])
@pytest.mark.parametrize("calls", [2, 100])
def test_damage_within_a_list_is_told_as_that_of_the_file(broken: bytes, calls: int) -> None:
    """What is no JSON in one item makes the file no JSON, at its place in the file."""
    whole = dump(loaded(cassette_of(*[(CALL, text("done"))] * calls)))
    before, _, after = whole.rpartition(broken)
    data = before + broken.replace(b":", b"") + after

    with pytest.raises(CassetteError, match=r"^f: not JSON: .*line \d+") as raised:
        decode_cassette(data, "f")
    line = before.count(b"\n") + 1
    assert f"line {line} " in str(raised.value)


@pytest.mark.parametrize("depth", [250, 500, 990, 1_010])
def test_file_of_a_wrong_type_is_refused_however_deep(depth: int) -> None:
    """A wrong value that is nested deeply is an error like any other."""
    tree = json.loads(encode_cassette(cassette_of(*TALK)))
    tree["interactions"] = [0]
    data = json.dumps(tree).replace("[0]", f"[{'[' * depth}{']' * depth}]").encode()

    with pytest.raises(CassetteError, match=r"^f: "):
        decode_cassette(data, "f")


@pytest.mark.parametrize(
    "change",
    [
        lambda turns, _: turns.insert(0, {"ask": turns[0]["ask"]}),
        lambda turns, _: turns[0].pop("answer"),
    ],
    ids=["turn without answer before another", "response after a turn without answer"],
)
def test_file_whose_turns_cannot_have_happened_is_refused(
    change: Callable[[list[Any], Any], object],
) -> None:
    """Only the last turn may lack an answer, and then there is no response: none is ignored."""
    data = edited(
        lambda tree: (
            tree["interactions"].pop(),
            change(tree["interactions"][0]["elicitation_turns"], tree),
        )
    )
    with pytest.raises(CassetteError, match=r"^f: at /interactions/0/"):
        decode_cassette(data, "f")


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"patterns": ["("]}, "no regular expression"),
        ({"patterns": ["a{99999999999999999999}"]}, "no regular expression"),
        ({"patterns": ["(?=a)"]}, "'\\(\\?=a\\)' is no regular expression"),
        ({"patterns": ["(" * 500 + "a*" + ")" * 500]}, "matches the empty text"),
        ({"disabled": ["cursor"]}, "'cursor'"),
    ],
)
def test_file_whose_rules_cannot_be_meant_is_refused(
    rules: dict[str, list[str]], named: str
) -> None:
    """Rules of redaction that were damaged by hand are an error that names them."""
    tree = orjson.loads(encode_cassette(cassette_of((tool("x"), text("y")), redacts=True)))
    tree["redaction"].update(rules)

    with pytest.raises(CassetteError, match=rf"f\.json: at /redaction: .*{named}"):
        decode_cassette(orjson.dumps(tree), "f.json")


def test_response_after_an_unanswered_later_turn_is_refused() -> None:
    """Of several turns it is the last that ends an interaction."""
    script = [
        (CALL, asks("a")),
        (retry(CALL, {"a": 1}), asks("b")),
        (retry(CALL, {"b": 1}), text("done")),
    ]
    tree = json.loads(encode_cassette(cassette_of(*script)))
    del tree["interactions"][0]["elicitation_turns"][1]["answer"]

    with pytest.raises(CassetteError, match=r"^f: at /interactions/0/response"):
        decode_cassette(json.dumps(tree).encode(), "f")


def test_branch_of_a_turn_that_it_does_not_answer_is_refused() -> None:
    """A branch without an answer of its own is no interaction."""

    def cut(tree: dict[str, Any]) -> None:
        del tree["interactions"][1]["elicitation_turns"][0]["answer"]
        del tree["interactions"][1]["response"]

    with pytest.raises(CassetteError, match=r"^f: at /interactions/1/"):
        decode_cassette(edited(cut), "f")


def test_schema_names_what_the_file_has() -> None:
    """The published schema speaks of cassettes and interactions, not of the code's models."""
    published = json.loads(schema())

    assert published["$id"] == json.loads(encode_cassette(cassette_of(*TALK)))["$schema"]
    assert {"EventModel", "InteractionModel"}.isdisjoint(published["$defs"])
    assert {"Event", "Interaction"} <= published["$defs"].keys()


@pytest.mark.parametrize(
    ("interaction", "turn", "change", "place"),
    [
        (1, 0, lambda turn: turn["ask"].update(events=[]), "ask/events: "),
        (1, 0, lambda turn: turn["ask"]["events"][0].update(event=-1), "ask/events/0/event: "),
        (1, 0, lambda turn: turn["ask"]["events"][1].update(key="elicitation-1"), "ask/events/1/"),
        (1, 0, lambda turn: turn["answer"]["responses"][0].update(key="x"), "answer/responses/0/"),
        (1, 0, lambda turn: turn["answer"]["responses"].reverse(), None),
        (1, 0, lambda turn: turn.update(via="task"), "`via` should be"),
        (1, 2, lambda turn: turn.update(via=7), "`via` should be"),
        (1, 2, lambda turn: turn.pop("via"), None),
    ],
)
def test_pushed_turn_is_checked(
    interaction: int, turn: int, change: Callable[[Any], object], place: str | None
) -> None:
    """An error names the place within a turn, which may be of either kind."""
    tree = without_digests(json.loads(dump(branched())))
    change(tree["interactions"][interaction]["elicitation_turns"][turn])
    data = json.dumps(tree).encode()
    if place is None:
        decode_cassette(data, "f")
        return

    at = rf"^f: at /interactions/{interaction}/elicitation_turns/{turn}(/|: ){place}"
    with pytest.raises(CassetteError, match=at):
        decode_cassette(data, "f")


@pytest.mark.parametrize("turn", [1, 2, 4])
def test_branch_of_a_pushed_turn_is_refused(turn: int) -> None:
    """A branch answers a result in another way, after the same turns of both kinds."""
    tree = without_digests(json.loads(dump(branched())))
    tree["interactions"][2]["branch"]["turn"] = turn

    with pytest.raises(CassetteError, match=r"^f: at /interactions/2/branch/turn: "):
        decode_cassette(json.dumps(tree).encode(), "f")
