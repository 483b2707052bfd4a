"""The answers of a recorded conversation, for a live server that asks the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    RecordedExchange,
    RecordedInteraction,
    task_turns,
)
from mrtr_cassette.core.compare.handles import Handles
from mrtr_cassette.core.compare.responses import (
    asked_question,
    comparable_text,
    pushed_value,
    question_changes,
    renamed_keys_in_changes,
    response_changes,
    round_change,
    unasked_change,
    whole_response_value,
)
from mrtr_cassette.core.compare.values import (
    Change,
    Verdict,
    without_ignored_changes,
    without_repeated_values,
)
from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    AskedOtherwise,
    FinishedCall,
    LiveAsk,
    NeedsAnswers,
    PushedAsk,
    Reply,
    TaskAsk,
)
from mrtr_cassette.core.drive.live_session import with_id_of, with_live_names
from mrtr_cassette.core.drive.open_turns import (
    OpenTurn,
    Question,
    SessionTurns,
    open_turns,
    question_alone,
    unprompted_turns,
)
from mrtr_cassette.core.protocol.dialect import (
    INPUT_REQUESTS,
    InputRequired,
    answers_text,
    with_answer_keys,
)
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.pointers import ABSENT, members_of, value_at

RepeatedValues = Sequence[tuple[Any, Any]]
"""Values of a recorded call, with those that another call has in their places."""


class TurnChange(NamedTuple):
    """A change in the turn that asks, from 1, or 0 for the final response."""

    turn: int
    change: Change


def without_turn_numbers(changes: Iterable[TurnChange]) -> list[Change]:
    """Return changes without the turns in which they are."""
    return [change for _, change in changes]


class LivePair(NamedTuple):
    """A recorded response, and the live one in its place, as it would be recorded.

    Attributes:
        response: the live JSON-RPC response as it came.
        turn: the turn that the recorded response asks, or in whose place the live response came;
            0 stands for the final response.
        keys: the recorded keys of a task's questions by the live ones, as they would be recorded.
        unasked_questions: the questions in whose place the response came.
    """

    recorded: RecordedExchange
    live: RecordedExchange
    response: Message | None = None
    turn: int = 0
    keys: Mapping[str, str] = MappingProxyType({})
    unasked_questions: Any = None

    @property
    def expected(self) -> Any:
        """What the recording says in the place of the live response."""
        if self.unasked_questions:
            return {INPUT_REQUESTS: self.unasked_questions}
        return whole_response_value(self.recorded)

    @property
    def received(self) -> Any:
        """What the live server says."""
        return whole_response_value(self.live)


class LivePush(NamedTuple):
    """A pushed request of the live server, as it would be recorded.

    Attributes:
        turn: the recorded turn that asks the same; a new one for an additional question.
        recorded_key: that of the recorded question; empty for an additional question.
        live_key: its key in the live run.
    """

    turn: int
    recorded_key: str
    live_key: str


_TURN_OF_INCOMPLETE_RESPONSE: Final = -1
"""The turn of a response that is not complete."""


@dataclass(slots=True, eq=False)
class Findings:
    """What was found so far by comparing a live conversation with its recording.

    Attributes:
        left_out: the changes at ignored places.
        states: request states and other names, as the live server issued and the cassette has them.
        pushes: the requests that the live server pushed.
        is_rerouted: the live server asks more or fewer turns, or in another order.
        complete_pairs: the responses that have come.
        pending_pair: what has come of the response that is pending, if something was pushed
            meanwhile.
    """

    changes: list[TurnChange] = field(default_factory=list)
    left_out: list[Change] = field(default_factory=list)
    states: list[tuple[str, str]] = field(default_factory=list)
    pushes: list[LivePush] = field(default_factory=list)
    takes_other_course: bool = False
    complete_pairs: list[LivePair] = field(default_factory=list)
    pending_pair: LivePair | None = None

    @property
    def response_pairs(self) -> list[LivePair]:
        """The responses that have come, and the beginning of the one that is still to come."""
        if self.pending_pair is None:
            return [*self.complete_pairs]
        return [*self.complete_pairs, self.pending_pair]

    @property
    def recorded_by_live_hash(self) -> dict[str, str]:
        """The recorded states and names by the hashes of the live ones."""
        return {sha256_of(live): recorded for live, recorded in self.states}

    def add_changes(self, turn: int, changes: Iterable[Change]) -> None:
        """Add changes in a turn."""
        for change in changes:
            self.changes.append(TurnChange(turn, change))


@dataclass(frozen=True, slots=True)
class _QuestionMatch:
    """A recorded question of a turn, or None for an additional question, and what differs now."""

    number: int
    changes: list[Change]
    turn: OpenTurn | None = None
    question: Question | None = None


@dataclass(frozen=True, slots=True)
class _AskMatch:
    """The index of the recorded response that asks the same now, or None, and what differs.

    `is_expected` says that it is the next one, and that the recorded answer fits as it is.
    """

    exchange_index: int | None
    changes: list[Change]
    is_expected: bool = False


@dataclass(slots=True, eq=False)
class _Progress:
    """How far a live conversation has come in the recorded one.

    Attributes:
        position: the index of the recorded exchange whose response should come next.
        sent_index: the index of the recorded exchange whose request was sent last.
        answered_indexes: the indexes of the recorded exchanges whose asks were answered.
    """

    position: int = 0
    sent_index: int = 0
    answered_indexes: set[int] = field(default_factory=set)

    def pass_answered_ask(self, index: int) -> None:
        """Go on behind the ask of an exchange, and behind those that were answered before."""
        self.answered_indexes.add(index)
        self.sent_index = index + 1
        self.position = index + 1
        while self.position in self.answered_indexes:
            self.position += 1


class _OpenQuestions:
    """The questions of pushed turns and of a task that the live server has not asked so far."""

    def __init__(
        self,
        interaction: RecordedInteraction,
        turns: Sequence[OpenTurn],
        ignored: Collection[str],
        refused: Collection[Verdict],
        findings: Findings,
        repeated_values: RepeatedValues,
    ) -> None:
        """Take the open turns of a conversation.

        Args:
            ignored: the places at which no change counts.
            refused: the verdicts on questions that the recorded answers do not fit.
        """
        self._repeated_values = repeated_values
        self._turns = turns
        self._turns_until_left = _turns_until_left(interaction)
        self._ignored_places = ignored
        self._refused_verdicts = refused
        self._findings = findings

    def turns_open_at(self, position: int) -> list[OpenTurn]:
        """Return the turns that come before the response to an exchange."""
        turns_until_position = []
        for turn in self._turns:
            if turn.questions and turn.position <= position:
                turns_until_position.append(turn)

        return turns_until_position

    @property
    def is_task_left_now(self) -> bool:
        """Whether the recorded client cancelled the task after the turns asked so far."""
        asked_turns = 0
        for turn in self._turns:
            if turn.is_polled and not turn.questions:
                asked_turns += 1

        return asked_turns == self._turns_until_left

    def changes_that_count(self, changes: list[Change]) -> list[Change]:
        """Return the changes that count; the ignored ones are left out."""
        changes = without_repeated_values(changes, self._repeated_values)
        counting_changes = without_ignored_changes(changes, self._ignored_places)
        for change in changes:
            if change not in counting_changes:
                self._findings.left_out.append(change)

        return counting_changes

    def has_fitting_answer(self, changes: Iterable[Change]) -> bool:
        """Tell whether the recorded answer fits a question with these changes."""
        return all(change.verdict not in self._refused_verdicts for change in changes)

    def is_answered_by(self, match: _QuestionMatch) -> bool:
        """Tell whether there is a matching question, and its recorded answer fits."""
        return match.question is not None and self.has_fitting_answer(match.changes)

    def answerable_match(
        self, matches: Sequence[_QuestionMatch], asked: Any
    ) -> _QuestionMatch | None:
        """Return the question whose answer fits what is asked now, if there is one.

        The answer to a form with other words fits if the fields are the same.
        """
        for match in matches:
            if self.has_fitting_answer(match.changes):
                return match

        for match in matches:
            if _has_fields_of(match.question, asked):
                return match

        return None

    def nearest_match(
        self, turn: OpenTurn, asked: object, key: str = ""
    ) -> _QuestionMatch:
        """Return the question of a turn that is nearest to what is asked now.

        What was asked together may come in another order.
        """
        matches = []
        for question in turn.questions:
            recorded = {question.key: question.asked}
            received = {key or question.key: asked}
            changes = self.changes_that_count(question_changes(recorded, received))
            matches.append(_QuestionMatch(turn.number, changes, turn, question))

        return min(matches, key=lambda match: len(match.changes))


def _turns_until_left(interaction: RecordedInteraction) -> int | None:
    """Return after how many turns of its task the recorded client cancelled it, or left it at work.

    None stands for a task that was followed to its end, or left at a question.
    """
    turns = task_turns(interaction.steps)
    for index, task_step in enumerate(interaction.steps):
        if task_step.is_cancellation:
            return sum(turn.asking_step < index for turn in turns)

    is_left_at_question = bool(turns) and not turns[-1].given_answers
    if interaction.is_open and not is_left_at_question:
        return len(turns)

    return None


class RecordedScript:
    """The answers of a recorded conversation, as far as the live server asks the same."""

    def __init__(
        self,
        interaction: RecordedInteraction,
        ignored: Collection[str] = (),
        turns: Sequence[OpenTurn] | None = None,
        session_turns: SessionTurns | None = None,
        handles: Handles | None = None,
        *,
        repeated_values: RepeatedValues = (),
        renames_keys: bool = False,
        is_at_start: bool = False,
    ) -> None:
        """Take a recorded conversation, whose last exchange may ask and have no answer here.

        `turns` are its own that the live server has not asked so far, and `session_turns` all of
        its session, of which the server asks some of its own accord. `handles` gets what the live
        server made up; `repeated_values` are those of the recorded call in whose places the live
        call has others. With `renames_keys`, the recorded question is answered under another key
        too; with `is_at_start`, messages logged meanwhile belong to the start of the server.
        """
        self._interaction = interaction
        self._exchanges = interaction.exchanges
        self.findings = Findings()
        if turns is None:
            turns = open_turns(interaction)

        refused_verdicts: set[Verdict] = {"question-changed"}
        if not renames_keys:
            refused_verdicts.add("key-changed")

        self._open_questions = _OpenQuestions(
            interaction,
            turns,
            ignored,
            refused_verdicts,
            self.findings,
            repeated_values,
        )
        self._session_turns = {} if session_turns is None else session_turns
        self._handles = handles
        self._is_at_start = is_at_start
        self._is_task = False
        self._progress = _Progress()
        self.accepts: Callable[[int], bool] | None = None
        """Tells whether new questions of a turn are accepted, so that the conversation goes on."""

    def reply_to_ask(self, ask: LiveAsk) -> Reply:
        """Give the recorded answers, if the ask is the recorded one."""
        reply = self._recorded_reply(ask)
        if not isinstance(reply, AskAnswer) or reply.value is None:
            return reply

        live_by_name = {recorded: live for live, recorded in self.findings.states}
        value = with_live_names(reply.value, live_by_name)
        if self._handles is not None:
            value = self._handles.answer_in_live(value)

        return replace(reply, value=value)

    def _recorded_reply(self, ask: LiveAsk) -> Reply:
        """Return the recorded answers in the cassette's terms."""
        if isinstance(ask, PushedAsk):
            return self._answer_pushed_request(ask)
        if not isinstance(ask, TaskAsk):
            return self._answer_asking_response(ask)
        if ask.asks_nothing:
            return self._take_created_task(ask)

        return self._answer_questions_of_task(ask)

    def _is_accepted(self, turn: int) -> bool:
        """Tell whether new questions of a turn are accepted."""
        return self.accepts is not None and self.accepts(turn)

    @property
    def _position_of_next_response(self) -> int:
        """The index of the recorded exchange whose response should come next, or the last one."""
        last = len(self._exchanges) - 1
        return min(self._progress.position, last)

    @property
    def _recorded_for_next_response(self) -> RecordedExchange:
        """The recorded exchange whose response should come next, or the last one."""
        return self._exchanges[self._position_of_next_response]

    def _pair_response(
        self,
        recorded: RecordedExchange,
        ask: LiveAsk | FinishedCall,
        turn: int,
        unasked_questions: Any = None,
    ) -> RecordedExchange:
        """Pair a live response with a recorded one; return it with the recorded ids."""
        live = self._with_recorded_id_and_handles(recorded, ask)
        self.findings.pending_pair = None
        self.findings.complete_pairs.append(
            LivePair(
                recorded, live, ask.response, turn, unasked_questions=unasked_questions
            )
        )
        self._progress.position += 1

        return live

    def _with_recorded_id_and_handles(
        self, recorded: RecordedExchange, ask: LiveAsk | FinishedCall
    ) -> RecordedExchange:
        """Return a live exchange with the id and the handles that it has in the recording."""
        sent_exchange = recorded
        if not self._is_task:
            sent_exchange = self._exchanges[self._progress.sent_index]

        live = with_id_of(sent_exchange.call, ask.exchange)
        if self._handles is None:
            return live

        self._handles.learn_live_handles(recorded.rpc_response, ask.response)
        return self._handles.with_recorded_handles(live)

    # Asks in results

    def _answer_asking_response(self, ask: LiveAsk) -> Reply:
        """Answer a response to the call that asks."""
        turn = self._interaction.asking_turn(self._progress.position)
        match = self._matching_ask(ask)
        recorded = self._recorded_for_next_response
        if match.exchange_index is not None:
            recorded = self._exchanges[match.exchange_index]

        self._pair_response(recorded, ask, turn)
        self.findings.add_changes(turn, match.changes)
        issued_state = _issued_state(recorded)
        if ask.request_state is not None and issued_state is not None:
            self.findings.states.append((ask.request_state, issued_state))

        if not match.is_expected and not self._is_accepted(turn):
            return AskedOtherwise(ask, tuple(match.changes))

        last = len(self._exchanges) - 1
        if match.exchange_index is None or match.exchange_index == last:
            return NeedsAnswers(ask)

        return self._recorded_answer_to_ask(match.exchange_index, ask, match.changes)

    def _matching_ask(self, ask: LiveAsk) -> _AskMatch:
        """Return the recorded ask that is the one asked now."""
        position = self._progress.position
        recorded = self._recorded_for_next_response
        live = self._with_recorded_id_and_handles(recorded, ask)
        open_turns_here = self._open_questions.turns_open_at(position)
        if position >= len(self._exchanges) or recorded.ask is None:
            changes = [_additional_ask_change(live)]
        elif open_turns_here:
            changes = [_missing_turn_change(open_turns_here[0])]
        else:
            changes = self._counting_ask_changes(position, live, ask)
            if self._open_questions.has_fitting_answer(changes):
                return _AskMatch(position, changes, is_expected=True)

        if self.accepts is None or open_turns_here:
            return _AskMatch(None, changes)

        return self._answerable_ask(live, ask, changes)

    def _answerable_ask(
        self, live: RecordedExchange, ask: LiveAsk, changes: list[Change]
    ) -> _AskMatch:
        """Return the recorded ask that has the answers to a new one.

        It is the one with the same question, or else the one with the same keys.
        """
        matches_with_same_keys = []
        for match, recorded in self._unanswered_asks(live, ask):
            if self._open_questions.has_fitting_answer(match.changes):
                return self._match_with_additional_ask(match, live)

            if _has_all_answers(recorded.ask, live.ask, match.changes):
                matches_with_same_keys.append(match)

        for match in matches_with_same_keys:
            if match.exchange_index == self._progress.position:
                return match

        nearest = _AskMatch(None, changes)
        if matches_with_same_keys:
            nearest = matches_with_same_keys[0]

        return self._match_with_additional_ask(nearest, live)

    def _unanswered_asks(
        self, live: RecordedExchange, ask: LiveAsk
    ) -> Iterator[tuple[_AskMatch, RecordedExchange]]:
        """Yield the recorded asks that were not answered so far, compared with a live one."""
        for index, recorded in enumerate(self._exchanges[:-1]):
            if recorded.ask is None or index in self._progress.answered_indexes:
                continue

            changes = self._counting_ask_changes(index, live, ask)
            yield _AskMatch(index, changes), recorded

    def _match_with_additional_ask(
        self, match: _AskMatch, live: RecordedExchange
    ) -> _AskMatch:
        """Note that the conversation takes another course at an ask."""
        self.findings.takes_other_course = True
        changes = [_additional_ask_change(live), *match.changes]
        return replace(match, changes=changes)

    def _counting_ask_changes(
        self, exchange_index: int, live: RecordedExchange, ask: LiveAsk
    ) -> list[Change]:
        """Return the differences that count between a live ask and a recorded one."""
        recorded = self._exchanges[exchange_index]
        states = self.findings.recorded_by_live_hash
        issued_state = _issued_state(recorded)
        if ask.request_state is not None and issued_state is not None:
            states[sha256_of(ask.request_state)] = issued_state

        changes = response_changes(
            recorded, live, states, is_at_start=self._is_at_start
        )
        return self._open_questions.changes_that_count(changes)

    def _recorded_answer_to_ask(
        self, exchange_index: int, ask: LiveAsk, changes: Iterable[Change]
    ) -> AskAnswer:
        """Give the recorded answer to one of the recorded asks."""
        self._progress.pass_answered_ask(exchange_index)
        recorded = self._exchanges[exchange_index].ask
        retry = self._exchanges[exchange_index + 1].request.body
        if recorded is not None:
            live_keys_by_recorded = self._live_keys(
                recorded, ask, renamed_keys_in_changes(changes)
            )
            retry = with_answer_keys(retry, live_keys_by_recorded)

        return AskAnswer(answers_text(retry))

    def _live_keys(
        self, recorded: InputRequired, ask: LiveAsk, renamed_keys: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the live keys of an ask by the recorded ones, of which some are renamed.

        None stands for the key of a question that is gone.
        """
        states = self.findings.recorded_by_live_hash
        live_by_text = {}
        for key, live_key in ask.live_keys.items():
            live_by_text[comparable_text(key, states)] = live_key

        live_keys_by_recorded = {}
        for key in recorded.input_requests:
            text = comparable_text(key)
            live = live_by_text.get(renamed_keys.get(text, text))
            if live != key:
                live_keys_by_recorded[key] = live

        return live_keys_by_recorded

    # Pushed requests

    def _answer_pushed_request(self, ask: PushedAsk) -> Reply:
        """Answer a pushed request."""
        recorded = self._recorded_for_next_response
        turn = self._interaction.asking_turn(self._position_of_next_response)
        asked = self._pushed_question_as_recorded(ask)
        match = self._matching_question(asked, turn)
        if not self._open_questions.is_answered_by(match):
            unprompted_question = self._take_unprompted_question(asked)
            if unprompted_question is not None:
                return unprompted_question.answer or NeedsAnswers(ask)

        recorded_key = ""
        if match.question is not None:
            recorded_key = match.question.recorded_key

        self.findings.pushes.append(LivePush(match.number, recorded_key, ask.key))
        if ask.response_so_far is not None:
            live = with_id_of(recorded.call, ask.response_so_far)
            self.findings.pending_pair = LivePair(
                recorded, live, turn=_TURN_OF_INCOMPLETE_RESPONSE
            )

        if not self._continues_after_question(match):
            return AskedOtherwise(ask, tuple(match.changes))

        return _take_recorded_answer(match) or NeedsAnswers(ask)

    def _pushed_question_as_recorded(self, ask: LiveAsk) -> dict[str, Any]:
        """Return the question of a pushed request with the recorded ids and names."""
        response = with_id_of(
            self._recorded_for_next_response.call, ask.exchange
        ).response
        raw = b"" if response is None else response.body
        return pushed_value(raw, self.findings.recorded_by_live_hash)

    def _take_unprompted_question(self, asked: object) -> Question | None:
        """Take the question that the server asks of its own accord now, if it is one."""
        for _, turn in unprompted_turns(self._session_turns):
            match = self._open_questions.nearest_match(turn, asked)
            question = match.question
            if question is not None and self._open_questions.is_answered_by(match):
                turn.questions.remove(question)
                return question

        return None

    # Questions that come one by one

    def _matching_question(
        self, asked: object, number: int, key: str = ""
    ) -> _QuestionMatch:
        """Return the recorded question that is the one asked now.

        An additional question gets the number given here, and `key` if a task asks it.
        """
        matches = []
        for turn in self._open_questions.turns_open_at(self._progress.position):
            if turn.is_polled == bool(key):
                matches.append(self._open_questions.nearest_match(turn, asked, key))

        if matches and self.accepts is None:
            return matches[0]

        added_question = round_change(ABSENT, {key or "question": asked})
        match = self._open_questions.answerable_match(matches, asked)
        if match is None:
            return _QuestionMatch(number, [added_question])
        if match is matches[0]:
            return match

        return replace(match, changes=[added_question, *match.changes])

    def _continues_after_question(self, match: _QuestionMatch) -> bool:
        """Note what differs in a question; tell whether the conversation goes on after it."""
        self.findings.add_changes(match.number, match.changes)
        is_moved = any(change.verdict == "rounds-changed" for change in match.changes)
        if is_moved:
            self.findings.takes_other_course = True
        elif self._open_questions.has_fitting_answer(match.changes):
            return True

        return self._is_accepted(match.number)

    # Tasks

    def _take_created_task(self, ask: TaskAsk) -> AskAnswer | AskedOtherwise:
        """Take the response that makes the call a task, and go on if it was one when recorded."""
        recorded_id = self._interaction.created_task_id
        if not recorded_id or not self._is_last_response_next:
            self.take_final_response(ask)
            changes = without_turn_numbers(self.findings.changes)
            return AskedOtherwise(ask, tuple(changes))

        self._pair_response(self._exchanges[-1], ask, 0)
        self.findings.states.append((ask.task.id, recorded_id))
        self._is_task = True

        return self._answers_for_task(ask, {})

    @property
    def _is_last_response_next(self) -> bool:
        """Whether the last response to the call should come next."""
        position = self._progress.position
        is_last = position == len(self._exchanges) - 1
        return is_last and not self._open_questions.turns_open_at(position)

    def _answer_questions_of_task(self, ask: TaskAsk) -> Reply:
        """Answer what a state of the task asks, one question after the other."""
        self._pair_response(self._asking_poll(), ask, 0)
        answers: dict[str, bytes | None] = {}
        is_all_recorded = True
        for name, key in ask.live_keys.items():
            match = self._match_of_polled_question(name)
            if not self._continues_after_question(match):
                return AskedOtherwise(ask, tuple(match.changes))

            if match.question is None:
                is_all_recorded = False

            answer = _take_recorded_answer(match)
            if answer is not None:
                answers[key] = answer.value

        if not is_all_recorded:
            return NeedsAnswers(ask)

        cancels = self._open_questions.is_task_left_now
        is_last = not self._open_questions.turns_open_at(self._progress.position)
        is_left_open = is_last and self._interaction.is_open and not cancels
        if is_left_open and not answers:
            return NeedsAnswers(ask)

        return self._answers_for_task(ask, answers)

    def _answers_for_task(self, ask: TaskAsk, answers: Mapping[str, Any]) -> AskAnswer:
        """Return the answers to a task, and whether its client cancels it now, or left it."""
        cancels = self._open_questions.is_task_left_now
        leaves = cancels and self._interaction.is_open
        return ask.answers_for_update(answers, cancels=cancels, leaves=leaves)

    def _asking_poll(self) -> RecordedExchange:
        """Return the recorded poll that should ask next, or else the last one."""
        unasked_turns = self._open_questions.turns_open_at(self._progress.position)
        if unasked_turns and unasked_turns[0].asking_poll is not None:
            return unasked_turns[0].asking_poll
        return self._interaction.ending_exchange

    def _match_of_polled_question(self, name: str) -> _QuestionMatch:
        """Return the recorded question that the last state asks under a key.

        Its poll is the one with which the state is paired.
        """
        pair = self.findings.complete_pairs[-1]
        state = pair.live.polled_state
        if state is None:
            raise AssertionError("unreachable because a state of the task asks")

        key, asked = question_alone(name, state.input_requests[name], state.id)
        count = len(list(self._interaction.turns))
        match = self._matching_question(asked, count + 1, key)
        recorded: RecordedExchange | None = self._interaction.ending_exchange
        if match.turn is not None:
            recorded = match.turn.asking_poll

        keys = dict(pair.keys)
        if match.question is not None:
            keys[name] = match.question.recorded_key

        self.findings.complete_pairs[-1] = pair._replace(
            recorded=recorded or pair.recorded, turn=match.number, keys=keys
        )
        return match

    # The end

    def take_final_response(self, last: LiveAsk | FinishedCall) -> None:
        """Take the response that asks nothing."""
        position = self._progress.position
        recorded = self._recorded_for_next_response
        if self._is_task:
            recorded = self._interaction.ending_exchange

        if self._interaction.created_task_id and not self._is_task:
            self.findings.takes_other_course = True

        turn = 0
        unasked_questions = None
        open_turns_now = self._open_questions.turns_open_at(position)
        if open_turns_now:
            turn = open_turns_now[0].number
            unasked_questions = open_turns_now[0].unasked_questions
        elif recorded.ask is not None:
            turn = self._interaction.asking_turn(position)
            unasked_questions = asked_question(recorded)

        live = self._pair_response(recorded, last, turn, unasked_questions)
        if unasked_questions is not None:
            self.findings.takes_other_course = True
            self.findings.add_changes(turn, [unasked_change(unasked_questions, live)])
        elif not (self._is_task and self._interaction.is_open):
            states = self.findings.recorded_by_live_hash
            changes = response_changes(
                recorded, live, states, is_at_start=self._is_at_start
            )
            self.findings.add_changes(
                turn, self._open_questions.changes_that_count(changes)
            )

    def note_unasked_turn(self, turn: OpenTurn) -> None:
        """Note that the live server does not ask a turn."""
        self.findings.add_changes(turn.number, [_missing_turn_change(turn)])


def _missing_turn_change(turn: OpenTurn) -> Change:
    """Return the change that a turn is missing."""
    return round_change(turn.unasked_questions, ABSENT)


def _additional_ask_change(live: RecordedExchange) -> Change:
    """Return the change that a response asks one turn more."""
    return round_change(ABSENT, asked_question(live))


def _issued_state(recorded: RecordedExchange) -> str | None:
    """Return the request state that a recorded ask issued."""
    return None if recorded.ask is None else recorded.ask.request_state


def _take_recorded_answer(match: _QuestionMatch) -> AskAnswer | None:
    """Return the recorded answer to a question, which is not open any more."""
    if match.turn is None or match.question is None:
        return None

    match.turn.questions.remove(match.question)
    return match.question.answer


def _has_all_answers(
    recorded: InputRequired | None,
    live: InputRequired | None,
    changes: Iterable[Change],
) -> bool:
    """Tell whether the answer to a recorded ask has one for each question of a live ask."""
    if recorded is None or live is None:
        return False

    answered = {*recorded.input_requests, *renamed_keys_in_changes(changes).values()}
    return answered.issuperset(live.input_requests)


def _has_fields_of(recorded: Question | None, asked: Any) -> bool:
    """Tell whether two questions are forms with the same fields, so that one answer fits both."""
    if recorded is None:
        return False
    return _method_and_fields(recorded.asked) == _method_and_fields(asked)


def _method_and_fields(question: Any) -> tuple[Any, list[str]]:
    """Return the method of a question and the names of its form's fields."""
    properties = value_at(question, ("params", "requestedSchema", "properties"))
    return question.get("method"), sorted(members_of(properties))
