from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def programs_are_forked(request: pytest.FixtureRequest) -> None:
    """Fork the programs that tests start, unless it is their start that is tested."""
    if request.path.name != "test_start.py":
        request.getfixturevalue("forks_programs")
