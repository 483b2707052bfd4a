"""Write a recording as the file of a cassette, and compute the digest of an exchange."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from mrtr_cassette.core.cassette.model import SCHEMA_ID, VERSION, HeaderMap
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
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
        "interactions": [_interaction_tree(item) for item in cassette.interactions],
    }
    recording = {
        "recorded_at": cassette.recorded_at,
        "tool": cassette.tool,
        "client": cassette.client,
        "command": cassette.command,
        "recorders": _recorder_trees(cassette.recorders) or None,
    }
    shown = orjson.dumps(_without_none(head), option=orjson.OPT_INDENT_2).removesuffix(
        b"\n}"
    )
    parts = [shown, b',\n  "recording": {']
    for name, value in _without_none(recording).items():
        parts.append(b'\n    "%b": %b,' % (name.encode(), orjson.dumps(value)))
    parts.append(b'\n    "exchanges": [')
    facts = [b"\n      " + orjson.dumps(tree) for tree in _facts_trees(cassette)]
    parts.append(b",".join(facts))
    if facts:
        parts.append(b"\n    ")
    parts.append(b"]\n  }\n}\n")
    return b"".join(parts)


def _recorder_trees(recorders: Iterable[RecorderFacts]) -> list[Tree]:
    trees: list[Tree] = []
    for recorder in recorders:
        tree: Tree = {"id": recorder.id, "wall_ms": round(recorder.wall_ms)}
        offset_ms = round(recorder.offset_ms)
        if offset_ms:
            tree["offset_ms"] = offset_ms
        trees.append(tree)
    return trees


def _without_none(tree: Tree) -> Tree:
    return {name: value for name, value in tree.items() if value is not None}


def _interaction_tree(interaction: RecordedInteraction) -> Tree:
    """Return an interaction; if its last response is an ask, that ask has no answer."""
    first = interaction.exchanges[0]
    last = interaction.exchanges[-1]
    ending = None if last.response is None else _response_tree(last.response)
    turns = _turn_trees(interaction)
    if last.ask is not None:
        turns.append({"via": "result", "ask": ending})
        ending = None
    branch = interaction.branch
    return _without_none(
        {
            "orphan": interaction.is_orphan or None,
            "branch": None if branch is None else branch._asdict(),
            "request": _request_tree(first.request),
            "elicitation_turns": turns,
            "response": ending,
            "task": [_exchange_tree(step.exchange) for step in interaction.steps]
            or None,
        }
    )


def _turn_trees(interaction: RecordedInteraction) -> list[Tree]:
    """Return the turns of an interaction, but for an ask in its last response."""
    turns: list[Tree] = []
    exchanges = interaction.exchanges
    for position, exchange in enumerate(exchanges):
        for turn in interaction.pushed_turns:
            if turn.position == position:
                turns.append(_pushed_turn_tree(turn))
        is_last = position + 1 == len(exchanges)
        if exchange.response is not None and not is_last:
            answer = _request_tree(exchanges[position + 1].request, is_answer=True)
            ask = _response_tree(exchange.response)
            turns.append({"via": "result", "ask": ask, "answer": answer})
    turns.extend(task_turn_tree(turn) for turn in task_turns(interaction.steps))
    return turns


def _exchange_tree(exchange: RecordedExchange) -> Tree:
    tree = {"request": _request_tree(exchange.request)}
    if exchange.response is not None:
        tree["response"] = _response_tree(exchange.response)
    return tree


def task_turn_tree(turn: TaskTurn) -> Tree:
    """Return a turn of a task as it is in the file."""
    tree: Tree = {
        "via": "task",
        "ask": {"step": turn.asked, "keys": list(turn.requests)},
    }
    if turn.answered:
        tree["answer"] = {"steps": list(turn.answered)}
    return tree


def _pushed_turn_tree(turn: PushedTurn) -> Tree:
    events: list[Tree] = []
    for request in turn.asked:
        event = {
            "key": request.key,
            "interaction": request.interaction,
            "event": request.piece,
        }
        events.append(_without_none(event))
    tree: Tree = {"via": "push", "ask": {"events": events}}
    if turn.answers:
        responses: list[Tree] = []
        for answer in turn.answers:
            responses.append({"key": answer.key, **_exchange_tree(answer.exchange)})
        tree["answer"] = {"responses": responses}
    return tree


def _request_tree(request: Request, *, is_answer: bool = False) -> Tree:
    """Return a request; that of an answer goes to the same place as the one before."""
    headers = header_map(request.headers)
    if request.is_line:
        session = request.header(SESSION_HEADER)
        head: Tree = {"session": session} if session else {}
    elif is_answer:
        head = {"headers": headers}
    else:
        head = {
            "http": {
                "method": request.method,
                "path": request.target,
                "headers": headers,
            }
        }
    return head | _body_tree(request.body)


def _response_tree(response: Response) -> Tree:
    """Return a response: event by event, or line by line, where it has them."""
    tree: Tree = {}
    if not response.is_lines:
        tree = {"status": response.status, "headers": header_map(response.headers)}
    if response.end is not End.COMPLETE:
        tree["end"] = response.end.value
    if not response.is_framed:
        return tree | _body_tree(response.body)
    raws = [piece.raw for piece in response.pieces if piece.raw]
    if raws and response.is_lines:
        tree["lines"] = [_line_tree(raw) for raw in raws]
    elif raws:
        tree["events"] = [
            _event_tree(raw, first=index == 0) for index, raw in enumerate(raws)
        ]
    return tree


def _body_tree(raw: bytes) -> Tree:
    if not raw:
        return {}
    value = _json_that_round_trips(raw)
    if value is None:
        return encode_opaque(raw)
    return {"body": value}


def _line_tree(raw: bytes) -> Tree:
    value = _json_that_round_trips(raw[:-1]) if raw.endswith(b"\n") else None
    if value is None:
        return encode_opaque(raw)
    return {"data": value}


def _event_tree(raw: bytes, *, first: bool) -> Tree:
    event = read_event(raw, first=first)
    if event.data is None or len(event.lines) != 1:
        return encode_opaque(raw)
    value = _json_that_round_trips(event.data)
    if value is None:
        return encode_opaque(raw)
    _, span = event.lines[0]
    try:
        before = raw[: span.start].decode()
        after = raw[span.end :].decode()
    except UnicodeDecodeError:
        return encode_opaque(raw)
    return {"before": before, "data": value, "after": after}


def _json_that_round_trips(raw: bytes) -> Any:
    """Return the value if it gives back the same bytes; None where it doesn't, and for null."""
    try:
        value = orjson.loads(raw)
        is_same = orjson.dumps(value) == raw
    except (ValueError, TypeError):
        return None
    return value if is_same and not is_deep(value) else None


def encode_opaque(raw: bytes) -> dict[str, str]:
    """Return bytes as `text`, or as `base64` where they are not UTF-8."""
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def header_map(headers: Headers) -> HeaderMap:
    """Return headers as a cassette has them: a name that came more than once has a list."""
    values_by_name: dict[str, list[str]] = {}
    for name, value in headers:
        values_by_name.setdefault(name, []).append(value)
    tree: HeaderMap = {}
    for name, values in values_by_name.items():
        tree[name] = values[0] if len(values) == 1 else values
    return tree


def _facts_trees(cassette: Cassette) -> list[Tree]:
    """Return the facts of the exchanges that have a number, by their numbers."""
    recorders = {
        recorder.id: number
        for number, recorder in enumerate(cassette.recorders, start=1)
    }
    trees: list[Tree] = []
    for interaction in cassette.interactions:
        polls = {step.exchange: step.polls for step in interaction.steps}
        for exchange, place in interaction.placed:
            if exchange.number is None:
                continue
            head = {"number": exchange.number, **_recorder_members(exchange, recorders)}
            poll_count = polls.get(exchange, 1)
            where = {
                "interaction": interaction.number,
                "turn": place.turn,
                "answer": place.answer,
                "step": place.step,
                "polls": None if poll_count == 1 else poll_count,
            }
            trees.append(_without_none(head | where | _exchange_facts(exchange)))
    return sorted(trees, key=lambda tree: tree["number"])


def _recorder_members(exchange: RecordedExchange, recorders: Mapping[str, int]) -> Tree:
    """Return which recorder has seen an exchange, and its number there, if they are not plain."""
    recorded_by = exchange.recorded_by
    if recorded_by is None or not recorders:
        return {}
    recorder = recorders.get(recorded_by.recorder, 1)
    own_number = recorded_by.number
    return {
        "recorder": None if recorder == 1 else recorder,
        "own_number": None if own_number == exchange.number else own_number,
    }


def _exchange_facts(exchange: RecordedExchange) -> Tree:
    response = exchange.response
    return {
        "started_ms": round(exchange.started_ms),
        "duration_ms": round(exchange.ended_ms - exchange.started_ms),
        "ended_after": exchange.ended_after,
        "follows": exchange.follows or None,
        "request_state_sha256": exchange.issued_sha256,
        "echoed_state_sha256": exchange.echoed_sha256,
        "sha256": exchange_sha256(exchange.request, response),
        "pieces": None if response is None else _times_of(exchange, response),
    }


def _times_of(exchange: RecordedExchange, response: Response) -> list[Tree] | None:
    """Return when each piece came; None if it is unknown, or says no more than the end."""
    pieces = response.pieces
    # A single piece that came before the end waits for less than the end does.
    is_early = any(piece.after not in (0, exchange.ended_after) for piece in pieces)
    is_known = not pieces or any(piece.at_ms or piece.after for piece in pieces)
    says_more = response.is_framed or len(pieces) > 1 or is_early
    if not is_known or not says_more:
        return None
    times: list[Tree] = []
    for piece in pieces:
        time = {"at_ms": round(piece.at_ms - exchange.started_ms), "after": piece.after}
        if not response.is_framed:
            time["size"] = len(piece.raw)
        times.append(time)
    return times


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
        fields += (
            b"%d" % response.status,
            _header_fields(response.headers),
            _ENDS[response.end],
            response.body,
        )
    return hashlib.sha256(_netstrings(fields)).hexdigest()


def _header_fields(headers: Headers) -> bytes:
    fields: list[bytes] = []
    for name, value in headers:
        fields += (name.encode(), value.encode())
    return _netstrings(fields)


def _netstrings(fields: Iterable[bytes]) -> bytes:
    return b"".join([b"%d:%b," % (len(field), field) for field in fields])
