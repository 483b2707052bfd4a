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
    said_value,
    task_question,
    unasked_change,
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
from mrtr_cassette.core.drive.handles import Handles, handles_in
from mrtr_cassette.core.drive.plan import Planned, endpoint_of, is_at
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
    """A recorded response, and the live one in its place, as it would be recorded.

    Attributes:
        response: the live JSON-RPC response as it came.
        turn: the turn that the recorded one asks, or 0 for the final response.
    """

    recorded: RecordedExchange
    live: RecordedExchange
    response: Message | None = None
    turn: int = 0


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
        self._position = 0
        """The index of the recorded exchange whose response should come next."""
        self._sent = 0
        """The index of the recorded exchange whose request was sent last."""
        self._answered: set[int] = set()
        self.accepts: Callable[[int], bool] | None = None
        """Tells whether what is new in a turn is accepted, so that the conversation goes on."""
        self.is_rerouted = False
        """Whether the live server asks more or fewer turns, or in another order."""
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

    def _came(
        self, recorded: RecordedExchange, ask: LiveAsk | Finished, turn: int
    ) -> RecordedExchange:
        """Take a live response in the place of a recorded one; return it with the recorded ids."""
        live = self._as_recorded(recorded, ask)
        self.pairs.append(LivePair(recorded, live, ask.response, turn))
        self._position += 1
        return live

    def _as_recorded(self, recorded: RecordedExchange, ask: LiveAsk | Finished) -> RecordedExchange:
        """Return a live exchange with the id and the handles that it has in the recording."""
        asked = recorded if self._is_task else self._exchanges[self._sent]
        live = with_id_of(asked.call, ask.exchange)
        if self._handles is None:
            return live
        self._handles.took(recorded.rpc_response, ask.response)
        return self._handles.as_recorded(live)

    def answer(self, ask: LiveAsk) -> Reply:
        """Give the recorded answers, if the ask is the recorded one."""
        reply = self._reply(ask)
        if not isinstance(reply, Answered) or reply.value is None:
            return reply
        live_by_name = {recorded: live for live, recorded in self.states}
        value = with_live_names(reply.value, live_by_name)
        if self._handles is not None:
            value = self._handles.answer_in_live(value)
        return replace(reply, value=value)

    def _reply(self, ask: LiveAsk) -> Reply:
        if ask.push is not None:
            return self._answer_push(ask)
        if ask.task_keys:
            return self._answer_task(ask)
        if ask.task is not None:
            return self._take_task(ask, ask.task.id)
        return self._answer_result(ask)

    def _answer_result(self, ask: LiveAsk) -> Reply:
        position = self._position
        turn = self._interaction.asking_turn(position)
        expected = self._exchanges[position] if position < len(self._exchanges) else None
        live = self._as_recorded(expected or self._exchanges[-1], ask)
        unasked = self._open_at(position)
        index: int | None = None
        if expected is None or expected.ask is None:
            changes = [round_change(ABSENT, asked_question(live))]
        elif unasked:
            changes = [_not_asked(unasked[0])]
        else:
            changes = self._counting(self._ask_changes(position, live, ask))
            index = position if self._is_answered(changes) else None
        is_same = index is not None
        if self.accepts is not None and not is_same and not unasked:
            index, changes = self._answerable(live, ask, changes)
        at = min(position, len(self._exchanges) - 1) if index is None else index
        recorded = self._exchanges[at]
        self._came(recorded, ask, turn)
        self._take(turn, changes)
        issued = None if recorded.ask is None else recorded.ask.request_state
        if ask.request_state is not None and issued is not None:
            self.states.append((ask.request_state, issued))
        if not is_same and not (self.accepts is not None and self.accepts(turn)):
            return AskedOtherwise(ask, tuple(changes))
        if index is None or index == len(self._exchanges) - 1:
            return NeedsAnswers(ask)
        return self._answer_to(index, ask, changes)

    def _answer_to(self, index: int, ask: LiveAsk, changes: Sequence[Change]) -> Answered:
        """Give the recorded answer to one of the recorded asks."""
        recorded = self._exchanges[index].ask
        retry = self._exchanges[index + 1].request.body
        self._answered.add(index)
        self._sent = index + 1
        self._position = index + 1
        while self._position in self._answered:
            self._position += 1
        if recorded is not None:
            names = self._live_keys(recorded, ask, changed_keys(changes))
            retry = with_answer_keys(retry, names)
        return Answered(answers_text(retry))

    def _ask_changes(self, index: int, live: RecordedExchange, ask: LiveAsk) -> list[Change]:
        """Return what differs between a live ask and that of a recorded exchange."""
        recorded = self._exchanges[index]
        states = self._recorded_by_hash
        issued = None if recorded.ask is None else recorded.ask.request_state
        if ask.request_state is not None and issued is not None:
            states[sha256_of(ask.request_state)] = issued
        return response_changes(recorded, live, states)

    def _answerable(
        self, live: RecordedExchange, ask: LiveAsk, changes: list[Change]
    ) -> tuple[int | None, list[Change]]:
        """Return which recorded ask has the answers to a new one, or None; and the changes.

        It is the one with the same question, or else the one with the same keys.
        """
        moved = [round_change(ABSENT, asked_question(live))]
        same_keys: list[tuple[int, list[Change]]] = []
        for index, recorded in enumerate(self._exchanges[:-1]):
            if recorded.ask is None or index in self._answered:
                continue
            found = self._counting(self._ask_changes(index, live, ask))
            if self._is_answered(found):
                self.is_rerouted = True
                return index, [*moved, *found]
            if live.ask is not None and not unanswered_keys(recorded.ask, live.ask, found):
                same_keys.append((index, found))
        for index, found in same_keys:
            if index == self._position:
                return index, found
        self.is_rerouted = True
        for index, found in same_keys:
            return index, [*moved, *found]
        return None, [*moved, *changes]

    def _live_keys(
        self, recorded: InputRequired, ask: LiveAsk, renamed: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the live keys of an ask by the recorded ones, of which some are `renamed`.

        None stands for the key of a question that is gone.
        """
        names: dict[str, str | None] = {}
        states = self._recorded_by_hash
        live_by_text = {comparable_text(key, states): live for key, live in ask.live_keys.items()}
        for key in recorded.input_requests:
            text = comparable_text(key)
            live = live_by_text.get(renamed.get(text, text))
            if live != key:
                names[key] = live
        return names

    def _answer_push(self, ask: LiveAsk) -> Reply:
        position = min(self._position, len(self._exchanges) - 1)
        response = with_id_of(self._exchanges[position].call, ask.exchange).response
        value = pushed_value(b"" if response is None else response.body, self._recorded_by_hash)
        number = self._interaction.asking_turn(position)
        changes = [round_change(ABSENT, {ask.key: value})]
        for turn in self._open_at(position)[:1]:
            question, changes = self._nearest(turn, value)
            if self._is_answered(changes):
                turn.questions.remove(question)
                return question.answer or NeedsAnswers(ask)
            number = turn.number
        for _, turn in self._asides.open():
            question, differences = self._nearest(turn, value)
            if self._is_answered(differences):
                turn.questions.remove(question)
                return question.answer or NeedsAnswers(ask)
        return self._refuse(ask, number, changes)

    def _take_task(self, ask: LiveAsk, task_id: str) -> Answered | AskedOtherwise:
        """Take the response that makes the call a task, and go on if it was one when recorded."""
        position = self._position
        recorded_id = self._interaction.task_id
        if position != len(self._exchanges) - 1 or not recorded_id or self._open_at(position):
            self.finished(ask)
            return AskedOtherwise(ask, tuple(change for _, change in self.changes))
        self._came(self._exchanges[-1], ask, 0)
        self.states.append((task_id, recorded_id))
        self._is_task = True
        return Answered(None, cancels=self._is_left_now)

    @property
    def _is_left_now(self) -> bool:
        asked = [each for each in self._turns if each.asking is not None and not each.questions]
        return len(asked) == self._turns_until_left

    def _answer_task(self, ask: LiveAsk) -> Reply:
        """Answer what a state of the task asks, one question after the other."""
        position, answers = self._position, dict[str, bytes | None]()
        due = next(iter(self._open_at(position)), None)
        recorded = None if due is None else due.asking
        number = 0 if due is None else due.number
        live = self._came(recorded or self._exchanges[-1], ask, number)
        state = polled_state(live.rpc_response)
        requests = {} if state is None else state.input_requests
        for name, key in ask.task_keys.items():
            asked = task_question({name: requests[name]}, "" if state is None else state.id)
            turn = next(iter(self._open_at(position)), None)
            if turn is None:
                number = len([*self._interaction.turns]) + 1
                return self._refuse(ask, number, [round_change(ABSENT, asked)])
            question, changes = self._nearest(turn, *asked.values(), *asked)
            self._take(turn.number, changes)
            is_accepted = self.accepts is not None and self.accepts(turn.number)
            if not self._is_answered(changes) and not is_accepted:
                return AskedOtherwise(ask, tuple(changes))
            turn.questions.remove(question)
            if question.answer is not None:
                answers[key] = question.answer.value
        if answers or self._is_left_now:
            value = write_answers(DIALECTS[0].name, answers) if answers else None
            return Answered(value, cancels=self._is_left_now)
        is_last = self._interaction.is_open and not self._open_at(position)
        return NeedsAnswers(ask) if is_last else Answered(None)

    def _nearest(
        self, turn: OpenTurn, asked: object, key: str = ""
    ) -> tuple[Question, list[Change]]:
        """Return the question of a turn that is nearest to what is asked now, and what differs.

        What was asked together may come in another order.
        """
        rows = []
        for question in turn.questions:
            changes = question_changes({question.key: question.asked}, {key or question.key: asked})
            rows.append((question, self._counting(changes)))
        return min(rows, key=lambda row: len(row[1]))

    def _is_answered(self, changes: Sequence[Change]) -> bool:
        return self._refused.isdisjoint(change.verdict for change in changes)

    def _counting(self, changes: list[Change]) -> list[Change]:
        kept = without_ignored(changes, self._ignored)
        self.left_out += [change for change in changes if change not in kept]
        return kept

    def finished(self, last: LiveAsk | Finished) -> None:
        """Take the response that asks nothing."""
        position = self._position
        recorded = self._exchanges[min(position, len(self._exchanges) - 1)]
        recorded = self._interaction.ending if self._is_task else recorded
        turn = 0 if recorded.ask is None else self._interaction.asking_turn(position)
        if self._interaction.task_id and not self._is_task:
            self.is_rerouted = True
        live = self._came(recorded, last, turn)
        if unasked := self._open_at(position):
            self.was_not_asked(unasked[0])
        elif recorded.ask is not None:
            self.is_rerouted = True
            self._take(turn, [unasked_change(recorded, live)])
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


def unanswered_keys(
    recorded: InputRequired, live: InputRequired, changes: Sequence[Change]
) -> set[str]:
    """Return the keys of a live ask for which an answer to the recorded one has nothing."""
    renamed = changed_keys(changes).values()
    return {*live.input_requests} - {*recorded.input_requests, *renamed}


# One cassette and one live server


class Reached(NamedTuple):
    """What was expected in a turn, or 0 for the end, and what the live server said."""

    turn: int
    expected: Any
    received: Any


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
    is_rerouted: bool = False
    """Whether the live server asked more or fewer turns, or in another order."""
    after: int | None = None
    """The number of a call before it that did not end as recorded, on which it may depend."""

    @property
    def number(self) -> int:
        """Its number in the cassette, from 1."""
        return self.planned.interaction.number

    @property
    def call(self) -> str:
        """Its call, as shown in messages."""
        return self.planned.call.title

    @property
    def reached(self) -> list[Reached]:
        """The responses that differ, and the last one of a call that was not reached."""
        turns = {turn for turn, change in self.changes if not change.is_information}
        found = {}
        for pair in self.pairs:
            if pair.turn in turns or (self.verdict == "not-reached" and pair is self.pairs[-1]):
                expected, received = (said_value(exchange) for exchange in pair[:2])
                found[pair.turn] = Reached(pair.turn, expected, received)
        return list(found.values())


@dataclass(slots=True)
class Repeated:
    """One interaction that is repeated with the live server, as `conversation` says."""

    planned: Planned
    conversation: Conversation
    _script: RecordedScript
    stream: Observation | None = None
    """The live stream, where it listens."""
    after: int | None = None
    """The number of a call before it that did not end as recorded, on which it may depend."""

    def verified(self) -> VerifiedInteraction:
        """Return what came of it."""
        standing = self.conversation.standing
        if isinstance(standing, Finished):
            self._script.finished(standing)
        verified = self.so_far()
        pairs = verified.pairs
        recorded, live = (pairs[-1].recorded, pairs[-1].live) if pairs else (None, None)
        if self.planned.part == "listening":
            if self._is_unheard:
                return replace(verified, verdict="not-reached", reason="no stream came")
            if not verified.changes:
                reason = "what a listening stream says depends on other calls"
                return replace(verified, verdict="skipped", reason=reason)
        elif standing is None:
            return replace(verified, verdict="not-reached", reason="no response came", changes=())
        elif recorded and live and recorded.rpc_response and not live.rpc_response:
            reason = f"{outcome(live)}, which is no response of MCP"
            return replace(verified, verdict="not-reached", reason=reason)
        return verified

    def so_far(self) -> VerifiedInteraction:
        """Return what came of it so far."""
        script = self._script
        changes = tuple(script.changes)
        return VerifiedInteraction(
            self.planned,
            heaviest(change for _, change in changes),
            changes,
            pairs=tuple(script.pairs),
            states=tuple(script.states),
            left_out=tuple(script.left_out),
            is_rerouted=script.is_rerouted,
            after=self.after,
        )

    @property
    def was_refused(self) -> bool:
        """Whether the call was left at a question that was not answered, or got no response."""
        return not isinstance(self.conversation.standing, Finished | NeedsAnswers)

    @property
    def _is_unheard(self) -> bool:
        """Whether a listening stream, which was recorded, is refused now.

        One without a head has had nothing to say.
        """
        response = self.planned.interaction.exchanges[0].response
        if self.stream is None or response is None or response.is_lines:
            return False
        return self.stream.status not in (NO_STATUS, response.status)


Accepts = Callable[[VerifiedInteraction, int], bool]
"""Tells whether what the live server says now in a turn, or 0 for the end, is accepted."""


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
        accepts: Accepts | None = None,
    ) -> None:
        self._accepts = accepts
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
        self._handles = Handles(handles_in(cassette))
        self._unmade: int | None = None
        """The number of the first call that was not sent and may have changed something."""
        self._strayed: int | None = None
        """The number of the first call that did not end as recorded and may change something."""

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
        repeated = Repeated(planned, conversation, script)
        if planned.call.depends_on_writes:
            repeated.after = self._strayed
        accepts = self._accepts
        if accepts is not None:
            script.accepts = lambda turn: accepts(repeated.so_far(), turn)
        return repeated

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
        if reason is None and self._unmade is not None and planned.call.depends_on_writes:
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
        for recorded, _, response, _ in verified.pairs:
            self._values |= issued_values(recorded.rpc_response, response)
        if self._strays(repeated, verified):
            self._strayed = planned.interaction.number
        last = verified.pairs[-1].live if verified.pairs else None
        if planned.opens and (last is None or has_error(last) or verified.verdict == "not-reached"):
            why = verified.reason or "no response" if last is None else outcome(last)
            self._unopened[planned.opens] = f"its session was not opened: {why}"
        if planned.is_compared or verified.verdict == "not-reached":
            return verified
        return replace(verified, verdict="skipped", changes=(), reason="it was not selected")

    def _strays(self, repeated: Repeated, verified: VerifiedInteraction) -> bool:
        """Tell whether a call is the first one that leaves the live server in another state."""
        if self._strayed is not None or not self._may_write(verified.planned):
            return False
        if repeated.was_refused or verified.verdict == "not-reached":
            return True
        turns = {turn for turn, change in verified.changes if not change.is_information}
        if not verified.is_rerouted and 0 not in turns:
            return False
        turn = 0 if 0 in turns else min(turns)
        return self._accepts is None or not self._accepts(verified, turn)

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
        if self._strayed is None and self._may_write(planned):
            self._strayed = planned.interaction.number
        return VerifiedInteraction(planned, "not-reached", reason=reason)
