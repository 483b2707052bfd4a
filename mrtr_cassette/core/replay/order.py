"""Choose the recording that a request gets, by what was played in its session so far.

An exchange is played as often as it was recorded, in the order of the recording, and a retry only
after its ask. Where nothing is remembered (`stateless`), equal recordings are one instead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.effects import CallEffects
from mrtr_cassette.core.cassette.entries import (
    Entries,
    MatchedRequest,
    OpenedSessions,
    ReplayEntry,
)
from mrtr_cassette.core.cassette.lookup import CallerValues, LookupKey
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import request_with
from mrtr_cassette.core.protocol.calls import (
    NO_SESSION,
    Traits,
    depends_on_writes,
    session_of,
)
from mrtr_cassette.core.protocol.hooks import MatchHook
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import INITIALIZE, INITIALIZED
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.histories import EqualCalls, PlayedWrites, WriteHistories
from mrtr_cassette.core.replay.index import (
    RecordingIndex,
    SecretMapping,
    StatelessGroups,
)
from mrtr_cassette.core.replay.tasks import (
    LiveTask,
    RecordedTask,
    RecordedTasks,
    StepChoice,
)
from mrtr_cassette.core.replay.timelines import Timelines
from mrtr_cassette.core.secrets.names import (
    Ref,
    renaming,
    session_number,
    session_surrogate,
)
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import HookError

_SAFE_HTTP: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_NO_VALUES: Final = CallerValues(None, None)
_MOST_CANDIDATES: Final = 4096
"""Groups of recordings that are kept for callers who are like none of the recorded ones."""


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


# Live sessions


class Refusal(NamedTuple):
    """A call gets, under its own id, the miss of an answer in the place of its response."""

    miss: Miss
    id: bytes | None
    is_last: bool


@dataclass(slots=True, eq=False)
class LiveSession:
    """One session of a replay: what its client was sent, and what it has sent.

    Attributes:
        recorded: id of the recorded session that is played in it; empty for clients without one.
        sent: how many parts of each listening stream its client has had.
        refused: for each call, the wrong answer to what the server asked meanwhile.
        unrecorded: events for its client that were not recorded, of a session whose responses all
            come on one stream; None for any other session.
        tasks: the tasks of the calls that it has made, by their recorded ids.
        known_tasks: the ids by which its client knows recorded tasks, where these are others.
        used: how many calls at the beginning of each line were played or are over.
        arrived: how many requests like recorded ones have come, by lookup number.
        cancelled: the ids, as canonical texts, of the requests that it has cancelled.
        reached: number of the latest recorded request that has come, but notifications and answers.
    """

    recorded: str = NO_SESSION
    id: str = NO_SESSION
    played: dict[ReplayEntry, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    sent: dict[ReplayEntry, int] = field(default_factory=dict)
    callers: dict[ReplayEntry, CallerValues] = field(default_factory=dict)
    refused: dict[ReplayEntry, Miss] = field(default_factory=dict)
    unrecorded: deque[bytes] | None = None
    writes: PlayedWrites = field(default_factory=PlayedWrites)
    tasks: dict[str, LiveTask] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    known_tasks: dict[str, str] = field(default_factory=dict)
    used: dict[EqualCalls, int] = field(default_factory=dict)
    reached: int = 0
    arrived: dict[int, int] = field(default_factory=dict)
    _answered: Counter[int] = field(default_factory=Counter)
    _values: dict[tuple[int, int], CallerValues] = field(default_factory=dict)

    def count(self, entry: ReplayEntry) -> None:
        """Count an exchange as played, and what it asks as asked."""
        self.played[entry] = self.played.get(entry, 0) + 1
        if entry.question is not None:
            self.asked.add(entry.question)

    def was_asked(self, entry: ReplayEntry) -> bool:
        """Tell whether the ask that an exchange answers has been played, or an equal one."""
        if entry.answered_question is not None:
            return entry.answered_question.pending.numbers.lookup in self.arrived
        if entry.parent is None or not entry.proves_its_ask:
            return True
        return entry.parent.question in self.asked

    def arrive(self, entry: ReplayEntry, caller: CallerValues | None = None) -> None:
        """Take note that a request like a recorded one has come, from a caller with these values.

        Without a caller nothing has come, but nothing waits for it any more.
        """
        number = entry.numbers.lookup
        count = self.arrived.get(number, 0) + 1
        self.arrived[number] = count
        if caller is not None and entry.session:
            self._values[number, count] = caller

        if entry.kind is not Kind.REQUEST:
            return

        if caller is not None:
            self.callers[entry] = caller

        if entry.session == self.recorded:
            self.reached = max(self.reached, entry.exchange.number or 0)

    def begin(self, task: LiveTask) -> None:
        """Begin a task, anew if its call has been made before."""
        recorded = task.recorded
        self.tasks[recorded.id] = task
        for cause in recorded.causes:
            self.arrived.pop(recorded.steps[cause].numbers.lookup, None)

    def refuse(
        self, call: ReplayEntry, identity: bytes | None, *, is_last: bool
    ) -> Refusal:
        """Return what a call gets whose question was answered wrongly, once."""
        return Refusal(self.refused.pop(call), identity, is_last)

    def waive(self, entry: ReplayEntry) -> None:
        """Let nothing wait any more for a request like a recorded one."""
        if not self.has_arrived(entry):
            self.arrive(entry)

    def has_arrived(self, entry: ReplayEntry) -> bool:
        """Tell whether a request like a recorded one has come, as often as it had come by then."""
        numbers = entry.numbers
        return self.arrived.get(numbers.lookup, 0) >= numbers.occurrence

    def answer(self, entry: ReplayEntry) -> None:
        """Take note that a client has the response to a request like a recorded one."""
        self._answered[entry.numbers.lookup] += 1

    def has_answered(self, entry: ReplayEntry) -> bool:
        """Tell whether a client has the response to a request like a recorded one."""
        return self._answered[entry.numbers.lookup] >= entry.numbers.occurrence

    def values_of(self, entry: ReplayEntry) -> CallerValues:
        """Return the values of the live request that stands for a recorded one."""
        number = (entry.numbers.lookup, entry.numbers.occurrence)
        return self._values.get(number, _NO_VALUES)

    def in_recorded(self, request: Request) -> Request:
        """Return a request of the session as it would have been recorded."""
        is_known_otherwise = self.id not in (NO_SESSION, self.recorded)
        if not is_known_otherwise and not self.known_tasks:
            return request

        names = {live: recorded for recorded, live in self.known_tasks.items()}
        if is_known_otherwise:
            names[self.id] = self.recorded

        change = renaming(names)
        return request_with(request, lambda raw, _name: change(raw))

    def exchange_tasks(self, first: str, second: str) -> None:
        """Let the client know two recorded tasks by each other's ids."""
        known_first = self.known_tasks.get(first, first)
        known_second = self.known_tasks.get(second, second)
        self.known_tasks[first] = known_second
        self.known_tasks[second] = known_first


# Choosing


class Candidates:
    """Equal recordings among which a request gets one, in the order of their arrival."""

    def __init__(
        self, entries: Sequence[ReplayEntry], histories: WriteHistories
    ) -> None:
        self.entries = entries
        self.lines = histories.lines(entries)
        self.answer_questions = False
        for entry in entries:
            if entry.answered_question is not None or entry.parent is not None:
                self.answer_questions = True


class Chosen(NamedTuple):
    """The recording that a request gets; without one, the nearest ones, and why they don't fit.

    Attributes:
        recorded: the recorded session for which its live session is taken, if for another one.
        line: the line from which it is, and how many calls of this are used before it.
        by_function: the name of the user's function that says that it matches; or empty.
        failure: what went wrong in that function, or in another one.
        step: the step of a recorded task that it gets, if it is about one.
    """

    entry: ReplayEntry | None
    nearest: Sequence[ReplayEntry] = ()
    why_not: Reason | None = None
    recorded: str | None = None
    line: tuple[EqualCalls, int] | None = None
    by_function: str = ""
    failure: str = ""
    step: StepChoice | None = None


class PlayOrder:
    """Chooses among the recordings that have the key of a request.

    Attributes:
        timelines: what the clients of each recorded session sent.
        tasks: the tasks that recorded calls created.
        effects: tells which calls write.
        poll_interval: the milliseconds between polls of a task, for clients; None as recorded.
        index: finds the recordings with the key of a request.
        hook: a user's function that tells whether two requests match, or None.

    Raises:
        CassetteError: the cassette can't be played without memory.
    """

    hook: MatchHook | None = None
    poll_interval: int | None = None

    def __init__(
        self,
        cassette: Cassette,
        entries: Entries,
        repeat: Repeat,
        history: History,
        reads: Collection[str],
        issued: Collection[str] | None,
    ) -> None:
        """Read a recording.

        Args:
            issued: the hashes and placeholders that a client can have from a response, where no
                reply may depend on what has been played; else None.
        """
        is_stateless = issued is not None
        if history is History.AUTO and (is_stateless or repeat is Repeat.ALWAYS):
            history = History.ORDER

        self.timelines = Timelines(entries.by_arrival)
        self.tasks = RecordedTasks(entries)
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
            self.timelines.lifetime_of,
            self.timelines.answers_during,
        )

        self._groups: StatelessGroups | None = None
        if issued is not None:
            self._groups = StatelessGroups(
                cassette,
                entries,
                issued,
                self.tasks.changing,
                self.timelines.depends_on_later,
            )

        self._repeat = repeat
        self.index = RecordingIndex(entries.by_arrival, self._groups)
        self._candidates: dict[tuple[LookupKey, Traits], Candidates] = {}
        self._recorded: dict[str, set[int]] = {}
        self._handshakes: dict[str, list[ReplayEntry]] = {}
        for entry in entries.by_arrival:
            if entry.session:
                self._add(entry)

        self.opened = OpenedSessions(entries.by_arrival)
        self.begin()

    def begin(self) -> None:
        """Forget what was played."""
        self.plays: Counter[ReplayEntry] = Counter()
        """How often each exchange was played."""
        self.strayed: Counter[int] = Counter()
        """How often a read was played after other writes than recorded, by its interaction."""
        self.has_written_elsewhere = False
        """A write of this run was made where nothing is recorded of what it changed."""
        self._secrets = SecretMapping()
        self._shared = LiveSession()
        self._by_id: dict[str, LiveSession] = {}
        self._last = max(map(session_number, self._recorded), default=0)

    def _add(self, entry: ReplayEntry) -> None:
        """Take an exchange of a recorded session."""
        session = entry.session
        self._recorded.setdefault(session, set()).add(entry.numbers.lookup)
        if entry.key.method == INITIALIZED:
            self._handshakes.setdefault(session, []).append(entry)

    @property
    def entries_played(self) -> set[ReplayEntry]:
        """The exchanges that have been played, or the equal ones in their places."""
        # Another thread may replay meanwhile.
        counts = tuple(self.plays.items())
        played = {entry for entry, times in counts if times}
        for entry, stand_in in self.index.stand_ins.items():
            if stand_in in played:
                played.add(entry)

        return played

    # Sessions

    def session_of(self, request: Request) -> LiveSession:
        """Return the session in which a client sends a request; a new one without memory."""
        session_id = NO_SESSION
        if self._recorded:
            session_id = session_of(request)

        if self._groups is not None:
            return LiveSession(self._groups.root(session_id), session_id)
        if session_id not in self._recorded:
            return self._by_id.get(session_id, self._shared)
        if session_id in self._by_id:
            return self._by_id[session_id]

        session = LiveSession(session_id, session_id)
        if request.is_line:
            # A pipe is always new.
            return session

        # A client may know it from an earlier run, and not open it again.
        for handshake in self._handshakes.get(session_id, ()):
            session.arrive(handshake)

        return session

    def enter(self, session: LiveSession) -> None:
        """Take note that a client has sent something in a session."""
        if self._groups is None and session.id in self._recorded:
            self._by_id.setdefault(session.id, session)

    def _opened_by(self, opening: ReplayEntry) -> LiveSession:
        """Return a new session, under its recorded id or a surrogate where that is taken."""
        recorded = opening.session
        session_id = recorded
        if recorded in self._by_id:
            self._last += 1
            session_id = session_surrogate(self._last)

        session = LiveSession(recorded, session_id)
        # HTTP+SSE: a stream opens the session, and posts get no responses of their own.
        if opening.is_listening:
            session.unrecorded = deque()

        if self._groups is None:
            self._by_id[session_id] = session

        return session

    # Choosing

    def choose(
        self, matched: MatchedRequest, session: LiveSession, now: float | None
    ) -> Chosen:
        """Return what a request gets in a session, or why it gets nothing."""
        task = self.tasks.about(matched.lookup)
        if task is None:
            return self._choose_call(matched, session)

        plays: Mapping[str, LiveTask] = session.tasks
        has_memory = self._groups is None
        if not has_memory:
            plays = {task.id: self._begun(task, now)}

        step = self.tasks.choose(task, matched.lookup, plays, has_branches=has_memory)
        return Chosen(None, step=step)

    def _begun(self, task: RecordedTask, now: float | None) -> LiveTask:
        """Begin a play of a task, whose times are moved to now."""
        is_over = self._groups is not None
        return LiveTask(task, now, poll_interval=self.poll_interval, is_over=is_over)

    def _choose_call(self, matched: MatchedRequest, session: LiveSession) -> Chosen:
        """Return the recording that a request gets which is not about a task."""
        chosen = self._choose_equal(matched, session)
        entry = chosen.entry
        hook = self.hook
        if hook is None:
            return chosen

        if entry is not None:
            # Recordings that differ in ignored values come after those that match.
            equal = self.index.matched(entry).closer[0].call
            if equal == matched.closer[0].call:
                return chosen

        try:
            entries = self.index.matched_by(hook, matched)
        except HookError as error:
            return Chosen(None, failure=str(error))

        if not entries:
            return chosen

        by_function = self._choose_of(entries, matched, session)
        if by_function.entry is None and chosen.nearest:
            return chosen

        return by_function._replace(by_function=hook.name)

    def _choose_equal(self, matched: MatchedRequest, session: LiveSession) -> Chosen:
        """Return the recording with the key of a request, or why there is none."""
        index = self.index
        lookup = index.known_as(matched.lookup)
        equal = index.by_lookup.get(lookup)
        if equal is None:
            return Chosen(None)

        for entries in index.more_alike(matched, equal):
            chosen = self._choose_of(entries, matched, session)
            if chosen.entry is not None:
                return chosen

        key = (lookup, matched.traits)
        candidates = self._candidates.get(key)
        if candidates is None:
            # Where all that headers say is equal, so is the session.
            exact = index.exact.get(key)
            found = exact or self._fitting_headers(equal, matched.traits)
            if isinstance(found, Reason):
                return Chosen(None, equal, found)

            if len(self._candidates) > _MOST_CANDIDATES + len(index.exact):
                self._candidates.clear()

            candidates = Candidates(found, self.histories)
            self._candidates[key] = candidates

        return self._choose_among(candidates, matched, session)

    def _choose_of(
        self,
        entries: Sequence[ReplayEntry],
        matched: MatchedRequest,
        session: LiveSession,
    ) -> Chosen:
        """Return the recording that a request gets of some that fit as well as each other."""
        found = self._fitting_headers(entries, matched.traits)
        if isinstance(found, Reason):
            return Chosen(None, entries, found)

        candidates = Candidates(found, self.histories)
        # Lines that are made for one request are not used up.
        return self._choose_among(candidates, matched, session)._replace(line=None)

    def _choose_among(
        self, candidates: Candidates, matched: MatchedRequest, session: LiveSession
    ) -> Chosen:
        """Return the recording that a request gets of candidates, by session and history."""
        if self._groups is not None:
            return self._first_without_memory(candidates, matched, self._groups)

        recorded = self._taken_for(candidates.entries, session)
        if recorded is None:
            return self._among(candidates, matched, session)

        entries = [entry for entry in candidates.entries if entry.session == recorded]
        candidates = Candidates(entries, self.histories)
        chosen = self._among(candidates, matched, session)

        return chosen._replace(recorded=recorded)

    def _fitting_headers(
        self, equal: Sequence[ReplayEntry], traits: Traits
    ) -> Sequence[ReplayEntry] | Reason:
        """Return the recordings whose headers come nearest among some, or why there are none."""
        allowed = self.opened.keep(equal, traits.session)
        if not allowed:
            return Reason.SESSION_UNKNOWN

        if not traits.is_conditional:
            allowed = [entry for entry in allowed if not entry.is_about_a_copy]

        if not allowed:
            return Reason.CONDITION_MISSING

        return self.index.most_alike(allowed, traits)

    def _first_without_memory(
        self, candidates: Candidates, matched: MatchedRequest, groups: StatelessGroups
    ) -> Chosen:
        """Return the first of some equal recordings that fits, its caller's if possible."""
        fitting = candidates.entries
        if matched.secrets:
            fitting = groups.fitting(fitting, matched.secrets)
            if not fitting:
                return Chosen(None, candidates.entries, Reason.ARGUMENTS_DIFFER)

        for entry in fitting:
            if groups.matched(entry).caller == matched.caller:
                return Chosen(entry)

        return Chosen(fitting[0])

    def _taken_for(
        self, entries: Sequence[ReplayEntry], session: LiveSession
    ) -> str | None:
        """Return the recorded session for which a live one has to be taken from now on, or None.

        Clients that begin alike are told apart by what they do later: where the session that was
        taken for this one has no such exchange, one that has what came so far is taken for it.
        """
        here = session.recorded
        if here == NO_SESSION:
            return None

        for entry in entries:
            if entry.session == here:
                return None

        for entry in entries:
            contents = self._recorded.get(entry.session)
            if contents is not None and session.arrived.keys() <= contents:
                return entry.session

        return None

    def _among(
        self, candidates: Candidates, matched: MatchedRequest, session: LiveSession
    ) -> Chosen:
        """Return one of some equal recordings, or why none fits now."""
        left = self._fitting(candidates, matched, session)
        if isinstance(left, Chosen):
            return left

        if len(left) != len(candidates.entries):
            candidates = Candidates(left, self.histories)

        lines = candidates.lines
        chosen = self._next_of(lines, matched.caller, session)
        if chosen is not None:
            return chosen
        if not any(line.point for line in lines):
            return Chosen(None, left, Reason.ALREADY_PLAYED)

        # Whatever came before, what may not be repeated has been played.
        is_over = session.played.keys() >= set(left)
        if not is_over or self._may_repeat(left[-1]):
            return Chosen(None, left, Reason.OTHER_HISTORY)

        free = [EqualCalls(line.caller, None, line.entries, []) for line in lines]
        chosen = self._next_of(free, matched.caller, session)
        if chosen is None:
            return Chosen(None, left, Reason.ALREADY_PLAYED)

        return chosen

    def _fitting(
        self, candidates: Candidates, matched: MatchedRequest, session: LiveSession
    ) -> Sequence[ReplayEntry] | Chosen:
        """Return the recordings that a request can get, whatever was played; or why none."""
        left = candidates.entries
        if matched.secrets:
            left = self._secrets.fitting(left, matched.secrets)
            if not left:
                return Chosen(None, candidates.entries, Reason.ARGUMENTS_DIFFER)

        if self.has_written_elsewhere:
            before = left
            left = [entry for entry in left if not _reads_what_is_written(entry)]
            if not left:
                return Chosen(None, before, Reason.OTHER_HISTORY)

        if candidates.answer_questions:
            before = left
            left = [entry for entry in left if session.was_asked(entry)]
            if not left:
                return Chosen(None, before, Reason.OUT_OF_ORDER)

        return left

    def _next_of(
        self, lines: Sequence[EqualCalls], caller: str, session: LiveSession
    ) -> Chosen | None:
        """Return the first exchange that was not played; or the last one again.

        When all have been played, they begin again with the first one where that is allowed.
        """
        first = self._first_of_all(lines, caller, session)
        if first is not None:
            return first
        if self._repeat is Repeat.ALWAYS:
            return self._least_played(lines, caller, session)

        last = self._last_of(lines, session)
        if last is None:
            return None

        opens = last.opens_session or last.key.method == INITIALIZE
        if opens and self._repeat is Repeat.AUTO:
            return self._least_played(lines, caller, session)
        if not self._may_repeat(last):
            return None

        return Chosen(last)

    def _first_of_all(
        self, lines: Sequence[EqualCalls], caller: str, session: LiveSession
    ) -> Chosen | None:
        """Return the first call of some lines that was not played."""
        best: Chosen | None = None
        best_rank: tuple[bool, tuple[float, ...]] | None = None
        for line in lines:
            # The caller's line comes first, and then the one that arrived first.
            is_of_another = line.caller != caller
            if best_rank is not None and best_rank < (is_of_another, line.arrival):
                continue

            chosen = self._first_of(line, session)
            if chosen is None or chosen.entry is None:
                continue

            rank = (is_of_another, chosen.entry.arrival)
            if best_rank is None or rank < best_rank:
                best = chosen
                best_rank = rank

        return best

    def _least_played(
        self, lines: Sequence[EqualCalls], caller: str, session: LiveSession
    ) -> Chosen | None:
        """Return the call of some lines at their points that was played least often."""

        def rank(entry: ReplayEntry) -> tuple[int, bool, tuple[float, ...]]:
            """Return what of equal counts puts the caller's first, and then the first one."""
            times = session.played.get(entry, 0)
            return times, entry.matched.caller != caller, entry.arrival

        in_place: list[ReplayEntry] = []
        for line in lines:
            in_place += self.histories.in_place(line, session.writes)

        if not in_place:
            return None

        return Chosen(min(in_place, key=rank))

    def _last_of(
        self, lines: Sequence[EqualCalls], session: LiveSession
    ) -> ReplayEntry | None:
        """Return the call of some lines at their points that arrived last."""
        last: ReplayEntry | None = None
        for line in lines:
            latest = self._latest_of(line, session)
            if latest is None:
                continue

            if last is None or latest.arrival > last.arrival:
                last = latest

        return last

    def _latest_of(self, line: EqualCalls, session: LiveSession) -> ReplayEntry | None:
        """Return the call of a line at its point that arrived last."""
        in_place = self.histories.in_place(line, session.writes)
        if line.entries[0].parent is None:
            return next(in_place, None)
        # Retries arrived in another order than their calls began.
        return max(in_place, key=lambda entry: entry.arrival, default=None)

    def _first_of(self, line: EqualCalls, session: LiveSession) -> Chosen | None:
        """Return the first call of a line at its point that was not played."""
        histories = self.histories
        used = session.used.get(line, 0)
        first: ReplayEntry | None = None
        for place in range(used, histories.come(line, session.writes)):
            entry = line.entries[place]
            is_played = session.played.get(entry, 0) > 0
            if is_played or histories.is_over(line, entry, session.writes):
                # It never comes again.
                is_used = is_played or histories.is_over_for_good(
                    line, entry, session.writes
                )
                if place == used and is_used:
                    used += 1

                continue

            if first is None or entry.arrival < first.arrival:
                first = entry

            # Retries arrived in another order than their calls began.
            if entry.parent is None:
                break

        if first is None:
            return None

        return Chosen(first, line=(line, used))

    @property
    def repeats_reads(self) -> bool:
        """Whether what only reads may be played again, and nothing else."""
        return self._repeat is Repeat.AUTO

    def _may_repeat(self, entry: ReplayEntry) -> bool:
        """Tell whether an exchange may be played again when all like it have been played."""
        if self._repeat is Repeat.NEVER:
            return False
        if entry.kind is None or entry.kind is Kind.RESPONSE:
            return entry.matched.request.method in _SAFE_HTTP
        return entry.kind is Kind.NOTIFICATION or self.effects.only_reads(entry.key)

    # Playing

    def take_for(self, session: LiveSession, recorded: str) -> None:
        """Take a live session for another recorded one."""
        session.recorded = recorded
        session.reached = 0

    def played(
        self, entry: ReplayEntry, secrets: tuple[Ref, ...], session: LiveSession
    ) -> LiveSession:
        """Take note that an exchange is played now; return the session that its client is in."""
        self.plays[entry] += 1
        if secrets:
            self._secrets.played(entry, secrets)

        if entry.opens_session:
            # Which client it is shows only from now on.
            session.count(entry)
            session = self._opened_by(entry)
        elif entry in session.played and entry.key.method == INITIALIZE:
            session = LiveSession()
            self._shared = session

        session.count(entry)
        # A task that is over may be polled for ever.
        if entry.created_by is None or session.played[entry] == 1:
            if self.histories.played(entry, session.writes):
                self.strayed[entry.interaction] += 1

        return session

    def unask(self, answer: ReplayEntry, session: LiveSession) -> None:
        """Let the asks before an answer be played again, which stay asked."""
        asked = answer.parent
        while asked is not None:
            if session.played.get(asked):
                session.played[asked] -= 1
                self.histories.taken_back(asked, session.writes)

            asked = asked.parent

        session.used.clear()

    def begin_task(
        self, creating: ReplayEntry, session: LiveSession, now: float | None
    ) -> None:
        """Begin the task that a call creates, if it does."""
        task = self.tasks.created_by.get(creating)
        if task is not None:
            session.begin(self._begun(task, now))

    def step_played(self, step: StepChoice, session: LiveSession) -> None:
        """Take note of the plays of tasks in a session after a request about one of them."""
        session.tasks = dict(step.plays)
        if step.exchanged is None:
            return

        task, branch = step.exchanged
        session.exchange_tasks(task.id, branch.id)
        first = task.creating
        second = branch.creating
        times_of_first = session.played.pop(first, 0)
        times_of_second = session.played.pop(second, 0)
        self.plays[first] += times_of_second - times_of_first
        self.plays[second] += times_of_first - times_of_second
        if times_of_second:
            session.played[first] = times_of_second

        if times_of_first:
            session.played[second] = times_of_first

        session.used.clear()
        self.histories.exchange(first, second, session.writes)


def _reads_what_is_written(entry: ReplayEntry) -> bool:
    """Tell whether a response depends on what was written before."""
    return not entry.is_listening and depends_on_writes(entry.kind, entry.key.method)
