"""What a replay, or verifying, came to, for CI: JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from mrtr_cassette.core.report.comparison import Verification, folded, interaction_lines
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.runs import Outcome, ReplayReport, harmless_text
from mrtr_cassette.errors import printable, printable_json, shorten


def junit(report: ReplayReport) -> bytes:
    """Return the outcome of a replay as XML."""
    cassette = printable_json(report.cassette)
    cases = [
        _case(cassette, f"#{each.number} {each.call}", each.outcome) for each in report.interactions
    ]
    for number, miss in enumerate(report.misses, start=1):
        case = _case(cassette, f"miss {number}: {miss.request}")
        failure = ET.SubElement(
            case,
            "failure",
            type=printable_json(miss.reason),
            message=printable_json(f"{miss.reason}: {miss.detail}"),
        )
        failure.text = printable_json(miss.text)
        cases.append(case)
    suite = _suite(cassette, cases, len(report.misses), len(report.incomplete))
    if report.harmless:
        ET.SubElement(suite, "system-out").text = printable_json(harmless_text(report.harmless))
    return _xml("mrtr-cassette replay", [suite])


def verification_junit(verifications: Sequence[Verification]) -> bytes:
    """Return the outcome of verifying as XML, a suite for each cassette."""
    suites = []
    for verification in verifications:
        cassette = printable_json(verification.cassette)
        cases = []
        for each in verification.interactions:
            case = _case(cassette, f"#{each.number} {each.call}")
            if verification.fails(each):
                text = "\n".join(interaction_lines(each))
                message = printable_json(each.reason or each.verdict)
                failure = ET.SubElement(case, "failure", type=each.verdict, message=message)
                failure.text = printable_json(text)
            elif each.verdict == "skipped":
                ET.SubElement(case, "skipped", message=printable_json(each.reason or ""))
            cases.append(case)
        skipped = verification.counts.get("skipped", 0)
        suites.append(_suite(cassette, cases, len(verification.failures), skipped))
    return _xml("mrtr-cassette verify", suites)


def _suite(name: str, cases: Sequence[ET.Element], failures: int, skipped: int) -> ET.Element:
    counts = {"tests": len(cases), "failures": failures, "errors": 0, "skipped": skipped}
    texts = {key: str(count) for key, count in counts.items()}
    suite = ET.Element("testsuite", {"name": name, **texts})
    suite.extend(cases)
    return suite


# No character that `printable_json` leaves is one that XML can't hold (XML 1.0, section 2.2).
def _xml(name: str, suites: Sequence[ET.Element]) -> bytes:
    counts = {
        key: str(sum(int(suite.get(key, "0")) for suite in suites))
        for key in ("tests", "failures", "errors", "skipped")
    }
    root = ET.Element("testsuites", {"name": name, **counts})
    root.extend(suites)
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _case(cassette: str, name: str, outcome: Outcome = Outcome.PLAYED) -> ET.Element:
    case = ET.Element("testcase", classname=cassette, name=printable_json(name))
    if outcome is not Outcome.PLAYED:
        ET.SubElement(case, "skipped", message=outcome.value)
    return case


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
