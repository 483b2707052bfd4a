"""A request that appending could not record, as a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.report.rpc_errors import UNRECORDED_CODE, error_body
from mrtr_cassette.core.report.wording import (
    difference_line,
    fix_lines,
    printable_difference,
    request_text,
)
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, in_terms, printable, printable_lines

_FIXES = (
    "record the whole call again, into another cassette",
    "record all of this cassette again with <<replace>>",
)


def recorded_ask(asker: Playable) -> str:
    """Say where on the cassette the ask of a recorded exchange is."""
    return f"#{asker.interaction} ({asker.key}, ask of turn {asker.asking_turn})"


class UnrecordedReport(NamedTuple):
    """A request that could not be recorded, as the live server is not where the cassette is.

    Attributes:
        text: as people read it, several lines.
        facts: the same as JSON, as the client gets it in `error.data`.
    """

    text: str
    facts: Mapping[str, Any]


def report_of_unrecorded(
    failure: Unrecorded,
    path: str,
    redacted: Callable[[str], str] = str,
    terms: Terms = LIBRARY_TERMS,
) -> UnrecordedReport:
    """Return as a report why a request could not be recorded."""
    asker = failure.asker
    request = printable(redacted(request_text(failure.call)))
    fixes = [in_terms(fix, terms) for fix in _FIXES]
    shown = [printable_difference(difference, redacted) for difference in failure.differences]
    detail = printable(redacted(failure.detail))
    lines = [
        f"not recorded: {detail}",
        f"  request:  {request}",
        *([] if asker is None else [f"  recorded: {recorded_ask(asker)} in {path}"]),
        *(difference_line(difference, "live") for difference in shown),
        *fix_lines(fixes),
    ]
    facts = {
        "detail": detail,
        "request": request,
        "cassette": path,
        "recorded": None
        if asker is None
        else {"interaction": asker.interaction, "turn": asker.asking_turn, "call": str(asker.key)},
        "differences": [
            {"pointer": pointer, "recorded": recorded, "live": live}
            for pointer, recorded, live in shown
        ],
        "fix": ", or ".join(fixes),
    }
    return UnrecordedReport(printable_lines(redacted("\n".join(lines))), facts)


def unrecorded_body(report: UnrecordedReport, call: Call) -> bytes:
    """Return the JSON-RPC error that a client gets for it, with the client's own id."""
    return error_body(call, UNRECORDED_CODE, report.text, report.facts)
