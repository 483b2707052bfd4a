"""The misses of a test in its report, where a reader looks first.

Rule: a report of a form that is not known stays as it is, and gets the misses as a section.
"""

from __future__ import annotations

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative


def with_misses_first(report: pytest.TestReport, text: str) -> None:
    """Show misses before the traceback of a failed test, and their headline in the short summary.

    What the client made of its error comes below, as the traceback of a library is long.

    Args:
        text: what was missed; its first line is the headline.
    """
    shown = report.longrepr
    if not isinstance(shown, ExceptionChainRepr):
        report.sections.append(("mrtr-cassette: misses", text))
        return
    first = shown.chain[0][0]
    first.reprentries = [ReprEntryNative([f"{text}\n\n"]), *first.reprentries]
    if shown.reprcrash is not None:
        shown.reprcrash.message = text.partition("\n")[0]
