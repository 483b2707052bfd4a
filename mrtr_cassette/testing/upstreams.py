"""What a test records: a URL, a command, or an application."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.background import in_thread
from mrtr_cassette.shell.upstream_servers import (
    PORT,
    RunningCommand,
    running_command,
    serving_application,
)
from mrtr_cassette.testing.settings import Settings


class Applications:
    """Application objects that are served, each once and until the end of the run.

    Most can't be started a second time: the session manager of the Python SDK, for one.
    """

    def __init__(self) -> None:
        self._served = ExitStack()
        self._urls: dict[int, tuple[Any, str]] = {}

    def url(self, application: Any) -> str:
        """Serve an application, unless it is served already, and return where."""
        # The object is kept, so that no other one can get its id.
        served = self._urls.get(id(application))
        if served is not None:
            return served[1]
        url = self._served.enter_context(in_thread(serving_application(application)))
        self._urls[id(application)] = (application, url)
        return url

    def close(self) -> None:
        """Stop them all."""
        self._served.close()


def upstream_of(settings: Settings, ask_upstream: Callable[[], Any], purpose: str) -> Any:
    """Return the upstream of a test's cassette: a URL, a command or an application.

    Args:
        ask_upstream: gives the upstream where the settings have none.
        purpose: what it is needed for, as the error says it.

    Raises:
        UsageError: there is none.
    """
    upstream = ask_upstream() if settings.upstream is None else settings.upstream
    if upstream is None:
        raise UsageError(
            f"there is nothing to {purpose}",
            hint="name an upstream in the marker, @pytest.mark.mrtr_cassette(upstream=...), or "
            "override the fixture mrtr_upstream; it may be a URL, a command or an application",
        )
    return upstream


def is_on_pipes(upstream: Any) -> bool:
    """Tell whether an upstream is a command whose server is on pipes: it takes no port.

    Raises:
        UsageError: it is no command: a list of texts.
    """
    if isinstance(upstream, str) or not isinstance(upstream, Sequence):
        return False
    if not upstream or not all(isinstance(part, str) for part in upstream):
        raise UsageError(f"the upstream {upstream!r} is no command: a list of texts")
    return not any(PORT in part for part in upstream)


class StartedUpstream(NamedTuple):
    """An upstream that is ready to be recorded.

    Attributes:
        url: where it is.
        command: what serves it, where a command does.
        arguments: that command; empty for an application, and None for a URL.
    """

    url: str
    command: RunningCommand | None = None
    arguments: Sequence[str] | None = None


def start_upstream(
    upstream: Any, applications: Applications, cwd: Path, running: ExitStack
) -> StartedUpstream:
    """Start an upstream, where it has to be started.

    Args:
        running: stops a command.

    Raises:
        UsageError: it is none of these, or a command that is no list.
        UpstreamError: it does not start.
    """
    if isinstance(upstream, str):
        if "://" not in upstream:
            raise UsageError(
                f"the upstream {upstream!r} is no URL",
                hint=f"a command is a list: {shlex.split(upstream)}",
            )
        return StartedUpstream(upstream)
    if isinstance(upstream, Sequence):
        command = running.enter_context(running_command(upstream, cwd))
        return StartedUpstream(command.url, command, upstream)
    return StartedUpstream(applications.url(upstream), arguments=())
