from __future__ import annotations

import pytest

import mrtr_cassette


def test_public_names_are_these():
    """What a user may import from the package, errors included."""
    assert mrtr_cassette.__all__ == [
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


@pytest.mark.parametrize("name", mrtr_cassette.__all__)
def test_a_public_name_is_what_it_says(name):
    """Each can be imported, and is described."""
    value = getattr(mrtr_cassette, name)

    assert value.__name__ == name
    assert value.__doc__
