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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from processes import ProcessError
from wild.pairs import PATIENCE_S, WHOLE, Outcome, Pair
from wild.peers import CLIENTS, SERVERS, Client, Server, install


@dataclass(frozen=True)
class Job:
    """A pair to run, and how."""

    server: Server
    client: Client
    is_piped: bool
    others: Sequence[Client]
    only: Sequence[str]
    patience: float
    is_apart: bool

    @property
    def scenarios(self) -> list[str]:
        """Return the scenarios that this pair has and that are wanted."""
        era = self.client.era
        offered = self.server.scenarios.get(era, ())
        if self.is_piped and offered:
            offered = self.server.piped_scenarios(era)
        return [name for name in offered if not self.only or name in self.only]

    def run(self) -> list[Outcome]:
        """Run it in a directory of its own, and tell what came of it."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="wild-") as directory:
            outcomes = Pair(
                self.server,
                self.client,
                Path(directory),
                self.scenarios,
                patience=self.patience,
                is_piped=self.is_piped,
                is_apart=self.is_apart,
            ).run(self.others)
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


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Return the pairs that the command line names, or all."""
    jobs = [
        Job(
            server,
            client,
            over == "pipes",
            [] if options.no_others else [CLIENTS[client.other]],
            options.scenario,
            options.patience,
            options.apart,
        )
        for over in options.over or ["sockets", "pipes"]
        for server in SERVERS
        for client in (CLIENTS[name] for name in server.clients)
        if not options.server or server.name in options.server
        if not options.client or client.name in options.client
        if over == "sockets" or client.name in server.piped_clients
    ]
    return [job for job in jobs if job.scenarios]


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
    jobs = jobs_of(options)
    peers = {peer for job in jobs for peer in (job.server, job.client, *job.others)}
    try:
        install(*sorted({peer.environment for peer in peers}))
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(Job.run, jobs))
    if options.table is not None:
        rows = ["| " + " | ".join(row(outcomes)) + " |" for outcomes in results]
        options.table.write_text("\n".join([*rows, ""]), encoding="utf-8")
    failed = sum(bool(each.faults) for outcomes in results for each in outcomes)
    print(f"{sum(map(len, results)) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
