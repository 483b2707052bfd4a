"""Fetch a cassette from an address: once, before it is played or shown.

Nothing that plays a cassette imports this.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from contextlib import closing
from typing import Final, NamedTuple

from yarl import URL

from mrtr_cassette.core.wire.http import Request, header_value
from mrtr_cassette.errors import CassetteError, UsageError, printable
from mrtr_cassette.shell.http.access import is_loopback
from mrtr_cassette.shell.http.client import (
    connected_client,
    forward_proxy,
    read_up_to,
    read_url,
    tls_context,
    url_credentials,
)
from mrtr_cassette.shell.http.transport import connection_problem, header_texts

_MOST_BYTES: Final = 64 * 1024 * 1024
_MIB: Final = 1024 * 1024
_FETCH_S: Final = 60.0
_SHA256_PIN: Final = re.compile(r"sha256=([A-Fa-f\d]{64})", re.ASCII)
_REQUEST_HEADERS: Final = (
    ("Accept", "application/json"),
    ("Accept-Encoding", "identity"),
)
_PAGE_CONTENT_TYPE: Final = "text/html"


class FetchedCassette(NamedTuple):
    """A cassette from an address, which is shown without user, query and fragment."""

    shown: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The digest that pins it."""
        return hashlib.sha256(self.data).hexdigest()


async def fetch_cassette(address: str) -> FetchedCassette:
    """Fetch what is at an address; follow no redirect.

    Raises:
        UsageError: it is not an address from which cassettes are fetched.
        CassetteError: it can't be fetched, or has another digest than the address says.
    """
    url = _url_of(address)
    shown_address = _shown_url(url)
    pinned_sha256 = _pin_in(url, shown_address)
    try:
        async with asyncio.timeout(_FETCH_S):
            data = await _body_at(url, shown_address)
    except TimeoutError as error:
        reason = str(error) or f"no whole response came within {_FETCH_S:g} s"
        raise CassetteError(shown_address, reason) from None
    except OSError as error:
        hint = None
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "name the certificate of its authority in SSL_CERT_FILE"

        reason = connection_problem(error)
        raise CassetteError(shown_address, reason, hint=hint) from None

    fetched_cassette = FetchedCassette(shown_address, data)
    if pinned_sha256 not in ("", fetched_cassette.sha256):
        reason = f"its SHA-256 is {fetched_cassette.sha256}, and the address says {pinned_sha256}"
        raise CassetteError(shown_address, reason)

    return fetched_cassette


def _url_of(address: str) -> URL:
    """Return an address as a URL; a `UsageError` says why no cassette is fetched from it."""
    url = read_url(address)
    if not url.host or url.port is None:
        raise UsageError("the address of the cassette is not a URL with a host")
    if url.scheme == "http" and not is_loopback(url.host):
        problem = (
            f"{_shown_url(url)}: a cassette is fetched by https://, and by http:// only from this "
            "machine"
        )
        raise UsageError(problem)

    return url


def _shown_url(url: URL) -> str:
    """Return a URL as messages show it: without user, password, query and fragment."""
    url_without_secrets = url.with_user(None).with_query(None).with_fragment(None)
    return printable(str(url_without_secrets))


def _pin_in(url: URL, shown_address: str) -> str:
    """Return the digest that an address demands; empty if it demands none."""
    if not url.fragment:
        return ""

    pin = _SHA256_PIN.fullmatch(url.fragment)
    if pin is None:
        hint = "write #sha256= and its 64 hexadecimal digits"
        raise UsageError(f"{shown_address}: what follows # is not a digest", hint=hint)

    return pin[1].lower()


async def _body_at(url: URL, shown_address: str) -> bytes:
    """Return the bytes of the file at a URL; a `CassetteError` says why there is no cassette."""
    tls = tls_context(url, None, verifies=True)
    headers_for_upstream = (*_REQUEST_HEADERS, *url_credentials(url))
    request = Request("GET", url.raw_path_qs, headers_for_upstream, b"")
    async with connected_client(url.origin(), tls, forward_proxy(url)) as client:
        with closing(await client.send_request(request)) as response:
            headers = header_texts(response.headers)
            media_type = header_value(headers, "content-type")
            location = header_value(headers, "location")
            _check_status(shown_address, response.status, location)
            received_body = await read_up_to(_MOST_BYTES, response)

    if received_body is None:
        reason = f"it has more than {_MOST_BYTES // _MIB} MiB"
        raise CassetteError(shown_address, reason)

    is_markup = received_body.lstrip().startswith(b"<")
    if is_markup or media_type.startswith(_PAGE_CONTENT_TYPE):
        reason = "there is a web page, and not a cassette"
        hint = "name the address of the file itself, as a link to `raw` has it"
        raise CassetteError(shown_address, reason, hint=hint)

    return received_body


def _check_status(shown_address: str, status: int, location: str) -> None:
    """Refuse a response that doesn't have the file."""
    if status == 404:
        raise CassetteError(shown_address, "there is no such file (HTTP 404)")

    if 300 <= status < 400:
        try:
            elsewhere = _shown_url(URL(shown_address).join(URL(location)))
        except ValueError:
            elsewhere = "another address"

        reason = f"it redirects to {elsewhere}, and redirects are not followed"
        hint = "name that address, if you trust it"
        raise CassetteError(shown_address, reason, hint=hint)

    if status != 200:
        reason = f"its server answered HTTP {status}"
        hint = "name the address of a file; a server itself is recorded or verified"
        raise CassetteError(shown_address, reason, hint=hint)
