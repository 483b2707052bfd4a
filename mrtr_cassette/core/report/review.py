"""A cassette whole, as a text that people review.

Rule: nothing that differs between two recordings of the same conversation is in the text, so that
the difference of two texts is what a reviewer has to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.details import CassetteDetails, FinalResponse, InteractionDetails
from mrtr_cassette.core.report.inspection import Turn, inspection_data
from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import printable, printable_lines

_TOLD = frozenset({"description", "id", "kind", "message", "mode"})
"""Members of a request for input that its line tells, or its message."""


def review_text(details: CassetteDetails) -> str:
    """Return all that was said on a cassette, as text."""
    inspection = details.inspection
    lines = [
        f"recorded from {printable(inspection.upstream)}",
        f"format version {inspection.version}, request states {inspection.request_state}",
    ]
    for each in details.interactions:
        lines += ["", *_interaction_lines(each)]
    return printable_lines("\n".join(lines))


def _interaction_lines(details: InteractionDetails) -> Iterator[str]:
    interaction = details.interaction
    yield f"#{interaction.number} {printable(interaction.call)}"
    if interaction.is_orphan:
        yield "    continues a request state that no recorded ask issued"
    if interaction.branch is not None:
        branch = interaction.branch
        yield f"    shares the ask of turn {branch.turn} with #{branch.of}"
    if details.parameters is not None:
        yield "    arguments:" if interaction.arguments_json is not None else "    params:"
        yield from _indented(json_text(details.parameters), 6)
    for number, turn in enumerate(interaction.turns, start=1):
        yield from _turn_lines(number, turn)
    for said in details.said:
        yield f"    said {printable(said.method)}"
        yield from _indented(json_text(said.params), 6)
    yield f"    ended: {printable(interaction.ended)}"
    yield from _indented(_final_text(details.final), 6)


def _turn_lines(number: int, turn: Turn) -> Iterator[str]:
    form = "with request state" if turn.has_request_state else "without request state"
    yield f"    turn {number}, {'pushed' if turn.via == 'push' else form}:"
    if not turn.input_requests:
        yield "      asked for a retry only"
    answers = dict(turn.answered or {})
    for key, request in turn.input_requests.items():
        yield f"      asked    {key} ({request.kind})"
        yield from _indented("\n".join(message_lines(request)), 8)
        rest = {name: value for name, value in request.definition.items() if name not in _TOLD}
        if rest:
            yield from _indented(json_text(rest), 8)
        if key in answers:
            yield f"      answered {key}"
            yield from _indented(json_text(answers.pop(key)), 8)
    for key, value in answers.items():
        yield f"      answered {key}, which was not asked"
        yield from _indented(json_text(value), 8)
    if turn.answered_by is not None:
        yield f"      by the recording proxy ({printable(turn.answered_by)}), and not by the client"
    if turn.answers_json is None:
        yield "      not answered"


def message_lines(request: InputRequest) -> list[str]:
    """Return what a person reads of a request for input, line by line, each printable."""
    definition = request.definition
    message = definition.get("message") or definition.get("description")
    text = message if isinstance(message, str) else request.message
    return [printable(line) for line in text.splitlines()]


def _final_text(final: FinalResponse) -> str:
    if final.kind == "nothing":
        return ""
    if final.kind == "text":
        return "\n".join(map(printable, str(final.value).splitlines()))
    return json_text(final.value)


def _indented(text: str, columns: int) -> Iterator[str]:
    return (f"{' ' * columns}{line}" for line in text.split("\n") if line)


def review_data(details: CassetteDetails) -> dict[str, Any]:
    """Return an inspection with what the server asked and responded in full, as JSON-ready data."""
    data = inspection_data(details.inspection)
    for of_interaction, each in zip(data["interactions"], details.interactions, strict=True):
        for of_turn, turn in zip(of_interaction["turns"], each.interaction.turns, strict=True):
            requests = turn.input_requests.values()
            for asked, request in zip(of_turn["asked"], requests, strict=True):
                asked["definition"] = canonical(dict(request.definition))
        final = each.final
        is_json = final.kind not in {"text", "nothing"}
        of_interaction["final"] = {
            "kind": final.kind,
            "value": canonical(final.value) if is_json else final.value,
        }
    return data
