"""What a replay, or verifying, came to, for CI: JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from mrtr_cassette.core.report.comparison import Verification, folded, interaction_lines
from mrtr_cassette.core.report.runs import MissReport, ReplayReport
from mrtr_cassette.errors import printable, printable_json, shorten


def junit(report: ReplayReport) -> bytes:
    """Return the outcome of a replay as XML."""
    suite = ET.Element("testsuite", name=printable_json(report.cassette))
    for each in report.interactions:
        case = _case(suite, f"#{each.number} {each.call}")
        if each.outcome != "played":
            ET.SubElement(case, "skipped", message=each.outcome)
    for number, miss in enumerate(report.misses, start=1):
        case = _case(suite, f"miss {number}: {miss.request}")
        _failure(case, miss.reason, f"{miss.reason}: {miss.detail}", miss.text)
    return _xml("mrtr-cassette replay", [suite])


def verification_junit(verifications: Sequence[Verification]) -> bytes:
    """Return the outcome of verifying as XML, a suite for each cassette."""
    suites = []
    for verification in verifications:
        suite = ET.Element("testsuite", name=printable_json(verification.cassette))
        for each in verification.interactions:
            case = _case(suite, f"#{each.number} {each.call}")
            if verification.fails(each):
                text = "\n".join(interaction_lines(each, is_whole=True))
                _failure(case, each.verdict, each.reason or each.verdict, text)
            elif each.verdict == "skipped":
                ET.SubElement(case, "skipped", message=printable_json(each.reason or ""))
        suites.append(suite)
    return _xml("mrtr-cassette verify", suites)


def _case(suite: ET.Element, name: str) -> ET.Element:
    facts = {"classname": suite.get("name", ""), "name": printable_json(name)}
    return ET.SubElement(suite, "testcase", facts)


def _failure(case: ET.Element, kind: str, message: str, text: str) -> None:
    failure = ET.SubElement(case, "failure", type=kind, message=printable_json(message))
    failure.text = printable_json(text)


# No character that `printable_json` leaves is one that XML can't hold (XML 1.0, section 2.2).
def _xml(name: str, suites: Sequence[ET.Element]) -> bytes:
    root = ET.Element("testsuites", name=name)
    root.extend(suites)
    for each in (root, *suites):
        for count, tag in _COUNTED.items():
            each.set(count, str(len(list(each.iter(tag)))))
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


_COUNTED: Final = {
    "tests": "testcase",
    "failures": "failure",
    "errors": "error",
    "skipped": "skipped",
}


# Annotations


def annotation(report: MissReport) -> str:
    """Return a miss as a workflow command of GitHub Actions."""
    return _annotation(report.cassette, f"miss: {report.reason}", report.text)


def verification_annotations(verification: Verification) -> list[str]:
    """Return what GitHub Actions shows beside the cassette's file."""
    lines = []
    for each in verification.failures:
        facts = [printable(each.reason)] if each.reason else []
        folds = folded(change for _, change in each.changes)
        facts += [f"{fold.pointer or '/'} {fold.first.verdict}" for fold in folds]
        title = f"#{each.number} {each.call}: {each.verdict}"
        text = shorten("; ".join(facts) or each.verdict)
        lines.append(_annotation(verification.cassette, title, text))
    return lines


def _annotation(file: str, title: str, text: str) -> str:
    shown = _escaped(printable(file), _IN_PROPERTY)
    return (
        f"::error file={shown},title={_escaped(title, _IN_PROPERTY)}::{_escaped(text, _IN_MESSAGE)}"
    )


_IN_MESSAGE = "%\r\n"
_IN_PROPERTY = "%\r\n:,"


def _escaped(text: str, characters: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in characters else char for char in text)
