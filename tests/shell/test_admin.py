"""Facts about runs that are watched from outside: the admin port and what it serves."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from builders import retry, tool
from harness import http, looped, playing, post, taped, taping, until_stopped
from messages import YES, input_required, message, result, tool_call
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)
from standin import Visit, json_response

import mrtr_cassette
from mrtr_cassette import replay
from mrtr_cassette.cli import common
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.http.transport import Downstream
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.sites import Metrics, PortSite

OPENMETRICS = "Accept: application/openmetrics-text; version=1.0.0"


async def scraped(url: str | None) -> dict[tuple[str, ...], float]:
    """Return what a scrape says that is not zero, by name without its beginning and label values."""
    assert url is not None
    answer = await http("GET", f"{url}/metrics", OPENMETRICS)
    assert answer.head.values("content-type")[0].startswith(
        "application/openmetrics-text;"
    )
    values = {}
    for family in openmetrics(answer.body.decode()):
        for sample in family.samples:
            if sample.value:
                name = sample.name.removeprefix("mrtr_cassette_")
                values[name, *sample.labels.values()] = sample.value

    return values


async def status(url: str | None, path: str, *headers: str, method: str = "GET") -> int:
    """Return how the admin port answers."""
    return (await http(method, f"{url}{path}", *headers)).status


@looped
async def test_a_conversation_is_counted_where_it_is_recorded_and_where_it_is_replayed(
    tmp_path: Path,
) -> None:
    """Turns, exchanges or plays, misses, time and bytes; none of the admin port's own requests."""
    path = tmp_path / "c.json"
    requests = [tool("deploy"), retry(tool("deploy"), {"a": YES}, state="s")]
    goes_on = asyncio.Event()
    arrived = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.send(json_response(input_required("a", state="s")))
            return

        if visit.number == 3:
            visit.close()
            return

        arrived.set()
        await goes_on.wait()
        await visit.send(json_response(result({})))

    async with taping(path, script, admin_port=0) as tape:
        await post(tape.url, requests[0])
        finishing = asyncio.create_task(post(tape.url, requests[1]))
        await arrived.wait()
        under_way = await scraped(tape.recording_run.admin_url)
        goes_on.set()
        await finishing
        await post(tape.url, message("ping"))
        recorded = await scraped(tape.recording_run.admin_url)

    async with playing(path, admin_port=0) as replay_run:
        bodies = [
            (await post(replay_run.url, request)).body
            for request in (*requests, tool("x"))
        ]
        ping = await post(replay_run.url, message("ping"))
        played = await scraped(replay_run.admin_url)

    turns = {("asks_total", "result"): 1, ("answers_total", "result"): 1}

    assert under_way["requests_in_flight",] == 1
    assert (
        recorded.items()
        >= (turns | {("exchanges_total",): 2, ("unreachable_total",): 1}).items()
    )

    assert ("requests_in_flight",) not in recorded
    assert (
        played.items()
        >= (
            turns
            | {
                ("plays_total", "tools/call", "deploy"): 2,
                ("misses_total", "unknown-name"): 1,
                ("harmless_total",): 1,
                ("request_duration_seconds_count", "tools/call"): 3,
                ("sent_bytes_total",): sum(map(len, (*bodies, ping.body))),
            }
        ).items()
    )

    assert played["received_bytes_total",] > 100
    assert "exchanges_total" not in {name for name, *_ in played}


@looped
async def test_what_clients_make_up_is_no_label(tmp_path: Path) -> None:
    """A method that MCP does not name is `other`; neither URIs nor tools that are unknown are told."""
    path = tmp_path / "c.json"
    read = message("resources/read", {"uri": "file:///invented"})
    empty = json_response(result({}))
    await taped(path, (message("made/up"), empty), (read, empty))
    async with playing(path, admin_port=0) as replay_run:
        await post(replay_run.url, message("made/up"))
        await post(replay_run.url, read)
        await post(replay_run.url, tool("invented"))
        numbers = await scraped(replay_run.admin_url)

    assert numbers["plays_total", "other", ""] == 1
    assert numbers["plays_total", "resources/read", ""] == 1
    assert numbers["request_duration_seconds_count", "other"] == 1
    assert "invented" not in str(numbers)


@looped
async def test_ready_lasts_until_the_run_begins_to_end(tmp_path: Path) -> None:
    """While requests are still answered, or cancelled, no new client is sent here any more."""
    path = tmp_path / "c.json"
    await taped(path, (tool_call("book"), json_response(result({}))))
    log: list[str] = []
    options = ReplayOptions(admin_port=0, log=log.append)
    async with until_stopped(replaying(path, options)) as (replay_run, stop):
        url = replay_run.admin_url

        assert log == [f"admin port on {url}"]
        assert await status(url, "/livez") == 200
        assert await status(url, "/readyz?verbose") == 200
        assert await status(url, "/other") == 404
        assert await status(url, "/mcp", "Content-Length: 0", method="POST") == 405
        assert await status(url, "/livez", "Host: rebound.example") == 403
        assert (await http("GET", replay_run.url, target="/metrics")).status == 404

        await stop()

    with pytest.raises(ConnectionError):
        await status(url, "/livez")


@looped
async def test_a_drain_is_not_ready_and_alive() -> None:
    """Between the end of being ready and the end of the run the admin port still answers."""
    began = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(_: Request, downstream: Downstream) -> None:
        began.set()
        await go_on.wait()
        await downstream.send_response(200, (), b"")

    log: list[str] = []
    site = PortSite(ReplayOptions(admin_port=0), drain_s=60)
    with site.opened_url() as own_url:
        served = site.serving(slow, Announcer(log.append))
        async with until_stopped(served) as (url, stop):
            client = asyncio.create_task(http("GET", f"{own_url}/"))
            await began.wait()
            stopping = asyncio.create_task(stop())
            during = [await status(url, path) for path in ("/readyz", "/livez")]
            go_on.set()
            await asyncio.gather(stopping, client)

    assert during == [503, 200]


def test_the_guide_lists_every_metric() -> None:
    """The table of docs/fleet.md has the names of the metrics that are served."""
    guide = Path(mrtr_cassette.__file__).parents[1] / "docs" / "fleet.md"
    table = (
        guide.read_text(encoding="utf-8")
        .partition("| metric |")[2]
        .partition("\n\n")[0]
    )

    named = re.findall(r"`(?:mrtr_cassette|…)_(\w+?)(?:_total)?`", table)
    _, exposition = Metrics().metrics_page("application/openmetrics-text")
    served = openmetrics(exposition.decode())

    assert sorted(named) == sorted(
        family.name.removeprefix("mrtr_cassette_") for family in served
    )


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
        PortSite(ReplayOptions(admin_port=0))

    assert caught.value.in_terms(common.TERMS) == (
        "--admin-port needs prometheus_client, which is not installed; "
        "pip install 'mrtr-cassette[metrics]'"
    )
