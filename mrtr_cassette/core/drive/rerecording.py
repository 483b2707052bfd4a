"""Record over an earlier cassette: interactions that did not change stay as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.digests import digest_replacements, with_digests
from mrtr_cassette.core.cassette.entries import entries_of
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    first_exchange_number,
    in_conversation_order,
    with_new_numbers,
)
from mrtr_cassette.core.cassette.texts import (
    exchange_with_changed_texts,
    renumbered_exchange,
)
from mrtr_cassette.core.compare.conversations import (
    IgnoredFor,
    InteractionComparison,
    cassette_comparison,
    handles_between,
    ignores_nothing,
)
from mrtr_cassette.core.compare.handles import Handles
from mrtr_cassette.core.drive.kept_names import KeptNames, with_times_of
from mrtr_cassette.core.protocol.origins import without_local_ports
from mrtr_cassette.core.replay.matching import RequestNormaliser
from mrtr_cassette.core.replay.timelines import interactions_connected_by_streams
from mrtr_cassette.core.wire.http import VALIDATING_HEADERS, Request, Response

_recording_settings: Final = attrgetter(
    "transport", "request_state", "redaction", "seals_answers", "values"
)
"""What a recording leaves out or hides: another one can't share its interactions."""

_NewExchanges = dict[RecordedExchange, RecordedExchange]
"""What becomes of exchanges of either recording."""


@dataclass(frozen=True, slots=True)
class _Replacement:
    """An earlier cassette, and a recording that takes its place.

    Attributes:
        partners: the earlier interactions, by the numbers of the recorded ones that make the same
            call.
        kept: the numbers of the recorded interactions whose partners stay in the cassette.
        handles: the earlier handles, and the recorded ones in their places.
    """

    earlier: Cassette
    recorded: Cassette
    partners: Mapping[int, RecordedInteraction]
    kept: Collection[int]
    handles: Handles


def recorded_over(
    earlier: Cassette, recorded: Cassette, ignored_for: IgnoredFor = ignores_nothing
) -> tuple[Cassette, int]:
    """Return a recording in which unchanged interactions are the earlier ones, and their count.

    What differs only at the ignored pointers is unchanged. If everything is, the earlier cassette
    itself is returned. Branches, and calls that share a stream, are kept together or not at all.
    """
    if _recording_settings(earlier) != _recording_settings(recorded):
        return recorded, 0

    partners: dict[int, RecordedInteraction] = {}
    unchanged_numbers: set[int] = set()
    handles = handles_between(earlier, recorded, ignored_for)
    for pair in cassette_comparison(
        earlier, recorded, ignored_for, handles
    ).interactions:
        if pair.recorded is None or pair.received is None:
            continue

        earlier_interaction = earlier.interactions[pair.recorded - 1]
        new_interaction = recorded.interactions[pair.received - 1]
        partners[new_interaction.number] = earlier_interaction
        if _is_unchanged(pair, earlier_interaction, new_interaction):
            unchanged_numbers.add(new_interaction.number)

    unchanged_count = len(unchanged_numbers)
    if unchanged_count == len(earlier.interactions) == len(recorded.interactions):
        return earlier, unchanged_count

    replacement = _Replacement(earlier, recorded, partners, unchanged_numbers, handles)
    kept_numbers = _numbers_kept_together(replacement)
    return _merged_cassette(replace(replacement, kept=kept_numbers)), len(kept_numbers)


# What is kept


def _is_unchanged(
    pair: InteractionComparison, old: RecordedInteraction, new: RecordedInteraction
) -> bool:
    """Tell whether a new interaction has nothing that the old one lacks."""
    # What `diff` calls the same may say more: a list with a further tool is not kept.
    says_more = any(stage.changes for stage in pair.stages)
    return pair.mark == "=" and not says_more and not _has_new_headers(old, new)


def _has_new_headers(old: RecordedInteraction, new: RecordedInteraction) -> bool:
    """Tell whether headers are recorded now that were not, and that `diff` doesn't compare.

    The user may want those of requests, and clients send back what responses say in the others.
    """
    for earlier_exchange, new_exchange in zip(
        old.exchanges, new.exchanges, strict=False
    ):
        earlier_names = _header_names(earlier_exchange.request)
        if not _header_names(new_exchange.request) <= earlier_names:
            return True

        if earlier_exchange.response is not None and new_exchange.response is not None:
            added_names = _header_names(new_exchange.response) - _header_names(
                earlier_exchange.response
            )
            if not added_names.isdisjoint(VALIDATING_HEADERS):
                return True

    return False


def _header_names(message: Request | Response) -> set[str]:
    """Return the names of a message's headers in lower case."""
    return {name.lower() for name, _ in message.headers}


def _numbers_kept_together(replacement: _Replacement) -> set[int]:
    """Return those of the kept interactions that can stay without the others."""
    earlier_number_by_kept: dict[int, int] = {}
    for number in replacement.kept:
        earlier_interaction = replacement.partners[number]
        new_interaction = replacement.recorded.interactions[number - 1]
        earlier_places = list(_exchanges_without_steps(earlier_interaction))
        if earlier_places == list(_exchanges_without_steps(new_interaction)):
            earlier_number_by_kept[number] = earlier_interaction.number

    connected_before = _connected_numbers(replacement.earlier)
    connected_now = _connected_numbers(replacement.recorded)
    while True:
        separated_numbers = []
        for number, old_number in earlier_number_by_kept.items():
            connected_earlier_numbers = set(
                map(earlier_number_by_kept.get, connected_now[number])
            )
            if connected_earlier_numbers != connected_before[old_number]:
                separated_numbers.append(number)

        if not separated_numbers:
            return set(earlier_number_by_kept)

        for number in separated_numbers:
            del earlier_number_by_kept[number]


def _exchanges_without_steps(
    interaction: RecordedInteraction,
) -> dict[tuple[int, int | None], RecordedExchange]:
    """Return the exchanges that no earlier interaction has, but for a task's steps.

    Their keys are their places in the interaction.
    """
    exchanges = {}
    for exchange, place in interaction.placed_exchanges:
        if place.step is None:
            exchanges[place.turn, place.answer] = exchange

    return exchanges


def _connected_numbers(cassette: Cassette) -> dict[int, set[int]]:
    """Return for each interaction itself and those without which it can't be kept."""
    numbers_by_number = {}
    form = RequestNormaliser(cassette, ignored=())
    entries = entries_of(cassette, form.normalised_recorded_request)
    pairs = list(interactions_connected_by_streams(entries.by_arrival))
    for interaction in cassette.interactions:
        numbers_by_number[interaction.number] = {interaction.number}
        if interaction.branch is not None:
            pairs.append((interaction.number, interaction.branch.of))

    for number, connected_number in pairs:
        numbers_by_number[number].add(connected_number)
        numbers_by_number[connected_number].add(number)

    return numbers_by_number


# Exchanges


class _ExchangePairs(NamedTuple):
    """The exchanges of an earlier cassette, and those of the recording over it.

    Attributes:
        new_by_kept: the new exchanges, by the earlier ones that stay in their places.
        earlier_by_changed: the earlier exchanges, by the new ones that take their places; None for
            a new exchange that takes no place.
    """

    new_by_kept: dict[RecordedExchange, RecordedExchange]
    earlier_by_changed: dict[RecordedExchange, RecordedExchange | None]


def _exchanges_after_replacement(replacement: _Replacement) -> _NewExchanges:
    """Return what becomes of the earlier exchanges that are kept, and of the changed ones."""
    pairs = _exchange_pairs(replacement)
    exchanges = _exchanges_with_kept_names(pairs, replacement.handles)
    _renew_digests(exchanges, pairs.new_by_kept)

    return _with_earlier_times(exchanges, pairs)


def _exchange_pairs(replacement: _Replacement) -> _ExchangePairs:
    """Return the exchanges of both recordings in pairs: those that stay, and those that change."""
    pairs = _ExchangePairs({}, {})
    for new in replacement.recorded.interactions:
        old = replacement.partners.get(new.number)
        if old is not None and new.number in replacement.kept:
            pairs.new_by_kept.update(_kept_pairs(old, new))
            continue

        pairs.earlier_by_changed.update(dict.fromkeys(new.unshared_exchanges))
        if old is not None:
            pairs.earlier_by_changed.update(_changed_pairs(old, new))

    return pairs


def _kept_pairs(
    old: RecordedInteraction, new: RecordedInteraction
) -> Iterator[tuple[RecordedExchange, RecordedExchange]]:
    """Yield the old exchanges of an unchanged interaction, each with the new one.

    How many states of a task a client sees depends on when it polls: a step more than the new task
    has is paired with itself, without a number.
    """
    old_exchanges = _exchanges_without_steps(old)
    new_exchanges = _exchanges_without_steps(new)
    yield from zip(old_exchanges.values(), new_exchanges.values(), strict=True)
    # Both tasks end alike.
    new_steps = reversed(new.steps)
    for old_step in reversed(old.steps):
        new_step = next(new_steps, None)
        if new_step is None:
            yield old_step.exchange, replace(old_step.exchange, number=None)
        else:
            yield old_step.exchange, new_step.exchange


def _changed_pairs(
    old: RecordedInteraction, new: RecordedInteraction
) -> Iterator[tuple[RecordedExchange, RecordedExchange]]:
    """Yield the new exchanges of a changed interaction, each with the one whose place it takes."""
    for old_exchange, new_exchange in zip(old.exchanges, new.exchanges, strict=False):
        # The id of a task is in more places than are changed.
        if new_exchange.created_task_id is None:
            yield new_exchange, old_exchange


def _exchanges_with_kept_names(
    pairs: _ExchangePairs, handles: Handles
) -> _NewExchanges:
    """Return the exchanges with the names and values of the earlier cassette."""
    kept_names = KeptNames()
    exchanges: _NewExchanges = {}
    for old, new in pairs.new_by_kept.items():
        kept_names.keep_names(old, new)
        exchanges[old] = _kept_exchange_with_new_times(old, new)

    for new, partner in pairs.earlier_by_changed.items():
        if partner is not None:
            kept_names.keep_issued_values(partner, new)

    for new, partner in pairs.earlier_by_changed.items():
        exchanges[new] = handles.with_recorded_handles(
            kept_names.with_kept_names(new, partner)
        )

    return exchanges


def _kept_exchange_with_new_times(
    old: RecordedExchange, new: RecordedExchange
) -> RecordedExchange:
    """Return an old exchange as the new recording counts it."""
    response = None
    if old.response is not None:
        response = with_times_of(new, old.response)

    return replace(
        new,
        request=old.request,
        response=response,
        issued_sha256=old.issued_sha256,
        echoed_sha256=old.echoed_sha256,
    )


def _renew_digests(
    exchanges: _NewExchanges, new_by_kept: Mapping[RecordedExchange, RecordedExchange]
) -> None:
    """Make the digests that changed exchanges announce those of the texts as they are now."""
    exchanges_before_and_after = []
    for source, exchange in exchanges.items():
        exchanges_before_and_after.append((new_by_kept.get(source, source), exchange))

    announced_digests = digest_replacements({}, exchanges_before_and_after)
    if not announced_digests:
        return

    def with_renewed_digests(text: bytes, _header: str) -> bytes:
        return with_digests(text, announced_digests)

    for source, exchange in exchanges.items():
        if source not in new_by_kept:
            exchanges[source] = exchange_with_changed_texts(
                exchange, with_renewed_digests
            )


# Times


def _with_earlier_times(
    exchanges: _NewExchanges, pairs: _ExchangePairs
) -> _NewExchanges:
    """Return exchanges with their earlier times if the same came in the same order.

    Any other exchange has its time after the one before it.
    """
    timed_exchanges: _NewExchanges = {}
    offset_ms = 0.0

    def number_of(source: RecordedExchange) -> int:
        return exchanges[source].number or 0

    for source in sorted(exchanges, key=number_of):
        exchange = exchanges[source]
        partner: RecordedExchange | None = source
        if source not in pairs.new_by_kept:
            partner = pairs.earlier_by_changed[source]

        arrivals = _arrival_counts(exchange)
        if partner is not None and _arrival_counts(partner) == arrivals:
            offset_ms = partner.ended_ms - exchange.ended_ms
            timed_exchanges[source] = _with_partner_times(partner, source, exchange)
        elif exchange.number is None:
            timed_exchanges[source] = exchange
        else:
            timed_exchanges[source] = renumbered_exchange(
                exchange,
                exchange.recorded_by,
                exchange.number,
                lambda after, _: after,
                offset_ms,
            )

    return timed_exchanges


def _with_partner_times(
    partner: RecordedExchange, source: RecordedExchange, exchange: RecordedExchange
) -> RecordedExchange:
    """Return what becomes of a source with the times of its partner."""
    response = exchange.response
    if partner is source:
        response = source.response
    elif response is not None:
        response = with_times_of(partner, response)

    return replace(
        exchange,
        started_ms=partner.started_ms,
        ended_ms=partner.ended_ms,
        response=response,
    )


def _arrival_counts(exchange: RecordedExchange) -> tuple[int | None, ...]:
    """Return how many requests had arrived when it came, at its end, and at each of its events."""
    response = exchange.response
    events: list[int] = []
    if response is not None and response.is_message_stream:
        events = [piece.arrived_count for piece in response.pieces if piece.raw]

    ends = (exchange.number, exchange.ended_after)
    # How many events there were doesn't matter if no other request arrived between them.
    if set(events) <= set(ends):
        return ends

    return (*ends, *events)


# Interactions


def _merged_cassette(replacement: _Replacement) -> Cassette:
    """Return both recordings in one, in the order of the new conversation."""
    exchanges = _exchanges_after_replacement(replacement)
    earlier_interactions = replacement.earlier.with_exchanges(exchanges).interactions
    new_interactions = replacement.recorded.with_exchanges(exchanges).interactions
    recorded_numbers = _numbers_in_new_order(replacement)
    new_numbers = {}
    old_numbers = {}
    for number, recorded_number in enumerate(recorded_numbers, start=1):
        new_numbers[recorded_number] = number
        if recorded_number in replacement.kept:
            old_numbers[replacement.partners[recorded_number].number] = number

    interactions = []
    for recorded_number in recorded_numbers:
        if recorded_number in replacement.kept:
            partner = replacement.partners[recorded_number]
            interaction = with_new_numbers(
                earlier_interactions[partner.number - 1], old_numbers
            )
        else:
            interaction = with_new_numbers(
                new_interactions[recorded_number - 1], new_numbers
            )

        interactions.append(interaction)

    return replace(
        replacement.recorded,
        interactions=tuple(interactions),
        upstream=_upstream_after_replacement(
            replacement.earlier.upstream, replacement.recorded.upstream
        ),
    )


def _upstream_after_replacement(earlier: str, recorded: str) -> str:
    """Return the new upstream, or the earlier one if only its port on this machine differs."""
    is_same = without_local_ports(earlier) == without_local_ports(recorded)
    return earlier if is_same else recorded


def _numbers_in_new_order(replacement: _Replacement) -> list[int]:
    """Return the numbers of the recorded interactions in their new order.

    Which of two calls that were in flight together came first is chance: these come in the earlier
    order, and a call that is new comes after the one that came before it.
    """
    recorded = replacement.recorded.interactions
    earlier_places = _earlier_numbers(replacement)
    arriving_interactions = deque(in_conversation_order(recorded))
    in_flight: list[tuple[int, int]] = []
    ordered_numbers: dict[int, None] = {}
    call_ends = []
    for interaction in recorded:
        call_ends.append((_arrived_count_at_end(interaction), interaction.number))

    for ended_after, ended_number in sorted(call_ends):
        while (
            arriving_interactions
            and first_exchange_number(arriving_interactions[0]) <= ended_after
        ):
            number = arriving_interactions.popleft().number
            heappush(in_flight, (earlier_places[number], number))

        while ended_number not in ordered_numbers:
            _, number = heappop(in_flight)
            ordered_numbers[number] = None

    return list(ordered_numbers)


def _earlier_numbers(replacement: _Replacement) -> dict[int, int]:
    """Return the earlier numbers of recorded interactions, or those of the ones before them."""
    places: dict[int, int] = {}
    place = 0
    for interaction in replacement.recorded.interactions:
        partner = replacement.partners.get(interaction.number)
        if partner is not None:
            place = partner.number

        branch = interaction.branch
        if branch is not None and interaction.number not in replacement.kept:
            place = places[branch.of]

        places[interaction.number] = place

    return places


def _arrived_count_at_end(interaction: RecordedInteraction) -> float:
    """Return how many requests had arrived when a call ended; infinite if it was left."""
    latest = 0
    for exchange in interaction.unshared_exchanges:
        if exchange.ended_after is None:
            return inf

        latest = max(latest, exchange.ended_after)

    return latest
