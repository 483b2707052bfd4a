"""The recordings that the tests of one run made for one cassette, as one recording."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.record.reopened import reopened
from mrtr_cassette.core.wire.http import Piece


class RunPart(NamedTuple):
    """What was recorded in one go, for one test or for several, one after the other.

    Attributes:
        cassette: it, with what it was added to.
        places: by the number of each exchange that was added, the place among all tests of the
            first one that made it.
    """

    cassette: Cassette
    places: Mapping[int, int]


@dataclass(slots=True)
class Joined:
    """Parts as one recording: all of one part comes before the next one.

    Attributes:
        recorders: whose exchanges it has.
        exchanges: by number.
        places: by the same number, the place of the first test that made an exchange.
    """

    recorders: list[RecorderFacts] = field(default_factory=list)
    exchanges: dict[int, RecordedExchange] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)

    def add(self, recorder: RecorderFacts, own: dict[int, RecordedExchange]) -> None:
        """Add the exchanges of one recorder, by their number there."""
        count = max(self.exchanges, default=0)
        first = self.recorders[0] if self.recorders else recorder
        recorder = recorder._replace(offset_ms=max(0.0, recorder.wall_ms - first.wall_ms))
        self.recorders.append(recorder)
        for number, exchange in own.items():
            by = RecordedBy(recorder.id, number)
            self.exchanges[count + number] = _moved(exchange, count, recorder.offset_ms, by)


def joined(parts: Sequence[RunPart], known: Collection[str]) -> Joined:
    """Return what several parts have of recorders that are not known yet.

    What parts say of the same time is told one after the other: they have nothing to do with each
    other, and the replay of one must not wait for another.

    Args:
        parts: each added to the same cassette, or to none.
        known: ids of the recorders of that cassette.
    """
    whole = Joined()
    for index, part in enumerate(parts):
        begin = max(whole.exchanges, default=0)
        by_recorder = reopened(part.cassette, f"part {index}")
        for recorder in part.cassette.recorders:
            if recorder.id not in known and recorder.id in by_recorder:
                whole.add(recorder, by_recorder[recorder.id])
        for number in whole.exchanges.keys() - whole.places.keys():
            whole.places[number] = part.places.get(number - begin, 0)
    return whole


def _moved(
    exchange: RecordedExchange, count: int, offset_ms: float, by: RecordedBy
) -> RecordedExchange:
    """Return an exchange before which so many others were recorded."""
    response, ended_after = exchange.response, exchange.ended_after
    if response is not None:
        pieces = (
            Piece(raw, at_ms + offset_ms, count + after) for raw, at_ms, after in response.pieces
        )
        response = replace(response, pieces=tuple(pieces))
    return replace(
        exchange,
        number=count + by.number,
        response=response,
        started_ms=exchange.started_ms + offset_ms,
        ended_ms=exchange.ended_ms + offset_ms,
        ended_after=None if ended_after is None else count + ended_after,
        recorded_by=by,
    )
