"""Verifiers and miss reports with the settings that most tests have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.drive.verification import Verifier
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.report.runs import MissReport, miss_report
from mrtr_cassette.core.secrets.values import NO_VALUES
from mrtr_cassette.core.wire.http import LARGEST_BODY
from mrtr_cassette.terms import LIBRARY_TERMS, Terms


def verifier_for(
    cassette: Cassette,
    endpoint: str = "/mcp",
    ignored: Collection[str] = (),
    **options: Any,
) -> Verifier:
    """Return what holds a server to a cassette; options are those of `Verifier`."""
    usual = {
        "token_of": lambda _rule, _secret: "0",
        "allows_destructive": False,
        "largest_body": LARGEST_BODY,
        "accepts": None,
        "values": NO_VALUES,
    }
    return Verifier(cassette, endpoint, lambda _call: ignored, **usual | options)


def reported_miss(
    miss: Miss,
    cassette: Cassette,
    redacted: Callable[[str], str] = str,
    terms: Terms = LIBRARY_TERMS,
) -> MissReport:
    """Return a miss of a replay that adds to no cassette as a report."""
    return miss_report(miss, cassette, redacted, terms, None)
