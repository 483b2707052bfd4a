"""Requests that can't be played or recorded: values, texts, and JSON-RPC errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.report.details import arguments_json
from mrtr_cassette.core.report.text import as_data, short_digests
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference, pointer_path
from mrtr_cassette.errors import (
    LIBRARY_TERMS,
    MrtrCassetteError,
    Terms,
    counted,
    in_terms,
    printable,
    printable_lines,
    shorten,
)

MISS_CODE: Final = -32010
UPSTREAM_CODE: Final = -32011
"""The upstream gave no response."""
UNRECORDED_CODE: Final = -32012
"""A request that the cassette lacks could not be recorded."""

_RECORD = "record this {} too with <<record_too>>"
_IGNORE = "leave what differs from run to run out of matching with <<ignore_value>>"

_FIXES = {
    Reason.UNKNOWN_METHOD: ("check the URL that the client uses", _RECORD.format("request")),
    Reason.UNKNOWN_NAME: ("call what was recorded", _RECORD.format("call")),
    Reason.ARGUMENTS_DIFFER: ("send the recorded arguments", _RECORD.format("call"), _IGNORE),
    Reason.STATE_UNKNOWN: (
        "echo the requestState of the ask as this replay sent it, not one of another call or run",
    ),
    Reason.STATE_MISSING: ("send the retry with the requestState of the ask",),
    Reason.STATE_UNEXPECTED: ("send the retry without a requestState, as the ask has none",),
    Reason.ANSWERS_DIFFER: ("answer as recorded", _RECORD.format("answer"), _IGNORE),
    Reason.ANSWERS_MISSING: (
        "answer everything that was answered in the recording",
        _RECORD.format("answer"),
    ),
    Reason.HEADERS_CONTRADICT: (
        "send the method and the name of the body in the headers Mcp-Method and Mcp-Name",
    ),
    Reason.ALREADY_PLAYED: (
        "make the call no more often than it was recorded",
        _RECORD.format("call"),
        "allow it again with <<repeat_always>>",
    ),
    Reason.OTHER_HISTORY: (
        "make the same writes as in the recording before this call",
        "say that a tool only reads with <<reads_tool>>",
        _RECORD.format("call"),
        "play equal calls in recorded order, whatever was written, with <<history_order>>",
    ),
    Reason.OUT_OF_ORDER: ("send the call without answers first, then answer what it asks",),
    Reason.UNRECORDED: (
        "record the whole call again, into another cassette",
        "record all of this cassette again with <<replace>>",
    ),
}
"""What can be done about a miss: one of these; each front fills the slots in its own terms."""
_FIXES_OF_POSTED = (
    "answer as recorded",
    "record the whole session with this answer, into another cassette",
    _IGNORE,
)
"""The same for an answer to a pushed request: a call that is played has no other answer."""

_FIXES_OF_TASK = {
    Reason.ANSWERS_DIFFER: (
        "answer as recorded",
        "record the whole call with this answer, into another cassette",
        _IGNORE,
    ),
    Reason.OUT_OF_ORDER: ("make the call, poll its task, and answer what it asks, in this order",),
    Reason.UNKNOWN_METHOD: (
        "let the task go on",
        "record the whole call with the cancellation, into another cassette",
    ),
}
"""The same for a request about the task of a call: the call that is played has no other course."""

_ABOUT_ANSWERS = frozenset({Reason.ANSWERS_DIFFER, Reason.ANSWERS_MISSING})


class Nearest(NamedTuple):
    """The recorded exchange that comes nearest to a request without a recorded reply."""

    interaction: int
    turn: int
    call: str

    def __str__(self) -> str:
        """Say where on the cassette it is."""
        turn = f", answer of turn {self.turn}" if self.turn else ""
        return f"#{self.interaction} ({self.call}{turn})"


@dataclass(frozen=True, slots=True)
class MissReport:
    """A request that has no recorded reply, or could not be recorded."""

    reason: str
    detail: str
    request: str
    questions: tuple[str, ...]
    cassette: str
    nearest: Nearest | None
    differences: tuple[Difference, ...]
    fixes: tuple[str, ...]
    text: str

    @property
    def facts(self) -> dict[str, Any]:
        """All but the text as JSON, as the client gets it in `error.data`."""
        facts: dict[str, Any] = as_data(self, {})
        del facts["text"]
        return facts


class MissesError(MrtrCassetteError):
    """A replay was asked something that was not recorded."""

    def __init__(self, path: object, misses: Sequence[MissReport]) -> None:
        head = f"{counted(len(misses), 'request')} had no recorded answer on {path}"
        super().__init__("\n\n".join([head, *(miss.text for miss in misses)]))
        self.misses = tuple(misses)


def report_of_miss(
    miss: Miss, path: str, redacted: Callable[[str], str] = str, terms: Terms = LIBRARY_TERMS
) -> MissReport:
    """Return a miss as a report, with the way out in the terms of a front."""

    def shown(text: str) -> str:
        return printable(redacted(text))

    def value(text: str | None) -> str | None:
        return None if text is None else shown(shorten(text))

    entry, nearest, answering = miss.nearest, None, ""
    if entry is not None:
        key = (entry.created_by or entry).key
        if entry.answers is not None:
            key, answering = entry.answers.pending.key, f", answering {entry.answers.request.key}"
        nearest = Nearest(entry.interaction, entry.turn, shown(str(key)))
    request, detail = shown(_request_text(miss.call) + answering), shown(miss.detail)
    questions = tuple(map(shown, _questions(miss)))
    differences = tuple(
        Difference(shown(pointer), *map(value, values)) for pointer, *values in miss.differences
    )
    fixes = tuple(in_terms(fix, terms) for fix in _fixes(miss))
    lines = [
        f"miss: {miss.reason.value}: {detail}",
        f"  request:  {request}",
        *(f"  question: {question}" for question in questions),
        f"  cassette: {path}" if nearest is None else f"  nearest:  {nearest} in {path}",
        *(
            f"  {at or '/'}: recorded {old or 'nothing'}, received {new or 'nothing'}"
            for at, old, new in differences
        ),
        f"  fix:      {fixes[0]}",
        *(f"       or:  {fix}" for fix in fixes[1:]),
    ]
    text = short_digests(printable_lines(redacted("\n".join(lines))))
    return MissReport(
        miss.reason.value, detail, request, questions, path, nearest, differences, fixes, text
    )


def _request_text(call: Call) -> str:
    arguments, answers = arguments_json(call), call.answers
    text = call.title if arguments is None else f"{call.title} with {shorten(arguments)}"
    if answers is None:
        return text
    keys = ", ".join(sorted(answers.input_responses or {}))
    state = "" if answers.request_state is None else ", echoing a request state"
    return f"{text}, answering {keys or 'nothing'}{state}"


def _fixes(miss: Miss) -> Sequence[str]:
    fixes, nearest = _FIXES[miss.reason], miss.nearest
    if nearest is None:
        return fixes
    if nearest.answers is not None and miss.differences:
        return _FIXES_OF_POSTED
    if nearest.created_by is not None:
        return _FIXES_OF_TASK.get(miss.reason, fixes)
    if miss.reason is Reason.ALREADY_PLAYED and nearest.session:
        return (*fixes, "open a new session, in which everything is played anew")
    return fixes


def _questions(miss: Miss) -> Iterator[str]:
    """Yield the questions whose answers differ."""
    nearest = miss.nearest
    asked: Mapping[str, InputRequest] = {}
    if nearest is not None and nearest.answers is not None:
        asked = {nearest.answers.request.key: nearest.answers.request.asks}
    elif nearest is not None and miss.reason in _ABOUT_ANSWERS:
        asker = nearest if nearest.state is not None else nearest.parent
        keys = {pointer_path(difference.pointer)[1] for difference in miss.differences}
        every = {} if asker is None else asker.asked
        asked = {key: request for key, request in every.items() if key in keys}
    for key, request in asked.items():
        message = f" {shorten(canonical(request.message))}" if request.message else ""
        yield f"{key} ({request.kind}){message}"


# JSON-RPC errors from the proxy itself


def error_body(report: MissReport, answered: Call | bytes | None) -> bytes:
    """Return the JSON-RPC error that a client gets for a call, or for the call with this id."""
    code = UNRECORDED_CODE if report.reason == Reason.UNRECORDED.value else MISS_CODE
    return _body(answered, {"code": code, "message": report.text, "data": report.facts})


def upstream_error_body(request: Request, problem: str) -> bytes:
    """Return the JSON-RPC error that a client gets when the upstream gave no response."""
    return _body(read_call(request), {"code": UPSTREAM_CODE, "message": problem})


def _body(answered: Call | bytes | None, error: Mapping[str, Any]) -> bytes:
    if isinstance(answered, Call):
        message = answered.message
        is_request = message is not None and message.kind is Kind.REQUEST
        answered = message.spelled(ID_PATH) if message is not None and is_request else None
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (answered or b"null", orjson.dumps(error))
