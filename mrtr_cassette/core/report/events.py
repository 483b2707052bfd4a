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

# Both


def admin_event(url: str) -> dict[str, Any]:
    """Return where the admin port is."""
    return {"event": "admin", "url": url}


def admin_line(url: str) -> str:
    """Return the same as a line."""
    return f"admin port on {url}"


# Recording


def request_event(observation: Observation) -> dict[str, Any]:
    """Return that a call was started or answers came."""
    answers = observation.call.answers
    push = observation.answered
    if push is not None:
        return {
            "event": "answered",
            "exchange": observation.number,
            "call": observation.recorder.label(push.call),
            "via": "push",
            "keys": [observation.recorder.shown(push.key)],
            "request_state_sha256": None,
        }
    if answers is None:
        return {"event": "started", **_call_facts(observation)}
    return {
        "event": "answered",
        **_call_facts(observation),
        "via": "result",
        "keys": [observation.recorder.shown(key) for key in sorted(answers.input_responses or {})],
        "request_state_sha256": _hash(answers.request_state),
    }


def response_event(observation: Observation, end: End, at_ms: float) -> dict[str, Any]:
    """Return that a call was asked something or ended."""
    ask = observation.ask
    facts = {
        **_call_facts(observation),
        "status": observation.status,
        "end": end.value,
        "bytes": observation.size,
        "duration_ms": round(at_ms - observation.started_ms, 1),
    }
    if ask is None:
        return {"event": "ended", **facts}
    return {
        "event": "asked",
        **facts,
        "via": "result",
        "keys": _kinds(ask.input_requests, observation.recorder.shown),
        "request_state_sha256": _hash(ask.request_state),
    }


def pushed_event(observation: Observation, push: OpenPush) -> dict[str, Any]:
    """Return that a call, or a listening stream, was asked something by a pushed request."""
    return {
        "event": "asked",
        "exchange": push.exchange,
        "call": observation.recorder.label(push.call),
        "via": "push",
        "keys": _kinds({push.key: push.request}, observation.recorder.shown),
        "request_state_sha256": None,
    }


def pushed_line(observation: Observation, push: OpenPush) -> str:
    """Return as a line that a pushed request asks something."""
    label = observation.recorder.label(push.call)
    asked = observation.recorder.shown(f"{push.key} ({push.request.kind})")
    return f"{push.exchange:>4}  {printable(label)} asks {asked}"


def _call_facts(observation: Observation) -> dict[str, Any]:
    return {"exchange": observation.number, "call": observation.label}


def _kinds(
    input_requests: Mapping[str, InputRequest], shown: Callable[[str], str] = printable
) -> dict[str, str]:
    return {shown(key): printable(request.kind) for key, request in input_requests.items()}


def _hash(state: str | None) -> str | None:
    return None if state is None else sha256_of(state)


def exchange_line(observation: Observation, at_ms: float) -> str:
    """Return one recorded exchange as a line."""
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


def unread_event(observation: Observation, unread: Unread) -> dict[str, Any]:
    """Return which body can't be read."""
    return {
        "event": "unread",
        **_call_facts(observation),
        "body": unread.side,
        "reason": printable(unread.reason),
    }


def unread_line(observation: Observation, unread: Unread, terms: Terms = LIBRARY_TERMS) -> str:
    """Return the warning about a body that can't be read."""
    place = f"the {unread.side} of exchange {observation.number}, {observation.label}"
    text = (
        f"warning: {place}, can't be searched for asks, states and secrets, as {unread.reason}; "
        "it is recorded as it is"
    )
    if unread.side == "response" and unread.reason.startswith("its "):
        text += ": have it readable with <<accept_gzip>>"
    return printable(in_terms(text, terms))


def unreachable_event(problem: str) -> dict[str, Any]:
    """Return that the upstream gave no response."""
    return {"event": "unreachable", "problem": problem}


def unreachable_line(request: str, problem: str) -> str:
    """Return as a line which request got no response from the upstream."""
    return f"{request}: {problem}; not recorded"


def failed_event(problem: str) -> dict[str, Any]:
    """Return that the recording is not whole from now on."""
    return {"event": "failed", "problem": problem}


def failed_line(problem: str) -> str:
    """Return as a line that the recording is not whole from now on."""
    return f"RECORDING FAILED: {problem}; the traffic goes on"


# Appending


def caught_up_event(asker: Playable) -> dict[str, Any]:
    """Return that the server was brought to the ask of a recorded exchange."""
    return {
        "event": "caught-up",
        "call": str(asker.key),
        "interaction": asker.interaction,
        "turn": asker.asking_turn,
    }


def caught_up_line(asker: Playable) -> str:
    """Return as a line that the server was brought to the ask of a recorded exchange."""
    ask = recorded_ask(asker)
    return f"      repeated the conversation up to {ask}, for an answer that is not recorded"


def unrecorded_event(failure: Unrecorded) -> dict[str, Any]:
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


def progress_event(work: Work, done: int, total: int, left_s: float) -> dict[str, Any]:
    """Return how much of a large cassette has been read or written, and seconds for the rest."""
    return {"event": work, _COUNTED[work]: done, "of": total, "left_s": round(left_s, 1)}


def progress_line(work: Work, path: str, done: int, total: int, left_s: float) -> str:
    """Return the same as a line."""
    return f"{work} {path}: {done:,} of {total:,} {_COUNTED[work]}, {math.ceil(left_s)} s left"


def played_event(play: Play) -> dict[str, Any]:
    """Return that a request got its recorded reply."""
    playable = play.playable
    return {
        "event": "played",
        "call": str(playable.key),
        "interaction": playable.interaction,
        "turn": playable.turn,
        "times": playable.played,
    }


def answered_event(playable: Playable) -> dict[str, Any]:
    """Return that a request answered what had been asked."""
    question = playable.answers
    if question is not None:
        call, keys = question.pending.key, [question.request.key]
    else:
        answers = playable.call.answers
        call, keys = playable.key, sorted(answers.input_responses or {}) if answers else []
    return {
        "event": "answered",
        "call": str(call),
        "interaction": playable.interaction,
        "turn": playable.turn,
        "via": "result" if question is None else "push",
        "keys": [printable(key) for key in keys],
    }


def asked_event(asker: Playable) -> dict[str, Any]:
    """Return that the client was asked something by the response to its call."""
    return {
        "event": "asked",
        "call": str(asker.key),
        "interaction": asker.interaction,
        "turn": asker.asking_turn,
        "via": "result",
        "keys": {} if asker.ask is None else _kinds(asker.ask.input_requests),
    }


def asked_by_push_event(ask: PushedAsk) -> dict[str, Any]:
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


def harmless_event(harmless: Harmless) -> dict[str, Any]:
    """Return that a request that was not recorded got what any server answers."""
    return {"event": "harmless", "call": harmless.call.title, "answer": harmless.answer}


def told_apart_event(groups: Sequence[SeveralAnswers]) -> dict[str, Any]:
    """Return which requests have several recorded answers, without memory."""
    return {"event": "told_apart", "requests": [each._asdict() for each in groups]}


def told_apart_text(groups: Sequence[SeveralAnswers]) -> str:
    """Return the same for people."""
    return listed("note: recorded with several answers", groups)


def missed_event(miss: Miss) -> dict[str, Any]:
    """Return that a request was missed."""
    nearest = miss.nearest
    return {
        "event": "missed",
        "call": miss.call.title,
        "reason": miss.reason.value,
        "nearest": None if nearest is None else [nearest.interaction, nearest.turn],
        "pointers": [printable(difference.pointer) for difference in miss.differences],
    }
