"""From the exchanges of a recording to its cassette.

Owns: the numbers of secrets, and the order of interactions.
Does not own: which exchanges belong together (`linking`), what stands for states (`naming`),
the file (`format`).
Rule: the result depends on what was exchanged, not on when; times and raw hashes stand in the
recording block only. What an earlier recording wrote stays as it is; a new one goes on from it.
An exchange is held only while it is worked on, as there may be many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from sys import intern

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.protocol.messages import ask_in
from mrtr_cassette.core.record.linking import (
    AskFacts,
    LinkedInteraction,
    LinkFacts,
    RetryFacts,
    link,
)
from mrtr_cassette.core.record.naming import Surrogates
from mrtr_cassette.core.record.sealing import in_encoding, in_utf8
from mrtr_cassette.core.secrets.placeholders import renumber
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response

JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")
"""What stands for a secret in a journal; a placeholder with anything else is somebody's text."""
_LONGEST_NUMBER = 10


def assemble(
    exchanges: Mapping[int, RecordedExchange], earlier: Cassette | None = None
) -> Iterator[RecordedInteraction]:
    """Yield the interactions of a recording.

    Args:
        exchanges: by number; each is asked for up to three times.
        earlier: a cassette to which the recording is added.
    """
    assembly = _Assembly(exchanges)
    if earlier is not None:
        assembly.add_earlier(earlier)
    return assembly.interactions()


def head_of(header: JournalHeader, tool: str, earlier: Cassette | None = None) -> Cassette:
    """Return what a cassette says of a recording, without the interactions.

    Args:
        header: what the recording says of itself.
        tool: name and version of this program.
        earlier: a cassette to which the recording is added.
    """
    return Cassette(
        path="",
        # The port of a later run is no change of the cassette.
        upstream=header.upstream if earlier is None else earlier.upstream,
        request_state=header.request_state,
        redaction=header.redaction,
        seals_answers=header.answers is not None,
        recorded_at=header.recorded_at,
        tool=tool,
        interactions=(),
        transport=header.transport,
        client=header.client,
    )


def has_recording(
    cassette: Cassette, header: JournalHeader, exchanges: Mapping[int, RecordedExchange]
) -> bool:
    """Tell whether a cassette has all exchanges of a recording already.

    An exchange is known by its number, its times and its status: the rest of it reads otherwise in
    a cassette, and may have been edited since.

    Args:
        cassette: what may have them.
        header: what the recording says of itself.
        exchanges: by number, at least one.
    """
    own = {exchange.number: exchange for each in cassette.interactions for exchange in each.own}
    if not exchanges or cassette.recorded_at != header.recorded_at:
        return False
    offset = max((number or 0 for number in own), default=0) - max(exchanges)
    return all(
        offset + number in own and _moment(own[offset + number]) == _moment(exchange)
        for number, exchange in exchanges.items()
    )


def _moment(exchange: RecordedExchange) -> tuple[object, ...]:
    response = exchange.response
    return (
        exchange.request.method,
        round(exchange.started_ms),
        round(exchange.ended_ms - exchange.started_ms),
        None if response is None else (response.status, response.end),
    )


class _Assembly:
    """A recording in the making; exchanges of an earlier one have negative numbers here."""

    def __init__(self, exchanges: Mapping[int, RecordedExchange]) -> None:
        self._exchanges = exchanges
        self._offset = 0
        self._secrets = _SecretNumbers()
        self._with_secrets: set[int] = set()
        self._surrogates = Surrogates()
        self._earlier: dict[int, RecordedExchange] = {}
        self._earlier_facts: dict[int, LinkFacts] = {}
        self._linked: list[LinkedInteraction] = []

    def add_earlier(self, cassette: Cassette) -> None:
        """Take the exchanges of an earlier recording, whose interactions may grow."""
        own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
        by_arrival = sorted(own, key=lambda exchange: exchange.number or 0)
        self._offset = max((exchange.number or 0 for exchange in own), default=0)
        self._earlier = dict(enumerate(by_arrival, start=-len(own)))
        numbers = {exchange: number for number, exchange in self._earlier.items()}
        for number, exchange in self._earlier.items():
            self._secrets.add_earlier(exchange)
            self._earlier_facts[number] = _earlier_facts(exchange)
        for interaction in cassette.interactions:
            branch = interaction.branch
            self._linked.append(
                LinkedInteraction(
                    [numbers[exchange] for exchange in interaction.exchanges],
                    None if branch is None else self._linked[branch.of - 1],
                    interaction.shared,
                    interaction.is_orphan,
                )
            )
            for turn, exchange in enumerate(interaction.own, start=interaction.shared):
                number = numbers[exchange]
                call = self._earlier_facts[number].call
                self._surrogates.add_earlier(number, exchange, call, is_first=turn == 0)

    def interactions(self) -> Iterator[RecordedInteraction]:
        """Yield the interactions, those of the earlier recording first."""
        facts: dict[int, LinkFacts] = {}
        for journal_number in sorted(self._exchanges):
            number = self._offset + journal_number
            exchange = self._exchange(number)
            renumbered = self._secrets.put_into(exchange)
            if renumbered is not exchange:
                self._with_secrets.add(number)
                exchange = renumbered
            facts[number] = _facts(exchange)
            self._surrogates.add(number, exchange)
        linked = [*self._linked, *link(facts, self._linked, self._earlier_facts)]
        self._surrogates.name_states(linked, {**self._earlier_facts, **facts})
        place = {interaction: number for number, interaction in enumerate(linked, start=1)}
        for interaction, number in place.items():
            branch = None
            if interaction.branch_of is not None:
                branch = Branch(place[interaction.branch_of], interaction.shared)
            exchanges = tuple([self._finished(number) for number in interaction.numbers])
            yield RecordedInteraction(number, exchanges, branch, interaction.is_orphan)

    def _exchange(self, number: int) -> RecordedExchange:
        """Return an exchange of this recording, counted on after those of an earlier one.

        Its response is in UTF-8, in which what stands for secrets and states is looked for.
        """
        exchange = self._exchanges[number - self._offset]
        response = None if exchange.response is None else in_utf8(exchange.response)[0]
        if not self._offset:
            return (
                exchange if response is exchange.response else replace(exchange, response=response)
            )
        if response is not None:
            pieces = [
                Piece(piece.raw, piece.at_ms, self._offset + piece.after)
                for piece in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        return replace(exchange, number=number, response=response)

    def _finished(self, number: int) -> RecordedExchange:
        if number < 0:
            return self._earlier[number]
        exchange = self._exchange(number)
        if number in self._with_secrets:
            exchange = self._secrets.put_into(exchange)
        exchange = self._surrogates.put_into(number, exchange)
        recorded = self._exchanges[number - self._offset].response
        encoding = "" if recorded is None else in_utf8(recorded)[1]
        if encoding and exchange.response is not None:
            exchange = replace(exchange, response=in_encoding(exchange.response, encoding))
        return exchange


def _facts(exchange: RecordedExchange) -> LinkFacts:
    """Return what linking needs to know of an exchange."""
    call, response = exchange.call, exchange.response
    answers = call.answers
    ask = None if response is None else ask_in(call.message, response)
    issued, echoed = exchange.issued_sha256, exchange.echoed_sha256
    return LinkFacts(
        call=intern(sha256_of("\n".join(call.key()))),
        caller=intern(call.caller),
        client=intern(call.client),
        retry=None
        if answers is None
        else RetryFacts(frozenset(answers.input_responses or ()), echoed),
        ask=None
        if ask is None or response is None
        else AskFacts(
            frozenset(ask.input_requests),
            () if issued is None else (issued,),
            response.pieces[ask.piece].after,
        ),
    )


def _earlier_facts(exchange: RecordedExchange) -> LinkFacts:
    """Return the same of an exchange of an earlier recording: any later request may answer it."""
    facts, ask = _facts(exchange), exchange.ask
    if facts.ask is None or ask is None:
        return facts
    states = set(facts.ask.state_sha256s)
    if ask.request_state is not None:
        states.add(sha256_of(ask.request_state))
    return replace(facts, ask=AskFacts(facts.ask.keys, tuple(states), after=0))


class _SecretNumbers:
    """The numbers of secrets within their rules, given as the secrets turn up."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()

    def add_earlier(self, exchange: RecordedExchange) -> None:
        """Leave out the numbers that an earlier recording gave."""
        _renumbered(exchange, self._leave_out)

    def _leave_out(self, rule: str, token: str) -> None:
        if token.isascii() and token.isdigit() and len(token) < _LONGEST_NUMBER:
            self._last[rule] = max(self._last[rule], int(token))

    def put_into(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange with numbers for its secrets; itself where it has none."""
        return _renumbered(exchange, self._number)

    def _number(self, rule: str, token: str) -> int | None:
        if not JOURNAL_TOKEN.fullmatch(token):
            return None
        if (rule, token) not in self._numbers:
            self._last[rule] += 1
            self._numbers[rule, token] = self._last[rule]
        return self._numbers[rule, token]


def _renumbered(
    exchange: RecordedExchange, number: Callable[[str, str], int | None]
) -> RecordedExchange:
    """Return an exchange with other numbers in its placeholders; itself where nothing changes."""
    request, response = exchange.request, exchange.response
    new_request = Request(
        request.method,
        renumber(request.target, number),
        _renumbered_headers(request.headers, number),
        renumber(request.body, number),
    )
    new_response = response
    if response is not None:
        headers = _renumbered_headers(response.headers, number)
        pieces = [
            Piece(renumber(piece.raw, number), piece.at_ms, piece.after)
            for piece in response.pieces
        ]
        new_response = Response(response.status, headers, tuple(pieces), response.end)
    if new_request == request and new_response == response:
        return exchange
    return replace(exchange, request=new_request, response=new_response)


def _renumbered_headers(headers: Headers, number: Callable[[str, str], int | None]) -> Headers:
    return tuple([(name, renumber(value, number)) for name, value in headers])
