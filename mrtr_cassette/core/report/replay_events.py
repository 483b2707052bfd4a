"""The log of a replay while it plays, without any value that was sent, and what all logs share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import (
    InteractionPlace,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.errors import line_by_line, printable

Event = dict[str, Any]
"""An entry of a log that programs read: ready for JSON."""

LogLine = tuple[Event, str]
"""The same with the line for people."""

AskingEvents = Mapping[RecordedExchange, Sequence[tuple[int, Event]]]
"""What responses ask before they end: the piece that asks, and that the client was asked."""


def log_line(event: Event, line: str) -> LogLine:
    """Return an entry of a log in both forms."""
    return event, line_by_line(line)


def kinds_of(input_requests: Mapping[str, InputRequest]) -> dict[str, str]:
    """Return the kinds of questions by their keys."""
    return {
        printable(key): printable(request.kind)
        for key, request in input_requests.items()
    }


def played_events(play: Play) -> Iterator[Event]:
    """Yield that a request got its recorded reply, its answers, and the questions of the reply."""
    entry = play.entry
    call = (entry.call_of_step or entry).key
    place: Event = {"call": str(call), **place_members(entry.place.in_file)}
    yield {
        "event": "played",
        **place,
        "turn": entry.turn,
        "times": play.play_count,
        "method": printable(entry.key.method),
        "name": printable(entry.key.name),
    }

    if entry.turn:
        yield _answered_event(entry, {**place, "turn": entry.turn, "via": entry.via})

    asking_turn = entry.place.asking_turn
    is_asking_state = asking_turn and entry.state and play.play_count == 1
    if entry.is_ask or is_asking_state:
        asked = {"event": "asked", **place, "turn": asking_turn, "via": entry.via}
        yield {**asked, "keys": kinds_of(entry.asked_inputs)}


def place_members(place: InteractionPlace) -> Event:
    """Return the number of an interaction, and its file if there are several."""
    if place.file:
        return {"interaction": place.number, "cassette": place.file}
    return {"interaction": place.number}


def _answered_event(entry: ReplayEntry, place: Event) -> Event:
    """Return which questions a request answered."""
    question = entry.answered_question
    answers = read_call(entry.normalised.request).answers
    keys: list[str] = []
    if question is not None:
        place |= {"call": str((entry.continued_entry or entry).key)}
        keys = [question.key]
    elif answers is not None:
        keys = sorted(answers.input_responses or {})

    return {"event": "answered", **place, "keys": [printable(key) for key in keys]}


def asking_events(interactions: Iterable[RecordedInteraction]) -> AskingEvents:
    """Return what responses ask before they end, which are requests that the server pushes."""
    asks: dict[RecordedExchange, list[tuple[int, Event]]] = defaultdict(list)
    for interaction in interactions:
        for number, turn in interaction.numbered_turns.items():
            if turn.position < interaction.shared_count:
                continue

            call = interaction.exchanges[turn.position].call
            place = {"call": call.title, **place_members(interaction.place)}
            asked = {"event": "asked", **place, "turn": number, "via": "push"}
            for request in turn.pushed_requests:
                event = {**asked, "keys": kinds_of({request.key: request.asked_input})}
                asks[request.exchange].append((request.piece_index, event))

    return asks


def harmless_event(harmless: HarmlessReply) -> Event:
    """Return that a request that was not recorded got what any server answers."""
    return {"event": "harmless", "call": harmless.call.title, "answer": harmless.answer}


def missed_event(miss: Miss) -> Event:
    """Return that a request was missed."""
    event: Event = {
        "event": "missed",
        "call": miss.call.title,
        "reason": miss.reason.value,
        "nearest": None,
        "pointers": [printable(difference.pointer) for difference in miss.differences],
    }

    if miss.nearest is not None:
        place = miss.nearest.place.in_file
        event["nearest"] = [place.number, miss.nearest.turn]
        if place.file:
            event["cassette"] = place.file

    return event


def fault_log_line(fault: str, call: str) -> LogLine:
    """Return that a call has met a fault."""
    event = {"event": "fault", "fault": fault, "call": call}
    return log_line(event, f"{fault}: {call}")
