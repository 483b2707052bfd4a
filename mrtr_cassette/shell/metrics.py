"""The numbers of a run, counted from its events and its requests, for Prometheus.

Rule: labels have values that are known when a run begins: methods that MCP names, tools and prompts
of the cassette, reasons of misses. Nothing that a client sends makes a new one.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from mrtr_cassette.core.protocol.methods import known_method, target_of
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.http.server import HttpDownstream

_PREFIX: Final = "mrtr_cassette"
_WITHIN: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds that are the bounds of a histogram's buckets."""
_TICK_S: Final = 0.1
"""Seconds between two looks at how late the event loop is: a sample, which misses short stalls."""


class Metrics:
    """The numbers of one run.

    Attributes:
        playables: what can be played.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        """Count nothing yet."""
        self.playables: Sequence[Playable] = ()
        self._clock = clock
        self._registry = registry = CollectorRegistry()
        registry.register(self)
        counter = partial(Counter, namespace=_PREFIX, registry=registry)
        gauge = partial(Gauge, namespace=_PREFIX, registry=registry)
        histogram = partial(Histogram, namespace=_PREFIX, registry=registry)
        misses = counter("misses", "Requests without a recorded reply", ["reason"])
        for reason in Reason:
            misses.labels(reason.value)
        self._counters = {
            "missed": misses,
            "harmless": counter(
                "harmless", "Requests that were not recorded and got what any server answers"
            ),
            "asked": counter("asks", "Times that a client was asked for input", ["via"]),
            "answered": counter(
                "answers", "Times that a client answered what it was asked", ["via"]
            ),
            "unreachable": counter("unreachable", "Requests that the upstream did not answer"),
            "unrecorded": counter("unrecorded", "Requests that could not be recorded"),
        }
        self._exchanges = counter("exchanges", "Exchanges that were recorded")
        self._failed = gauge("recording_failed", "1 where a recording is not whole")
        self._in_flight = gauge("requests_in_flight", "Requests whose response is not whole")
        self._duration = histogram(
            "request_duration_seconds",
            "Time from a request to the end of its response",
            ["method"],
            buckets=(0.00025, 0.0005, *_WITHIN, 30.0, 60.0),
        )
        self._received = counter("received_bytes", "Bytes of requests' bodies")
        self._sent = counter("sent_bytes", "Bytes of responses' bodies")
        self._loop_lag = histogram(
            "loop_lag_seconds", "How late the event loop did what was due", buckets=_WITHIN
        )

    def event(self, event: dict[str, Any]) -> None:
        """Count what has happened."""
        name = event["event"]
        if name in self._counters:
            labels = [event[each] for each in ("reason", "via") if each in event]
            (self._counters[name].labels(*labels) if labels else self._counters[name]).inc()
        elif name == "failed":
            self._failed.set(1)
        # Of all events, those of a recorded response have its status.
        if "status" in event:
            self._exchanges.inc()

    def request_began(self, client: HttpDownstream) -> None:
        """Count a request."""
        self._in_flight.inc()
        client.began = self._clock.now()

    def request_ended(self, client: HttpDownstream) -> None:
        """Count the end of its response."""
        self._in_flight.dec()
        self._received.inc(client.received)
        self._sent.inc(client.sent)
        duration = self._clock.now() - client.began
        self._duration.labels(known_method(client.called)).observe(duration)

    @asynccontextmanager
    async def watching_loop(self) -> AsyncIterator[None]:
        """Measure how late the event loop is, until the block ends."""
        task = asyncio.create_task(self._watch_loop())
        try:
            yield
        finally:
            task.cancel()

    async def _watch_loop(self) -> None:
        while True:
            due = self._clock.now() + _TICK_S
            await self._clock.sleep(_TICK_S)
            self._loop_lag.observe(max(0.0, self._clock.now() - due))

    def collect(self) -> Iterator[Metric]:
        """Return what was played, as the registry asks for it."""
        played = Tally[tuple[str, str]]()
        for each in self.playables:
            key = each.key
            played[known_method(key.method), target_of(key.method, key.name)] += each.played
        family = CounterMetricFamily(
            f"{_PREFIX}_plays", "Requests that got a recorded reply", labels=["method", "name"]
        )
        for labels, times in sorted(played.items()):
            family.add_metric(labels, times)
        yield family

    def exposition(self, accept: str) -> tuple[str, bytes]:
        """Return the numbers as a text, after its content type.

        Args:
            accept: the content types that the reader takes; without one, the older format.
        """
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)
