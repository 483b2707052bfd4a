"""Facts about runs that are watched from outside: the admin port and what it serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from harness import http, looped, playing, post, taped, taping, until_stopped
from messages import message, result, tool_call
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from standin import Visit, json_response

from mrtr_cassette import replay
from mrtr_cassette.cli import common
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.admin import serving_admin
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.http.access import LOOPBACK
from mrtr_cassette.shell.metrics import Metrics
from mrtr_cassette.shell.replaying import replaying
from mrtr_cassette.shell.telemetry import Telemetry

OPENMETRICS = "Accept: application/openmetrics-text; version=1.0.0"


async def scraped(url: str | None) -> dict[tuple[str, ...], float]:
    """Return what a scrape says that is not zero, by name without its beginning and label values."""
    assert url is not None
    answer = await http("GET", f"{url}/metrics", OPENMETRICS)
    assert answer.head.values("content-type")[0].startswith("application/openmetrics-text;")
    return {
        (sample.name.removeprefix("mrtr_cassette_"), *sample.labels.values()): sample.value
        for family in openmetrics(answer.body.decode())
        for sample in family.samples
        if sample.value
    }


async def status(url: str | None, path: str, *headers: str, method: str = "GET") -> int:
    """Return how the admin port answers."""
    return (await http(method, f"{url}{path}", *headers)).status


@looped
async def test_a_replay_is_counted(tmp_path: Path) -> None:
    """Plays, misses, time and bytes of clients' requests; none of the admin port's own."""
    path = tmp_path / "c.json"
    await taped(path, (tool_call("book"), json_response(result({}))))
    async with playing(path, admin_port=0) as session:
        before = await scraped(session.admin_url)
        played = await post(session.url, tool_call("book"))
        missed = await post(session.url, tool_call("steal"))
        numbers = await scraped(session.admin_url)
    assert not [name for name in before if "loop_lag" not in name[0]]
    assert numbers["plays_total", "tools/call", "book"] == 1
    assert numbers["misses_total", "unknown-name"] == 1
    assert numbers["request_duration_seconds_count", "tools/call"] == 2
    assert numbers["sent_bytes_total",] == len(played.body) + len(missed.body)
    assert numbers["received_bytes_total",] > 100
    assert ("requests_in_flight",) not in numbers
    assert "steal" not in str(numbers)


@looped
async def test_a_recording_is_counted(tmp_path: Path) -> None:
    """Exchanges by their method, and a request that is not answered yet as one in flight."""
    goes_on, arrived = asyncio.Event(), asyncio.Event()

    async def waits(server: Visit) -> None:
        arrived.set()
        await goes_on.wait()
        await server.send(json_response(result({})))

    async with taping(tmp_path / "c.json", waits, admin_port=0) as tape:
        asking = asyncio.create_task(post(tape.url, message("ping")))
        await arrived.wait()
        assert (await scraped(tape.session.admin_url))["requests_in_flight",] == 1
        goes_on.set()
        await asking
        numbers = await scraped(tape.session.admin_url)
    assert numbers["exchanges_total",] == 1
    assert numbers["request_duration_seconds_count", "ping"] == 1
    assert ("requests_in_flight",) not in numbers


@looped
async def test_ready_lasts_until_the_run_begins_to_end(tmp_path: Path) -> None:
    """While requests are still answered, or cancelled, no new client is sent here any more."""
    path = tmp_path / "c.json"
    await taped(path, (tool_call("book"), json_response(result({}))))
    log: list[str] = []
    options = ReplayOptions(admin_port=0, log=log.append)
    async with until_stopped(replaying(path, options)) as (session, stop):
        url = session.admin_url
        assert log == [f"admin port on {url}"]
        assert await status(url, "/livez") == 200
        assert await status(url, "/readyz?verbose") == 200
        assert await status(url, "/other") == 404
        assert await status(url, "/mcp", "Content-Length: 0", method="POST") == 405
        assert await status(url, "/livez", "Host: rebound.example") == 403
        assert (await http("GET", session.url, target="/metrics")).status == 404
        await stop()
    with pytest.raises(ConnectionError):
        await status(url, "/livez")


@looped
async def test_a_drain_is_not_ready_and_alive() -> None:
    """Between the end of being ready and the end of the run the admin port still answers."""
    async with serving_admin(LOOPBACK, 0, lambda _: ("text/plain", b""), None) as admin:
        before = await status(admin.url, "/readyz")
        with admin.ready():
            ready = await status(admin.url, "/readyz")
        after = [await status(admin.url, path) for path in ("/readyz", "/livez")]
    assert (before, ready, after) == (503, 200, [503, 200])


@looped
async def test_how_late_the_event_loop_is_and_numbers_without_a_scrape() -> None:
    """Each look is one value of the histogram; what has gathered is counted by itself too."""
    times = iter([0.0, 0.35])
    late = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        if late.is_set():
            await asyncio.Event().wait()
        late.set()

    metrics = Metrics(Clock(lambda: next(times, 9.0), sleep))
    async with metrics.gathering():
        await late.wait()
    content_type, text = metrics.exposition("")
    (lag,) = [each for each in plain_text(text.decode()) if each.name.endswith("loop_lag_seconds")]
    total = {each.name: each.value for each in lag.samples}
    assert content_type.startswith("text/plain")
    assert total["mrtr_cassette_loop_lag_seconds_count"] == 1
    assert abs(total["mrtr_cassette_loop_lag_seconds_sum"] - 0.25) < 1e-9


def test_the_library_tells_where_the_admin_port_is(tmp_path: Path) -> None:
    """Without one there is none."""
    path = tmp_path / "c.json"
    asyncio.run(taped(path, (tool_call("book"), json_response(result({})))))
    with replay(path, admin_port=0) as watched, replay(path) as unwatched:
        assert str(watched.admin_url).startswith("http://127.0.0.1:")
        assert unwatched.admin_url is None


def test_a_missing_extra_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded or bound before."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError) as caught:
        Telemetry(ReplayOptions(admin_port=0))
    assert caught.value.in_terms(common.TERMS) == (
        "--admin-port needs prometheus_client, which is not installed; "
        "pip install 'mrtr-cassette[metrics]'"
    )


def test_what_nobody_watches_imports_nothing() -> None:
    """A run without an admin port has neither its modules nor those of the extra."""
    code = (
        "import sys, mrtr_cassette.shell.replaying, mrtr_cassette.shell.recording;"
        "print([n for n in sys.modules if n.startswith('prometheus')"
        " or n in ('mrtr_cassette.shell.admin', 'mrtr_cassette.shell.metrics')])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert printed.stdout == b"[]\n"
