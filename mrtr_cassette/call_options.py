"""The options of a call that needs no client.

Rule: as in `options`: one field is one option for every front.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrtr_cassette.option_values import as_option, list_options
from mrtr_cassette.options import WritingOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class CallOptions(WritingOptions):
    """The options of a call that needs no client."""

    max_rounds: int = field(
        default=10,
        metadata=as_option(
            "number",
            "How often the server may ask before the call is given up",
            "--max-rounds",
        ),
    )
    timeout: int = field(
        default=300,
        metadata=as_option(
            "number",
            "Seconds that the whole call may take, with everything that is asked",
            "--timeout",
            metavar="SECONDS",
            smallest=1,
        ),
    )


list_options(CallOptions)
