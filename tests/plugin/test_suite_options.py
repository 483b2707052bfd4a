"""Facts about what a test suite says of its cassettes: files, options, ini values."""

from __future__ import annotations

import json

import pytest
from suites import ONE_TEST

from mrtr_cassette.testing import uses
from mrtr_cassette.testing.names import cassettes_of

pytest_plugins = ["pytester"]

# --- Files ---


def test_the_ini_moves_all_cassettes_into_one_folder(suite):
    """Test files of one name in two folders have cassettes of their own there too."""
    suite.write(
        "pytest.ini", "[pytest]\nmrtr_cassette_dir = data/tapes\npythonpath = .\n"
    )
    suite.write("unit/test_one.py", ONE_TEST)
    suite.write(
        "slow/test_one.py",
        ONE_TEST.replace("upstream=APPLICATION", '"shared.json", upstream=APPLICATION'),
    )

    suite.run("--import-mode=importlib", passed=2)
    tapes = suite.path / "data/tapes"
    found = sorted(str(path.relative_to(tapes)) for path in tapes.rglob("*.json"))

    assert found == ["shared.json", "unit/test_one/test_deploy.json"]


def test_wrong_name_fails_only_its_own_test(suite, recorded):
    """Each is told in one line, and other tests of the run still share a cassette."""
    wrong = (
        "cassette=[]",
        "cassette=None",
        "name='deploy'",
        "beside=['deploy']",
        f"'{300 * 'n'}'",
        f"'{245 * 'n'}'",
        "'a\\0b'",
    )
    tests = []
    for number, arguments in enumerate(wrong):
        tests.append(
            f"""
        @pytest.mark.mrtr_cassette({arguments})
        def test_{number}(mrtr_cassette):
            pass
            """
        )

    suite.write("cassettes/deploy.json", recorded.read_text())
    suite.write(
        "test_one.py",
        ONE_TEST.replace("upstream", "'deploy', upstream")
        + "".join(tests).replace("\n        ", "\n    "),
    )
    result = suite.run("--mrtr-orphans=list", "--tb=short", passed=1, errors=len(wrong))
    told = [line for line in result.outlines if line.startswith("ERROR ")]

    assert "INTERNALERROR" not in result.stdout.str()
    assert all(" - Failed: " in line for line in told)


def test_folder_in_the_ini_is_one_name(suite):
    """A list is refused before any test runs."""
    (suite.path / "pytest.ini").unlink()
    suite.write("test_one.py", ONE_TEST)
    suite.write(
        "pyproject.toml",
        """
        [tool.pytest.ini_options]
        mrtr_cassette_dir = ["tapes"]
        """,
    )
    result = suite.pytester.runpytest("-p", "no:cacheprovider", "-W", "ignore")

    assert result.ret == pytest.ExitCode.USAGE_ERROR

    result.stderr.fnmatch_lines(
        ["ERROR: the ini value mrtr_cassette_dir *, and not [[]'tapes']"]
    )


@pytest.fixture
def with_orphan(suite, recorded):
    """A suite with a cassette that no test uses, others that are used, and a foreign file."""
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    suite.write("test_one.py", ONE_TEST)
    suite.write(
        "test_more.py",
        """
        def test_more(mrtr_cassettes):
            mrtr_cassettes("opened.json")
        """,
    )

    for name in ("test_one/test_deploy.json", "test_one/test_gone.json", "opened.json"):
        path = suite.path / "cassettes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(recorded.read_bytes())

    suite.write("cassettes/foreign.json", "{}")
    return suite


ORPHAN = "cassettes/test_one/test_gone.json"


def test_orphans_are_listed_or_fail_a_run(with_orphan):
    """Cassettes that no collected test uses are named; other files, and those in use, are not."""
    for action, code in (
        ("list", pytest.ExitCode.OK),
        ("fail", pytest.ExitCode.TESTS_FAILED),
    ):
        result = with_orphan.run(f"--mrtr-orphans={action}", passed=2)
        listed = [line for line in result.outlines if line.startswith("cassettes/")]

        assert (listed, result.ret) == ([ORPHAN], code)

    (with_orphan.path / ORPHAN).unlink()
    result = with_orphan.run("--mrtr-orphans=fail", passed=2)
    result.stdout.fnmatch_lines(["none"])

    assert result.ret == 0


@pytest.mark.parametrize("is_skipped", [True, False], ids=["skipped", "played"])
def test_cassettes_that_are_played_as_one_are_no_orphans(
    with_orphan, recorded, is_skipped
):
    """All of them are noted at collection; the folder that their names start from may not exist."""
    first_line = "pytest.skip()" if is_skipped else "pass"
    with_orphan.write(
        "unit/test_several.py",
        f"""
        import pytest

        NAMES = ["../../cassettes/first", "../../cassettes/second.json"]

        @pytest.mark.mrtr_cassette(cassette=NAMES)
        def test_several(mrtr_cassette):
            {first_line}
            calls = [played.call for played in mrtr_cassette.interactions]
            assert calls.count('tools/call "deploy"') == 2, calls
        """,
    )
    for name in ("first", "second"):
        path = with_orphan.path / f"cassettes/{name}.json"
        path.write_bytes(recorded.read_bytes())

    result = with_orphan.run(
        "--mrtr-orphans=list", passed=3 - is_skipped, skipped=int(is_skipped)
    )

    assert [line for line in result.outlines if line.startswith("cassettes/")] == [
        ORPHAN
    ]


LEAVES_OUT = "pytest.skip('later', allow_module_level=True)"


@pytest.mark.parametrize(
    ("line", "reason", "workers"),
    [
        (LEAVES_OUT, "test_more.py was not *", 0),
        (LEAVES_OUT, "test_more.py was not *", 1),
        ("def test_it(mrtr_cassettes): pytest.skip()", "*::test_it was skipped", 0),
        ("def test_it(mrtr_cassettes): pass", "*::test_it was deselected", 0),
        ("def test_it(mrtr_cassettes): pytest.xfail()", "*::test_it was xfailed", 0),
        ("def test_it(mrtr_cassettes): assert 0", "*::test_it failed", 0),
    ],
    ids=["module", "module of a worker", "test", "deselected", "xfailed", "failed"],
)
def test_no_orphans_are_told_where_names_are_unknown(
    with_orphan, line, reason, workers
):
    """A module, or a test that would open cassettes by name, did not run."""
    with_orphan.write("test_more.py", f"import pytest\n{line}")
    outcomes = {"passed": 1}
    deselecting = []
    if "deselected" in reason:
        deselecting = ["-k", "test_deploy"]
    elif reason.endswith("xfailed"):
        outcomes["xfailed"] = 1
    elif reason.endswith("failed"):
        outcomes["failed"] = 1
    else:
        outcomes["skipped"] = 1

    options = ("--mrtr-orphans=fail", *deselecting, "-n", str(workers))
    result = with_orphan.run(*options, **outcomes)

    assert result.ret == int("failed" in outcomes)

    result.stdout.fnmatch_lines([f"unknown: {reason}"])


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("-x", "test_more.py::test_more was not run"),
        ("--collect-only", "no test was run"),
    ],
)
def test_no_orphans_are_told_where_tests_did_not_run(with_orphan, option, reason):
    """A run that stops early, or only collects, doesn't know what tests open by name."""
    with_orphan.write("test_early.py", "def test_early(): assert 0")
    outcomes = {"failed": 1} if option == "-x" else {"passed": 0}
    result = with_orphan.run("--mrtr-orphans=fail", option, **outcomes)

    assert result.ret == int(option == "-x")

    result.stdout.fnmatch_lines([f"unknown: {reason}"])


def test_cassette_that_any_process_of_the_run_opened_is_no_orphan(
    with_orphan, recorded
):
    """Tests that use the library, or start a program that does, use their cassettes too."""
    for name in ("library.json", "program.json"):
        (with_orphan.path / "cassettes" / name).write_bytes(recorded.read_bytes())

    with_orphan.write(
        "test_unit.py",
        """
        import subprocess
        import sys
        import unittest
        import mrtr_cassette

        class OpeningTest(unittest.TestCase):
            def test_library(self):
                with mrtr_cassette.replay("cassettes/library.json"):
                    pass

            def test_program(self):
                program = [sys.executable, "-m", "mrtr_cassette", "inspect"]
                subprocess.run([*program, "cassettes/program.json"], check=True)
        """,
    )

    result = with_orphan.run("--mrtr-orphans=list", "-n", "2", passed=4)

    assert [line for line in result.outlines if line.startswith("cassettes/")] == [
        ORPHAN
    ]


def test_cassettes_of_all_tests_are_found_once(pytester, monkeypatch):
    """However many tests lack theirs: a suite may have thousands, and each of them is looked at."""
    found = []

    def counted(items):
        found.append(len(items))
        return cassettes_of(items)

    monkeypatch.setattr(uses, "cassettes_of", counted)
    pytester.makepyfile(
        test_two="def test_a(mrtr_cassette): mrtr_cassette.url\n"
        "def test_b(mrtr_cassette): mrtr_cassette.url\n"
    )
    ran = pytester.inline_run("-p", "no:cacheprovider", "--mrtr-mode=none")

    assert ran.countoutcomes() == [0, 0, 2]
    assert found == [2]


def test_renamed_test_is_told_of_its_old_cassette(with_orphan):
    """The error for a missing cassette names one that no test uses and that has nearly its name."""
    folder = with_orphan.path / "cassettes/test_one"
    (folder / "test_deploy.json").unlink()
    result = with_orphan.run("--mrtr-mode=none", "test_one.py", failed=1)
    old = folder / "test_gone.json"
    new = folder / "test_deploy.json"

    assert f"no test uses {old}" not in result.stdout.str()

    old.rename(folder / "test_deploys.json")
    result = with_orphan.run("--mrtr-mode=none", "test_one.py", failed=1)
    old = folder / "test_deploys.json"
    result.stdout.fnmatch_lines(
        [f"no test uses {old}; if this one was renamed: mv {old} {new}"]
    )


def test_tests_of_one_name_get_no_cassette_of_their_own(suite):
    """Else the recording of one would replace that of the other; a named cassette is shared."""
    suite.write(
        "test_one.py",
        """
        import pytest
        from agent import APPLICATION, deploy

        @pytest.mark.mrtr_cassette(upstream=APPLICATION)
        @pytest.mark.parametrize("second", ["b-c", "c"])
        @pytest.mark.parametrize("first", ["a", "a-b"])
        def test_deploy(mrtr_cassette, first, second):
            deploy(mrtr_cassette.url, f"{first}/{second}")
        """,
    )
    result = suite.run(passed=2, errors=2)
    told = "two tests are called test_one.py::test_deploy[[]a-b-c[]]; give one *"

    assert suite.cassettes() == [
        "cassettes/test_one/test_deploy-a-b-b-c.json",
        "cassettes/test_one/test_deploy-a-c.json",
    ]
    result.stdout.fnmatch_lines([told, told])

    test = (suite.path / "test_one.py").read_text()
    suite.write("test_one.py", test.replace("upstream=", "'all.json', upstream="))
    suite.run(passed=4)
    suite.run("--mrtr-mode=none", passed=4)


# --- What is said of a run ---


def test_run_says_its_mode_and_what_became_of_its_cassettes(suite):
    """The header has the mode and the folder, the summary counts."""
    suite.write("test_one.py", ONE_TEST)
    header = "mrtr-cassette: mode once, cassettes in a folder `cassettes` beside each test file"
    suite.run().stdout.fnmatch_lines([header, "mrtr-cassette: 1 recorded"])
    suite.write("test_two.py", ONE_TEST.replace("def test_deploy", "def test_two"))
    suite.write(
        "test_three.py",
        ONE_TEST.replace("def test_deploy", "def test_three") + "        assert 0\n",
    )

    result = suite.run(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["mrtr-cassette: 1 discarded (test failed), 1 recorded, 1 replayed"]
    )
    path = suite.path / "cassettes/test_one/test_deploy.json"
    before = path.stat().st_mtime_ns, path.read_bytes()
    for mode, said in (("append", "1 replayed"), ("all", "1 same, kept")):
        told = suite.run(f"--mrtr-mode={mode}", "test_one.py").stdout
        told.fnmatch_lines([f"mrtr-cassette: {said}"])

        assert (path.stat().st_mtime_ns, path.read_bytes()) == before

    quiet = suite.run("-q", "test_one.py")

    assert "mrtr-cassette" not in quiet.stdout.str()


def test_run_says_what_was_redacted(suite):
    """The summary names the cassette, the rule, and the calls in which it was replaced."""
    suite.write(
        "test_one.py",
        ONE_TEST.replace("APPLICATION)", "APPLICATION, redact=['release-train'])"),
    )

    path = "cassettes/test_one/test_deploy.json"
    redacted = f"mrtr-cassette: {path}: redacted: custom-1 ×1 (#2 tools/list)"
    suite.run().stdout.fnmatch_lines(["mrtr-cassette: 1 recorded", redacted])
    suite.run().stdout.no_fnmatch_line("*redacted:*")


def test_old_cassette_is_recorded_anew_or_told(suite):
    """`max_age` counts the days since the recording: mode once records again, mode none warns."""
    suite.write("test_one.py", ONE_TEST)
    suite.run()
    path = suite.path / "cassettes/test_one/test_deploy.json"
    tree = json.loads(path.read_bytes())
    tree["recording"]["recorded_at"] = old = "2001-01-01T00:00:00+00:00"
    path.write_text(json.dumps(tree))
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    suite.run("--mrtr-mode=none").stdout.no_fnmatch_line("*days old*")
    marked = ONE_TEST.replace(
        "upstream=APPLICATION", "upstream=APPLICATION, max_age=30"
    )
    suite.write("test_one.py", marked)
    warned = suite.run("--mrtr-mode=none", passed=1, warnings=1)
    warned.stdout.fnmatch_lines(
        ["*test_deploy.json is * days old; record it anew with *"]
    )

    assert old.encode() in path.read_bytes()

    suite.follow(warned).stdout.fnmatch_lines(["mrtr-cassette: 1 recorded"])

    assert old.encode() not in path.read_bytes()

    recorded_at(path, old)
    suite.run("--mrtr-mode=once").stdout.fnmatch_lines(["mrtr-cassette: 1 recorded"])

    assert old.encode() not in path.read_bytes()

    suite.run("--mrtr-mode=once").stdout.fnmatch_lines(["mrtr-cassette: 1 replayed"])


def recorded_at(path, date):
    """Write another date into a cassette, as somebody would by hand."""
    tree = json.loads(path.read_bytes())
    tree["recording"]["recorded_at"] = date
    path.write_text(json.dumps(tree))


def test_adding_to_a_cassette_does_not_make_it_younger(suite):
    """What mode append adds leaves the date of what the cassette had before, so it grows old."""
    suite.write(
        "test_one.py", ONE_TEST.replace("APPLICATION)", "APPLICATION, max_age=30)")
    )
    suite.run()
    path = suite.path / "cassettes/test_one/test_deploy.json"
    recorded_at(path, "2001-01-01T00:00:00+00:00")
    text = (suite.path / "test_one.py").read_text()
    more = (
        """\n    assert deploy(mrtr_cassette.url, env="more") == "Deployed to more"\n"""
    )
    (suite.path / "test_one.py").write_text(text.rstrip() + more)
    suite.run("--mrtr-mode=append").stdout.fnmatch_lines(["mrtr-cassette: 1 added to"])

    assert (
        suite.cassette("test_one/test_deploy.json")["recording"]["recorded_at"][:4]
        == "2001"
    )


@pytest.mark.parametrize(
    "upstream", ['"http://127.0.0.1:9/mcp"', '[sys.executable, "-c", "{port}"]']
)
def test_failing_to_renew_an_old_cassette_names_its_age(suite, upstream):
    """Where the server of a cassette that is too old is gone, the error says why it was asked."""
    suite.write("test_one.py", ONE_TEST)
    suite.run()
    recorded_at(suite.path / "cassettes/test_one/test_deploy.json", "2001-01-01")
    marked = ONE_TEST.replace(
        "upstream=APPLICATION", f"upstream={upstream}, max_age=30"
    )
    suite.write("test_one.py", marked.replace("import pytest", "import pytest, sys"))
    result = suite.pytester.runpytest("--mrtr-mode=once", "test_one.py")

    assert result.parseoutcomes().keys() <= {"failed", "errors"}

    text = (
        "*test_deploy.json is * days old, max_age is 30, so mode once recorded it anew*"
    )
    result.stdout.fnmatch_lines([text])


def test_a_date_that_is_none_is_an_error_where_age_counts(suite):
    """A cassette whose date can't be read is not taken for a young one."""
    suite.write("test_one.py", ONE_TEST)
    suite.run()
    recorded_at(suite.path / "cassettes/test_one/test_deploy.json", "yesterday")
    suite.run("--mrtr-mode=none")
    suite.write(
        "test_one.py", ONE_TEST.replace("APPLICATION)", "APPLICATION, max_age=30)")
    )
    result = suite.run("--mrtr-mode=none", errors=1)
    text = (
        "*test_deploy.json: /recording/recorded_at is 'yesterday', which is not a date*"
    )
    result.stdout.fnmatch_lines([text])


@pytest.mark.parametrize("upstream", ["APPLICATION", "COMMAND"])
def test_a_test_with_a_frozen_clock_records_and_replays(suite, upstream):
    """A test that freezes the time around its cassette waits for nothing that never comes."""
    frozen = """
        import pytest
        from agent import APPLICATION, COMMAND, deploy
        from freezegun import freeze_time

        @pytest.fixture(autouse=True)
        def frozen():
            with freeze_time("2020-02-02"):
                yield

        @pytest.mark.mrtr_cassette(upstream=%s)
        def test_deploy(frozen, mrtr_cassette):
            assert deploy(mrtr_cassette.url) == "Deployed to test"
    """

    suite.write("test_one.py", frozen % upstream)
    suite.run("--mrtr-mode=once").stdout.fnmatch_lines(["mrtr-cassette: 1 recorded"])
    suite.run("--mrtr-mode=none").stdout.fnmatch_lines(["mrtr-cassette: 1 replayed"])


@pytest.mark.parametrize("fixtures", ["fs, mrtr_cassette", "mrtr_cassette, fs"])
def test_a_faked_file_system_is_named(suite, fixtures):
    """Where pyfakefs hides the cassette, or breaks its recording, the failure says that it does."""
    suite.write("test_one.py", ONE_TEST.replace("(mrtr_cassette)", f"({fixtures})"))
    result = suite.pytester.runpytest("--mrtr-mode=once")
    result.stdout.fnmatch_lines(["*fixture fs fakes the file system of this test*"])

    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_cassette_opened_before_the_file_system_is_faked_is_played(suite):
    """The order of the fixtures is the way out that the failure names."""
    suite.write("test_one.py", ONE_TEST)
    suite.run("--mrtr-mode=once")
    suite.write(
        "test_one.py", ONE_TEST.replace("(mrtr_cassette)", "(mrtr_cassette, fs)")
    )
    suite.run("--mrtr-mode=none")


# --- Options ---


def test_what_recording_takes_the_suite_takes(suite):
    """Redaction, sealing and headers come from the marker, the suite's fixture and the ini."""
    suite.write(
        "pytest.ini",
        """
        [pytest]
        mrtr_cassette_seal_answers = true
        mrtr_cassette_redact =
            Depl(oy) to
        pythonpath = .
        """,
    )

    suite.write(
        "conftest.py",
        """
        import pytest

        @pytest.fixture(scope="session")
        def mrtr_cassette_config():
            return {"headers": {"X-Env": "secret-header"}}
        """,
    )

    suite.write("test_one.py", ONE_TEST)
    suite.run()
    text = (suite.path / "cassettes/test_one/test_deploy.json").read_text()

    assert "Deploy to" not in text
    assert json.loads(text)["answers"] == "sealed"

    suite.run("--mrtr-mode=none")


@pytest.mark.parametrize(
    ("ini", "config", "text"),
    [
        ("mrtr_cassette_ignore = a", "{}", "ignore 'a' is not a JSON Pointer*"),
        (
            "",
            "{'retpeat': 1}",
            "the fixture mrtr_cassette_config has no option 'retpeat'; did *",
        ),
        ("", "5", "the fixture mrtr_cassette_config returns 5, and not a dict"),
    ],
)
def test_a_wrong_value_names_its_place(suite, recorded, ini, config, text):
    """A value that can't be meant fails the test, also where it only replays."""
    suite.write("pytest.ini", f"[pytest]\n{ini}\npythonpath = .\n")
    suite.write(
        "conftest.py",
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def mrtr_cassette_config():
            return {config}
        """,
    )

    suite.write(
        "test_one.py",
        f"""
        import pytest

        @pytest.mark.mrtr_cassette({str(recorded)!r})
        def test_one(mrtr_cassette):
            pass
        """,
    )
    suite.run(errors=1).stdout.fnmatch_lines([text])


def test_options_of_replays_alone_do_not_keep_a_test_from_being_recorded(suite):
    """What is played, and when, counts where the cassette is played."""
    options = (
        "reads=['deploy'], history='order', repeat='always', ignore=['/arguments/x']"
    )
    marked = ONE_TEST.replace(
        "upstream=APPLICATION", f"upstream=APPLICATION, {options}"
    )
    suite.write("test_one.py", marked)
    for mode in ("once", "append", "all", "none", "verify"):
        suite.run(f"--mrtr-mode={mode}")


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_what_is_said_to_read_and_matches_in_no_test_is_told(suite, workers):
    """A name that one test of the run calls is no mistake in the others."""
    options = "reads=['deploy', 'tpyo']"
    marked = ONE_TEST.replace(
        "upstream=APPLICATION", f"upstream=APPLICATION, {options}"
    )
    suite.write("test_one.py", marked)
    suite.run()
    ended = suite.run("--mrtr-mode=none", *workers)
    lines = [line for line in ended.outlines if "matched nothing" in line]

    assert lines == ["mrtr-cassette: reads 'tpyo' matched nothing in this run"]


def test_what_replays_learned_and_matched_is_told(suite):
    """The summary has the texts of values, how often what matched, and matchers that met nothing."""
    values = "values={'env': 'staging-1'}"
    marked = ONE_TEST.replace("upstream=APPLICATION", f"upstream=APPLICATION, {values}")
    calls = marked.replace(
        "deploy(mrtr_cassette.url)", "deploy(mrtr_cassette.url, env)"
    )
    text = calls.replace("        assert", "        env = 'staging-1'\n        assert")
    suite.write(
        "test_one.py", text.replace('"Deployed to test"', 'f"Deployed to {env}"')
    )
    suite.run()
    text = (suite.path / "test_one.py").read_text().replace(f", {values}", "")
    suite.write("test_one.py", text.replace("'staging-1'", "'staging-2'"))
    learned = "learned from the first request: {env} = staging-2"
    suite.run("--mrtr-mode=none").stdout.fnmatch_lines(
        [f"mrtr-cassette: cassettes/test_one/test_deploy.json: {learned}"]
    )
    kinds = "match={'/arguments/env': 'string', '/arguments/no': 'uuid'}"
    suite.write(
        "test_one.py",
        ONE_TEST.replace("upstream=APPLICATION", f"upstream=APPLICATION, {kinds}"),
    )

    (suite.path / "cassettes/test_one/test_deploy.json").unlink()
    suite.run()
    text = (suite.path / "test_one.py").read_text()
    changed = text.replace(
        "deploy(mrtr_cassette.url)", "deploy(mrtr_cassette.url, 'b')"
    )
    suite.write("test_one.py", changed)
    suite.run("--mrtr-mode=none").stdout.fnmatch_lines(
        [
            "mrtr-cassette: match '/arguments/no=uuid' matched nothing in this run",
            "mrtr-cassette: 2 matched by /arguments/env=string, 1 replayed",
        ]
    )
