"""Cut calls out of a recording, with what they need to be played and repeated by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from mrtr_cassette.core.cassette.lookup import cut_body
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedInteraction,
    in_conversation_order,
    needs_of,
    without_interactions,
)
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.compare.handles import sent_back_in
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    GET_PROMPT,
    INITIALIZED,
    LIST_TOOLS,
    PING,
    READ_RESOURCE,
    method_of,
)
from mrtr_cassette.core.replay.player import Player

_LISTS: Final = {
    CALL_TOOL: (LIST_TOOLS,),
    GET_PROMPT: ("prompts/list",),
    READ_RESOURCE: ("resources/list", "resources/templates/list"),
}
"""The lists that name what a method calls."""

_VERSION: Final = "mcp-protocol-version"


def cut_out(
    cassette: Cassette, numbers: Collection[int], *, alone: bool = False
) -> Cassette:
    """Return the interactions with these numbers and those that they need, as recorded.

    They need what opens their session or describes the server, the lists that name their tools,
    and, unless they are wanted `alone`, the writes before them and what issued their handles.
    """
    needs = _Needs(cassette, alone=alone)
    waiting = [*numbers]
    for number in numbers:
        waiting += needs.opening_of(number)
        waiting += needs.writes_before(number)

    needed: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number not in needed:
            needed.add(number)
            waiting += needs.of(number)

    known = {interaction.number for interaction in cassette.interactions}
    return without_interactions(cassette, known - needed)


def last_call(cassette: Cassette) -> int:
    """Return the number of the last call of a tool, prompt or resource, or of anything else."""
    ordered = in_conversation_order(cassette.interactions)
    for interaction in reversed(ordered):
        if interaction.exchanges[0].call.method in _LISTS:
            return interaction.number

    return ordered[-1].number


class _Needs:
    """Knows which other interactions each interaction of a cassette needs."""

    def __init__(self, cassette: Cassette, *, alone: bool) -> None:
        self._alone = alone
        self._ordered = in_conversation_order(cassette.interactions)
        self._places: dict[int, int] = {}
        """The place of each interaction in the conversation."""
        for place, interaction in enumerate(self._ordered):
            self._places[interaction.number] = place

        self._issuers: dict[int, set[int]] = defaultdict(set)
        """The interactions whose handles an interaction sends back."""
        for repeated in sent_back_in(cassette):
            self._issuers[repeated.sent_by].add(repeated.issued_by)

        player = Player(cassette)
        self._writes: set[int] = set()
        for entry in player.entries:
            if player.is_write(entry):
                self._writes.add(entry.interaction)

    def writes_before(self, number: int) -> Iterator[int]:
        """Yield the writes on which the result of a call may depend."""
        place = self._places[number]
        selected = self._ordered[place]
        call = selected.exchanges[0].call
        if self._alone or not call.depends_on_writes:
            return

        for earlier in self._ordered[:place]:
            is_write = earlier.number in self._writes
            if is_write and _session_in(earlier) == _session_in(selected):
                yield earlier.number

    def of(self, number: int) -> Iterator[int]:
        """Yield what an interaction can't be without."""
        interaction = self._ordered[self._places[number]]
        yield from needs_of(interaction)
        if _is_answered_elsewhere(interaction):
            yield from self._whole_session(interaction)

        if not self._alone:
            yield from self._issuers[number]

    def opening_of(self, number: int) -> Iterator[int]:
        """Yield what opens the conversation of a call: the last before it, or the first after it.

        Equal requests count once, so that a cassette of many clients becomes small.
        """
        here = self._places[number]
        selected = self._ordered[here]
        wanted = _LISTS.get(selected.exchanges[0].call.method, ())
        found: dict[object, int] = {}
        for place, opening in enumerate(self._ordered):
            session = _session_in(opening)
            if session not in (NO_SESSION, _session_in(selected)):
                continue

            key = _opening_key(opening, wanted)
            if key is not None and (place < here or key not in found):
                found[key] = opening.number

        yield from found.values()

    def _whole_session(self, interaction: RecordedInteraction) -> Iterator[int]:
        """Yield all of a session: messages of several calls are in one of its streams."""
        session = _session_in(interaction)
        for neighbour in self._ordered:
            if _session_in(neighbour) == session:
                yield neighbour.number


def _session_in(interaction: RecordedInteraction) -> str:
    """Return the session in which an interaction was sent, or else the session that it opens."""
    first = interaction.exchanges[0]
    return session_of(first.request) or opened_session(first.response)


def _opening_key(
    interaction: RecordedInteraction, lists: Collection[str]
) -> object | None:
    """Return a key that equal openings share; None if it opens nothing and is no such list."""
    call = interaction.exchanges[0].call
    request = call.request
    if call.method in lists:
        return call.method, call.cursor

    is_opening = method_of(call.method).steady and call.method != PING
    if not is_opening and call.method != INITIALIZED:
        return None

    digest = request.body
    cut = cut_body(request.body)
    if cut is not None:
        digest, _ = cut

    return digest, request.header(_VERSION)


def _is_answered_elsewhere(interaction: RecordedInteraction) -> bool:
    """Tell whether a stream that other calls share has a question or the response of a call."""
    if interaction.asked_on:
        return True

    last = interaction.exchanges[-1]
    message = last.call.message
    if message is None or message.kind is not Kind.REQUEST:
        return False

    has_session = _session_in(interaction) != NO_SESSION
    return has_session and last.rpc_response is None
