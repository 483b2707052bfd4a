"""The outcome of a replay as JUnit XML, for tools that show test results.

Owns: its shape: a test case for each interaction, skipped where it was not played, and a failed
one for each miss.
Rule: the XML is well-formed, whatever a client or a server named things (XML 1.0, section 2.2).
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from mrtr_cassette.core.report.summary import Outcome, ReplayReport

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: ReplayReport) -> bytes:
    """Return the outcome of a replay as XML."""
    cassette = _allowed(report.cassette)
    cases = [
        _case(cassette, f"#{each.number} {each.call}", each.outcome) for each in report.interactions
    ]
    for number, miss in enumerate(report.misses, start=1):
        case = _case(cassette, f"miss {number}: {miss.request}")
        failure = ET.SubElement(
            case,
            "failure",
            type=_allowed(miss.reason),
            message=_allowed(f"{miss.reason}: {miss.detail}"),
        )
        failure.text = _allowed(miss.text)
        cases.append(case)
    counts = {
        "tests": str(len(cases)),
        "failures": str(len(report.misses)),
        "errors": "0",
        "skipped": str(len(report.incomplete)),
    }
    suites = ET.Element("testsuites", {"name": "mrtr-cassette replay", **counts})
    ET.SubElement(suites, "testsuite", {"name": cassette, **counts}).extend(cases)
    ET.indent(suites)
    xml: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _case(cassette: str, name: str, outcome: Outcome = Outcome.PLAYED) -> ET.Element:
    case = ET.Element("testcase", classname=cassette, name=_allowed(name))
    if outcome is not Outcome.PLAYED:
        ET.SubElement(case, "skipped", message=outcome.value)
    return case


def _allowed(text: str) -> str:
    """Spell what XML can't hold as JSON would."""
    return _NOT_IN_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
