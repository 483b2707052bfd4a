from __future__ import annotations

import json
from typing import Any

import pytest
from builders import (
    NO,
    STREAM_HEADERS,
    YES,
    Answer,
    Conversation,
    answer,
    asks,
    cassette_of,
    conversation,
    get,
    notification,
    post,
    progress,
    retry,
    rpc,
    sse,
    stream,
    text,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.exchange import nodes as nodes_module
from mrtr_cassette.core.exchange.nodes import Node, read_nodes
from mrtr_cassette.core.format.codec import decode_cassette, decode_parts, encode_cassette
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.secrets.states import sha256_of
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), asks("b")),
    (tool("other"), Answer((), status=0, end=End.OPEN)),
)


def nodes_of(cassette: CassetteModel) -> list[list[Node]]:
    """Return what replay knows of a cassette that went through a file."""
    return read_nodes(decode_cassette(encode_cassette(cassette), "talk.json"), "talk.json")


def edited(cassette: CassetteModel, *path: str | int, to: Any) -> CassetteModel:
    """Return a cassette with one value of its file changed by hand."""
    tree = json.loads(encode_cassette(cassette))
    inner = tree
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return decode_cassette(json.dumps(tree).encode(), "talk.json")


@given(st.lists(st.sampled_from(["call", "turns", "branch"]), max_size=12), st.integers(1, 5))
def test_exchanges_are_the_same_however_many_are_read_together(
    shapes: list[str], at_once: int
) -> None:
    """A branch finds the interaction that it parts from, whenever that was read."""
    script: list[Any] = [(CALL, asks("a", state=STATE))]
    for number, shape in enumerate(shapes):
        if shape == "call":
            script.append((tool("other", n=number), text("done")))
        elif shape == "turns":
            asking = tool("other", n=number)
            script += [(asking, asks("b")), (retry(asking, {"b": number}), text("done"))]
        else:
            script.append((retry(CALL, {"a": number}, state=STATE), text("left")))
    cassette = cassette_of(*script)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes_module, "AT_ONCE", at_once)
        found = nodes_of(cassette)
    assert shown(found) == shown(nodes_of(cassette))
    numbers = [node.number for own in found for node in own]
    assert sorted(filter(None, numbers)) == list(range(1, len(script) + 1))
    retries = [node for own in found for node in own if node.turn and "b" not in str(node.slot[2])]
    assert {node.parent for node in retries} <= {found[0][0]}


def shown(nodes: list[list[Node]]) -> list[list[tuple[Any, ...]]]:
    """Return what of nodes can be compared."""
    return [
        [
            (node.interaction, node.turn, node.request, node.slot, node.response, node.number)
            for node in own
        ]
        for own in nodes
    ]


def test_facts_are_found_in_whatever_order_they_stand() -> None:
    """The facts of an exchange may stand anywhere in the list; some may be missing."""
    cassette = cassette_of(*BRANCHED)
    first, *others = [facts.model_dump() for facts in cassette.recording.exchanges]
    given = [*reversed(others), {**first, "interaction": 99}]
    nodes = nodes_of(edited(cassette, "recording", "exchanges", to=given))

    assert [node.number for own in nodes for node in own] == [None, 2, 3, 4]


def test_facts_that_belong_to_nothing_have_to_be_right_too() -> None:
    """A cassette is checked whole, also where replay doesn't need it."""
    tree = json.loads(encode_cassette(cassette_of(*BRANCHED)))
    tree["recording"]["exchanges"].append({"number": "five"})
    head, interactions, exchanges = decode_parts(json.dumps(tree).encode(), "talk.json")

    with pytest.raises(CassetteError, match=r"^talk\.json: at /recording/exchanges/4/number: "):
        read_nodes(head, "talk.json", interactions=interactions, exchanges=exchanges)


def test_exchanges_form_a_tree() -> None:
    """Each retry knows the exchange whose ask it answers; a branch begins where it parts."""
    (ask, left), (again,), (other,) = nodes_of(cassette_of(*BRANCHED))

    assert [(one.interaction, one.turn, one.number) for one in (ask, left, again, other)] == [
        (1, 0, 1),
        (1, 1, 2),
        (2, 1, 3),
        (3, 0, 4),
    ]
    assert (ask.parent, left.parent, again.parent, other.parent) == (None, ask, ask, None)
    assert (ask.ask is not None, left.ask, again.ask is not None) == (True, None, True)
    assert other.response is None


def test_states_are_known_by_hash() -> None:
    """A node knows the state that it issues on replay, and the raw one that it was recorded with."""
    (ask, left), _, _ = nodes_of(cassette_of(*BRANCHED))

    assert ask.ask is not None
    assert ask.ask.request_state is not None
    assert ask.issued_sha256 == sha256_of(ask.ask.request_state) != sha256_of(STATE)
    assert (ask.raw_issued_sha256, left.raw_echoed_sha256) == (sha256_of(STATE),) * 2
    assert (ask.raw_echoed_sha256, left.raw_issued_sha256, left.issued_sha256) == (None,) * 3
    assert ask.issued(sha256_of(STATE))
    assert ask.issued(ask.issued_sha256)
    assert not ask.issued(sha256_of("other"))
    assert not left.issued(sha256_of(STATE))


def test_bytes_come_back() -> None:
    """Requests and responses are the recorded bytes, piece by piece."""
    events = (b"id: 1\r\ndata\r\n\r\n", sse(progress(1)), sse(answer(CALL, text("done"))), b": cut")
    script = (
        (
            post(CALL, ("Accept", "a"), ("Accept", "b")),
            Answer(events, STREAM_HEADERS, end=End.BROKEN),
        ),
        (get("/mcp?x=1"), Answer((b"\xff", b"\x00\x01"), (), 404)),
    )
    (first,), (second,) = nodes_of(cassette_of(*script))

    assert first.call.request == script[0][0]
    assert first.response is not None
    assert tuple(piece.raw for piece in first.response.pieces) == events
    assert second.response is not None
    assert [piece.raw for piece in second.response.pieces] == [b"\xff", b"\x00\x01"]
    assert (second.response.status, second.call.request.target) == (404, "/mcp?x=1")


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
    response = {"status": 200, "headers": {}, "text": body}

    ((node,),) = nodes_of(edited(cassette, "interactions", 0, "response", to=response))

    assert node.response is not None
    assert [piece.raw for piece in node.response.pieces] == pieces


def test_edited_stream_loses_its_rhythm_only() -> None:
    """A stream with another number of events is played without recorded times."""
    cassette = cassette_of((CALL, stream(progress(1), progress(2))))
    events = [{"text": ": one\n\n"}]
    response = {"status": 200, "headers": {"Content-Type": "text/event-stream"}, "events": events}

    ((node,),) = nodes_of(edited(cassette, "interactions", 0, "response", to=response))

    assert node.response is not None
    assert [(piece.raw, piece.at_ms) for piece in node.response.pieces] == [(b": one\n\n", 0)]


def test_empty_stream_is_read() -> None:
    """A stream that ended before its first event has no pieces."""
    ((node,),) = nodes_of(cassette_of((CALL, Answer((), STREAM_HEADERS))))

    assert node.response is not None
    assert (node.response.pieces, node.gates) == ((), ())


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
        ((node,),) = nodes_of(edited(cassette, "recording", "exchanges", 0, "pieces", to=pieces))
    except CassetteError:
        return

    assert node.response is not None
    assert node.response.body == b"123456"


def test_cassette_without_timings_is_read() -> None:
    """Without its recording block's exchanges a cassette plays, without order and rhythm."""
    cassette = cassette_of(*BRANCHED, (get("/mcp"), stream(progress(1))))
    bare = edited(cassette, "recording", "exchanges", to=[])

    nodes = [node for own in nodes_of(bare) for node in own]

    assert [node.number for node in nodes] == [None] * 5
    assert all(not any(node.gates) for node in nodes)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((0, "request"), "/interactions/0/request"),
        ((0, "elicitation_turns", 0, "ask"), "/interactions/0/elicitation_turns/0/ask"),
        ((0, "elicitation_turns", 0, "answer"), "/interactions/0/elicitation_turns/0/answer"),
        ((0, "response"), "/interactions/0/response"),
    ],
)
def test_body_that_is_not_the_recorded_one_is_refused(
    path: tuple[str | int, ...], place: str
) -> None:
    """A damaged body is an error that names its place, wherever it stands."""
    cassette = cassette_of(*BRANCHED)
    damaged = edited(cassette, "interactions", *path, "sha256", to="0" * 64)
    edited_on_purpose = edited(damaged, "interactions", *path, "sha256", to=None)

    with pytest.raises(CassetteError, match=f"^talk.json: at {place}: the body's sha256 is "):
        nodes_of(damaged)
    assert len(nodes_of(edited_on_purpose)) == 3


# Gates


def gates(talk: Conversation) -> dict[int, list[set[int]]]:
    """Return what each piece of each exchange waits for, by number."""
    return {
        node.number: [set(gate) for gate in node.gates]
        for own in nodes_of(talk.cassette())
        for node in own
        if node.number is not None
    }


LISTEN = rpc("subscriptions/listen", {}, number="l")


@pytest.mark.parametrize("listen", [LISTEN, get("/mcp")], ids=["listen", "GET"])
def test_listening_stream_waits_for_the_calls_that_came_before(listen: Any) -> None:
    """A notification on a listening stream comes no earlier than the calls that may have caused it."""
    talk = Conversation()
    talk.response(talk.request(tool("before")), text("x"))
    listening = talk.request(listen)
    observation = talk.observation(listening)
    observation.response_started(200, STREAM_HEADERS)
    observation.response_bytes(sse(notification("ready")), talk.tick())
    talk.response(talk.request(rpc("tools/list")), text("x"))
    talk.response(talk.request(notification("notifications/x")), Answer((), (), 202))
    call = talk.request(CALL)
    talk.response(call, text("x"))
    observation.response_bytes(sse(notification("changed")), talk.tick())
    talk.response(talk.request(tool("late")), text("x"))
    observation.response_ended(talk.tick())
    talk.exchanges.append(observation.exchange(End.OPEN, talk.tick()))

    found = gates(talk)

    assert found[listening] == [set(), {call}]
    assert all(not any(found[number]) for number in found if number != listening)


def test_parallel_calls_owe_each_other_nothing() -> None:
    """A call's own stream waits for no other call."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(tool("other"))
    talk.response(two, stream(progress(1)))
    talk.response(one, stream(progress(1)))

    assert gates(talk) == {one: [set()], two: [set()]}


def test_stream_waits_for_the_answer_to_a_pushed_request() -> None:
    """What follows a request that the server pushed waits for the client's answer to it."""
    talk = Conversation()
    stale = talk.request(answer(rpc("x", number="p1"), {"action": "stale"}))
    talk.response(stale, Answer((), (), 202))
    call = talk.request(CALL)
    observation = talk.observation(call)
    observation.response_started(200, STREAM_HEADERS)
    observation.response_bytes(sse(rpc("elicitation/create", {}, number="p1")), talk.tick())
    observation.response_bytes(sse(progress(1)), talk.tick())
    answering = talk.request(answer(rpc("x", number="p1"), {"action": "accept"}))
    talk.response(answering, Answer((), (), 202))
    observation.response_bytes(sse(rpc("roots/list", {}, number="p2")), talk.tick())
    observation.response_bytes(sse(answer(CALL, text("done"))), talk.tick())
    observation.response_ended(talk.tick())
    talk.exchanges.append(observation.exchange(End.COMPLETE, talk.tick()))

    found = gates(talk)

    assert found[call] == [set(), set(), {answering}, {answering}]
    assert found[answering] == []


def test_body_that_is_no_stream_waits_for_nothing() -> None:
    """Only a stream can have a pushed request in it."""
    talk = conversation(
        (answer(rpc("x", number=1), {}), Answer((), (), 202)),
        (CALL, text("done")),
    )

    assert gates(talk) == {1: [], 2: [set()]}
