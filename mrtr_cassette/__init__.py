"""Record and replay MCP conversations whose calls ask for input half-way.

What is offered here is imported when it is first asked for, so that the import alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrtr_cassette.api import Interaction, Recording, Replay, Turn, record, replay
    from mrtr_cassette.core.report.misses import MissReport
    from mrtr_cassette.testing import MrtrCassette

__version__ = "0.1.0"
__all__ = [
    "Interaction",
    "MissReport",
    "MrtrCassette",
    "Recording",
    "Replay",
    "Turn",
    "record",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    if name == "MrtrCassette":
        from mrtr_cassette import testing

        return testing.MrtrCassette

    from mrtr_cassette import api

    return getattr(api, name)
