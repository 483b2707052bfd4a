"""What an upstream is that users name by its URL or by the command that starts it.

Owns: reading one into what is sent to it, how messages and cassettes name it, and how it is
connected.
Does not own: connections (`http_client`), processes (`pipe_upstream`), its URL (`upstream_url`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

from mrtr_cassette.core.exchange.transports import ENDPOINT
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.options import UpstreamOptions
from mrtr_cassette.shell.http_client import connecting
from mrtr_cassette.shell.keeping import shown_by, shown_command
from mrtr_cassette.shell.pipe_upstream import pipe_upstream
from mrtr_cassette.shell.transport import Upstream
from mrtr_cassette.shell.upstream_url import credentials, shown_url, tls_context, upstream_url


@dataclass(frozen=True, slots=True)
class Target:
    """What is recorded, or called.

    Attributes:
        name: how a cassette names it.
        origin: how messages name it.
        path: path and query of the client's URL.
        headers: what it gets besides the client's headers.
        query: what its URL has in its query.
        connecting: gives what takes requests to it.
        is_on_pipes: a command starts it.
        host, port: where it is; empty and 0 where it is on pipes.
    """

    name: str
    origin: str
    path: str
    headers: Headers
    query: tuple[tuple[str, str], ...]
    connecting: Callable[[], AbstractAsyncContextManager[Upstream]]
    is_on_pipes: bool = False
    host: str = ""
    port: int | None = 0


def target_of(
    upstream: str | Sequence[str], options: UpstreamOptions, rules: RedactionRules
) -> Target:
    """Return the upstream of a URL, or of a program and its arguments.

    Args:
        rules: which secrets are taken out of what is shown of it.

    Raises:
        UsageError: it is no URL, or its certificates can't be used.
    """
    if isinstance(upstream, str):
        url = upstream_url(upstream, shown_by(rules))
        tls = tls_context(url, options.ca_path, verifies=not options.insecure)
        return Target(
            name=shown_url(url),
            origin=shown_url(url.origin()),
            path=url.raw_path_qs,
            headers=(*credentials(url), *options.added_headers),
            query=tuple(url.query.items()),
            connecting=partial(connecting, url.origin(), tls),
            host=url.host or "",
            port=url.port,
        )
    shown = shown_command(upstream, rules)
    piped = partial(pipe_upstream, upstream, options.max_body)
    # The cassette is one of HTTP, and has a URL.
    named = f"http://localhost{ENDPOINT}"
    return Target(named, shown, ENDPOINT, options.added_headers, (), piped, is_on_pipes=True)
