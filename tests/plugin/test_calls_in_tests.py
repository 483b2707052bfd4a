"""Facts about tests that call a server without a client."""

from __future__ import annotations

import sys

import pytest
from processes import PEERS
from suites import Suite

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


def test_answer_that_no_call_of_a_test_needs_is_told(suite: Suite) -> None:
    """Those of the marker are for all of its calls; a question without an answer is a failure."""
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    suite.write(
        "test_one.py",
        """
        import pytest
        from agent import APPLICATION

        PRODUCTION = {"env": "production"}

        @pytest.mark.mrtr_cassette(upstream=APPLICATION, answers={"confirm": True, "spare": 1})
        def test_deploy(mrtr_cassette):
            assert not mrtr_cassette.call("add", {"a": 1, "b": 2}).is_error
            mrtr_cassette.call("deploy", PRODUCTION)
            mrtr_cassette.call("deploy", PRODUCTION, answers={"confirm": True, "more": 1})

        @pytest.mark.mrtr_cassette(upstream=APPLICATION)
        def test_mistyped(mrtr_cassette):
            mrtr_cassette.call("deploy", PRODUCTION, answers={"confrim": True})
        """,
    )

    result = suite.run(passed=1, failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*UnansweredError: turn 1 is not answered: 'confirm': nothing answers it; *'confrim'",
            "*MrtrCassetteWarning: nothing asked for the answer 'more' or 'spare'",
        ]
    )


def test_fixture_probes_the_upstream_with_what_is_recorded(suite: Suite) -> None:
    """While recording with the calls so far, on replay with the cassette; a finding has a text."""
    suite.write(
        "test_one.py",
        """
        import sys
        import mrtr_cassette
        import pytest
        from agent import APPLICATION

        COMMAND = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "{port}"]

        @pytest.mark.parametrize("upstream", [APPLICATION, COMMAND], ids=["app", "command"])
        def test_deploy(upstream, mrtr_cassettes, tmp_path):
            cassette = mrtr_cassettes(f"c-{type(upstream).__name__}", upstream=upstream)
            cassette.call("deploy", {"env": "production"}, answers={"confirm": True})
            probing = cassette.probe(timeout=20)
            assert probing.is_good, probing.text
            assert "unprotected" in probing.counts
            branches = tmp_path / "branches.json"
            unprotected = cassette.probe(fail_on=["unprotected"], record=branches)
            assert not unprotected.is_good
            with mrtr_cassette.replay(branches) as replay:
                result = replay.call(
                    "deploy", {"env": "production"}, answers={"confirm": False}
                )
                assert result.text == "Deployment cancelled"

        @pytest.mark.mrtr_cassette(upstream=APPLICATION)
        def test_too_early(mrtr_cassette):
            with pytest.raises(Exception, match="nothing is recorded"):
                mrtr_cassette.probe()
            pytest.skip("that is all")
        """,
    )

    suite.run("--mrtr-mode=once", passed=2, skipped=1)
    suite.run("--mrtr-mode=none", "-k", "deploy", passed=2, deselected=1)
    suite.write(
        "test_probe_alone.py",
        """
        import pytest
        from agent import APPLICATION

        @pytest.mark.mrtr_cassette("c-list", upstream=APPLICATION)
        def test_probe_alone(mrtr_cassette):
            assert mrtr_cassette.probe(timeout=20).is_good
        """,
    )
    suite.run("--mrtr-mode=none", "-k", "alone", passed=1, deselected=3, warnings=0)
