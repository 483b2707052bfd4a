"""The placeholders of redaction in a recording: rule, count, and in which calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.secrets.names import plain_rule, secrets_in
from mrtr_cassette.errors import printable

_MOST_CALLS: Final = 10
"""Calls that a line names."""


class RedactedCall(NamedTuple):
    """An interaction in which something was replaced."""

    interaction: int
    call: str


@dataclass(frozen=True, slots=True)
class Redaction:
    """In how many places secrets of one rule were replaced, and in which calls."""

    rule: str
    count: int
    calls: tuple[RedactedCall, ...]


def redactions_of(
    recorded: Cassette, earlier: Cassette | None = None
) -> tuple[Redaction, ...]:
    """Return the replaced secrets by rule, without those that an earlier recording has already."""
    counts = _placeholder_counts(recorded)
    if earlier is not None:
        counts -= _placeholder_counts(earlier)

    totals: Counter[str] = Counter()
    calls: dict[str, list[RedactedCall]] = {}
    for (rule, number), count in counts.items():
        totals[rule] += count
        call = recorded.interactions[number - 1].exchanges[0].call.title
        calls.setdefault(rule, []).append(RedactedCall(number, printable(call)))

    redactions = []
    for rule, found in calls.items():
        redactions.append(Redaction(rule, totals[rule], tuple(found)))

    return tuple(redactions)


def _placeholder_counts(cassette: Cassette) -> Counter[tuple[str, int]]:
    """Count placeholders by rule and number of the interaction."""
    counts: Counter[tuple[str, int]] = Counter()
    for interaction in cassette.interactions:
        for exchange in interaction.own_exchanges:
            for secret in secrets_in(_text_of(exchange)):
                counts[plain_rule(secret.kind), interaction.number] += 1

    return counts


def _text_of(exchange: RecordedExchange) -> str:
    """Return all texts of an exchange that redaction changes."""
    request = exchange.request
    response = exchange.response
    headers = request.headers
    bodies = request.body
    if response is not None:
        headers += response.headers
        bodies += b"\n" + response.body

    texts = [request.target]
    for _, value in headers:
        texts.append(value)

    return "\n".join([*texts, bodies.decode("latin-1")])


def redaction_lines(redactions: Iterable[Redaction]) -> list[str]:
    """Return a line for people about each rule."""
    lines = []
    for redaction in redactions:
        shown = _calls_text(redaction.calls[:_MOST_CALLS])
        rest = len(redaction.calls) - _MOST_CALLS
        if rest > 0:
            shown += f"; and {rest} more"

        lines.append(f"redacted: {redaction.rule} ×{redaction.count} ({shown})")

    return lines


def _calls_text(calls: Sequence[RedactedCall]) -> str:
    """Return calls in a line; equal calls are named once, after all their numbers."""
    numbers: dict[str, list[str]] = {}
    for number, call in calls:
        numbers.setdefault(call, []).append(f"#{number}")

    texts = []
    for call, found in numbers.items():
        texts.append(f"{', '.join(found)} {call}")

    return "; ".join(texts)
