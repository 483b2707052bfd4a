"""Facts about where traces and metrics go."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider

from mrtr_cassette.shell.otel_providers import Providers


def test_a_collector_that_is_away_holds_no_run_up() -> None:
    """What can't be sent in time is given up."""
    asked, never = Event(), Event()

    def shutdown() -> None:
        asked.set()
        never.wait()

    own: Any = (SimpleNamespace(shutdown=shutdown),)
    Providers(NoOpTracerProvider(), NoOpMeterProvider(), own).shut_down(longest_s=0.01)
    assert asked.wait(10)
    never.set()
