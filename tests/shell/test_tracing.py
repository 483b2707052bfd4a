"""Facts about traces and metrics by OpenTelemetry, as its own SDK takes them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import connected, http, looped, playing, post, request, run, taped, taping
from messages import JsonObject, compact, form, input_required, message, result, tool_call
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from standin import (
    JSON,
    Visit,
    answering,
    chunk,
    event,
    event_stream,
    json_response,
    response,
    stream_head,
)

from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.telemetry import Telemetry

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
STATE = "a-state-that-nobody-may-see"
SECRETS = (STATE, "4711-4711", "hunter2-hunter2", "session-id-of-nobody")
ANSWERS = {"a": {"action": "accept", "content": {"password": "hunter2-hunter2"}}}
SESSION = "Mcp-Session-Id: session-id-of-nobody"


class Told:
    """What the SDK of OpenTelemetry was told in this process."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def only(self) -> ReadableSpan:
        (span,) = self.spans
        return span

    def durations(self) -> list[dict[str, Any]]:
        """Return the attributes of the histogram's points that this process has had so far."""
        data = self.reader.get_metrics_data()
        return [
            dict(point.attributes)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == "mcp.server.operation.duration"
            for point in metric.data.data_points
        ]


@pytest.fixture(scope="module")
def sdk() -> Told:
    """A program that has set up OpenTelemetry, once, and uses the library."""
    told = Told()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(told.exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([told.reader]))
    return told


@pytest.fixture
def told(sdk: Told) -> Iterator[Told]:
    """What is told in one test."""
    sdk.exporter.clear()
    return sdk


def book(number: int = 1, **params: Any) -> JsonObject:
    """A call of a tool whose server asks once."""
    return tool_call("book", id=number, arguments={"pin": "4711-4711"}, **params)


def retry(state: str = STATE, **params: Any) -> JsonObject:
    """The call again, with answers."""
    return book(2, inputResponses=ANSWERS, requestState=state, **params)


def turns(span: ReadableSpan) -> list[tuple[Any, ...]]:
    """Return the events of a span: name, turn, via, and kinds or the retry's id."""
    return [
        (
            event.name,
            event.attributes["mrtr_cassette.turn"],
            event.attributes["mrtr_cassette.via"],
            event.attributes.get("mrtr_cassette.kinds", event.attributes.get("jsonrpc.request.id")),
        )
        for event in span.events
    ]


CONVERSATION = (
    (book(_meta={"traceparent": PARENT}), input_required("a", state=STATE)),
    (retry(_meta={"traceparent": OTHER}), result({"content": []}, id=2)),
)
TURNS = [("asked", 1, "result", ("form",)), ("answered", 1, "result", "2")]


@looped
async def test_a_recorded_interaction_is_one_span(tmp_path: Path, told: Told) -> None:
    """Its turns are events; its client's span is its parent; upstream gets what the client sent."""
    script = answering(*(json_response(reply) for _, reply in CONVERSATION))
    async with taping(tmp_path / "c.json", script, otel=True) as tape:
        for request, _ in CONVERSATION:
            await post(tape.url, request, SESSION)
        received = [each.body for each in tape.server.received]
    span = told.only
    assert received == [compact(request) for request, _ in CONVERSATION]
    assert (span.name, span.kind, span.status.status_code) == (
        "tools/call book",
        SpanKind.SERVER,
        StatusCode.UNSET,
    )
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert [f"{link.context.span_id:016x}" for link in span.links] == [OTHER.split("-")[2]]
    assert turns(span) == TURNS
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "book",
        "gen_ai.operation.name": "execute_tool",
        "jsonrpc.request.id": "1",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert not [secret for secret in SECRETS if secret in span.to_json()]
    assert {"mcp.method.name": "tools/call", "gen_ai.tool.name": "book"} in [
        {key: value for key, value in each.items() if not key.startswith(("network", "gen_ai.op"))}
        for each in told.durations()
    ]


@looped
async def test_a_replayed_interaction_is_one_span_too(tmp_path: Path, told: Told) -> None:
    """Two clients at the same turn have a span each; a miss is an error with its reason."""
    path = tmp_path / "c.json"
    replies = [(request, json_response(reply)) for request, reply in CONVERSATION]
    await taped(path, *replies)
    headers = f"traceparent: {PARENT}", f"traceparent: {OTHER}"
    async with playing(path, otel=True, repeat="always") as session:
        for header in headers:
            asked = await post(session.url, book(), header, "MCP-Protocol-Version: 2026-07-28")
        state = asked.json["result"]["requestState"]
        for header in reversed(headers):
            await post(session.url, retry(state), header)
        await post(session.url, tool_call("steal"))
        await post(session.url, book())
    theirs, ours, missed, abandoned = told.spans
    for span, header in ((ours, PARENT), (theirs, OTHER)):
        assert f"{span.context.trace_id:032x}" == header.split("-")[1]
        assert turns(span) == TURNS
        assert span.attributes["mcp.protocol.version"] == "2026-07-28"
        assert span.attributes["mrtr_cassette.interaction"] == 1
    assert (missed.name, missed.status.status_code) == ("tools/call", StatusCode.ERROR)
    assert missed.attributes["error.type"] == "-32010"
    assert missed.attributes["rpc.response.status_code"] == "-32010"
    assert missed.attributes["mrtr_cassette.miss.reason"] == "unknown-name"
    assert abandoned.attributes["mrtr_cassette.abandoned"] is True
    assert not [word for word in (*SECRETS, "steal") if word in "".join(map(str, told.durations()))]


@looped
async def test_a_retry_whose_beginning_another_replica_had_is_a_span(
    tmp_path: Path, told: Told
) -> None:
    """What it answers is told all the same."""
    async with taping(
        tmp_path / "c.json", answering(event_stream(result({"isError": True}, id=2))), otel=True
    ) as tape:
        await post(tape.url, retry())
    assert turns(told.only) == TURNS[1:]
    assert told.only.attributes["error.type"] == "tool_error"


@looped
async def test_a_client_that_leaves_cancels_its_call(tmp_path: Path, told: Told) -> None:
    """What is no call, such as the end of a session, has no span."""
    arrived = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.send(json_response(result({})))
            return
        arrived.set()
        await visit.left()

    async with taping(tmp_path / "c.json", script, otel=True) as tape:
        await http("DELETE", tape.url)
        async with connected(tape.url) as client:
            body = compact(message("tools/list"))
            await client.write(request("POST", "/mcp", JSON, body=body))
            await arrived.wait()
    assert told.only.name == "tools/list"
    assert told.only.attributes["error.type"] == "cancelled"


async def pushed_conversation(url: str) -> None:
    """Call a tool, and answer what is pushed on the call's stream."""
    async with connected(url) as client:
        _, seen = await client.ask("POST", "/mcp", JSON, SESSION, body=compact(book()))
        await seen.until(b"\n\n")
        await post(url, result({"action": "accept"}, id="push-1"), SESSION)
        await seen.rest()


@looped
async def test_what_is_pushed_is_a_turn_of_the_call(tmp_path: Path, told: Told) -> None:
    """While recording and on replay: the answer comes by a request of its own, with no span."""
    path, answered = tmp_path / "c.json", asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            pushed = message("elicitation/create", form()["params"], id="push-1")
            await visit.send(stream_head() + chunk(event(pushed)))
            await answered.wait()
            await visit.send(chunk(event(result({"content": []}))) + chunk(b""))
        else:
            await visit.send(response(status="202 Accepted"))
            answered.set()

    async with taping(path, script, otel=True) as tape:
        await pushed_conversation(tape.url)
    async with playing(path, otel=True) as session:
        await pushed_conversation(session.url)
    assert [turns(span) for span in told.spans] == [
        [("asked", 1, "push", ("form",)), ("answered", 1, "push", None)]
    ] * 2


@looped
async def test_the_environment_says_where_spans_go(tmp_path: Path) -> None:
    """A process of its own sends them when its run ends."""
    path = tmp_path / "c.json"
    await taped(path, (message("ping"), json_response(result({}))))
    client = "import os, urllib.request as u; u.urlopen(u.Request(os.environ['MRTR_CASSETTE_URL'], b'%s'))"
    command = [sys.executable, "-c", client % compact(message("ping")).decode()]
    variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}
    ended = await run(
        "replay", path, "--otel", "--port", 0, "--", *command, env={**os.environ, **variables}
    )
    _, _, printed = ended.out.partition("\n")
    span = json.loads(printed)
    assert span["name"] == "ping"
    assert span["resource"]["attributes"]["service.name"] == "mrtr-cassette"

    unknown = await run(
        "replay", path, "--otel", "--port", 0, env={**os.environ, "OTEL_TRACES_EXPORTER": "smoke"}
    )
    assert unknown.code == 2
    assert "OTEL_TRACES_EXPORTER: there is no exporter 'smoke' installed" in unknown.err


def test_the_missing_extra_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of metrics is."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(UsageError, match=r"otel needs opentelemetry\.sdk, which is not installed"):
        Telemetry(RecordOptions(otel=True))
