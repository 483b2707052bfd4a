"""Cut calls out of a recording, with what they need to be played and repeated by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from mrtr_cassette.core.cassette.lookup import digest_and_values_of_body
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedInteraction,
    in_conversation_order,
    numbers_of_needed_interactions,
    without_interactions,
)
from mrtr_cassette.core.cassette.sessions import session_of_exchange
from mrtr_cassette.core.compare.handles import sent_back_in
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import INITIALIZED, PING, method_of
from mrtr_cassette.core.replay.player import Player

_VERSION_HEADER: Final = "mcp-protocol-version"


def cut_out_calls(
    cassette: Cassette, numbers: Collection[int], *, alone: bool = False
) -> Cassette:
    """Return the interactions with these numbers and those that they need, as recorded.

    They need what opens their session or describes the server, the lists that name their tools,
    and, unless they are wanted `alone`, the writes before them and what issued their handles.
    """
    needs = _Dependencies(cassette, alone=alone)
    unvisited_numbers = [*numbers]
    for number in numbers:
        unvisited_numbers += needs.numbers_that_open(number)
        unvisited_numbers += needs.numbers_of_writes_before(number)

    needed_numbers = set()
    while unvisited_numbers:
        number = unvisited_numbers.pop()
        if number not in needed_numbers:
            needed_numbers.add(number)
            unvisited_numbers += needs.numbers_needed_by(number)

    all_numbers = {interaction.number for interaction in cassette.interactions}
    return without_interactions(cassette, all_numbers - needed_numbers)


def last_call(cassette: Cassette) -> int:
    """Return the number of the last call of a tool, prompt or resource, or of anything else."""
    ordered = in_conversation_order(cassette.interactions)
    for interaction in reversed(ordered):
        if method_of(interaction.exchanges[0].call.method).listed_by:
            return interaction.number

    return ordered[-1].number


class _Dependencies:
    """Knows which other interactions each interaction of a cassette needs."""

    def __init__(self, cassette: Cassette, *, alone: bool) -> None:
        self._leaves_out_earlier_calls = alone
        self._ordered_interactions = in_conversation_order(cassette.interactions)
        self._places_by_number: dict[int, int] = {}
        """The place of each interaction in the conversation."""
        for place, interaction in enumerate(self._ordered_interactions):
            self._places_by_number[interaction.number] = place

        self._issuers_of_handles: dict[int, set[int]] = defaultdict(set)
        """The interactions whose handles an interaction sends back."""
        for repeated in sent_back_in(cassette):
            self._issuers_of_handles[repeated.sent_by].add(repeated.issued_by)

        player = Player(cassette)
        self._numbers_of_writes: set[int] = set()
        for entry in player.entries.in_file_order:
            if player.effects.is_write(entry):
                self._numbers_of_writes.add(entry.interaction)

    def numbers_of_writes_before(self, number: int) -> Iterator[int]:
        """Yield the writes on which the result of a call may depend."""
        place = self._places_by_number[number]
        selected_call = self._ordered_interactions[place]
        call = selected_call.exchanges[0].call
        if self._leaves_out_earlier_calls or not call.depends_on_writes:
            return

        for earlier in self._ordered_interactions[:place]:
            is_write = earlier.number in self._numbers_of_writes
            if is_write and _session_in(earlier) == _session_in(selected_call):
                yield earlier.number

    def numbers_needed_by(self, number: int) -> Iterator[int]:
        """Yield what an interaction can't be without."""
        interaction = self._ordered_interactions[self._places_by_number[number]]
        yield from numbers_of_needed_interactions(interaction)
        if _is_answered_elsewhere(interaction):
            yield from self._whole_session(interaction)

        if not self._leaves_out_earlier_calls:
            yield from self._issuers_of_handles[number]

    def numbers_that_open(self, number: int) -> Iterator[int]:
        """Yield what opens the conversation of a call: the last before it, or the first after it.

        Equal requests count once, so that a cassette of many clients becomes small.
        """
        selected_place = self._places_by_number[number]
        selected_call = self._ordered_interactions[selected_place]
        list_methods = method_of(selected_call.exchanges[0].call.method).listed_by
        openings_by_key: dict[object, int] = {}
        for place, opening in enumerate(self._ordered_interactions):
            session = _session_in(opening)
            if session not in (NO_SESSION, _session_in(selected_call)):
                continue

            key = _key_of_equal_openings(opening, list_methods)
            if key is None:
                continue
            if place < selected_place or key not in openings_by_key:
                openings_by_key[key] = opening.number

        yield from openings_by_key.values()

    def _whole_session(self, interaction: RecordedInteraction) -> Iterator[int]:
        """Yield all of a session: messages of several calls are in one of its streams."""
        session = _session_in(interaction)
        for neighbour in self._ordered_interactions:
            if _session_in(neighbour) == session:
                yield neighbour.number


def _session_in(interaction: RecordedInteraction) -> str:
    """Return the session in which an interaction was sent, or else the session that it opens."""
    return session_of_exchange(interaction.exchanges[0])


def _key_of_equal_openings(
    interaction: RecordedInteraction, list_methods: Collection[str]
) -> object | None:
    """Return a key that equal openings share; None if it opens nothing and is no such list."""
    call = interaction.exchanges[0].call
    request = call.request
    if call.method in list_methods:
        return call.method, call.cursor

    is_opening = method_of(call.method).steady and call.method != PING
    if not is_opening and call.method != INITIALIZED:
        return None

    digest = request.body
    cut_request = digest_and_values_of_body(request.body)
    if cut_request is not None:
        digest, _ = cut_request

    return digest, request.header(_VERSION_HEADER)


def _is_answered_elsewhere(interaction: RecordedInteraction) -> bool:
    """Tell whether a stream that other calls share has a question or the response of a call."""
    if interaction.asking_interactions:
        return True

    last = interaction.exchanges[-1]
    message = last.call.message
    if message is None or message.kind is not Kind.REQUEST:
        return False

    has_session = _session_in(interaction) != NO_SESSION
    return has_session and last.rpc_response is None
