"""The long form of the fleet's tests, and the figures of docs/fleet.md, as tables in Markdown.

    make fleet [ARGS="--conversations 10000 --clients 100"]

Rule: time is CPU time of the processes measured, so that clients on the same machine don't count.
The run fails where an answer was wrong or a miss, or more than one request of a client was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from fleet.balancers import BALANCERS, Balancer, Fleet, address
from fleet.clients import Tally, converse
from fleet.runs import Run, cpu_seconds, record, stateless
from processes import PROGRAM
from traffic import PLAIN, ROUNDS, Kind

DISTINCT = 1000
CHANGES: dict[Balancer, tuple[str, str]] = {"haproxy": ("a", "d"), "nginx": ("b", "a")}


def show(*cells: object) -> None:
    """Print one row of a table."""
    print(
        "|",
        " | ".join(f"{cell:,.0f}" if isinstance(cell, float) else str(cell) for cell in cells),
        "|",
    )


def head(*cells: str) -> None:
    """Print the head of a table, whose columns are numbers but for the first."""
    print()
    show(*cells)
    show("---", *("---:" for _ in cells[1:]))


def cost(command: Sequence[str], kind: Kind, requests: int, clients: int) -> float:
    """Return the microseconds of CPU time that one replica takes for a request."""
    with Fleet() as fleet:
        replica = fleet.start("a", *command)
        replica.await_listening()
        conversations = requests // (kind.asks + 1)
        url = f"http://{address('a')}:{fleet.port}/mcp"

        def have(count: int) -> Tally:
            numbers = islice(cycle(range(DISTINCT)), count)
            return asyncio.run(converse(url, lambda _: numbers, clients, kind))

        have(conversations // 10)
        before = cpu_seconds(replica.process.pid)
        tally = have(conversations)
        spent = cpu_seconds(replica.process.pid) - before
    check(tally, conversations, losses=0)
    return spent * 1e6 / (conversations * (kind.asks + 1))


def check(tally: Tally, conversations: int, losses: int) -> None:
    """End the run where it was not as it has to be."""
    if tally.wrong or tally.missed or tally.finished + len(tally.lost) < conversations:
        sys.exit(f"error: {tally.missed} {tally.wrong[:1]} {tally.finished} of {conversations}")
    if max(tally.lost.values(), default=0) > 1 or len(tally.lost) > losses:
        sys.exit(f"error: more was lost than connections died: {tally.lost}")


def show_runs(cassette: Path, conversations: int, clients: int) -> None:
    """Have conversations through each balancer while a replica is killed and another one comes."""
    command = stateless(cassette)
    with Fleet() as fleet:
        for name in "abc":
            fleet.start(name, *command)
        for replica in fleet.replicas.values():
            replica.await_listening()
        head(
            "balancer",
            "conversations",
            "finished",
            "with several replicas",
            "wrong",
            "misses",
            "requests lost",
            "us of the balancer per request",
        )
        for balancer in BALANCERS:
            dies, comes = CHANGES[balancer]
            run = Run(balancer, command, DISTINCT, conversations, clients, dies, comes)
            with tempfile.TemporaryDirectory() as folder:
                tally, spent = run.hold(fleet, Path(folder) / "run")
            check(tally, conversations, losses=clients)
            lost = sum(tally.lost.values())
            show(
                balancer,
                float(tally.finished + lost),
                float(tally.finished),
                float(tally.moved),
                len(tally.wrong),
                sum(tally.missed.values()),
                lost,
                spent * 1e6 / sum(tally.by_replica.values()),
            )


def show_costs(plain: Path, rounds: Path, requests: int) -> None:
    """Show what a request costs in each kind of replica, with metrics."""
    ways = {
        "`replay`": ("--repeat", "always"),
        "`replay --stateless`": ("--stateless",),
    }
    head("a replica is", "us of a plain call", "calls/s of a core", "us of a round of three")
    for way, options in ways.items():
        command = (*PROGRAM, "replay")
        call = cost((*command, str(plain), *options), PLAIN, requests, 32)
        turn = cost((*command, str(rounds), *options), ROUNDS, requests, 32)
        show(way, call, 1e6 / call, turn)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds, plain = folder / "rounds.json", folder / "plain.json"
        record(rounds, DISTINCT)
        record(plain, DISTINCT, PLAIN)
        show_runs(rounds, given.conversations, given.clients)
        show_costs(plain, rounds, given.requests)


if __name__ == "__main__":
    main()
