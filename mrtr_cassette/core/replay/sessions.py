"""The sessions of a replay: what a client was sent, and what it has sent."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final
from weakref import WeakKeyDictionary

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.lookup import CallerValues
from mrtr_cassette.core.cassette.texts import request_with_changed_texts
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import INITIALIZED
from mrtr_cassette.core.protocol.tasks import TaskState
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.histories import CallSequence, PlayedWrites
from mrtr_cassette.core.replay.tasks import LiveTask
from mrtr_cassette.core.secrets.names import (
    id_replacer,
    session_number,
    session_surrogate,
)
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import canonical, parse

_NO_CALLER_VALUES: Final = CallerValues(None, None)


@dataclass(slots=True, eq=False)
class SessionPlays:
    """The plays in one session, and the point of the recording that they have reached.

    Attributes:
        counts: how often each exchange was played.
        ask_keys: the keys of the asks that were played.
        used_counts_by_sequence: how many calls at the beginning of each sequence were played or are
            past, of sequences that are still looked at.
    """

    counts: dict[ReplayEntry, int] = field(default_factory=dict)
    ask_keys: set[str] = field(default_factory=set)
    writes: PlayedWrites = field(default_factory=PlayedWrites)
    used_counts_by_sequence: WeakKeyDictionary[CallSequence, int] = field(
        default_factory=WeakKeyDictionary
    )

    def note_played(self, entry: ReplayEntry) -> None:
        """Count an exchange as played, and what it asks as asked."""
        self.counts[entry] = self.counts.get(entry, 0) + 1
        if entry.ask_key is not None:
            self.ask_keys.add(entry.ask_key)


@dataclass(slots=True, eq=False)
class ArrivedRequests:
    """The requests like recorded ones that have come in one session.

    Attributes:
        counts: how many have come, by lookup number.
        caller_values_by_entry: the values of the latest caller of each.
        cancelled_ids: the ids, as canonical texts, of the requests that its client has cancelled.
        placed_count: how many have come that were recorded in the played session, but notifications
            and answers.
    """

    counts: dict[int, int] = field(default_factory=dict)
    caller_values_by_entry: dict[ReplayEntry, CallerValues] = field(
        default_factory=dict
    )
    cancelled_ids: set[str] = field(default_factory=set)
    placed_count: int = 0
    _response_counts: Counter[int] = field(default_factory=Counter)
    _values_by_arrival: dict[tuple[int, int], CallerValues] = field(
        default_factory=dict
    )
    _places_by_arrival: dict[tuple[int, int], int] = field(default_factory=dict)
    _latest_arrivals: list[tuple[int, int]] = field(default_factory=list)
    """Places and recorded numbers of requests after which only earlier recorded ones have come."""

    def note_arrival(
        self, entry: ReplayEntry, caller_values: CallerValues | None
    ) -> None:
        """Take note that a request has come, from a caller with these values if there is one."""
        lookup_number = entry.numbers.lookup
        arrival_count = self.counts.get(lookup_number, 0) + 1
        self.counts[lookup_number] = arrival_count
        if caller_values is None:
            return

        if entry.session:
            self._values_by_arrival[lookup_number, arrival_count] = caller_values

        if entry.kind is Kind.REQUEST:
            self.caller_values_by_entry[entry] = caller_values
            # Some clients use an id again.
            if caller_values.id is not None and self.has_cancelled(caller_values.id):
                self.cancelled_ids.remove(canonical(parse(caller_values.id)))

    def note_place(self, entry: ReplayEntry) -> None:
        """Take note in which place a request has come that was recorded in the played session."""
        lookup_number = entry.numbers.lookup
        arrival = (lookup_number, self.counts[lookup_number])
        self._places_by_arrival[arrival] = self.placed_count
        number = entry.exchange.number or 0
        arrivals = self._latest_arrivals
        while arrivals and arrivals[-1][1] <= number:
            arrivals.pop()

        arrivals.append((self.placed_count, number))
        self.placed_count += 1

    def latest_number_since(self, place: int) -> int:
        """Return the largest recorded number of a request that has come at a place or later."""
        arrivals = self._latest_arrivals
        first_index = bisect_left(arrivals, place, key=itemgetter(0))
        if first_index == len(arrivals):
            return 0

        return arrivals[first_index][1]

    def place_of(self, entry: ReplayEntry) -> int:
        """Return the place of the request that stands for a recorded one, or the first place."""
        arrival = (entry.numbers.lookup, entry.numbers.occurrence)
        return self._places_by_arrival.get(arrival, 0)

    def forget_places(self) -> None:
        """Forget the recorded numbers: another recorded session is played from now on."""
        self._latest_arrivals.clear()

    def await_again(self, entry: ReplayEntry) -> None:
        """Forget all requests like a recorded one, for which something waits anew."""
        self.counts.pop(entry.numbers.lookup, None)

    def has_cancelled(self, spelled_id: bytes | None) -> bool:
        """Tell whether its client waits no more for the response to the request with an id."""
        if spelled_id is None or not self.cancelled_ids:
            return False

        return canonical(parse(spelled_id)) in self.cancelled_ids

    def has_arrived(self, entry: ReplayEntry) -> bool:
        """Tell whether a request like a recorded one has come, as often as it had come by then."""
        numbers = entry.numbers
        return self.counts.get(numbers.lookup, 0) >= numbers.occurrence

    def note_response_to(self, entry: ReplayEntry) -> None:
        """Take note that a client has the response to a request like a recorded one."""
        self._response_counts[entry.numbers.lookup] += 1

    def has_response_to(self, entry: ReplayEntry) -> bool:
        """Tell whether a client has the response to a request like a recorded one."""
        return self._response_counts[entry.numbers.lookup] >= entry.numbers.occurrence

    def caller_values_of(self, entry: ReplayEntry) -> CallerValues:
        """Return the values of the live request that stands for a recorded one."""
        arrival = (entry.numbers.lookup, entry.numbers.occurrence)
        return self._values_by_arrival.get(arrival, _NO_CALLER_VALUES)


@dataclass(slots=True, eq=False)
class LiveSession:
    """One session of a replay: what its client was sent, and what it has sent.

    Attributes:
        recorded_session: the id of the one that is played in it; empty for clients without one.
        sent_counts: how many parts of each listening stream its client has had.
        misses_of_refused_calls: by call, the miss that it gets because its client answered the
            server wrongly.
        unrecorded_events: events for its client that were not recorded, of a session whose
            responses all come on one stream; None for any other session.
        tasks: the tasks of the calls that it has made, by their recorded ids.
        swapped_ids: the ids by which its client knows recorded ones, where these are others.
    """

    recorded_session: str = NO_SESSION
    id: str = NO_SESSION
    plays: SessionPlays = field(default_factory=SessionPlays)
    requests: ArrivedRequests = field(default_factory=ArrivedRequests)
    sent_counts: dict[ReplayEntry, int] = field(default_factory=dict)
    misses_of_refused_calls: dict[ReplayEntry, Miss] = field(default_factory=dict)
    unrecorded_events: deque[bytes] | None = None
    tasks: dict[str, LiveTask] = field(default_factory=dict)
    swapped_ids: dict[str, str] = field(default_factory=dict)

    def has_played_ask_of(self, entry: ReplayEntry) -> bool:
        """Tell whether the ask that an exchange answers has been played, or an equal one."""
        if entry.numbers.pending is not None:
            return entry.numbers.pending in self.requests.counts
        if entry.answered_ask is None or not entry.proves_its_ask:
            return True
        return entry.answered_ask.ask_key in self.plays.ask_keys

    def note_arrival(
        self, entry: ReplayEntry, caller_values: CallerValues | None = None
    ) -> None:
        """Take note that a request like a recorded one has come, from a caller with these values.

        Without a caller nothing has come, but nothing waits for it any more.
        """
        self.requests.note_arrival(entry, caller_values)
        is_of_played_session = entry.session and entry.session == self.recorded_session
        if entry.kind is Kind.REQUEST and is_of_played_session:
            self.requests.note_place(entry)

    def waive_request(self, entry: ReplayEntry) -> None:
        """Let nothing wait any more for a request like a recorded one."""
        if not self.requests.has_arrived(entry):
            self.note_arrival(entry)

    def switch_to_session(self, recorded_session: str) -> None:
        """Play another recorded session, of which nothing has come yet."""
        self.recorded_session = recorded_session
        self.requests.forget_places()

    def start_task(self, task: LiveTask) -> None:
        """Begin a task, anew if its call has been made before."""
        recorded_task = task.recorded
        self.tasks[recorded_task.id] = task
        for cause in recorded_task.answers_by_cause:
            self.requests.await_again(recorded_task.steps[cause])

    def note_notified_state(self, state: TaskState) -> None:
        """Take note that its client was notified of the state of a task."""
        task = self.tasks.get(state.id)
        if task is not None:
            task.note_notified_state(state)

    def live_value_in_state(self, task_id: str, name: str, recorded: bytes) -> bytes:
        """Return a member of the state of a task as its client gets it."""
        task = self.tasks.get(task_id)
        return recorded if task is None else task.live_value(name, recorded)

    def request_as_recorded(self, request: Request) -> Request:
        """Return a request of the session as it would have been recorded."""
        has_other_id = self.id not in (NO_SESSION, self.recorded_session)
        if not has_other_id and not self.swapped_ids:
            return request

        recorded_by_live_id = {}
        for recorded_id, live_id in self.swapped_ids.items():
            recorded_by_live_id[live_id] = recorded_id

        if has_other_id:
            recorded_by_live_id[self.id] = self.recorded_session

        replace_ids = id_replacer(recorded_by_live_id)
        return request_with_changed_texts(request, lambda raw, _name: replace_ids(raw))

    def swap_ids(self, first_id: str, second_id: str) -> None:
        """Let the client know what two recorded ids name by each other's."""
        live_first_id = self.swapped_ids.get(first_id, first_id)
        live_second_id = self.swapped_ids.get(second_id, second_id)
        self.swapped_ids[first_id] = live_second_id
        self.swapped_ids[second_id] = live_first_id


class LiveSessions:
    """The sessions of a replay by their ids, in which recorded ones are played."""

    def __init__(
        self,
        entries_by_arrival: Iterable[ReplayEntry],
        equal_name_of: Callable[[str], str] | None,
    ) -> None:
        """Read a recording.

        Args:
            equal_name_of: gives the recorded session that is played for any that equals it, where
                no reply may depend on what has been played; else None.
        """
        self._equal_name_of = equal_name_of
        self._lookups_by_session: dict[str, set[int]] = {}
        self._handshakes: dict[str, list[ReplayEntry]] = {}
        for entry in entries_by_arrival:
            session = entry.session
            if not session:
                continue

            lookups = self._lookups_by_session.setdefault(session, set())
            lookups.add(entry.numbers.lookup)
            if entry.key.method == INITIALIZED:
                self._handshakes.setdefault(session, []).append(entry)

        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what clients have sent."""
        self._session_without_id = LiveSession()
        self._sessions_by_id: dict[str, LiveSession] = {}
        self._latest_sessions: dict[str, LiveSession] = {}
        """The session that was opened last, by recorded session."""
        self._last_session_number = max(
            map(session_number, self._lookups_by_session), default=0
        )

    def begin_session_without_id(self) -> LiveSession:
        """Return a new session for all clients without a session id."""
        self._session_without_id = LiveSession()
        return self._session_without_id

    def session_of_request(self, request: Request) -> LiveSession:
        """Return the session in which a client sends a request; a new one without memory."""
        session_id = NO_SESSION
        if self._lookups_by_session:
            session_id = session_of(request)

        if self._equal_name_of is not None:
            return LiveSession(self._equal_name_of(session_id), session_id)
        if session_id not in self._lookups_by_session:
            return self._sessions_by_id.get(session_id, self._session_without_id)
        if session_id in self._sessions_by_id:
            return self._sessions_by_id[session_id]

        session = LiveSession(session_id, session_id)
        if request.is_line:
            # A pipe is always new.
            return session

        # A client may know it from an earlier run, and not open it again.
        for handshake in self._handshakes.get(session_id, ()):
            session.note_arrival(handshake)

        return session

    def remember_session(self, session: LiveSession) -> None:
        """Take note that a client has sent something in a session."""
        if self._equal_name_of is None and session.id in self._lookups_by_session:
            self._sessions_by_id.setdefault(session.id, session)

    def open_session(self, opening_entry: ReplayEntry) -> LiveSession:
        """Return a new session, under its recorded id or a surrogate where that is taken.

        A server may have opened one session for several clients, which then share it here too.
        """
        recorded_session = opening_entry.session
        latest_session = self._latest_sessions.get(recorded_session)
        if latest_session is not None:
            is_shared = opening_entry not in latest_session.plays.counts
            if is_shared:
                return latest_session

        session_id = recorded_session
        if recorded_session in self._sessions_by_id:
            self._last_session_number += 1
            session_id = session_surrogate(self._last_session_number)

        session = LiveSession(recorded_session, session_id)
        # HTTP+SSE: a stream opens the session, and posts get no responses of their own.
        if opening_entry.is_listening:
            session.unrecorded_events = deque()

        if self._equal_name_of is None:
            self._sessions_by_id[session_id] = session
            self._latest_sessions[recorded_session] = session

        return session

    def other_recorded_session(
        self, entries: Sequence[ReplayEntry], session: LiveSession
    ) -> str | None:
        """Return the recorded session for which a live one has to be taken from now on, or None.

        Clients that begin alike are told apart by what they do later: where the session that was
        taken for this one has no such exchange, one that has what came so far is taken for it.
        """
        recorded_session = session.recorded_session
        if recorded_session == NO_SESSION:
            return None

        for entry in entries:
            if entry.session == recorded_session:
                return None

        for entry in entries:
            lookups_in_session = self._lookups_by_session.get(entry.session)
            if lookups_in_session is None:
                continue

            has_all_arrived = session.requests.counts.keys() <= lookups_in_session
            if has_all_arrived:
                return entry.session

        return None
