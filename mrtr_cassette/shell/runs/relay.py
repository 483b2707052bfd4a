"""Relay requests to the upstream, and record both ways."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mrtr_cassette.core.cassette.sessions import EndpointPassing
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
"""Bytes and seconds that are read on of a response whose reader has left."""


class RelayedResponse:
    """An upstream's response that is recorded as it is read: what was read may be passed on."""

    def __init__(
        self, response: UpstreamResponse, recording: ExchangeRecording, endpoint: str | None
    ) -> None:
        """Wrap a response of which nothing has been read.

        `endpoint` is the upstream's name, where a stream may say where its client is to post.
        """
        self.status, self.reason, self.headers = response.status, response.reason, response.headers
        self.passed = passed_headers(response.headers)
        self.is_read = False
        self.reads_on = False
        """The rest is read on when the reader has left, as that of an acknowledgement is."""
        self.recording = recording
        self._response = response
        self._is_ended = False
        self._endpoint: EndpointPassing | None = None
        if endpoint is not None and is_event_stream(self.passed):
            # A stream that says where to post leads its client back here.
            self._endpoint = EndpointPassing(endpoint.partition("://")[2])

    def begin(self) -> None:
        """Record the head."""
        self.recording.response_started(self.status, self.passed)

    def read_now(self) -> bytes:
        """Return the bytes that have come with the head."""
        return self._recorded(self._response.read_now())

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end; an OSError says that the body is cut short."""
        if self.is_read:
            return b""
        try:
            return self._recorded(await self._response.read())
        except OSError:
            self._end(End.BROKEN)
            raise

    def close(self) -> None:
        """Leave the rest; an acknowledgement is read to its end, as clients may or may not wait."""
        seen = self.recording.observation
        if not self._is_ended and seen is not None and (self.reads_on or seen.acknowledges):
            self.recording.watcher.go_on(self._read_on())
        else:
            self._end(End.OPEN)

    def _recorded(self, chunk: bytes) -> bytes:
        is_read = self._response.is_read
        if self._endpoint is not None:
            chunk = self._endpoint.feed(chunk) + (self._endpoint.finish() if is_read else b"")
        if chunk:
            self.recording.response_bytes(chunk)
        if is_read:
            self.is_read = True
            # Before the client can know that its response is complete.
            self._end(End.COMPLETE)
        return chunk

    def _end(self, end: End) -> None:
        if not self._is_ended:
            self._is_ended = True
            self.recording.response_ended(end)
            self._response.close()

    async def _read_on(self) -> None:
        seen = self.recording.observation
        try:
            async with asyncio.timeout(_LONGEST_REST_S):
                while not self.is_read and seen is not None and seen.size < _LARGEST_REST:
                    await self.read()
        except OSError:  # TimeoutError is one
            pass
        finally:
            self._end(End.OPEN)


@dataclass(frozen=True, slots=True)
class Relay:
    """Passes requests to one upstream, and records the exchanges."""

    upstream: Upstream
    shown_as: str
    """The upstream, as shown in messages."""
    headers: Headers
    """Added to every request, in the place of the client's of that name."""
    watcher: Watcher

    async def handle(
        self, request: Request, downstream: Downstream, sent: Request | None = None
    ) -> None:
        """Relay one exchange; `sent` goes upstream in the place of the client's request."""
        try:
            response = await self.send(request, sent)
        except OSError as error:
            await self.answer_unreachable(request, downstream, no_response(self.shown_as, error))
            return
        try:
            reason = response.reason.decode("utf-8", "surrogateescape")
            downstream.begin(response.status, response.passed, reason)
        except ValueError as error:
            response.recording.forget()
            response.close()
            await self.answer_unreachable(request, downstream, no_response(self.shown_as, error))
            return
        response.begin()
        try:
            chunk = response.read_now()
            while not response.is_read:
                await downstream.send(chunk)
                try:
                    chunk = await response.read()
                except OSError:
                    downstream.break_off()
                    return
        finally:
            response.close()
        await downstream.send(chunk, is_last=True)

    async def send(self, received: Request, sent: Request | None = None) -> RelayedResponse:
        """Send a request upstream, and return its response when the head has come.

        Raises:
            OSError: there is no response.
        """
        recording = ExchangeRecording(self.watcher, received)
        request = sent or received
        try:
            headers = sent_headers(request.headers, self.headers)
            response = await self.upstream.send(request, headers)
        except asyncio.CancelledError:
            recording.response_ended(End.OPEN)
            raise
        return RelayedResponse(
            response, recording, self.shown_as if received.method == "GET" else None
        )

    async def answer_unreachable(
        self, request: Request, downstream: Downstream, problem: str
    ) -> None:
        """Answer for an upstream that gave no response."""
        self.watcher.unreachable(request, problem)
        await downstream.send_whole(502, JSON_HEADERS, upstream_error_body(request, problem))
