"""The log of a run: events without any value that was sent, and lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import lacks_end
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest, InputRequired
from mrtr_cassette.core.protocol.jsonrpc import Via, ask_in
from mrtr_cassette.core.protocol.tasks import TASK, TaskState
from mrtr_cassette.core.report.details import END_WORDS, final_response_of, task_words
from mrtr_cassette.core.report.replay_events import (
    Event,
    LogLine,
    kinds_of,
    log_line,
    place_members,
)
from mrtr_cassette.core.report.runs import (
    CallResult,
    InteractionOutcome,
    RecordingReport,
    ReplayReport,
    StrayedRead,
    recording_text,
    summary_text,
)
from mrtr_cassette.core.report.text import (
    answer_words,
    as_data,
    final_response_words,
    question_words,
)
from mrtr_cassette.core.secrets.names import sealed_hash, sha256_of
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import counted, printable, shorten
from mrtr_cassette.terms import LIBRARY_TERMS, Terms, in_terms

if TYPE_CHECKING:
    # A replay has no recorder.
    from mrtr_cassette.core.answers.forms import CallTurn
    from mrtr_cassette.core.record.pushes import OpenPush
    from mrtr_cassette.core.record.recorder import Observation
    from mrtr_cassette.core.record.sealing import UnreadBody


# Recording


_LONGEST_SHOWN: Final = 16 * 1024
"""Bytes of a response up to which its line tells the outcome: reading it takes time."""


def request_event(observation: Observation) -> Event:
    """Return that a call was started or answers came."""
    call = observation.call
    push = observation.answered_push
    recorder = observation.recorder
    event = {
        "event": "started",
        "exchange": observation.number,
        "call": observation.label,
    }

    given_answers = _answers_by_key(call, push)
    if given_answers is None:
        return event

    via = "result"
    if call.named_task_id is not None:
        via = "task"

    if push is not None:
        via = "push"
        event["call"] = recorder.sealer.label(push.call)

    state = None
    if call.answers:
        state = call.answers.request_state

    return event | {
        "event": "answered",
        "via": via,
        "keys": list(map(recorder.sealer.loggable_text, sorted(given_answers))),
        "request_state_sha256": None if state is None else sha256_of(state),
    }


def _answers_by_key(call: Call, push: OpenPush | None) -> dict[str, Any] | None:
    """Return the answers in a request, by the keys of the questions; None if it has none."""
    if push is not None and call.message is not None:
        tree = call.message.tree
        return {push.key: tree.get("result", tree.get("error"))}

    if call.answers is None:
        return None
    return _without_task_id(call.answers.input_responses or {}, call.named_task_id)


def _without_task_id(members: Mapping[str, Any], task: str | None) -> dict[str, Any]:
    """Return members by the keys of questions, without the id of the task that asks them."""
    if not task:
        return {**members}

    members_without_id = {}
    for key, member in members.items():
        members_without_id[key.replace(task, TASK)] = member

    return members_without_id


def response_log_line(
    observation: Observation,
    exchange: RecordedExchange,
    end: End,
    at_ms: float,
    task: TaskState | None = None,
) -> LogLine:
    """Return that a call was asked something or ended.

    Args:
        exchange: it as it is recorded, without anything that must not be shown.
        task: the new state of a task, which the response tells.
    """
    call = _recorded_call(observation, exchange)
    label = observation.recorder.sealer.label(call, is_sealed=True)
    asked = _questions_asked(observation, call, exchange, task)
    took_ms = at_ms - observation.started_ms
    event: Event = {
        "event": "ended" if asked is None else "asked",
        "exchange": observation.number,
        "call": label,
        "status": observation.status,
        "end": end.value,
        "bytes": observation.size,
        "duration_ms": round(took_ms, 1),
    }

    line = f"{observation.number:>4}  {label}"
    given_answers = _answers_by_key(call, observation.answered_push)
    if given_answers is not None:
        line += f", {answer_words(given_answers)}"

    line += f" -> {_arrival_words(observation)}"
    if asked is not None:
        event |= asked.facts
        line += f", asks: {question_words(asked.requests)}"
        if asked.state_sha256 is not None:
            line += ", with request state"
    elif task is not None and not task.response:
        event["task"] = printable(task.status)
        line += f": task {observation.recorder.sealer.loggable_text(task_words(task))}"
    elif observation.size <= _LONGEST_SHOWN:
        words = final_response_words(final_response_of(call, exchange.response))
        if words:
            line += f": {words}"

    response = exchange.response
    if response is not None and lacks_end(call, response):
        line += f", {END_WORDS[response.end]}"

    return log_line(event, f"{line} ({took_ms:.0f} ms)")


def _recorded_call(observation: Observation, exchange: RecordedExchange) -> Call:
    """Return the call of a sealed exchange; it is read again only if sealing changed values."""
    request = exchange.request
    observed = observation.call
    is_same = request.body == observed.request.body
    answers = None if is_same else observed.answers
    if answers is not None:
        is_same = _is_only_state_sealed(
            observed.request.body, request.body, answers.request_state
        )

    if is_same:
        return Call(request, observed.message)
    return exchange.call


def _is_only_state_sealed(observed: bytes, sealed: bytes, state: str | None) -> bool:
    """Tell whether a body is as it came, but for a hash in the only place of its state."""
    if not state:
        return sealed == observed

    hashed = sealed_hash(state).encode()
    spelled = state.encode("utf-8", "surrogatepass")
    return sealed.count(hashed) == 1 and sealed.replace(hashed, spelled) == observed


def _arrival_words(observation: Observation) -> str:
    """Return in words what came of a response: its HTTP status, or over a pipe its lines."""
    if observation.status:
        return f"HTTP {observation.status}"
    if observation.piece_count:
        return counted(observation.piece_count, "line")
    return "no response"


class _AskedQuestions(NamedTuple):
    """The questions of a response or of a server's own request, as they may be shown."""

    via: Via
    requests: Mapping[str, InputRequest]
    state_sha256: str | None = None

    @property
    def facts(self) -> Event:
        """The members of an event that tell how the questions were asked, and their kinds."""
        return {
            "via": self.via,
            "keys": kinds_of(self.requests),
            "request_state_sha256": self.state_sha256,
        }


def _questions_asked(
    observation: Observation,
    call: Call,
    exchange: RecordedExchange,
    task: TaskState | None,
) -> _AskedQuestions | None:
    """Return the questions of a response or of a task's state; None if there are none."""
    if task is not None and task.input_requests:
        requests = _without_task_id(task.input_requests, task.id)
        return _AskedQuestions(
            "task",
            _shown_questions(requests, observation.recorder.sealer.loggable_text),
        )

    response = exchange.response
    observed_ask = observation.ask
    if response is None or observed_ask is None:
        return None

    ask: InputRequired | None = observed_ask
    state = observed_ask.request_state
    if not _is_only_state_sealed(observation.body, response.body, state):
        ask = ask_in(call.message, response)

    if ask is None:
        return None

    state_sha256 = None
    if ask.request_state:
        state_sha256 = exchange.issued_sha256

    return _AskedQuestions(
        "result", _shown_questions(ask.input_requests, printable), state_sha256
    )


def _shown_questions(
    requests: Mapping[str, InputRequest], redact: Callable[[str], str]
) -> dict[str, InputRequest]:
    """Return questions as they may be shown."""
    # A secret is found before a text is cut.
    questions = {}
    for key, request in requests.items():
        message = redact(" ".join(request.message.split()))
        questions[redact(key)] = InputRequest(request.kind, message)

    return questions


def push_log_line(observation: Observation, push: OpenPush) -> LogLine:
    """Return that a call, or a listening stream, was asked something by a pushed request."""
    label = observation.recorder.sealer.label(push.call)
    asked = _AskedQuestions(
        "push",
        _shown_questions(
            {push.key: push.request}, observation.recorder.sealer.loggable_text
        ),
    )
    event = {
        "event": "asked",
        "exchange": push.exchange_number,
        "call": label,
        **asked.facts,
    }
    line = f"{push.exchange_number:>4}  {printable(label)} asks: {question_words(asked.requests)}"

    return log_line(event, line)


def unread_log_line(
    observation: Observation, unread: UnreadBody, terms: Terms = LIBRARY_TERMS
) -> LogLine:
    """Return which body can't be read."""
    event = {
        "event": "unread",
        "exchange": observation.number,
        "call": observation.label,
        "body": unread.side,
        "reason": printable(unread.reason),
    }

    line = (
        f"warning: the {unread.side} of exchange {observation.number}, {observation.label}, can't "
        f"be searched for asks, states and secrets, as {unread.reason}; it is recorded as it is"
    )

    if unread.hides_id:
        line += ", and a caller with another id gets a miss"

    if unread.side == "response" and unread.reason.startswith("its "):
        line += ": make it readable with <<no_coding>>"

    return log_line(event, in_terms(line, terms))


def other_server_log_line(observation: Observation, place: str) -> LogLine:
    """Return that a response sends its client to another server."""
    event = {
        "event": "elsewhere",
        "exchange": observation.number,
        "place": printable(place),
    }

    line = f"warning: {observation.label} sends its client elsewhere, by {place}"
    return log_line(event, f"{line}; requests there are not recorded")


def unreachable_log_line(request: str, problem: str) -> LogLine:
    """Return that a request got no response from the upstream."""
    event = {"event": "unreachable", "problem": printable(problem)}
    return log_line(event, f"{request}: {problem}; not recorded")


def failure_log_line(problem: str) -> LogLine:
    """Return that the recording is incomplete from now on."""
    line = f"RECORDING FAILED: {problem}; the traffic goes on"
    return log_line({"event": "failed", "problem": printable(problem)}, line)


# Appending


def caught_up_log_line(asker: ReplayEntry) -> LogLine:
    """Return that the server was brought to the ask of a recorded exchange."""
    turn = asker.place.asking_turn
    ask = f"{asker.place.in_file} ({asker.key}, ask of turn {turn})"
    line = f"      repeated the conversation up to {ask}, for an answer that is not recorded"
    event = {
        "event": "caught-up",
        "call": str(asker.key),
        **place_members(asker.place.in_file),
    }

    return log_line({**event, "turn": turn}, line)


def repeated_log_line(entry: ReplayEntry) -> LogLine:
    """Return that the server was made to repeat a write that had been played."""
    line = f"      repeated {entry.place.in_file} ({entry.key}), which was played and may have "
    line += "changed something, for a call that is not recorded"
    event = {
        "event": "repeated",
        "call": str(entry.key),
        **place_members(entry.place.in_file),
    }

    return log_line(event, line)


# Outcomes


def replay_log_line(report: ReplayReport, terms: Terms = LIBRARY_TERMS) -> LogLine:
    """Return the outcome of a replay."""
    event = {
        "event": "concluded",
        "interactions": len(report.interactions),
        "unplayed": _numbers_with_files(report, report.not_fully_played),
        "misses": len(report.misses),
        "harmless": sum(request.times for request in report.harmless),
        "after_other_writes": _numbers_with_files(report, report.after_other_writes),
    }

    if report.faults:
        event["faults"] = as_data(report.faults, {})

    if report.learned:
        event["learned"] = dict(report.learned)

    if report.by_kind:
        event["by_kind"] = as_data(report.by_kind, {})

    return event, summary_text(report, terms)


def _numbers_with_files(
    report: ReplayReport, interactions: Iterable[InteractionOutcome | StrayedRead]
) -> list[Any]:
    """Return the numbers of interactions, with their files if there are several."""
    if report.is_of_several:
        return [
            [interaction.number, interaction.cassette] for interaction in interactions
        ]
    return [interaction.number for interaction in interactions]


def recording_log_line(report: RecordingReport) -> LogLine:
    """Return the outcome of a recording."""
    facts = as_data(report, {RecordingReport: _CONCLUSION_MEMBERS})
    return {"event": "concluded", **facts}, recording_text(report)


_CONCLUSION_MEMBERS: Final = (
    "interactions exchanges played unrecorded unread incomplete kept same=is_same "
    "unpublished=objection redacted"
)


def turn_log_line(turn: CallTurn) -> LogLine:
    """Return who answered what in a turn of a call without a client."""
    sources = {}
    for key, source in turn.answered_by.items():
        sources[printable(key)] = source

    event = {
        "event": "answered" if sources or not turn.requests else "unanswered",
        "turn": turn.number,
        "via": turn.via,
        "keys": kinds_of(turn.requests),
        "answered_by": sources,
        "request_state_sha256": turn.state_sha256,
    }

    questions_in_words = []
    for key, request in turn.requests.items():
        question = f"{key} ({request.kind})"
        if request.message:
            question += f" {shorten(request.message)!r}"

        answered = "not answered"
        if key in turn.answered_by:
            answered = f"answered by {turn.answered_by[key]}"

        questions_in_words.append(f"{question}, {answered}")

    line = f"turn {turn.number}: {'; '.join(questions_in_words) or 'asked for a retry only'}"
    return log_line(event, line)


def progress_log_line(state: TaskState) -> LogLine:
    """Return the progress of a task that a call without a client created."""
    event = {"event": "task", "status": printable(state.status)}
    return log_line(event, f"task {task_words(state)}")


def call_ended_event(result: CallResult) -> Event:
    """Return that a call without a client has ended."""
    return {
        "event": "failed" if result.problem is not None else "ended",
        "call": printable(f"{result.method} {result.name}".strip()),
        "turns": len(result.turns),
        "exit_code": result.exit_code,
    }
