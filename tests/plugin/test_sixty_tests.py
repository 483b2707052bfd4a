"""Facts about a suite of sixty tests of all kinds, whatever their order and however many workers."""

from __future__ import annotations

import itertools
import os

import pytest
from processes import lasting_part

pytest_plugins = ["pytester"]

CONFTEST = """
    import os
    import random

    def pytest_collection_modifyitems(items):
        assert len(items) == 60
        random.Random(os.environ["ORDER"]).shuffle(items)
"""
DEPLOYS = """
    import os
    import pytest
    from mrtr_cassette.demo.server import create_app

    APPLICATION = create_app()
    OTHER = os.environ.get("OTHER", "")

    def deploy(cassette, env):
        text = cassette.call("deploy", {"env": str(env)}, answers={"confirm": True}).text
        assert text == f"Deployed to {env}"

    def only_at_last(request):
        assert request.node.execution_count == 2
"""
HEAD = """
    import unittest
    import pytest
    from deploys import APPLICATION, OTHER, deploy, only_at_last

    pytestmark = pytest.mark.mrtr_cassette({name}upstream=APPLICATION)
    envs = pytest.mark.parametrize("env", range(5))
    twice = pytest.mark.parametrize("time", range(2))
"""
KINDS = """
    @envs
    def test_passes({fixture}, env):
        deploy({fixture}, env)

    @twice
    def test_says_the_same({fixture}, time):
        deploy({fixture}, 2)

    def test_skips({fixture}):
        deploy({fixture}, "skipped")
        pytest.skip("later")

    @pytest.mark.skip
    def test_is_skipped({fixture}):
        raise NotImplementedError

    @pytest.mark.xfail(strict=True)
    def test_fails_as_expected({fixture}):
        deploy({fixture}, "xfailed")
        assert False

    @pytest.mark.flaky(reruns=1)
    def test_passes_at_last({fixture}, request):
        deploy({fixture}, "rerun")
        only_at_last(request)
"""
FAILURES = """
    def test_fails({fixture}):
        deploy({fixture}, "failed")
        assert False

    @pytest.mark.xfail(strict=True)
    def test_passes_unexpectedly({fixture}):
        deploy({fixture}, "passed")
"""
BROKEN = """
    @envs
    def test_passes({fixture}, env):
        deploy({fixture}, env)

    @pytest.mark.skip
    def test_is_skipped({fixture}):
        raise NotImplementedError
"""
OWN = """
    def test_swallows_a_miss(mrtr_cassette):
        try:
            deploy(mrtr_cassette, "known" + OTHER)
        except Exception:
            pass

    def test_has_its_fixture_by_name(request):
        deploy(request.getfixturevalue("mrtr_cassette"), "by name")

    @twice
    def test_opens_one_file(mrtr_cassettes, time):
        deploy(mrtr_cassettes("opened", upstream=APPLICATION), time)

    class UnitTest(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def opened(self, mrtr_cassette):
            self.cassette = mrtr_cassette

        def test_first(self):
            deploy(self.cassette, "first")

        def test_second(self):
            deploy(self.cassette, "second")
"""
CLASS = """
    class TestShared:
        @envs
        def test_passes(self, mrtr_cassette_class, env):
            deploy(mrtr_cassette_class, env)

        @pytest.mark.skip
        def test_is_skipped(self, mrtr_cassette_class):
            raise NotImplementedError

    class TestWithAFailure:
        @envs
        def test_fails_once(self, mrtr_cassette_class, env):
            deploy(mrtr_cassette_class, env)
            assert env != 3
"""
WRITTEN = {
    *("named", "opened", "test_class/TestShared", "test_module"),
    *("test_own/UnitTest.test_first", "test_own/UnitTest.test_second"),
    *("test_own/test_has_its_fixture_by_name", "test_own/test_passes_at_last"),
    *("test_own/test_swallows_a_miss", *(f"test_own/test_passes-{env}" for env in range(5))),
    *(f"test_own/test_says_the_same-{time}" for time in range(2)),
}
"""What is written: nothing of what failed, and no test's own cassette that did not pass."""

RECORDING = {"passed": 44, "failed": 5, "skipped": 8, "xfailed": 3, "rerun": 3}
ONCE = {**RECORDING, "errors": 1}
"""The miss."""

NONE = {"passed": 35, "failed": 13, "skipped": 7, "rerun": 3}
"""What needs a cassette and has none fails, in its call, and once more where its module ends."""

OUTCOMES = {"once": ONCE, "append": RECORDING, "all": RECORDING, "none": NONE}
RUNS = [("append", 0, 2), ("all", 2, 3), ("once", 0, 3), ("none", 0, 1), ("verify", 0, 2)]
"""Mode, workers and order; `SIXTY=MODE,…` in the environment has each with each of these modes."""

if os.environ.get("SIXTY"):
    RUNS = list(itertools.product(os.environ["SIXTY"].split(","), (0, 4), (1, 2, 3)))


class Sixty:
    """The suite, and what it has recorded."""

    def __init__(self, suite, monkeypatch):
        self.suite = suite
        self.monkeypatch = monkeypatch
        suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
        suite.write("conftest.py", CONFTEST)
        suite.write("deploys.py", DEPLOYS)
        own = KINDS + FAILURES
        for name, text, fixture, named in (
            ("own", own + OWN, "mrtr_cassette", ""),
            ("module", KINDS, "mrtr_cassette_module", ""),
            ("broken", BROKEN + FAILURES, "mrtr_cassette_module", ""),
            ("named", KINDS, "mrtr_cassette", '"named", '),
            ("class", CLASS, "", ""),
        ):
            tests = text.replace("{fixture}", fixture)
            suite.write(f"test_{name}.py", HEAD.format(name=named) + tests)

    def run(self, mode, workers, order):
        """Run it, and return what became of the tests."""
        self.monkeypatch.setenv("ORDER", str(order))
        # Nobody recorded what is asked for then.
        misses = mode in ("none", "once") and bool(self.cassettes())
        self.monkeypatch.setenv("OTHER", "other" if misses else "")
        options = ("-p", "no:cacheprovider", "-n", str(workers), f"--mrtr-mode={mode}")
        result = self.suite.pytester.runpytest(*options)
        told = "ERROR test_own.py::test_swallows_a_miss" in result.stdout.str()
        assert told is misses
        outcomes = result.parseoutcomes()
        untold = ("errors", "xfailed") if mode == "none" else ()
        return {
            what: count
            for what, count in outcomes.items()
            if "warning" not in what and what not in untold
        }

    def cassettes(self):
        """Return the bytes of each cassette; there is nothing but cassettes."""
        return {each: (self.suite.path / each).read_bytes() for each in self.suite.cassettes()}

    def lasting(self):
        """Return of each cassette what does not differ between runs."""
        return {each: lasting_part(self.suite.path / each) for each in self.suite.cassettes()}


@pytest.fixture
def sixty(suite, monkeypatch):
    """The suite of sixty tests."""
    return Sixty(suite, monkeypatch)


def test_order_and_workers_change_nothing(sixty):
    """Each mode makes of the suite the same cassettes, hides no miss, and loses nothing."""
    assert sixty.run("once", 0, 1) == RECORDING
    assert {name.removeprefix("cassettes/")[:-5] for name in sixty.cassettes()} == WRITTEN
    recorded = sixty.lasting()
    verified = []
    for mode, workers, order in RUNS:
        before = sixty.cassettes()
        outcomes = sixty.run(mode, workers, order)
        assert sixty.lasting() == recorded, (mode, workers, order)
        if mode != "all":
            assert sixty.cassettes() == before, (mode, workers, order)
        if mode == "verify":
            outcomes.pop("deselected", None)
            verified.append(outcomes)
        else:
            assert outcomes == OUTCOMES[mode], (mode, workers, order)
    assert all(outcomes == verified[0] for outcomes in verified)


def test_workers_record_from_nothing_what_one_process_does(sixty):
    """The first run of all, in another order."""
    sixty.run("once", 0, 1)
    recorded = sixty.lasting()
    for name in recorded:
        (sixty.suite.path / name).unlink()
    assert sixty.run("once", 2, 2) == RECORDING
    assert sixty.lasting() == recorded
