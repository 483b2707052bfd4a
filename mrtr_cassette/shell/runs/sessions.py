"""A recording or a replay under way: where clients find it, and what it came to so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.record.publish_check import Outcomes
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.runs import RecordingReport, reports_of_misses
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, UsageError
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import Publication, recorded_so_far
from mrtr_cassette.shell.files.stores import Location


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a recording or a replay came to so far."""

    misses: Sequence[MissReport] = ()
    """What was asked and had not been recorded."""
    played: int = 0
    """How many requests got a recorded reply."""
    unplayed: Sequence[int] | None = None
    """Numbers of the interactions of which something was not played; None where nothing plays."""
    unreachable: int = 0
    """How many requests the upstream did not answer."""
    unrecorded: Sequence[str] = ()
    """Why requests could not be recorded, in words."""
    problem: str | None = None
    """Why the recording is not whole, or a process that the client started came to nothing."""
    objection: str | None = None
    """Why the recording is not published as a cassette."""


@dataclass(slots=True, eq=False)
class Session:
    """What a recording and a replay have in common."""

    url: str
    """What the client connects to."""
    shown_url: str
    """The same without the secrets in it."""
    path: Location
    """The cassette that is played, or that will be published."""
    base: Cassette | None
    """The recording that is played, or added to; None where a new cassette is recorded."""
    player: Player | None
    """What plays it."""
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)
    admin_url: str | None = None
    authorities_elsewhere: Mapping[str, None] = field(default_factory=dict)
    """Origins of authorization servers that clients were led to, and that are not recorded."""
    unreachable: int = 0
    unrecorded: list[str] = field(default_factory=list)
    problem: str | None = None

    is_recording = False

    @property
    def objection(self) -> str | None:
        """Why a recording is not published as a cassette."""
        return None

    @property
    def outcome(self) -> RunOutcome:
        """What it came to so far."""
        player = self.player
        return RunOutcome(
            misses=() if player is None else reports_of_misses(player, self.terms),
            played=0 if player is None else player.plays,
            unplayed=None if player is None else player.unplayed,
            unreachable=self.unreachable,
            unrecorded=tuple(self.unrecorded),
            problem=self.problem,
            objection=self.objection,
        )

    @property
    def command(self) -> list[str]:
        """There is none."""
        raise UsageError(
            f"{self.path} is {'recorded' if self.is_recording else 'served'} over HTTP, "
            "where there is no command",
            hint="have the client connect to `url`",
        )

    def recorded(self) -> Cassette | None:
        """Return the cassette as it is by now."""
        return self.base


@dataclass(slots=True, eq=False)
class ReplaySession(Session):
    """A replay under way."""

    base: Cassette
    player: Player


@dataclass(slots=True, eq=False)
class RecordSession(Session):
    """A recording under way, and what it came to."""

    publishes_anyway: bool = False
    """Nothing speaks against publishing it."""
    exchanges: int = 0
    """How many exchanges are in the journal."""
    outcomes: Outcomes = field(default_factory=Outcomes)
    failure: str | None = None
    """How the command that was recorded failed."""
    published: Publication | None = None
    """The published cassette; None where there is none."""

    is_recording = True

    @property
    def report(self) -> RecordingReport:
        """The results so far."""
        published = self.published or Publication(0)
        return RecordingReport(
            cassette=str(self.path),
            interactions=None if self.published is None else published.interactions,
            kept=published.kept,
            is_same=published.is_same,
            exchanges=self.exchanges,
            played=None if self.player is None else self.player.plays,
            unrecorded=len(self.unrecorded),
            objection=self.objection,
            authorities_elsewhere=tuple(self.authorities_elsewhere),
            digests=published.digests,
        )

    @property
    def is_unused(self) -> bool:
        """Whether no client has sent a request."""
        played = self.player is not None and self.player.plays
        return not (self.exchanges or self.unreachable or self.unrecorded or played)

    @property
    def objection(self) -> str | None:
        """Why it is not published as a cassette."""
        if self.publishes_anyway or not self.exchanges:
            return None
        return self.outcomes.why_not_publish(self.failure, self.terms)

    def recorded(self) -> Cassette | None:
        """Return the cassette as it is by now."""
        if self.published is not None:
            return cassettes.load_cassette(self.path)
        return recorded_so_far(self.path) or self.base
