"""Counting a run while it runs, and its numbers as a text that Prometheus reads.

Owns: the time that requests take, and how late the event loop is.
Does not own: which metrics there are and what adds to them (`core.report.metrics`), and where the
text is served (`admin`).
Rule: prometheus_client is imported for the text only, so counting costs no more than additions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.report.metrics import Counts, Family, Sample, Traffic
from mrtr_cassette.shell.announcing import Event
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.http.server import HttpDownstream

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_TICK_S = 0.1
"""Seconds between two looks at how late the event loop is: a sample, which misses short stalls."""
_TICKS_GATHERED = 10
"""Looks after which what has gathered is counted."""


class Metrics:
    """The numbers of one run."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        """Count nothing before it is known what can be played."""
        self._clock = clock
        self._now = clock.now
        self._traffic = Traffic()
        self.begin(())

    def begin(self, playables: Sequence[Playable]) -> None:
        """Begin to count plays of these."""
        self._counts = Counts(playables)

    def event(self, event: Event) -> None:
        """Count what has happened."""
        counted = self._counts.counted.get(event.func)
        if counted is not None:
            counted(*event.args)

    def request_began(self, client: HttpDownstream) -> None:
        """Count a request."""
        self._traffic.in_flight += 1
        client.began = self._now()

    def request_ended(self, client: HttpDownstream) -> None:
        """Count the end of its response."""
        traffic = self._traffic
        traffic.in_flight -= 1
        traffic.received += client.received
        traffic.sent += client.sent
        # Sorted into buckets later, many at once, which costs a fraction.
        traffic.durations[client.called].append(self._now() - client.began)

    @asynccontextmanager
    async def gathering(self) -> AsyncIterator[None]:
        """Measure how late the event loop is, and count what gathers, until the block ends."""
        task = asyncio.create_task(self._gather())
        try:
            yield
        finally:
            task.cancel()
            self.flush()

    async def _gather(self) -> None:
        clock = self._clock
        for tick in count(1):
            due = clock.now() + _TICK_S
            await clock.sleep(_TICK_S)
            self._counts.loop_was_late(max(0.0, clock.now() - due))
            if tick % _TICKS_GATHERED == 0:
                self.flush()

    def flush(self) -> None:
        """Count what has gathered."""
        traffic, self._traffic = self._traffic, Traffic(self._traffic.in_flight)
        self._counts.handled(traffic)
        self._counts.played()

    def exposition(self, accept: str) -> tuple[str, bytes]:
        """Return the numbers as a text, after its content type.

        Args:
            accept: the content types that the reader takes; without one, the older format.
        """
        from prometheus_client.exposition import choose_encoder

        self.flush()
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self)

    def collect(self) -> Iterator[Metric]:
        """Return the numbers as prometheus_client has them."""
        for family, samples in self._counts.samples().items():
            yield _metric(family, samples)


def _metric(family: Family, samples: Iterable[Sample]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, (*counts, total) in samples:
            buckets, so_far = [], 0.0
            for bound, count in zip((*family.bounds, "+Inf"), counts, strict=True):
                so_far += count
                buckets.append((str(bound), so_far))
            histogram.add_metric(labels, buckets, total)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for sample in samples:
        metric.add_metric(sample.labels, sample.numbers[0])
    return metric
