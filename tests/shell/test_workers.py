"""Facts about a replay by several processes, each of real ones.

A process of these has ended when all that have its output have, so no worker outlives its test.
"""

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from commands import caller, conversation, pinged, recorded
from harness import Process, command, connected, http, looped, post, request, run, taping
from messages import compact, message, result
from standin import JSON, answering, json_response

PING = request("POST", "/mcp", JSON, body=compact(message("ping")))


def workers_of(process: Process) -> list[int]:
    """Return the processes that a replay has started."""
    return [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


async def counted(admin: str, pings: int) -> None:
    """Wait until the metrics have so many plays; workers count there once a second."""
    metrics = b""
    while b'plays_total{method="ping",name=""} %d.0\n' % pings not in metrics:
        metrics = (await http("GET", f"{admin}/metrics")).body


async def refused(url: str) -> None:
    """Wait until nobody can connect; until then a worker may serve, or close what just came."""
    with suppress(ConnectionRefusedError):
        while True:
            with suppress(ConnectionResetError, asyncio.IncompleteReadError):
                await post(url, message("ping"))


@looped
async def test_what_workers_did_is_added_up_and_a_killed_ones_plays_count(tmp_path: Path) -> None:
    """Summary, report, code and metrics tell of all workers, also of one that was replaced."""
    path, report = await pinged(tmp_path / "c.json"), tmp_path / "r.json"
    options = "--port", 0, "--workers", 2, "--report", report, "--admin-port", 0
    async with command("replay", path, *options) as process:
        url = await process.listening()
        admin = (await process.said("admin port")).rpartition(" ")[2].strip()
        for _ in range(12):
            assert (await post(url, message("ping"))).status == 200
        await counted(admin, 12)
        first, second = workers_of(process)
        os.kill(first, signal.SIGKILL)
        told = await process.said("takes its place")
        assert told == "warning: worker 1 ended (SIGKILL); another one takes its place\n"
        replaced = workers_of(process)
        assert len(replaced) == 2
        assert second in replaced
        any_notification = {"jsonrpc": "2.0", "method": "notifications/any"}
        for _ in range(8):
            for each in (message("ping"), message("pong"), any_notification):
                await post(url, each)
        await counted(admin, 20)
        ended = await process.stopped(signal.SIGTERM)
    assert (ended.code, ended.out) == (1, "")
    *misses, said, harmless = ended.err.splitlines()
    assert sum(line.startswith("miss: unknown-method") for line in misses) == 8
    assert said == "played 1 of 1 interactions, 8 misses (unknown-method 8)"
    assert harmless.endswith("8 times: notifications/any")
    saved = json.loads(report.read_bytes())
    assert saved["interactions"][0]["plays"] == 20
    assert [miss["reason"] for miss in saved["misses"]] == ["unknown-method"] * 8
    assert [each["times"] for each in saved["harmless"]] == [8]


@looped
async def test_any_worker_goes_on_with_what_another_has_begun(tmp_path: Path) -> None:
    """Each request of a conversation comes on a connection of its own, to whichever worker."""
    path = await recorded(tmp_path / "c.json")
    async with command("replay", path, "--port", 0, "--workers", 3) as process:
        url = await process.listening()
        for _ in range(12):
            assert [each["result"] for each in (await conversation(url))[1:]] == [
                {"was": "decline"},
                {"was": "accept"},
            ]
        ended = await process.stopped()
    assert (ended.code, ended.err) == (0, "played 2 of 2 interactions, no misses\n")


@looped
async def test_what_no_worker_played_fails_where_that_is_asked_for(tmp_path: Path) -> None:
    """A command is served by workers; what it has left unplayed is a failure if it is to be one."""
    path = tmp_path / "c.json"
    async with taping(path, answering(*[json_response(result({}))] * 2)) as tape:
        await post(tape.url, message("ping"))
        await post(tape.url, message("pong"))
    options = "--port", 0, "--workers", 2, "--fail-on-unplayed", "--"
    ended = await run("replay", path, *options, *caller("ping"))
    assert ended.code == 1
    assert ended.err.splitlines()[0] == "played 1 of 2 interactions, no misses"
    assert (await run("replay", path, *options, *caller("ping", "pong"))).code == 0
    ended = await run("replay", path, *options, *caller())
    assert ended.err.splitlines()[-1].startswith("error: no client came; ")


@pytest.mark.parametrize("is_finished", [True, False])
@looped
async def test_requests_under_way_are_finished_when_a_replay_ends(
    tmp_path: Path,
    is_finished: bool,  # noqa: FBT001
) -> None:
    """After SIGTERM nobody connects, and what has begun is answered; a second one ends that too."""
    path = await pinged(tmp_path / "c.json")
    async with command("replay", path, "--port", 0, "--workers", 2) as process:
        url = await process.listening()
        async with connected(url) as idle, connected(url) as busy:
            await idle.write(PING)
            _, body = await idle.answer()
            await body.rest()
            await busy.write(PING[:-1])
            # Whichever worker has it, it knows of this connection when it has answered another.
            for _ in range(12):
                await post(url, message("ping"))
            process.kill(signal.SIGTERM)
            await idle.closed()
            await refused(url)
            if is_finished:
                await busy.write(PING[-1:])
                head, body = await busy.answer()
                assert json.loads(await body.rest())["result"] == {}
                assert head.values("connection") == ["close"]
            else:
                process.kill(signal.SIGTERM)
            await busy.closed()
        ended = await process.ended()
    assert (ended.code, ended.err) == (0, "played 1 of 1 interactions, no misses\n")


@looped
async def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    """No worker is left when the process that was started is killed, nor is the port in use."""
    path = await pinged(tmp_path / "c.json")
    async with command("replay", path, "--port", 0, "--workers", 3) as process:
        url = await process.listening()
        await post(url, message("ping"))
        workers = workers_of(process)
        assert len(workers) == 3
        os.kill(workers[0], signal.SIGKILL)
        await process.said("takes its place")
        ended = await process.stopped(signal.SIGKILL)
    assert (ended.code, ended.err) == (-signal.SIGKILL, "")
    await refused(url)


@looped
async def test_workers_that_die_at_once_are_not_replaced_for_ever(tmp_path: Path) -> None:
    """After three short lives in a row a replay says so and fails, with its summary."""
    path = await pinged(tmp_path / "c.json")
    async with command("replay", path, "--port", 0, "--workers", 1 + 1) as process:
        await process.listening()
        while process.process.returncode is None:
            with suppress(OSError, IndexError):
                os.kill(workers_of(process)[-1], signal.SIGKILL)
            await asyncio.sleep(0)
        ended = await process.ended()
    assert ended.code == 1
    *_, last, first, second = ended.err.splitlines()
    assert last.startswith("error: worker ")
    assert last.endswith(
        " ended (SIGKILL), and 3 in a row did within 1 s of their start; the replay ends"
    )
    assert first == "played 0 of 1 interactions, no misses"
    assert second == "  never played: #1 ping"
