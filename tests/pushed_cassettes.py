"""Recordings in which the server pushed requests, made by hand and made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import STREAM_HEADERS, answer, notification, post, retry, sse, tool
from hypothesis import strategies as st
from messages import NO, YES, asks, compact, form, result, text

from mrtr_cassette.core.cassette.recorded import (
    Branch,
    Cassette,
    PostedAnswer,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.wire.http import End, Piece, Request, Response

CALL = tool("deploy", env="prod")
LISTENING = Request("GET", "/mcp", (("Accept", "text/event-stream"),), b"")
HEAD = Cassette(
    path="f",
    upstream="http://localhost:8000/mcp",
    request_state="sealed",
    redaction=None,
    seals_answers=False,
    recorded_at="2026-08-01T00:00:00+00:00",
    tool="mrtr-cassette test",
    interactions=(),
)


def elicitation(number: int) -> bytes:
    """Return a request that a server pushes."""
    return compact({"jsonrpc": "2.0", "id": number, **form(f"question {number}")})


def posted(number: int, value: Any = YES) -> bytes:
    """Return the response to a pushed request."""
    return compact(result(value, id=number))


def streamed(at: int, request: Request, *messages: bytes) -> RecordedExchange:
    """Return an exchange whose response is a stream with these messages."""
    pieces = tuple(Piece(sse(each), at + index, at) for index, each in enumerate(messages, start=1))
    response = Response(200, STREAM_HEADERS, pieces, End.COMPLETE)
    return RecordedExchange(at, request, response, at, at + len(messages), None, None, at)


def accepted(at: int, number: int, value: Any = YES) -> RecordedExchange:
    """Return the exchange by which a client answers a pushed request."""
    response = Response(202, (), (), End.COMPLETE)
    return RecordedExchange(at, post(posted(number, value)), response, at, at + 1, None, None, at)


def branched() -> Cassette:
    """Return a recording with every kind of pushed turn.

    A call is asked on its own stream and on a listening one, then by its result; a branch answers
    that in another way, and is asked once more.
    """
    stream = streamed(1, LISTENING, notification("notifications/x"), elicitation(1))
    asking = streamed(2, post(CALL), elicitation(2), elicitation(3), answer(CALL, asks("ok")))
    again = retry(CALL, {"ok": YES})
    done = streamed(5, post(again), answer(again, text("done")))
    other = retry(CALL, {"ok": NO})
    left = streamed(6, post(other), elicitation(4), answer(other, text("left")))
    shared = (
        PushedTurn(
            0,
            (PushedRequest("elicitation-1", asking, 0), PushedRequest("roots-1", stream, 1, 1)),
            (
                PostedAnswer("roots-1", accepted(3, 1, NO)),
                PostedAnswer("elicitation-1", accepted(4, 2)),
            ),
        ),
        PushedTurn(0, (PushedRequest("elicitation-1", asking, 1),), ()),
    )
    own = PushedTurn(
        1,
        (PushedRequest("elicitation-1", left, 0),),
        (PostedAnswer("elicitation-1", accepted(7, 4)),),
    )
    return replace(
        HEAD,
        interactions=(
            RecordedInteraction(1, (stream,), None, is_orphan=False),
            RecordedInteraction(2, (asking, done), None, is_orphan=False, pushed_turns=shared),
            RecordedInteraction(
                3, (asking, left), Branch(2, 3), is_orphan=False, pushed_turns=(*shared, own)
            ),
        ),
    )


@st.composite
def pushing_cassettes(draw: st.DrawFn) -> Cassette:
    """Make up a recording whose interactions have turns of both kinds, in any order."""
    count = draw(st.integers(1, 4))
    listening = [draw(st.booleans()) for _ in range(count)]
    chains: list[tuple[RecordedExchange, ...]] = []
    at = 0
    for listens in listening:
        length = 1 if listens else draw(st.integers(1, 3))
        chain = []
        for position in range(length):
            at += 1
            call = CALL if position == 0 else retry(CALL, {"a": at})
            pushes = [elicitation(each) for each in range(draw(st.integers(1, 3)))]
            asked = asks("a") if position + 1 < length else text("done")
            request = LISTENING if listens else post(call)
            chain.append(streamed(at, request, *pushes, answer(call, asked)))
        chains.append(tuple(chain))
    interactions = []
    for number, chain in enumerate(chains, start=1):
        turns = []
        for position in range(len(chain)):
            for _ in range(draw(st.integers(0, 2))):
                turn = draw(pushed_turns(position, chain, chains, at))
                at += len(turn.answers)
                turns.append(turn)
        interactions.append(
            RecordedInteraction(number, chain, None, is_orphan=False, pushed_turns=tuple(turns))
        )
    return replace(HEAD, interactions=tuple(interactions))


@st.composite
def pushed_turns(
    draw: st.DrawFn,
    position: int,
    chain: tuple[RecordedExchange, ...],
    chains: list[tuple[RecordedExchange, ...]],
    at: int,
) -> PushedTurn:
    """Make up a turn, asked in the response that is pending or in the last one of another call."""
    asked = []
    for index in range(1, draw(st.integers(1, 3)) + 1):
        other = draw(st.none() | st.integers(1, len(chains)))
        exchange = chain[position] if other is None else chains[other - 1][-1]
        if exchange is chain[position]:
            other = None
        assert exchange.response is not None
        # The last one is the response to the call.
        piece = draw(st.integers(0, len(exchange.response.pieces) - 2))
        asked.append(PushedRequest(f"elicitation-{index}", exchange, piece, other))
    keys = draw(st.lists(st.sampled_from([each.key for each in asked]), unique=True))
    answers = [PostedAnswer(key, accepted(at + add, add)) for add, key in enumerate(keys, start=1)]
    return PushedTurn(position, tuple(asked), tuple(answers))


def said_of_turns(interaction: RecordedInteraction) -> list[Any]:
    """Return what is known of an interaction's pushed turns, for comparing it."""
    return [
        (
            turn.position,
            [
                (asked.key, asked.piece, asked.interaction, asked.exchange.request)
                for asked in turn.asked
            ],
            [
                (answer.key, answer.exchange.number, answer.exchange.request.body)
                for answer in turn.answers
            ],
        )
        for turn in interaction.pushed_turns
    ]
