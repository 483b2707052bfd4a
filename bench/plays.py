"""What a play of `serve` costs: its beginning and end around a call, and many kept at once.

Owns: the client of plays, and the targets of the section.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from ground import Bench, peak_mb
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from playing import JSON, Serve, serving
from processes import listening, replay_command
from results import ratio_of

from mrtr_cassette import call

TOOL = "release-train"
ARGUMENTS = {"version": "1.0"}
ANSWERS = {"approve": True, "window": "tonight", "notes": "none"}
_DEMO = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "{port}"]
_MANY = 1_000
_FEW = 10


def plays(bench: Bench) -> None:
    """Compare a call in a play of its own with the same call on a replay that runs already."""
    folder = bench.folder / "plays"
    folder.mkdir()
    with serving(folder) as serve:
        play = serve.begin("train", upstream=_DEMO)
        asyncio.run(_call_with_sdk(play["url"]))
        serve.end(play)
    _against_replay(bench, folder)
    _many_at_once(bench, folder)


def _against_replay(bench: Bench, folder: Path) -> None:
    replayed: list[float] = []
    played: list[float] = []
    made: list[float] = []
    replay = replay_command(folder / "train.json", "--repeat", "always")
    with listening(replay) as running, serving(folder) as serve:
        for _ in range(4 * bench.size.repeats):
            replayed.append(_timed_ms(lambda: _run(running.url)))
            played.append(_timed_ms(lambda: _in_play(serve, _run)))
            made.append(_timed_ms(lambda: _in_play(serve, _nothing)))
    results = bench.results
    results.fact("three-round call by the Python SDK's client, replay", "ms", *replayed)
    results.fact("the same in a play of its own", "ms", *played)
    results.fact("a play begun and ended, without a call", "ms", *made)
    results.at_most(
        "three-round call in a play of its own, against a running replay",
        ratio_of(played, replayed),
        1.5,
    )


def _many_at_once(bench: Bench, folder: Path) -> None:
    many = _MANY if bench.size.repeats > 1 else 2 * _FEW
    with serving(folder) as serve:
        few = [serve.begin("train") for _ in range(_FEW)]
        before = peak_mb(serve.process.pid)
        few_ms = [_timed_ms(lambda play=play: _call(play["url"])) for play in few]
        more = [serve.begin("train") for _ in range(many)]
        grown = peak_mb(serve.process.pid) - before
        chosen = more[:: many // _FEW][:_FEW]
        many_ms = [_timed_ms(lambda play=play: _call(play["url"])) for play in chosen]
    results = bench.results
    results.fact(f"a call in one of {_FEW} plays", "ms", *few_ms)
    results.fact(f"a call in one of {many:,} plays", "ms", *many_ms)
    results.at_most(f"memory of {many:,} plays at once", grown, 100.0, "MB")
    results.at_most(
        f"a call in one of {many:,} plays against one of {_FEW}",
        ratio_of(many_ms, few_ms),
        1.1,
    )


def _in_play(serve: Serve, work: Callable[[str], object]) -> None:
    """Begin a play, do some work at its URL, and end it, on one connection."""
    connection = http.client.HTTPConnection(urlsplit(serve.url).netloc)
    begin = orjson.dumps({"cassette": "train"})
    play = _asked(connection, "POST", "", begin)
    work(play["url"])
    report = _asked(connection, "DELETE", f"/{play['id']}", None)
    connection.close()
    if report["problems"]:
        raise AssertionError(report["problems"])


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
) -> Any:
    connection.request(method, f"/.mrtr/plays{path}", body, dict(JSON))
    return orjson.loads(connection.getresponse().read())


def _nothing(_url: str) -> None:
    pass


def _call(url: str) -> None:
    call(url, TOOL, ARGUMENTS, answers=ANSWERS)


def _run(url: str) -> None:
    asyncio.run(_call_with_sdk(url))


async def _call_with_sdk(url: str) -> None:
    """Make the call as a test on the Python SDK does: with a client of its own."""

    async def elicit(_context: object, params: Any) -> ElicitResult:
        (name,) = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={name: ANSWERS[name]})

    transport = streamable_http_client(url)
    async with Client(transport, elicitation_callback=elicit) as client:
        result = await client.call_tool(TOOL, ARGUMENTS)
    if result.is_error:
        raise AssertionError(result)


def _timed_ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000
