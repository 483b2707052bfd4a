"""The table of docs/pytest.md: what becomes of cassettes by mode and by what tests come to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import lasting_part

import mrtr_cassette
from mrtr_cassette.options import ReplayOptions, VerifyOptions
from mrtr_cassette.testing.suite_cassette import CassetteUse

pytest_plugins = ["pytester"]

GUIDE = Path(mrtr_cassette.__file__).parents[1] / "docs" / "pytest.md"
HEAD = """
    import os
    import pytest
    from mrtr_cassette.demo.server import create_app

    APPLICATION = create_app()
    CALM, MORE = (name in os.environ for name in ("CALM", "MORE"))

    pytestmark = pytest.mark.mrtr_cassette(upstream=APPLICATION)

    def calls(cassette):
        for env in ("a", "b") if MORE else ("a",):
            cassette.call("deploy", {"env": env}, answers={"confirm": True})
"""
ENDS = {
    "passed": "pass",
    "failed": "assert CALM",
    "skipped": "CALM or pytest.skip('later')",
    "xfailed": "CALM or pytest.xfail('known')",
    "rerun": "assert CALM or request.node.execution_count == 2",
}
MODES = ("once, no file", "once", "append", "all")


@pytest.fixture
def suite(suite, monkeypatch):
    """A module for each outcome, with one test of its own cassette and two that share one."""
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    for outcome, end in ENDS.items():
        suite.write(
            f"test_{outcome}.py",
            HEAD
            + f"""
    @pytest.mark.flaky(reruns={int(outcome == "rerun")})
    @pytest.mark.parametrize("fixture", ["mrtr_cassette", "mrtr_cassette_module"])
    def test_it(request, fixture):
        calls(request.getfixturevalue(fixture))
        {end}

    def test_other(mrtr_cassette_module):
        calls(mrtr_cassette_module)
""",
        )

    return suite


def table():
    """Return the table of the guide, by kind of cassette, outcome and mode."""
    rows = [
        line
        for line in GUIDE.read_text().splitlines()
        if line.startswith(("| own", "| shared"))
    ]

    found = {}
    for row in rows:
        kind, outcomes, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        for outcome in outcomes.split(", "):
            for mode, cell in zip(MODES, cells, strict=True):
                found[kind, outcome, mode] = cell

    return found


GIVEN_UP = """
    import pytest
    from mrtr_cassette.demo.server import create_app

    pytestmark = pytest.mark.mrtr_cassette(upstream=create_app())

    {marker}
    @pytest.mark.xfail(raises=AssertionError)
    def test_known(mrtr_cassette):
        mrtr_cassette.call("deploy", {{"env": "a"}}, answers={{"confirm": True}})
        assert 0

    {marker}
    def test_later(mrtr_cassette):
        mrtr_cassette.call("deploy", {{"env": "a"}}, answers={{"confirm": True}})
        pytest.skip("later")
"""


def test_advice_for_a_test_that_never_passes_works(suite):
    """The error and the warning say which marker has its cassette written, and that has it."""
    for path in suite.path.glob("test_*.py"):
        path.unlink()

    suite.write("test_up.py", GIVEN_UP.format(marker=""))
    cassettes = suite.path / "cassettes"
    outcomes = {"passed": 0, "xfailed": 1}
    missing = suite.run("--mrtr-mode=none", failed=2, passed=0).stdout.str()
    said = suite.run("--mrtr-mode=once", skipped=1, **outcomes).stdout.str()

    assert not list(cassettes.rglob("*.json"))
    assert '@pytest.mark.mrtr_cassette("test_known.json")' in missing

    advice = '@pytest.mark.mrtr_cassette("test_later.json")'

    assert advice in said

    suite.write("test_up.py", GIVEN_UP.format(marker=advice))
    for mode in ("once", "none"):
        suite.run(f"--mrtr-mode={mode}", skipped=1, **outcomes)

        assert (cassettes / "test_later.json").exists()


def test_guide_says_what_becomes_of_cassettes(suite, monkeypatch):
    """Each cell of the table is what a run does, and two modes leave all cassettes alone."""
    folder = suite.path / "cassettes"
    places = {
        **{
            ("own", end): folder / f"test_{end}/test_it-mrtr_cassette.json"
            for end in ENDS
        },
        **{("shared", end): folder / f"test_{end}.json" for end in ENDS},
    }

    def run(mode):
        options = ("-p", "no:cacheprovider", f"--mrtr-mode={mode}")
        return suite.pytester.runpytest(*options).stdout.str()

    found = {}
    said = run("once")
    for key, path in places.items():
        warns = ", warns" * (
            f"Warning: {path} was not written: the test was {key[1]}, and" in said
        )
        found[*key, "once, no file"] = (
            "written" if path.exists() else "not written"
        ) + warns
        path.unlink(missing_ok=True)

    monkeypatch.setenv("CALM", "")
    run("once")
    monkeypatch.delenv("CALM")
    recorded = {
        key: (path.read_bytes(), lasting_part(path)) for key, path in places.items()
    }
    for mode in {*MODES, "none", "verify"} - {"once, no file"}:
        if mode in ("append", "all"):
            monkeypatch.setenv("MORE", "")

        said = run(mode)
        monkeypatch.delenv("MORE", raising=False)
        for key, path in places.items():
            before, lasting = recorded[key]
            warns = ", warns" * (f"Warning: {path} was not written" in said)
            changed = "added to" if mode == "append" else "replaced"
            found[*key, mode] = (
                "as it was" if path.read_bytes() == before else changed
            ) + warns
            if path.read_bytes() != before:
                assert lasting_part(path) != lasting

            path.write_bytes(before)

    for key in places:
        assert found.pop((*key, "none")) == found.pop((*key, "verify")) == "as it was"

    assert found == table()


@pytest.mark.skipif(
    not hasattr(pytest, "Subtests"), reason="pytest has no subtests before version 9"
)
def test_only_a_failed_subtest_decides_on_the_cassette_of_its_test(suite):
    """Other subtests may be skipped, or fail as expected; what the test itself comes to counts."""
    for path in suite.path.glob("test_*.py"):
        path.unlink()

    suite.write(
        "test_parts.py",
        HEAD
        + """
    import unittest

    ENDS = {"skipped": pytest.skip, "xfailed": pytest.xfail, "failed": pytest.fail}
    ENDS["passed"] = str

    @pytest.mark.parametrize("fixture", ["mrtr_cassette", "mrtr_cassette_class"])
    @pytest.mark.parametrize("end", ENDS)
    def test_it(request, subtests, fixture, end):
        calls(request.getfixturevalue(fixture))
        with subtests.test("part"):
            ENDS[end]("part")

    def test_skipped_itself(mrtr_cassette, subtests):
        calls(mrtr_cassette)
        with subtests.test("part"):
            pass

        pytest.skip("all")

    class TestUnit(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def calling(self, mrtr_cassette):
            calls(mrtr_cassette)

        def test_it(self):
            with self.subTest("part"):
                self.skipTest("part")
    """,
    )

    suite.pytester.runpytest("-p", "no:cacheprovider", "--mrtr-mode=once")
    written = {Path(name).stem for name in suite.cassettes()}
    expected = {"TestUnit.test_it"}
    for end in ("passed", "skipped", "xfailed"):
        expected.add(f"test_it-{end}-mrtr_cassette")
        expected.add(f"test_it-{end}-mrtr_cassette_class")

    assert written == expected


class Told(CassetteUse):
    """A use whose misses and unrecorded requests are given."""

    def _start_use(self, running):
        return SimpleNamespace(misses=(), unrecorded=("u",))


def test_misses_and_unrecorded_requests_are_told_once_each():
    """A miss that comes after a request that could not be recorded is told by itself."""
    settings = SimpleNamespace(replay=ReplayOptions(), verify=VerifyOptions())
    use = Told(SimpleNamespace(path=Path("c.json"), settings=settings))
    unrecorded = use.unreported_misses()
    use.view.misses = (SimpleNamespace(text="m", reason="r", request="q"),)
    missed = use.unreported_misses()

    assert unrecorded.startswith(
        "the live server asks something else\n\nu\n\n1 request"
    )
    assert missed == "miss: r: q\n\nm\n\n1 request had no recorded answer on c.json"
    assert use.unreported_misses() is None
