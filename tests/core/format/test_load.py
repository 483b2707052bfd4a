from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    answer,
    cassette_of,
    encode_cassette,
    get,
    post,
    progress,
    retry,
    rpc,
    sse,
    stream,
    tool,
    without_digests,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, asks, text
from pushed_cassettes import branched, pushing_cassettes, said_of_turns

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import End, Response
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), asks("b")),
    (tool("other"), Answer((), status=0, end=End.OPEN)),
)


def own_of(cassette: CassetteModel | bytes) -> list[tuple[RecordedExchange, ...]]:
    """Return the exchanges of each interaction that no earlier one has."""
    data = cassette if isinstance(cassette, bytes) else encode_cassette(cassette)
    return [interaction.own for interaction in load(data, "talk.json").interactions]


def the_response(cassette: CassetteModel | bytes) -> Response:
    """Return the response of the only exchange."""
    ((exchange,),) = own_of(cassette)
    assert exchange.response is not None
    return exchange.response


def edited(cassette: CassetteModel | bytes, *path: str | int, to: Any) -> bytes:
    """Return a file with one value changed by hand."""
    data = cassette if isinstance(cassette, bytes) else encode_cassette(cassette)
    tree = without_digests(json.loads(data))
    inner = tree
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return json.dumps(tree).encode()


@given(st.lists(st.sampled_from(["call", "turns", "branch"]), max_size=12))
def test_branch_begins_with_the_exchanges_that_it_shares(shapes: list[str]) -> None:
    """A branch finds the interaction that it parts from; nothing is loaded twice."""
    script: list[Any] = [(CALL, asks("a", state=STATE))]
    for number, shape in enumerate(shapes):
        if shape == "call":
            script.append((tool("other", n=number), text("done")))
        elif shape == "turns":
            asking = tool("other", n=number)
            script += [(asking, asks("b")), (retry(asking, {"b": number}), text("done"))]
        else:
            script.append((retry(CALL, {"a": number}, state=STATE), text("left")))

    cassette = load(encode_cassette(cassette_of(*script)), "talk.json")

    numbers = [each.number for one in cassette.interactions for each in one.own]
    assert sorted(filter(None, numbers)) == list(range(1, len(script) + 1))
    first = cassette.interactions[0]
    for interaction in cassette.interactions:
        if interaction.branch is not None:
            assert interaction.branch == Branch(1, 1)
            assert interaction.exchanges[0] is first.exchanges[0]
            assert len(interaction.exchanges) == 2


def test_facts_are_found_in_whatever_order_they_stand() -> None:
    """The facts of an exchange may stand anywhere in the list; some may be missing."""
    cassette = cassette_of(*BRANCHED)
    first, *others = [facts.model_dump() for facts in cassette.recording.exchanges]
    given = [*reversed(others), {**first, "interaction": 99, "sha256": None}]
    exchanges = own_of(edited(cassette, "recording", "exchanges", to=given))

    assert [each.number for own in exchanges for each in own] == [None, 2, 3, 4]


def test_facts_that_belong_to_nothing_have_to_be_right_too() -> None:
    """A cassette is checked whole, also where replay doesn't need it."""
    tree = without_digests(json.loads(encode_cassette(cassette_of(*BRANCHED))))
    tree["recording"]["exchanges"].append({"number": "five"})

    with pytest.raises(CassetteError, match=r"^talk\.json: at /recording/exchanges/4/number: "):
        load(json.dumps(tree).encode(), "talk.json")


def test_interactions_are_chains_of_exchanges() -> None:
    """Each interaction has its exchanges from the first request to the last response."""
    cassette = load(encode_cassette(cassette_of(*BRANCHED)), "talk.json")
    (ask, left), (shared, again), (other,) = (one.exchanges for one in cassette.interactions)

    assert shared is ask
    assert [one.number for one in cassette.interactions] == [1, 2, 3]
    assert [one.branch for one in cassette.interactions] == [None, Branch(1, 1), None]
    assert [each.number for each in (ask, left, again, other)] == [1, 2, 3, 4]
    assert [each.ask is not None for each in (ask, left, again, other)] == [
        True,
        False,
        True,
        False,
    ]
    assert other.response is None


def test_raw_states_are_known_by_hash() -> None:
    """An exchange knows the hash of the raw state that it issued or carried while recorded."""
    (ask, left), _, _ = own_of(cassette_of(*BRANCHED))

    assert (ask.issued_sha256, left.echoed_sha256) == (sha256_of(STATE),) * 2
    assert (ask.echoed_sha256, left.issued_sha256) == (None, None)


def test_times_count_from_the_beginning_of_the_recording() -> None:
    """An exchange's times, and those of its pieces, are on one scale."""
    cassette = cassette_of((CALL, text("x")), (rpc("tools/list"), stream(progress(1), progress(2))))
    _, (streamed,) = own_of(cassette)
    facts = cassette.recording.exchanges[1]

    assert facts.pieces is not None
    assert streamed.response is not None
    assert (streamed.started_ms, streamed.ended_ms) == (
        facts.started_ms,
        facts.started_ms + facts.duration_ms,
    )
    assert [piece.at_ms for piece in streamed.response.pieces] == [
        facts.started_ms + piece.at_ms for piece in facts.pieces
    ]


def test_head_of_the_cassette_is_loaded() -> None:
    """What the cassette says of itself comes with it."""
    model = cassette_of((CALL, text("x")), redacts=True, seals_answers=True)
    cassette = load(encode_cassette(model), "talk.json")

    assert isinstance(cassette, Cassette)
    assert (cassette.path, cassette.upstream) == ("talk.json", model.upstream)
    assert (cassette.request_state, cassette.seals_answers) == ("sealed", True)
    assert cassette.redaction == RedactionRules()
    assert (cassette.recorded_at, cassette.tool) == (
        model.recording.recorded_at,
        model.recording.tool,
    )


def test_progress_is_told_after_each_interaction() -> None:
    """Whoever waits for a large cassette can be told how far its load is."""
    told: list[tuple[int, int]] = []
    data = encode_cassette(cassette_of(*BRANCHED))
    load(data, "talk.json", progress=lambda *standing: told.append(standing))

    assert told == [(1, 3), (2, 3), (3, 3)]


def test_branch_that_was_edited_on_one_side_is_refused() -> None:
    """What two interactions share stands in both, and has to be the same."""
    arguments = ("interactions", 1, "request", "body", "params", "arguments", "env")

    with pytest.raises(CassetteError, match=r"at /interactions/1/request: not the same as in"):
        own_of(edited(cassette_of(*BRANCHED), *arguments, to="test"))


def test_bytes_come_back() -> None:
    """Requests and responses are the recorded bytes, piece by piece."""
    events = (b"id:\r\ndata\r\n\r\n", sse(progress(1)), sse(answer(CALL, text("done"))), b": cut")
    script = (
        (
            post(CALL, ("Accept", "a"), ("Accept", "b")),
            Answer(events, STREAM_HEADERS, end=End.BROKEN),
        ),
        (get("/mcp?x=1"), Answer((b"\xff", b"\x00\x01"), (), 404)),
    )
    (first,), (second,) = own_of(cassette_of(*script))

    assert first.request == script[0][0]
    assert first.response is not None
    assert tuple(piece.raw for piece in first.response.pieces) == events
    assert second.response is not None
    assert [piece.raw for piece in second.response.pieces] == [b"\xff", b"\x00\x01"]
    assert (second.response.status, second.request.target) == (404, "/mcp?x=1")


@pytest.mark.parametrize(
    ("body", "pieces"),
    [
        ("abcdef", [b"abc", b"def"]),
        ("abcdefgh", [b"abc", b"defgh"]),
        ("abcd", [b"abc", b"d"]),
        ("ab", [b"ab", b""]),
    ],
)
def test_edited_body_is_cut_as_far_as_it_goes(body: str, pieces: list[bytes]) -> None:
    """A body of another length than its recorded pieces loses no byte."""
    cassette = cassette_of((get("/"), Answer((b"123", b"456"))))
    changed = {"status": 200, "headers": {}, "text": body}

    response = the_response(edited(cassette, "interactions", 0, "response", to=changed))

    assert [piece.raw for piece in response.pieces] == pieces


def test_edited_stream_loses_its_rhythm_only() -> None:
    """A stream with another number of events is played without recorded times."""
    cassette = cassette_of((CALL, stream(progress(1), progress(2))))
    events = [{"text": ": one\n\n"}]
    changed = {"status": 200, "headers": {"Content-Type": "text/event-stream"}, "events": events}

    response = the_response(edited(cassette, "interactions", 0, "response", to=changed))

    assert [(piece.raw, piece.at_ms) for piece in response.pieces] == [(b": one\n\n", 0)]


def test_empty_stream_is_read() -> None:
    """A stream that ended before its first event has no pieces."""
    response = the_response(cassette_of((CALL, Answer((), STREAM_HEADERS))))

    assert response.pieces == ()


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [{"at_ms": 0, "after": 1, "size": 0}],
        [{"at_ms": 0, "after": 1}],
        [{"at_ms": 0, "after": 1, "size": 99}, {"at_ms": 0, "after": 1, "size": 1}],
        [{"at_ms": 0, "after": 1, "size": 5}, {"at_ms": 0, "after": 1, "size": -3}],
    ],
)
def test_timings_that_do_not_fit_lose_no_byte(pieces: list[dict[str, int]]) -> None:
    """Edited timings may cost the rhythm, or be refused, but never change what is served."""
    cassette = cassette_of((get("/"), Answer((b"123", b"456"))))
    try:
        response = the_response(edited(cassette, "recording", "exchanges", 0, "pieces", to=pieces))
    except CassetteError:
        return

    assert response.body == b"123456"


def test_cassette_without_timings_is_read() -> None:
    """Without its recording block's exchanges a cassette is loaded, without order and rhythm."""
    cassette = cassette_of(*BRANCHED, (get("/mcp"), stream(progress(1))))
    exchanges = [
        each for own in own_of(edited(cassette, "recording", "exchanges", to=[])) for each in own
    ]

    assert [(each.number, each.started_ms, each.ended_ms) for each in exchanges] == [
        (None, 0, 0)
    ] * 5


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((0, "request"), "interaction 1"),
        ((0, "elicitation_turns", 0, "ask"), "interaction 1"),
        ((0, "elicitation_turns", 0, "answer"), "interaction 1, turn 1"),
        ((0, "response"), "interaction 1, turn 1"),
    ],
)
def test_exchange_that_is_not_the_recorded_one_is_refused(
    path: tuple[str | int, ...], place: str
) -> None:
    """An edited body is an error that names its interaction and turn, and the way to accept it."""
    tree = json.loads(encode_cassette(cassette_of(*BRANCHED)))
    inner = tree["interactions"]
    for step in path:
        inner = inner[step]
    inner["body"]["jsonrpc"] = "3.0"

    with pytest.raises(CassetteError, match=f"^talk.json: {place}: .*check talk.json --fix$"):
        load(orjson.dumps(tree), "talk.json")


@given(pushing_cassettes())
def test_pushed_turns_are_loaded_as_they_were_written(cassette: Cassette) -> None:
    """A file has each pushed request in its place, and each posted answer with its facts."""
    again = load(dump(cassette), "f")

    for before, after in zip(cassette.interactions, again.interactions, strict=True):
        assert said_of_turns(after) == said_of_turns(before)
        assert after.places == before.places
        assert [each.number for each in after.own] == [each.number for each in before.own]
        assert [each.ended_after for each in after.own] == [each.ended_after for each in before.own]
    assert dump(again) == dump(cassette)


def test_branch_shares_the_pushed_turns_before_it() -> None:
    """What the server pushed before two interactions part is one turn of both."""
    cassette = load(dump(branched()), "f")
    stream, first, branch = cassette.interactions

    assert branch.pushed_turns[:2] == first.pushed_turns
    assert (branch.shared, branch.branch) == (1, Branch(2, 3))
    assert first.pushed_turns[0].asked[0].exchange is first.exchanges[0]
    assert first.pushed_turns[0].asked[1].exchange is stream.exchanges[0]
    assert [each.number for each in branch.own] == [6, 7]


@pytest.mark.parametrize(
    ("turn", "path", "to", "reason"),
    [
        (0, ("ask", "events", 0, "event"), 9, "at {at}/ask/events/0/event: the response has no"),
        (0, ("ask", "events", 0, "event"), 2, "at {at}/ask/events/0/event: this event is no requ"),
        (0, ("ask", "events", 1, "interaction"), 9, "at {at}/ask/events/1/interaction: there is"),
        (0, ("ask", "events", 1, "key"), "elicitation-1", "at {at}/ask/events/1/key: the same"),
        (0, ("answer", "responses", 1, "key"), "roots-1", "at {at}/answer/responses/1/key: it n"),
        (0, ("answer", "responses", 0, "request", "body", "id"), 5, "at {at}: not the same as in"),
        (1, ("ask", "events", 0, "event"), 0, "at {at}: not the same as in interaction 2"),
        (2, ("via",), "push", "at {at}/ask/events/0/key: field required"),
        (2, ("via",), "task", "at {at}: `via` should be 'result' or 'push'"),
        (0, ("via",), "result", "at {at}/ask/events/0/key: extra inputs are not permitted"),
    ],
)
def test_pushed_turn_that_cannot_be_is_refused(
    turn: int, path: tuple[str | int, ...], to: Any, reason: str
) -> None:
    """An error names the place of a pushed turn that names nothing, or that differs in a branch."""
    data = edited(dump(branched()), "interactions", 2, "elicitation_turns", turn, *path, to=to)
    place = f"/interactions/2/elicitation_turns/{turn}"

    with pytest.raises(CassetteError) as caught:
        load(data, "f")

    assert str(caught.value).startswith(f"f: {reason.format(at=place)}")


def test_branch_parts_where_a_result_asks() -> None:
    """The turns up to the one in which a branch parts are those of the other interaction."""
    for turn in (1, 4):
        data = edited(dump(branched()), "interactions", 2, "branch", "turn", to=turn)

        with pytest.raises(CassetteError, match=r"^f: at /interactions/2/branch/turn: "):
            load(data, "f")


def test_posted_answer_that_is_not_the_recorded_one_is_refused() -> None:
    """An edited answer is an error that names it."""
    tree = json.loads(dump(branched()))
    turn = tree["interactions"][1]["elicitation_turns"][0]
    turn["answer"]["responses"][1]["request"]["body"]["id"] = 9

    with pytest.raises(CassetteError, match=r"^f: interaction 2, turn 1, answer 2: the sha256 of"):
        load(orjson.dumps(tree), "f")


def test_exchanges_name_their_recorder() -> None:
    """The first one and the number in the file where they say nothing else; one has to be there."""
    tree = without_digests(json.loads(encode_cassette(cassette_of((tool("a"), text("b"))))))
    recording = tree["recording"]
    recording["recorders"] = [{"id": "A", "wall_ms": 5}, {"id": "B", "wall_ms": 6, "offset_ms": 1}]
    cassette = load(orjson.dumps(tree), "f")
    assert cassette.recorders == (RecorderFacts("A", 5), RecorderFacts("B", 6, 1))
    assert cassette.interactions[0].own[0].recorded_by == RecordedBy("A", 1)

    recording["exchanges"][0] |= {"recorder": 2, "own_number": 7}
    (interaction,) = load(orjson.dumps(tree), "f").interactions
    assert interaction.own[0].recorded_by == RecordedBy("B", 7)

    recording["exchanges"][0]["recorder"] = 3
    with pytest.raises(CassetteError, match="exchange 1 has recorder 3 of 2"):
        load(orjson.dumps(tree), "f")
