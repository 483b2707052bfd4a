"""Protocols for the client side (`Downstream`) and the server side (`Upstream`), and heads."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from mrtr_cassette.core.wire.http import (
    FORBIDDEN_IN_HEADER,
    HOP_BY_HOP,
    Headers,
    Request,
)
from mrtr_cassette.errors import printable

RawHeaders = tuple[tuple[bytes, bytes], ...]

TEXT_HEADERS: Headers = (("Content-Type", "text/plain; charset=utf-8"),)


class Downstream(Protocol):
    """The client side of one exchange; its handler is cancelled when the client leaves."""

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them.

        Raises:
            ValueError: a head like this can't be sent.
        """

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body, or none.

        Raises:
            ConnectionResetError: the client is gone.
        """

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write; its headers announce no length.

        Raises:
            ValueError: a head like this can't be sent.
            ConnectionResetError: the client is gone.
        """

    def break_off(self) -> None:
        """End the response so that the client sees that it is incomplete."""


Handler = Callable[[Request, Downstream], Awaitable[None]]
"""Answers a request through its downstream; nothing else is sent."""


class UpstreamResponse(Protocol):
    """A response whose head has arrived; the upstream waits while its body is not read."""

    status: int
    reason: bytes
    headers: RawHeaders

    @property
    def is_read(self) -> bool:
        """Whether the whole body has arrived and was read."""

    def read_now(self) -> bytes:
        """Return the bytes of the body that have arrived; there may be none."""

    async def read(self) -> bytes:
        """Return the next bytes of the body, or none at its end.

        Raises:
            OSError: the body is cut short.
        """

    def close(self) -> None:
        """Abandon the rest of the body, if there is any."""


class ArrivingResponse:
    """What responses have in common that are read while they arrive."""

    unread: bytearray | list[bytes]
    """What has come and was not read."""

    is_over = False
    """Nothing more comes."""

    lost: OSError | None = None
    """Why the rest does not come."""

    _more_or_end_came: asyncio.Event | None = None
    """Most responses have come when they are read, and nobody waits for more of them."""

    @property
    def is_read(self) -> bool:
        """Whether the whole response has arrived and was read."""
        return self.is_over and not self.unread and self.lost is None

    def note_end(self, lost: OSError | None = None) -> None:
        """Note that nothing more comes, and why the response is incomplete."""
        self.is_over = True
        self.lost = lost
        self.wake_reader()

    def wake_reader(self) -> None:
        """Wake the reader that waits for more."""
        if self._more_or_end_came is not None:
            self._more_or_end_came.set()

    async def wait_for_more(self) -> None:
        """Wait until something has come, or the end."""
        if not (self.unread or self.is_over):
            if self._more_or_end_came is None:
                self._more_or_end_came = asyncio.Event()

            self._more_or_end_came.clear()
            await self._more_or_end_came.wait()

    def read_now(self) -> bytes:
        """Return the bytes that have arrived; there may be none."""
        raise NotImplementedError

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end.

        Raises:
            OSError: the response is cut short.
        """
        while not self.is_read:
            await self.wait_for_more()
            if not self.unread and self.lost is not None:
                raise self.lost

            chunk = self.read_now()
            if chunk:
                return chunk

        return b""


class Upstream(Protocol):
    """A server that takes requests."""

    async def send_request(self, request: Request) -> UpstreamResponse:
        """Send a request once, and return its response when the head has arrived.

        Raises:
            OSError: there is no response.
        """


_KNOWN_STATUS = frozenset(HTTPStatus)
_NOT_PASSED_ON = frozenset({"host", "expect"})
"""Request headers that are not passed on, besides those that `end_to_end_headers` removes."""

# A client sends the same headers with call after call, so what they mean is worked out once.


@lru_cache(maxsize=1024)
def header_texts(raw: RawHeaders) -> Headers:
    """Decode headers."""
    return tuple((header_text(name), header_text(value)) for name, value in raw)


def header_text(raw: bytes) -> str:
    """Decode a header as UTF-8, or else as Latin-1 (RFC 9110, section 5.5)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def end_to_end_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return headers without those that concern one connection only."""
    header_list = tuple(headers)
    connection_names = {
        name.strip().lower()
        for key, value in header_list
        if key.lower() == "connection"
        for name in value.split(",")
    }
    return tuple(
        (name, value)
        for name, value in header_list
        if name.lower() not in HOP_BY_HOP and name.lower() not in connection_names
    )


@lru_cache(maxsize=1024)
def headers_for_upstream(received: Headers, added: Headers) -> Headers:
    """Return a client's headers as they go upstream, with those that the user added."""
    left_out_names = _NOT_PASSED_ON | {name.lower() for name, _ in added}
    kept_headers = []
    for name, value in end_to_end_headers(received):
        if name.lower() not in left_out_names:
            kept_headers.append((name, value))

    return (*kept_headers, *added)


@lru_cache(maxsize=1024)
def headers_for_client(raw: RawHeaders) -> Headers:
    """Return an upstream's headers as they go to the client."""
    return end_to_end_headers(header_texts(raw))


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response, from its status, less the framing of its body."""

    raw: bytes
    has_length: bool


@lru_cache(maxsize=1024)
def render_head(
    status: int, headers: Headers, reason: str | None = None
) -> ResponseHead:
    """Return a head with these headers and no others.

    Raises:
        ValueError: a header has what HTTP forbids.
    """
    if reason is None:
        reason = HTTPStatus(status).phrase if status in _KNOWN_STATUS else ""

    lines = [f" {status} {reason}\r\n"]
    has_length = False
    for name, value in headers:
        if FORBIDDEN_IN_HEADER.search(name) or FORBIDDEN_IN_HEADER.search(value):
            raise ValueError(f"the header {printable(name)} has a control character")

        is_length = name.lower() == "content-length"
        if is_length and status == HTTPStatus.NO_CONTENT:
            continue

        has_length = has_length or is_length
        lines.append(f"{name}: {value}\r\n")

    return ResponseHead("".join(lines).encode("utf-8", "surrogateescape"), has_length)


def basic_authorization(user: str, password: str) -> str:
    """Return how a user is known by a header (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons for bytes that are no TLS; which of them depends on its version."""


def network_reason(error: OSError) -> str:
    """Return why a connection failed, in the system's words where it has some."""
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return "it speaks plain HTTP; use http:// instead of https://"

    # asyncio has words of its own for the system's errors; these two have numbers of their own.
    is_system = not isinstance(error, (socket.gaierror, ssl.SSLError))
    system_words = error.strerror
    if is_system and error.errno:
        system_words = os.strerror(error.errno)

    if system_words:
        return system_words.lower()

    return str(error) or type(error).__name__


def connection_problem(error: OSError) -> str:
    """Return why a connection failed, as a clause of its own."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not verified ({error.verify_message})"
    return f"the connection failed ({network_reason(error)})"


def no_response_error(shown_as: str, error: OSError | ValueError) -> str:
    """Say that an upstream gave no response, and why."""
    reason = network_reason(error) if isinstance(error, OSError) else str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = (
            f"its certificate is not verified ({error.verify_message}); name the certificate of "
            "its authority with the option ca_file, or accept any with the option insecure"
        )

    return f"the upstream {shown_as} gave no response: {reason}"
