"""The relay between a downstream and the upstream; what watches it never breaks what passes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mrtr_cassette.core.cassette.sessions import EndpointPassing
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.report.misses import upstream_error_body
from mrtr_cassette.core.wire.http import JSON_HEADERS, End, Headers, Request, is_event_stream
from mrtr_cassette.shell.http.transport import (
    Downstream,
    Upstream,
    UpstreamResponse,
    no_response,
    passed_headers,
    sent_headers,
)
from mrtr_cassette.shell.runs.record_session import ExchangeRecording, Watcher

_LARGEST_REST = 64 * 1024
_LONGEST_REST_S = 1.0
"""Bytes and seconds that are read on of an acknowledgement whose client has left."""


@dataclass(frozen=True, slots=True)
class Relay:
    """Passes requests on to one upstream, and shows what passes to the watcher."""

    upstream: Upstream
    shown_as: str
    """The upstream, as shown in messages."""
    headers: Headers
    """Added to every request, in the place of the client's of that name."""
    watcher: Watcher

    async def handle(
        self, request: Request, downstream: Downstream, sent: Request | None = None
    ) -> None:
        """Relay one exchange; `sent` is sent, where that is not what the client sent."""
        watched = ExchangeRecording(self.watcher, request)

        try:
            sent = request if sent is None else sent
            headers = sent_headers(sent.headers, self.headers)
            response = await self.upstream.send(sent, headers)
        except OSError as error:
            await self.answer_unreachable(request, downstream, no_response(self.shown_as, error))
            return
        except asyncio.CancelledError:
            watched.response_ended(End.OPEN)
            raise
        headers = passed_headers(response.headers)
        try:
            reason = response.reason.decode("utf-8", "surrogateescape")
            downstream.begin(response.status, headers, reason)
        except ValueError as error:
            response.close()
            watched.forget()
            await self.answer_unreachable(request, downstream, no_response(self.shown_as, error))
            return
        watched.response_started(response.status, headers)
        endpoint = None
        if request.method == "GET" and is_event_stream(headers):
            # A stream that says where to post leads its client back here.
            endpoint = EndpointPassing(self.shown_as.partition("://")[2])
        await self._pass_on(response, downstream, watched, endpoint)

    async def _pass_on(
        self,
        response: UpstreamResponse,
        downstream: Downstream,
        watched: ExchangeRecording,
        endpoint: EndpointPassing | None,
    ) -> None:
        """Pass a response on, of which the head has begun; each chunk is seen before it is sent."""
        end = None
        # What has come with the head goes on with it.
        chunk = response.read_now()
        try:
            while True:
                if endpoint is not None:
                    chunk = endpoint.feed(chunk)
                    chunk += endpoint.finish() if response.is_read else b""
                if chunk:
                    watched.response_bytes(chunk)
                if response.is_read:
                    end = End.COMPLETE
                    break
                await downstream.send(chunk)
                try:
                    chunk = await response.read()
                except OSError:
                    end = End.BROKEN
                    break
        finally:
            seen = watched.observation
            if seen is not None and seen.call.message is not None:
                downstream.called = seen.call.message.method
            if end is None and seen is not None and seen.acknowledges:
                self.watcher.go_on(_read_on(response, watched, seen))
            else:
                # Before the client can know that its response is complete.
                watched.response_ended(end or End.OPEN)
                response.close()
        if end is End.BROKEN:
            downstream.break_off()
        else:
            await downstream.send(chunk, is_last=True)

    async def answer_unreachable(
        self, request: Request, downstream: Downstream, problem: str
    ) -> None:
        """Answer for an upstream that gave no response."""
        self.watcher.unreachable(request, problem)
        await downstream.send_whole(502, JSON_HEADERS, upstream_error_body(request, problem))


async def _read_on(
    response: UpstreamResponse, watched: ExchangeRecording, seen: Observation
) -> None:
    """Read the rest of a response whose client has left: whether one does is chance."""
    end = End.OPEN
    try:
        async with asyncio.timeout(_LONGEST_REST_S):
            while not response.is_read and seen.size < _LARGEST_REST:
                chunk = await response.read()
                if chunk:
                    watched.response_bytes(chunk)
        end = End.COMPLETE if response.is_read else End.OPEN
    except TimeoutError:
        pass
    except OSError:
        end = End.BROKEN
    finally:
        watched.response_ended(end)
        response.close()
