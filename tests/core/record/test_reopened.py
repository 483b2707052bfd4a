"""A cassette's exchanges as the journals of its recorders had them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from builders import (
    Answer,
    Conversation,
    answer,
    assembled,
    cassette_of,
    conversation,
    encode_cassette,
    loaded,
    post,
    progress,
    retry,
    rpc,
    stream,
    tool,
)
from messages import Json, asks, text

from mrtr_cassette.core.exchange.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.record.history import is_journal_token
from mrtr_cassette.core.record.reopened import reopened
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER
from mrtr_cassette.core.secrets.surrogates import sha256_of

CALL = tool("deploy")
STATE = "a state that the server signed"
YES: Json = {"ok": {"action": "accept"}}
TALK = conversation(
    (CALL, asks("ok", state=STATE)),
    (retry(CALL, YES, state=STATE), text("done")),
    (tool("watch"), stream(progress(1), answer(tool("watch"), text("seen")))),
)


def of(cassette: Cassette, recorder: str = "") -> list[RecordedExchange]:
    """Return the exchanges of one recorder."""
    exchanges = reopened(cassette, "this file")[recorder]
    assert [each.number for each in exchanges.values()] == list(exchanges)
    return [exchanges[number] for number in sorted(exchanges)]


def all_text(exchange: RecordedExchange) -> bytes:
    """Return the bodies and headers of an exchange."""
    response = exchange.response
    assert response is not None
    return b" ".join(
        [
            exchange.request.target.encode(),
            repr((exchange.request.headers, response.headers)).encode(),
            exchange.request.body,
            response.body,
        ]
    )


def test_states_have_their_hashes_again() -> None:
    """The journal's exchanges come back, but for the moments that a cassette doesn't keep."""
    found = of(loaded(TALK.cassette()))

    for mine, journals in zip(found, TALK.exchanges, strict=True):
        assert all_text(mine) == all_text(journals)
        assert (mine.issued_sha256, mine.echoed_sha256, mine.ended_after) == (
            journals.issued_sha256,
            journals.echoed_sha256,
            journals.ended_after,
        )
    responses = [
        (each.response, other.response) for each, other in zip(found, TALK.exchanges, strict=True)
    ]
    (whole, _), _, (events, recorded) = responses
    assert whole is not None
    assert events is not None
    assert recorded is not None
    assert [piece.at_ms for piece in whole.pieces] == [found[0].ended_ms]
    assert events.pieces == recorded.pieces


def test_states_without_a_hash_get_one_of_this_file() -> None:
    """In a cassette that was written by hand; ask and answer have the same one."""
    tree = json.loads(encode_cassette(TALK.cassette()))
    tree["recording"] = {"recorded_at": "", "tool": "", "exchanges": []}
    cassette = load(json.dumps(tree).encode(), "f")

    ask, again, _ = of(cassette)

    assert ask.issued_sha256 == again.echoed_sha256 != sha256_of(STATE)
    assert str(ask.issued_sha256).encode() in all_text(again)
    other = reopened(cassette, "another file")[""][1]
    assert other.issued_sha256 != ask.issued_sha256


def test_state_of_no_recorded_ask_has_its_own_hash() -> None:
    """That of what the client sent; raw states of a cassette that keeps them stay."""
    (orphan,) = of(loaded(cassette_of((retry(CALL, YES, state=STATE), text("done")))))
    assert orphan.echoed_sha256 == sha256_of(STATE)
    (verbatim,) = of(loaded(cassette_of((CALL, asks("ok", state=STATE)), seals=False)))
    assert verbatim.issued_sha256 == sha256_of(STATE)
    assert STATE.encode() in all_text(verbatim)


def test_what_was_added_later_answers_the_earlier_ask() -> None:
    """It echoed the name of the state, and not the state."""
    earlier = cassette_of((CALL, asks("ok", state=STATE)))
    turn: Any = json.loads(encode_cassette(earlier))["interactions"][0]["elicitation_turns"][0]
    surrogate = turn["ask"]["body"]["result"]["requestState"]
    later = conversation((retry(CALL, YES, state=surrogate), text("done")))

    ask, again = of(loaded(assembled(later.exchanges, earlier=earlier)))

    assert ask.issued_sha256 == again.echoed_sha256 == sha256_of(STATE)


def test_other_names_are_those_of_this_file() -> None:
    """Sessions, events, questions and secrets, each the same wherever it stands."""
    session = ("Mcp-Session-Id", "5e551011-aaaa-bbbb-cccc-0123456789ab")
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    question = rpc(
        "elicitation/create", {"elicitationId": "q1w2e3r4t5z6u7i8o9", "url": "/q1w2e3r4t5z6u7i8o9"}
    )
    talk = Conversation(redacts=True)
    event = b"id: 17\ndata: " + question + b"\n\n"
    opened = Answer((event,), (("Content-Type", "text/event-stream"), session))
    talk.response(talk.request(post(rpc("initialize"))), opened)
    talk.response(talk.request(post(tool("x", token=secret), session)), text(secret))
    cassette = loaded(talk.cassette())
    recorded = b"".join(all_text(one) for each in cassette.interactions for one in each.own)
    for name in (b"mrtr-session:1", b"mrtr-event:1:1", b"mrtr-elicitation:1:1", b":1>"):
        assert name in recorded

    first, second = of(cassette)

    assert b"mrtr-" not in all_text(first) + all_text(second)
    assert f"sha256:{sha256_of('this file mrtr-session:1')}".encode() in all_text(first)
    assert f"sha256:{sha256_of('this file mrtr-session:1')}".encode() in all_text(second)
    assert b"id: sha256:" in all_text(first)
    assert all_text(first).count(sha256_of("this file mrtr-elicitation:1:1")[:31].encode()) == 2
    tokens = [match["token"] for match in PLACEHOLDER.finditer(all_text(second).decode())]
    assert len(tokens) == 2
    assert all(map(is_journal_token, tokens))


def test_recorders_are_told_apart() -> None:
    """Each counts its own requests, on its own time."""
    cassette = loaded(TALK.cassette())
    owners = {1: RecordedBy("a", 1), 2: RecordedBy("b", 1), 3: RecordedBy("a", 2)}
    interactions = tuple(
        replace(
            each,
            exchanges=tuple(
                replace(one, recorded_by=owners[one.number or 0]) for one in each.exchanges
            ),
        )
        for each in cassette.interactions
    )
    cassette = replace(
        cassette,
        interactions=interactions,
        recorders=(RecorderFacts("a", 0.0), RecorderFacts("b", 0.0, 4.0)),
    )

    first, third = of(cassette, "a")
    (second,) = of(cassette, "b")

    assert (first.ended_after, third.ended_after, second.ended_after) == (1, 2, 1)
    assert (second.started_ms, third.started_ms) == (
        TALK.exchanges[1].started_ms - 4,
        TALK.exchanges[2].started_ms,
    )
    assert third.response is not None
    assert {piece.after for piece in third.response.pieces} == {2}
