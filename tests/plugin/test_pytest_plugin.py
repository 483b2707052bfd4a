"""Facts about the pytest plugin, on the official Python SDK's server and client."""

from __future__ import annotations

import re
import shutil
import textwrap
from dataclasses import replace

import pytest
from builders import JOURNAL_HEADER, converse, tool
from messages import text
from processes import PEERS
from suites import ONE_TEST

from mrtr_cassette.core.cassette.journal import (
    encode_journal_header,
    encode_journal_line,
)
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import serving_application
from mrtr_cassette.testing.suite_cassette import CassetteUse

pytest_plugins = ["pytester"]

FIXTURE_OF_UPSTREAM = """
    import pytest
    from agent import COMMAND

    @pytest.fixture(scope="session")
    def mrtr_upstream():
        print("the server is started")
        return COMMAND
"""

# --- Modes ---


def test_append_fails_where_the_live_server_asks_something_else(suite):
    """The test is told what changed, also where the client swallows it; the old cassette stays."""
    test = """
        import pytest
        from aiohttp import web
        from mrtr_cassette.demo.server import create_app

        @web.middleware
        async def asking(request, handler):
            response = await handler(request)
            response.text = response.text.replace("train 2?", "train 2?{more}")
            return response

        APPLICATION = create_app()
        APPLICATION.middlewares.append(asking)

        @pytest.mark.mrtr_cassette(upstream=APPLICATION)
        def test_train(mrtr_cassette):
            answers = {{"approve": True, "window": "{window}", "notes": "none"}}
            result = mrtr_cassette.call("release-train", {{"version": "2"}}, answers=answers)
            {then}
    """

    then = 'assert result.text == "Train 2: tonight, none"'
    suite.write("test_one.py", test.format(more="", window="tonight", then=then))
    suite.run()
    before = (suite.path / "cassettes/test_one/test_train.json").read_bytes()
    then = "assert (mrtr_cassette.misses, len(mrtr_cassette.unrecorded)) == ((), 1)"
    suite.write("test_one.py", test.format(more=" Really?", window="never", then=then))
    result = suite.run("--mrtr-mode=append", failed=1)
    result.stdout.fnmatch_lines(
        [
            "miss: unrecorded: *",
            '*recorded "Approve train 2?", received "Approve train 2? Really?"',
            "1 request could not be recorded on */test_train.json; *",
        ]
    )

    assert (suite.path / "cassettes/test_one/test_train.json").read_bytes() == before
    assert suite.cassettes() == ["cassettes/test_one/test_train.json"]

    then = 'assert result.text == "Train 2: never, none"'
    suite.write("test_one.py", test.format(more=" Really?", window="never", then=then))
    suite.follow(result)
    suite.run("--mrtr-mode=none")


def test_none_needs_a_cassette(suite):
    """In mode none a test whose cassette is missing fails when it needs it, and not if it skips."""
    missing = "*/test_*.json: there is no such cassette, and in mode none no new one is recorded*"
    suite.write("test_one.py", ONE_TEST)
    result = suite.run("--mrtr-mode=none", failed=1)
    result.stdout.fnmatch_lines([missing, "mrtr-cassette: 1 not used"])

    assert "Traceback" not in result.stdout.str()

    suite.follow(result)
    suite.run("--mrtr-mode=none")
    shutil.rmtree(suite.path / "cassettes")
    suite.write(
        "test_one.py",
        """
        import contextlib
        import pytest

        def test_skips(mrtr_cassette):
            pytest.skip("half-way")

        def test_swallows(mrtr_cassette):
            with contextlib.suppress(BaseException):
                mrtr_cassette.url
        """,
    )

    result = suite.run("--mrtr-mode=none", skipped=1, passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_swallows*", missing])

    assert suite.cassettes() == []


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (((), {}, ""), "once"),
        (((), {"CI": "true"}, ""), "none"),
        (((), {"CI": "false"}, ""), "once"),
        (((), {"CI": ""}, ""), "once"),
        (((), {"CI": "true"}, "mrtr_cassette_mode = once"), "once"),
        (((), {"MRTR_CASSETTE_MODE": "none"}, "mrtr_cassette_mode = once"), "none"),
        ((("--mrtr-mode=none",), {"MRTR_CASSETTE_MODE": "once"}, ""), "none"),
        ((("--mrtr-mode=once",), {"CI": "true"}, ""), "once"),
    ],
)
def test_the_mode_comes_from_the_option_the_environment_or_the_ini(
    suite, recorded, monkeypatch, asked, mode
):
    """The option comes first, then the environment, then the ini; under CI the default is none."""
    options, environment, ini = asked
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    suite.write("pytest.ini", f"[pytest]\nfilterwarnings = default\n{ini}\n")
    suite.write(
        "test_mode.py",
        f"""
        import pytest

        @pytest.mark.mrtr_cassette({str(recorded)!r})
        def test_mode(mrtr_cassette):
            assert mrtr_cassette.mode == {mode!r}
            assert not mrtr_cassette.is_recording
            assert str(mrtr_cassette.path) == {str(recorded)!r}
        """,
    )
    suite.run(*options)


def test_a_mode_that_does_not_exist_is_refused(suite, monkeypatch):
    """The message names where the mode comes from, and the modes."""
    monkeypatch.setenv("MRTR_CASSETTE_MODE", "sometimes")
    result = suite.pytester.runpytest()
    result.stderr.fnmatch_lines(
        [
            "*the environment variable MRTR_CASSETTE_MODE is 'sometimes', and not one of none, once,*"
        ]
    )


# --- Upstreams ---


APPLICATIONS = """
    import pytest
    from agent import deploy
    {}

    pytestmark = pytest.mark.mrtr_cassette(upstream={})

    def test_one(mrtr_cassette):
        assert deploy(mrtr_cassette.url) == "Deployed to test"

    def test_two(mrtr_cassette):
        assert deploy(mrtr_cassette.url, "production") == "Deployed to production"
"""


def test_an_application_is_an_upstream(suite):
    """An ASGI one too; it is served once for all tests that name it, and not at all on replay."""
    imported = f"import sys; sys.path.insert(0, {str(PEERS)!r}); from server_python import server"
    application = "server.streamable_http_app()"
    for given in ((imported, application), ("", "object()")):
        suite.write("test_app.py", APPLICATIONS.format(*given))
        suite.run(passed=2)

    assert suite.cassettes() == [
        f"cassettes/test_app/test_{name}.json" for name in ("one", "two")
    ]


def test_the_fixture_is_asked_only_when_recording(suite):
    """`mrtr_upstream` is overridden as any fixture, and can be what a marker can be."""
    suite.write("test_one.py", ONE_TEST.replace("upstream=APPLICATION", ""))
    suite.write("conftest.py", FIXTURE_OF_UPSTREAM)

    assert "the server is started" in suite.run("-s").stdout.str()
    assert (
        suite.cassette("test_one/test_deploy.json")["upstream"]
        == "http://localhost/mcp"
    )
    assert "the server is started" not in suite.run("-s").stdout.str()


def test_without_an_upstream_nothing_is_recorded(suite):
    """The message names the ways to give one."""
    suite.write("test_one.py", ONE_TEST.replace("upstream=APPLICATION", ""))
    result = suite.run(errors=1)
    result.stdout.fnmatch_lines(
        [
            "there is nothing to record */test_deploy.json from; name an upstream in the marker*"
        ]
    )

    suite.write(
        "test_one.py", ONE_TEST.replace("=APPLICATION", '="serve --port {port}"')
    )

    assert (
        "a command is a list: ['serve', '--port', '{port}']"
        in suite.run(errors=1).stdout.str()
    )
    assert suite.cassettes() == []


WIDER = """
    import pytest
    from agent import APPLICATION

    MARK = pytest.mark.mrtr_cassette(upstream=APPLICATION)
    NO_MARK = pytest.mark.filterwarnings("error")
    pytestmark = MARK_OF_MODULE

    @pytest.fixture(scope="session")
    def mrtr_cassette_config():
        return CONFIG

    @MARK_OF_CLASS
    class TestDeploy:
        @MARK
        def test_add(self, mrtr_cassette_SCOPE):
            arguments = {"env": "a"}
            mrtr_cassette_SCOPE.call("deploy", arguments, answers={"confirm": True})
"""
PLACES = {"MARK_OF_MODULE": "NO_MARK", "MARK_OF_CLASS": "NO_MARK", "CONFIG": "{}"}


@pytest.mark.parametrize(
    ("scope", "advice", "place"),
    [
        (
            "class",
            "in the marker of the class, @pytest.mark.mrtr_cassette(",
            {"MARK_OF_CLASS": "MARK"},
        ),
        (
            "module",
            "in the marker of the module, pytestmark = pytest.mark.mrtr_cassette(",
            {"MARK_OF_MODULE": "MARK"},
        ),
        (
            "session",
            "from; override the fixture mrtr_upstream",
            {"CONFIG": "{'upstream': APPLICATION}"},
        ),
    ],
    ids=["class", "module", "session"],
)
def test_advice_names_the_place_that_a_wider_fixture_reads(suite, scope, advice, place):
    """A test's own marker does nothing for it; what the text names does."""

    def write(places):
        text = WIDER.replace("SCOPE", scope)
        for name, value in places.items():
            text = text.replace(name, value)

        suite.write("test_one.py", text)

    write(PLACES)

    assert advice in suite.run(errors=1).stdout.str()

    write({**PLACES, **place})
    suite.run()


def test_an_upstream_that_dies_fails_the_test(suite):
    """What the upstream did not answer can't be replayed, so nothing is published."""
    suite.write(
        "dies.py",
        """
        import http.server, os, sys

        class Dies(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                print("out of memory", flush=True)
                os._exit(3)

        http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Dies).serve_forever()
        """,
    )

    suite.write(
        "test_one.py",
        """
        import sys
        import pytest
        from agent import deploy, swallowed

        pytestmark = pytest.mark.mrtr_cassette(upstream=[sys.executable, "dies.py", "{port}"])

        def test_swallows(mrtr_cassette):
            swallowed(mrtr_cassette.url)

        def test_fails(mrtr_cassette):
            deploy(mrtr_cassette.url)
        """,
    )

    result = suite.run(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*the upstream did not answer * request*",
            "*/test_swallows.json was not written",
        ]
    )

    result.stdout.fnmatch_lines(
        ["*mrtr-cassette: output of the upstream*", "out of memory"]
    )

    assert suite.cassettes() == []


# --- Scopes ---


def test_several_cassettes_in_one_test(suite):
    """`mrtr_cassettes` opens further cassettes by name, each with its own upstream."""
    text = """
        import pytest
        from agent import APPLICATION, deploy

        def test_both(mrtr_cassettes):
            here = mrtr_cassettes("here.json", upstream=APPLICATION)
            there = mrtr_cassettes("sub/there.json", upstream=APPLICATION)
            assert here.url != there.url
            deploy(here.url, "here")
            deploy(there.url, "there")
    """

    suite.write("test_both.py", text)
    suite.run()

    assert suite.cassettes() == ["cassettes/here.json", "cassettes/sub/there.json"]

    suite.write("test_both.py", text.replace("upstream=APPLICATION", ""))
    suite.run()
    suite.write(
        "test_both.py",
        text.replace('deploy(there.url, "there")', 'deploy(there.url, "x")'),
    )

    result = suite.run(failed=1)
    result.stdout.fnmatch_lines(["miss: arguments-differ*", "*sub/there.json"])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("mrtr_cassettes()", "mrtr_cassettes needs the name of a file"),
        (
            "mrtr_cassettes('a.json', upstream=APPLICATION); mrtr_cassettes('a.json', upstream=APPLICATION)",
            "*a.json: it is being recorded already; give one of the two recordings another file",
        ),
    ],
)
def test_what_a_factory_can_not_do(suite, call, text):
    """A wrong call fails the test, with one line for a reason."""
    suite.write(
        "test_x.py",
        f"from agent import APPLICATION\ndef test_x(mrtr_cassettes):\n    {call}\n",
    )

    suite.run(failed=1).stdout.fnmatch_lines([text])

    assert suite.cassettes() == []


# --- What fails a test ---


def test_a_swallowed_miss_fails_the_test_at_teardown(suite, recorded):
    """The client kept the error to itself; the test fails with the whole text all the same."""
    suite.write(
        "test_miss.py",
        f"""
        import pytest
        from agent import swallowed

        @pytest.mark.mrtr_cassette({str(recorded)!r})
        def test_declines(mrtr_cassette):
            swallowed(mrtr_cassette.url, confirm=False)
            assert [miss.reason for miss in mrtr_cassette.misses] == ["answers-differ"]
        """,
    )

    result = suite.run(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ test_declines _*",
            'miss: answers-differ: tools/call "deploy" with {"env":"test"}, answering confirm',
            "miss: answers-differ: other answers were recorded",
            '  request:  tools/call "deploy" with {"env":"test"}, answering confirm',
            '  question: confirm (form) "Deploy to test?"',
            f'  nearest:  #3 (tools/call "deploy", answer of turn 1) in {recorded}',
            "  /inputResponses/confirm/content/confirm: recorded true, received false",
            "*answer too with * pytest test_miss.py::test_declines --mrtr-mode=append",
            f"1 request had no recorded answer on {recorded}",
            "*short test summary info*",
            "FAILED test_miss.py::test_declines - Failed: miss: answers-differ: tools/call*",
        ],
        consecutive=False,
    )

    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("names_upstream", [False, True])
def test_a_miss_without_an_upstream_names_one(suite, names_upstream):
    """What is told works: the marker has the recorded server, unless the suite's fixture has one."""
    suite.write("conftest.py", FIXTURE_OF_UPSTREAM if names_upstream else "")
    marked = (
        "import pytest\nfrom agent import deploy\n@pytest.mark.mrtr_cassette('c'{})\n"
    )
    test = "def test_x(mrtr_cassette):\n    deploy(mrtr_cassette.url{})\n"
    with in_thread(serving_application(create_app())) as url:
        suite.write("test_x.py", marked.format(f", upstream={url!r}") + test.format(""))
        suite.run()
        suite.write("test_x.py", marked.format("") + test.format(", confirm=False"))
        missed = suite.run("--mrtr-mode=none", failed=1).stdout.str()
        (way,) = set(
            re.findall("(?m)^ +or: +record this answer too with (.*)$", missed)
        )
        pytest_line = "pytest test_x.py::test_x --mrtr-mode=append"
        if names_upstream:
            assert way == pytest_line

            return

        assert way == f"upstream={url!r} in the marker mrtr_cassette, and {pytest_line}"

        option = f", {way.partition(' in the ')[0]}"
        suite.write("test_x.py", marked.format(option) + test.format(", confirm=False"))
        suite.run("--mrtr-mode=append")

    suite.run("--mrtr-mode=none")


def test_a_miss_is_shown_with_the_failure_that_it_caused(suite, recorded):
    """Where the test failed anyway, the miss stands before the traceback, and is no second failure."""
    suite.write(
        "test_miss.py",
        f"""
        import pytest
        from agent import deploy

        @pytest.mark.mrtr_cassette({str(recorded)!r})
        def test_declines(mrtr_cassette):
            deploy(mrtr_cassette.url, confirm=False)
        """,
    )
    suite.run("-n", "1", failed=1).stdout.fnmatch_lines(
        [
            "*FAILURES*",
            'miss: answers-differ: tools/call "deploy" with *',
            "1 request had no recorded answer on *",
            "*deploy(mrtr_cassette.url, confirm=*",
            "FAILED test_miss.py::test_declines - miss: answers-differ: tools/call*",
        ]
    )


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("pytest.skip('later')", ()),
        ("pytest.xfail('known')", ()),
        ("raise unittest.SkipTest('later')", ()),
        ("raise OSError('the server is gone')", ("*OSError: the server is gone",)),
    ],
)
def test_no_teardown_hides_a_miss(suite, recorded, ending, told):
    """A swallowed miss fails the test beside whatever a fixture's teardown does."""
    suite.write(
        "test_miss.py",
        f"""
        import unittest
        import pytest
        from agent import swallowed

        pytestmark = pytest.mark.mrtr_cassette({str(recorded)!r})

        @pytest.fixture(scope="module")
        def client(mrtr_cassette_module):
            yield mrtr_cassette_module
            swallowed(mrtr_cassette_module.url, confirm=False)
            {ending}

        def test_declines(client):
            pass
        """,
    )

    result = suite.run(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [*told, "*miss: answers-differ: *", "ERROR test_miss.py::*"]
    )


def plays_two(recorded, end):
    """Return a test that plays a cassette twice, and the statement with which it ends."""
    return textwrap.dedent(
        f"""
        def test_plays_two(mrtr_cassettes):
            mrtr_cassettes({str(recorded)!r})
            mrtr_cassettes({str(recorded)!r})
            {end}
        """
    )


def test_all_cassettes_of_a_test_are_stopped(suite, recorded, monkeypatch):
    """Although one of them fails: what it served would stay until the end of the run."""
    stop = CassetteUse.stop
    stopped = []

    def failing_stop(use):
        stop(use)
        stopped.append(use)
        if len(stopped) == 1:
            raise CassetteError(use.path, "the disk is full")

    monkeypatch.setattr(CassetteUse, "stop", failing_stop)
    suite.write(
        "test_two.py",
        plays_two(recorded, end="pass") + "\ndef test_later():\n    pass\n",
    )
    later = []

    class Later:
        def pytest_runtest_setup(self, item):
            later.append((item.name, len(stopped)))

    suite.pytester.inline_run("-p", "no:cacheprovider", plugins=[Later()])

    assert later == [("test_plays_two", 0), ("test_later", 2)]


def test_an_interrupted_run_publishes_nothing(suite):
    """Ctrl-C in a test stops server and proxy, and leaves neither cassette nor journal."""
    suite.write("test_one.py", ONE_TEST + "        raise KeyboardInterrupt\n")
    ran = suite.pytester.inline_run("-p", "no:cacheprovider", no_reraise_ctrlc=True)

    assert ran.ret == pytest.ExitCode.INTERRUPTED
    assert suite.cassettes() == []


def test_an_interrupted_run_concludes_all_that_it_used(suite, recorded, monkeypatch):
    """Although its cassettes can't be stopped without an error."""
    stop = CassetteUse.stop
    concluded = []

    def failing_stop(use):
        stop(use)
        raise CassetteError(use.path, "the disk is full")

    def conclude(use, *, passed):
        concluded.append(passed)
        return []

    monkeypatch.setattr(CassetteUse, "stop", failing_stop)
    monkeypatch.setattr(CassetteUse, "conclude", conclude)
    suite.write(
        "test_two.py",
        plays_two(recorded, end="raise KeyboardInterrupt"),
    )
    with pytest.raises(CassetteError):
        suite.pytester.inline_run("-p", "no:cacheprovider", no_reraise_ctrlc=True)

    assert concluded == [False, False]


def test_the_journal_of_a_killed_run_is_not_passed_over(suite):
    """The error names the journal and both ways on; nothing is deleted unasked."""
    (exchange,) = converse((tool("deploy"), text("done")))
    line = encode_journal_line(replace(exchange, number=1))
    cassette = suite.path / "cassettes/test_one/test_deploy.json"
    cassette.parent.mkdir(parents=True)
    journal = cassette.with_name("test_deploy.json.journal")
    journal.write_bytes(encode_journal_header(JOURNAL_HEADER) + line)
    suite.write("test_one.py", ONE_TEST)
    for mode in ("once", "none", "all"):
        result = suite.run(f"--mrtr-mode={mode}", errors=1)
        result.stdout.fnmatch_lines(
            [
                "*.journal: an earlier recording ended before it was published; publish it with: *"
            ]
        )

    journal.unlink()
    suite.run()

    assert suite.cassettes() == ["cassettes/test_one/test_deploy.json"]


def test_a_cassette_that_no_client_calls_warns(suite):
    """A test whose client never came is told so, in every mode, and counted as such."""
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    called = 'assert deploy(mrtr_cassette.url) == "Deployed to test"'
    suite.write("test_one.py", ONE_TEST.replace(called, "pass"))
    suite.run(passed=1, warnings=1).stdout.fnmatch_lines(
        ["*Warning: nothing was recorded, and *test_deploy.json not written: *"]
    )

    assert suite.cassettes() == []

    suite.write("test_one.py", ONE_TEST)
    suite.run()
    suite.write("test_one.py", ONE_TEST.replace(called, "pass"))
    for mode in ("none", "append"):
        result = suite.run(f"--mrtr-mode={mode}", passed=1, warnings=1)
        result.stdout.fnmatch_lines(
            [
                "*MrtrCassetteWarning: *test_deploy.json was not played: no client sent it a request",
                "mrtr-cassette: 1 not used",
            ]
        )


ERRORS_ONLY = """
    import pytest
    import urllib.error
    import urllib.parse
    import urllib.request
    from agent import APPLICATION

    @pytest.mark.mrtr_cassette(upstream=APPLICATION, **{options!r})
    def test_nothing(mrtr_cassette):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.parse.urljoin(mrtr_cassette.url, "/none"), b"{{}}")
"""


def test_a_recording_of_errors_only_fails(suite):
    """A test in which every request got an error that is not MCP's leaves no cassette and no journal."""
    suite.write("test_one.py", ERRORS_ONLY.format(options={}))
    result = suite.run(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "the only request got 404; is the path /none right[?] name another one with upstream_path",
            "if that is meant: publish_anyway=True in the marker",
            "*test_nothing.json was not written",
        ]
    )

    assert suite.cassettes() == []

    suite.write("test_one.py", ERRORS_ONLY.format(options={"publish_anyway": True}))
    suite.run(passed=1)

    assert len(suite.cassettes()) == 1

    suite.run("--mrtr-mode=none", passed=1)


def test_unplayed_interactions_fail_where_that_is_asked_for(suite, recorded):
    """`--mrtr-fail-on-unplayed` names what was recorded and not asked."""
    suite.write("pytest.ini", "[pytest]\nfilterwarnings = default\npythonpath = .\n")
    suite.write(
        "test_less.py",
        f"""
        import pytest
        from agent import swallowed

        @pytest.mark.mrtr_cassette({str(recorded)!r})
        def test_less(mrtr_cassette):
            assert len(mrtr_cassette.unplayed) == 3
        """,
    )

    suite.run()
    result = suite.run("--mrtr-fail-on-unplayed", passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            f"not all that is on {recorded} was played:",
            "  #1 server/discover",
            "  #2 tools/list",
            '  #3 tools/call "deploy"',
        ]
    )

    way = "and pytest --mrtr-mode=all\n"

    assert " or record anew with upstream=... in the marker" in result.stdout.str()
    assert way in result.stdout.str()


LESS = """
    import pytest
    from agent import APPLICATION, deploy

    @pytest.mark.mrtr_cassette("less.json", upstream=APPLICATION)
    def test_less(mrtr_cassette):
        for env in {}:
            deploy(mrtr_cassette.url, env)
"""


def test_unplayed_interactions_are_gone_after_the_command_that_is_told(suite):
    """It records all tests as they are now: others may use a cassette that has a name."""
    suite.write("test_less.py", LESS.format(["one", "two"]))
    suite.run()
    suite.write("test_less.py", LESS.format(["one"]))
    failed = suite.run("--mrtr-fail-on-unplayed", passed=1, errors=1).stdout.str()
    (way,) = re.findall("or record anew with pytest (.*)", failed)
    suite.run(*way.split())
    suite.run("--mrtr-fail-on-unplayed")


# --- Clients ---


def test_clients_of_every_kind(suite):
    """Coroutines on asyncio and trio, and clients in other processes, use the same fixture."""
    suite.write(
        "client.py",
        "import sys; from agent import deploy; print(deploy(sys.argv[1]))",
    )
    suite.write(
        "test_kinds.py",
        """
        import subprocess
        import sys
        import pytest
        from agent import APPLICATION
        from mcp import Client

        pytestmark = pytest.mark.mrtr_cassette(upstream=APPLICATION)

        @pytest.fixture(params=["asyncio", "trio"])
        def anyio_backend(request):
            return request.param

        @pytest.mark.anyio
        async def test_coroutine(mrtr_cassette):
            async with Client(mrtr_cassette.url) as client:
                result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.content[0].text == "3"

        def test_process(mrtr_cassette):
            command = [sys.executable, "client.py", mrtr_cassette.url]
            assert subprocess.check_output(command, text=True) == "Deployed to test\\n"
        """,
    )

    suite.run(passed=3)

    assert suite.cassettes() == [
        "cassettes/test_kinds/test_coroutine-asyncio.json",
        "cassettes/test_kinds/test_coroutine-trio.json",
        "cassettes/test_kinds/test_process.json",
    ]

    suite.run("--mrtr-mode=none", "--mrtr-fail-on-unplayed", passed=3)


def test_no_proxy_stands_before_the_url_of_a_fixture(suite, monkeypatch):
    """While a test runs, its address is excluded, as its clients read the environment."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "a.example")
    monkeypatch.delenv("no_proxy", raising=False)
    suite.write(
        "test_proxy.py",
        """
        import os
        import pytest
        from agent import APPLICATION, deploy

        @pytest.mark.mrtr_cassette(upstream=APPLICATION)
        def test_deploys(mrtr_cassette):
            assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == "a.example,127.0.0.1"
            assert deploy(mrtr_cassette.url) == "Deployed to test"

        def test_after():
            assert os.environ["NO_PROXY"] == "a.example"
            assert "no_proxy" not in os.environ
        """,
    )

    suite.run(passed=2)
    suite.run("--mrtr-mode=none", passed=2)


def test_what_a_client_does_while_it_closes_is_recorded_too(suite):
    """The cassette is published after the fixtures that use it have been torn down."""
    suite.write(
        "test_late.py",
        """
        import pytest
        from agent import APPLICATION, deploy

        @pytest.fixture
        def client(mrtr_cassette):
            yield mrtr_cassette
            deploy(mrtr_cassette.url, "late")

        @pytest.mark.mrtr_cassette("late.json", upstream=APPLICATION)
        def test_late(client):
            deploy(client.url, "early")
        """,
    )

    suite.run()

    assert '"late"' in (suite.path / "cassettes/late.json").read_text()

    suite.run("--mrtr-mode=none", "--mrtr-fail-on-unplayed")
