"""The sessions of a replay: what a client was sent, and what it has sent."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.lookup import CallerValues
from mrtr_cassette.core.cassette.texts import request_with
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.histories import CallRow, PlayedWrites
from mrtr_cassette.core.replay.tasks import LiveTask
from mrtr_cassette.core.secrets.names import id_replacer
from mrtr_cassette.core.wire.http import Request

_NO_CALLER_VALUES: Final = CallerValues(None, None)


@dataclass(slots=True, eq=False)
class LiveSession:
    """One session of a replay: what its client was sent, and what it has sent.

    Attributes:
        recorded_session: the id of the one that is played in it; empty for clients without one.
        sent_counts: how many parts of each listening stream its client has had.
        misses_of_refused_calls: for each call, the wrong answer to what the server asked meanwhile.
        unrecorded_events: events for its client that were not recorded, of a session whose
            responses all come on one stream; None for any other session.
        tasks: the tasks of the calls that it has made, by their recorded ids.
        known_tasks: the ids by which its client knows recorded tasks, where these are others.
        used_by_row: how many calls at the beginning of each row were played or are over.
        arrival_counts: how many requests like recorded ones have come, by lookup number.
        cancelled_ids: the ids, as canonical texts, of the requests that it has cancelled.
        latest_arrived_number: that of the latest recorded request that has come, but notifications
            and answers.
    """

    recorded_session: str = NO_SESSION
    id: str = NO_SESSION
    play_counts: dict[ReplayEntry, int] = field(default_factory=dict)
    asked_questions: set[str] = field(default_factory=set)
    sent_counts: dict[ReplayEntry, int] = field(default_factory=dict)
    values_of_callers: dict[ReplayEntry, CallerValues] = field(default_factory=dict)
    misses_of_refused_calls: dict[ReplayEntry, Miss] = field(default_factory=dict)
    unrecorded_events: deque[bytes] | None = None
    writes: PlayedWrites = field(default_factory=PlayedWrites)
    tasks: dict[str, LiveTask] = field(default_factory=dict)
    cancelled_ids: set[str] = field(default_factory=set)
    known_tasks: dict[str, str] = field(default_factory=dict)
    used_by_row: dict[CallRow, int] = field(default_factory=dict)
    latest_arrived_number: int = 0
    arrival_counts: dict[int, int] = field(default_factory=dict)
    _response_counts: Counter[int] = field(default_factory=Counter)
    _values_by_arrival: dict[tuple[int, int], CallerValues] = field(
        default_factory=dict
    )

    def count_play(self, entry: ReplayEntry) -> None:
        """Count an exchange as played, and what it asks as asked."""
        self.play_counts[entry] = self.play_counts.get(entry, 0) + 1
        if entry.question is not None:
            self.asked_questions.add(entry.question)

    def was_asked(self, entry: ReplayEntry) -> bool:
        """Tell whether the ask that an exchange answers has been played, or an equal one."""
        if entry.answered_question is not None:
            return entry.answered_question.pending.numbers.lookup in self.arrival_counts
        if entry.parent is None or not entry.proves_its_ask:
            return True
        return entry.parent.question in self.asked_questions

    def note_arrival(
        self, entry: ReplayEntry, caller: CallerValues | None = None
    ) -> None:
        """Take note that a request like a recorded one has come, from a caller with these values.

        Without a caller nothing has come, but nothing waits for it any more.
        """
        lookup_number = entry.numbers.lookup
        arrival_count = self.arrival_counts.get(lookup_number, 0) + 1
        self.arrival_counts[lookup_number] = arrival_count
        if caller is not None and entry.session:
            self._values_by_arrival[lookup_number, arrival_count] = caller

        if entry.kind is not Kind.REQUEST:
            return

        if caller is not None:
            self.values_of_callers[entry] = caller

        if entry.session == self.recorded_session:
            self.latest_arrived_number = max(
                self.latest_arrived_number, entry.exchange.number or 0
            )

    def start_task(self, task: LiveTask) -> None:
        """Begin a task, anew if its call has been made before."""
        recorded = task.recorded
        self.tasks[recorded.id] = task
        for cause in recorded.causes:
            self.arrival_counts.pop(recorded.steps[cause].numbers.lookup, None)

    def waive_request(self, entry: ReplayEntry) -> None:
        """Let nothing wait any more for a request like a recorded one."""
        if not self.has_arrived(entry):
            self.note_arrival(entry)

    def has_arrived(self, entry: ReplayEntry) -> bool:
        """Tell whether a request like a recorded one has come, as often as it had come by then."""
        numbers = entry.numbers
        return self.arrival_counts.get(numbers.lookup, 0) >= numbers.occurrence

    def note_response(self, entry: ReplayEntry) -> None:
        """Take note that a client has the response to a request like a recorded one."""
        self._response_counts[entry.numbers.lookup] += 1

    def has_answered(self, entry: ReplayEntry) -> bool:
        """Tell whether a client has the response to a request like a recorded one."""
        return self._response_counts[entry.numbers.lookup] >= entry.numbers.occurrence

    def values_of(self, entry: ReplayEntry) -> CallerValues:
        """Return the values of the live request that stands for a recorded one."""
        number = (entry.numbers.lookup, entry.numbers.occurrence)
        return self._values_by_arrival.get(number, _NO_CALLER_VALUES)

    def in_recorded(self, request: Request) -> Request:
        """Return a request of the session as it would have been recorded."""
        is_known_otherwise = self.id not in (NO_SESSION, self.recorded_session)
        if not is_known_otherwise and not self.known_tasks:
            return request

        names = {live: recorded for recorded, live in self.known_tasks.items()}
        if is_known_otherwise:
            names[self.id] = self.recorded_session

        change = id_replacer(names)
        return request_with(request, lambda raw, _name: change(raw))

    def exchange_tasks(self, first: str, second: str) -> None:
        """Let the client know two recorded tasks by each other's ids."""
        known_first = self.known_tasks.get(first, first)
        known_second = self.known_tasks.get(second, second)
        self.known_tasks[first] = known_second
        self.known_tasks[second] = known_first
