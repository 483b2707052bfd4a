"""Make a cassette of the exchanges of a recording, and name what every recording has anew.

Interactions are in the order of their first requests. The names of states and ids and the numbers
of secrets depend on what was exchanged, not on when, so that every re-recording has the same ones.
What an earlier recording wrote stays as it is; a new one goes on from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.digests import digest_replacements, with_digests
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
    exchange_with_changed_texts,
    renumbered_exchange,
    request_with_changed_texts,
    response_with_changed_texts,
)
from mrtr_cassette.core.record.linking import (
    ExchangeFacts,
    LinkedInteraction,
    Moment,
    facts_of,
    linked_interactions,
    streams_opened_while_closing,
)
from mrtr_cassette.core.record.pushes import LinkedPush, PushTurn, link_pushes
from mrtr_cassette.core.secrets.names import (
    HASH,
    SESSION,
    Ref,
    id_surrogate,
    is_cassette_token,
    is_journal_token,
    is_name_of_kind,
    occurrence_in,
    refs_in,
    renumber_secrets,
    reveal_states,
    sealed_hash,
    session_surrogate,
    sha256_of,
    state_surrogate,
)
from mrtr_cassette.core.wire.http import LAST_EVENT_ID_HEADER, SESSION_HEADER
from mrtr_cassette.core.wire.jsonbytes import Span, splice
from mrtr_cassette.core.wire.sse import event_id_spans


class SecretNumbers:
    """The numbers of the secrets of a recording, given as the secrets turn up in the cassette."""

    def __init__(self) -> None:
        self._number_by_secret: dict[tuple[str, str], int] = {}
        self._highest_by_rule: Counter[str] = Counter()

    def reserve_number(self, placeholder_ref: Ref) -> None:
        """Leave out a number that a cassette has already."""
        if is_cassette_token(placeholder_ref.token):
            last_number = self._highest_by_rule[placeholder_ref.kind]
            self._highest_by_rule[placeholder_ref.kind] = max(
                last_number, int(placeholder_ref.token)
            )

    def number_of_journal_secret(self, rule: str, token: str) -> int | None:
        """Return the number of a secret, a new one if it has none; None for other text."""
        if not is_journal_token(token):
            return None
        return self.number_of_secret(rule, token)

    def number_of_secret(self, rule: str, token: str) -> int:
        """Return the number of a secret, a new one if it has none."""
        if (rule, token) not in self._number_by_secret:
            self._highest_by_rule[rule] += 1
            self._number_by_secret[rule, token] = self._highest_by_rule[rule]

        return self._number_by_secret[rule, token]


def issued_name(exchange: RecordedExchange) -> str | None:
    """Return the request state that a response issues, or the id of the task that it creates."""
    if exchange.ask is not None:
        return exchange.ask.request_state
    return exchange.created_task_id


# Assembly


def assemble(
    header: JournalHeader,
    exchanges: Mapping[int, RecordedExchange],
    tool: str,
    earlier: Cassette | None = None,
) -> Cassette:
    """Return the cassette of a recording, which an earlier one may begin; `tool` wrote it."""
    assembly = _Assembly()
    if earlier is not None:
        assembly.add_earlier(earlier)

    cassette = Cassette(
        path="",
        upstream=header.upstream,
        request_state=header.request_state,
        redaction=header.redaction,
        seals_answers=header.answers is not None,
        values=header.values,
        recorded_at=header.recorded_at,
        tool=tool,
        interactions=tuple(assembly.finish_with(exchanges)),
        transport=header.transport,
        client=header.client,
        command=header.command,
        recorders=_recorders_of(header, earlier),
    )

    if earlier is None:
        return cassette

    # What is added makes the rest no younger; the port of a later run is no change.
    return replace(
        cassette,
        upstream=earlier.upstream,
        recorded_at=earlier.recorded_at,
        command=earlier.command,
    )


def _recorders_of(
    header: JournalHeader, earlier: Cassette | None
) -> tuple[RecorderFacts, ...]:
    """Return the recorders of a cassette; none if that of some exchanges is not known."""
    earlier_recorders = () if earlier is None else earlier.recorders
    has_unknown = earlier is not None and not earlier_recorders
    if has_unknown or header.recorder is None or header.wall_ms is None:
        return ()

    return (*earlier_recorders, RecorderFacts(header.recorder, header.wall_ms))


_TurnsByExchange = Mapping[int, Sequence[PushTurn[LinkedPush]]]


class _SurrogateNames:
    """The names of sessions, states and tasks; exchanges have the numbers of their assembly."""

    def __init__(self) -> None:
        self.session_names: dict[str, str] = {}
        """By the hashes of their ids."""
        self.state_names: dict[str, str] = {}
        """States and tasks by hash; if several have one hash, the first."""
        self.issued_name_by_number: dict[int, str] = {}
        """The state that a response issues, or the task that it creates."""
        self.echoed_name_by_number: dict[int, str] = {}
        self._last_session_number = 0
        self._occurrences: Counter[str] = Counter()
        """How many interactions have a call, by the hash of its key."""

    def reserve_session_number(self, number: int) -> None:
        """Leave out a number that a cassette has already."""
        self._last_session_number = max(self._last_session_number, number)

    def session_name(self, sha256: str) -> str:
        """Return the name of a session, a new one if it has none."""
        if sha256 not in self.session_names:
            self._last_session_number += 1
            self.session_names[sha256] = session_surrogate(self._last_session_number)

        return self.session_names[sha256]

    def count_earlier_calls(
        self,
        interactions: Iterable[LinkedInteraction],
        facts: Mapping[int, ExchangeFacts],
    ) -> None:
        """Count the calls of an earlier recording."""
        highest_occurrences: Counter[str] = Counter()
        for interaction in interactions:
            for number in interaction.unshared_numbers:
                call_sha256 = facts[number].call_sha256
                if number == interaction.exchange_numbers[0]:
                    self._occurrences[call_sha256] += 1

                state_or_task = self.issued_name_by_number.get(number, "")
                occurrence = occurrence_in(state_or_task) or 0
                highest_occurrences[call_sha256] = max(
                    highest_occurrences[call_sha256], occurrence
                )

        # If interactions were taken out by hand, the count is too low.
        self._occurrences |= highest_occurrences

    def name_states(
        self,
        interaction: LinkedInteraction,
        exchanges: Mapping[int, RecordedExchange],
    ) -> None:
        """Name the states and the task of an interaction."""
        new_exchange_numbers = [
            number for number in interaction.unshared_numbers if number > 0
        ]
        if new_exchange_numbers:
            first_new_exchange = exchanges[new_exchange_numbers[0]]
            call_sha256 = sha256_of("\n".join(first_new_exchange.call.key()))
            occurrence = self._occurrence_of(interaction, call_sha256)
            for number in new_exchange_numbers:
                self._name_state(
                    interaction, number, exchanges[number], call_sha256, occurrence
                )

        name = self.issued_name_by_number.get(interaction.exchange_numbers[-1])
        if name is not None:
            for number in interaction.poll_counts_by_step:
                self.echoed_name_by_number[number] = name

    def _occurrence_of(self, interaction: LinkedInteraction, call_sha256: str) -> int:
        """Return which interaction with its call one is."""
        occurrence = 0
        for number in interaction.unshared_numbers:
            named_occurrence = occurrence_in(self.issued_name_by_number.get(number, ""))
            if named_occurrence is not None:
                occurrence = named_occurrence

        if not occurrence:
            self._occurrences[call_sha256] += 1
            occurrence = self._occurrences[call_sha256]

        return occurrence

    def _name_state(
        self,
        interaction: LinkedInteraction,
        number: int,
        exchange: RecordedExchange,
        call_sha256: str,
        occurrence: int,
    ) -> None:
        """Name the state that an exchange of an interaction issues, and the one that it echoes."""
        turn = interaction.exchange_numbers.index(number)
        issued_hash = exchange.issued_sha256
        echoed_hash = exchange.echoed_sha256
        if issued_hash is not None:
            new_name = state_surrogate(call_sha256, occurrence, turn + 1)
            if exchange.created_task_id is not None:
                new_name = id_surrogate(call_sha256, occurrence)

            self.issued_name_by_number[number] = new_name
            self.state_names.setdefault(issued_hash, new_name)

        if echoed_hash is not None and exchange.call.named_task_id is None:
            answered_state = None
            if turn:
                answered_state = self.issued_name_by_number.get(
                    interaction.exchange_numbers[turn - 1]
                )

            unknown_state = state_surrogate(call_sha256, occurrence, 0)
            self.echoed_name_by_number[number] = (
                answered_state or self.state_names.get(echoed_hash) or unknown_state
            )

    def change_naming_hashes(self, preferred_names: Mapping[str, str]) -> TextChange:
        """Return what names the hashes in the texts of an exchange, some names coming first."""

        def name_of_hash(sha256: str) -> str | None:
            """Return the name of a state, a task or a session by its hash; None if it has none."""
            known_name = preferred_names.get(sha256) or self.state_names.get(sha256)
            return known_name or self.session_names.get(sha256)

        def with_named_hashes(raw: bytes, header_name: str) -> bytes:
            if header_name == SESSION_HEADER:
                return reveal_states(raw, self.session_name)

            return reveal_states(raw, name_of_hash)

        return with_named_hashes


def _posted_answer_numbers(pushes: _TurnsByExchange) -> set[int]:
    """Return the numbers of the exchanges that answer a pushed request."""
    posted_numbers: set[int] = set()
    for turns in pushes.values():
        for turn in turns:
            posted_numbers.update(number for _, number in turn.answers)

    return posted_numbers


class _Assembly:
    """A recording in the making; exchanges of an earlier one have negative numbers here."""

    def __init__(self) -> None:
        self._number_offset = 0
        self._exchanges: dict[int, RecordedExchange] = {}
        self._finished_exchanges: dict[int, RecordedExchange] = {}
        """As the cassette has them."""
        self._facts: dict[int, ExchangeFacts] = {}
        self._earlier_interactions: list[LinkedInteraction] = []
        self._earlier_turns: dict[int, list[PushedTurn]] = {}
        self._secret_numbers = SecretNumbers()
        self._new_event_ids: dict[bytes, bytes] = {}
        """The names of events that an earlier recording may have too, by those that they had."""
        self._names = _SurrogateNames()

    def add_earlier(self, cassette: Cassette) -> None:
        """Take the exchanges of an earlier recording, whose interactions may grow."""
        exchanges = cassette.exchanges_by_arrival
        if exchanges:
            self._number_offset = exchanges[-1].number or 0

        number_by_exchange = {}
        for number, exchange in enumerate(exchanges, start=-len(exchanges)):
            number_by_exchange[exchange] = number
            self._finished_exchanges[number] = exchange
            self._facts[number] = self._add_earlier_exchange(number, exchange)

        for interaction in cassette.interactions:
            self._add_interaction(interaction, number_by_exchange)

        self._names.count_earlier_calls(self._earlier_interactions, self._facts)

    def _add_interaction(
        self,
        interaction: RecordedInteraction,
        number_by_exchange: Mapping[RecordedExchange, int],
    ) -> None:
        """Take an interaction of an earlier recording."""
        exchange_numbers = [
            number_by_exchange[exchange] for exchange in interaction.exchanges
        ]
        shared_count = interaction.shared_count
        branch_of = None
        if interaction.branch is not None:
            branch_of = self._earlier_interactions[interaction.branch.of - 1]

        linked_interaction = LinkedInteraction(
            exchange_numbers, branch_of, shared_count, interaction.is_orphan
        )
        for step in interaction.steps:
            linked_interaction.poll_counts_by_step[
                number_by_exchange[step.exchange]
            ] = step.poll_count

        self._earlier_interactions.append(linked_interaction)
        for turn in interaction.pushed_turns:
            if turn.position >= shared_count:
                number = exchange_numbers[turn.position]
                self._earlier_turns.setdefault(number, []).append(turn)

    def _add_earlier_exchange(
        self, number: int, exchange: RecordedExchange
    ) -> ExchangeFacts:
        """Take the names in an earlier exchange; return its facts: any request may answer it."""
        names = self._names

        def take_names(raw: bytes, header_name: str) -> bytes:
            """Take the names and the numbers of secrets in a text; return the text as it is."""
            for ref in refs_in(raw):
                if ref.is_secret:
                    self._secret_numbers.reserve_number(ref)
                elif ref.kind == SESSION:
                    names.reserve_session_number(int(ref.token))

            if header_name == SESSION_HEADER:
                session = raw.decode("utf-8", "surrogateescape")
                names.session_names[sha256_of(session)] = session

            return raw

        exchange_with_changed_texts(exchange, take_names)
        state_name = issued_name(exchange)
        facts = facts_of(exchange)
        state_hashes = set(facts.issued_hashes)
        if state_name is not None:
            names.issued_name_by_number[number] = state_name
            state_hashes.add(sha256_of(state_name))
            for sha256 in state_hashes:
                names.state_names.setdefault(sha256, state_name)

        before_all_requests = Moment(0, 0.0)
        return replace(
            facts, issued_hashes=tuple(state_hashes), asked_moment=before_all_requests
        )

    def finish_with(
        self, exchanges: Mapping[int, RecordedExchange]
    ) -> Iterator[RecordedInteraction]:
        """Add the exchanges of this recording; yield all interactions, the earlier ones first."""
        earlier_facts = self._facts
        self._facts = {}
        self._add_exchanges(exchanges)
        pushes = link_pushes(self._facts)
        posted_numbers = _posted_answer_numbers(pushes)
        call_facts = {}
        for number, facts in self._facts.items():
            if number not in posted_numbers:
                call_facts[number] = facts

        all_interactions = [
            *self._earlier_interactions,
            *linked_interactions(call_facts, self._earlier_interactions, earlier_facts),
        ]
        linked_numbers = posted_numbers
        for interaction in all_interactions:
            linked_numbers.update(
                interaction.unshared_numbers, interaction.poll_counts_by_step
            )

        sent_digests = {}
        for exchange in exchanges.values():
            for sent_digest, sealed_digest in exchange.digests:
                sent_digests[sealed_digest] = sent_digest

        exchanges_before_naming: dict[int, RecordedExchange] = {}
        if sent_digests:
            for number, exchange in self._exchanges.items():
                if number in linked_numbers:
                    exchanges_before_naming[number] = exchange

        self._name_secrets_and_states(all_interactions, pushes)
        if sent_digests:
            self._correct_digests(sent_digests, exchanges_before_naming)

        return self._finished_interactions(all_interactions, pushes)

    def _add_exchanges(self, exchanges: Mapping[int, RecordedExchange]) -> None:
        """Take the exchanges of this recording, without those that only closing clients cause."""
        streams = Streams()
        for journal_number, recorded_exchange in sorted(exchanges.items()):
            number = self._number_offset + journal_number
            exchange = recorded_exchange
            if self._number_offset:
                exchange = self._renumbered_after_earlier(recorded_exchange, number)

            self._exchanges[number] = exchange
            resumed_exchange = streams.stream_resumed_by(exchange)
            resumed_call_number = None
            if resumed_exchange is not None:
                resumed_call_number = resumed_exchange.number

            if resumed_call_number is not None:
                if self._facts[resumed_call_number].is_listening:
                    resumed_call_number = None

            self._facts[number] = facts_of(exchange, resumed_call_number)

        for number in streams_opened_while_closing(self._exchanges, self._facts):
            del self._facts[number]

    def _renumbered_after_earlier(
        self, exchange: RecordedExchange, number: int
    ) -> RecordedExchange:
        """Return an exchange as a cassette counts it that begins with an earlier recording."""

        def count_with_offset(arrived_count: int, _at_ms: float) -> int:
            return self._number_offset + arrived_count

        moved_exchange = renumbered_exchange(
            exchange, exchange.recorded_by, number, count_with_offset
        )
        return exchange_with_changed_texts(moved_exchange, self._with_renamed_events)

    # Names

    def _name_secrets_and_states(
        self, all_interactions: Sequence[LinkedInteraction], pushes: _TurnsByExchange
    ) -> None:
        """Give numbers to secrets, and names to states and ids, in the order of the file."""
        for interaction in all_interactions:
            numbers_in_file_order = interaction.unshared_numbers
            for number in interaction.unshared_numbers:
                for turn in pushes.get(number, ()):
                    numbers_in_file_order.extend(
                        posted_number for _, posted_number in turn.answers
                    )

            for number in (*numbers_in_file_order, *interaction.poll_counts_by_step):
                if number > 0:
                    self._number_session_and_secrets(number)

        # The keys of calls have the numbers of all secrets.
        for interaction in all_interactions:
            self._names.name_states(interaction, self._exchanges)

    def _number_session_and_secrets(self, number: int) -> None:
        """Give numbers to the session and the secrets of an exchange."""
        for ref in refs_in(self._facts[number].session):
            if ref.kind == HASH:
                self._names.session_name(ref.token)

        self._exchanges[number] = exchange_with_changed_texts(
            self._exchanges[number],
            lambda raw, _: renumber_secrets(
                raw, self._secret_numbers.number_of_journal_secret
            ),
        )

    def _correct_digests(
        self,
        sent_digests: Mapping[str, str],
        exchanges_before_naming: Mapping[int, RecordedExchange],
    ) -> None:
        """Replace the digests of texts as they were sent by those of the cassette's texts."""
        named_exchanges = {}
        for number in exchanges_before_naming:
            named_exchanges[number] = self._finished_exchange(number)

        named_exchanges.update(self._finished_exchanges)
        pairs_before_and_after = []
        for number, exchange in named_exchanges.items():
            before_naming = exchanges_before_naming.get(number, exchange)
            pairs_before_and_after.append((before_naming, exchange))

        cassette_digests = digest_replacements(sent_digests, pairs_before_and_after)
        for number, exchange in named_exchanges.items():
            self._finished_exchanges[number] = exchange_with_changed_texts(
                exchange, lambda raw, _: with_digests(raw, cassette_digests)
            )

    def _finished_exchange(self, number: int) -> RecordedExchange:
        """Return an exchange as the cassette has it, with the names of states and sessions.

        States of other exchanges that it repeats are replaced too.
        """
        if number in self._finished_exchanges:
            return self._finished_exchanges[number]

        exchange = self._exchanges.pop(number)
        echoed_hash = exchange.echoed_sha256
        issued_hash = exchange.issued_sha256
        response = exchange.response
        name_by_hash = {}
        # A task that no recorded call created has no name.
        if echoed_hash is not None and number in self._names.echoed_name_by_number:
            name_by_hash[echoed_hash] = self._names.echoed_name_by_number[number]

        request = request_with_changed_texts(
            exchange.request, self._names.change_naming_hashes(name_by_hash)
        )
        if issued_hash is not None and number in self._names.issued_name_by_number:
            name_by_hash[issued_hash] = self._names.issued_name_by_number[number]

        if response is not None:
            response = response_with_changed_texts(
                response, self._names.change_naming_hashes(name_by_hash)
            )

        finished = replace(exchange, request=request, response=response)
        self._finished_exchanges[number] = finished
        return finished

    def _with_renamed_events(self, raw: bytes, header_name: str) -> bytes:
        """Rename events: a server that was started anew may count them from the same number."""
        if header_name == LAST_EVENT_ID_HEADER:
            return self._new_event_ids.get(raw, raw)
        if header_name:
            return raw

        replacements: list[tuple[Span, bytes]] = []
        for span in event_id_spans(raw):
            event_id = span.slice_of(raw)
            if is_name_of_kind(event_id.decode("latin-1"), HASH):
                new_id = sealed_hash(f"{self._number_offset} {event_id.decode()}")
                self._new_event_ids[event_id] = new_id.encode()

            replacements.append((span, self._new_event_ids.get(event_id, event_id)))

        return splice(raw, replacements)

    # The values of the cassette

    def _finished_interactions(
        self, all_interactions: Sequence[LinkedInteraction], pushes: _TurnsByExchange
    ) -> Iterator[RecordedInteraction]:
        """Yield interactions as the cassette has them."""
        number_by_interaction = {}
        number_by_last_exchange = {}
        for interaction_number, interaction in enumerate(all_interactions, start=1):
            number_by_interaction[interaction] = interaction_number
            number_by_last_exchange[interaction.exchange_numbers[-1]] = (
                interaction_number
            )

        for interaction, interaction_number in number_by_interaction.items():
            turns: list[PushedTurn] = []
            for position, number in enumerate(interaction.exchange_numbers):
                turns.extend(self._earlier_turns.get(number, ()))
                for turn in pushes.get(number, ()):
                    turns.append(
                        self._finished_turn(
                            turn, position, number, number_by_last_exchange
                        )
                    )

            branch = None
            if interaction.branch_of is not None:
                turns_before_branch = [
                    turn for turn in turns if turn.position < interaction.shared_count
                ]
                shared_parts = interaction.shared_count + len(turns_before_branch)
                branch = Branch(
                    number_by_interaction[interaction.branch_of], shared_parts
                )

            steps = []
            for number, poll_count in interaction.poll_counts_by_step.items():
                steps.append(TaskStep(self._finished_exchange(number), poll_count))

            exchanges = map(self._finished_exchange, interaction.exchange_numbers)
            yield RecordedInteraction(
                interaction_number,
                tuple(exchanges),
                branch,
                interaction.is_orphan,
                tuple(turns),
                tuple(steps),
            )

    def _finished_turn(
        self,
        turn: PushTurn[LinkedPush],
        position: int,
        number: int,
        number_by_last_exchange: Mapping[int, int],
    ) -> PushedTurn:
        """Return the turn of an exchange; interactions are numbered by their last exchanges."""
        pushed_requests = []
        for key, pushing_number, piece in turn.pushes:
            interaction_of_push = None
            if pushing_number != number:
                interaction_of_push = number_by_last_exchange[pushing_number]

            pushing_exchange = self._finished_exchange(pushing_number)
            pushed_requests.append(
                PushedRequest(key, pushing_exchange, piece, interaction_of_push)
            )

        posted_answers = []
        for index, posted_number in turn.answers:
            answering_exchange = self._finished_exchange(posted_number)
            posted_answers.append(
                PostedAnswer(turn.pushes[index].key, answering_exchange)
            )

        return PushedTurn(position, tuple(pushed_requests), tuple(posted_answers))
