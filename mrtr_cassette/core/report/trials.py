"""Trials of an agent: what each came to, and how many were valid, for judges and for CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.replay.diagnosis import Divergence
from mrtr_cassette.core.replay.faults import FaultOutcome
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.runs import MissReport, nearest_recording
from mrtr_cassette.core.report.text import as_data, markdown_table
from mrtr_cassette.errors import counted, printable, shorten

OTHER_RECORDING: Final = "other-recording"
"""The reason of a divergence that is no miss."""


class DivergenceReport(NamedTuple):
    """The first request of a play that a recording doesn't have where the play is.

    Attributes:
        after: how many requests had got a recorded reply.
        recording: its cassette.
        why: as of a miss, on all recordings.
    """

    calls_before: int
    recording: str
    why: MissReport

    @property
    def facts(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            **self.why.facts,
            "cassette": self.recording,
            "after": self.calls_before,
        }

    def __str__(self) -> str:
        """Return it in a few words."""
        calls = counted(self.calls_before, "call")
        return f"after {calls}, from {self.recording}: {self.why.request}"


class RecordingsLeft(NamedTuple):
    """Where a play left recordings: the nearest one, if it left all, and each that it left."""

    nearest: DivergenceReport | None = None
    all: Sequence[DivergenceReport] = ()


def reports_of_divergences(
    player: Player, misses: Sequence[MissReport]
) -> RecordingsLeft:
    """Return where a play has left each recording so far, before or at the first of its misses."""
    divergences = player.tally.divergences
    paths = player.paths
    if divergences.recording_count < len(paths):
        paths = (player.recording.path,)

    # Several recordings are left by the same request.
    report_by_request: dict[tuple[int, bool], MissReport] = {}
    nearest: DivergenceReport | None = None
    reports = []
    for divergence in tuple(divergences.first_divergences):
        if divergence.explained_miss is not None and not misses:
            # Another thread replays, and it came just now.
            continue

        request = (divergence.reply_count, divergence.explained_miss is None)
        if request not in report_by_request:
            report_by_request[request] = _why_recording_was_left(
                divergence, player, misses
            )

        recording = paths[divergence.recording]
        report = DivergenceReport(
            divergence.reply_count, recording, report_by_request[request]
        )
        reports.append(report)
        if divergence is divergences.longest_followed:
            nearest = report

    return RecordingsLeft(nearest, tuple(reports))


def _why_recording_was_left(
    divergence: Divergence, player: Player, misses: Sequence[MissReport]
) -> MissReport:
    """Return why a recording doesn't have a request, which another one may have."""
    entry = divergence.entry
    if divergence.explained_miss is not None:
        # The first miss leaves all recordings.
        return misses[0]
    if entry is None:
        raise AssertionError("unreachable because it is no miss")

    call = printable(player.normaliser.sent_secrets.shown_text(str(entry.key)))
    path = player.recording.path
    nearest = nearest_recording(entry, call, path)
    detail = f"this was played from another recording, {nearest}"

    return MissReport(OTHER_RECORDING, detail, call, (), path, nearest, (), (), detail)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a recording or a replay came to so far."""

    misses: Sequence[MissReport] = ()
    """What was asked and had not been recorded."""

    played: int = 0
    """How many requests got a recorded reply."""

    harmless: int = 0
    """How many requests were not recorded, and got any server's answer."""

    unplayed: Sequence[int] | None = None
    """Numbers of the interactions of which something was not played; None where nothing plays."""

    after_other_writes: Sequence[int] = ()
    """Numbers of the interactions that read, and were played after other writes than recorded."""

    faults: Sequence[FaultOutcome] = ()
    """How often each fault was met."""

    unknown_tools: Mapping[str, int] = field(default_factory=dict)
    """How often each tool was called that the recorded server doesn't have."""

    stopped: int = 0
    """How many requests got the miss that stopped it."""

    divergences: RecordingsLeft = field(default_factory=RecordingsLeft)
    """Where it left the recordings that were played."""

    unreachable: int = 0
    """How many requests the upstream did not answer."""

    unrecorded: Sequence[str] = ()
    """Why requests could not be recorded, in words."""

    problem: str | None = None
    """Why the recording is incomplete, or a process that the client started came to nothing."""

    objection: str | None = None
    """Why the recording is not published as a cassette."""

    unused: Sequence[tuple[str, str]] | None = None
    """Options that made no difference, with their values; None where nothing plays."""

    learned: Mapping[str, str] = field(default_factory=dict)
    """The texts of values that requests have taught, by name."""

    matched: Mapping[str, int] = field(default_factory=dict)
    """How often requests matched that were not equal, by the matcher or the user's function."""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What one trial came to.

    Attributes:
        unplayed: how many interactions of all its recordings were not wholly played.
        stopped: how many requests got the error of an earlier one.
        ended_by: the first miss, in a few words; None of a valid trial.
    """

    trial: str
    cassette: str
    valid: bool
    served: int
    missed: int
    unplayed: int
    unknown_tools: Mapping[str, int]
    stopped: int
    ended_by: str | None
    divergences: RecordingsLeft = field(default_factory=RecordingsLeft)
    misses: tuple[MissReport, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialsReport:
    """What all trials came to."""

    trials: tuple[TrialReport, ...]

    @property
    def valid(self) -> int:
        """How many were valid."""
        return len([trial for trial in self.trials if trial.valid])

    @property
    def validity_rate(self) -> float | None:
        """The share of those that were valid; None without any."""
        if not self.trials:
            return None
        return self.valid / len(self.trials)


def validity_text(valid: int, trials: int) -> str:
    """Return how many of some trials were valid, in words."""
    if not trials:
        return "there were no trials"
    return f"{valid} of {counted(trials, 'trial')} valid ({valid / trials:.1%})"


def ended_by(misses: Sequence[MissReport]) -> str | None:
    """Return the first of some misses in a few words."""
    if not misses:
        return None
    return f"{misses[0].reason}: {misses[0].request}"


def trials_data(report: TrialsReport) -> Any:
    """Return trials as JSON-ready data."""
    trials = []
    for trial in report.trials:
        members: dict[str, Any] = as_data(trial, {})
        divergences = trial.divergences
        nearest = divergences.nearest
        members["first_divergence"] = None if nearest is None else nearest.facts
        members["divergences"] = [divergence.facts for divergence in divergences.all]
        trials.append(members)

    total = {
        "trials": len(report.trials),
        "valid": report.valid,
        "validity_rate": report.validity_rate,
    }

    for name in ("served", "missed", "unplayed", "stopped"):
        total[name] = sum(map(attrgetter(name), report.trials))

    unknown = [sum(trial.unknown_tools.values()) for trial in report.trials]
    total["unknown_tools"] = sum(unknown)
    return {"trials": trials, "total": total}


_TABLE_HEAD: Final = (
    "trial",
    "valid",
    "served",
    "missed",
    "unplayed",
    "unknown tools",
    "ended by",
    "first divergence",
)
_TABLE_RULE: Final = "| --- | --- | ---: | ---: | ---: | --- | --- | --- |"


def trials_markdown(report: TrialsReport) -> str:
    """Return trials as a table of Markdown, and the validity rate below it."""
    rows = [list(_TABLE_HEAD)]
    for trial in report.trials:
        row = [
            trial.trial,
            "yes" if trial.valid else "no",
            str(trial.served),
            str(trial.missed),
            str(trial.unplayed),
            ", ".join(trial.unknown_tools),
            trial.ended_by or "",
            str(trial.divergences.nearest or ""),
        ]
        rows.append([shorten(printable(cell)) for cell in row])

    table = "\n".join(markdown_table(rows, _TABLE_RULE))
    validity = validity_text(report.valid, len(report.trials))
    return f"{table}\n\n{validity}\n"
