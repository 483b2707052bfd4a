"""Facts about what goes wrong around the proxy: crowds, exhausted limits, peers that fall silent.

Whatever happens to one client, the others are served, and what was recorded is published or stays
in the journal.
"""

from __future__ import annotations

import resource
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness import Process, command, looped, post, read
from messages import message, result
from standin import (
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


MIB = 1024 * 1024


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
