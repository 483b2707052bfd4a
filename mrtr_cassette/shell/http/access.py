"""Where the proxy listens, and whom it serves: foreign hosts and origins are refused."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mrtr_cassette.core.wire.http import LARGEST_BODY, Headers
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, UsageError
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.http.message import network_reason


@dataclass(frozen=True, slots=True)
class Access:
    """Where the proxy listens, who may talk to it, and how much at once.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        allowed_hosts: further names under which clients may call it.
        allowed_origins: further origins whose pages may call it, such as `https://app.example`.
        max_body: bytes of the largest body that is taken.
        terms: how the front spells the options.
    """

    host: str = "127.0.0.1"
    port: int = 0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body: int = LARGEST_BODY
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS, repr=False, compare=False)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def is_named(self, name: str) -> bool:
        """Tell whether a host name is one under which clients call the proxy."""
        allowed = (self.host, *self.allowed_hosts)
        return name in _LOOPBACK_NAMES or name in {host.lower() for host in allowed}

    def refusal(self, headers: Headers) -> str | None:
        """Return why a request with these headers is refused, or None.

        DNS rebinding shows in `Host` or `Origin`, another site's page that sends no `Origin` in
        `Sec-Fetch-Site`.
        """
        hosts, origins, sites = (
            [value for name, value in headers if name.lower() == wanted]
            for wanted in ("host", "origin", "sec-fetch-site")
        )
        # Of several, another program may believe another one.
        if len(hosts) > 1 or len(origins) > 1:
            name = "Host" if len(hosts) > 1 else "Origin"
            return f"refused: the {name} is there more than once"
        host, origin = "".join(hosts), "".join(origins)
        if not self._is_ours(_HOST.fullmatch(host)):
            return f"refused: the Host {host!r} is not this proxy's; see <<allow_hosts>>"
        if origins:
            if origin not in self.allowed_origins and not self._is_ours(_ORIGIN.fullmatch(origin)):
                problem = f"the Origin {origin!r} is not this machine's"
                return f"refused: {problem}; see <<allow_origins>>"
        elif any("cross-site" in site.lower() for site in sites):
            return "refused: the Sec-Fetch-Site is that of another site's page without an Origin"
        return None

    def _is_ours(self, match: re.Match[str] | None) -> bool:
        if match is None:
            return False
        name = match["name"].strip("[]").lower()
        if self.is_named(name):
            return True
        if self.is_loopback:
            return False
        # No name leads to an address literal, so rebinding can't be behind it.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def access_of(options: ProxyOptions) -> Access:
    """Return what options say of where to listen, and for whom."""
    return Access(
        options.host,
        options.port,
        tuple(options.allow_hosts),
        tuple(options.allow_origins),
        options.max_body,
        options.terms,
    )


LOOPBACK: Final = Access()
"""A free port that only this machine can reach."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::[0-9]{0,5})?")
"""The spellings of a `Host` on which all programs agree (RFC 9110, section 7.2)."""
_ORIGIN = re.compile(f"[A-Za-z][A-Za-z0-9+.-]*://{_HOST.pattern}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_NOT_OURS = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors of binding an address that this machine doesn't have."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Sockets that listen, and how clients call them."""

    sockets: tuple[socket.socket, ...]
    host: str
    port: int

    def url(self, path: str) -> str:
        """Return the URL of a path here."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{path}"


@contextmanager
def listening(access: Access) -> Iterator[Listener]:
    """Listen until the block ends; clients that connect wait until they are served.

    Raises:
        UsageError: the address can't be bound.
    """
    try:
        sockets = _bound_sockets(access.host, access.port)
    except OSError as error:
        raise UsageError(_bind_problem(access, error), hint="choose another <<port>>") from None
    try:
        yield Listener(sockets, access.host, sockets[0].getsockname()[1])
    finally:
        for each in sockets:
            each.close()


def _bound_sockets(host: str, port: int) -> tuple[socket.socket, ...]:
    """Return a listening socket for each address of a host that this machine has."""
    sockets = []
    problem: OSError | None = None
    for family, address in _addresses(host, port):
        try:
            sockets.append(socket.create_server(address, family=family))
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            problem = error
    if not sockets and problem is not None:
        raise problem
    return tuple(sockets)


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Return the families and addresses of a host; what is an address already is not looked up."""
    with suppress(ValueError):
        version = ipaddress.ip_address(host).version
        if "%" not in host:
            return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in infos]


def _bind_problem(access: Access, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {access.port} on {access.host} is in use"
    return f"can't listen on {access.host} port {access.port}: {network_reason(error)}"
