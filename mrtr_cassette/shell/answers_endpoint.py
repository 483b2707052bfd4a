"""An endpoint that is asked for answers, over HTTP.

Rule: nothing is sent again, no redirect is followed, and no reply is waited for without an end.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from mrtr_cassette.core.answers.file_model import RestModel
from mrtr_cassette.core.answers.fulfilment import Fulfilment
from mrtr_cassette.core.answers.rest import LARGEST_REPLY
from mrtr_cassette.errors import UsageError
from mrtr_cassette.option_values import checked_headers
from mrtr_cassette.shell.http.upstream_url import credentials, shown_url, tls_context, upstream_url

_AT_ONCE: Final = 65536
"""Bytes of a reply that are read at once."""


@dataclass(frozen=True, slots=True)
class AnswersEndpoint:
    """An endpoint that can be asked."""

    url: URL
    headers: tuple[tuple[str, str], ...]
    timeout_s: float
    proxy: URL | None
    tls: ssl.SSLContext | None
    client: aiohttp.ClientSession
    largest: int

    async def ask(self, body: bytes, fulfilment: Fulfilment) -> None:
        """Ask it, and hand over what it replies or why it doesn't."""
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                self.client.post(
                    self.url,
                    data=body,
                    headers=[("Content-Type", "application/json"), *self.headers],
                    allow_redirects=False,
                    proxy=self.proxy,
                    ssl=self.tls or True,
                ) as response,
            ):
                reply = await response.content.read(_AT_ONCE)
                while len(reply) <= self.largest and (
                    chunk := await response.content.read(_AT_ONCE)
                ):
                    reply += chunk
                media = response.headers.get("Content-Type", "")
        except TimeoutError:
            fulfilment.endpoint_failed(f"nothing whole within {self.timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            fulfilment.endpoint_failed(_reason(error))
        else:
            if len(reply) > self.largest:
                fulfilment.endpoint_failed(f"its reply has more than {self.largest:,} bytes")
            else:
                fulfilment.replied(response.status, media, reply)


def _reason(error: Exception) -> str:
    """Return why nothing came, without what the URL may carry."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not verified ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection ({error.strerror or type(error.os_error).__name__})"
    return f"the connection failed ({type(error).__name__})"


@asynccontextmanager
async def answers_endpoint(
    rest: RestModel, ca_file: Path | None, *, verifies: bool = True, largest: int = LARGEST_REPLY
) -> AsyncIterator[AnswersEndpoint]:
    """Give an endpoint until the block ends.

    Raises:
        UsageError: its URL is none, or a header can't be sent.
    """
    try:
        url = upstream_url(rest.url)
    except UsageError:
        raise UsageError("rest.url of the answers file is no HTTP URL") from None
    headers = checked_headers(rest.headers)
    proxy = None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
    tls = tls_context(url, ca_file, verifies=verifies)
    async with aiohttp.ClientSession(auto_decompress=True) as client:
        yield AnswersEndpoint(
            URL(shown_url(url)),
            (*credentials(url), *headers),
            rest.timeout,
            None if proxy is None else URL(proxy),
            tls,
            client,
            largest,
        )
