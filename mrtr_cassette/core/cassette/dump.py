"""Write a recording as the file of a cassette, and compute the digest of an exchange."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import orjson

from mrtr_cassette.core.cassette.recorded import (
    SCHEMA_ID,
    VERSION,
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
    head = orjson.dumps(
        _header_and_interactions_tree(cassette), option=orjson.OPT_INDENT_2
    )
    file_parts = [head.removesuffix(b"\n}"), b',\n  "recording": {']
    for name, value in _recording_tree(cassette).items():
        file_parts.append(b'\n    "%b": %b,' % (name.encode(), orjson.dumps(value)))

    file_parts.append(b'\n    "exchanges": [')
    lines = []
    for tree in _exchange_facts_trees(cassette):
        lines.append(b"\n      " + orjson.dumps(tree))

    file_parts.append(b",".join(lines))
    if lines:
        file_parts.append(b"\n    ")

    file_parts.append(b"]\n  }\n}\n")
    return b"".join(file_parts)


def _header_and_interactions_tree(cassette: Cassette) -> Tree:
    """Return everything but the facts that differ between recordings."""
    tree: Tree = {"$schema": SCHEMA_ID, "version": VERSION}
    if cassette.transport != "http":
        tree["transport"] = cassette.transport

    tree["upstream"] = cassette.upstream
    tree["request_state"] = cassette.request_state
    if cassette.redaction is not None:
        tree["redaction"] = asdict(cassette.redaction)
        if not cassette.redaction.shared:
            del tree["redaction"]["shared"]

    if cassette.seals_answers:
        tree["answers"] = "sealed"

    if cassette.values:
        tree["values"] = list(cassette.values)

    tree["interactions"] = list(map(_interaction_tree, cassette.interactions))
    return tree


def _recording_tree(cassette: Cassette) -> Tree:
    """Return the facts about the recording as a whole, which differ between recordings."""
    return _without_none_members(
        {
            "recorded_at": cassette.recorded_at,
            "tool": cassette.tool,
            "client": cassette.client,
            "command": cassette.command,
            "recorders": _recorder_trees(cassette.recorders) or None,
        }
    )


def _recorder_trees(recorders: Iterable[RecorderFacts]) -> list[Tree]:
    """Return the recorders as they are in the file, with times in whole milliseconds."""
    trees = []
    for recorder in recorders:
        tree = {
            "id": recorder.id,
            "wall_ms": round(recorder.wall_ms),
            "offset_ms": round(recorder.offset_ms) or None,
        }
        trees.append(_without_none_members(tree))

    return trees


def _without_none_members(tree: Tree) -> Tree:
    return {name: value for name, value in tree.items() if value is not None}


def _interaction_tree(interaction: RecordedInteraction) -> Tree:
    """Return an interaction; if its last response is an ask, that ask has no answer."""
    first_exchange = interaction.exchanges[0]
    last_exchange = interaction.exchanges[-1]
    turns = _turn_trees(interaction)
    final_response = None
    if last_exchange.response is not None:
        final_response = _response_tree(last_exchange.response)

    if last_exchange.ask is not None:
        turns.append({"via": "result", "ask": final_response})
        final_response = None

    tree: Tree = {}
    if interaction.is_orphan:
        tree["orphan"] = True

    if interaction.branch is not None:
        tree["branch"] = interaction.branch._asdict()

    tree["request"] = _request_tree(first_exchange.request)
    tree["elicitation_turns"] = turns
    if final_response is not None:
        tree["response"] = final_response

    if interaction.steps:
        tree["task"] = [_exchange_tree(step.exchange) for step in interaction.steps]

    return tree


def _turn_trees(interaction: RecordedInteraction) -> list[Tree]:
    """Return the turns of an interaction, but for an ask in its last response."""
    turns = []
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

    for task_turn in task_turns(interaction.steps):
        turns.append(task_turn_tree(task_turn))

    return turns


def _exchange_tree(exchange: RecordedExchange) -> Tree:
    """Return a step of a task or a posted answer, with the response if there was any."""
    tree = {"request": _request_tree(exchange.request)}
    if exchange.response is not None:
        tree["response"] = _response_tree(exchange.response)

    return tree


def task_turn_tree(turn: TaskTurn) -> Tree:
    """Return a turn of a task as it is in the file."""
    tree: Tree = {
        "via": "task",
        "ask": {"step": turn.asking_step, "keys": list(turn.requests)},
    }

    if turn.answering_steps:
        tree["answer"] = {"steps": turn.answering_steps}

    return tree


def _pushed_turn_tree(turn: PushedTurn) -> Tree:
    """Return a pushed turn as it is in the file."""
    events = []
    for request in turn.pushed_requests:
        event = {
            "key": request.key,
            "interaction": request.interaction,
            "event": request.piece_index,
        }
        events.append(_without_none_members(event))

    tree: Tree = {"via": "push", "ask": {"events": events}}
    if turn.answers:
        responses = []
        for answer in turn.answers:
            exchange_tree = _exchange_tree(answer.exchange)
            responses.append({"key": answer.key, **exchange_tree})

        tree["answer"] = {"responses": responses}

    return tree


def _request_tree(request: Request, *, is_answer: bool = False) -> Tree:
    """Return a request; an answer goes to the same place as the request before it."""
    tree: Tree = {}
    headers = header_map(request.headers)
    if request.is_line:
        session = request.header(SESSION_HEADER)
        if session:
            tree["session"] = session
    elif is_answer:
        tree["headers"] = headers
    else:
        tree["http"] = {
            "method": request.method,
            "path": request.target,
            "headers": headers,
        }

    return tree | _body_tree(request.body)


def _response_tree(response: Response) -> Tree:
    """Return a response: event by event, or line by line, if it has any."""
    tree: Tree = {}
    if not response.is_lines:
        tree = {"status": response.status, "headers": header_map(response.headers)}

    if response.end is not End.COMPLETE:
        tree["end"] = response.end.value

    if not response.is_message_stream:
        return tree | _body_tree(response.body)

    raw_pieces = [piece.raw for piece in response.pieces if piece.raw]
    if raw_pieces and response.is_lines:
        tree["lines"] = list(map(_line_tree, raw_pieces))
    elif raw_pieces:
        events = []
        for index, raw in enumerate(raw_pieces):
            events.append(_event_tree(raw, first=index == 0))

        tree["events"] = events

    return tree


def _body_tree(raw: bytes) -> Tree:
    """Return a body as JSON if that gives back the same bytes, or else as opaque."""
    if not raw:
        return {}

    value = _json_that_round_trips(raw)
    if value is None:
        return encode_opaque(raw)

    return {"body": value}


def _line_tree(raw: bytes) -> Tree:
    """Return a line as JSON if that gives back the same bytes, or else as opaque."""
    value = None
    if raw.endswith(b"\n"):
        value = _json_that_round_trips(raw[:-1])

    if value is None:
        return encode_opaque(raw)

    return {"data": value}


def _event_tree(raw: bytes, *, first: bool) -> Tree:
    """Return an event as its JSON and the text around it, or as opaque if it can't be."""
    event = read_event(raw, first=first)
    if event.data is None or len(event.data_lines) != 1:
        return encode_opaque(raw)

    value = _json_that_round_trips(event.data)
    if value is None:
        return encode_opaque(raw)

    _, span = event.data_lines[0]
    try:
        text_before = raw[: span.start].decode()
        text_after = raw[span.end :].decode()
    except UnicodeDecodeError:
        return encode_opaque(raw)

    return {"before": text_before, "data": value, "after": text_after}


def _json_that_round_trips(raw: bytes) -> Any:
    """Return the value if it gives back the same bytes; None if it doesn't, and for null."""
    try:
        value = orjson.loads(raw)
        is_same = orjson.dumps(value) == raw
    except (ValueError, TypeError):
        return None

    if not is_same or is_deep(value):
        return None
    return value


def encode_opaque(raw: bytes) -> dict[str, str]:
    """Return bytes as `text`, or as `base64` if they are not UTF-8."""
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


_HeaderMap = dict[str, str | list[str]]


def header_map(headers: Headers) -> _HeaderMap:
    """Return headers as a cassette has them: a name that came more than once has a list."""
    tree: _HeaderMap = {}
    for name, values in _values_by_name(headers).items():
        tree[name] = values[0] if len(values) == 1 else values

    return tree


def _values_by_name(headers: Headers) -> dict[str, list[str]]:
    """Return the values of each header; how names alternate means nothing (RFC 9110, 5.3)."""
    values_by_name: dict[str, list[str]] = {}
    for name, value in headers:
        values_by_name.setdefault(name, []).append(value)

    return values_by_name


def _exchange_facts_trees(cassette: Cassette) -> list[Tree]:
    """Return the facts of the exchanges that have a number, by their numbers."""
    number_by_recorder = {}
    for number, recorder in enumerate(cassette.recorders, start=1):
        number_by_recorder[recorder.id] = number

    trees = []
    for interaction in cassette.interactions:
        for exchange, place in interaction.placed_exchanges:
            if exchange.number is None:
                continue

            tree: Tree = {"number": exchange.number}
            _add_recorder(tree, exchange, number_by_recorder)
            tree.update(place._asdict())
            if place.step is not None:
                poll_count = interaction.steps[place.step].poll_count
                if poll_count != 1:
                    tree["polls"] = poll_count

            trees.append(_without_none_members(tree | _exchange_facts(exchange)))

    return sorted(trees, key=lambda tree: tree["number"])


def _add_recorder(
    tree: Tree, exchange: RecordedExchange, number_by_recorder: Mapping[str, int]
) -> None:
    """Add which recorder saw an exchange, and its number there, unless a reader assumes them."""
    recorded_by = exchange.recorded_by
    if recorded_by is None or not number_by_recorder:
        return

    recorder_number = number_by_recorder.get(recorded_by.recorder, 1)
    if recorder_number != 1:
        tree["recorder"] = recorder_number

    if recorded_by.number != exchange.number:
        tree["own_number"] = recorded_by.number


def _exchange_facts(exchange: RecordedExchange) -> Tree:
    """Return the facts about an exchange; None for those that it doesn't have."""
    response = exchange.response
    pieces = None
    if response is not None and _has_telling_piece_times(
        response, exchange.ended_after
    ):
        pieces = _piece_time_trees(response, exchange.started_ms)

    return {
        "started_ms": round(exchange.started_ms),
        "duration_ms": round(exchange.ended_ms - exchange.started_ms),
        "ended_after": exchange.ended_after,
        "follows": exchange.played_writes or None,
        "request_state_sha256": exchange.issued_sha256,
        "echoed_state_sha256": exchange.echoed_sha256,
        "sha256": exchange_sha256(exchange.request, response),
        "pieces": pieces,
    }


def _has_telling_piece_times(response: Response, ended_after: int | None) -> bool:
    """Tell whether it is known when the pieces of a response came, and not plain from its end."""
    pieces = response.pieces
    if pieces and not any(piece.at_ms or piece.arrived_count for piece in pieces):
        return False
    if response.is_message_stream or len(pieces) > 1:
        return True

    # A single piece that came before the end waits for less than the end does.
    return any(piece.arrived_count not in (0, ended_after) for piece in pieces)


def _piece_time_trees(response: Response, started_ms: float) -> list[Tree]:
    """Return when each piece came, and its size if the body doesn't show the pieces."""
    piece_trees = []
    for piece in response.pieces:
        at_ms = round(piece.at_ms - started_ms)
        piece_tree = {"at_ms": at_ms, "after": piece.arrived_count}
        if not response.is_message_stream:
            piece_tree["size"] = len(piece.raw)

        piece_trees.append(piece_tree)

    return piece_trees


def exchange_sha256(request: Request, response: Response | None) -> str:
    """Return the digest of one exchange, which covers values, and not how the file spells them."""
    digest_fields = [
        request.method.encode(),
        request.target.encode(),
        _header_digest_fields(request.headers),
        request.body,
    ]

    if response is None:
        digest_fields += (b"", b"", b"", b"")
    else:
        digest_fields += (
            b"%d" % response.status,
            _header_digest_fields(response.headers),
            _ENDS[response.end],
            response.body,
        )

    return hashlib.sha256(_netstrings(digest_fields)).hexdigest()


@lru_cache(maxsize=1024)
def _header_digest_fields(headers: Headers) -> bytes:
    """Return headers as the digest covers them: as netstrings of names and values."""
    fields: list[bytes] = []
    # As they are when they are read again.
    for name, values in _values_by_name(headers).items():
        for value in values:
            fields += (name.encode(), value.encode())

    return _netstrings(fields)


def _netstrings(fields: Iterable[bytes]) -> bytes:
    """Return fields with their lengths before them, so that no two lists give the same bytes."""
    return b"".join([b"%d:%b," % (len(field), field) for field in fields])
