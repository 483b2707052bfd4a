"""The admin port: what whoever runs a proxy asks of it, never on the clients' port.

Rule: where nobody asks for it, nothing of it is imported and it costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.report.events import admin_said
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.http.access import Access, Listener, listening
from mrtr_cassette.shell.http.server import REQUEST_TIMEOUTS, RequestTimeouts, serving
from mrtr_cassette.shell.transport import TEXT_HEADERS, Downstream, Handler

if TYPE_CHECKING:
    from mrtr_cassette.shell.metrics import Metrics


class Admin:
    """Serves `/livez`, `/readyz` and `/metrics` of one run, where a port is asked for."""

    def __init__(self, options: ProxyOptions) -> None:
        """Make sure that all is there that the options need.

        Raises:
            UsageError: what serves metrics is not installed.
        """
        self._port = options.admin_port
        self._metrics: Metrics | None = None
        self._is_ready = False
        if self._port is not None:
            if find_spec("prometheus_client") is None:
                raise UsageError(
                    "<<admin_port>> needs prometheus_client, which is not installed",
                    hint="pip install 'mrtr-cassette[metrics]'",
                )
            from mrtr_cassette.shell.metrics import Metrics

            self._metrics = Metrics()

    def told(self, on_event: OnEvent | None) -> OnEvent | None:
        """Return what takes events: the metrics too, where there are any."""
        metrics = self._metrics
        if metrics is None or on_event is None:
            return on_event if metrics is None else metrics.event

        def both(event: dict[str, Any]) -> None:
            metrics.event(event)
            on_event(event)

        return both

    @asynccontextmanager
    async def serving(
        self,
        handler: Handler,
        listener: Listener,
        access: Access,
        announcer: Announcer,
        playables: Sequence[Playable],
        *,
        timeouts: RequestTimeouts = REQUEST_TIMEOUTS,
    ) -> AsyncIterator[str | None]:
        """Serve clients, and the admin port before and after them; give the admin port's URL.

        Raises:
            UsageError: the admin port can't be bound.
        """
        metrics, log = self._metrics, announcer.log
        served = serving(*(handler, listener, access, log), timeouts=timeouts, meter=metrics)
        if metrics is None or self._port is None:
            async with served:
                yield None
            return
        metrics.playables = playables
        # It has the clients' host and names.
        access = replace(access, port=self._port)
        with listening(access) as own:
            async with serving(self._handle, own, access, log), metrics.watching_loop(), served:
                url = own.url("")
                announcer.say(admin_said, url)
                self._is_ready = True
                try:
                    yield url
                finally:
                    # What comes until the clients' port is closed is the drain.
                    self._is_ready = False

    async def _handle(self, request: Request, downstream: Downstream) -> None:
        await downstream.send_whole(*self._page(request))

    def _page(self, request: Request) -> tuple[int, Headers, bytes]:
        if request.method not in ("GET", "HEAD"):
            return 405, (*TEXT_HEADERS, ("Allow", "GET, HEAD")), b"GET only\n"
        match request.target.partition("?")[0]:
            case "/livez":
                return 200, TEXT_HEADERS, b"alive\n"
            case "/readyz":
                status, body = (200, b"ready\n") if self._is_ready else (503, b"not ready\n")
                return status, TEXT_HEADERS, body
            case "/metrics" if self._metrics is not None:
                content_type, text = self._metrics.exposition(request.header("accept"))
                return 200, (("Content-Type", content_type),), text
        return 404, TEXT_HEADERS, b"no such page; there are /livez, /readyz, /metrics\n"
