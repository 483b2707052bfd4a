"""The URL of an upstream: how it is read and shown, the credentials in it, and its TLS settings."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable
from pathlib import Path

from yarl import URL

from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.files import reason_of

_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*://"
_USER = re.compile(rf"\A({_SCHEME}|).*@", re.DOTALL)
_NO_PORT = re.compile(rf"\A({_SCHEME}[^/?#:\[]*:)(?![0-9]*(?:[/?#]|\Z))[^/?#]*")
"""What stands in the place of a port, such as the password where the host lacks."""


def upstream_url(text: str, redacted: Callable[[str], str] = str) -> URL:
    """Return the URL of an upstream.

    Raises:
        UsageError: it is none, or no HTTP URL.
    """
    try:
        url = URL(text)
        port = url.port
    except ValueError:
        # The parser's own words repeat what it can't read, which may be part of a password.
        url, port = URL(), None
    if (
        re.search(r"\s", text)
        or url.scheme not in {"http", "https"}
        or not url.host
        or port is None
    ):
        raise UsageError(
            f"the upstream {redacted(_without_user(text))!r} is no HTTP URL",
            hint="give one like http://localhost:8000/mcp",
        )
    return url


def _without_user(text: str) -> str:
    """Return what is no URL without what may be a user and a password in it."""
    return _NO_PORT.sub(r"\1…", _USER.sub(r"\1…@", text))


def shown_url(url: URL) -> str:
    """Return a URL without its user and password."""
    return str(url.with_user(None).with_fragment(None))


def credentials(url: URL) -> Headers:
    """Return the headers by which the user in a URL is known there (RFC 7617).

    Raises:
        UsageError: the user has a colon.
    """
    if url.user is None:
        return ()
    if ":" in url.user:
        raise UsageError("the upstream's user has a colon, which Basic authentication can't carry")
    user = f"{url.user}:{url.password or ''}"
    return (("Authorization", "Basic " + base64.b64encode(user.encode()).decode()),)


def tls_context(url: URL, ca_file: Path | None, *, verifies: bool) -> ssl.SSLContext | None:
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
    except OSError as error:
        text = f"can't use the certificates in {ca_file}: {reason_of(error)}"
        raise UsageError(text) from None
    return context
