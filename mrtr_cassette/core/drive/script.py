"""A recorded conversation's questions and answers, as far as the live server asks the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import listens
from mrtr_cassette.core.compare.responses import (
    asked_question,
    changed_keys,
    comparable_text,
    pushed_value,
    question_changes,
    response_changes,
    round_change,
    task_question,
    unasked_change,
)
from mrtr_cassette.core.compare.values import Change, without_ignored
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    Finished,
    LiveAsk,
    NeedsAnswers,
    PushedQuestion,
    Reply,
)
from mrtr_cassette.core.drive.handles import Handles
from mrtr_cassette.core.drive.live_session import with_id_of, with_live_names
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    InputRequired,
    answers_text,
    with_answer_keys,
    write_answers,
)
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, LIST_ROOTS, PING
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.jsonbytes import to_json
from mrtr_cassette.core.wire.pointers import ABSENT, value_at


class Question(NamedTuple):
    """A question under its key in a value of `inputRequests`, and its recorded answer if any.

    Attributes:
        name: its key as the cassette has it.
    """

    key: str
    asked: Any
    answer: Answered | None
    name: str = ""


@dataclass(slots=True, eq=False)
class OpenTurn:
    """A turn whose questions come one by one: those that the live server has not asked so far.

    Attributes:
        position: the index of the exchange that is pending meanwhile; of a task, the one after all.
        is_aside: the server asks it of its own accord, so which call is pending is chance.
        answered_at: the number of the exchange that gave the last answer; None if some are open.
    """

    number: int
    position: int
    questions: list[Question]
    asking: RecordedExchange | None = None
    is_aside: bool = False
    answered_at: int | None = None

    def is_due(self, number: int | None) -> bool:
        """Tell whether all of it had been answered when the request with a number came."""
        if not self.questions or self.answered_at is None or number is None:
            return False
        return self.answered_at < number


class Asides:
    """The turns of one session that its server asks of its own accord, whatever call is pending."""

    def __init__(self) -> None:
        self._turns: dict[int, list[OpenTurn]] = {}

    def take(self, interaction: int, turns: Iterable[OpenTurn]) -> None:
        """Take those of an interaction, in the place of its earlier ones."""
        self._turns[interaction] = [turn for turn in turns if turn.is_aside]

    def drop(self, interaction: int) -> None:
        """Expect those of an interaction no more."""
        self._turns.pop(interaction, None)

    def open(self) -> list[tuple[int, OpenTurn]]:
        """Return those that the server has not asked so far, each with its interaction."""
        found = []
        for interaction, turns in self._turns.items():
            found += [(interaction, turn) for turn in turns if turn.questions]
        return found


def open_turns(interaction: RecordedInteraction) -> list[OpenTurn]:
    """Return the turns of a recorded conversation that come by pushed requests or by a task."""
    turns = []
    for number, pushed in interaction.numbered_turns.items():
        turns.append(_pushed_turn(number, pushed))
    return [*turns, *_task_turns(interaction)]


def _pushed_turn(number: int, pushed: PushedTurn) -> OpenTurn:
    questions = []
    for request in pushed.asked:
        if request.message.method != PING:
            answer = _posted(pushed, request.key)
            value = pushed_value(request.message.raw)
            questions.append(Question(request.key, value, answer, request.key))
    numbers = [answer.exchange.number for answer in pushed.answers]
    counted = [number for number in numbers if number is not None]
    is_answered = len(counted) == len(pushed.asked)
    return OpenTurn(
        number,
        pushed.position,
        questions,
        is_aside=all(_is_aside(request) for request in pushed.asked),
        answered_at=max(counted) if is_answered and counted else None,
    )


def _is_aside(request: PushedRequest) -> bool:
    """Tell whether a request stands on a listening stream; over pipes, any call may have a line."""
    exchange = request.exchange
    if listens(exchange.call, exchange.response):
        return True
    response = exchange.response
    is_line = response is not None and response.is_lines
    return is_line and request.message.method == LIST_ROOTS


def _task_turns(interaction: RecordedInteraction) -> Iterator[OpenTurn]:
    after = len(interaction.exchanges)
    exchanges = [step.exchange for step in interaction.steps]
    first = interaction.asking_turn(after - 1)
    for number, turn in enumerate(task_turns(interaction.steps), start=first):
        given = turn.given or {}
        questions = []
        for name, request in turn.requests.items():
            answer = Answered(to_json(given[name]).encode()) if name in given else None
            asked = task_question({name: request}, interaction.task_id)
            for key, value in asked.items():
                questions.append(Question(key, value, answer, name))
        yield OpenTurn(number, after, questions, exchanges[turn.asked])


def _posted(turn: PushedTurn, key: str) -> Answered | None:
    """Return the recorded response to a pushed request as it was spelled."""
    posted = (
        answer.exchange.call.message for answer in turn.answers if answer.key == key
    )
    message = next(posted, None)
    if message is None:
        return None
    result, error = message.spelled(("result",)), message.spelled(("error",))
    return Answered(result) if result is not None else Answered(error or b"{}", "error")


class TurnChange(NamedTuple):
    """A change in the turn that asks, from 1, or 0 for the final response."""

    turn: int
    change: Change


class LivePair(NamedTuple):
    """A recorded response, and the live one in its place, as it would be recorded.

    Attributes:
        response: the live JSON-RPC response as it came.
        turn: the turn that the recorded one asks, or 0 for the final response.
        keys: the recorded keys of a task's questions by the live ones, as they would be recorded.
    """

    recorded: RecordedExchange
    live: RecordedExchange
    response: Message | None = None
    turn: int = 0
    keys: Mapping[str, str] = MappingProxyType({})


class LivePush(NamedTuple):
    """A pushed request of the live server, as it would be recorded.

    Attributes:
        turn: the recorded turn that asks the same; a new one for a question more.
        name: the key of the recorded question; empty for a question more.
        key: its key in the live run.
    """

    turn: int
    name: str
    key: str


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


class _Match(NamedTuple):
    """A recorded question of a turn, or None for a question more, and what differs now."""

    number: int
    turn: OpenTurn | None
    question: Question | None
    changes: list[Change]


_NO_TURN: Final = -1
"""Stands for the turn of a response that is not whole."""


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
        is_at_start: bool = False,
    ) -> None:
        """Take a recorded conversation, whose last exchange may ask and have no answer here.

        `turns` are its own as far as the live server has not asked them, and `asides` those of its
        session that are asked of the server's own accord. `handles` gets what the live server made
        up. With `renames_keys`, the recorded question is answered under another key too; with
        `is_at_start`, what is logged meanwhile belongs to the start of the server.
        """
        self._interaction, self._exchanges = interaction, interaction.exchanges
        self._ignored, self._asides = ignored, asides or Asides()
        self._handles = handles
        self._is_at_start = is_at_start
        self._refused = {"question-changed"} | (
            set() if renames_keys else {"key-changed"}
        )
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
        self._pairs: list[LivePair] = []
        self._so_far: list[LivePair] = []
        """What has come of the call that is pending, where something was pushed meanwhile."""
        self.pushes: list[LivePush] = []

    @property
    def pairs(self) -> list[LivePair]:
        """The responses that have come, and what has come of the one that is still to come."""
        return [*self._pairs, *self._so_far]

    @property
    def _recorded_by_hash(self) -> dict[str, str]:
        return {sha256_of(live): recorded for live, recorded in self.states}

    def _open_at(self, position: int) -> list[OpenTurn]:
        return [
            each for each in self._turns if each.questions and each.position <= position
        ]

    def _came(
        self, recorded: RecordedExchange, ask: LiveAsk | Finished, turn: int
    ) -> RecordedExchange:
        """Take a live response in the place of a recorded one; return it with the recorded ids."""
        live = self._as_recorded(recorded, ask)
        self._so_far = []
        self._pairs.append(LivePair(recorded, live, ask.response, turn))
        self._position += 1
        return live

    def _as_recorded(
        self, recorded: RecordedExchange, ask: LiveAsk | Finished
    ) -> RecordedExchange:
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
            return self._answer_push(ask, ask.push)
        if ask.task is None:
            return self._answer_result(ask)
        if ask.asks_nothing:
            return self._take_task(ask, ask.task.id)
        return self._answer_task(ask)

    def _answer_result(self, ask: LiveAsk) -> Reply:
        position = self._position
        turn = self._interaction.asking_turn(position)
        expected = (
            self._exchanges[position] if position < len(self._exchanges) else None
        )
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

    def _answer_to(
        self, index: int, ask: LiveAsk, changes: Sequence[Change]
    ) -> Answered:
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

    def _ask_changes(
        self, index: int, live: RecordedExchange, ask: LiveAsk
    ) -> list[Change]:
        """Return what differs between a live ask and that of a recorded exchange."""
        recorded = self._exchanges[index]
        states = self._recorded_by_hash
        issued = None if recorded.ask is None else recorded.ask.request_state
        if ask.request_state is not None and issued is not None:
            states[sha256_of(ask.request_state)] = issued
        return response_changes(recorded, live, states, is_at_start=self._is_at_start)

    def _answerable(
        self, live: RecordedExchange, ask: LiveAsk, changes: list[Change]
    ) -> tuple[int | None, list[Change]]:
        """Return which recorded ask has the answers to a new one, or None; and the changes.

        It is the one with the same question, or else the one with the same keys.
        """
        moved = [round_change(ABSENT, asked_question(live))]
        same_keys: list[tuple[int | None, list[Change]]] = []
        for index, recorded in enumerate(self._exchanges[:-1]):
            if recorded.ask is None or index in self._answered:
                continue
            found = self._counting(self._ask_changes(index, live, ask))
            if self._is_answered(found):
                self.is_rerouted = True
                return index, [*moved, *found]
            if live.ask is not None and not unanswered_keys(
                recorded.ask, live.ask, found
            ):
                same_keys.append((index, found))
        same_keys.sort(key=lambda row: row[0] != self._position)
        same_keys.append((None, changes))
        nearest, found = same_keys[0]
        if nearest == self._position:
            return nearest, found
        self.is_rerouted = True
        return nearest, [*moved, *found]

    def _live_keys(
        self, recorded: InputRequired, ask: LiveAsk, renamed: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the live keys of an ask by the recorded ones, of which some are `renamed`.

        None stands for the key of a question that is gone.
        """
        names: dict[str, str | None] = {}
        states = self._recorded_by_hash
        live_by_text = {
            comparable_text(key, states): live for key, live in ask.live_keys.items()
        }
        for key in recorded.input_requests:
            text = comparable_text(key)
            live = live_by_text.get(renamed.get(text, text))
            if live != key:
                names[key] = live
        return names

    def _answer_push(self, ask: LiveAsk, push: PushedQuestion) -> Reply:
        position = min(self._position, len(self._exchanges) - 1)
        recorded = self._exchanges[position]
        response = with_id_of(recorded.call, ask.exchange).response
        value = pushed_value(
            b"" if response is None else response.body, self._recorded_by_hash
        )
        found = self._matching(value, self._interaction.asking_turn(position))
        if found.question is None or not self._is_answered(found.changes):
            aside = self._aside(value)
            if aside is not None:
                return aside.answer or NeedsAnswers(ask)
        name = "" if found.question is None else found.question.name
        self.pushes.append(LivePush(found.number, name, push.key))
        if push.so_far is not None:
            live = with_id_of(recorded.call, push.so_far)
            self._so_far = [LivePair(recorded, live, turn=_NO_TURN)]
        if not self._goes_on(found):
            return AskedOtherwise(ask, tuple(found.changes))
        return self._answer_of(found) or NeedsAnswers(ask)

    def _aside(self, asked: Any) -> Question | None:
        """Return the question that is asked of the server's own accord, which is open no more."""
        for _, turn in self._asides.open():
            question, changes = self._nearest(turn, asked)
            if self._is_answered(changes):
                turn.questions.remove(question)
                return question
        return None

    def _matching(self, asked: Any, number: int, key: str = "") -> _Match:
        """Return the recorded question that is the one asked now, and what differs.

        A question more has a number of its own. Where new questions are accepted, the answer to one
        that has other words fits if both are forms with the same fields.
        """
        rows = []
        for turn in self._open_at(self._position):
            if (turn.asking is None) is not bool(key):
                question, changes = self._nearest(turn, asked, key)
                rows.append(_Match(turn.number, turn, question, changes))
        more = round_change(ABSENT, {key or "question": asked})
        if rows and self.accepts is None:
            return rows[0]
        for row in sorted(rows, key=lambda row: not self._is_answered(row.changes)):
            if self._is_answered(row.changes) or _fits(row, asked):
                changes = row.changes if row is rows[0] else [more, *row.changes]
                return row._replace(changes=changes)
        return _Match(number, None, None, [more])

    def _goes_on(self, found: _Match) -> bool:
        """Take what differs in a question; tell whether the conversation goes on after it."""
        self._take(found.number, found.changes)
        is_moved = any(change.verdict == "rounds-changed" for change in found.changes)
        self.is_rerouted = self.is_rerouted or is_moved
        if self._is_answered(found.changes) and not is_moved:
            return True
        return self.accepts is not None and self.accepts(found.number)

    def _answer_of(self, found: _Match) -> Answered | None:
        """Return the recorded answer to a question, which is open no more."""
        if found.turn is None or found.question is None:
            return None
        found.turn.questions.remove(found.question)
        return found.question.answer

    def _take_task(self, ask: LiveAsk, task_id: str) -> Answered | AskedOtherwise:
        """Take the response that makes the call a task, and go on if it was one when recorded."""
        position = self._position
        recorded_id = self._interaction.task_id
        if (
            position != len(self._exchanges) - 1
            or not recorded_id
            or self._open_at(position)
        ):
            self.finished(ask)
            return AskedOtherwise(ask, tuple(change for _, change in self.changes))
        self._came(self._exchanges[-1], ask, 0)
        self.states.append((task_id, recorded_id))
        self._is_task = True
        return Answered(None, cancels=self._is_left_now)

    @property
    def _is_left_now(self) -> bool:
        asked = [
            each
            for each in self._turns
            if each.asking is not None and not each.questions
        ]
        return len(asked) == self._turns_until_left

    def _answer_task(self, ask: LiveAsk) -> Reply:
        """Answer what a state of the task asks, one question after the other."""
        asking = [turn.asking for turn in self._open_at(self._position)]
        self._came(next(iter(asking), None) or self._interaction.ending, ask, 0)
        answers: dict[str, bytes | None] = {}
        is_left = False
        for name, key in ask.live_keys.items():
            found = self._asked_by_task(name)
            if not self._goes_on(found):
                return AskedOtherwise(ask, tuple(found.changes))
            answer = self._answer_of(found)
            is_left = is_left or found.question is None
            if answer is not None:
                answers[key] = answer.value
        if answers and not is_left:
            value = write_answers(DIALECTS[0].name, answers)
            return Answered(value, cancels=self._is_left_now)
        is_last = self._interaction.is_open and not self._open_at(self._position)
        is_cancelled = self._is_left_now and not is_left
        if is_cancelled or not (is_last or is_left):
            return Answered(None, cancels=is_cancelled)
        return NeedsAnswers(ask)

    def _asked_by_task(self, name: str) -> _Match:
        """Return the recorded question that the last state asks under a key, and what differs."""
        pair = self._pairs[-1]
        state = polled_state(pair.live.rpc_response)
        if state is None:
            raise AssertionError("unreachable because a state of the task asks")
        asked = task_question({name: state.input_requests[name]}, state.id)
        ((key, value),) = asked.items()
        found = self._matching(value, len([*self._interaction.turns]) + 1, key)
        asking = self._interaction.ending if found.turn is None else found.turn.asking
        keys = {**pair.keys}
        if found.question is not None:
            keys[name] = found.question.name
        recorded = asking or pair.recorded
        self._pairs[-1] = pair._replace(recorded=recorded, turn=found.number, keys=keys)
        return found

    def _nearest(
        self, turn: OpenTurn, asked: object, key: str = ""
    ) -> tuple[Question, list[Change]]:
        """Return the question of a turn that is nearest to what is asked now, and what differs.

        What was asked together may come in another order.
        """
        rows = []
        for question in turn.questions:
            changes = question_changes(
                {question.key: question.asked}, {key or question.key: asked}
            )
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
            self.is_rerouted = True
            self.was_not_asked(unasked[0])
        elif recorded.ask is not None:
            self.is_rerouted = True
            self._take(turn, [unasked_change(recorded, live)])
        elif not (self._is_task and self._interaction.is_open):
            states = self._recorded_by_hash
            changes = response_changes(
                recorded, live, states, is_at_start=self._is_at_start
            )
            self._take(0, self._counting(changes))

    def was_not_asked(self, turn: OpenTurn) -> None:
        """Take note that the live server does not ask a turn."""
        self._take(turn.number, [_not_asked(turn)])

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


def _fits(found: _Match, asked: Any) -> bool:
    """Tell whether the answer to a recorded question fits another: both have the same fields."""
    return found.question is not None and _fields(found.question.asked) == _fields(
        asked
    )


def _fields(question: Any) -> tuple[Any, list[str]]:
    properties = value_at(question, ("params", "requestedSchema", "properties"))
    return question.get("method"), sorted(properties) if isinstance(
        properties, dict
    ) else []
