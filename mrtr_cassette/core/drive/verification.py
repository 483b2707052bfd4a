"""Holding a live server to a cassette: what is answered, and what came of each conversation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import issued_session, opened_session
from mrtr_cassette.core.compare.conversations import (
    IgnoredFor,
    asked_question,
    changed_keys,
    comparable_text,
    pushed_value,
    question_changes,
    response_changes,
    round_change,
    task_question,
)
from mrtr_cassette.core.compare.values import Change, Verdict, heaviest, without_ignored
from mrtr_cassette.core.drive.conversation import (
    SENT_BACK,
    Answered,
    AskedOtherwise,
    Conversation,
    Finished,
    LiveAsk,
    NeedsAnswers,
    Reply,
    ServerSession,
    ToolList,
    has_error,
    issued_values,
    outcome,
    request_beside,
    with_body,
    with_id_of,
    with_live_names,
    with_values,
)
from mrtr_cassette.core.drive.handles import Handles
from mrtr_cassette.core.drive.plan import Planned, depends_on_writes, endpoint_of, is_at
from mrtr_cassette.core.drive.turns import Asides, OpenTurn, Question, open_turns
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    InputRequired,
    answers_text,
    with_answer_keys,
    write_answers,
)
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.methods import CALL_TOOL, CANCEL_TASK, LIST_TOOLS, method_of
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.credentials import Credentials, Given
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import (
    CONDITION_HEADERS,
    CREDENTIAL_HEADERS,
    LARGEST_BODY,
    NO_STATUS,
    End,
    Request,
)
from mrtr_cassette.core.wire.pointers import ABSENT

# A recorded conversation's answers, given as far as the live server asks the same


class TurnChange(NamedTuple):
    """A change in the turn that asks, from 1, or 0 for the final response."""

    turn: int
    change: Change


class LivePair(NamedTuple):
    """A recorded response, and the live one in its place, as it would be recorded."""

    recorded: RecordedExchange
    live: RecordedExchange
    response: Message | None = None
    """The live JSON-RPC response as it came."""


def _turns_until_left(interaction: RecordedInteraction) -> int | None:
    """Return after how many turns of its task the recorded client cancelled it, or left it at work.

    None stands for a task that was followed to its end, or left at a question.
    """
    turns = task_turns(interaction.steps)
    for at, step in enumerate(interaction.steps):
        if step.exchange.call.method == CANCEL_TASK:
            return sum(turn.asked < at for turn in turns)
    is_left_at_question = any(turn.given is None for turn in turns[-1:])
    return len(turns) if interaction.is_open and not is_left_at_question else None


class RecordedScript:
    """The answers of a recorded conversation, as far as it goes."""

    def __init__(
        self,
        interaction: RecordedInteraction,
        ignored: Collection[str] = (),
        turns: Sequence[OpenTurn] | None = None,
        asides: Asides | None = None,
        handles: Handles | None = None,
        *,
        renames_keys: bool = False,
    ) -> None:
        """Take a recorded conversation, whose last exchange may ask and have no answer here.

        `turns` are its own as far as the live server has not asked them, and `asides` those of its
        session that are asked of the server's own accord. `handles` gets what the live server made
        up. With `renames_keys`, the recorded question is answered under another key too.
        """
        self._interaction, self._exchanges = interaction, interaction.exchanges
        self._ignored, self._asides = ignored, asides or Asides()
        self._handles = handles
        self._refused = {"question-changed"} | (set() if renames_keys else {"key-changed"})
        self._turns = open_turns(interaction) if turns is None else turns
        self._turns_until_left = _turns_until_left(interaction)
        self._is_task = False
        self.states: list[tuple[str, str]] = []
        """Request states and other names, as the live server issued and the cassette has them."""
        self.changes: list[TurnChange] = []
        self.left_out: list[Change] = []
        self.pairs: list[LivePair] = []

    @property
    def _recorded_by_hash(self) -> dict[str, str]:
        return {sha256_of(live): recorded for live, recorded in self.states}

    def _open_at(self, position: int) -> list[OpenTurn]:
        return [each for each in self._turns if each.questions and each.position <= position]

    def _came(self, recorded: RecordedExchange, ask: LiveAsk | Finished) -> RecordedExchange:
        """Take a live response in the place of a recorded one; return it with the recorded ids."""
        live = with_id_of(recorded.call, ask.exchange)
        if self._handles is not None:
            self._handles.took(recorded.rpc_response, ask.response)
            live = self._handles.as_recorded(live)
        self.pairs.append(LivePair(recorded, live, ask.response))
        return live

    def answer(self, ask: LiveAsk) -> Reply:
        """Give the recorded answers, if the ask is the recorded one."""
        reply = self._reply(ask)
        if not isinstance(reply, Answered) or reply.value is None:
            return reply
        live_by_name = {recorded: live for live, recorded in self.states}
        return replace(reply, value=with_live_names(reply.value, live_by_name))

    def _reply(self, ask: LiveAsk) -> Reply:
        if ask.push is not None:
            return self._answer_push(ask)
        if ask.task_keys:
            return self._answer_task(ask)
        if ask.task is not None:
            return self._take_task(ask, ask.task.id)
        return self._answer_result(ask)

    def _answer_result(self, ask: LiveAsk) -> Reply:
        position = len(self.pairs)
        at_last = min(position, len(self._exchanges) - 1)
        recorded, turn = self._exchanges[at_last], self._interaction.asking_turn(position)
        live = self._came(recorded, ask)
        if position > at_last or recorded.ask is None:
            return self._refuse(ask, turn, [round_change(ABSENT, asked_question(live))])
        if unasked := self._open_at(position):
            return self._refuse(ask, turn, [_not_asked(unasked[0])])
        if ask.request_state is not None and recorded.ask.request_state is not None:
            self.states.append((ask.request_state, recorded.ask.request_state))
        changes = response_changes(recorded, live, self._recorded_by_hash)
        counting = self._counting(changes)
        if not self._is_answered(counting):
            return self._refuse(ask, turn, counting)
        self._take(turn, counting)
        if position == len(self._exchanges) - 1:
            return NeedsAnswers(ask)
        names = self._live_keys(recorded.ask, ask, changed_keys(changes))
        retry = with_answer_keys(self._exchanges[position + 1].request.body, names)
        return Answered(answers_text(retry))

    def _live_keys(
        self, recorded: InputRequired, ask: LiveAsk, renamed: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the live keys of an ask by the recorded ones, of which some are `renamed`."""
        names: dict[str, str] = {}
        states = self._recorded_by_hash
        live_by_text = {comparable_text(key, states): live for key, live in ask.live_keys.items()}
        for key in recorded.input_requests:
            text = comparable_text(key)
            live = live_by_text.get(renamed.get(text, text), key)
            if live != key:
                names[key] = live
        return names

    def _answer_push(self, ask: LiveAsk) -> Reply:
        position = min(len(self.pairs), len(self._exchanges) - 1)
        response = with_id_of(self._exchanges[position].call, ask.exchange).response
        value = pushed_value(b"" if response is None else response.body, self._recorded_by_hash)
        number = self._interaction.asking_turn(position)
        changes = [round_change(ABSENT, {ask.key: value})]
        for turn in self._open_at(position)[:1]:
            question, changes = self._asked_now(turn, value)
            if question is not None:
                return question.answer or NeedsAnswers(ask)
            number = turn.number
        for _, turn in self._asides.open():
            question, _ = self._asked_now(turn, value)
            if question is not None:
                return question.answer or NeedsAnswers(ask)
        return self._refuse(ask, number, changes)

    def _take_task(self, ask: LiveAsk, task_id: str) -> Answered | AskedOtherwise:
        """Take the response that makes the call a task, and go on if it was one when recorded."""
        position, recorded_id = len(self.pairs), self._interaction.task_id
        if position != len(self._exchanges) - 1 or not recorded_id or self._open_at(position):
            self.finished(ask)
            return AskedOtherwise(ask, tuple(change for _, change in self.changes))
        self._came(self._exchanges[-1], ask)
        self.states.append((task_id, recorded_id))
        self._is_task = True
        return Answered(None, cancels=self._is_left_now)

    @property
    def _is_left_now(self) -> bool:
        asked = [each for each in self._turns if each.asking is not None and not each.questions]
        return len(asked) == self._turns_until_left

    def _answer_task(self, ask: LiveAsk) -> Reply:
        """Answer what a state of the task asks, one question after the other."""
        position, answers = len(self.pairs), dict[str, bytes | None]()
        asking = [turn.asking for turn in self._open_at(position)] or [None]
        live = self._came(asking[0] or self._exchanges[-1], ask)
        state = polled_state(live.rpc_response)
        requests = {} if state is None else state.input_requests
        for name, key in ask.task_keys.items():
            asked = task_question({name: requests[name]}, "" if state is None else state.id)
            turn = next(iter(self._open_at(position)), None)
            if turn is None:
                number = len([*self._interaction.turns]) + 1
                return self._refuse(ask, number, [round_change(ABSENT, asked)])
            question, changes = self._asked_now(turn, *asked.values(), *asked)
            if question is None:
                return self._refuse(ask, turn.number, changes)
            self._take(turn.number, changes)
            if question.answer is not None:
                answers[key] = question.answer.value
        if answers or self._is_left_now:
            value = write_answers(DIALECTS[0].name, answers) if answers else None
            return Answered(value, cancels=self._is_left_now)
        is_last = self._interaction.is_open and not self._open_at(position)
        return NeedsAnswers(ask) if is_last else Answered(None)

    def _asked_now(
        self, turn: OpenTurn, asked: object, key: str = ""
    ) -> tuple[Question | None, list[Change]]:
        """Return which question of a turn is asked now, or None, and what differs from the nearest.

        What was asked together may come in another order.
        """
        rows = []
        for each in turn.questions:
            changes = question_changes({each.key: each.asked}, {key or each.key: asked})
            rows.append((each, self._counting(changes)))
        question, changes = min(rows, key=lambda row: len(row[1]))
        if not self._is_answered(changes):
            return None, changes
        turn.questions.remove(question)
        return question, changes

    def _is_answered(self, changes: Sequence[Change]) -> bool:
        return self._refused.isdisjoint(change.verdict for change in changes)

    def _counting(self, changes: list[Change]) -> list[Change]:
        kept = without_ignored(changes, self._ignored)
        self.left_out += [change for change in changes if change not in kept]
        return kept

    def finished(self, last: LiveAsk | Finished) -> None:
        """Take the response that asks nothing."""
        position = len(self.pairs)
        recorded = self._exchanges[min(position, len(self._exchanges) - 1)]
        recorded = self._interaction.ending if self._is_task else recorded
        live = self._came(recorded, last)
        if unasked := self._open_at(position):
            self.was_not_asked(unasked[0])
        elif recorded.ask is not None:
            number = self._interaction.asking_turn(position)
            self._take(number, [round_change(asked_question(recorded), ABSENT)])
        elif not (self._is_task and self._interaction.is_open):
            changes = response_changes(recorded, live, self._recorded_by_hash)
            self._take(0, self._counting(changes))

    def was_not_asked(self, turn: OpenTurn) -> None:
        """Take note that the live server does not ask a turn."""
        self._take(turn.number, [_not_asked(turn)])

    def _refuse(self, ask: LiveAsk, turn: int, changes: Sequence[Change]) -> AskedOtherwise:
        self._take(turn, changes)
        return AskedOtherwise(ask, tuple(changes))

    def _take(self, turn: int, changes: Sequence[Change]) -> None:
        self.changes += [TurnChange(turn, change) for change in changes]


def _not_asked(turn: OpenTurn) -> Change:
    question = turn.questions[0]
    return round_change({question.key: question.asked}, ABSENT)


# One cassette and one live server


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedInteraction:
    """What came of one interaction."""

    planned: Planned = field(repr=False)
    verdict: Verdict
    changes: tuple[TurnChange, ...] = ()
    reason: str | None = None
    pairs: tuple[LivePair, ...] = field(default=(), repr=False)
    states: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    left_out: tuple[Change, ...] = ()
    may_destroy: bool = False
    """Whether it was not sent because its tool may destroy something."""

    @property
    def number(self) -> int:
        """Its number in the cassette, from 1."""
        return self.planned.interaction.number

    @property
    def call(self) -> str:
        """Its call, as shown in messages."""
        return self.planned.call.title


@dataclass(slots=True)
class Repeated:
    """One interaction that is repeated with the live server, as `conversation` says."""

    planned: Planned
    conversation: Conversation
    _script: RecordedScript
    stream: Observation | None = None
    """The live stream, where it listens."""

    def verified(self) -> VerifiedInteraction:
        """Return what came of it."""
        script, standing = self._script, self.conversation.standing
        if isinstance(standing, Finished):
            script.finished(standing)
        pairs, changes = tuple(script.pairs), tuple(script.changes)
        recorded, live, _ = pairs[-1] if pairs else (None, None, None)
        verdict, reason = heaviest(each.change for each in changes), None
        if self.planned.part == "listening":
            if self._is_unheard:
                verdict, reason = "not-reached", "no stream came"
            elif not changes:
                verdict, reason = "skipped", "what a listening stream says depends on other calls"
        elif standing is None:
            verdict, reason, changes = "not-reached", "no response came", ()
        elif recorded and live and recorded.rpc_response and not live.rpc_response:
            verdict, reason = "not-reached", f"{outcome(live)}, which is no response of MCP"
        states, left_out = tuple(script.states), tuple(script.left_out)
        return VerifiedInteraction(self.planned, verdict, changes, reason, pairs, states, left_out)

    @property
    def _is_unheard(self) -> bool:
        """Whether a listening stream, which was recorded, is refused now.

        One without a head has had nothing to say.
        """
        response = self.planned.interaction.exchanges[0].response
        if self.stream is None or response is None or response.is_lines:
            return False
        return self.stream.status not in (NO_STATUS, response.status)


class Verifier:
    """One cassette, recorded over the live server's transport, and one live server."""

    def __init__(
        self,
        cassette: Cassette,
        endpoint: str,
        ignored_for: IgnoredFor,
        *,
        token_of: Callable[[str, str], str] = lambda _rule, _secret: "0",
        allows_destructive: bool = False,
        largest_body: int = LARGEST_BODY,
    ) -> None:
        self._endpoint = endpoint
        self._recorded_endpoint = endpoint_of(cassette.upstream)
        self._ignored_for = ignored_for
        self._allows_destructive = allows_destructive
        redactor = None if cassette.redaction is None else Redactor(cassette.redaction, token_of)
        self._credentials = Credentials(
            redactor or Redactor(BUILT_IN, token_of), seals_sessions=redactor is not None
        )
        self._redactor, self._largest_body = redactor, largest_body
        self._sessions: dict[str, ServerSession] = {}
        self._issued: set[str] = set()
        for interaction in cassette.interactions:
            self._issued.update(map(issued_session, interaction.own))
        self._unopened: dict[str, str] = {}
        self._tools: dict[str, ToolList] = {}
        self._asides: dict[str, Asides] = {}
        self._turns: dict[int, list[OpenTurn]] = {}
        for interaction in cassette.interactions:
            turns = self._turns[interaction.number] = open_turns(interaction)
            self._asides_of(interaction).take(interaction.number, turns)
        self._listening: dict[int, RecordedScript] = {}
        self._left: dict[int, Conversation] = {}
        self._values: dict[str, str] = {}
        self._handles = Handles(cassette)
        self._unmade: int | None = None
        """The number of the first call that was not sent and may have changed something."""

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the user gives for the server from now on."""
        self._credentials.was_given(given)

    def _session_of(self, planned: Planned) -> ServerSession:
        key = planned.opens or planned.session
        if key not in self._sessions:
            recorder = Recorder(
                seals=True,
                redactor=self._redactor,
                credentials=self._credentials,
                largest_body=self._largest_body,
            )
            # What nobody issued then names no session now either.
            is_named = bool(planned.session) and not planned.call.request.is_line
            is_unknown = is_named and key not in self._issued
            self._sessions[key] = ServerSession(recorder, key if is_unknown else NO_SESSION)
        return self._sessions[key]

    def tools_for(self, planned: Planned) -> ToolList | None:
        """Return what has to be followed before a call, to know what its tool does; or None."""
        if planned.call.method != CALL_TOOL or not planned.is_compared:
            return None
        if planned.session not in self._tools:
            listing = request_beside(self._sent(planned.call.request), LIST_TOOLS)
            self._tools[planned.session] = ToolList(listing, self._session_of(planned))
        tools = self._tools[planned.session]
        return None if tools.is_over else tools

    def only_reads(self, planned: Planned) -> bool:
        """Tell whether an interaction changes nothing, as the protocol or the server says."""
        if planned.part == "call" and method_of(planned.call.method).reads:
            return True
        return self._hints_of(planned).get("readOnlyHint") is True

    def _hints_of(self, planned: Planned) -> Mapping[str, Any]:
        """Return what the server says that the tool of a call does to the world."""
        tools = self._tools.get(planned.session) if planned.call.method == CALL_TOOL else None
        return {} if tools is None else tools.hints(planned.call.name)

    def begin(self, planned: Planned) -> Repeated | VerifiedInteraction:
        """Return how an interaction is repeated, or the verdict where it is not."""
        skipped = self._skipped(planned)
        if skipped is not None:
            return skipped
        if planned.session in self._unopened:
            return VerifiedInteraction(
                planned, "not-reached", reason=self._unopened[planned.session]
            )
        if planned.cancels is not None:
            return self._cancelled(planned, planned.cancels)
        interaction, ignored = planned.interaction, self._ignored_for(planned.call)
        asides, turns = self._asides_of(interaction), self._turns.pop(interaction.number, None)
        if turns is None:
            # It is repeated once more.
            turns = open_turns(interaction)
            asides.take(interaction.number, turns)
        script = RecordedScript(
            interaction, ignored, turns, asides, self._handles, renames_keys=True
        )
        if planned.part == "listening":
            self._listening[interaction.number] = script
        session = self._session_of(planned)
        if session.id and planned.session:
            script.states.append((session.id, planned.session))
        request = self._sent(planned.call.request)
        conversation = Conversation(
            request, script, session, follows_task=True, departure=planned.departure
        )
        if planned.departure is not None:
            self._left[interaction.number] = conversation
        return Repeated(planned, conversation, script)

    def _cancelled(self, planned: Planned, call: int) -> VerifiedInteraction:
        """Return what came of the notification that cancelled a call."""
        left = self._left.get(call)
        if left is None or left.cancelling is None:
            reason = f"it cancels #{call}, which was not sent, or has ended before"
            return VerifiedInteraction(planned, "skipped", reason=reason)
        live = left.cancelling.seal(End.COMPLETE, 0.0)
        changes = response_changes(planned.interaction.exchanges[0], live)
        turns = tuple([TurnChange(0, change) for change in changes])
        return VerifiedInteraction(planned, heaviest(changes), turns)

    def _skipped(self, planned: Planned) -> VerifiedInteraction | None:
        """Return the verdict on an interaction that is not sent, or None."""
        is_needed = planned.part in ("opening", "listening")
        if planned.skipped is None and not (planned.is_compared or is_needed):
            return VerifiedInteraction(planned, "skipped", reason="it was not selected")
        reason, may_destroy = planned.skipped, False
        hints = {} if self._allows_destructive else self._hints_of(planned)
        if reason is None and hints.get("destructiveHint") and not hints.get("readOnlyHint"):
            reason, may_destroy = "the server says that the tool may destroy something", True
        if reason is None and self._unmade is not None and depends_on_writes(planned):
            reason = f"it may depend on #{self._unmade}, which was not sent"
        if reason is None:
            return None
        if planned.is_compared and self._unmade is None and self._may_write(planned):
            self._unmade = planned.interaction.number
        self._asides_of(planned.interaction).drop(planned.interaction.number)
        return VerifiedInteraction(planned, "skipped", reason=reason, may_destroy=may_destroy)

    def _may_write(self, planned: Planned) -> bool:
        """Tell whether the recorded call may have changed something."""
        is_refused = has_error(planned.interaction.ending)
        return planned.part == "call" and not (is_refused or self.only_reads(planned))

    def _asides_of(self, interaction: RecordedInteraction) -> Asides:
        first = interaction.exchanges[0]
        session = session_of(first.request) or opened_session(first.response)
        return self._asides.setdefault(session, Asides())

    def awaits(self, planned: Planned) -> bool:
        """Tell whether its call has to wait for a question that was answered before it came."""
        number = planned.interaction.exchanges[0].number
        turns = self._asides_of(planned.interaction).open()
        return planned.skipped is None and any(turn.is_due(number) for _, turn in turns)

    def awaits_more(self, planned: Planned) -> bool:
        """Tell whether a question is still to come that was asked while its call was pending."""
        turns = self._asides_of(planned.interaction).open()
        return any(number == planned.interaction.number for number, _ in turns)

    def give_up(self, planned: Planned) -> None:
        """Expect no more what its call has waited for in vain; that is told of the stream."""
        first = planned.interaction.exchanges[0].number
        asides = self._asides_of(planned.interaction)
        for number, turn in asides.open():
            if turn.is_due(first):
                if number in self._listening:
                    self._listening[number].was_not_asked(turn)
                turn.questions.clear()

    def _sent(self, request: Request) -> Request:
        if is_at(self._recorded_endpoint, request):
            request = replace(request, target=self._endpoint)
        kept = tuple(
            (name, value)
            for name, value in request.headers
            # Of a credential or a condition only the name was kept.
            if value or name.lower() not in CREDENTIAL_HEADERS | CONDITION_HEADERS
        )
        request = replace(request, headers=kept)
        body = request.body
        if self._values and body:
            body = with_values(body, SENT_BACK, self._values.get)
        sessions = {recorded: session.id for recorded, session in self._sessions.items()}
        request = with_body(request, with_live_names(body, sessions))
        return self._handles.in_live(request)

    def ended(self, repeated: Repeated) -> VerifiedInteraction:
        """Return what came of an interaction, and take what others need of it."""
        verified = repeated.verified()
        planned = verified.planned
        if planned.part != "listening":
            self._asides_of(planned.interaction).drop(planned.interaction.number)
        for recorded, _, response in verified.pairs:
            self._values |= issued_values(recorded.rpc_response, response)
        last = verified.pairs[-1].live if verified.pairs else None
        if planned.opens and (last is None or has_error(last) or verified.verdict == "not-reached"):
            why = verified.reason or "no response" if last is None else outcome(last)
            self._unopened[planned.opens] = f"its session was not opened: {why}"
        if planned.is_compared or verified.verdict == "not-reached":
            return verified
        return replace(verified, verdict="skipped", changes=(), reason="it was not selected")

    def verified_again(self, verified: VerifiedInteraction) -> VerifiedInteraction:
        """Return the verdict, where more places are left out now."""
        ignored = self._ignored_for(verified.planned.call)
        counting = without_ignored([each.change for each in verified.changes], ignored)
        changes = tuple(each for each in verified.changes if each.change in counting)
        return replace(verified, verdict=heaviest(counting), changes=changes)

    def failed(self, planned: Planned, reason: str) -> VerifiedInteraction:
        """Return that an interaction got no response, and why."""
        if planned.opens:
            self._unopened[planned.opens] = f"its session was not opened: {reason}"
        return VerifiedInteraction(planned, "not-reached", reason=reason)
