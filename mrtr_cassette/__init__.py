"""Record and replay MCP conversations whose calls ask for input half-way.

What is offered here is imported when it is first asked for, so that the import alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrtr_cassette.api import call, diff, merge, record, replay, verify
    from mrtr_cassette.core.compare.conversations import (
        CassetteComparison,
        InteractionComparison,
        Stage,
    )
    from mrtr_cassette.core.compare.values import Change
    from mrtr_cassette.core.drive.recorded_script import TurnChange
    from mrtr_cassette.core.drive.verification import VerifiedInteraction
    from mrtr_cassette.core.report.comparison import Verification
    from mrtr_cassette.core.report.details import Interaction, Turn
    from mrtr_cassette.core.report.misses import MissesError, MissReport
    from mrtr_cassette.core.report.runs import (
        CallResult,
        UnansweredError,
        UnplayedError,
        UnpublishedError,
    )
    from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UpstreamError, UsageError
    from mrtr_cassette.options import CallOptions, RecordOptions, ReplayOptions, VerifyOptions
    from mrtr_cassette.shell.runs.views import Recording, Replay
    from mrtr_cassette.testing.cassette import MrtrCassette

__version__ = "0.2.0"
__all__ = [
    "CallOptions",
    "CallResult",
    "CassetteComparison",
    "CassetteError",
    "Change",
    "Interaction",
    "InteractionComparison",
    "MissReport",
    "MissesError",
    "MrtrCassette",
    "MrtrCassetteError",
    "RecordOptions",
    "Recording",
    "Replay",
    "ReplayOptions",
    "Stage",
    "Turn",
    "TurnChange",
    "UnansweredError",
    "UnplayedError",
    "UnpublishedError",
    "UpstreamError",
    "UsageError",
    "Verification",
    "VerifiedInteraction",
    "VerifyOptions",
    "call",
    "diff",
    "merge",
    "record",
    "replay",
    "verify",
]
_ELSEWHERE = {
    "CallOptions": "options",
    "CallResult": "core.report.runs",
    "CassetteComparison": "core.compare.conversations",
    "Change": "core.compare.values",
    "InteractionComparison": "core.compare.conversations",
    "Stage": "core.compare.conversations",
    "CassetteError": "errors",
    "Interaction": "core.report.details",
    "MissReport": "core.report.misses",
    "MissesError": "core.report.misses",
    "MrtrCassette": "testing.cassette",
    "MrtrCassetteError": "errors",
    "RecordOptions": "options",
    "ReplayOptions": "options",
    "Recording": "shell.runs.views",
    "Replay": "shell.runs.views",
    "Turn": "core.report.details",
    "TurnChange": "core.drive.recorded_script",
    "UnansweredError": "core.report.runs",
    "UnplayedError": "core.report.runs",
    "UnpublishedError": "core.report.runs",
    "UpstreamError": "errors",
    "UsageError": "errors",
    "Verification": "core.report.comparison",
    "VerifiedInteraction": "core.drive.verification",
    "VerifyOptions": "options",
}
"""The modules of the names that `api` does not define."""


def __getattr__(name: str) -> Any:
    """Import what is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)
