"""The rounds of one call whose questions sources answer, as the clients of the SDKs have them.

Rule: what nobody may answer is not answered, and the call ends there.
Source: the fulfilment engine of the TypeScript SDK's client (pull request 2313 of
modelcontextprotocol/typescript-sdk): at most 10 rounds, legs without requests at a pace of 250 ms,
a result that asks with neither requests nor state fails at once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.checking import asked_in
from mrtr_cassette.core.answers.fulfilment import (
    AskEndpoint,
    AskPerson,
    Fulfilled,
    Sources,
    Unanswered,
    fulfilment,
)
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    INPUT_REQUESTS,
    REQUEST_STATE,
    RESULT_TYPE,
    InputRequest,
    input_request,
    write_answers,
)
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.messages import Via
from mrtr_cassette.core.secrets.sealed import sha256_of
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


@dataclass(frozen=True, slots=True)
class CallTurn:
    """One turn of a call, with requests, answers as on the wire and who answered, each by key."""

    number: int
    via: Via
    requests: Mapping[str, InputRequest]
    answers: Mapping[str, Any]
    answered_by: Mapping[str, str]
    state_sha256: str | None


class Pause(NamedTuple):
    """Nothing is done for so many seconds."""

    seconds: float


@dataclass(slots=True)
class Rounds:
    """The rounds of one call; what nobody may answer, or more rounds than allowed, end it."""

    sources: Sources
    turns: list[CallTurn] = field(default_factory=list)
    unanswered: Unanswered | None = None
    overrun: bool = False

    def answer(
        self, ask: LiveAsk
    ) -> Generator[Pause | AskEndpoint | AskPerson, Any, Answered | None]:
        """Take an ask; return the answer to send, or None if the call ends here."""
        if ask.turn > MOST_ROUNDS:
            self.overrun = True
            return None
        requests = requests_of(ask)
        if not requests:
            yield Pause(PACE_S)
        asked = asked_in(ask.exchange.call, ask.turn, requests)
        outcome = yield from fulfilment(asked, self.sources)
        answers = outcome.answers if isinstance(outcome, Fulfilled) else {}
        values = {key: answer.value for key, answer in answers.items()}
        state = ask.request_state
        self.turns.append(
            CallTurn(
                ask.turn,
                "result" if ask.push is None else "push",
                requests,
                values,
                {key: answer.answered_by for key, answer in answers.items()},
                None if state is None else sha256_of(state),
            )
        )
        if isinstance(outcome, Unanswered):
            self.unanswered = outcome
            return None
        if ask.push is not None:
            return Answered(canonical(values[ask.key]).encode())
        live = ask.exchange.ask
        if live is None or not requests:
            return Answered(None)
        return Answered(write_answers(live.dialect, values))


def requests_of(ask: LiveAsk) -> Mapping[str, InputRequest]:
    """Return the requests for input of an ask, by key."""
    if ask.push is not None:
        return {ask.key: input_request(ask.push.method, ask.push.params)}
    return {} if ask.exchange.ask is None else ask.exchange.ask.input_requests


def refused(push: Message) -> Answered:
    """Return the answer to what is pushed outside of the call and nobody answers."""
    error = {"code": -32601, "message": f"nobody answers {push.method}"}
    return Answered(canonical(error).encode(), "error")


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
