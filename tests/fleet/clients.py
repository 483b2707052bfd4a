"""Many clients that have conversations, each round with whoever gets it.

Rule: a client that gets no answer goes on with another conversation on a new connection; a wrong
answer is kept, not raised, so that one run tells of all.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from traffic import ROUNDS, Incoming, request_head

_STATE = b'"requestState":"'
_REPLICA = re.compile(rb"\r\nx-replica: [^\r]*?([^\r ,]+)\r\n", re.IGNORECASE)


@dataclass(slots=True)
class Tally:
    """What a run came to.

    Attributes:
        finished: conversations that came to their end.
        moved: those of them whose rounds were not all with one replica.
        by_replica: how many answers each replica gave, as far as the balancer tells.
        missed: how many answers were a miss, by its reason.
        wrong: answers that were neither right nor a miss.
        lost: how many requests of each client got no answer of a replica.
    """

    finished: int = 0
    moved: int = 0
    by_replica: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: Counter[object] = field(default_factory=Counter)

    def fault(self, head: bytes, body: bytes, wanted: tuple[bytes, ...]) -> bool:
        """Tell whether an answer is not the wanted one, and keep what it is."""
        if head.startswith(b"HTTP/1.1 200 ") and all(each in body for each in wanted):
            return False
        reason = re.search(rb'"message":"miss: ([a-z-]+)', body)
        if reason is not None:
            self.missed[reason[1].decode()] += 1
        else:
            self.wrong.append((head + body)[:500].decode(errors="replace"))
        return True


class _Connection(asyncio.Protocol):
    """One connection, with one request on its way."""

    def __init__(self) -> None:
        self._incoming = Incoming()
        self._response: asyncio.Future[tuple[bytes, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    async def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request; return head and body of its response."""
        self._response = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._response

    def data_received(self, data: bytes) -> None:
        response = self._incoming.feed(data)
        if response is not None and self._response is not None:
            self._response.set_result(response)

    def connection_lost(self, _: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionResetError())


class _Client:
    """One client, on one connection for as long as that lives."""

    def __init__(self, host: str, ids: Iterator[int], tally: Tally) -> None:
        self._host = host
        self._ids = ids
        self._tally = tally
        self._connection: _Connection | None = None

    async def converse(self, number: int) -> None:
        state = b""
        replicas = set()
        for answered in range(ROUNDS.asks + 1):
            identity = next(self._ids)
            body = ROUNDS.request(identity, number, state)
            response = await self._answer(request_head(ROUNDS, self._host, len(body)) + body)
            if response is None:
                return
            told = _REPLICA.search(response[0])
            replicas.add(told and told[1].decode())
            self._tally.by_replica.update({told[1].decode()} if told else ())
            is_last = answered == ROUNDS.asks
            wanted = b'"answer %d.' % number if is_last else b"Go on with %d?" % number
            if self._tally.fault(*response, (b'"id":%d,' % identity, wanted)):
                return
            state = response[1].partition(_STATE)[2].partition(b'"')[0]
        self._tally.finished += 1
        self._tally.moved += len(replicas) > 1

    async def _answer(self, request: bytes) -> tuple[bytes, bytes] | None:
        """Return a replica's response, or None where there is none."""
        try:
            if self._connection is None or self._connection.transport.is_closing():
                loop = asyncio.get_running_loop()
                host, port = self._host.split(":")
                _, self._connection = await loop.create_connection(_Connection, host, int(port))
            response = await self._connection.exchange(request)
        except OSError:
            self._connection = None
        else:
            if not response[0].startswith((b"HTTP/1.1 502 ", b"HTTP/1.1 503 ", b"HTTP/1.1 504 ")):
                return response
        self._tally.lost[self] += 1
        return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.transport.close()


async def converse(url: str, numbers: Callable[[Tally], Iterator[int]], clients: int) -> Tally:
    """Have conversations until there are no more numbers of them.

    Args:
        numbers: called with what the run comes to, gives the numbers; it may look at the one
            between the others, and do something to the replicas.
    """
    tally = Tally()
    host, ids, remaining = urlsplit(url).netloc, itertools.count(5_000_000), numbers(tally)

    async def live(client: _Client) -> None:
        for number in remaining:
            await client.converse(number)
        client.close()

    await asyncio.gather(*(live(_Client(host, ids, tally)) for _ in range(clients)))
    return tally
