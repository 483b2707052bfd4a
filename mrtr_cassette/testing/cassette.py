"""What a test sees of its cassette.

Rule: `MrtrCassette` is a public name of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrtr_cassette.core.report.details import Interaction
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.runs.plays import Mode
from mrtr_cassette.shell.runs.views import Recording, Replay

if TYPE_CHECKING:
    from mrtr_cassette.api import Answers
    from mrtr_cassette.core.report.runs import CallResult


class MrtrCassette:
    """The cassette of a test: where the client connects to, and what was said.

    Attributes:
        mode: the record mode: `none`, `once`, `append` or `all`.
        is_recording: whether requests go to an upstream, in mode append what the cassette lacks;
            else all answers come from the cassette.
    """

    def __init__(
        self, session: Recording | Replay, mode: Mode, path: Path, answers: Answers = None
    ) -> None:
        """Show a session.

        Args:
            path: what will be its cassette.
            answers: who answers calls without a client, unless a call says so itself.
        """
        self._session = session
        self._path = path
        self._answers = answers
        self._unused: set[str] = set()
        self._unused_of_all: set[str] | None = None
        self.mode = mode
        self.is_recording = isinstance(session, Recording)

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def command(self) -> list[str]:
        """What a client of a server on pipes starts, as often as it likes."""
        return self._session.command

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        method: str = "tools/call",
        answers: Answers = None,
    ) -> CallResult:
        """Make one call without a client, and answer what the server asks.

        Args:
            name: the tool's or prompt's name, or the resource's URI.
            arguments: those of the call.
            method: `tools/call`, `prompts/get` or `resources/read`.
            answers: by the name of a field or the key of a question, or an answers file; None
                takes those of the marker.
        """
        from mrtr_cassette.api import answered_call

        upstream: str | list[str]
        try:
            upstream = self.url
        except UsageError:
            upstream = self.command
        own = self._answers if answers is None else answers
        result = answered_call(upstream, name, arguments, method, own)
        if answers is not None:
            self._unused.update(result.unused)
        elif self._unused_of_all is None:
            self._unused_of_all = set(result.unused)
        else:
            self._unused_of_all.intersection_update(result.unused)
        return result

    @property
    def unused_answers(self) -> list[str]:
        """The names of answers that nothing asked for: of a call, or of the marker in all calls."""
        return sorted(self._unused | (self._unused_of_all or set()))

    @property
    def path(self) -> Path:
        """The cassette's file; what is recorded is written when the test, or the run, has ended."""
        return self._path

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What is on the cassette; while recording: what has been recorded so far."""
        return self._session.interactions

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked and had not been recorded; the test fails if there is any."""
        return self._session.misses if isinstance(self._session, Replay) else ()

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on the cassette and was not, or not wholly, played."""
        return self._session.unplayed

    @property
    def problems(self) -> list[str]:
        """Why processes that a client started as its server came to nothing."""
        return list(self._session.problems) if isinstance(self._session, Replay) else []

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """In mode append: why retries were not recorded; the test fails if there is any."""
        return self._session.unrecorded if isinstance(self._session, Recording) else ()
