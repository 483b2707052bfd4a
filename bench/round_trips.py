"""Round trips on pipes: an SDK's server alone, behind the recorder, and its recording.

Owns: the client's side, one call after the other, and the rates of the three in turns.
Rule: each has a stint in each round, in a process that has answered before, so that what is
compared is what passes, not what starts.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from processes import PROGRAM, ProcessError, peer
from results import ratio_of

if TYPE_CHECKING:
    from ground import Bench

_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_WARM_UP: Final = 20
SERVER, RECORD, REPLAY = "server alone", "record", "replay"
LEAST: Final = {RECORD: 0.8, REPLAY: 1.0}
"""How many round trips of the server's own there are to be at least."""


class _Caller:
    """A client that makes one call after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Speak to a process."""
        if process.stdin is None or process.stdout is None:
            raise AssertionError("unreachable because it was started with pipes")
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self._number = 0

    def call(self) -> None:
        """Make a call, and wait for its answer.

        Raises:
            ProcessError: it is an error, or there is none.
        """
        self._number += 1
        params: dict[str, Any] = {
            "name": "add",
            "arguments": {"a": self._number, "b": 1},
        }
        message = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call"}
        line = json.dumps({**message, "params": {**params, "_meta": _META}}).encode()
        self._stdin.write(line + b"\n")
        answer = self._stdout.readline()
        if b'"result"' not in answer:
            raise ProcessError(f"call {self._number} got {answer!r}")

    def rate(self, calls: int) -> float:
        """Return how many of so many calls were made in a second."""
        started = time.perf_counter()
        for _ in range(calls):
            self.call()
        return calls / (time.perf_counter() - started)


@contextmanager
def _calling(command: Sequence[str]) -> Iterator[_Caller]:
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        yield _Caller(process)


def round_trips(bench: Bench) -> None:
    """Measure how many round trips there are with the recorder in between, and on replay."""
    calls = max(1, round(400 * bench.size.seconds))
    server = (*peer("server", "python"), "--stdio")
    recording, cassette = bench.folder / "piped-bench.json", bench.folder / "piped.json"
    record = [*PROGRAM, "record", "--stdio", "--output"]
    with _calling([*record, str(cassette), "--", *server]) as caller:
        caller.rate(_WARM_UP + bench.size.rounds * calls)
    commands = {
        SERVER: server,
        RECORD: (*record, str(recording), "--", *server),
        REPLAY: (*PROGRAM, "replay", "--stdio", str(cassette)),
    }
    rates: dict[str, list[float]] = {name: [] for name in commands}
    with ExitStack() as stack:
        callers = {
            name: stack.enter_context(_calling(each)) for name, each in commands.items()
        }
        for caller in callers.values():
            caller.rate(_WARM_UP)
        for _ in range(bench.size.rounds):
            for name, caller in callers.items():
                rates[name].append(caller.rate(calls))
    for name, samples in rates.items():
        bench.results.fact(f"round trips on pipes, {name}", "/s", *samples)
    for name, least in LEAST.items():
        measured = ratio_of(rates[name], rates[SERVER])
        bench.results.at_least(
            f"round trips on pipes, {name} against the server", measured, least
        )
