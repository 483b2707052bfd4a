"""What was measured: rates, facts and targets, as a Markdown page and as JSON.

Owns: medians, spreads, ratios, and how they are shown.
Rule: a ratio is the median of the ratios of single rounds, in which both sides had a stint one
after the other, so that a machine that gets slower changes it little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


def ratios_of(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each round; the side that gave a wrong answer has no rounds."""
    return [our / their for our, their in zip(ours, theirs, strict=False)]


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return the median ratio of rounds, or None where one side has none."""
    ratios = ratios_of(ours, theirs)
    return median(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests per second of several servers under the same load, round by round.

    Attributes:
        mode: `replay` or `record`.
        base: the server that the program is compared with.
        per_round: for each server its rate in each round, none where it gave wrong answers.
        cpu_us: for each server the microseconds of CPU time that a request took it; unlike rates,
            they hardly change with what else the machine does.
    """

    mode: str
    load: str
    connections: int
    loop: str
    base: str
    per_round: dict[str, list[float]]
    cpu_us: dict[str, float]

    def ratio(self, base: str | None = None) -> float | None:
        """Return the program's rate against another server's, or None where either has none."""
        return ratio_of(self.per_round[self.mode], self.per_round[base or self.base])


@dataclass(frozen=True, slots=True)
class Fact:
    """One measured value; several samples have a spread.

    Attributes:
        size: with how many interactions or exchanges, where that is what makes the difference.
    """

    what: str
    unit: str
    samples: list[float]
    size: int | None = None

    @property
    def median(self) -> float:
        """The median of the samples."""
        return median(self.samples)


@dataclass(frozen=True, slots=True)
class Target:
    """One row of what is aimed at; nothing measured is told from a target that was missed."""

    what: str
    measured: float | None
    limit: float
    at_least: bool
    unit: str = "times"

    @property
    def verdict(self) -> str:
        """Whether it is met, in words."""
        if self.measured is None:
            return "not measured"
        is_met = (
            self.measured >= self.limit
            if self.at_least
            else self.measured <= self.limit
        )
        return "met" if is_met else "**not met**"


@dataclass(slots=True)
class Results:
    """All that one run measured."""

    machine: dict[str, str]
    rates: list[Rates] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def fact(
        self, what: str, unit: str, *samples: float, size: int | None = None
    ) -> Fact:
        """Note a value."""
        noted = Fact(what, unit, list(samples), size)
        self.facts.append(noted)
        return noted

    def at_least(self, what: str, measured: float | None, limit: float) -> None:
        """Compare with a target that is a lower limit."""
        self.targets.append(Target(what, measured, limit, at_least=True))

    def at_most(
        self, what: str, measured: float | None, limit: float, unit: str = "times"
    ) -> None:
        """Compare with a target that is an upper limit."""
        self.targets.append(Target(what, measured, limit, at_least=False, unit=unit))

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "machine": self.machine,
            "targets": [
                {**asdict(target), "verdict": target.verdict.strip("*")}
                for target in self.targets
            ],
            "rates": [
                {**asdict(rates), "ratio": rates.ratio()} for rates in self.rates
            ],
            "facts": [{**asdict(fact), "median": fact.median} for fact in self.facts],
            "problems": self.problems,
        }

    def as_markdown(self) -> str:
        """Return everything as a page for people."""
        blocks = [
            "; ".join(f"{name} {value}" for name, value in self.machine.items()) + "."
        ]
        if self.targets:
            rows = (_target_row(target) for target in self.targets)
            blocks.append(_table(("target", "measured", "limit", ""), rows))
        for mode in ("replay", "record"):
            chosen = [rates for rates in self.rates if rates.mode == mode]
            if chosen:
                blocks.append(
                    f"Requests per second, {mode}: median (lowest to highest round)"
                )
                blocks.append(_rates_table(chosen))
        plain = [fact for fact in self.facts if fact.size is None]
        if plain:
            rows = ((fact.what, _spread(fact.samples, fact.unit)) for fact in plain)
            blocks.append(_table(("what", "median (lowest to highest)"), rows))
        sized = [fact for fact in self.facts if fact.size is not None]
        if sized:
            blocks.append("By the number of interactions or exchanges:")
            blocks.append(_sizes_table(sized))
        blocks += [f"WRONG: {problem}" for problem in self.problems]
        return "\n\n".join(blocks) + "\n"


def _target_row(target: Target) -> tuple[str, ...]:
    sign = "≥" if target.at_least else "≤"
    unit = "" if target.unit == "times" else f" {target.unit}"
    measured = "" if target.measured is None else f"{target.measured:.2f}{unit}"
    return target.what, measured, f"{sign} {target.limit:g}{unit}", target.verdict


def _rates_table(chosen: Sequence[Rates]) -> str:
    names = list(dict.fromkeys(name for rates in chosen for name in rates.per_round))
    rows = []
    for rates in chosen:
        ratios = ratios_of(rates.per_round[rates.mode], rates.per_round[rates.base])
        rows.append(
            (
                f"{rates.load}, {rates.loop}",
                str(rates.connections),
                *(_spread(rates.per_round.get(name, []), "") for name in names),
                _spread(ratios, ""),
                ", ".join(
                    f"{name} {_number(spent)}" for name, spent in rates.cpu_us.items()
                ),
            )
        )
    return _table(
        (
            "load, loop",
            "connections",
            *names,
            f"{chosen[0].mode} / {chosen[0].base}",
            "CPU μs per request",
        ),
        rows,
    )


def _sizes_table(sized: Sequence[Fact]) -> str:
    sizes = sorted({fact.size or 0 for fact in sized})
    shown: dict[str, dict[int, str]] = {}
    for fact in sized:
        shown.setdefault(fact.what, {})[fact.size or 0] = _spread(
            fact.samples, fact.unit
        )
    rows = (
        [what, *(cells.get(size, "") for size in sizes)]
        for what, cells in shown.items()
    )
    return _table(["what", *(f"{size:,}" for size in sizes)], rows)


def _spread(samples: Sequence[float], unit: str) -> str:
    if not samples:
        return ""
    shown = f"{_number(median(samples))} {unit}".strip()
    if len(samples) == 1:
        return shown
    return f"{shown} ({_number(min(samples))} to {_number(max(samples))})"


def _number(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:,.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
