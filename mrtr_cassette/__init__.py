"""Record and replay MCP conversations whose calls ask for input half-way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrtr_cassette.api import call, diff, merge, probe, record, replay, verify
    from mrtr_cassette.core.compare.conversations import (
        CassetteComparison,
        InteractionComparison,
        Stage,
    )
    from mrtr_cassette.core.compare.values import Change
    from mrtr_cassette.core.drive.script import TurnChange
    from mrtr_cassette.core.drive.verdicts import Probed
    from mrtr_cassette.core.drive.verification import VerifiedInteraction
    from mrtr_cassette.core.protocol.hooks import ClientRequest
    from mrtr_cassette.core.report.comparison import Verification
    from mrtr_cassette.core.report.details import Interaction, Turn
    from mrtr_cassette.core.report.probes import Probing
    from mrtr_cassette.core.report.runs import (
        CallResult,
        MissesError,
        MissReport,
        UnansweredError,
        UnplayedError,
        UnpublishedError,
    )
    from mrtr_cassette.errors import (
        CassetteError,
        MrtrCassetteError,
        UpstreamError,
        UsageError,
    )
    from mrtr_cassette.options import (
        CallOptions,
        ProbeOptions,
        RecordOptions,
        ReplayOptions,
        VerifyOptions,
    )
    from mrtr_cassette.shell.runs.views import MrtrCassette, Recording, Replay

__version__ = "1.0.0"
__all__ = [
    "CallOptions",
    "CallResult",
    "CassetteComparison",
    "CassetteError",
    "Change",
    "ClientRequest",
    "Interaction",
    "InteractionComparison",
    "MissReport",
    "MissesError",
    "MrtrCassette",
    "MrtrCassetteError",
    "ProbeOptions",
    "Probed",
    "Probing",
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
    "probe",
    "record",
    "replay",
    "verify",
]
_NAMES_BY_MODULE = {
    "core.compare.conversations": (
        "CassetteComparison",
        "InteractionComparison",
        "Stage",
    ),
    "core.compare.values": ("Change",),
    "core.drive.verdicts": ("Probed",),
    "core.drive.verification": ("TurnChange", "VerifiedInteraction"),
    "core.protocol.hooks": ("ClientRequest",),
    "core.report.comparison": ("Verification",),
    "core.report.details": ("Interaction", "Turn"),
    "core.report.probes": ("Probing",),
    "core.report.runs": (
        "CallResult",
        "MissReport",
        "MissesError",
        "UnansweredError",
        "UnplayedError",
        "UnpublishedError",
    ),
    "errors": ("CassetteError", "MrtrCassetteError", "UpstreamError", "UsageError"),
    "options": (
        "CallOptions",
        "ProbeOptions",
        "RecordOptions",
        "ReplayOptions",
        "VerifyOptions",
    ),
    "shell.runs.views": ("MrtrCassette", "Recording", "Replay"),
}
"""Where the names are defined that `api` does not define."""


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that the import of the package alone costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    module = next(
        (module for module, names in _NAMES_BY_MODULE.items() if name in names), "api"
    )
    return getattr(import_module(f"{__name__}.{module}"), name)
