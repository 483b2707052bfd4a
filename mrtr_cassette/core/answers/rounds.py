"""The rounds of one call whose questions sources answer, as the clients of the SDKs have them.

Rule: what nobody may answer is not answered, and the call ends there.
Source: the fulfilment engine of the TypeScript SDK's client (pull request 2313 of
modelcontextprotocol/typescript-sdk): at most 10 rounds, legs without requests at a pace of 250 ms,
a result that asks with neither requests nor state fails at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mrtr_cassette.core.answers.asked import Asked, asked_in
from mrtr_cassette.core.answers.fulfilment import Fulfilled, Fulfilment, Sources, Unanswered
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    LivePush,
    NeedsAnswers,
    Posted,
)
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    INPUT_REQUESTS,
    REQUEST_STATE,
    RESULT_TYPE,
    InputRequest,
    input_request,
    write_answers,
)
from mrtr_cassette.core.protocol.messages import Via
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.jsonbytes import canonical

MOST_ROUNDS: Final = 10
PACE_S: Final = 0.25
"""Seconds before a retry that has nothing to answer, so that no server is asked without a pause."""
_ASKING: Final = frozenset(dialect.result_type for dialect in DIALECTS if dialect.result_type)


class LeavesToSources:
    """The script of a call whose every question is for the sources."""

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Leave it to them."""
        return NeedsAnswers(ask)

    def answer_push(self, push: LivePush) -> Posted | NeedsAnswers | AskedOtherwise:
        """Leave it to them."""
        return NeedsAnswers(push)


@dataclass(frozen=True, slots=True)
class CallTurn:
    """One turn of a call.

    Attributes:
        number: from 1.
        via: how the server asked.
        requests: what it asked, by key.
        answers: what was answered, by key, as it goes on the wire; empty where nothing was.
        answered_by: who answered, by key.
        state_sha256: hash of the request state; None where there was none.
    """

    number: int
    via: Via
    requests: Mapping[str, InputRequest]
    answers: Mapping[str, Any]
    answered_by: Mapping[str, str]
    state_sha256: str | None


@dataclass(slots=True)
class Rounds:
    """The rounds of one call.

    Attributes:
        sources: who answers.
        most: how many rounds there may be.
        turns: what was asked and answered so far.
        unanswered: what nobody may answer; the call ends with it.
        overrun: the server asked more often than that.
    """

    sources: Sources
    most: int = MOST_ROUNDS
    turns: list[CallTurn] = field(default_factory=list)
    unanswered: Unanswered | None = None
    overrun: bool = False

    def asked(self, ask: LiveAsk | LivePush) -> Fulfilment | None:
        """Take an ask; return its way to its answers, or None if the call ends here."""
        if ask.turn > self.most:
            self.overrun = True
            return None
        return Fulfilment(asked_by(ask), self.sources)

    @staticmethod
    def pause_s(ask: LiveAsk | LivePush) -> float:
        """Return the seconds to wait before an ask is answered."""
        return 0.0 if requests_of(ask) else PACE_S

    def concluded(
        self, ask: LiveAsk | LivePush, outcome: Fulfilled | Unanswered
    ) -> Answered | Posted | None:
        """Take what came of an ask; return the answer to send, or None if the call ends here."""
        answers = outcome.answers if isinstance(outcome, Fulfilled) else {}
        state = ask.request_state if isinstance(ask, LiveAsk) else None
        self.turns.append(
            CallTurn(
                ask.turn,
                "result" if isinstance(ask, LiveAsk) else "push",
                requests_of(ask),
                {key: answer.value for key, answer in answers.items()},
                {key: answer.answered_by for key, answer in answers.items()},
                None if state is None else sha256_of(state),
            )
        )
        if isinstance(outcome, Unanswered):
            self.unanswered = outcome
            return None
        if isinstance(ask, LivePush):
            return Posted(canonical(answers[ask.key].value).encode())
        live = ask.exchange.ask
        if live is None or not live.input_requests:
            return Answered(None)
        values = {key: answer.value for key, answer in answers.items()}
        return Answered(write_answers(live.dialect, values))


def requests_of(ask: LiveAsk | LivePush) -> Mapping[str, InputRequest]:
    """Return the requests for input of an ask, by key."""
    if isinstance(ask, LivePush):
        return {ask.key: input_request(ask.message.method, ask.message.params)}
    return {} if ask.exchange.ask is None else ask.exchange.ask.input_requests


def asked_by(ask: LiveAsk | LivePush) -> Asked:
    """Return what an ask asks, as sources see it."""
    return asked_in(ask.exchange.call, ask.turn, requests_of(ask))


def refused(push: LivePush) -> Posted:
    """Return the answer to what is pushed outside of the call and nobody answers."""
    error = {"code": -32601, "message": f"nobody answers {push.message.method}"}
    return Posted(canonical(error).encode(), "error")


def fault_of(exchange: RecordedExchange) -> str | None:
    """Return why the last response of a call is no outcome; None where it is one."""
    members = exchange.rpc_members
    if not members:
        status = 0 if exchange.response is None else exchange.response.status
        return f"the response is no JSON-RPC response (HTTP {status})"
    result = members.get("result")
    if isinstance(result, dict) and result.get(RESULT_TYPE) in _ASKING:
        has_any = result.keys() & {INPUT_REQUESTS, REQUEST_STATE}
        what = "in a form that nobody can read" if has_any else "with neither requests nor state"
        return f"the server asks for input {what}"
    return None
