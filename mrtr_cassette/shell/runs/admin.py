"""The admin port of a run: whether it is alive and ready, and its numbers for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Final

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.files.log import Announcer, OnEvent, heard_by
from mrtr_cassette.shell.http.access import Listener, listening
from mrtr_cassette.shell.http.server import HttpDownstream, HttpHandler, serving
from mrtr_cassette.shell.http.transport import TEXT_HEADERS, Downstream

_PREFIX: Final = "mrtr_cassette"
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
        # An optional dependency, which costs nothing if nobody asks for the port.
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = CollectorRegistry()
        common: dict[str, Any] = {"namespace": _PREFIX, "registry": self._registry}
        self._counters: dict[str, Any] = {}
        for event, words in _COUNTED_EVENTS.items():
            self._counters[event] = Counter(*words, **common)
        for reason in Reason:
            self._counters["missed"].labels(reason.value)
        self._plays = Counter(
            "plays", "Requests that got a recorded reply", ["method", "name"], **common
        )
        self._exchanges = Counter("exchanges", "Exchanges that were recorded", **common)
        self._failed = Gauge(
            "recording_failed", "1 where a recording is not whole", **common
        )
        self._in_flight = Gauge(
            "requests_in_flight", "Requests whose response is not whole", **common
        )
        self._duration = Histogram(
            "request_duration_seconds",
            "Time from a request to the end of its response",
            ["method"],
            buckets=_BOUNDS_S,
            **common,
        )
        self._received = Counter(
            "received_bytes", "Bytes of requests' bodies", **common
        )
        self._sent = Counter("sent_bytes", "Bytes of responses' bodies", **common)

    def event(self, event: dict[str, Any]) -> None:
        """Count what has happened."""
        counter = self._counters.get(event["event"])
        if counter is not None:
            labels = [event[label] for label in ("reason", "via") if label in event]
            if labels:
                counter = counter.labels(*labels)
            counter.inc()
        elif event["event"] == "failed":
            self._failed.set(1)
        elif event["event"] == "played":
            method = method_of(event["method"])
            # Names of tools and prompts are few; addresses and ids may be many, or secret.
            name = event["name"] if method.named_by == "name" else ""
            self._plays.labels(method.name, name).inc()
        # Of all events, those of a recorded response have its status.
        if "status" in event:
            self._exchanges.inc()

    def counted(self, handler: HttpHandler) -> HttpHandler:
        """Return a handler that does the same, and whose requests are counted."""

        async def handle(request: Request, client: HttpDownstream) -> None:
            self._received.inc(len(request.body))
            duration = self._duration.labels(method_of(read_call(request).method).name)
            with self._in_flight.track_inprogress(), duration.time():
                try:
                    await handler(request, client)
                finally:
                    self._sent.inc(client.sent)

        return handle

    def exposition(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text of the numbers; without `accept` in the older format."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)


class Admin:
    """Serves `/livez`, `/readyz` and `/metrics` of one run, where a port is asked for."""

    def __init__(self, options: ProxyOptions) -> None:
        """Check that what the options need is installed.

        Raises:
            UsageError: what serves metrics is not installed.
        """
        self._options = options
        self._metrics: Metrics | None = None
        self._is_ready = False
        if options.admin_port is not None:
            if find_spec("prometheus_client") is None:
                raise UsageError(
                    "<<admin_port>> needs prometheus_client, which is not installed",
                    hint="pip install 'mrtr-cassette[metrics]'",
                )
            self._metrics = Metrics()

    def listeners(self, on_event: OnEvent | None) -> tuple[OnEvent, ...]:
        """Return the listeners of events, the metrics among them."""
        if self._metrics is None:
            return heard_by(on_event)
        return heard_by(self._metrics.event, on_event)

    @asynccontextmanager
    async def serving(
        self,
        handler: HttpHandler,
        listener: Listener,
        announcer: Announcer,
        *,
        drain_s: float = 0.0,
    ) -> AsyncIterator[str | None]:
        """Serve clients, and the admin port before and after them; give the admin port's URL.

        Raises:
            UsageError: the admin port can't be bound.
        """
        metrics = self._metrics
        log = announcer.log
        if metrics is None or self._options.admin_port is None:
            async with serving(handler, listener, self._options, log, drain_s=drain_s):
                yield None
            return
        counted = metrics.counted(handler)
        served = serving(counted, listener, self._options, log, drain_s=drain_s)
        # It has the clients' host and names.
        options = replace(self._options, port=self._options.admin_port)
        with listening(options) as bound:
            async with serving(self._handle, bound, options, log), served:
                url = bound.url("")
                announcer.say(
                    lambda: ({"event": "admin", "url": url}, f"admin port on {url}")
                )
                self._is_ready = True
                try:
                    yield url
                finally:
                    # What comes until the clients' port is closed is the drain.
                    self._is_ready = False

    async def _handle(self, request: Request, downstream: Downstream) -> None:
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
            content_type, body = self._metrics.exposition(request.header("accept"))
            headers = (("Content-Type", content_type),)
        else:
            status = 404
            body = b"no such page; there are /livez, /readyz, /metrics\n"
        await downstream.send_whole(status, headers, body)
