"""Record and replay MCP conversations whose calls ask for input half-way.

What is offered here is imported when it is first asked for, so that the import alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrtr_cassette.api import Recording, Replay, diff, merge, record, replay, verify
    from mrtr_cassette.call_options import CallOptions
    from mrtr_cassette.calls import call
    from mrtr_cassette.core.compare.cassettes import CassetteComparison, InteractionComparison
    from mrtr_cassette.core.compare.changes import Change
    from mrtr_cassette.core.compare.conversations import Stage
    from mrtr_cassette.core.drive.recorded_script import TurnChange
    from mrtr_cassette.core.report.calls import CallResult, UnansweredError
    from mrtr_cassette.core.report.failures import MissesError, UnplayedError, UnpublishedError
    from mrtr_cassette.core.report.inspection import Interaction, Turn
    from mrtr_cassette.core.report.misses import MissReport
    from mrtr_cassette.core.report.verification import Verification, VerifiedInteraction
    from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UpstreamError, UsageError
    from mrtr_cassette.options import RecordOptions, ReplayOptions
    from mrtr_cassette.testing.cassette import MrtrCassette
    from mrtr_cassette.verify_options import VerifyOptions

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
    "CallOptions": "call_options",
    "CallResult": "core.report.calls",
    "call": "calls",
    "CassetteComparison": "core.compare.cassettes",
    "Change": "core.compare.changes",
    "InteractionComparison": "core.compare.cassettes",
    "Stage": "core.compare.conversations",
    "CassetteError": "errors",
    "Interaction": "core.report.inspection",
    "MissReport": "core.report.misses",
    "MissesError": "core.report.failures",
    "MrtrCassette": "testing.cassette",
    "MrtrCassetteError": "errors",
    "RecordOptions": "options",
    "ReplayOptions": "options",
    "Turn": "core.report.inspection",
    "TurnChange": "core.drive.recorded_script",
    "UnansweredError": "core.report.calls",
    "UnplayedError": "core.report.failures",
    "UnpublishedError": "core.report.failures",
    "UpstreamError": "errors",
    "UsageError": "errors",
    "Verification": "core.report.verification",
    "VerifiedInteraction": "core.report.verification",
    "VerifyOptions": "verify_options",
}
"""The modules of the names that `api` does not define."""


def __getattr__(name: str) -> Any:
    """Import what is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)
