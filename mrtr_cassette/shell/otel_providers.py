"""Where traces and metrics go: what the variables of OpenTelemetry say.

Owns: the providers of a run, of which nothing is global, and their end.
Does not own: what they take (`tracing`).
Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from threading import Thread
from typing import Any, Final, NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import TracerProvider

from mrtr_cassette.errors import UsageError

_SERVICE: Final = "mrtr-cassette"
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_LAST_S: Final = 2.0
"""Seconds that what is still to be sent has when a run ends."""


class Providers(NamedTuple):
    """What takes the spans and the metrics of a run.

    Attributes:
        tracers: takes spans.
        meters: takes metrics.
        own: those of these that end with the run.
    """

    tracers: TracerProvider
    meters: MeterProvider
    own: tuple[SdkTracerProvider | SdkMeterProvider, ...] = ()

    def shut_down(self, longest_s: float = _LAST_S) -> None:
        """Send what is still to be sent, if that does not take longer."""
        # In a thread that nobody has to wait for: a collector that is away is waited for long.
        thread = Thread(target=self._shut_down, daemon=True)
        thread.start()
        thread.join(longest_s)

    def _shut_down(self) -> None:
        for each in self.own:
            each.shutdown()


def providers() -> Providers:
    """Return the providers that this process has, or those that the environment asks for.

    Raises:
        UsageError: an exporter is not installed.
    """
    # A program that uses the library may have set up its own.
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if isinstance(tracers, SdkTracerProvider) or isinstance(meters, SdkMeterProvider):
        return Providers(tracers, meters)
    resource = Resource.create()
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        resource = resource.merge(Resource({"service.name": _SERVICE}))
    # A run ends when it has to, and not when this process does.
    own_tracers = SdkTracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in _exporters("traces"):
        own_tracers.add_span_processor(BatchSpanProcessor(exporter))
    readers = [
        each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each)
        for each in _exporters("metrics")
    ]
    own_meters = SdkMeterProvider(readers, resource=resource, shutdown_on_exit=False)
    return Providers(own_tracers, own_meters, (own_tracers, own_meters))


def _exporters(signal: str) -> Iterator[Any]:
    """Return the exporters that the environment asks for: by OTLP over HTTP, if it says nothing."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    for name in filter(None, map(str.strip, os.environ.get(variable, "otlp").split(","))):
        if name == "none":
            continue
        installed = name
        if name == "otlp":
            specific = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
            protocol = specific or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
            installed = _PROTOCOLS.get(protocol, protocol)
        points = entry_points(group=f"opentelemetry_{signal}_exporter", name=installed)
        if not points:
            raise UsageError(
                f"{variable}: there is no exporter {installed!r} installed",
                hint="pip install the package of OpenTelemetry that has it",
            )
        yield next(iter(points)).load()()
