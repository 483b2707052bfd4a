"""Which of several equal recordings a request gets, by what was played in its session so far.

An exchange is played as often as it was recorded, in the order of the recording, and a retry only
after its ask. Where nothing is remembered (`stateless`), equal recordings are one instead.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from itertools import starmap

from mrtr_cassette.core.cassette.lookup import CallerValues, LookupKey
from mrtr_cassette.core.protocol.calls import NO_SESSION, Traits, is_read_only, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.equivalence import ResponseClasses
from mrtr_cassette.core.replay.matching import (
    IssuedTokens,
    MatchedForm,
    Question,
    ReplayEntry,
    Secret,
    by_any_rule,
    has_placeholders,
)
from mrtr_cassette.core.secrets.sealed import SESSION_SURROGATE, session_surrogate
from mrtr_cassette.core.wire.http import Headers, Request

_SAFE_HTTP = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_NO_VALUES = CallerValues(None, None)


class Repeat(Enum):
    """Whether an exchange that has been played may be played again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Candidates:
    """Recorded exchanges of one lookup key, in recorded order, by traits."""

    def __init__(self) -> None:
        self._by_traits: dict[Traits, list[ReplayEntry]] = {}
        self._secrets: set[tuple[Secret, ...]] = set()

    @property
    def has_several_secrets(self) -> bool:
        """Whether the requests are told apart by the secrets in them."""
        return len(self._secrets) > 1

    def add(self, entry: ReplayEntry) -> None:
        """Add an exchange, after all whose requests arrived earlier."""
        self._secrets.add(entry.secrets)
        self._by_traits.setdefault(entry.traits, []).append(entry)

    def nearest(self, traits: Traits) -> list[ReplayEntry]:
        """Return the exchanges whose traits come nearest, in recorded order.

        Recordings with other traits are never a substitute, even when these are used up: the same
        body may have been refused for its headers.
        """
        exact = self._by_traits.get(traits)
        if exact is not None:
            return exact
        scored = [
            (tuple(one == other for one, other in zip(known, traits, strict=True)), entries)
            for known, entries in self._by_traits.items()
        ]
        best = max(score for score, _ in scored)
        nearest = [entry for score, entries in scored if score == best for entry in entries]
        return sorted(nearest, key=lambda entry: entry.arrival)


@dataclass(slots=True, eq=False)
class LiveSession:
    """One session of a replay: what its client was sent, and what it has sent.

    Attributes:
        recorded: id of the recorded session that is played in it; empty for clients without one.
        asked: what has been asked in it without a state.
        sent: how many parts of each listening stream its client has had.
        refused: for each call, the wrong answer to what the server asked meanwhile.
        unrecorded: events for its client that were not recorded, of a session whose responses all
            come on one stream; None for any other session.
        reached: number of the latest recorded request that has come, but notifications and answers.
    """

    recorded: str = NO_SESSION
    id: str = NO_SESSION
    remembers: bool = True
    played: dict[ReplayEntry, int] = field(default_factory=dict)
    asked: set[Question] = field(default_factory=set)
    sent: dict[ReplayEntry, int] = field(default_factory=dict)
    callers: dict[ReplayEntry, CallerValues] = field(default_factory=dict)
    refused: dict[ReplayEntry, Miss] = field(default_factory=dict)
    unrecorded: deque[bytes] | None = None
    reached: int = 0
    _arrived: dict[int, int] = field(default_factory=dict)
    _values: dict[tuple[int, int], CallerValues] = field(default_factory=dict)

    def count(self, entry: ReplayEntry) -> None:
        """Count an exchange as played, and what it asks as asked."""
        if self.remembers:
            self.played[entry] = self.played.get(entry, 0) + 1
            if entry.question is not None:
                self.asked.add(entry.question)

    def was_asked(self, entry: ReplayEntry) -> bool:
        """Tell whether the ask that an exchange answers has been played, or an equal one."""
        if not self.remembers:
            return True
        if entry.answers is not None:
            return entry.answers.pending.lookup_number in self._arrived
        parent = entry.parent
        return parent is None or parent in self.played or parent.question in self.asked

    def arrive(self, entry: ReplayEntry, values: CallerValues | None = None) -> None:
        """Take note that a request like a recorded one has come, with its caller's values.

        Without values nothing has come, but nothing waits for it any more.
        """
        if not self.remembers:
            return
        number = entry.lookup_number
        count = self._arrived[number] = self._arrived.get(number, 0) + 1
        if values is not None and entry.session:
            self._values[number, count] = values
        if entry.kind is Kind.REQUEST:
            if values is not None:
                self.callers[entry] = values
            if entry.session == self.recorded:
                self.reached = max(self.reached, entry.exchange.number or 0)

    def waive(self, entry: ReplayEntry) -> None:
        """Let nothing wait any more for a request like a recorded one."""
        if not self.has_arrived(entry):
            self.arrive(entry)

    def has_arrived(self, entry: ReplayEntry) -> bool:
        """Tell whether a request like a recorded one has come, as often as it had come by then."""
        return self._arrived.get(entry.lookup_number, 0) >= entry.occurrence

    def could_be(self, contents: AbstractSet[int]) -> bool:
        """Tell whether all that has come so far is in a recorded session, by its lookup numbers."""
        return self._arrived.keys() <= contents

    def values_of(self, entry: ReplayEntry) -> CallerValues:
        """Return the values of the live request that stands for a recorded one."""
        return self._values.get((entry.lookup_number, entry.occurrence), _NO_VALUES)

    def spelled(self, raw: bytes, recorded: str) -> bytes:
        """Return recorded bytes with the client's own session id in the place of a recorded one."""
        return raw if recorded in (NO_SESSION, self.id) else _with_id(raw, recorded, self.id)

    def spelled_headers(self, headers: Headers, recorded: str) -> Headers:
        """Return recorded headers with the client's own session id."""
        is_own = recorded in (NO_SESSION, self.id)
        return headers if is_own else _headers_with_id(headers, recorded, self.id)

    def in_recorded(self, request: Request) -> Request:
        """Return a request of the session as it would have been recorded."""
        if self.id in (NO_SESSION, self.recorded):
            return request
        (_, target), *headers = _headers_with_id(
            (("", request.target), *request.headers), self.id, self.recorded
        )
        body = _with_id(request.body, self.id, self.recorded)
        return Request(request.method, target, tuple(headers), body)


def _with_id(raw: bytes, old: str, new: str) -> bytes:
    for colon in (b":", b"%3A"):
        before, after = (each.encode().replace(b":", colon) for each in (old, new))
        # The id of session 1 begins that of session 12.
        raw = re.sub(re.escape(before) + rb"(?![0-9])", after, raw)
    return raw


def _headers_with_id(headers: Headers, old: str, new: str) -> Headers:
    spelled = [
        (name, _with_id(value.encode("utf-8", "surrogateescape"), old, new))
        for name, value in headers
    ]
    return tuple([(name, raw.decode("utf-8", "surrogateescape")) for name, raw in spelled])


class SecretMapping:
    """Maps a client's secrets to recorded placeholders.

    A cassette has no secret, so a secret is first taken for the next recorded one that nobody has
    used, and from then on only for that one.
    """

    def __init__(self) -> None:
        self._received: dict[Secret, Secret] = {}

    def fitting(
        self, entries: list[ReplayEntry], received: tuple[Secret, ...], *, several: bool
    ) -> list[ReplayEntry]:
        """Return the recorded exchanges whose secrets can be those of a request.

        They are equal but for their secrets, of which there may be `several`.
        """
        if several:
            same = [each for each in entries if all(starmap(self._is, each.paired(received)))]
            if same:
                return same
            entries = [
                each for each in entries if all(starmap(self._may_be, each.paired(received)))
            ]
        return [each for each in entries if not self._has_been_another(each, received)]

    def _has_been_another(self, entry: ReplayEntry, received: tuple[Secret, ...]) -> bool:
        earlier: set[Secret] = set()
        parent = entry.parent
        while parent is not None:
            earlier.update(parent.secrets)
            parent = parent.parent
        return any(
            self._is(other, secret)
            for recorded, secret in zip(entry.secrets, received, strict=False)
            if not self._is(recorded, secret)
            for other in earlier
            if other.rule == recorded.rule and other != recorded
        )

    def played(self, entry: ReplayEntry, received: tuple[Secret, ...]) -> None:
        """Take note of what the secrets of a request were played as."""
        for recorded, secret in entry.paired(received):
            if secret.is_received:
                self._received.setdefault(recorded, secret)

    def _is(self, recorded: Secret, received: Secret) -> bool:
        return received in (recorded, self._received.get(recorded))

    def _may_be(self, recorded: Secret, received: Secret) -> bool:
        is_new = recorded not in self._received and received.is_received
        return is_new or self._is(recorded, received)


class PlayOrder:
    """Finds the recordings that a request may get, and decides which of them it gets."""

    def __init__(
        self,
        by_arrival: Sequence[ReplayEntry],
        matched: MatchedForm,
        issued: IssuedTokens,
        repeat: Repeat,
        classes: ResponseClasses | None = None,
    ) -> None:
        self._has_placeholders = matched.has_placeholders
        self._issued = issued
        self._repeat = repeat
        self._classes = classes
        self._secrets = SecretMapping()
        self._by_lookup: dict[LookupKey, Candidates] = {}
        self._by_any_rule: dict[LookupKey, Candidates] = {}
        self._shared = LiveSession(remembers=classes is None)
        self._by_id: dict[str, LiveSession] = {}
        self._recorded: dict[str, set[int]] = {}
        self._handshakes: dict[str, list[ReplayEntry]] = {}
        for each in by_arrival:
            self._add(each)
        numbers = [
            int(match[1]) for match in map(SESSION_SURROGATE.fullmatch, self._recorded) if match
        ]
        self._last = max(numbers, default=0)

    def _add(self, entry: ReplayEntry) -> None:
        session, lookup = entry.session, entry.lookup
        if session:
            self._recorded.setdefault(session, set()).add(entry.lookup_number)
            if entry.key.method == "notifications/initialized":
                self._handshakes.setdefault(session, []).append(entry)
            if self._classes is not None:
                root = self._classes.root(session)
                self._by_id[session] = LiveSession(root, session, remembers=False)
        if entry.same is not None:
            return
        self._add_under(lookup, entry)
        # A state that the client didn't get from the cassette, such as a literal in a test, has the
        # hash of the state that was sent while recording.
        raw_state = entry.exchange.echoed_sha256
        if raw_state is not None and raw_state != lookup.state:
            self._add_under(self._known_as(lookup._replace(state=raw_state)), entry)

    def _add_under(self, lookup: LookupKey, entry: ReplayEntry) -> None:
        self._by_lookup.setdefault(lookup, Candidates()).add(entry)
        general = by_any_rule(lookup) if self._has_placeholders else lookup
        if general != lookup:
            self._by_any_rule.setdefault(general, Candidates()).add(entry)

    def _known_as(self, lookup: LookupKey) -> LookupKey:
        if self._classes is None or lookup.state is None:
            return lookup
        return lookup._replace(state=self._classes.root(lookup.state))

    def candidates(self, lookup: LookupKey, received: Request) -> Candidates | None:
        """Return the recordings that have the lookup key of a request, or None."""
        if self._classes is not None:
            lookup = self._known_as(lookup)
        found = self._by_lookup.get(lookup)
        # A client that was given a placeholder may send it where another rule found the secret
        # while recording; a secret that it knows by itself is found by the same rule.
        if found is None and self._has_placeholders and has_placeholders(received):
            return self._by_any_rule.get(by_any_rule(lookup))
        return found

    def session_of(self, request: Request) -> LiveSession:
        """Return the session in which a client sent a request."""
        if not self._recorded:
            return self._shared
        session_id = session_of(request)
        session = self._by_id.get(session_id)
        if session is not None:
            return session
        if session_id not in self._recorded:
            return self._shared
        # A client may know the id of a recorded session from an earlier run, and not open it again.
        session = self._by_id[session_id] = LiveSession(session_id, session_id)
        for each in self._handshakes.get(session_id, ()):
            session.arrive(each)
        return session

    def of_session(self, session: LiveSession, nearest: list[ReplayEntry]) -> list[ReplayEntry]:
        """Return those of several exchanges that are of the recorded session played in a live one.

        Clients that begin alike are told apart by what they do later: where the session that was
        taken for this one has no such exchange, one that has what came so far is taken for it.
        """
        if session.recorded == NO_SESSION or not session.remembers:
            return nearest
        if any(each.session == session.recorded for each in nearest):
            return nearest
        for each in nearest:
            contents = self._recorded.get(each.session)
            if contents is not None and session.could_be(contents):
                session.recorded, session.reached = each.session, 0
                return [other for other in nearest if other.session == each.session]
        return nearest

    def fitting(
        self, nearest: list[ReplayEntry], secrets: tuple[Secret, ...], candidates: Candidates
    ) -> list[ReplayEntry]:
        """Return the exchanges whose secrets can be those of a request."""
        if self._classes is not None:
            return self._classes.fitting(nearest, secrets)
        return self._secrets.fitting(nearest, secrets, several=candidates.has_several_secrets)

    def choose(
        self, fitting: Sequence[ReplayEntry], caller: str, session: LiveSession
    ) -> ReplayEntry | None:
        """Return which of several equal exchanges is played to a caller, or None."""
        reachable = [each for each in fitting if session.was_asked(each)]
        if not reachable:
            return None
        played, last, rounds = session.played, reachable[-1], 0
        begins_again = self._repeat is Repeat.ALWAYS
        if self._repeat is Repeat.AUTO:
            begins_again = last.opens_session or last.key.method == "initialize"
        # The first one is played again when all like it have been played.
        if begins_again:
            rounds = min(played.get(each, 0) for each in reachable)
        first = None
        for each in reachable:
            if played.get(each, 0) <= rounds:
                if each.caller == caller:
                    return each
                first = first or each
        return first or (last if self._may_repeat(last) else None)

    def _may_repeat(self, entry: ReplayEntry) -> bool:
        if self._repeat is Repeat.NEVER:
            return False
        if entry.kind is None or entry.kind is Kind.RESPONSE:
            return entry.request.method in _SAFE_HTTP
        return entry.kind is Kind.NOTIFICATION or is_read_only(entry.key.method)

    def played(
        self, chosen: ReplayEntry, secrets: tuple[Secret, ...], session: LiveSession
    ) -> LiveSession:
        """Take note that an exchange is played now; return the session that its client is in."""
        chosen.played += 1
        if secrets:
            self._secrets.played(chosen, secrets)
        if chosen.played == 1 and chosen.exchange.response is not None:
            self._issued.played(chosen.exchange.response)
        if chosen.opens_session:
            # Which client it is shows only from now on.
            session.count(chosen)
            session = self._opened(chosen)
        elif chosen in session.played and chosen.key.method == "initialize":
            session = self._shared = LiveSession()
        session.count(chosen)
        return session

    def _opened(self, opening: ReplayEntry) -> LiveSession:
        recorded = session_id = opening.session
        if self._classes is not None:
            return self._by_id[recorded]
        if recorded in self._by_id:
            self._last += 1
            session_id = session_surrogate(self._last)
        session = self._by_id[session_id] = LiveSession(recorded, session_id)
        # HTTP+SSE: a stream opens the session, and posts get no responses of their own.
        session.unrecorded = deque() if opening.is_listening else None
        return session
