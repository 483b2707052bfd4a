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
    Standing,
    answer_digest,
    kind_alone,
)
from mrtr_cassette.core.cassette.recorded import RecorderFacts, run_numbers
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

_CallOfAnySession = tuple[int, Standing, Traits]
"""The path of a call, how it names its session, and its traits without this."""


class Point(NamedTuple):
    """Where in a history a recorded request belongs: all of its call is in flight together.

    Attributes:
        lifetime: from the first request of the call to its last response.
        family: the same for all calls with equal first requests, however they were answered.
        write_key: what it shares with equal writes, if it ends one.
    """

    entry: ReplayEntry
    lifetime: Lifetime
    history: HistoryKey
    family: int
    write_key: WriteKey | None


class _EqualWrites:
    """The equal writes of a history, which are counted.

    They can't be told apart: the n-th that is made takes the n-th start and the n-th end, even of
    different recordings.
    """

    def __init__(self, writes: Sequence[Point]) -> None:
        self._writes = writes
        self._sorted_starts = sorted([write.lifetime.start for write in writes])
        self._unmade_entries = dict.fromkeys([write.entry for write in writes])
        self._made_count = 0

    @property
    def next_to_end(self) -> Point | None:
        """The one that ends next; None when all are made."""
        if not self._unmade_entries:
            return None
        return self._writes[self._made_count]

    @property
    def next_start(self) -> ArrivalTime:
        """When the next one may begin."""
        return self._sorted_starts[self._made_count]

    def make_write(self, entry: ReplayEntry) -> ReplayEntry:
        """Make the next one; return the recording that is used up by a play of `entry`."""
        self._made_count += 1
        made = entry
        if made not in self._unmade_entries:
            made = next(iter(self._unmade_entries))

        del self._unmade_entries[made]
        return made


class _RecordedWrites:
    """The writes of a recorded history, which all plays share.

    Attributes:
        as_recorded: in the order in which they arrived.
        by_end: in the order of their ends.
        alike: equal ones in that order, by what they share.
    """

    def __init__(self, writes: Sequence[Point]) -> None:
        self.as_recorded = writes
        self.by_end = sorted(writes, key=lambda write: write.lifetime[::-1])
        self.alike: dict[WriteKey | None, list[Point]] = {}
        for write in self.by_end:
            self.alike.setdefault(write.write_key, []).append(write)


class _WriteHistory:
    """One recorded history, and which of its writes a play has made.

    Calls of one family that a play has in flight together may end in any order, whether or not
    they were in flight together when they were recorded: `others_in_flight` counts them.

    Attributes:
        followed_count: how many of the play's writes it has been asked to make.
        is_left: the play has made a write that it doesn't have next.
    """

    def __init__(self, recorded: _RecordedWrites) -> None:
        self._writes = recorded.by_end
        self._alike_by_key = recorded.alike
        self._equal_by_key: dict[WriteKey | None, _EqualWrites] = {}
        """Equal writes, as soon as the play has to do with them."""
        self._ended_entries: set[ReplayEntry] = set()
        """The writes, in the order of their ends, that equal ones were made for."""
        self._first_unended = 0
        """The place of the first write that has not ended."""
        self._made_entries: set[ReplayEntry] = set()
        self._latest_by_family: dict[int, ArrivalTime] = {}
        """When the latest write of a family began that was made, for the latest two families."""
        self.followed_count = 0
        self.is_left = False

    def _equal_to(self, point: Point) -> _EqualWrites | None:
        """Return the writes that equal one that a call ends, if it does."""
        if point.write_key not in self._alike_by_key:
            return None

        if point.write_key not in self._equal_by_key:
            self._equal_by_key[point.write_key] = _EqualWrites(
                self._alike_by_key[point.write_key]
            )

        return self._equal_by_key[point.write_key]

    def make_write(self, point: Point, others_in_flight: int) -> bool:
        """Make a write, if the history has it next."""
        equal = self._equal_to(point)
        ending = None if equal is None else equal.next_to_end
        if equal is None or ending is None:
            return False

        start = equal.next_start
        if start > self.end_of_first_unmade(point.family, others_in_flight):
            return False

        self._made_entries.add(equal.make_write(point.entry))
        self._ended_entries.add(ending.entry)
        self._pass_ended()
        self._keep_latest(point.family, start)

        return True

    def _pass_ended(self) -> None:
        """Go on to the first write that has not ended."""
        while self._first_unended < len(self._writes):
            if self._writes[self._first_unended].entry not in self._ended_entries:
                return

            self._first_unended += 1

    def _keep_latest(self, family: int, start: ArrivalTime) -> None:
        """Take note of when the latest write of a family began."""
        latest = self._latest_by_family
        latest[family] = max(latest.get(family, start), start)
        if len(latest) > 2:
            del latest[min(latest, key=lambda known: (latest[known], known))]

    def end_of_first_unmade(self, family: int, others_in_flight: int) -> ArrivalTime:
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

    def is_over(self, point: Point) -> bool:
        """Tell whether a call has been made, or a write that came after it."""
        if point.entry in self._made_entries:
            return True

        end = point.lifetime.end
        equal = self._equal_to(point)
        if equal is not None and equal.next_to_end is not None:
            end = equal.next_to_end.lifetime.end

        for family, began in self._latest_by_family.items():
            if began > end and family != point.family:
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
        if entry.parent is not None and in_flight:
            in_flight -= 1

        return in_flight


@dataclass(frozen=True, eq=False)
class CallRow:
    """Equal calls of one caller at points of one history, in the order in which they began.

    Attributes:
        point: the point of one of them; None where these calls are not held to a history.
    """

    caller: str
    point: Point | None
    entries: list[ReplayEntry]

    @cached_property
    def arrival(self) -> tuple[float, int, int]:
        """Orders rows of equal calls as the first of each arrived."""
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
        self._by_arrival: list[ReplayEntry] = []
        self._by_path: dict[int, list[ReplayEntry]] = {}
        for entry in entries.by_arrival:
            if entry.created_by is None:
                self._by_arrival.append(entry)
                self._by_path.setdefault(entry.numbers.path, []).append(entry)

        self._equal_calls_by_path: dict[int, list[CallRow]] = {}
        """All equal calls at their points, by path, as soon as somebody asks for them."""

        self._steps_by_call = entries.steps
        self._recorders = recorders
        self._timelines = timelines
        self._opened_sessions = opened_sessions
        self._call_effects = effects
        self._history_mode = mode
        has_repeated = len(self._by_path) < len(self._by_arrival)
        self._holds_any = mode == "strict" or (mode == "auto" and has_repeated)

    def _write_key(self, entry: ReplayEntry) -> WriteKey:
        """Return what an entry shares with equal writes, in whichever history."""
        posted = [
            answer.key.arguments for answer in self._timelines.answers_during(entry)
        ]
        return entry.numbers.path, (*posted, *self._task_answers(entry))

    def _task_answers(self, entry: ReplayEntry) -> list[str]:
        """Return how the questions of the task that a call created were answered."""
        answers = []
        for step in self._steps_by_call.get(entry, ()):
            if step.state is None:
                text = str(step.matched.lookup.answers)
                answers.append(with_changed_refs(text, kind_alone))

        return answers

    # Histories

    @cached_property
    def _recorded_writes(self) -> dict[HistoryKey, _RecordedWrites]:
        """The writes of each history."""
        writes: dict[HistoryKey, list[Point]] = {}
        numbered = {entry.exchange.number: entry for entry in self._by_arrival}
        for entry in self._by_arrival:
            point = self._points_by_entry[entry]
            history = writes.setdefault(point.history, [])
            # A run that appended had played these one after the other, before the request came.
            follows = []
            for number in entry.exchange.follows:
                if number in numbered:
                    follows.append(numbered[number])

            number_before = (entry.exchange.number or 0) - 1
            for place, played in enumerate(follows, start=1):
                moment = (number_before + place / (len(follows) + 1),)
                point_played = self._points_by_entry[played]
                history.append(
                    point_played._replace(
                        lifetime=Lifetime(moment, moment),
                        write_key=self._write_key(played),
                    )
                )

            if point.write_key is not None:
                history.append(point)

        return {key: _RecordedWrites(history) for key, history in writes.items()}

    @cached_property
    def _points_by_entry(self) -> dict[ReplayEntry, Point]:
        """Where in its history each request belongs."""
        lifetimes = self._call_lifetimes()
        points: dict[ReplayEntry, Point] = {}
        for entry in self._by_arrival:
            first = entry
            while first.parent is not None and first not in points:
                first = first.parent

            family = first.numbers.path
            if first in points:
                family = points[first].family

            history = self._history_of(entry)
            write = None
            if self._call_effects.is_write(entry):
                write = self._write_key(entry)

            lifetime = lifetimes[entry.interaction, history]
            points[entry] = Point(entry, lifetime, history, family, write)

        return points

    def _call_lifetimes(self) -> dict[tuple[int, HistoryKey], Lifetime]:
        """Return when each call began, and when it ended with all its rounds and steps."""
        lifetimes: dict[tuple[int, HistoryKey], Lifetime] = {}
        for entry in self._by_arrival:
            call = (entry.interaction, self._history_of(entry))
            start, end = self._timelines.lifetime_of(entry)
            for step in self._steps_by_call.get(entry, ()):
                end = max(end, self._timelines.lifetime_of(step).end)

            lifetime_so_far = lifetimes.setdefault(call, Lifetime(start, end))
            lifetimes[call] = Lifetime(
                lifetime_so_far.start, max(lifetime_so_far.end, end)
            )

        return lifetimes

    def _history_of(self, entry: ReplayEntry) -> HistoryKey:
        """Return the history to which a request belongs."""
        recorded_by = entry.exchange.recorded_by
        run = 0
        if recorded_by is not None:
            run = self._runs_by_recorder.get(recorded_by.recorder, 0)

        return entry.session, run

    @cached_property
    def _runs_by_recorder(self) -> dict[str, int]:
        """The run to which each recorder belongs."""
        exchanges = [entry.exchange for entry in self._by_arrival]
        return run_numbers(exchanges, self._recorders)

    # What a play has made

    def _living_history(
        self, key: HistoryKey, played: PlayedWrites
    ) -> _WriteHistory | None:
        """Return a history that a play can be in; None for one that it has left."""
        history = played.followed_histories.get(key)
        if history is None:
            history = _WriteHistory(self._recorded_writes[key])
            played.followed_histories[key] = history

        for write in played.made[history.followed_count :]:
            history.followed_count += 1
            entry = write.entry
            # Clients without a session have nothing in common with those that have one.
            if entry is not None and bool(key[0]) != bool(entry.session):
                continue

            # No history has what a live server got.
            if entry is None or not history.make_write(
                self._points_by_entry[entry], write.others_in_flight
            ):
                history.is_left = True

        return None if history.is_left else history

    def note_play(self, entry: ReplayEntry, played: PlayedWrites) -> bool:
        """Take note that a call begins or ends; histories end that don't have its write next.

        Return whether it is a read that was recorded after other writes.
        """
        if not (self._holds_any or self._is_watching_reads):
            return False

        if entry.created_by is not None:
            self._note_task_step(entry, entry.created_by, played)
            return False

        family = self._points_by_entry[entry].family
        if entry.is_ask:
            if entry.parent is None:
                played.in_flight[family] += 1

            return False

        if self._call_effects.is_write(entry):
            others_in_flight = played.other_calls_in_flight(entry, family)
            played.made.append(MadeWrite(entry, others_in_flight))
            played.in_flight[family] = others_in_flight + (entry in self._steps_by_call)

            return False

        is_watched = self._is_watching_reads and self._is_watched(entry)
        return is_watched and not self._is_read_after_same_writes(entry, played)

    def take_back_ask(self, ask: ReplayEntry, played: PlayedWrites) -> None:
        """Take note that a call that was asked something has not begun after all."""
        if ask.parent is None and (self._holds_any or self._is_watching_reads):
            played.in_flight[self._points_by_entry[ask].family] -= 1

    def _note_task_step(
        self, step: ReplayEntry, call: ReplayEntry, played: PlayedWrites
    ) -> None:
        """Take note of a step of the task that a call created, which may be its last."""
        family = self._points_by_entry[call].family
        if step.state is not None and step.state.is_over and played.in_flight[family]:
            played.in_flight[family] -= 1

    def exchange_writes(
        self, first: ReplayEntry, second: ReplayEntry, played: PlayedWrites
    ) -> None:
        """Take a write that was made as one equal call for another, to which it turns out now."""
        was_made = {write.entry for write in played.made}
        if was_made.isdisjoint((first, second)):
            return

        family = self._points_by_entry[first].family
        others_in_flight = max(played.in_flight[family] - 1, 0)
        played.made = [
            write for write in played.made if write.entry not in (first, second)
        ]
        if first in was_made:
            played.made.append(MadeWrite(second, others_in_flight))

        if second in was_made:
            played.made.append(MadeWrite(first, others_in_flight))

        played.followed_histories.clear()

    # What is held

    def rows_by_caller(self, entries: Sequence[ReplayEntry]) -> list[CallRow]:
        """Return some equal calls by their callers, and by history where they are held to one."""
        return self._grouped_rows(
            entries, is_held=self._holds_any and self._are_held(entries)
        )

    def _grouped_rows(
        self, entries: Sequence[ReplayEntry], *, is_held: bool
    ) -> list[CallRow]:
        """Return some equal calls by their callers, and by history if they are held to one."""
        rows: dict[object, CallRow] = {}
        for entry in entries:
            caller = entry.matched.caller
            point = None
            key: tuple[object, ...] = (caller,)
            if is_held and not _has_no_point(entry):
                point = self._points_by_entry[entry]
                key = (caller, point.history, point.family, entry.parent is None)

            row = rows.setdefault(key, CallRow(caller, point, []))
            row.entries.append(entry)

        for row in rows.values():
            if row.point is not None:
                row.entries.sort(key=self._start_of)

        return list(rows.values())

    def _start_of(self, entry: ReplayEntry) -> ArrivalTime:
        """Return when the call of a request began."""
        return self._points_by_entry[entry].lifetime.start

    def count_of_reached_calls(self, row: CallRow, played: PlayedWrites) -> int:
        """Return how many calls of a row have all writes behind them that ended before they came.

        That is, of a play that has made these writes.
        """
        if row.point is None:
            return len(row.entries)

        history = self._living_history(row.point.history, played)
        if history is None:
            return 0

        family = row.point.family
        until = history.end_of_first_unmade(
            family, played.other_calls_in_flight(row.entries[0], family)
        )
        return bisect_right(row.entries, until, key=self._start_of)

    def is_over(self, row: CallRow, entry: ReplayEntry, played: PlayedWrites) -> bool:
        """Tell whether a play has gone past a call, or has made it."""
        if row.point is None:
            return False

        history = self._living_history(row.point.history, played)
        return history is None or history.is_over(self._points_by_entry[entry])

    def is_over_for_good(self, entry: ReplayEntry, played: PlayedWrites) -> bool:
        """Tell whether a play can't get back to a call that is over, whatever it writes."""
        point = self._points_by_entry[entry]
        history = self._living_history(point.history, played)
        return point.write_key is None or history is None or history.is_made(entry)

    def calls_in_place(
        self, row: CallRow, played: PlayedWrites
    ) -> Iterator[ReplayEntry]:
        """Yield the calls of a row at the point that a play has reached, the latest first."""
        for index in reversed(range(self.count_of_reached_calls(row, played))):
            entry = row.entries[index]
            if not self.is_over(row, entry, played):
                yield entry

    # Recordings that are played together

    @property
    def held_recording_count(self) -> int:
        """How many recordings are played together; 1 where calls are not all held to them."""
        if self._history_mode != "strict":
            return 1

        recordings = [_recording_of(recorder.id) for recorder in self._recorders]
        return 1 + max(recordings, default=0)

    def recordings_with(
        self, entry: ReplayEntry, played: PlayedWrites, among: Collection[int]
    ) -> set[int]:
        """Return which of some recordings have an equal call at the point that a play has reached.

        A call that belongs to no point is in all of them.
        """
        if _has_no_point(entry) or entry.created_by is not None:
            return set(among)

        recordings_found = set()
        for row in self._calls_equal_to(entry):
            recorded_by = row.entries[0].exchange.recorded_by
            recorder = "" if recorded_by is None else recorded_by.recorder
            recording = _recording_of(recorder)
            is_wanted = recording in among and recording not in recordings_found
            if is_wanted and self._is_reached(row, played):
                recordings_found.add(recording)

        return recordings_found

    def _is_reached(self, row: CallRow, played: PlayedWrites) -> bool:
        """Tell whether a row has a call at the point that a play has reached."""
        return next(self.calls_in_place(row, played), None) is not None

    def _calls_equal_to(self, entry: ReplayEntry) -> list[CallRow]:
        """Return all calls that equal one, itself included, at their points."""
        path = entry.numbers.path
        if path not in self._equal_calls_by_path:
            self._equal_calls_by_path[path] = self._grouped_rows(
                self._by_path[path], is_held=True
            )

        return self._equal_calls_by_path[path]

    def _are_held(self, entries: Sequence[ReplayEntry]) -> bool:
        """Tell whether equal calls are held to their histories."""
        first = entries[0]
        last = entries[-1]
        if self._history_mode == "strict":
            return True
        if self._call_of_any_session(first) in self._calls_answered_otherwise:
            return True
        # A caller that is like none of the recorded ones may get what was recorded of several.
        if first.matched.traits == last.matched.traits:
            return False

        digests = set(map(self._digests_by_entry.get, entries))
        return len(digests) > 1

    @cached_property
    def _digests_by_entry(self) -> dict[ReplayEntry, bytes]:
        """Digests of the answers to calls that were recorded repeatedly."""
        digests: dict[ReplayEntry, bytes] = {}
        for entry in self._by_arrival:
            if len(self._by_path[entry.numbers.path]) > 1:
                digests[entry] = answer_digest(
                    entry, self._steps_by_call.get(entry, ())
                )

        return digests

    def _call_of_any_session(self, entry: ReplayEntry) -> _CallOfAnySession:
        """Return what equal calls share that were sent in the same way, in whichever session.

        What a server answers depends on what was written before, and not on who asks for progress.
        """
        traits = entry.matched.traits
        standing = self._opened_sessions.standing_of(traits.session)
        if standing is Standing.OPENED:
            traits = traits._replace(session=NO_SESSION)

        return entry.numbers.path, standing, traits._replace(has_progress_token=False)

    def alike_in_any_session(
        self, call: ReplayEntry, equal: Iterable[ReplayEntry]
    ) -> list[ReplayEntry]:
        """Return those of some equal calls that were sent as one of them, in any session."""
        sent_as = self._call_of_any_session(call)
        return [entry for entry in equal if self._call_of_any_session(entry) == sent_as]

    @cached_property
    def _calls_answered_otherwise(self) -> set[_CallOfAnySession]:
        """Equal calls that got several answers, themselves or after equal retries."""
        first_digests: dict[object, bytes] = {}
        answered_differently: set[_CallOfAnySession] = set()
        for entry, digest in self._digests_by_entry.items():
            call = self._call_of_any_session(entry)
            # Tasks that were answered differently are branches.
            key = (call, tuple(self._task_answers(entry)))
            if first_digests.setdefault(key, digest) != digest:
                answered_differently.add(call)

        # A retry came after the call that it answers.
        for entry in reversed(self._by_arrival):
            parent = entry.parent
            if parent is None:
                continue

            if self._call_of_any_session(entry) in answered_differently:
                answered_differently.add(self._call_of_any_session(parent))

        return answered_differently

    # What is told

    @cached_property
    def _is_watching_reads(self) -> bool:
        """Whether reads that the default history lets through are told: there are also writes."""
        if self._history_mode != "auto":
            return False
        if not any(map(self._is_watched, self._by_arrival)):
            return False
        return any(map(self._call_effects.is_write, self._by_arrival))

    def _is_watched(self, entry: ReplayEntry) -> bool:
        """Tell whether a call is known to read what writes may change."""
        if _has_no_point(entry) or not self._call_effects.only_reads(entry.key):
            return False

        method = method_of(entry.key.method)
        return not (method.steady or method.describes_server)

    def _is_read_after_same_writes(
        self, entry: ReplayEntry, played: PlayedWrites
    ) -> bool:
        """Tell whether a read, or one with the same answer, came after the writes of a play."""
        for row in self._calls_equal_to(entry):
            if row.point is not None and self._is_reached(row, played):
                return True

        return False

    def nearest_with_writes(
        self,
        entries: Sequence[ReplayEntry],
        played: PlayedWrites,
        play_counts: Mapping[ReplayEntry, int],
    ) -> tuple[ReplayEntry, list[MadeWrite]]:
        """Return the nearest of some calls, and the writes after which it came.

        `play_counts` tells how often each was played.
        """
        in_place: set[ReplayEntry] = set()
        for row in self.rows_by_caller(entries):
            in_place.update(self.calls_in_place(row, played))

        elsewhere = [entry for entry in entries if entry not in in_place]
        candidates = elsewhere or entries
        unplayed = [entry for entry in candidates if not play_counts.get(entry)]
        candidates = unplayed or candidates
        nearest = self._first_call_to_come(candidates, played)

        return nearest, self._writes_before(self._points_by_entry[nearest])

    def _first_call_to_come(
        self, entries: Sequence[ReplayEntry], played: PlayedWrites
    ) -> ReplayEntry:
        """Return the first of some calls that is still to come in a living history.

        Without one it is the first in a living history, else the last of all.
        """
        first_in_living: ReplayEntry | None = None
        for entry in entries:
            point = self._points_by_entry[entry]
            history = self._living_history(point.history, played)
            if history is None:
                continue
            if not history.is_over(point):
                return entry

            if first_in_living is None:
                first_in_living = entry

        return entries[-1] if first_in_living is None else first_in_living

    def _writes_before(self, point: Point) -> list[MadeWrite]:
        """Return the writes of a history that had ended when a call began."""
        ended_before = []
        for write in self._recorded_writes[point.history].as_recorded:
            if write.lifetime.end < point.lifetime.start:
                ended_before.append(MadeWrite(write.entry))

        return ended_before


def _recording_of(recorder: str) -> int:
    """Return the place among recordings of the one that a recorder made."""
    # One that is played alone has recorders without a place.
    place, colon, _ = recorder.partition(":")
    if not colon or not place.isdigit():
        return 0
    return int(place)


def _has_no_point(entry: ReplayEntry) -> bool:
    """Tell whether a request belongs to no point of a history: it opens, listens or posts."""
    if entry.kind is not Kind.REQUEST or entry.is_listening:
        return True
    return entry.opens_session or entry.key.method == INITIALIZE
