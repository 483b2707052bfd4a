"""A server of HTTP+SSE as one that takes lines: each is posted, and one stream has all replies."""
# Source: MCP 2024-11-05, "Transports", HTTP with SSE.

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress

from mrtr_cassette.core.cassette.sessions import is_endpoint, posted_to
from mrtr_cassette.core.cassette.transports import on_one_line
from mrtr_cassette.core.protocol.calls import ids_given_in
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.record.recorder import Channel
from mrtr_cassette.core.secrets.credentials import Given, WasGiven
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    POST_HEADERS,
    Headers,
    Request,
    is_event_stream,
    opens_channel,
)
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.shell.http.transport import (
    Upstream,
    UpstreamResponse,
    passed_headers,
    sent_headers,
)
from mrtr_cassette.shell.pipes.transport import PipeResponse

_REFUSED = 400
"""The lowest HTTP status of a response that refuses its request."""

Connecting = Callable[[WasGiven], AbstractAsyncContextManager[Upstream]]


class StreamUpstream:
    """A server of HTTP+SSE, whose stream is opened for the first line."""

    def __init__(
        self, http: Upstream, target: str, origin: str, headers: Headers, was_given: WasGiven
    ) -> None:
        self._http, self._target, self._headers = http, target, headers
        self._origin, self._was_given = ServerOrigin(origin), was_given
        self._listening = PipeResponse()
        self._channel: Channel[PipeResponse] = Channel(
            lambda said: self._listening if opens_channel(said) else PipeResponse()
        )
        self._reading: asyncio.Task[None] | None = None
        self._endpoint: asyncio.Future[str] | None = None

    async def send(self, request: Request, _headers: Headers) -> PipeResponse:
        """Send a line, and return the response, which may come later.

        Raises:
            OSError: the server opens no stream, or refuses the line.
        """
        if self._endpoint is None:
            self._endpoint = asyncio.get_running_loop().create_future()
            self._reading = asyncio.ensure_future(self._read(self._endpoint))
        endpoint = await asyncio.shield(self._endpoint)
        if opens_channel(request):
            return self._listening
        line = on_one_line(request.body)
        response, is_over = self._channel.client_line(line + b"\n")
        if is_over:
            response.end()
        response.on_close = lambda: self._channel.given_up(response)
        posted = Request("POST", endpoint, POST_HEADERS, line)
        with closing(await self._sent(posted)) as accepted:
            if accepted.status >= _REFUSED:
                raise OSError(0, f"status {accepted.status} for a posted message")
            while await accepted.read():
                pass
        return response

    async def _sent(self, request: Request) -> UpstreamResponse:
        return await self._http.send(request, sent_headers(request.headers, self._headers))

    async def _read(self, endpoint: asyncio.Future[str]) -> None:
        try:
            listening = Request("GET", self._target, (("Accept", EVENT_STREAM),), b"")
            with closing(await self._sent(listening)) as stream:
                await self._take_events(stream, endpoint)
            if not endpoint.done():
                endpoint.set_exception(OSError(0, "its stream does not say where to post"))
        except OSError as error:
            if not endpoint.done():
                endpoint.set_exception(error)
        finally:
            for response, _ in self._channel.ended(by_server=True):
                response.end(is_lost=True)

    async def _take_events(self, stream: UpstreamResponse, endpoint: asyncio.Future[str]) -> None:
        if not is_event_stream(passed_headers(stream.headers)):
            raise OSError(0, f"status {stream.status} and no stream that says where to post")
        framer = SseFramer()
        is_first = True
        while chunk := await stream.read():
            for event in framer.feed(chunk):
                data = read_event(event, first=is_first).data
                is_first = False
                if data and not endpoint.done() and is_endpoint(event):
                    endpoint.set_result(self._endpoint_of(data.decode("latin-1")))
                elif data:
                    response, is_over = self._channel.server_line(on_one_line(data) + b"\n")
                    response.line(on_one_line(data) + b"\n", is_over=is_over)

    def _endpoint_of(self, url: str) -> str:
        if self._origin.path_of(url) is None:
            raise OSError(0, "it sends its client to another server")
        target = posted_to(self._target, url)
        ids = [target[span.start : span.end] for span in ids_given_in(target, self._target)]
        self._was_given(Given(secrets=tuple(ids)))
        return target

    async def close(self) -> None:
        """Leave the stream."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading


def over_old_transport(
    connecting: Connecting, target: str, origin: str, headers: Headers
) -> Connecting:
    """Return how a server of HTTP+SSE at a target is reached as one that takes lines."""

    @asynccontextmanager
    async def connected(was_given: WasGiven) -> AsyncIterator[Upstream]:
        async with connecting(was_given) as http:
            upstream = StreamUpstream(http, target, origin, headers, was_given)
            try:
                yield upstream
            finally:
                await upstream.close()

    return connected
