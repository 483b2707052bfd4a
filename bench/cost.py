"""What the program costs in memory and time, by the size of a recording and where it is not used.

Owns: publishing, loading, starting, and the fixture; the targets of each.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from ground import MEGABYTE, Bench, peak_mb, per_second, run_timed, server
from load import Subject
from processes import PROGRAM
from results import ratio_of
from traffic import BARE, PATH, PLAIN

from mrtr_cassette.core.cassette.journal import JournalHeader, encode_journal_line
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.wire.http import End, Piece, Request, Response
from mrtr_cassette.shell.files.cassettes import journal_path
from mrtr_cassette.shell.files.journals import Journal


def growth(bench: Bench) -> None:
    """Measure what a recording's memory grows by, and how long its end takes."""
    peaks = []
    done = 0
    late = bench.size.growth[-1]
    with server("upstream") as upstream:
        with bench.recording(
            upstream.url, "growth.json", bench.size.loops[0], signal.SIGTERM
        ) as ours:
            for count in bench.size.growth:
                bench.load(
                    PLAIN,
                    bench.size.usual,
                    Subject("record", ours.url, distinct=count, first=done),
                    rounds=1,
                    warm_up_s=0.0,
                    seconds=3600.0,
                    conversations=count - done,
                )
                done = count
                peaks.append(peak_mb(ours.pid))
                what = "peak memory of a recording under way"
                bench.results.fact(what, "MB", peaks[-1], size=count)
            ended = time.perf_counter()
        took = time.perf_counter() - ended
    if f" {late} exchanges recorded" not in ours.stderr:
        bench.results.problems.append(
            f"a recording of {late:,} ended with: {ours.stderr}"
        )
    bench.results.fact("end of a recording, publishing included", "s", took, size=late)
    what = f"memory growth of a recording from {bench.size.growth[0]:,} to {late:,} exchanges"
    bench.results.at_most(what, peaks[1] - peaks[0], 20.0, "MB")


def sizes(bench: Bench) -> None:
    """Publish, inspect and load cassettes of several sizes, and replay them in turns."""
    loop = bench.size.loops[0]
    with ExitStack() as stack:
        subjects = []
        for count in bench.size.interactions:
            path = bench.folder / f"{count}.json"
            _published(bench, count, path)
            _inspected(bench, count, path)
            _started(bench, count, path)
            ours = stack.enter_context(bench.replaying(path, loop))
            subjects.append(Subject(f"{count}", ours.url, distinct=count))
        stints = bench.load(BARE, bench.size.usual, *subjects)
    rates = {int(name): per_second(taken) for name, taken in stints.items()}
    for count, samples in rates.items():
        if samples:
            bench.results.fact("replay of calls", "requests/s", *samples, size=count)
    smallest, largest = min(rates), max(rates)
    ratio = ratio_of(rates[largest], rates[smallest])
    what = f"replay throughput with {largest:,} interactions against {smallest:,}"
    bench.results.at_least(what, ratio, 0.95)


def _published(bench: Bench, count: int, path: Path) -> None:
    """Write the journal of a recording that was killed, and publish it."""
    _write_journal(path, count)
    journal = journal_path(path).stat().st_size / MEGABYTE
    took, memory, _ = run_timed([*PROGRAM, "recover", str(path)])
    cassette = path.stat().st_size / MEGABYTE
    bench.results.fact("size of the journal", "MB", journal, size=count)
    bench.results.fact("size of the cassette", "MB", cassette, size=count)
    bench.results.fact("publishing (`recover`)", "s", took, size=count)
    bench.results.fact("publishing, peak memory", "MB", memory, size=count)


def _inspected(bench: Bench, count: int, path: Path) -> None:
    took, memory, output = run_timed([*PROGRAM, "inspect", str(path)])
    shown = len(output.encode()) / MEGABYTE
    bench.results.fact("`inspect`", "s", took, size=count)
    bench.results.fact("`inspect`, peak memory", "MB", memory, size=count)
    bench.results.fact("`inspect`, size of what it prints", "MB", shown, size=count)


def _started(bench: Bench, count: int, path: Path) -> None:
    ready, peaks, parsed = [], [], []
    for _ in range(bench.size.repeats):
        _, _, output = run_timed([sys.executable, "-c", _LOADS, str(path)])
        parsed.append(float(output))
        started = time.perf_counter()
        with bench.replaying(path, bench.size.loops[0]) as ours:
            ready.append(time.perf_counter() - started)
            peaks.append(peak_mb(ours.pid))
    loads = bench.results.fact("`orjson.loads` of the file", "s", *parsed, size=count)
    start = bench.results.fact("replay is ready after", "s", *ready, size=count)
    peak = bench.results.fact("replay is ready, peak memory", "MB", *peaks, size=count)
    if count == max(bench.size.interactions):
        what = f"ready to serve with {count:,} interactions, less 0.3 s, against `orjson.loads`"
        bench.results.at_most(what, (start.median - 0.3) / loads.median, 2.5)
        what = f"peak memory with {count:,} interactions against the file"
        bench.results.at_most(what, peak.median * MEGABYTE / path.stat().st_size, 5.0)


def idle(bench: Bench) -> None:
    """Measure what the program costs where it is not used."""
    commands = {
        "interpreter's own start": [sys.executable, "-c", "pass"],
        "`mrtr-cassette --help`": [*PROGRAM, "--help"],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(2 * bench.size.repeats):
        for name, command in commands.items():
            samples[name].append(run_timed(command)[0] * 1000)
    bare, shown = (
        bench.results.fact(name, "ms", *times) for name, times in samples.items()
    )
    difference = shown.median - bare.median
    bench.results.at_most(
        "`--help` more than the interpreter's start", difference, 150.0, "ms"
    )
    _ready_against_importing(bench)
    command = [sys.executable, "-c", _IMPORTS_PLUGIN]
    imports = [float(run_timed(command)[2]) for _ in range(2 * bench.size.repeats)]
    cost = bench.results.fact("importing the pytest plugin", "ms", *imports)
    bench.results.at_most("importing the pytest plugin", cost.median, 5.0, "ms")


def _ready_against_importing(bench: Bench) -> None:
    """Compare the start of a replay with importing what it is built on, in turns."""
    path = bench.folder / "smallest.json"
    _write_journal(path, 1)
    run_timed([*PROGRAM, "recover", str(path)])
    ready, imported = [], []
    for _ in range(2 * bench.size.repeats):
        imported.append(run_timed([sys.executable, "-c", _IMPORTS_LIBRARIES])[0] * 1000)
        started = time.perf_counter()
        with bench.replaying(path, bench.size.loops[0]):
            ready.append((time.perf_counter() - started) * 1000)
    bench.results.fact(
        "importing aiohttp.web, pydantic, click, orjson", "ms", *imported
    )
    bench.results.fact("replay of one interaction is ready after", "ms", *ready)
    ratio = ratio_of(ready, imported)
    bench.results.at_most("replay ready, against importing its libraries", ratio, 1.1)


def fixture(bench: Bench) -> None:
    """Measure what the fixture adds to a replayed test: its set-up and its teardown."""
    folder = bench.folder / "suite"
    folder.mkdir()
    path = folder / "cassettes" / "one.json"
    path.parent.mkdir()
    _write_journal(path, 1)
    run_timed([*PROGRAM, "recover", str(path)])
    (folder / "conftest.py").write_text(_TIMES_PHASES)
    body = BARE.request(1, 0, b"")
    (folder / "test_replayed.py").write_text(
        _REPLAYS.format(body=body, count=20 * bench.size.repeats)
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={folder}",
    ]
    _, _, output = run_timed([*command, str(folder)])
    times = [
        float(line.split()[1])
        for line in output.splitlines()
        if line.startswith("phases ")
    ]
    cost = bench.results.fact(
        "fixture of a replayed test, set-up and teardown", "ms", *times
    )
    bench.results.at_most("fixture of a replayed test", cost.median, 4.0, "ms")


_LOADS = """
import sys, time, orjson
from pathlib import Path
data = Path(sys.argv[1]).read_bytes()
started = time.perf_counter()
tree = orjson.loads(data)
print(time.perf_counter() - started)
"""
_IMPORTS_LIBRARIES = "import aiohttp.web, pydantic, click, orjson"
_IMPORTS_PLUGIN = """
import time, pytest
started = time.perf_counter()
import mrtr_cassette.pytest_plugin
print((time.perf_counter() - started) * 1000)
"""


_TIMES_PHASES = """
import time
import pytest

spent = {}

def timed(item, since=None):
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        spent[item] = spent.get(item, 0.0) + time.perf_counter() - started

pytest_runtest_setup = pytest.hookimpl(wrapper=True)(timed)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    yield from timed(item)

def pytest_terminal_summary(terminalreporter):
    for seconds in spent.values():
        terminalreporter.write_line(f"phases {seconds * 1000}")
"""
_REPLAYS = """
import http.client
from urllib.parse import urlsplit
import pytest

@pytest.mark.parametrize("number", range({count}))
@pytest.mark.mrtr_cassette("one.json")
def test_replayed(mrtr_cassette, number):
    connection = http.client.HTTPConnection(urlsplit(mrtr_cassette.url).netloc)
    headers = {{"content-type": "application/json", "mcp-protocol-version": "2026-07-28"}}
    connection.request("POST", "/mcp", {body!r}, headers)
    assert connection.getresponse().status == 200
    connection.close()
"""


def _write_journal(cassette: Path, count: int) -> None:
    """Write what a killed recording of calls would have left."""
    header = JournalHeader(
        upstream=f"http://127.0.0.1{PATH}",
        request_state="sealed",
        recorded_at="2026-01-01T00:00:00+00:00",
        existing="keep",
        redaction={"patterns": [], "keys": [], "disabled": []},
    )
    asking = (
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-method", "tools/call"),
        ("mcp-name", BARE.name),
        ("mcp-protocol-version", "2026-07-28"),
    )
    journal = Journal(cassette, header)
    for number in range(1, count + 1):
        identity = 1_000_000 + number
        request = Request("POST", PATH, asking, BARE.request(identity, number - 1, b""))
        (answer,) = BARE.answer(b"%d" % identity, b"%d" % (number - 1), 0)
        piece = Piece(answer, float(number), number)
        response = Response(
            200, (("content-type", BARE.content_type),), (piece,), End.COMPLETE
        )
        times = float(number), number + 0.5
        journal.append(
            encode_journal_line(
                RecordedExchange(number, request, response, *times, None, None)
            )
        )
    journal.close()
