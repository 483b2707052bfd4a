"""From the exchanges of a recording to its cassette.

Owns: building interactions from linked exchanges, their order, and the surrogates.
Rule: the result depends on what was exchanged, not on when; times and raw hashes stand in the
recording block only. What an earlier recording wrote stays as it is; a new one goes on from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Literal

from mrtr_cassette.core.exchange.recorded import RecordedExchange, RequestState
from mrtr_cassette.core.format.bodies import encode_body, header_map
from mrtr_cassette.core.format.codec import encode_cassette
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.format.model import (
    AnswerModel,
    BranchModel,
    CassetteModel,
    ExchangeFactsModel,
    HttpModel,
    InteractionModel,
    PieceFactsModel,
    RecordingModel,
    RequestModel,
    ResponseModel,
    TurnModel,
    redaction_model,
)
from mrtr_cassette.core.protocol.calls import Call, CallKey, read_call
from mrtr_cassette.core.protocol.messages import Ask, ask_in
from mrtr_cassette.core.record.linking import Asked, Chain, Facts, PastAsk, Retried, link
from mrtr_cassette.core.secrets.placeholders import renumber
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.surrogates import (
    SESSION_SURROGATE,
    occurrence_in,
    reveal,
    reveal_text,
    session_surrogate,
    sha256_of,
    state_surrogate,
)
from mrtr_cassette.core.wire.http import (
    SESSION_HEADER,
    End,
    Headers,
    Request,
    Response,
    header_value,
)

JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")
"""What stands for a secret in a journal; a placeholder with anything else is somebody's text."""
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class _Read:
    """An exchange with what it means."""

    exchange: RecordedExchange
    call: Call
    key: CallKey
    ask: Ask | None
    asked_after: int


def _read(exchange: RecordedExchange) -> _Read:
    call = read_call(exchange.request)
    response = exchange.response
    found = None if response is None else ask_in(call.message, response)
    if found is None or response is None:
        return _Read(exchange, call, call.key(), None, 0)
    after = response.pieces[found.piece].after
    return _Read(exchange, call, call.key(), found, after)


def _facts(read: _Read) -> Facts:
    answers, ask, exchange = read.call.answers, read.ask, read.exchange
    return Facts(
        number=exchange.number or 0,
        key=read.key,
        caller=read.call.caller,
        retried=None
        if answers is None
        else Retried(answers.input_responses, exchange.echoed_sha256),
        asked=None
        if ask is None
        else Asked(ask.input_requests, exchange.issued_sha256, read.asked_after),
    )


def assemble(
    exchanges: Sequence[RecordedExchange],
    *,
    upstream: str,
    request_state: RequestState,
    recorded_at: str,
    tool: str,
    redaction: RedactionRules | None = None,
    answers: Literal["sealed"] | None = None,
    earlier: CassetteModel | None = None,
) -> CassetteModel:
    """Return the cassette of a recording.

    Args:
        exchanges: in any order, each number once.
        upstream: the server's URL, without credentials.
        request_state: whether the exchanges are sealed.
        recorded_at: ISO 8601, UTC.
        tool: name and version of this program.
        redaction: the rules by which secrets became placeholders.
        answers: whether users' answers are sealed.
        earlier: a cassette to which the recording is added.
    """
    before = _Before(earlier)
    reads = {
        exchange.number or 0: _read(exchange)
        for exchange in _numbered(exchanges, earlier, before.last_number)
    }
    chains = [
        *before.chains,
        *link((_facts(read) for read in reads.values()), before.asks()),
    ]
    _Surrogates(before).put_into(reads, chains)
    position = {chain: index for index, chain in enumerate(chains, start=1)}
    interactions = []
    facts = []
    for chain in chains:
        start, head = before.head_of(chain)
        own = [reads[number] for number in chain.numbers[start:]]
        if not own and head is not None:
            interactions.append(head)
            continue
        branch = None
        if chain.branch is not None:
            branch = BranchModel(of=position[chain.branch], turn=chain.shared)
        interactions.append(_interaction(own, chain, branch, head, start))
        facts += [
            _exchange_facts(read.exchange, position[chain], turn)
            for turn, read in enumerate(own, start=start)
            if turn >= chain.shared
        ]
    return CassetteModel(
        upstream=upstream if earlier is None else earlier.upstream,
        request_state=request_state,
        redaction=None if redaction is None else redaction_model(redaction),
        answers=answers,
        interactions=interactions,
        recording=RecordingModel(
            recorded_at=recorded_at,
            tool=tool,
            exchanges=[*before.facts, *sorted(facts, key=lambda fact: fact.number)],
        ),
    )


class _Before:
    """An earlier cassette: its interactions as chains, of exchanges with negative numbers.

    Attributes:
        exchanges: its exchanges by these numbers.
        chains: one for each interaction; those grow that are continued.
        facts: its recording block's exchanges.
        last_number: the number of its last exchange in arrival order.
    """

    def __init__(self, cassette: CassetteModel | None) -> None:
        """Read a cassette, whose bodies must have been checked already."""
        self._interactions = [] if cassette is None else cassette.interactions
        self.facts = [] if cassette is None else cassette.recording.exchanges
        self.last_number = max((fact.number for fact in self.facts), default=0)
        self.exchanges: dict[int, RecordedExchange] = {}
        self.chains: list[Chain] = []
        self._interaction_of: dict[int, InteractionModel] = {}
        loaded = () if cassette is None else load(encode_cassette(cassette), "").interactions
        number = -sum(len(interaction.own) for interaction in loaded)
        for interaction in loaded:
            of, shared = None, interaction.shared
            if interaction.branch is not None:
                of = self.chains[interaction.branch.of - 1]
            own = range(number, number + len(interaction.own))
            self.exchanges.update(zip(own, interaction.own, strict=True))
            self._interaction_of |= dict.fromkeys(own, self._interactions[interaction.number - 1])
            numbers = [*(of.numbers[:shared] if of is not None else ()), *own]
            self.chains.append(Chain(numbers, of, shared, interaction.is_orphan))
            number += len(own)

    def asks(self) -> list[PastAsk]:
        """Return the asks that a retry of the new recording may answer, oldest first."""
        answered = {
            number for chain in self.chains for number in chain.numbers[: len(chain.numbers) - 1]
        }
        asks: list[tuple[int, PastAsk]] = []
        for chain in self.chains:
            for turn, number in enumerate(chain.numbers, start=1):
                exchange = self.exchanges[number]
                ask = exchange.ask
                if ask is None or turn <= chain.shared:
                    continue
                issued = None if ask.request_state is None else sha256_of(ask.request_state)
                past = PastAsk(
                    key=exchange.call.key(),
                    caller=exchange.call.caller,
                    keys=ask.input_requests.keys(),
                    states=[
                        state for state in {issued, exchange.issued_sha256} if state is not None
                    ],
                    chain=chain,
                    position=turn,
                    is_answered=number in answered,
                )
                asks.append((exchange.number or 0, past))
        return [past for _, past in sorted(asks, key=itemgetter(0))]

    def head_of(self, chain: Chain) -> tuple[int, InteractionModel | None]:
        """Return how many exchanges of a chain stand here, and an interaction that has them."""
        start = sum(1 for number in chain.numbers if number < 0)
        if not start:
            return 0, None
        return start, self._interaction_of[chain.numbers[start - 1]]


def _numbered(
    exchanges: Sequence[RecordedExchange], earlier: CassetteModel | None, last_number: int
) -> Iterator[RecordedExchange]:
    """Yield the exchanges in arrival order, counted on after those of an earlier recording.

    Placeholders are numbered as the secrets turn up.
    """
    numbers: dict[tuple[str, str], int] = {}
    last: Counter[str] = Counter()

    def before(rule: str, token: str) -> None:
        if token.isascii() and token.isdigit() and len(token) < _LONGEST_NUMBER:
            last[rule] = max(last[rule], int(token))

    def number(rule: str, token: str) -> int | None:
        if not JOURNAL_TOKEN.fullmatch(token):
            return None
        if (rule, token) not in numbers:
            last[rule] += 1
            numbers[rule, token] = last[rule]
        return numbers[rule, token]

    if earlier is not None:
        renumber(encode_cassette(earlier), before)
    for exchange in sorted(exchanges, key=lambda exchange: exchange.number or 0):
        request, response = exchange.request, exchange.response
        yield replace(
            exchange,
            number=last_number + (exchange.number or 0),
            request=Request(
                request.method,
                renumber(request.target, number),
                tuple((name, renumber(value, number)) for name, value in request.headers),
                renumber(request.body, number),
            ),
            response=None
            if response is None
            else replace(
                response,
                headers=tuple((name, renumber(value, number)) for name, value in response.headers),
                pieces=tuple(
                    replace(
                        piece,
                        raw=renumber(piece.raw, number),
                        after=last_number + piece.after,
                    )
                    for piece in response.pieces
                ),
            ),
        )


class _Surrogates:
    """Puts surrogates in the place of placeholders, the same ones on every re-recording."""

    def __init__(self, before: _Before) -> None:
        """Begin after what an earlier cassette has."""
        self._occurrences: Counter[CallKey] = Counter()
        self._sessions: dict[str, str] = {}
        self._issued: dict[str, str] = {}
        self._of_exchange: dict[int, str] = {}
        for chain in before.chains:
            self._occurrences[before.exchanges[chain.numbers[0]].call.key()] += 1
        for number, exchange in before.exchanges.items():
            ask = exchange.ask
            if ask is not None and ask.request_state is not None:
                state, key = ask.request_state, exchange.call.key()
                self._of_exchange[number] = state
                self._issued.setdefault(sha256_of(state), state)
                if exchange.issued_sha256 is not None:
                    self._issued.setdefault(exchange.issued_sha256, state)
                # Where interactions were taken out by hand, the count is too low.
                occurrence = max(self._occurrences[key], occurrence_in(state) or 0)
                self._occurrences[key] = occurrence
            for headers in (
                exchange.request.headers,
                exchange.response.headers if exchange.response else (),
            ):
                session = header_value(headers, SESSION_HEADER)
                if session:
                    self._sessions[sha256_of(session)] = session
        numbers = (SESSION_SURROGATE.fullmatch(session) for session in self._sessions.values())
        self._last_session = max((int(match[1]) for match in numbers if match), default=0)

    def put_into(self, reads: dict[int, _Read], chains: Iterable[Chain]) -> None:
        """Replace the placeholders of all exchanges."""
        echoed = self._name_states(reads, chains)
        for number, read in reads.items():
            exchange = self._with_sessions(read.exchange)
            exchange = self._with_states(exchange, echoed.get(number))
            reads[number] = replace(read, exchange=exchange)

    def _name_states(self, reads: dict[int, _Read], chains: Iterable[Chain]) -> dict[int, str]:
        """Name every state, and return the names of those that each exchange's request echoes."""
        echoed: dict[int, str] = {}
        for chain in chains:
            own = [
                (turn, reads[number])
                for turn, number in enumerate(chain.numbers)
                if turn >= chain.shared and number in reads
            ]
            if not own:
                continue
            key = own[0][1].key
            name = partial(state_surrogate, "\n".join(key), self._occurrence(chain, key))
            for turn, read in own:
                exchange = read.exchange
                number = exchange.number or 0
                if exchange.issued_sha256 is not None:
                    self._of_exchange[number] = name(turn + 1)
                    self._issued.setdefault(exchange.issued_sha256, name(turn + 1))
                if exchange.echoed_sha256 is not None:
                    asked = self._of_exchange.get(chain.numbers[turn - 1]) if turn else None
                    issued = self._issued.get(exchange.echoed_sha256)
                    echoed[number] = asked or issued or name(0)
        return echoed

    def _occurrence(self, chain: Chain, key: CallKey) -> int:
        """Return the number in the surrogates of a chain: a new one, unless it has some already."""
        for number in reversed(chain.numbers[chain.shared :]):
            found = occurrence_in(self._of_exchange.get(number, ""))
            if found is not None:
                return found
        self._occurrences[key] += 1
        return self._occurrences[key]

    def _with_states(self, exchange: RecordedExchange, echoed: str | None) -> RecordedExchange:
        """Replace states, also those of other exchanges that this one repeats."""
        own: dict[str, str] = {}

        def surrogate(sha256: str) -> str | None:
            return own.get(sha256) or self._issued.get(sha256)

        if exchange.echoed_sha256 is not None and echoed is not None:
            own[exchange.echoed_sha256] = echoed
        request = Request(
            exchange.request.method,
            reveal_text(exchange.request.target, surrogate),
            _revealed(exchange.request.headers, surrogate),
            reveal(exchange.request.body, surrogate),
        )
        if exchange.issued_sha256 is not None:
            own[exchange.issued_sha256] = self._of_exchange[exchange.number or 0]
        response = exchange.response
        if response is not None:
            pieces = tuple(
                replace(piece, raw=reveal(piece.raw, surrogate)) for piece in response.pieces
            )
            headers = _revealed(response.headers, surrogate)
            response = replace(response, headers=headers, pieces=pieces)
        return replace(exchange, request=request, response=response)

    def _with_sessions(self, exchange: RecordedExchange) -> RecordedExchange:
        request, response = exchange.request, exchange.response
        return replace(
            exchange,
            request=replace(request, headers=self._session_headers(request.headers)),
            response=None
            if response is None
            else replace(response, headers=self._session_headers(response.headers)),
        )

    def _session_headers(self, headers: Headers) -> Headers:
        if not any(name.lower() == SESSION_HEADER for name, _ in headers):
            return headers
        return tuple(
            (name, reveal_text(value, self._session) if name.lower() == SESSION_HEADER else value)
            for name, value in headers
        )

    def _session(self, sha256: str) -> str:
        if sha256 not in self._sessions:
            self._last_session += 1
            self._sessions[sha256] = session_surrogate(self._last_session)
        return self._sessions[sha256]


def _revealed(headers: Headers, surrogate_of: Callable[[str], str | None]) -> Headers:
    return tuple((name, reveal_text(value, surrogate_of)) for name, value in headers)


def _interaction(
    own: Sequence[_Read],
    chain: Chain,
    branch: BranchModel | None,
    head: InteractionModel | None,
    start: int,
) -> InteractionModel:
    """Build an interaction; where the last response is an ask, nobody answered it.

    Args:
        own: the exchanges that this recording has of it.
        chain: the whole interaction.
        branch: where it parts from another one.
        head: an earlier interaction that has the exchanges before, or None.
        start: how many exchanges these are.
    """
    exchanges = [read.exchange for read in own]
    turns = []
    if head is None:
        first = exchanges[0].request
        request = RequestModel(
            http=HttpModel(
                method=first.method, path=first.target, headers=header_map(first.headers)
            ),
            **encode_body((first.body,), events=False),
        )
    else:
        request = head.request
        *whole, last_turn = head.elicitation_turns[:start]
        answered = TurnModel(ask=last_turn.ask, answer=_answering(exchanges[0].request))
        turns = [*whole, answered]
    turns += [
        TurnModel(ask=_responding(asked.response), answer=_answering(retried.request))
        for asked, retried in pairwise(exchanges)
        if asked.response is not None
    ]
    last = exchanges[-1].response
    response = None if last is None else _responding(last)
    if own[-1].ask is not None and response is not None:
        turns.append(TurnModel(ask=response))
        response = None
    return InteractionModel(
        orphan=True if chain.is_orphan else None,
        branch=branch,
        request=request,
        elicitation_turns=turns,
        response=response,
    )


def _answering(request: Request) -> AnswerModel:
    return AnswerModel(
        headers=header_map(request.headers), **encode_body((request.body,), events=False)
    )


def _responding(response: Response) -> ResponseModel:
    return ResponseModel(
        status=response.status,
        headers=header_map(response.headers),
        end=None if response.end is End.COMPLETE else response.end.value,
        **encode_body(
            tuple(piece.raw for piece in response.pieces), events=response.is_event_stream
        ),
    )


def _exchange_facts(exchange: RecordedExchange, interaction: int, turn: int) -> ExchangeFactsModel:
    response = exchange.response
    is_streamed = response is not None and (response.is_event_stream or len(response.pieces) > 1)
    pieces = (
        None
        if response is None or not is_streamed
        else [
            PieceFactsModel(
                at_ms=round(piece.at_ms - exchange.started_ms),
                after=piece.after,
                size=None if response.is_event_stream else len(piece.raw),
            )
            for piece in response.pieces
        ]
    )
    return ExchangeFactsModel(
        number=exchange.number or 0,
        interaction=interaction,
        turn=turn,
        started_ms=round(exchange.started_ms),
        duration_ms=round(exchange.ended_ms - exchange.started_ms),
        request_state_sha256=exchange.issued_sha256,
        echoed_state_sha256=exchange.echoed_sha256,
        pieces=pieces,
    )
