"""The runs of recorders whose exchanges are in one recording."""

from __future__ import annotations

from collections.abc import Iterable

from mrtr_cassette.core.cassette.recorded import RecordedExchange, RecorderFacts


def runs_of(
    by_arrival: Iterable[RecordedExchange], recorders: Iterable[RecorderFacts]
) -> dict[str, int]:
    """Return the number of the run to which each recorder belongs, from 0.

    Recorders that were merged are of one run.
    """
    appended = {recorder.id for recorder in recorders if not recorder.offset_ms}
    runs: dict[str, int] = {}
    run = 0
    ended = 0
    for exchange in by_arrival:
        number = exchange.number or 0
        by = exchange.recorded_by
        if by is not None and by.recorder not in runs:
            # A run that was appended is timed anew, and came when all else was over.
            run += by.recorder in appended and number > ended > 0
            runs[by.recorder] = run
        ended = max(ended, number, exchange.ended_after or 0)
    return runs
