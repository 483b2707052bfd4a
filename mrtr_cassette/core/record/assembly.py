"""Make a cassette of the exchanges of a recording, and name what every recording has anew.

Interactions stand in the order of their first requests. The names of states and ids and the numbers
of secrets depend on what was exchanged, not on when, so that every re-recording has the same ones.
What an earlier recording wrote stays as it is; a new one goes on from it.
"""

from __future__ import annotations

from collections import Counter
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
from mrtr_cassette.core.cassette.texts import (
    TextChange,
    recounted,
    request_with,
    response_with,
    with_texts,
)
from mrtr_cassette.core.protocol.tasks import created_id, named_task
from mrtr_cassette.core.record.facts import ExchangeFacts, Moment, facts_of
from mrtr_cassette.core.record.linking import (
    LinkedInteraction,
    link,
    streams_of_closing,
)
from mrtr_cassette.core.record.pushes import LinkedPush, PushTurn, link_pushes
from mrtr_cassette.core.secrets.names import (
    HASH,
    SESSION,
    Ref,
    is_cassette_token,
    is_journal_token,
    is_of_kind,
    occurrence_in,
    refs_in,
    renumber,
    reveal,
    sealed_hash,
    session_surrogate,
    sha256_of,
    state_surrogate,
    task_surrogate,
)
from mrtr_cassette.core.wire.http import LAST_EVENT_ID_HEADER, SESSION_HEADER
from mrtr_cassette.core.wire.jsonbytes import splice
from mrtr_cassette.core.wire.sse import event_id_spans


class SecretNumbers:
    """The numbers of the secrets of a recording, given as the secrets turn up in the cassette."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()

    def leave_out(self, placed: Ref) -> None:
        """Leave out a number that a cassette has already."""
        if is_cassette_token(placed.token):
            self._last[placed.kind] = max(self._last[placed.kind], int(placed.token))

    def number(self, rule: str, token: str) -> int | None:
        """Return the number of a secret, a new one where it has none; None for other text."""
        if not is_journal_token(token):
            return None
        if (rule, token) not in self._numbers:
            self._last[rule] += 1
            self._numbers[rule, token] = self._last[rule]
        return self._numbers[rule, token]


def issued_name(exchange: RecordedExchange) -> str | None:
    """Return the request state that a response issues, or the id of the task that it creates."""
    if exchange.ask is not None:
        return exchange.ask.request_state
    return created_id(exchange.call.message, exchange.rpc_response)


# Assembly


def assemble(
    header: JournalHeader,
    exchanges: Mapping[int, RecordedExchange],
    tool: str,
    earlier: Cassette | None = None,
) -> Cassette:
    """Return the cassette of a recording, which an earlier one may begin; `tool` wrote it."""
    recorders: tuple[RecorderFacts, ...] = ()
    # A recording that names no recorder has exchanges of an unknown one.
    is_known = earlier is None or bool(earlier.recorders)
    if is_known and header.recorder is not None and header.wall_ms is not None:
        before = () if earlier is None else earlier.recorders
        recorders = (*before, RecorderFacts(header.recorder, header.wall_ms))
    assembly = _Assembly()
    if earlier is not None:
        assembly.add_earlier(earlier)
    return Cassette(
        path="",
        # The port of a later run is no change of the cassette.
        upstream=header.upstream if earlier is None else earlier.upstream,
        request_state=header.request_state,
        redaction=header.redaction,
        seals_answers=header.answers is not None,
        # What is added makes the rest no younger.
        recorded_at=header.recorded_at if earlier is None else earlier.recorded_at,
        tool=tool,
        interactions=tuple(assembly.interactions(exchanges)),
        transport=header.transport,
        client=header.client,
        command=header.command if earlier is None else earlier.command,
        recorders=recorders,
    )


_Pushes = Mapping[int, Sequence[PushTurn[LinkedPush]]]


class _Assembly:
    """A recording in the making; exchanges of an earlier one have negative numbers here."""

    def __init__(self) -> None:
        self._offset = 0
        self._exchanges: dict[int, RecordedExchange] = {}
        self._finished: dict[int, RecordedExchange] = {}
        """As they stand in the cassette."""
        self._facts: dict[int, ExchangeFacts] = {}
        self._linked: list[LinkedInteraction] = []
        self._earlier_turns: dict[int, list[PushedTurn]] = {}
        self._secrets = SecretNumbers()
        self._sessions: dict[str, str] = {}
        """The names of sessions, by the hashes of their ids."""
        self._last_session = 0
        self._events: dict[bytes, bytes] = {}
        """The names of events that an earlier recording may have too, by those that they had."""
        self._states: dict[str, str] = {}
        """The names of states and tasks, by hash; of several with one hash, that of the first."""
        self._issued_by: dict[int, str] = {}
        """By number, the name of the state or task that a response issues."""
        self._echoed_by: dict[int, str] = {}
        self._occurrences: Counter[str] = Counter()
        """How many interactions have a call, by the hash of its key."""

    def add_earlier(self, cassette: Cassette) -> None:
        """Take the exchanges of an earlier recording, whose interactions may grow."""
        own = [
            exchange
            for interaction in cassette.interactions
            for exchange in interaction.own
        ]
        by_arrival = sorted(own, key=lambda exchange: exchange.number or 0)
        self._offset = max((exchange.number or 0 for exchange in own), default=0)
        self._finished = dict(enumerate(by_arrival, start=-len(own)))
        numbers = {exchange: number for number, exchange in self._finished.items()}
        for number, exchange in self._finished.items():
            self._facts[number] = self._earlier_facts(number, exchange)
        highest: Counter[str] = Counter()
        for interaction in cassette.interactions:
            branch, shared = interaction.branch, interaction.shared
            chain = [numbers[exchange] for exchange in interaction.exchanges]
            branch_of = None if branch is None else self._linked[branch.of - 1]
            linked = LinkedInteraction(chain, branch_of, shared, interaction.is_orphan)
            linked.steps = {
                numbers[step.exchange]: step.polls for step in interaction.steps
            }
            self._linked.append(linked)
            for turn in interaction.pushed_turns:
                if turn.position >= shared:
                    self._earlier_turns.setdefault(chain[turn.position], []).append(
                        turn
                    )
            for number in linked.own:
                call = self._facts[number].call
                self._occurrences[call] += number == chain[0]
                highest[call] = max(
                    highest[call], occurrence_in(self._issued_by.get(number, "")) or 0
                )
        # Where interactions were taken out by hand, the count is too low.
        self._occurrences |= highest

    def _earlier_facts(self, number: int, exchange: RecordedExchange) -> ExchangeFacts:
        """Take the names in an earlier exchange; return its facts: any request may answer it."""

        def read(raw: bytes, name: str) -> bytes:
            for ref in refs_in(raw):
                if ref.is_secret:
                    self._secrets.leave_out(ref)
                elif ref.kind == SESSION:
                    self._last_session = max(self._last_session, int(ref.token))
            if name == SESSION_HEADER:
                session = raw.decode("utf-8", "surrogateescape")
                self._sessions[sha256_of(session)] = session
            return raw

        with_texts(exchange, read)
        state, facts = issued_name(exchange), facts_of(exchange, exchange.call)
        states = set(facts.issued)
        if state is not None:
            self._issued_by[number] = state
            states.add(sha256_of(state))
            self._states = dict.fromkeys(states, state) | self._states
        return replace(facts, issued=tuple(states), asked=Moment(0, 0.0))

    def interactions(
        self, exchanges: Mapping[int, RecordedExchange]
    ) -> Iterator[RecordedInteraction]:
        """Yield the interactions, those of the earlier recording first."""
        earlier, self._facts = self._facts, {}
        streams = Streams[int]()
        for own, exchange in sorted(exchanges.items()):
            number = self._offset + own
            if self._offset:
                exchange = recounted(  # noqa: PLW2901  as this cassette counts
                    exchange,
                    exchange.recorded_by,
                    number,
                    lambda after, _: self._offset + after,
                )
                exchange = with_texts(exchange, self._with_own_events)  # noqa: PLW2901
            self._exchanges[number] = exchange
            begun = streams.add(exchange, number)
            resumes = None if begun is None or self._facts[begun].listens else begun
            self._facts[number] = facts_of(exchange, exchange.call, resumes)
        for number in streams_of_closing(self._exchanges, self._facts):
            del self._facts[number]
        pushes = link_pushes(self._facts)
        answers = [
            each for turns in pushes.values() for turn in turns for each in turn.answers
        ]
        posted = {number for _, number in answers}
        calls = {
            each: facts for each, facts in self._facts.items() if each not in posted
        }
        linked = [*self._linked, *link(calls, self._linked, earlier)]
        for number in calls.keys() - {
            each for one in linked for each in (*one.own, *one.steps)
        }:
            del self._facts[number]
        sent = {
            sealed: one for each in exchanges.values() for one, sealed in each.digests
        }
        before = {number: self._exchanges[number] for number in self._facts if sent}
        self._name(linked, pushes)
        if sent:
            self._correct(sent, before)
        return self._finished_interactions(linked, pushes)

    # Names

    def _name(self, linked: Sequence[LinkedInteraction], pushes: _Pushes) -> None:
        """Give numbers to secrets, and names to states and ids, in the order of the file."""
        for interaction in linked:
            own = interaction.own
            turns = [turn for number in own for turn in pushes.get(number, ())]
            posted = [number for turn in turns for _, number in turn.answers]
            for number in [*own, *posted, *interaction.steps]:
                if number > 0:
                    for ref in refs_in(self._facts[number].session):
                        if ref.kind == HASH:
                            self._session(ref.token)
                    self._exchanges[number] = with_texts(
                        self._exchanges[number],
                        lambda raw, _: renumber(raw, self._secrets.number),
                    )
        # The keys of calls have the numbers of all secrets.
        for interaction in linked:
            self._name_states_of(interaction)

    def _session(self, sha256: str) -> str:
        """Return the name of a session, a new one where it has none."""
        if sha256 not in self._sessions:
            self._last_session += 1
            self._sessions[sha256] = session_surrogate(self._last_session)
        return self._sessions[sha256]

    def _name_states_of(self, interaction: LinkedInteraction) -> None:
        new = [number for number in interaction.own if number > 0]
        call, occurrence = "", 0
        if new:
            call = sha256_of("\n".join(self._exchanges[new[0]].call.key()))
            known = [
                occurrence_in(self._issued_by.get(each, "")) for each in interaction.own
            ]
            occurrence = next((each for each in reversed(known) if each is not None), 0)
            if not occurrence:
                self._occurrences[call] += 1
                occurrence = self._occurrences[call]
        for number in new:
            exchange = self._exchanges[number]
            issued, echoed = exchange.issued_sha256, exchange.echoed_sha256
            turn = interaction.numbers.index(number)
            if issued is not None:
                name = state_surrogate(call, occurrence, turn + 1)
                if created_id(exchange.call.message, exchange.rpc_response) is not None:
                    name = task_surrogate(call, occurrence)
                self._issued_by[number] = name
                self._states.setdefault(issued, name)
            if echoed is not None and named_task(exchange.call.message) is None:
                answered = (
                    self._issued_by.get(interaction.numbers[turn - 1]) if turn else None
                )
                unknown = state_surrogate(call, occurrence, 0)
                self._echoed_by[number] = (
                    answered or self._states.get(echoed) or unknown
                )
        task = self._issued_by.get(interaction.numbers[-1])
        if task is not None:
            self._echoed_by |= dict.fromkeys(interaction.steps, task)

    def _correct(
        self, sent: Mapping[str, str], sealed: Mapping[int, RecordedExchange]
    ) -> None:
        """Put the digests of the texts in the cassette in the places of those that were sent."""
        named = {number: self._finish(number) for number in sealed} | self._finished
        pairs = [(sealed.get(number, each), each) for number, each in named.items()]
        new = new_digests(sent, pairs)
        for number, exchange in named.items():
            self._finished[number] = with_texts(
                exchange, lambda raw, _: with_digests(raw, new)
            )

    def _finish(self, number: int) -> RecordedExchange:
        """Return an exchange as it stands in the cassette, with the names of states and sessions.

        States of other exchanges that it repeats are replaced too.
        """
        if number in self._finished:
            return self._finished[number]
        exchange = self._exchanges.pop(number)
        echoed, issued, response = (
            exchange.echoed_sha256,
            exchange.issued_sha256,
            exchange.response,
        )
        own: dict[str, str] = {}
        # A task that no recorded call created has no name.
        if echoed is not None and number in self._echoed_by:
            own[echoed] = self._echoed_by[number]
        request = request_with(exchange.request, self._naming(own))
        if issued is not None and number in self._issued_by:
            own[issued] = self._issued_by[number]
        if response is not None:
            response = response_with(response, self._naming(own))
        self._finished[number] = replace(exchange, request=request, response=response)
        return self._finished[number]

    def _naming(self, own: Mapping[str, str]) -> TextChange:
        """Return what names the hashes in the texts of an exchange, with its own states first."""

        def name_of(sha256: str) -> str | None:
            return (
                own.get(sha256)
                or self._states.get(sha256)
                or self._sessions.get(sha256)
            )

        return lambda raw, name: reveal(
            raw, self._session if name == SESSION_HEADER else name_of
        )

    def _with_own_events(self, raw: bytes, name: str) -> bytes:
        """Rename events: a server that was started anew may count them from the same number."""
        if name == LAST_EVENT_ID_HEADER:
            return self._events.get(raw, raw)
        found = (
            []
            if name
            else [(span, raw[span.start : span.end]) for span in event_id_spans(raw)]
        )
        for _, identity in found:
            if is_of_kind(identity.decode("latin-1"), HASH):
                new = sealed_hash(f"{self._offset} {identity.decode()}")
                self._events[identity] = new.encode()
        return splice(
            raw, [(span, self._events.get(each, each)) for span, each in found]
        )

    # The values of the cassette

    def _finished_interactions(
        self, linked: Sequence[LinkedInteraction], pushes: _Pushes
    ) -> Iterator[RecordedInteraction]:
        place = {
            interaction: number for number, interaction in enumerate(linked, start=1)
        }
        by_last = {
            interaction.numbers[-1]: number for interaction, number in place.items()
        }
        for interaction, number in place.items():
            turns: list[PushedTurn] = []
            for position, each in enumerate(interaction.numbers):
                turns += self._earlier_turns.get(each, ())
                for turn in pushes.get(each, ()):
                    asked = [
                        PushedRequest(
                            *(key, self._finish(pushing), piece),
                            None if pushing == each else by_last[pushing],
                        )
                        for key, pushing, piece in turn.asked
                    ]
                    answers = [
                        PostedAnswer(turn.asked[at][0], self._finish(posted))
                        for at, posted in turn.answers
                    ]
                    turns.append(PushedTurn(position, tuple(asked), tuple(answers)))
            branch = None
            if interaction.branch_of is not None:
                shared = sum(turn.position < interaction.shared for turn in turns)
                branch = Branch(
                    place[interaction.branch_of], interaction.shared + shared
                )
            yield RecordedInteraction(
                number,
                tuple([self._finish(each) for each in interaction.numbers]),
                branch,
                interaction.is_orphan,
                tuple(turns),
                tuple(
                    [
                        TaskStep(self._finish(it), n)
                        for it, n in interaction.steps.items()
                    ]
                ),
            )
