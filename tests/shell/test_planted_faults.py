"""Faults planted in a server, one at a time: each is found by the probe that is named for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import looped
from probed import FORMS, ROUNDS, TWINS, faults_of
from probed_http import ANSWERS, Probed, probed, record
from processes import PYTHON, TESTS

from mrtr_cassette import call, probe
from mrtr_cassette.core.drive.probing import Probe, ProbedAsk, probes_of_ask
from mrtr_cassette.core.report.probes import Probing
from mrtr_cassette.options import ProbeOptions
from mrtr_cassette.shell.runs import probing
from mrtr_cassette.shell.runs.probing import probe_cassette

DEPLOY = ("deploy", {"env": "staging"})
RELEASE = ("release", {"version": "1.0"})
CALLS = {
    "deploy": [DEPLOY, ("wipe", {"env": "staging"}), RELEASE],
    "order": [("order", {"shop": "corner"})],
    "resize": [("resize", {"group": "web"})],
    "survey": [("survey", {"topic": "tea"})],
    "signin": [("signin", {"site": "forge"})],
}
"""The calls of each cassette, by the tool that it is for; the first one is for all others."""

ANCIENT_S = 1_000
"""How old a state gets where the server's clock is put forward."""


async def _recorded(servers: Probed, folder: Path) -> Mapping[str, Path]:
    """Record a server without a fault."""
    cassettes: dict[str, Path] = {}
    for tool, calls in CALLS.items():
        cassettes[tool] = folder / f"{tool}.json"
        await record(servers, cassettes[tool], calls)

    return cassettes


async def _probed(
    servers: Probed, name: str, cassette: Path, only: Collection[str] = ()
) -> Probing:
    options = ProbeOptions(slow=ANCIENT_S, timeout=1, only=only)
    return await probe_cassette(cassette, servers.url(name), options)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> list[Probed]:
    """Have whoever waits for a state to get old put clocks forward, and be patient for no time."""
    running: list[Probed] = []

    async def later(seconds: float) -> None:
        for servers in running:
            for server in servers.servers.values():
                server.clock += seconds

    patient = SimpleNamespace(**vars(asyncio))
    patient.sleep = later
    monkeypatch.setattr(probing, "asyncio", patient)
    monkeypatch.setattr(probing, "_STILL_ASKED_S", 0.1)

    return running


@pytest.fixture
def made_probes(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Have only the probes made that are named here, and both noes, by which others are judged."""
    names: set[str] = set()

    def chosen(ask: ProbedAsk, *, is_slow: bool) -> list[Probe]:
        wanted = {"declined", "cancelled", *names}
        return [
            made for made in probes_of_ask(ask, is_slow=is_slow) if made.name in wanted
        ]

    monkeypatch.setattr(probing, "probes_of_ask", chosen)

    return names


@pytest.mark.parametrize("form", FORMS)
@looped
async def test_each_fault_is_found_by_its_probe(
    tmp_path: Path, clocks: list[Probed], made_probes: set[str], form: str
) -> None:
    """None is missed, however the server asks."""
    async with probed(form) as servers:
        clocks.append(servers)
        cassettes = await _recorded(servers, tmp_path)
        missed: list[str] = []
        for fault in faults_of(form):
            made_probes.clear()
            made_probes.add(fault.probe)
            only = () if fault.probe == "state-other-tool" else (fault.tool,)
            cassette = cassettes.get(fault.tool, cassettes["deploy"])
            probing = await _probed(servers, fault.name, cassette, only)
            found = {(found.tool, found.probe) for found in probing.findings}
            if (fault.tool, fault.probe) not in found:
                missed.append(f"{fault}\n{probing.text}")

    assert not missed, "\n\n".join(missed)


def test_more_than_thirty_faults_are_planted() -> None:
    """In a server that asks round after round; the other forms have those that make sense there."""
    assert [len(faults_of(form)) for form in FORMS] == [31, 17, 21]


@looped
async def test_a_first_question_is_judged_by_the_end(
    tmp_path: Path, clocks: list[Probed]
) -> None:
    """A server may ask on after a no, and act or not: the call is answered to its end."""
    async with probed(ROUNDS) as servers:
        clocks.append(servers)
        cassettes = await _recorded(servers, tmp_path)
        verdicts = {}
        for name in ("good-late", "false"):
            probing = await _probed(servers, name, cassettes["deploy"], ["release"])
            for made in probing.probes:
                if (made.probe, made.turn) == ("accepted-false", 1):
                    verdicts[name] = (made.verdict, made.received)

    assert verdicts["good-late"][0] == "changed"
    assert "cancelled in the end" in (verdicts["good-late"][1] or "")
    assert verdicts["false"][0] == "acted"
    assert "Released 1.0" in (verdicts["false"][1] or "")


@pytest.mark.parametrize("form", FORMS)
@looped
async def test_nothing_is_found_in_a_server_without_a_fault(
    tmp_path: Path, clocks: list[Probed], form: str
) -> None:
    """However it refuses: by errors, in the end, or by asking again; with no more requests than said."""
    async with probed(form) as servers:
        clocks.append(servers)
        cassettes = await _recorded(servers, tmp_path)
        for twin in TWINS[form]:
            tools = CALLS if twin == "good" else ("deploy",)
            # What is wiped is asked for as what is deployed.
            only = () if twin == "good" else ("deploy", "release")
            for tool in tools:
                probing = await _probed(servers, twin, cassettes[tool], only)

                assert not probing.findings, probing.text
                assert probing.is_reached, probing.text
                assert servers.servers[twin].taken <= probing.requests

                servers.servers[twin].taken = 0


@pytest.mark.parametrize("form", FORMS)
def test_faults_are_found_over_pipes(tmp_path: Path, form: str) -> None:
    """A process that ends, or a call without an answer, is nothing that the next probe notices."""
    server = [*PYTHON, str(TESTS / "probed.py"), form]
    cassette = tmp_path / "deploy.json"
    called = call([*server, "good"], *DEPLOY, answers=ANSWERS["deploy"], path=cassette)

    assert called.text == "Deployed to staging"

    found = {}
    for name in ("good", "decline", "dropped-connection", "hang"):
        probing = probe(cassette, [*server, name], timeout=2)
        found[name] = [(made.probe, made.verdict) for made in probing.findings]

    assert found == {
        "good": [],
        "decline": [("declined", "acted")],
        "dropped-connection": [("accepted-empty", "crashed")],
        "hang": [("cancelled", "crashed")],
    }
