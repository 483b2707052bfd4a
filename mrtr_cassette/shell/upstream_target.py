"""What an upstream is that users name by its URL or by the command that starts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from mrtr_cassette.core.exchange.transports import ENDPOINT
from mrtr_cassette.core.secrets.credentials import Given, Knows, shown_by
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.options import UpstreamOptions
from mrtr_cassette.shell.http.client import connecting
from mrtr_cassette.shell.http.upstream_url import credentials, shown_url, tls_context, upstream_url
from mrtr_cassette.shell.pipe_upstream import pipe_upstream
from mrtr_cassette.shell.server_process import given_to, shown_command
from mrtr_cassette.shell.transport import Upstream

STARTED_HERE: Final = f"http://localhost{ENDPOINT}"
"""What a cassette names as an upstream that has another port on each run, or none."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is recorded, or called.

    Attributes:
        name: how a cassette names it.
        origin: how messages name it.
        path: path and query of the client's URL.
        headers: what it gets besides the client's headers.
        given: all that the user gives for it.
        connecting: gives what takes requests to it, once whoever sees what it says knows which
            credentials it is given.
        is_on_pipes: a command starts it.
        host, port: where it is; empty and 0 where it is on pipes.
    """

    name: str
    origin: str
    path: str
    headers: Headers
    given: Given
    connecting: Callable[[Knows], AbstractAsyncContextManager[Upstream]]
    is_on_pipes: bool = False
    host: str = ""
    port: int | None = 0


def target_of(
    upstream: str | Sequence[str],
    options: UpstreamOptions,
    rules: RedactionRules,
    command: Sequence[str] = (),
) -> Target:
    """Return the upstream of a URL, or of a program and its arguments.

    Args:
        rules: which secrets are taken out of what is shown of it.
        command: what has started the server at a URL, where we have.

    Raises:
        UsageError: it is no URL, or its certificates can't be used.
    """
    if isinstance(upstream, str):
        url = upstream_url(upstream, shown_by(rules))
        tls = tls_context(url, options.ca_path, verifies=not options.insecure)
        headers = (*credentials(url), *options.added_headers)
        given = given_to(command) if command else Given()
        given = given._replace(
            headers=headers, query=tuple(url.query.items()), target=url.raw_path_qs
        )

        def connected(knows: Knows) -> AbstractAsyncContextManager[Upstream]:
            knows.was_given(given)
            return connecting(url.origin(), tls)

        return Target(
            name=shown_by(rules)(shown_url(url)),
            origin=shown_url(url.origin()),
            path=url.raw_path_qs,
            headers=headers,
            given=given,
            connecting=connected,
            host=url.host or "",
            port=url.port,
        )
    shown = shown_command(upstream, rules)
    given = given_to(upstream)._replace(headers=options.added_headers)
    piped = partial(pipe_upstream, upstream, options.max_body)
    return Target(
        STARTED_HERE, shown, ENDPOINT, options.added_headers, given, piped, is_on_pipes=True
    )
