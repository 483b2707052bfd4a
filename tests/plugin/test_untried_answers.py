"""Facts about the answers that no cassette of a run has."""

from __future__ import annotations

import json

from suites import ONE_TEST

pytest_plugins = ["pytester"]

CANCELS = """
    import pytest
    from agent import APPLICATION, deploy

    @pytest.mark.mrtr_cassette(upstream=APPLICATION)
    def test_more(mrtr_cassette):
        answers = {"confirm": {"action": "ACTION"}}
        mrtr_cassette.call("deploy", {"env": "test"}, answers=answers)
"""
LINE = "mrtr-cassette: never tried: decline on any question, cancel on any question*"


def test_a_run_tells_which_answers_none_of_its_cassettes_has(suite):
    """A question that each cassette has counts once, and the workers' add up."""
    suite.write("test_one.py", ONE_TEST)
    suite.write("test_two.py", ONE_TEST)
    for options in ((), ("-n", "2")):
        result = suite.run(*options, passed=2)
        result.stdout.fnmatch_lines([LINE])

        assert result.stdout.str().count("never tried") == 1


def test_a_run_with_all_answers_tells_nothing(suite):
    """Accept, decline and cancel may be in different cassettes."""
    suite.write("test_one.py", ONE_TEST)
    suite.write("test_two.py", CANCELS.replace("ACTION", "decline"))
    suite.write("test_three.py", CANCELS.replace("ACTION", "cancel"))
    result = suite.run(passed=3)

    assert "never" not in result.stdout.str()

    (path, *_) = suite.path.glob("cassettes/test_one/*.json")

    assert json.loads(path.read_bytes())["interactions"]
