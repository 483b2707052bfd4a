"""Whoever watches a run from outside: listeners of its events and of its requests.

Owns: which of them a run has, and serving clients while they watch.
Does not own: what they make of what they are told (`metrics`), and the admin port (`admin`).
Rule: what nobody asks for is not imported and costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.report.events import admin_event, admin_line
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.announcing import Announcer, Event
from mrtr_cassette.shell.http_server import (
    REQUEST_TIMEOUTS,
    Access,
    Listener,
    RequestTimeouts,
    serving,
)
from mrtr_cassette.shell.transport import Handler

if TYPE_CHECKING:
    from mrtr_cassette.shell.metrics import Lag, Metrics
    from mrtr_cassette.shell.tracing import Tracing


class Telemetry:
    """What tells others of one run.

    Attributes:
        metrics: its numbers; None where nobody asks for them.
    """

    def __init__(self, options: ProxyOptions) -> None:
        """Make sure that all is there that the options need.

        Raises:
            UsageError: an extra is not installed.
        """
        self._port = options.admin_port
        self._uses_otel = options.otel
        self._tracing: Tracing | None = None
        self.metrics: Metrics | None = None
        if self._port is not None:
            _require("prometheus_client", "admin_port", "metrics")
            from mrtr_cassette.shell.metrics import Metrics

            self.metrics = Metrics()
        if self._uses_otel:
            _require("opentelemetry.sdk", "otel", "otel")

    @property
    def listener(self) -> Callable[[Event], None] | None:
        """What takes events; None where nobody wants them."""
        if self._uses_otel:
            return self._tell
        return None if self.metrics is None else self.metrics.event

    def _tell(self, event: Event) -> None:
        for each in (self.metrics, self._tracing):
            if each is not None:
                each.event(event)

    def follow(self, lag: Lag) -> None:
        """Have it told how far a journal is behind what has come."""
        if self.metrics is not None:
            self.metrics.lag = lag

    @asynccontextmanager
    async def serving(
        self,
        handler: Handler,
        listener: Listener,
        access: Access,
        announcer: Announcer,
        playables: Sequence[Playable],
        *,
        files_each: int = 1,
        timeouts: RequestTimeouts = REQUEST_TIMEOUTS,
    ) -> AsyncIterator[str | None]:
        """Serve clients, and those who watch, until the block ends; give the admin port's URL.

        The admin port is there before the clients' is served, and after it.

        Args:
            files_each: how many descriptors a client's connection needs.

        Raises:
            UsageError: the admin port can't be bound.
        """
        metrics, log = self.metrics, announcer.log
        with self._traced(handler) as traced:
            served = serving(
                *(traced, listener, access, log),
                files_each=files_each,
                timeouts=timeouts,
                meter=metrics,
            )
            if metrics is None or self._port is None:
                async with served:
                    yield None
                return
            from mrtr_cassette.shell.admin import serving_admin

            metrics.begin(playables)
            admin_port = serving_admin(access, self._port, metrics.exposition, log)
            async with admin_port as admin, metrics.gathering(), served:
                announcer.say(partial(admin_event, admin.url), partial(admin_line, admin.url))
                with admin.ready():
                    yield admin.url

    @contextmanager
    def _traced(self, handler: Handler) -> Iterator[Handler]:
        """Give a handler of whose requests spans tell, if anybody wants them, until the block ends.

        Raises:
            UsageError: an exporter is not installed.
        """
        if not self._uses_otel:
            yield handler
            return
        from mrtr_cassette.shell.otel_providers import providers
        from mrtr_cassette.shell.tracing import Tracing

        taking = providers()
        self._tracing = Tracing(taking.tracers, taking.meters)
        try:
            yield self._tracing.handling(handler)
        finally:
            self._tracing.end()
            taking.shut_down()


def _require(module: str, option: str, extra: str) -> None:
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise UsageError(
            f"<<{option}>> needs {module}, which is not installed",
            hint=f"pip install 'mrtr-cassette[{extra}]'",
        )
