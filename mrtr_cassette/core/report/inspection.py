"""What is on a cassette: as values, as text for a terminal, as data for programs.

Rule: `Interaction` and `Turn` are public names of the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrtr_cassette.core.exchange.pushed import posted_answers, pushed_requests
from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.format.model import VERSION
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.messages import Ask, Via
from mrtr_cassette.core.report.endings import Endings
from mrtr_cassette.core.report.wording import arguments_json
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, printable, printable_lines, shorten


@dataclass(frozen=True, slots=True)
class Turn:
    """One elicitation turn of an interaction: what the server asked, what the client answered.

    Attributes:
        input_requests: what was asked, by the server's key.
        answers_json: canonical JSON text of each answer, by key; None where the client never
            answered.
        dialect: in which spelling the server asked; None where it pushed requests.
        has_request_state: the server issued a request state with it.
        via: `result` where the response to the call asked, `push` where the server sent requests
            of its own, whose keys are ours, such as `elicitation-1`.
        answered_by: who answered in the client's place, such as `rule 1`; else None.
    """

    input_requests: Mapping[str, InputRequest]
    answers_json: Mapping[str, str] | None
    dialect: str | None
    has_request_state: bool
    via: Via = "result"
    answered_by: str | None = None

    @property
    def asked(self) -> Mapping[str, str]:
        """What the server asked, as the message shown to the user, by key."""
        return {key: request.message for key, request in self.input_requests.items()}

    @property
    def answered(self) -> Mapping[str, Any] | None:
        """What the client answered, as JSON, by key; None where it never did.

        Where it posted an error, the answer is an object with nothing but `error`.
        """
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
    endings = Endings(cassette.interactions)
    return Inspection(
        cassette=cassette.path,
        version=VERSION,
        upstream=cassette.upstream,
        request_state=cassette.request_state,
        recorded_at=cassette.recorded_at,
        tool=cassette.tool,
        interactions=tuple(_interaction(each, endings) for each in cassette.interactions),
    )


def _interaction(recorded: RecordedInteraction, endings: Endings) -> Interaction:
    exchanges = recorded.exchanges
    first = exchanges[0].call
    last = exchanges[-1]
    chain = exchanges[recorded.shared :]
    return Interaction(
        number=recorded.number,
        call=first.title,
        arguments_json=arguments_json(first),
        turns=_turns(recorded),
        ended="abandoned: the last ask has no answer" if last.ask else endings.ending(last),
        branch=recorded.branch,
        is_orphan=recorded.is_orphan,
        size_bytes=sum(map(_size, recorded.own)),
        duration_ms=sum(round(each.ended_ms - each.started_ms) for each in chain),
    )


def _turns(recorded: RecordedInteraction) -> tuple[Turn, ...]:
    """Return the turns in the order in which their asks came."""
    turns: list[Turn] = []
    retries = [*(exchange.call for exchange in recorded.exchanges[1:]), None]
    for position, (exchange, retry) in enumerate(zip(recorded.exchanges, retries, strict=True)):
        # The server pushes while a request is pending, and a response that asks ends that.
        turns += [_pushed_turn(turn) for turn in recorded.pushed_turns if turn.position == position]
        ask = exchange.ask
        if ask is not None:
            turns.append(_turn(ask, retry))
    return tuple(turns)


def _turn(ask: Ask, retry: Call | None) -> Turn:
    answers = None if retry is None else retry.answers
    responses = None if answers is None else answers.input_responses or {}
    has_request_state = ask.request_state is not None
    return Turn(
        _shown_requests(ask.input_requests),
        _shown_answers(responses),
        ask.dialect,
        has_request_state,
        answered_by=(None if retry is None else retry.request.header(ANSWERED_BY_HEADER)) or None,
    )


def _pushed_turn(turn: PushedTurn) -> Turn:
    requests, answers = pushed_requests(turn), posted_answers(turn)
    return Turn(_shown_requests(requests), _shown_answers(answers), None, False, "push")


def _shown_requests(requests: Mapping[str, InputRequest]) -> dict[str, InputRequest]:
    return {
        printable(key): InputRequest(
            printable(request.kind), printable(request.message), request.definition
        )
        for key, request in requests.items()
    }


def _shown_answers(answers: Mapping[str, Any] | None) -> dict[str, str] | None:
    if answers is None:
        return None
    return {printable(key): canonical(value, without_null=True) for key, value in answers.items()}


def _size(exchange: RecordedExchange) -> int:
    response = exchange.response
    pieces = response.pieces if response is not None else ()
    return len(exchange.request.body) + sum(len(piece.raw) for piece in pieces)


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
        "via": turn.via,
        "asked": [
            {"key": key, "kind": request.kind, "message": request.message}
            for key, request in turn.input_requests.items()
        ],
        "request_state": turn.has_request_state,
        "dialect": turn.dialect,
        "answered": None if turn.answers_json is None else dict(turn.answers_json),
        **({} if turn.answered_by is None else {"answered_by": turn.answered_by}),
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
    form = "with request state" if turn.has_request_state else "without request state"
    lines = [f"    turn {number}, {'pushed' if turn.via == 'push' else form}:"]
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
    if turn.answered_by is not None:
        lines.append(f"      by the recording proxy ({turn.answered_by}), and not by the client")
    return lines
