"""The two sides of what passes, as protocols of our own.

Rule: what relays, appends or replays knows these protocols only, so that a pipe can stand where a
socket stands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from mrtr_cassette.core.wire.http import Headers, Request

RawHeaders = tuple[tuple[bytes, bytes], ...]

TEXT_HEADERS: Headers = (("Content-Type", "text/plain; charset=utf-8"),)


class Downstream(Protocol):
    """Whoever sent a request, and takes the response to it.

    A handler is cancelled while it waits when nobody is there any more.

    Attributes:
        called: the JSON-RPC method of the request, once the handler knows it, for who counts.
    """

    called: str

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them.

        Raises:
            ValueError: a head like this can't be sent.
        """
        ...

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body.

        Args:
            chunk: the bytes; they may be none.
            is_last: the body ends with them.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        ...

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write; its headers announce no length.

        Raises:
            ValueError: a head like this can't be sent.
            ConnectionResetError: nobody is there any more.
        """
        ...

    def break_off(self) -> None:
        """End the response in such a way that the client sees that it is not whole."""
        ...


Handler = Callable[[Request, Downstream], Awaitable[None]]
"""Answers a request; what it does not send is never sent."""


class UpstreamResponse(Protocol):
    """A response of which the head has come.

    While its body is not read, the upstream has to wait.
    """

    @property
    def status(self) -> int:
        """The status."""
        ...

    @property
    def reason(self) -> bytes:
        """The phrase after the status."""
        ...

    @property
    def headers(self) -> RawHeaders:
        """Names and values."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether the whole body has come and has been read."""
        ...

    def read_now(self) -> bytes:
        """Return the bytes of the body that have come, which may be none."""
        ...

    async def read(self) -> bytes:
        """Return the next bytes of the body, or none at its end.

        Raises:
            OSError: the body is cut short.
        """
        ...

    def close(self) -> None:
        """Abandon what has not come; does nothing where everything has."""
        ...


class Upstream(Protocol):
    """A server that takes requests."""

    async def send(self, request: Request, headers: Headers) -> UpstreamResponse:
        """Send a request once, and return its response when the head has come.

        Args:
            request: its method, target and body.
            headers: sent in the place of its own.

        Raises:
            OSError: there is no response.
        """
        ...
