"""The options of a call that needs no client.

Rule: as in `options`: one field is one option for every front.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrtr_cassette.option_values import list_options, option_field
from mrtr_cassette.options import WritingOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class CallOptions(WritingOptions):
    """The options of a call that needs no client."""

    max_rounds: int = option_field(
        "number",
        "How often the server may ask before the call is given up",
        "--max-rounds",
        default=10,
    )
    timeout: int = option_field(
        "number",
        "Seconds that the whole call may take, with everything that is asked",
        "--timeout",
        metavar="SECONDS",
        smallest=1,
        default=300,
    )


list_options(CallOptions)
