from __future__ import annotations

import subprocess
import sys

import pytest
from processes import PEERS, listening, peer
from suites import AGENT, SERVER, Suite

import mrtr_cassette


@pytest.fixture
def suite(pytester, monkeypatch):
    """A project with tests of its own, in no CI."""
    for name in ("CI", "MRTR_CASSETTE_MODE"):
        monkeypatch.delenv(name, raising=False)
    return Suite(pytester)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A cassette of one accepted deployment."""
    folder = tmp_path_factory.mktemp("recorded")
    path = folder / "deploy.json"
    (folder / "agent.py").write_text(AGENT.format(server=SERVER, peers=str(PEERS)))
    with (
        listening((*peer("server", "python"), "--port", "0")) as server,
        mrtr_cassette.record(server.url, path) as recording,
    ):
        subprocess.run([sys.executable, str(folder / "agent.py"), recording.url], check=True)
    return path
