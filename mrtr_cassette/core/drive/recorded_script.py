"""A script that gives the recorded answers, if the live server asks what was recorded.

An ask that is not the recorded one is never answered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    asking_turn,
)
from mrtr_cassette.core.compare.responses import (
    asked_question,
    pushed_value,
    question_changes,
    response_changes,
    round_change,
)
from mrtr_cassette.core.compare.values import ABSENT, Change, heaviest, without_ignored
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.drive.server_session import id_of, with_ids
from mrtr_cassette.core.protocol.dialect import answers_text
from mrtr_cassette.core.secrets.sealed import SEALED_ANSWER, sha256_of, without_numbers


class IssuedState(NamedTuple):
    """One request state, as the live server issued it and as the cassette has it."""

    live: str
    recorded: str


class TurnChange(NamedTuple):
    """A change in the turn that asks, from 1, or 0 for the final response."""

    turn: int
    change: Change


class RecordedScript:
    """The answers of a recorded conversation, as far as it goes.

    Attributes:
        states: the states that the live server has issued so far.
        changes: where its asks and the final response differ from the recorded ones.
        left_out: where they differ at ignored places.
        live: the live exchange in the place of each recorded one, with the recorded ids.
    """

    def __init__(
        self,
        exchanges: Sequence[RecordedExchange],
        pushed_turns: Sequence[PushedTurn] = (),
        ignored: Collection[str] = (),
        listening: Sequence[RecordedScript] = (),
    ) -> None:
        """Take a recorded conversation, whose last exchange may ask and have no answer here.

        Requests that were pushed while several calls were pending belong to the scripts of the
        session's `listening` streams.
        """
        self._listening = listening
        self._exchanges = exchanges
        self._ignored = ignored
        self._unasked = [list(turn.asked) for turn in pushed_turns]
        self._turns = pushed_turns
        self._answered = 0
        self._ids: dict[bytes, bytes] = {}
        self.states: list[IssuedState] = []
        self.changes: list[TurnChange] = []
        self.left_out: list[Change] = []
        self.live: list[RecordedExchange] = []

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
        return None

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        """Yield the recorded answers with the numbers of their turns."""
        for position, exchange in enumerate(self._exchanges[1:]):
            yield asking_turn(position, self._turns), answers_text(exchange.request.body) or b""
        for at, turn in enumerate(self._turns):
            for answer in turn.answers:
                yield turn.position + at + 1, answer.exchange.request.body

    @property
    def _recorded_by_hash(self) -> dict[str, str]:
        return {sha256_of(live): recorded for live, recorded in self.states}

    def _recorded_at(self, position: int) -> RecordedExchange:
        return self._exchanges[min(position, len(self._exchanges) - 1)]

    def _as_recorded(self, position: int, live: RecordedExchange) -> RecordedExchange:
        """Return a live exchange with the ids that the recorded requests had."""
        self._ids[id_of(live)] = id_of(self._recorded_at(position))
        return with_ids(live, self._ids)

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Give the recorded answers, if the ask is the recorded one."""
        if ask.push is not None:
            return self._answer_push(ask)
        position = ask.turn - 1 - self._answered
        turn = asking_turn(position, self._turns)
        live = self._as_recorded(position, ask.exchange)
        self.live.append(live)
        recorded = self._exchanges[position] if position < len(self._exchanges) else None
        if recorded is None or recorded.ask is None:
            return self._refused(ask, turn, [round_change(ABSENT, asked_question(live))])
        if unasked := self._unasked_at(position):
            return self._refused(ask, turn, [round_change(_asked(unasked[0]), ABSENT)])
        if ask.request_state is not None and recorded.ask.request_state is not None:
            self.states.append(IssuedState(ask.request_state, recorded.ask.request_state))
        changes = self._counting(response_changes(recorded, live, self._recorded_by_hash))
        if heaviest(changes) == "question-changed":
            return self._refused(ask, turn, changes)
        self._take(turn, changes)
        if position + 1 == len(self._exchanges):
            return NeedsAnswers(ask)
        return Answered(answers_text(self._exchanges[position + 1].request.body))

    def _answer_push(self, push: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Post the recorded answer, if what is pushed was recorded at this place."""
        position = push.turn - 1 - self._answered
        response = self._as_recorded(position, push.exchange).response
        raw = b"" if response is None else response.body
        asked = pushed_value(raw, self._recorded_by_hash)
        number, changes = asking_turn(position, self._turns), [round_change(ABSENT, asked)]
        for at, (turn, unasked) in enumerate(zip(self._turns, self._unasked, strict=True)):
            if unasked and turn.position <= position:
                # What was pushed together may come in another order.
                if pushed := self._same_as(asked, unasked):
                    self._answered += 1
                    return _posted(turn, pushed) or NeedsAnswers(push)
                number, changes = turn.position + at + 1, self._changes_of_push(unasked[0], asked)
                break
        for script in self._listening:
            posted = script.posted(asked)
            if posted is not None:
                self._answered += 1
                return posted
        return self._refused(push, number, changes)

    def posted(self, asked: object) -> Answered | None:
        """Return the answer to what was pushed on this stream, whatever the turn; or None."""
        for turn, unasked in zip(self._turns, self._unasked, strict=True):
            if pushed := self._same_as(asked, unasked):
                return _posted(turn, pushed)
        return None

    def _same_as(self, asked: object, unasked: list[PushedRequest]) -> PushedRequest | None:
        """Take the recorded request that asks the same out of some; None where there is none."""
        same = (each for each in unasked if not self._changes_of_push(each, asked))
        pushed = next(same, None)
        if pushed is not None:
            unasked.remove(pushed)
        return pushed

    def _changes_of_push(self, pushed: PushedRequest, asked: object) -> list[Change]:
        changes = question_changes({pushed.key: _asked(pushed)}, {pushed.key: asked})
        return self._counting(changes)

    def _counting(self, changes: list[Change]) -> list[Change]:
        """Return the changes that are not ignored, and keep the others."""
        kept = without_ignored(changes, self._ignored)
        self.left_out += [change for change in changes if change not in kept]
        return kept

    def finished(self, exchange: RecordedExchange) -> None:
        """Take the response that asks nothing."""
        position = len(self.live)
        exchange = self._as_recorded(position, exchange)
        self.live.append(exchange)
        recorded, turn = self._recorded_at(position), asking_turn(position, self._turns)
        if unasked := self._unasked_at(position):
            self._take(turn, [round_change(_asked(unasked[0]), ABSENT)])
        elif recorded.ask is not None:
            self._take(turn, [round_change(asked_question(recorded), ABSENT)])
        else:
            changes = response_changes(recorded, exchange, self._recorded_by_hash)
            self._take(0, self._counting(changes))

    def _unasked_at(self, position: int) -> list[PushedRequest]:
        """Return what was pushed up to an exchange's response, and has not been pushed now."""
        turns = zip(self._turns, self._unasked, strict=True)
        return [each for turn, unasked in turns if turn.position <= position for each in unasked]

    def _refused(self, ask: LiveAsk, turn: int, changes: Sequence[Change]) -> AskedOtherwise:
        self._take(turn, changes)
        return AskedOtherwise(ask, tuple(changes))

    def _take(self, turn: int, changes: Sequence[Change]) -> None:
        self.changes += [TurnChange(turn, change) for change in changes]


def _posted(turn: PushedTurn, pushed: PushedRequest) -> Answered | None:
    """Return the recorded answer to a pushed request; None where there was none."""
    response = next((each for each in turn.answers if each.key == pushed.key), None)
    message = None if response is None else response.exchange.call.message
    if message is None:
        return None
    result, error = message.spelled(("result",)), message.spelled(("error",))
    return Answered(result) if result is not None else Answered(error or b"{}", "error")


def _asked(pushed: PushedRequest) -> dict[str, Any]:
    return pushed_value(pushed.message.raw)
