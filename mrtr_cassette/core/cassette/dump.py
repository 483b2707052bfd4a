"""Write a recording as the file of a cassette, and compute the digest of an exchange."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import orjson

from mrtr_cassette.core.cassette.model import SCHEMA_ID, VERSION, HeaderMap
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskTurn,
    task_turns,
)
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Headers, Request, Response
from mrtr_cassette.core.wire.jsonbytes import is_deep
from mrtr_cassette.core.wire.sse import read_event

Tree = dict[str, Any]
_ENDS = {End.COMPLETE: b"", End.OPEN: b"open", End.BROKEN: b"broken"}


def dump(cassette: Cassette) -> bytes:
    """Return the file of a recording: indented, but for the facts of each exchange, on one line."""
    redaction = cassette.redaction
    head = {
        "$schema": SCHEMA_ID,
        "version": VERSION,
        "transport": None if cassette.transport == "http" else cassette.transport,
        "upstream": cassette.upstream,
        "request_state": cassette.request_state,
        "redaction": None if redaction is None else asdict(redaction),
        "answers": "sealed" if cassette.seals_answers else None,
        "interactions": [_interaction_tree(each) for each in cassette.interactions],
    }
    recorders = [
        {"id": each.id, "wall_ms": round(each.wall_ms)}
        | ({"offset_ms": offset_ms} if (offset_ms := round(each.offset_ms)) else {})
        for each in cassette.recorders
    ]
    recording = {
        "recorded_at": cassette.recorded_at,
        "tool": cassette.tool,
        "client": cassette.client,
        "command": cassette.command,
        "recorders": recorders or None,
    }
    shown = orjson.dumps(_without_none(head), option=orjson.OPT_INDENT_2).removesuffix(b"\n}")
    members = [
        b'\n    "%b": %b,' % (name.encode(), orjson.dumps(value))
        for name, value in _without_none(recording).items()
    ]
    facts = b",".join([b"\n      " + orjson.dumps(each) for each in _facts_trees(cassette)])
    end = b"\n    ]\n  }\n}\n" if facts else b"]\n  }\n}\n"
    return b"".join([shown, b',\n  "recording": {', *members, b'\n    "exchanges": [', facts, end])


def _without_none(tree: Tree) -> Tree:
    return {name: value for name, value in tree.items() if value is not None}


def _interaction_tree(interaction: RecordedInteraction) -> Tree:
    """Return an interaction; if its last response is an ask, that ask has no answer."""
    first, last = interaction.exchanges[0], interaction.exchanges[-1]
    branch, turns = interaction.branch, []
    for position, exchange in enumerate(interaction.exchanges):
        turns += [
            _pushed_turn_tree(turn)
            for turn in interaction.pushed_turns
            if turn.position == position
        ]
        response = exchange.response
        if exchange is not last and response is not None:
            answer = _request_tree(interaction.exchanges[position + 1].request, is_answer=True)
            turns.append({"via": "result", "ask": _response_tree(response), "answer": answer})
    turns += [task_turn_tree(turn) for turn in task_turns(interaction.steps)]
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
            "task": [_exchange_tree(step.exchange) for step in interaction.steps] or None,
        }
    )


def _exchange_tree(exchange: RecordedExchange) -> Tree:
    tree = {"request": _request_tree(exchange.request)}
    response = exchange.response
    return tree if response is None else {**tree, "response": _response_tree(response)}


def task_turn_tree(turn: TaskTurn) -> Tree:
    """Return a turn of a task as the file has it."""
    tree: Tree = {"via": "task", "ask": {"step": turn.asked, "keys": list(turn.requests)}}
    return {**tree, "answer": {"steps": list(turn.answered)}} if turn.answered else tree


def _pushed_turn_tree(turn: PushedTurn) -> Tree:
    events = [
        _without_none({"key": each.key, "interaction": each.interaction, "event": each.piece})
        for each in turn.asked
    ]
    responses = [{"key": each.key, **_exchange_tree(each.exchange)} for each in turn.answers]
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
    return {**head, **_body_tree(request.body)}


def _response_tree(response: Response) -> Tree:
    """Return a response: event by event, or line by line, where it has them."""
    tree: Tree = {}
    if not response.is_lines:
        tree = {"status": response.status, "headers": header_map(response.headers)}
    if response.end is not End.COMPLETE:
        tree["end"] = response.end.value
    if not response.is_framed:
        return {**tree, **_body_tree(response.body)}
    raws = [piece.raw for piece in response.pieces if piece.raw]
    if raws and response.is_lines:
        tree["lines"] = [_line_tree(raw) for raw in raws]
    elif raws:
        tree["events"] = [_event_tree(raw, first=at == 0) for at, raw in enumerate(raws)]
    return tree


def _body_tree(raw: bytes) -> Tree:
    if not raw:
        return {}
    value = _json_that_round_trips(raw)
    return encode_opaque(raw) if value is None else {"body": value}


def _line_tree(raw: bytes) -> Tree:
    value = _json_that_round_trips(raw[:-1]) if raw.endswith(b"\n") else None
    return encode_opaque(raw) if value is None else {"data": value}


def _event_tree(raw: bytes, *, first: bool) -> Tree:
    event = read_event(raw, first=first)
    if event.data is None or len(event.lines) != 1:
        return encode_opaque(raw)
    span, value = event.lines[0][1], _json_that_round_trips(event.data)
    try:
        before, after = raw[: span.start].decode(), raw[span.end :].decode()
    except UnicodeDecodeError:
        value = None
    if value is None:
        return encode_opaque(raw)
    return {"before": before, "data": value, "after": after}


def _json_that_round_trips(raw: bytes) -> Any:
    """Return the value if it gives back the same bytes; None where it doesn't, and for null."""
    try:
        value = orjson.loads(raw)
        return value if orjson.dumps(value) == raw and not is_deep(value) else None
    except (ValueError, TypeError):
        return None


def encode_opaque(raw: bytes) -> dict[str, str]:
    """Return bytes as `text`, or as `base64` where they are not UTF-8."""
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def header_map(headers: Headers) -> HeaderMap:
    """Return headers as a cassette has them: a name that came more than once has a list."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def _facts_trees(cassette: Cassette) -> list[Tree]:
    """Return the facts of the exchanges that have a number, by their numbers."""
    recorders = {each.id: number for number, each in enumerate(cassette.recorders, start=1)}
    trees = []
    for interaction in cassette.interactions:
        polls = {step.exchange: step.polls for step in interaction.steps}
        for exchange, place in interaction.placed:
            number, response, by = exchange.number, exchange.response, exchange.recorded_by
            recorder, own_number = 1, number
            if by is not None and recorders:
                recorder, own_number = recorders.get(by.recorder, 1), by.number
            tree = {
                "number": number,
                "recorder": None if recorder == 1 else recorder,
                "own_number": None if own_number == number else own_number,
                "interaction": interaction.number,
                "turn": place.turn,
                "answer": place.answer,
                "step": place.step,
                "polls": None if polls.get(exchange, 1) == 1 else polls[exchange],
                "started_ms": round(exchange.started_ms),
                "duration_ms": round(exchange.ended_ms - exchange.started_ms),
                "ended_after": exchange.ended_after,
                "follows": exchange.follows or None,
                "request_state_sha256": exchange.issued_sha256,
                "echoed_state_sha256": exchange.echoed_sha256,
                "sha256": exchange_sha256(exchange.request, response),
                "pieces": None if response is None else _times_of(exchange, response),
            }
            trees += [] if number is None else [_without_none(tree)]
    return sorted(trees, key=lambda tree: tree["number"])


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


def exchange_sha256(request: Request, response: Response | None) -> str:
    """Return the digest of one exchange, which covers values, and not how the file spells them."""
    fields = [
        request.method.encode(),
        request.target.encode(),
        _header_fields(request.headers),
        request.body,
    ]
    if response is None:
        fields += (b"", b"", b"", b"")
    else:
        status, headers = b"%d" % response.status, _header_fields(response.headers)
        fields += (status, headers, _ENDS[response.end], response.body)
    return hashlib.sha256(_netstrings(fields)).hexdigest()


def _header_fields(headers: Headers) -> bytes:
    return _netstrings([text.encode() for pair in headers for text in pair])


def _netstrings(fields: Iterable[bytes]) -> bytes:
    return b"".join([b"%d:%b," % (len(field), field) for field in fields])
