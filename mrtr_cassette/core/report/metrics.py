"""The numbers of a run, for whoever watches many of them.

Owns: which metrics there are, and what each event adds to them.
Does not own: time, and how metrics are served (`shell`).
Rule: labels have values that are known when a run begins: methods that MCP names, tools and prompts
of the cassette, reasons of misses. Nothing that a client sends makes a new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.protocol.methods import METHODS, known_method, target_of
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.report.events import (
    answered_event,
    asked_by_push_event,
    asked_event,
    failed_event,
    harmless_event,
    missed_event,
    pushed_event,
    request_event,
    response_event,
    unreachable_event,
    unrecorded_event,
)

Labels = tuple[str, ...]

_WITHIN: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds that are the bounds of a histogram's buckets."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric, with all its label values.

    Attributes:
        name: as it is queried, but for what OpenMetrics adds: `_total` to a counter; `_bucket`,
            `_count` and `_sum` to a histogram.
        kind: what may happen to its numbers.
        help: what it counts.
        labels: the names of its labels.
        bounds: the upper bounds of a histogram's buckets; the last one has none.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    bounds: Sequence[float] = ()

    @property
    def size(self) -> int:
        """How many numbers one of its label values has: a histogram's sum comes last."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


PLAYS: Final = Family(
    "mrtr_cassette_plays", "counter", "Requests that got a recorded reply", ("method", "name")
)
MISSES: Final = Family(
    "mrtr_cassette_misses", "counter", "Requests without a recorded reply", ("reason",)
)
HARMLESS: Final = Family(
    "mrtr_cassette_harmless",
    "counter",
    "Requests that were not recorded and got what any server answers",
)
ASKS: Final = Family(
    "mrtr_cassette_asks", "counter", "Times that a client was asked for input", ("via",)
)
ANSWERS: Final = Family(
    "mrtr_cassette_answers", "counter", "Times that a client answered what it was asked", ("via",)
)
EXCHANGES: Final = Family("mrtr_cassette_exchanges", "counter", "Exchanges that were recorded")
UNREACHABLE: Final = Family(
    "mrtr_cassette_unreachable", "counter", "Requests that the upstream did not answer"
)
UNRECORDED: Final = Family(
    "mrtr_cassette_unrecorded", "counter", "Requests that could not be recorded"
)
FAILED: Final = Family(
    "mrtr_cassette_recording_failed", "gauge", "1 where a recording is not whole"
)
IN_FLIGHT: Final = Family(
    "mrtr_cassette_requests_in_flight", "gauge", "Requests whose response is not whole"
)
DURATION: Final = Family(
    "mrtr_cassette_request_duration_seconds",
    "histogram",
    "Time from a request to the end of its response",
    ("method",),
    (0.00025, 0.0005, *_WITHIN, 30.0, 60.0),
)
RECEIVED: Final = Family("mrtr_cassette_received_bytes", "counter", "Bytes of requests' bodies")
SENT: Final = Family("mrtr_cassette_sent_bytes", "counter", "Bytes of responses' bodies")
LOOP_LAG: Final = Family(
    "mrtr_cassette_loop_lag_seconds",
    "histogram",
    "How late the event loop did what was due",
    (),
    _WITHIN,
)
FAMILIES: Final = (
    *(PLAYS, MISSES, HARMLESS, ASKS, ANSWERS, EXCHANGES, UNREACHABLE, UNRECORDED, FAILED),
    *(IN_FLIGHT, DURATION, RECEIVED, SENT, LOOP_LAG),
)


class Sample(NamedTuple):
    """The numbers of one metric with one set of label values.

    Attributes:
        labels: the values of the labels.
        numbers: one; of a histogram those of its buckets, each by itself, and the sum.
    """

    labels: Labels
    numbers: Sequence[float]


@dataclass(slots=True)
class Traffic:
    """Requests and responses since they were counted last.

    Attributes:
        in_flight: requests whose response is not whole.
        received: bytes of requests' bodies.
        sent: bytes of responses' bodies.
        durations: seconds from a request to the end of its response, by method.
    """

    in_flight: int = 0
    received: int = 0
    sent: int = 0
    durations: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class Counts:
    """The numbers of a run.

    Attributes:
        counted: what counts an event, by the function of `events` that makes facts of it; it takes
            the arguments of that.
    """

    def __init__(self, playables: Iterable[Playable] = ()) -> None:
        """Count nothing yet.

        Args:
            playables: what can be played.
        """
        self._playables = defaultdict[Labels, list[Playable]](list)
        for each in playables:
            self._playables[_played_as(each)].append(each)
        values: dict[Labels, Iterable[Labels]] = {
            (): [()],
            ("method", "name"): sorted(self._playables),
            ("method",): [(method,) for method in METHODS],
            ("reason",): [(reason.value,) for reason in Reason],
            ("via",): [("result",), ("push",)],
        }
        self._numbers: dict[Family, dict[Labels, list[float]]] = {
            family: {labels: [0.0] * family.size for labels in values[family.labels]}
            for family in FAMILIES
        }
        self.counted: dict[Callable[..., Any], Callable[..., None]] = {
            missed_event: self._missed,
            harmless_event: partial(self._add, HARMLESS),
            asked_event: partial(self._add, ASKS, "result"),
            asked_by_push_event: partial(self._add, ASKS, "push"),
            answered_event: self._answered,
            request_event: self._request,
            response_event: self._response,
            pushed_event: partial(self._add, ASKS, "push"),
            unreachable_event: partial(self._add, UNREACHABLE),
            unrecorded_event: partial(self._add, UNRECORDED),
            failed_event: partial(self._set, FAILED, 1.0),
        }

    def handled(self, traffic: Traffic) -> None:
        """Count requests whose responses have ended, and those that are in flight."""
        self._set(IN_FLIGHT, traffic.in_flight)
        self._numbers[RECEIVED][()][0] += traffic.received
        self._numbers[SENT][()][0] += traffic.sent
        for method, durations in traffic.durations.items():
            self._observe(DURATION, durations, known_method(method))

    def played(self) -> None:
        """Count what has been played."""
        for labels, playables in self._playables.items():
            self._numbers[PLAYS][labels][0] = sum(each.played for each in playables)

    def loop_was_late(self, seconds: float) -> None:
        """Count how late the event loop did what was due."""
        self._observe(LOOP_LAG, (seconds,))

    def _observe(self, family: Family, values: Sequence[float], *labels: str) -> None:
        numbers = self._numbers[family][labels]
        for bucket, count in Counter(bisect_left(family.bounds, each) for each in values).items():
            numbers[bucket] += count
        numbers[-1] += sum(values)

    def _add(self, family: Family, *labels_and_facts: object) -> None:
        labels = labels_and_facts[: len(family.labels)]
        self._numbers[family][labels][0] += 1.0  # type: ignore[index]

    def _set(self, family: Family, value: float, *_facts: object) -> None:
        self._numbers[family][()][0] = value

    def _missed(self, miss: Miss) -> None:
        self._add(MISSES, miss.reason.value)

    def _answered(self, playable: Playable) -> None:
        self._add(ANSWERS, "result" if playable.answers is None else "push")

    def _request(self, observation: Observation) -> None:
        if observation.answered is not None:
            self._add(ANSWERS, "push")
        elif observation.call.answers is not None:
            self._add(ANSWERS, "result")

    def _response(self, observation: Observation, *_facts: object) -> None:
        self._add(EXCHANGES)
        if observation.ask is not None:
            self._add(ASKS, "result")

    def samples(self) -> dict[Family, list[Sample]]:
        """Return the numbers of each metric; a histogram without a value is left out."""
        return {
            family: [
                Sample(labels, list(numbers))
                for labels, numbers in each.items()
                if family.kind != "histogram" or not labels or any(numbers)
            ]
            for family, each in self._numbers.items()
        }


def _played_as(playable: Playable) -> Labels:
    key = playable.key
    return known_method(key.method), target_of(key.method, key.name)
