"""From what was recorded to the bytes of a cassette; `load` reads what was dumped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from mrtr_cassette.core.cassette.codec import (
    encode_body,
    encode_response_body,
    exchange_sha256,
    header_map,
)
from mrtr_cassette.core.cassette.model import SCHEMA_ID, VERSION
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
    TurnPlace,
)
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Request, Response

Tree = dict[str, Any]


def dump(cassette: Cassette) -> bytes:
    """Return the file of a recording."""
    return b"".join(dump_pieces(cassette, cassette.interactions))


def dump_pieces(head: Cassette, interactions: Iterable[RecordedInteraction]) -> Iterator[bytes]:
    """Yield the file of a recording, piece by piece.

    Args:
        head: what the file says of the recording; its interactions don't count.
        interactions: what was recorded, in order; each is asked for when the one before it has
            been yielded, as there may be many.
    """
    facts: list[tuple[int, bytes]] = []
    recorders = {each.id: number for number, each in enumerate(head.recorders, start=1)}
    yield _indented(_head_tree(head)).removesuffix(b"\n}") + b',\n  "interactions": ['
    separator = b"\n    "
    for interaction in interactions:
        tree = _interaction_tree(interaction)
        facts += [
            (exchange.number, _line(_facts_tree(exchange, interaction.number, place, recorders)))
            for exchange, place in zip(interaction.own, interaction.places, strict=True)
            if exchange.number is not None
        ]
        yield separator + _indented(tree).replace(b"\n", b"\n    ")
        separator = b",\n    "
    yield b"]" if separator == b"\n    " else b"\n  ]"
    yield b',\n  "recording": {'
    for name, value in _recording_tree(head).items():
        yield b'\n    "%b": %b,' % (name.encode(), orjson.dumps(value))
    yield b'\n    "exchanges": ['
    yield b",".join([b"\n      " + line for _, line in sorted(facts)])
    yield b"\n    ]\n  }\n}\n" if facts else b"]\n  }\n}\n"


def _head_tree(head: Cassette) -> Tree:
    return _without_none(
        {
            "$schema": SCHEMA_ID,
            "version": VERSION,
            "transport": None if head.transport == "http" else head.transport,
            "upstream": head.upstream,
            "request_state": head.request_state,
            "redaction": None if head.redaction is None else asdict(head.redaction),
            "answers": "sealed" if head.seals_answers else None,
        }
    )


def _recording_tree(head: Cassette) -> Tree:
    return _without_none(
        {
            "recorded_at": head.recorded_at,
            "tool": head.tool,
            "client": head.client,
            "recorders": [_recorder_tree(each) for each in head.recorders] or None,
        }
    )


def _recorder_tree(recorder: RecorderFacts) -> Tree:
    offset_ms = round(recorder.offset_ms) or None
    return _without_none(
        {"id": recorder.id, "wall_ms": round(recorder.wall_ms), "offset_ms": offset_ms}
    )


def _without_none(tree: Tree) -> Tree:
    return {name: value for name, value in tree.items() if value is not None}


def _line(tree: Tree) -> bytes:
    # A copy, as what orjson returns holds on to the 4 KiB that it was written in.
    return bytes(memoryview(orjson.dumps(tree)))


def _indented(tree: Tree) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2)


def _interaction_tree(interaction: RecordedInteraction) -> Tree:
    """Return an interaction; if its last response is an ask, that ask has no answer."""
    first, last = interaction.exchanges[0], interaction.exchanges[-1]
    branch, turns = interaction.branch, []
    for position, exchange in enumerate(interaction.exchanges):
        turns += [
            _pushed_turn_tree(turn, exchange)
            for turn in interaction.pushed_turns
            if turn.position == position
        ]
        response = exchange.response
        if exchange is not last and response is not None:
            answer = _request_tree(interaction.exchanges[position + 1].request, is_answer=True)
            turns.append({"via": "result", "ask": _response_tree(response), "answer": answer})
    ending = None if last.response is None else _response_tree(last.response)
    if last.ask is not None:
        turns.append({"via": "result", "ask": ending})
        ending = None
    return _without_none(
        {
            "orphan": interaction.is_orphan or None,
            "branch": None if branch is None else branch._asdict(),
            "request": _request_tree(first.request),
            "elicitation_turns": turns,
            "response": ending,
        }
    )


def _pushed_turn_tree(turn: PushedTurn, pending: RecordedExchange) -> Tree:
    events = [
        {
            "key": asked.key,
            **({} if asked.exchange is pending else {"interaction": asked.interaction}),
            "event": asked.piece,
        }
        for asked in turn.asked
    ]
    responses: list[Tree] = []
    for answer in turn.answers:
        request, response = answer.exchange.request, answer.exchange.response
        responses.append({"key": answer.key, "request": _request_tree(request)})
        if response is not None:
            responses[-1]["response"] = _response_tree(response)
    tree: Tree = {"via": "push", "ask": {"events": events}}
    return {**tree, "answer": {"responses": responses}} if responses else tree


def _request_tree(request: Request, *, is_answer: bool = False) -> Tree:
    """Return a request; that of an answer goes to the same place as the one before."""
    headers = header_map(request.headers)
    if request.is_line:
        session = request.header(SESSION_HEADER)
        head: Tree = {"session": session} if session else {}
    elif is_answer:
        head = {"headers": headers}
    else:
        head = {"http": {"method": request.method, "path": request.target, "headers": headers}}
    return {**head, **encode_body(request.body)}


def _response_tree(response: Response) -> Tree:
    tree: Tree = {}
    if not response.is_lines:
        tree = {"status": response.status, "headers": header_map(response.headers)}
    if response.end is not End.COMPLETE:
        tree["end"] = response.end.value
    return {**tree, **encode_response_body(response)}


def _facts_tree(
    exchange: RecordedExchange, interaction: int, place: TurnPlace, recorders: Mapping[str, int]
) -> Tree:
    response, started_ms = exchange.response, exchange.started_ms
    recorder, own_number = 1, exchange.number
    if exchange.recorded_by is not None and recorders:
        recorder = recorders.get(exchange.recorded_by.recorder, 1)
        own_number = exchange.recorded_by.number
    return _without_none(
        {
            "number": exchange.number,
            "recorder": None if recorder == 1 else recorder,
            "own_number": None if own_number == exchange.number else own_number,
            "interaction": interaction,
            "turn": place.turn,
            "answer": place.answer,
            "started_ms": round(started_ms),
            "duration_ms": round(exchange.ended_ms - started_ms),
            "ended_after": exchange.ended_after,
            "request_state_sha256": exchange.issued_sha256,
            "echoed_state_sha256": exchange.echoed_sha256,
            "sha256": exchange_sha256(exchange.request, response),
            "pieces": None if response is None else _times_of(exchange, response),
        }
    )


def _times_of(exchange: RecordedExchange, response: Response) -> list[Tree] | None:
    """Return when each piece came; None where that is not known, or says no more than the end."""
    pieces, is_framed = response.pieces, response.is_framed
    # A single piece that came before the end waits for less than the end does.
    is_early = any(piece.after not in (0, exchange.ended_after) for piece in pieces)
    is_known = not pieces or any(piece.at_ms or piece.after for piece in pieces)
    if not (is_known and (is_framed or len(pieces) > 1 or is_early)):
        return None
    return [
        {"at_ms": round(piece.at_ms - exchange.started_ms), "after": piece.after}
        | ({} if is_framed else {"size": len(piece.raw)})
        for piece in pieces
    ]
