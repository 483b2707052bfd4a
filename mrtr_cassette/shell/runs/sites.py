"""Where clients reach a run: a port of its own, or a path of a server that many runs share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Final, Protocol

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.files.log import Announcer, OnEvent, given_listeners
from mrtr_cassette.shell.http.access import Listener, listening
from mrtr_cassette.shell.http.server import HttpDownstream, HttpHandler, serving
from mrtr_cassette.shell.http.transport import TEXT_HEADERS, Downstream

_METRICS_PREFIX: Final = "mrtr_cassette"
_COUNTED_EVENTS: Final = {
    "missed": ("misses", "Requests without a recorded reply", ["reason"]),
    "harmless": (
        "harmless",
        "Requests that were not recorded and got any server's answer",
        (),
    ),
    "asked": ("asks", "Times that a client was asked for input", ["via"]),
    "answered": ("answers", "Times that a client answered what it was asked", ["via"]),
    "unreachable": ("unreachable", "Requests that the upstream did not answer", ()),
}
"""Name, description and labels of the counter of each event.

Labels have values that are known when a run begins: methods that MCP names, tools and prompts of
the cassette, reasons of misses. Nothing that a client sends makes a new one.
"""

_BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
"""Bounds of the histogram's buckets."""


class Metrics:
    """The numbers of one run, counted from its events and its requests."""

    def __init__(self) -> None:
        """Register the metrics; misses are counted from 0 for every reason."""
        # An optional dependency, which costs nothing if nobody asks for the port.
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = CollectorRegistry()
        metric_options: dict[str, Any] = {
            "namespace": _METRICS_PREFIX,
            "registry": self._registry,
        }
        self._counters_by_event: dict[str, Any] = {}
        for event, counter_words in _COUNTED_EVENTS.items():
            self._counters_by_event[event] = Counter(*counter_words, **metric_options)

        for reason in Reason:
            self._counters_by_event["missed"].labels(reason.value)

        self._plays_counter = Counter(
            "plays",
            "Requests that got a recorded reply",
            ["method", "name"],
            **metric_options,
        )
        self._exchanges_counter = Counter(
            "exchanges", "Exchanges that were recorded", **metric_options
        )
        self._failed_gauge = Gauge(
            "recording_failed", "1 if a recording is incomplete", **metric_options
        )
        self._in_flight = Gauge(
            "requests_in_flight",
            "Requests whose response is incomplete",
            **metric_options,
        )
        self._duration_histogram = Histogram(
            "request_duration_seconds",
            "Time from a request to the end of its response",
            ["method"],
            buckets=_BOUNDS_S,
            **metric_options,
        )

        self._received_bytes_counter = Counter(
            "received_bytes", "Bytes of requests' bodies", **metric_options
        )
        self._sent_bytes_counter = Counter(
            "sent_bytes", "Bytes of responses' bodies", **metric_options
        )

    def count_event(self, event: dict[str, Any]) -> None:
        """Count what has happened."""
        counter = self._counters_by_event.get(event["event"])
        if counter is not None:
            labels = [event[label] for label in ("reason", "via") if label in event]
            if labels:
                counter = counter.labels(*labels)

            counter.inc()
        elif event["event"] == "failed":
            self._failed_gauge.set(1)
        elif event["event"] == "played":
            method = method_of(event["method"])
            # Names of tools and prompts are few; addresses and ids may be many, or secret.
            name = event["name"] if method.named_by == "name" else ""
            self._plays_counter.labels(method.name, name).inc()

        # Of all events, those of a recorded response have its status.
        if "status" in event:
            self._exchanges_counter.inc()

    def counted_handler(self, handler: HttpHandler) -> HttpHandler:
        """Return a handler that does the same, and whose requests are counted."""

        async def handle_and_count(request: Request, client: HttpDownstream) -> None:
            """Handle a request, and count its bytes and the time that it takes."""
            self._received_bytes_counter.inc(len(request.body))
            duration = self._duration_histogram.labels(
                method_of(read_call(request).method).name
            )
            with self._in_flight.track_inprogress(), duration.time():
                try:
                    await handler(request, client)
                finally:
                    self._sent_bytes_counter.inc(client.sent_bytes)

        return handle_and_count

    def metrics_page(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text of the numbers; without `accept` in the older format."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)


class Site(Protocol):
    """Where clients reach one run."""

    def listeners(self, on_event: OnEvent | None) -> tuple[OnEvent, ...]:
        """Return the listeners of the run's events."""

    def opened_url(self) -> AbstractContextManager[str]:
        """Give the URL under which all its paths are; clients that connect wait for `serving`.

        Raises:
            UsageError: the address can't be bound.
        """

    def serving(
        self, handler: HttpHandler, announcer: Announcer
    ) -> AbstractAsyncContextManager[str | None]:
        """Serve clients until the block ends; give the URL of the admin port, if there is one.

        Raises:
            UsageError: the admin port can't be bound.
        """


SITES: Final = "/.mrtr/plays"
"""The path under which the sites of runs are that share a server."""

_SITE_TARGET = re.compile(
    r"(?P<document>/\.well-known/[\w.-]+)?"
    + re.escape(SITES)
    + r"/(?P<name>[0-9a-f]+)(?P<rest>/.*)?",
    re.DOTALL,
)
"""Matches what is under the path of a site.

What tells clients how to be authorized has the path behind its own (RFC 9728, section 3.1).
"""


class SharedSite:
    """A path on a server that many runs share."""

    def __init__(self, server_url: str, name: str) -> None:
        """Take the URL of the server, without a path, and the name of the site."""
        self._site_url = f"{server_url}{SITES}/{name}"
        self._served_handler: HttpHandler | None = None
        self._request_tasks: set[asyncio.Task[Any]] = set()
        """Requests under way."""

    def listeners(self, on_event: OnEvent | None) -> tuple[OnEvent, ...]:
        """Return the listeners of the run's events."""
        return given_listeners(on_event)

    @contextmanager
    def opened_url(self) -> Iterator[str]:
        """Give the URL of the path."""
        yield self._site_url

    @asynccontextmanager
    async def serving(
        self,
        handler: HttpHandler,
        announcer: Announcer,  # noqa: ARG002
    ) -> AsyncIterator[None]:
        """Serve clients until the block ends; requests under way are cancelled then."""
        self._served_handler = handler
        try:
            yield
        finally:
            self._served_handler = None
            request_tasks = tuple(self._request_tasks)
            for request_task in request_tasks:
                request_task.cancel()

            await asyncio.gather(*request_tasks, return_exceptions=True)

    async def answer_request(self, request: Request, client: HttpDownstream) -> bool:
        """Answer one request; return whether the site is served."""
        if self._served_handler is None:
            return False

        task = asyncio.current_task()
        if task is None:
            raise AssertionError("unreachable because a coroutine runs in a task")

        self._request_tasks.add(task)
        try:
            await self._served_handler(request, client)
        finally:
            self._request_tasks.discard(task)

        return True


def site_named_in(request: Request) -> tuple[str, Request] | None:
    """Return the name of the site that a request is for, and the request as it is there, or None.

    The site itself, without a path of its own, is none of its paths.
    """
    match = _SITE_TARGET.fullmatch(request.target)
    if match is None:
        return None

    target = (match["document"] or "") + (match["rest"] or "")
    if not target:
        return None

    return match["name"], replace(request, target=target)


class PortSite:
    """A port of its own, and `/livez`, `/readyz` and `/metrics` if an admin port is asked for."""

    def __init__(self, options: ProxyOptions, drain_s: float = 0.0) -> None:
        """Check that what the options need is installed.

        Requests under way at the end have `drain_s` seconds.

        Raises:
            UsageError: what serves metrics is not installed.
        """
        self._listening_options = options
        self._drain_s = drain_s
        self._listener: Listener | None = None
        self._metrics: Metrics | None = None
        self._is_ready = False
        if options.admin_port is not None:
            if find_spec("prometheus_client") is None:
                problem = (
                    "<<admin_port>> needs prometheus_client, which is not installed"
                )
                hint = "pip install 'mrtr-cassette[metrics]'"
                raise UsageError(problem, hint=hint)

            self._metrics = Metrics()

    def listeners(self, on_event: OnEvent | None) -> tuple[OnEvent, ...]:
        """Return the listeners of events, the metrics among them."""
        if self._metrics is None:
            return given_listeners(on_event)
        return given_listeners(self._metrics.count_event, on_event)

    @contextmanager
    def opened_url(self) -> Iterator[str]:
        """Listen on the port."""
        with listening(self._listening_options) as self._listener:
            yield self._listener.url("")

    @asynccontextmanager
    async def serving(
        self, handler: HttpHandler, announcer: Announcer
    ) -> AsyncIterator[str | None]:
        """Serve clients, and the admin port before and after them."""
        listener = self._listener
        if listener is None:
            raise AssertionError("unreachable because it is opened first")

        options = self._listening_options
        metrics = self._metrics
        log = announcer.log
        if metrics is None or options.admin_port is None:
            async with serving(handler, listener, options, log, drain_s=self._drain_s):
                yield None

            return

        counted_handler = metrics.counted_handler(handler)
        serving_context = serving(
            counted_handler, listener, options, log, drain_s=self._drain_s
        )
        # The admin port has the clients' host and names.
        admin_options = replace(options, port=options.admin_port)
        with listening(admin_options) as admin_listener:
            admin_context = serving(
                self._answer_admin_request, admin_listener, admin_options, log
            )
            async with admin_context, serving_context:
                url = admin_listener.url("")
                announcer.say(
                    lambda: ({"event": "admin", "url": url}, f"admin port on {url}")
                )
                self._is_ready = True
                try:
                    yield url
                finally:
                    # What comes until the clients' port is closed is the drain.
                    self._is_ready = False

    async def _answer_admin_request(
        self, request: Request, downstream: Downstream
    ) -> None:
        """Answer a request to the admin port: `/livez`, `/readyz` or `/metrics`."""
        path = request.target.partition("?")[0]
        headers = TEXT_HEADERS
        status = 200
        if request.method not in ("GET", "HEAD"):
            status = 405
            body = b"GET only\n"
            headers = (*TEXT_HEADERS, ("Allow", "GET, HEAD"))
        elif path == "/livez":
            body = b"alive\n"
        elif path == "/readyz" and self._is_ready:
            body = b"ready\n"
        elif path == "/readyz":
            status = 503
            body = b"not ready\n"
        elif path == "/metrics" and self._metrics is not None:
            content_type, body = self._metrics.metrics_page(request.header("accept"))
            headers = (("Content-Type", content_type),)
        else:
            status = 404
            body = b"no such page; there are /livez, /readyz, /metrics\n"

        await downstream.send_response(status, headers, body)
