from __future__ import annotations

import pytest
from suites import Suite

import mrtr_cassette
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import serving_application


@pytest.fixture
def suite(pytester, monkeypatch, forks_programs):
    """A project with tests of its own, in no CI."""
    for name in ("CI", "MRTR_CASSETTE_MODE"):
        monkeypatch.delenv(name, raising=False)

    return Suite(pytester)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A cassette of one accepted deployment."""
    path = tmp_path_factory.mktemp("recorded") / "deploy.json"
    with (
        in_thread(serving_application(create_app())) as upstream,
        mrtr_cassette.record(upstream, path) as recording,
    ):
        recording.call("deploy", {"env": "test"}, answers={"confirm": True})

    return path
