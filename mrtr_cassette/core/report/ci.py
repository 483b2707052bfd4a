"""The outcome of replaying or verifying, for CI: JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from mrtr_cassette.core.drive.script import without_turn_numbers
from mrtr_cassette.core.report.comparison import (
    Verification,
    grouped_changes,
    interaction_lines,
)
from mrtr_cassette.core.report.probes import (
    Probing,
    probed_lines,
    probed_title,
    told_once,
)
from mrtr_cassette.core.report.runs import MissReport, ReplayReport
from mrtr_cassette.core.report.trials import TrialsReport
from mrtr_cassette.errors import printable, printable_json, shorten


def junit(report: ReplayReport) -> bytes:
    """Return the outcome of a replay as XML."""
    suite = _empty_suite(report.cassette)
    for interaction in report.interactions:
        case = _add_case(suite, f"#{interaction.number} {interaction.call}")
        if interaction.outcome != "played":
            _add_skip_reason(case, interaction.outcome)

    for number, miss in enumerate(report.misses, start=1):
        case = _add_case(suite, f"miss {number}: {miss.request}")
        _add_failure(case, miss.reason, f"{miss.reason}: {miss.detail}", miss.text)

    for fault in report.faults:
        case = _add_case(suite, fault.fault)
        if not fault.came:
            _add_failure(case, "unmet", str(fault), str(fault))

    return _xml("mrtr-cassette replay", [suite])


def verification_junit(verifications: Sequence[Verification]) -> bytes:
    """Return the outcome of verifying as XML, a suite for each cassette."""
    suites = []
    for verification in verifications:
        suite = _empty_suite(verification.cassette)
        for interaction in verification.interactions:
            case = _add_case(suite, f"#{interaction.number} {interaction.call}")
            verdict = interaction.verdict
            reason = interaction.reason or ""
            if verification.fails(interaction):
                text = "\n".join(interaction_lines(interaction, is_whole=True))
                _add_failure(case, verdict, reason or verdict, text)
            elif verdict == "skipped":
                _add_skip_reason(case, reason)

        suites.append(suite)

    return _xml("mrtr-cassette verify", suites)


def trials_junit(report: TrialsReport) -> bytes:
    """Return the outcome of trials as XML, a case for each."""
    suite = _empty_suite("trials")
    properties = ET.SubElement(suite, "properties")
    rate = {"name": "validity_rate", "value": str(report.validity_rate)}
    ET.SubElement(properties, "property", rate)
    for trial in report.trials:
        case = _add_case(suite, f"trial {trial.trial}")
        for miss in trial.misses[:1]:
            _add_failure(case, miss.reason, trial.ended_by or "", miss.text)

    return _xml("mrtr-cassette trials", [suite])


def probing_junit(probings: Sequence[Probing]) -> bytes:
    """Return the outcome of probing as XML, a suite for each cassette."""
    suites = []
    for probing in probings:
        suite = _empty_suite(probing.cassette)
        for probed in told_once(probing.probes):
            case = _add_case(suite, probed_title(probed))
            reason = probed.reason or probed.verdict
            if probed.is_finding:
                text = "\n".join(probed_lines(probed))
                _add_failure(case, probed.verdict, reason, text)
            elif probed.verdict == "not-reached":
                _add_skip_reason(case, reason)

        suites.append(suite)

    return _xml("mrtr-cassette probe", suites)


def _empty_suite(name: str) -> ET.Element:
    """Return a test suite without cases."""
    return ET.Element("testsuite", name=printable_json(name))


def _add_case(suite: ET.Element, name: str) -> ET.Element:
    """Add a case of a test suite."""
    facts = {"classname": suite.get("name", ""), "name": printable_json(name)}
    return ET.SubElement(suite, "testcase", facts)


def _add_skip_reason(case: ET.Element, reason: str) -> None:
    """Add the reason why a case was not tried."""
    ET.SubElement(case, "skipped", message=printable_json(reason))


def _add_failure(case: ET.Element, kind: str, message: str, text: str) -> None:
    """Add the reason why a case failed."""
    failure = ET.SubElement(case, "failure", type=kind, message=printable_json(message))
    failure.text = printable_json(text)


# XML holds all characters that `printable_json` leaves (XML 1.0, section 2.2).
def _xml(name: str, suites: Sequence[ET.Element]) -> bytes:
    """Return suites as XML, with their counts."""
    root = ET.Element("testsuites", name=name)
    root.extend(suites)
    for element in (root, *suites):
        for count, tag in _COUNTED_ELEMENTS.items():
            element.set(count, str(len(list(element.iter(tag)))))

    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


_COUNTED_ELEMENTS: Final = {
    "tests": "testcase",
    "failures": "failure",
    "errors": "error",
    "skipped": "skipped",
}


# Annotations


def miss_annotation(report: MissReport) -> str:
    """Return a miss as a workflow command of GitHub Actions."""
    return _error_annotation(report.cassette, f"miss: {report.reason}", report.text)


def verification_annotations(verification: Verification) -> list[str]:
    """Return the annotations that GitHub Actions shows beside the cassette's file."""
    lines = []
    for interaction in verification.failures:
        facts = []
        if interaction.reason:
            facts.append(printable(interaction.reason))

        for group in grouped_changes(without_turn_numbers(interaction.changes)):
            facts.append(f"{group.pointer or '/'} {group.first.verdict}")

        title = f"#{interaction.number} {interaction.call}: {interaction.verdict}"
        text = shorten("; ".join(facts) or interaction.verdict)
        lines.append(_error_annotation(verification.cassette, title, text))

    return lines


def probing_annotations(probing: Probing) -> list[str]:
    """Return the annotations of findings that GitHub Actions shows beside the cassette's file."""
    lines = []
    for probed in probing.findings:
        title = f"{probed_title(probed)}: {probed.verdict}"
        text = shorten(printable(probed.reason or probed.sent))
        if probed.also:
            text += f"; also {'; '.join(probed.also)}"

        lines.append(_error_annotation(probing.cassette, title, text))

    return lines


def _error_annotation(file: str, title: str, text: str) -> str:
    """Return a workflow command that shows an error beside a file."""
    path = _escape_characters(printable(file), _IN_PROPERTY)
    title = _escape_characters(title, _IN_PROPERTY)
    return f"::error file={path},title={title}::{_escape_characters(text, _IN_MESSAGE)}"


_IN_MESSAGE = "%\r\n"
_IN_PROPERTY = "%\r\n:,"


def _escape_characters(text: str, characters: str) -> str:
    """Escape some characters of a workflow command."""
    for char in characters:
        text = text.replace(char, f"%{ord(char):02X}")

    return text
