"""The answers of a recorded conversation, given to a live server as far as it asks the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.digests import differ_in_digests
from mrtr_cassette.core.cassette.recorded import (
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
    asking_turn,
    task_turns,
)
from mrtr_cassette.core.compare.responses import (
    asked_question,
    changed_keys,
    pushed_value,
    question_changes,
    response_changes,
    round_change,
    task_question,
)
from mrtr_cassette.core.compare.values import Change, heaviest, without_ignored
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    NeedsAnswers,
    id_of,
    with_ids,
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
from mrtr_cassette.core.wire.jsonbytes import spelled_at
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


class RecordedScript:
    """The answers of a recorded conversation, as far as it goes."""

    def __init__(
        self,
        exchanges: Sequence[RecordedExchange],
        pushed_turns: Sequence[PushedTurn] = (),
        ignored: Collection[str] = (),
        listening: Sequence[RecordedScript] = (),
        *,
        steps: Sequence[TaskStep] = (),
        renames_keys: bool = False,
        redacted_digests: Collection[str] = (),
    ) -> None:
        """Take a recorded conversation, whose last exchange may ask and have no answer here.

        Requests that were pushed while several calls were pending belong to the scripts of the
        session's `listening` streams. With `renames_keys`, the recorded question is answered under
        another key too. Digests of redacted texts differ from those of the server.
        """
        self._renames_keys = renames_keys
        self._redacted_digests = redacted_digests
        self._listening = listening
        self._exchanges = exchanges
        self._ignored = ignored
        self._unasked = [list(turn.asked) for turn in pushed_turns]
        self._turns = pushed_turns
        self._ids: dict[bytes, bytes] = {}
        self.states: list[IssuedState] = []
        self.changes: list[TurnChange] = []
        self.left_out: list[Change] = []
        self.pairs: list[LivePair] = []
        self._task = _RecordedTask(exchanges[-1], steps, self._turn_at(len(exchanges) - 1))

    @property
    def problem(self) -> str | None:
        """Why the conversation can't be repeated, or None."""
        if self._exchanges[0].call.answers is not None:
            return "the recorded conversation begins with a retry whose ask was not recorded"
        for turn, answers in self._answers():
            if SEALED_ANSWER.search(answers.decode("latin-1")):
                return f"the recorded answer of turn {turn} is sealed: only its hash is known"
            if without_numbers(answers) != answers:
                return f"the recorded answer of turn {turn} has redacted secrets"
        return self._task.problem

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        for position, exchange in enumerate(self._exchanges[1:]):
            yield self._turn_at(position), answers_text(exchange.request.body) or b""
        for at, turn in enumerate(self._turns):
            for answer in turn.answers:
                yield turn.position + at + 1, answer.exchange.request.body
        yield from self._task.answers

    def _turn_at(self, position: int) -> int:
        return asking_turn(position, self._turns)

    @property
    def _recorded_by_hash(self) -> dict[str, str]:
        return {sha256_of(live): recorded for live, recorded in self.states}

    def _recorded_at(self, position: int) -> RecordedExchange:
        return self._exchanges[min(position, len(self._exchanges) - 1)]

    def _as_recorded(self, recorded: RecordedExchange, live: RecordedExchange) -> RecordedExchange:
        self._ids[id_of(live)] = id_of(recorded)
        return with_ids(live, self._ids)

    def _came(self, recorded: RecordedExchange, live: RecordedExchange) -> RecordedExchange:
        """Take a live response in the place of a recorded one; return it with the recorded ids."""
        live = self._as_recorded(recorded, live)
        self.pairs.append(LivePair(recorded, live))
        return live

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Give the recorded answers, if the ask is the recorded one."""
        if ask.push is not None:
            return self._answer_push(ask)
        if ask.task is not None:
            return self._answer_task(ask) if ask.task_keys else self._take_task(ask, ask.task.id)
        return self._answer_result(ask)

    def _answer_result(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        position = len(self.pairs)
        turn = self._turn_at(position)
        live = self._came(self._recorded_at(position), ask.exchange)
        recorded = self._exchanges[position] if position < len(self._exchanges) else None
        if recorded is None or recorded.ask is None:
            return self._refused(ask, turn, [round_change(ABSENT, asked_question(live))])
        if unasked := self._unasked_at(position):
            return self._refused(ask, turn, [round_change(_asked(unasked[0]), ABSENT)])
        if ask.request_state is not None and recorded.ask.request_state is not None:
            self.states.append(IssuedState(ask.request_state, recorded.ask.request_state))
        changes = response_changes(recorded, live, self._recorded_by_hash)
        names = changed_keys(changes)
        changes = self._counting(changes)
        if heaviest(changes) == "question-changed" or (names and not self._renames_keys):
            return self._refused(ask, turn, changes)
        self._take(turn, changes)
        if position + 1 == len(self._exchanges):
            return NeedsAnswers(ask)
        retry = with_answer_keys(self._exchanges[position + 1].request.body, names)
        return Answered(answers_text(retry))

    def _answer_push(self, push: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        position = min(len(self.pairs), len(self._exchanges) - 1)
        response = self._as_recorded(self._exchanges[position], push.exchange).response
        raw = b"" if response is None else response.body
        asked = pushed_value(raw, self._recorded_by_hash)
        number, changes = self._turn_at(position), [round_change(ABSENT, asked)]
        for at, (turn, unasked) in enumerate(zip(self._turns, self._unasked, strict=True)):
            if unasked and turn.position <= position:
                # What was pushed together may come in another order.
                if pushed := self._same_as(asked, unasked):
                    return _posted(turn, pushed) or NeedsAnswers(push)
                number, changes = turn.position + at + 1, self._changes_of_push(unasked[0], asked)
                break
        for script in self._listening:
            if posted := script.posted(asked):
                return posted
        return self._refused(push, number, changes)

    def _take_task(self, ask: LiveAsk, task_id: str) -> Answered | AskedOtherwise:
        """Take the response that makes the call a task, and go on if it was one when recorded."""
        at_end = len(self.pairs) == len(self._exchanges) - 1
        if not at_end or not self._task.id or self._unasked_at(len(self.pairs)):
            self.finished(ask.exchange)
            return AskedOtherwise(ask, tuple(change for _, change in self.changes))
        self._came(self._exchanges[-1], ask.exchange)
        self.states.append(IssuedState(task_id, self._task.id))
        self._task.has_begun = True
        return Answered(None, cancels=self._task.is_cancelled_now)

    def _answer_task(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Answer what a state of the task asks, one question after the other."""
        task, answers = self._task, dict[str, bytes]()
        recorded = task.asking or self._exchanges[-1]
        live = self._came(recorded, ask.exchange)
        state = polled_state(live.rpc_response)
        requests = {} if state is None else state.input_requests
        for name, key in ask.task_keys.items():
            asked = task_question({name: requests[name]}, "" if state is None else state.id)
            if not task.unasked:
                return self._refused(ask, task.turn, [round_change(ABSENT, asked)])
            rows = [(each, question_changes(each.asked, asked)) for each in task.unasked[0]]
            rows.sort(key=lambda row: len(row[1]))
            question, changes = rows[0]
            counting = self._counting(changes)
            is_renamed = any(change.verdict == "key-changed" for change in counting)
            if heaviest(counting) not in ("same", "key-changed") or (
                is_renamed and not self._renames_keys
            ):
                return self._refused(ask, task.turn, counting)
            self._take(task.turn, counting)
            task.was_asked(question)
            if question.answer is not None:
                answers[key] = question.answer
        if answers or task.is_cancelled_now:
            value = write_answers(DIALECTS[0].name, answers) if answers else None
            return Answered(value, cancels=task.is_cancelled_now)
        return NeedsAnswers(ask) if task.is_open and not task.unasked else Answered(None)

    def posted(self, asked: object) -> Answered | None:
        """Return the answer to what was pushed on this stream, whatever the turn; or None."""
        for turn, unasked in zip(self._turns, self._unasked, strict=True):
            if pushed := self._same_as(asked, unasked):
                return _posted(turn, pushed)
        return None

    def _same_as(self, asked: object, unasked: list[PushedRequest]) -> PushedRequest | None:
        same = (each for each in unasked if not self._changes_of_push(each, asked))
        pushed = next(same, None)
        if pushed is not None:
            unasked.remove(pushed)
        return pushed

    def _changes_of_push(self, pushed: PushedRequest, asked: object) -> list[Change]:
        changes = question_changes({pushed.key: _asked(pushed)}, {pushed.key: asked})
        return self._counting(changes)

    def _counting(self, changes: list[Change]) -> list[Change]:
        kept = without_ignored(changes, self._ignored)
        self.left_out += [change for change in changes if change not in kept]
        return [change for change in kept if not self._is_of_redacted(change)]

    def _is_of_redacted(self, change: Change) -> bool:
        texts = change.recorded or "", change.received or ""
        return bool(self._redacted_digests) and differ_in_digests(*texts, self._redacted_digests)

    def finished(self, exchange: RecordedExchange) -> None:
        """Take the response that asks nothing."""
        if self._task.has_begun:
            self._task_finished(exchange)
            return
        position = len(self.pairs)
        recorded, turn = self._recorded_at(position), self._turn_at(position)
        exchange = self._came(recorded, exchange)
        if unasked := self._unasked_at(position):
            self._take(turn, [round_change(_asked(unasked[0]), ABSENT)])
        elif recorded.ask is not None:
            self._take(turn, [round_change(asked_question(recorded), ABSENT)])
        else:
            changes = response_changes(recorded, exchange, self._recorded_by_hash)
            self._take(0, self._counting(changes))

    def _task_finished(self, exchange: RecordedExchange) -> None:
        task = self._task
        live = self._came(task.ending, exchange)
        if task.unasked:
            self._take(task.turn, [round_change(task.unasked[0][0].asked, ABSENT)])
        elif not task.is_open:
            changes = response_changes(task.ending, live, self._recorded_by_hash)
            self._take(0, self._counting(changes))

    def _unasked_at(self, position: int) -> list[PushedRequest]:
        turns = zip(self._turns, self._unasked, strict=True)
        return [each for turn, unasked in turns if turn.position <= position for each in unasked]

    def _refused(self, ask: LiveAsk, turn: int, changes: Sequence[Change]) -> AskedOtherwise:
        self._take(turn, changes)
        return AskedOtherwise(ask, tuple(changes))

    def _take(self, turn: int, changes: Sequence[Change]) -> None:
        self.changes += [TurnChange(turn, change) for change in changes]


def _posted(turn: PushedTurn, pushed: PushedRequest) -> Answered | None:
    response = next((each for each in turn.answers if each.key == pushed.key), None)
    message = None if response is None else response.exchange.call.message
    if message is None:
        return None
    result, error = message.spelled(("result",)), message.spelled(("error",))
    return Answered(result) if result is not None else Answered(error or b"{}", "error")


def _asked(pushed: PushedRequest) -> dict[str, Any]:
    return pushed_value(pushed.message.raw)


class _Question(NamedTuple):
    """One question of a recorded task, as `question_changes` takes it, and its answer if any."""

    asked: Mapping[str, Any]
    answer: bytes | None


class _RecordedTask:
    """The questions of a recorded task that the live server has not asked so far, by turn."""

    def __init__(self, call: RecordedExchange, steps: Sequence[TaskStep], first_turn: int) -> None:
        created = call.created_task
        self.id = "" if created is None else created.id
        self.has_begun = False
        self._steps, self._first_turn = steps, first_turn
        self._turns = task_turns(steps)
        self.unasked = [
            [
                _Question(task_question({key: request}, self.id), self._answer(key, turn.answered))
                for key, request in turn.requests.items()
            ]
            for turn in self._turns
        ]
        interaction = RecordedInteraction(1, (call,), None, is_orphan=False, steps=tuple(steps))
        self.ending, self.is_open = interaction.ending, interaction.is_open
        cancelled = [at for at, each in enumerate(steps) if _method(each) == CANCEL_TASK]
        self._asks_till_cancelled: int | None = len(self._turns) if self.is_open else None
        if cancelled:
            self._asks_till_cancelled = sum(turn.asked < cancelled[0] for turn in self._turns)

    def _answer(self, key: str, steps: Sequence[int]) -> bytes | None:
        bodies = [self._steps[at].exchange.request.body for at in steps]
        spelled = [spelled_at(body, (*ANSWERS_PATH, key)) for body in bodies]
        return next((each for each in spelled if each is not None), None)

    @property
    def turn(self) -> int:
        """The number of the first turn that has not been asked whole."""
        return self._first_turn + len(self._turns) - len(self.unasked)

    @property
    def asking(self) -> RecordedExchange | None:
        """The exchange that asks it; None where no turn is left."""
        at = len(self._turns) - len(self.unasked)
        return self._steps[self._turns[at].asked].exchange if self.unasked else None

    def was_asked(self, question: _Question) -> None:
        """Take that the live server has asked a question of the first turn."""
        self.unasked[0].remove(question)
        if not self.unasked[0]:
            del self.unasked[0]

    @property
    def is_cancelled_now(self) -> bool:
        """Whether the recorded client cancelled the task now, or left it at work."""
        asked, due = len(self._turns) - len(self.unasked), self._asks_till_cancelled
        left_at_question = self.is_open and self._turns and self._turns[-1].given is None
        return due == asked and not (left_at_question and _method(self._steps[-1]) != CANCEL_TASK)

    @property
    def answers(self) -> Iterator[tuple[int, bytes]]:
        """The recorded updates, and the turn of each."""
        for number, turn in enumerate(self._turns, start=self._first_turn):
            for at in turn.answered:
                yield number, self._steps[at].exchange.request.body

    @property
    def problem(self) -> str | None:
        """Why the task can't be repeated, or None."""
        asked = {at for turn in self._turns for at in turn.answered}
        updates = [at for at, each in enumerate(self._steps) if _method(each) == UPDATE_TASK]
        if any(at not in asked for at in updates):
            return "it answers what a notification of its task asked, or nothing"
        return None


def _method(step: TaskStep) -> str:
    return step.exchange.call.method
