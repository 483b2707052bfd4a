"""Listen for clients, refuse those of other sites, and translate the server's origin for them."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial

from mrtr_cassette.core.cassette.sessions import EndpointPassing
from mrtr_cassette.core.protocol.origins import (
    ServerOrigin,
    path_in,
    state_of,
    with_state,
)
from mrtr_cassette.core.wire.http import Headers, Request, header_value
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ListeningOptions
from mrtr_cassette.shell.http.transport import (
    Handler,
    TranslatedDownstream,
    network_reason,
)

_HOST_AND_PORT = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::[0-9]{0,5})?")
"""The spellings of a `Host` on which all programs agree (RFC 9110, section 7.2)."""

_ORIGIN_HEADER = re.compile(f"[A-Za-z][A-Za-z0-9+.-]*://{_HOST_AND_PORT.pattern}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_NOT_OURS = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors of binding an address that this machine doesn't have."""

_MOST_PORTS_TRIED = 10
"""Ports that are tried before one is free on all addresses of a host."""


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address that is listened on."""
    if host.lower() == "localhost":
        return True

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_name(name: str, options: ListeningOptions) -> bool:
    """Tell whether a host name is one under which clients call the proxy."""
    is_listened_on = name == options.host.lower()
    return name in _LOOPBACK_NAMES or is_listened_on or _is_allowed(name, options)


def _is_allowed(name_or_origin: str, options: ListeningOptions) -> bool:
    """Tell whether the user allows a host name or an origin, in whatever case it is spelled."""
    allowed = {allowed.lower() for allowed in options.allow_hosts}
    return name_or_origin.lower() in allowed


def refusal_of(headers: Headers, options: ListeningOptions) -> str | None:
    """Return why a request with these headers is refused, or None.

    DNS rebinding shows in `Host` or `Origin`, another site's page that sends no `Origin` in
    `Sec-Fetch-Site`.
    """
    values_by_header: dict[str, list[str]] = {"Host": [], "Origin": []}
    for name, value in headers:
        title = name.capitalize()
        if title in values_by_header:
            values_by_header[title].append(value)

    for name, given in values_by_header.items():
        # Of several, another program may believe another one.
        if len(given) > 1:
            return f"refused: the {name} is there more than once"

    host = "".join(values_by_header["Host"])
    if not _is_ours(_HOST_AND_PORT.fullmatch(host), options):
        return f"refused: the Host {host!r} is not this proxy's; see <<allow_hosts>>"

    for origin in values_by_header["Origin"]:
        is_own = _is_ours(_ORIGIN_HEADER.fullmatch(origin), options)
        if not is_own and not _is_allowed(origin, options):
            problem = f"the Origin {origin!r} is not this machine's"
            return f"refused: {problem}; see <<allow_hosts>>"

        return None

    if "cross-site" in header_value(headers, "sec-fetch-site").lower():
        return "refused: the Sec-Fetch-Site is that of another site's page without an Origin"

    return None


def _is_ours(match: re.Match[str] | None, options: ListeningOptions) -> bool:
    """Tell whether a matched host names the proxy, as an IP address does if others can reach it."""
    if match is None:
        return False

    name = match["name"].strip("[]").lower()
    if is_own_name(name, options):
        return True
    if is_loopback(options.host):
        return False

    # No name leads to an address literal, so rebinding can't be behind it.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False

    return True


@dataclass(frozen=True, slots=True)
class Listener:
    """Listening sockets, and their URL."""

    sockets: tuple[socket.socket, ...]
    host: str
    port: int

    def url(self, path: str) -> str:
        """Return the URL of a path here."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{path}"


@contextmanager
def listening(options: ListeningOptions) -> Iterator[Listener]:
    """Listen until the block ends; clients that connect wait until they are served.

    Raises:
        UsageError: the address can't be bound.
    """
    host = options.host
    port = options.port
    try:
        sockets = _listening_sockets(host, port)
    except OSError as error:
        problem = f"can't listen on {host} port {port}: {network_reason(error)}"
        if error.errno == errno.EADDRINUSE:
            problem = f"port {port} on {host} is in use"

        raise UsageError(problem, hint="choose another <<port>>") from None

    try:
        yield Listener(sockets, host, sockets[0].getsockname()[1])
    finally:
        for bound in sockets:
            bound.close()


def _listening_sockets(host: str, port: int) -> tuple[socket.socket, ...]:
    """Listen on all addresses of a host; a port that we choose must be free on all of them."""
    tries_left = 1 if port else _MOST_PORTS_TRIED
    while True:
        tries_left -= 1
        try:
            return _sockets_at_one_port(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not tries_left:
                raise


def _sockets_at_one_port(host: str, port: int) -> tuple[socket.socket, ...]:
    """Listen on all addresses of a host that this machine has; for port 0 on any one port."""
    addresses = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        # A host's address may be listed twice.
        for family, _, _, _, address in dict.fromkeys(addresses):
            address_and_port = (address[0], port, *address[2:])
            try:
                bound = socket.create_server(address_and_port, family=family)
            except OSError as error:
                # Of a name's addresses, this machine need not have all.
                if error.errno not in _NOT_OURS:
                    raise

                missing = error
                continue

            sockets.append(opened.enter_context(bound))
            port = bound.getsockname()[1]

        if not sockets:
            raise missing

        # Whoever called closes them.
        opened.pop_all()
        return tuple(sockets)


class OwnOrigin:
    """Stands before a handler that knows the server's origin; clients read the one they called.

    So clients come here to be authorized, and a cassette is the same on any port. The URL may have
    a path, under which all paths of the server are.
    """

    def __init__(self, handler: Handler, origin: ServerOrigin, url: str) -> None:
        self._inner_handler = handler
        self._server_origin = origin
        self._own_url = url
        self._path_prefix = path_in(url)
        self.elsewhere: dict[str, None] = {}
        """Other authorization servers that clients were sent to."""
        self._translated_headers = lru_cache(maxsize=1024)(
            lambda called, headers: self._server_origin.headers_with_origin(
                headers, called
            )
        )

    def handle(self, request: Request, client: TranslatedDownstream) -> Awaitable[None]:
        """Answer one request."""
        called = _called_origin(request.headers, self._own_url)
        client.translated = partial(self._translated_headers, called)
        if self._path_prefix and request.method == "GET":
            client.endpoint = EndpointPassing(self._server_origin, self._path_prefix)

        if request.method == "GET" or b"resource=" in request.body:
            return self._pass_on_authorization(request, client, called)

        return self._inner_handler(request, client)

    async def _pass_on_authorization(
        self, request: Request, client: TranslatedDownstream, called: str
    ) -> None:
        """Pass on a request that may be for authorization; its response keeps the `state`."""
        state = state_of(request.target)
        if state is not None:
            client.translated = lambda headers: with_state(
                self._translated_headers(called, headers), state
            )

        if self._server_origin.is_document(request):
            client.rewritten = partial(self._document_for_client, called)

        await self._inner_handler(
            self._server_origin.request_with_origin(request, called), client
        )

    def _document_for_client(self, called: str, body: bytes) -> bytes:
        """Return a document with the called origin; take note of other authorization servers."""
        for origin in self._server_origin.authorities_elsewhere(body):
            self.elsewhere[f"the authorization server {origin}"] = None

        return self._server_origin.document_with_origin(body, called)


@lru_cache(maxsize=1024)
def _called_origin(headers: Headers, url: str) -> str:
    """Return the origin that a client has called, perhaps through a balancer that speaks TLS."""
    host = header_value(headers, "host")
    if not host:
        # HTTP/1.0 has none.
        return url

    is_secure = header_value(headers, "x-forwarded-proto").lower() == "https"
    scheme = "https" if is_secure else "http"
    return f"{scheme}://{host}{path_in(url)}"
