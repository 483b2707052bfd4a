"""What is on a cassette, as JSON-ready data and as text.

Owns: every sentence about a cassette.
Does not own: finding out what is the case (`player`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mrtr_cassette.core.exchange.nodes import Node
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import printable, shorten


def inspection(cassette: CassetteModel, player: Player) -> dict[str, Any]:
    """Return what a person wants to know of a cassette, as JSON-ready data."""
    timings: dict[tuple[int, int], int] = {
        (facts.interaction, facts.turn): facts.duration_ms for facts in cassette.recording.exchanges
    }
    return {
        "cassette": player.path,
        "version": cassette.version,
        "upstream": cassette.upstream,
        "request_state": cassette.request_state,
        "recorded_at": cassette.recording.recorded_at,
        "tool": cassette.recording.tool,
        "interactions": [
            _inspected(cassette, nodes, number, timings)
            for number, nodes in enumerate(player.interactions, start=1)
        ],
    }


def _inspected(
    cassette: CassetteModel, nodes: Sequence[Node], number: int, timings: dict[tuple[int, int], int]
) -> dict[str, Any]:
    interaction = cassette.interactions[number - 1]
    chain = _with_shared(nodes)
    call = chain[0].call
    arguments = call.arguments.get("arguments") if isinstance(call.arguments, dict) else None
    return {
        "number": number,
        "call": str(chain[0].key),
        "arguments": None if arguments is None or not call.is_rpc else canonical(arguments),
        "orphan": bool(interaction.orphan),
        "branch": None if interaction.branch is None else interaction.branch.model_dump(),
        "turns": [
            _inspected_turn(asked, answered)
            for asked, answered in zip(chain, [*chain[1:], None], strict=True)
            if asked.ask is not None
        ],
        "ended": _ended(chain[-1]),
        "bytes": sum(_size(node) for node in nodes),
        "ms": sum(timings.get((node.interaction, node.turn), 0) for node in nodes),
    }


def _with_shared(nodes: Sequence[Node]) -> list[Node]:
    chain = list(nodes)
    while chain[0].parent is not None:
        chain.insert(0, chain[0].parent)
    return chain


def _inspected_turn(asked: Node, answered: Node | None) -> dict[str, Any]:
    ask = asked.ask
    if ask is None:
        raise AssertionError("unreachable because only asks have turns")
    answers = answered.call.answers if answered is not None else None
    return {
        "asked": [
            {
                "key": printable(key),
                "kind": printable(request.kind),
                "message": printable(request.message),
            }
            for key, request in ask.input_requests.items()
        ],
        "request_state": ask.request_state is not None,
        "dialect": ask.dialect,
        "answered": None
        if answers is None
        else {
            printable(key): canonical(value, without_null=True)
            for key, value in (answers.input_responses or {}).items()
        },
    }


def _size(node: Node) -> int:
    response = node.response
    pieces = response.pieces if response is not None else ()
    return len(node.request.body) + sum(len(piece.raw) for piece in pieces)


def _ended(node: Node) -> str:
    response = node.response
    if response is None:
        return "no response"
    if node.ask is not None:
        return "abandoned: the last ask has no answer"
    text = f"HTTP {response.status}"
    message = node.call.message
    for located in messages_in(response) if message is not None else ():
        if located.message.kind is Kind.RESPONSE:
            text = _outcome(located.message.tree, text)
    if response.is_event_stream:
        count = len(response.pieces)
        text += f", stream of {count} event{'' if count == 1 else 's'}"
    if response.end is End.OPEN:
        text += ", still open when the recording ended"
    if response.end is End.BROKEN:
        text += ", broken off by the upstream"
    return text


def _outcome(tree: dict[str, Any], text: str) -> str:
    error, result = tree.get("error"), tree.get("result")
    if isinstance(error, dict):
        code, message = canonical(error.get("code")), canonical(error.get("message"))
        return f"{text}, error {code} {shorten(message)}"
    if isinstance(result, dict) and result.get("isError") is True:
        return f"{text}, result with isError"
    return f"{text}, result"


def inspection_text(data: dict[str, Any]) -> str:
    """Return an inspection as text for a terminal."""
    count = len(data["interactions"])
    lines = [
        (
            f"{data['cassette']}: {count} interaction{'' if count == 1 else 's'}, "
            f"recorded from {data['upstream']} at {data['recorded_at']}"
        ),
        f"format version {data['version']}, request states {data['request_state']}, {data['tool']}",
    ]
    for one in data["interactions"]:
        arguments = f" {shorten(one['arguments'])}" if one["arguments"] else ""
        lines.append("")
        lines.append(f"#{one['number']} {one['call']}{arguments}")
        if one["orphan"]:
            lines.append("    orphan: continues a request state that no recorded ask issued")
        if one["branch"]:
            of, turn = one["branch"]["of"], one["branch"]["turn"]
            lines.append(f"    branch: shares the ask of turn {turn} with #{of}")
        for number, turn in enumerate(one["turns"], start=1):
            lines += _turn_lines(number, turn)
        lines.append(f"    ended: {one['ended']} ({one['bytes']:,} bytes, {one['ms']:,} ms)")
    return "\n".join(lines)


def _turn_lines(number: int, turn: dict[str, Any]) -> list[str]:
    state = "with request state" if turn["request_state"] else "without request state"
    lines = [f"    turn {number}, {state}:"]
    if not turn["asked"]:
        lines.append("      asked nothing but to be called again")
    answered = turn["answered"]
    for asked in turn["asked"]:
        message = f" {shorten(asked['message'])!r}" if asked["message"] else ""
        lines.append(f"      asked    {asked['key']} ({asked['kind']}){message}")
        if answered is not None and asked["key"] in answered:
            lines.append(f"      answered {asked['key']} = {shorten(answered[asked['key']])}")
    keys = {asked["key"] for asked in turn["asked"]}
    lines += [
        f"      answered {key} = {shorten(answered[key])}, which was not asked"
        for key in sorted((answered or {}).keys() - keys)
    ]
    if answered is None:
        lines.append("      not answered")
    return lines
