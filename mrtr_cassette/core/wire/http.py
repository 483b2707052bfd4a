"""One exchange over HTTP or over lines of a pipe, and which of its headers a cassette keeps."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

Headers = tuple[tuple[str, str], ...]

EVENT_STREAM: Final = "text/event-stream"
JSON_HEADERS: Final[Headers] = (("Content-Type", "application/json"),)
POST_HEADERS: Final[Headers] = (
    *JSON_HEADERS,
    ("Accept", f"application/json, {EVENT_STREAM}"),
)
"""What a client of MCP sends with every message (MCP 2026-07-28, "Transports")."""

LARGEST_BODY: Final = 256 * 1024 * 1024
"""The most bytes of a body, unless another limit is set: memory holds it until it is written."""

SESSION_HEADER: Final = "mcp-session-id"
LAST_EVENT_ID_HEADER: Final = "last-event-id"
FORBIDDEN_IN_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that no header may contain (RFC 9110, section 5.5)."""

NO_METHOD: Final = ""
"""The HTTP method of a request that came over a pipe, which has none."""

NO_STATUS: Final = 0
"""The HTTP status of a response over a pipe, which has none."""

ACCEPTED: Final = 202
"""The HTTP status that acknowledges a message."""

REFUSED: Final = 400
"""The lowest HTTP status of a refusal."""

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _names_in_text(names: str) -> frozenset[str]:
    """Return the names in a text that has spaces between them."""
    return frozenset(names.split())


CREDENTIAL_HEADERS: Final = _names_in_text(
    "authorization cookie proxy-authorization set-cookie"
)
"""Headers whose values are credentials, which nothing keeps."""

ANSWERED_BY_HEADER: Final = "mrtr-cassette-answered-by"
"""Says in a recorded retry of the proxy itself who gave the answers; it is never sent."""

CONDITION_HEADERS: Final = _names_in_text(
    "if-match if-modified-since if-none-match if-range if-unmodified-since"
)
"""Headers with what an earlier response said of a client's copy (RFC 9110, section 13.1)."""

VALIDATING_HEADERS: Final = _names_in_text("dpop-nonce etag last-modified")
"""Headers of responses that clients send back, with new values whenever a server likes.

The nonce of DPoP is no secret: anybody gets one, and it proves nothing without the client's key
(RFC 9449, section 8).
"""

CONDITIONAL_STATUSES: Final = frozenset({304, 412})
"""The HTTP statuses that answer a condition, and say nothing to a client without a copy."""

_KEPT_REQUEST_HEADERS = CONDITION_HEADERS | frozenset(
    ["accept", "authorization", "content-type", "last-event-id", ANSWERED_BY_HEADER]
)
_KEPT_RESPONSE_HEADERS = VALIDATING_HEADERS | _names_in_text(
    "allow cache-control content-encoding content-type location retry-after server vary"
    " www-authenticate x-accel-buffering x-powered-by"
)
_ENCODED_HEADER = re.compile(r"=\?base64\?([A-Za-z0-9+/]*={0,2})\?=")
_KEPT_PREFIXES = ("access-control-", "mcp-")

HOP_BY_HOP: Final = _names_in_text(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    " transfer-encoding upgrade"
)
"""Headers of one connection, which a proxy doesn't pass on (RFC 9110, section 7.6.1)."""


class End(Enum):
    """How a response ended."""

    COMPLETE = "complete"
    OPEN = "open"
    """No end was seen: the client left, or the recording was stopped."""

    BROKEN = "broken"
    """The upstream was lost in the middle."""


class Piece(NamedTuple):
    """Bytes of a body that arrived together; one event of an event stream, one line of a pipe."""

    raw: bytes
    at_ms: float
    arrived_count: int


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, or what a client says in one line."""

    method: str
    target: str
    headers: Headers
    body: bytes

    @property
    def is_line(self) -> bool:
        """Whether it came over a pipe; then its only header is the session's."""
        return self.method == NO_METHOD

    def header(self, name: str) -> str:
        """Return the values of a header joined by commas; empty where it is absent."""
        return header_value(self.headers, name)

    def with_parts(self, target: str, headers: Headers, body: bytes) -> Request:
        """Return it with other parts; itself if they are the same, as of most that are kept."""
        if (target, headers, body) == (self.target, self.headers, self.body):
            return self
        return Request(self.method, target, headers, body)


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response, or the lines with which a server responds."""

    status: int
    headers: Headers
    pieces: tuple[Piece, ...]
    end: End

    @property
    def body(self) -> bytes:
        """All bytes of the body."""
        if len(self.pieces) == 1:
            return self.pieces[0].raw
        return b"".join([piece.raw for piece in self.pieces])

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is framed as Server-Sent Events."""
        return is_event_stream(self.headers)

    @property
    def is_lines(self) -> bool:
        """Whether it came over a pipe: each piece is one line."""
        return self.status == NO_STATUS

    @property
    def is_message_stream(self) -> bool:
        """Whether each piece is a message's own: an event or a line."""
        return self.status == NO_STATUS or is_event_stream(self.headers)

    @property
    def is_acknowledgement(self) -> bool:
        """Whether it only acknowledges a message, whatever its body has."""
        return self.status == ACCEPTED and not is_event_stream(self.headers)


@lru_cache(maxsize=4096)
def header_value(headers: Headers, name: str) -> str:
    """Return the values of a header joined by commas; empty where it is absent."""
    return ", ".join(value for key, value in headers if key.lower() == name)


def without_header(headers: Headers, name: str) -> Headers:
    """Return headers without those of a name in lower case."""
    return tuple(pair for pair in headers if pair[0].lower() != name)


def decoded_header(value: str) -> str | None:
    """Return the text of a header that MCP spells in base64; None for any other value."""
    encoded_match = _ENCODED_HEADER.fullmatch(value)
    if encoded_match is None:
        return None

    try:
        return b64decode(encoded_match[1]).decode("utf-8", "surrogateescape")
    except Base64Error:
        return None


def header_text(text: str) -> str:
    """Return a text as a header can have it: unchanged if possible, else in Base64."""
    is_printable = text.isascii() and text.isprintable()
    is_ambiguous = text.startswith("=?") or text != text.strip()
    if is_printable and not is_ambiguous:
        return text

    encoded = b64encode(text.encode("utf-8", "surrogatepass"))
    return f"=?base64?{encoded.decode()}?="


@lru_cache(maxsize=1024)
def is_event_stream(headers: Headers) -> bool:
    """Tell whether a response with these headers is a stream of Server-Sent Events."""
    media_type, _, _ = header_value(headers, "content-type").partition(";")
    return media_type.strip().lower() == EVENT_STREAM


def kept_request_headers(
    headers: Headers, names_of_user: frozenset[str] = frozenset()
) -> Headers:
    """Return the headers of a request that a cassette keeps.

    Of credentials only the names are kept, and of conditions that the user didn't name.
    """
    names_without_value = CREDENTIAL_HEADERS | (CONDITION_HEADERS - names_of_user)
    kept_names = _KEPT_REQUEST_HEADERS | names_of_user
    kept_headers = []
    for name, value in _kept_headers(headers, kept_names):
        kept_value = "" if name.lower() in names_without_value else value
        kept_headers.append((name, kept_value))

    return tuple(kept_headers)


@lru_cache(maxsize=1024)
def named_by_user(headers: Headers) -> frozenset[str]:
    """Return the lower-case names of the kept headers that a user named."""
    names = set()
    for name, value in headers:
        is_condition = name.lower() in CONDITION_HEADERS
        is_kept_anyway = bool(_kept_headers(((name, value),), _KEPT_REQUEST_HEADERS))
        if not is_kept_anyway or (is_condition and value):
            names.add(name.lower())

    return frozenset(names)


def kept_response_headers(headers: Headers) -> Headers:
    """Return the headers of a response that a cassette keeps."""
    return _kept_headers(headers, _KEPT_RESPONSE_HEADERS)


def _kept_headers(headers: Headers, names: frozenset[str]) -> Headers:
    """Return the headers with these names or a kept prefix, without those that HTTP forbids."""
    kept_headers: list[tuple[str, str]] = []
    for name, value in headers:
        lower_name = name.lower()
        if lower_name not in names and not lower_name.startswith(_KEPT_PREFIXES):
            continue

        # Nobody can send what HTTP forbids, so a replay could not either.
        if HEADER_NAME.fullmatch(name) and not FORBIDDEN_IN_HEADER.search(value):
            kept_headers.append((name, value))

    return tuple(kept_headers)


# Lines on a pipe, and a client's line as a request (MCP 2026-07-28, stdio)

_LINE_END: Final = b"\n"
_LINE_WITH_END: Final = re.compile(rb"[^\n]*\n|[^\n]+")


class Line(NamedTuple):
    """A line with its end, or a part of one that is too long to be kept."""

    raw: bytes
    is_whole: bool = True
    passed_length: int = 0
    """How many of its bytes came with earlier reads, and have been passed on since."""

    @property
    def new_bytes(self) -> bytes:
        """The bytes that came with the last read."""
        return self.raw[self.passed_length :]


class PipeRead(NamedTuple):
    """What one read of a pipe has brought: the lines that it ended, and the beginning of one.

    A line is recorded when it has ended, and its bytes are passed on as they come: a program that
    ends no lines, such as one that frames its messages by Content-Length, waits for nothing.
    """

    lines: list[Line]
    rest: bytes = b""


class LineFramer:
    """Cuts bytes into lines.

    A line that is longer than allowed comes in parts, so that it passes without being held.
    """

    def __init__(self, longest_line: int) -> None:
        self._longest_line = longest_line
        self._unfinished_line = bytearray()
        self._passed_length = 0
        self._is_cut = False

    def feed(self, chunk: bytes) -> PipeRead:
        """Take the bytes of the next read."""
        self._passed_length = len(self._unfinished_line)
        *ended_lines, unfinished = chunk.split(_LINE_END)
        lines = [self._finished_line(line + _LINE_END) for line in ended_lines]
        self._unfinished_line += unfinished
        is_too_long = len(self._unfinished_line) > self._longest_line
        if self._unfinished_line and (self._is_cut or is_too_long):
            self._is_cut = True
            lines.append(
                Line(
                    bytes(self._unfinished_line),
                    is_whole=False,
                    passed_length=self._passed_length,
                )
            )
            self._unfinished_line.clear()

            return PipeRead(lines)

        return PipeRead(lines, bytes(self._unfinished_line[self._passed_length :]))

    def finish(self) -> PipeRead:
        """Take the end of the bytes; a line may be left that has no end."""
        self._passed_length = len(self._unfinished_line)
        if not self._unfinished_line:
            return PipeRead([])
        return PipeRead([self._finished_line(b"")])

    def _finished_line(self, last: bytes) -> Line:
        """Return the line that ends with these bytes, and hold nothing of it any longer."""
        raw = bytes(self._unfinished_line) + last
        is_cut = self._is_cut or len(raw) > self._longest_line
        line = Line(raw, is_whole=not is_cut, passed_length=self._passed_length)
        self._unfinished_line.clear()
        self._passed_length = 0
        self._is_cut = False

        return line


_LENGTH_LINE: Final = re.compile(rb"content-length:[ \t]*[0-9]+[\r\n]*", re.IGNORECASE)


def why_line_is_no_message(raw: bytes) -> str:
    """Return why a line is no message as MCP has them, as the rest of a sentence, or nothing."""
    if _LENGTH_LINE.fullmatch(raw):
        return "messages are framed by Content-Length there, and not by lines as in MCP"
    return ""


def lines_in(raw: bytes) -> Sequence[bytes]:
    """Return the lines of some bytes, each with its end; the last one may lack it."""
    if raw.find(_LINE_END, 0, -1) < 0:
        return (raw,)

    lines: list[bytes] = _LINE_WITH_END.findall(raw)
    return lines


def line_request(line: bytes, session: str = "") -> Request:
    """Return a client's line as a request, without its end unless there is nothing else."""
    headers: Headers = ((SESSION_HEADER, session),) if session else ()
    return Request(NO_METHOD, "", headers, line.rstrip(b"\r\n") or line)


def channel_request(session: str = "") -> Request:
    """Return the request that begins a channel; what the server sends unasked responds to it."""
    return line_request(b"", session)


def opens_channel(request: Request) -> bool:
    """Tell whether a request begins a channel."""
    return request.is_line and not request.body
