"""The answers of a recorded conversation, given to a live server as far as it asks the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.digests import differ_in_digests
from mrtr_cassette.core.cassette.recorded import (
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskTurn,
    task_turns,
)
from mrtr_cassette.core.compare.conversations import (
    asked_question,
    changed_keys,
    pushed_value,
    question_changes,
    response_changes,
    round_change,
    task_question,
)
from mrtr_cassette.core.compare.values import Change, without_ignored
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    NeedsAnswers,
    as_recorded,
)
from mrtr_cassette.core.protocol.dialect import (
    ANSWERS_PATH,
    DIALECTS,
    answers_text,
    with_answer_keys,
    write_answers,
)
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.secrets.sealed import SEALED_ANSWER, sha256_of, without_numbers
from mrtr_cassette.core.wire.jsonbytes import canonical, spelled_at
from mrtr_cassette.core.wire.pointers import ABSENT


class IssuedState(NamedTuple):
    """One request state, as the live server issued it and as the cassette has it."""

    live: str
    recorded: str


class TurnChange(NamedTuple):
    """A change in the turn that asks, from 1, or 0 for the final response."""

    turn: int
    change: Change


class LivePair(NamedTuple):
    """A recorded response, and what the live server gave in its place."""

    recorded: RecordedExchange
    live: RecordedExchange


def why_not_repeatable(interaction: RecordedInteraction) -> str | None:
    """Return why a recorded conversation can't be repeated with a live server, or None."""
    if interaction.exchanges[0].call.answers is not None:
        return "the recorded conversation begins with a retry whose ask was not recorded"
    answered: set[int] = set()
    for number, turn in enumerate(interaction.turns, start=1):
        answers = canonical(turn.given)
        if SEALED_ANSWER.search(answers):
            return f"the recorded answer of turn {number} is sealed: only its hash is known"
        if without_numbers(answers) != answers:
            return f"the recorded answer of turn {number} has redacted secrets"
        answered.update(turn.answered if isinstance(turn, TaskTurn) else ())
    methods = [step.exchange.call.method for step in interaction.steps]
    if any(method == UPDATE_TASK and at not in answered for at, method in enumerate(methods)):
        return "it answers what a notification of its task asked, or nothing"
    return None


class _Question(NamedTuple):
    """One question, as it stands under its key in a value of `inputRequests`; its answer if any."""

    key: str
    asked: Any
    answer: Answered | None


@dataclass(slots=True, eq=False)
class _OpenTurn:
    """A turn whose questions come one by one: those that the live server has not asked so far.

    `position` is the index of the exchange that is pending meanwhile; of a task, the one after all.
    """

    number: int
    position: int
    questions: list[_Question]
    asking: RecordedExchange | None = None


def _open_turns(interaction: RecordedInteraction) -> Iterator[_OpenTurn]:
    for number, pushed in zip(interaction.pushed_numbers, interaction.pushed_turns, strict=True):
        questions = [
            _Question(each.key, pushed_value(each.message.raw), _posted(pushed, each.key))
            for each in pushed.asked
        ]
        yield _OpenTurn(number, pushed.position, questions)
    after, steps = len(interaction.exchanges), [each.exchange for each in interaction.steps]
    first = interaction.asking_turn(after - 1)
    for number, turn in enumerate(task_turns(interaction.steps), start=first):
        updates = [steps[at].request.body for at in turn.answered]
        questions = []
        for key, request in turn.requests.items():
            spelled = (spelled_at(body, (*ANSWERS_PATH, key)) for body in updates)
            answer = next((Answered(each) for each in spelled if each is not None), None)
            asked = task_question({key: request}, interaction.task_id)
            questions += [_Question(*each, answer) for each in asked.items()]
        yield _OpenTurn(number, after, questions, steps[turn.asked])


def _posted(turn: PushedTurn, key: str) -> Answered | None:
    """Return the recorded response to a pushed request as it was spelled."""
    posted = (each.exchange.call.message for each in turn.answers if each.key == key)
    message = next(posted, None)
    if message is None:
        return None
    result, error = message.spelled(("result",)), message.spelled(("error",))
    return Answered(result) if result is not None else Answered(error or b"{}", "error")


def _turns_until_left(interaction: RecordedInteraction) -> int | None:
    """Return after how many turns of its task the recorded client cancelled it, or left it at work.

    None stands for a task that was followed to its end, or left at a question.
    """
    turns = task_turns(interaction.steps)
    for at, step in enumerate(interaction.steps):
        if step.exchange.call.method == CANCEL_TASK:
            return sum(turn.asked < at for turn in turns)
    is_left_at_question = bool(turns) and turns[-1].given is None
    return len(turns) if interaction.is_open and not is_left_at_question else None


class RecordedScript:
    """The answers of a recorded conversation, as far as it goes."""

    def __init__(
        self,
        interaction: RecordedInteraction,
        ignored: Collection[str] = (),
        listening: Sequence[RecordedScript] = (),
        *,
        renames_keys: bool = False,
        redacted_digests: Collection[str] = (),
    ) -> None:
        """Take a recorded conversation, whose last exchange may ask and have no answer here.

        Requests that were pushed while several calls were pending belong to the scripts of the
        session's `listening` streams. With `renames_keys`, the recorded question is answered under
        another key too. Digests of redacted texts differ from those of the server.
        """
        self._interaction, self._exchanges = interaction, interaction.exchanges
        self._ignored, self._listening = ignored, listening
        self._redacted_digests = redacted_digests
        self._refused = {"question-changed"} | (set() if renames_keys else {"key-changed"})
        self._turns = list(_open_turns(interaction))
        self._turns_until_left = _turns_until_left(interaction)
        self._is_task = False
        self.states: list[IssuedState] = []
        self.changes: list[TurnChange] = []
        self.left_out: list[Change] = []
        self.pairs: list[LivePair] = []

    @property
    def _recorded_by_hash(self) -> dict[str, str]:
        return {sha256_of(live): recorded for live, recorded in self.states}

    def _open_at(self, position: int) -> list[_OpenTurn]:
        return [each for each in self._turns if each.questions and each.position <= position]

    def _came(self, recorded: RecordedExchange, live: RecordedExchange) -> RecordedExchange:
        """Take a live response in the place of a recorded one; return it with the recorded ids."""
        live = as_recorded(live, recorded)
        self.pairs.append(LivePair(recorded, live))
        return live

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Give the recorded answers, if the ask is the recorded one."""
        if ask.push is not None:
            return self._answer_push(ask)
        if ask.task_keys:
            return self._answer_task(ask)
        if ask.task is not None:
            return self._take_task(ask, ask.task.id)
        return self._answer_result(ask)

    def _answer_result(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        position = len(self.pairs)
        at_last = min(position, len(self._exchanges) - 1)
        recorded, turn = self._exchanges[at_last], self._interaction.asking_turn(position)
        live = self._came(recorded, ask.exchange)
        if position > at_last or recorded.ask is None:
            return self._refuse(ask, turn, [round_change(ABSENT, asked_question(live))])
        if unasked := self._open_at(position):
            return self._refuse(ask, turn, [_not_asked(unasked[0])])
        if ask.request_state is not None and recorded.ask.request_state is not None:
            self.states.append(IssuedState(ask.request_state, recorded.ask.request_state))
        changes = response_changes(recorded, live, self._recorded_by_hash)
        names, counting = changed_keys(changes), self._counting(changes)
        if not self._is_answered(counting):
            return self._refuse(ask, turn, counting)
        self._take(turn, counting)
        if position == len(self._exchanges) - 1:
            return NeedsAnswers(ask)
        retry = with_answer_keys(self._exchanges[position + 1].request.body, names)
        return Answered(answers_text(retry))

    def _answer_push(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        position = min(len(self.pairs), len(self._exchanges) - 1)
        response = as_recorded(ask.exchange, self._exchanges[position]).response
        value = pushed_value(b"" if response is None else response.body, self._recorded_by_hash)
        number = self._interaction.asking_turn(position)
        changes = [round_change(ABSENT, {ask.key: value})]
        for turn in self._open_at(position)[:1]:
            # What was pushed together may come in another order.
            question, differing = self._nearest(turn, value)
            if not differing:
                turn.questions.remove(question)
                return question.answer or NeedsAnswers(ask)
            number, changes = turn.number, differing
        for script in self._listening:
            if posted := script.posted(value):
                return posted
        return self._refuse(ask, number, changes)

    def posted(self, value: object) -> Answered | None:
        """Return the answer to what was pushed on this stream, whatever the turn; or None."""
        for turn in self._open_at(len(self._exchanges)):
            question, differing = self._nearest(turn, value)
            if not differing:
                turn.questions.remove(question)
                return question.answer
        return None

    def _take_task(self, ask: LiveAsk, task_id: str) -> Answered | AskedOtherwise:
        """Take the response that makes the call a task, and go on if it was one when recorded."""
        position, recorded_id = len(self.pairs), self._interaction.task_id
        if position != len(self._exchanges) - 1 or not recorded_id or self._open_at(position):
            self.finished(ask.exchange)
            return AskedOtherwise(ask, tuple(change for _, change in self.changes))
        self._came(self._exchanges[-1], ask.exchange)
        self.states.append(IssuedState(task_id, recorded_id))
        self._is_task = True
        return Answered(None, cancels=self._is_left_now)

    @property
    def _is_left_now(self) -> bool:
        asked = [each for each in self._turns if each.asking is not None and not each.questions]
        return len(asked) == self._turns_until_left

    def _answer_task(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Answer what a state of the task asks, one question after the other."""
        position, answers = len(self.pairs), dict[str, bytes | None]()
        asking = [turn.asking for turn in self._open_at(position)]
        live = self._came(next(iter(asking), None) or self._exchanges[-1], ask.exchange)
        state = polled_state(live.rpc_response)
        requests = {} if state is None else state.input_requests
        for name, key in ask.task_keys.items():
            asked = task_question({name: requests[name]}, "" if state is None else state.id)
            turn = next(iter(self._open_at(position)), None)
            if turn is None:
                number = len([*self._interaction.turns]) + 1
                return self._refuse(ask, number, [round_change(ABSENT, asked)])
            question, changes = self._nearest(turn, *asked.values(), *asked)
            if not self._is_answered(changes):
                return self._refuse(ask, turn.number, changes)
            self._take(turn.number, changes)
            turn.questions.remove(question)
            if question.answer is not None:
                answers[key] = question.answer.value
        if answers or self._is_left_now:
            value = write_answers(DIALECTS[0].name, answers) if answers else None
            return Answered(value, cancels=self._is_left_now)
        is_last = self._interaction.is_open and not self._open_at(position)
        return NeedsAnswers(ask) if is_last else Answered(None)

    def _nearest(
        self, turn: _OpenTurn, asked: object, key: str = ""
    ) -> tuple[_Question, list[Change]]:
        """Return the question of a turn that comes nearest to a live one, and what differs."""
        rows = []
        for each in turn.questions:
            changes = question_changes({each.key: each.asked}, {key or each.key: asked})
            rows.append((each, self._counting(changes)))
        return min(rows, key=lambda row: len(row[1]))

    def _is_answered(self, changes: Sequence[Change]) -> bool:
        return self._refused.isdisjoint(change.verdict for change in changes)

    def _counting(self, changes: list[Change]) -> list[Change]:
        kept = without_ignored(changes, self._ignored)
        self.left_out += [change for change in changes if change not in kept]
        digests = self._redacted_digests
        pairs = [(each, (each.recorded or "", each.received or "")) for each in kept]
        return [each for each, texts in pairs if not differ_in_digests(*texts, digests)]

    def finished(self, exchange: RecordedExchange) -> None:
        """Take the response that asks nothing."""
        position = len(self.pairs)
        recorded = self._exchanges[min(position, len(self._exchanges) - 1)]
        recorded = self._interaction.ending if self._is_task else recorded
        live = self._came(recorded, exchange)
        if unasked := self._open_at(position):
            self._take(unasked[0].number, [_not_asked(unasked[0])])
        elif recorded.ask is not None:
            number = self._interaction.asking_turn(position)
            self._take(number, [round_change(asked_question(recorded), ABSENT)])
        elif not (self._is_task and self._interaction.is_open):
            changes = response_changes(recorded, live, self._recorded_by_hash)
            self._take(0, self._counting(changes))

    def _refuse(self, ask: LiveAsk, turn: int, changes: Sequence[Change]) -> AskedOtherwise:
        self._take(turn, changes)
        return AskedOtherwise(ask, tuple(changes))

    def _take(self, turn: int, changes: Sequence[Change]) -> None:
        self.changes += [TurnChange(turn, change) for change in changes]


def _not_asked(turn: _OpenTurn) -> Change:
    question = turn.questions[0]
    return round_change({question.key: question.asked}, ABSENT)
