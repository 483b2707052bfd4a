"""Histories of writes: those of a recording, and which of them a play can be in.

A call belongs to a history of writes (docs/matching.md, "Reads belong to the history of writes").
A recording has one or several histories, and a play follows all of them at once, until it makes a
write that a history does not have next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

from mrtr_cassette.core.cassette.effects import CallEffects
from mrtr_cassette.core.cassette.entries import (
    ArrivalTime,
    Entries,
    Lifetime,
    MadeWrite,
    OpenedSessions,
    ReplayEntry,
    SessionStanding,
    answer_digest,
    ref_without_number,
)
from mrtr_cassette.core.cassette.recorded import RecorderFacts, run_number_by_recorder
from mrtr_cassette.core.protocol.calls import NO_SESSION, Traits
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import INITIALIZE, method_of
from mrtr_cassette.core.replay.timelines import Timelines
from mrtr_cassette.core.secrets.names import with_changed_refs

_NEVER_ENDED: Final = (float("inf"), float("inf"))

WriteKey = tuple[int, tuple[str, ...]]
"""What equal writes share: the path of the call and its answers, and what was posted meanwhile."""

HistoryKey = tuple[str, int]
"""A session, and the run of the recorder."""

_SessionIndependentCall = tuple[int, SessionStanding, Traits]
"""The path of a call, how it names its session, and its traits without this."""


class HistoryPoint(NamedTuple):
    """Where in a history a recorded request belongs: all of its call is in flight together.

    Attributes:
        lifetime: from the first request of the call to its last response.
        family: the same for all calls with equal first requests, however they were answered.
        write_key: what it shares with equal writes, if it ends one.
    """

    entry: ReplayEntry
    lifetime: Lifetime
    history_key: HistoryKey
    family: int
    write_key: WriteKey | None


class _EqualWrites:
    """The equal writes of a history, which are counted.

    They can't be told apart: the n-th that is made takes the n-th start and the n-th end, even of
    different recordings.
    """

    def __init__(self, writes: Sequence[HistoryPoint]) -> None:
        self._writes = writes
        self._sorted_starts = sorted([write.lifetime.start for write in writes])
        self._unmade_entries = dict.fromkeys([write.entry for write in writes])
        self._made_count = 0

    @property
    def next_ending_write(self) -> HistoryPoint | None:
        """The one that ends next; None when all are made."""
        if not self._unmade_entries:
            return None
        return self._writes[self._made_count]

    @property
    def next_start(self) -> ArrivalTime:
        """When the next one may begin."""
        return self._sorted_starts[self._made_count]

    def use_up_next(self, entry: ReplayEntry) -> ReplayEntry:
        """Make the next one; return the recording that is used up by a play of `entry`."""
        self._made_count += 1
        made_entry = entry
        if made_entry not in self._unmade_entries:
            made_entry = next(iter(self._unmade_entries))

        del self._unmade_entries[made_entry]
        return made_entry


class _RecordedWrites:
    """The writes of a recorded history, which all plays share.

    Attributes:
        as_recorded: in the order in which they arrived.
        by_end: in the order of their ends.
        by_key: equal ones in that order, by what they share.
    """

    def __init__(self, writes: Sequence[HistoryPoint]) -> None:
        self.as_recorded = writes
        self.by_end = sorted(writes, key=lambda write: write.lifetime[::-1])
        self.by_key: dict[WriteKey | None, list[HistoryPoint]] = {}
        for write in self.by_end:
            self.by_key.setdefault(write.write_key, []).append(write)


class _WriteHistory:
    """One recorded history, and which of its writes a play has made.

    Calls of one family that a play has in flight together may end in any order, whether or not
    they were in flight together when they were recorded: `others_in_flight` counts them.

    Attributes:
        followed_count: how many of the play's writes it has been asked to make.
        has_diverged: the play has made a write that it doesn't have next.
    """

    def __init__(self, recorded_writes: _RecordedWrites) -> None:
        self._writes = recorded_writes.by_end
        self._writes_by_key = recorded_writes.by_key
        self._equal_writes_by_key: dict[WriteKey | None, _EqualWrites] = {}
        """Equal writes, as soon as the play has to do with them."""
        self._ended_entries: set[ReplayEntry] = set()
        """The writes, in the order of their ends, that equal ones were made for."""
        self._first_unended = 0
        """The place of the first write that has not ended."""
        self._made_entries: set[ReplayEntry] = set()
        self._latest_by_family: dict[int, ArrivalTime] = {}
        """When the latest write of a family began that was made, for the latest two families."""
        self.followed_count = 0
        self.has_diverged = False

    def _writes_equal_to(self, point: HistoryPoint) -> _EqualWrites | None:
        """Return the writes that equal one that a call ends, if it does."""
        if point.write_key not in self._writes_by_key:
            return None

        if point.write_key not in self._equal_writes_by_key:
            self._equal_writes_by_key[point.write_key] = _EqualWrites(
                self._writes_by_key[point.write_key]
            )

        return self._equal_writes_by_key[point.write_key]

    def make_write(self, point: HistoryPoint, others_in_flight: int) -> bool:
        """Make a write, if the history has it next."""
        equal_writes = self._writes_equal_to(point)
        if equal_writes is None:
            return False

        ending_write = equal_writes.next_ending_write
        if ending_write is None:
            return False

        next_start = equal_writes.next_start
        if next_start > self.end_of_first_unmade_write(point.family, others_in_flight):
            return False

        self._made_entries.add(equal_writes.use_up_next(point.entry))
        self._ended_entries.add(ending_write.entry)
        self._skip_ended()
        self._note_latest_start(point.family, next_start)

        return True

    def _skip_ended(self) -> None:
        """Go on to the first write that has not ended."""
        while self._first_unended < len(self._writes):
            if self._writes[self._first_unended].entry not in self._ended_entries:
                return

            self._first_unended += 1

    def _note_latest_start(self, family: int, start: ArrivalTime) -> None:
        """Take note of when the latest write of a family began."""
        latest = self._latest_by_family
        latest[family] = max(latest.get(family, start), start)
        if len(latest) > 2:
            oldest_family = min(latest, key=lambda known: (latest[known], known))
            del latest[oldest_family]

    def end_of_first_unmade_write(
        self, family: int, others_in_flight: int
    ) -> ArrivalTime:
        """Return when the first unmade write ended, after `others_in_flight` ones of `family`."""
        for place in range(self._first_unended, len(self._writes)):
            write = self._writes[place]
            if write.entry in self._ended_entries:
                continue
            if write.family != family or others_in_flight <= 0:
                return write.lifetime.end

            others_in_flight -= 1

        return _NEVER_ENDED

    def is_made(self, entry: ReplayEntry) -> bool:
        """Tell whether a write has been made, or an equal one in its place."""
        return entry in self._made_entries

    def has_gone_past(self, point: HistoryPoint) -> bool:
        """Tell whether a call has been made, or a write that came after it."""
        if point.entry in self._made_entries:
            return True

        end = point.lifetime.end
        equal_writes = self._writes_equal_to(point)
        if equal_writes is not None and equal_writes.next_ending_write is not None:
            end = equal_writes.next_ending_write.lifetime.end

        for family, start in self._latest_by_family.items():
            if start > end and family != point.family:
                return True

        return False


@dataclass(slots=True)
class PlayedWrites:
    """The writes of one play, and the recorded histories that it follows.

    Attributes:
        followed_histories: those that were asked for so far.
        in_flight: how many calls of each family have been asked something and have not ended.
    """

    made: list[MadeWrite] = field(default_factory=list)
    followed_histories: dict[HistoryKey, _WriteHistory] = field(default_factory=dict)
    in_flight: Counter[int] = field(default_factory=Counter)

    def other_calls_in_flight(self, entry: ReplayEntry, family: int) -> int:
        """Return how many calls of the family of a request are in flight besides its own."""
        in_flight = self.in_flight.get(family, 0)
        if entry.answered_ask is not None and in_flight:
            in_flight -= 1

        return in_flight


@dataclass(frozen=True, eq=False)
class CallSequence:
    """Equal calls of one caller at points of one history, in the order in which they began.

    Attributes:
        point: the point of one of them; None where these calls are not held to a history.
    """

    caller: str
    point: HistoryPoint | None
    entries: list[ReplayEntry]

    @cached_property
    def first_arrival(self) -> tuple[float, int, int]:
        """Orders sequences of equal calls as the first of each arrived."""
        return min(entry.arrival for entry in self.entries)


class WriteHistories:
    """The histories of a recording, and which of its calls are held to them.

    All of this is found out when the first call comes that may be held.
    """

    def __init__(
        self,
        entries: Entries,
        recorders: Sequence[RecorderFacts],
        mode: Literal["auto", "strict", "order"],
        effects: CallEffects,
        timelines: Timelines,
        opened_sessions: OpenedSessions,
    ) -> None:
        """Read a recording.

        Args:
            mode: holds calls to histories that were recorded with several answers, all or none.
            effects: tells which calls write.
            timelines: tell when calls ended, and what was posted meanwhile.
        """
        # A task goes on by itself, whatever is written.
        self._entries_by_arrival: list[ReplayEntry] = []
        self._by_path: dict[int, list[ReplayEntry]] = {}
        for entry in entries.by_arrival:
            if entry.call_of_step is None:
                self._entries_by_arrival.append(entry)
                self._by_path.setdefault(entry.numbers.path, []).append(entry)

        self._equal_calls_by_path: dict[int, list[CallSequence]] = {}
        """All equal calls at their points, by path, as soon as somebody asks for them."""

        self._steps_by_call = entries.steps
        self._recorders = recorders
        self._timelines = timelines
        self._opened_sessions = opened_sessions
        self._call_effects = effects
        self._history_mode = mode
        has_repeated = len(self._by_path) < len(self._entries_by_arrival)
        self._holds_any_calls = mode == "strict" or (mode == "auto" and has_repeated)

    def _write_key(self, entry: ReplayEntry) -> WriteKey:
        """Return what an entry shares with equal writes, in whichever history."""
        answers = []
        for posted_answer in self._timelines.answers_during(entry):
            answers.append(posted_answer.key.arguments)

        answers += self._answers_in_steps(entry)
        return entry.numbers.path, tuple(answers)

    def _answers_in_steps(self, entry: ReplayEntry) -> list[str]:
        """Return how the questions of the task that a call created were answered."""
        answers = []
        for step in self._steps_by_call.get(entry, ()):
            if step.state is None:
                answers_text = str(step.normalised.lookup.answers)
                answers.append(with_changed_refs(answers_text, ref_without_number))

        return answers

    # Histories

    @cached_property
    def _recorded_writes(self) -> dict[HistoryKey, _RecordedWrites]:
        """The writes of each history."""
        writes_by_history: dict[HistoryKey, list[HistoryPoint]] = {}
        entry_by_number = {
            entry.exchange.number: entry for entry in self._entries_by_arrival
        }
        for entry in self._entries_by_arrival:
            point = self._points_by_entry[entry]
            history_writes = writes_by_history.setdefault(point.history_key, [])
            # A run that appended had played these one after the other, before the request came.
            played_before = []
            for number in entry.exchange.played_writes:
                if number in entry_by_number:
                    played_before.append(entry_by_number[number])

            number_before = (entry.exchange.number or 0) - 1
            for place, played_entry in enumerate(played_before, start=1):
                moment = (number_before + place / (len(played_before) + 1),)
                played_point = self._points_by_entry[played_entry]
                history_writes.append(
                    played_point._replace(
                        lifetime=Lifetime(moment, moment),
                        write_key=self._write_key(played_entry),
                    )
                )

            if point.write_key is not None:
                history_writes.append(point)

        recorded_writes = {}
        for history_key, history_writes in writes_by_history.items():
            recorded_writes[history_key] = _RecordedWrites(history_writes)

        return recorded_writes

    @cached_property
    def _points_by_entry(self) -> dict[ReplayEntry, HistoryPoint]:
        """Where in its history each request belongs."""
        lifetimes = self._call_lifetimes()
        points: dict[ReplayEntry, HistoryPoint] = {}
        for entry in self._entries_by_arrival:
            first_request = entry
            while first_request.answered_ask is not None:
                if first_request in points:
                    break

                first_request = first_request.answered_ask

            family = first_request.numbers.path
            if first_request in points:
                family = points[first_request].family

            history_key = self._history_key_of(entry)
            write_key = None
            if self._call_effects.is_write(entry):
                write_key = self._write_key(entry)

            lifetime = lifetimes[entry.interaction, history_key]
            points[entry] = HistoryPoint(
                entry, lifetime, history_key, family, write_key
            )

        return points

    def _call_lifetimes(self) -> dict[tuple[int, HistoryKey], Lifetime]:
        """Return when each call began, and when it ended with all its rounds and steps."""
        lifetimes: dict[tuple[int, HistoryKey], Lifetime] = {}
        for entry in self._entries_by_arrival:
            call = (entry.interaction, self._history_key_of(entry))
            start, end = self._timelines.lifetime_of(entry)
            for step in self._steps_by_call.get(entry, ()):
                end = max(end, self._timelines.lifetime_of(step).end)

            lifetime_so_far = lifetimes.setdefault(call, Lifetime(start, end))
            lifetimes[call] = Lifetime(
                lifetime_so_far.start, max(lifetime_so_far.end, end)
            )

        return lifetimes

    def _history_key_of(self, entry: ReplayEntry) -> HistoryKey:
        """Return the history to which a request belongs."""
        recorded_by = entry.exchange.recorded_by
        run = 0
        if recorded_by is not None:
            run = self._runs_by_recorder.get(recorded_by.recorder, 0)

        return entry.session, run

    @cached_property
    def _runs_by_recorder(self) -> dict[str, int]:
        """The run to which each recorder belongs."""
        exchanges = [entry.exchange for entry in self._entries_by_arrival]
        return run_number_by_recorder(exchanges, self._recorders)

    # What a play has made

    def _followed_history(
        self, key: HistoryKey, played_writes: PlayedWrites
    ) -> _WriteHistory | None:
        """Return a history that a play can be in; None for one that it has left."""
        history = played_writes.followed_histories.get(key)
        if history is None:
            history = _WriteHistory(self._recorded_writes[key])
            played_writes.followed_histories[key] = history

        history_session, _ = key
        for write in played_writes.made[history.followed_count :]:
            history.followed_count += 1
            entry = write.entry
            # Clients without a session have nothing in common with those that have one.
            if entry is not None and bool(history_session) != bool(entry.session):
                continue

            # No history has what a live server got.
            if entry is None or not history.make_write(
                self._points_by_entry[entry], write.others_in_flight
            ):
                history.has_diverged = True

        return None if history.has_diverged else history

    def note_play(self, entry: ReplayEntry, played_writes: PlayedWrites) -> bool:
        """Take note that a call begins or ends; histories end that don't have its write next.

        Return whether it is a read that was recorded after other writes.
        """
        if not (self._holds_any_calls or self._is_watching_reads):
            return False

        if entry.call_of_step is not None:
            self._note_step(entry, entry.call_of_step, played_writes)
            return False

        family = self._points_by_entry[entry].family
        if entry.is_ask:
            if entry.answered_ask is None:
                played_writes.in_flight[family] += 1

            return False

        if self._call_effects.is_write(entry):
            others_in_flight = played_writes.other_calls_in_flight(entry, family)
            played_writes.made.append(MadeWrite(entry, others_in_flight))
            # With steps to come, it stays in flight.
            goes_on_as_task = entry in self._steps_by_call
            played_writes.in_flight[family] = others_in_flight + goes_on_as_task

            return False

        is_watched = self._is_watching_reads and self._is_watched_read(entry)
        return is_watched and not self._is_read_after_same_writes(entry, played_writes)

    def take_back_ask(self, ask: ReplayEntry, played_writes: PlayedWrites) -> None:
        """Take note that a call that was asked something has not begun after all."""
        if ask.answered_ask is None and (
            self._holds_any_calls or self._is_watching_reads
        ):
            played_writes.in_flight[self._points_by_entry[ask].family] -= 1

    def _note_step(
        self, step: ReplayEntry, call: ReplayEntry, played_writes: PlayedWrites
    ) -> None:
        """Take note of a step of the task that a call created, which may be its last."""
        family = self._points_by_entry[call].family
        is_last_step = step.state is not None and step.state.is_over
        if is_last_step and played_writes.in_flight[family]:
            played_writes.in_flight[family] -= 1

    def swap_writes(
        self,
        first_call: ReplayEntry,
        second_call: ReplayEntry,
        played_writes: PlayedWrites,
    ) -> None:
        """Take a write that was made as one equal call for another, to which it turns out now."""
        made_entries = {write.entry for write in played_writes.made}
        if made_entries.isdisjoint((first_call, second_call)):
            return

        family = self._points_by_entry[first_call].family
        others_in_flight = max(played_writes.in_flight[family] - 1, 0)
        swapped_writes = []
        for write in played_writes.made:
            if write.entry not in (first_call, second_call):
                swapped_writes.append(write)

        if first_call in made_entries:
            swapped_writes.append(MadeWrite(second_call, others_in_flight))

        if second_call in made_entries:
            swapped_writes.append(MadeWrite(first_call, others_in_flight))

        played_writes.made = swapped_writes
        played_writes.followed_histories.clear()

    # What is held

    def sequences_by_caller(self, entries: Sequence[ReplayEntry]) -> list[CallSequence]:
        """Return some equal calls by their callers, and by history where they are held to one."""
        is_held = self._holds_any_calls and self._are_held_to_histories(entries)
        return self._grouped_sequences(entries, is_held=is_held)

    def _grouped_sequences(
        self, entries: Sequence[ReplayEntry], *, is_held: bool
    ) -> list[CallSequence]:
        """Return some equal calls by their callers, and by history if they are held to one."""
        sequences: dict[object, CallSequence] = {}
        for entry in entries:
            caller = entry.normalised.caller
            point = None
            sequence_key: tuple[object, ...] = (caller,)
            if is_held and not _has_no_point(entry):
                point = self._points_by_entry[entry]
                is_first_request = entry.answered_ask is None
                sequence_key = (
                    caller,
                    point.history_key,
                    point.family,
                    is_first_request,
                )

            sequence = sequences.setdefault(
                sequence_key, CallSequence(caller, point, [])
            )
            sequence.entries.append(entry)

        for sequence in sequences.values():
            if sequence.point is not None:
                sequence.entries.sort(key=self._start_of)

        return list(sequences.values())

    def _start_of(self, entry: ReplayEntry) -> ArrivalTime:
        """Return when the call of a request began."""
        return self._points_by_entry[entry].lifetime.start

    def reached_call_count(
        self, sequence: CallSequence, played_writes: PlayedWrites
    ) -> int:
        """Return how many calls have all writes behind them that ended before they came.

        That is, of a play that has made these writes.
        """
        if sequence.point is None:
            return len(sequence.entries)

        history = self._followed_history(sequence.point.history_key, played_writes)
        if history is None:
            return 0

        family = sequence.point.family
        end_of_reached = history.end_of_first_unmade_write(
            family, played_writes.other_calls_in_flight(sequence.entries[0], family)
        )
        return bisect_right(sequence.entries, end_of_reached, key=self._start_of)

    def has_gone_past(
        self, sequence: CallSequence, entry: ReplayEntry, played_writes: PlayedWrites
    ) -> bool:
        """Tell whether a play has gone past a call, or has made it."""
        if sequence.point is None:
            return False

        history = self._followed_history(sequence.point.history_key, played_writes)
        return history is None or history.has_gone_past(self._points_by_entry[entry])

    def has_gone_past_for_good(
        self, entry: ReplayEntry, played_writes: PlayedWrites
    ) -> bool:
        """Tell whether a play can't get back to a call that is over, whatever it writes."""
        point = self._points_by_entry[entry]
        history = self._followed_history(point.history_key, played_writes)
        return point.write_key is None or history is None or history.is_made(entry)

    def playable_calls(
        self, sequence: CallSequence, played_writes: PlayedWrites
    ) -> Iterator[ReplayEntry]:
        """Yield the calls of a sequence at the point that a play has reached, the latest first."""
        for index in reversed(range(self.reached_call_count(sequence, played_writes))):
            entry = sequence.entries[index]
            if not self.has_gone_past(sequence, entry, played_writes):
                yield entry

    # Recordings that are played together

    @property
    def held_recording_count(self) -> int:
        """How many recordings are played together; 1 where calls are not all held to them."""
        if self._history_mode != "strict":
            return 1

        recordings = [_recording_index_of(recorder.id) for recorder in self._recorders]
        return 1 + max(recordings, default=0)

    def recordings_with(
        self,
        entry: ReplayEntry,
        played_writes: PlayedWrites,
        recordings: Collection[int],
    ) -> set[int]:
        """Return which of some recordings have an equal call at the point that a play has reached.

        A call that belongs to no point is in all of them.
        """
        if _has_no_point(entry) or entry.call_of_step is not None:
            return set(recordings)

        recordings_found = set()
        for sequence in self._calls_equal_to(entry):
            recorded_by = sequence.entries[0].exchange.recorded_by
            recorder = "" if recorded_by is None else recorded_by.recorder
            recording_index = _recording_index_of(recorder)
            is_wanted = recording_index in recordings
            if not is_wanted or recording_index in recordings_found:
                continue

            if self._has_playable_call(sequence, played_writes):
                recordings_found.add(recording_index)

        return recordings_found

    def _has_playable_call(
        self, sequence: CallSequence, played_writes: PlayedWrites
    ) -> bool:
        """Tell whether a sequence has a call at the point that a play has reached."""
        return next(self.playable_calls(sequence, played_writes), None) is not None

    def _calls_equal_to(self, entry: ReplayEntry) -> list[CallSequence]:
        """Return all calls that equal one, itself included, at their points."""
        path = entry.numbers.path
        if path not in self._equal_calls_by_path:
            self._equal_calls_by_path[path] = self._grouped_sequences(
                self._by_path[path], is_held=True
            )

        return self._equal_calls_by_path[path]

    def _are_held_to_histories(self, entries: Sequence[ReplayEntry]) -> bool:
        """Tell whether equal calls are held to their histories."""
        first_call = entries[0]
        last_call = entries[-1]
        if self._history_mode == "strict":
            return True
        if (
            self._session_independent_call(first_call)
            in self._calls_with_several_answers
        ):
            return True
        # A caller that is like none of the recorded ones may get what was recorded of several.
        if first_call.normalised.traits == last_call.normalised.traits:
            return False

        digests = set(map(self._digests_by_entry.get, entries))
        return len(digests) > 1

    @cached_property
    def _digests_by_entry(self) -> dict[ReplayEntry, bytes]:
        """Digests of the answers to calls that were recorded repeatedly."""
        digests: dict[ReplayEntry, bytes] = {}
        for entry in self._entries_by_arrival:
            if len(self._by_path[entry.numbers.path]) > 1:
                digests[entry] = answer_digest(
                    entry, self._steps_by_call.get(entry, ())
                )

        return digests

    def _session_independent_call(self, entry: ReplayEntry) -> _SessionIndependentCall:
        """Return what equal calls share that were sent in the same way, in whichever session.

        What a server answers depends on what was written before, and not on who asks for progress.
        """
        traits = entry.normalised.traits
        standing = self._opened_sessions.standing_of(traits.session)
        if standing is SessionStanding.OPENED:
            traits = traits._replace(session=NO_SESSION)

        return entry.numbers.path, standing, traits._replace(has_progress_token=False)

    def sent_alike_in_any_session(
        self, call: ReplayEntry, equal_calls: Iterable[ReplayEntry]
    ) -> list[ReplayEntry]:
        """Return those of some equal calls that were sent as one of them, in any session."""
        sent_call = self._session_independent_call(call)
        sent_alike = []
        for equal_call in equal_calls:
            if self._session_independent_call(equal_call) == sent_call:
                sent_alike.append(equal_call)

        return sent_alike

    @cached_property
    def _calls_with_several_answers(self) -> set[_SessionIndependentCall]:
        """Equal calls that got several answers, themselves or after equal retries."""
        first_digests: dict[object, bytes] = {}
        answered_differently: set[_SessionIndependentCall] = set()
        for entry, digest in self._digests_by_entry.items():
            call = self._session_independent_call(entry)
            # Tasks that were answered differently are branches.
            call_and_task_answers = (call, tuple(self._answers_in_steps(entry)))
            if first_digests.setdefault(call_and_task_answers, digest) != digest:
                answered_differently.add(call)

        # A retry came after the call that it answers.
        for entry in reversed(self._entries_by_arrival):
            answered_ask = entry.answered_ask
            if answered_ask is None:
                continue

            if self._session_independent_call(entry) in answered_differently:
                answered_differently.add(self._session_independent_call(answered_ask))

        return answered_differently

    # What is told

    @cached_property
    def _is_watching_reads(self) -> bool:
        """Whether reads that the default history lets through are told: there are also writes."""
        if self._history_mode != "auto":
            return False
        if not any(map(self._is_watched_read, self._entries_by_arrival)):
            return False
        return any(map(self._call_effects.is_write, self._entries_by_arrival))

    def _is_watched_read(self, entry: ReplayEntry) -> bool:
        """Tell whether a call is known to read what writes may change."""
        if _has_no_point(entry) or not self._call_effects.is_known_to_only_read(
            entry.key
        ):
            return False

        method = method_of(entry.key.method)
        return not (method.steady or method.describes_server)

    def _is_read_after_same_writes(
        self, entry: ReplayEntry, played_writes: PlayedWrites
    ) -> bool:
        """Tell whether a read, or one with the same answer, came after the writes of a play."""
        for sequence in self._calls_equal_to(entry):
            if sequence.point is None:
                continue
            if self._has_playable_call(sequence, played_writes):
                return True

        return False

    def nearest_with_writes(
        self,
        entries: Sequence[ReplayEntry],
        played_writes: PlayedWrites,
        play_counts: Mapping[ReplayEntry, int],
    ) -> tuple[ReplayEntry, list[MadeWrite]]:
        """Return the nearest of some calls, and the writes after which it came.

        `play_counts` tells how often each was played.
        """
        playable: set[ReplayEntry] = set()
        for sequence in self.sequences_by_caller(entries):
            playable.update(self.playable_calls(sequence, played_writes))

        unplayable = [entry for entry in entries if entry not in playable]
        candidates = unplayable or entries
        unplayed = [entry for entry in candidates if not play_counts.get(entry)]
        candidates = unplayed or candidates
        nearest = self._first_call_to_come(candidates, played_writes)

        return nearest, self._writes_before(self._points_by_entry[nearest])

    def _first_call_to_come(
        self, entries: Sequence[ReplayEntry], played_writes: PlayedWrites
    ) -> ReplayEntry:
        """Return the first of some calls that is still to come in a followed history.

        Without one it is the first in a followed history, else the last of all.
        """
        first_in_followed_history: ReplayEntry | None = None
        for entry in entries:
            point = self._points_by_entry[entry]
            history = self._followed_history(point.history_key, played_writes)
            if history is None:
                continue
            if not history.has_gone_past(point):
                return entry

            if first_in_followed_history is None:
                first_in_followed_history = entry

        if first_in_followed_history is None:
            return entries[-1]

        return first_in_followed_history

    def _writes_before(self, point: HistoryPoint) -> list[MadeWrite]:
        """Return the writes of a history that had ended when a call began."""
        ended_before = []
        for write in self._recorded_writes[point.history_key].as_recorded:
            if write.lifetime.end < point.lifetime.start:
                ended_before.append(MadeWrite(write.entry))

        return ended_before


def _recording_index_of(recorder: str) -> int:
    """Return the place among recordings of the one that a recorder made."""
    # One that is played alone has recorders without a place.
    recording_index, colon, _ = recorder.partition(":")
    if not colon or not recording_index.isdigit():
        return 0
    return int(recording_index)


def _has_no_point(entry: ReplayEntry) -> bool:
    """Tell whether a request belongs to no point of a history: it opens, listens or posts."""
    if entry.kind is not Kind.REQUEST or entry.is_listening:
        return True
    return entry.opens_session or entry.key.method == INITIALIZE
