"""Outcomes for CI: JUnit XML, of which this has the parts, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from mrtr_cassette.core.report.runs import MissReport, ReplayReport
from mrtr_cassette.core.report.trials import TrialsReport
from mrtr_cassette.errors import printable, printable_json


def junit(report: ReplayReport) -> bytes:
    """Return the outcome of a replay as XML."""
    suite = empty_suite(report.cassette)
    for interaction in report.interactions:
        case = add_case(suite, f"#{interaction.number} {interaction.call}")
        if interaction.outcome != "played":
            add_skip_reason(case, interaction.outcome)

    for number, miss in enumerate(report.misses, start=1):
        case = add_case(suite, f"miss {number}: {miss.request}")
        add_failure(case, miss.reason, f"{miss.reason}: {miss.detail}", miss.text)

    for fault in report.faults:
        case = add_case(suite, fault.fault)
        if not fault.came:
            add_failure(case, "unmet", str(fault), str(fault))

    return suites_xml("mrtr-cassette replay", [suite])


def trials_junit(report: TrialsReport) -> bytes:
    """Return the outcome of trials as XML, a case for each."""
    suite = empty_suite("trials")
    properties = ET.SubElement(suite, "properties")
    rate = {"name": "validity_rate", "value": str(report.validity_rate)}
    ET.SubElement(properties, "property", rate)
    for trial in report.trials:
        case = add_case(suite, f"trial {trial.trial}")
        for miss in trial.misses[:1]:
            add_failure(case, miss.reason, trial.ended_by or "", miss.text)

    return suites_xml("mrtr-cassette trials", [suite])


def empty_suite(name: str) -> ET.Element:
    """Return a test suite without cases."""
    return ET.Element("testsuite", name=printable_json(name))


def add_case(suite: ET.Element, name: str) -> ET.Element:
    """Add a case of a test suite."""
    facts = {"classname": suite.get("name", ""), "name": printable_json(name)}
    return ET.SubElement(suite, "testcase", facts)


def add_skip_reason(case: ET.Element, reason: str) -> None:
    """Add the reason why a case was not tried."""
    ET.SubElement(case, "skipped", message=printable_json(reason))


def add_failure(case: ET.Element, kind: str, message: str, text: str) -> None:
    """Add the reason why a case failed."""
    failure = ET.SubElement(case, "failure", type=kind, message=printable_json(message))
    failure.text = printable_json(text)


# XML holds all characters that `printable_json` leaves (XML 1.0, section 2.2).
def suites_xml(name: str, suites: Sequence[ET.Element]) -> bytes:
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
    return error_annotation(report.cassette, f"miss: {report.reason}", report.text)


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
