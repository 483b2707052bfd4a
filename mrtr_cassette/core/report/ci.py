"""Outcomes for CI: JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree as ET

from mrtr_cassette.core.report.runs import MissReport, ReplayReport
from mrtr_cassette.core.report.trials import TrialsReport
from mrtr_cassette.errors import printable, printable_json


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a case failed: its kind, in a line, and as a text of several."""

    kind: str
    message: str
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """What was tried: it passed if it has no failure, and no reason why it was skipped."""

    name: str
    failure: Failure | None = None
    skip_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that belong together, such as those of a cassette."""

    name: str
    cases: Iterable[Case]
    properties: Mapping[str, str] = field(default_factory=dict)


def replay_junit(report: ReplayReport) -> bytes:
    """Return the outcome of a replay as XML."""
    suite = Suite(report.cassette, _replay_cases(report))
    return junit_xml("mrtr-cassette replay", [suite])


def _replay_cases(report: ReplayReport) -> Iterator[Case]:
    """Return the interactions, misses and faults of a replay as cases."""
    for interaction in report.interactions:
        name = report.title_of(interaction)
        is_played = interaction.outcome == "played"
        yield Case(name, skip_reason=None if is_played else interaction.outcome)

    for number, miss in enumerate(report.misses, start=1):
        failure = Failure(miss.reason, f"{miss.reason}: {miss.detail}", miss.text)
        yield Case(f"miss {number}: {miss.request}", failure)

    for fault in report.faults:
        unmet = Failure("unmet", str(fault), str(fault))
        yield Case(fault.fault, None if fault.came else unmet)


def trials_junit(report: TrialsReport) -> bytes:
    """Return the outcome of trials as XML, a case for each."""
    properties = {"validity_rate": str(report.validity_rate)}
    suite = Suite("trials", _trial_cases(report), properties)
    return junit_xml("mrtr-cassette trials", [suite])


def _trial_cases(report: TrialsReport) -> Iterator[Case]:
    """Return trials as cases, each with its first miss."""
    for trial in report.trials:
        failure = None
        for miss in trial.misses[:1]:
            failure = Failure(miss.reason, trial.ended_by or "", miss.text)

        yield Case(f"trial {trial.trial}", failure)


# XML holds all characters that `printable_json` leaves (XML 1.0, section 2.2).
def junit_xml(name: str, suites: Iterable[Suite]) -> bytes:
    """Return suites as JUnit XML, with their counts."""
    root = ET.Element("testsuites", name=name)
    for suite in suites:
        root.append(_suite_element(suite))

    for element in (root, *root):
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


def _suite_element(suite: Suite) -> ET.Element:
    """Return a suite as an element of XML."""
    suite_name = printable_json(suite.name)
    element = ET.Element("testsuite", name=suite_name)
    if suite.properties:
        properties = ET.SubElement(element, "properties")
        for name, value in suite.properties.items():
            ET.SubElement(properties, "property", name=name, value=value)

    for case in suite.cases:
        facts = {"classname": suite_name, "name": printable_json(case.name)}
        case_element = ET.SubElement(element, "testcase", facts)
        if case.skip_reason is not None:
            message = printable_json(case.skip_reason)
            ET.SubElement(case_element, "skipped", message=message)
        if case.failure:
            facts = {
                "type": case.failure.kind,
                "message": printable_json(case.failure.message),
            }
            failure = ET.SubElement(case_element, "failure", facts)
            failure.text = printable_json(case.failure.text)

    return element


# Annotations


def miss_annotation(report: MissReport) -> str:
    """Return a miss as a workflow command of GitHub Actions, beside the nearest recording."""
    file = report.cassette if report.nearest is None else report.nearest.cassette
    return error_annotation(file, f"miss: {report.reason}", report.text)


def error_annotation(file: str, title: str, text: str) -> str:
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
