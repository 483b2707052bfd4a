"""The load: keep-alive connections, each with one request on its way.

Owns: what clients send when, and whether an answer is the right one.
Does not own: the servers, which are other processes.
Rule: an answer counts if it is a 200 without an `error`, with the caller's id and of the caller's
conversation. Anything else ends the measurement: a fast wrong answer is no result.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import urlsplit

from traffic import Incoming, Kind, request_head

Checks = Literal["status", "id", "all"]
_STATE = b'"requestState":"'


class WrongAnswerError(Exception):
    """An answer that is not the one to the request."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A server to measure.

    Attributes:
        url: where it is.
        checks: what of an answer must be right besides its status.
        distinct: how many conversations there are before they come again.
        plays_once: none comes again; each stint has its share of them.
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
    """What to measure: rounds in which each subject has its stint.

    Attributes:
        seconds, conversations: a stint ends at whichever comes first.
        warm_up_s: seconds before the first round in which nothing is counted.
        first_id: JSON-RPC id of the first request.
    """

    kind: Kind
    connections: int
    subjects: tuple[Subject, ...]
    rounds: int = 1
    seconds: float = 3600.0
    conversations: int = 10**9
    warm_up_s: float = 0.0
    first_id: int = 5_000_000


@dataclass(slots=True)
class Stint:
    """What one stint of one subject came to.

    Attributes:
        answered: how many requests were answered.
        seconds: in which time.
        cpu_us: microseconds of CPU time that the server spent on a request.
        problem: what was wrong with an answer.
        first_events: milliseconds from each request to the first event that was whole.
    """

    answered: int = 0
    seconds: float = 0.0
    cpu_us: float | None = None
    problem: str | None = None
    first_events: list[float] = field(default_factory=list)


class Script:
    """What the connections of one stint say: conversations, one after the other, from one list."""

    def __init__(
        self, plan: Plan, subject: Subject, ids: Iterator[int], numbers: Iterator[int]
    ) -> None:
        """Begin the stint."""
        self.kind = plan.kind
        self._target = subject
        self._ids = ids
        self._host = urlsplit(subject.url).netloc
        self._numbers = numbers

    def conversations(self) -> Generator[bytes, tuple[bytes, bytes], None]:
        """Yield requests and take responses, until the stint ends.

        Raises:
            WrongAnswerError: a response is not the one to the request.
        """
        kind = self.kind
        for number in self._numbers:
            state = b""
            for answered in range(kind.asks + 1):
                identity = next(self._ids)
                body = kind.request(identity, number, state)
                head, body = yield request_head(kind, self._host, len(body)) + body
                is_last = answered == kind.asks
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


def _numbers(
    plan: Plan, subject: Subject, held: Iterator[int], seconds: float
) -> Iterator[int]:
    """Yield the conversations of a stint, until its time is over.

    Args:
        held: counts all conversations with this subject, so that each stint goes on where the
            one before it ended.
    """
    end = time.perf_counter() + seconds
    share = subject.distinct // (plan.rounds + 1)
    for _ in range(share if subject.plays_once else plan.conversations):
        if time.perf_counter() >= end:
            return
        yield subject.first + next(held) % subject.distinct


class Connection(asyncio.Protocol):
    """One connection; it is over when the script has nothing more to say."""

    def __init__(self, script: Script, stint: Stint) -> None:
        """Begin with nothing sent."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._conversations = script.conversations()
        self._has_events = bool(script.kind.events)
        self._stint = stint
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
                self._stint.problem = str(end)
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
            self._stint.first_events.append(
                (time.perf_counter() - self._sent_at) * 1000
            )
            self._sent_at = None
        try:
            response = self._incoming.feed(data)
        except ValueError as error:
            self._stint.problem = str(error)
            self._close()
            return
        if response is not None:
            self._stint.answered += 1
            self._send(response)

    def _close(self) -> None:
        self._is_closing = True
        self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Tell that it is over; before its time, that is a problem."""
        if self._stint.problem is None and not self._is_closing:
            self._stint.problem = "the server closed a connection"
        self.over.set_result(None)


async def _take_stint(
    plan: Plan, subject: Subject, ids: Iterator[int], numbers: Iterator[int]
) -> Stint:
    stint = Stint()
    script = Script(plan, subject, ids, numbers)
    address = urlsplit(subject.url)
    host, port = address.hostname or "", address.port or 80
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: Connection(script, stint), host, port))[1]
        for _ in range(plan.connections)
    ]
    cpu_before = _cpu_s(subject)
    started = time.perf_counter()
    for connection in connections:
        connection.begin()
    await asyncio.gather(*(connection.over for connection in connections))
    stint.seconds = time.perf_counter() - started
    if stint.answered and subject.pid is not None:
        stint.cpu_us = (_cpu_s(subject) - cpu_before) * 1e6 / stint.answered
    return stint


def _cpu_s(subject: Subject) -> float:
    """Return the CPU time of a subject's process; only its own machine can tell."""
    if subject.pid is None:
        return 0.0
    # The number of that clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime(~subject.pid << 3 | 2)


async def measure(plan: Plan) -> dict[str, list[Stint]]:
    """Return what each subject's stints came to, by its name."""
    ids = itertools.count(plan.first_id)
    held = {subject.name: itertools.count() for subject in plan.subjects}
    if plan.warm_up_s:
        for subject in plan.subjects:
            numbers = _numbers(plan, subject, held[subject.name], plan.warm_up_s)
            await _take_stint(plan, subject, ids, numbers)
    stints: dict[str, list[Stint]] = {subject.name: [] for subject in plan.subjects}
    for _ in range(plan.rounds):
        for subject in plan.subjects:
            numbers = _numbers(plan, subject, held[subject.name], plan.seconds)
            stints[subject.name].append(await _take_stint(plan, subject, ids, numbers))
    return stints
