"""The admin port: what whoever runs the proxy asks of it, never on the clients' port.

Owns: `/livez`, `/readyz` and `/metrics`.
Does not own: the numbers (`metrics`), and sockets (`http.server`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.shell.announcing import Log
from mrtr_cassette.shell.http.access import Access, listening
from mrtr_cassette.shell.http.server import serving
from mrtr_cassette.shell.transport import TEXT_HEADERS, Downstream

Exposition = Callable[[str], tuple[str, bytes]]
"""Returns the content type and the text of all metrics, by the types that are accepted."""


@dataclass(slots=True)
class Admin:
    """What the admin port serves.

    Attributes:
        exposition: returns the metrics.
        url: where it listens.
        is_ready: clients are served, and nothing has begun to end the run.
    """

    exposition: Exposition
    url: str = ""
    is_ready: bool = False

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Say that clients are served, until the block ends: what comes then is the drain."""
        self.is_ready = True
        try:
            yield
        finally:
            self.is_ready = False

    async def handle(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        await downstream.send_whole(*self._page(request))

    def _page(self, request: Request) -> tuple[int, Headers, bytes]:
        if request.method not in ("GET", "HEAD"):
            return 405, (*TEXT_HEADERS, ("Allow", "GET, HEAD")), b"GET only\n"
        match request.target.partition("?")[0]:
            case "/livez":
                return 200, TEXT_HEADERS, b"alive\n"
            case "/readyz":
                status, body = (200, b"ready\n") if self.is_ready else (503, b"not ready\n")
                return status, TEXT_HEADERS, body
            case "/metrics":
                content_type, text = self.exposition(request.header("accept"))
                return 200, (("Content-Type", content_type),), text
        return 404, TEXT_HEADERS, b"no such page; there are /livez, /readyz, /metrics\n"


@asynccontextmanager
async def serving_admin(
    access: Access, port: int, exposition: Exposition, log: Log | None
) -> AsyncIterator[Admin]:
    """Serve the admin port until the block ends.

    Args:
        access: where clients are served, and under which names: the admin port has the same.
        port: the port; 0 takes a free one.
        log: takes a line for each request that could not be handled.

    Raises:
        UsageError: the port can't be bound.
    """
    access = replace(access, port=port)
    admin = Admin(exposition)
    with listening(access) as listener:
        admin.url = listener.url("")
        async with serving(admin.handle, listener, access, log):
            yield admin
