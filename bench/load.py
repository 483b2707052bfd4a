"""The load: keep-alive connections, each with one request on its way, in a process of its own.

    python bench/load.py '{"kind": "plain", "connections": 32, ...}'

Prints for each target and round what was answered in which time, as JSON.
Rule: an answer counts if it is a 200 without an `error`, with the caller's id and of the caller's
conversation. Anything else ends the measurement: a fast wrong answer is no result.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import orjson
from traffic import KINDS, Incoming, request_head

from mrtr_cassette.shell.running import run

Checks = Literal["status", "id", "all"]
_STATE = b'"requestState":"'


class WrongAnswerError(Exception):
    """An answer that is not the one to the request."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure.

    Attributes:
        url: where it is.
        checks: what of an answer must be right besides its status.
        distinct: how many conversations there are before they come again.
        plays_once: none comes again; each turn has its share of them.
        first: number of the first conversation.
        pid: its process, if its CPU time is to be known.
    """

    name: str
    url: str
    checks: Checks = "all"
    distinct: int = 1000
    first: int = 0
    plays_once: bool = False
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: rounds in which each target has its turn.

    Attributes:
        seconds, requests: a turn ends at whichever comes first.
        warm_up_s: seconds before the first round in which nothing is counted.
        first_id: JSON-RPC id of the first request.
    """

    kind: str
    connections: int
    targets: tuple[Target, ...]
    rounds: int = 1
    seconds: float = 3600.0
    requests: int = 10**9
    warm_up_s: float = 0.0
    first_id: int = 5_000_000


@dataclass(slots=True)
class Turn:
    """What one turn of one target came to.

    Attributes:
        answered: how many requests were answered.
        seconds: in which time.
        cpu_us: microseconds of CPU time that the server spent on a request.
        first_event_ms: median time from the request to the first event that was whole.
        problem: what was wrong with an answer.
    """

    answered: int = 0
    seconds: float = 0.0
    cpu_us: float | None = None
    first_event_ms: float | None = None
    problem: str | None = None
    first_events: list[float] = field(default_factory=list)


class Script:
    """What the connections of one turn say: conversations, one after the other, from one list."""

    def __init__(
        self, plan: Plan, target: Target, ids: Iterator[int], numbers: Iterator[int]
    ) -> None:
        """Begin the turn."""
        self.kind = KINDS[plan.kind]
        self._target = target
        self._ids = ids
        self._host = urlsplit(target.url).netloc
        self._numbers = numbers

    def conversations(self) -> Generator[bytes, tuple[bytes, bytes], None]:
        """Yield requests and take responses, until the turn ends.

        Raises:
            WrongAnswerError: a response is not the one to the request.
        """
        kind = self.kind
        for number in self._numbers:
            state = b""
            for turn in range(kind.rounds):
                identity = next(self._ids)
                body = kind.request(identity, number, state)
                head, body = yield request_head(kind, self._host, len(body)) + body
                is_last = turn + 1 == kind.rounds
                self._check(head, body, identity, number, is_last=is_last)
                if not is_last:
                    state = body.partition(_STATE)[2].partition(b'"')[0]

    def _check(
        self, head: bytes, body: bytes, identity: int, number: int, *, is_last: bool
    ) -> None:
        checks = self._target.checks
        is_right = head.startswith(b"HTTP/1.1 200 ") and b'"error"' not in body
        if checks != "status":
            is_right &= body.count(b"%d" % identity) == (self.kind.events or 1)
            wanted = _STATE if not is_last else b'"answer '
            if checks == "all" and is_last:
                wanted = b'"answer %d.' % number
            is_right &= wanted in body
        if not is_right:
            raise WrongAnswerError((head + body)[:2000].decode(errors="replace"))


def _numbers(plan: Plan, target: Target, turn: int, seconds: float) -> Iterator[int]:
    """Yield the conversations of a turn, until its time is over; turn 0 is the warm-up."""
    end = time.perf_counter() + seconds
    first, count = target.first, plan.requests
    if target.plays_once:
        count = target.distinct // (plan.rounds + 1)
        first += turn * count
    for n in range(count):
        if time.perf_counter() >= end:
            return
        yield first + n % target.distinct


class Connection(asyncio.Protocol):
    """One connection; it is over when the script has nothing more to say."""

    def __init__(self, script: Script, turn: Turn) -> None:
        """Begin with nothing sent."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._conversations = script.conversations()
        self._has_events = bool(script.kind.events)
        self._turn = turn
        self._incoming = Incoming()
        self._is_closing = False
        self._sent_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way there."""
        self._transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        """Send the first request."""
        self._send(None)

    def _send(self, response: tuple[bytes, bytes] | None) -> None:
        try:
            if response is None:
                request = next(self._conversations)
            else:
                request = self._conversations.send(response)
        except (StopIteration, WrongAnswerError) as end:
            if isinstance(end, WrongAnswerError):
                self._turn.problem = str(end)
            self._close()
            return
        if self._has_events:
            self._sent_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Note the first event; send the next request when the response is whole."""
        if self._sent_at is not None and (
            b"\n\n" in data or b"\n\n" in self._incoming.buffer + data
        ):
            self._turn.first_events.append((time.perf_counter() - self._sent_at) * 1000)
            self._sent_at = None
        try:
            response = self._incoming.feed(data)
        except ValueError as error:
            self._turn.problem = str(error)
            self._close()
            return
        if response is not None:
            self._turn.answered += 1
            self._send(response)

    def _close(self) -> None:
        self._is_closing = True
        self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Tell that it is over; before its time, that is a problem."""
        if self._turn.problem is None and not self._is_closing:
            self._turn.problem = "the server closed a connection"
        self.over.set_result(None)


async def _take_turn(
    plan: Plan, target: Target, ids: Iterator[int], numbers: Iterator[int]
) -> Turn:
    turn = Turn()
    script = Script(plan, target, ids, numbers)
    address = urlsplit(target.url)
    host, port = address.hostname or "", address.port or 80
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: Connection(script, turn), host, port))[1]
        for _ in range(plan.connections)
    ]
    cpu_before = _cpu_s(target)
    started = time.perf_counter()
    for connection in connections:
        connection.begin()
    await asyncio.gather(*(connection.over for connection in connections))
    turn.seconds = time.perf_counter() - started
    if turn.answered and target.pid is not None:
        turn.cpu_us = (_cpu_s(target) - cpu_before) * 1e6 / turn.answered
    if turn.first_events:
        turn.first_event_ms = median(turn.first_events)
    return turn


def _cpu_s(target: Target) -> float:
    """Return the CPU time of a target's process; only its own machine can tell."""
    if target.pid is None:
        return 0.0
    # The number of that clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime(~target.pid << 3 | 2)


async def measure(plan: Plan) -> dict[str, Any]:
    """Return what each target's turns came to, by its name."""
    ids = itertools.count(plan.first_id)
    if plan.warm_up_s:
        for target in plan.targets:
            await _take_turn(plan, target, ids, _numbers(plan, target, 0, plan.warm_up_s))
    turns: dict[str, list[Turn]] = {target.name: [] for target in plan.targets}
    for number in range(1, plan.rounds + 1):
        for target in plan.targets:
            numbers = _numbers(plan, target, number, plan.seconds)
            turns[target.name].append(await _take_turn(plan, target, ids, numbers))
    return {
        name: [
            {
                "answered": turn.answered,
                "seconds": turn.seconds,
                "cpu_us": turn.cpu_us,
                "first_event_ms": turn.first_event_ms,
                "problem": turn.problem,
            }
            for turn in taken
        ]
        for name, taken in turns.items()
    }


def _plan(text: str) -> Plan:
    fields = orjson.loads(text)
    targets = tuple(Target(**target) for target in fields.pop("targets"))
    return Plan(targets=targets, **fields)


if __name__ == "__main__":
    print(orjson.dumps(run(measure(_plan(sys.argv[1])))).decode())
