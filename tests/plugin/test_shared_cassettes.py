"""Facts about cassettes that several tests share, and about which recordings are kept."""

from __future__ import annotations

import pytest

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
    suite.write(
        "test_it.py", HEAD.format(name=f'"{name}", ' if name else "") + "".join(parts)
    )


def envs(suite, name):
    """Return what the calls of a cassette deploy to, in their order."""
    bodies = [
        interaction["request"]["body"]["params"]
        for interaction in suite.cassette(name)["interactions"]
    ]
    return [params["arguments"]["env"] for params in bodies if "arguments" in params]


def test_each_test_that_names_a_cassette_adds_to_it(suite):
    """It plays what those before it recorded, and records what is missing."""
    write(
        suite,
        NAMED.replace('"b")', '"a"); deploy(mrtr_cassette, "b")'),
        name="shared.json",
    )
    for mode in ("once", "all", "append", "none"):
        suite.run(f"--mrtr-mode={mode}", passed=2)

        assert envs(suite, "shared.json") == ["a", "b"]


def test_names_that_lead_to_one_file_are_one_cassette(suite):
    """Tests of two folders share it by `..`, although their `cassettes` folders don't exist."""
    for name in ("a", "b"):
        suite.write(
            f"{name}/test_{name}.py",
            f"""
            import pytest
            from deploys import APPLICATION, deploy

            @pytest.mark.mrtr_cassette("../../cassettes/shared", upstream=APPLICATION)
            def test_{name}(mrtr_cassette):
                deploy(mrtr_cassette, "{name}")
            """,
        )

    for mode in ("once", "once", "append", "all", "none"):
        suite.run(f"--mrtr-mode={mode}", passed=2)

        assert envs(suite, "shared.json") == ["a", "b"]

    assert suite.cassettes() == ["cassettes/shared.json"]


def test_shared_cassettes_are_recorded_by_one_process_and_played_by_several(suite):
    """Workers of pytest-xdist are told the way out."""
    write(suite, PAIR)
    refused = suite.run("-n", "2", errors=2).stdout
    refused.fnmatch_lines(
        ["*test_it.json is shared by tests*; record it with pytest -n 0; *"]
    )

    assert suite.cassettes() == []

    suite.run(passed=2)
    played = suite.run("-n", "2", passed=2)
    played.stdout.fnmatch_lines(["mrtr-cassette: 2 replayed"])


@pytest.mark.parametrize(
    ("test", "name"), [(NAMED, "shared.json"), (PAIR, "")], ids=["named", "module"]
)
def test_mode_all_does_not_replace_a_whole_by_a_part(suite, test, name):
    """For some of the tests that share a file it is refused, with the ways out."""
    write(suite, test, name=name)
    suite.run(passed=2)
    path = suite.path / "cassettes" / (name or "test_it.json")
    before = path.read_bytes()
    for options in (("-k", "test_a"), ("test_it.py::test_a",), ()):
        if not options:
            skipping = test.replace(
                "    def test_b", "    @pytest.mark.skip\n    def test_b"
            )
            write(suite, skipping, name=name)

        result = suite.run(
            "--mrtr-mode=all", *options, passed=1, skipped=int(not options)
        )

        assert result.ret == pytest.ExitCode.TESTS_FAILED

        result.stdout.fnmatch_lines(
            [f"{path} was not replaced: this run has not recorded*", "*append*"]
        )

        assert path.read_bytes() == before

    suite.follow(result, passed=1, skipped=1)


def check_kept(suite, path, *options, reason, **outcomes):
    """Check that mode all does not replace a cassette, for this reason."""
    before = path.read_bytes()
    result = suite.run("--mrtr-mode=all", *options, **outcomes)

    assert result.ret != pytest.ExitCode.OK
    assert path.read_bytes() == before

    result.stdout.fnmatch_lines([f"{path} was not replaced: *, and {reason}"])


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "silent"])
def test_mode_all_replaces_nothing_where_a_conftest_deselects(suite, is_told):
    """No option shows it, and pytest may not be told."""
    write(suite, PAIR)
    suite.run(passed=2)
    telling = "config.hook.pytest_deselected(items=[items[1]])" if is_told else ""
    suite.write(
        "conftest.py",
        f"""
        def pytest_collection_modifyitems(config, items):
            {telling}
            del items[1]
        """,
    )
    check_kept(
        suite,
        suite.path / "cassettes/test_it.json",
        reason="test_it.py::test_b was deselected",
        passed=1,
    )


def test_mode_all_replaces_a_cassette_where_options_deselect_nothing(suite):
    """A suite's usual options don't keep a whole run from replacing it by fewer calls."""
    suite.write(
        "pytest.ini",
        '[pytest]\npythonpath = .\naddopts = -m "not slow"\nmarkers = slow\n',
    )
    write(suite, PAIR)
    suite.run(passed=2)
    write(suite, PAIR.replace('deploy(mrtr_cassette_module, "b")', "pass"))
    suite.run("--mrtr-mode=all", passed=2)

    assert envs(suite, "test_it.json") == ["a"]


@pytest.mark.parametrize(
    ("line", "errors"),
    [
        ("pytest.skip('an extra is missing', allow_module_level=True)", 0),
        ("import nothing_of_this_name", 1),
    ],
    ids=["skipped", "not importable"],
)
def test_mode_all_replaces_nothing_where_a_file_is_not_collected(suite, line, errors):
    """Its tests might have made the calls that were not recorded."""
    for name in ("a", "b"):
        test = f"""
            import pytest
            from deploys import APPLICATION, deploy

            pytestmark = pytest.mark.mrtr_cassette("session", upstream=APPLICATION)

            def test_{name}(mrtr_cassette):
                deploy(mrtr_cassette, "{name}")
            """
        suite.write(f"test_{name}.py", test)

    suite.run(passed=2)
    suite.write("test_b.py", f"import pytest\n{line}")
    check_kept(
        suite,
        suite.path / "cassettes/session.json",
        "--continue-on-collection-errors",
        reason="test_b.py was not collected",
        passed=1,
        skipped=1 - errors,
        errors=errors,
    )


@pytest.mark.parametrize(
    ("end", "outcome"), [("pytest.skip()", "skipped"), ("assert 0", "failed")]
)
def test_mode_all_replaces_nothing_where_a_test_ends_before_it_opens(
    suite, end, outcome
):
    """What `mrtr_cassettes` would have opened is unknown; others are replaced."""
    test = """
    def test_a(mrtr_cassettes):
        deploy(mrtr_cassettes("bill", upstream=APPLICATION), "a")

    def test_b(mrtr_cassettes):
        pass
        deploy(mrtr_cassettes("bill", upstream=APPLICATION), "b")

    def test_c(mrtr_cassette_module):
        deploy(mrtr_cassette_module, "c")
        deploy(mrtr_cassette_module, "d")
    """
    write(suite, test)
    suite.run(passed=3)
    write(suite, test.replace("pass\n", f"{end}\n").replace('"d"', '"c"'))
    check_kept(
        suite,
        suite.path / "cassettes/bill.json",
        reason=f"test_it.py::test_b was {outcome}",
        passed=2,
        **{outcome: 1},
    )

    assert "d" not in envs(suite, "test_it.json")


def test_one_cassette_serves_a_whole_run(suite):
    """A fixture of the suite's own session scope builds on one cassette for all test files."""
    suite.write(
        "conftest.py",
        """
        import pytest
        from deploys import APPLICATION

        @pytest.fixture(scope="session")
        def mrtr_upstream():
            return APPLICATION

        @pytest.fixture(scope="session")
        def client(mrtr_cassette_session):
            return mrtr_cassette_session
        """,
    )

    for name in ("a", "b"):
        suite.write(
            f"unit/test_{name}.py",
            f"""
            from deploys import deploy

            def test_{name}(client):
                deploy(client, "{name}")
            """,
        )

    suite.run("--mrtr-mode=once", passed=2)

    assert suite.cassettes() == ["cassettes/session.json"]
    assert envs(suite, "session.json") == ["a", "b"]

    suite.run("--mrtr-mode=none", "unit/test_b.py")
    suite.run("--mrtr-mode=none", "--mrtr-orphans=fail", passed=2)
    (suite.path / "unit/test_b.py").write_text(
        "def test_b(mrtr_cassette_session): wrong\n"
    )
    suite.run("--mrtr-mode=all", passed=1, failed=1)

    assert envs(suite, "session.json") == ["a", "b"]


def test_miss_on_a_shared_cassette_recommends_nothing_that_loses(suite):
    """What is missing is added to the file."""
    write(suite, NAMED, name="shared.json")
    suite.run(passed=2)
    write(suite, NAMED.replace('"b")', '"c")'), name="shared.json")
    result = suite.run(passed=1, failed=1)
    (told,) = [line for line in result.outlines if "too with pytest " in line]
    suite.run(*told.partition("too with pytest ")[2].split())
    suite.run("--mrtr-mode=none", passed=2)


def test_missing_shared_cassette_fails_its_test_once(suite):
    """The same text is no error at the teardown of the last test too, unless it was swallowed."""
    suite.write(
        "test_one.py",
        """
        def test_one(mrtr_cassette_session):
            mrtr_cassette_session.call("add", {"a": 1, "b": 1})
        """,
    )

    suite.run("--mrtr-mode=none", failed=1)
    suite.write(
        "test_one.py",
        """
        import pytest

        def test_one(mrtr_cassette_session):
            with pytest.raises(BaseException, match="no such cassette"):
                mrtr_cassette_session.url
        """,
    )

    suite.run("--mrtr-mode=none", passed=1, errors=1)
