"""A cassette as text for people, in short or whole, as JSON data, and as a Mermaid diagram."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.details import CassetteDetails, FinalResponse, Interaction, Turn
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, printable, printable_json, printable_lines, shorten

_SHOWN_APART: Final = frozenset({"description", "id", "kind", "message", "mode"})
"""Members of a request for input that stand in its line, or in its message."""

MOST_ARROWS: Final = 12
_LONGEST_LABEL: Final = 60
_PLAIN: Final = frozenset(" ,.?!'()/_-=+*")
"""What may stand in a Mermaid text as it is, beside letters and digits."""


# Text


def inspection_text(details: CassetteDetails) -> str:
    """Return a cassette in short."""
    count = counted(len(details.interactions), "interaction")
    origin = f"recorded from {details.upstream} at {details.recorded_at}"
    return _text(
        [f"{details.cassette}: {count}, {origin}", f"{_form(details)}, {details.tool}"],
        details,
        is_whole=False,
    )


def review_text(details: CassetteDetails) -> str:
    """Return a cassette whole, without what differs between recordings of one conversation."""
    head = [f"recorded from {details.upstream}", _form(details)]
    return _text(head, details, is_whole=True)


def _form(details: CassetteDetails) -> str:
    return f"format version {details.version}, request states {details.request_state}"


def _text(head: list[str], details: CassetteDetails, *, is_whole: bool) -> str:
    lines = head
    for each in details.interactions:
        lines += ["", *_interaction_lines(each, is_whole=is_whole)]
    return printable_lines("\n".join(map(printable, lines)))


def _interaction_lines(each: Interaction, *, is_whole: bool) -> Iterator[str]:
    arguments = each.arguments_json
    shown = f" {shorten(arguments)}" if arguments and not is_whole else ""
    yield f"#{each.number} {each.call}{shown}"
    if each.is_orphan:
        label = "" if is_whole else "orphan: "
        yield f"    {label}continues a request state that no recorded ask issued"
    if each.branch is not None:
        label = "" if is_whole else "branch: "
        yield f"    {label}shares the ask of turn {each.branch.turn} with #{each.branch.of}"
    if is_whole and each.parameters is not None:
        yield "    params:" if arguments is None else "    arguments:"
        yield from _indented(json_text(each.parameters), 6)
    for number, turn in enumerate(each.turns, start=1):
        yield from _turn_lines(number, turn, is_whole=is_whole)
    if not is_whole:
        size = f"{each.size_bytes:,} bytes, {each.duration_ms:,} ms"
        yield f"    ended: {each.ended} ({size})"
        return
    for sent in each.notifications:
        yield f"    said {sent.method}"
        yield from _indented(json_text(sent.params), 6)
    yield f"    ended: {each.ended}"
    yield from _indented(_final_text(each.final), 6)


def _turn_lines(number: int, turn: Turn, *, is_whole: bool) -> Iterator[str]:
    form = "with request state" if turn.has_request_state else "without request state"
    yield f"    turn {number}, {'pushed' if turn.via == 'push' else form}:"
    if not turn.input_requests:
        yield "      asked for a retry only"
    texts, values = turn.answers_json or {}, turn.answered or {}

    def answer_lines(key: str, note: str = "") -> Iterator[str]:
        if is_whole:
            yield f"      answered {key}{note}"
            yield from _indented(json_text(values[key]), 8)
        else:
            yield f"      answered {key} = {shorten(texts[key])}{note}"

    for key, request in turn.input_requests.items():
        message = f" {shorten(request.message)!r}" if request.message and not is_whole else ""
        yield f"      asked    {key} ({request.kind}){message}"
        if is_whole:
            yield from _indented("\n".join([*message_lines(request), _definition(request)]), 8)
        if key in texts:
            yield from answer_lines(key)
    for key in sorted(texts.keys() - turn.input_requests.keys()):
        yield from answer_lines(key, ", which was not asked")
    if turn.answers_json is None:
        yield "      not answered"
    if turn.answered_by is not None:
        yield f"      by the recording proxy ({turn.answered_by}), and not by the client"


def message_lines(request: InputRequest) -> list[str]:
    """Return what a person reads of a request for input, line by line, each printable."""
    definition = request.definition
    message = definition.get("message") or definition.get("description")
    text = message if isinstance(message, str) else request.message
    return [printable(line) for line in text.splitlines()]


def _definition(request: InputRequest) -> str:
    rest = {name: each for name, each in request.definition.items() if name not in _SHOWN_APART}
    return json_text(rest) if rest else ""


def _final_text(final: FinalResponse) -> str:
    if final.kind == "nothing":
        return ""
    if final.kind == "text":
        return "\n".join(str(final.value).splitlines())
    return json_text(final.value)


def _indented(text: str, columns: int) -> Iterator[str]:
    return (f"{' ' * columns}{line}" for line in text.split("\n") if line)


# Data


def as_data(value: Any, rows: Mapping[type, str | Callable[[Any], Any]]) -> Any:
    """Return a value ready for JSON.

    Args:
        rows: what is told of a type: `name`, or `name=attribute`, each, or a function that says it;
            of a type without a row it is all.
    """
    row = rows.get(type(value))
    if isinstance(row, str):
        words = (word.partition("=") for word in row.split())
        value = {name: getattr(value, attribute or name) for name, _, attribute in words}
    elif row is not None:
        value = row(value)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: as_data(member, rows) for name, member in value.items()}
    return [as_data(each, rows) for each in value] if isinstance(value, list | tuple) else value


def inspection_data(details: CassetteDetails, *, is_whole: bool = False) -> dict[str, Any]:
    """Return a cassette as JSON-ready data; whole with the questions and the final responses."""
    data: dict[str, Any] = as_data(
        details,
        {
            CassetteDetails: "cassette version upstream request_state recorded_at tool "
            "interactions",
            Interaction: "number call arguments=arguments_json orphan=is_orphan branch turns ended "
            f"bytes=size_bytes ms=duration_ms{' final' if is_whole else ''}",
            Turn: partial(_turn_data, is_whole=is_whole),
            FinalResponse: _final_data,
        },
    )
    return data


def _turn_data(turn: Turn, *, is_whole: bool) -> dict[str, Any]:
    return {
        "via": turn.via,
        "asked": [
            {"key": key, "kind": request.kind, "message": request.message}
            | ({"definition": canonical(dict(request.definition))} if is_whole else {})
            for key, request in turn.input_requests.items()
        ],
        "request_state": turn.has_request_state,
        "dialect": turn.dialect,
        "answered": turn.answers_json,
        **({} if turn.answered_by is None else {"answered_by": turn.answered_by}),
    }


def _final_data(final: FinalResponse) -> dict[str, Any]:
    is_json = final.kind not in {"text", "nothing"}
    return {"kind": final.kind, "value": canonical(final.value) if is_json else final.value}


# Diagram


def diagram(details: CassetteDetails) -> str:
    """Return a cassette as a Mermaid block with at most `MOST_ARROWS` arrows.

    Calls that ask come first. A call is drawn whole or, if it alone has too many arrows, cut; a
    note counts the others.
    """
    by_importance = sorted(details.interactions, key=lambda each: not each.turns)
    drawn: dict[int, list[str]] = {}
    remaining = MOST_ARROWS
    for each in by_importance:
        arrows = _arrows(each)
        if len(arrows) <= remaining:
            drawn[each.number] = arrows
        elif not drawn:
            note = f"    Note over client,server: #35;{each.number} goes on"
            drawn[each.number] = [*arrows[:remaining], note]
        else:
            continue
        remaining -= len(arrows)
    lines = ["sequenceDiagram", "    participant client", "    participant server"]
    for number in sorted(drawn):
        lines += drawn[number]
    others = len(details.interactions) - len(drawn)
    if others:
        lines.append(f"    Note over client,server: and {counted(others, 'more call')}")
    return "\n".join(["```mermaid", *lines, "```"])


def _arrows(interaction: Interaction) -> list[str]:
    arrows = [_arrow("client->>server", f"#{interaction.number} {interaction.call}")]
    for turn in interaction.turns:
        arrows.append(_arrow("server-->>client", f"asks {_question(turn)}"))
        if turn.answers_json is not None:
            arrows.append(_arrow("client->>server", _answer(turn)))
    if not interaction.turns or interaction.turns[-1].answers_json is not None:
        arrows.append(_arrow("server-->>client", interaction.ended.removeprefix("HTTP 200, ")))
    return arrows


def _arrow(line: str, text: str) -> str:
    label = shorten(printable(text), _LONGEST_LABEL)
    # Nothing in it is Mermaid, HTML or the end of a Markdown block.
    escaped = (char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in label)
    return f"    {line}: {''.join(escaped)}"


def _question(turn: Turn) -> str:
    names = [f"{key} ({request.kind})" for key, request in turn.input_requests.items()]
    messages = list(turn.asked.values())
    words = f": {messages[0]}" if len(messages) == 1 and messages[0] else ""
    return f"{', '.join(names)}{words}" if names else "for a retry"


def _answer(turn: Turn) -> str:
    actions = {
        key: value["action"]
        if isinstance(value, dict) and isinstance(value.get("action"), str)
        else "answer"
        for key, value in (turn.answered or {}).items()
    }
    if len(actions) == 1:
        return next(iter(actions.values()))
    return ", ".join(f"{key}: {action}" for key, action in actions.items()) or "retry"


# JSON for people


def json_text(value: Any) -> str:
    """Return a JSON value for people: indented, its members in their order, all of it printable.

    Args:
        value: as `jsonbytes.parse` returns it.
    """
    parts: list[str] = []
    _write_indented(value, parts.append, "\n")
    return printable_json("".join(parts))


def _write_indented(value: Any, write: Callable[[str], object], line_end: str) -> None:
    inner = f"{line_end}  "
    if isinstance(value, Mapping) and value:
        separator = "{"
        for key, member in value.items():
            write(f"{separator}{inner}{json.dumps(key, ensure_ascii=False)}: ")
            _write_indented(member, write, inner)
            separator = ","
        write(f"{line_end}}}")
    elif isinstance(value, list) and value:
        separator = "["
        for item in value:
            write(f"{separator}{inner}")
            _write_indented(item, write, inner)
            separator = ","
        write(f"{line_end}]")
    elif isinstance(value, str):
        write(json.dumps(value, ensure_ascii=False))
    else:
        write(canonical(value))
