"""HTTP heads: headers as text and as bytes, and which of them are passed on."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from mrtr_cassette.core.wire.http import FORBIDDEN_IN_HEADER, HOP_BY_HOP, Headers
from mrtr_cassette.errors import printable
from mrtr_cassette.shell.transport import RawHeaders

MOST_HEADERS: Final = 1000
"""Headers of one message."""
_WORTH_A_COPY = 64 * 1024
"""Bytes up to which one write of two parts costs less than two writes."""
_KNOWN_STATUS = frozenset(HTTPStatus)
_OURS = frozenset({"host", "expect"})
"""Request headers of one connection for which `end_to_end` has no rule."""

# A client sends the same headers with call after call, so what they mean is worked out once.


@lru_cache(maxsize=1024)
def header_texts(raw: RawHeaders) -> Headers:
    """Decode headers."""
    return tuple((header_text(name), header_text(value)) for name, value in raw)


def header_text(raw: bytes) -> str:
    """Decode a header as what it says, or as Latin-1 (RFC 9110, section 5.5)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return headers less those of one connection."""
    listed = tuple(headers)
    named = {
        name.strip().lower()
        for key, value in listed
        if key.lower() == "connection"
        for name in value.split(",")
    }
    return tuple(
        (name, value)
        for name, value in listed
        if name.lower() not in HOP_BY_HOP and name.lower() not in named
    )


@lru_cache(maxsize=1024)
def sent_headers(received: Headers, added: Headers) -> Headers:
    """Return a client's headers as they go upstream, with those that the user added."""
    left_out = _OURS | {name.lower() for name, _ in added}
    kept = [pair for pair in end_to_end(received) if pair[0].lower() not in left_out]
    return (*kept, *added)


@lru_cache(maxsize=1024)
def passed_headers(raw: RawHeaders) -> Headers:
    """Return an upstream's headers as they go to the client."""
    return end_to_end(header_texts(raw))


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response less the HTTP version and the framing of its body.

    Attributes:
        raw: the status line after the version, and each header, with line ends.
        has_length: a `Content-Length` is among the headers.
    """

    raw: bytes
    has_length: bool


@lru_cache(maxsize=1024)
def render_head(status: int, headers: Headers, reason: str | None = None) -> Head:
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
    return Head("".join(lines).encode("utf-8", "surrogateescape"), has_length)


def write_together(transport: asyncio.WriteTransport, first: bytes, rest: bytes) -> None:
    """Send two parts, in one write where that costs less."""
    if len(rest) < _WORTH_A_COPY:
        transport.write(first + rest)
    else:
        transport.write(first)
        transport.write(rest)


_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons for bytes that are no TLS; which of them depends on its version."""


def network_reason(error: OSError) -> str:
    """Return why a connection failed, in the system's words where it has some."""
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return "it speaks plain HTTP; try http:// in the place of https://"
    # asyncio has words of its own for the system's errors; these two have numbers of their own.
    is_system = not isinstance(error, (socket.gaierror, ssl.SSLError))
    text = os.strerror(error.errno) if is_system and error.errno else error.strerror or str(error)
    return text.lower() or type(error).__name__


def no_response(shown_as: str, error: OSError | ValueError) -> str:
    """Say that an upstream gave no response, and why."""
    reason = network_reason(error) if isinstance(error, OSError) else str(error)
    return f"the upstream {shown_as} gave no response: {reason}"
