"""A script that gives the recorded answers, if the live server asks what was recorded.

Owns: comparing a live ask with the recorded one, and the recorded answers.
Does not own: what is sent (`conversation`).
Rule: an ask that is not the recorded one is never answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    LivePush,
    NeedsAnswers,
)
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, REQUEST_STATE, answers_text
from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import without_numbers
from mrtr_cassette.core.secrets.surrogates import reveal, sha256_of
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.core.wire.pointers import Difference, differences


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
        differing = differences(
            _input_requests(self._exchanges[ask.turn - 1], {}),
            _input_requests(
                ask.exchange, {sha256_of(live): recorded for live, recorded in self.states}
            ),
            f"/{INPUT_REQUESTS}",
        )
        if ask.request_state is None and recorded_state is not None:
            differing.append(Difference(f"/{REQUEST_STATE}", '"…"', None))
        if differing:
            return AskedOtherwise(ask, tuple(differing))
        if ask.turn == len(self._exchanges):
            return NeedsAnswers(ask)
        return Answered(answers_text(self._exchanges[ask.turn].request.body))

    def answer_push(self, push: LivePush) -> AskedOtherwise:
        """Refuse what is pushed: before a retry, the server asks by its result."""
        return AskedOtherwise(push, ())


def _input_requests(exchange: RecordedExchange, recorded_by_hash: Mapping[str, str]) -> Any:
    """Return the `inputRequests` of an ask, comparable: without states and numbers of its own."""
    if exchange.ask is None:
        raise AssertionError("unreachable because only asks are compared")
    raw = _without_numbers(reveal(exchange.ask.message.raw, recorded_by_hash.get))
    return parse(raw)["result"].get(INPUT_REQUESTS)


def _without_numbers(raw: bytes) -> bytes:
    """Return a JSON text in which placeholders tell the rule only."""
    return without_numbers(raw.decode("latin-1")).encode("latin-1")
