"""How long the recorder holds up its event loop for one body of 1 MB, whatever the body is.

Owns: bodies that are hard to search, and the longest time between two turns of the loop.
Rule: the recorder runs in this process, so that the turns counted are its own.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import Mapping

from ground import Bench
from harness import post
from messages import message, result
from standin import answering, json_response, response, upstream

from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.running import run

LIMIT_MS = 20.0
REPEATS = 3


def bodies(size: int) -> Mapping[str, object]:
    """Return results of so many bytes, each hard in its own way."""
    chance = random.Random(1)  # noqa: S311  the same body in every run
    noise = base64.urlsafe_b64encode(chance.randbytes(size * 3 // 4)).decode()
    prose = "The quick brown fox jumps over the lazy dog, and says nothing secret. "
    return {
        "prose": prose * (size // len(prose)),
        "base64url": noise,
        "numbers beside an apiKey": {"apiKey": "not-a-real-key-0123456789", "n": [0] * (size // 2)},
        "short strings": ["token"] * (size // 8),
        "escapes": '\\"' * (size // 4),
    }


async def turns(longest: list[float]) -> None:
    """Take turns of the loop until cancelled, and note the longest time between two in ms."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest[0] = max(longest[0], (now - last) * 1000)
        last = now


async def stalled_ms(bench: Bench, name: str, body: object) -> float:
    """Record one call that returns this body; return the longest stall while it was under way."""
    spelled = json_response(result(body))
    longest = [0.0]
    async with (
        upstream(answering(response(b"{}"), spelled)) as server,
        recording(server.url, bench.folder / f"stall-{name}.json") as session,
    ):
        await post(session.url, message("ping"))
        turning = asyncio.create_task(turns(longest))
        await post(session.url, message("tools/call", {"name": "large", "arguments": {}}))
        await asyncio.sleep(0.05)
        turning.cancel()
    return longest[0]


def longest(bench: Bench) -> None:
    """Measure the longest stall by each body."""
    worst = 0.0
    for name, body in bodies(bench.size.stall_bytes).items():
        samples = [
            run(stalled_ms(bench, f"{name}-{number}", body))
            for number in range(min(bench.size.repeats, REPEATS))
        ]
        fact = bench.results.fact(f"longest stall of the loop by 1 MB of {name}", "ms", *samples)
        worst = max(worst, fact.median)
    bench.results.at_most(
        "longest stall of the loop by a recorded body of 1 MB", worst, LIMIT_MS, "ms"
    )
