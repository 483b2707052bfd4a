"""Replicas behind a load balancer: any of them answers any request, whoever dies and comes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet.balancers import Balancer, Fleet, balancing
from fleet.runs import CONFIG, Run, record, stateless
from processes import CASSETTES, TRANSCRIPTS, peer, run

DISTINCT = 30


@pytest.fixture(scope="module")
def cassette(tmp_path_factory):
    """A recording of conversations of three rounds."""
    path = tmp_path_factory.mktemp("recorded") / "rounds.json"
    record(path, DISTINCT)
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
    fleet: Fleet, cassette: Path, tmp_path: Path, balancer: Balancer, dies: str, comes: str
) -> None:
    """A request is lost only on a connection that died, so at most one for each client."""
    command = stateless(cassette)
    tally = Run(balancer, command, DISTINCT, 300, 30, dies, comes).hold(fleet, tmp_path / "run")
    assert (tally.wrong, tally.missed) == ([], {})
    assert all(count == 1 for count in tally.lost.values())
    assert tally.finished >= 300 - len(tally.lost)
    assert tally.moved
    assert len(tally.by_replica) == 4


def test_sdk_client_meets_another_replica_with_each_request(tmp_path: Path) -> None:
    """The Python SDK's client sees what it saw when it was recorded."""
    with Fleet() as fleet:
        for name in "ab":
            fleet.start(name, *stateless(CASSETTES / "python-sdk.json"))
        for replica in fleet.replicas.values():
            replica.await_listening()
        with balancing("haproxy", CONFIG["haproxy"], fleet, tmp_path) as balancer:
            done = run((*peer("client", "python"), balancer.url))
        told = [replica.stop() for replica in fleet.replicas.values()]
    assert (done.code, done.stdout) == (0, (TRANSCRIPTS / "python-sdk.txt").read_text())
    assert all("no misses" in text and "played 0" not in text for text in told), told
