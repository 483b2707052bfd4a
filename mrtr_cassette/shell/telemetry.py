"""Whoever watches a run from outside: listeners of its events and of its requests.

Owns: which of them a run has, and serving clients while they watch.
Does not own: what they make of what they are told (`metrics`), and the admin port (`admin`).
Rule: what nobody asks for is not imported and costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.report.events import admin_event, admin_line
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.announcing import Announcer, Event
from mrtr_cassette.shell.http.access import Access, Listener
from mrtr_cassette.shell.http.server import REQUEST_TIMEOUTS, RequestTimeouts, serving
from mrtr_cassette.shell.transport import Handler

if TYPE_CHECKING:
    from mrtr_cassette.shell.metrics import Metrics


class Telemetry:
    """What tells others of one run.

    Attributes:
        metrics: its numbers; None where nobody asks for them.
    """

    def __init__(self, options: ProxyOptions) -> None:
        """Make sure that all is there that the options need.

        Raises:
            UsageError: what serves metrics is not installed.
        """
        self._port = options.admin_port
        self.metrics: Metrics | None = None
        if self._port is not None:
            if find_spec("prometheus_client") is None:
                raise UsageError(
                    "<<admin_port>> needs prometheus_client, which is not installed",
                    hint="pip install 'mrtr-cassette[metrics]'",
                )
            from mrtr_cassette.shell.metrics import Metrics

            self.metrics = Metrics()

    @property
    def listener(self) -> Callable[[Event], None] | None:
        """What takes events; None where nobody wants them."""
        return None if self.metrics is None else self.metrics.event

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
        """Serve clients, and those who watch, until the block ends; give the admin port's URL.

        The admin port is there before the clients' is served, and after it.

        Raises:
            UsageError: the admin port can't be bound.
        """
        metrics, log = self.metrics, announcer.log
        served = serving(
            *(handler, listener, access, log),
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
