"""Choose the recording that a request gets, by what was played in its session so far.

An exchange is played as often as it was recorded, in the order of the recording, and a retry only
after its ask. Where nothing is remembered (`stateless`), equal recordings are one instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import eq
from typing import NamedTuple

from mrtr_cassette.core.cassette.lookup import CallerValues, LookupKey
from mrtr_cassette.core.cassette.texts import request_with
from mrtr_cassette.core.protocol.calls import NO_SESSION, Traits, depends_on_writes, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import INITIALIZE, INITIALIZED
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.equivalence import EqualRequests
from mrtr_cassette.core.replay.matching import ReplayEntry, is_received
from mrtr_cassette.core.replay.standing import OpenedSessions
from mrtr_cassette.core.replay.tasks import LiveTask
from mrtr_cassette.core.replay.worlds import PlayedWrites, Worlds
from mrtr_cassette.core.secrets.names import Ref, renaming, session_number, session_surrogate
from mrtr_cassette.core.wire.http import Request

_SAFE_HTTP = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_NO_VALUES = CallerValues(None, None)


class Repeat(Enum):
    """Whether an exchange that has been played may be played again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class MatchKey(NamedTuple):
    """Everything by which a request is matched, and the caller's values in it."""

    lookup: LookupKey
    traits: Traits
    caller: str
    values: CallerValues
    secrets: tuple[Ref, ...]


class Chosen(NamedTuple):
    """The recording that a request gets; without one, the nearest ones, and why they don't fit."""

    entry: ReplayEntry | None
    nearest: Sequence[ReplayEntry] = ()
    why_not: Reason | None = None


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
    reached: int = 0
    arrived: dict[int, int] = field(default_factory=dict)
    _answered: dict[int, int] = field(default_factory=dict)
    _values: dict[tuple[int, int], CallerValues] = field(default_factory=dict)

    def count(self, entry: ReplayEntry) -> None:
        """Count an exchange as played, and what it asks as asked."""
        self.played[entry] = self.played.get(entry, 0) + 1
        if entry.question is not None:
            self.asked.add(entry.question)

    def was_asked(self, entry: ReplayEntry) -> bool:
        """Tell whether the ask that an exchange answers has been played, or an equal one."""
        if entry.answers is not None:
            return entry.answers.pending.lookup_number in self.arrived
        if entry.parent is None or not entry.proves_its_ask:
            return True
        return entry.parent.question in self.asked

    def arrive(self, entry: ReplayEntry, values: CallerValues | None = None) -> None:
        """Take note that a request like a recorded one has come, with its caller's values.

        Without values nothing has come, but nothing waits for it any more.
        """
        number = entry.lookup_number
        count = self.arrived[number] = self.arrived.get(number, 0) + 1
        if values is not None and entry.session:
            self._values[number, count] = values
        if entry.kind is Kind.REQUEST:
            if values is not None:
                self.callers[entry] = values
            if entry.session == self.recorded:
                self.reached = max(self.reached, entry.exchange.number or 0)

    def begin(self, task: LiveTask) -> None:
        """Begin a task, anew if its call has been made before."""
        recorded = task.recorded
        self.tasks[recorded.created.id] = task
        for at in recorded.causes:
            self.arrived.pop(recorded.steps[at].lookup_number, None)

    def waive(self, entry: ReplayEntry) -> None:
        """Let nothing wait any more for a request like a recorded one."""
        if not self.has_arrived(entry):
            self.arrive(entry)

    def has_arrived(self, entry: ReplayEntry) -> bool:
        """Tell whether a request like a recorded one has come, as often as it had come by then."""
        return self.arrived.get(entry.lookup_number, 0) >= entry.occurrence

    def answer(self, entry: ReplayEntry) -> None:
        """Take note that a client has the response to a request like a recorded one."""
        number = entry.lookup_number
        self._answered[number] = self._answered.get(number, 0) + 1

    def has_answered(self, entry: ReplayEntry) -> bool:
        """Tell whether a client has the response to a request like a recorded one."""
        return self._answered.get(entry.lookup_number, 0) >= entry.occurrence

    def values_of(self, entry: ReplayEntry) -> CallerValues:
        """Return the values of the live request that stands for a recorded one."""
        return self._values.get((entry.lookup_number, entry.occurrence), _NO_VALUES)

    def in_recorded(self, request: Request) -> Request:
        """Return a request of the session as it would have been recorded."""
        names = {live: recorded for recorded, live in self.known_tasks.items()}
        if self.id not in (NO_SESSION, self.recorded):
            names[self.id] = self.recorded
        if not names:
            return request
        change = renaming(names)
        return request_with(request, lambda raw, _: change(raw))

    def exchange(self, first: str, second: str) -> None:
        """Let the client know two recorded tasks by each other's ids."""
        known = self.known_tasks.get(first, first)
        self.known_tasks[first] = self.known_tasks.get(second, second)
        self.known_tasks[second] = known


class SecretMapping:
    """Maps a client's secrets to recorded placeholders.

    A cassette has no secret, so a secret is first taken for the next recorded one that nobody has
    used, and from then on only for that one.
    """

    def __init__(self) -> None:
        self._received: dict[Ref, Ref] = {}

    def fitting(self, entries: list[ReplayEntry], received: tuple[Ref, ...]) -> list[ReplayEntry]:
        """Return the recorded exchanges whose secrets can be those of a request."""

        def keep(fits: Callable[[Ref, Ref], bool]) -> list[ReplayEntry]:
            return [each for each in entries if all(map(fits, each.secrets, received))]

        if len({each.secrets for each in entries}) > 1:
            same = keep(self._is)
            if same:
                return same
            entries = keep(self._may_be)
        return [each for each in entries if not self._has_been_another(each, received)]

    def _has_been_another(self, entry: ReplayEntry, received: tuple[Ref, ...]) -> bool:
        earlier: set[Ref] = set()
        parent = entry.parent
        while parent is not None:
            earlier.update(parent.secrets)
            parent = parent.parent
        return any(
            self._is(other, secret) and not self._is(recorded, secret)
            for recorded, secret in zip(entry.secrets, received, strict=False)
            for other in earlier
        )

    def played(self, entry: ReplayEntry, received: tuple[Ref, ...]) -> None:
        """Take note of what the secrets of a request were played as."""
        for recorded, secret in zip(entry.secrets, received, strict=False):
            if is_received(secret):
                self._received.setdefault(recorded, secret)

    def _is(self, recorded: Ref, received: Ref) -> bool:
        return received in (recorded, self._received.get(recorded))

    def _may_be(self, recorded: Ref, received: Ref) -> bool:
        is_new = recorded not in self._received and is_received(received)
        return is_new or recorded.kind != received.kind or self._is(recorded, received)


class PlayOrder:
    """Chooses among the recordings that have the key of a request."""

    def __init__(
        self,
        by_arrival: Sequence[ReplayEntry],
        worlds: Worlds,
        repeat: Repeat,
        equal: EqualRequests | None = None,
    ) -> None:
        self._worlds = worlds
        self._repeat = repeat
        self._equal = equal
        self.has_written_elsewhere = False
        """A write of this run was made where nothing is recorded of what it changed."""
        self._secrets = SecretMapping()
        self._by_lookup: dict[LookupKey, list[ReplayEntry]] = {}
        self._exact: dict[tuple[LookupKey, Traits], list[ReplayEntry]] = {}
        self._shared = LiveSession()
        self._by_id: dict[str, LiveSession] = {}
        self._recorded: dict[str, set[int]] = {}
        self._handshakes: dict[str, list[ReplayEntry]] = {}
        for each in by_arrival:
            self._add(each)
        self.opened = OpenedSessions(by_arrival)
        self._last = max(map(session_number, self._recorded), default=0)
        # Each keeps some of the recordings; where one keeps none, that is why there is a miss.
        self._rules: tuple[tuple[Reason, _Rule], ...] = (
            (Reason.ARGUMENTS_DIFFER, self._of_session),
            (Reason.ARGUMENTS_DIFFER, self._with_secrets),
            (Reason.OTHER_HISTORY, self._whatever_was_written),
            (Reason.OUT_OF_ORDER, lambda entries, _, it: [*filter(it.was_asked, entries)]),
            (Reason.OTHER_HISTORY, self._after_the_same_writes),
            (Reason.ALREADY_PLAYED, self._not_used_up),
        )
        if equal is not None:
            self._rules = ((Reason.ARGUMENTS_DIFFER, self._with_secrets),)

    def _add(self, entry: ReplayEntry) -> None:
        session, lookup = entry.session, entry.lookup
        if session:
            self._recorded.setdefault(session, set()).add(entry.lookup_number)
            if entry.key.method == INITIALIZED:
                self._handshakes.setdefault(session, []).append(entry)
        if entry.same is not None or entry.created_by is not None:
            return
        # A state that the client didn't get from the cassette, such as a literal in a test, has the
        # hash of the state that was sent while recording.
        raw_state = entry.exchange.echoed_sha256 or lookup.state
        for each in {lookup, self._known_as(lookup._replace(state=raw_state))}:
            self._by_lookup.setdefault(each, []).append(entry)
            self._exact.setdefault((each, entry.traits), []).append(entry)

    def _known_as(self, lookup: LookupKey) -> LookupKey:
        if self._equal is None or lookup.state is None:
            return lookup
        return lookup._replace(state=self._equal.root(lookup.state))

    def session_of(self, request: Request) -> LiveSession:
        """Return the session in which a client sent a request; a new one without memory."""
        session_id = session_of(request) if self._recorded else NO_SESSION
        if self._equal is not None:
            return LiveSession(self._equal.root(session_id), session_id)
        if session_id in self._recorded and session_id not in self._by_id:
            # A client may know it from an earlier run, and not open it again.
            session = self._by_id[session_id] = LiveSession(session_id, session_id)
            for each in self._handshakes.get(session_id, ()):
                session.arrive(each)
        return self._by_id.get(session_id, self._shared)

    def choose(self, key: MatchKey, session: LiveSession) -> Chosen:
        """Return the recording that a request gets in a session, or why there is none."""
        lookup = self._known_as(key.lookup)
        if lookup not in self._by_lookup:
            return Chosen(None)
        # Where all that headers say is equal, so is the session.
        left = self._exact.get((lookup, key.traits), [])
        if not left:
            equal = self._by_lookup[lookup]
            allowed = self.opened.keep(equal, key.traits.session)
            if not allowed:
                return Chosen(None, equal, Reason.SESSION_UNKNOWN)
            if not key.traits.is_conditional:
                allowed = [entry for entry in allowed if not entry.is_about_a_copy]
            if not allowed:
                return Chosen(None, equal, Reason.CONDITION_MISSING)
            left = _most_alike(allowed, key.traits)
        for reason, rule in self._rules:
            kept = rule(left, key, session)
            if not kept:
                return Chosen(None, left, reason)
            left = kept
        same = [each for each in left if each.caller == key.caller]
        return Chosen((same or left)[0])

    def _of_session(
        self, entries: list[ReplayEntry], _key: MatchKey, session: LiveSession
    ) -> list[ReplayEntry]:
        """Keep the exchanges of the recorded session that is played in a live one, if it has any.

        Clients that begin alike are told apart by what they do later: where the session that was
        taken for this one has no such exchange, one that has what came so far is taken for it.
        """
        here = session.recorded
        if here == NO_SESSION or any(each.session == here for each in entries):
            return entries
        for each in entries:
            contents = self._recorded.get(each.session)
            if contents is not None and session.arrived.keys() <= contents:
                session.recorded, session.reached = each.session, 0
                return [other for other in entries if other.session == each.session]
        return entries

    def _with_secrets(
        self, entries: list[ReplayEntry], key: MatchKey, _session: LiveSession
    ) -> list[ReplayEntry]:
        """Keep the exchanges whose secrets can be those of a request."""
        if not key.secrets:
            return entries

        def takes(recorded: Ref, received: Ref) -> bool:
            # A placeholder that the client was given may stand where another rule found the secret.
            return recorded.kind == received.kind or not is_received(received)

        taking = [each for each in entries if all(map(takes, each.secrets, key.secrets))]
        return (self._equal or self._secrets).fitting(taking, key.secrets)

    def _whatever_was_written(
        self, entries: list[ReplayEntry], _key: MatchKey, _session: LiveSession
    ) -> list[ReplayEntry]:
        """Keep what depends on no write, once one was made elsewhere."""
        if not self.has_written_elsewhere:
            return entries
        kept = []
        for entry in entries:
            if entry.is_listening or not depends_on_writes(entry.kind, entry.key.method):
                kept.append(entry)
        return kept

    def _after_the_same_writes(
        self, entries: list[ReplayEntry], _key: MatchKey, session: LiveSession
    ) -> list[ReplayEntry]:
        if not self._worlds.holds_any:
            return entries
        kept = self._worlds.keep(entries, session.writes)
        if kept and self._not_used_up(kept, _key, session):
            return kept
        # Whatever came before, what may not be repeated has been played.
        is_over = all(each in session.played for each in entries)
        return entries if is_over and not self._may_repeat(entries[-1]) else []

    def _not_used_up(
        self, entries: list[ReplayEntry], _key: MatchKey, session: LiveSession
    ) -> list[ReplayEntry]:
        """Keep the exchanges that have been played less often than others; or the last one again.

        The first one is played again, when all like it have been played, where that is allowed.
        """
        last, times = entries[-1], [session.played.get(each, 0) for each in entries]
        opens = last.opens_session or last.key.method == INITIALIZE
        begins_again = self._repeat is Repeat.ALWAYS or (opens and self._repeat is Repeat.AUTO)
        most = min(times) if begins_again else 0
        left = [each for each, count in zip(entries, times, strict=True) if count <= most]
        return left or ([last] if self._may_repeat(last) else [])

    @property
    def repeats_reads(self) -> bool:
        """Whether what only reads may be played again, and nothing else."""
        return self._repeat is Repeat.AUTO

    def _may_repeat(self, entry: ReplayEntry) -> bool:
        if self._repeat is Repeat.NEVER:
            return False
        if entry.kind is None or entry.kind is Kind.RESPONSE:
            return entry.request.method in _SAFE_HTTP
        return entry.kind is Kind.NOTIFICATION or self._worlds.only_reads(entry.key)

    def played(
        self, chosen: ReplayEntry, secrets: tuple[Ref, ...], session: LiveSession
    ) -> LiveSession:
        """Take note that an exchange is played now; return the session that its client is in."""
        chosen.played += 1
        if secrets:
            self._secrets.played(chosen, secrets)
        if chosen.opens_session:
            # Which client it is shows only from now on.
            session.count(chosen)
            session = self._opened_by(chosen)
        elif chosen in session.played and chosen.key.method == INITIALIZE:
            session = self._shared = LiveSession()
        session.count(chosen)
        # A task that is over may be polled for ever.
        if chosen.created_by is None or session.played[chosen] == 1:
            self._worlds.played(chosen, session.writes)
        return session

    def exchange(self, first: ReplayEntry, second: ReplayEntry, session: LiveSession) -> None:
        """Take a call that was played as one equal call for another."""
        counts = session.played
        times = counts.get(first, 0)
        times_of_second = counts.get(second, 0)
        first.played += times_of_second - times
        second.played += times - times_of_second
        for entry, count in ((first, times_of_second), (second, times)):
            counts.pop(entry, None)
            if count:
                counts[entry] = count
        self._worlds.exchange(first, second, session.writes)

    def _opened_by(self, opening: ReplayEntry) -> LiveSession:
        recorded = session_id = opening.session
        if recorded in self._by_id:
            self._last += 1
            session_id = session_surrogate(self._last)
        session = LiveSession(recorded, session_id)
        # HTTP+SSE: a stream opens the session, and posts get no responses of their own.
        session.unrecorded = deque() if opening.is_listening else None
        if self._equal is None:
            self._by_id[session_id] = session
        return session


_Rule = Callable[[list[ReplayEntry], MatchKey, LiveSession], list[ReplayEntry]]


def _most_alike(entries: Sequence[ReplayEntry], traits: Traits) -> list[ReplayEntry]:
    """Return the exchanges whose traits come nearest, in recorded order.

    Recordings with other traits are never a substitute, even when these are used up: the same body
    may have been refused for its headers. So of recordings that are equally near, a refusal is for
    those who send what was refused.
    """
    scores = [list(map(eq, entry.traits, traits)) for entry in entries]
    best = max(scores)
    nearest = [entry for entry, score in zip(entries, scores, strict=True) if score == best]
    if len({entry.traits for entry in nearest}) > 1:
        granted = {entry.traits for entry in nearest if not entry.is_refused}
        return [entry for entry in nearest if entry.traits in granted] or nearest
    return nearest
