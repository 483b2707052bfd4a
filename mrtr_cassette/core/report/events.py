"""What happens while recording and replaying, as events and as lines of a log.

Rule: no value that anybody sent: keys, kinds, pointers and hashes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.exchange.pushed import PushedAsk, pushed_request
from mrtr_cassette.core.protocol.dialect import InputRequest, InputRequired
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.harmless import Harmless
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.replay.stateless import SeveralAnswers, listed
from mrtr_cassette.core.report.unrecorded import recorded_ask
from mrtr_cassette.core.report.wording import answering_text
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, counted, in_terms, printable

Event = dict[str, Any]
"""What happened, for a log that programs read: ready for JSON."""
Said = tuple[Event, str]
"""The same with the line for people."""


def admin_said(url: str) -> Said:
    """Return where the admin port is."""
    return {"event": "admin", "url": url}, f"admin port on {url}"


# Recording


def request_event(observation: Observation) -> Event:
    """Return that a call was started or answers came."""
    answers, push, shown = (
        observation.call.answers,
        observation.answered,
        observation.recorder.shown,
    )
    facts = _call_facts(observation)
    if push is not None:
        facts["call"] = observation.recorder.label(push.call)
        via, keys, state = "push", [push.key], None
    elif answers is not None:
        via, keys = "result", sorted(answers.input_responses or {})
        state = _hash(answers.request_state)
    else:
        return {"event": "started", **facts}
    keys = [shown(key) for key in keys]
    return {"event": "answered", **facts, "via": via, "keys": keys, "request_state_sha256": state}


def response_said(observation: Observation, end: End, at_ms: float) -> Said:
    """Return that a call was asked something or ended."""
    ask = observation.ask
    event = {
        "event": "ended" if ask is None else "asked",
        **_call_facts(observation),
        "status": observation.status,
        "end": end.value,
        "bytes": observation.size,
        "duration_ms": round(at_ms - observation.started_ms, 1),
    }
    if ask is not None:
        event |= {
            "via": "result",
            "keys": _kinds(ask.input_requests, observation.recorder.shown),
            "request_state_sha256": _hash(ask.request_state),
        }
    return event, _exchange_line(observation, at_ms)


def pushed_said(observation: Observation, push: OpenPush) -> Said:
    """Return that a call, or a listening stream, was asked something by a pushed request."""
    label, shown = observation.recorder.label(push.call), observation.recorder.shown
    event = {
        "event": "asked",
        "exchange": push.exchange,
        "call": label,
        "via": "push",
        "keys": _kinds({push.key: push.request}, shown),
        "request_state_sha256": None,
    }
    asked = shown(f"{push.key} ({push.request.kind})")
    return event, f"{push.exchange:>4}  {printable(label)} asks {asked}"


def _call_facts(observation: Observation) -> Event:
    return {"exchange": observation.number, "call": observation.label}


def _kinds(
    input_requests: Mapping[str, InputRequest], shown: Callable[[str], str] = printable
) -> dict[str, str]:
    return {shown(key): printable(request.kind) for key, request in input_requests.items()}


def _hash(state: str | None) -> str | None:
    return None if state is None else sha256_of(state)


def _exchange_line(observation: Observation, at_ms: float) -> str:
    call = observation.call
    line = f"{observation.number:>4}  {observation.label}"
    if call.answers is not None:
        line += f", {answering_text(call.answers, observation.recorder.shown)}"
    if observation.answered is not None:
        line += f", answering {observation.recorder.shown(observation.answered.key)}"
    if observation.status:
        line += f" -> HTTP {observation.status}"
    else:
        line += (
            f" -> {counted(observation.pieces, 'line')}"
            if observation.pieces
            else " -> no response"
        )
    if observation.ask is not None:
        line += f", {_asking_text(observation.ask, observation.recorder.shown)}"
    return f"{line} ({at_ms - observation.started_ms:.0f} ms)"


def _asking_text(ask: InputRequired, shown: Callable[[str], str]) -> str:
    asked = ", ".join(
        shown(f"{key} ({request.kind})") for key, request in ask.input_requests.items()
    )
    text = f"asks {asked}" if asked else "asks for a retry only"
    return text if ask.request_state is None else f"{text}, with request state"


def unread_said(observation: Observation, unread: Unread, terms: Terms = LIBRARY_TERMS) -> Said:
    """Return which body can't be read."""
    reason = printable(unread.reason)
    event = {"event": "unread", **_call_facts(observation), "body": unread.side, "reason": reason}
    place = f"the {unread.side} of exchange {observation.number}, {observation.label}"
    line = (
        f"warning: {place}, can't be searched for asks, states and secrets, as {unread.reason}; "
        "it is recorded as it is"
    )
    if unread.side == "response" and unread.reason.startswith("its "):
        line += ": have it readable with <<accept_gzip>>"
    return event, printable(in_terms(line, terms))


def unreachable_said(request: str, problem: str) -> Said:
    """Return that a request got no response from the upstream."""
    return ({"event": "unreachable", "problem": problem}, f"{request}: {problem}; not recorded")


def failed_said(problem: str) -> Said:
    """Return that the recording is not whole from now on."""
    return (
        {"event": "failed", "problem": problem},
        f"RECORDING FAILED: {problem}; the traffic goes on",
    )


# Appending


def caught_up_said(asker: Playable) -> Said:
    """Return that the server was brought to the ask of a recorded exchange."""
    ask = recorded_ask(asker)
    return (
        {"event": "caught-up", **_place(asker, asker.asking_turn)},
        f"      repeated the conversation up to {ask}, for an answer that is not recorded",
    )


def unrecorded_event(failure: Unrecorded) -> Event:
    """Return that a request was not recorded."""
    asker = failure.asker
    return {
        "event": "unrecorded",
        "call": failure.call.title,
        "recorded": None if asker is None else [asker.interaction, asker.asking_turn],
        "pointers": [printable(difference.pointer) for difference in failure.differences],
    }


# Replaying


Work = Literal["reading", "writing"]
_COUNTED: Final[Mapping[Work, str]] = {"reading": "interactions", "writing": "exchanges"}


def progress_said(work: Work, path: str, done: int, total: int, left_s: float) -> Said:
    """Return how much of a large cassette has been read or written, and seconds for the rest."""
    event = {"event": work, _COUNTED[work]: done, "of": total, "left_s": round(left_s, 1)}
    line = f"{work} {path}: {done:,} of {total:,} {_COUNTED[work]}, {math.ceil(left_s)} s left"
    return event, line


def _place(playable: Playable, turn: int) -> Event:
    return {"call": str(playable.key), "interaction": playable.interaction, "turn": turn}


def played_event(play: Play) -> Event:
    """Return that a request got its recorded reply."""
    playable = play.playable
    return {"event": "played", **_place(playable, playable.turn), "times": playable.played}


def answered_event(playable: Playable) -> Event:
    """Return that a request answered what had been asked."""
    question, answers = playable.answers, playable.call.answers
    facts = _place(playable, playable.turn)
    if question is not None:
        facts["call"], via, keys = str(question.pending.key), "push", [question.request.key]
    else:
        via, keys = "result", sorted(answers.input_responses or {}) if answers else []
    return {"event": "answered", **facts, "via": via, "keys": [printable(key) for key in keys]}


def asked_event(asker: Playable) -> Event:
    """Return that the client was asked something by the response to its call."""
    keys = {} if asker.ask is None else _kinds(asker.ask.input_requests)
    return {"event": "asked", **_place(asker, asker.asking_turn), "via": "result", "keys": keys}


def asked_by_push_event(ask: PushedAsk) -> Event:
    """Return that the client was asked something by a pushed request."""
    pushed = ask.request
    return {
        "event": "asked",
        "call": ask.call.title,
        "interaction": ask.interaction,
        "turn": ask.turn,
        "via": "push",
        "keys": _kinds({pushed.key: pushed_request(pushed)}),
    }


def harmless_event(harmless: Harmless) -> Event:
    """Return that a request that was not recorded got what any server answers."""
    return {"event": "harmless", "call": harmless.call.title, "answer": harmless.answer}


def told_apart_said(groups: Sequence[SeveralAnswers]) -> Said:
    """Return which requests have several recorded answers, without memory."""
    return (
        {"event": "told_apart", "requests": [each._asdict() for each in groups]},
        listed("note: recorded with several answers", groups),
    )


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
