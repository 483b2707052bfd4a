"""A cassette's file in which other responses stand in the place of recorded ones.

Rule: every byte outside the replaced responses stays, except in the recording block, where digests
and the number of events follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.format.check import accept_edit
from mrtr_cassette.core.format.dump import recording_block, response_text
from mrtr_cassette.core.protocol.messages import ask_in
from mrtr_cassette.core.wire.http import Response
from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, item_spans, replace_members, splice

_INTERACTIONS = ("interactions",)
_TURNS = ("elicitation_turns",)
_ASK = ("ask",)
_RECORDING = ("recording",)
_DEPTH = 3
"""Levels of the file around a member of an interaction."""


def with_responses(
    data: bytes, cassette: Cassette, responses: Mapping[RecordedExchange, Response]
) -> bytes:
    """Return a file in which other responses stand.

    Where the new response ends a conversation in which the recorded one asks, the turns from that
    ask on go.

    Raises:
        CassetteError: the file is not that of the cassette.
    """
    replacements: list[tuple[Span, bytes]] = []
    spans = item_spans(data, find_spans(data, [_INTERACTIONS])[_INTERACTIONS][-1])
    for interaction, span in zip(cassette.interactions, spans, strict=True):
        if not responses.keys().isdisjoint(interaction.exchanges):
            item = data[span.start : span.end]
            for position, response in _new_responses(interaction, responses):
                item = _with_response(item, interaction, position, response)
            replacements.append((span, item))
    replaced = splice(data, [*replacements, _new_facts(data, responses)])
    return accept_edit(replaced, cassette.path).data


def _new_responses(
    interaction: RecordedInteraction, responses: Mapping[RecordedExchange, Response]
) -> Iterator[tuple[int, Response]]:
    """Yield the new responses of an interaction, the last one first."""
    for position in reversed(range(len(interaction.exchanges))):
        response = responses.get(interaction.exchanges[position])
        if response is not None:
            yield position, response


def _with_response(
    item: bytes, interaction: RecordedInteraction, position: int, response: Response
) -> bytes:
    """Return the text of an interaction with another response."""
    exchange = interaction.exchanges[position]
    if exchange.ask is None:
        return replace_members(item, (), {"response": response_text(response, _DEPTH)})
    turns = find_spans(item, [_TURNS])[_TURNS][-1]
    index = interaction.asking_turn(position) - 1
    if ask_in(exchange.call.message, response) is not None:
        turn = item_spans(item, turns)[index]
        inner = find_spans(item[turn.start : turn.end], [_ASK])[_ASK][-1]
        ask = Span(turn.start + inner.start, turn.start + inner.end)
        return splice(item, [(ask, response_text(response, _DEPTH + 2))])
    kept = item_spans(item, turns)[:index]
    array = b"[]" if not kept else item[turns.start : kept[-1].end] + b"\n" + b"  " * _DEPTH + b"]"
    item = splice(item, [(turns, array)])
    text = response_text(response, _DEPTH)
    if find_spans(item, [("response",)]):
        return replace_members(item, (), {"response": text})
    end = find_spans(item, [_TURNS])[_TURNS][-1].end
    return splice(item, [(Span(end, end), b',\n%b"response": %b' % (b"  " * _DEPTH, text))])


def _new_facts(data: bytes, responses: Mapping[RecordedExchange, Response]) -> tuple[Span, bytes]:
    """Return the recording block with as many pieces as the new responses have, and its place."""
    span = find_spans(data, [_RECORDING])[_RECORDING][-1]
    recording: dict[str, Any] = orjson.loads(data[span.start : span.end])
    by_number = {exchange.number: response for exchange, response in responses.items()}
    facts = [
        _with_pieces(each, by_number[each["number"]]) if each["number"] in by_number else each
        for each in recording["exchanges"]
    ]
    lines = [orjson.dumps(each) for each in facts]
    return span, b"".join(recording_block(recording, lines))


def _with_pieces(facts: dict[str, Any], response: Response) -> dict[str, Any]:
    """Return the facts of an exchange for another response, whose pieces came as the recorded."""
    old = facts.get("pieces") or []
    kept = {name: value for name, value in facts.items() if name != "pieces"}
    if not response.is_framed:
        return kept
    fallback = {"at_ms": facts["duration_ms"], "after": facts.get("ended_after") or facts["number"]}
    last = old[-1] if old else fallback
    times = [*old, *[last] * (len(response.pieces) - len(old))][: len(response.pieces)]
    pieces = [{name: each[name] for name in fallback} for each in times]
    return {**kept, "pieces": pieces}
