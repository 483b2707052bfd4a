"""How long the event loop is held up by one exchange of 10 MB, whatever is in it.

Owns: bodies that are hard to search, the peer that asks and answers with them, and the longest time
between two turns of the loop of a recorder, a replay and a recorder that appends.
Rule: what is measured runs in this process, so that the turns counted are its own; client and
upstream are another one, so that they hold up nothing here. What counts is processor time, as a
busy machine makes everybody wait.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from ground import Bench

LIMIT_MS = 1000.0
REPEATS = 3
FULL_BYTES: Final = 10 * 2**20
"""The size of a body in a full run, to which the names of the exchanges count."""
_PROSE = "The quick brown fox jumps over the lazy dog, and says nothing secret. "
_SMALL_REQUEST: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'
)
_AT_ONCE: Final = 1 << 16


def _bytes_each(count: int) -> int:
    """Return the bytes of a part, of which a body of full size has so many."""
    return FULL_BYTES // count


class Hard(NamedTuple):
    """An exchange that is hard to record: a body, and which of the two has it."""

    body: bytes
    content_type: str = "application/json"
    is_request: bool = False
    coding: str = ""


def _result(value: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "result": value}
    return json.dumps(message, separators=(",", ":")).encode()


def _call(value: object) -> bytes:
    params = {"name": "x", "arguments": {"value": value}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def _noise(size: int) -> str:
    chance = random.Random(1)  # noqa: S311  the same body in every run
    return base64.urlsafe_b64encode(chance.randbytes(size * 3 // 4)).decode()


def _numbers(size: int) -> dict[str, Any]:
    return {"apiKey": "not-a-real-key-0123456789", "n": [0] * (size // 2)}


def _embeddings(size: int) -> dict[str, Any]:
    chance = random.Random(1)  # noqa: S311  the same body in every run
    count = size // 11
    numbers = [round(chance.uniform(-1, 1), 8) for _ in range(count)]
    return {"apiKey": "not-a-real-key-0123456789", "embeddings": numbers}


def _stream(*events: bytes) -> Hard:
    return Hard(b"".join(events), "text/event-stream")


def _deep(size: int) -> Hard:
    levels = size // 9
    return Hard(_result(0)[:-2] + b'{"a":[' * levels + b"1" + b"]}" * levels + b"}")


def _lines(size: int) -> Hard:
    line = b'data: "password=not-a-secret-1",'.ljust(_bytes_each(60_000) - 1) + b"\n"
    count = size // len(line)
    return _stream(
        b'data: {"jsonrpc":"2.0","id":1,"result":[\n', line * count, b"data: 1]}\n\n"
    )


def _events(size: int) -> Hard:
    event = b'data: {"a":"%b"}\n\n' % (b"x" * (_bytes_each(90_000) - 17))
    return _stream(event * (size // len(event)), b"data: %b\n\n" % _result(1))


def _events_and_password(size: int) -> Hard:
    password = b'data: {"password":"not-a-secret-1"}\n\n'
    return _stream(password, _events(size).body)


def _urls(size: int) -> list[str]:
    filling = "x" * (_bytes_each(100_000) - 25)
    count = size // _bytes_each(100_000)
    return [f"https://a.example/{filling}{number}" for number in range(count)]


def _parameters(size: int) -> str:
    filling = "x" * (_bytes_each(100_000) - 12)
    count = size // _bytes_each(100_000)
    return "https://a.example/?" + "&".join(f"token{n}={filling}" for n in range(count))


def _packed(size: int) -> Hard:
    return Hard(gzip.compress(_result([0] * (size // 2))), coding="gzip")


EXCHANGES: Final[Mapping[str, Callable[[int], Hard]]] = {
    "prose": lambda size: Hard(_result(_PROSE * (size // len(_PROSE)))),
    "base64url": lambda size: Hard(_result(_noise(size))),
    "numbers beside an apiKey": lambda size: Hard(_result(_numbers(size))),
    "embeddings beside an apiKey": lambda size: Hard(_result(_embeddings(size))),
    "100,000 short URLs": lambda size: Hard(_result(_urls(size))),
    "100,000 parameters": lambda size: Hard(_result(_parameters(size))),
    "deep JSON": _deep,
    "60,000 data lines in one event": _lines,
    "90,000 events": _events,
    "90,000 events and a password": _events_and_password,
    "long dashes": lambda size: Hard(_result("-" * size)),
    "states of 27 kB": lambda size: Hard(
        _result([{"requestState": f"{n}{'s' * 27_000}"} for n in range(size // 27_000)])
    ),
    "states of = only": lambda size: Hard(
        _result([{"requestState": "=" * 27_000}] * (size // 27_000))
    ),
    "gzip, 1000 : 1": _packed,
    "short strings": lambda size: Hard(_result(["token"] * (size // 8))),
    "escapes": lambda size: Hard(_result('\\"' * (size // 4))),
    "a request of prose": lambda size: Hard(
        _call(_PROSE * (size // len(_PROSE))), is_request=True
    ),
    "a request of numbers": lambda size: Hard(_call(_numbers(size)), is_request=True),
    "a request of gzip, 1000 : 1": lambda size: Hard(
        gzip.compress(_call([0] * (size // 2))), is_request=True, coding="gzip"
    ),
}


def _asked(value: Callable[[int], object]) -> Callable[[int], Hard]:
    return lambda size: Hard(_call(value(size)), is_request=True)


REQUESTS: Final[Mapping[str, Callable[[int], Hard]]] = {
    "prose": _asked(lambda size: _PROSE * (size // len(_PROSE))),
    "base64url": _asked(_noise),
    "numbers": _asked(
        lambda size: [number % 10**6 + 10**5 for number in range(size // 7)]
    ),
    "100,000 URLs": _asked(_urls),
    "deep JSON": lambda size: Hard(
        _deep(size).body.replace(b'"result"', b'"method"'), is_request=True
    ),
    "short strings": _asked(lambda size: ["token"] * (size // 8)),
    "short objects": _asked(lambda size: [{"a": 1}] * (size // 8)),
    "escapes": _asked(lambda size: '\\"' * (size // 4)),
    "prose in gzip": lambda size: Hard(
        gzip.compress(_call(_PROSE * (size // len(_PROSE)))),
        is_request=True,
        coding="gzip",
    ),
}
"""Requests to a replay, or to a recorder that appends."""
_SMALL_ONE = "a secret"
_POSTED: Final = {
    **EXCHANGES,
    **{f"to a replay: {name}": hard for name, hard in REQUESTS.items()},
    _SMALL_ONE: lambda _size: Hard(
        _call({"apiKey": "not-a-real-key-0123456789"}), is_request=True
    ),
}
_ROWS: Final = {
    "a replay, a miss": tuple(REQUESTS),
    "a replay, a hit": ("prose", "numbers", "short objects"),
    "a replay with sealed answers, a miss": ("prose", "numbers"),
    "record --append": ("prose", "numbers", "short objects"),
}
"""Which of them are measured where; each cassette has a placeholder."""


# The peer: client and upstream


def _message(start: str, hard: Hard | None, body: bytes) -> bytes:
    content_type = hard.content_type if hard is not None else "application/json"
    coding = (
        f"Content-Encoding: {hard.coding}\r\n"
        if hard is not None and hard.coding
        else ""
    )
    head = f"{start}\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n{coding}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _read(reader: asyncio.StreamReader) -> None:
    """Read one message."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    while size:
        size -= len(await reader.read(min(size, _AT_ONCE)))


async def _write(writer: asyncio.StreamWriter, raw: bytes) -> None:
    for at in range(0, len(raw), _AT_ONCE):
        writer.write(raw[at : at + _AT_ONCE])
        await writer.drain()


async def _peer() -> None:
    """Serve, and post to each URL that comes with the name and the size of an exchange."""
    hard = Hard(b"")

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await _read(reader)
        answered, body = (None, _result(1)) if hard.is_request else (hard, hard.body)
        await _write(writer, _message("HTTP/1.1 200 OK", answered, body))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, size, port = line.rstrip("\n").split("\t")
        hard = _POSTED[name](int(size))
        print("ready", flush=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        asked, body = (hard, hard.body) if hard.is_request else (None, _SMALL_REQUEST)
        await _write(writer, _message("POST /mcp HTTP/1.1", asked, body))
        await _read(reader)
        writer.close()
        print("done", flush=True)


# The recorder


async def turns(
    longest: list[float], clock: Callable[[], float] = time.thread_time
) -> None:
    """Take turns of the loop until cancelled, and note the longest work between two in ms."""
    last = clock()
    while True:
        await asyncio.sleep(0.001)
        now = clock()
        longest[0] = max(longest[0], (now - last) * 1000)
        last = now


class Peer:
    """The other process."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{int(self._read())}/mcp"

    def _read(self) -> str:
        assert self._process.stdout is not None  # noqa: S101  it is a pipe
        return self._process.stdout.readline()

    async def post(
        self,
        name: str,
        size: int,
        url: str,
        clock: Callable[[], float] = time.thread_time,
    ) -> float:
        """Have an exchange; return the longest stall of this loop while it was under way."""
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        self._process.stdin.write(
            f"{name}\t{size}\t{url.rpartition(':')[2].split('/')[0]}\n"
        )
        self._process.stdin.flush()
        longest = [0.0]
        self._read()
        turning = asyncio.create_task(turns(longest, clock))
        await asyncio.to_thread(self._read)
        await asyncio.sleep(0.05)
        turning.cancel()
        return longest[0]

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin is not None  # noqa: S101  it is a pipe
            self._process.stdin.close()


async def stalled_ms(peer: Peer, path: Path, name: str, size: int) -> float:
    """Record an exchange; return the longest stall while it was under way."""
    from mrtr_cassette.shell.runs.recording import recording

    async with recording(peer.url, path, caller_publishes_to=path) as recording_run:
        longest = await peer.post(name, size, recording_run.url)
        if recording_run.problem or recording_run.exchange_count != 1:
            raise AssertionError(
                recording_run.problem or "the exchange was not recorded"
            )
    return longest


async def replayed_ms(
    peer: Peer, path: Path, where: str, name: str, size: int
) -> float:
    """Post a large request to what has a cassette; return the longest stall meanwhile."""
    from mrtr_cassette.options import RecordOptions
    from mrtr_cassette.shell.runs.recording import recording
    from mrtr_cassette.shell.runs.replaying import replaying

    name = f"to a replay: {name}"
    options = RecordOptions(seal_answers="sealed" in where)
    async with recording(peer.url, path, options) as recording_run:
        await peer.post(_SMALL_ONE, 0, recording_run.url)
        if "a hit" in where:
            await peer.post(name, size, recording_run.url)
    if "append" in where:
        options = RecordOptions(existing="append")
        async with recording(peer.url, path, options) as recording_run:
            longest = await peer.post(name, size, recording_run.url, time.process_time)
            if recording_run.problem or recording_run.exchange_count != 1:
                raise AssertionError(
                    recording_run.problem or "the exchange was not recorded"
                )
        return longest
    async with replaying(path) as replay:
        longest = await peer.post(name, size, replay.url, time.process_time)
        if len(replay.outcome.misses) != ("a miss" in where):
            raise AssertionError(f"{where}: {len(replay.outcome.misses)} misses")
    return longest


def longest(bench: Bench) -> None:
    """Measure the longest stall by each exchange."""
    # As the command does, whose collector need not look at what was imported again and again.
    gc.freeze()
    with Peer() as peer:
        _longest_of_exchanges(bench, peer)
        _longest_of_requests(bench, peer)


def _longest_of_exchanges(bench: Bench, peer: Peer) -> None:
    from mrtr_cassette.shell.runs.running import run

    worst = 0.0
    size = bench.size.stall_bytes
    for index, name in enumerate(EXCHANGES):
        paths = (
            bench.folder / f"stall-{index}-{n}.json"
            for n in range(min(bench.size.repeats, REPEATS))
        )
        samples = [run(stalled_ms(peer, path, name, size)) for path in paths]
        fact = bench.results.fact(
            f"longest stall of the loop by 10 MB of {name}", "ms", *samples
        )
        worst = max(worst, fact.median)
    bench.results.at_most(
        "longest stall of the loop by a recorded exchange of 10 MB",
        worst,
        LIMIT_MS,
        "ms",
    )


def _longest_of_requests(bench: Bench, peer: Peer) -> None:
    from mrtr_cassette.shell.runs.running import run

    worst = 0.0
    for where, names in _ROWS.items():
        few = 1 if bench.size.repeats == 1 else len(names)
        for index, name in enumerate(names[:few]):
            paths = (
                bench.folder / f"stall-{where.replace(' ', '-')}-{index}-{n}.json"
                for n in range(min(bench.size.repeats, REPEATS))
            )
            size = bench.size.stall_bytes
            samples = [
                run(replayed_ms(peer, path, where, name, size)) for path in paths
            ]
            fact = bench.results.fact(
                f"longest stall of the loop by a request of 10 MB to {where}: {name}",
                "ms",
                *samples,
            )
            worst = max(worst, fact.median)
    bench.results.at_most(
        "longest stall of the loop by a request of 10 MB to a replay",
        worst,
        LIMIT_MS,
        "ms",
    )


if __name__ == "__main__":
    asyncio.run(_peer())
