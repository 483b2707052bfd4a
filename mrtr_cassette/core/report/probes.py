"""Reports of what a live server did with answers that were not recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.drive.ignored import named_tables_in
from mrtr_cassette.core.drive.probing import PROBES
from mrtr_cassette.core.drive.verdicts import PROBE_VERDICTS, Probed
from mrtr_cassette.core.report.ci import (
    Case,
    Failure,
    Suite,
    error_annotation,
    junit_xml,
)
from mrtr_cassette.core.report.comparison import response_line, verdict_counts
from mrtr_cassette.core.report.text import as_data, counts_text, diff_block
from mrtr_cassette.errors import counted, printable, shorten

_EXPECT_TABLE: Final = "expect"
_REQUIRED_MEMBERS: Final = frozenset({"probe", "tool", "reason"})
_EXIT_NOTHING_REACHED: Final = 4
_EXIT_UNMET: Final = 2


class ExpectedFinding(NamedTuple):
    """A finding that is legitimate for a server, and why."""

    probe: str
    tool: str
    reason: str
    question: str | None = None

    def is_about_outcome(self, probed: Probed) -> bool:
        """Tell whether it is about the outcome of a probe."""
        if not probed.is_finding or self.probe != probed.probe:
            return False

        is_of_question = self.question in (None, probed.question)
        return self.tool == probed.tool and is_of_question

    def __str__(self) -> str:
        """Return its name for messages."""
        name = f"{self.probe} of {self.tool}"
        return name if self.question is None else f"{name}, question {self.question}"


def read_expected(text: str) -> tuple[ExpectedFinding, ...]:
    """Read a file of expected findings.

    Raises:
        ValueError: it is none; the text says where and why.
    """
    expected = []
    for where, table in named_tables_in(text, _EXPECT_TABLE):
        expected.append(_finding_expected_by_table(where, table))

    return tuple(expected)


def _finding_expected_by_table(where: str, table: Any) -> ExpectedFinding:
    """Return the finding that a table of the file expects; raise ValueError if it is invalid."""
    members = table if isinstance(table, dict) else {}
    unknown = sorted(members.keys() - _REQUIRED_MEMBERS - {"question"})
    if unknown:
        raise ValueError(f"{where} has an unknown key {unknown[0]!r}")

    missing_members = sorted(_REQUIRED_MEMBERS - members.keys())
    if missing_members:
        raise ValueError(f"{where} has no {missing_members[0]!r}")

    for name, value in members.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}: {name!r} is not a text")

    if members["probe"] not in PROBES:
        raise ValueError(f"{where}: {members['probe']!r} is not a probe")

    return ExpectedFinding(**members)


@dataclass(frozen=True, slots=True)
class Probing:
    """The outcome of probing a live server with one cassette.

    Attributes:
        requests: how many requests were made at most, besides polls of tasks.
        unmet: the expected findings that were not found.
    """

    cassette: str
    upstream: str
    probes: tuple[Probed, ...] = ()
    requests: int = 0
    unmet: tuple[ExpectedFinding, ...] = ()

    @property
    def findings(self) -> tuple[Probed, ...]:
        """The outcomes that count, without expected ones; one for each probe and tool."""
        findings = []
        for probed in without_repeated_findings(self.probes):
            if probed.is_finding:
                findings.append(probed)

        return tuple(findings)

    @property
    def counts(self) -> Counter[str]:
        """How many probes have each verdict."""
        return verdict_counts(self.probes, PROBE_VERDICTS)

    @property
    def is_reached(self) -> bool:
        """Whether a question was reached."""
        return not self.counts.keys() <= {"not-reached"}

    @property
    def is_good(self) -> bool:
        """Whether a question was reached, and nothing was found but what was expected."""
        return self.is_reached and not self.findings and not self.unmet

    @property
    def text(self) -> str:
        """What was found, for people: by question, findings first."""
        lines = []
        for place, probes in _outcomes_by_place(
            without_repeated_findings(self.probes)
        ).items():
            lines.append(place)
            shown = filter(_is_shown_in_full, probes)
            for probed in sorted(shown, key=lambda probed: not probed.is_found):
                lines += probed_lines(probed)

            lines += _lines_of_probes_in_short(probes)

        return "\n".join([*lines, probing_line(self)])

    def with_expected(self, expected: Sequence[ExpectedFinding]) -> Probing:
        """Return it with the findings that were expected, which don't count."""
        met_expectations: dict[ExpectedFinding, None] = {}
        probes = []
        for probed in self.probes:
            fitting_entries = [
                entry for entry in expected if entry.is_about_outcome(probed)
            ]
            if not fitting_entries:
                probes.append(probed)
                continue

            met_expectations.update(dict.fromkeys(fitting_entries))
            reason = fitting_entries[0].reason
            probes.append(replace(probed, is_finding=False, expected=reason))

        unmet_findings = [entry for entry in expected if entry not in met_expectations]
        return replace(self, probes=tuple(probes), unmet=tuple(unmet_findings))


def without_repeated_findings(probes: Iterable[Probed]) -> list[Probed]:
    """Return outcomes without findings that an earlier call of the tool has, which names them."""
    probes_by_finding: dict[object, list[Probed]] = {}
    for index, probed in enumerate(probes):
        key: object = index
        if probed.is_found:
            key = (probed.tool, probed.probe, probed.verdict, probed.expected)

        probes_by_finding.setdefault(key, []).append(probed)

    distinct_outcomes = []
    for first, *others in probes_by_finding.values():
        places = dict.fromkeys([probed.place for probed in others])
        distinct_outcomes.append(replace(first, also=tuple(places)))

    return distinct_outcomes


def unmet_expectations(probings: Sequence[Probing]) -> list[ExpectedFinding]:
    """Return the expected findings that no cassette had."""
    if not probings:
        return []

    first_probing, *other_probings = probings
    unmet = list(first_probing.unmet)
    for probing in other_probings:
        unmet = [entry for entry in unmet if entry in probing.unmet]

    return unmet


def probing_code_of(probings: Sequence[Probing]) -> int:
    """Return the exit code of the command line for several cassettes."""
    if not any(probing.is_reached for probing in probings):
        return _EXIT_NOTHING_REACHED
    if unmet_expectations(probings):
        return _EXIT_UNMET
    return int(any(probing.findings for probing in probings))


def _is_shown_in_full(probed: Probed) -> bool:
    """Tell whether an outcome is shown with what was sent and received."""
    return probed.is_found or probed.verdict == "changed"


def _outcomes_by_place(probes: Iterable[Probed]) -> dict[str, list[Probed]]:
    """Return the outcomes of probes by their call and turn."""
    places: dict[str, list[Probed]] = defaultdict(list)
    for probed in probes:
        places[_call_and_turn_of(probed)].append(probed)

    return places


def _call_and_turn_of(probed: Probed) -> str:
    """Return the call and the turn of a probe."""
    return f"#{probed.number} {probed.call}, turn {probed.turn}"


def probe_name(probed: Probed) -> str:
    """Return the name of a probe with the question that it answers."""
    if probed.question is None:
        return probed.probe
    return f"{probed.probe} ({printable(probed.question)})"


def probed_title(probed: Probed) -> str:
    """Return the name of a probe with its call."""
    return f"{_call_and_turn_of(probed)}: {probe_name(probed)}"


def probed_lines(probed: Probed) -> Iterator[str]:
    """Yield the outcome of a probe with what was sent and received."""
    line = f"  {probed.verdict}: {probe_name(probed)}"
    if probed.reason is not None:
        line += f": {printable(probed.reason)}"

    if probed.expected is not None:
        line += f"; expected: {printable(probed.expected)}"

    yield line
    yield f"      sent      {printable(shorten(probed.sent))}"
    for name in ("received", "accepted", "declined"):
        value = getattr(probed, name)
        if value is not None:
            yield f"      {name:<9} {printable(response_line(value))}"

    if probed.also:
        yield f"      also      {'; '.join(probed.also)}"


def _lines_of_probes_in_short(probes: Sequence[Probed]) -> Iterator[str]:
    """Yield the outcomes that need no words, by verdict and reason."""
    names_by_verdict: dict[str, list[str]] = defaultdict(list)
    for probed in probes:
        if _is_shown_in_full(probed):
            continue

        verdict_words: str = probed.verdict
        if probed.verdict in ("not-reached", "undecidable") and probed.reason:
            verdict_words += f" ({printable(shorten(probed.reason))})"

        names_by_verdict[verdict_words].append(probe_name(probed))

    for verdict_words, probe_names in names_by_verdict.items():
        yield f"  {verdict_words}: {', '.join(probe_names)}"


def probing_line(probing: Probing) -> str:
    """Return in one line how much was found."""
    names = f"{printable(probing.cassette)} against {printable(probing.upstream)}"
    total = counted(len(probing.probes), "probe")
    finding_count = counted(len(probing.findings), "finding")

    return f"{names}: {finding_count} in {total}: {counts_text(probing.counts)}"


_JSON_MEMBERS: Final = {
    Probing: "cassette upstream is_good requests counts findings probes unmet",
    ExpectedFinding: "probe tool question reason",
}


def probings_data(probings: Sequence[Probing]) -> dict[str, Any]:
    """Return outcomes as JSON values, for programs."""
    return {"cassettes": as_data([*probings], _JSON_MEMBERS)}


def probings_markdown(probings: Sequence[Probing]) -> str:
    """Return outcomes as Markdown, for a pull request or a job's summary."""
    lines = []
    for probing in probings:
        sections = []
        for place, probes in _outcomes_by_place(probing.findings).items():
            sections.append(place)
            for probed in probes:
                sections += probed_lines(probed)

        lines += [f"**{probing_line(probing)}**", "", *diff_block(sections), ""]

    return "\n".join(lines)


def probing_junit(probings: Iterable[Probing]) -> bytes:
    """Return the outcome of probing as XML, a suite for each cassette."""
    suites = [Suite(probing.cassette, _junit_cases_of(probing)) for probing in probings]
    return junit_xml("mrtr-cassette probe", suites)


def _junit_cases_of(probing: Probing) -> Iterator[Case]:
    """Return probes as cases."""
    for probed in without_repeated_findings(probing.probes):
        name = probed_title(probed)
        verdict = probed.verdict
        reason = probed.reason or verdict
        if probed.is_finding:
            yield Case(name, Failure(verdict, reason, "\n".join(probed_lines(probed))))
        else:
            yield Case(name, skip_reason=reason if verdict == "not-reached" else None)


def probing_annotations(probing: Probing) -> list[str]:
    """Return the annotations of findings that GitHub Actions shows beside the cassette's file."""
    lines = []
    for probed in probing.findings:
        title = f"{probed_title(probed)}: {probed.verdict}"
        text = shorten(printable(probed.reason or probed.sent))
        if probed.also:
            text += f"; also {'; '.join(probed.also)}"

        lines.append(error_annotation(probing.cassette, title, text))

    return lines
