"""Facts about what goes wrong around the proxy: crowds, exhausted limits, peers that fall silent.

Whatever happens to one client, the others are served, and what was recorded is published or stays
in the journal.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from harness import Process, command, connected, http, looped, post, read, request, run
from messages import compact, message, result
from standin import (
    CHUNKED,
    EVENTS,
    JSON,
    Script,
    Upstream,
    Visit,
    chunk,
    json_response,
    stream_head,
    upstream,
)


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process, and those that it starts, have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.fail(f"this test needs {count} open files, and the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def recorder(
    path: Path, script: Script, *options: object, **process: Any
) -> AsyncIterator[tuple[Process, str, Upstream]]:
    """Record a scripted upstream with `mrtr-cassette record` as a process."""
    async with upstream(script) as server:
        arguments = ("--upstream", server.url, "--output", path, "--port", 0, *options)
        async with command("record", *arguments, **process) as started:
            yield started, await started.listening(), server


async def echoing(visit: Visit) -> None:
    """Answer a request with its own id, whenever it comes."""
    asked = visit.request.json
    await visit.send(json_response(result({"of": asked["method"]}, id=asked["id"])))


# --- Crowds ---

CROWD = 300
CROWD_FILES = 3 * CROWD + 200


@looped
async def test_a_crowd_of_clients_at_once_is_recorded(tmp_path: Path) -> None:
    """Hundreds of calls that are all under way at once are answered, each its own, and kept."""
    path = tmp_path / "c.json"
    all_are_here = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number == CROWD:
            all_are_here.set()
        await all_are_here.wait()
        await echoing(visit)

    with many_files(CROWD_FILES):
        async with recorder(path, script) as (process, url, server):
            calls = (post(url, message("m", {"n": n}, id=n)) for n in range(CROWD))
            answers = await asyncio.gather(*calls)
            ended = await process.stopped()
    assert [answer.json["id"] for answer in answers] == list(range(CROWD))
    assert {answer.status for answer in answers} == {200}
    assert len(server.received) == CROWD
    assert ended.code == 0
    kept = read(path)["interactions"]
    assert sorted(one["request"]["body"]["id"] for one in kept) == list(range(CROWD))


FEW_FILES = 64


def with_few_files() -> None:
    """Let the program that is started have few files open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))


@looped
async def test_when_descriptors_run_out_those_who_are_served_are_served_whole(
    tmp_path: Path,
) -> None:
    """More clients than the limit of open files allows get a 503 that says so, or the close.

    The others get their answers, though each needs a descriptor upstream, and what they got is
    published. When the first have left, others are let in.
    """
    path = tmp_path / "c.json"
    with many_files(1000):
        async with recorder(path, echoing, preexec_fn=with_few_files) as (process, url, server):
            async with AsyncExitStack() as stack:
                links = [await stack.enter_async_context(connected(url)) for _ in range(100)]
                served, refused = [], []
                for n, link in enumerate(links):
                    body = compact(message("m", id=n))
                    with suppress(ConnectionError):
                        await link.write(request("POST", "/mcp", JSON, body=body))
                for n, link in enumerate(links):
                    try:
                        head, content = await link.answer()
                    except (ConnectionError, asyncio.IncompleteReadError):
                        refused.append(n)
                        continue
                    answer = await content.rest()
                    if head.line.split()[1] == "200":
                        assert json.loads(answer)["id"] == n
                        served.append(n)
                    else:
                        assert head.line.split()[1] == "503"
                        assert b"ulimit -n" in answer
                        refused.append(n)
                assert len(served) + len(refused) == 100
                assert len(served) >= FEW_FILES // 8
            assert len(server.received) == len(served)
            later = await post(url, message("m", id=999))
            assert later.status == 200
            ended = await process.stopped()
    assert ended.code == 0
    assert ended.err.count("ulimit -n") == 1
    kept = [one["request"]["body"]["id"] for one in read(path)["interactions"]]
    assert sorted(kept) == [*served, 999]


@looped
async def test_a_process_may_open_more_files_than_a_shell_allows(tmp_path: Path) -> None:
    """The command line asks for as many open files as the system lets it have."""
    path = tmp_path / "c.json"

    def soft_limit() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, hard))

    with many_files(1000):
        async with recorder(path, echoing, preexec_fn=soft_limit) as (process, url, _):
            async with AsyncExitStack() as stack:
                for n in range(2 * FEW_FILES):
                    link = await stack.enter_async_context(connected(url))
                    body = compact(message("m", id=n))
                    await link.write(request("POST", "/mcp", JSON, body=body))
                    head, content = await link.answer()
                    assert head.line.split()[1] == "200"
                    await content.rest()
            assert (await process.stopped()).code == 0


# --- Files that can't be written ---


def without_root_rights() -> None:
    """Give up, in the program that is started, the right to write everywhere, which root has."""
    drop_from_bounding_set, write_everywhere = 24, 1
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(drop_from_bounding_set, write_everywhere, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


@looped
async def test_a_directory_that_cannot_be_written_at_the_end_keeps_the_journal(
    tmp_path: Path,
) -> None:
    """Where the cassette can't be published the journal stays, the error names it, the end is 3."""
    path = tmp_path / "folder" / "c.json"
    path.parent.mkdir()
    journal = path.with_name("c.json.journal")
    async with recorder(path, echoing, preexec_fn=without_root_rights) as (process, url, _):
        assert (await post(url, message("m"))).status == 200
        path.parent.chmod(0o500)
        try:
            assert (await post(url, message("m", id=2))).status == 200
            ended = await process.stopped()
        finally:
            path.parent.chmod(0o700)
    assert ended.code == 3
    assert f"mrtr-cassette recover {path}" in ended.err
    assert not path.exists()
    assert journal.exists()
    assert (await run("recover", path)).code == 0
    assert len(read(path)["interactions"]) == 2


# --- Peers that fall silent ---

SILENT = 20


@looped
async def test_an_upstream_that_never_answers_holds_up_nobody(tmp_path: Path) -> None:
    """Calls whose answer never begins end upstream when their clients leave, and are kept."""
    path = tmp_path / "c.json"
    have_come, have_left = asyncio.Event(), asyncio.Event()
    came = left = 0

    async def script(visit: Visit) -> None:
        nonlocal came, left
        if visit.request.json["method"] != "never":
            await echoing(visit)
            return
        came += 1
        if came == SILENT:
            have_come.set()
        await visit.left()
        left += 1
        if left == SILENT:
            have_left.set()

    async with recorder(path, script) as (process, url, _):
        async with AsyncExitStack() as stack:
            for n in range(SILENT):
                link = await stack.enter_async_context(connected(url))
                body = compact(message("never", id=n))
                await link.write(request("POST", "/mcp", JSON, body=body))
            await have_come.wait()
            assert (await post(url, message("other", id=99))).json["id"] == 99
        await have_left.wait()
        ended = await process.stopped()
    assert ended.code == 0
    kept = read(path)["interactions"]
    never = [one for one in kept if one["request"]["body"]["method"] == "never"]
    assert len(never) == SILENT
    assert len(kept) == SILENT + 1
    assert all("response" not in one and not one["elicitation_turns"] for one in never)


HALF_REQUESTS = (
    request("POST", "/mcp", JSON, "Content-Length: 5") + b"{",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-",
)


@looped
async def test_half_requests_hold_up_nobody(tmp_path: Path) -> None:
    """While others have sent half a request a whole one is served, and a signal ends all."""
    path = tmp_path / "c.json"
    async with recorder(path, echoing) as (process, url, server), AsyncExitStack() as stack:
        links = [await stack.enter_async_context(connected(url)) for _ in range(SILENT)]
        for at, link in enumerate(links):
            await link.write(HALF_REQUESTS[at % 2])
        assert (await post(url, message("whole"))).status == 200
        ended = await process.stopped(signal.SIGTERM)
        for link in links:
            await link.closed()
    assert ended.code == 0
    assert len(server.received) == len(read(path)["interactions"]) == 1


# --- Size ---

MIB = 1024 * 1024


@looped
async def test_a_request_that_is_too_large_is_refused_and_others_are_served(
    tmp_path: Path,
) -> None:
    """A body beyond --max-body gets a 413 that names the option; others pass, and are kept."""
    path = tmp_path / "c.json"
    large = compact(message("large", "x" * MIB))
    async with recorder(path, echoing, "--max-body", 1) as (process, url, server):
        async with connected(url) as slow:
            announced = f"Content-Length: {len(large)}"
            await slow.write(request("POST", "/mcp", JSON, announced), large[: MIB // 2])
            assert (await post(url, message("other"))).status == 200
            await slow.write(large[MIB // 2 :])
            head, body = await slow.answer()
            assert head.line.split()[1] == "413"
            assert b"--max-body" in await body.rest()
        refused = await http("POST", url, JSON, CHUNKED, body=chunk(large) + chunk(b""))
        assert refused.status == 413
        assert (await post(url, message("other", id=2))).status == 200
        ended = await process.stopped()
    assert ended.code == 0
    assert len(server.received) == len(read(path)["interactions"]) == 2


LIMIT_MIB = 32
SANE_BYTES = 12 * LIMIT_MIB * MIB
"""Memory that a recorder may have at most with that --max-body: the body a few times, and itself."""


def sane_memory() -> None:
    """Let this process fail, and not the machine, when it wants too much memory."""
    resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9, 2 * 10**9))


def highest_memory(pid: int) -> int:
    """Return the bytes that a process had in memory at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def bomb_of(fill: bytes, size: int) -> bytes:
    """Compress so many equal bytes without having them all at once."""
    deflate = zlib.compressobj(wbits=31)
    block = fill * 10**5
    parts = [deflate.compress(block) for _ in range(size // len(block))]
    return b"".join([*parts, deflate.flush()])


@looped
async def test_a_bomb_passes_and_takes_no_memory(tmp_path: Path) -> None:
    """What decodes to half a gigabyte reaches its client as it came, and is no harm to the recorder."""
    bombs = {JSON: bomb_of(b"0", 5 * 10**8), EVENTS: bomb_of(b"data:\n\n", 7 * 10**6)}
    path = tmp_path / "c.json"

    async def script(visit: Visit) -> None:
        if visit.request.json["method"] == "other":
            await echoing(visit)
            return
        kind = JSON if visit.request.json["method"] == "json" else EVENTS
        bomb = bombs[kind]
        await visit.send(stream_head(kind, "Content-Encoding: gzip"))
        for at in range(0, len(bomb), 50_000):
            await visit.send(chunk(bomb[at : at + 50_000]))
        await visit.send(chunk(b""))

    options = ("--max-body", LIMIT_MIB)
    async with recorder(path, script, *options, preexec_fn=sane_memory) as (process, url, _):
        for method, bomb in zip(("json", "events"), bombs.values(), strict=True):
            answer = await post(url, message(method))
            assert answer.is_whole
            assert answer.body == bomb
        assert (await post(url, message("other"))).status == 200
        assert highest_memory(process.pid) < SANE_BYTES
        ended = await process.stopped()
    assert "INTERNAL ERROR" not in ended.err
    assert ended.code in {0, 3}
    assert "other" in str(read(path)["interactions"])
