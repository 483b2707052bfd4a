"""Replicas behind a load balancer: any of them answers any request, whoever dies and comes."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet.balancers import Balancer, Fleet, at, balancing
from fleet.clients import Tally, converse
from processes import PROGRAM, PYTHON, TESTS, listening, record_command

CONFIG: dict[Balancer, str] = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
UPSTREAM = (*PYTHON, str(TESTS.parent / "bench" / "servers.py"), "upstream")
"""A server whose request states say all that it has to know: any instance of it answers any."""

DISTINCT = 30
"""Conversations that were recorded; they come again and again."""

CONVERSATIONS = 300
CLIENTS = 30


def stateless(cassette: Path) -> tuple[str, ...]:
    """Return the command of a replica, without its address."""
    return (*PROGRAM, "replay", str(cassette), "--stateless")


@pytest.fixture(scope="module")
def cassette(tmp_path_factory):
    """A recording of conversations of three rounds."""
    path = tmp_path_factory.mktemp("recorded") / "rounds.json"
    with (
        listening(UPSTREAM) as server,
        listening(record_command(server.url, path), signal.SIGINT) as proxy,
    ):
        tally = asyncio.run(converse(proxy.url, lambda _: iter(range(DISTINCT)), 1))

    assert (proxy.code, tally.finished) == (0, DISTINCT), proxy.stderr
    return path


@pytest.fixture(scope="module")
def fleet(cassette):
    """Three stateless replicas, of which none ever missed."""
    with Fleet() as fleet:
        for name in "abc":
            fleet.start(name, *stateless(cassette))

        for replica in fleet.replicas.values():
            replica.await_listening()

        yield fleet
        told = [replica.stop() for replica in fleet.replicas.values()]

    assert all("no misses" in text for text in told), told


@pytest.mark.parametrize(
    ("balancer", "dies", "comes"), [("haproxy", "a", "d"), ("nginx", "b", "a")]
)
def test_replicas_die_and_come_and_no_answer_is_wrong(
    fleet: Fleet,
    cassette: Path,
    tmp_path: Path,
    balancer: Balancer,
    dies: str,
    comes: str,
) -> None:
    """A request is lost only on a connection that died, so at most one for each client."""

    def numbers(tally: Tally) -> Iterator[int]:
        for number in itertools.count():
            if number == CONVERSATIONS // 3:
                fleet.replicas.pop(dies).kill()

            if number == CONVERSATIONS // 2:
                # The clients rest until it listens; the balancer has to find it itself.
                fleet.start(comes, *stateless(cassette)).await_listening()

            if number >= CONVERSATIONS and tally.by_replica[at(comes, fleet)] > 0:
                return

            yield number % DISTINCT

    with balancing(balancer, CONFIG[balancer], fleet, tmp_path) as proxy:
        tally = asyncio.run(converse(proxy.url, numbers, CLIENTS))

    assert (tally.wrong, tally.missed) == ([], {})
    assert all(count == 1 for count in tally.lost.values())
    assert tally.finished >= CONVERSATIONS - len(tally.lost)
    assert tally.moved
    assert len(tally.by_replica) == 4
