"""The outcome of a replay or a recording, as values, as text for a terminal and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.failures import UnpublishedError
from mrtr_cassette.core.report.misses import MissReport, report_of_miss
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, counted

_MOST_LISTED = 10


class Outcome(Enum):
    """What became of an interaction in a replay."""

    PLAYED = "played"
    PLAYED_IN_PART = "played in part"
    UNPLAYED = "unplayed"


@dataclass(frozen=True, slots=True)
class InteractionOutcome:
    """What became of one interaction in a replay.

    Attributes:
        number: its number on the cassette, from 1.
        call: what was called, such as `tools/call "deploy"`.
        outcome: whether all of its own exchanges were played.
        plays: how many replies of its own exchanges were played.
    """

    number: int
    call: str
    outcome: Outcome
    plays: int


class HarmlessRequest(NamedTuple):
    """A request that was not recorded and got what any server answers.

    Attributes:
        call: what was called, such as `ping`.
        answer: what it got, such as `{}` or an HTTP status.
        times: how often.
    """

    call: str
    answer: str
    times: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The outcome of a replay.

    Attributes:
        cassette: how messages name its file.
        interactions: all of the cassette, in its order.
        misses: in the order in which they came.
        harmless: what was not recorded and got what any server answers.
    """

    cassette: str
    interactions: tuple[InteractionOutcome, ...]
    misses: tuple[MissReport, ...]
    harmless: tuple[HarmlessRequest, ...] = ()

    @property
    def incomplete(self) -> list[InteractionOutcome]:
        """The interactions of which something was never played."""
        return [each for each in self.interactions if each.outcome is not Outcome.PLAYED]


def report_of_replay(player: Player, terms: Terms = LIBRARY_TERMS) -> ReplayReport:
    """Return what a replay has come to so far."""
    unplayed = set(player.unplayed)
    # Many interactions are of the same call.
    redacted = cache(player.redacted)
    interactions = []
    for number, exchanges in enumerate(player.interactions, start=1):
        plays = sum(exchange.played for exchange in exchanges)
        outcome = Outcome.PLAYED
        if number in unplayed:
            outcome = Outcome.PLAYED_IN_PART if plays else Outcome.UNPLAYED
        call = redacted(str(exchanges[0].key))
        interactions.append(InteractionOutcome(number, call, outcome, plays))
    # Another thread may replay meanwhile.
    harmless = Counter((redacted(each.call.title), each.answer) for each in (*player.harmless,))
    return ReplayReport(
        player.path,
        tuple(interactions),
        reports_of_misses(player, terms),
        tuple(HarmlessRequest(*each, times) for each, times in harmless.items()),
    )


def reports_of_misses(player: Player, terms: Terms = LIBRARY_TERMS) -> tuple[MissReport, ...]:
    """Return what was missed so far."""
    # Another thread may replay meanwhile.
    misses = tuple(player.misses)
    return tuple(report_of_miss(miss, player.path, player.redacted, terms) for miss in misses)


def summary_text(report: ReplayReport) -> str:
    """Return what a replay came to, in one or a few lines."""
    total, incomplete = len(report.interactions), report.incomplete
    played = f"played {total - len(incomplete)} of {total} interactions"
    lines = [f"{played}, {_misses_text(report.misses)}"]
    for each in incomplete[:_MOST_LISTED]:
        state = "never played" if each.outcome is Outcome.UNPLAYED else each.outcome.value
        lines.append(f"  {state}: #{each.number} {each.call}")
    if len(incomplete) > _MOST_LISTED:
        lines.append(f"  and {len(incomplete) - _MOST_LISTED} more")
    if report.harmless:
        lines.append(harmless_text(report.harmless))
    return "\n".join(lines)


def harmless_text(requests: Sequence[HarmlessRequest]) -> str:
    """Return, a line each, what was not recorded and got what any server answers."""
    lines = []
    for each in requests[:_MOST_LISTED]:
        times = f" {each.times} times" if each.times > 1 else ""
        lines.append(f"  not recorded, answered as by any server{times}: {each.call}")
    if len(requests) > _MOST_LISTED:
        lines.append(f"  and {len(requests) - _MOST_LISTED} more")
    return "\n".join(lines)


def _misses_text(misses: Sequence[MissReport]) -> str:
    if not misses:
        return "no misses"
    reasons = Counter(miss.reason for miss in misses)
    named = ", ".join(f"{reason} {times}" for reason, times in sorted(reasons.items()))
    count = len(misses)
    return f"{count} {'miss' if count == 1 else 'misses'} ({named})"


def summary_data(report: ReplayReport) -> dict[str, Any]:
    """Return what a replay came to, as JSON-ready data."""
    return {
        "cassette": report.cassette,
        "interactions": [
            {**asdict(each), "outcome": each.outcome.value} for each in report.interactions
        ],
        "misses": [{"text": miss.text, **miss.facts} for miss in report.misses],
        "harmless": [each._asdict() for each in report.harmless],
    }


def summary_event(report: ReplayReport) -> dict[str, Any]:
    """Return what a replay came to, for a log that programs read."""
    return {
        "event": "concluded",
        "interactions": len(report.interactions),
        "unplayed": [each.number for each in report.incomplete],
        "misses": len(report.misses),
        "harmless": sum(each.times for each in report.harmless),
    }


# Recordings


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """The outcome of a recording.

    Attributes:
        cassette: how messages name its file.
        interactions: how many the cassette has that was written; None where none was written.
        exchanges: how many were recorded.
        played: how many requests were played from the cassette that was added to; None where
            there was none.
        unrecorded: how many requests could not be recorded.
        objection: why it was not published as a cassette, or None.
    """

    cassette: str
    interactions: int | None
    exchanges: int
    played: int | None
    unrecorded: int
    objection: str | None = None


def recording_text(report: RecordingReport) -> str:
    """Return what a recording came to, in one line."""
    if report.objection is not None:
        return str(UnpublishedError(report.cassette, report.objection))
    parts = [f"{counted(report.exchanges, 'exchange')} recorded"]
    if report.played is not None:
        parts.append(f"{report.played} played")
    if report.unrecorded:
        parts.append(f"{report.unrecorded} could not be recorded")
    if report.interactions is not None:
        outcome = f"wrote {report.cassette}: {counted(report.interactions, 'interaction')}"
    elif report.played is not None:
        outcome = f"{report.cassette} stays as it is"
    else:
        return "nothing was recorded, no cassette was written"
    return ", ".join([outcome, *parts])


def recording_event(report: RecordingReport) -> dict[str, Any]:
    """Return what a recording came to, for a log that programs read."""
    facts: dict[str, Any] = {
        "interactions": report.interactions or 0,
        "exchanges": report.exchanges,
    }
    if report.played is not None:
        facts |= {"played": report.played, "unrecorded": report.unrecorded}
    if report.objection is not None:
        facts["unpublished"] = report.objection
    return {"event": "concluded", **facts}
