from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import answer, cassette_of, loaded, response_of, retry, stream, tool
from messages import YES, Json, asks, text

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.format.replacing import with_responses
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy")
RETRY = retry(CALL, {"a": YES})
LATER_ASK = {**asks("a"), "ttlMs": 5}
SCRIPT = ((CALL, asks("a")), (RETRY, text("done")), (tool("b"), text("b")))


def recorded() -> tuple[bytes, Cassette]:
    """Return a file, and the cassette in it."""
    data = dump(loaded(cassette_of(*SCRIPT), "f"))
    return data, load(data, "f")


@pytest.mark.parametrize(
    ("position", "result", "script"),
    [
        (1, text("later"), (SCRIPT[0], (RETRY, text("later")), SCRIPT[2])),
        (0, LATER_ASK, ((CALL, LATER_ASK), SCRIPT[1], SCRIPT[2])),
        (0, text("at once"), ((CALL, text("at once")), SCRIPT[2])),
    ],
    ids=["result", "ask", "ask that is gone"],
)
def test_a_new_response_stands_as_if_it_had_been_recorded(
    position: int, result: Json, script: tuple[tuple[bytes, Json], ...]
) -> None:
    """Outside the recording block the file is that of a recording with the new response."""
    data, cassette = recorded()
    exchange = cassette.interactions[0].exchanges[position]
    request = RETRY if position else CALL
    new = with_responses(data, cassette, {exchange: response_of(answer(request, result))})
    head, separator, recording = new.partition(b'\n  "recording"')

    other = [(request, response) for request, response in script]
    alone = dump(loaded(cassette_of(*other), "f")).partition(separator)[0]
    assert head.replace(b"mrtr-cassette", b"") == alone.replace(b"mrtr-cassette", b"")
    assert b'"sha256"' in recording
    assert len(load(new, "f").interactions) == 2


def test_a_call_without_response_gets_one() -> None:
    """What the client had left has a response then."""
    data, cassette = recorded()
    lines = data.decode().split("\n")
    assert sum('"response": {' in line for line in lines) == 2
    last = cassette.interactions[1]
    exchange = replace(last.exchanges[0], response=None)
    silent = replace(
        cassette,
        interactions=(cassette.interactions[0], replace(last, exchanges=(exchange,))),
    )
    file = dump(silent)
    again = load(file, "f")
    response = response_of(answer(tool("b"), text("b")))
    new = with_responses(file, again, {again.interactions[1].exchanges[0]: response})
    assert load(new, "f").interactions[1].exchanges[0].response is not None


def test_what_is_wrong_in_the_file_is_told() -> None:
    """A response that no cassette can have is an error with its place."""
    data, cassette = recorded()
    exchange = cassette.interactions[1].exchanges[0]
    wrong = replace(response_of(answer(tool("b"), text("b"))), status=99)
    with pytest.raises(CassetteError, match="/interactions/1/response/status"):
        with_responses(data, cassette, {exchange: wrong})


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stream_has_a_time_for_each_event(count: int) -> None:
    """Events that are new come with the last recorded one."""
    recorded = loaded(cassette_of((CALL, stream(*[answer(CALL, text("a"))] * 2))), "f")
    data = dump(recorded)
    cassette = load(data, "f")
    response = response_of(stream(*[answer(CALL, text("b"))] * count))
    new = with_responses(data, cassette, {cassette.interactions[0].exchanges[0]: response})
    (facts,) = json.loads(new)["recording"]["exchanges"]
    assert len(facts["pieces"]) == count
    assert (
        facts["pieces"][-1]
        == json.loads(data)["recording"]["exchanges"][0]["pieces"][min(count, 2) - 1]
    )


def test_an_ask_that_nobody_answered_may_end_the_call() -> None:
    """The turns that came before it stay as they are spelled."""
    again = retry(RETRY, {"b": YES}, number=3)
    data = dump(loaded(cassette_of(SCRIPT[0], (RETRY, asks("b")), (again, text("a"))), "f"))
    cassette = load(data, "f")
    exchange = cassette.interactions[0].exchanges[1]
    new = with_responses(data, cassette, {exchange: response_of(answer(RETRY, text("done")))})
    alone = dump(loaded(cassette_of(*SCRIPT[:2]), "f"))
    assert new.partition(b'"recording"')[0] == alone.partition(b'"recording"')[0]
