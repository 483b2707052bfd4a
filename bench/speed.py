"""How fast the program replays and records, beside servers that do as little as can be done.

Owns: what is compared with what, and the targets. Absolute figures are of one machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from ground import LOOPS, Bench, server
from load import Subject
from processes import listening, record_command
from results import Rates, ratio_of
from traffic import LARGE, PAUSED, PLAIN, ROUNDS, STREAM, UPLOAD, Kind

from mrtr_cassette.shell.files.cassettes import journal_path

RECORD_TARGETS = {
    kind.name: limit
    for kinds, limit in (
        ((PLAIN,), 0.9),
        ((ROUNDS, STREAM), 0.6),
        ((LARGE, UPLOAD), 0.3),
    )
    for kind in kinds
}
"""What recording must reach of a pass-through, by the name of the load."""


def replay(bench: Bench) -> None:
    """Replay beside servers that return fixed bytes and that restamp."""
    path = bench.folder / "replayed.json"
    with (
        server("upstream") as upstream,
        listening(record_command(upstream.url, path)) as recorder,
    ):
        for kind in bench.size.kinds:
            bench.converse(kind, recorder.url, bench.distinct(kind))
    for loop in bench.size.loops:
        with (
            server("fixed", LOOPS[loop]) as fixed,
            server("restamp", LOOPS[loop]) as restamp,
            bench.replaying(path, loop) as ours,
        ):
            for kind in bench.size.kinds:
                subjects = [
                    Subject("restamp", restamp.url, checks="id", pid=restamp.pid),
                    Subject(
                        "replay", ours.url, distinct=bench.distinct(kind), pid=ours.pid
                    ),
                ]
                if kind is PLAIN:
                    subjects.insert(
                        0, Subject("fixed", fixed.url, checks="status", pid=fixed.pid)
                    )
                for connections in bench.size.connections:
                    _replay_kind(bench, kind, connections, loop, subjects)


def _replay_kind(
    bench: Bench, kind: Kind, connections: int, loop: str, subjects: Sequence[Subject]
) -> None:
    is_compared = connections == bench.size.usual
    with ExitStack() as stack:
        peers = _replaying_peers(bench, stack) if kind is PLAIN and is_compared else []
        rates = bench.rates(
            "replay", kind, connections, loop, "restamp", *subjects, *peers
        )
    if not is_compared:
        return
    what = f"replay of {kind.title}, {connections} connections, against restamp, {loop}"
    if kind in {PLAIN, ROUNDS}:
        bench.results.at_least(what, rates.ratio(), 0.85)
    if kind is PLAIN:
        _against_peers(bench, rates, 1.5)


def _replaying_peers(bench: Bench, stack: ExitStack) -> list[Subject]:
    """Start the peers that replay, after recording what they are to replay."""
    replaying = [peer for peer in bench.peers if not peer.records]
    names = {peer.name for peer in replaying}
    count = (bench.size.rounds + 1) * bench.size.conversations
    for peer in bench.peers:
        if peer.records and peer.name in names:
            with (
                server("upstream") as upstream,
                peer.listening(bench.folder, upstream.url) as url,
            ):
                bench.converse(PLAIN, url, count)
    return [
        Subject(
            peer.name,
            stack.enter_context(peer.listening(bench.folder)),
            checks="id",
            distinct=count,
            plays_once=True,
        )
        for peer in replaying
    ]


def _against_peers(bench: Bench, rates: Rates, limit: float) -> None:
    measured = [
        rates.ratio(peer.name) for peer in bench.peers if peer.name in rates.per_round
    ]
    known = [ratio for ratio in measured if ratio is not None]
    what = f"{rates.mode} of {rates.load} against the fastest peer given, {rates.loop}"
    bench.results.at_least(what, min(known) if known else None, limit)


def record(bench: Bench) -> None:
    """Record beside a pass-through that records nothing."""
    for loop in bench.size.loops:
        name = f"rates-{loop}.json"
        with (
            server("upstream") as upstream,
            server("pass-through", LOOPS[loop], upstream.url) as base,
            # Killed, because publishing is measured by itself.
            bench.recording(upstream.url, name, loop, signal.SIGKILL) as ours,
        ):
            subjects = (
                Subject("pass-through", base.url, pid=base.pid),
                Subject("record", ours.url, pid=ours.pid),
            )
            for kind in bench.size.kinds:
                for connections in bench.size.connections:
                    _record_kind(
                        bench, kind, connections, loop, *subjects, upstream=upstream.url
                    )
                    # So many bodies of 1 MB would fill a disk.
                    os.truncate(journal_path(bench.folder / name), 0)
            _first_event(bench, loop, Subject("direct", upstream.url), *subjects)


def _record_kind(
    bench: Bench,
    kind: Kind,
    connections: int,
    loop: str,
    *subjects: Subject,
    upstream: str,
) -> None:
    is_compared = connections == bench.size.usual
    with ExitStack() as stack:
        peers = [
            Subject(
                peer.name, stack.enter_context(peer.listening(bench.folder, upstream))
            )
            for peer in bench.peers
            if peer.records and is_compared and kind is PLAIN
        ]
        rates = bench.rates(
            "record", kind, connections, loop, "pass-through", *subjects, *peers
        )
    if is_compared:
        what = (
            f"record of {kind.title}, {connections} connections, against pass-through"
        )
        bench.results.at_least(
            f"{what}, {loop}", rates.ratio(), RECORD_TARGETS[kind.name]
        )
    if is_compared and kind is PLAIN:
        _against_peers(bench, rates, 2.0)


def _first_event(bench: Bench, loop: str, *subjects: Subject) -> None:
    """Compare the time until the first event of a stream is whole."""
    stints = bench.load(PAUSED, 1, *subjects)
    samples = {
        name: [median(stint.first_events) for stint in taken]
        for name, taken in stints.items()
    }
    for name, times in samples.items():
        if times:
            bench.results.fact(f"time to the first event, {name}, {loop}", "ms", *times)
    ratio = ratio_of(samples["record"], samples["pass-through"])
    what = f"record, time to the first event, against pass-through, {loop}"
    bench.results.at_most(what, ratio, 1.1)
