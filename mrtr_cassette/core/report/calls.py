"""What a call on a live server came to: as a value, as text for a terminal, as data for programs.

Rule: events have no answer and no request state, only who answered and a hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mrtr_cassette.core.answers.fulfilment import Unanswered
from mrtr_cassette.core.answers.rounds import CallTurn
from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.errors import MrtrCassetteError, UpstreamError, counted, printable, shorten

_DONE: Final = 0
_REFUSED: Final = 1
_UPSTREAM: Final = 4
_UNANSWERED: Final = 5


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to.

    Attributes:
        method: of JSON-RPC.
        name: the tool's or prompt's name, or the resource's URI; empty for any other method.
        turns: what was asked and answered before it ended.
        result: the server's result; None where it gave none.
        error: the server's JSON-RPC error; None where it gave none.
        unanswered: the question that nobody may answer, or None.
        problem: why the server can't be used, or None.
        unused: names of the call's own answers that nothing was asked for.
    """

    method: str
    name: str
    turns: tuple[CallTurn, ...] = ()
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    unanswered: Unanswered | None = None
    problem: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether it has no result, or one that a tool marks as an error."""
        return self.exit_code != _DONE

    @property
    def text(self) -> str:
        """The texts of the result, each on lines of its own; an error's message.

        Raises:
            UpstreamError: the call has neither.
        """
        if self.error is not None:
            return str(self.error.get("message", ""))
        if self.result is None:
            raise UpstreamError("; ".join(_problems(self)) or "the call has no result")
        return "\n".join(_texts(self.result))

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        if self.problem is not None:
            return _UPSTREAM
        if self.unanswered is not None:
            return _UNANSWERED
        is_refused = self.result is None or self.result.get("isError") is True
        return _REFUSED if is_refused else _DONE


def _texts(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a person reads of a result: content of tools, messages of prompts, resources."""
    parts = [result.get(name) for name in ("content", "contents", "messages")]
    listed = [part for part in parts if isinstance(part, list)]
    for each in (each for part in listed for each in part):
        if isinstance(each, Mapping):
            inner = each.get("content")
            shown = _content_text(inner if isinstance(inner, Mapping) else each)
            yield f"{each.get('role')}: {shown}" if "role" in each else shown
    if not any(listed):
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


def call_data(result: CallResult) -> dict[str, Any]:
    """Return a call with its whole conversation, for programs."""
    data: dict[str, Any] = {
        "method": result.method,
        "name": result.name,
        "turns": [
            {
                "turn": turn.number,
                "via": turn.via,
                "asked": {
                    key: {"kind": request.kind, "message": request.message}
                    for key, request in turn.requests.items()
                },
                "answered": dict(turn.answers),
                "answered_by": dict(turn.answered_by),
                "request_state_sha256": turn.state_sha256,
            }
            for turn in result.turns
        ],
    }
    if result.unanswered is not None:
        data["unanswered"] = {
            "key": result.unanswered.key,
            "reason": result.unanswered.detail,
            "ask": result.unanswered.asked.data(),
        }
    for member in ("result", "error", "problem"):
        value = getattr(result, member)
        if value is not None:
            data[member] = value
    return data


def turn_event(turn: CallTurn) -> dict[str, Any]:
    """Return that a turn was answered, or was not."""
    return {
        "event": "answered" if turn.answered_by or not turn.requests else "unanswered",
        "turn": turn.number,
        "via": turn.via,
        "keys": {printable(key): printable(each.kind) for key, each in turn.requests.items()},
        "answered_by": {printable(key): source for key, source in turn.answered_by.items()},
        "request_state_sha256": turn.state_sha256,
    }


def turn_line(turn: CallTurn) -> str:
    """Return as a line who answered what in a turn."""
    asked = [
        f"{key} ({request.kind})"
        + (f" {shorten(request.message)!r}" if request.message else "")
        + (
            f", answered by {turn.answered_by[key]}"
            if key in turn.answered_by
            else ", not answered"
        )
        for key, request in turn.requests.items()
    ]
    return printable(f"turn {turn.number}: {'; '.join(asked) or 'asked for a retry only'}")


def ended_event(result: CallResult) -> dict[str, Any]:
    """Return that a call has ended."""
    return {
        "event": "failed" if result.problem is not None else "ended",
        "call": printable(f"{result.method} {result.name}".strip()),
        "turns": len(result.turns),
        "exit_code": result.exit_code,
    }


def problem_lines(result: CallResult) -> list[str]:
    """Return what went wrong, and what was given for nothing, for people."""
    warnings = [f"warning: {unused_text([name])}" for name in result.unused]
    return [*(f"error: {problem}" for problem in _problems(result)), *warnings]


def _problems(result: CallResult) -> Iterator[str]:
    if result.problem is not None:
        yield result.problem
    if result.unanswered is not None:
        asked = result.unanswered
        yield f"turn {asked.asked.turn} is not answered: {asked.key!r}: {asked.detail}"
    if result.error is not None:
        yield f"{result.error.get('code')}: {result.error.get('message')}"


def unused_text(names: Sequence[str]) -> str:
    """Return that answers were given for nothing."""
    return f"nothing asked for the answer {' or '.join(map(repr, names))}"


class UnansweredError(MrtrCassetteError):
    """A call ended with a question that nothing answers.

    Attributes:
        result: what the call came to, with the question.
    """

    exit_code = _UNANSWERED

    def __init__(self, result: CallResult) -> None:
        hint = unused_text(result.unused) if result.unused else None
        super().__init__("; ".join(_problems(result)), hint=hint)
        self.result = result
