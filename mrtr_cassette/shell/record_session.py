"""A recording under way, as its callers see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.record.objections import Judgement, objection_to, verdict_of
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.summary import RecordingReport
from mrtr_cassette.core.report.unrecorded import report_of_unrecorded
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, UsageError
from mrtr_cassette.shell.cassette_file import load_cassette
from mrtr_cassette.shell.publishing import recorded_so_far
from mrtr_cassette.shell.stores import Location


@dataclass(slots=True)
class RecordSession:
    """A recording under way, and what it came to.

    Attributes:
        url: what the client connects to.
        shown_url: the same without the secrets in it.
        path: the cassette that will be published.
        earlier: the cassette that is added to; None where there was none.
        player: what plays it.
        terms: how its reports spell the options.
        exchanges: how many exchanges are in the journal.
        unreachable: how many requests the upstream did not answer.
        unrecorded: requests that could not be recorded, in order.
        has_success: an exchange is no error of the transport.
        verdicts: what the exchanges say of the recording, by number, until there is a success.
        failure: how the command that was recorded failed, or None.
        problem: why the recording is not whole, or None.
        objection: why it is not published as a cassette, or None.
        published: how many interactions the published cassette has; None where there is none.
        admin_url: where the admin port is, or None.
    """

    url: str
    shown_url: str
    path: Location
    earlier: Cassette | None = None
    player: Player | None = None
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)
    exchanges: int = 0
    unreachable: int = 0
    unrecorded: list[Unrecorded] = field(default_factory=list)
    has_success: bool = False
    verdicts: dict[int, Judgement] = field(default_factory=dict)
    failure: str | None = None
    problem: str | None = None
    objection: str | None = None
    published: int | None = None
    admin_url: str | None = None

    @property
    def report(self) -> RecordingReport:
        """What it has come to."""
        return RecordingReport(
            cassette=str(self.path),
            interactions=self.published,
            exchanges=self.exchanges,
            played=None if self.player is None else self.played,
            unrecorded=len(self.unrecorded),
            objection=self.objection,
        )

    @property
    def is_unused(self) -> bool:
        """Whether no client has sent a request."""
        return not (self.exchanges or self.unreachable or self.unrecorded or self.played)

    def written(self, exchange: RecordedExchange) -> None:
        """Take note of an exchange that is in the journal."""
        if not self.has_success:
            self.judged(exchange.number, verdict_of(exchange))

    def judged(self, number: int | None, verdict: Judgement | None) -> None:
        """Take note of what an exchange says of the recording, by its number."""
        # One success says enough, so no more is kept of a long recording.
        if self.has_success or verdict is None or number is None:
            return
        if verdict.error is None:
            self.has_success = True
            self.verdicts.clear()
        else:
            self.verdicts[number] = verdict

    def find_objection(self) -> str | None:
        """Return why what was recorded is hardly what was meant, and keep it; None if it may be."""
        if self.exchanges:
            self.objection = objection_to(self.verdicts, self.failure, self.terms)
        return self.objection

    @property
    def command(self) -> list[str]:
        """There is none."""
        raise UsageError(
            f"{self.path} is recorded over HTTP, where there is no command",
            hint="have the client connect to `url`",
        )

    @property
    def played(self) -> int:
        """How many requests got their response from the cassette that is added to."""
        return 0 if self.player is None else self.player.plays

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions that are added to of which something was not played."""
        return [] if self.player is None else self.player.unplayed

    @property
    def unused_ignores(self) -> list[str]:
        """Pointers to what was to be left out of matching, and no request had."""
        return [] if self.player is None else self.player.unused_ignores()

    @property
    def unrecorded_texts(self) -> tuple[str, ...]:
        """Why requests could not be recorded, in words."""
        player = self.player
        if player is None:
            return ()
        return tuple(
            report_of_unrecorded(failure, player.path, player.redacted, self.terms).text
            for failure in tuple(self.unrecorded)
        )

    def recorded(self) -> Cassette | None:
        """Return what is on the cassette by now, with what was on one that is added to."""
        if self.published is not None:
            return load_cassette(self.path)
        return recorded_so_far(self.path) or self.earlier
