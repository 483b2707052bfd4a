"""A script that gives the recorded answers, if the live server asks what was recorded.

Rule: an ask that is not the recorded one is never answered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from mrtr_cassette.core.compare.changes import Change, heaviest, without_ignored
from mrtr_cassette.core.compare.own_ids import id_of, with_ids
from mrtr_cassette.core.compare.responses import (
    changes_beside,
    changes_of_ask,
    changes_of_result,
    pushed_value,
    question_changes,
)
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    LivePush,
    NeedsAnswers,
    Posted,
)
from mrtr_cassette.core.drive.ordering import without_reordered
from mrtr_cassette.core.exchange.pushed import message_of
from mrtr_cassette.core.exchange.recorded import (
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    asking_turn,
)
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, answers_text
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import without_numbers
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.jsonbytes import canonical

_ASKS = f"/{INPUT_REQUESTS}"


class IssuedState(NamedTuple):
    """One request state, as the live server issued it and as the cassette has it."""

    live: str
    recorded: str


class TurnChange(NamedTuple):
    """One place where a live server differs from a recorded conversation.

    Attributes:
        turn: the turn that asks, from 1; or 0 for the final response.
        change: the place.
    """

    turn: int
    change: Change


class RecordedScript:
    """The answers of a recorded conversation, as far as it goes.

    Attributes:
        states: the states that the live server has issued so far.
        changes: where its asks so far, and the final response, differ from the recorded ones.
        left_out: where they differ at what is ignored.
        live: the live exchange at the place of each recorded one so far, with the recorded ids.
    """

    def __init__(
        self,
        exchanges: Sequence[RecordedExchange],
        pushed_turns: Sequence[PushedTurn] = (),
        ignored: Collection[str] = (),
        listening: Sequence[RecordedScript] = (),
    ) -> None:
        """Take a recorded conversation.

        Args:
            exchanges: from its first request on; the last one may ask, and have no answer here.
            pushed_turns: the turns in which the server pushed what it asks.
            ignored: pointers at which, and below which, nothing counts.
            listening: those of the session's listening streams: while several calls were pending,
                what was pushed belongs to these.
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

    def _as_recorded(self, position: int, live: RecordedExchange) -> RecordedExchange:
        """Return a live exchange with the ids that the recorded requests had."""
        recorded = self._exchanges[min(position, len(self._exchanges) - 1)]
        self._ids[id_of(live)] = id_of(recorded)
        return with_ids(live, self._ids)

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Give the recorded answers, if the ask is the recorded one."""
        position = ask.turn - 1 - self._answered
        turn = asking_turn(position, self._turns)
        live = self._as_recorded(position, ask.exchange)
        self.live.append(live)
        recorded = self._exchanges[position] if position < len(self._exchanges) else None
        if recorded is None or recorded.ask is None:
            asked = None if live.ask is None else live.ask.message
            return self._refused(ask, turn, [_round(None, asked)])
        if unasked := self._unasked_at(position):
            return self._refused(ask, turn, [_round(message_of(unasked[0]), None)])
        if ask.request_state is not None and recorded.ask.request_state is not None:
            self.states.append(IssuedState(ask.request_state, recorded.ask.request_state))
        states = self._recorded_by_hash
        changes = self._counting(changes_of_ask(recorded, live, states))
        if heaviest(changes) == "question-changed":
            return self._refused(ask, turn, changes)
        changes += self._counting(changes_beside(recorded, live, states))
        self.changes += [TurnChange(turn, change) for change in changes]
        if position + 1 == len(self._exchanges):
            return NeedsAnswers(ask)
        return Answered(answers_text(self._exchanges[position + 1].request.body))

    def answer_push(self, push: LivePush) -> Posted | NeedsAnswers | AskedOtherwise:
        """Post the recorded answer, if what is pushed was recorded at this place."""
        position = push.turn - 1 - self._answered
        open_turns = (
            at
            for at, turn in enumerate(self._turns)
            if self._unasked[at] and turn.position <= position
        )
        at = next(open_turns, None)
        response = self._as_recorded(position, push.exchange).response
        raw = b"" if response is None else response.body
        asked = pushed_value(raw, self._recorded_by_hash)
        if at is None:
            posted = self._answered_elsewhere(asked)
            changes = [_round(None, push.message)]
            return posted or self._refused(push, asking_turn(position, self._turns), changes)
        turn, unasked = self._turns[at], self._unasked[at]
        number = turn.position + at + 1
        # What was pushed together may come in another order.
        compared = [self._changes_of_push(each, asked) for each in unasked]
        index = next((index for index, changes in enumerate(compared) if not changes), None)
        if index is None:
            posted = self._answered_elsewhere(asked)
            return posted or self._refused(push, number, compared[0])
        self._answered += 1
        return _posted(turn, unasked.pop(index)) or NeedsAnswers(push)

    def _answered_elsewhere(self, asked: object) -> Posted | None:
        """Return the recorded answer to what was pushed while several calls were pending."""
        for script in self._listening:
            posted = script.taken(asked)
            if posted is not None:
                self._answered += 1
                return posted
        return None

    def taken(self, asked: object) -> Posted | None:
        """Return the answer to what was pushed on this stream, whatever the turn; or None.

        Args:
            asked: the method and the params of a pushed request.
        """
        for turn, unasked in zip(self._turns, self._unasked, strict=True):
            for pushed in unasked:
                if not self._changes_of_push(pushed, asked):
                    unasked.remove(pushed)
                    return _posted(turn, pushed)
        return None

    def _changes_of_push(self, pushed: PushedRequest, asked: object) -> list[Change]:
        recorded = pushed_value(message_of(pushed).raw)
        changes = question_changes({pushed.key: recorded}, {pushed.key: asked})
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
        recorded = self._exchanges[min(position, len(self._exchanges) - 1)]
        if unasked := self._unasked_at(position):
            self._take(asking_turn(position, self._turns), [_round(message_of(unasked[0]), None)])
        elif recorded.ask is not None:
            self._take(asking_turn(position, self._turns), [_round(recorded.ask.message, None)])
        else:
            states = self._recorded_by_hash
            changes = self._counting(changes_of_result(recorded, exchange, states))
            kept = without_reordered(changes, recorded, exchange, self._ignored)
            self.left_out += [change for change in changes if change not in kept]
            self._take(0, kept)

    def _unasked_at(self, position: int) -> list[PushedRequest]:
        """Return what was pushed up to an exchange's response, and has not been pushed now."""
        return [
            pushed
            for turn, unasked in zip(self._turns, self._unasked, strict=True)
            for pushed in unasked
            if turn.position <= position
        ]

    def _refused(
        self, ask: LiveAsk | LivePush, turn: int, changes: Sequence[Change]
    ) -> AskedOtherwise:
        self._take(turn, changes)
        return AskedOtherwise(ask, tuple(changes))

    def _take(self, turn: int, changes: Sequence[Change]) -> None:
        self.changes += [TurnChange(turn, change) for change in changes]


def _posted(turn: PushedTurn, pushed: PushedRequest) -> Posted | None:
    """Return the recorded answer to a pushed request; None where there was none."""
    response = next((each for each in turn.answers if each.key == pushed.key), None)
    message = None if response is None else response.exchange.call.message
    if message is None:
        return None
    result, error = message.spelled(("result",)), message.spelled(("error",))
    return Posted(result) if result is not None else Posted(error or b"{}", "error")


def _round(recorded: Message | None, received: Message | None) -> Change:
    """Return the change that there is a question more or less."""
    return Change("rounds-changed", _ASKS, _shown(recorded), _shown(received))


def _shown(message: Message | None) -> str | None:
    if message is None:
        return None
    result = message.tree.get("result")
    asked = pushed_value(message.raw) if result is None else result.get(INPUT_REQUESTS)
    return canonical(asked)
