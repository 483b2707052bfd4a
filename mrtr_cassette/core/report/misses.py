"""A miss as a report: what was requested, what is nearest, what to do about it.

Rule: the way out is in the reader's own terms; everything else reads the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mrtr_cassette.core.exchange.pushed import pushed_request
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.report.rpc_errors import MISS_CODE, error_body, error_with_id
from mrtr_cassette.core.report.wording import (
    annotation_line,
    difference_line,
    fix_lines,
    printable_difference,
    request_text,
)
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference, pointer_path
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, in_terms, printable, printable_lines, shorten

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
    Reason.OUT_OF_ORDER: ("send the call without answers first, then answer what it asks",),
}
"""What can be done about a miss: one of these; each front fills the slots in its own terms."""
_FIXES_OF_POSTED = (
    "answer as recorded",
    "record the whole session with this answer, into another cassette",
    _IGNORE,
)
"""The same for an answer to a pushed request: a call that is played has no other answer."""

_ABOUT_ANSWERS = frozenset({Reason.ANSWERS_DIFFER, Reason.ANSWERS_MISSING})


class Nearest(NamedTuple):
    """The recorded exchange that comes nearest to a request without a recorded reply.

    Attributes:
        interaction: number of its interaction on the cassette, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        call: what was called, such as `tools/call "deploy"`.
    """

    interaction: int
    turn: int
    call: str

    def __str__(self) -> str:
        """Say where on the cassette it is."""
        turn = f", answer of turn {self.turn}" if self.turn else ""
        return f"#{self.interaction} ({self.call}{turn})"


@dataclass(frozen=True, slots=True)
class MissReport:
    """A request that has no recorded reply.

    Attributes:
        reason: one of the reasons in docs/matching.md, such as `answers-differ`.
        detail: the reason as a sentence.
        request: the request with its arguments and the keys of its answers.
        questions: what the server asked under each key whose answer doesn't fit.
        cassette: how messages name the file.
        nearest: the recorded exchange that comes nearest, or None.
        differences: where the two differ, by JSON Pointer into the params, or into the result of a
            posted answer.
        fixes: what can be done about it; one of these.
        text: all of this as people read it, several lines.
    """

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
        return {
            "reason": self.reason,
            "detail": self.detail,
            "request": self.request,
            "questions": list(self.questions),
            "cassette": self.cassette,
            "nearest": None if self.nearest is None else self.nearest._asdict(),
            "differences": [difference._asdict() for difference in self.differences],
            "fix": ", or ".join(self.fixes),
        }


def report_of_miss(
    miss: Miss, path: str, redacted: Callable[[str], str] = str, terms: Terms = LIBRARY_TERMS
) -> MissReport:
    """Return a miss as a report."""

    def shown_as(text: str) -> str:
        return printable(redacted(text))

    request = shown_as(_request_text(miss))
    detail = shown_as(miss.detail)
    questions = [shown_as(question) for question in _questions(miss)]
    nearest = _nearest(miss, shown_as)
    shown = [printable_difference(difference, redacted) for difference in miss.differences]
    fixes = [in_terms(fix, terms) for fix in _fixes(miss)]
    lines = [
        f"miss: {miss.reason.value}: {detail}",
        f"  request:  {request}",
        *(f"  question: {question}" for question in questions),
        f"  cassette: {path}" if nearest is None else f"  nearest:  {nearest} in {path}",
        *(difference_line(difference, "received") for difference in shown),
        *fix_lines(fixes),
    ]
    return MissReport(
        reason=miss.reason.value,
        detail=detail,
        request=request,
        questions=tuple(questions),
        cassette=path,
        nearest=nearest,
        differences=tuple(shown),
        fixes=tuple(fixes),
        text=printable_lines(redacted("\n".join(lines))),
    )


def _request_text(miss: Miss) -> str:
    text = request_text(miss.call)
    answered = None if miss.nearest is None else miss.nearest.answers
    return text if answered is None else f"{text}, answering {answered.request.key}"


def _fixes(miss: Miss) -> Sequence[str]:
    """Return what can be done about a miss, in slots."""
    fixes = _FIXES[miss.reason]
    nearest = miss.nearest
    if nearest is not None and nearest.answers is not None and miss.differences:
        return _FIXES_OF_POSTED
    in_session = nearest is not None and nearest.session
    if miss.reason is Reason.ALREADY_PLAYED and in_session:
        return (*fixes, "open a new session, in which everything is played anew")
    return fixes


def _questions(miss: Miss) -> list[str]:
    """Return what the server asked under the keys whose answers don't fit."""
    if miss.nearest is not None and miss.nearest.answers is not None:
        pushed = miss.nearest.answers.request
        return [_question(pushed.key, pushed_request(pushed))]
    parent = miss.nearest.parent if miss.nearest is not None else None
    if parent is None or parent.ask is None or miss.reason not in _ABOUT_ANSWERS:
        return []
    keys = {pointer_path(difference.pointer)[1] for difference in miss.differences}
    requests = parent.ask.input_requests
    return [_question(key, request) for key, request in requests.items() if key in keys]


def _question(key: str, request: InputRequest) -> str:
    message = f" {shorten(canonical(request.message))}" if request.message else ""
    return printable(f"{key} ({request.kind}){message}")


def _nearest(miss: Miss, shown_as: Callable[[str], str]) -> Nearest | None:
    nearest = miss.nearest
    if nearest is None:
        return None
    key = nearest.key if nearest.answers is None else nearest.answers.pending.key
    return Nearest(nearest.interaction, nearest.turn, shown_as(str(key)))


def miss_body(report: MissReport, call: Call) -> bytes:
    """Return the JSON-RPC error that a client gets for a miss, with the client's own id."""
    return error_body(call, MISS_CODE, report.text, report.facts)


def refusal_body(report: MissReport, identity: bytes | None) -> bytes:
    """Return the JSON-RPC error that a call gets for a wrong answer to what was asked meanwhile.

    Args:
        identity: the id of the call, as its client spelled it.
    """
    return error_with_id(identity, MISS_CODE, report.text, report.facts)


def annotation(report: MissReport) -> str:
    """Return a miss as a workflow command of GitHub Actions."""
    return annotation_line(report.cassette, f"miss: {report.reason}", report.text)
