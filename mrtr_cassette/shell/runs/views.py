"""What users see of a recording and of a replay, over HTTP and on pipes alike."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.details import Interaction, details_of
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.shell.files.stores import location, path_of
from mrtr_cassette.shell.runs.client_starts import PipedRecording, PipedReplay
from mrtr_cassette.shell.runs.record_session import RecordSession
from mrtr_cassette.shell.runs.replaying import ReplaySession


@dataclass(frozen=True, slots=True)
class _ShownRun:
    """What a recording and a replay have in common."""

    _session: RecordSession | PipedRecording | ReplaySession | PipedReplay

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def admin_url(self) -> str | None:
        """Where /livez, /readyz and /metrics are served; None without `admin_port`."""
        session = self._session
        return session.admin_url if isinstance(session, RecordSession | ReplaySession) else None

    @property
    def command(self) -> list[str]:
        """What the client starts as its server, where that is on pipes."""
        return self._session.command

    @property
    def path(self) -> Path:
        """The cassette; a recording writes it when the block ends."""
        return path_of(location(self.place))

    @property
    def place(self) -> str:
        """The same as text: its path, or its URL in a store without the credentials in it."""
        return str(self._session.path)


@dataclass(frozen=True, slots=True)
class Recording(_ShownRun):
    """A recording under way, or done."""

    _session: RecordSession | PipedRecording

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What has been recorded so far, with what was on a cassette that is added to."""
        cassette = self._session.recorded()
        return () if cassette is None else details_of(cassette).interactions

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on a cassette that is added to and was not, or not wholly, played so far."""
        session = self._session
        return () if session.earlier is None else _numbered(session.earlier, session.unplayed)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Why retries were not recorded: the live server no longer asks what was recorded."""
        return self._session.unrecorded_texts

    @property
    def problem(self) -> str | None:
        """Why the recording is not whole, or None."""
        return self._session.problem

    @property
    def objection(self) -> str | None:
        """Why what was recorded is not published as a cassette, or None."""
        return self._session.objection

    @property
    def unreachable(self) -> int:
        """How many requests the upstream did not answer."""
        return self._session.unreachable


@dataclass(frozen=True, slots=True)
class Replay(_ShownRun):
    """A replay under way, or done."""

    _session: ReplaySession | PipedReplay

    @property
    def problems(self) -> tuple[str, ...]:
        """Why processes that the client started as its server came to nothing."""
        session = self._session
        return tuple(session.problems) if isinstance(session, PipedReplay) else ()

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What is on the cassette."""
        return details_of(self._session.cassette).interactions

    @property
    def played(self) -> int:
        """How many requests got a recorded reply so far."""
        return self._session.played

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked so far and had not been recorded."""
        return self._session.misses

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on the cassette and was not, or not wholly, played so far."""
        return _numbered(self._session.cassette, self._session.unplayed)


def _numbered(cassette: Cassette, numbers: Collection[int]) -> tuple[Interaction, ...]:
    wanted = set(numbers)
    return tuple(each for each in details_of(cassette).interactions if each.number in wanted)
