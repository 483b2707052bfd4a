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
    with_numbers,
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
    by: RecordedBy | None,
    number: int,
    after: Callable[[int, float], int],
    offset_ms: float = 0.0,
) -> RecordedExchange:
    """Return an exchange as another recording counts it, which began `offset_ms` earlier.

    `after` tells how many requests had arrived there, by how many had here and when.
    """

    def time(at_ms: float) -> float:
        return max(0.0, at_ms + offset_ms)

    response = exchange.response
    if response is not None:
        pieces = []
        for raw, at_ms, count in response.pieces:
            pieces.append(Piece(raw, time(at_ms), after(count, at_ms)))

        response = replace(response, pieces=tuple(pieces))

    ended_after = exchange.ended_after
    if ended_after is not None:
        ended_after = after(ended_after, exchange.ended_ms)

    return replace(
        exchange,
        number=number,
        response=response,
        started_ms=time(exchange.started_ms),
        ended_ms=time(exchange.ended_ms),
        ended_after=ended_after,
        recorded_by=by,
    )


TextChange = Callable[[bytes, str], bytes]
"""Changes a text; its second argument is the header's lower-case name, or empty for other texts."""


def with_texts(exchange: RecordedExchange, change: TextChange) -> RecordedExchange:
    """Return an exchange with other target, header values and bodies; itself if none changes."""
    request = request_with(exchange.request, change)
    response = exchange.response
    if response is not None:
        response = response_with(response, change)

    if request == exchange.request and response == exchange.response:
        return exchange

    return replace(exchange, request=request, response=response)


def request_with(request: Request, change: TextChange) -> Request:
    """Return a request with other target, header values and body."""
    target = _changed_text(request.target, change, "")
    headers = headers_with(request.headers, change)
    return Request(request.method, target, headers, change(request.body, ""))


def response_with(response: Response, change: TextChange) -> Response:
    """Return a response with other header values and other pieces."""
    headers = headers_with(response.headers, change)
    pieces = []
    for raw, at_ms, after in response.pieces:
        pieces.append(Piece(change(raw, ""), at_ms, after))

    return Response(response.status, headers, tuple(pieces), response.end)


def headers_with(headers: Headers, change: TextChange) -> Headers:
    """Return headers with other values."""
    changed = []
    for name, value in headers:
        changed.append((name, _changed_text(value, change, name.lower())))

    return tuple(changed)


def _changed_text(text: str, change: TextChange, name: str) -> str:
    """Return a text with its bytes changed; `name` is its header's, or empty."""
    raw = text.encode("utf-8", "surrogateescape")
    return change(raw, name).decode("utf-8", "surrogateescape")


def with_examples(cassette: Cassette) -> Cassette:
    """Return a cassette for strangers with examples of what was taken out of its requests."""
    if cassette.redaction is None or not cassette.redaction.shared:
        return cassette

    def with_example(raw: bytes, _name: str) -> bytes:
        return with_changed_refs(raw, example_in_place)

    changed = {}
    for exchange in cassette.exchanges:
        request = request_with(exchange.request, with_example)
        if request != exchange.request:
            changed[exchange] = replace(exchange, request=request)

    return cassette.with_exchanges(changed)


def cassette_with_references(cassette: Cassette, texts: Mapping[str, str]) -> Cassette:
    """Return a cassette with references to those values that it doesn't know."""
    new_values = {
        name: text for name, text in texts.items() if name not in cassette.values
    }
    if not new_values:
        return cassette

    values = Values((), new_values)
    changed = {}
    for exchange in cassette.exchanges:
        sealed = with_texts(exchange, lambda raw, _name: values.seal(raw))
        if sealed is not exchange:
            changed[exchange] = sealed

    return cassette.with_exchanges(changed)


# Several cassettes

_NAMES_OF_A_CASSETTE = 100_000
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
    first = cassettes[0]
    if len(cassettes) == 1:
        return first

    interactions: list[RecordedInteraction] = []
    recorders = []
    arrived_before = 0
    for index, cassette in enumerate(cassettes):
        _refuse_other_rules(cassette, first)
        earlier_count = len(interactions)
        moved_exchanges = _exchanges_renamed_apart(cassette, index, arrived_before)
        for exchange in moved_exchanges.values():
            arrived_before = max(arrived_before, _last_arrival(exchange))

        moved = cassette.with_exchanges(moved_exchanges)
        numbers = {}
        for interaction in moved.interactions:
            numbers[interaction.number] = earlier_count + interaction.number

        for interaction in moved.interactions:
            place = InteractionPlace(interaction.number, cassette.path)
            renumbered = with_numbers(interaction, numbers)
            interactions.append(replace(renumbered, file_place=place))

        for recorder in cassette.recorders or [RecorderFacts("", 0)]:
            recorders.append(recorder._replace(id=f"{index}:{recorder.id}"))

    path = ", ".join([cassette.path for cassette in cassettes])
    return replace(
        first, path=path, interactions=tuple(interactions), recorders=tuple(recorders)
    )


def _refuse_other_rules(cassette: Cassette, first: Cassette) -> None:
    """Raise an error if a cassette was recorded by other rules than the first."""
    for name in _RULE_FIELDS:
        if getattr(cassette, name) != getattr(first, name):
            words = RULE_WORDS.get(name, name.replace("_", " "))
            reason = f"it was recorded with another {words} than {first.path}"
            raise CassetteError(cassette.path, reason, hint="play them separately")


def _last_arrival(exchange: RecordedExchange) -> int:
    """Return how many requests had arrived when an exchange ended, as far as it is known."""
    return exchange.ended_after or exchange.number or 0


def _exchanges_renamed_apart(
    cassette: Cassette, index: int, before: int
) -> dict[RecordedExchange, RecordedExchange]:
    """Return a cassette's exchanges with numbers and names that those before it don't have."""
    first_number = index * _NAMES_OF_A_CASSETTE

    def counted_on(ref: Ref) -> Ref | None:
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

        return ref.with_last(first_number + int(ref.token))

    def with_new_names(raw: bytes, _name: str) -> bytes:
        return with_changed_refs(raw, counted_on)

    def moved_count(after: int, _at_ms: float) -> int:
        if not after:
            return 0
        return before + after

    changed: dict[RecordedExchange, RecordedExchange] = {}
    for place, exchange in enumerate(cassette.exchanges_by_arrival, start=1):
        recorded_by = exchange.recorded_by or RecordedBy("", place)
        recorded_by = recorded_by._replace(recorder=f"{index}:{recorded_by.recorder}")
        number = before + (exchange.number or place)
        moved_exchange = renumbered_exchange(exchange, recorded_by, number, moved_count)
        follows = [before + write for write in exchange.follows]
        moved_exchange = replace(moved_exchange, follows=tuple(follows))
        changed[exchange] = with_texts(moved_exchange, with_new_names)

    return changed
