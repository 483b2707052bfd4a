"""From the exchanges of a recording to its cassette.

Owns: building interactions from linked exchanges, their order, and the surrogates.
Rule: the result depends on what was exchanged, not on when; times and raw hashes stand in the
recording block only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Literal

from mrtr_cassette.core.calls import Call, CallKey, read_call
from mrtr_cassette.core.cassette import (
    Answering,
    Asking,
    Branch,
    Cassette,
    ElicitationTurn,
    ExchangeFacts,
    HeaderMap,
    Http,
    Interaction,
    PieceFacts,
    Recording,
    Redaction,
    Responding,
)
from mrtr_cassette.core.codec import (
    decode_body,
    encode_body,
    encode_cassette,
    header_map,
    headers_of,
)
from mrtr_cassette.core.dialect import Ask
from mrtr_cassette.core.linking import Asked, Chain, Facts, Retried, link
from mrtr_cassette.core.messages import ask_in
from mrtr_cassette.core.placeholders import renumber
from mrtr_cassette.core.seal import reveal, reveal_text, session_surrogate, state_surrogate
from mrtr_cassette.core.wire import (
    SESSION_HEADER,
    End,
    Exchange,
    Headers,
    Request,
    Response,
    header_value,
)

JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")
"""What stands for a secret in a journal; a placeholder with anything else is somebody's text."""
_LONGEST_NUMBER = 10

RequestState = Literal["sealed", "verbatim"]


@dataclass(frozen=True, slots=True)
class _Read:
    """An exchange with what it means."""

    exchange: Exchange
    call: Call
    key: CallKey
    ask: Ask | None
    asked_after: int


def _read(exchange: Exchange) -> _Read:
    call = read_call(exchange.request)
    found = ask_in(call.message, exchange.response)
    if found is None:
        return _Read(exchange, call, call.key(), None, 0)
    located, ask = found
    after = exchange.response.pieces[located.piece].after
    return _Read(exchange, call, call.key(), ask, after)


def _facts(read: _Read) -> Facts:
    answers, ask, exchange = read.call.answers, read.ask, read.exchange
    return Facts(
        number=exchange.number,
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
    exchanges: Sequence[Exchange],
    *,
    upstream: str,
    request_state: RequestState,
    recorded_at: str,
    tool: str,
    redaction: Redaction | None = None,
    answers: Literal["sealed"] | None = None,
    earlier: Cassette | None = None,
) -> Cassette:
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
    reads = {exchange.number: _read(exchange) for exchange in _numbered(exchanges, earlier)}
    chains = link(_facts(read) for read in reads.values())
    _Surrogates(earlier).put_into(reads, chains)
    interactions = list(earlier.interactions) if earlier is not None else []
    facts = list(earlier.recording.exchanges) if earlier is not None else []
    first_number = max((fact.number for fact in facts), default=0)
    position = {chain: index for index, chain in enumerate(chains, start=len(interactions) + 1)}
    new_facts = []
    for chain in chains:
        own = [reads[number].exchange for number in chain.numbers]
        branch = None
        if chain.branch is not None:
            branch = Branch(of=position[chain.branch], turn=chain.shared)
        interactions.append(_interaction(own, chain, branch, reads[chain.numbers[-1]].ask))
        new_facts += [
            _exchange_facts(exchange, position[chain], turn, first_number)
            for turn, exchange in enumerate(own)
            if turn >= chain.shared
        ]
    return Cassette(
        upstream=upstream,
        request_state=request_state,
        redaction=redaction,
        answers=answers,
        interactions=interactions,
        recording=Recording(
            recorded_at=recorded_at,
            tool=tool,
            exchanges=[*facts, *sorted(new_facts, key=lambda fact: fact.number)],
        ),
    )


def _numbered(exchanges: Sequence[Exchange], earlier: Cassette | None) -> Iterator[Exchange]:
    """Yield the exchanges in arrival order, with placeholders numbered as secrets turn up."""
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
    for exchange in sorted(exchanges, key=lambda exchange: exchange.number):
        request, response = exchange.request, exchange.response
        yield replace(
            exchange,
            request=Request(
                request.method,
                renumber(request.target, number),
                tuple((name, renumber(value, number)) for name, value in request.headers),
                renumber(request.body, number),
            ),
            response=replace(
                response,
                headers=tuple((name, renumber(value, number)) for name, value in response.headers),
                pieces=tuple(
                    replace(piece, raw=renumber(piece.raw, number)) for piece in response.pieces
                ),
            ),
        )


class _Surrogates:
    """Puts surrogates in the place of placeholders, the same ones on every re-recording."""

    def __init__(self, earlier: Cassette | None) -> None:
        """Begin after what an earlier cassette has."""
        before = earlier.interactions if earlier is not None else []
        self._occurrences = Counter(
            read_call(request_of(interaction)).key() for interaction in before
        )
        self._sessions_before = len(
            {
                header_value(headers_of(headers), SESSION_HEADER)
                for interaction in before
                for headers in _all_headers(interaction)
            }
            - {""}
        )
        self._sessions: dict[str, str] = {}
        self._issued: dict[str, str] = {}
        self._of_exchange: dict[int, str] = {}

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
            key = reads[chain.numbers[0]].key
            self._occurrences[key] += 1
            name = partial(state_surrogate, "\n".join(key), self._occurrences[key])
            for turn, number in enumerate(chain.numbers):
                exchange = reads[number].exchange
                if turn < chain.shared:
                    continue
                if exchange.issued_sha256 is not None:
                    self._of_exchange[number] = name(turn + 1)
                    self._issued.setdefault(exchange.issued_sha256, name(turn + 1))
                if exchange.echoed_sha256 is not None:
                    asked = self._of_exchange.get(chain.numbers[turn - 1]) if turn else None
                    issued = self._issued.get(exchange.echoed_sha256)
                    echoed[number] = asked or issued or name(0)
        return echoed

    def _with_states(self, exchange: Exchange, echoed: str | None) -> Exchange:
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
            own[exchange.issued_sha256] = self._of_exchange[exchange.number]
        pieces = tuple(
            replace(piece, raw=reveal(piece.raw, surrogate)) for piece in exchange.response.pieces
        )
        headers = _revealed(exchange.response.headers, surrogate)
        response = replace(exchange.response, headers=headers, pieces=pieces)
        return replace(exchange, request=request, response=response)

    def _with_sessions(self, exchange: Exchange) -> Exchange:
        request, response = exchange.request, exchange.response
        return replace(
            exchange,
            request=replace(request, headers=self._session_headers(request.headers)),
            response=replace(response, headers=self._session_headers(response.headers)),
        )

    def _session_headers(self, headers: Headers) -> Headers:
        if not any(name.lower() == SESSION_HEADER for name, _ in headers):
            return headers
        return tuple(
            (name, reveal_text(value, self._session) if name.lower() == SESSION_HEADER else value)
            for name, value in headers
        )

    def _session(self, sha256: str) -> str:
        number = self._sessions_before + len(self._sessions) + 1
        return self._sessions.setdefault(sha256, session_surrogate(number))


def _revealed(headers: Headers, surrogate_of: Callable[[str], str | None]) -> Headers:
    return tuple((name, reveal_text(value, surrogate_of)) for name, value in headers)


def _all_headers(interaction: Interaction) -> Iterator[HeaderMap]:
    yield interaction.request.http.headers
    for turn in interaction.elicitation_turns:
        yield turn.ask.headers
        if turn.answer is not None:
            yield turn.answer.headers
    if interaction.response is not None:
        yield interaction.response.headers


def request_of(interaction: Interaction) -> Request:
    """Return an interaction's first request; its body must have been checked already."""
    asking = interaction.request
    body = b"".join(decode_body(asking, "", ""))
    return Request(asking.http.method, asking.http.path, headers_of(asking.http.headers), body)


def _interaction(
    exchanges: Sequence[Exchange], chain: Chain, branch: Branch | None, last_ask: Ask | None
) -> Interaction:
    """Build an interaction; where the last response is an ask, nobody answered it."""
    first = exchanges[0].request
    turns = [
        ElicitationTurn(ask=_responding(before.response), answer=_answering(after.request))
        for before, after in pairwise(exchanges)
    ]
    last = exchanges[-1].response
    response = _responding(last) if last.status else None
    if last_ask is not None and response is not None:
        turns.append(ElicitationTurn(ask=response))
        response = None
    return Interaction(
        orphan=True if chain.is_orphan else None,
        branch=branch,
        request=Asking(
            http=Http(method=first.method, path=first.target, headers=header_map(first.headers)),
            **encode_body((first.body,), events=False),
        ),
        elicitation_turns=turns,
        response=response,
    )


def _answering(request: Request) -> Answering:
    return Answering(
        headers=header_map(request.headers), **encode_body((request.body,), events=False)
    )


def _responding(response: Response) -> Responding:
    return Responding(
        status=response.status,
        headers=header_map(response.headers),
        end=None if response.end is End.COMPLETE else response.end.value,
        **encode_body(
            tuple(piece.raw for piece in response.pieces), events=response.is_event_stream
        ),
    )


def _exchange_facts(
    exchange: Exchange, interaction: int, turn: int, first_number: int
) -> ExchangeFacts:
    response = exchange.response
    is_streamed = response.is_event_stream or len(response.pieces) > 1
    pieces = [
        PieceFacts(
            at_ms=round(piece.at_ms - exchange.started_ms),
            after=first_number + piece.after,
            size=None if response.is_event_stream else len(piece.raw),
        )
        for piece in response.pieces
    ]
    return ExchangeFacts(
        number=first_number + exchange.number,
        interaction=interaction,
        turn=turn,
        started_ms=round(exchange.started_ms),
        duration_ms=round(exchange.ended_ms - exchange.started_ms),
        request_state_sha256=exchange.issued_sha256,
        echoed_state_sha256=exchange.echoed_sha256,
        pieces=pieces if is_streamed else None,
    )
