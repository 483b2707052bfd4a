"""The surfaces that stay from version 1.0 on are pinned in tests/data/surfaces.txt: a change is a decision."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from shutil import copy
from urllib.request import Request, urlopen

from commands import walk
from goldens import DATA, expect_file
from playing import serving
from processes import CASSETTES
from samples import members, sample

import mrtr_cassette
from mrtr_cassette import (
    CallResult,
    CassetteComparison,
    Probing,
    Verification,
    options,
    pytest_plugin,
)
from mrtr_cassette.cli import main
from mrtr_cassette.core.report.comparison import comparison_data, verification_data
from mrtr_cassette.core.report.coverage import coverage_data, coverage_of
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.probes import probings_data
from mrtr_cassette.core.report.runs import (
    RecordingReport,
    ReplayReport,
    call_data,
    summary_data,
)
from mrtr_cassette.core.report.text import inspection_data
from mrtr_cassette.core.report.trials import TrialsReport, trials_data
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.testing import settings
from mrtr_cassette.testing.names import NODE_KINDS_BY_FIXTURE

GOLDEN = DATA / "surfaces.txt"
FURTHER_FIXTURES = ("mrtr_cassettes", "mrtr_upstream", "mrtr_cassette_config")


def parameters() -> Iterator[str]:
    """Yield a line for every argument and option of every command."""
    for path, command in walk(main, ("mrtr-cassette",)):
        for parameter in command.params:
            flags = " ".join([*parameter.opts, *parameter.secondary_opts])
            yield f"{' '.join(path)} {flags} {parameter.metavar or ''}".rstrip()


def library() -> Iterator[str]:
    """Yield a line for every exported name, with its parameters, or the fields of options."""
    for name in sorted(mrtr_cassette.__all__):
        exported = getattr(mrtr_cassette, name)
        if is_dataclass(exported) and name.endswith("Options"):
            for field in fields(exported):
                has_default = field.default is not MISSING and not callable(
                    field.default
                )
                default = f" = {field.default!r}" if has_default else ""
                yield f"{name}.{field.name}{default}"
        elif inspect.isfunction(exported):
            parameters = inspect.signature(exported).parameters.values()
            yield f"{name}({', '.join(str(p).partition(':')[0] for p in parameters)})"
        else:
            yield name


def suites() -> Iterator[str]:
    """Yield the arguments of the marker, which are those of a play too, and the fixtures."""
    yield from sorted(f"marker {name}" for name in settings.OPTION_NAMES)
    for name in (*NODE_KINDS_BY_FIXTURE, *FURTHER_FIXTURES):
        assert hasattr(pytest_plugin, name)
        yield f"fixture {name}"

    yield from (f"mode {mode}" for mode in options.MODES)


KEYS_ARE_DATA = {
    "answered",
    "asked",
    "counts",
    "error",
    "learned",
    "result",
    "sends_back",
    "tools",
    "unknown_tools",
}
"""Members whose value has names of the recorded conversation for its members, or verdicts."""


def reports() -> Iterator[str]:
    """Yield a line for every member of the reports for programs."""
    details = details_of(load_cassette(CASSETTES / "demo-server.json"))
    made = {
        "call": call_data(sample(CallResult)),
        "coverage": coverage_data(coverage_of([details])),
        "diff": comparison_data(sample(CassetteComparison)),
        "inspect": inspection_data(details),
        "probe": probings_data([sample(Probing)]),
        "record": summary_data(sample(RecordingReport)),
        "replay": summary_data(sample(ReplayReport)),
        "trials": trials_data(sample(TrialsReport)),
        "verify": verification_data([sample(Verification)]),
    }
    for name, report in made.items():
        for member in sorted(set(members(report, KEYS_ARE_DATA))):
            yield f"report of {name}: {member}"


def plays(folder) -> Iterator[str]:
    """Yield a line for every member of what `serve` says of a play."""
    copy(CASSETTES / "demo-server.json", folder)
    with serving(folder) as serve:
        began = serve.begin("demo-server.json")
        request = Request(began["url"], b'{"jsonrpc":"2.0","id":1,"method":"x"}')
        urlopen(request).read()
        ended = serve.end(began)

    for when, answer in ("begins", began), ("ends", ended):
        for member in sorted(set(members(answer, KEYS_ARE_DATA))):
            yield f"play that {when}: {member}"


def test_surfaces_are_as_promised(updates_goldens, tmp_path):
    """Commands and options, exported names, the marker, fixtures, modes and reports are in one file."""
    lines = [*parameters(), "", *library(), "", *suites(), "", *reports(), ""]
    lines += [*plays(tmp_path), ""]
    expect_file(GOLDEN, "\n".join(lines), updates=updates_goldens)
