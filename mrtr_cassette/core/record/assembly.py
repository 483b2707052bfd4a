"""Make a cassette of the exchanges of a recording.

Interactions stand in the order of their first requests. What an earlier recording wrote stays as it
is; a new one goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.digests import new_digests, with_digests
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
    TaskStep,
)
from mrtr_cassette.core.cassette.sessions import Streams
from mrtr_cassette.core.record.linking import (
    ExchangeFacts,
    LinkedInteraction,
    LinkedTurn,
    Moment,
    ends_of,
    facts_of,
    link,
    link_pushes,
    streams_of_closing,
)
from mrtr_cassette.core.record.naming import Names, issued_name, recounted, with_texts
from mrtr_cassette.core.secrets.sealed import sha256_of


def assemble(
    exchanges: Mapping[int, RecordedExchange],
    earlier: Cassette | None = None,
    places: Mapping[int, int] | None = None,
) -> Iterator[RecordedInteraction]:
    """Yield the interactions of a recording, those of an earlier one first.

    `places` says, by number, what comes before that order.
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
            linked.steps = [numbers[step.exchange] for step in interaction.steps]
            linked.polls.update({numbers[step.exchange]: step.polls for step in interaction.steps})
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
        pushes = link_pushes(self._facts, ends_of(self._facts))
        answers = [each for turns in pushes.values() for turn in turns for each in turn.answers]
        posted = {number for _, number in answers}
        calls = {each: facts for each, facts in self._facts.items() if each not in posted}
        begun = link(calls, self._linked, earlier)
        begun.sort(key=lambda each: places.get(each.numbers[0] - self._offset, 0))
        linked = [*self._linked, *begun]
        for number in calls.keys() - {each for one in linked for each in (*one.own, *one.steps)}:
            del self._facts[number]
        sent = {sealed: one for each in exchanges.values() for one, sealed in each.digests}
        before = {number: self._exchanges[number] for number in self._facts if sent}
        self._name(linked, pushes)
        if sent:
            self._correct(sent, before)
        return self._finished_interactions(linked, pushes)

    def _correct(self, sent: Mapping[str, str], sealed: Mapping[int, RecordedExchange]) -> None:
        """Put the digests of the texts in the cassette in the places of those that were sent."""
        named = {number: self._finish(number) for number in sealed} | self._finished
        pairs = [(sealed.get(number, each), each) for number, each in named.items()]
        new = new_digests(sent, pairs)
        for number, exchange in named.items():
            self._finished[number] = with_texts(exchange, lambda raw, _: with_digests(raw, new))

    def _read(self, number: int, exchange: RecordedExchange, streams: Streams[int]) -> None:
        offset = self._offset
        if offset:
            by = exchange.recorded_by
            exchange = recounted(exchange, by, number, lambda after, _: offset + after)
        self._exchanges[number] = exchange
        begun = streams.add(exchange, number)
        resumes = None if begun is None or self._facts[begun].listens else begun
        self._facts[number] = facts_of(exchange, exchange.call, resumes)

    def _name(self, linked: Sequence[LinkedInteraction], pushes: _Pushes) -> None:
        """Give numbers to secrets, and names to states and ids, in the order of the file."""
        calls = {number: facts.call for number, facts in self._facts.items()}
        for interaction in linked:
            own = interaction.own
            turns = [turn for number in own for turn in pushes.get(number, ())]
            posted = [number for turn in turns for _, number in turn.answers]
            for number in [*own, *posted, *interaction.steps]:
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
            steps = [
                TaskStep(self._finish(it), interaction.polls[it] or 1) for it in interaction.steps
            ]
            is_orphan = interaction.is_orphan
            yield RecordedInteraction(
                number, exchanges, branch, is_orphan, tuple(turns), tuple(steps)
            )

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
            self._finished[number] = self._names.put_into(number, exchange)
        return self._finished[number]


def _earlier_facts(exchange: RecordedExchange) -> ExchangeFacts:
    """Return the facts about an earlier recording's exchange: any later request may answer it."""
    state, facts = issued_name(exchange), facts_of(exchange, exchange.call)
    states = set(facts.issued)
    if state is not None:
        states.add(sha256_of(state))
    return replace(facts, issued=tuple(states), asked=Moment(0, 0.0))
