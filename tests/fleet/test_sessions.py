"""Sessions that need one process reach it through a load balancer, whichever replica that is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from conversations import Conversation, hold, record, recorded_values
from fleet.balancers import BALANCERS, Balancer, Fleet, balancing
from goldens import DATA, read_case
from harness import http, looped
from processes import PROGRAM

REPLICAS = "ab"
SESSIONS = 12
CONFIG = {"haproxy": "haproxy-sessions.cfg", "nginx": "nginx-sessions.conf"}


PUSHED = Conversation(
    read_case(DATA / "conversations" / "pushed-under-the-id-of-the-call.case")
)


async def held(url: str) -> str:
    """Have the conversation, and return the id of its session."""
    values = recorded_values()
    await hold(PUSHED, url, values)
    return values.states["session"].decode()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two plain replicas of a cassette whose server pushes a question."""
    cassette = tmp_path_factory.mktemp("recorded") / "c.json"
    looped(record)(PUSHED, cassette)
    with Fleet() as fleet:
        for name in REPLICAS:
            fleet.start(name, *PROGRAM, "replay", str(cassette))

        for replica in fleet.replicas.values():
            replica.await_listening()

        yield fleet
        told = [replica.stop() for replica in fleet.replicas.values()]

    assert all("no misses" in text for text in told), told


@pytest.mark.parametrize("balancer", BALANCERS)
@looped
async def test_sessions_with_pushes_stay_with_their_replica(
    fleet: Fleet, tmp_path: Path, balancer: Balancer
) -> None:
    """Each byte is the recorded one, though all replicas give out the same ids."""
    with balancing(balancer, CONFIG[balancer], fleet, tmp_path) as proxy:
        ids = await asyncio.gather(*(held(proxy.url) for _ in range(SESSIONS)))

        assert len(set(ids)) == SESSIONS

        replicas, issued = zip(
            *(session_id.split(".") for session_id in ids), strict=True
        )

        assert set(replicas) == set(REPLICAS)
        assert len(set(issued)) < SESSIONS

        stranger = await http("GET", proxy.url, "Mcp-Session-Id: nobody.mrtr-session:1")

        assert stranger.status == 404


@pytest.mark.parametrize(("balancer", "status"), [("haproxy", 404), ("nginx", 502)])
@looped
async def test_session_of_a_dead_replica_is_led_to_no_other(
    fleet: Fleet, tmp_path: Path, balancer: Balancer, status: int
) -> None:
    """The other replica, which gives out the same ids, is not asked; a new session may begin."""
    if "a" in fleet.replicas:
        fleet.replicas.pop("a").kill()

    with balancing(balancer, CONFIG[balancer], fleet, tmp_path) as proxy:
        opened = await held(proxy.url)

        assert opened.startswith("b.")

        told = 503
        while told == 503:  # HAProxy takes it for alive until its first check
            told = (
                await http("GET", proxy.url, "Mcp-Session-Id: a.mrtr-session:1")
            ).status

        assert told == status
