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
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harness import Answer, Connection, connected
from standin import JSON
from traffic import ROUNDS

_STATE = b'"requestState":"'


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

    def fault(self, answer: Answer, wanted: tuple[bytes, ...]) -> bool:
        """Tell whether an answer is not the wanted one, and keep what it is."""
        if answer.status == 200 and all(words in answer.body for words in wanted):
            return False

        reason = re.search(rb'"message":"miss: ([a-z-]+)', answer.body)
        if reason is not None:
            self.missed[reason[1].decode()] += 1
        else:
            self.wrong.append(f"{answer.head} {answer.body!r:.500}")

        return True


class _Client:
    """One client, on one connection for as long as that lives."""

    def __init__(
        self, url: str, ids: Iterator[int], tally: Tally, held: AsyncExitStack
    ) -> None:
        self._url = url
        self._ids = ids
        self._tally = tally
        self._held = held
        self._link: Connection | None = None

    async def converse(self, number: int) -> None:
        state = b""
        replicas = set()
        for answered in range(ROUNDS.asks + 1):
            identity = next(self._ids)
            answer = await self._answer(ROUNDS.request(identity, number, state))
            if answer is None:
                return

            told = answer.head.values("x-replica")
            # nginx names all that it has tried.
            replicas.update(line.rpartition(" ")[2] for line in told)
            self._tally.by_replica.update(line.rpartition(" ")[2] for line in told)
            is_last = answered == ROUNDS.asks
            wanted = b'"answer %d.' % number if is_last else b"Go on with %d?" % number
            if self._tally.fault(answer, (b'"id":%d,' % identity, wanted)):
                return

            state = answer.body.partition(_STATE)[2].partition(b'"')[0]

        self._tally.finished += 1
        self._tally.moved += len(replicas) > 1

    async def _answer(self, body: bytes) -> Answer | None:
        """Return a replica's answer, or None where there is none."""
        try:
            if self._link is None:
                self._link = await self._held.enter_async_context(connected(self._url))

            head, content = await self._link.ask(
                "POST", urlsplit(self._url).path, JSON, body=body
            )
            answer = Answer(head, await content.rest(), content.is_whole)
        except (OSError, asyncio.IncompleteReadError):
            answer = None

        if (
            answer is None
            or not answer.is_whole
            or answer.head.values("connection") == ["close"]
        ):
            self._link = None

        if (
            answer is not None
            and answer.is_whole
            and answer.status not in {502, 503, 504}
        ):
            return answer

        self._tally.lost[self] += 1
        return None


async def converse(
    url: str, numbers: Callable[[Tally], Iterator[int]], clients: int
) -> Tally:
    """Have conversations until there are no more numbers of them.

    Args:
        numbers: called with what the run comes to, gives the numbers; it may look at the one
            between the others, and do something to the replicas.
    """
    tally = Tally()
    ids = itertools.count(5_000_000)
    remaining = numbers(tally)

    async def live() -> None:
        async with AsyncExitStack() as held:
            client = _Client(url, ids, tally, held)
            for number in remaining:
                await client.converse(number)

    await asyncio.gather(*(live() for _ in range(clients)))
    return tally
