"""Every input that the fuzzer found worth keeping, and every one written by hand, keeps the laws."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS_BY_NAME

CORPUS = Path(__file__).parent / "corpus"
INPUTS = []
for target in TARGETS_BY_NAME:
    for path in sorted((CORPUS / target).iterdir()):
        INPUTS.append(pytest.param(target, path, id=f"{target}-{path.name}"))


@pytest.mark.parametrize(("target", "path"), INPUTS)
def test_input_keeps_the_laws(target: str, path: Path) -> None:
    """An input of the corpus breaks no law of its target."""
    TARGETS_BY_NAME[target](path.read_bytes())
