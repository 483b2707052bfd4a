"""Bring a live server to where a client of the cassette is, to record what is missing."""
# Source: MCP 2025-11-25, "Session Management".

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import RecordedExchange, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import (
    LiveStreams,
    cassette_with_joined_streams,
)
from mrtr_cassette.core.cassette.transports import FIRST_SESSION
from mrtr_cassette.core.compare.conversations import IgnoredFor
from mrtr_cassette.core.compare.handles import (
    Handles,
    handles_in,
    handles_issued_in,
    handles_sent_in,
)
from mrtr_cassette.core.compare.values import Change, is_below
from mrtr_cassette.core.drive.conversation import (
    AskedOtherwise,
    Conversation,
    FinishedCall,
    LiveAsk,
    has_error,
    response_in_words,
)
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    with_body,
    with_session_header,
    with_texts_replaced_at,
)
from mrtr_cassette.core.drive.plan import why_not_repeatable
from mrtr_cassette.core.drive.script import RecordedScript, without_turn_numbers
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.methods import INITIALIZE, INITIALIZED
from mrtr_cassette.core.record.linking import LiveAsks
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.names import ISSUED, SESSION, has_kind, is_name_of_kind
from mrtr_cassette.core.secrets.sealed import SHORTEST_SEARCHED
from mrtr_cassette.core.wire.http import (
    SESSION_HEADER,
    Request,
    Response,
    header_value,
    line_request,
)
from mrtr_cassette.core.wire.pointers import Difference

NewSealer = Callable[..., ExchangeSealer]
"""Returns a recorder for a conversation of our own; takes its options as `Recorder` does."""

Conversations = Generator[Conversation, None, Miss | None]
"""Conversations to be followed one after another; returns why they lead nowhere, or None."""

_CURSOR_RECORDED: Final = (
    "its cursor belongs to a recorded page: record the whole list again"
)
_NO_ASK_HAS_STATE: Final = "no ask in this cassette has its request state"
_STATE_OF_OTHER_CALL: Final = "its request state was recorded for another call"
_SESSION_NOT_OPENED: Final = (
    "its session was recorded, and this client has not opened it with `initialize`"
)
_ANSWERS_RECORDED_STREAM: Final = (
    "it answers a question of a recorded stream, which no live server asked"
)
_OTHER_ANSWER_REFUSED: Final = (
    "it answers what was asked during a call that is played as recorded, and any answer but the "
    "recorded one is refused"
)
_ABOUT_PLAYED_CALL: Final = "it is about the task of a call that is played as recorded"


def unrecorded_miss(
    call: Call,
    detail: str,
    nearest: ReplayEntry | None = None,
    differences: tuple[Difference, ...] = (),
) -> Miss:
    """Return why a request is not sent on and not recorded."""
    return Miss(call, Reason.UNRECORDED, detail, nearest, differences)


def _differences_without_verdicts(changes: Iterable[Change]) -> tuple[Difference, ...]:
    """Return changes as a miss has them, without their verdicts."""
    differences = []
    for change in changes:
        differences.append(Difference(change.pointer, change.recorded, change.received))

    return tuple(differences)


# Sessions


class Sessions:
    """The sessions (2025 era) that a cassette opened for clients, and the live ones for them."""

    def __init__(self, new_sealer: NewSealer) -> None:
        self._new_sealer = new_sealer
        self._opening_requests: dict[str, list[Request]] = {}
        """The requests with which the client opened each recorded session."""
        self._live_session_ids: dict[str, str] = {}
        """The ids of live sessions by those of the recorded ones."""

    def note_play(
        self, request: Request, method: str, response: Response | None
    ) -> None:
        """Take a request that was played with a response, as it may have opened a session."""
        if method == INITIALIZE and response is not None:
            headers = request.headers if request.is_line else response.headers
            session = header_value(headers, SESSION_HEADER)
            if session:
                self._opening_requests[session] = [request]
        elif method == INITIALIZED:
            session = request.header(SESSION_HEADER)
            if session in self._opening_requests:
                self._opening_requests[session].append(request)

    def open_live_session(self, call: Call) -> Conversations:
        """Open the session of a request with the live server, unless that is done."""
        opening = self.opening_of_live_session(call)
        if not isinstance(opening, SessionOpening):
            return opening

        yield opening
        if opening.failure is None:
            self.note_opened_session(opening)

        return opening.failure

    def opening_of_live_session(self, call: Call) -> SessionOpening | Miss | None:
        """Return how a live session is opened for a request; None if it needs none."""
        session = call.request.header(SESSION_HEADER)
        if not is_name_of_kind(session, SESSION) or session in self._live_session_ids:
            return None

        was_opened = session in self._opening_requests
        opens_itself = not was_opened or call.method == INITIALIZE
        if call.request.is_line and opens_itself:
            # The request itself opens it, or it needs no opening (from 2026-07-28 on).
            self._live_session_ids[session] = session
            return None

        if not was_opened:
            return unrecorded_miss(call, _SESSION_NOT_OPENED)
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            return unrecorded_miss(call, _ANSWERS_RECORDED_STREAM)

        new_live_session = ServerSession(Recorder(self._new_sealer(seals_states=False)))
        return SessionOpening(call, self._opening_requests[session], new_live_session)

    def note_opened_session(self, opening: SessionOpening) -> None:
        """Take a live session that has been opened."""
        request = opening.call.request
        recorded = request.header(SESSION_HEADER)
        if request.is_line:
            # A server on pipes gives no session ids.
            self._live_session_ids[recorded] = recorded
        else:
            self._live_session_ids[recorded] = opening.session.id

    def in_live_session(self, request: Request) -> Request:
        """Return a request in the live session if it is in a recorded one."""
        live = self._live_session_ids.get(request.header(SESSION_HEADER))
        if live is None:
            return request
        return with_session_header(request, live)


class SessionOpening(Conversation):
    """One session of the cassette, opened again with the live server as the client opened it."""

    def __init__(
        self, call: Call, requests: Sequence[Request], session: ServerSession
    ) -> None:
        super().__init__(requests[0], None, session, follows_to_end=False)
        self._unsent_requests = deque(requests[1:])
        self.call = call
        self.failure: Miss | None = None

    def _following_request(
        self, exchange: RecordedExchange, _response: Message | None
    ) -> Request | None:
        """Return the next request of the opening; None at its end, or if it was refused."""
        if has_error(exchange) or not self._is_response_accepted(exchange.response):
            detail = f"the live server opened no session: {response_in_words(exchange)}"
            self.failure = unrecorded_miss(self.call, detail)
            return None

        if not self._unsent_requests:
            return None
        return self._unsent_requests.popleft()

    def _is_response_accepted(self, response: Response | None) -> bool:
        """Tell whether an HTTP response is a success; on pipes, which have no status, all are."""
        if self.call.request.is_line:
            return True
        return response is not None and 200 <= response.status < 300


# Answers to recorded asks


class RecordedAsks:
    """The asks of a cassette that issued a state, by this state."""

    def __init__(self, player: Player, new_sealer: NewSealer) -> None:
        self._player = player
        self._new_sealer = new_sealer
        self._entries_by_state: dict[str, list[ReplayEntry]] = {}
        for entry in player.entries.in_file_order:
            ask = entry.exchange.ask
            if ask is not None and ask.request_state is not None:
                asking_entries = self._entries_by_state.setdefault(
                    ask.request_state, []
                )
                asking_entries.append(entry)

    def replay_to_answered_ask(
        self, call: Call, shown_call: Call
    ) -> ReplayToAsk | Miss | None:
        """Return how the server is brought to the ask that a request answers.

        None stands for a request that can be sent as it is: one without state and cursor, or with
        one that no recorded response issued. `shown_call` is the request as it is matched, and as
        messages may show it.
        """
        state = None if call.answers is None else call.answers.request_state
        if state is None:
            if self._is_cursor_recorded(call):
                return unrecorded_miss(shown_call, _CURSOR_RECORDED)
            return None

        asking_entries = self._entries_that_issued_state(state)
        if not asking_entries:
            if has_kind(state, *ISSUED):
                return unrecorded_miss(shown_call, _NO_ASK_HAS_STATE)
            return None

        key = self._player.key_of(shown_call)
        for asking_entry in asking_entries:
            if asking_entry.key == key:
                return self._replay_up_to_ask(asking_entry, call, shown_call)

        return unrecorded_miss(shown_call, _STATE_OF_OTHER_CALL, asking_entries[0])

    def _is_cursor_recorded(self, call: Call) -> bool:
        """Tell whether a recorded page of the same list issued the cursor of a request."""
        if call.cursor is None:
            return False

        list_key = (call.method, call.endpoint)
        for entry in self._player.entries.in_file_order:
            key = entry.key
            is_page = (key.method, key.endpoint) == list_key
            if is_page and entry.exchange.next_cursor == call.cursor:
                return True

        return False

    def _entries_that_issued_state(self, state: str) -> list[ReplayEntry]:
        """Return the asks that issued a state, or the longest part of it if none issued it."""
        if state in self._entries_by_state:
            return self._entries_by_state[state]

        # What a client adds to a state goes to the server too, to be refused there.
        longest_state = ""
        for issued_state in self._entries_by_state:
            if issued_state in state and len(issued_state) > len(longest_state):
                longest_state = issued_state

        if len(longest_state) < SHORTEST_SEARCHED:
            return []

        return self._entries_by_state[longest_state]

    def _replay_up_to_ask(
        self, asking_entry: ReplayEntry, call: Call, shown_call: Call
    ) -> ReplayToAsk | Miss:
        """Return how the server is brought to an ask, or why it can't be brought there."""
        exchanges = tuple(
            [entry.exchange for entry in _entries_up_to_ask(asking_entry)]
        )
        interaction = RecordedInteraction(0, exchanges, None, is_orphan=False)
        reason = why_not_repeatable(interaction)
        if reason is not None:
            return unrecorded_miss(shown_call, reason, asking_entry)

        recorder = Recorder(self._new_sealer(seals_states=True))
        return ReplayToAsk(
            call, shown_call, asking_entry, RecordedScript(interaction), recorder
        )


def _entries_up_to_ask(asking_entry: ReplayEntry) -> list[ReplayEntry]:
    """Return the exchanges of a call up to an ask."""
    chain = deque([asking_entry])
    while chain[0].answered_ask is not None:
        chain.appendleft(chain[0].answered_ask)

    return list(chain)


class ReplayToAsk(Conversation):
    """One recorded conversation, repeated with the live server up to an ask."""

    def __init__(
        self,
        call: Call,
        shown_call: Call,
        asking_entry: ReplayEntry,
        script: RecordedScript,
        recorder: Recorder,
    ) -> None:
        session = ServerSession(recorder, call.request.header(SESSION_HEADER))
        super().__init__(call.request, script, session, follows_to_end=False)
        self.asking_entry = asking_entry
        self.states = script.findings.states
        self._shown_call = shown_call

    @property
    def failure(self) -> Miss | None:
        """Why the server can't be brought there, or None."""
        differences: tuple[Difference, ...] = ()
        match self.stopping_point:
            case FinishedCall(turn, exchange):
                detail = f"asks nothing in turn {turn}: {response_in_words(exchange)}"
            case AskedOtherwise(LiveAsk(turn), changes):
                detail = f"asks something else in turn {turn}"
                differences = _differences_without_verdicts(changes)
            case _:
                return None

        asking_entry = _entries_up_to_ask(self.asking_entry)[turn - 1]
        return unrecorded_miss(
            self._shown_call, f"the live server {detail}", asking_entry, differences
        )

    def retry_with_live_state(self) -> Request:
        """Return the client's retry with the live state in the place of the recorded one."""
        live, recorded = self.states[-1]

        def with_live_state(state: str) -> str:
            return state.replace(recorded, live)

        body = with_texts_replaced_at(
            self.request.body, [ECHOED_STATE_PATH], with_live_state
        )
        return with_body(self.request, body)


# Calls that were played


class RepeatedPlayedCall(Conversation):
    """A call that was played, made with the live server too."""

    def __init__(
        self,
        request: Request,
        entry: ReplayEntry,
        script: RecordedScript,
        recorder: Recorder,
    ) -> None:
        """Take the client's last request of the call, in the live session."""
        session = ServerSession(recorder, request.header(SESSION_HEADER))
        super().__init__(request, script, session)
        self.entry = entry
        self.recorded_script = script

    def difference_at_end(self) -> DivergedWrite | None:
        """Take its end, which has come; return how that differs from the recorded one, or None."""
        match self.stopping_point:
            case FinishedCall() as last:
                self.recorded_script.take_final_response(last)
                if not self.recorded_script.findings.changes:
                    return None

                detail = "gives it another result"
            case AskedOtherwise(LiveAsk(turn)):
                detail = f"asks something else in turn {turn}"
            case _:
                detail = "does not end it as recorded"

        changes = without_turn_numbers(self.recorded_script.findings.changes)
        detail = f"the live server {detail}"
        return DivergedWrite(self.entry, detail, _differences_without_verdicts(changes))


@dataclass(frozen=True, slots=True)
class DivergedWrite:
    """A played write that the live server has not made as it was recorded."""

    entry: ReplayEntry
    detail: str
    differences: tuple[Difference, ...] = ()

    def refusal_of_later_call(self, shown_call: Call) -> Miss:
        """Return why a request that may depend on the write is not sent on."""
        detail = (
            f"{self.entry.key} was played before it, and repeated first: {self.detail}"
        )
        return unrecorded_miss(shown_call, detail, self.entry, self.differences)


class PlayedCallRepeater:
    """Has the live server make the calls that were played, before a request that may need them.

    It makes all writes, in their order, and those reads in which it makes up a text that the client
    sends back. Once it has made a write in another way than was recorded, it makes no more.
    """

    def __init__(
        self,
        player: Player,
        sessions: Sessions,
        new_sealer: NewSealer,
        ignored_for: IgnoredFor,
    ) -> None:
        self._player = player
        self._sessions = sessions
        self._new_sealer = new_sealer
        self._ignored_for = ignored_for
        self._recording = cassette_with_joined_streams(player.recording)
        self.handles = Handles(handles_in(player.recording))
        """The texts that the live server has made up, in place of recorded ones."""
        self._unmade_writes = deque[Play]()
        """The writes that the live server has not made so far."""
        self._diverged_write: DivergedWrite | None = None
        self._plays_by_issued_text: dict[str, Play] = {}
        """The calls that first had texts which a client may send back, by these."""
        self._texts_made_up_by_client: set[str] = set()
        """Such texts that the client has sent of its own accord."""

    def note_play(self, play: Play) -> None:
        """Take a call that was played."""
        self._texts_made_up_by_client |= (
            handles_sent_in(play.request) - self._plays_by_issued_text.keys()
        )
        for text in (
            handles_issued_in(play.entry.exchange) - self._texts_made_up_by_client
        ):
            self._plays_by_issued_text.setdefault(text, play)

        if self._player.effects.is_write(play.entry):
            self._unmade_writes.append(play)

    def issued_texts_sent_in(self, request: Request) -> list[str]:
        """Return the texts in a request that a played response had first."""
        if not self._plays_by_issued_text:
            return []

        repeated = [
            text
            for text in handles_sent_in(request)
            if text in self._plays_by_issued_text
        ]
        self.handles.expect_handles(repeated)
        return repeated

    def repeat_writes_before(self, shown_call: Call) -> Conversations:
        """Have the live server make all writes before a request, which may depend on them."""
        while self._unmade_writes and self._diverged_write is None:
            failure = yield from self._repeat_write(self._unmade_writes.popleft())
            if failure is not None:
                return failure

        if self._diverged_write is None:
            return None
        return self._diverged_write.refusal_of_later_call(shown_call)

    def _repeat_write(self, call: Play) -> Conversations:
        """Have the live server make a played write, and take note if it does not go as recorded."""
        interaction = self._recorded_interaction_of(call)
        reason = why_not_repeatable(interaction)
        if reason is None and interaction.exchanges[-1].rpc_response is None:
            reason = "no response to it was recorded"

        if reason is not None:
            self._diverged_write = DivergedWrite(
                call.entry, f"it can't be repeated: {reason}"
            )
            return None

        # Unless it is followed to its end, nobody knows whether it has been made.
        no_response = "the live server gave no complete response"
        self._diverged_write = DivergedWrite(call.entry, no_response)
        shown_call = self._player.call_as_shown(call.request)
        failure = yield from self._sessions.open_live_session(shown_call)
        if failure is not None:
            return failure

        write = self._conversation_of_play(call)
        yield write
        self._diverged_write = write.difference_at_end()
        for change in write.recorded_script.findings.left_out:
            self._player.normaliser.keys.note_ignored_in_response(
                partial(is_below, change.pointer)
            )

        return None

    def repeat_reads_that_issue(
        self, texts: Iterable[str]
    ) -> Generator[Conversation, None, None]:
        """Have the live server make up texts that the client had from played reads."""
        for text in texts:
            call = self._plays_by_issued_text.pop(text, None)
            if call is None or self.handles.knows_live_handle_for(text):
                continue

            is_write = self._player.effects.is_write(call.entry)
            reason = why_not_repeatable(self._recorded_interaction_of(call))
            if not is_write and reason is None:
                read = self._conversation_of_play(call)
                yield read
                read.difference_at_end()

    def _recorded_interaction_of(self, call: Play) -> RecordedInteraction:
        """Return the recorded interaction of a call that was played."""
        return self._recording.interactions[call.entry.interaction - 1]

    def _conversation_of_play(self, call: Play) -> RepeatedPlayedCall:
        """Return a played call for the live server, in its session and with its handles."""
        matched_call = read_call(call.entry.normalised.request)
        ignored = self._ignored_for(matched_call)
        interaction = self._recorded_interaction_of(call)
        script = RecordedScript(
            interaction,
            ignored,
            handles=self.handles,
            repeated_values=self._player.normaliser.keys.differing_values(
                call.entry.exchange.request, call.request
            ),
        )
        request = self._sessions.in_live_session(call.request)
        request = self.handles.with_live_handles(request)
        recorder = Recorder(self._new_sealer(seals_states=True))

        return RepeatedPlayedCall(request, call.entry, script, recorder)


def _why_not_sent_on(miss: Miss) -> Miss | None:
    """Return why a request that was not recorded is not sent to the live server, or None."""
    if miss.reason is Reason.HOOK_FAILED:
        return miss
    if miss.is_refused:
        return replace(
            unrecorded_miss(miss.call, _OTHER_ANSWER_REFUSED), is_refused=True
        )

    nearest = miss.nearest
    if nearest is None or nearest.call_of_step is None:
        return None

    return unrecorded_miss(miss.call, _ABOUT_PLAYED_CALL, nearest)


class Appending:
    """Decides what is played, and brings the live server to where the client is for all else.

    The writes of a run are all made by the live server, in their order, before it gets a request
    that may depend on them. Once the client has made one there, nothing that may depend on it is
    played any more. Once the live server has made one in another way than was recorded, nothing
    that may depend on it is sent there any more.
    """

    def __init__(
        self,
        player: Player,
        recorder: Recorder,
        live_asks: LiveAsks,
        live_streams: LiveStreams,
        new_sealer: NewSealer,
        ignored_for: IgnoredFor,
    ) -> None:
        self._player = player
        self._recorder = recorder
        self._live_asks = live_asks
        self._live_streams = live_streams
        self._sessions = Sessions(new_sealer)
        self._recorded_asks = RecordedAsks(player, new_sealer)
        self._played_calls = PlayedCallRepeater(
            player, self._sessions, new_sealer, ignored_for
        )

    def play_if_recorded(
        self, request: Request, wall_s: float | None
    ) -> Play | Call | Miss:
        """Return what is played for a request, or why it gets nothing.

        A call is the request as messages may show it, for which the live server is brought to where
        its client is.
        """
        call = self._recorder.read_request(self.request_as_recorded(request))
        answers_ask = self._live_asks.close_answered_ask(call)
        answers_live = answers_ask or self._recorder.answers_open_push(call)
        if answers_live or self._live_streams.is_resumed_by(request):
            return self._player.call_as_shown(request)

        decision = self._player.request_received(request, wall_s)
        if isinstance(decision, Play):
            self._note_what_was_played(decision)
            return decision

        # What the cassette lacks is no miss of a run that records it.
        self._player.tally.misses.pop()
        if not isinstance(decision, Miss):
            return decision.call

        return _why_not_sent_on(decision) or decision.call

    def _note_what_was_played(self, play: Play) -> None:
        """Take note of a play: it may open a session, or be a write for the live server to make."""
        sealed_request = self._recorder.sealer.values.sealed_request(play.request)
        # Plays are kept to the end of the run, and nobody needs the bytes that were sent.
        play = play._replace(request=sealed_request, delivery=None)
        exchange = play.entry.exchange
        method = play.entry.key.method
        self._sessions.note_play(play.request, method, exchange.response)
        self._played_calls.note_play(play)
        if self._player.effects.is_write(play.entry) and exchange.number is not None:
            request = self.request_as_recorded(play.request)
            self._recorder.note_played_write(request, exchange.number)

    def request_as_recorded(self, request: Request) -> Request:
        """Return a client's request as it is recorded: on pipes, in the session that is played."""
        if not request.is_line:
            return request

        session = self._player.session_of(request).recorded_session
        if session == FIRST_SESSION:
            return line_request(request.body)

        return line_request(request.body, session)

    def bring_server_to_client(
        self, request: Request, shown_call: Call
    ) -> Generator[Conversation, None, Request | Miss]:
        """Yield the conversations that bring the live server to where the client is.

        Returns the request in the live server's terms, or why it is not sent.
        """
        values = self._recorder.sealer.values
        sealed_request = values.sealed_request(request)
        repeated_texts = self._played_calls.issued_texts_sent_in(sealed_request)
        failure: Miss | None = None
        if shown_call.depends_on_writes:
            failure = yield from self._played_calls.repeat_writes_before(shown_call)

        if failure is None:
            failure = yield from self._sessions.open_live_session(shown_call)

        if failure is not None:
            return failure

        yield from self._played_calls.repeat_reads_that_issue(repeated_texts)
        live_request = yield from self._bring_to_ask(sealed_request, shown_call)
        if isinstance(live_request, Miss):
            return live_request

        self._player.note_live_request(request)
        live_handles = self._played_calls.handles
        return values.revealed_request(live_handles.with_live_handles(live_request))

    def _bring_to_ask(
        self, request: Request, shown_call: Call
    ) -> Generator[Conversation, None, Request | Miss]:
        """Bring the live server to the recorded ask that a request answers, if it does.

        Returns the request in the live session, with the live state, or why it is not sent.
        """
        live_request = self._sessions.in_live_session(request)
        call = self._recorder.read_request(live_request)
        replay = self._recorded_asks.replay_to_answered_ask(call, shown_call)
        if replay is None:
            return live_request
        if isinstance(replay, Miss):
            return replay

        yield replay
        if replay.failure is not None:
            return replay.failure

        for live, recorded in replay.states:
            self._recorder.sealer.known_states.remember_state(recorded)
            self._recorder.sealer.known_states.remember_state(
                live, hashed_text=recorded
            )

        # Something may have been played meanwhile.
        failure = yield from self._played_calls.repeat_writes_before(shown_call)
        return replay.retry_with_live_state() if failure is None else failure
