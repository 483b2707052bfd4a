"""A request that appending could not record, as a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, in_terms, printable, printable_lines

_FIXES = (
    "record the whole call again, into another cassette",
    "record all of this cassette again with <<replace>>",
)


class RecordedAsk(NamedTuple):
    """An ask on a cassette.

    Attributes:
        interaction: number of its interaction, from 1.
        turn: number of its turn, from 1.
        call: what was called, such as `tools/call "deploy"`.
    """

    interaction: int
    turn: int
    call: str

    def __str__(self) -> str:
        """Say where on the cassette it is."""
        return f"#{self.interaction} ({self.call}, ask of turn {self.turn})"


def recorded_ask(asker: Playable) -> RecordedAsk:
    """Return where the ask of a recorded exchange stands."""
    return RecordedAsk(asker.interaction, asker.asking_turn, str(asker.key))


@dataclass(frozen=True, slots=True)
class UnrecordedReport:
    """A request that could not be recorded, as the live server is not where the cassette is.

    Attributes:
        detail: why, as a sentence.
        request: the request with its arguments and the keys of its answers.
        cassette: how messages name the file.
        recorded: the ask that the server should have repeated, or None.
        differences: where the recorded ask and the live one differ, by JSON Pointer into the
            result.
        fixes: what can be done about it; one of these.
        text: all of this as people read it, several lines.
    """

    detail: str
    request: str
    cassette: str
    recorded: RecordedAsk | None
    differences: tuple[Difference, ...]
    fixes: tuple[str, ...]
    text: str

    @property
    def facts(self) -> Mapping[str, Any]:
        """The same as JSON, as the client gets it in `error.data`."""
        return {
            "detail": self.detail,
            "request": self.request,
            "cassette": self.cassette,
            "recorded": None if self.recorded is None else self.recorded._asdict(),
            "differences": [
                {"pointer": pointer, "recorded": recorded, "live": live}
                for pointer, recorded, live in self.differences
            ],
            "fix": ", or ".join(self.fixes),
        }


def report_of_unrecorded(
    failure: Unrecorded,
    path: str,
    redacted: Callable[[str], str] = str,
    terms: Terms = LIBRARY_TERMS,
) -> UnrecordedReport:
    """Return as a report why a request could not be recorded."""
    request = printable(redacted(request_text(failure.call)))
    fixes = [in_terms(fix, terms) for fix in _FIXES]
    recorded = None if failure.asker is None else recorded_ask(failure.asker)
    shown = [printable_difference(difference, redacted) for difference in failure.differences]
    detail = printable(redacted(failure.detail))
    lines = [f"not recorded: {detail}", f"  request:  {request}"]
    if recorded is not None:
        lines.append(f"  recorded: {recorded} in {path}")
    lines += [difference_line(difference, "live") for difference in shown]
    lines += fix_lines(fixes)
    return UnrecordedReport(
        detail=detail,
        request=request,
        cassette=path,
        recorded=recorded,
        differences=tuple(shown),
        fixes=tuple(fixes),
        text=printable_lines(redacted("\n".join(lines))),
    )


def unrecorded_body(report: UnrecordedReport, call: Call) -> bytes:
    """Return the JSON-RPC error that a client gets for it, with the client's own id."""
    return error_body(call, UNRECORDED_CODE, report.text, report.facts)
