"""Facts about cassettes that several tests share, and about which recordings are kept."""

from __future__ import annotations

import pytest
from processes import lasting_part

pytest_plugins = ["pytester"]

DEPLOYS = """
    from mrtr_cassette.demo.server import create_app

    APPLICATION = create_app()

    def deploy(cassette, env="test"):
        text = cassette.call("deploy", {"env": env}, answers={"confirm": True}).text
        assert text == f"Deployed to {env}"
"""
HEAD = """
    import pytest
    from deploys import APPLICATION, deploy

    pytestmark = pytest.mark.mrtr_cassette({name}upstream=APPLICATION)
"""
PAIR = """
    def test_a(mrtr_cassette_module):
        deploy(mrtr_cassette_module, "a")

    def test_b(mrtr_cassette_module):
        deploy(mrtr_cassette_module, "b")
"""
NAMED = PAIR.replace("mrtr_cassette_module", "mrtr_cassette")


@pytest.fixture
def suite(suite):
    """A project whose tests deploy without a client of their own."""
    suite.write("deploys.py", DEPLOYS)
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    return suite


def write(suite, *parts, name=""):
    """Write the test file."""
    suite.write("test_it.py", HEAD.format(name=f'"{name}", ' if name else "") + "".join(parts))


def envs(suite, name):
    """Return what the calls of a cassette deploy to, in their order."""
    bodies = [each["request"]["body"]["params"] for each in suite.cassette(name)["interactions"]]
    return [each["arguments"]["env"] for each in bodies if "arguments" in each]


def fails(function):
    """Return a test's source that fails after what it does."""
    return function + "        assert False\n"


# --- Shared by a class or a module ---


def test_module_recorded_by_workers_is_as_one_process_records_it(suite):
    """Equal calls of several tests all stand in it, in the order of the tests, however they ran."""
    again = PAIR.replace("test_", "test_again_")
    write(suite, PAIR, again)
    suite.run(passed=4)
    path = suite.path / "cassettes/test_it.json"
    one = lasting_part(path)
    suite.write("conftest.py", "def pytest_collection_modifyitems(items): items.reverse()")
    for options in (("-n", "2", "--dist=load"), ()):
        path.unlink()
        suite.run("--mrtr-mode=once", *options, passed=4)
        assert lasting_part(path) == one
    before = path.stat().st_mtime_ns
    kept = suite.run("--mrtr-mode=all", passed=4)
    kept.stdout.fnmatch_lines(["mrtr-cassette: 1 same, kept"])
    assert path.stat().st_mtime_ns == before
    suite.run("--mrtr-mode=none", "--mrtr-fail-on-unplayed", passed=4)


SKIPS = """
    def test_skips(mrtr_cassette_module):
        pytest.skip("later")

    @pytest.mark.xfail(strict=True)
    def test_is_expected_to_fail(mrtr_cassette_module):
        deploy(mrtr_cassette_module, "x")
        assert False

    @pytest.mark.flaky(reruns=1)
    def test_passes_at_last(mrtr_cassette_module, request):
        deploy(mrtr_cassette_module, "again")
        assert request.node.execution_count == 2
"""
OUTCOMES = {"passed": 3, "skipped": 1, "xfailed": 1}


def test_skips_and_expected_failures_and_reruns_do_not_keep_a_cassette_from_being_written(suite):
    """What counts is the last attempt of each test, and whether it failed."""
    write(suite, PAIR, SKIPS)
    suite.run("-n", "2", **OUTCOMES)
    assert envs(suite, "test_it.json") == ["a", "b", "x", "again", "again"]
    before = lasting_part(suite.path / "cassettes/test_it.json")
    suite.run("--mrtr-mode=all", **OUTCOMES)
    assert lasting_part(suite.path / "cassettes/test_it.json") == before
    more = PAIR.replace("test_", "test_more_").replace('"a"', '"d"').replace('"b"', '"c"')
    write(suite, PAIR, SKIPS, more)
    suite.run("--mrtr-mode=append", **{**OUTCOMES, "passed": 5})
    assert set(envs(suite, "test_it.json")) >= {"a", "b", "x", "again", "c", "d"}
    suite.run("--mrtr-mode=none", **{**OUTCOMES, "passed": 5})


def test_skip_does_not_take_from_a_cassette_what_it_has(suite):
    """In mode all a test that is skipped this time would lose its calls: the old file stays."""
    write(suite, PAIR)
    suite.run(passed=2)
    before = (suite.path / "cassettes/test_it.json").read_bytes()
    write(suite, PAIR.replace("    def test_b", "    @pytest.mark.skip\n    def test_b"))
    result = suite.run("--mrtr-mode=all", passed=1, skipped=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*Warning: *test_it.json was not replaced: this run has not recorded * calls that it has (*"
        ]
    )
    assert (suite.path / "cassettes/test_it.json").read_bytes() == before


# --- Named by several tests ---


def test_later_tests_add_to_a_cassette_that_this_run_records(suite):
    """Of tests that name one file by the marker each adds what is missing, alone and with workers."""
    write(suite, NAMED, name="shared.json")
    for mode, *options in (("once",), ("all", "-n", "2"), ("append",), ("none",)):
        suite.run(f"--mrtr-mode={mode}", *options, passed=2)
        assert sorted(envs(suite, "shared.json")) == ["a", "b"]


@pytest.mark.parametrize(
    ("test", "name"), [(NAMED, "shared.json"), (PAIR, "")], ids=["named", "module"]
)
def test_mode_all_does_not_replace_a_whole_by_a_part(suite, test, name):
    """For some of the tests that share a file it is refused, with the ways out."""
    write(suite, test, name=name)
    suite.run(passed=2)
    path = suite.path / "cassettes" / (name or "test_it.json")
    before = path.read_bytes()
    part = (("-k", "test_a"), ("--deselect", "test_it.py::test_b"), ("test_it.py::test_a",))
    for options in part:
        result = suite.run("--mrtr-mode=all", *options)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(
            [f"{path} was not replaced: this run has not recorded*", "*append*"]
        )
        assert path.read_bytes() == before


def test_miss_on_a_shared_cassette_recommends_nothing_that_loses(suite):
    """The hint to record anew is for all tests that share the file."""
    write(suite, NAMED, name="shared.json")
    suite.run(passed=2)
    write(suite, NAMED.replace('"b")', '"c")'), name="shared.json")
    result = suite.run(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*--mrtr-mode=all *, in a run of all tests that share it"])
    suite.run("--mrtr-mode=append", passed=2)
    suite.run("--mrtr-mode=none", passed=2)


# --- A test's own ---


@pytest.mark.parametrize(("outcome", "call"), [("skipped", "skip"), ("xfailed", "xfail")])
def test_discarded_recording_is_told_with_the_test_and_the_reason(suite, outcome, call):
    """A recording that nobody keeps though nothing failed is a warning."""
    write(suite, NAMED, f"        pytest.{call}('later')\n")
    result = suite.run(passed=1, warnings=1, **{outcome: 1})
    result.stdout.fnmatch_lines(
        [
            f"*MrtrCassetteWarning: *test_b.json was not written: the test was {outcome}, and *",
            f"mrtr-cassette: 1 discarded (test {outcome}), 1 recorded",
        ]
    )
    assert suite.cassettes() == ["cassettes/test_it/test_a.json"]
