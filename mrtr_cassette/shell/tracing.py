"""Traces and metrics by OpenTelemetry: a span for each interaction, its turns as events.

Owns: when spans begin and end, the context that they belong to, and how long requests take.
Does not own: what spans tell (`core.report.spans`), and where they go (`otel_providers`).
Rule: what passes is not touched: no context is put into what a recording sends upstream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider, get_current_span

from mrtr_cassette.core.exchange.pushed import PushedAsk, pushed_request
from mrtr_cassette.core.protocol.calls import Call, read_call, traits_of_headers
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.protocol.session_ids import session_in
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.report.events import (
    answered_event,
    asked_by_push_event,
    asked_event,
    missed_event,
    played_event,
    pushed_event,
    request_event,
    response_event,
)
from mrtr_cassette.core.report.spans import (
    BOUNDS,
    DURATION,
    Attributes,
    WaitingForRetries,
    failure_attributes,
    kinds_of,
    operation_attributes,
    request_attributes,
    span_name,
    target_attributes,
)
from mrtr_cassette.core.wire.http import NO_STATUS, Headers, Request, is_event_stream
from mrtr_cassette.shell.announcing import Event
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.transport import Downstream, Handler

_SCOPE: Final = "mrtr-cassette"
_LARGEST_READ: Final = 64 * 1024
"""Last bytes of a response in which it is looked for an error."""
_LARGEST_REQUEST: Final = 256 * 1024
"""Bytes of a request that is read here: a larger one would hold the event loop."""
_ABANDONED: Final = "mrtr_cassette.abandoned"
_INTERACTION: Final = "mrtr_cassette.interaction"


@dataclass(slots=True, eq=False)
class _Interaction:
    """An interaction whose span has begun.

    Attributes:
        span: its span.
        call: its first request.
        turns: how many turns it has had.
        unanswered: how many pushed requests wait for their answers.
    """

    span: Span
    call: Call
    turns: int = 0
    unanswered: int = 0

    def asked(self, kinds: Sequence[str], via: str) -> None:
        """Tell of an ask; what is pushed while another waits is of the same turn."""
        if not self.unanswered:
            self.turns += 1
        self.unanswered += via == "push"
        turn: Attributes = {"mrtr_cassette.turn": self.turns, "mrtr_cassette.via": via}
        self.span.add_event("asked", {**turn, "mrtr_cassette.kinds": tuple(kinds)})

    def answered(self, call: Call, via: str) -> None:
        """Tell of an answer."""
        self.unanswered = max(0, self.unanswered - (via == "push"))
        turn: Attributes = {"mrtr_cassette.turn": self.turns, "mrtr_cassette.via": via}
        identity = request_attributes(call).get("jsonrpc.request.id")
        if identity is not None and via == "result":
            turn["jsonrpc.request.id"] = identity
        self.span.add_event("answered", turn)


class _Told:
    """A downstream whose response is read, and what is told of the request meanwhile.

    Attributes:
        call: the request.
        called: its method, for who counts.
        interaction: what it is part of; None for what is no call.
        ask: the state and the kinds of what its response asks.
        name: what it names, as a cassette or a recorded server has answered for it.
        extra: what more its span tells.
    """

    def __init__(self, downstream: Downstream, call: Call) -> None:
        self.call = call
        self.interaction: _Interaction | None = None
        self.ask: tuple[str | None, list[str]] | None = None
        self.name = ""
        self.extra: Attributes = {}
        self._downstream = downstream
        self._status = NO_STATUS
        self._is_event_stream = False
        self._chunks: deque[bytes] = deque()
        self._size = 0

    @property
    def called(self) -> str:
        return self._downstream.called

    @called.setter
    def called(self, method: str) -> None:
        self._downstream.called = method

    def send_early_hints(self, headers: Headers) -> None:
        self._downstream.send_early_hints(headers)

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        self._status, self._is_event_stream = status, is_event_stream(headers)
        self._downstream.begin(status, headers, reason)

    def send(self, chunk: bytes = b"", *, is_last: bool = False) -> Coroutine[Any, Any, None]:
        self._take(chunk)
        return self._downstream.send(chunk, is_last=is_last)

    def send_whole(self, status: int, headers: Headers, body: bytes) -> Coroutine[Any, Any, None]:
        self._status, self._is_event_stream = status, is_event_stream(headers)
        self._take(body)
        return self._downstream.send_whole(status, headers, body)

    def break_off(self) -> None:
        self.extra["error.type"] = "broken_off"
        self._downstream.break_off()

    def cancelled(self) -> None:
        """Take note that the client has left, or that the run ends; a stream ends so too."""
        if self._status == NO_STATUS:
            self.extra["error.type"] = "cancelled"

    def _take(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size > _LARGEST_READ and len(self._chunks) > 1:
            self._size -= len(self._chunks.popleft())

    def outcome(self) -> Attributes:
        """Return how the response failed, and what else is told of it."""
        if self._size > _LARGEST_READ:
            return self.extra
        failed = failure_attributes(
            self.call, self._status, b"".join(self._chunks), is_event_stream=self._is_event_stream
        )
        return {**failed, **self.extra}


_TOLD: ContextVar[_Told | None] = ContextVar("told", default=None)
"""The request that the running task handles."""


class Tracing:
    """The spans and the metrics of one run."""

    def __init__(
        self, tracers: TracerProvider, meters: MeterProvider, clock: Clock = CLOCK
    ) -> None:
        self._tracer = tracers.get_tracer(_SCOPE)
        self._durations = meters.get_meter(_SCOPE).create_histogram(
            DURATION,
            unit="s",
            description="Time from a request to the end of its response",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._clock = clock
        self._waiting = WaitingForRetries[_Interaction]()
        self._under_way: dict[_Interaction, str] = {}
        self._heard: dict[Callable[..., Any], Callable[..., None]] = {
            played_event: self._played,
            missed_event: self._missed,
            asked_event: self._asked,
            asked_by_push_event: self._asked_by_push,
            answered_event: self._answered,
            request_event: self._requested,
            response_event: self._responded,
            pushed_event: self._pushed,
        }

    def event(self, event: Event) -> None:
        """Take note of what has happened."""
        heard = self._heard.get(event.func)
        if heard is not None:
            heard(*event.args)

    def handling(self, handler: Handler) -> Handler:
        """Return a handler of whose requests spans tell."""

        async def handle(request: Request, downstream: Downstream) -> None:
            started = self._clock.now()
            is_large = len(request.body) > _LARGEST_REQUEST
            call = Call(request, None) if is_large else read_call(request)
            told = _Told(downstream, call)
            _TOLD.set(told)
            if told.call.is_rpc:
                told.interaction = self._begun(told.call)
                self._under_way[told.interaction] = _session_of(told.call)
            try:
                await handler(request, told)
            except asyncio.CancelledError:
                told.cancelled()
                raise
            finally:
                if told.interaction is not None:
                    del self._under_way[told.interaction]
                    self._ended(told, told.interaction, self._clock.now() - started)

        return handle

    def end(self) -> None:
        """End the spans of all interactions that still wait for a retry."""
        for interaction in self._waiting.take_all():
            interaction.span.set_attribute(_ABANDONED, True)
            interaction.span.end()

    # Interactions

    def _begun(self, call: Call) -> _Interaction:
        """Return the interaction that a request begins, or goes on with."""
        context = _context_of(call)
        remote = get_current_span(context).get_span_context()
        answers = call.answers
        interaction = None
        if answers is not None:
            interaction = self._waiting.take(_key(call, answers.request_state), remote.trace_id)
        if interaction is None:
            attributes = request_attributes(call)
            span = self._tracer.start_span(
                span_name(call.method), context, SpanKind.SERVER, attributes
            )
            interaction = _Interaction(span, call)
        elif remote.is_valid:
            interaction.span.add_link(remote)
        if answers is not None:
            # Its beginning may have been with another replica.
            interaction.turns = max(1, interaction.turns)
            interaction.answered(call, "result")
        return interaction

    def _ended(self, told: _Told, interaction: _Interaction, seconds: float) -> None:
        outcome = told.outcome()
        call, span = told.call, interaction.span
        # A live server does not answer for a name that it refuses.
        is_refused = "rpc.response.status_code" in outcome and _INTERACTION not in outcome
        method, name = call.method, "" if is_refused else told.name
        attributes = operation_attributes(call) | target_attributes(method, name)
        failed = {key: value for key, value in outcome.items() if key == "error.type"}
        self._durations.record(seconds, attributes | failed)
        span.update_name(span_name(method, name))
        span.set_attributes(target_attributes(method, name))
        if told.ask is not None and not failed:
            state, kinds = told.ask
            interaction.asked(kinds, "result")
            owner = get_current_span(_context_of(call)).get_span_context().trace_id
            waiting = self._waiting.add(interaction, _key(call, state), owner, self._clock.now())
            for each in waiting:
                each.span.set_attribute(_ABANDONED, True)
                each.span.end()
            return
        span.set_attributes(outcome)
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end()

    def _asking(self, call: Call) -> _Interaction | None:
        """Return the interaction during which a server asks by a push."""
        told = _TOLD.get()
        if told is not None and told.interaction is not None:
            return told.interaction
        # It stands on a listening stream, or is answered: the call is pending in the same session.
        session = "" if told is None else _session_of(told.call)
        return next(
            (
                each
                for each, at in self._under_way.items()
                if at == session and (each.call.method, each.call.name) == (call.method, call.name)
            ),
            None,
        )

    # What is told of the request that the running task handles

    def _played(self, play: Play) -> None:
        told = _TOLD.get()
        if told is not None:
            told.name = play.playable.key.name
            told.extra[_INTERACTION] = play.playable.interaction

    def _missed(self, miss: Miss) -> None:
        told = _TOLD.get()
        if told is not None:
            told.extra["mrtr_cassette.miss.reason"] = miss.reason.value

    def _asked(self, asker: Playable) -> None:
        told = _TOLD.get()
        if told is not None and asker.ask is not None:
            told.ask = _told_of(asker.ask)

    def _responded(self, observation: Observation, *_facts: object) -> None:
        told = _TOLD.get()
        if told is not None:
            told.name = observation.recorder.shown(observation.call.name)
            told.ask = None if observation.ask is None else _told_of(observation.ask)

    def _requested(self, observation: Observation) -> None:
        if observation.answered is not None:
            self._posted(observation.answered.call)

    def _answered(self, playable: Playable) -> None:
        if playable.answers is not None:
            self._posted(playable.answers.pending.call)

    def _posted(self, call: Call) -> None:
        told, interaction = _TOLD.get(), self._asking(call)
        if told is not None and interaction is not None:
            interaction.answered(told.call, "push")

    def _asked_by_push(self, ask: PushedAsk) -> None:
        interaction = self._asking(ask.call)
        if interaction is not None:
            interaction.asked(kinds_of([pushed_request(ask.request)]), "push")

    def _pushed(self, _observation: Observation, push: OpenPush) -> None:
        interaction = self._asking(push.call)
        if interaction is not None:
            interaction.asked(kinds_of([push.request]), "push")


def _context_of(call: Call) -> Context:
    """Return the context that a request names in `_meta`, or else in its headers."""
    meta = {} if call.message is None else call.message.meta
    named = {key: value for key, value in meta.items() if isinstance(value, str)}
    context = propagate.extract(named, Context())
    if get_current_span(context).get_span_context().is_valid:
        return context
    return propagate.extract({key.lower(): value for key, value in call.request.headers}, Context())


def _session_of(call: Call) -> str:
    request = call.request
    return traits_of_headers(request.headers).session or session_in(request.target)


def _key(call: Call, state: str | None) -> Hashable:
    return call.key(), state


def _told_of(ask: InputRequired) -> tuple[str | None, list[str]]:
    return ask.request_state, kinds_of(ask.input_requests.values())
