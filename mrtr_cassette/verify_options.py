"""The options of verifying, for every front.

Rule: as in `options`, nothing large is imported before there is a value to check.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mrtr_cassette.errors import UsageError
from mrtr_cassette.option_values import FilePath, list_options, option_field
from mrtr_cassette.options import UpstreamOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifyOptions(UpstreamOptions):
    """The options of holding a live server to a cassette."""

    only: Collection[str] = option_field(
        "list",
        "Verify only calls whose method, name, both ('tools/call add') or number match this "
        "pattern",
        "--only",
        metavar="PATTERN",
        in_suites=False,
    )
    ignore: Collection[str] = option_field(
        "list",
        "Leave a value out of the comparison: a JSON Pointer into the result, such as "
        "/structuredContent/at",
        "--ignore",
        metavar="POINTER",
    )
    ignore_from: FilePath | None = option_field(
        "file", "Leave out of the comparison what this file names", "--ignore-from", metavar="FILE"
    )
    learn: FilePath | None = option_field(
        "file",
        "Ask twice what only reads, and add the pointers of what differs by itself to this file",
        "--learn",
        metavar="FILE",
        in_suites=False,
    )
    allow_destructive: bool = option_field(
        "switch",
        "Also call tools of which the server says that they may destroy something",
        "--allow-destructive",
    )
    fail_on: Collection[str] = option_field(
        "list",
        "Fail on this verdict only, such as question-changed; not-reached always fails",
        "--fail-on",
        metavar="VERDICT",
    )
    timeout: int = option_field(
        "number",
        "Seconds that one response may take",
        "--timeout",
        metavar="SECONDS",
        smallest=1,
        default=60,
    )

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        if self.ignore or self.fail_on:
            from mrtr_cassette.core.compare.changes import VERDICTS, check_pointers

            check_pointers(self.ignore)
            for verdict in self.fail_on:
                if verdict not in VERDICTS:
                    raise UsageError(
                        f"<<fail_on>> {verdict!r} is no verdict",
                        hint=f"the verdicts are {', '.join(VERDICTS)}",
                    )


list_options(VerifyOptions)
