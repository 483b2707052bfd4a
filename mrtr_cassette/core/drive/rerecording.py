"""A recording over an earlier cassette: what is the same stands as it did."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import zip_longest
from operator import attrgetter
from typing import Final

from mrtr_cassette.core.cassette.digests import new_digests, with_digests
from mrtr_cassette.core.cassette.edited import with_recorded_times
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    RecordedExchange,
    RecordedInteraction,
    TurnPlace,
    in_conversation_order,
)
from mrtr_cassette.core.cassette.texts import recounted, with_texts
from mrtr_cassette.core.compare.conversations import (
    IgnoredFor,
    compared,
    ignores_nothing,
)
from mrtr_cassette.core.drive.kept_names import KeptNames
from mrtr_cassette.core.protocol.tasks import created_id
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import VALIDATING_HEADERS, Request, Response

_SETTINGS: Final = attrgetter(
    "transport", "request_state", "redaction", "seals_answers"
)
"""What a recording leaves out or hides: another one can't share its interactions."""
_PORT = re.compile(r"^(https?://(?:localhost|127\.0\.0\.1|\[::1\])):[0-9]+(?=/|$)")


def recorded_over(
    earlier: Cassette, recorded: Cassette, ignored_for: IgnoredFor = ignores_nothing
) -> tuple[Cassette, int]:
    """Return a recording in which interactions that are the same stand as they did; and how many.

    What differs only at the ignored pointers is the same.

    Where all are the same, that is the earlier cassette itself. Branches, and calls of which one
    stream tells, are kept together or not at all.
    """
    if _SETTINGS(earlier) != _SETTINGS(recorded):
        return recorded, 0
    partners: dict[int, RecordedInteraction] = {}
    same: dict[int, int] = {}
    for each in compared(earlier, recorded, ignored_for).interactions:
        if each.recorded is not None and each.received is not None:
            old = partners[each.received] = earlier.interactions[each.recorded - 1]
            # What diff calls the same may say more: a list with a further tool is not kept.
            says_more = any(stage.changes for stage in each.stages)
            new_headers = _new_headers(old, recorded.interactions[each.received - 1])
            if each.mark == "=" and not (says_more or new_headers):
                same[each.received] = each.recorded
    if len(same) == len(earlier.interactions) == len(recorded.interactions):
        return earlier, len(same)
    kept = {
        new: old
        for new, old in same.items()
        if _places(partners[new]) == _places(recorded.interactions[new - 1])
    }
    before, after = _connected(earlier), _connected(recorded)
    while apart := [
        new
        for new, old in kept.items()
        if {kept.get(each) for each in after[new]} != before[old]
    ]:
        for number in apart:
            del kept[number]
    exchanges = _exchanges_over(recorded, partners, kept)
    return _merged(earlier, recorded, exchanges, kept, partners), len(kept)


def _new_headers(old: RecordedInteraction, new: RecordedInteraction) -> set[str]:
    """Return the headers that are recorded now and were not, and that don't count in `diff`.

    The user may want those of requests, and clients act on what responses say of copies and proofs.
    """
    found: set[str] = set()
    for before, after in zip(old.exchanges, new.exchanges, strict=False):
        names = _names_of(after.request) - _names_of(before.request)
        if before.response is not None and after.response is not None:
            more = _names_of(after.response) - _names_of(before.response)
            names |= more & VALIDATING_HEADERS
        found |= names
    return found


def _names_of(said: Request | Response) -> set[str]:
    return {name.lower() for name, _ in said.headers}


def _places(interaction: RecordedInteraction) -> list[TurnPlace]:
    """Return the places of its exchanges, but for what a client saw of a task."""
    return [place for _, place in interaction.placed if place.step is None]


def _connected(cassette: Cassette) -> dict[int, set[int]]:
    """Return, for each interaction, those without which it can't be kept, and itself."""
    connected = {each.number: {each.number} for each in cassette.interactions}
    branches = [
        (each.number, each.branch.of) for each in cassette.interactions if each.branch
    ]
    for one, other in [*branches, *Player(cassette).connected]:
        connected[one].add(other)
        connected[other].add(one)
    return connected


def _exchanges_over(
    recorded: Cassette,
    partners: Mapping[int, RecordedInteraction],
    kept: Collection[int],
) -> dict[RecordedExchange, RecordedExchange]:
    """Return what becomes of the earlier exchanges that are kept, and of the new ones."""
    stands_for: dict[RecordedExchange, RecordedExchange] = {}
    changed: dict[RecordedExchange, RecordedExchange | None] = {}
    for new in recorded.interactions:
        old = partners.get(new.number)
        if old is not None and new.number in kept:
            stands_for |= _in_pairs(old, new)
            continue
        changed |= dict.fromkeys(new.own)
        for one, other in zip(
            () if old is None else old.exchanges, new.exchanges, strict=False
        ):
            # The id of a task stands in more places than are changed.
            if created_id(other.call.message, other.rpc_response) is None:
                changed[other] = one
    names = KeptNames()
    exchanges: dict[RecordedExchange, RecordedExchange] = {}
    for one, other in stands_for.items():
        names.keep(one, other)
        response = (
            None if one.response is None else with_recorded_times(other, one.response)
        )
        stands = replace(other, request=one.request, response=response)
        issued, echoed = one.issued_sha256, one.echoed_sha256
        exchanges[one] = replace(stands, issued_sha256=issued, echoed_sha256=echoed)
    for each, partner in changed.items():
        if partner is not None:
            names.issued(partner, each)
    for each, partner in changed.items():
        exchanges[each] = names.in_kept(each, partner)
    # Announced digests become those of the texts as they stand now.
    digests = new_digests(
        {}, [(stands_for.get(it, it), now) for it, now in exchanges.items()]
    )
    for each in changed if digests else ():
        exchanges[each] = with_texts(
            exchanges[each], lambda raw, _: with_digests(raw, digests)
        )
    return _in_earlier_time(
        exchanges, {**changed, **{kept: kept for kept in stands_for}}
    )


def _in_earlier_time(
    exchanges: Mapping[RecordedExchange, RecordedExchange],
    partners: Mapping[RecordedExchange, RecordedExchange | None],
) -> dict[RecordedExchange, RecordedExchange]:
    """Return exchanges with the times of their earlier partners, where all came in the same order.

    An exchange without such a partner has its time after the one before it.
    """
    timed: dict[RecordedExchange, RecordedExchange] = {}
    offset_ms = 0.0
    for source, exchange in sorted(
        exchanges.items(), key=lambda pair: pair[1].number or 0
    ):
        partner = partners.get(source)
        if partner is not None and _counts(partner) == _counts(exchange):
            offset_ms = partner.ended_ms - exchange.ended_ms
            response = partner.response
            if partner is not source and exchange.response is not None:
                response = with_recorded_times(partner, exchange.response)
            times = partner.started_ms, partner.ended_ms
            timed[source] = replace(
                exchange, started_ms=times[0], ended_ms=times[1], response=response
            )
        elif exchange.number is None:
            timed[source] = exchange
        else:
            timed[source] = recounted(
                exchange,
                exchange.recorded_by,
                exchange.number,
                lambda after, _: after,
                offset_ms,
            )
    return timed


def _counts(exchange: RecordedExchange) -> tuple[object, ...]:
    """Return how many requests had arrived when it came, at each of its events, and at its end."""
    response = exchange.response
    afters: list[int] = []
    if response is not None and response.is_framed:
        afters = [piece.after for piece in response.pieces if piece.raw]
    is_alone = {*afters} <= {exchange.number, exchange.ended_after}
    return exchange.number, exchange.ended_after, () if is_alone else tuple(afters)


def _same_upstream(earlier: str, recorded: str) -> bool:
    """Tell whether two upstreams differ at most by the port of this machine, which is chance."""
    places = [_PORT.sub(r"\1", upstream) for upstream in (earlier, recorded)]
    return places[0] == places[1]


def _in_pairs(
    old: RecordedInteraction, new: RecordedInteraction
) -> Iterator[tuple[RecordedExchange, RecordedExchange]]:
    """Yield the own exchanges of two interactions that have the same places, in pairs.

    How many states of a task a client sees depends on when it polls: a step more than the new task
    has stands for itself, without a number.
    """
    before, after = (
        [it for it, at in one.placed if at.step is None] for one in (old, new)
    )
    yield from zip(before, after, strict=True)
    # Both end alike.
    for one, other in zip_longest(old.steps[::-1], new.steps[::-1][: len(old.steps)]):
        yield (
            one.exchange,
            replace(one.exchange, number=None) if other is None else other.exchange,
        )


def _merged(
    earlier: Cassette,
    recorded: Cassette,
    exchanges: Mapping[RecordedExchange, RecordedExchange],
    kept: Mapping[int, int],
    partners: Mapping[int, RecordedInteraction],
) -> Cassette:
    """Return both in one, in the order of the new conversation."""
    before = earlier.with_exchanges(exchanges).interactions
    after = recorded.with_exchanges(exchanges).interactions
    order = _ordered(recorded.interactions, partners, kept)
    new_numbers = {new: number for number, new in enumerate(order, start=1)}
    old_numbers = {old: new_numbers[new] for new, old in kept.items()}
    interactions = tuple(
        _numbered(before[kept[new] - 1], old_numbers)
        if new in kept
        else _numbered(after[new - 1], new_numbers)
        for new in order
    )
    upstream = recorded.upstream
    if _same_upstream(earlier.upstream, upstream):
        upstream = earlier.upstream
    return replace(recorded, interactions=interactions, upstream=upstream)


def _ordered(
    recorded: Sequence[RecordedInteraction],
    partners: Mapping[int, RecordedInteraction],
    kept: Collection[int],
) -> list[int]:
    """Return the numbers of new interactions in their order.

    Which of two calls that were in flight together came first is chance: these stand in the earlier
    order, and one that is new after what came before it.
    """
    places: dict[int, int] = {}
    place = 0
    for interaction in recorded:
        partner = partners.get(interaction.number)
        place = place if partner is None else partner.number
        if interaction.branch is not None and interaction.number not in kept:
            place = places[interaction.branch.of]
        places[interaction.number] = place
    in_flight: list[tuple[int, int]] = []
    placed: dict[int, None] = {}
    waiting = iter(in_conversation_order(recorded))
    following = next(waiting, None)
    for ended_after, number in sorted(
        (_ended_after(call), call.number) for call in recorded
    ):
        while number not in placed:
            while following is not None and _arrived(following) <= ended_after:
                heappush(in_flight, (places[following.number], following.number))
                following = next(waiting, None)
            placed[heappop(in_flight)[1]] = None
    return list(placed)


def _arrived(interaction: RecordedInteraction) -> int:
    return min(exchange.number or 0 for exchange in interaction.own)


def _ended_after(interaction: RecordedInteraction) -> float:
    """Return how many requests had arrived when a call ended; one that was left has no end."""
    ends = [exchange.ended_after for exchange in interaction.own]
    return max(float("inf") if end is None else end for end in ends)


def _numbered(
    interaction: RecordedInteraction, numbers: Mapping[int, int]
) -> RecordedInteraction:
    """Return an interaction with the new numbers of itself and of those that it refers to."""

    def asked(each: PushedRequest) -> PushedRequest:
        return replace(each, interaction=each.interaction and numbers[each.interaction])

    branch = interaction.branch
    return replace(
        interaction,
        number=numbers[interaction.number],
        branch=branch and branch._replace(of=numbers[branch.of]),
        pushed_turns=tuple(
            replace(turn, asked=tuple(map(asked, turn.asked)))
            for turn in interaction.pushed_turns
        ),
    )
