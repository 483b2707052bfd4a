"""From the exchanges of a recording to its cassette.

Rule: the result depends on what was exchanged, not on when; times and raw hashes stand in the
recording block only. What an earlier recording wrote stays as it is; a new one goes on from it.
An exchange is held only while it is worked on, as there may be many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from sys import intern

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    PostedAnswer,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
)
from mrtr_cassette.core.exchange.sessions import Streams
from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.messages import ask_in
from mrtr_cassette.core.record.history import (
    SessionFacts,
    ended_with_session,
    ends_of,
    lasting,
    seeks_stream,
    session_facts,
    streams_of_closing,
)
from mrtr_cassette.core.record.linking import (
    AskFacts,
    LinkedInteraction,
    LinkFacts,
    RetryFacts,
    link,
)
from mrtr_cassette.core.record.naming import Surrogates
from mrtr_cassette.core.record.order import in_order
from mrtr_cassette.core.record.pushes import LinkedPushes, LinkedTurn, link_pushes
from mrtr_cassette.core.record.secret_numbers import SecretNumbers
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import End, Piece


def assemble(
    exchanges: Mapping[int, RecordedExchange],
    earlier: Cassette | None = None,
    places: Mapping[int, int] | None = None,
) -> Iterator[RecordedInteraction]:
    """Yield the interactions of a recording.

    Args:
        exchanges: by number; each is asked for up to three times.
        earlier: a cassette to which the recording is added.
        places: by number too, what comes before the order in which requests arrived.
    """
    assembly = _Assembly(exchanges, places or {})
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
    recorders: tuple[RecorderFacts, ...] = ()
    # A recording that names no recorder has exchanges of an unknown one.
    is_known = earlier is None or bool(earlier.recorders)
    if is_known and header.recorder is not None and header.wall_ms is not None:
        before = () if earlier is None else earlier.recorders
        recorders = (*before, RecorderFacts(header.recorder, header.wall_ms))
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
        recorders=recorders,
    )


def has_recording(
    cassette: Cassette, header: JournalHeader, exchanges: Mapping[int, RecordedExchange]
) -> bool:
    """Tell whether a cassette has all exchanges of a recording already.

    An exchange is known by its number, its times and its status: the rest of it reads otherwise in
    a cassette, and may have been edited since. A listening stream may have been left out.

    Args:
        cassette: what may have them.
        header: what the recording says of itself.
        exchanges: by number, at least one.
    """
    own = {exchange.number: exchange for each in cassette.interactions for exchange in each.own}
    if not exchanges or cassette.recorded_at != header.recorded_at:
        return False
    highest = max((number or 0 for number in own), default=0)
    for last in sorted(exchanges, reverse=True):
        offset = highest - last
        if all(
            _moment(own[offset + number]) == _moment(exchange)
            if offset + number in own
            else seeks_stream(exchange.request)
            for number, exchange in exchanges.items()
        ):
            return True
        if not seeks_stream(exchanges[last].request):
            break
    return False


def _moment(exchange: RecordedExchange) -> tuple[object, ...]:
    response = exchange.response
    return (
        exchange.request.method,
        round(exchange.started_ms),
        round(exchange.ended_ms - exchange.started_ms),
        None if response is None else response.status,
    )


class _Assembly:
    """A recording in the making; exchanges of an earlier one have negative numbers here."""

    def __init__(
        self, exchanges: Mapping[int, RecordedExchange], places: Mapping[int, int]
    ) -> None:
        self._exchanges = exchanges
        self._places = places
        self._offset = 0
        self._secrets = SecretNumbers()
        self._with_secrets: set[int] = set()
        self._surrogates = Surrogates()
        self._facts: dict[int, LinkFacts] = {}
        self._history: dict[int, SessionFacts] = {}
        self._streams = Streams[int]()
        self._ended: dict[int, int] = {}
        self._earlier: dict[int, RecordedExchange] = {}
        self._earlier_facts: dict[int, LinkFacts] = {}
        self._earlier_turns: dict[int, list[PushedTurn]] = {}
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
            chain = [numbers[exchange] for exchange in interaction.exchanges]
            self._linked.append(
                LinkedInteraction(
                    chain,
                    None if branch is None else self._linked[branch.of - 1],
                    interaction.shared,
                    interaction.is_orphan,
                )
            )
            for turn in interaction.pushed_turns:
                if turn.position >= interaction.shared:
                    self._earlier_turns.setdefault(chain[turn.position], []).append(turn)
            for turn_number, exchange in enumerate(interaction.own, start=interaction.shared):
                number = numbers[exchange]
                call = self._earlier_facts[number].call
                self._surrogates.add_earlier(number, exchange, call, is_first=turn_number == 0)

    def interactions(self) -> Iterator[RecordedInteraction]:
        """Yield the interactions, those of the earlier recording first."""
        for journal_number in sorted(self._exchanges):
            self._read(self._offset + journal_number)
        for number in streams_of_closing(self._history):
            del self._history[number], self._facts[number]
        self._ended = ended_with_session(self._history)
        # A client leaves the rest of a call's stream when it has the response, or lets it end.
        resumed = {at: each for at, each in self._history.items() if each.resumes is not None}
        self._ended |= {at: at for at, each in resumed.items() if each.responses}
        ends = ends_of(self._history)
        pushes = link_pushes(self._history, ends)
        calls = {each: facts for each, facts in self._facts.items() if each not in pushes.posted}
        begun = link(calls, self._linked, self._earlier_facts)
        places = {self._offset + number: place for number, place in self._places.items()}
        linked = [*self._linked, *in_order(begun, self._history, ends, self._content, places)]
        self._name(linked, pushes)
        return self._finished_interactions(linked, pushes)

    def _read(self, number: int) -> None:
        """Take note of an exchange of this recording."""
        exchange = self._exchange(number)
        if self._secrets.are_in(exchange):
            self._with_secrets.add(number)
        call = exchange.call
        key = "\n".join(call.key())
        facts = self._facts[number] = _facts(exchange, call, key)
        has_ask = facts.ask is not None
        begun = self._streams.add(exchange, number)
        resumes = None if begun is None or self._history[begun].listens else begun
        history = session_facts(exchange, call, key, asks=has_ask, resumes=resumes)
        self._history[number] = history
        self._surrogates.add(number, exchange, history.session)

    def _content(self, number: int) -> str:
        """Return the digest of an exchange without what every recording has anew."""
        exchange = self._exchange(number)
        response = b"" if exchange.response is None else exchange.response.body
        whole = b"%b\n%b" % (exchange.request.body, response)
        return sha256_of(lasting(whole.decode("latin-1")))

    def _name(self, linked: Iterable[LinkedInteraction], pushes: LinkedPushes) -> None:
        """Give numbers to secrets, and names to states and sessions, in the order of the file."""
        linked = list(linked)
        for interaction in linked:
            numbers = interaction.own
            if pushes.turns:
                turns = (turn for number in numbers for turn in pushes.turns.get(number, ()))
                numbers = [*numbers, *(answer.number for turn in turns for answer in turn.answers)]
            for number in numbers:
                if number > 0:
                    self._surrogates.name_session_of(number)
                if number in self._with_secrets:
                    exchange = self._secrets.put_into(self._exchange(number))
                    # The names of states depend on the call as the cassette has it.
                    key = "\n".join(exchange.call.key())
                    self._facts[number] = replace(self._facts[number], call=intern(sha256_of(key)))
        self._surrogates.name_states(linked, {**self._earlier_facts, **self._facts})

    def _finished_interactions(
        self, linked: Iterable[LinkedInteraction], pushes: LinkedPushes
    ) -> Iterator[RecordedInteraction]:
        place = {interaction: number for number, interaction in enumerate(linked, start=1)}
        streams = _Streams(pushes, place, self._finished)
        for interaction, number in place.items():
            exchanges = tuple([streams.exchange(each) for each in interaction.numbers])
            turns: list[PushedTurn] = []
            for position, each in enumerate(interaction.numbers):
                turns += self._earlier_turns.get(each, ())
                turns += [
                    streams.pushed_turn(turn, position, each, exchanges[position])
                    for turn in pushes.turns.get(each, ())
                ]
            branch = None
            if interaction.branch_of is not None:
                shared = sum(turn.position < interaction.shared for turn in turns)
                branch = Branch(place[interaction.branch_of], interaction.shared + shared)
            is_orphan = interaction.is_orphan
            yield RecordedInteraction(number, exchanges, branch, is_orphan, tuple(turns))

    def _exchange(self, number: int) -> RecordedExchange:
        """Return an exchange of this recording, counted on after those of an earlier one."""
        exchange = self._exchanges[number - self._offset]
        response = exchange.response
        if not self._offset:
            return exchange
        if response is not None:
            pieces = [
                Piece(piece.raw, piece.at_ms, self._offset + piece.after)
                for piece in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        ended_after = exchange.ended_after
        if ended_after is not None:
            ended_after += self._offset
        return replace(exchange, number=number, response=response, ended_after=ended_after)

    def _finished(self, number: int) -> RecordedExchange:
        if number < 0:
            return self._earlier[number]
        exchange = self._exchange(number)
        if number in self._ended and exchange.response is not None:
            response = replace(exchange.response, end=End.COMPLETE)
            ended_after = max(exchange.ended_after or 0, self._ended[number])
            exchange = replace(exchange, response=response, ended_after=ended_after)
        if number in self._with_secrets:
            exchange = self._secrets.put_into(exchange)
        return self._surrogates.put_into(number, exchange)


class _Streams:
    """The exchanges of a recording, finished; streams on which the server pushed are kept."""

    def __init__(
        self,
        pushes: LinkedPushes,
        place: Mapping[LinkedInteraction, int],
        finished: Callable[[int], RecordedExchange],
    ) -> None:
        pushing = {
            push.number
            for owner, turns in pushes.turns.items()
            for turn in turns
            for push in turn.asked
            if push.number != owner
        }
        self._interactions = {
            interaction.numbers[-1]: number
            for interaction, number in place.items()
            if interaction.numbers[-1] in pushing
        }
        self._kept: dict[int, RecordedExchange] = {}
        self._finished = finished

    def exchange(self, number: int) -> RecordedExchange:
        """Return an exchange, finished."""
        if number not in self._interactions:
            return self._finished(number)
        if number not in self._kept:
            self._kept[number] = self._finished(number)
        return self._kept[number]

    def pushed_turn(
        self, turn: LinkedTurn, position: int, number: int, pending: RecordedExchange
    ) -> PushedTurn:
        """Return a turn of the exchange at a position of its interaction."""
        asked = [
            PushedRequest(push.key, pending, push.piece)
            if push.number == number
            else PushedRequest(
                push.key, self.exchange(push.number), push.piece, self._interactions[push.number]
            )
            for push in turn.asked
        ]
        answers = [PostedAnswer(each.key, self._finished(each.number)) for each in turn.answers]
        return PushedTurn(position, tuple(asked), tuple(answers))


def _facts(exchange: RecordedExchange, call: Call, key: str) -> LinkFacts:
    """Return what linking needs to know of an exchange, whose call and call key these are."""
    response = exchange.response
    answers = call.answers
    ask = None if response is None else ask_in(call.message, response)
    issued, echoed = exchange.issued_sha256, exchange.echoed_sha256
    return LinkFacts(
        call=intern(sha256_of(key)),
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
    call, ask = exchange.call, exchange.ask
    facts = _facts(exchange, call, "\n".join(call.key()))
    if facts.ask is None or ask is None:
        return facts
    states = set(facts.ask.state_sha256s)
    if ask.request_state is not None:
        states.add(sha256_of(ask.request_state))
    return replace(facts, ask=AskFacts(facts.ask.keys, tuple(states), after=0))
