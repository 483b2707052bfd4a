"""What happens in a run: as events without any value that was sent, and as lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mrtr_cassette.core.answers.fulfilment import CallTurn
from mrtr_cassette.core.cassette.recorded import PushedAsk, RecordedExchange
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import ask_in
from mrtr_cassette.core.protocol.tasks import TASK, TaskState, named_task
from mrtr_cassette.core.record.linking import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Unread
from mrtr_cassette.core.replay.diagnosis import Harmless, Miss
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.report.details import final_of, task_words
from mrtr_cassette.core.report.runs import (
    CallResult,
    RecordingReport,
    ReplayReport,
    recording_text,
    summary_text,
)
from mrtr_cassette.core.report.text import answer_words, as_data, final_words, question_words
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import counted, line_by_line, printable, shorten
from mrtr_cassette.terms import LIBRARY_TERMS, Terms, in_terms

Event = dict[str, Any]
"""What happened, for a log that programs read: ready for JSON."""
Said = tuple[Event, str]
"""The same with the line for people."""


def _said(event: Event, line: str) -> Said:
    return event, line_by_line(line)


# Recording


_LONGEST_SHOWN: Final = 16 * 1024
"""Bytes of a response up to which its line says what came of it: reading it takes time."""


def request_event(observation: Observation) -> Event:
    """Return that a call was started or answers came."""
    call, push, recorder = observation.call, observation.answered, observation.recorder
    event = {"event": "started", "exchange": observation.number, "call": observation.label}
    given = _given(call, push)
    if given is None:
        return event
    via = "result" if named_task(call.message) is None else "task"
    if push is not None:
        event["call"], via = recorder.label(push.call), "push"
    state = call.answers and call.answers.request_state
    return event | {
        "event": "answered",
        "via": via,
        "keys": [recorder.shown(key) for key in sorted(given)],
        "request_state_sha256": None if state is None else sha256_of(state),
    }


def _given(call: Call, push: OpenPush | None) -> dict[str, Any] | None:
    """Return what a request answers, by the keys of the questions; None where nothing was asked."""
    if push is not None and call.message is not None:
        tree = call.message.tree
        return {push.key: tree.get("result", tree.get("error"))}
    answers, task = call.answers, named_task(call.message)
    if answers is None:
        return None
    return {_without_id(key, task): it for key, it in (answers.input_responses or {}).items()}


def _without_id(key: str, task: str | None) -> str:
    """Return the key of a question without the id of the task that asks it."""
    return key.replace(task, TASK) if task else key


def response_said(
    observation: Observation,
    exchange: RecordedExchange,
    end: End,
    at_ms: float,
    task: TaskState | None = None,
) -> Said:
    """Return that a call was asked something or ended.

    Args:
        exchange: it as it is recorded, which has nothing that must not be shown.
        task: the new state of a task, of which the response tells.
    """
    call, response, recorder = exchange.call, exchange.response, observation.recorder
    label = recorder.label(call, is_sealed=True)
    ask = None if response is None else ask_in(call.message, response)
    asked, shown = {} if ask is None else ask.input_requests, printable
    if task is not None:
        asked = {_without_id(key, task.id): it for key, it in task.input_requests.items()}
        shown = recorder.shown
    took_ms = at_ms - observation.started_ms
    event: Event = {
        "event": "asked" if asked or ask is not None else "ended",
        "exchange": observation.number,
        "call": label,
        "status": observation.status,
        "end": end.value,
        "bytes": observation.size,
        "duration_ms": round(took_ms, 1),
    }
    line = f"{observation.number:>4}  {label}"
    given = _given(call, observation.answered)
    line += "" if given is None else f", {answer_words(given)}"
    if observation.status:
        line += f" -> HTTP {observation.status}"
    elif observation.pieces:
        line += f" -> {counted(observation.pieces, 'line')}"
    else:
        line += " -> no response"
    if asked or ask is not None:
        requests = _shown(asked, shown)
        state = exchange.issued_sha256 if ask is not None and ask.request_state else None
        via = "result" if task is None else "task"
        event |= {"via": via, "keys": _kinds(requests), "request_state_sha256": state}
        line += f", asks: {question_words(requests)}"
        line += "" if state is None else ", with request state"
    elif task is not None and not task.response:
        event["task"] = printable(task.status)
        line += f": task {shown(task_words(task))}"
    elif observation.size <= _LONGEST_SHOWN:
        words = final_words(final_of(call.method, response))
        line += f": {words}" if words else ""
    return _said(event, f"{line} ({took_ms:.0f} ms)")


def _shown(
    requests: Mapping[str, InputRequest], shown: Callable[[str], str]
) -> dict[str, InputRequest]:
    # A secret is found before a text is cut.
    return {
        shown(key): InputRequest(each.kind, shown(" ".join(each.message.split())))
        for key, each in requests.items()
    }


def pushed_said(observation: Observation, push: OpenPush) -> Said:
    """Return that a call, or a listening stream, was asked something by a pushed request."""
    label, shown = observation.recorder.label(push.call), observation.recorder.shown
    requests = _shown({push.key: push.request}, shown)
    event = {"event": "asked", "exchange": push.exchange, "call": label, "via": "push"}
    line = f"{push.exchange:>4}  {printable(label)} asks: {question_words(requests)}"
    return _said({**event, "keys": _kinds(requests), "request_state_sha256": None}, line)


def _kinds(input_requests: Mapping[str, InputRequest]) -> dict[str, str]:
    return {printable(key): printable(request.kind) for key, request in input_requests.items()}


def unread_said(observation: Observation, unread: Unread, terms: Terms = LIBRARY_TERMS) -> Said:
    """Return which body can't be read."""
    event = {"event": "unread", "exchange": observation.number, "call": observation.label}
    line = (
        f"warning: the {unread.side} of exchange {observation.number}, {observation.label}, can't "
        f"be searched for asks, states and secrets, as {unread.reason}; it is recorded as it is"
    )
    if unread.hides_id:
        line += ", and a caller with another id gets a miss"
    if unread.side == "response" and unread.reason.startswith("its "):
        line += ": have it readable with <<accept_gzip>>"
    about = {"body": unread.side, "reason": printable(unread.reason)}
    return _said(event | about, in_terms(line, terms))


def sent_elsewhere_said(observation: Observation, place: str) -> Said:
    """Return that a response sends its client to another server."""
    event = {"event": "elsewhere", "exchange": observation.number, "place": printable(place)}
    line = f"warning: {observation.label} sends its client elsewhere, by {place}"
    return _said(event, f"{line}; what the client does there is not recorded")


def unreachable_said(request: str, problem: str) -> Said:
    """Return that a request got no response from the upstream."""
    event = {"event": "unreachable", "problem": printable(problem)}
    return _said(event, f"{request}: {problem}; not recorded")


def failed_said(problem: str) -> Said:
    """Return that the recording is not whole from now on."""
    line = f"RECORDING FAILED: {problem}; the traffic goes on"
    return _said({"event": "failed", "problem": printable(problem)}, line)


# Appending


def caught_up_said(asker: ReplayEntry) -> Said:
    """Return that the server was brought to the ask of a recorded exchange."""
    ask = f"#{asker.interaction} ({asker.key}, ask of turn {asker.asking_turn})"
    line = f"      repeated the conversation up to {ask}, for an answer that is not recorded"
    place = {"call": str(asker.key), "interaction": asker.interaction, "turn": asker.asking_turn}
    return _said({"event": "caught-up", **place}, line)


def repeated_said(entry: ReplayEntry) -> Said:
    """Return that the server was made to repeat a write that had been played."""
    line = f"      repeated #{entry.interaction} ({entry.key}), which was played and may have "
    line += "changed something, for a call that is not recorded"
    event = {"event": "repeated", "call": str(entry.key), "interaction": entry.interaction}
    return _said(event, line)


# Replaying


def played_events(play: Play) -> Iterator[Event]:
    """Yield that a request got its recorded reply, what it answered, and what the reply asks."""
    entry = play.entry
    place = {"call": str((entry.created_by or entry).key), "interaction": entry.interaction}
    via = "result" if entry.created_by is None else "task"
    called = {"method": printable(entry.key.method), "name": printable(entry.key.name)}
    yield {"event": "played", **place, "turn": entry.turn, "times": entry.played, **called}
    if entry.turn:
        answered = {"event": "answered", **place, "turn": entry.turn, "via": via}
        question, answers = entry.answers, entry.call.answers
        keys = sorted(answers.input_responses or {}) if answers else []
        if question is not None:
            answered |= {"call": str(question.pending.key), "via": "push"}
            keys = [question.request.key]
        yield {**answered, "keys": [printable(key) for key in keys]}
    if entry.ask is not None or (entry.asking_turn and entry.state and entry.played == 1):
        asked = {"event": "asked", **place, "turn": entry.asking_turn, "via": via}
        yield {**asked, "keys": _kinds(entry.asked)}


def asked_by_push_event(ask: PushedAsk) -> Event:
    """Return that the client was asked something by a pushed request."""
    place = {"call": ask.call.title, "interaction": ask.interaction, "turn": ask.turn}
    keys = _kinds({ask.request.key: ask.request.asks})
    return {"event": "asked", **place, "via": "push", "keys": keys}


def harmless_event(harmless: Harmless) -> Event:
    """Return that a request that was not recorded got what any server answers."""
    return {"event": "harmless", "call": harmless.call.title, "answer": harmless.answer}


def missed_event(miss: Miss) -> Event:
    """Return that a request was missed."""
    nearest = miss.nearest
    return {
        "event": "missed",
        "call": miss.call.title,
        "reason": miss.reason.value,
        "nearest": None if nearest is None else [nearest.interaction, nearest.turn],
        "pointers": [printable(difference.pointer) for difference in miss.differences],
    }


# What a run came to


def replay_said(report: ReplayReport, terms: Terms = LIBRARY_TERMS) -> Said:
    """Return what a replay came to."""
    event = {
        "event": "concluded",
        "interactions": len(report.interactions),
        "unplayed": [each.number for each in report.incomplete],
        "misses": len(report.misses),
        "harmless": sum(each.times for each in report.harmless),
        "after_other_writes": [read.number for read in report.after_other_writes],
    }
    return event, summary_text(report, terms)


def recording_said(report: RecordingReport) -> Said:
    """Return what a recording came to."""
    facts = as_data(report, {RecordingReport: _CONCLUDED})
    return {"event": "concluded", **facts}, recording_text(report)


_CONCLUDED: Final = (
    "interactions exchanges played unrecorded unread kept same=is_same unpublished=objection "
    "redacted"
)


def turn_said(turn: CallTurn) -> Said:
    """Return who answered what in a turn of a call without a client."""
    event = {
        "event": "answered" if turn.answered_by or not turn.requests else "unanswered",
        "turn": turn.number,
        "via": turn.via,
        "keys": _kinds(turn.requests),
        "answered_by": {printable(key): source for key, source in turn.answered_by.items()},
        "request_state_sha256": turn.state_sha256,
    }
    asked = []
    for key, request in turn.requests.items():
        message = f" {shorten(request.message)!r}" if request.message else ""
        source = turn.answered_by.get(key)
        answered = f"answered by {source}" if source else "not answered"
        asked.append(f"{key} ({request.kind}){message}, {answered}")
    line = f"turn {turn.number}: {'; '.join(asked) or 'asked for a retry only'}"
    return _said(event, line)


def task_said(state: TaskState) -> Said:
    """Return how the task of a call without a client gets on."""
    event = {"event": "task", "status": printable(state.status)}
    return _said(event, f"task {task_words(state)}")


def call_ended_event(result: CallResult) -> Event:
    """Return that a call without a client has ended."""
    return {
        "event": "failed" if result.problem is not None else "ended",
        "call": printable(f"{result.method} {result.name}".strip()),
        "turns": len(result.turns),
        "exit_code": result.exit_code,
    }
