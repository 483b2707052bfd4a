"""A recording or a replay under way: where clients find it, and what it came to so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.faults import FaultOutcome, Faults
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.terms import LIBRARY_TERMS, Terms, given_options

if TYPE_CHECKING:
    # Whoever waits for a replay doesn't wait for its reports.
    from mrtr_cassette.core.report.runs import MissReport
    from mrtr_cassette.core.report.trials import RunOutcome
    from mrtr_cassette.options import ProxyOptions


def miss_terms(options: ProxyOptions) -> Terms:
    """Return the terms of misses, by which a recording adds to the cassette that is played.

    It is given the options that decide what is played of the cassette, and what is hidden.
    """
    term_values: dict[str, str | Sequence[str]] = {
        "ignore": [*options.ignore],
        "reads": [*options.reads],
        "redact_env": [*options.redact_env],
    }
    if options.history == "strict":
        term_values["history"] = options.history

    if options.repeat == "never":
        term_values["repeat"] = options.repeat

    if isinstance(options.match, Mapping):
        pairs = options.match.items()
        term_values["match"] = [f"{pointer}={kind}" for pointer, kind in pairs]

    if options.redact_values:
        term_values["redact_values"] = ["TEXT"]

    return {**options.terms, "played_as": given_options(term_values, options.terms)}


@dataclass(slots=True, eq=False)
class ProxyRun:
    """What a run of the proxy as a recorder and one as a replayer have in common."""

    url: str
    """What the client connects to."""

    shown_url: str
    """The same without the secrets in it."""

    path: Location
    """The cassette that is played, or that will be published."""

    played_cassette: Cassette | None
    """The recording that is played, or added to; None where a new cassette is recorded."""

    player: Player | None
    """What plays it."""

    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)
    admin_url: str | None = None
    elsewhere: dict[str, None] = field(default_factory=dict)
    """Where clients were sent to, in words, and what they do there is not recorded."""

    unreachable_count: int = 0
    unrecorded: list[str] = field(default_factory=list)
    problem: str | None = None
    _miss_reports: dict[Miss, MissReport] = field(default_factory=dict)

    is_recording = False
    is_piped = False

    @property
    def objection(self) -> str | None:
        """Why a recording is not published as a cassette."""
        return None

    @property
    def outcome(self) -> RunOutcome:
        """What it came to so far."""
        return self._outcome_so_far()

    def _outcome_so_far(self) -> RunOutcome:
        """Return the outcome so far; without a player it has no misses and no plays."""
        # Most who wait for a replay never ask what it came to.
        from mrtr_cassette.core.report.trials import RunOutcome, reports_of_divergences

        outcome = RunOutcome(
            unreachable=self.unreachable_count,
            unrecorded=tuple(self.unrecorded),
            problem=self.problem,
            objection=self.objection,
        )

        player = self.player
        if player is None:
            return outcome

        tally = player.tally
        misses = self._reports_of_misses(player)
        return replace(
            outcome,
            misses=misses,
            played=tally.reply_count,
            harmless=len(tally.harmless),
            unplayed=player.played_part.unplayed_numbers,
            after_other_writes=[*player.played_part.after_other_writes],
            unknown_tools=dict(tally.unknown_tools),
            stopped=tally.stopped_request_count,
            divergences=reports_of_divergences(player, misses),
            unused=player.unused_options(),
            learned=dict(tally.learned),
            matched=dict(tally.match_counts_by_kind),
        )

    def _reports_of_misses(self, player: Player) -> tuple[MissReport, ...]:
        """Return the misses so far; each is put into words once, which takes long."""
        from mrtr_cassette.core.report.runs import report_of_miss

        reports = self._miss_reports
        # Another thread may replay meanwhile.
        misses = tuple(player.tally.misses)
        for miss in misses:
            if miss not in reports:
                reports[miss] = report_of_miss(miss, player, self.terms)

        return tuple([reports[miss] for miss in misses])

    @property
    def command(self) -> list[str]:
        """There is none.

        Raises:
            UsageError: clients of HTTP are given a URL instead.
        """
        how_used = "recorded" if self.is_recording else "served"
        problem = f"{self.path} is {how_used} over HTTP, where there is no command"
        hint = "have the client connect to `url`"
        raise UsageError(problem, hint=hint)

    def cassette_so_far(self) -> Cassette | None:
        """Return the cassette as it is by now."""
        return self.played_cassette


@dataclass(slots=True, eq=False)
class ReplayRun(ProxyRun):
    """A replay under way."""

    played_cassette: Cassette
    player: Player
    faults: Faults | None = None
    """What goes wrong in it."""

    _outcome_of_state: tuple[object, RunOutcome] | None = None
    """What it came to when somebody asked last, and after what."""

    @property
    def outcome(self) -> RunOutcome:
        """What it came to so far."""
        counts = self.player.tally.request_counts
        faults = self.fault_outcomes
        state = (counts, faults, self.problem)
        if self._outcome_of_state is None or self._outcome_of_state[0] != state:
            self._outcome_of_state = (
                state,
                replace(self._outcome_so_far(), faults=faults),
            )

        return self._outcome_of_state[1]

    @property
    def fault_outcomes(self) -> tuple[FaultOutcome, ...]:
        """How often each fault was met so far."""
        return () if self.faults is None else self.faults.outcomes_by_fault
