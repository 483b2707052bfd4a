"""What differs between two cassettes, or between a cassette and a live server, as a report.

Rule: values are shown from where they part, so that the difference is in the line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mrtr_cassette.core.compare.cassettes import CassetteComparison, InteractionComparison
from mrtr_cassette.core.compare.changes import Change
from mrtr_cassette.core.compare.conversations import Mark, Stage
from mrtr_cassette.errors import SHOWN_CHARS, counted, printable, printable_lines, shorten

Paint = Callable[[Mark, str], str]
"""Colours a printable line by its mark."""

_KEPT_BEFORE = 40
"""Characters that are shown before the place where two long values part."""
_STAGES = {"request": "request", "ask": "question", "answer": "answer", "result": "result"}
_FENCE = re.compile("`{3,}")


def plain(_mark: Mark, line: str) -> str:
    """Return a line without colour."""
    return line


def shown_values(change: Change) -> tuple[str | None, str | None]:
    """Return the two values of a change as people read them; long ones from where they part."""
    recorded, received = (
        None if value is None else _spelled(value) for value in (change.recorded, change.received)
    )
    if recorded is not None and received is not None:
        pairs = zip(recorded, received, strict=False)
        shorter = min(len(recorded), len(received))
        common = next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)
        is_long = max(len(recorded), len(received)) > SHOWN_CHARS
        if is_long and common > _KEPT_BEFORE:
            cut = common - _KEPT_BEFORE
            recorded, received = (f"… {value[cut:]}" for value in (recorded, received))
    recorded, received = (
        None if value is None else printable(shorten(value)) for value in (recorded, received)
    )
    return recorded, received


def _spelled(value: str) -> str:
    """Return canonical JSON with the letters of a text as themselves."""
    return json.dumps(json.loads(value), ensure_ascii=False) if value.startswith('"') else value


def change_lines(change: Change, paint: Paint = plain) -> Iterator[str]:
    """Yield a change as lines: its verdict and place, the recorded value, the other one."""
    kind = f"{change.verdict}, information only" if change.is_information else change.verdict
    yield f"{printable(change.pointer) or '/'}: {kind}"
    recorded, received = shown_values(change)
    if recorded is not None:
        yield paint("-", f"- {recorded}")
    if received is not None:
        yield paint("+", f"+ {received}")


# Two cassettes


def comparison_text(comparison: CassetteComparison, paint: Paint = plain) -> str:
    """Return two compared cassettes as text."""
    lines = [f"- {printable(comparison.recorded)}", f"+ {printable(comparison.received)}"]
    for folded in _folded(comparison.interactions):
        if len(folded) > 1:
            numbers = f"{_number(folded[0])} to {_number(folded[-1])}"
            lines.append(f"= {numbers}: {counted(len(folded), 'interaction')}")
        else:
            lines += _interaction_lines(folded[0], paint)
    lines += _information_lines(comparison, paint)
    lines.append(conclusion(comparison))
    return "\n".join(printable_lines(line) if paint is plain else line for line in lines)


def _folded(interactions: Iterable[InteractionComparison]) -> Iterator[list[InteractionComparison]]:
    """Yield interactions one by one, and those together that are the same and follow another."""
    run: list[InteractionComparison] = []
    for each in interactions:
        if each.mark == "=" and not each.is_moved:
            run.append(each)
            continue
        if run:
            yield run
        run = []
        yield [each]
    if run:
        yield run


def _number(interaction: InteractionComparison) -> str:
    recorded, received = interaction.recorded, interaction.received
    if None in (recorded, received) or recorded == received:
        return f"#{received if recorded is None else recorded}"
    return f"#{recorded} (now #{received})"


def _interaction_lines(interaction: InteractionComparison, paint: Paint) -> Iterator[str]:
    mark = interaction.mark
    facts: list[str] = [interaction.verdict] if mark == "~" else []
    facts += ["moved"] if interaction.is_moved else []
    line = f"{mark} {_number(interaction)} {printable(interaction.call)}"
    yield paint(mark, f"{line}: {', '.join(facts)}" if facts else line)
    if mark == "~":
        for stage in interaction.stages:
            yield from _stage_lines(stage, paint)


def _stage_lines(stage: Stage, paint: Paint) -> Iterator[str]:
    if stage.kind == "request" and stage.mark == "=":
        return
    turn = "" if stage.turn is None else f"turn {stage.turn}, "
    yield "  " + paint(stage.mark, f"{stage.mark} {turn}{_STAGES[stage.kind]}")
    for change in stage.changes:
        if not change.is_information:
            yield from (f"      {line}" for line in change_lines(change, paint))


def _information_lines(comparison: CassetteComparison, paint: Paint) -> Iterator[str]:
    """Yield what is information, once, however many interactions say it."""
    told = Counter(
        change
        for each in comparison.interactions
        for stage in each.stages
        for change in stage.changes
        if change.is_information
    )
    for change, count in told.items():
        first, *values = change_lines(change, paint)
        yield f"information, {counted(count, 'time')}: {first.removesuffix(', information only')}"
        yield from (f"      {line}" for line in values)


def conclusion(comparison: CassetteComparison) -> str:
    """Return in one line what two cassettes came to."""
    counts, total = comparison.counts, len(comparison.interactions)
    words: dict[Mark, str] = {"~": "changed", "-": "only in the first", "+": "only in the second"}
    facts = [f"{counts[mark]} {text}" for mark, text in words.items() if counts[mark]]
    differing = total - counts["="]
    if differing:
        verb = "differs" if differing == 1 else "differ"
        text = f"{differing} of {counted(total, 'interaction')} {verb}: {', '.join(facts)}"
    else:
        text = f"the same: {counted(total, 'interaction')}"
    moved = sum(each.is_moved for each in comparison.interactions)
    return f"{text}; {moved} moved" if moved else text


def comparison_data(comparison: CassetteComparison) -> dict[str, Any]:
    """Return two compared cassettes as JSON-ready data."""
    return {
        "recorded": comparison.recorded,
        "received": comparison.received,
        "same": comparison.is_same,
        "verdict": comparison.verdict,
        "interactions": [
            {
                "mark": each.mark,
                "recorded": each.recorded,
                "received": each.received,
                "call": each.call,
                "verdict": each.verdict,
                "moved": each.is_moved,
                "stages": [
                    {
                        "kind": stage.kind,
                        "turn": stage.turn,
                        "mark": stage.mark,
                        "changes": [change._asdict() for change in stage.changes],
                    }
                    for stage in each.stages
                ],
            }
            for each in comparison.interactions
        ],
    }


def comparison_markdown(comparison: CassetteComparison) -> str:
    """Return two compared cassettes as Markdown, for a pull request."""
    lines = comparison_text(comparison).split("\n")
    *shown, last = lines
    block = [_in_diff(line) for line in shown]
    longest = max((len(run) for line in block for run in _FENCE.findall(line)), default=2)
    fence = "`" * (longest + 1)
    return "\n".join([f"**{last}**", "", f"{fence}diff", *block, fence])


def _in_diff(line: str) -> str:
    """Return a line with its mark in the first column, as a `diff` block colours it."""
    bare = line.lstrip(" ")
    mark, indent = bare[:2], line[: len(line) - len(bare)]
    if mark in ("- ", "+ "):
        return f"{mark[0]} {indent}{bare[2:]}"
    return f"! {indent}{bare[2:]}" if mark == "~ " else f"  {indent}{bare.removeprefix('= ')}"
