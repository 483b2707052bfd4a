"""What is on a cassette: as values, as text for a terminal, as data for programs.

Owns: what a person wants to know of a recording: its calls and turns, how each call ended, how
much it sent and how long it took.
Does not own: reading the file (`format`), what a replay came to (`summary`).
Rule: `Interaction` and `Turn` are public names of the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.format.model import VERSION
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import Ask, messages_in
from mrtr_cassette.core.report.wording import arguments_json
from mrtr_cassette.core.wire.http import End, Response
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, printable, printable_lines, shorten


@dataclass(frozen=True, slots=True)
class Turn:
    """One elicitation turn of an interaction: what the server asked, what the client answered.

    Attributes:
        input_requests: what was asked, by the server's key.
        answers_json: canonical JSON text of each answer, by key; None where the client never
            answered.
        dialect: in which spelling the server asked.
        has_request_state: the server issued a request state with it.
    """

    input_requests: Mapping[str, InputRequest]
    answers_json: Mapping[str, str] | None
    dialect: str
    has_request_state: bool

    @property
    def asked(self) -> Mapping[str, str]:
        """What the server asked, as the message shown to the user, by key."""
        return {key: request.message for key, request in self.input_requests.items()}

    @property
    def answered(self) -> Mapping[str, Any] | None:
        """What the client answered, as JSON, by key; None where it never did."""
        if self.answers_json is None:
            return None
        return {key: json.loads(text) for key, text in self.answers_json.items()}


@dataclass(frozen=True, slots=True)
class Interaction:
    """One logical call on a cassette.

    Attributes:
        number: its number on the cassette, from 1.
        call: what was called, such as `tools/call "deploy"`.
        arguments_json: canonical JSON text of its arguments; None where it had none.
        turns: what was asked and answered before it ended.
        ended: how it ended, such as `HTTP 200, result`.
        branch: where it parts from another interaction, or None.
        is_orphan: its first request continues a state that no recorded ask issued.
        size_bytes: bytes of the bodies of its own exchanges, both ways.
        duration_ms: how long its own exchanges took, without the time between them.
    """

    number: int
    call: str
    arguments_json: str | None
    turns: tuple[Turn, ...]
    ended: str
    branch: Branch | None
    is_orphan: bool
    size_bytes: int
    duration_ms: int

    @property
    def arguments(self) -> Any:
        """Its arguments as JSON; None where it had none."""
        return None if self.arguments_json is None else json.loads(self.arguments_json)


@dataclass(frozen=True, slots=True)
class Inspection:
    """A cassette as a person reads it.

    Attributes:
        cassette: how messages name its file.
        version: of the file format.
        upstream: the server's URL, without credentials.
        request_state: `sealed` or `verbatim`.
        recorded_at: ISO 8601, UTC.
        tool: name and version of the program that recorded it.
        interactions: in the order of the file.
    """

    cassette: str
    version: int
    upstream: str
    request_state: str
    recorded_at: str
    tool: str
    interactions: tuple[Interaction, ...]


def inspected(cassette: Cassette) -> Inspection:
    """Return what a person wants to know of a cassette."""
    return Inspection(
        cassette=cassette.path,
        version=VERSION,
        upstream=cassette.upstream,
        request_state=cassette.request_state,
        recorded_at=cassette.recorded_at,
        tool=cassette.tool,
        interactions=tuple(map(_interaction, cassette.interactions)),
    )


def _interaction(recorded: RecordedInteraction) -> Interaction:
    exchanges = recorded.exchanges
    calls = [exchange.call for exchange in exchanges]
    asks = [exchange.ask for exchange in exchanges]
    return Interaction(
        number=recorded.number,
        call=str(calls[0].key()),
        arguments_json=arguments_json(calls[0]),
        turns=tuple(
            _turn(ask, answering)
            for ask, answering in zip(asks, [*calls[1:], None], strict=True)
            if ask is not None
        ),
        ended=_ended(calls[-1], exchanges[-1].response, asks[-1]),
        branch=recorded.branch,
        is_orphan=recorded.is_orphan,
        size_bytes=sum(map(_size, recorded.own)),
        duration_ms=sum(round(each.ended_ms - each.started_ms) for each in recorded.own),
    )


def _turn(ask: Ask, answering: Call | None) -> Turn:
    answers = None if answering is None else answering.answers
    return Turn(
        input_requests={
            printable(key): InputRequest(printable(request.kind), printable(request.message))
            for key, request in ask.input_requests.items()
        },
        answers_json=None
        if answers is None
        else {
            printable(key): canonical(value, without_null=True)
            for key, value in (answers.input_responses or {}).items()
        },
        dialect=ask.dialect,
        has_request_state=ask.request_state is not None,
    )


def _size(exchange: RecordedExchange) -> int:
    response = exchange.response
    pieces = response.pieces if response is not None else ()
    return len(exchange.request.body) + sum(len(piece.raw) for piece in pieces)


def _ended(call: Call, response: Response | None, ask: Ask | None) -> str:
    if response is None:
        return "no response"
    if ask is not None:
        return "abandoned: the last ask has no answer"
    text = f"HTTP {response.status}"
    for located in messages_in(response) if call.message is not None else ():
        if located.message.kind is Kind.RESPONSE:
            text = _outcome(located.message.tree, text)
    if response.is_event_stream:
        text += f", stream of {counted(len(response.pieces), 'event')}"
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


# For programs


def inspection_data(inspection: Inspection) -> dict[str, Any]:
    """Return an inspection as JSON-ready data."""
    return {
        "cassette": inspection.cassette,
        "version": inspection.version,
        "upstream": inspection.upstream,
        "request_state": inspection.request_state,
        "recorded_at": inspection.recorded_at,
        "tool": inspection.tool,
        "interactions": [_interaction_data(each) for each in inspection.interactions],
    }


def _interaction_data(interaction: Interaction) -> dict[str, Any]:
    branch = interaction.branch
    return {
        "number": interaction.number,
        "call": interaction.call,
        "arguments": interaction.arguments_json,
        "orphan": interaction.is_orphan,
        "branch": None if branch is None else branch._asdict(),
        "turns": [_turn_data(turn) for turn in interaction.turns],
        "ended": interaction.ended,
        "bytes": interaction.size_bytes,
        "ms": interaction.duration_ms,
    }


def _turn_data(turn: Turn) -> dict[str, Any]:
    return {
        "asked": [
            {"key": key, "kind": request.kind, "message": request.message}
            for key, request in turn.input_requests.items()
        ],
        "request_state": turn.has_request_state,
        "dialect": turn.dialect,
        "answered": None if turn.answers_json is None else dict(turn.answers_json),
    }


# For a terminal


def inspection_text(inspection: Inspection) -> str:
    """Return an inspection as text."""
    count = counted(len(inspection.interactions), "interaction")
    origin = f"recorded from {inspection.upstream} at {inspection.recorded_at}"
    form = f"format version {inspection.version}, request states {inspection.request_state}"
    lines = [f"{inspection.cassette}: {count}, {origin}", f"{form}, {inspection.tool}"]
    for interaction in inspection.interactions:
        lines += ["", *_interaction_lines(interaction)]
    # A line end in a value is none of the text.
    return printable_lines("\n".join(map(printable, lines)))


def _interaction_lines(interaction: Interaction) -> Sequence[str]:
    arguments = interaction.arguments_json
    shown = f" {shorten(arguments)}" if arguments else ""
    lines = [f"#{interaction.number} {interaction.call}{shown}"]
    if interaction.is_orphan:
        lines.append("    orphan: continues a request state that no recorded ask issued")
    branch = interaction.branch
    if branch is not None:
        lines.append(f"    branch: shares the ask of turn {branch.turn} with #{branch.of}")
    for number, turn in enumerate(interaction.turns, start=1):
        lines += _turn_lines(number, turn)
    size = f"{interaction.size_bytes:,} bytes, {interaction.duration_ms:,} ms"
    lines.append(f"    ended: {interaction.ended} ({size})")
    return lines


def _turn_lines(number: int, turn: Turn) -> Sequence[str]:
    state = "with request state" if turn.has_request_state else "without request state"
    lines = [f"    turn {number}, {state}:"]
    if not turn.input_requests:
        lines.append("      asked for a retry only")
    answers = turn.answers_json or {}
    for key, request in turn.input_requests.items():
        message = f" {shorten(request.message)!r}" if request.message else ""
        lines.append(f"      asked    {key} ({request.kind}){message}")
        if key in answers:
            lines.append(f"      answered {key} = {shorten(answers[key])}")
    lines += [
        f"      answered {key} = {shorten(answers[key])}, which was not asked"
        for key in sorted(answers.keys() - turn.input_requests.keys())
    ]
    if turn.answers_json is None:
        lines.append("      not answered")
    return lines
