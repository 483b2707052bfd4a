"""The outcome of a replay as JUnit XML, for tools that show test results.

Owns: its shape: a test case for each interaction, skipped where it was not played, and a failed
one for each miss; harmless requests are the suite's output.
Rule: the XML is well-formed, whatever a client or a server named things (XML 1.0, section 2.2): no
character that `printable_json` leaves is one that XML can't hold.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from mrtr_cassette.core.report.summary import Outcome, ReplayReport, harmless_text
from mrtr_cassette.errors import printable_json


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
    counts = {
        "tests": str(len(cases)),
        "failures": str(len(report.misses)),
        "errors": "0",
        "skipped": str(len(report.incomplete)),
    }
    suites = ET.Element("testsuites", {"name": "mrtr-cassette replay", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": cassette, **counts})
    suite.extend(cases)
    if report.harmless:
        ET.SubElement(suite, "system-out").text = printable_json(harmless_text(report.harmless))
    ET.indent(suites)
    xml: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _case(cassette: str, name: str, outcome: Outcome = Outcome.PLAYED) -> ET.Element:
    case = ET.Element("testcase", classname=cassette, name=printable_json(name))
    if outcome is not Outcome.PLAYED:
        ET.SubElement(case, "skipped", message=outcome.value)
    return case
