"""The replay side of one run: requests in, recorded replies or misses out.

The closest match is never played; docs/matching.md says which recording a request gets.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from mrtr_cassette.core.cassette.entries import (
    Entries,
    MadeWrite,
    NormalisedRequest,
    ReplayEntry,
    entries_leading_elsewhere,
    entries_of,
    is_sent_by_client,
    learned_origin,
)
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.sessions import answers_ping
from mrtr_cassette.core.cassette.transports import origin_of
from mrtr_cassette.core.protocol.any_server import (
    HarmlessReply,
    answer_of_any_server,
    reply_without_body,
)
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    read_call,
    resumed_event_id,
    session_of,
)
from mrtr_cassette.core.protocol.hooks import RecordHook
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, hides_response
from mrtr_cassette.core.protocol.methods import CANCELLED
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.replay.deliveries import Deliveries, Delivery, Play
from mrtr_cassette.core.replay.diagnosis import (
    Miss,
    MissSearch,
    NoStep,
    Reason,
    Tally,
    miss_after_other_writes,
    miss_after_placeholders,
    miss_led_elsewhere,
    miss_not_playable_now,
    miss_of_ambiguous_value,
    miss_of_other_answer,
    miss_of_other_id,
    miss_of_unheard_question,
    miss_of_unlearned_value,
    miss_without_response,
    miss_without_step,
    placeholders_by_entry,
)
from mrtr_cassette.core.replay.matching import (
    Matching,
    PreparedRequest,
    RecordedRequests,
    RequestNormaliser,
    unknown_values_in,
)
from mrtr_cassette.core.replay.order import (
    ChosenRecording,
    History,
    PlayedPart,
    PlayOrder,
    Repeat,
)
from mrtr_cassette.core.replay.sessions import LiveSession
from mrtr_cassette.core.secrets.shapes import SHARED_NAMES
from mrtr_cassette.core.wire.codings import with_decoded_body
from mrtr_cassette.core.wire.http import ACCEPTED, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.pointers import pointer_to
from mrtr_cassette.errors import HookError


class Choice(NamedTuple):
    """What a request gets, before it counts as played or missed.

    Attributes:
        request_as_recorded: the request as it would have been recorded.
        wall_s: the seconds since 1970, to which times of tasks are moved; without it they stay.
        recording: the recording that it gets, or why there is none.
        switched_delivery: the pending reply that goes on as that of an equal call, for which the
            client's answer was recorded; or None.
    """

    request: Request
    request_as_recorded: Request
    session: LiveSession
    prepared: PreparedRequest
    wall_s: float | None
    recording: ChosenRecording
    switched_delivery: Delivery | None


class Player:
    """One replay of one cassette.

    Attributes:
        recording: the cassette.
        paths: the cassettes that are played together.
        adds_to: the file to which a recording may add, the first one where several are played.
        entries: the exchanges of the cassette as they are matched.
        normaliser: brings requests into the form in which they are compared with the cassette's.
        effects: tells which calls may change something.
        tally: what was counted so far.
        played_part: how much of the cassette was played so far.
        before_record: a user's function that changes requests before they are matched, or None.
        stops: after a miss, requests get the same miss.
    """

    before_record: RecordHook | None = None
    stops = False

    def __init__(
        self,
        cassette: Cassette,
        *,
        ignored: Collection[MemberPath] = (),
        repeat: Repeat = Repeat.AUTO,
        history: History = History.AUTO,
        reads: Collection[str] = (),
        strict: bool = False,
        stateless: bool = False,
        matchers: Matching | None = None,
    ) -> None:
        """Prepare a replay.

        Args:
            ignored: members of the params that don't count, as keys from the outermost inwards.
            reads: tools and methods that change nothing, whatever the recording says of them.
            strict: harmless requests that were not recorded are misses.
            stateless: no reply depends on what has been played.
            matchers: kinds of values that match recorded ones of the same kind, or a user's
                function that tells whether two requests match.

        Raises:
            CassetteError: the cassette can't be played without memory.
        """
        self.recording = cassette
        self.paths: tuple[str, ...] = (cassette.path,)
        self.adds_to = cassette.path
        self._recorded_origin = origin_of(cassette)
        self._strict = strict
        self.normaliser = RequestNormaliser(
            cassette, tuple(ignored), remembers=not stateless, matchers=matchers
        )
        self.entries = entries_of(cassette, self.normaliser.normalised_recorded_request)
        self._recorded_requests = RecordedRequests(self.entries.by_arrival)
        issued_names = None
        if stateless:
            issued_names = self.normaliser.sealer.issued_names

        self._play_order = PlayOrder(
            cassette, self.entries, repeat, history, reads, issued_names
        )
        self.effects = self._play_order.effects
        self._deliveries = Deliveries(
            self.entries.by_arrival,
            self._play_order.timelines,
            stateless=stateless,
            matchers=self.normaliser.keys.matchers,
        )
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what was played; what a play changes is its own."""
        self.normaliser = copy(self.normaliser)
        self.normaliser.start_afresh()
        self._deliveries = copy(self._deliveries)
        self._deliveries.start_afresh()
        if self.recording.values:
            self._deliveries.current_values = lambda: self.normaliser.values

        self._play_order = copy(self._play_order)
        self._play_order.match_hook = self.normaliser.keys.hook
        self._play_order.start_afresh()
        self._explainer = _MissExplainer(
            self.entries, self.normaliser, self._play_order
        )
        self.tally = Tally(self._play_order.histories.held_recording_count)
        self.played_part = PlayedPart(self.entries.by_arrival, self._play_order)

    def send_piece_by_piece(self) -> None:
        """Send the pieces of a stream one by one, as the shell keeps the recorded rhythm."""
        self._deliveries.sends_pieces = True

    def set_poll_interval(self, milliseconds: int | None) -> None:
        """Tell clients how often to poll tasks; None tells them what was recorded."""
        self._play_order.poll_interval = milliseconds

    def fresh_player(self) -> Player:
        """Return one of the same cassette with the same options, which has played nothing."""
        # All plays share these cached properties, which are computed before the copy.
        _ = self._recorded_requests.by_likeness
        _ = self._entries_leading_elsewhere
        _ = self.origin
        player = copy(self)
        player.start_afresh()

        return player

    @cached_property
    def _entries_leading_elsewhere(self) -> dict[ReplayEntry, str]:
        """The exchanges that send their clients away from the server, and to which origin."""
        return entries_leading_elsewhere(self.entries.by_arrival, self._recorded_origin)

    @cached_property
    def origin(self) -> ServerOrigin:
        """The origin of the recorded server, as its responses tell of it."""
        return learned_origin(self.entries.in_file_order, self._recorded_origin)

    def key_of(self, call: Call) -> CallKey:
        """Return the call key by which a request is matched, for a miss."""
        return call.key(self.normaliser.keys.ignored_members)

    def request_received(
        self, request: Request, wall_s: float | None = None
    ) -> Play | Miss | HarmlessReply:
        """Find the recorded reply to a request, and count it as played, missed or harmless.

        Args:
            wall_s: the seconds since 1970, to which times of tasks are moved; without it they stay.
        """
        return self.commit_choice(self.choose_reply(request, wall_s))

    def stopping_miss_for(self, request: Request) -> Miss | None:
        """Return the miss after which no request is answered any more, and count this one.

        Notifications and answers don't get it: nobody waits for a response.
        """
        if not self.stops or not self.tally.misses:
            return None

        if read_call(request).kind is not Kind.REQUEST:
            return None

        self.tally.stopped_request_count += 1
        return self.tally.misses[0]

    # Choosing

    def choose_reply(self, request: Request, wall_s: float | None = None) -> Choice:
        """Return what a request gets; nothing counts as played or missed before it is committed."""
        session = self._play_order.live_sessions.session_of_request(request)
        request_as_recorded, hook_failure = self._request_as_recorded(request, session)
        prepared = self._recorded_requests.recognised_request(request_as_recorded)
        if prepared is None:
            prepared = self.normaliser.prepared_request(request_as_recorded)

        if hook_failure:
            chosen_recording = ChosenRecording(None, hook_failure=hook_failure)
        else:
            if self.recording.values:
                prepared = self._recorded_requests.with_learned_values(
                    prepared, request_as_recorded, self.normaliser
                )

            chosen_recording = self._play_order.choose_recording(
                prepared.normalised, session, wall_s
            )

        chosen_recording, switched_delivery = (
            self._deliveries.checked_against_awaited_answer(chosen_recording, session)
        )
        return Choice(
            request,
            request_as_recorded,
            session,
            prepared,
            wall_s,
            chosen_recording,
            switched_delivery,
        )

    def _request_as_recorded(
        self, request: Request, session: LiveSession
    ) -> tuple[Request, str]:
        """Return a request as it would have been recorded, and what went wrong in the hook."""
        request_as_recorded = with_decoded_body(session.request_as_recorded(request))
        hook = self.before_record
        if hook is None:
            return request_as_recorded, ""

        try:
            changed_request = hook.request_after_hook(request_as_recorded)
        except HookError as error:
            return request_as_recorded, str(error)

        # A call that is left out is not in the cassette.
        return changed_request or request_as_recorded, ""

    def _take_learned_values(self, choice: Choice) -> Miss | None:
        """Hold to what a request has taught; return a miss if its response needs more than that."""
        if not self.recording.values:
            return None

        learned_values = choice.prepared.learned_values
        if learned_values is not None:
            for name in self.normaliser.values.unknown:
                if name in learned_values.texts:
                    self.tally.learned[name] = self.normaliser.sent_secrets.shown_text(
                        learned_values.texts[name]
                    )

            self.normaliser.values = learned_values

        entry = choice.recording.entry
        if entry is None or entry.exchange.response is None:
            return None

        unknown_names = unknown_values_in(
            entry.exchange.response, self.normaliser.values
        )
        if not unknown_names:
            return None

        shown_call = self._explainer.shown_call(choice.request_as_recorded)
        return miss_of_unlearned_value(shown_call, unknown_names, entry)

    # What is not played

    def unplayed_response(self, choice: Choice) -> Delivery | None:
        """Return the response to a request that is not played; None where none was recorded."""
        entry = choice.recording.entry
        if entry is None:
            return None

        while entry in self.entries.answered_by_proxy:
            entry = self.entries.answered_by_proxy[entry]

        session = choice.session
        if entry.opens_session:
            session = LiveSession(entry.session, entry.session)

        caller_values = choice.prepared.caller_values
        return self._deliveries.new_delivery(entry, session, caller_values)

    def let_call_start_over(self, choice: Choice) -> None:
        """Let a client that has lost a response make its call again, from the beginning."""
        entry = choice.recording.entry
        # A task goes on asking until it is answered.
        if entry is not None and entry.call_of_step is None:
            self._play_order.allow_asks_again(entry, choice.session)

    # Playing

    def commit_choice(self, choice: Choice) -> Play | Miss | HarmlessReply:
        """Count a request as played, missed or harmless; return what it gets."""
        session = choice.session
        self._play_order.live_sessions.remember_session(session)
        miss_for_value = self._take_learned_values(choice)
        if miss_for_value is not None:
            return self.tally.count_miss(miss_for_value)

        self.normaliser.keys.note_ignored_members_in(choice.prepared.normalised.request)
        if choice.prepared.normalised.lookup.call.method == CANCELLED:
            _note_cancelled_request(choice.request_as_recorded, session)

        step_played = self._play_task_step(choice)
        if step_played is not None:
            return step_played

        chosen_recording = choice.recording
        if chosen_recording.other_recorded_session is not None:
            session.switch_to_session(chosen_recording.other_recorded_session)
            for stream in self._deliveries.switch_streams_of_session(session):
                self.played_part.play_counts[stream] += 1
                session.plays.note_played(stream)

        entry = chosen_recording.entry
        if entry is None:
            return self._play_without_recording(choice)
        if choice.switched_delivery is not None:
            self._switch_pending_call(choice.switched_delivery, entry)

        if not self._is_playable_to_caller(entry, choice.prepared.caller_values.id):
            call = self._explainer.shown_call(choice.request_as_recorded)
            return self.tally.count_miss(miss_of_other_id(call, entry))

        choice = self._with_counted_matches_and_echoes(choice, entry)
        self._play_order.swap_calls_up_to_ask(
            chosen_recording.answered_ask, entry.answered_ask, session
        )
        play = self._play_entry(choice, entry, session)
        foreign_origin = self._entries_leading_elsewhere.get(entry)
        if foreign_origin is not None:
            # What the client asks the server to which it is sent counts as missed.
            call = self._explainer.shown_call(choice.request_as_recorded)
            miss = self.tally.count_miss(
                miss_led_elsewhere(call, entry, foreign_origin)
            )
            return play._replace(miss=miss)

        return play

    def _switch_pending_call(self, delivery: Delivery, answer: ReplayEntry) -> None:
        """Let a call go on as the equal one during which an answer was recorded."""
        call = answer.call_of_question
        if call is not None:
            self._play_order.swap_calls(delivery.entry, call, delivery.session)
            self._deliveries.switch_to_entry(delivery, call)

    def _with_counted_matches_and_echoes(
        self, choice: Choice, entry: ReplayEntry
    ) -> Choice:
        """Count what a recording matches by; return the choice with what it repeats."""
        if choice.recording.hook_name:
            self.tally.match_counts_by_kind[choice.recording.hook_name] += 1

        matchers = self.normaliser.keys.matchers
        if matchers is None:
            return choice

        prepared = choice.prepared
        recorded_lookup = entry.normalised.stricter_lookups[0]
        if recorded_lookup == prepared.normalised.stricter_lookups[0]:
            return choice

        recorded_request = entry.exchange.request
        used_matchers = matchers.matchers_of_differences(
            recorded_request, choice.request_as_recorded
        )
        self.tally.match_counts_by_kind.update(used_matchers)
        if not matchers.echo:
            return choice

        echoed_spellings = matchers.echoed_spellings(
            recorded_request, choice.request_as_recorded
        )
        caller_values = prepared.caller_values._replace(echoed=echoed_spellings)
        return choice._replace(prepared=prepared._replace(caller_values=caller_values))

    def _play_entry(
        self, choice: Choice, entry: ReplayEntry, session: LiveSession
    ) -> Play:
        """Play an exchange, or the end of what the proxy answered while recording."""
        divergences = self.tally.divergences
        if divergences.recording_count > 1 and divergences.followed_recordings:
            self._leave_other_recordings(entry, session)

        normalised = choice.prepared.normalised
        caller_values = choice.prepared.caller_values
        while True:
            session = self._play_order.note_play(
                entry, normalised.secrets, session, choice.wall_s
            )
            self.tally.reply_count += 1
            self._count_matches_by_kind(normalised)
            if entry not in self.entries.answered_by_proxy:
                break

            entry = self.entries.answered_by_proxy[entry]

        session.note_arrival(entry, caller_values)
        delivery = self._deliveries.delivery_of_chosen(entry, session, caller_values)

        return self._play_of_entry(choice.request, entry, session, delivery)

    def _leave_other_recordings(self, entry: ReplayEntry, session: LiveSession) -> None:
        """Leave the recordings that don't have a call where this play is."""
        followed = self.tally.divergences.followed_recordings
        recordings = self._play_order.histories.recordings_with(
            entry, session.plays.writes, followed
        )
        self.tally.divergences.note_play(entry, recordings, self.tally.reply_count)

    def _count_matches_by_kind(self, normalised: NormalisedRequest) -> None:
        """Count the texts of a request that were matched by their kinds alone."""
        for secret in normalised.secrets:
            if secret.kind in SHARED_NAMES and is_sent_by_client(secret):
                self.tally.match_counts_by_kind[secret.kind] += 1

    def _play_of_entry(
        self,
        request: Request,
        entry: ReplayEntry,
        session: LiveSession,
        delivery: Delivery | None,
    ) -> Play:
        """Return what a request gets, played as often as it is by now."""
        patience = self._play_order.timelines.patience_with(entry)
        play_count = self.played_part.play_counts[entry]
        return Play(request, entry, session, delivery, play_count, patience)

    def _play_task_step(self, choice: Choice) -> Play | Miss | None:
        """Play what a request about a recorded task gets; None if it is about none."""
        session = choice.session
        step_choice = choice.recording.step
        if step_choice is None:
            return None

        self._play_order.note_step(step_choice, session)
        if isinstance(step_choice.step, NoStep):
            call = self._explainer.shown_call(choice.request_as_recorded)
            miss = miss_without_step(
                call, step_choice.step, self.normaliser.keys.ignored_members
            )
            return self.tally.count_miss(miss)

        for arrived_entry in dict.fromkeys(step_choice.step.arrived_entries):
            self._play_order.note_play(arrived_entry, (), session, choice.wall_s)
            session.note_arrival(arrived_entry, choice.prepared.caller_values)

        self.tally.reply_count += 1
        entry = step_choice.step.entry
        delivery = self._deliveries.new_delivery(
            entry, session, choice.prepared.caller_values
        )

        return self._play_of_entry(choice.request, entry, session, delivery)

    def _is_playable_to_caller(
        self, entry: ReplayEntry, caller_id: bytes | None
    ) -> bool:
        """Tell whether a response can be played to a caller with an id, as it is spelled."""
        response = entry.exchange.response
        if caller_id is None or entry.client_message is None or response is None:
            return True

        is_found = self._deliveries.has_json_rpc_response(entry)
        if is_found or not hides_response(entry.client_message, response):
            return True

        return canonical(parse(caller_id)) == entry.client_message.id

    # Misses

    def _play_without_recording(self, choice: Choice) -> Play | Miss | HarmlessReply:
        """Return what a request gets that gets no recording from its beginning."""
        session = choice.session
        call = read_call(choice.request_as_recorded)
        hook_failure = choice.recording.hook_failure
        if hook_failure:
            shown_call = self._explainer.shown_call(choice.request_as_recorded)
            return self.tally.count_miss(
                Miss(shown_call, Reason.HOOK_FAILED, hook_failure)
            )

        if answers_ping(session.recorded_session, call.message, self.entries.pings):
            return reply_without_body(call, ACCEPTED)

        rest_of_stream = self._deliveries.delivery_after_event(
            resumed_event_id(choice.request), session
        )
        if rest_of_stream is not None:
            self.tally.reply_count += 1
            entry = rest_of_stream.entry
            return self._play_of_entry(choice.request, entry, session, rest_of_stream)

        if not self._strict:
            harmless = self._count_harmless_answer(call, choice.recording)
            if harmless is not None:
                return harmless

        shown_call = self._explainer.shown_call(choice.request_as_recorded)
        miss = self._explainer.explained_miss(shown_call, choice)
        message = miss.call.message
        if message is not None and message.kind is Kind.RESPONSE:
            is_refused = self._refuse_pending_call(message, session, miss)
            miss = replace(miss, is_refused=is_refused)

        return self.tally.count_miss(miss)

    def _count_harmless_answer(
        self, call: Call, chosen_recording: ChosenRecording
    ) -> HarmlessReply | None:
        """Answer a call of an unknown tool, or what any server answers, and count that."""
        session = session_of(call.request)
        lacks_session = self._play_order.opened_sessions.lacks_open_session(
            session, call.endpoint
        )
        if not lacks_session:
            harmless_answer = self.effects.unknown_tools.unknown_tool_answer(call)
            if harmless_answer is not None:
                self.tally.unknown_tools[call.name] += 1
                return harmless_answer

        if chosen_recording.nearest_entries:
            return None

        recorded_methods = self._recorded_requests.endpoints_and_methods
        harmless_answer = answer_of_any_server(
            call, recorded_methods, lacks_session=lacks_session
        )
        if harmless_answer is not None:
            self.tally.harmless.append(harmless_answer)

        return harmless_answer

    def _refuse_pending_call(
        self, received_answer: Message, session: LiveSession, miss: Miss
    ) -> bool:
        """Let the call during which the server asked get a miss; return whether there is one."""
        for entry in self._play_order.timelines.answers_with_same_id(
            received_answer, session.recorded_session
        ):
            has_arrived = session.requests.has_arrived(entry)
            if has_arrived or not session.has_played_ask_of(entry):
                continue

            # Nothing else has to wait any more for the right answer, nor for later ones.
            session.waive_request(entry)
            call = entry.call_of_question
            if call is None:
                return False

            for later_answer in self._play_order.timelines.answers_during(call):
                session.waive_request(later_answer)

            session.misses_of_refused_calls[call] = miss
            return True

        return False

    def count_uncancelled_call_without_response(self, play: Play) -> Miss | None:
        """Count a call that can't get a response as a miss, unless its client cancelled it."""
        session = play.session
        if session.requests.has_cancelled(play.request_id):
            return None

        request_as_recorded, _ = self._request_as_recorded(play.request, session)
        call = self._explainer.shown_call(request_as_recorded)
        was_given_up = self._play_order.timelines.was_given_up(play.entry)
        miss = miss_without_response(call, play.entry, was_given_up=was_given_up)
        return self.tally.count_miss(miss)

    def refuse_unheard_call(self, delivery: Delivery) -> Miss:
        """Let a call whose client can't hear the question get a miss as its response."""
        call = self._explainer.shown_call(delivery.entry.normalised.request)
        miss = self.tally.count_miss(miss_of_unheard_question(call, delivery.entry))
        delivery.refuse_call(miss)
        return miss

    # Beside the recording

    def respond_on_stream(self, request: Request, message: bytes) -> bool:
        """Put an unrecorded message on the stream that has all responses; tell whether one has."""
        events = self._play_order.live_sessions.session_of_request(
            request
        ).unrecorded_events
        if events is None:
            return False

        events.append(b"event: message\ndata: %b\n\n" % message)
        return True

    def session_of(self, request: Request) -> LiveSession:
        """Return the session in which a client sends a request."""
        return self._play_order.live_sessions.session_of_request(request)

    def call_as_shown(self, request: Request) -> Call:
        """Return a client's request as messages may show it."""
        session = self._play_order.live_sessions.session_of_request(request)
        request_as_recorded, _ = self._request_as_recorded(request, session)
        return self._explainer.shown_call(request_as_recorded)

    def note_live_request(self, request: Request) -> None:
        """Take note that a request gets an unrecorded response, which ends histories if it writes.

        After a write nothing is played that may depend on it.
        """
        call = self.call_as_shown(request)
        if call.kind is not Kind.REQUEST:
            return

        session = self._play_order.live_sessions.session_of_request(request)
        self._play_order.live_sessions.remember_session(session)
        key = self.key_of(call)
        self.effects.note_live_call(key)
        if not self.effects.is_known_to_only_read(key):
            session.plays.writes.made.append(MadeWrite(live_key=key))
            self._play_order.has_live_writes = True

    # Afterwards

    def unused_options(self) -> list[tuple[str, str]]:
        """Return the options that made no difference to any request, recorded or received.

        These are pointers to what was to be left out, and the names of what was to only read.
        """
        for entry in self.entries.by_arrival:
            self.normaliser.keys.note_ignored_members_in(entry.normalised.request)

        unused = []
        for name in self.effects.unused_reads():
            unused.append(("reads", name))

        for path in self.normaliser.keys.unused_ignored_members:
            unused.append(("ignore", pointer_to(path)))

        if self.normaliser.keys.matchers is not None:
            for name in self.normaliser.keys.matchers.unused_matchers():
                unused.append(("match", name))

        return unused


class _MissExplainer:
    """Explains why requests get no recording."""

    def __init__(
        self, entries: Entries, normaliser: RequestNormaliser, play_order: PlayOrder
    ) -> None:
        self._entries = entries
        self._normaliser = normaliser
        self._play_order = play_order

    def shown_call(self, request_as_recorded: Request) -> Call:
        """Return a request as messages may show it: without secrets."""
        return read_call(self._normaliser.shown_request(request_as_recorded))

    def explained_miss(self, call: Call, choice: Choice) -> Miss:
        """Explain why a request gets no recording."""
        nearest_entries = choice.recording.nearest_entries
        reason = choice.recording.miss_reason
        if choice.prepared.possible_values:
            possible_values = choice.prepared.possible_values
            return miss_of_ambiguous_value(
                call, possible_values, self._normaliser.values
            )
        if reason is None:
            return self._explained_mismatch(call, choice.prepared.normalised)
        if reason is Reason.ANSWERS_DIFFER:
            return miss_of_other_answer(
                call, nearest_entries, self._normaliser.keys.ignored_members
            )

        if reason is Reason.OTHER_HISTORY:
            played_writes = choice.session.plays.writes
            entry, writes_before = self._play_order.histories.nearest_with_writes(
                nearest_entries, played_writes, self._play_order.play_counts
            )
            made_writes = played_writes.made
            return miss_after_other_writes(call, entry, writes_before, made_writes)

        if reason is Reason.SESSION_UNKNOWN:
            session = session_of(choice.request_as_recorded)
            standing = self._play_order.opened_sessions.standing_of(session)
            return Miss(call, reason, standing.value, nearest_entries[0])

        miss = miss_not_playable_now(call, nearest_entries, reason)
        if self._play_order.repeat is Repeat.AUTO:
            miss = replace(miss, read_suggestion=call.key().tool_or_method)

        return miss

    def _explained_mismatch(self, call: Call, normalised: NormalisedRequest) -> Miss:
        """Explain why nothing recorded matches a request."""
        hook_name = ""
        calls_matched_by_hook: list[ReplayEntry] = []
        hook = self._normaliser.keys.hook
        if hook is not None:
            hook_name = hook.name
            recording_index = self._play_order.recording_index
            with suppress(HookError):
                calls_matched_by_hook = recording_index.entries_matched_by_hook(
                    hook, normalised, in_any_turn=True
                )

        search = MissSearch(
            call,
            self._entries.in_file_order,
            self._normaliser.keys.ignored_members,
            self._play_order.play_counts,
            self._play_order.recording_index.stand_in_by_entry,
            hook_name,
            calls_matched_by_hook,
        )
        miss = search.explained_miss()
        if not miss.differences:
            return miss

        played_entries = self._play_order.played_entries
        placeholders = self._placeholders_by_entry
        return miss_after_placeholders(miss, placeholders, played_entries)

    @cached_property
    def _placeholders_by_entry(self) -> dict[ReplayEntry, list[str]]:
        """The placeholders in each recorded response that has any."""
        return placeholders_by_entry(self._entries.by_arrival)


def _note_cancelled_request(request: Request, session: LiveSession) -> None:
    """Take note that a client waits no more for the response to one of its requests."""
    message = read_call(request).message
    if message is not None and message.cancelled_id is not None:
        session.requests.cancelled_ids.add(message.cancelled_id)
