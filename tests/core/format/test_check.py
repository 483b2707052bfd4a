from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from builders import cassette_of, encode_cassette, retry, tool
from messages import NO, YES, asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.format.check import accept_edit
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.core.format.load import load
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
TALK = (
    (tool("one"), text("1")),
    (CALL, asks("ok", state="S" * 30)),
    (retry(CALL, {"ok": YES}, state="S" * 30), text("done")),
    (tool("three"), text("3")),
    (tool("four"), text("4")),
)


def written() -> bytes:
    """Return the file of a talk, as it was recorded."""
    return dump(load(encode_cassette(cassette_of(*TALK)), "f"))


def edited(change: Callable[[list[Any]], object]) -> bytes:
    """Return the file after an edit of its interactions, otherwise spelled as it was."""
    tree = json.loads(written())
    change(tree["interactions"])
    text_before, block = written().split(b'  "recording": ')
    head = orjson.dumps(
        {key: value for key, value in tree.items() if key != "recording"},
        option=orjson.OPT_INDENT_2,
    )
    assert text_before.startswith(head[:60])
    return head.removesuffix(b"\n}") + b',\n  "recording": ' + block


def facts_of(data: bytes) -> list[tuple[int, int, int]]:
    """Return number, interaction and turn of each exchange."""
    return [
        (each["number"], each["interaction"], each["turn"])
        for each in json.loads(data)["recording"]["exchanges"]
    ]


def test_cassette_as_it_was_recorded_stays() -> None:
    """Where nothing was edited nothing changes."""
    accepted = accept_edit(written(), "f")

    assert accepted.data == written()
    assert (accepted.edited, accepted.moved, accepted.removed) == (0, 0, 0)


@pytest.mark.parametrize(
    ("change", "counts", "facts"),
    [
        (
            lambda interactions: interactions[0]["response"]["body"].update(id=7),
            (1, 0, 0),
            [(1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 3, 0), (5, 4, 0)],
        ),
        (lambda interactions: interactions.pop(1), (0, 2, 2), [(1, 1, 0), (4, 2, 0), (5, 3, 0)]),
        (
            lambda interactions: interactions.pop(),
            (0, 0, 1),
            [(1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 3, 0)],
        ),
        (
            lambda interactions: interactions.insert(0, interactions.pop(2)),
            (0, 4, 0),
            [(1, 2, 0), (2, 3, 0), (3, 3, 1), (4, 1, 0), (5, 4, 0)],
        ),
        (
            lambda interactions: (
                interactions.pop(0),
                interactions[0]["response"]["body"].update(id=7),
            ),
            (1, 4, 1),
            [(2, 1, 0), (3, 1, 1), (4, 2, 0), (5, 3, 0)],
        ),
        (
            lambda interactions: interactions.insert(1, dict(interactions[3], orphan=True)),
            (0, 4, 0),
            [(1, 1, 0), (2, 3, 0), (3, 3, 1), (4, 4, 0), (5, 2, 0)],
        ),
    ],
    ids=["edited", "removed", "last removed", "moved", "removed and edited", "added"],
)
def test_accepted_edit_loads(
    change: Callable[[list[Any]], object],
    counts: tuple[int, int, int],
    facts: list[tuple[int, int, int]],
) -> None:
    """An edit is refused until it is accepted; the facts go with their exchanges."""
    data = edited(change)
    with pytest.raises(CassetteError, match="mrtr-cassette check f --fix"):
        load(data, "f")

    accepted = accept_edit(data, "f")

    assert (accepted.edited, accepted.moved, accepted.removed) == counts
    assert facts_of(accepted.data) == facts
    assert accepted.data.split(b'"recording": ')[0] == data.split(b'"recording": ')[0]
    load(accepted.data, "f")
    assert accept_edit(accepted.data, "f").data == accepted.data


@pytest.mark.parametrize("spelled", [json.dumps, lambda tree: json.dumps(tree, indent=3)])
def test_other_spelling_needs_no_new_digests(spelled: Callable[[Any], str]) -> None:
    """Digests cover values, so reformatting a file is no edit."""
    tree = json.loads(written())
    data = spelled(dict(reversed(tree.items()))).encode()

    assert [len(interaction.exchanges) for interaction in load(data, "f").interactions] == [
        1,
        2,
        1,
        1,
    ]
    accepted = accept_edit(data, "f")
    assert (accepted.edited, accepted.moved, accepted.removed) == (0, 0, 0)


def test_cassette_without_digests_gets_them() -> None:
    """A file that was written by hand is read without digests, and has them once it is accepted."""
    tree = json.loads(written())
    for each in tree["recording"]["exchanges"]:
        del each["sha256"]
    data = orjson.dumps(tree)
    load(data, "f")

    accepted = accept_edit(data, "f")

    assert accepted.edited == 5
    assert json.loads(accepted.data) == json.loads(written())


def test_branch_that_was_edited_on_one_side_is_not_accepted() -> None:
    """What only an editor can mend is refused, and named."""
    script = (*TALK, (retry(CALL, {"ok": NO}, state="S" * 30), text("left")))
    tree = json.loads(encode_cassette(cassette_of(*script)))
    branch = next(each for each in tree["interactions"] if "branch" in each)
    branch["request"]["body"]["id"] = 77

    with pytest.raises(CassetteError, match="not the same as in interaction 2"):
        accept_edit(orjson.dumps(tree), "f")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version":1,"interactions":[]}'])
def test_what_is_no_cassette_is_not_accepted(damage: bytes) -> None:
    """Accepting an edit mends digests and nothing else."""
    with pytest.raises(CassetteError, match=r"^f: "):
        accept_edit(damage, "f")


def test_facts_of_a_wrong_type_are_not_accepted() -> None:
    """A recording block that is no such thing is named by its place."""
    tree = json.loads(written())
    tree["recording"]["exchanges"][1] = 5

    with pytest.raises(CassetteError, match=r"^f: at /recording/exchanges/1"):
        accept_edit(orjson.dumps(tree), "f")


def test_facts_of_posted_answers_go_with_their_exchanges() -> None:
    """Answers to pushed requests keep their facts where their interaction moves or is edited."""
    data = dump(branched())
    tree = json.loads(data)
    tree["interactions"].insert(0, dict(tree["interactions"][0], orphan=True))
    tree["interactions"][3]["branch"]["of"] = 3
    for turn in (each for one in tree["interactions"] for each in one["elicitation_turns"]):
        for event in turn["ask"].get("events", ()):
            if "interaction" in event:
                event["interaction"] = 2
    edited_turn = tree["interactions"][3]["elicitation_turns"][3]
    edited_turn["answer"]["responses"][0]["request"]["body"]["id"] = 9

    accepted = accept_edit(orjson.dumps(tree), "f")

    exchanges = json.loads(accepted.data)["recording"]["exchanges"]
    assert [(each["interaction"], each["turn"], each.get("answer")) for each in exchanges] == [
        (1, 0, None),
        (3, 0, None),
        (3, 1, 0),
        (3, 1, 1),
        (3, 3, None),
        (4, 3, None),
        (4, 4, 0),
    ]
    assert (accepted.edited, accepted.removed) == (1, 0)
    load(accepted.data, "f")
