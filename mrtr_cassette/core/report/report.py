"""How misses, replays and cassettes read: values in, text or JSON-ready data out.

Owns: every sentence about them, for the terminal, the JSON-RPC error and the test report alike.
Does not own: finding out what is the case (`player`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from mrtr_cassette.core.drive.leading import Lead, NotLed
from mrtr_cassette.core.exchange.nodes import Node
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import Answers, InputRequired
from mrtr_cassette.core.protocol.jsonrpc import ID, Kind, Message
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.secrets.states import sha256_of
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import pointer_path
from mrtr_cassette.errors import printable, shorten

MISS_CODE = -32010
"""JSON-RPC error code of a miss, in the range that is the implementation's own."""

_FIXES = {
    Reason.UNKNOWN_METHOD: "record this request too, or check the URL that the client uses",
    Reason.UNKNOWN_NAME: "record this call too, or call what was recorded",
    Reason.ARGUMENTS_DIFFER: "call it with the recorded arguments, record this call too, or leave "
    "a value that is nobody's to fix out of the comparison with --ignore POINTER",
    Reason.STATE_UNKNOWN: "echo the request state exactly as the ask of this replay gave it; "
    "a state from a live server or from another call is not known here",
    Reason.STATE_MISSING: "send the retry with the ask's requestState",
    Reason.STATE_UNEXPECTED: "send the retry without requestState, as the ask gave none",
    Reason.ANSWERS_DIFFER: "answer as recorded, record this answer too (the same ask may have "
    "several recorded answers), or leave a value out of the comparison with --ignore POINTER",
    Reason.ANSWERS_MISSING: "answer everything that was answered in the recording",
    Reason.ALREADY_PLAYED: "make the call as often as it was recorded, or allow it again with "
    "--repeat always",
    Reason.OUT_OF_ORDER: "make the call first, and answer what it asks",
}


_ABOUT_ANSWERS = frozenset({Reason.ANSWERS_DIFFER, Reason.ANSWERS_MISSING})


def miss_text(miss: Miss, path: str) -> str:
    """Return a miss as lines of text.

    Args:
        path: the cassette's file.
    """
    lines = [f"miss: {miss.reason.value}: {miss.detail}", f"  asked:    {_asked(miss.call)}"]
    lines += [f"  question: {question}" for question in _questions(miss)]
    if miss.nearest is not None:
        lines.append(f"  nearest:  {_place(miss.nearest)} in {path}")
    else:
        lines.append(f"  cassette: {path}")
    lines += [
        f"  {printable(difference.pointer) or '/'}: recorded {_shown(difference.recorded)}, "
        f"received {_shown(difference.received)}"
        for difference in miss.differences
    ]
    lines.append(f"  fix:      {_FIXES[miss.reason]}")
    return "\n".join(lines)


def miss_data(miss: Miss, path: str) -> dict[str, Any]:
    """Return a miss as JSON-ready data, the `error.data` of the answer."""
    nearest = miss.nearest
    return {
        "reason": miss.reason.value,
        "detail": miss.detail,
        "asked": _asked(miss.call),
        "questions": _questions(miss),
        "cassette": path,
        "nearest": None
        if nearest is None
        else {"interaction": nearest.interaction, "turn": nearest.turn, "call": str(nearest.key)},
        "differences": [
            {
                "pointer": printable(difference.pointer),
                "recorded": None if difference.recorded is None else shorten(difference.recorded),
                "received": None if difference.received is None else shorten(difference.received),
            }
            for difference in miss.differences
        ],
        "fix": _FIXES[miss.reason],
    }


def miss_body(miss: Miss, path: str) -> bytes:
    """Return the JSON-RPC error that a client gets for a miss, with the client's own id."""
    return _error_body(
        miss.call.message,
        {"code": MISS_CODE, "message": miss_text(miss, path), "data": miss_data(miss, path)},
    )


def _error_body(message: Message | None, error: dict[str, Any]) -> bytes:
    identity = None
    if message is not None and message.kind is Kind.REQUEST:
        identity = message.spelled(ID)
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (identity or b"null", orjson.dumps(error))


NOT_LED_CODE = -32012
"""JSON-RPC error code of a retry that the live server could not be led to."""

_NOT_LED_FIX = "record the whole call anew, into another cassette or with --force"


def not_led_text(failure: NotLed, path: str) -> str:
    """Return why a request could not be recorded, as lines of text.

    Args:
        path: the cassette's file.
    """
    lines = [f"not recorded: {failure.detail}", f"  asked:    {_asked(failure.call)}"]
    asker = failure.asker
    if asker is not None:
        lines.append(f"  recorded: {_asker_place(asker)} in {path}")
    lines += [
        f"  {printable(difference.pointer)}: recorded {_shown(difference.recorded)}, "
        f"live {_shown(difference.received)}"
        for difference in failure.differences
    ]
    lines.append(f"  fix:      {_NOT_LED_FIX}")
    return "\n".join(lines)


def not_led_body(failure: NotLed, path: str) -> bytes:
    """Return the JSON-RPC error that a client gets for a retry that could not be recorded."""
    asker = failure.asker
    data = {
        "detail": failure.detail,
        "asked": _asked(failure.call),
        "cassette": path,
        "recorded": None
        if asker is None
        else {"interaction": asker.interaction, "turn": asker.turn + 1, "call": str(asker.key)},
        "differences": [
            {
                "pointer": printable(difference.pointer),
                "recorded": None if difference.recorded is None else shorten(difference.recorded),
                "live": None if difference.received is None else shorten(difference.received),
            }
            for difference in failure.differences
        ],
        "fix": _NOT_LED_FIX,
    }
    message = not_led_text(failure, path)
    error = {"code": NOT_LED_CODE, "message": message, "data": data}
    return _error_body(failure.call.message, error)


def not_led_event(failure: NotLed) -> dict[str, Any]:
    """Return, for a log that programs read, that a retry was not recorded, without any value."""
    asker = failure.asker
    return {
        "event": "not-led",
        "call": str(failure.call.key()),
        "recorded": None if asker is None else [asker.interaction, asker.turn + 1],
        "pointers": [printable(difference.pointer) for difference in failure.differences],
    }


def lead_line(lead: Lead) -> str:
    """Return as a line for a log that the server was led to a recorded ask."""
    return f"      led the server to {_asker_place(lead.asker)}, for an answer that is not recorded"


def lead_event(lead: Lead) -> dict[str, Any]:
    """Return, for a log that programs read, that the server was led to a recorded ask."""
    asker = lead.asker
    return {
        "event": "led",
        "call": str(asker.key),
        "interaction": asker.interaction,
        "turn": asker.turn + 1,
    }


def _asker_place(asker: Node) -> str:
    return f"#{asker.interaction} ({asker.key}, ask of turn {asker.turn + 1})"


def _asked(call: Call) -> str:
    text = str(call.key())
    arguments = call.arguments.get("arguments") if isinstance(call.arguments, dict) else None
    if arguments is not None and call.is_rpc:
        text += f" with {shorten(canonical(arguments))}"
    if call.answers is not None:
        text += f", {_answering(call.answers)}"
    return text


def _answering(answers: Answers) -> str:
    keys = ", ".join(printable(key) for key in sorted(answers.input_responses or {}))
    text = f"answering {keys}" if keys else "answering nothing"
    return text if answers.request_state is None else f"{text}, echoing a request state"


def _questions(miss: Miss) -> list[str]:
    """Return what the ask said to which the answers don't fit."""
    asked = miss.nearest.parent if miss.nearest is not None else None
    if asked is None or asked.ask is None or miss.reason not in _ABOUT_ANSWERS:
        return []
    keys = {pointer_path(difference.pointer)[1] for difference in miss.differences}
    return [
        printable(f"{key} ({request.kind}) {shorten(canonical(request.message))}")
        for key, request in asked.ask.input_requests.items()
        if key in keys
    ]


def _place(node: Node) -> str:
    turn = f", answer of turn {node.turn}" if node.turn else ""
    return f"#{node.interaction} ({node.key}{turn})"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else shorten(value)


def summary(player: Player) -> str:
    """Return what a replay came to, in one or a few lines."""
    total = len(player.interactions)
    unplayed = player.unplayed
    parts = [f"played {total - len(unplayed)} of {total} interactions", _count_misses(player)]
    lines = [", ".join(parts)]
    for number in unplayed[:_LISTED]:
        nodes = player.interactions[number - 1]
        some = any(node.played for node in nodes)
        state = "played in part" if some else "never played"
        lines.append(f"  {state}: #{number} {nodes[0].key}")
    if len(unplayed) > _LISTED:
        lines.append(f"  and {len(unplayed) - _LISTED} more")
    return "\n".join(lines)


_LISTED = 10


def _count_misses(player: Player) -> str:
    count = len(player.misses)
    if not count:
        return "no misses"
    reasons = Counter(miss.reason.value for miss in player.misses)
    named = ", ".join(f"{reason} {times}" for reason, times in sorted(reasons.items()))
    return f"{count} {'miss' if count == 1 else 'misses'} ({named})"


def replay_report(player: Player) -> dict[str, Any]:
    """Return what a replay came to, as JSON-ready data: played, unplayed and missed."""
    unplayed = set(player.unplayed)
    interactions = []
    for number, nodes in enumerate(player.interactions, start=1):
        plays = sum(node.played for node in nodes)
        outcome = "played"
        if number in unplayed:
            outcome = "played in part" if plays else "unplayed"
        interactions.append(
            {
                "number": number,
                "call": player.redacted(str(nodes[0].key)),
                "outcome": outcome,
                "plays": plays,
            }
        )
    return {
        "cassette": player.path,
        "interactions": interactions,
        "misses": [
            {
                "text": player.redacted(miss_text(miss, player.path)),
                **miss_data(miss, player.path),
            }
            for miss in player.misses
        ],
    }


def annotation(miss: dict[str, Any]) -> str:
    """Return a miss of a `replay_report` as a workflow command of GitHub Actions."""
    file = _escaped(miss["cassette"], _IN_PROPERTY)
    title = _escaped(f"miss: {miss['reason']}", _IN_PROPERTY)
    return f"::error file={file},title={title}::{_escaped(miss['text'], _IN_MESSAGE)}"


_IN_MESSAGE = "%\r\n"
_IN_PROPERTY = "%\r\n:,"


def _escaped(text: str, characters: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in characters else char for char in text)


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


def observation_line(observation: Observation, at_ms: float) -> str:
    """Return one recorded exchange as a line for a log, without a value that anybody sent."""
    call = observation.call
    line = f"{observation.number:>4}  {observation.label}"
    if call.answers is not None:
        line += f", {_answering(call.answers)}"
    line += f" -> HTTP {observation.status}" if observation.status else " -> no response"
    if observation.ask is not None:
        line += f", {_asking(observation.ask)}"
    return f"{line} ({at_ms - observation.started_ms:.0f} ms)"


def request_event(observation: Observation) -> dict[str, Any]:
    """Return, for a log that programs read, that a call was started or a retry came."""
    answers = observation.call.answers
    if answers is None:
        return {"event": "started", **_call_facts(observation)}
    return {
        "event": "answered",
        **_call_facts(observation),
        "keys": [printable(key) for key in sorted(answers.input_responses or {})],
        "request_state_sha256": _hash(answers.request_state),
    }


def response_event(observation: Observation, end: End, at_ms: float) -> dict[str, Any]:
    """Return, for a log that programs read, that a call was asked something or ended."""
    ask = observation.ask
    facts = {
        **_call_facts(observation),
        "status": observation.status,
        "end": end.value,
        "bytes": observation.size,
        "duration_ms": round(at_ms - observation.started_ms, 1),
    }
    if ask is None:
        return {"event": "ended", **facts}
    return {
        "event": "asked",
        **facts,
        "keys": {
            printable(key): printable(request.kind) for key, request in ask.input_requests.items()
        },
        "request_state_sha256": _hash(ask.request_state),
    }


def played_event(play: Play) -> dict[str, Any]:
    """Return, for a log that programs read, that a request got its recorded reply."""
    node = play.node
    return {
        "event": "played",
        "call": str(node.key),
        "interaction": node.interaction,
        "turn": node.turn,
        "times": node.played,
    }


def missed_event(miss: Miss) -> dict[str, Any]:
    """Return, for a log that programs read, that a request was missed, without any value."""
    nearest = miss.nearest
    return {
        "event": "missed",
        "call": str(miss.call.key()),
        "reason": miss.reason.value,
        "nearest": None if nearest is None else [nearest.interaction, nearest.turn],
        "pointers": [printable(difference.pointer) for difference in miss.differences],
    }


def _call_facts(observation: Observation) -> dict[str, Any]:
    return {"exchange": observation.number, "call": observation.label}


def _hash(state: str | None) -> str | None:
    return None if state is None else sha256_of(state)


def _asking(ask: InputRequired) -> str:
    asked = ", ".join(
        printable(f"{key} ({request.kind})") for key, request in ask.input_requests.items()
    )
    text = f"asks {asked}" if asked else "asks to be called again"
    return text if ask.request_state is None else f"{text}, with request state"


UPSTREAM_CODE = -32011
"""JSON-RPC error code for an upstream that gave no response."""


def unread_coding_line(coding: str) -> str:
    """Return the warning about responses that nobody here can look into."""
    return printable(
        f"the upstream compresses responses with {coding}, which can't be read: in these, asks are "
        "not recognised, and states and secrets are recorded as they are; "
        "record with --header 'Accept-Encoding: gzip'"
    )


def upstream_error_body(request: Request, problem: str) -> bytes:
    """Return the JSON-RPC error that a client gets when the upstream gave no response."""
    return _error_body(read_call(request).message, {"code": UPSTREAM_CODE, "message": problem})
