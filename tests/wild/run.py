"""Run pairs of third-party servers and clients, and say what became of each.

python -m wild.run [--server NAME]... [--client NAME]... [--scenario NAME]... [--over WAY]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from processes import ProcessError
from wild.pairs import PATIENCE_S, WHOLE, Outcome, Pair
from wild.peers import CLIENTS, SERVERS, Client, Server, install


def scenarios_of(
    server: Server, client: Client, over: str, only: Sequence[str]
) -> list[str]:
    """Return the scenarios that a pair has and that are wanted."""
    offered = server.scenarios.get(client.era, ())
    if over == "pipes" and offered:
        offered = server.piped_scenarios(client.era)

    return [name for name in offered if not only or name in only]


def run_pair(pair: Pair) -> list[Outcome]:
    """Run a pair in a directory of its own, and tell what came of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wild-") as directory:
        outcomes = pair.run(Path(directory), [CLIENTS[pair.client.other]])

    took = f"{time.monotonic() - started:.0f} s"
    faults = []
    for outcome in outcomes:
        faults += [f"  {outcome.scenario}: {fault}" for fault in outcome.faults]

    print(" | ".join([*row(outcomes), took]), *faults, sep="\n", flush=True)

    return outcomes


def row(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what is told of a pair: its names, and sums."""
    scenarios = [outcome for outcome in outcomes if outcome.scenario != WHOLE]
    good = sum(not outcome.problems for outcome in scenarios)
    figures = ("calls", "questions", "turns", "misses", "differing")
    sums = [
        str(sum(getattr(outcome, name) for outcome in outcomes)) for name in figures
    ]

    return [
        outcomes[0].server,
        outcomes[0].client,
        f"{good} of {len(scenarios)}",
        *sums,
    ]


def pairs_of(options: argparse.Namespace) -> list[Pair]:
    """Return the pairs that the command line names, or all."""
    return [
        Pair(
            server,
            client,
            scenarios,
            patience=options.patience,
            is_piped=over == "pipes",
        )
        for over in options.over or ["sockets", "pipes"]
        for server in SERVERS
        for client in (CLIENTS[name] for name in server.clients)
        if not options.server or server.name in options.server
        if not options.client or client.name in options.client
        if over == "sockets" or client.name in server.piped_clients
        if (scenarios := scenarios_of(server, client, over, options.scenario))
    ]


def main() -> int:
    """Run what the command line names, or all pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = partial(parser.add_argument, action="append", default=[])
    add("--server", choices=[server.name for server in SERVERS], metavar="NAME")
    add("--client", choices=list(CLIENTS), metavar="NAME")
    add("--scenario", metavar="NAME")
    add("--over", choices=["sockets", "pipes"])
    parser.add_argument("--patience", type=float, default=PATIENCE_S)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    pairs = pairs_of(options)
    clients = {pair.client for pair in pairs}
    peers = (
        {pair.server for pair in pairs}
        | clients
        | {CLIENTS[client.other] for client in clients}
    )

    try:
        install(*sorted({peer.environment for peer in peers}))
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 2

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run_pair, pairs))

    failed = 0
    for outcomes in results:
        failed += sum(bool(outcome.faults) for outcome in outcomes)

    print(f"{sum(map(len, results)) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
