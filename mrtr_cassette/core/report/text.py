"""A cassette as text for people, in short or whole, as JSON data, and as a Mermaid diagram."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Final

from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.details import CassetteDetails, FinalResponse, Interaction, Turn
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.errors import (
    NotJsonError,
    counted,
    printable,
    printable_json,
    printable_lines,
    shorten,
)

_SHOWN_APART: Final = frozenset({"description", "id", "kind", "message", "mode"})
"""Members of a request for input that stand in its line, or in its message."""

MOST_ARROWS: Final = 12
_LONGEST_LABEL: Final = 60
_PLAIN: Final = frozenset(" ,.?!'()/_-=+*")
"""What may stand in a Mermaid text as it is, beside letters and digits."""


# Text


def inspection_text(details: CassetteDetails) -> str:
    """Return a cassette in short."""
    cassette, count = details.recorded, counted(len(details.interactions), "interaction")
    origin = f"recorded from {cassette.server} at {cassette.recorded_at}"
    head = [f"{cassette.path}: {count}, {origin}", f"{_form(details)}, {cassette.tool}"]
    return short_digests(_text(head, details, is_whole=False))


def review_text(details: CassetteDetails) -> str:
    """Return a cassette whole, without what differs between recordings of one conversation."""
    head = [f"recorded from {details.recorded.server}", _form(details)]
    return _text(head, details, is_whole=True)


def _form(details: CassetteDetails) -> str:
    states = details.recorded.request_state
    return f"format version {details.version}, request states {states}"


def _text(head: list[str], details: CassetteDetails, *, is_whole: bool) -> str:
    lines = head
    for each in details.interactions:
        lines += ["", *_interaction_lines(each, is_whole=is_whole)]
    return printable_lines("\n".join(map(printable, lines)))


def _interaction_lines(each: Interaction, *, is_whole: bool) -> Iterator[str]:
    arguments, outcome = each.arguments_json, outcome_line(each)
    shown = f" {shorten(arguments)}" if arguments and not is_whole else ""
    yield f"#{each.number} {each.call}{shown}"
    if outcome and not is_whole:
        yield f"    {outcome}"
    if each.is_orphan:
        yield "    orphan: continues a request state that no recorded ask issued"
    if each.branch is not None:
        yield f"    branch: shares the ask of turn {each.branch.turn} with #{each.branch.of}"
    if is_whole and each.parameters is not None:
        yield "    params:" if arguments is None else "    arguments:"
        yield from _indented(json_text(each.parameters), 6)
    for number, turn in enumerate(each.turns, start=1):
        yield _turn_line(number, turn)
        if turn.answered_by is not None:
            yield f"      by the recording proxy ({turn.answered_by}), and not by the client"
        if is_whole:
            yield from _said_lines(turn)
    if not is_whole:
        if each.task:
            yield f"    task: {', '.join(each.task)}"
        yield f"    ended: {each.ended} ({each.size_bytes:,} bytes, {each.duration_ms:,} ms)"
        return
    for sent in each.notifications:
        yield f"    said {sent.method}"
        yield from _indented(json_text(sent.params), 6)
    yield f"    ended: {each.ended}"
    kind, value = each.final
    if kind == "text":
        yield from _indented("\n".join(value.splitlines()), 6)
    elif kind != "nothing":
        yield from _indented(json_text(_with_json_read(value)), 6)


def _turn_line(number: int, turn: Turn) -> str:
    form = "with request state" if turn.has_request_state else "without request state"
    form = {"push": "pushed", "task": "of its task"}.get(turn.via, form)
    named = [f"{key} ({request.kind})" for key, request in turn.input_requests.items()]
    unasked = sorted((turn.answered or {}).keys() - turn.input_requests.keys())
    named += [f"{key} (was not asked)" for key in unasked]
    return f"    turn {number}, {form}: {', '.join(named) or 'asked for a retry only'}"


def _said_lines(turn: Turn) -> Iterator[str]:
    for key, request in turn.input_requests.items():
        yield f"      asked    {key}"
        definition = request.definition.items()
        rest = {name: each for name, each in definition if name not in _SHOWN_APART}
        lines = [*message_lines(request), json_text(rest) if rest else ""]
        yield from _indented("\n".join(lines), 8)
    for key, answer in (turn.answered or {}).items():
        yield f"      answered {key}"
        yield from _indented(json_text(answer), 8)
    if turn.answered is None:
        yield "      not answered"


def message_lines(request: InputRequest) -> list[str]:
    """Return what a person reads of a request for input, line by line, each printable."""
    definition = request.definition
    message = definition.get("message") or definition.get("description")
    text = message if isinstance(message, str) else request.message
    return [printable(line) for line in text.splitlines()]


def _with_json_read(value: Any) -> Any:
    """Return a result in which a text that is JSON is shown as JSON, under `text (JSON)`."""
    if isinstance(value, list):
        return [_with_json_read(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return dict(_member_with_json_read(*each) for each in value.items())


def _member_with_json_read(name: str, value: Any) -> tuple[str, Any]:
    if name == "text" and isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(NotJsonError, UnicodeEncodeError):
            return f"{name} (JSON)", parse(value.encode())
    return name, _with_json_read(value)


def _indented(text: str, columns: int) -> Iterator[str]:
    return (f"{' ' * columns}{line}" for line in text.split("\n") if line)


# Questions, answers and ends in a line

_LONGEST_PART: Final = 80
_DIGEST: Final = re.compile("(?<!/)((?:mrtr-[a-z]+|sha256):(?:[0-9]+:)?[0-9a-f]{8})[0-9a-f]{8,}")


def outcome_line(each: Interaction) -> str:
    """Return what a call asked, was answered and came to, such as `Sure? → ok: yes → Done`.

    It is empty where nothing is asked and only programs read the result.
    """
    parts = []
    for turn in each.turns:
        parts.append(question_words(turn.input_requests))
        parts.append("not answered" if turn.answered is None else answer_words(turn.answered))
    came = final_words(each.final)
    if not came and each.turns and each.turns[-1].answered is not None:
        came = each.ended
    return " → ".join([*parts, came] if came else parts)


def question_words(requests: Mapping[str, InputRequest]) -> str:
    """Return the messages of what a server asks, or their keys where they have none."""
    texts = [
        _one_line(" ".join(message_lines(each))) or f"{key} ({each.kind})"
        for key, each in requests.items()
    ]
    return " / ".join(texts) or "call again"


def answer_words(answers: Mapping[str, Any]) -> str:
    """Return answers as a person gives them, such as `confirm: yes`."""
    return ", ".join(part for each in answers.items() for part in _answer_parts(*each)) or "retry"


def _answer_parts(key: str, answer: Any) -> Iterator[str]:
    members = answer if isinstance(answer, Mapping) else {}
    # The draft has the result of the client's own call here.
    members = members["result"] if isinstance(members.get("result"), Mapping) else members
    action, content = members.get("action"), members.get("content")
    if action == "accept" and isinstance(content, Mapping) and content:
        yield from (f"{name}: {_value_words(value)}" for name, value in content.items())
    elif isinstance(action, str):
        yield f"{key}: {_one_line(action)}"
    else:
        said = content if isinstance(content, Mapping) else {}
        yield f"{key}: {_value_words(said.get('text', members.get('value', answer)))}"


def _value_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _one_line(value if isinstance(value, str) else canonical(value))


def final_words(final: FinalResponse) -> str:
    """Return what a person reads of a final response; nothing where only a program reads it."""
    if final.kind == "error":
        error = final.value if isinstance(final.value, Mapping) else {}
        return f"error: {_one_line(str(error.get('message', canonical(final.value))))}"
    if not isinstance(final.value, dict) or _TEXTS.isdisjoint(final.value):
        return ""
    text = _one_line(" ".join(result_texts(final.value)))
    return f"failed: {text}" if final.kind == "failed result" else text


def _one_line(text: str) -> str:
    return printable(shorten(short_digests(" ".join(text.split())), _LONGEST_PART))


_TEXTS: Final = frozenset({"content", "contents", "messages", "structuredContent"})
"""The members of a result that people read."""


def result_texts(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a result as a person reads them; where it has none, its JSON."""
    listed: list[Any] = []
    for name in ("content", "contents", "messages"):
        part = result.get(name)
        listed += part if isinstance(part, list) else ()
    for each in listed:
        if isinstance(each, dict):
            inner = each.get("content")
            shown = _content_text(inner if isinstance(inner, dict) else each)
            yield f"{each.get('role')}: {shown}" if "role" in each else shown
    if not listed:
        structured = result.get("structuredContent")
        yield json_text(result if structured is None else structured)


def _content_text(content: Mapping[str, Any]) -> str:
    text = content.get("text")
    if isinstance(text, str):
        return text
    for member in ("data", "blob"):
        if isinstance(content.get(member), str):
            size = len(content[member]) * 3 // 4
            about = content.get("mimeType", content.get("type", "data"))
            return f"[{about}, about {counted(size, 'byte')}]"
    return json_text(content)


def short_digests(text: str) -> str:
    """Cut the digests that stand for states, sessions and sealed answers to eight digits.

    In a pointer they are whole, so that it can be ignored as it is shown.
    """
    return _DIGEST.sub(lambda match: f"{match[1]}…", text)


# Data


def as_data(value: Any, rows: Mapping[type, str | Callable[[Any], Any]]) -> Any:
    """Return a value ready for JSON; a lone surrogate, which UTF-8 lacks, is escaped.

    Args:
        rows: what is told of a type: `name`, or `name=attribute`, each, or a function that says it;
            of a type without a row it is all.
    """
    row = rows.get(type(value))
    if isinstance(row, str):
        words = (word.partition("=") for word in row.split())
        value = {name: attrgetter(path or name)(value) for name, _, path in words}
    elif row is not None:
        value = row(value)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_encodable(name): as_data(member, rows) for name, member in value.items()}
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, frozenset):
        value = sorted(value)
    return [as_data(each, rows) for each in value] if isinstance(value, list | tuple) else value


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


_ROWS: Final[Mapping[type, str | Callable[[Any], Any]]] = {
    CassetteDetails: "cassette=recorded.path version upstream=recorded.upstream "
    "request_state=recorded.request_state recorded_at=recorded.recorded_at tool=recorded.tool "
    "interactions",
    Interaction: "number call arguments=arguments_json orphan=is_orphan branch turns task ended "
    "bytes=size_bytes ms=duration_ms final",
    Turn: "via asked=input_requests request_state=has_request_state dialect answered=answers_json "
    "answered_by",
    InputRequest: lambda it: {
        "kind": it.kind,
        "message": it.message,
        "definition": canonical(dict(it.definition)),
    },
    FinalResponse: lambda it: {
        "kind": it.kind,
        "value": it.value if it.kind in {"text", "nothing"} else canonical(it.value),
    },
}


def inspection_data(details: CassetteDetails) -> Any:
    """Return a cassette as JSON-ready data; values of others are JSON texts, exact as recorded."""
    return as_data(details, _ROWS)


# Diagram


def diagram(details: CassetteDetails) -> str:
    """Return a cassette as a Mermaid block with at most `MOST_ARROWS` arrows.

    Only calls that ask are drawn, where there are any; a note counts what is left out.
    """
    drawn = [each for each in details.interactions if each.turns] or details.interactions
    arrows = [arrow for each in drawn for arrow in _arrows(each)]
    lines = ["sequenceDiagram", "    participant client", "    participant server"]
    lines += arrows[:MOST_ARROWS]
    left_out = [counted(len(arrows[MOST_ARROWS:]), "more message")]
    left_out.append(f"{counted(len(details.interactions) - len(drawn), 'call')} without a question")
    told = " and ".join(each for each in left_out if not each.startswith("0"))
    if told:
        lines.append(f"    Note over client,server: and {told}")
    return "\n".join(["```mermaid", *lines, "```"])


def _arrows(interaction: Interaction) -> list[str]:
    arrows = [_arrow("client->>server", f"#{interaction.number} {interaction.call}")]
    for turn in interaction.turns:
        arrows.append(_arrow("server-->>client", question_words(turn.input_requests)))
        if turn.answered is not None:
            arrows.append(_arrow("client->>server", answer_words(turn.answered)))
    if not interaction.turns or interaction.turns[-1].answered is not None:
        end = final_words(interaction.final) or interaction.ended.removeprefix("HTTP 200, ")
        arrows.append(_arrow("server-->>client", end))
    return arrows


def _arrow(line: str, text: str) -> str:
    label = shorten(printable(text), _LONGEST_LABEL)
    # Nothing in it is Mermaid, HTML or the end of a Markdown block.
    escaped = (char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in label)
    return f"    {line}: {''.join(escaped)}"


# JSON for people


def json_text(value: Any) -> str:
    """Return a JSON value for people: indented, its members in their order, all of it printable.

    Args:
        value: as `jsonbytes.parse` returns it.
    """
    return printable_json(json.dumps(value, indent=2, ensure_ascii=False, default=_plain_value))


def _plain_value(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else json.loads(value.text)
