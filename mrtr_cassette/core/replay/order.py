"""Choose the recording that a request gets, by what was played in its session so far.

An exchange is played as often as it was recorded, in the order of the recording, and a retry only
after its ask. Where nothing is remembered (`stateless`), equal recordings are one instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from copy import copy
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.effects import CallEffects, reads_what_is_written
from mrtr_cassette.core.cassette.entries import (
    Entries,
    NormalisedRequest,
    OpenedSessions,
    ReplayEntry,
)
from mrtr_cassette.core.cassette.lookup import LookupKey
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.calls import Traits
from mrtr_cassette.core.protocol.hooks import MatchHook
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import DISCOVER, INITIALIZE
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.histories import CallSequence, WriteHistories
from mrtr_cassette.core.replay.index import (
    Candidates,
    RecordingIndex,
    SecretMapping,
    StatelessIndex,
)
from mrtr_cassette.core.replay.sessions import LiveSession, LiveSessions, SessionPlays
from mrtr_cassette.core.replay.tasks import RecordedTasks, StepChoice
from mrtr_cassette.core.replay.timelines import Timelines
from mrtr_cassette.core.secrets.names import Ref
from mrtr_cassette.errors import HookError

_SAFE_HTTP: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_MOST_CANDIDATES: Final = 4096
"""At most this many lists of candidates are kept for headers that were not recorded."""


class History(Enum):
    """Which calls are held to the history of writes in which they were recorded."""

    AUTO = "auto"
    """Those that were recorded with several answers."""

    STRICT = "strict"
    ORDER = "order"
    """None: equal calls are played in recorded order."""


class Repeat(Enum):
    """Whether an exchange that has been played may be played again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


_arrival_of: Final = attrgetter("arrival")

# Choosing


class ChosenRecording(NamedTuple):
    """The recording that a request gets; without one, the nearest ones, and why they don't fit.

    Attributes:
        other_recorded_session: the recorded session that the live one turns out to be, if it isn't
            the one taken so far.
        hook_name: the name of the user's function that says that it matches; or empty.
        hook_failure: what went wrong in that function, or in another one.
        step: the step of a recorded task that it gets, if it is about one.
        answered_ask: the ask that it answers, if it gets the retry of an equal one; or None.
    """

    entry: ReplayEntry | None
    nearest_entries: Sequence[ReplayEntry] = ()
    miss_reason: Reason | None = None
    other_recorded_session: str | None = None
    hook_name: str = ""
    hook_failure: str = ""
    step: StepChoice | None = None
    answered_ask: ReplayEntry | None = None


class PlayOrder:
    """Chooses among the recordings that have the key of a request.

    Attributes:
        live_sessions: the sessions of this play.
        timelines: what the clients of each recorded session sent.
        effects: tells which calls write.
        repeat: whether an exchange that has been played may be played again.
        poll_interval: the milliseconds between polls of a task, for clients; None as recorded.
        recording_index: finds the recordings with the key of a request.
        match_hook: a user's function that tells whether two requests match, or None.

    Raises:
        CassetteError: the cassette can't be played without memory.
    """

    match_hook: MatchHook | None = None
    poll_interval: int | None = None

    def __init__(
        self,
        cassette: Cassette,
        entries: Entries,
        repeat: Repeat,
        history: History,
        reads: Collection[str],
        issued_names: Collection[str] | None,
    ) -> None:
        """Read a recording.

        Args:
            issued_names: the hashes and placeholders that a client can have from a response, where
                no reply may depend on what has been played; else None.
        """
        is_stateless = issued_names is not None
        if history is History.AUTO and (is_stateless or repeat is Repeat.ALWAYS):
            history = History.ORDER

        self.timelines = Timelines(entries.by_arrival)
        self.opened_sessions = OpenedSessions(entries.by_arrival)
        self._tasks = RecordedTasks(entries, is_stateless=is_stateless)
        self.effects = CallEffects(
            entries.by_arrival,
            reads,
            refuses_unknown_tools=history is History.STRICT,
        )

        self.histories = WriteHistories(
            entries,
            cassette.recorders,
            history.value,
            self.effects,
            self.timelines,
            self.opened_sessions,
        )

        self.repeat = repeat
        self._stateless_index: StatelessIndex | None = None
        if issued_names is None:
            self.recording_index = RecordingIndex(entries.by_arrival)
        else:
            self._stateless_index = StatelessIndex(
                cassette,
                entries,
                issued_names,
                self._tasks.changing_calls,
                self.timelines,
            )
            self.recording_index = self._stateless_index

        self._candidates_by_key: dict[tuple[LookupKey, Traits], Candidates] = {}
        equal_name_of = None
        if self._stateless_index is not None:
            equal_name_of = self._stateless_index.first_equal_name

        self.live_sessions = LiveSessions(entries.by_arrival, equal_name_of)
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what was played."""
        self.play_counts: Counter[ReplayEntry] = Counter()
        """How often each exchange was played."""
        self.stray_read_counts: Counter[int] = Counter()
        """How often a read was played after other writes than recorded, by its interaction."""
        self.has_live_writes = False
        """A write of this run was made where nothing is recorded of what it changed."""
        self._secret_mapping = SecretMapping()
        self.live_sessions = copy(self.live_sessions)
        self.live_sessions.start_afresh()

    @property
    def played_entries(self) -> set[ReplayEntry]:
        """The exchanges that have been played, or the equal ones in their places."""
        # Another thread may replay meanwhile.
        counts = tuple(self.play_counts.items())
        played_or_equal = {entry for entry, times in counts if times}
        for entry, stand_in in self.recording_index.stand_in_by_entry.items():
            if stand_in in played_or_equal:
                played_or_equal.add(entry)

        return played_or_equal

    # Choosing

    def choose_recording(
        self, normalised: NormalisedRequest, session: LiveSession, wall_s: float | None
    ) -> ChosenRecording:
        """Return what a request gets in a session, or why it gets nothing."""
        step = self._tasks.choose_step(
            normalised.lookup, session.tasks, wall_s, self.poll_interval
        )
        if step is None:
            return self._choose_call(normalised, session)

        return ChosenRecording(step.entry, step=step)

    def _choose_call(
        self, normalised: NormalisedRequest, session: LiveSession
    ) -> ChosenRecording:
        """Return the recording that a request gets which is not about a task."""
        chosen_recording = self._choose_equal(normalised, session)
        entry = chosen_recording.entry
        hook = self.match_hook
        if hook is None:
            return chosen_recording

        if entry is not None:
            # Recordings that differ in ignored values come after those that match.
            recorded_request = self.recording_index.indexed_request(entry)
            recorded_key = recorded_request.stricter_lookups[0].call
            if recorded_key == normalised.stricter_lookups[0].call:
                return chosen_recording

        try:
            entries = self.recording_index.entries_matched_by_hook(hook, normalised)
        except HookError as error:
            return ChosenRecording(None, hook_failure=str(error))

        if not entries:
            return chosen_recording

        chosen_by_hook = self._choose_by_headers(entries, normalised, session)
        if chosen_by_hook.entry is None and chosen_recording.nearest_entries:
            return chosen_recording

        return chosen_by_hook._replace(hook_name=hook.name)

    def _choose_equal(
        self, normalised: NormalisedRequest, session: LiveSession
    ) -> ChosenRecording:
        """Return the recording with the key of a request, or why there is none."""
        index = self.recording_index
        lookup = index.indexed_lookup(normalised.lookup)
        equal_entries = index.entries_by_lookup.get(lookup)
        if equal_entries is None:
            return self._choose_by_equal_ask(normalised, session)

        for entries in index.stricter_groups(normalised):
            chosen_recording = self._choose_by_headers(entries, normalised, session)
            if chosen_recording.entry is not None:
                return chosen_recording

        lookup_and_traits = (lookup, normalised.traits)
        candidates = self._candidates_by_key.get(lookup_and_traits)
        if candidates is None:
            # Where all that headers say is equal, so is the session.
            entries_with_equal_traits = index.entries_with_traits(
                lookup, normalised.traits
            )
            fitting_by_headers = (
                entries_with_equal_traits
                or self._entries_fitting_headers(equal_entries, normalised.traits)
            )
            if isinstance(fitting_by_headers, Reason):
                return ChosenRecording(None, equal_entries, fitting_by_headers)

            most_kept_candidates = _MOST_CANDIDATES + len(index.entries_by_lookup)
            if len(self._candidates_by_key) > most_kept_candidates:
                self._candidates_by_key.clear()

            candidates = Candidates(fitting_by_headers, self.histories)
            self._candidates_by_key[lookup_and_traits] = candidates

        chosen_recording = self._choose_by_session(candidates, normalised, session)
        if chosen_recording.entry is not None or not candidates.are_held:
            return chosen_recording

        # Another session may have been where this play is.
        sent_alike = self.histories.sent_alike_in_any_session(
            candidates.entries[0], equal_entries
        )
        candidates = Candidates(sent_alike, self.histories)
        chosen_in_any_session = self._choose_by_history(candidates, normalised, session)
        if chosen_in_any_session.entry is None:
            return chosen_recording

        return chosen_in_any_session

    def _choose_by_equal_ask(
        self, normalised: NormalisedRequest, session: LiveSession
    ) -> ChosenRecording:
        """Return what a retry gets whose answers were recorded only to an equal call's ask."""
        ask, retries = self.recording_index.retries_of_equal_asks(normalised.lookup)
        if ask is None or self._stateless_index is not None:
            return ChosenRecording(None)

        # If the other call was asked too, its client has mixed up the states.
        possible_retries = [
            entry for entry in retries if entry.answered_ask not in session.plays.counts
        ]
        if not possible_retries or ask.ask_key not in session.plays.ask_keys:
            return ChosenRecording(None)

        fitting_by_headers = self._entries_fitting_headers(
            possible_retries, normalised.traits
        )
        if isinstance(fitting_by_headers, Reason):
            return ChosenRecording(None)

        candidates = Candidates(fitting_by_headers, self.histories)
        candidates.depend_on_asks = False
        chosen_recording = self._choose_by_session(candidates, normalised, session)
        return chosen_recording._replace(answered_ask=ask)

    def _choose_by_headers(
        self,
        entries: Sequence[ReplayEntry],
        normalised: NormalisedRequest,
        session: LiveSession,
    ) -> ChosenRecording:
        """Return the recording that a request gets of some that fit as well as each other."""
        fitting_by_headers = self._entries_fitting_headers(entries, normalised.traits)
        if isinstance(fitting_by_headers, Reason):
            return ChosenRecording(None, entries, fitting_by_headers)

        candidates = Candidates(fitting_by_headers, self.histories)
        return self._choose_by_session(candidates, normalised, session)

    def _choose_by_session(
        self,
        candidates: Candidates,
        normalised: NormalisedRequest,
        session: LiveSession,
    ) -> ChosenRecording:
        """Return the recording that a request gets of candidates, by session and history."""
        if self._stateless_index is not None:
            fitting_entry = self._stateless_index.first_for_caller(
                candidates, normalised
            )
            if fitting_entry is None:
                nearest_entries = candidates.entries
                return ChosenRecording(None, nearest_entries, Reason.ARGUMENTS_DIFFER)

            return ChosenRecording(fitting_entry)

        other_session = self.live_sessions.other_recorded_session(
            candidates.entries, session
        )
        if other_session is None:
            return self._choose_by_history(candidates, normalised, session)

        entries_in_session = [
            entry for entry in candidates.entries if entry.session == other_session
        ]
        candidates = Candidates(entries_in_session, self.histories)
        chosen_recording = self._choose_by_history(candidates, normalised, session)

        return chosen_recording._replace(other_recorded_session=other_session)

    def _entries_fitting_headers(
        self, equal_entries: Sequence[ReplayEntry], traits: Traits
    ) -> Sequence[ReplayEntry] | Reason:
        """Return the recordings whose headers come nearest among some, or why there are none."""
        allowed_entries = self.opened_sessions.entries_for_session(
            equal_entries, traits.session
        )
        if not allowed_entries:
            return Reason.SESSION_UNKNOWN

        if not traits.is_conditional:
            allowed_entries = [
                entry
                for entry in allowed_entries
                if not entry.exchange.is_about_cached_copy
            ]

        if not allowed_entries:
            return Reason.CONDITION_MISSING

        return self.recording_index.most_alike(allowed_entries, traits)

    def _choose_by_history(
        self,
        candidates: Candidates,
        normalised: NormalisedRequest,
        session: LiveSession,
    ) -> ChosenRecording:
        """Return one of some equal recordings, or why none fits now."""
        remaining_entries = self._possible_entries(candidates, normalised, session)
        if isinstance(remaining_entries, ChosenRecording):
            return remaining_entries

        if len(remaining_entries) != len(candidates.entries):
            candidates = Candidates(remaining_entries, self.histories)

        sequences = candidates.sequences
        next_entry = self._next_in_sequences(
            sequences, normalised.caller, session.plays
        )
        if next_entry is not None:
            return ChosenRecording(next_entry)
        if not candidates.are_held:
            return ChosenRecording(None, remaining_entries, Reason.ALREADY_PLAYED)

        # Whatever came before, what may not be repeated has been played.
        is_over = session.plays.counts.keys() >= set(remaining_entries)
        if not is_over or self._may_repeat(remaining_entries[-1]):
            return ChosenRecording(None, remaining_entries, Reason.OTHER_HISTORY)

        sequences_without_history = [
            CallSequence(sequence.caller, None, sequence.entries)
            for sequence in sequences
        ]
        next_entry = self._next_in_sequences(
            sequences_without_history, normalised.caller, session.plays
        )
        if next_entry is None:
            return ChosenRecording(None, remaining_entries, Reason.ALREADY_PLAYED)

        return ChosenRecording(next_entry)

    def _possible_entries(
        self,
        candidates: Candidates,
        normalised: NormalisedRequest,
        session: LiveSession,
    ) -> Sequence[ReplayEntry] | ChosenRecording:
        """Return the recordings that a request can get, whatever was played; or why none."""
        remaining_entries = candidates.entries
        if normalised.secrets:
            remaining_entries = self._secret_mapping.entries_fitting_secrets(
                candidates, normalised.secrets
            )
            if not remaining_entries:
                nearest_entries = candidates.entries
                return ChosenRecording(None, nearest_entries, Reason.ARGUMENTS_DIFFER)

        if self.has_live_writes:
            nearest_entries = remaining_entries
            remaining_entries = [
                entry for entry in remaining_entries if not reads_what_is_written(entry)
            ]
            if not remaining_entries:
                return ChosenRecording(None, nearest_entries, Reason.OTHER_HISTORY)

        if candidates.depend_on_asks:
            nearest_entries = remaining_entries
            remaining_entries = [
                entry for entry in remaining_entries if session.has_played_ask_of(entry)
            ]
            if not remaining_entries:
                return ChosenRecording(None, nearest_entries, Reason.OUT_OF_ORDER)

        if candidates.resume_streams:
            entries_of_played_streams = [
                entry
                for entry in remaining_entries
                if entry.resumed_entry in session.plays.counts
            ]
            # If none of the streams was begun here, the client knows it from elsewhere.
            remaining_entries = entries_of_played_streams or remaining_entries

        return remaining_entries

    def _next_in_sequences(
        self, sequences: Sequence[CallSequence], caller: str, plays: SessionPlays
    ) -> ReplayEntry | None:
        """Return the first exchange that was not played; or the last one again.

        When all have been played, they begin again with the first one where that is allowed.
        """
        first_unplayed = self._first_unplayed_in_sequences(sequences, caller, plays)
        if first_unplayed is not None:
            return first_unplayed
        if self.repeat is Repeat.ALWAYS:
            return self._least_played_call(sequences, caller, plays)

        latest_call = self._latest_in_sequences(sequences, plays)
        if latest_call is None:
            return None

        is_opening = latest_call.opens_session or latest_call.key.method == INITIALIZE
        if is_opening and self.repeat is Repeat.AUTO:
            return self._least_played_call(sequences, caller, plays)

        return latest_call if self._may_repeat(latest_call) else None

    def _first_unplayed_in_sequences(
        self, sequences: Sequence[CallSequence], caller: str, plays: SessionPlays
    ) -> ReplayEntry | None:
        """Return the first call of some sequences that was not played."""
        first_unplayed: ReplayEntry | None = None
        best_rank: tuple[bool, tuple[float, ...]] | None = None
        for sequence in sequences:
            # The caller's sequence comes first, and then the one that arrived first.
            is_of_another = sequence.caller != caller
            sequence_rank = (is_of_another, sequence.first_arrival)
            if best_rank is not None and best_rank < sequence_rank:
                continue

            entry = self._first_unplayed_in_sequence(sequence, plays)
            if entry is None:
                continue

            rank = (is_of_another, entry.arrival)
            if best_rank is None or rank < best_rank:
                first_unplayed = entry
                best_rank = rank

        return first_unplayed

    def _least_played_call(
        self, sequences: Sequence[CallSequence], caller: str, plays: SessionPlays
    ) -> ReplayEntry | None:
        """Return the call of some sequences at their points that was played least often."""

        def play_rank(entry: ReplayEntry) -> tuple[int, bool, tuple[float, ...]]:
            """Return what of equal counts puts the caller's first, and then the first one."""
            play_count = plays.counts.get(entry, 0)
            is_of_another = entry.normalised.caller != caller
            return play_count, is_of_another, entry.arrival

        playable_entries: list[ReplayEntry] = []
        for sequence in sequences:
            playable_entries += self.histories.playable_calls(sequence, plays.writes)

        return min(playable_entries, key=play_rank, default=None)

    def _latest_in_sequences(
        self, sequences: Sequence[CallSequence], plays: SessionPlays
    ) -> ReplayEntry | None:
        """Return the call of some sequences at their points that arrived last."""
        latest_calls = []
        for sequence in sequences:
            latest_call = self._latest_in_sequence(sequence, plays)
            if latest_call is not None:
                latest_calls.append(latest_call)

        return max(latest_calls, key=_arrival_of, default=None)

    def _latest_in_sequence(
        self, sequence: CallSequence, plays: SessionPlays
    ) -> ReplayEntry | None:
        """Return the call of a sequence at its point that arrived last."""
        playable_entries = self.histories.playable_calls(sequence, plays.writes)
        if sequence.entries[0].answered_ask is None:
            return next(playable_entries, None)
        # Retries arrived in another order than their calls began.
        return max(playable_entries, key=_arrival_of, default=None)

    def _first_unplayed_in_sequence(
        self, sequence: CallSequence, plays: SessionPlays
    ) -> ReplayEntry | None:
        """Return the first call of a sequence at its point that was not played."""
        histories = self.histories
        played_writes = plays.writes
        used_count = plays.used_counts_by_sequence.get(sequence, 0)
        reached_count = histories.reached_call_count(sequence, played_writes)
        first_unplayed: ReplayEntry | None = None
        for place in range(used_count, reached_count):
            entry = sequence.entries[place]
            is_played = plays.counts.get(entry, 0) > 0
            if is_played or histories.has_gone_past(sequence, entry, played_writes):
                # It never comes again.
                is_used = is_played or histories.has_gone_past_for_good(
                    entry, played_writes
                )
                if place == used_count and is_used:
                    used_count += 1

                continue

            if first_unplayed is None or entry.arrival < first_unplayed.arrival:
                first_unplayed = entry

            # Retries arrived in another order than their calls began.
            if entry.answered_ask is None:
                break

        plays.used_counts_by_sequence[sequence] = used_count
        return first_unplayed

    def _may_repeat(self, entry: ReplayEntry) -> bool:
        """Tell whether an exchange may be played again when all like it have been played."""
        if self.repeat is Repeat.NEVER:
            return False
        if entry.kind is None or entry.kind is Kind.RESPONSE:
            return entry.normalised.request.method in _SAFE_HTTP
        return entry.kind is Kind.NOTIFICATION or self.effects.is_known_to_only_read(
            entry.key
        )

    # Playing

    def swap_calls_up_to_ask(
        self,
        ask: ReplayEntry | None,
        equal_ask: ReplayEntry | None,
        session: LiveSession,
    ) -> None:
        """Take a call for an equal one, from its beginning up to an ask."""
        while ask is not None and equal_ask is not None:
            if ask is equal_ask:
                return

            self.swap_calls(ask, equal_ask, session)
            ask = ask.answered_ask
            equal_ask = equal_ask.answered_ask

    def note_play(
        self,
        entry: ReplayEntry,
        secrets: tuple[Ref, ...],
        session: LiveSession,
        wall_s: float | None,
    ) -> LiveSession:
        """Take note that an exchange is played now; return the session that its client is in."""
        self.play_counts[entry] += 1
        if secrets:
            self._secret_mapping.note_played_secrets(entry, secrets)

        if entry.opens_session:
            # Which client it is shows only from now on.
            session.plays.note_played(entry)
            session = self.live_sessions.open_session(entry)
        elif entry in session.plays.counts and entry.key.method == INITIALIZE:
            session = self.live_sessions.begin_session_without_id()

        session.plays.note_played(entry)
        # A task that is over may be polled for ever.
        if entry.call_of_step is None or session.plays.counts[entry] == 1:
            if self.histories.note_play(entry, session.plays.writes):
                self.stray_read_counts[entry.interaction] += 1

        task = self._tasks.begun_by(entry, wall_s, self.poll_interval)
        if task is not None:
            session.start_task(task)

        return session

    def allow_asks_again(self, answer: ReplayEntry, session: LiveSession) -> None:
        """Let the asks before an answer be played again, which stay asked."""
        plays = session.plays
        pending_ask = answer.answered_ask
        while pending_ask is not None:
            if plays.counts.get(pending_ask):
                plays.counts[pending_ask] -= 1
                self.histories.take_back_ask(pending_ask, plays.writes)

            pending_ask = pending_ask.answered_ask

        plays.used_counts_by_sequence.clear()

    def note_step(self, step: StepChoice, session: LiveSession) -> None:
        """Take note of the plays of tasks in a session after a request about one of them."""
        session.tasks = step.live_tasks
        if step.swapped_tasks is None:
            return

        task, branch = step.swapped_tasks
        session.swap_ids(task.id, branch.id)
        self.swap_calls(task.creating_call, branch.creating_call, session)

    def swap_calls(
        self, first_call: ReplayEntry, second_call: ReplayEntry, session: LiveSession
    ) -> None:
        """Take equal calls for each other, as what came after them tells which one is which."""
        plays = session.plays
        times_of_first = plays.counts.pop(first_call, 0)
        times_of_second = plays.counts.pop(second_call, 0)
        self.play_counts[first_call] += times_of_second - times_of_first
        self.play_counts[second_call] += times_of_first - times_of_second
        if times_of_second:
            plays.counts[first_call] = times_of_second

        if times_of_first:
            plays.counts[second_call] = times_of_first

        plays.used_counts_by_sequence.clear()
        self.histories.swap_writes(first_call, second_call, plays.writes)


class PlayedPart:
    """How much of a recording has been played.

    Attributes:
        has_discovered: an earlier process of the client has played `server/discover`.
    """

    has_discovered = False

    def __init__(
        self, entries_by_arrival: Sequence[ReplayEntry], play_order: PlayOrder
    ) -> None:
        self._entries_by_arrival = entries_by_arrival
        self._play_order = play_order

    @property
    def play_counts(self) -> Counter[ReplayEntry]:
        """How often each exchange was played."""
        return self._play_order.play_counts

    @property
    def after_other_writes(self) -> dict[int, int]:
        """How often each read was played after other writes than recorded, by its interaction."""
        return dict(sorted(self._play_order.stray_read_counts.items()))

    @property
    def numbers_without_response(self) -> list[int]:
        """Numbers of the interactions that were played up to a call without a recorded response."""
        played_entries = self._play_order.played_entries
        given_up_entries = filter(
            self._play_order.timelines.was_given_up, played_entries
        )
        return sorted({entry.interaction for entry in given_up_entries})

    @property
    def has_only_discovered(self) -> bool:
        """Whether a client has asked for nothing but `server/discover`."""
        methods = {entry.key.method for entry in self._play_order.played_entries}
        return methods == {DISCOVER}

    @property
    def unplayed_numbers(self) -> list[int]:
        """Numbers of the interactions of which something was never played."""
        played_entries = self._play_order.played_entries
        played_lookup_numbers = {entry.numbers.lookup for entry in played_entries}
        numbers = set()
        for entry in self._entries_by_arrival:
            if entry in played_entries:
                continue
            if self._has_to_be_played(entry, played_lookup_numbers):
                numbers.add(entry.interaction)

        return sorted(numbers)

    def _has_to_be_played(
        self, entry: ReplayEntry, played_lookup_numbers: Collection[int]
    ) -> bool:
        """Tell whether an exchange that was not played should have been."""
        if entry.is_pong:
            return False
        if self.has_discovered and entry.key.method == DISCOVER:
            return False

        if (
            entry.call_of_step is not None
            and self._play_order.effects.is_known_to_only_read(entry.key)
        ):
            # How often a task is polled before it ends depends on the pace.
            is_end = entry.state is not None and entry.state.is_over
            stand_in_by_entry = self._play_order.recording_index.stand_in_by_entry
            return is_end and entry.call_of_step not in stand_in_by_entry

        # A faster replay repeats these less often.
        is_repeat = entry.numbers.lookup in played_lookup_numbers
        return not (is_repeat and self._play_order.effects.repeats_with_time(entry))
