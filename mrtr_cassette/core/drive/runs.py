"""What is repeated with a live server for each run that had started a server of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import RecorderFacts
from mrtr_cassette.core.cassette.runs import runs_of
from mrtr_cassette.core.drive.plan import Planned
from mrtr_cassette.core.protocol.methods import INITIALIZE, INITIALIZED


def planned_by_run(
    plan: Sequence[Planned], recorders: Sequence[RecorderFacts]
) -> list[list[Planned]]:
    """Return what is repeated in each run of the recorder, which had a server of its own.

    What a run that appended had played from the cassette is brought to its server: the openings of
    its sessions, and the writes that came before a call.
    """
    exchanges = [exchange for call in plan for exchange in call.interaction.own]
    runs = runs_of(sorted(exchanges, key=lambda exchange: exchange.number or 0), recorders)
    by_number: dict[int | None, Planned] = {}
    openings: dict[str, list[Planned]] = {}
    opened: set[tuple[int, str]] = set()
    plans: dict[int, list[Planned]] = {}
    for call in plan:
        recorded = call.interaction.own
        by = recorded[0].recorded_by
        run = 0 if by is None else runs.get(by.recorder, 0)
        brought: list[Planned] = []
        session = call.opens or call.session
        if (run, session) not in opened:
            opened.add((run, session))
            brought += openings.get(session, ())
        for exchange in recorded:
            brought += [by_number[write] for write in exchange.follows if write in by_number]
        of_run = plans.setdefault(run, [])
        of_run += [replace(before, is_brought=True) for before in brought]
        of_run.append(call)
        by_number |= {exchange.number: call for exchange in recorded}
        if call.call.method in (INITIALIZE, INITIALIZED):
            openings.setdefault(session, []).append(call)
    return list(plans.values())
