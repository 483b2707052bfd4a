"""How a test suite keeps its cassettes, as options beside those of recording and replaying.

Owns: which of these there are.
Does not own: reading them (`settings`), what they do (`use`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrtr_cassette.option_values import as_option


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteOptions:
    """How a test suite keeps its cassettes."""

    max_age: int = field(
        default=0,
        metadata=as_option(
            "number",
            "Days after which a cassette is old: mode once records it anew, the other modes that "
            "replay it warn; 0: never",
        ),
    )
