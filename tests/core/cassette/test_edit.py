"""Facts about edited cassettes: edits by hand that are accepted, and responses that are replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from builders import (
    Answer,
    answer,
    cassette_of,
    encode_cassette,
    loaded,
    response_of,
    retry,
    stream,
    tool,
)
from messages import YES, Json, asks, text

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import accept_edit, load
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.drive.kept_names import with_times_of
from mrtr_cassette.core.wire.http import Response
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
    """Return the file after an edit of its interactions."""
    tree = json.loads(written())
    change(tree["interactions"])
    return orjson.dumps(tree)


def facts_of(data: bytes) -> str:
    """Return number, interaction and turn of each exchange."""
    words = []
    for facts in json.loads(data)["recording"]["exchanges"]:
        words.append(f"{facts['number']}:{facts['interaction']}.{facts['turn']}")

    return " ".join(words)


def change_id(interactions: list[Any]) -> None:
    """Edit a response."""
    interactions[0]["response"]["body"].update(id=7)


def tool_of(interaction: Any) -> Any:
    """Return a copy of an interaction, as of another call."""
    copy = json.loads(json.dumps(interaction))
    copy["request"]["body"]["id"] = 9
    return copy


@pytest.mark.parametrize(
    ("change", "count", "facts"),
    [
        (change_id, 1, "1:1.0 2:2.0 3:2.1 4:3.0 5:4.0"),
        (lambda them: them.pop(1), 4, "1:1.0 4:2.0 5:3.0"),
        (lambda them: them.pop(), 1, "1:1.0 2:2.0 3:2.1 4:3.0"),
        (lambda them: them.insert(0, them.pop(2)), 4, "1:2.0 2:3.0 3:3.1 4:1.0 5:4.0"),
        (lambda them: (them.pop(0), change_id(them)), 5, "2:1.0 3:1.1 4:2.0 5:3.0"),
        (
            lambda them: them.insert(1, tool_of(them[3])),
            4,
            "1:1.0 2:3.0 3:3.1 4:4.0 5:5.0",
        ),
    ],
    ids=["edited", "removed", "last removed", "moved", "removed, edited", "added"],
)
def test_accepted_edit_loads(
    change: Callable[[list[Any]], object], count: int, facts: str
) -> None:
    """An edit is refused until it is accepted; the facts go with their exchanges."""
    data = edited(change)
    with pytest.raises(CassetteError, match="mrtr-cassette check f --fix"):
        load(data, "f")

    accepted, changed = accept_edit(data, "f")

    assert (changed, facts_of(accepted)) == (count, facts)
    assert json.loads(accepted)["interactions"] == json.loads(data)["interactions"]

    load(accepted, "f")

    assert accept_edit(accepted, "f") == (accepted, 0)


@pytest.mark.parametrize(
    "spelled", [json.dumps, lambda tree: json.dumps(tree, indent=3)]
)
def test_other_spelling_needs_no_new_digests(spelled: Callable[[Any], str]) -> None:
    """Digests cover values, so reformatting a file is no edit."""
    members = json.loads(written()).items()
    data = spelled(dict(reversed(members))).encode()

    assert accept_edit(data, "f") == (written(), 0)
    assert dump(load(data, "f")) == written()


def test_cassette_without_digests_gets_them() -> None:
    """A file that was written by hand is read without digests, and has them once it is accepted."""
    tree = json.loads(written())
    for facts in tree["recording"]["exchanges"]:
        del facts["sha256"]

    data = orjson.dumps(tree)
    load(data, "f")

    assert accept_edit(data, "f") == (written(), 5)


# Responses in the place of recorded ones

DEPLOY = tool("deploy")
AGAIN = retry(DEPLOY, {"a": YES})
LATER_ASK = {**asks("a"), "ttlMs": 5}
OTHER = (tool("b"), text("b"))
SCRIPT = ((DEPLOY, asks("a")), (AGAIN, text("done")), OTHER)


def recorded(*script: Any) -> Cassette:
    """Return the cassette of a talk, as its file has it."""
    return load(dump(loaded(cassette_of(*script))), "f")


def with_response(
    cassette: Cassette, exchange: RecordedExchange, response: Response
) -> bytes:
    """Return the file of a cassette with another response in the time of a recorded one."""
    new = replace(exchange, response=with_times_of(exchange, response))
    return dump(cassette.with_exchanges({exchange: new}))


def shown(data: bytes) -> bytes:
    """Return the file up to the recording block."""
    return data.partition(b'"recording"')[0]


@pytest.mark.parametrize(
    ("script", "position", "result", "expected"),
    [
        (SCRIPT, 1, text("later"), (SCRIPT[0], (AGAIN, text("later")), OTHER)),
        (SCRIPT, 0, LATER_ASK, ((DEPLOY, LATER_ASK), SCRIPT[1], OTHER)),
        (
            ((DEPLOY, Answer((), status=0)),),
            0,
            text("at last"),
            ((DEPLOY, text("at last")),),
        ),
    ],
    ids=["result", "ask", "no response before"],
)
def test_a_new_response_stands_as_if_it_had_been_recorded(
    script: Any, position: int, result: Json, expected: Any
) -> None:
    """Outside the recording block the file is that of a recording with the new response."""
    cassette = recorded(*script)
    exchange = cassette.interactions[0].exchanges[position]
    new = response_of(answer(AGAIN if position else DEPLOY, result))

    data = with_response(cassette, exchange, new)

    assert shown(data) == shown(dump(recorded(*expected)))

    load(data, "f")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stream_has_a_time_for_each_event(count: int) -> None:
    """Events that are new come with the last recorded one."""
    old_event = answer(DEPLOY, text("a"))
    new_event = answer(DEPLOY, text("b"))
    cassette = recorded((DEPLOY, stream(old_event, old_event)))
    exchange = cassette.interactions[0].exchanges[0]
    new = response_of(stream(*[new_event] * count))
    written = load(with_response(cassette, exchange, new), "f")
    changed = written.interactions[0].exchanges[0]

    assert exchange.response is not None
    assert changed.response is not None

    first_time, last_time = [piece[1:] for piece in exchange.response.pieces]
    expected = [first_time, last_time, last_time]

    assert [piece[1:] for piece in changed.response.pieces] == expected[:count]
