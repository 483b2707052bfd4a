"""Recorded turns that the live server has not asked so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    RecordedTurn,
)
from mrtr_cassette.core.cassette.sessions import (
    is_listening_stream,
    session_of_exchange,
)
from mrtr_cassette.core.compare.responses import polled_questions, question_of
from mrtr_cassette.core.drive.conversation import AskAnswer
from mrtr_cassette.core.drive.plan import PlannedInteraction
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.methods import LIST_ROOTS
from mrtr_cassette.core.wire.jsonbytes import to_json


class Question(NamedTuple):
    """A question as a value of `inputRequests` has it, and its recorded answer, if any.

    Attributes:
        key: its key in this value.
        recorded_key: its key in the cassette.
    """

    key: str
    asked: Any
    answer: AskAnswer | None
    recorded_key: str


@dataclass(slots=True, eq=False)
class OpenTurn:
    """A turn whose questions come one by one: those that the live server has not asked so far.

    Attributes:
        position: the index of the exchange that is pending meanwhile; for a task, after the last.
        asking_poll: the poll that asks, in a task; None for pushed requests.
        is_unprompted: the server asks of its own accord, so which call is pending is chance.
        answered_at: the number of the exchange that gave the last answer; None if some are open.
    """

    number: int
    position: int
    questions: list[Question]
    asking_poll: RecordedExchange | None = None
    is_unprompted: bool = False
    last_answer_number: int | None = None

    @property
    def is_polled(self) -> bool:
        """Whether a state of a task asks it."""
        return self.asking_poll is not None

    @property
    def unasked_questions(self) -> dict[str, Any]:
        """The questions that the live server has not asked so far, by their keys."""
        return {question.key: question.asked for question in self.questions}

    def was_answered_before(self, number: int | None) -> bool:
        """Tell whether all of it had been answered when the request with a number came."""
        if not self.questions or self.last_answer_number is None or number is None:
            return False
        return self.last_answer_number < number


SessionTurns = dict[int, list[OpenTurn]]
"""The open turns of one session, by the numbers of their interactions until these have ended."""


class ExpectedTurns:
    """The open turns of a cassette's interactions, by session, until these have ended."""

    def __init__(self, cassette: Cassette) -> None:
        self._turns_by_session: dict[str, SessionTurns] = defaultdict(dict)
        for interaction in cassette.interactions:
            turns = self.in_session_of(interaction)
            turns[interaction.number] = open_turns(interaction)

    def in_session_of(self, interaction: RecordedInteraction) -> SessionTurns:
        """Return the open turns of an interaction's session."""
        return self._turns_by_session[session_of_exchange(interaction.exchanges[0])]

    def remove(self, interaction: RecordedInteraction) -> None:
        """Stop expecting the turns of an interaction."""
        self.in_session_of(interaction).pop(interaction.number, None)

    def overdue_turns(self, planned: PlannedInteraction) -> list[tuple[int, OpenTurn]]:
        """Return the turns that had been answered when a call came, with their interactions."""
        request_number = planned.interaction.exchanges[0].number
        turns = unprompted_turns(self.in_session_of(planned.interaction))
        return [
            (number, turn)
            for number, turn in turns
            if turn.was_answered_before(request_number)
        ]

    def awaits_question_before_call(self, planned: PlannedInteraction) -> bool:
        """Tell whether its call has to wait for a question that was answered before it came."""
        return planned.why_skipped is None and bool(self.overdue_turns(planned))

    def awaits_question_of_pending_call(self, planned: PlannedInteraction) -> bool:
        """Tell whether a question is still to come that was asked while its call was pending."""
        turns = unprompted_turns(self.in_session_of(planned.interaction))
        return any(number == planned.interaction.number for number, _ in turns)


def unprompted_turns(
    turns_by_interaction: SessionTurns,
) -> Iterator[tuple[int, OpenTurn]]:
    """Yield the turns that the server is to ask of its own accord, with their interactions.

    It does so whatever call is pending.
    """
    for interaction, turns in turns_by_interaction.items():
        for turn in turns:
            if turn.is_unprompted and turn.questions:
                yield interaction, turn


def open_turns(interaction: RecordedInteraction) -> list[OpenTurn]:
    """Return the turns of a recorded conversation that come by pushed requests or by a task."""
    turns = []
    for turn in interaction.turns:
        if turn.pushed_turn is not None:
            turns.append(_open_pushed_turn(turn, turn.pushed_turn))
        elif turn.ask is None:
            turns.append(_open_task_turn(turn, interaction))

    return turns


def _open_pushed_turn(turn: RecordedTurn, pushed: PushedTurn) -> OpenTurn:
    """Return a pushed turn with all its questions."""
    questions = []
    for key, asked in question_of(turn).items():
        questions.append(Question(key, asked, _posted_answer(pushed, key), key))

    return OpenTurn(
        turn.number,
        pushed.position,
        questions,
        is_unprompted=all(
            _is_unprompted(request) for request in pushed.pushed_requests
        ),
        last_answer_number=_number_of_last_answer(pushed),
    )


def _number_of_last_answer(pushed: PushedTurn) -> int | None:
    """Return the number of the exchange that gave the last answer; None if one is missing."""
    numbers = []
    for answer in pushed.answers:
        if answer.exchange.number is not None:
            numbers.append(answer.exchange.number)

    if not numbers or len(numbers) != len(pushed.pushed_requests):
        return None

    return max(numbers)


def _is_unprompted(request: PushedRequest) -> bool:
    """Tell whether a request is on a listening stream; over pipes, any call may have a line."""
    exchange = request.exchange
    response = exchange.response
    if is_listening_stream(exchange.call, response):
        return True

    is_line = response is not None and response.is_lines
    return is_line and request.message.method == LIST_ROOTS


def _open_task_turn(turn: RecordedTurn, interaction: RecordedInteraction) -> OpenTurn:
    """Return a turn that a state of the task asks, with all its questions."""
    recorded_answers = turn.given_answers or {}
    questions = []
    for name, request in turn.requests.items():
        answer = None
        if name in recorded_answers:
            answer = AskAnswer(to_json(recorded_answers[name]).encode())

        key, asked = question_alone(name, request, interaction.created_task_id)
        questions.append(Question(key, asked, answer, name))

    end_position = len(interaction.exchanges)
    return OpenTurn(turn.number, end_position, questions, turn.asking_exchange)


def question_alone(
    name: str, request: InputRequest, created_task_id: str
) -> tuple[str, Any]:
    """Return the key and the value of a question as if its task asked nothing else.

    What is asked together in one run may be asked one by one in another.
    """
    ((key, asked),) = polled_questions({name: request}, created_task_id).items()
    return key, asked


def _posted_answer(turn: PushedTurn, key: str) -> AskAnswer | None:
    """Return the recorded response to a pushed request as it was spelled."""
    for answer in turn.answers:
        message = answer.exchange.call.message
        if answer.key != key or message is None:
            continue

        result = message.spelled(("result",))
        if result is not None:
            return AskAnswer(result)

        return AskAnswer(message.spelled(("error",)) or b"{}", "error")

    return None
