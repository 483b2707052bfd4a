"""Recorded exchanges with other texts, or as another recording counts them; several cassettes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    InteractionPlace,
    RecordedBy,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
    with_new_numbers,
)
from mrtr_cassette.core.secrets.names import (
    LIVE,
    STATE,
    Ref,
    example_in_place,
    with_changed_refs,
)
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response
from mrtr_cassette.errors import CassetteError


def renumbered_exchange(
    exchange: RecordedExchange,
    recorded_by: RecordedBy | None,
    number: int,
    new_arrived_count: Callable[[int, float], int],
    offset_ms: float = 0.0,
) -> RecordedExchange:
    """Return an exchange as another recording counts it, which began `offset_ms` earlier.

    `new_arrived_count` tells how many requests had arrived there, by how many had here and when.
    """

    def shifted_time(at_ms: float) -> float:
        return max(0.0, at_ms + offset_ms)

    response = exchange.response
    if response is not None:
        pieces = []
        for raw, at_ms, arrived_count in response.pieces:
            pieces.append(
                Piece(raw, shifted_time(at_ms), new_arrived_count(arrived_count, at_ms))
            )

        response = replace(response, pieces=tuple(pieces))

    ended_after = exchange.ended_after
    if ended_after is not None:
        ended_after = new_arrived_count(ended_after, exchange.ended_ms)

    return replace(
        exchange,
        number=number,
        response=response,
        started_ms=shifted_time(exchange.started_ms),
        ended_ms=shifted_time(exchange.ended_ms),
        ended_after=ended_after,
        recorded_by=recorded_by,
    )


TextChange = Callable[[bytes, str], bytes]
"""Changes a text; its second argument is the header's lower-case name, or empty for other texts."""


def exchange_with_changed_texts(
    exchange: RecordedExchange, change: TextChange
) -> RecordedExchange:
    """Return an exchange with other target, header values and bodies; itself if none changes."""
    request = request_with_changed_texts(exchange.request, change)
    response = exchange.response
    if response is not None:
        response = response_with_changed_texts(response, change)

    if request == exchange.request and response == exchange.response:
        return exchange

    return replace(exchange, request=request, response=response)


def request_with_changed_texts(request: Request, change: TextChange) -> Request:
    """Return a request with other target, header values and body."""
    target = _changed_text(request.target, change, "")
    headers = headers_with_changed_values(request.headers, change)
    return Request(request.method, target, headers, change(request.body, ""))


def response_with_changed_texts(response: Response, change: TextChange) -> Response:
    """Return a response with other header values and other pieces."""
    headers = headers_with_changed_values(response.headers, change)
    pieces = []
    for raw, at_ms, arrived_count in response.pieces:
        pieces.append(Piece(change(raw, ""), at_ms, arrived_count))

    return Response(response.status, headers, tuple(pieces), response.end)


def headers_with_changed_values(headers: Headers, change: TextChange) -> Headers:
    """Return headers with other values."""
    changed_headers = []
    for name, value in headers:
        changed_headers.append((name, _changed_text(value, change, name.lower())))

    return tuple(changed_headers)


def _changed_text(text: str, change: TextChange, name: str) -> str:
    """Return a text with its bytes changed; `name` is its header's, or empty."""
    raw = text.encode("utf-8", "surrogateescape")
    return change(raw, name).decode("utf-8", "surrogateescape")


def with_examples_for_shared_texts(cassette: Cassette) -> Cassette:
    """Return a cassette for strangers with examples of what was taken out of its requests."""
    if cassette.redaction is None or not cassette.redaction.shared:
        return cassette

    def replace_by_examples(raw: bytes, _name: str) -> bytes:
        return with_changed_refs(raw, example_in_place)

    changed_exchanges = {}
    for exchange in cassette.exchanges:
        request = request_with_changed_texts(exchange.request, replace_by_examples)
        if request != exchange.request:
            changed_exchanges[exchange] = replace(exchange, request=request)

    return cassette.with_exchanges(changed_exchanges)


def cassette_with_references(cassette: Cassette, texts: Mapping[str, str]) -> Cassette:
    """Return a cassette with references to those values that it doesn't know."""
    new_values = {
        name: text for name, text in texts.items() if name not in cassette.values
    }
    if not new_values:
        return cassette

    values = Values((), new_values)
    changed_exchanges = {}
    for exchange in cassette.exchanges:
        changed_exchange = exchange_with_changed_texts(
            exchange, lambda raw, _name: values.sealed_bytes(raw)
        )
        if changed_exchange is not exchange:
            changed_exchanges[exchange] = changed_exchange

    return cassette.with_exchanges(changed_exchanges)


# Several cassettes

_NUMBERS_OF_A_CASSETTE = 100_000
_RULE_FIELDS = ("transport", "request_state", "redaction", "seals_answers", "values")


RULE_WORDS: Final = {
    "answers": "sealing of answers",
    "seals_answers": "sealing of answers",
    "values": "set of values",
}
"""What messages call a rule, if not by its name."""


def combine_cassettes(cassettes: Sequence[Cassette]) -> Cassette:
    """Return several cassettes as one, in which each has write histories of its own.

    Interactions are numbered through all of them, and keep the numbers in their files for messages.

    Raises:
        CassetteError: they were recorded by different rules.
    """
    first_cassette = cassettes[0]
    if len(cassettes) == 1:
        return first_cassette

    interactions: list[RecordedInteraction] = []
    recorders = []
    arrived_before = 0
    for index, cassette in enumerate(cassettes):
        _refuse_other_rules(cassette, first_cassette)
        earlier_count = len(interactions)
        moved_exchanges = _exchanges_renamed_apart(cassette, index, arrived_before)
        for exchange in moved_exchanges.values():
            arrived_before = max(arrived_before, _last_arrival(exchange))

        moved_cassette = cassette.with_exchanges(moved_exchanges)
        new_numbers = {}
        for interaction in moved_cassette.interactions:
            new_numbers[interaction.number] = earlier_count + interaction.number

        for interaction in moved_cassette.interactions:
            place = InteractionPlace(interaction.number, cassette.path)
            renumbered_interaction = with_new_numbers(interaction, new_numbers)
            interactions.append(replace(renumbered_interaction, file_place=place))

        for recorder in cassette.recorders or [RecorderFacts("", 0)]:
            recorders.append(recorder._replace(id=f"{index}:{recorder.id}"))

    path = ", ".join([cassette.path for cassette in cassettes])
    return replace(
        first_cassette,
        path=path,
        interactions=tuple(interactions),
        recorders=tuple(recorders),
    )


def _refuse_other_rules(cassette: Cassette, first_cassette: Cassette) -> None:
    """Raise an error if a cassette was recorded by other rules than the first."""
    for name in _RULE_FIELDS:
        if getattr(cassette, name) != getattr(first_cassette, name):
            words = RULE_WORDS.get(name, name.replace("_", " "))
            reason = f"it was recorded with another {words} than {first_cassette.path}"
            raise CassetteError(cassette.path, reason, hint="play them separately")


def _last_arrival(exchange: RecordedExchange) -> int:
    """Return how many requests had arrived when an exchange ended, as far as it is known."""
    return exchange.ended_after or exchange.number or 0


def _exchanges_renamed_apart(
    cassette: Cassette, cassette_index: int, arrived_before: int
) -> dict[RecordedExchange, RecordedExchange]:
    """Return a cassette's exchanges with numbers and names that those before it don't have."""
    first_number = cassette_index * _NUMBERS_OF_A_CASSETTE

    def renumbered_ref(ref: Ref) -> Ref | None:
        """Return a reference with a number that no other cassette has; None if it has no number."""
        if ref.kind == STATE:
            call_sha256, occurrence, *turn = ref.parts
            moved_occurrence = str(first_number + int(occurrence))
            return ref._replace(parts=(call_sha256, moved_occurrence, *turn))

        is_numbered = ref.kind in LIVE
        if ref.is_secret:
            is_numbered = ref.token.isdigit()

        if not is_numbered:
            return None

        return ref.with_last_part(first_number + int(ref.token))

    def with_new_names(raw: bytes, _name: str) -> bytes:
        return with_changed_refs(raw, renumbered_ref)

    def moved_arrived_count(arrived_count: int, _at_ms: float) -> int:
        if not arrived_count:
            return 0
        return arrived_before + arrived_count

    renamed_exchanges: dict[RecordedExchange, RecordedExchange] = {}
    for place, exchange in enumerate(cassette.exchanges_by_arrival, start=1):
        recorded_by = exchange.recorded_by or RecordedBy("", place)
        recorded_by = recorded_by._replace(
            recorder=f"{cassette_index}:{recorded_by.recorder}"
        )
        number = arrived_before + (exchange.number or place)
        moved_exchange = renumbered_exchange(
            exchange, recorded_by, number, moved_arrived_count
        )
        moved_writes = [arrived_before + write for write in exchange.played_writes]
        moved_exchange = replace(moved_exchange, played_writes=tuple(moved_writes))
        renamed_exchanges[exchange] = exchange_with_changed_texts(
            moved_exchange, with_new_names
        )

    return renamed_exchanges
