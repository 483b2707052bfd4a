"""An HTTP/1 client of one origin, directly or by a proxy; how URLs of upstreams are read."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from yarl import URL

from mrtr_cassette.core.protocol.origins import lacks_scheme
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.errors import UsageError, printable
from mrtr_cassette.shell.files.disk import system_reason
from mrtr_cassette.shell.http.transport import (
    ArrivingResponse,
    RawHeaders,
    UpstreamResponse,
    basic_authorization,
    headers_for_upstream,
    network_reason,
)

_NEXT_ADDRESS_S = 0.25
"""Seconds after which the next address of a host is tried as well (RFC 8305, section 5)."""

_MOST_UNREAD = 256 * 1024
"""Bytes of a body that wait to be read before the upstream has to."""

_TLS_ALERT = b"\x15\x03"
"""What a server sends that awaited TLS (RFC 8446, section 5.1: an alert record)."""

_TRY_TLS: Final = "use https:// instead of http://"
_URL_SCHEME: Final = "(?:[A-Za-z][A-Za-z0-9+.-]*://)?"
_NO_PASSWORD = re.compile(f"{_URL_SCHEME}[^:@]*(:[0-9]*)?(/[^:@]*)?")
"""A text in which there can be no password."""

_SCHEME_AND_REST = re.compile(f"\\A({_URL_SCHEME}).*", re.DOTALL)
_HTTP_AUTHORITY = re.compile("https?://([^/?#]*)", re.IGNORECASE)
_PLAIN_IPV6 = re.compile("[0-9A-Fa-f]*(?::[0-9A-Fa-f.]*){2,}")
_NO_BRACKETS: Final = "has an IPv6 address without brackets"
_LARGEST_PORT: Final = 65_535
_FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
_PROXY_AUTH_REQUIRED: Final = HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
"""A status that only a proxy has."""

_LONGEST_HEAD: Final = 64 * 1024
"""Bytes of a proxy's response to `CONNECT`."""

_READ_AT_ONCE: Final = 4096
_CONNECT_S: Final = 30.0
"""Seconds that connecting may take, a TLS handshake included."""

_IDLE_S: Final = 3.0
"""Seconds that an unused connection is kept; common servers close it after 5 s."""


class HttpResponse(ArrivingResponse):
    """A `transport.UpstreamResponse` that the parser of its connection fills."""

    unread: bytearray

    def __init__(self, connection: _Connection, *, is_to_head: bool) -> None:
        self.unread = bytearray()
        self.status = 0
        self.reason = b""
        self.headers: RawHeaders = ()
        self.head_came: asyncio.Future[None] = (
            asyncio.get_running_loop().create_future()
        )
        self.is_to_head = is_to_head
        """It has no body, whatever its head says."""
        self._connection = connection

    @property
    def ends_with_connection(self) -> bool:
        """Whether the close of the connection is its end (RFC 9112, section 6.3)."""
        if not self.status:
            return False

        names = [name.lower() for name, _ in self.headers]
        return _FRAMING_HEADERS.isdisjoint(names)

    def read_now(self) -> bytes:
        """Return the bytes of the body that have arrived; there may be none."""
        raw = bytes(self.unread)
        self.unread.clear()
        self._connection.transport.resume_reading()

        return raw

    def close(self) -> None:
        """Abandon the rest of the body, if there is any."""
        if not self.is_over:
            self._connection.transport.abort()

    def add_body(self, raw: bytes) -> None:
        """Take bytes of the body."""
        self.unread += raw
        self.wake_reader()
        if len(self.unread) > _MOST_UNREAD:
            self._connection.transport.pause_reading()


class _Connection(asyncio.Protocol):
    """One connection, and the exchange that is under way on it."""

    transport: asyncio.Transport

    def __init__(self, idle_connections: list[_Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._idle_connections = idle_connections
        self._parser = HttpResponseParser(self)
        # Line ends and spaces that a server should not send, but common clients accept.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._response_under_way: HttpResponse | None = None
        self._reason_phrase = b""
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._has_received = False
        self._idle_since_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    async def send_until_head(
        self, head: bytes, body: bytes, *, is_to_head: bool
    ) -> HttpResponse:
        """Send a request, and return its response when the head has arrived."""
        self._response_under_way = response = HttpResponse(self, is_to_head=is_to_head)
        self.transport.writelines((head, body))
        try:
            await response.head_came
        except BaseException:
            self.transport.abort()
            raise

        return response

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._response_under_way is None:
            self.transport.abort()
            return

        self._has_received = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if data.startswith(_TLS_ALERT):
                self._fail_response(f"it speaks TLS; {_TRY_TLS}")
            else:
                # An error of one of the functions below stands behind the parser's own.
                self._fail_response(f"no HTTP response: {error.__context__ or error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle_connections:
            self._idle_connections.remove(self)

        if self._idle_timer is not None:
            self._idle_timer.cancel()

        response = self._response_under_way
        if response is not None and exc is None and response.ends_with_connection:
            response.note_end()
        else:
            reason = str(exc or "the connection was closed")
            is_plain = self.transport.get_extra_info("ssl_object") is None
            if is_plain and not self._has_received:
                # Not every server sends an alert before it closes.
                reason = f"{reason}; if it speaks TLS, {_TRY_TLS}"

            self._fail_response(reason)

        # It is cancelled with a close that nobody waits for any more.
        if not self.closed.done():
            self.closed.set_result(None)

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._response_under_way is None or self._response_under_way.status:
            raise ValueError("more than the requested response")

    def on_status(self, reason: bytes) -> None:
        self._reason_phrase += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after a body is left out.
        if self._response_under_way is not None and not self._response_under_way.status:
            self._raw_headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers = tuple(self._raw_headers)
        reason = self._reason_phrase
        self._raw_headers = []
        self._reason_phrase = b""
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            raise ValueError("another protocol, which was not requested")

        response = self._response_under_way
        if status < HTTPStatus.OK or response is None:
            return

        response.status = status
        response.reason = reason
        response.headers = headers
        # It is cancelled where the client has left meanwhile.
        if not response.head_came.done():
            response.head_came.set_result(None)

        if response.is_to_head:
            self._response_under_way = None
            response.note_end()
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        if self._response_under_way is not None:
            self._response_under_way.add_body(body)

    def on_message_complete(self) -> None:
        response = self._response_under_way
        # Of an informational response nothing is left.
        if response is None or not response.status:
            return

        self._response_under_way = None
        response.note_end()
        # A server that answers before it has the whole request may not read the rest of it.
        has_unsent_bytes = self.transport.get_write_buffer_size() > 0
        if has_unsent_bytes or not self._parser.should_keep_alive():
            self.transport.abort()
            return

        self.transport.resume_reading()
        self._idle_since_s = self._loop.time()
        if self._idle_timer is None:
            self._close_if_idle()

        self._idle_connections.append(self)

    def _close_if_idle(self) -> None:
        """Close the connection if nobody has used it for long; else look again when that may be."""
        self._idle_timer = None
        if self._response_under_way is not None:
            return

        seconds_left = self._idle_since_s + _IDLE_S - self._loop.time()
        if seconds_left <= 0:
            self.transport.close()
        else:
            # A timer for each exchange would be one of the costs of an exchange.
            self._idle_timer = self._loop.call_later(seconds_left, self._close_if_idle)

    def _fail_response(self, reason: str) -> None:
        """Abort the connection; a response under way ends with an error for this reason."""
        response = self._response_under_way
        if response is not None:
            error = ConnectionError(reason)
            if not response.head_came.done():
                response.head_came.set_exception(error)

            response.note_end(error)

        self._response_under_way = None
        self.transport.abort()


# A client sends the same headers with call after call, and bodies of few sizes.
@lru_cache(maxsize=1024)
def _request_head(
    method: str, target: str, host: str, headers: Headers, size: int
) -> bytes:
    """Return a request's head, with a `Host` and the body's length if its headers lack them."""
    names = {name.lower() for name, _ in headers}
    lines = [f"{method} {target} HTTP/1.1"]
    if "host" not in names:
        lines.append(f"Host: {host}")

    lines += [f"{name}: {value}" for name, value in headers]
    # A body that came in chunks goes on with its length.
    if size and "content-length" not in names:
        lines.append(f"Content-Length: {size}")

    return "".join(f"{line}\r\n" for line in (*lines, "")).encode(
        "utf-8", "surrogateescape"
    )


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy through which an upstream is reached; its headers may have credentials."""

    host: str
    port: int
    headers: Headers

    def error_naming_proxy(self, error: OSError) -> ConnectionError:
        """Return an error that names the proxy."""
        name = f"http://{self.host}:{self.port}"
        return ConnectionError(f"through the proxy {name}: {network_reason(error)}")

    async def open_tunnel(
        self, connected_socket: socket.socket, authority: str
    ) -> None:
        """Have the proxy connect to `host:port`; then the socket leads there.

        Raises:
            OSError: it refuses.
        """
        loop = asyncio.get_running_loop()
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        connect_request = "\r\n".join([*lines, "", ""]).encode()
        await loop.sock_sendall(connected_socket, connect_request)
        response_head = b""
        while b"\r\n\r\n" not in response_head:
            received = await loop.sock_recv(connected_socket, _READ_AT_ONCE)
            response_head += received
            if not received or len(response_head) > _LONGEST_HEAD:
                raise ConnectionError(f"it gave no response to CONNECT {authority}")

        status_line, _, _ = response_head.partition(b"\r\n")
        version, _, status_and_reason = status_line.decode("latin-1").partition(" ")
        if not version.startswith("HTTP/") or not status_and_reason.startswith("2"):
            problem = (
                f"it refused to connect to {authority}: {printable(status_and_reason)}"
            )
            raise ConnectionError(problem)


class Client:
    """Sends requests to one origin over HTTP, as `transport.Upstream` has it."""

    def __init__(
        self,
        origin: URL,
        tls: ssl.SSLContext | None,
        proxy: ForwardProxy | None,
        headers: Headers,
    ) -> None:
        """Add headers to every request, in the place of its own of that name."""
        self._added_headers = headers
        self._origin_url = origin
        self._tls_context = tls if origin.scheme == "https" else None
        self._forward_proxy = proxy
        self._host_and_port = origin.host_port_subcomponent or ""
        self.idle_connections: list[_Connection] = []
        """Connections for the next requests."""
        self._open_connections: set[_Connection] = set()

    async def send_request(self, request: Request) -> HttpResponse:
        """Send a request once, and return its response when the head has come.

        A `Host` comes before its headers, unless one is added.

        Raises:
            OSError: the upstream can't be reached, or its proxy refuses.
        """
        target = request.target
        headers = headers_for_upstream(request.headers, self._added_headers)
        if self._forward_proxy is not None and self._tls_context is None:
            target = f"http://{self._host_and_port}{target}"
            headers = (*headers, *self._forward_proxy.headers)

        head = _request_head(
            request.method, target, self._host_and_port, headers, len(request.body)
        )
        try:
            response = await self._exchange_on_connection(head, request)
            wants_proxy_login = response.status == _PROXY_AUTH_REQUIRED
            if self._forward_proxy is not None and wants_proxy_login:
                response.close()
                problem = f"it refused: {_PROXY_AUTH_REQUIRED.value} {_PROXY_AUTH_REQUIRED.phrase}"
                raise ConnectionError(problem)
        except OSError as error:
            if self._forward_proxy is None:
                raise
            raise self._forward_proxy.error_naming_proxy(error) from None

        return response

    async def _exchange_on_connection(
        self, head: bytes, request: Request
    ) -> HttpResponse:
        """Send a request on a kept or a new connection; return its response when the head came."""
        idle = self.idle_connections
        while idle and idle[-1].transport.is_closing():
            idle.pop()

        connection = idle.pop() if idle else await self._connect_to_origin()
        return await connection.send_until_head(
            head, request.body, is_to_head=request.method == "HEAD"
        )

    async def _connect_to_origin(self) -> _Connection:
        """Connect to the origin, or to its proxy, which opens a tunnel if the origin speaks TLS."""
        loop = asyncio.get_running_loop()
        host = self._origin_url.raw_host or ""
        port = self._origin_url.port
        proxy = self._forward_proxy
        first_hop = (host, port) if proxy is None else (proxy.host, proxy.port)
        try:
            async with asyncio.timeout(_CONNECT_S):
                addresses = await loop.getaddrinfo(*first_hop, type=socket.SOCK_STREAM)
                connected_socket = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1
                )
                try:
                    if proxy is not None and self._tls_context is not None:
                        authority = f"{self._origin_url.host_subcomponent}:{port}"
                        await proxy.open_tunnel(connected_socket, authority)

                    _, connection = await loop.create_connection(
                        partial(_Connection, self.idle_connections),
                        sock=connected_socket,
                        ssl=self._tls_context,
                        server_hostname=host.rstrip(".") if self._tls_context else None,
                    )
                except BaseException:
                    connected_socket.close()
                    raise
        except TimeoutError as error:
            reason = f"no connection within {_CONNECT_S:.0f} s"
            if error.errno:
                # The system gave up earlier.
                reason = network_reason(error)

            raise TimeoutError(reason) from None

        self._open_connections.add(connection)
        connection.closed.add_done_callback(
            lambda _: self._open_connections.discard(connection)
        )
        return connection

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._open_connections:
            connection.transport.abort()

        await asyncio.gather(
            *(connection.closed for connection in self._open_connections)
        )


async def read_up_to(limit: int, response: UpstreamResponse) -> bytes | None:
    """Return the body of a response, or None if it has more bytes than the limit."""
    body = bytearray()
    while chunk := await response.read():
        body += chunk
        if len(body) > limit:
            return None

    return bytes(body)


@asynccontextmanager
async def connected_client(
    origin: URL,
    tls: ssl.SSLContext | None,
    proxy: ForwardProxy | None = None,
    headers: Headers = (),
) -> AsyncIterator[Client]:
    """Give a client, which adds headers to every request, until the block ends."""
    client = Client(origin, tls, proxy, headers)
    try:
        yield client
    finally:
        await client.close()


def read_url(text: str) -> URL:
    """Return a text as a URL; an empty one where it is none."""
    try:
        url = URL(text)
        # A name in other letters is decoded when it is read.
        return url if url.host else URL()
    except ValueError:
        return URL()


def upstream_url(text: str, redacted: Callable[[str], str] = str) -> URL:
    """Return the URL of an upstream.

    Raises:
        UsageError: it is none, or no HTTP URL.
    """
    url = read_url(text)
    is_http = url.scheme in {"http", "https"} and url.host and url.port is not None
    if not is_http or re.search(r"\s", text):
        hint = (
            "give one like http://localhost:8000/mcp; the command of a server goes after --, "
            "or in Python into a list"
        )

        problem = _problem_of_url(text)
        is_shown = problem == _NO_BRACKETS or _NO_PASSWORD.fullmatch(text)
        shown_text = text if is_shown else _SCHEME_AND_REST.sub(r"\1…", text)
        if lacks_scheme(text):
            hint = f"write http://{shown_text}"
        elif problem == _NO_BRACKETS:
            hint = "write it like http://[::1]:8000/mcp"

        raise UsageError(f"the upstream {redacted(shown_text)!r} {problem}", hint=hint)

    return url


def _problem_of_url(text: str) -> str:
    """Return what is wrong with a URL of an upstream, without any part of it."""
    match = _HTTP_AUTHORITY.match(text)
    if match is None:
        return "is not an HTTP URL"
    if re.search(r"\s", text):
        return "has a space"
    if _PLAIN_IPV6.fullmatch(match[1]):
        return _NO_BRACKETS

    host, _, port = match[1].rpartition("@")[2].rpartition(":")
    is_bracket_open = "[" in host and "]" not in host
    is_port = re.fullmatch("[0-9]{1,5}", port) and int(port) <= _LARGEST_PORT
    if host and not is_bracket_open and not is_port:
        return f"has a port that is not a number up to {_LARGEST_PORT}"

    return "is not an HTTP URL"


def shown_url(url: URL) -> str:
    """Return a URL without its user and password."""
    return str(url.with_user(None).with_fragment(None))


def url_credentials(url: URL) -> Headers:
    """Return the headers by which the user in a URL is known there (RFC 7617).

    Raises:
        UsageError: the user has a colon.
    """
    if url.user is None:
        return ()
    if ":" in url.user:
        problem = (
            "the upstream's user has a colon, which Basic authentication can't carry"
        )
        raise UsageError(problem)

    return (("Authorization", basic_authorization(url.user, url.password or "")),)


def tls_context(
    url: URL, ca_file: Path | None, *, verifies: bool
) -> ssl.SSLContext | None:
    """Return how an upstream is verified; None where it has no TLS.

    Raises:
        UsageError: the certificates can't be used.
    """
    if url.scheme != "https" and ca_file is None:
        return None

    try:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        if not verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE

        if ca_file is not None:
            context.load_verify_locations(ca_file)
    except ssl.SSLError:
        text = f"can't use {ca_file}: it has no valid certificates in PEM form"
        raise UsageError(text) from None
    except OSError as error:
        text = f"can't use the certificates in {ca_file}: {system_reason(error)}"
        raise UsageError(text) from None

    return context


def forward_proxy(url: URL) -> ForwardProxy | None:
    """Return the proxy that the environment names for a URL, as for `curl` and `requests`.

    Raises:
        UsageError: it can't be used.
    """
    proxy_text = _proxy_in_environment(url)
    if proxy_text is None:
        return None

    proxy = read_url(proxy_text if "://" in proxy_text else f"http://{proxy_text}")
    host = proxy.raw_host
    port = proxy.port
    if proxy.scheme != "http" or not host or port is None:
        shown_proxy = printable(f"{proxy.scheme}://{host} ") if host else ""
        problem = (
            f"the proxy {shown_proxy}of the environment (HTTP_PROXY and its like) can't be "
            "used"
        )
        hint = (
            f"give one like http://proxy.example:3128, or put {url.host} into NO_PROXY"
        )
        raise UsageError(problem, hint=hint)

    headers: Headers = ()
    if proxy.user is not None:
        authorization = basic_authorization(proxy.user, proxy.password or "")
        headers = (("Proxy-Authorization", authorization),)

    return ForwardProxy(host, port, headers)


def _proxy_in_environment(url: URL) -> str | None:
    """Return how the environment names the proxy for a URL, or None where it names none."""
    proxies = getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text:
        return None

    host = url.raw_host or ""
    if proxy_bypass(host) or proxy_bypass(f"{host}:{url.port}"):
        return None

    return None if _is_in_unproxied_network(host, proxies.get("no", "")) else text


def _is_in_unproxied_network(host: str, no_proxy: str) -> bool:
    """Tell whether a host is an IP address in a network of `NO_PROXY`, such as 10.0.0.0/8."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False

    for name in no_proxy.split(","):
        with suppress(ValueError):
            if "/" not in name:
                continue
            if address in ipaddress.ip_network(name.strip(), strict=False):
                return True

    return False
