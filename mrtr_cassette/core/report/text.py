"""A cassette as text for people, in short or whole, as JSON data, and as a Mermaid diagram."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Final

from mrtr_cassette.core.compare.handles import sent_back_in
from mrtr_cassette.core.compare.values import json_in
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.details import (
    CassetteDetails,
    FinalResponse,
    Interaction,
    Turn,
)
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import (
    counted,
    line_by_line,
    printable,
    printable_json,
    shorten,
)

PAGE_START: Final = (
    '<!doctype html>\n<html lang="en"><head>'
    '<meta name="generator" content="mrtr-cassette view">'
)
"""How a page begins; only such a file is ever overwritten by a page."""

_SHOWN_APART: Final = frozenset({"description", "id", "kind", "message", "mode"})
"""Members of a request for input that its line or its message shows."""

MOST_ARROWS: Final = 12
_LONGEST_LABEL: Final = 60
_UNESCAPED_CHARS: Final = frozenset(" ,.?!'()/_-=+*")
"""Characters that a Mermaid text may have as they are, beside letters and digits."""


# Text


def inspection_text(details: CassetteDetails) -> str:
    """Return a cassette in short."""
    cassette = details.recorded
    count = counted(len(details.interactions), "interaction")
    origin = f"recorded from {cassette.server} at {cassette.recorded_at}"
    lines = [
        f"{cassette.path}: {count}, {origin}",
        f"{_format_words(details)}, {cassette.tool}",
    ]

    handles = _handles_by_call(details)
    for interaction in details.interactions:
        lines += ["", *_lines_in_short(interaction, handles)]

    return short_digests(line_by_line(*lines))


def review_text(details: CassetteDetails) -> str:
    """Return a whole cassette, without values that vary between recordings of one conversation."""
    lines = [f"recorded from {details.recorded.server}", _format_words(details)]
    for interaction in details.interactions:
        lines += ["", *_lines_of_whole_interaction(interaction)]

    return line_by_line(*lines)


def _format_words(details: CassetteDetails) -> str:
    """Return in words the format version of a cassette and how it keeps request states."""
    request_states = details.recorded.request_state
    return f"format version {details.version}, request states {request_states}"


_HandlesByCall = Mapping[int, Mapping[str, int]]
"""What each call sends back of another one's results, and the number of that."""


def _handles_by_call(details: CassetteDetails) -> _HandlesByCall:
    """Return, by call, the handles that it sends back, and the calls that issued them."""
    handles: dict[int, dict[str, int]] = defaultdict(dict)
    for repeated in sent_back_in(details.recorded):
        if repeated.issued_by != repeated.sent_by:
            handles[repeated.sent_by][repeated.handle] = repeated.issued_by

    return handles


def _lines_in_short(interaction: Interaction, handles: _HandlesByCall) -> Iterator[str]:
    """Yield an interaction in short."""
    line = f"#{interaction.number} {interaction.call}"
    if interaction.arguments_json:
        line += f" {shorten(interaction.arguments_json)}"

    yield line
    outcome = outcome_line(interaction)
    if outcome:
        yield f"    {outcome}"

    yield from _origin_lines(interaction)
    for handle, issued_by in handles.get(interaction.number, {}).items():
        yield f"    sends back: {handle}, of #{issued_by}"

    for number, turn in enumerate(interaction.turns, start=1):
        yield from _turn_lines(number, turn)

    if interaction.task:
        yield f"    task: {', '.join(interaction.task)}"

    cost = f"{interaction.size_bytes:,} bytes, {interaction.duration_ms:,} ms"
    yield f"    ended: {interaction.ended} ({cost})"


def _lines_of_whole_interaction(interaction: Interaction) -> Iterator[str]:
    """Yield a whole interaction."""
    yield f"#{interaction.number} {interaction.call}"
    yield from _origin_lines(interaction)
    if interaction.parameters is not None:
        yield "    params:" if interaction.arguments_json is None else "    arguments:"
        yield from _indented_lines(json_text(interaction.parameters), 6)

    for number, turn in enumerate(interaction.turns, start=1):
        yield from _turn_lines(number, turn)
        yield from _question_and_answer_lines(turn)

    for notification in interaction.notifications:
        yield f"    said {notification.method}"
        yield from _indented_lines(json_text(notification.params), 6)

    yield f"    ended: {interaction.ended}"
    kind, value = interaction.final
    if kind == "text":
        yield from _indented_lines("\n".join(value.splitlines()), 6)
    elif kind != "nothing":
        yield from _indented_lines(json_text(_with_json_texts_parsed(value)), 6)


def _origin_lines(interaction: Interaction) -> Iterator[str]:
    """Yield where an interaction comes from, if it continues another one."""
    if interaction.is_orphan:
        yield "    orphan: continues an ask that was not recorded"

    branch = interaction.branch
    if branch is not None:
        yield f"    branch: shares the ask of turn {branch.turn} with #{branch.of}"


def _turn_lines(number: int, turn: Turn) -> Iterator[str]:
    """Yield the form and the keys of a turn, and who answered it."""
    form = "without request state"
    if turn.has_request_state:
        form = "with request state"

    form = {"push": "pushed", "task": "of its task"}.get(turn.via, form)
    key_words = []
    for key, request in turn.input_requests.items():
        key_words.append(f"{key} ({request.kind})")

    unasked_keys = (turn.answered or {}).keys() - turn.input_requests.keys()
    for key in sorted(unasked_keys):
        key_words.append(f"{key} (was not asked)")

    yield f"    turn {number}, {form}: {', '.join(key_words) or 'asked for a retry only'}"
    if turn.answered_by is not None:
        yield f"      by the recording proxy ({turn.answered_by}), and not by the client"


def _question_and_answer_lines(turn: Turn) -> Iterator[str]:
    """Yield the questions and the answers of a turn."""
    for key, request in turn.input_requests.items():
        yield f"      asked    {key}"
        yield from _indented_lines("\n".join(message_lines_for_person(request)), 8)
        other_members = {}
        for name, member in request.definition.items():
            if name not in _SHOWN_APART:
                other_members[name] = member

        if other_members:
            yield from _indented_lines(json_text(other_members), 8)

    if turn.answered is None:
        yield "      not answered"
        return

    for key, answer in turn.answered.items():
        yield f"      answered {key}"
        yield from _indented_lines(json_text(answer), 8)


def message_lines_for_person(request: InputRequest) -> list[str]:
    """Return the printable lines of a request for input that a person reads."""
    definition = request.definition
    message = definition.get("message") or definition.get("description")
    text = message if isinstance(message, str) else request.message

    return [printable(line) for line in text.splitlines()]


def _with_json_texts_parsed(value: Any) -> Any:
    """Return a result in which a text that is JSON is shown as JSON, under `text (JSON)`."""
    if isinstance(value, list):
        return [_with_json_texts_parsed(item) for item in value]
    if not isinstance(value, Mapping):
        return value

    members = {}
    for name, member in value.items():
        tree = None
        if name == "text" and isinstance(member, str):
            tree = json_in(member)

        if tree is None:
            members[name] = _with_json_texts_parsed(member)
        else:
            members[f"{name} (JSON)"] = tree

    return members


def _indented_lines(text: str, columns: int) -> list[str]:
    """Return the lines of a text indented by some columns, without empty lines."""
    return [f"{' ' * columns}{line}" for line in text.split("\n") if line]


# Questions, answers and outcomes in a line

_LONGEST_PART: Final = 80
_DIGEST_IN_TEXT: Final = re.compile(
    "(?<!/)((?:mrtr-[a-z]+|sha256):(?:[0-9]+:)?[0-9a-f]{8})[0-9a-f]{8,}"
)


def outcome_line(interaction: Interaction) -> str:
    """Return the questions, answers and outcome of a call, such as `Sure? → ok: yes → Done`.

    It is empty if nothing is asked and only programs read the result.
    """
    parts = []
    is_answered = False
    for turn in interaction.turns:
        answered = "not answered"
        is_answered = turn.answered is not None
        if turn.answered is not None:
            answered = answer_words(turn.answered)

        parts += [question_words(turn.input_requests), answered]

    outcome = final_response_words(interaction.final)
    if is_answered:
        outcome = outcome or interaction.ended

    if outcome:
        parts.append(outcome)

    return " → ".join(parts)


def question_words(requests: Mapping[str, InputRequest]) -> str:
    """Return the messages of a server's questions, or the keys of those without one."""
    texts = []
    for key, request in requests.items():
        message = _in_one_line(" ".join(message_lines_for_person(request)))
        texts.append(message or f"{key} ({request.kind})")

    return " / ".join(texts) or "call again"


def answer_words(answers: Mapping[str, Any]) -> str:
    """Return answers as a person gives them, such as `confirm: yes`."""
    parts = []
    for key, answer in answers.items():
        parts += _named_answer_values(key, answer)

    return ", ".join(parts) or "retry"


def _named_answer_values(key: str, answer: Any) -> list[str]:
    """Return the values of an answer, each with its name."""
    members = members_of(answer)
    # The draft has the result of the client's own call here.
    members = members_of(members.get("result")) or members
    content = members_of(members.get("content"))
    action = members.get("action")
    if action == "accept" and content:
        return [
            f"{name}: {_answer_value_words(value)}" for name, value in content.items()
        ]
    if isinstance(action, str):
        return [f"{key}: {_in_one_line(action)}"]

    value = content.get("text", members.get("value", answer))
    return [f"{key}: {_answer_value_words(value)}"]


def _answer_value_words(value: Any) -> str:
    """Return an answer's value in a line: yes or no, a text, or JSON."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _in_one_line(value)
    return _in_one_line(canonical(value))


def final_response_words(final: FinalResponse) -> str:
    """Return the text of a final response for people; nothing if only a program reads it."""
    value = final.value
    if final.kind == "error":
        message = members_of(value).get("message", canonical(value))
        return f"error: {_in_one_line(str(message))}"

    if not isinstance(value, dict) or _TEXT_MEMBERS.isdisjoint(value):
        return ""

    text = _in_one_line(" ".join(result_texts(value)))
    if final.kind == "failed result":
        return f"failed: {text}"

    return text


def _in_one_line(text: str) -> str:
    """Return a text in a single printable line, shortened, and its digests too."""
    return printable(shorten(short_digests(" ".join(text.split())), _LONGEST_PART))


_TEXT_MEMBERS: Final = frozenset(
    {"content", "contents", "messages", "structuredContent"}
)
"""The members of a result that people read."""


def result_texts(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a result as a person reads them; if it has none, its JSON."""
    items = []
    for name in ("content", "contents", "messages"):
        part = result.get(name)
        if isinstance(part, list):
            items += part

    for item in items:
        if isinstance(item, dict):
            content = item.get("content")
            if not isinstance(content, dict):
                content = item

            shown = _content_block_text(content)
            if "role" in item:
                shown = f"{item['role']}: {shown}"

            yield shown

    if not items:
        structured_content = result.get("structuredContent")
        if structured_content is None:
            structured_content = result

        yield json_text(structured_content)


def _content_block_text(content: Mapping[str, Any]) -> str:
    """Return the text of a content block; of binary data its type and size."""
    text = content.get("text")
    if isinstance(text, str):
        return text

    for member in ("data", "blob"):
        base64 = content.get(member)
        if isinstance(base64, str):
            size = len(base64) * 3 // 4
            about = content.get("mimeType", content.get("type", "data"))
            return f"[{about}, about {counted(size, 'byte')}]"

    return json_text(content)


def short_digests(text: str) -> str:
    """Cut the digests of states, sessions and sealed answers to eight digits.

    A pointer keeps whole ones, so that it can be ignored as it is shown.
    """
    return _DIGEST_IN_TEXT.sub(lambda match: f"{match[1]}…", text)


# Data


def as_data(
    value: Any, members_by_type: Mapping[type, str | Callable[[Any], Any]]
) -> Any:
    """Return a value ready for JSON; a lone surrogate, which UTF-8 lacks, is escaped.

    Args:
        members_by_type: the members of a type: `name`, or `name=attribute`, each, or a function
            that returns them; a type without a row has all its fields.
    """
    value = _members_named_by_row(value, members_by_type.get(type(value)))
    if isinstance(value, Mapping):
        data = {}
        for name, member in value.items():
            data[_escape_surrogates(name)] = as_data(member, members_by_type)

        return data

    if isinstance(value, str):
        return _escape_surrogates(value)

    if isinstance(value, frozenset):
        value = sorted(value)

    if isinstance(value, list | tuple):
        return [as_data(item, members_by_type) for item in value]

    return value


def _members_named_by_row(value: Any, row: str | Callable[[Any], Any] | None) -> Any:
    """Return the members of an object that a row names; any other value as it is."""
    if isinstance(row, str):
        members = {}
        for word in row.split():
            name, _, path = word.partition("=")
            members[name] = attrgetter(path or name)(value)

        return members

    if row is not None:
        return row(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}

    return value


def _escape_surrogates(text: str) -> str:
    """Return a text with its lone surrogates escaped, which UTF-8 lacks."""
    return text.encode("utf-8", "backslashreplace").decode()


def _final_members(final: FinalResponse) -> Mapping[str, Any]:
    """Return the members of a final response for JSON; a JSON value as its canonical text."""
    value = final.value
    if final.kind not in ("text", "nothing"):
        value = canonical(value)

    return {"kind": final.kind, "value": value}


_JSON_MEMBERS: Final[Mapping[type, str | Callable[[Any], Any]]] = {
    CassetteDetails: "cassette=recorded.path version upstream=recorded.upstream "
    "request_state=recorded.request_state recorded_at=recorded.recorded_at tool=recorded.tool "
    "interactions",
    Interaction: "number call arguments=arguments_json orphan=is_orphan branch turns task ended "
    "bytes=size_bytes ms=duration_ms final",
    Turn: "via asked=input_requests request_state=has_request_state dialect answered=answers_json "
    "answered_by",
    InputRequest: lambda request: {
        "kind": request.kind,
        "message": request.message,
        "definition": canonical(dict(request.definition)),
    },
    FinalResponse: _final_members,
}


def inspection_data(details: CassetteDetails) -> Any:
    """Return a cassette as JSON-ready data; values of others are JSON texts, exact as recorded."""
    data = as_data(details, _JSON_MEMBERS)
    handles = _handles_by_call(details)
    for interaction in data["interactions"]:
        interaction["sends_back"] = handles.get(interaction["number"], {})

    return data


# Diagram


def mermaid_diagram(details: CassetteDetails) -> str:
    """Return a cassette as a Mermaid block with at most `MOST_ARROWS` arrows.

    If any calls ask, only these are drawn; a note counts the calls and messages left out.
    """
    calls = details.interactions
    drawn_calls = [call for call in calls if call.turns] or calls
    arrows: list[str] = []
    for call in drawn_calls:
        arrows += _mermaid_arrows_of_call(call)

    lines = ["sequenceDiagram", "    participant client", "    participant server"]
    lines += arrows[:MOST_ARROWS]
    left_out_counts = []
    if len(arrows) > MOST_ARROWS:
        left_out_counts.append(counted(len(arrows) - MOST_ARROWS, "more message"))

    if len(calls) > len(drawn_calls):
        left_out_counts.append(
            f"{counted(len(calls) - len(drawn_calls), 'call')} without a question"
        )

    if left_out_counts:
        lines.append(
            f"    Note over client,server: and {' and '.join(left_out_counts)}"
        )

    return "\n".join(["```mermaid", *lines, "```"])


def _mermaid_arrows_of_call(interaction: Interaction) -> Iterator[str]:
    """Yield the arrows of a call, from request to response."""
    yield _labelled_arrow(
        "client->>server", f"#{interaction.number} {interaction.call}"
    )
    for turn in interaction.turns:
        yield _labelled_arrow("server-->>client", question_words(turn.input_requests))
        if turn.answered is not None:
            yield _labelled_arrow("client->>server", answer_words(turn.answered))

    if not interaction.turns or interaction.turns[-1].answered is not None:
        ending_words = final_response_words(interaction.final)
        if not ending_words:
            ending_words = interaction.ended.removeprefix("HTTP 200, ")

        yield _labelled_arrow("server-->>client", ending_words)


def _labelled_arrow(line: str, text: str) -> str:
    """Return one arrow with its label."""
    label = shorten(printable(text), _LONGEST_LABEL)
    # Nothing in it is Mermaid, HTML or the end of a Markdown block.
    return f"    {line}: {''.join(map(_mermaid_escape, label))}"


def _mermaid_escape(char: str) -> str:
    """Return a character for a Mermaid text, escaped unless it is a letter, a digit or plain."""
    if char.isalnum() or char in _UNESCAPED_CHARS:
        return char
    return f"#{ord(char)};"


# Markdown and JSON for people

_MARKDOWN_CHARS: Final = re.compile(r"[\\`*_{}\[\]<>#|~]")
"""Characters that mean something in Markdown."""


def escaped_for_markdown(text: str) -> str:
    """Return a text in Markdown, in which nothing is markup."""
    return _MARKDOWN_CHARS.sub(r"\\\g<0>", text)


def markdown_table(rows: Iterable[Sequence[str]], rule: str) -> list[str]:
    """Return rows as a Markdown table; the first is the head, and the rule is below it."""
    lines = []
    for row in rows:
        cells = [escaped_for_markdown(printable(cell)) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")

    return [lines[0], rule, *lines[1:]]


def json_text(value: Any) -> str:
    """Return a JSON value for people: indented, its members in their order, all of it printable.

    Args:
        value: as `jsonbytes.parse` returns it.
    """
    return printable_json(
        json.dumps(value, indent=2, ensure_ascii=False, default=_value_known_to_json)
    )


def _value_known_to_json(value: Any) -> Any:
    """Return a mapping, or a number that was kept as spelled, in a type that `json` knows."""
    if isinstance(value, Mapping):
        return dict(value)
    return json.loads(value.text)


def code_block(language: str, text: str) -> list[str]:
    """Return a Markdown code block whose fence is longer than any backticks in the text."""
    longest_backticks = max(map(len, re.findall("``+", text)), default=2)
    fence = "`" * (longest_backticks + 1)
    return [f"{fence}{language}", text, fence]


def diff_block(lines: Sequence[str]) -> list[str]:
    """Return lines as a Markdown block that shows what was removed and added."""
    if not lines:
        return []

    return code_block("diff", "\n".join(map(_diff_line_with_mark_first, lines)))


def _diff_line_with_mark_first(line: str) -> str:
    """Return a line with its mark in the first column, for a block of `diff`."""
    line_after_indent = line.lstrip(" ")
    indent = line[: len(line) - len(line_after_indent)]
    if line_after_indent.startswith(("- ", "+ ")):
        return f"{line_after_indent[0]} {indent}{line_after_indent[2:]}"
    if line_after_indent.startswith("~ "):
        return f"! {indent}{line_after_indent[2:]}"

    return f"  {indent}{line_after_indent.removeprefix('= ')}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Return how many outcomes have each verdict, in words."""
    words = [f"{count} {verdict}" for verdict, count in counts.items()]
    return ", ".join(words) or "none"
