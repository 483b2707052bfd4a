"""A script that gives the recorded answers, if the live server asks what was recorded.

Owns: the recorded answers, and when they are given.
Does not own: what is sent (`conversation`), comparing asks (`compare`).
Rule: an ask that is not the recorded one is never answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mrtr_cassette.core.compare.changes import heaviest
from mrtr_cassette.core.compare.responses import changes_of_ask
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    LivePush,
    NeedsAnswers,
)
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.dialect import answers_text
from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import without_numbers
from mrtr_cassette.core.secrets.surrogates import sha256_of


class IssuedState(NamedTuple):
    """One request state, as the live server issued it and as the cassette has it."""

    live: str
    recorded: str


class RecordedScript:
    """The answers of a recorded conversation, up to its last ask, which the client answers.

    Attributes:
        states: the states that the live server has issued so far.
    """

    def __init__(self, exchanges: Sequence[RecordedExchange]) -> None:
        """Take a recorded conversation, from its first request to an ask."""
        self._exchanges = exchanges
        self.states: list[IssuedState] = []

    @property
    def problem(self) -> str | None:
        """Why the conversation can't be repeated, or None."""
        if self._exchanges[0].call.answers is not None:
            return "the recorded conversation begins with a retry whose ask was not recorded"
        for turn, exchange in enumerate(self._exchanges[1:], start=1):
            answers = answers_text(exchange.request.body) or b""
            if SEALED_ANSWER.search(answers.decode("latin-1")):
                return f"the recorded answer of turn {turn} is sealed: only its hash is known"
            if _without_numbers(answers) != answers:
                return f"the recorded answer of turn {turn} has redacted secrets"
        return None

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Give the recorded answers, if the ask is the recorded one."""
        recorded = self._exchanges[ask.turn - 1].ask
        recorded_state = None if recorded is None else recorded.request_state
        if ask.request_state is not None and recorded_state is not None:
            self.states.append(IssuedState(ask.request_state, recorded_state))
        recorded_by_hash = {sha256_of(live): recorded for live, recorded in self.states}
        changes = changes_of_ask(self._exchanges[ask.turn - 1], ask.exchange, recorded_by_hash)
        if heaviest(changes) == "question-changed":
            return AskedOtherwise(ask, tuple(changes))
        if ask.turn == len(self._exchanges):
            return NeedsAnswers(ask)
        return Answered(answers_text(self._exchanges[ask.turn].request.body))

    def answer_push(self, push: LivePush) -> AskedOtherwise:
        """Refuse what is pushed: before a retry, the server asks by its result."""
        return AskedOtherwise(push, ())


def _without_numbers(raw: bytes) -> bytes:
    """Return a JSON text in which placeholders tell the rule only."""
    return without_numbers(raw.decode("latin-1")).encode("latin-1")
