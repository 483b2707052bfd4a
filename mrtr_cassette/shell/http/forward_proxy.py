"""The proxy that the environment names for an upstream: `HTTP_PROXY` and its like."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.errors import UsageError, printable
from mrtr_cassette.shell.http.transport import basic_authorization, network_reason

_LONGEST_HEAD: Final = 64 * 1024
_READ_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy through which an upstream is reached; its headers may have credentials."""

    host: str
    port: int
    headers: Headers = ()

    def error_naming_proxy(self, error: OSError) -> ConnectionError:
        """Return an error that names the proxy."""
        name = f"http://{self.host}:{self.port}"
        return ConnectionError(f"through the proxy {name}: {network_reason(error)}")

    async def open_tunnel(self, connected: socket.socket, authority: str) -> None:
        """Have the proxy connect to `host:port`; then the socket leads there.

        Raises:
            OSError: it refuses.
        """
        loop = asyncio.get_running_loop()
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        await loop.sock_sendall(connected, "\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            received = await loop.sock_recv(connected, _READ_AT_ONCE)
            head += received
            if not received or len(head) > _LONGEST_HEAD:
                raise ConnectionError(f"it gave no response to CONNECT {authority}")

        status, _, _ = head.partition(b"\r\n")
        version, _, rest = status.decode("latin-1").partition(" ")
        if not version.startswith("HTTP/") or not rest.startswith("2"):
            raise ConnectionError(
                f"it refused to connect to {authority}: {printable(rest)}"
            )


def forward_proxy(url: URL) -> ForwardProxy | None:
    """Return the proxy that the environment names for a URL, as for `curl` and `requests`.

    Raises:
        UsageError: it can't be used.
    """
    text = _proxy_text(url)
    if text is None:
        return None

    try:
        proxy = URL(text if "://" in text else f"http://{text}")
        port = proxy.port
    except ValueError:
        proxy = URL()
        port = None

    host = proxy.raw_host
    if proxy.scheme != "http" or not host or port is None:
        shown = printable(f"{proxy.scheme}://{host} ") if host else ""
        raise UsageError(
            f"the proxy {shown}of the environment (HTTP_PROXY and its like) can't be used",
            hint=f"give one like http://proxy.example:3128, or put {url.host} into NO_PROXY",
        )

    headers: Headers = ()
    if proxy.user is not None:
        authorization = basic_authorization(proxy.user, proxy.password or "")
        headers = (("Proxy-Authorization", authorization),)

    return ForwardProxy(host, port, headers)


def _proxy_text(url: URL) -> str | None:
    """Return how the environment names the proxy for a URL, or None where it names none."""
    proxies = getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text:
        return None

    host = url.raw_host or ""
    if proxy_bypass(host) or proxy_bypass(f"{host}:{url.port}"):
        return None

    return None if _is_in_network(host, proxies.get("no", "")) else text


def _is_in_network(host: str, excluded: str) -> bool:
    """Tell whether a host is an IP address in a network of `NO_PROXY`, such as 10.0.0.0/8."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False

    for name in excluded.split(","):
        with suppress(ValueError):
            if "/" not in name:
                continue
            if address in ipaddress.ip_network(name.strip(), strict=False):
                return True

    return False
