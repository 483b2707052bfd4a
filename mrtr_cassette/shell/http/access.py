"""Listen for clients, and refuse those of other sites."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from mrtr_cassette.core.wire.http import Headers, header_value
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ListeningOptions
from mrtr_cassette.shell.http.transport import network_reason

_HOST_AND_PORT = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::[0-9]{0,5})?")
"""The spellings of a `Host` on which all programs agree (RFC 9110, section 7.2)."""

_ORIGIN_HEADER = re.compile(f"[A-Za-z][A-Za-z0-9+.-]*://{_HOST_AND_PORT.pattern}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_NO_SUCH_ADDRESS = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
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
    allowed_names = {name.lower() for name in options.allow_hosts}
    return name_or_origin.lower() in allowed_names


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

    for name, values in values_by_header.items():
        # Of several, another program may believe another one.
        if len(values) > 1:
            return f"refused: the {name} is there more than once"

    host = "".join(values_by_header["Host"])
    if not _names_this_proxy(_HOST_AND_PORT.fullmatch(host), options):
        return f"refused: the Host {host!r} is not this proxy's; see <<allow_hosts>>"

    for origin in values_by_header["Origin"]:
        is_own = _names_this_proxy(_ORIGIN_HEADER.fullmatch(origin), options)
        if not is_own and not _is_allowed(origin, options):
            problem = f"the Origin {origin!r} is not this machine's"
            return f"refused: {problem}; see <<allow_hosts>>"

        return None

    if "cross-site" in header_value(headers, "sec-fetch-site").lower():
        return "refused: the Sec-Fetch-Site is that of another site's page without an Origin"

    return None


def _names_this_proxy(match: re.Match[str] | None, options: ListeningOptions) -> bool:
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
        for listening_socket in sockets:
            listening_socket.close()


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
    with ExitStack() as exit_stack:
        sockets: list[socket.socket] = []
        # A host's address may be listed twice.
        for family, _, _, _, address in dict.fromkeys(addresses):
            address_and_port = (address[0], port, *address[2:])
            try:
                listening_socket = socket.create_server(address_and_port, family=family)
            except OSError as error:
                # Of a name's addresses, this machine need not have all.
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise

                last_error = error
                continue

            sockets.append(exit_stack.enter_context(listening_socket))
            port = listening_socket.getsockname()[1]

        if not sockets:
            raise last_error

        # Whoever called closes them.
        exit_stack.pop_all()
        return tuple(sockets)
