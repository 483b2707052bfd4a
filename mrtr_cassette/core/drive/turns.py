"""Questions of a recorded conversation that a live server has not asked so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import listens
from mrtr_cassette.core.compare.conversations import pushed_value, task_question
from mrtr_cassette.core.drive.conversation import Answered
from mrtr_cassette.core.protocol.methods import LIST_ROOTS, PING
from mrtr_cassette.core.wire.jsonbytes import to_json


class Question(NamedTuple):
    """A question under its key in a value of `inputRequests`, and its recorded answer if any."""

    key: str
    asked: Any
    answer: Answered | None


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
    for number, pushed in zip(interaction.pushed_numbers, interaction.pushed_turns, strict=True):
        turns.append(_pushed_turn(number, pushed))
    return [*turns, *_task_turns(interaction)]


def _pushed_turn(number: int, pushed: PushedTurn) -> OpenTurn:
    questions = []
    for request in pushed.asked:
        if request.message.method != PING:
            answer = _posted(pushed, request.key)
            questions.append(Question(request.key, pushed_value(request.message.raw), answer))
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
                questions.append(Question(key, value, answer))
        yield OpenTurn(number, after, questions, exchanges[turn.asked])


def _posted(turn: PushedTurn, key: str) -> Answered | None:
    """Return the recorded response to a pushed request as it was spelled."""
    posted = (answer.exchange.call.message for answer in turn.answers if answer.key == key)
    message = next(posted, None)
    if message is None:
        return None
    result, error = message.spelled(("result",)), message.spelled(("error",))
    return Answered(result) if result is not None else Answered(error or b"{}", "error")
