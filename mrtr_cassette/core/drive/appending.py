"""Bringing a live server to where a client of the cassette is, to record what is missing."""
# Source: MCP 2025-11-25, "Session Management".

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import RecordedExchange, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import rejoined
from mrtr_cassette.core.cassette.transports import FIRST_SESSION
from mrtr_cassette.core.compare.conversations import IgnoredFor, ignores_nothing
from mrtr_cassette.core.compare.values import Change, is_below
from mrtr_cassette.core.drive.conversation import (
    AskedOtherwise,
    Conversation,
    Finished,
    LiveAsk,
    has_error,
    outcome,
)
from mrtr_cassette.core.drive.handles import Handles, handles_in, issued_in, sent_in
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    in_session,
    with_body,
    with_values,
)
from mrtr_cassette.core.drive.plan import why_not_repeatable
from mrtr_cassette.core.drive.script import RecordedScript
from mrtr_cassette.core.protocol.calls import Call, CallKey, read_call
from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, InputRequired
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.methods import INITIALIZE, INITIALIZED
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.secrets.names import SESSION, STATE, TASK, has_kind, is_of_kind
from mrtr_cassette.core.secrets.sealed import SHORTEST_SEARCHED
from mrtr_cassette.core.wire.http import (
    SESSION_HEADER,
    Request,
    Response,
    header_value,
    line_request,
)
from mrtr_cassette.core.wire.pointers import Difference


def unrecorded(
    call: Call,
    detail: str,
    asker: ReplayEntry | None = None,
    differences: tuple[Difference, ...] = (),
) -> Miss:
    """Return why a request is not sent on and not recorded."""
    return Miss(call, Reason.UNRECORDED, detail, asker, differences)


class LiveAsks:
    """The unanswered asks without state that a live server has made in this run.

    Their answers could be confused with answers to a recorded ask of the same call, which may have
    asked something else.
    """

    def __init__(self) -> None:
        self._open: dict[CallKey, list[frozenset[str]]] = {}

    def asked(self, call: Call, ask: InputRequired) -> None:
        """Take what a live server asked during a call."""
        if ask.request_state is None:
            self._open.setdefault(call.key(), []).append(frozenset(ask.input_requests))

    def answered_by(self, call: Call) -> bool:
        """Tell whether a request may answer one of them, which is answered then."""
        answers = call.answers
        if answers is None or answers.request_state is not None:
            return False
        key = call.key()
        for keys in self._open.get(key, ()):
            if keys >= set(answers.input_responses or ()):
                self._open[key].remove(keys)
                return True
        return False


class Sessions:
    """The sessions (2025 era) that a cassette opened for clients, and the live ones for them."""

    def __init__(self, new_recorder: Callable[..., Recorder] = Recorder) -> None:
        self._new_recorder = new_recorder
        self._opening: dict[str, list[Request]] = {}
        self._live: dict[str, str] = {}

    def played(self, request: Request, method: str, response: Response | None) -> None:
        """Take a request that was played with a response, as it may have opened a session."""
        if method == INITIALIZE and response is not None:
            headers = request.headers if request.is_line else response.headers
            if session := header_value(headers, SESSION_HEADER):
                self._opening[session] = [request]
        elif method == INITIALIZED:
            self._opening.get(request.header(SESSION_HEADER), []).append(request)

    def opening_for(self, call: Call) -> SessionOpening | Miss | None:
        """Return how a live session is opened for a request; None where it needs none."""
        session = call.request.header(SESSION_HEADER)
        if not is_of_kind(session, SESSION) or session in self._live:
            return None
        if call.request.is_line and (
            session not in self._opening or call.method == INITIALIZE
        ):
            # What the client says to it opens it, or it needs no opening (from 2026-07-28 on).
            self._live[session] = session
            return None
        if session not in self._opening:
            detail = "its session was recorded, and this client has not opened it with `initialize`"
            return unrecorded(call, detail)
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            detail = "it answers what was asked in a recorded stream, and no live server asked it"
            return unrecorded(call, detail)
        opened = ServerSession(self._new_recorder(seals=False))
        return SessionOpening(call, self._opening[session], opened)

    def opened(self, opening: SessionOpening) -> None:
        """Take a live session that has been opened."""
        recorded = opening.call.request.header(SESSION_HEADER)
        # A server on pipes gives no session ids.
        self._live[recorded] = (
            recorded if opening.call.request.is_line else opening.session.id
        )

    def in_live(self, request: Request) -> Request:
        """Return a request in the live session, where it is in a recorded one."""
        live = self._live.get(request.header(SESSION_HEADER))
        return request if live is None else in_session(request, live)


class SessionOpening(Conversation):
    """One session of the cassette, opened again with the live server as the client opened it."""

    def __init__(
        self, call: Call, requests: Sequence[Request], session: ServerSession
    ) -> None:
        first, *self._unsent = requests
        super().__init__(first, None, session)
        self.call = call
        self.failure: Miss | None = None

    def _after(
        self, exchange: RecordedExchange, _response: Message | None
    ) -> Request | None:
        status = 0 if exchange.response is None else exchange.response.status
        is_good = self.call.request.is_line or 200 <= status < 300
        if not is_good or has_error(exchange):
            detail = f"the live server opened no session: {outcome(exchange)}"
            self.failure = unrecorded(self.call, detail)
        return self._unsent.pop(0) if self._unsent and self.failure is None else None


class RecordedAsks:
    """The asks of a cassette that issued a state, by this state."""

    def __init__(
        self, player: Player, new_recorder: Callable[..., Recorder] = Recorder
    ) -> None:
        self._player, self._new_recorder = player, new_recorder
        self._askers: dict[str, list[ReplayEntry]] = {}
        for entry in player.entries:
            ask = entry.exchange.ask
            if ask is not None and ask.request_state is not None:
                self._askers.setdefault(ask.request_state, []).append(entry)

    def replay_for(self, call: Call, shown: Call) -> ReplayToAsk | Miss | None:
        """Return how the server is brought to the ask that a request answers.

        None stands for a request that can be sent as it is: one without state and cursor, or with
        one that no recorded response issued. `shown` is the request as it is matched, and as
        messages may show it.
        """
        state = None if call.answers is None else call.answers.request_state
        if state is None:
            detail = (
                "its cursor is that of a recorded page: record the whole list again"
            )
            return unrecorded(shown, detail) if self._has_issued(call) else None
        # What a client adds to a state goes to the server too, to be refused there.
        within = [
            issued
            for issued in self._askers
            if issued == state or (len(issued) >= SHORTEST_SEARCHED and issued in state)
        ]
        if not within:
            detail = "no ask in this cassette has its request state"
            return unrecorded(shown, detail) if has_kind(state, STATE, TASK) else None
        askers = self._askers[max(within, key=len)]
        key = self._player.key_of(shown)
        asker = next((asker for asker in askers if asker.key == key), None)
        if asker is None:
            return unrecorded(
                shown, "its request state was recorded for another call", askers[0]
            )
        exchanges = tuple([each.exchange for each in _chain(asker)])
        interaction = RecordedInteraction(0, exchanges, None, is_orphan=False)
        reason = why_not_repeatable(interaction)
        if reason is not None:
            return unrecorded(shown, reason, asker)
        recorder = self._new_recorder(seals=True)
        return ReplayToAsk(call, shown, asker, RecordedScript(interaction), recorder)

    def _has_issued(self, call: Call) -> bool:
        """Tell whether a recorded page of the same list issued the cursor of a request."""
        listed = (call.method, call.endpoint)
        return call.cursor is not None and any(
            (each.key.method, each.key.endpoint) == listed
            and each.exchange.next_cursor == call.cursor
            for each in self._player.entries
        )


def _chain(asker: ReplayEntry) -> list[ReplayEntry]:
    chain = [asker]
    while chain[0].parent is not None:
        chain.insert(0, chain[0].parent)
    return chain


class ReplayToAsk(Conversation):
    """One recorded conversation, repeated with the live server up to an ask."""

    def __init__(
        self,
        call: Call,
        shown: Call,
        asker: ReplayEntry,
        script: RecordedScript,
        recorder: Recorder,
    ) -> None:
        session = ServerSession(recorder, call.request.header(SESSION_HEADER))
        super().__init__(call.request, script, session)
        self.asker, self.states, self._shown = asker, script.states, shown

    @property
    def failure(self) -> Miss | None:
        """Why the server can't be brought there, or None."""
        differences: tuple[Difference, ...] = ()
        match self.standing:
            case Finished(turn, exchange):
                detail = f"asks nothing in turn {turn}: {outcome(exchange)}"
            case AskedOtherwise(LiveAsk(turn), changes):
                detail = f"asks something else in turn {turn}"
                differences = tuple(Difference(*change[1:4]) for change in changes)
            case _:
                return None
        asker = _chain(self.asker)[turn - 1]
        return unrecorded(self._shown, f"the live server {detail}", asker, differences)

    def retry(self) -> Request:
        """Return the client's retry with the live state in the place of the recorded one."""
        live, recorded = self.states[-1]
        body = with_values(
            self.request.body,
            [ECHOED_STATE_PATH],
            lambda value: value.replace(recorded, live),
        )
        return with_body(self.request, body)


# Writes


class RepeatedPlay(Conversation):
    """A call that was played, made with the live server too."""

    def __init__(
        self,
        request: Request,
        entry: ReplayEntry,
        interaction: RecordedInteraction,
        recorder: Recorder,
        handles: Handles,
        ignored: Collection[str] = (),
    ) -> None:
        """Take the client's last request of the call, in the live session."""
        self.entry = entry
        self._recorded = RecordedScript(interaction, ignored, handles=handles)
        session = ServerSession(recorder, request.header(SESSION_HEADER))
        super().__init__(request, self._recorded, session, follows_task=True)

    @property
    def left_out(self) -> Sequence[Change]:
        """What differs at ignored places."""
        return self._recorded.left_out

    def divergence(self) -> Diverged | None:
        """Return how the live server made it in another way than was recorded, or None."""
        script, detail = self._recorded, "does not end it as recorded"
        match self.standing:
            case Finished() as last:
                script.finished(last)
                if not script.changes:
                    return None
                detail = "gives it another result"
            case AskedOtherwise(LiveAsk(turn)):
                detail = f"asks something else in turn {turn}"
        differences = tuple(Difference(*change[1:4]) for _, change in script.changes)
        return Diverged(self.entry, f"the live server {detail}", differences)


@dataclass(frozen=True, slots=True)
class Diverged:
    """A played write that the live server has not made as it was recorded."""

    entry: ReplayEntry
    detail: str
    differences: tuple[Difference, ...] = ()

    def refusal(self, shown: Call) -> Miss:
        """Return why a request that may depend on the write is not sent on."""
        detail = (
            f"{self.entry.key} was played before it, and repeated first: {self.detail}"
        )
        return unrecorded(shown, detail, self.entry, self.differences)


_REFUSED: Final = (
    "it answers what was asked during a call that is played as recorded, and any answer but the "
    "recorded one is refused"
)
_FIXED: Final = "it is about the task of a call that is played as recorded"


class Appending:
    """Decides what is played, and brings the live server to where the client is for all else.

    The writes of a run are all made by the live server, in their order, before it gets a request
    that may depend on them. Once the client has made one there, nothing that may depend on it is
    played any more. Where the live server makes a write in another way than was recorded, nothing
    that may depend on it is sent there any more.
    """

    def __init__(
        self,
        player: Player,
        recorder: Recorder,
        asked: LiveAsks,
        new_recorder: Callable[..., Recorder] = Recorder,
        ignored_for: IgnoredFor = ignores_nothing,
    ) -> None:
        self._player, self._recorder, self._asked = player, recorder, asked
        self._new_recorder = new_recorder
        self._ignored_for = ignored_for
        self._sessions = Sessions(new_recorder)
        self._recorded_asks = RecordedAsks(player, new_recorder)
        self._recording = rejoined(player.recording)
        self._unmade = deque[tuple[Request, ReplayEntry]]()
        """The writes that were played, and that the live server has not made so far."""
        self._diverged: Diverged | None = None
        self._handles = Handles(handles_in(player.recording))
        self._issuers: dict[str, tuple[Request, ReplayEntry]] = {}
        """The plays that first had texts which a client may send back, by these."""
        self._said: set[str] = set()
        """Such texts that the client has sent of its own accord."""

    def received(
        self, request: Request, now: float | None = None
    ) -> Play | Call | Miss:
        """Return what is played for a request, or why it gets nothing.

        A call is the request as messages may show it, for which the live server is brought to where
        its client is.
        """
        player, call = self._player, self._recorder.read(self.recorded(request))
        if self._asked.answered_by(call) or self._recorder.has_asked(call):
            return player.shown(request)
        decision = player.request_received(request, now)
        if isinstance(decision, Play):
            self._played(decision)
            return decision
        # What the cassette lacks is no miss of a run that records it.
        player.misses.pop()
        nearest = decision.nearest if isinstance(decision, Miss) else None
        if isinstance(decision, Miss) and decision.is_refused:
            return replace(unrecorded(decision.call, _REFUSED), is_refused=True)
        if nearest is not None and nearest.created_by is not None:
            return unrecorded(decision.call, _FIXED, nearest)
        return decision.call

    def _played(self, play: Play) -> None:
        entry, request = play.entry, play.request
        self._sessions.played(request, entry.key.method, entry.exchange.response)
        self._said |= sent_in(request) - self._issuers.keys()
        for name in issued_in(entry.exchange) - self._said:
            self._issuers.setdefault(name, (request, entry))
        if not self._player.is_write(entry):
            return
        self._unmade.append((request, entry))
        if entry.exchange.number is not None:
            self._recorder.has_played(self.recorded(request), entry.exchange.number)

    def recorded(self, request: Request) -> Request:
        """Return a client's request as it is recorded: on pipes, in the session that is played."""
        if not request.is_line:
            return request
        session = self._player.recorded_session(request)
        return line_request(request.body, "" if session == FIRST_SESSION else session)

    def bring(
        self, request: Request, shown: Call
    ) -> Generator[Conversation, None, Request | Miss]:
        """Yield the conversations that bring the live server to where the client is.

        Returns the request in the live server's terms, or why it is not sent.
        """
        repeated = [name for name in sent_in(request) if name in self._issuers]
        self._handles.expect(repeated)
        failure = (yield from self._write(shown)) if shown.depends_on_writes else None
        if failure is None:
            failure = yield from self._open(shown)
        if failure is not None:
            return failure
        yield from self._read(repeated)
        sent = self._sessions.in_live(request)
        catch_up = self._recorded_asks.replay_for(self._recorder.read(sent), shown)
        if isinstance(catch_up, Miss):
            return catch_up
        if catch_up is not None:
            yield catch_up
            if catch_up.failure is not None:
                return catch_up.failure
            for live, recorded in catch_up.states:
                self._recorder.known.remember(recorded)
                self._recorder.known.remember(live, shown_as=recorded)
            sent = catch_up.retry()
            # Something may have been played meanwhile.
            failure = yield from self._write(shown)
            if failure is not None:
                return failure
        self._player.goes_live(request)
        return self._handles.in_live(sent)

    def _open(self, shown: Call) -> Generator[Conversation, None, Miss | None]:
        """Open the session of a request with the live server, unless that is done."""
        opening = self._sessions.opening_for(shown)
        if not isinstance(opening, SessionOpening):
            return opening
        yield opening
        if opening.failure is None:
            self._sessions.opened(opening)
        return opening.failure

    def _write(self, shown: Call) -> Generator[Conversation, None, Miss | None]:
        """Have the live server make the writes that were played."""
        while self._unmade and self._diverged is None:
            request, entry = self._unmade.popleft()
            interaction = self._recording.interactions[entry.interaction - 1]
            reason = why_not_repeatable(interaction)
            if interaction.exchanges[-1].rpc_response is None:
                reason = reason or "no response to it was recorded"
            if reason is not None:
                self._diverged = Diverged(entry, f"it can't be repeated: {reason}")
                break
            # Unless it is followed to its end, nobody knows whether it has been made.
            self._diverged = Diverged(entry, "the live server gave no whole response")
            failure = yield from self._open(self._player.shown(request))
            if failure is not None:
                return failure
            write = self._repeated(request, entry, interaction)
            yield write
            self._diverged = write.divergence()
            for change in write.left_out:
                self._player.left_out(partial(is_below, change.pointer))
        return None if self._diverged is None else self._diverged.refusal(shown)

    def _read(self, names: Iterable[str]) -> Generator[Conversation, None, None]:
        """Have the live server make up texts that the client had from played reads."""
        for name in names:
            if name not in self._issuers:
                continue
            request, entry = self._issuers.pop(name)
            interaction = self._recording.interactions[entry.interaction - 1]
            is_known = self._handles.is_known(name) or self._player.is_write(entry)
            if not is_known and why_not_repeatable(interaction) is None:
                read = self._repeated(request, entry, interaction)
                yield read
                read.divergence()

    def _repeated(
        self, request: Request, entry: ReplayEntry, interaction: RecordedInteraction
    ) -> RepeatedPlay:
        live = self._handles.in_live(self._sessions.in_live(request))
        recorder = self._new_recorder(seals=True)
        ignored = self._ignored_for(read_call(entry.matched.request))
        return RepeatedPlay(live, entry, interaction, recorder, self._handles, ignored)
