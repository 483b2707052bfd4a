"""Holding a live server to a cassette: one conversation after the other, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.sessions import issued_session
from mrtr_cassette.core.compare.conversations import IgnoredFor
from mrtr_cassette.core.compare.handles import Handles, handles_in
from mrtr_cassette.core.compare.responses import first_calls_on_pipes, response_changes
from mrtr_cassette.core.compare.values import (
    VERDICTS,
    Verdict,
    heaviest_verdict,
    without_ignored_changes,
)
from mrtr_cassette.core.drive.conversation import (
    Conversation,
    Departure,
    FinishedCall,
    NeedsAnswers,
    Script,
    ToolList,
    has_error,
    response_in_words,
)
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    issued_values,
    other_request_of_client,
    with_body,
    with_live_names,
    with_texts_replaced_at,
)
from mrtr_cassette.core.drive.open_turns import ExpectedTurns, open_turns
from mrtr_cassette.core.drive.plan import PlannedInteraction, endpoint_of, is_sent_to
from mrtr_cassette.core.drive.script import (
    Findings,
    LivePair,
    RecordedScript,
    TurnChange,
    without_turn_numbers,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    LIST_TOOLS,
    SENT_BACK_PATHS,
    method_of,
)
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.secrets.credentials import Credentials, UserSettings
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import (
    CONDITION_HEADERS,
    CREDENTIAL_HEADERS,
    NO_STATUS,
    End,
    Request,
)
from mrtr_cassette.core.wire.pointers import members_of

_NOT_SELECTED: Final = "it was not selected"
_ONLY_NEEDED: Final = "it was not selected, and only sent for later calls"
_HEAVIEST_OF_SAME_COURSE: Final = VERDICTS.index("key-changed")
_QUESTION_VERDICTS: Final = frozenset(
    {"key-changed", "rounds-changed", "question-changed"}
)


def why_not_compared_after(number: int) -> str:
    """Return why a call can't be compared alone: one that it may depend on ended otherwise."""
    return f"it may depend on #{number}, which did not end as recorded"


class _DivergedCall(NamedTuple):
    """A call that may have changed something and did not end as recorded.

    Attributes:
        explains: it is told with what differs in later calls, as it took another course.
    """

    number: int
    explains_later_differences: bool


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedInteraction:
    """What came of one interaction."""

    planned: PlannedInteraction = field(repr=False)
    verdict: Verdict
    changes: tuple[TurnChange, ...] = ()
    reason: str | None = None
    findings: Findings = field(default_factory=Findings, repr=False)
    may_destroy: bool = False
    """Whether it was not sent because its tool may destroy something."""

    diverged_call_number: int | None = None
    """The number of a call before it that did not end as recorded, on which it may depend."""

    varying_places: tuple[str, ...] = ()
    """Places that differ from the recording, and will in every run."""

    @property
    def differs_only_at_varying_places(self) -> bool:
        """Whether all that differs is at such places."""
        counting_changes = without_ignored_changes(
            without_turn_numbers(self.changes), self.varying_places
        )
        is_same_otherwise = heaviest_verdict(counting_changes) == "same"
        return self.verdict == "text-changed" and is_same_otherwise

    @property
    def number(self) -> int:
        """Its number in the cassette, from 1."""
        return self.planned.interaction.number

    @property
    def call(self) -> str:
        """Its call, as shown in messages."""
        return self.planned.call.title

    @property
    def reached(self) -> list[LivePair]:
        """The responses that differ, and the last one of a call that was not reached."""
        pairs = self.findings.response_pairs
        differing_pairs = [
            pair for pair in pairs if pair.turn in self._turns_with_changes
        ]
        if self.verdict == "not-reached":
            differing_pairs += pairs[-1:]

        last_by_turn = {pair.turn: pair for pair in differing_pairs}
        return list(last_by_turn.values())

    @property
    def _turns_with_changes(self) -> set[int]:
        """The turns that differ in more than information; 0 stands for the final response."""
        return {turn for turn, change in self.changes if not change.is_information}

    @property
    def first_changed_turn(self) -> int | None:
        """The first turn that has changed; 0, the final response, goes before all others."""
        return min(self._turns_with_changes, default=None)


@dataclass(slots=True)
class RepeatedInteraction:
    """One interaction that is repeated with the live server, as `conversation` says."""

    planned: PlannedInteraction
    conversation: Conversation
    script: RecordedScript
    stream: Observation | None = None
    """The live stream, where it listens."""

    diverged_call: _DivergedCall | None = None
    """A call before it on which it may depend."""

    def verified_interaction(self) -> VerifiedInteraction:
        """Return what came of it."""
        stopping_point = self.conversation.stopping_point
        if isinstance(stopping_point, FinishedCall):
            self.script.take_final_response(stopping_point)

        verified = self.verified_so_far()
        if self.planned.part == "listening":
            return self._with_verdict_on_stream(verified)
        if stopping_point is None:
            return replace(
                verified, verdict="not-reached", reason="no response came", changes=()
            )

        pairs = verified.findings.response_pairs
        if not isinstance(stopping_point, FinishedCall) or not pairs:
            return verified

        last_pair = pairs[-1]
        if last_pair.recorded.rpc_response and not last_pair.live.rpc_response:
            response = response_in_words(last_pair.live)
            reason = f"{response}, which is not an MCP response"
            return replace(verified, verdict="not-reached", reason=reason)

        return verified

    def _with_verdict_on_stream(
        self, verified: VerifiedInteraction
    ) -> VerifiedInteraction:
        """Return the verdict on a listening stream."""
        if self._is_stream_refused:
            return replace(verified, verdict="not-reached", reason="no stream came")
        if verified.changes:
            return verified

        reason = "messages on a listening stream depend on other calls"
        return replace(verified, verdict="skipped", reason=reason)

    def verified_so_far(self) -> VerifiedInteraction:
        """Return what came of it so far."""
        findings = self.script.findings
        changes = tuple(findings.changes)
        diverged_call_number = None
        if self.diverged_call is not None:
            diverged_call_number = self.diverged_call.number

        return VerifiedInteraction(
            self.planned,
            heaviest_verdict(without_turn_numbers(changes)),
            changes,
            findings=findings,
            diverged_call_number=diverged_call_number,
        )

    @property
    def was_refused(self) -> bool:
        """Whether the call was left at a question that was not answered, or got no response."""
        return not isinstance(
            self.conversation.stopping_point, FinishedCall | NeedsAnswers
        )

    @property
    def _is_stream_refused(self) -> bool:
        """Whether a listening stream, which was recorded, is refused now.

        One without a head has had nothing to say.
        """
        response = self.planned.interaction.exchanges[0].response
        if self.stream is None or response is None or response.is_lines:
            return False
        return self.stream.status not in (NO_STATUS, response.status)


Accepts = Callable[[VerifiedInteraction, int], bool]
"""Tells whether what the live server says now in a turn, or 0 for the end, is accepted."""


class ServerSessions:
    """The sessions with a live server, and recorded requests as they are made in them.

    Attributes:
        handles: the ids that the live server has issued in the place of recorded ones.
    """

    def __init__(
        self,
        cassette: Cassette,
        endpoint: str,
        *,
        token_of: Callable[[str, str], str],
        largest_body: int,
        values: Values,
    ) -> None:
        """Take a cassette, and the endpoint of the live server."""
        redactor = None
        if cassette.redaction is not None:
            redactor = Redactor(cassette.redaction, token_of)

        self._credentials = Credentials(
            redactor or Redactor(BUILT_IN_RULES, token_of),
            seals_sessions=redactor is not None,
        )
        self._new_sealer = partial(
            ExchangeSealer,
            seals_states=True,
            redactor=redactor,
            credentials=self._credentials,
            values=values,
        )
        self._largest_body = largest_body
        self._live_endpoint = endpoint
        self._recorded_endpoint = endpoint_of(cassette.upstream)
        self._sessions: dict[str, ServerSession] = {}
        self._issued_sessions: set[str] = set()
        for interaction in cassette.interactions:
            self._issued_sessions.update(
                map(issued_session, interaction.unshared_exchanges)
            )

        self._live_values: dict[str, str] = {}
        """Other values that it has issued, by the recorded ones."""
        self.handles = Handles(handles_in(cassette))

    def add_settings(self, settings: UserSettings) -> None:
        """Look for the credentials in what the user gives for the server from now on."""
        self._credentials.add_settings(settings)

    def session_of(self, planned: PlannedInteraction) -> ServerSession:
        """Return the live session that takes the place of an interaction's recorded session."""
        key = planned.opens_session or planned.session
        if key not in self._sessions:
            # What nobody issued then names no session now either.
            is_named = bool(planned.session) and not planned.call.request.is_line
            is_unknown = is_named and key not in self._issued_sessions
            recorder = Recorder(self._new_sealer(), largest_body=self._largest_body)
            session_id = key if is_unknown else NO_SESSION
            self._sessions[key] = ServerSession(recorder, session_id)

        return self._sessions[key]

    def forget_session_of(self, planned: PlannedInteraction) -> None:
        """Begin the session of an interaction anew: it was lost."""
        self._sessions.pop(planned.opens_session or planned.session, None)

    def note_issued_values(self, pair: LivePair) -> None:
        """Take the values that the live server has issued in the place of recorded ones."""
        self._live_values |= issued_values(pair.recorded.rpc_response, pair.response)

    def with_live_values(self, request: Request) -> Request:
        """Return a recorded request for the live server, with that server's path and ids."""
        if is_sent_to(self._recorded_endpoint, request):
            request = replace(request, target=self._live_endpoint)

        live_headers = []
        for name, value in request.headers:
            # Of a credential or a condition only the name was kept.
            if value or name.lower() not in CREDENTIAL_HEADERS | CONDITION_HEADERS:
                live_headers.append((name, value))

        request = replace(request, headers=tuple(live_headers))
        body = request.body
        if self._live_values and body:
            body = with_texts_replaced_at(body, SENT_BACK_PATHS, self._live_values.get)

        live_ids_by_session = {}
        for recorded, session in self._sessions.items():
            live_ids_by_session[recorded] = session.id

        request = with_body(request, with_live_names(body, live_ids_by_session))
        return self.handles.with_live_handles(request)


class LiveTools:
    """The tools of a live server, as it lists them, and which calls may change something."""

    def __init__(self, sessions: ServerSessions, *, allows_destructive: bool) -> None:
        self._sessions = sessions
        self._allows_destructive = allows_destructive
        self._consented_names: Collection[str] = ()
        self._lists_by_session: dict[str, ToolList] = {}

    def consent_to(self, names: Collection[str]) -> None:
        """Also call tools with these names if they are destructive."""
        self._consented_names = names

    def list_needed_for(self, planned: PlannedInteraction) -> ToolList | None:
        """Return what has to be followed before a call, to know what its tool does; or None."""
        if planned.call.method != CALL_TOOL or not planned.is_sent:
            return None

        if planned.session not in self._lists_by_session:
            list_request = other_request_of_client(
                self._sessions.with_live_values(planned.call.request), LIST_TOOLS
            )
            self._lists_by_session[planned.session] = ToolList(
                list_request, self._sessions.session_of(planned)
            )

        tools = self._lists_by_session[planned.session]
        return None if tools.is_over else tools

    def only_reads(self, planned: PlannedInteraction) -> bool:
        """Tell whether an interaction changes nothing, as the protocol or the server says."""
        if planned.part == "call" and method_of(planned.call.method).reads:
            return True
        return self._hints_of(planned).get("readOnlyHint") is True

    def may_write(self, planned: PlannedInteraction) -> bool:
        """Tell whether the recorded call may have changed something."""
        return planned.may_write and not self.only_reads(planned)

    def may_destroy(self, planned: PlannedInteraction) -> bool:
        """Tell whether a call's tool may destroy something, which nobody has allowed."""
        if planned.call.name in self._consented_names:
            return False

        hints = self._hints_of(planned)
        is_destructive = hints.get("destructiveHint") and not hints.get("readOnlyHint")
        return bool(is_destructive) and not self._allows_destructive

    def input_schema(self, planned: PlannedInteraction) -> Mapping[str, Any]:
        """Return the schema of a tool's arguments, as the live server lists it."""
        return members_of(self._tool_of(planned).get("inputSchema"))

    def _hints_of(self, planned: PlannedInteraction) -> Mapping[str, Any]:
        """Return what the server says that the tool of a call does to the world."""
        return members_of(self._tool_of(planned).get("annotations"))

    def _tool_of(self, planned: PlannedInteraction) -> Mapping[str, Any]:
        """Return the tool of a call, as the live server lists it; nothing if it lists none."""
        tools = self._lists_by_session.get(planned.session)
        if tools is None or planned.call.method != CALL_TOOL:
            return {}
        return tools.members_of_tool(planned.call.name)


@dataclass(slots=True)
class _WritesOfRun:
    """The calls of a run that may change something, on which later ones may depend.

    Attributes:
        were_made: one was made.
        first_unsent_number: the number of the first one that was not sent.
        diverged_call: the first that did not end as recorded, or the first that explains later
            differences.
    """

    were_made: bool = False
    first_unsent_number: int | None = None
    diverged_call: _DivergedCall | None = None

    def note_unsent_call(self, number: int) -> None:
        """Take note that the call with a number was not sent."""
        if self.first_unsent_number is None:
            self.first_unsent_number = number

    def note_diverged_call(self, planned: PlannedInteraction, verdict: Verdict) -> None:
        """Take note that a call may have left the live server in another state."""
        has_other_course = VERDICTS.index(verdict) > _HEAVIEST_OF_SAME_COURSE
        explains_later_differences = has_other_course and planned.is_compared
        diverged_call = _DivergedCall(
            planned.interaction.number, explains_later_differences
        )
        earlier_call = self.diverged_call
        if earlier_call is None:
            self.diverged_call = diverged_call
            return

        if explains_later_differences and not earlier_call.explains_later_differences:
            self.diverged_call = diverged_call


class Verifier:
    """One cassette, recorded over the live server's transport, and one live server.

    Attributes:
        sessions: those with the live server, in which recorded requests are made.
        tools: those of the live server.
        expected_turns: the recorded turns that the live server has not asked so far.
    """

    def __init__(
        self,
        cassette: Cassette,
        endpoint: str,
        ignored_for: IgnoredFor,
        *,
        token_of: Callable[[str, str], str],
        allows_destructive: bool,
        largest_body: int,
        accepts: Accepts | None,
        values: Values,
    ) -> None:
        """Take a cassette; destructive tools are called if all are allowed, or by consent."""
        self.sessions = ServerSessions(
            cassette,
            endpoint,
            token_of=token_of,
            largest_body=largest_body,
            values=values,
        )
        self.tools = LiveTools(self.sessions, allows_destructive=allows_destructive)
        self.expected_turns = ExpectedTurns(cassette)
        self._accepts_changes = accepts
        self._ignored_for = ignored_for
        self._first_calls_on_pipes = first_calls_on_pipes(cassette.interactions)
        self._why_unopened_by_session: dict[str, str] = {}
        self._repeated_by_number: dict[int, RepeatedInteraction] = {}
        """The interactions that have begun."""
        self._writes = _WritesOfRun()

    def may_show_written_values(self, planned: PlannedInteraction) -> bool:
        """Tell whether what a call says may be something that was written in this run."""
        if planned.call.depends_on_writes and self._writes.were_made:
            return True
        return self.tools.may_write(planned)

    def begin_interaction(
        self, planned: PlannedInteraction
    ) -> RepeatedInteraction | VerifiedInteraction:
        """Return how an interaction is repeated, or the verdict where it is not."""
        skipped_interaction = self._verdict_if_skipped(planned)
        if skipped_interaction is not None:
            return skipped_interaction
        if planned.session in self._why_unopened_by_session:
            return VerifiedInteraction(
                planned,
                "not-reached",
                reason=self._why_unopened_by_session[planned.session],
            )
        if planned.cancelled_call is not None:
            return self._verified_cancellation(planned, planned.cancelled_call)

        script = self._recorded_script_of(planned)
        conversation = self.conversation_with(planned, script, planned.departure)
        session = conversation.session
        if session.id and planned.session:
            script.findings.states.append((session.id, planned.session))

        repeated = RepeatedInteraction(planned, conversation, script)
        self._repeated_by_number[planned.interaction.number] = repeated
        if planned.call.depends_on_writes:
            repeated.diverged_call = self._writes.diverged_call

        accepts = self._change_acceptance_for(planned)
        if accepts is not None:
            script.accepts = lambda turn: accepts(repeated.verified_so_far(), turn)

        return repeated

    def separate_script(self, planned: PlannedInteraction) -> RecordedScript:
        """Return the answers of an interaction, for a conversation apart from all others."""
        script = self._recorded_script_of(planned)
        # It answers what the server asks in this conversation alone.
        self.expected_turns.remove(planned.interaction)
        return script

    def conversation_with(
        self,
        planned: PlannedInteraction,
        script: Script,
        departure: Departure | None = None,
    ) -> Conversation:
        """Return a conversation with the call of an interaction, answered by a script."""
        session = self.sessions.session_of(planned)
        return Conversation(
            self.sessions.with_live_values(planned.call.request),
            script,
            session,
            departure=departure,
            poll_failures=planned.interaction.passing_poll_failures,
        )

    def _recorded_script_of(self, planned: PlannedInteraction) -> RecordedScript:
        """Return the questions and answers of an interaction that is repeated."""
        interaction = planned.interaction
        number = interaction.number
        turns = self.expected_turns.in_session_of(interaction)
        if number in self._repeated_by_number or number not in turns:
            # It is repeated once more.
            turns[number] = open_turns(interaction)

        return RecordedScript(
            interaction,
            self._ignored_for(planned.call),
            turns[number],
            turns,
            self.sessions.handles,
            renames_keys=True,
            is_at_start=number in self._first_calls_on_pipes,
        )

    def _verified_cancellation(
        self, planned: PlannedInteraction, call: int
    ) -> VerifiedInteraction:
        """Return what came of the notification that cancelled a call."""
        sent_cancellation = None
        if call in self._repeated_by_number:
            cancelled_conversation = self._repeated_by_number[call].conversation
            sent_cancellation = cancelled_conversation.leaving.sent_cancellation

        if sent_cancellation is None:
            reason = f"it cancels #{call}, which was not sent, or has ended before"
            return VerifiedInteraction(planned, "skipped", reason=reason)

        live = sent_cancellation.seal(End.COMPLETE, 0.0)
        changes = response_changes(planned.interaction.exchanges[0], live)
        turns = tuple([TurnChange(0, change) for change in changes])

        return VerifiedInteraction(planned, heaviest_verdict(changes), turns)

    def _verdict_if_skipped(
        self, planned: PlannedInteraction
    ) -> VerifiedInteraction | None:
        """Return the verdict on an interaction that is not sent, or None."""
        may_destroy = False
        unsent_write = self._writes.first_unsent_number
        reason = planned.why_skipped
        if reason is None:
            if not self._is_to_be_sent(planned):
                return VerifiedInteraction(planned, "skipped", reason=_NOT_SELECTED)

            may_destroy = self.tools.may_destroy(planned)
            if may_destroy:
                reason = "the server says that the tool may destroy something"
            elif unsent_write is not None and planned.call.depends_on_writes:
                reason = f"it may depend on #{unsent_write}, which was not sent"

        if reason is None:
            return None

        if planned.is_sent and self.tools.may_write(planned):
            self._writes.note_unsent_call(planned.interaction.number)

        self.expected_turns.remove(planned.interaction)
        return VerifiedInteraction(
            planned, "skipped", reason=reason, may_destroy=may_destroy
        )

    def _is_to_be_sent(self, planned: PlannedInteraction) -> bool:
        """Tell whether an interaction is sent: one that is needed only if it may write."""
        if planned.is_needed and self.tools.only_reads(planned):
            return False
        return planned.is_sent

    def _change_acceptance_for(self, planned: PlannedInteraction) -> Accepts | None:
        """Return what accepts changes of an interaction: of what was not selected, nothing does."""
        return self._accepts_changes if planned.is_compared else None

    def give_up_overdue_turns(self, planned: PlannedInteraction) -> None:
        """Expect no more what its call has waited for in vain; that is told of the stream."""
        for number, turn in self.expected_turns.overdue_turns(planned):
            asking = self._repeated_by_number.get(number)
            if asking is not None and asking.planned.part == "listening":
                asking.script.note_unasked_turn(turn)

            turn.questions.clear()

    def end_interaction(self, repeated: RepeatedInteraction) -> VerifiedInteraction:
        """Return what came of an interaction, and take what others need of it."""
        verified = repeated.verified_interaction()
        planned = verified.planned
        if planned.part != "listening":
            self.expected_turns.remove(planned.interaction)

        if self.tools.may_write(planned):
            self._writes.were_made = True

        for pair in verified.findings.response_pairs:
            self.sessions.note_issued_values(pair)

        if self._may_have_diverged(repeated, verified):
            self._writes.note_diverged_call(planned, verified.verdict)

        if planned.opens_session:
            self._note_if_session_unopened(planned.opens_session, verified)

        if not planned.is_compared and verified.verdict != "not-reached":
            reason = _ONLY_NEEDED if planned.is_needed else _NOT_SELECTED
            return replace(verified, verdict="skipped", changes=(), reason=reason)

        return _verdict_after_diverged_call(verified, repeated.diverged_call)

    def _note_if_session_unopened(
        self, session: str, verified: VerifiedInteraction
    ) -> None:
        """Take note of whether a session was opened."""
        pairs = verified.findings.response_pairs
        if not pairs:
            why_unopened = verified.reason or "no response"
        else:
            last = pairs[-1].live
            if verified.verdict != "not-reached" and not has_error(last):
                return

            why_unopened = response_in_words(last)

        self._why_unopened_by_session[session] = (
            f"its session was not opened: {why_unopened}"
        )

    def _may_have_diverged(
        self, repeated: RepeatedInteraction, verified: VerifiedInteraction
    ) -> bool:
        """Tell whether a call may leave the live server in another state than recorded."""
        if not self.tools.may_write(verified.planned):
            return False
        if repeated.was_refused or verified.verdict == "not-reached":
            return True

        turn = verified.first_changed_turn
        if turn is None or (turn != 0 and not verified.findings.takes_other_course):
            return False

        accepts = self._change_acceptance_for(verified.planned)
        return accepts is None or not accepts(verified, turn)

    def without_newly_ignored(
        self, verified: VerifiedInteraction
    ) -> VerifiedInteraction:
        """Return the verdict, where more places are left out now."""
        ignored = self._ignored_for(verified.planned.call)
        counting_changes = without_ignored_changes(
            without_turn_numbers(verified.changes), ignored
        )
        kept_changes = [
            change for change in verified.changes if change.change in counting_changes
        ]

        return replace(
            verified,
            verdict=heaviest_verdict(counting_changes),
            changes=tuple(kept_changes),
        )

    def unreached_interaction(
        self, planned: PlannedInteraction, reason: str
    ) -> VerifiedInteraction:
        """Return that an interaction got no response, and why."""
        verified = VerifiedInteraction(planned, "not-reached", reason=reason)
        if planned.opens_session:
            self._note_if_session_unopened(planned.opens_session, verified)

        if self.tools.may_write(planned):
            self._writes.note_diverged_call(planned, "not-reached")

        return verified


def _verdict_after_diverged_call(
    verified: VerifiedInteraction, diverged_call: _DivergedCall | None
) -> VerifiedInteraction:
    """Return the verdict on a call that may depend on another one, which ended otherwise."""
    is_explained = verified.verdict == "same" or verified.reason is not None
    if diverged_call is None or is_explained:
        return verified

    reason = why_not_compared_after(diverged_call.number)
    asks_otherwise = verified.verdict in _QUESTION_VERDICTS
    if diverged_call.explains_later_differences and not asks_otherwise:
        return replace(verified, verdict="skipped", changes=(), reason=reason)

    return replace(verified, reason=reason)
