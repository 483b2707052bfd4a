"""Faults planted in a server, one at a time: each is found by the probe that is named for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import looped
from probed import FAULTS, TWINS, Probed, probed, record

from mrtr_cassette.core.report.probes import Probing
from mrtr_cassette.options import ProbeOptions
from mrtr_cassette.shell.runs import probing
from mrtr_cassette.shell.runs.probing import probe_cassette

CALLS = {
    "deploy": [("deploy", {"env": "staging"}), ("wipe", {"env": "staging"})],
    "release": [("release", {"version": "1.0"})],
    "order": [("order", {"shop": "corner"})],
    "resize": [("resize", {"group": "web"})],
    "survey": [("survey", {"topic": "tea"})],
    "signin": [("signin", {"site": "forge"})],
}
"""The calls of each cassette, by the tool that it is for."""
ANCIENT_S = 1_000
"""How old a state gets where the server's clock is put forward."""


async def _recorded(servers: Probed, folder: Path) -> Mapping[str, Path]:
    """Record a server without a fault; somebody has visited the page that it names."""
    servers.servers["good"].visits = 1
    cassettes: dict[str, Path] = {}
    for tool, calls in CALLS.items():
        cassettes[tool] = folder / f"{tool}.json"
        await record(servers.url("good"), cassettes[tool], calls)
    return cassettes


async def _probed(
    servers: Probed, name: str, cassette: Path, only: Collection[str] = ()
) -> Probing:
    options = ProbeOptions(slow=ANCIENT_S, timeout=1, only=only)
    return await probe_cassette(cassette, servers.url(name), options)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> list[Probed]:
    """Have whoever waits for a state to get old put the clocks of servers forward instead."""
    running: list[Probed] = []

    async def later(seconds: float) -> None:
        for servers in running:
            for server in servers.servers.values():
                server.clock += seconds

    monkeypatch.setattr(probing, "asyncio", SimpleNamespace(sleep=later))
    return running


@looped
async def test_each_fault_is_found_by_its_probe(
    tmp_path: Path, clocks: list[Probed]
) -> None:
    """Thirty faults, and none is missed."""
    async with probed() as servers:
        clocks.append(servers)
        cassettes = await _recorded(servers, tmp_path)
        missed: list[str] = []
        for fault in FAULTS:
            only = () if fault.probe == "state-other-tool" else (fault.tool,)
            cassette = cassettes[fault.tool]
            probing = await _probed(servers, fault.name, cassette, only)
            found = {(found.tool, found.probe) for found in probing.findings}
            if (fault.tool, fault.probe) not in found:
                missed.append(f"{fault}\n{probing.text}")
    assert len(FAULTS) == 30
    assert not missed, "\n\n".join(missed)


@looped
async def test_a_first_question_is_judged_by_the_end(
    tmp_path: Path, clocks: list[Probed]
) -> None:
    """A server may ask on after a no, and act or not: the call is answered to its end."""
    async with probed() as servers:
        clocks.append(servers)
        cassettes = await _recorded(servers, tmp_path)
        verdicts = {}
        for name in ("good-late", "false"):
            probing = await _probed(servers, name, cassettes["release"])
            for made in probing.probes:
                if (made.probe, made.turn) == ("accepted-false", 1):
                    verdicts[name] = (made.verdict, made.received)
    assert verdicts["good-late"][0] == "changed"
    assert "cancelled in the end" in (verdicts["good-late"][1] or "")
    assert verdicts["false"][0] == "acted"
    assert "Released 1.0" in (verdicts["false"][1] or "")


@looped
async def test_nothing_is_found_in_a_server_without_a_fault(
    tmp_path: Path, clocks: list[Probed]
) -> None:
    """Whether it refuses by errors or in the end, asks again, or takes each state only once."""
    async with probed() as servers:
        clocks.append(servers)
        cassettes = await _recorded(servers, tmp_path)
        for twin in TWINS:
            for cassette in cassettes.values():
                probing = await _probed(servers, twin, cassette)
                assert not probing.findings, probing.text
                assert probing.is_reached
