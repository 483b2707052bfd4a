"""Facts about the faults that a test's marker lays over its replay."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TEST = """
    import pytest
    from agent import deploy
    import mrtr_cassette as library

    @pytest.mark.mrtr_cassette("deploy.json", faults=[{FAULT}])
    def test_deploy(mrtr_cassette):
        first = library.call(mrtr_cassette.url, "deploy", {"env": "test"}, answers={"confirm": True})
        assert first.problem is not None or first.error is not None
        assert deploy(mrtr_cassette.url) == "Deployed to test"
        assert mrtr_cassette.faults[0].times == 1
"""


@pytest.mark.parametrize(
    "fault",
    [
        '{"tool": "deploy", "turn": 0, "occurrence": 1, "status": 503}',
        '{"tool": "deploy", "turn": 1, "occurrence": 1, "drop": "head"}',
    ],
)
def test_a_client_that_tries_again_passes(suite, recorded, fault):
    """The call that met the fault is still there to be played."""
    suite.write("test_one.py", TEST.replace("{FAULT}", fault))
    path = suite.path / "cassettes" / "deploy.json"
    path.parent.mkdir()
    path.write_bytes(recorded.read_bytes())
    suite.run("--mrtr-fail-on-unplayed")


def test_a_fault_that_nothing_met_fails_its_test(suite, recorded):
    """It is told as a problem of the test; a wrong key is one before the test runs."""
    path = suite.path / "cassettes" / "deploy.json"
    path.parent.mkdir()
    path.write_bytes(recorded.read_bytes())
    calls = """
        import pytest
        from agent import deploy

        @pytest.mark.mrtr_cassette("deploy.json", faults=[{"tool": "dploy", "KEY": 3}])
        def test_deploy(mrtr_cassette):
            deploy(mrtr_cassette.url)
    """

    suite.write("test_one.py", calls.replace("KEY", "delay"))
    result = suite.run(passed=1, errors=1)

    assert "nothing met fault 1 (tool dploy, delay 3)" in result.stdout.str()

    suite.write("test_one.py", calls.replace("KEY", "dely"))
    result = suite.run(errors=1)

    assert "faults, fault 1 has no key 'dely'" in result.stdout.str()
