"""From what was recorded to the bytes of a cassette.

Rule: it holds one interaction at a time, as there may be many; what `load` reads is what was
dumped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from mrtr_cassette.core.exchange.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
    TurnPlace,
)
from mrtr_cassette.core.format.bodies import encode_body, encode_response_body, header_map
from mrtr_cassette.core.format.digest import exchange_sha256
from mrtr_cassette.core.format.model import SCHEMA_ID, VERSION
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
            been yielded.
    """
    tree = _head_tree(head)
    facts: list[tuple[int, bytes]] = []
    recorders = {each.id: number for number, each in enumerate(head.recorders, start=1)}
    yield _indented(tree).removesuffix(b"\n}") + b',\n  "interactions": ['
    separator = b"\n    "
    for interaction in interactions:
        item = _interaction_tree(interaction)
        facts += [
            (exchange.number, _line(_facts_tree(exchange, interaction.number, place, recorders)))
            for exchange, place in zip(interaction.own, interaction.places, strict=True)
            if exchange.number is not None
        ]
        yield separator + _indented(item).replace(b"\n", b"\n    ")
        separator = b",\n    "
    yield b"]" if separator == b"\n    " else b"\n  ]"
    facts.sort()
    yield b',\n  "recording": '
    yield from recording_block(_recording_tree(head), [line for _, line in facts])
    yield b"\n}\n"


def recording_block(head: Tree, facts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the value of `recording`, one exchange a line.

    Args:
        head: its members; the exchanges don't count.
    """
    yield b"{"
    for name in ("recorded_at", "tool", "client", "recorders"):
        if head.get(name) is not None:
            yield b'\n    "%b": %b,' % (name.encode(), orjson.dumps(head[name]))
    yield b'\n    "exchanges": ['
    yield b",".join([b"\n      " + line for line in facts])
    yield b"\n    ]\n  }" if facts else b"]\n  }"


def _head_tree(head: Cassette) -> Tree:
    tree: Tree = {
        "$schema": SCHEMA_ID,
        "version": VERSION,
        **({} if head.transport == "http" else {"transport": head.transport}),
        "upstream": head.upstream,
        "request_state": head.request_state,
    }
    if head.redaction is not None:
        tree["redaction"] = asdict(head.redaction)
    if head.seals_answers:
        tree["answers"] = "sealed"
    return tree


def _recording_tree(head: Cassette) -> Tree:
    return {
        "recorded_at": head.recorded_at,
        "tool": head.tool,
        "client": head.client,
        "recorders": [_recorder_tree(each) for each in head.recorders] or None,
    }


def _recorder_tree(recorder: RecorderFacts) -> Tree:
    tree: Tree = {"id": recorder.id, "wall_ms": round(recorder.wall_ms)}
    if round(recorder.offset_ms):
        tree["offset_ms"] = round(recorder.offset_ms)
    return tree


def _line(tree: Tree) -> bytes:
    # A copy, as what orjson returns holds on to the 4 KiB that it was written in.
    return bytes(memoryview(orjson.dumps(tree)))


def _indented(tree: Tree) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2)


def _interaction_tree(interaction: RecordedInteraction) -> Tree:
    """Return an interaction; if its last response is an ask, that ask has no answer."""
    exchanges = interaction.exchanges
    tree: Tree = {}
    if interaction.is_orphan:
        tree["orphan"] = True
    if interaction.branch is not None:
        tree["branch"] = {"of": interaction.branch.of, "turn": interaction.branch.turn}
    tree["request"] = _request_tree(exchanges[0].request)
    tree["elicitation_turns"] = turns = []
    pushed = list(reversed(interaction.pushed_turns))
    for position, exchange in enumerate(exchanges):
        while pushed and pushed[-1].position == position:
            turns.append(_pushed_turn_tree(pushed.pop(), exchange))
        if position + 1 < len(exchanges) and exchange.response is not None:
            ask = _response_tree(exchange.response)
            answer = _answer_tree(exchanges[position + 1].request)
            turns.append({"via": "result", "ask": ask, "answer": answer})
    last = exchanges[-1]
    if last.response is not None:
        if last.ask is not None:
            turns.append({"via": "result", "ask": _response_tree(last.response)})
        else:
            tree["response"] = _response_tree(last.response)
    return tree


def _request_tree(request: Request) -> Tree:
    if request.is_line:
        return _answer_tree(request)
    headers = header_map(request.headers)
    http = {"method": request.method, "path": request.target, "headers": headers}
    return {"http": http, **encode_body(request.body)}


def _pushed_turn_tree(turn: PushedTurn, pending: RecordedExchange) -> Tree:
    events: list[Tree] = []
    for asked in turn.asked:
        place = {} if asked.exchange is pending else {"interaction": asked.interaction}
        events.append({"key": asked.key, **place, "event": asked.piece})
    tree: Tree = {"via": "push", "ask": {"events": events}}
    responses: list[Tree] = []
    for answer in turn.answers:
        request, response = answer.exchange.request, answer.exchange.response
        responses.append({"key": answer.key, "request": _request_tree(request)})
        if response is not None:
            responses[-1]["response"] = _response_tree(response)
    if responses:
        tree["answer"] = {"responses": responses}
    return tree


def response_text(response: Response, depth: int) -> bytes:
    """Return a response as it stands in the file, with so many levels around it."""
    return _indented(_response_tree(response)).replace(b"\n", b"\n" + b"  " * depth)


def _answer_tree(request: Request) -> Tree:
    head: Tree = {"headers": header_map(request.headers)}
    if request.is_line:
        session = request.header(SESSION_HEADER)
        head = {"session": session} if session else {}
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
    tree: Tree = {
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
    }
    is_framed = response is not None and response.is_framed
    pieces = () if response is None else response.pieces
    # A single piece that came before the end waits for less than the end does.
    is_early = any(piece.after not in (0, exchange.ended_after) for piece in pieces)
    if response is not None and (is_framed or len(pieces) > 1 or is_early):
        tree["pieces"] = [
            {"at_ms": round(piece.at_ms - started_ms), "after": piece.after}
            | ({} if is_framed else {"size": len(piece.raw)})
            for piece in response.pieces
        ]
    return {name: value for name, value in tree.items() if value is not None}
