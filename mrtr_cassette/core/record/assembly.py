"""Make a cassette of the exchanges of a recording.

The result depends on what was exchanged, not on when; times and raw hashes stand in the recording
block only. What an earlier recording wrote stays as it is; a new one goes on from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any

from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.recorded import (
    Branch,
    Cassette,
    PostedAnswer,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
)
from mrtr_cassette.core.cassette.sessions import Streams
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.record.history import (
    NEVER,
    ExchangeFacts,
    Moment,
    Rank,
    ended_with_session,
    ends_of,
    facts_of,
    lasting,
    recounted,
    streams_of_closing,
)
from mrtr_cassette.core.record.linking import (
    LinkedInteraction,
    LinkedTurn,
    link,
    link_pushes,
)
from mrtr_cassette.core.record.naming import Names
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import End


def assemble(
    exchanges: Mapping[int, RecordedExchange],
    earlier: Cassette | None = None,
    places: Mapping[int, int] | None = None,
) -> Iterator[RecordedInteraction]:
    """Yield the interactions of a recording, those of an earlier one first.

    `places` says, by number, what comes before the order in which requests arrived.
    """
    assembly = _Assembly()
    if earlier is not None:
        assembly.add_earlier(earlier)
    return assembly.interactions(exchanges, places or {})


def head_of(header: JournalHeader, tool: str, earlier: Cassette | None = None) -> Cassette:
    """Return what a cassette says of a recording, without the interactions."""
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
        transport=header.transport,
        client=header.client,
        recorders=recorders,
    )


_Pushes = Mapping[int, Sequence[LinkedTurn]]


class _Assembly:
    """A recording in the making; exchanges of an earlier one have negative numbers here."""

    def __init__(self) -> None:
        self._offset = 0
        self._exchanges: dict[int, RecordedExchange] = {}
        self._names = Names()
        self._facts: dict[int, ExchangeFacts] = {}
        self._ended: dict[int, int] = {}
        self._linked: list[LinkedInteraction] = []
        self._earlier_turns: dict[int, list[PushedTurn]] = {}
        self._finished: dict[int, RecordedExchange] = {}

    def add_earlier(self, cassette: Cassette) -> None:
        """Take the exchanges of an earlier recording, whose interactions may grow."""
        own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
        by_arrival = sorted(own, key=lambda exchange: exchange.number or 0)
        self._offset = max((exchange.number or 0 for exchange in own), default=0)
        self._finished = dict(enumerate(by_arrival, start=-len(own)))
        numbers = {exchange: number for number, exchange in self._finished.items()}
        self._facts = {number: _earlier_facts(each) for number, each in self._finished.items()}
        for interaction in cassette.interactions:
            branch, shared = interaction.branch, interaction.shared
            chain_ = [numbers[exchange] for exchange in interaction.exchanges]
            branch_of = None if branch is None else self._linked[branch.of - 1]
            linked = LinkedInteraction(chain_, branch_of, shared, interaction.is_orphan)
            self._linked.append(linked)
            for turn in interaction.pushed_turns:
                if turn.position >= shared:
                    self._earlier_turns.setdefault(chain_[turn.position], []).append(turn)
            for position, exchange in enumerate(interaction.own, start=shared):
                number = numbers[exchange]
                call = self._facts[number].call
                self._names.add_earlier(number, exchange, call, is_first=position == 0)

    def interactions(
        self, exchanges: Mapping[int, RecordedExchange], places: Mapping[int, int]
    ) -> Iterator[RecordedInteraction]:
        """Yield the interactions, those of the earlier recording first."""
        earlier, self._facts = self._facts, {}
        streams = Streams[int]()
        for number in sorted(exchanges):
            self._read(self._offset + number, exchanges[number], streams)
        for number in streams_of_closing(self._facts):
            del self._facts[number]
        self._ended = ended_with_session(self._facts)
        # A client leaves the rest of a call's stream when it has the response, or lets it end.
        resumed = {at: each for at, each in self._facts.items() if each.resumes is not None}
        self._ended |= {at: at for at, each in resumed.items() if each.responses}
        ends = ends_of(self._facts)
        pushes = link_pushes(self._facts, ends)
        answers = [each for turns in pushes.values() for turn in turns for each in turn.answers]
        posted = {number for _, number in answers}
        calls = {each: facts for each, facts in self._facts.items() if each not in posted}
        begun = link(calls, self._linked, earlier)
        counted_on = {self._offset + number: place for number, place in places.items()}
        linked = [*self._linked, *in_order(begun, self._facts, ends, self._content, counted_on)]
        self._name(linked, pushes)
        return self._finished_interactions(linked, pushes)

    def _read(self, number: int, exchange: RecordedExchange, streams: Streams[int]) -> None:
        offset = self._offset
        if offset:
            by = exchange.recorded_by
            exchange = recounted(exchange, by, number, lambda after, _: offset + after)
        self._exchanges[number] = exchange
        begun = streams.add(exchange, number)
        resumes = None if begun is None or self._facts[begun].listens else begun
        self._facts[number] = facts_of(exchange, exchange.call, resumes)

    def _content(self, number: int) -> str:
        """Return the digest of an exchange without what every recording has anew."""
        exchange = self._exchanges[number]
        response = b"" if exchange.response is None else exchange.response.body
        whole = b"%b\n%b" % (exchange.request.body, response)
        return sha256_of(lasting(whole.decode("latin-1")))

    def _name(self, linked: Sequence[LinkedInteraction], pushes: _Pushes) -> None:
        """Give numbers to secrets, and names to states and ids, in the order of the file."""
        calls = {number: facts.call for number, facts in self._facts.items()}
        for interaction in linked:
            own = interaction.own
            turns = [turn for number in own for turn in pushes.get(number, ())]
            for number in [*own, *(number for turn in turns for _, number in turn.answers)]:
                if number > 0:
                    exchange, session = self._exchanges[number], self._facts[number].session
                    named = self._exchanges[number] = self._names.name(exchange, session)
                    if named is not exchange:
                        calls[number] = sha256_of("\n".join(named.call.key()))
        self._names.name_states(linked, self._exchanges, calls)

    def _finished_interactions(
        self, linked: Sequence[LinkedInteraction], pushes: _Pushes
    ) -> Iterator[RecordedInteraction]:
        place = {interaction: number for number, interaction in enumerate(linked, start=1)}
        by_last = {interaction.numbers[-1]: number for interaction, number in place.items()}
        for interaction, number in place.items():
            exchanges = tuple([self._finish(each) for each in interaction.numbers])
            turns: list[PushedTurn] = []
            for position, each in enumerate(interaction.numbers):
                turns += self._earlier_turns.get(each, ())
                turns += [
                    self._pushed_turn(turn, position, each, by_last)
                    for turn in pushes.get(each, ())
                ]
            branch = None
            if interaction.branch_of is not None:
                shared = sum(turn.position < interaction.shared for turn in turns)
                branch = Branch(place[interaction.branch_of], interaction.shared + shared)
            is_orphan = interaction.is_orphan
            yield RecordedInteraction(number, exchanges, branch, is_orphan, tuple(turns))

    def _pushed_turn(
        self, turn: LinkedTurn, position: int, number: int, by_last: Mapping[int, int]
    ) -> PushedTurn:
        """Return a turn of the exchange at a position of its interaction."""
        asked = []
        for push in turn.asked:
            elsewhere = None if push.number == number else by_last[push.number]
            asked.append(PushedRequest(push.key, self._finish(push.number), push.piece, elsewhere))
        answers = [
            PostedAnswer(turn.asked[place].key, self._finish(posted))
            for place, posted in turn.answers
        ]
        return PushedTurn(position, tuple(asked), tuple(answers))

    def _finish(self, number: int) -> RecordedExchange:
        """Return an exchange as it stands in the cassette."""
        if number not in self._finished:
            exchange = self._exchanges.pop(number)
            if number in self._ended and exchange.response is not None:
                response = replace(exchange.response, end=End.COMPLETE)
                ended_after = max(exchange.ended_after or 0, self._ended[number])
                exchange = replace(exchange, response=response, ended_after=ended_after)
            session = self._facts[number].session
            self._finished[number] = self._names.put_into(number, exchange, session)
        return self._finished[number]


def _earlier_facts(exchange: RecordedExchange) -> ExchangeFacts:
    """Return the facts about an earlier recording's exchange: any later request may answer it."""
    ask, facts = exchange.ask, facts_of(exchange, exchange.call)
    states = set(facts.issued)
    if ask is not None and ask.request_state is not None:
        states.add(sha256_of(ask.request_state))
    return replace(facts, issued=tuple(states), asked=Moment(0, 0.0))


# The order of the file: what was over before something else began stands before it. Of what
# overlapped, content decides, as arrival means nothing there.

Content = Callable[[int], str]
"""Returns what stands for the content of an exchange, without what every recording has anew."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Interactions that stand together: one and its branches, or those of a session."""

    interactions: tuple[LinkedInteraction, ...]
    start: int
    """Number of the first request."""
    end: int
    """How many requests had arrived when it was over."""
    rank: Rank
    key: tuple[tuple[Any, ...], ...]
    """By what overlapping ones are ordered: what is to know of each first request."""


def in_order(
    interactions: Sequence[LinkedInteraction],
    facts: Mapping[int, ExchangeFacts],
    ends: Mapping[int, Moment],
    content: Content,
    places: Mapping[int, int] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions in the order of a cassette: by place, time and content."""
    # What parts from an interaction of an earlier recording has no place of its own.
    first = [each for each in interactions if each.numbers[0] < 0]
    sessions: dict[str, list[_Unit]] = {}
    units: list[_Unit] = []
    for unit in _families(interactions[len(first) :], facts, ends):
        session = facts[unit.start].session
        if session == NO_SESSION:
            units.append(unit)
        else:
            sessions.setdefault(session, []).append(unit)
    units += [_session(own, content) for own in sessions.values()]
    by_place: dict[int, list[_Unit]] = {}
    for unit in units:
        by_place.setdefault((places or {}).get(unit.start, 0), []).append(unit)
    ordered = [unit for place in sorted(by_place) for unit in _ordered(by_place[place], content)]
    return [*first, *(each for unit in ordered for each in unit.interactions)]


def _families(
    interactions: Iterable[LinkedInteraction],
    facts: Mapping[int, ExchangeFacts],
    ends: Mapping[int, Moment],
) -> Iterator[_Unit]:
    """Yield each interaction with its branches, as they arrived."""
    families: dict[int, list[LinkedInteraction]] = {}
    for interaction in interactions:
        families.setdefault(interaction.numbers[0], []).append(interaction)
    resumed: Counter[int] = Counter()
    for number, family in families.items():
        each = facts[number]
        # A listening stream ends when nobody wants it any more, which says nothing of what it is.
        end = number if each.listens else ends[number].after
        identity = each.request_id or ""
        key: tuple[Any, ...] = each.rank, each.text, len(identity), identity
        if each.resumes is not None:
            call = facts[each.resumes]
            resumed[each.resumes] += 1
            identity = call.request_id or ""
            key = call.rank, call.text, len(identity), identity, resumed[each.resumes]
        yield _Unit(tuple(family), number, end, each.rank, (key,))


def _session(units: Sequence[_Unit], content: Content) -> _Unit:
    """Return the interactions of a session as one unit."""
    streams = [unit for unit in units if unit.rank is Rank.LISTENING]
    ordered = _ordered([unit for unit in units if unit.rank is not Rank.LISTENING], content)
    handshake = [at for at, unit in enumerate(ordered, start=1) if unit.rank < Rank.LISTENING]
    after = handshake[-1] if handshake else 0
    ordered[after:after] = _sorted(streams, content)
    ends = [unit.end for unit in ordered if unit.end < NEVER.after]
    return _Unit(
        tuple(chain.from_iterable(unit.interactions for unit in ordered)),
        min(unit.start for unit in units),
        max(ends, default=NEVER.after),
        ordered[0].rank,
        tuple(chain.from_iterable(unit.key for unit in ordered)),
    )


def _ordered(units: Iterable[_Unit], content: Content) -> list[_Unit]:
    """Return units by content, but each after those that were over before it began."""
    units = sorted(units, key=lambda unit: unit.start)
    places = {unit: at for at, unit in enumerate(_sorted(units, content))}
    ends = [(unit.end, places[unit]) for unit in units]
    heapify(ends)
    placed: set[int] = set()
    ordered: list[_Unit] = []
    free: list[tuple[int, _Unit]] = []
    begun = 0
    while len(ordered) < len(units):
        while ends[0][1] in placed:
            heappop(ends)
        # Whatever began after the first of these was over has to wait for it.
        while begun < len(units) and units[begun].start <= ends[0][0]:
            heappush(free, (places[units[begun]], units[begun]))
            begun += 1
        place, unit = heappop(free)
        placed.add(place)
        ordered.append(unit)
    return ordered


def _sorted(units: Sequence[_Unit], content: Content) -> list[_Unit]:
    alike: dict[tuple[Any, ...], list[_Unit]] = {}
    for unit in units:
        alike.setdefault(unit.key, []).append(unit)
    ordered: list[_Unit] = []
    for key in sorted(alike):
        same = alike[key]
        if len(same) > 1:
            same.sort(key=lambda unit: (_content_of(unit, content), unit.start))
        ordered += same
    return ordered


def _content_of(unit: _Unit, content: Content) -> str:
    return "\n".join(content(number) for each in unit.interactions for number in each.own)
