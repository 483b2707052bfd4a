"""Real third-party servers and clients of the 2025 era; `make wild` runs many more pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import ProcessError
from wild.pairs import Pair
from wild.peers import CLIENTS, RESUMABLE, SERVERS, install

CORE = {
    ("typescript-v1 resumable", "typescript-v1"): (
        *RESUMABLE,
        "sampling",
        "together",
    ),
    ("python-v1 stateless JSON", "typescript-v1"): ("json",),
}
"""A server of each SDK; questions of two kinds, on the call's stream and on a listening one."""


@pytest.fixture(scope="session")
def installed() -> None:
    """Have the SDKs' v1 lines installed, or fail."""
    problem = ""
    try:
        install("python-v1", "node")
    except ProcessError as error:
        problem = str(error)

    if problem:
        pytest.fail(problem, pytrace=False)


@pytest.mark.parametrize(("server", "client"), CORE)
def test_recorded_and_replayed_is_as_direct(
    server: str, client: str, tmp_path: Path, installed: None
) -> None:
    """A client sees the same directly, through the recorder, and with the server gone.

    Another language's client sees it too.
    """
    (chosen,) = [known for known in SERVERS if known.name == server]
    second = CLIENTS["typescript-v1" if client == "python-v1" else "python-v1"]
    outcomes = Pair(chosen, CLIENTS[client], CORE[server, client]).run(
        tmp_path, [second], is_brief=True
    )
    calls = 0
    for outcome in outcomes:
        assert outcome.problems == [], outcome.scenario

        calls += outcome.calls

    assert calls > 0
