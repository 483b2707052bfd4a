"""Run pairs of third-party servers and clients, and say what became of each.

python -m wild.run [--server NAME]... [--client NAME]... [--scenario NAME]...
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from processes import ProcessError
from wild.pairs import PATIENCE_S, Outcome, Pair
from wild.peers import CLIENTS, SERVERS, Client, Server, install


def run_pair(
    server: Server,
    client: Client,
    others: Sequence[Client],
    only: Sequence[str],
    patience: float,
) -> list[Outcome]:
    """Run a pair in a directory of its own."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wild-") as directory:
        outcomes = Pair(server, client, Path(directory), only=only, patience=patience).run(others)
    failed = [outcome for outcome in outcomes if outcome.faults]
    print(
        f"{server.name} / {client.name}: {len(outcomes)} scenarios, "
        f"{sum(each.calls for each in outcomes)} calls, "
        f"{sum(each.questions for each in outcomes)} questions, "
        f"{sum(each.turns for each in outcomes)} turns, "
        f"{sum(each.misses for each in outcomes)} misses, "
        f"{sum(each.differing for each in outcomes)} differing lines, "
        f"{len(failed)} failed, {time.monotonic() - started:.0f} s",
        *(f"  {each.scenario}: {problem}" for each in failed for problem in each.faults),
        sep="\n",
        flush=True,
    )
    return outcomes


def main() -> int:
    """Run what the command line names, or all pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", default=[])
    parser.add_argument("--client", action="append", default=[])
    parser.add_argument("--scenario", action="append", default=[])
    parser.add_argument("--no-others", action="store_true")
    parser.add_argument("--patience", type=float, default=PATIENCE_S)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    pairs = [
        (server, client)
        for server in SERVERS
        for client in (CLIENTS[name] for name in server.clients)
        if client.era in server.scenarios
        if not options.server or server.name in options.server
        if not options.client or client.name in options.client
        if not options.scenario or set(options.scenario) & set(server.scenarios[client.era])
    ]
    try:
        install(*{peer.environment for pair in pairs for peer in (*pair, CLIENTS[pair[1].other])})
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 2

    def run(pair: tuple[Server, Client]) -> list[Outcome]:
        server, client = pair
        others = [] if options.no_others else [CLIENTS[client.other]]
        return run_pair(server, client, others, options.scenario, options.patience)

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [outcome for each in pool.map(run, pairs) for outcome in each]
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
