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


def scenarios_of(server: Server, client: Client, over: str, only: Sequence[str]) -> list[str]:
    """Return the scenarios that a pair has and that are wanted."""
    offered = server.scenarios.get(client.era, ())
    if over == "pipes" and offered:
        offered = server.piped_scenarios(client.era)
    return [name for name in offered if not only or name in only]


def run_pair(pair: Pair, others: Sequence[Client]) -> list[Outcome]:
    """Run a pair in a directory of its own, and tell what came of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wild-") as directory:
        outcomes = pair.run(Path(directory), others)
    took = f"{time.monotonic() - started:.0f} s"
    faults = [f"  {each.scenario}: {fault}" for each in outcomes for fault in each.faults]
    print(" | ".join([*row(outcomes), took]), *faults, sep="\n", flush=True)
    return outcomes


def row(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what is told of a pair: its names, and sums."""
    sums = [
        sum(figures)
        for figures in zip(
            *(
                (each.calls, each.questions, each.turns, each.misses, each.differing)
                for each in outcomes
            ),
            strict=True,
        )
    ]
    scenarios = [each for each in outcomes if each.scenario != WHOLE]
    good = sum(not each.problems for each in scenarios)
    names = [outcomes[0].server, outcomes[0].client]
    return [*names, f"{good} of {len(scenarios)}", *map(str, sums)]


def pairs_of(options: argparse.Namespace) -> list[Pair]:
    """Return the pairs that the command line names, or all."""
    return [
        Pair(
            server,
            client,
            scenarios,
            patience=options.patience,
            is_piped=over == "pipes",
            is_apart=options.apart,
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
    parser.add_argument("--apart", action="store_true", help="a cassette for each scenario")
    parser.add_argument("--no-others", action="store_true")
    parser.add_argument("--patience", type=float, default=PATIENCE_S)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=Path, help="write the rows as Markdown")
    options = parser.parse_args()
    pairs = pairs_of(options)
    others = [[] if options.no_others else [CLIENTS[pair.client.other]] for pair in pairs]
    peers = {pair.server for pair in pairs} | {pair.client for pair in pairs}
    peers |= {other for each in others for other in each}
    try:
        install(*sorted({peer.environment for peer in peers}))
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run_pair, pairs, others))
    if options.table is not None:
        rows = ["| " + " | ".join(row(outcomes)) + " |" for outcomes in results]
        options.table.write_text("\n".join([*rows, ""]), encoding="utf-8")
    failed = sum(bool(each.faults) for outcomes in results for each in outcomes)
    print(f"{sum(map(len, results)) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
