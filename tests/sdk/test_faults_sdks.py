"""Faults as the clients of the official SDKs see them, in plays of one `serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playing import Serve, serving
from processes import PEERS, RunClient, Side, listening, run

COMMITTED = Path(__file__).parents[2] / "cassettes"
BOTH_ERAS = (sys.executable, str(PEERS / "server_both_eras.py"))
EXPIRED = 'error -32602 "Invalid or expired requestState"'
REFUSED = "-32603 Server returned an error response"
CASES: dict[str, tuple[dict[str, Any], dict[Side, str]]] = {
    "list": (
        {"method": "tools/list", "status": 401},
        {"python": REFUSED, "typescript": "status: 401"},
    ),
    "deploy": (
        {"tool": "deploy", "occurrence": 1, "status": 429, "retry_after": 1},
        {"python": REFUSED, "typescript": "status: 429"},
    ),
    "release-train": (
        {"tool": "release-train", "expired_state": True},
        {"python": EXPIRED, "typescript": EXPIRED},
    ),
    "add": (
        {"tool": "add", "drop": "body"},
        {"python": "peer closed connection", "typescript": "other side closed"},
    ),
}


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """A process that plays the committed cassettes."""
    with serving(COMMITTED) as process:
        yield process


@pytest.mark.parametrize("flow", CASES)
@pytest.mark.parametrize("side", ["python", "typescript"])
def test_a_client_meets_a_fault_and_then_the_recorded_answer(
    side: Side, flow: str, serve: Serve, run_client: RunClient
) -> None:
    """Each SDK's client sees what goes wrong; one that comes again gets all, and nothing misses."""
    fault, seen = CASES[flow]
    play = serve.begin("python-sdk", faults=[{**fault, "occurrence": 1}])
    failed = run_client(side, play["url"], "--flow", flow)
    again = run_client(side, play["url"], "--flow", flow)
    ended = serve.end(play)

    assert failed.code == 1
    assert seen[side] in failed.stdout + failed.stderr
    assert again.code == 0, again.stderr
    assert (ended["misses"], ended["problems"]) == ([], [])

    (outcome,) = ended["faults"]

    assert (outcome["came"], outcome["times"]) == (1, 1)


def test_a_client_is_told_that_its_session_is_lost(tmp_path: Path) -> None:
    """A client of the 2025 era gets 404 for its session, and begins another one."""
    client = (sys.executable, str(PEERS / "client_python.py"))
    with listening(BOTH_ERAS) as server, serving(tmp_path) as serve:
        play = serve.begin("session", upstream=server.url)
        recorded = run((*client, play["url"], "--legacy"))

        assert serve.end(play)["problems"] == [], recorded

    fault = {"method": "tools/call", "occurrence": 1, "session_lost": True}
    with serving(tmp_path) as serve:
        play = serve.begin("session", faults=[fault])
        failed = run((*client, play["url"], "--legacy"))
        again = run((*client, play["url"], "--legacy"))
        ended = serve.end(play)

    assert failed.code == 1
    assert "Session terminated" in failed.stdout + failed.stderr
    assert (again.code, again.stdout) == (0, recorded.stdout)
    assert (ended["misses"], ended["problems"]) == ([], [])
