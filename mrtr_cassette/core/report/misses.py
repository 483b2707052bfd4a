"""Requests that can't be played or recorded: values, texts, and JSON-RPC errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from mrtr_cassette.core.drive.appending import Unrecorded
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import Answers, InputRequest
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.matching import ReplayEntry
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


_FIXES_OF_UNRECORDED = (
    "record the whole call again, into another cassette",
    "record all of this cassette again with <<replace>>",
)


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
    """A request that has no recorded reply."""

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
    def facts(self) -> Mapping[str, Any]:
        """The same as JSON, as the client gets it in `error.data`."""
        row = "reason detail request questions cassette nearest differences fix"
        facts: Mapping[str, Any] = as_data(self, {MissReport: row})
        return facts

    @property
    def fix(self) -> str:
        """The ways out in one line."""
        return ", or ".join(self.fixes)


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

    def shown_as(text: str) -> str:
        return printable(redacted(text))

    pushed = None if miss.nearest is None else miss.nearest.answers
    answering = "" if pushed is None else f", answering {pushed.request.key}"
    request = shown_as(_request_text(miss.call) + answering)
    detail = shown_as(miss.detail)
    questions = tuple(map(shown_as, _questions(miss)))
    nearest = _nearest(miss, shown_as)
    differences = _shown(miss.differences, redacted)
    fixes = [in_terms(fix, terms) for fix in _fixes(miss)]
    lines = [
        f"miss: {miss.reason.value}: {detail}",
        f"  request:  {request}",
        *(f"  question: {question}" for question in questions),
        f"  cassette: {path}" if nearest is None else f"  nearest:  {nearest} in {path}",
    ]
    return MissReport(
        reason=miss.reason.value,
        detail=detail,
        request=request,
        questions=questions,
        cassette=path,
        nearest=nearest,
        differences=tuple(differences),
        fixes=tuple(fixes),
        text=_text(lines, differences, "received", fixes, redacted),
    )


def _request_text(call: Call) -> str:
    arguments = arguments_json(call)
    shown = "" if arguments is None else f" with {printable(shorten(arguments))}"
    answering = "" if call.answers is None else f", {_answering_text(call.answers)}"
    return f"{call.title}{shown}{answering}"


def _answering_text(answers: Answers) -> str:
    """Name the keys that a retry answers, and say whether it echoes a request state."""
    keys = ", ".join(printable(key) for key in sorted(answers.input_responses or {}))
    text = f"answering {keys}" if keys else "answering nothing"
    return text if answers.request_state is None else f"{text}, echoing a request state"


def _shown(differences: Sequence[Difference], redacted: Callable[[str], str]) -> list[Difference]:
    def line(value: str | None) -> str | None:
        return None if value is None else printable(redacted(shorten(value)))

    return [
        Difference(printable(redacted(pointer)), line(recorded), line(received))
        for pointer, recorded, received in differences
    ]


def _text(
    head: Sequence[str],
    differences: Sequence[Difference],
    other: str,
    fixes: Sequence[str],
    redacted: Callable[[str], str],
) -> str:
    lines = [
        *head,
        *(
            f"  {pointer or '/'}: recorded {recorded or 'nothing'}, {other} {received or 'nothing'}"
            for pointer, recorded, received in differences
        ),
        f"  fix:      {fixes[0]}",
        *(f"       or:  {fix}" for fix in fixes[1:]),
    ]
    return short_digests(printable_lines(redacted("\n".join(lines))))


def _fixes(miss: Miss) -> Sequence[str]:
    fixes = _FIXES[miss.reason]
    nearest = miss.nearest
    if nearest is not None and nearest.answers is not None and miss.differences:
        return _FIXES_OF_POSTED
    if nearest is not None and nearest.created_by is not None:
        return _FIXES_OF_TASK.get(miss.reason, fixes)
    if miss.reason is Reason.ALREADY_PLAYED and nearest is not None and nearest.session:
        return (*fixes, "open a new session, in which everything is played anew")
    return fixes


def _questions(miss: Miss) -> list[str]:
    if miss.nearest is not None and miss.nearest.answers is not None:
        pushed = miss.nearest.answers.request
        return [_question(pushed.key, pushed.asks)]
    nearest = miss.nearest
    if nearest is None or miss.reason not in _ABOUT_ANSWERS:
        return []
    asker = nearest if nearest.state is not None else nearest.parent
    keys = {pointer_path(difference.pointer)[1] for difference in miss.differences}
    requests = {} if asker is None else asker.asked
    return [_question(key, request) for key, request in requests.items() if key in keys]


def _question(key: str, request: InputRequest) -> str:
    message = f" {shorten(canonical(request.message))}" if request.message else ""
    return printable(f"{key} ({request.kind}){message}")


def _nearest(miss: Miss, shown_as: Callable[[str], str]) -> Nearest | None:
    nearest = miss.nearest
    if nearest is None:
        return None
    key = (nearest.created_by or nearest).key
    if nearest.answers is not None:
        key = nearest.answers.pending.key
    return Nearest(nearest.interaction, nearest.turn, shown_as(str(key)))


# Requests that appending could not record


class UnrecordedReport(NamedTuple):
    """A request that could not be recorded, as text and as the JSON of `error.data`."""

    text: str
    facts: Mapping[str, Any]


def recorded_ask(asker: ReplayEntry) -> str:
    """Say where on the cassette the ask of a recorded exchange is."""
    return f"#{asker.interaction} ({asker.key}, ask of turn {asker.asking_turn})"


def report_of_unrecorded(
    failure: Unrecorded,
    path: str,
    redacted: Callable[[str], str] = str,
    terms: Terms = LIBRARY_TERMS,
) -> UnrecordedReport:
    """Return as a report why a request could not be recorded."""
    asker = failure.asker
    request = printable(redacted(_request_text(failure.call)))
    detail = printable(redacted(failure.detail))
    differences = _shown(failure.differences, redacted)
    fixes = [in_terms(fix, terms) for fix in _FIXES_OF_UNRECORDED]
    lines = [
        f"not recorded: {detail}",
        f"  request:  {request}",
        *([] if asker is None else [f"  recorded: {recorded_ask(asker)} in {path}"]),
    ]
    facts = {
        "detail": detail,
        "request": request,
        "cassette": path,
        "recorded": None
        if asker is None
        else {"interaction": asker.interaction, "turn": asker.asking_turn, "call": str(asker.key)},
        "differences": [
            {"pointer": pointer, "recorded": recorded, "live": live}
            for pointer, recorded, live in differences
        ],
        "fix": ", or ".join(fixes),
    }
    return UnrecordedReport(_text(lines, differences, "live", fixes, redacted), facts)


# JSON-RPC errors from the proxy itself


def error_body(report: MissReport | UnrecordedReport, answered: Call | bytes | None) -> bytes:
    """Return the JSON-RPC error that a client gets for a call, or for the call with this id."""
    code = MISS_CODE if isinstance(report, MissReport) else UNRECORDED_CODE
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
