"""Phrases and values that several reports show."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import Answers
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import printable, printable_json, shorten


def arguments_json(call: Call) -> str | None:
    """Return the canonical text of a call's arguments, or None where it has none."""
    params = call.arguments
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return None if arguments is None or not call.is_rpc else canonical(arguments)


def answering_text(answers: Answers, shown: Callable[[str], str] = printable) -> str:
    """Name the keys that a retry answers, and say whether it echoes a request state."""
    keys = ", ".join(shown(key) for key in sorted(answers.input_responses or {}))
    text = f"answering {keys}" if keys else "answering nothing"
    return text if answers.request_state is None else f"{text}, echoing a request state"


def printable_difference(
    difference: Difference, redacted: Callable[[str], str] = str
) -> Difference:
    """Return a difference as it is shown: pointer and values printable, each cut to a line."""
    pointer, recorded, received = difference
    return Difference(
        printable(redacted(pointer)),
        None if recorded is None else printable(redacted(shorten(recorded))),
        None if received is None else printable(redacted(shorten(received))),
    )


def annotation_line(file: str, title: str, text: str) -> str:
    """Return an error as a workflow command of GitHub Actions, which shows it beside a file."""
    shown = _escaped(printable(file), _IN_PROPERTY)
    return (
        f"::error file={shown},title={_escaped(title, _IN_PROPERTY)}::{_escaped(text, _IN_MESSAGE)}"
    )


_IN_MESSAGE = "%\r\n"
_IN_PROPERTY = "%\r\n:,"


def _escaped(text: str, characters: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in characters else char for char in text)


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
