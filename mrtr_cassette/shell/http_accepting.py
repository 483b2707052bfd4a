"""Accepting clients over HTTP/1: how many at once, and how serving them ends.

Owns: what listens, the bound on open connections, and the end of all of them.
Does not own: what happens on a connection (`http_connection`).
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from mrtr_cassette.errors import printable, printable_lines
from mrtr_cassette.shell.http_connection import Answer, Connection, Meter, Service

_SHUTDOWN_S = 1.0
"""Seconds in which a client can take what was sent; its request has been cancelled before."""
_LARGEST_BURST = 1024
_SPARE_FILES = 16
"""Descriptors that are left for the journal, the cassette and whoever else is in the process."""
_TURNS: Final = 5
"""Turns of the event loop from accepting a connection to reading its request, and some more."""


def _most_connections(files_each: int) -> tuple[int, int]:
    """Return how many connections the limit of open files allows at once, and in one burst.

    Args:
        files_each: how many descriptors each connection needs.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize, _LARGEST_BURST
    free = limit - len(os.listdir("/dev/fd")) - _SPARE_FILES  # noqa: PTH208  names will do
    # An event loop accepts a whole burst before it can refuse the first.
    burst = max(1, min(_LARGEST_BURST, free // 4))
    return max(1, (free - burst) // files_each), burst


async def _drain(service: Service, listeners: Sequence[asyncio.Server], seconds: float) -> None:
    """Take no new connections, close idle ones, and the others after the response under way."""
    loop = asyncio.get_running_loop()
    for bound in (bound for listener in listeners for bound in listener.sockets):
        loop.remove_reader(bound.fileno())
    # What was accepted is forgotten, and never closed, by a listener that is closed before it
    # has a transport; and requests that have come begin to be handled.
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    for listener in listeners:
        listener.close()
    for connection in tuple(service.connections):
        connection.let_go()
    tasks = service.tasks
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


async def _end(service: Service) -> None:
    """Cancel all requests, await their ends, and close the connections."""
    service.is_ending = True
    tasks = service.tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    connections = tuple(service.connections)
    for connection in connections:
        connection.transport.close()
    if connections:
        await asyncio.wait([each.gone for each in connections], timeout=_SHUTDOWN_S)
    for connection in tuple(service.connections):
        connection.transport.abort()


@asynccontextmanager
async def accepting(
    sockets: Iterable[socket.socket],
    answer: Answer,
    log: Callable[[str], None] | None,
    *,
    idle_s: float,
    drain_s: float,
    files_each: int,
    meter: Meter | None = None,
) -> AsyncIterator[None]:
    """Accept connections on bound sockets, and have each request answered, until the block ends.

    Requests under way then have some time to end; after it they are cancelled, and awaited.

    Args:
        sockets: are closed with the block.
        answer: answers a request.
        log: takes a line for each request that could not be handled.
        idle_s: seconds a connection may wait for a whole request head, from its start or the last
            response.
        drain_s: seconds that requests under way have to end when the block does.
        files_each: how many descriptors a client's connection needs.
        meter: told of each request; None where nobody counts.
    """

    def complain(text: str) -> None:
        if log is not None:
            with suppress(OSError):
                log(printable_lines(printable(text)))

    most, burst = _most_connections(files_each)
    service = Service(answer, complain, meter, idle_s, most)
    loop = asyncio.get_running_loop()
    listeners = [
        await loop.create_server(lambda: Connection(service), sock=bound, backlog=burst)
        for bound in sockets
    ]
    try:
        yield
        if drain_s:
            await _drain(service, listeners, drain_s)
    finally:
        for listener in listeners:
            listener.close()
        await _end(service)
