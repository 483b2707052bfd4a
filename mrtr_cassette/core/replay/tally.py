"""What one replay has counted, and how much of its recording was played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.methods import DISCOVER
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.order import PlayOrder


class Tally:
    """What one replay has counted so far.

    Attributes:
        reply_count: how many requests got a recorded reply.
        misses: why requests got none.
        harmless: what requests got that any server answers alike.
        unknown_tools: how often each tool was called that the recorded server doesn't have.
        stopped_request_count: how many requests got the miss after which the replay stopped.
        match_counts_by_kind: how many values of clients matched others, by what their kind is:
            those of a matcher, or of what was taken out to share the cassette; and how many
            requests did as a user's function says, by its name.
        learned: the texts of values that requests have taught, by name.
        divergences: where the play left each recording.
    """

    def __init__(self, recording_count: int) -> None:
        """Begin to count; so many recordings are followed."""
        self.reply_count = 0
        self.misses: list[Miss] = []
        self.harmless: list[HarmlessReply] = []
        self.unknown_tools: Counter[str] = Counter()
        self.stopped_request_count = 0
        self.match_counts_by_kind: Counter[str] = Counter()
        self.learned: dict[str, str] = {}
        self.divergences = Divergences(recording_count)

    @property
    def request_counts(self) -> tuple[int, ...]:
        """How many requests got each kind of response; one of these grows with every response."""
        return (
            self.reply_count,
            len(self.misses),
            len(self.harmless),
            self.unknown_tools.total(),
            self.stopped_request_count,
        )

    def count_miss(self, miss: Miss) -> Miss:
        """Count a miss, and return it."""
        self.misses.append(miss)
        self.divergences.note_miss(miss, self.reply_count)
        return miss


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


# Recordings that a play has left


class Divergence(NamedTuple):
    """The first request of a play that a recording doesn't have where the play is.

    Attributes:
        recording: the place of the recording among those that are played.
        reply_count: how many requests had got a recorded reply.
        entry: what the request got from another recording, if it is no miss.
    """

    recording: int
    reply_count: int
    entry: ReplayEntry | None = None
    explained_miss: Miss | None = None


class Divergences:
    """Follows all recordings that are played together, each until a play leaves it.

    Attributes:
        recording_count: how many; 1 where calls are not held to them.
    """

    def __init__(self, recording_count: int) -> None:
        self.recording_count = recording_count
        self.first_divergences: list[Divergence] = []
        """The first one from each recording that the play has left, in that order."""
        self.followed_recordings = set(range(recording_count))
        """The recordings that alone would have answered all requests."""

    def note_play(
        self,
        entry: ReplayEntry,
        recordings_with_entry: Collection[int],
        reply_count: int,
    ) -> None:
        """Take note that a request was played that only these recordings have there."""
        for recording in sorted(
            self.followed_recordings.difference(recordings_with_entry)
        ):
            self.followed_recordings.discard(recording)
            self.first_divergences.append(
                Divergence(recording, reply_count, entry=entry)
            )

    def note_miss(self, miss: Miss, reply_count: int) -> None:
        """Take note that no recording has a request there."""
        for recording in sorted(self.followed_recordings):
            self.first_divergences.append(
                Divergence(recording, reply_count, explained_miss=miss)
            )

        self.followed_recordings.clear()

    @property
    def longest_followed(self) -> Divergence | None:
        """The divergence from the recording that was followed longest; None where one still is."""
        if self.followed_recordings:
            return None

        return max(self.first_divergences, key=attrgetter("reply_count"), default=None)
