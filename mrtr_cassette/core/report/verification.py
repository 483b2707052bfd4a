"""What came of holding a live server to a cassette, as values and as text.

Rule: a run that compared nothing is not good.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mrtr_cassette.core.compare.changes import VERDICTS, Change, Verdict
from mrtr_cassette.core.drive.learning import Learned
from mrtr_cassette.core.drive.recorded_script import TurnChange
from mrtr_cassette.core.drive.verification import Verified
from mrtr_cassette.core.report.wording import annotation_line, printable_difference
from mrtr_cassette.errors import counted, printable, shorten

_NOT_COMPARED: Final = frozenset({"skipped", "not-reached"})
_BACKTICKS: Final = re.compile("`+")
_MARKS: Final = {"same": "=", "skipped": "-"}
_DIFFERENT, _UNREACHABLE = 1, 4


@dataclass(frozen=True, slots=True)
class VerifiedInteraction:
    """The verdict on one interaction.

    Attributes:
        number: its number in the cassette, from 1.
        call: how messages name it.
        verdict: what came of it.
        changes: where the live server differs, each with the turn in which it does.
        reason: why it was skipped, not reached, or is unstable; else None.
    """

    number: int
    call: str
    verdict: Verdict
    changes: tuple[TurnChange, ...]
    reason: str | None


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of one cassette.

    Attributes:
        cassette: the file.
        upstream: the live server.
        interactions: in the order of the cassette.
        fail_on: the verdicts that fail; empty for all that are a change.
        learned: the pointers that differ by themselves, each with its call.
        refused: the same for those that are not left out, with the reason.
        accepted: numbers of the interactions whose changes have all been taken into the cassette.
        left_out: where the live server differs at what is ignored.
    """

    cassette: str
    upstream: str
    interactions: tuple[VerifiedInteraction, ...]
    fail_on: frozenset[str] = frozenset()
    learned: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str, str], ...] = ()
    accepted: frozenset[int] = frozenset()
    left_out: tuple[Change, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many interactions have each verdict, the lightest first."""
        counts = Counter(each.verdict for each in self.interactions)
        return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}

    @property
    def compared(self) -> int:
        """How many interactions were compared."""
        return sum(each.verdict not in _NOT_COMPARED for each in self.interactions)

    @property
    def failures(self) -> tuple[VerifiedInteraction, ...]:
        """The interactions that make the run fail."""
        return tuple(each for each in self.interactions if self.fails(each))

    def fails(self, each: VerifiedInteraction) -> bool:
        """Tell whether an interaction makes the run fail."""
        if each.number in self.accepted:
            return False
        if each.verdict == "not-reached":
            return True
        if self.fail_on:
            return each.verdict in self.fail_on
        return each.verdict not in ("same", "skipped")

    @property
    def is_good(self) -> bool:
        """Whether something was compared, and nothing fails."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """What the command line returns."""
        return exit_code_of([self])


def exit_code_of(verifications: Sequence[Verification]) -> int:
    """Return what the command line returns for several cassettes."""
    if not any(each.compared for each in verifications):
        return _UNREACHABLE
    return _DIFFERENT if any(each.failures for each in verifications) else 0


def verification_of(
    cassette: str,
    upstream: str,
    verified: Iterable[Verified],
    fail_on: Collection[str],
    places: Iterable[tuple[str, Learned]] = (),
) -> Verification:
    """Return what came of one cassette.

    Args:
        fail_on: the verdicts that fail; none stands for all that are a change.
        places: what differs by itself, each with its call.
    """
    listed = list(places)
    ordered = sorted(verified, key=lambda each: each.planned.interaction.number)
    return Verification(
        printable(cassette),
        printable(upstream),
        tuple(
            VerifiedInteraction(
                each.planned.interaction.number,
                each.planned.label,
                each.verdict,
                each.changes,
                None if each.reason is None else printable(each.reason),
            )
            for each in ordered
        ),
        frozenset(fail_on),
        tuple((call, place.pointer) for call, place in listed if place.reason is None),
        tuple((call, pointer, reason) for call, (pointer, reason) in listed if reason is not None),
        left_out=tuple(change for each in ordered for change in each.left_out),
    )


def verification_text(verification: Verification) -> str:
    """Return it for people: what is not the same, and the counts."""
    lines = []
    for each in verification.interactions:
        notes = [change for change in each.changes if change.change.is_information]
        if each.verdict == "same" and not notes:
            continue
        lines += interaction_lines(each)
    for call, pointer in verification.learned:
        lines.append(f"learned: {call} {pointer}")
    for call, pointer, reason in verification.refused:
        lines.append(f"not learned: {call} {pointer or '/'}: {reason}")
    return "\n".join([*lines, summary_line(verification)])


def interaction_lines(each: VerifiedInteraction) -> list[str]:
    """Return what came of one interaction, with all its changes."""
    verdict = "same, with notes" if each.verdict == "same" else each.verdict
    reason = [] if each.reason is None else [f"    {each.reason}"]
    changes = [line for change in each.changes for line in _change_lines(change)]
    mark = _MARKS.get(each.verdict, "~")
    return [f"{mark} #{each.number} {each.call}: {verdict}", *reason, *changes]


def summary_line(verification: Verification) -> str:
    """Return in one line how many interactions have which verdict."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verification.counts.items())
    total = counted(len(verification.interactions), "interaction")
    line = f"{verification.cassette} against {verification.upstream}: {total}: {counts or 'none'}"
    return line if verification.compared else f"{line}; nothing was compared"


def _change_lines(turn_change: TurnChange) -> list[str]:
    turn, change = turn_change
    pointer, recorded, received = printable_difference(change.difference)
    where = f"turn {turn}" if turn else "response"
    note = ", information" if change.is_information else ""
    return [
        f"    {where} {pointer or '/'}: {change.verdict}{note}",
        f"      recorded {recorded or 'nothing'}",
        f"      received {received or 'nothing'}",
    ]


def verification_data(verifications: Sequence[Verification]) -> dict[str, Any]:
    """Return it as JSON values, for programs."""
    return {
        "cassettes": [
            {
                "cassette": each.cassette,
                "upstream": each.upstream,
                "is_good": each.is_good,
                "counts": each.counts,
                "interactions": [
                    {**_interaction_data(inner), "is_accepted": inner.number in each.accepted}
                    for inner in each.interactions
                ],
            }
            for each in verifications
        ]
    }


def _interaction_data(each: VerifiedInteraction) -> dict[str, Any]:
    return {
        "number": each.number,
        "call": each.call,
        "verdict": each.verdict,
        "reason": each.reason,
        "changes": [{"turn": turn or None, **change._asdict()} for turn, change in each.changes],
    }


def verification_markdown(verifications: Sequence[Verification]) -> str:
    """Return it as Markdown, for a pull request or a job's summary."""
    lines = []
    for verification in verifications:
        lines += [f"### {_plain(summary_line(verification))}", ""]
        rows = [
            row
            for each in verification.interactions
            if verification.fails(each)
            for row in _rows(each)
        ]
        if rows:
            lines += ["| # | call | verdict | where | recorded | received |"]
            lines += ["| --- | --- | --- | --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _rows(each: VerifiedInteraction) -> list[str]:
    start = f"| {each.number} | {_plain(each.call)} "
    if not each.changes:
        return [f"{start}| {each.verdict} | {_plain(each.reason or '')} | | |"]
    rows = []
    for turn, change in each.changes:
        pointer, recorded, received = printable_difference(change.difference)
        where = f"{f'turn {turn} ' if turn else ''}{_code(pointer or '/')}"
        cells = f"{change.verdict} | {where} | {_code(recorded)} | {_code(received)}"
        rows.append(f"{start}| {cells} |")
    return rows


def _plain(text: str) -> str:
    """Return a text that Markdown takes as it is, in one cell."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|~" else char for char in text)


def _code(text: str | None) -> str:
    if text is None:
        return ""
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{text.replace('|', chr(92) + '|')}{fence}"


def verification_annotations(verification: Verification) -> list[str]:
    """Return what GitHub Actions shows beside the cassette's file."""
    lines = []
    for each in verification.failures:
        changes = [f"{change.pointer or '/'} {change.verdict}" for _, change in each.changes]
        facts = "; ".join([*([each.reason] if each.reason else []), *changes]) or each.verdict
        title = f"#{each.number} {each.call}: {each.verdict}"
        lines.append(annotation_line(verification.cassette, title, shorten(facts)))
    return lines
