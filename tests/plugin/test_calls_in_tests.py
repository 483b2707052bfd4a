"""Facts about tests that call a server without a client."""

from __future__ import annotations

import sys

import pytest
from processes import PEERS

pytest_plugins = ["pytester"]


def test_fixture_calls_over_pipes_too(pytester: pytest.Pytester) -> None:
    """The marker's answers hold for the calls of its test; what is recorded is replayed."""
    server = [sys.executable, str(PEERS / "server_python.py"), "--stdio"]
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.mrtr_cassette(upstream={server!r}, answers={{"confirm": True}})
        def test_deploy(mrtr_cassette):
            result = mrtr_cassette.call("deploy", {{"env": "production"}})
            assert result.text == "Deployed to production"
    """)
    for mode in ("once", "none"):
        pytester.runpytest("-q", f"--mrtr-mode={mode}").assert_outcomes(passed=1)
