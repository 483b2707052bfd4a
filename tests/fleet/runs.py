"""What the tests of replicas and of recorders have in common."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from fleet.balancers import Balancer
from fleet.clients import converse
from processes import PROGRAM, PYTHON, TESTS, listening, record_command

CONFIG: dict[Balancer, str] = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
UPSTREAM = (*PYTHON, str(TESTS.parent / "bench" / "servers.py"), "upstream")
"""A server whose request states say all that it has to know: any instance of it answers any."""


def record_from(upstream: str, path: Path, conversations: int) -> None:
    """Record conversations with a server, one after the other."""
    with listening(record_command(upstream, path), signal.SIGINT) as proxy:
        tally = asyncio.run(converse(proxy.url, lambda _: iter(range(conversations)), 1))
    assert (proxy.code, tally.finished) == (0, conversations), proxy.stderr


def stateless(cassette: Path, *options: str) -> tuple[str, ...]:
    """Return the command of a replica, without its address."""
    return (*PROGRAM, "replay", str(cassette), "--stateless", *options)
