"""The sessions of one replay: what each client was given, and what it has sent.

Rule: two sessions never touch each other. A session that is opened again begins anew, with an id
of its own.
Source: MCP 2025-11-25, "Session Management".
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.exchange.sessions import NO_SESSION, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.playable import Playable, Question
from mrtr_cassette.core.secrets.surrogates import SESSION_SURROGATE, session_surrogate
from mrtr_cassette.core.wire.http import Headers, Request


@dataclass(slots=True, eq=False)
class LiveSession:
    """One session of a replay.

    Attributes:
        recorded: id of the recorded session that is played in it; empty for clients without one.
        id: the id that the client has for it.
        played: how often each exchange has been played in it.
        asked: what has been asked in it without a state.
        sent: how many parts of each listening stream its client has had.
        callers: with which values each call came whose response is a stream.
        refused: for each call, the wrong answer to what the server asked meanwhile.
        unrecorded: events for its client that were not recorded, of a session whose responses all
            come on one stream; None for any other session.
        reached: number of the latest request of the recorded session that has come, notifications
            and answers aside.
    """

    recorded: str
    id: str
    played: dict[Playable, int] = field(default_factory=dict)
    asked: set[Question] = field(default_factory=set)
    sent: dict[Playable, int] = field(default_factory=dict)
    callers: dict[Playable, CallerValues] = field(default_factory=dict)
    refused: dict[Playable, Miss] = field(default_factory=dict)
    unrecorded: deque[bytes] | None = None
    reached: int = 0
    _arrived: dict[int, int] = field(default_factory=dict)
    _values: dict[tuple[int, int], CallerValues] = field(default_factory=dict)

    def count(self, playable: Playable) -> None:
        """Count an exchange as played, and what it asks as asked."""
        self.played[playable] = self.played.get(playable, 0) + 1
        if playable.question is not None:
            self.asked.add(playable.question)

    def was_asked(self, playable: Playable) -> bool:
        """Tell whether the ask that an exchange answers has been played, or one just like it."""
        if playable.answers is not None:
            return playable.answers.pending.lookup_number in self._arrived
        parent = playable.parent
        return parent is None or parent in self.played or parent.question in self.asked

    def arrive(self, playable: Playable, values: CallerValues | None = None) -> None:
        """Take note that a request like a recorded one has come, with its caller's values."""
        number = playable.lookup_number
        count = self._arrived.get(number, 0) + 1
        self._arrived[number] = count
        if values is not None:
            self._values[number, count] = values
        if playable.kind is Kind.REQUEST and playable.session == self.recorded:
            self.reached = max(self.reached, playable.exchange.number or 0)

    def waive(self, playable: Playable) -> None:
        """Let nothing wait any more for a request like a recorded one."""
        if not self.has_arrived(playable):
            self.arrive(playable)

    def has_arrived(self, playable: Playable) -> bool:
        """Tell whether a request like a recorded one has come, as often as it had come by then."""
        return self._arrived.get(playable.lookup_number, 0) >= playable.occurrence

    def could_be(self, contents: Collection[int]) -> bool:
        """Tell whether all that has come so far is in a recorded session, by its lookup numbers."""
        return all(number in contents for number in self._arrived)

    def values_of(self, playable: Playable) -> CallerValues:
        """Return the values of the live request that stands for a recorded one."""
        return self._values.get(
            (playable.lookup_number, playable.occurrence), CallerValues(None, None)
        )

    def spelled(self, raw: bytes, recorded: str) -> bytes:
        """Return recorded bytes with the client's own session id in the place of a recorded one."""
        return _with_id(raw, recorded, self.id)

    def spelled_headers(self, headers: Headers, recorded: str) -> Headers:
        """Return recorded headers with the client's own session id."""
        return _headers_with_id(headers, recorded, self.id)

    def in_recorded(self, request: Request) -> Request:
        """Return a request of the session as it would have been recorded."""
        if self.recorded == self.id:
            return request
        return Request(
            request.method,
            _text_with_id(request.target, self.id, self.recorded),
            _headers_with_id(request.headers, self.id, self.recorded),
            _with_id(request.body, self.id, self.recorded),
        )


def _with_id(raw: bytes, old: str, new: str) -> bytes:
    """Return bytes with another session id in the place of one, as it stands there or in a URL."""
    if old in (NO_SESSION, new):
        return raw
    for colon in (b":", b"%3A"):
        before, after = (each.encode().replace(b":", colon) for each in (old, new))
        # The id of session 1 begins that of session 12.
        raw = re.sub(re.escape(before) + rb"(?![0-9])", after, raw)
    return raw


def _text_with_id(text: str, old: str, new: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return _with_id(raw, old, new).decode("utf-8", "surrogateescape")


def _headers_with_id(headers: Headers, old: str, new: str) -> Headers:
    if old in (NO_SESSION, new):
        return headers
    return tuple((name, _text_with_id(value, old, new)) for name, value in headers)


class LiveSessions:
    """All sessions of one replay.

    Attributes:
        shared: the session of clients that have none.
    """

    def __init__(self, playables: Iterable[Playable]) -> None:
        """Begin with none open; `playables` are all of the cassette."""
        self.shared = LiveSession(NO_SESSION, NO_SESSION)
        self._recorded: dict[str, set[int]] = {}
        self._handshakes: dict[str, list[Playable]] = {}
        self._by_id: dict[str, LiveSession] = {}
        for each in playables:
            if each.session != NO_SESSION:
                self._recorded.setdefault(each.session, set()).add(each.lookup_number)
                if each.key.method == "notifications/initialized":
                    self._handshakes.setdefault(each.session, []).append(each)
        numbers = [
            int(match[1]) for each in self._recorded if (match := SESSION_SURROGATE.fullmatch(each))
        ]
        self._last = max(numbers, default=0)

    def of(self, request: Request) -> LiveSession:
        """Return the session in which a client sent a request."""
        if not self._recorded:
            return self.shared
        session_id = session_of(request)
        session = self._by_id.get(session_id)
        if session is not None:
            return session
        if session_id not in self._recorded:
            return self.shared
        # A client may know the id of a recorded session from an earlier run, and not open it again.
        session = self._begin(session_id, session_id)
        for each in self._handshakes.get(session_id, ()):
            session.arrive(each)
        return session

    def open(self, opening: Playable) -> LiveSession:
        """Begin a session for a client that was given a recorded one."""
        recorded = session_id = opening.session
        if recorded in self._by_id:
            self._last += 1
            session_id = session_surrogate(self._last)
        session = self._begin(recorded, session_id)
        # HTTP+SSE: a stream opens the session, and posts get no responses of their own.
        session.unrecorded = deque() if opening.is_listening else None
        return session

    def fitting(self, session: LiveSession, candidates: list[Playable]) -> list[Playable]:
        """Return those of several exchanges that are of the recorded session played in a live one.

        Clients that begin alike are told apart by what they do later: where the session that was
        taken for this one has no such exchange, one that has what came so far is taken for it.
        """
        if session.recorded == NO_SESSION:
            return candidates
        if any(each.session == session.recorded for each in candidates):
            return candidates
        for each in candidates:
            contents = self._recorded.get(each.session)
            if contents is not None and session.could_be(contents):
                session.recorded, session.reached = each.session, 0
                return [other for other in candidates if other.session == each.session]
        return candidates

    def _begin(self, recorded: str, session_id: str) -> LiveSession:
        session = LiveSession(recorded, session_id)
        self._by_id[session_id] = session
        return session

    def begin_anew(self) -> LiveSession:
        """Let the clients without a session begin anew."""
        self.shared = LiveSession(NO_SESSION, NO_SESSION)
        return self.shared
