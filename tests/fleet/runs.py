"""A fleet under load: clients have conversations while a replica dies and another one comes."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.balancers import Balancer, Fleet, at, balancing
from fleet.clients import Tally, converse
from processes import PROGRAM, PYTHON, TESTS, listening, record_command

CONFIG: dict[Balancer, str] = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
UPSTREAM = (*PYTHON, str(TESTS.parent / "bench" / "servers.py"), "upstream")
"""A server whose request states say all that it has to know: any instance of it answers any."""


def record(path: Path, conversations: int) -> None:
    """Record conversations, one after the other."""
    with listening(UPSTREAM) as server:
        record_from(server.url, path, conversations)


def record_from(upstream: str, path: Path, conversations: int) -> None:
    """Record conversations with a server, one after the other."""
    with listening(record_command(upstream, path), signal.SIGINT) as proxy:
        tally = asyncio.run(converse(proxy.url, lambda _: iter(range(conversations)), 1))
    assert (proxy.code, tally.finished) == (0, conversations), proxy.stderr


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        command: what a replica is.
        distinct: how many conversations there are before they come again.
        dies, comes: the replicas that are killed and started meanwhile.
    """

    balancer: Balancer
    command: tuple[str, ...]
    distinct: int
    conversations: int
    clients: int
    dies: str
    comes: str

    def hold(self, fleet: Fleet, folder: Path) -> Tally:
        folder.mkdir()

        def numbers(tally: Tally) -> Iterator[int]:
            for number in itertools.count():
                if number == self.conversations // 3:
                    fleet.replicas.pop(self.dies).kill()
                if number == self.conversations // 2:
                    # The clients rest until it listens; the balancer has to find it itself.
                    fleet.start(self.comes, *self.command).await_listening()
                has_come = tally.by_replica[at(self.comes, fleet)] > 0
                if number >= self.conversations and has_come:
                    return
                yield number % self.distinct

        with balancing(self.balancer, CONFIG[self.balancer], fleet, folder) as balancer:
            return asyncio.run(converse(balancer.url, numbers, self.clients))


def stateless(cassette: Path, *options: str) -> tuple[str, ...]:
    """Return the command of a replica, without its address."""
    return (*PROGRAM, "replay", str(cassette), "--stateless", *options)
