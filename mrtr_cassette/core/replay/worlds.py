"""Histories of writes: those of a recording, and which of them a play can be in.

A call belongs to a history of writes (docs/matching.md, "Reads belong to the history of writes").
A recording has one or several worlds, and a play follows all of them at once, until it makes a
write that a world does not have next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import RecorderFacts, runs_of
from mrtr_cassette.core.protocol.calls import CallKey, Traits
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import CALL_TOOL, INITIALIZE, LIST_TOOLS, method_of
from mrtr_cassette.core.replay.history import Lifetime, Timelines
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.secrets.names import ANSWER, HASH, Ref, with_refs
from mrtr_cassette.core.secrets.sealed import is_searched
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import SHOWN_CHARS, counted, shorten


class History(Enum):
    """Which calls are held to the history of writes in which they were recorded."""

    AUTO = "auto"
    """Those that were recorded with several answers."""
    STRICT = "strict"
    ORDER = "order"
    """None: equal calls are played in recorded order."""


WriteKey = tuple[int, tuple[str, ...]]
"""What equal writes share: the path of the call and its answers, and what was posted meanwhile."""
WorldKey = tuple[str, int]
"""A session, and the run of the recorder."""
_NEVER: Final = (float("inf"), float("inf"))


class Write(NamedTuple):
    """A call that may have changed something, in one recorded history.

    Attributes:
        lifetime: from the first request of the call to its last response.
        family: the same for all calls with equal first requests, however they were answered.
    """

    lifetime: Lifetime
    key: WriteKey
    family: int
    entry: ReplayEntry


class Point(NamedTuple):
    """Where in a history a recorded request stands: all of its call is in flight together.

    Attributes:
        write: what it shares with equal writes, if it ends one.
        is_free: it belongs to no point, as it opens, listens or posts.
    """

    lifetime: Lifetime
    world: WorldKey
    family: int
    write: WriteKey | None
    is_free: bool


class _EqualWrites:
    """The equal writes of a world, which are counted.

    The first that is made is the first that began and the first that ended, though these may have
    been two.
    """

    def __init__(self, writes: Sequence[Write]) -> None:
        self._writes = writes
        self._starts = sorted([write.lifetime.start for write in writes])
        self._unmade = dict.fromkeys([write.entry for write in writes])
        self.made = 0

    @property
    def next(self) -> tuple[tuple[float, ...], Write] | None:
        """When the next one may begin, and the one that ends next; None when all are made."""
        if self.made == len(self._writes):
            return None
        return self._starts[self.made], self._writes[self.made]

    def make(self, entry: ReplayEntry) -> ReplayEntry:
        """Make the next one; return the recording that is used up by a play of `entry`."""
        self.made += 1
        made = entry if entry in self._unmade else next(iter(self._unmade))
        del self._unmade[made]
        return made


class _World:
    """One recorded history, and which of its writes a play has made.

    Calls of one family that a play has in flight together may end in any order, whether or not
    they were in flight together when they were recorded: `beside` counts them.
    """

    def __init__(self, writes: Iterable[Write]) -> None:
        self._writes = sorted(writes, key=lambda write: write.lifetime[::-1])
        alike: dict[WriteKey, list[Write]] = {}
        for write in self._writes:
            alike.setdefault(write.key, []).append(write)
        self._equal = {key: _EqualWrites(writes) for key, writes in alike.items()}
        self._ended: set[ReplayEntry] = set()
        """The writes, in the order of their ends, that equal ones were made for."""
        self._first = 0
        """The place of the first write that has not ended."""
        self._played: set[ReplayEntry] = set()
        self._latest: list[tuple[tuple[float, ...], int]] = []
        """When the latest write of a family began that was made, for the latest two families."""

    def make(self, write: Point, entry: ReplayEntry, beside: int) -> bool:
        """Make a write, if the world has it next."""
        equal = None if write.write is None else self._equal.get(write.write)
        following = None if equal is None else equal.next
        if equal is None or following is None:
            return False
        start, ending = following
        if start > self._until(write.family, beside):
            return False
        self._played.add(equal.make(entry))
        self._ended.add(ending.entry)
        while self._first < len(self._writes) and self._writes[self._first].entry in self._ended:
            self._first += 1
        latest = {family: began for began, family in self._latest}
        latest[write.family] = max(latest.get(write.family, start), start)
        self._latest = sorted([(began, family) for family, began in latest.items()])[-2:]
        return True

    def has_come(self, point: Point, beside: int) -> bool:
        """Tell whether all writes have been made that had ended before a call came."""
        return point.lifetime.start <= self._until(point.family, beside)

    def is_over(self, point: Point, entry: ReplayEntry) -> bool:
        """Tell whether a call has been made, or a write that came after it."""
        if entry in self._played:
            return True
        end = point.lifetime.end
        equal = None if point.write is None else self._equal.get(point.write)
        following = None if equal is None else equal.next
        if following is not None:
            end = following[1].lifetime.end
        for began, family in self._latest:
            if began > end and family != point.family:
                return True
        return False

    def _until(self, family: int, beside: int) -> tuple[float, ...]:
        """Return when the first write ended that was not made, but for some of a family."""
        for place in range(self._first, len(self._writes)):
            write = self._writes[place]
            if write.entry in self._ended:
                continue
            if write.family != family or beside <= 0:
                return write.lifetime.end
            beside -= 1
        return _NEVER


class MadeWrite(NamedTuple):
    """A write in words, and its recording; without one if a live server got it.

    Attributes:
        beside: how many equal calls were in flight besides it.
    """

    told: str
    entry: ReplayEntry | None = None
    beside: int = 0
    live: CallKey | None = None

    @property
    def key(self) -> CallKey | None:
        """The call."""
        return self.live if self.entry is None else self.entry.key

    def words(self, numbered: bool) -> str:  # noqa: FBT001
        """Return how it is told, with the number of its interaction if so wished."""
        if self.entry is None:
            return f"unrecorded {self.told}"
        return f"#{self.entry.interaction} {self.told}" if numbered else self.told


@dataclass(slots=True)
class PlayedWrites:
    """The writes of one play, and the worlds that they keep alive; None before the first.

    Attributes:
        in_flight: how many calls of each family have been asked something and have not ended.
    """

    made: list[MadeWrite] = field(default_factory=list)
    living: dict[WorldKey, _World] | None = None
    in_flight: Counter[int] = field(default_factory=Counter)

    def beside(self, entry: ReplayEntry, family: int) -> int:
        """Return how many calls of the family of a request are in flight besides its own."""
        in_flight = self.in_flight[family]
        if entry.parent is not None and in_flight:
            in_flight -= 1
        return in_flight


class Worlds:
    """The histories of a recording, and which of its calls are held to them.

    All but `reads` is found out when the first call comes that may be held.
    """

    def __init__(
        self,
        by_arrival: Sequence[ReplayEntry],
        timelines: Timelines,
        recorders: Sequence[RecorderFacts],
        history: History,
        reads: Collection[str],
    ) -> None:
        # A task goes on by itself, whatever is written.
        self._by_arrival = [entry for entry in by_arrival if entry.created_by is None]
        self._timelines = timelines
        self._recorders = recorders
        self._named = frozenset(reads)
        self._went_live: set[str] = set()
        """What a live server was called for: names of tools, and methods."""
        self._is_strict = history is History.STRICT
        paths = Counter([entry.path for entry in self._by_arrival])
        self._repeated = {path for path, count in paths.items() if count > 1}
        self._is_auto = history is History.AUTO
        self.holds_any = self._is_strict or (self._is_auto and bool(self._repeated))
        self.strayed: Counter[int] = Counter()
        """How often a read was played after other writes than recorded, by its interaction."""

    # Reads and writes

    def only_reads(self, key: CallKey) -> bool:
        """Tell whether a call is known to change nothing."""
        if called_as(key) in self._named:
            return True
        if key.method == CALL_TOOL:
            return self._hints.get(key.name, False)
        return method_of(key.method).reads

    def unused_reads(self) -> list[str]:
        """Return the names said to only read that neither a call nor a list of tools has."""
        if not self._named:
            return []
        known = {*self._hints, *self._went_live}
        for entry in self._by_arrival:
            known.add(called_as(entry.key))
        return sorted(self._named - known)

    @cached_property
    def _hints(self) -> dict[str, bool]:
        """Whether every recorded list that has a tool says that it only reads."""
        says: dict[str, bool] = {}
        for each in self._by_arrival:
            if each.key.method != LIST_TOOLS:
                continue
            result = each.exchange.rpc_members.get("result")
            tools = result.get("tools") if isinstance(result, dict) else None
            for tool in tools if isinstance(tools, list) else ():
                hints = tool.get("annotations") if isinstance(tool, dict) else None
                is_hint = isinstance(hints, dict) and hints.get("readOnlyHint") is True
                if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                    says[name] = says.get(name, True) and is_hint
        return says

    def repeats_with_time(self, entry: ReplayEntry) -> bool:
        """Tell whether clients repeat a request as time goes by: a poll, or what a cache held."""
        response = entry.exchange.response
        is_cached = response is not None and b'"ttlMs"' in response.body
        is_poll = method_of(entry.key.method).repeats
        return entry.kind is Kind.REQUEST and (is_cached or is_poll) and self.only_reads(entry.key)

    def is_write(self, entry: ReplayEntry) -> bool:
        """Tell whether the response to a request ends a call that may have changed something."""
        if entry.kind is not Kind.REQUEST or entry.created_by is not None:
            return False
        if entry.ask is not None or entry.is_listening or self.only_reads(entry.key):
            return False
        return not _is_refused(entry)

    def write_key(self, entry: ReplayEntry) -> WriteKey:
        """Return what an entry shares with equal writes, in whichever world."""
        posted = self._timelines.answers_during(entry)
        return entry.path, (*[answer.key.arguments for answer in posted], *_task_answers(entry))

    # Worlds

    @cached_property
    def writes(self) -> dict[WorldKey, list[Write]]:
        """The writes of each world."""
        writes: dict[WorldKey, list[Write]] = {}
        numbered = {entry.exchange.number: entry for entry in self._by_arrival}
        for entry in self._by_arrival:
            point = self._points[entry]
            world = writes.setdefault(point.world, [])
            # A run that appended had played these one after the other, before the request came.
            follows = [numbered[number] for number in entry.exchange.follows if number in numbered]
            for at, played in enumerate(follows, start=1):
                came = ((entry.exchange.number or 0) - 1 + at / (len(follows) + 1),)
                family = self._points[played].family
                world.append(Write(Lifetime(came, came), self.write_key(played), family, played))
            if point.write is not None:
                world.append(Write(point.lifetime, point.write, point.family, entry))
        return writes

    @cached_property
    def _points(self) -> dict[ReplayEntry, Point]:
        calls: dict[tuple[int, WorldKey], Lifetime] = {}
        for entry in self._by_arrival:
            call = entry.interaction, self._world_of(entry)
            start, end = self._timelines.lifetime_of(entry)
            for step in entry.steps:
                end = max(end, self._timelines.lifetime_of(step).end)
            begun = calls.setdefault(call, Lifetime(start, end))
            calls[call] = Lifetime(begun.start, max(begun.end, end))
        points: dict[ReplayEntry, Point] = {}
        for entry in self._by_arrival:
            world = self._world_of(entry)
            first = entry
            while first.parent is not None:
                first = first.parent
            write = self.write_key(entry) if self.is_write(entry) else None
            lifetime = calls[entry.interaction, world]
            points[entry] = Point(lifetime, world, first.path, write, _is_free(entry))
        return points

    def _world_of(self, entry: ReplayEntry) -> WorldKey:
        by = entry.exchange.recorded_by
        return entry.session, 0 if by is None else self._runs.get(by.recorder, 0)

    @cached_property
    def _runs(self) -> dict[str, int]:
        exchanges = [entry.exchange for entry in self._by_arrival]
        return runs_of(exchanges, self._recorders)

    # What is held

    def living(self, played: PlayedWrites) -> dict[WorldKey, _World]:
        """Return the worlds that a play keeps alive."""
        if played.living is None:
            played.living = {key: _World(writes) for key, writes in self.writes.items()}
        return played.living

    def went_live(self, key: CallKey, played: PlayedWrites) -> bool:
        """Take note of a call that a live server answers; tell whether it writes.

        No world has a write that was not recorded.
        """
        self._went_live.add(called_as(key))
        if self.only_reads(key):
            return False
        played.made.append(MadeWrite(f"{key} {key.arguments}", live=key))
        played.living = {}
        return True

    def played(self, entry: ReplayEntry, played: PlayedWrites) -> None:
        """Take note that a call begins or ends; worlds end that don't have what it writes next."""
        if not (self.holds_any or self._watches):
            return
        if entry.created_by is not None:
            self._went_on(entry, entry.created_by, played)
            return
        family = self._points[entry].family
        if entry.ask is not None:
            played.in_flight[family] += entry.parent is None
        elif self.is_write(entry):
            beside = played.beside(entry, family)
            self._make(entry, played, beside)
            played.in_flight[family] = beside + bool(entry.steps)
        elif self._watches and self._is_watched(entry) and not self._is_in_place(entry, played):
            self.strayed[entry.interaction] += 1

    def _went_on(self, step: ReplayEntry, call: ReplayEntry, played: PlayedWrites) -> None:
        """Take note of a step of the task that a call created, which may be its last."""
        family = self._points[call].family
        if step.state is not None and step.state.is_over and played.in_flight[family]:
            played.in_flight[family] -= 1

    def exchange(self, first: ReplayEntry, second: ReplayEntry, played: PlayedWrites) -> None:
        """Take a write that was made as one equal call for another, to which it turns out now."""
        if not (self.holds_any or self._watches):
            return
        beside = max(played.in_flight[self._points[first].family] - 1, 0)
        made = played.made
        played.made = []
        played.living = None
        for write in made:
            if write.entry is None:
                played.made.append(write)
                played.living = {}
            elif write.entry not in (first, second):
                self._make(write.entry, played, write.beside)
        was_made = {write.entry for write in made}
        for entry, taken_for in ((first, second), (second, first)):
            if entry in was_made:
                self._make(taken_for, played, beside)

    def _make(self, entry: ReplayEntry, played: PlayedWrites, beside: int) -> None:
        played.made.append(MadeWrite(_told(entry), entry, beside))
        point = self._points[entry]
        for name, world in [*self.living(played).items()]:
            # Clients without a session have nothing in common with those that have one.
            is_apart = bool(name[0]) != bool(entry.session)
            if not is_apart and not world.make(point, entry, beside):
                del self.living(played)[name]

    def keep(self, entries: list[ReplayEntry], played: PlayedWrites) -> list[ReplayEntry]:
        """Keep those of some equal calls that came after the writes of a play in a living world.

        They stand in the order of their arrival.
        """
        if not self._are_held(entries):
            return entries
        living = self.living(played)
        # Those of one world stand in the order of their first requests.
        is_ordered = len(living) == 1 and not (entries[-1].parent or entries[-1].secrets)
        kept = []
        for entry in entries:
            point = self._points[entry]
            if point.is_free:
                kept.append(entry)
            elif point.world in living:
                world = living[point.world]
                if world.has_come(point, played.beside(entry, point.family)):
                    if not world.is_over(point, entry):
                        kept.append(entry)
                elif is_ordered:
                    break
        return kept

    def _are_held(self, entries: list[ReplayEntry]) -> bool:
        first, last = entries[0], entries[-1]
        if self._is_strict or (first.path, first.traits) in self._answered_otherwise:
            return True
        # A caller that is like none of the recorded ones may get what was recorded of several.
        return first.traits != last.traits and len({self._digests.get(e) for e in entries}) > 1

    @cached_property
    def _digests(self) -> dict[ReplayEntry, bytes]:
        """Digests of the answers to calls that were recorded repeatedly."""
        repeated = [each for each in self._by_arrival if each.path in self._repeated]
        return {each: answer_digest(each) for each in repeated}

    @cached_property
    def _answered_otherwise(self) -> set[tuple[int, Traits]]:
        """Equal calls that got several answers, themselves or after equal retries."""
        latest: dict[tuple[WriteKey, Traits], bytes] = {}
        several: set[tuple[int, Traits]] = set()
        for each, digest in self._digests.items():
            # Tasks that were answered differently are branches.
            key = each.path, _task_answers(each)
            if latest.setdefault((key, each.traits), digest) != digest:
                several.add((each.path, each.traits))
        # A retry came after the call that it answers.
        for each in reversed(self._by_arrival):
            if each.parent is not None and (each.path, each.traits) in several:
                several.add((each.parent.path, each.parent.traits))
        return several

    # What is told

    @cached_property
    def _watches(self) -> bool:
        """Whether reads that the default history lets through are told: there are also writes."""
        if not self._is_auto or not any(map(self._is_watched, self._by_arrival)):
            return False
        return any(map(self.is_write, self._by_arrival))

    def _is_watched(self, entry: ReplayEntry) -> bool:
        """Tell whether a call is known to read what writes may change."""
        if _is_free(entry) or not self.only_reads(entry.key):
            return False
        method = method_of(entry.key.method)
        return not (method.steady or method.describes_server)

    def _is_in_place(self, entry: ReplayEntry, played: PlayedWrites) -> bool:
        """Tell whether a read, or one with the same answer, came after the writes of a play."""
        living = self.living(played)
        for equal in (entry, *self._equal_reads.get(entry.path, ())):
            point = self._points[equal]
            world = living.get(point.world)
            if world is None or world.is_over(point, equal):
                continue
            if world.has_come(point, played.beside(equal, point.family)):
                return True
        return False

    @cached_property
    def _equal_reads(self) -> dict[int, list[ReplayEntry]]:
        """The reads that were recorded repeatedly, by what equal ones share."""
        equal: dict[int, list[ReplayEntry]] = {path: [] for path in self._repeated}
        for entry in self._by_arrival:
            if entry.path in equal and self._is_watched(entry):
                equal[entry.path].append(entry)
        return equal

    def _ahead(
        self, entries: Iterable[ReplayEntry], living: Mapping[WorldKey, _World]
    ) -> list[ReplayEntry]:
        """Keep the calls that still are to come in their worlds."""
        ahead = []
        for entry in entries:
            point = self._points[entry]
            if not living[point.world].is_over(point, entry):
                ahead.append(entry)
        return ahead

    def nearest(
        self, entries: Sequence[ReplayEntry], played: PlayedWrites
    ) -> tuple[ReplayEntry, str, str]:
        """Return the nearest of some calls; say after which writes it came, and which were made.

        The last one is the tool or method in which they differ.
        """
        here = set(self.keep(list(entries), played))
        elsewhere = [entry for entry in entries if entry not in here] or entries
        unplayed = [entry for entry in elsewhere if not entry.played] or elsewhere
        living = self.living(played)
        following = [entry for entry in unplayed if self._points[entry].world in living]
        nearest = (self._ahead(following, living) or following or unplayed[-1:])[0]
        start, _ = self._points[nearest].lifetime
        writes = self.writes[self._points[nearest].world]
        before = [write.entry for write in writes if write.lifetime.end < start]
        recorded = [MadeWrite(_told(entry), entry) for entry in before]
        after, made = _told_apart(recorded, played.made)
        detail = f"this was recorded after {after}; this run has made {made}"
        return nearest, detail, _differing_call(nearest.key, recorded, played.made)


def called_as(key: CallKey) -> str:
    """Return what a user names a call by who says that it only reads: a tool, or the method."""
    return key.name if key.method == CALL_TOOL else key.method


def _task_answers(entry: ReplayEntry) -> tuple[str, ...]:
    """Return how the questions of the task that a call created were answered, without its names."""
    answers = [str(step.lookup.answers) for step in entry.steps if step.state is None]
    return tuple([with_refs(text, _kind_alone) for text in answers])


def _kind_alone(ref: Ref) -> bytes | None:
    """Return a name or a placeholder without what tells it from others of its kind."""
    return None if ref.kind in (HASH, ANSWER) else ref.kind.encode()


def _is_free(entry: ReplayEntry) -> bool:
    """Tell whether a request belongs to no point of a history: it opens, listens or posts."""
    if entry.kind is not Kind.REQUEST or entry.is_listening:
        return True
    return entry.opens_session or entry.key.method == INITIALIZE


def _is_refused(entry: ReplayEntry) -> bool:
    """Tell whether a server refused a request, so that nothing came of it."""
    response = entry.exchange.response
    if response is None:
        return False
    if response.status >= 400:
        return True
    if b'"error"' not in response.body:
        return False
    return entry.exchange.rpc_members.get("error") is not None


def _told(entry: ReplayEntry) -> str:
    """Return a write in words: the call, and how its user answered."""
    answers: list[str] = []
    step: ReplayEntry | None = entry
    while step is not None:
        if step.lookup.answers is not None:
            answers.insert(0, step.lookup.answers)
        step = step.parent
    return " answered ".join([f"{entry.key} {entry.key.arguments}", *answers])


def _differing_call(
    called: CallKey, recorded: Sequence[MadeWrite], made: Sequence[MadeWrite]
) -> str:
    """Return a tool or method in which two lists of writes differ: what is called, if it is in one.

    What is called again and again, with other answers, is likely to be what only reads.
    """
    begun = 0
    for before, now in zip(recorded, made, strict=False):
        if before.told != now.told:
            break
        begun += 1
    writes = (*made[begun:], *recorded[begun:])
    differing = [called_as(write.key) for write in writes if write.key is not None]
    if called_as(called) in differing:
        return called_as(called)
    return differing[0] if differing else ""


def _told_apart(recorded: Sequence[MadeWrite], made: Sequence[MadeWrite]) -> tuple[str, str]:
    """Return two lists of writes in words that differ, by their recordings if by nothing else."""
    told = _listed(recorded, made, numbered=False)
    if told[0] == told[1]:
        told = _listed(recorded, made, numbered=True)
    return told


def _listed(
    recorded: Sequence[MadeWrite], made: Sequence[MadeWrite], *, numbered: bool
) -> tuple[str, str]:
    lists = [write.words(numbered) for write in recorded], [write.words(numbered) for write in made]
    shared = 0
    if max(len(", ".join(words)) for words in lists) > SHOWN_CHARS:
        for pair in zip(*lists, strict=False):
            if pair[0] != pair[1]:
                break
            shared += 1
    before, after = (_spelled(words[shared:], shared) for words in lists)
    return before, after


def _spelled(words: Sequence[str], shared: int) -> str:
    """Spell writes that come after some that are left out, as another list begins with them too."""
    spelled = shorten(", ".join(words))
    if not shared:
        return spelled or "no write"
    begun = f"the same {counted(shared, 'write')}"
    return f"{begun} and then {spelled}" if spelled else f"{begun} and no other"


def answer_digest(entry: ReplayEntry) -> bytes:
    """Return the digest of the response to a request, without names and the caller's values."""
    exchange, response = entry.exchange, entry.exchange.response
    message = exchange.rpc_response
    task = exchange.created_task
    if task is not None:
        # What was answered, and the last state.
        states = [task, *(each.state for each in entry.steps if each.state is not None)]
        answers = [str(each.lookup.answers) for each in entry.steps if each.state is None]
        text = "\n".join([*answers, states[-1].digest])
    elif message is None:
        text = "" if response is None else f"{response.status} {response.body.decode('latin-1')}"
    else:
        text = canonical([message.tree.get("result"), message.tree.get("error")])
    state = None if exchange.ask is None else exchange.ask.request_state
    if state is not None:
        spelled = canonical(state)
        text = text.replace(spelled[1:-1] if is_searched(state) else spelled, "")
    text = with_refs(text, _kind_alone)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
