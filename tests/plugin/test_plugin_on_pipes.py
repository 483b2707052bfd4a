"""The fixtures, where a client starts its server."""

import json
from pipes import LINES_SERVER

import pytest

pytest_plugins = ["pytester"]

AGENT = f"""
    import json
    import subprocess

    SERVER = {list(LINES_SERVER)!r}

    def ask(command, *values):
        calls = [
            {{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {{"v": value}}}}
            for number, value in enumerate(values)
        ]
        said = "".join(json.dumps(call) + "\\n" for call in calls)
        done = subprocess.run(command, input=said, capture_output=True, text=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        return [each["result"]["v"] if "result" in each else "error" for each in answers]
"""
ONE_TEST = """
    import pytest
    from piped import SERVER, ask

    @pytest.mark.mrtr_cassette(upstream=SERVER)
    def test_ask(mrtr_cassette):
        assert ask(mrtr_cassette.command, 1, 2) == [1, 2]
"""
CASSETTE = "test_one/test_ask.json"


@pytest.fixture
def project(suite):
    """A project with a client that starts its server."""
    suite.write("piped.py", AGENT)
    suite.write("test_one.py", ONE_TEST)
    return suite


def test_once_records_and_then_replays_without_the_server(project):
    """The first run starts the server; the next one starts only what plays."""
    project.run()
    before = project.cassette(CASSETTE)
    project.write("test_one.py", ONE_TEST.replace("upstream=SERVER", 'upstream=["gone"]'))
    project.run("--mrtr-mode=none")

    assert project.cassettes() == [f"cassettes/{CASSETTE}"]
    assert before["transport"] == "stdio"
    assert len(before["interactions"]) == 2
    assert project.cassette(CASSETTE) == before


def test_all_records_anew(project):
    """In mode all the cassette is another recording of the same."""
    project.run()
    before = project.cassette(CASSETTE)
    project.run("--mrtr-mode=all")
    after = project.cassette(CASSETTE)

    assert after["interactions"] == before["interactions"]
    assert after["recording"] != before["recording"]


def test_miss_fails_the_test_that_swallows_it(project):
    """What was not recorded fails the test at its end, with the report of the miss."""
    project.run()
    project.write("test_one.py", ONE_TEST.replace("1, 2) == [1, 2]", '1, 3) == [1, "error"]'))
    result = project.run(passed=1, errors=1)

    result.stdout.fnmatch_lines(["*1 request had no recorded answer on *test_ask.json*"])


def test_unplayed_fails_where_that_is_wanted(project):
    """What no start of the server has played is unplayed."""
    project.run()
    project.write("test_one.py", ONE_TEST.replace("1, 2) == [1, 2]", "1) == [1]"))
    project.run()
    project.run("--mrtr-fail-on-unplayed", passed=1, errors=1)


def test_several_starts_play_and_record_together(project):
    """A client may start its server several times, one after the other."""
    project.write(
        "test_one.py",
        ONE_TEST + "        assert ask(mrtr_cassette.command, 3) == [3]\n",
    )
    project.run()
    assert len(project.cassette(CASSETTE)["interactions"]) == 3
    project.run("--mrtr-mode=none", "--mrtr-fail-on-unplayed")


def test_failed_test_records_nothing(project):
    """A test that fails leaves no cassette, and nothing else."""
    project.write("test_one.py", ONE_TEST.replace("[1, 2]", "[1, 4]"))
    project.run(failed=1)

    assert project.cassettes() == []


def test_server_that_answers_nothing_is_said(project):
    """A server that can't be started, or dies at once, fails the test with the reason."""
    text = ONE_TEST.replace("== [1, 2]", "== []")
    for upstream, reason in (
        ('["no-such-server"]', "*can't run the server 'no-such-server'*"),
        ('["false"]', "*'false' ended with 1 and answered nothing*"),
    ):
        project.write("test_one.py", text.replace("upstream=SERVER", f"upstream={upstream}"))
        result = project.run(passed=1, errors=1)
        result.stdout.fnmatch_lines([reason])

    assert project.cassettes() == []


def test_pipes_have_no_url_and_http_no_command(project):
    """Each names the other where it is asked for what it has not."""
    project.write("test_one.py", ONE_TEST.replace("mrtr_cassette.command", "mrtr_cassette.url"))
    result = project.run(failed=1)
    result.stdout.fnmatch_lines(["*recorded over pipes, where there is no URL*"])


def test_what_has_been_recorded_is_shown(project):
    """The fixture shows the interactions while recording and on replay."""
    project.write(
        "test_one.py",
        ONE_TEST
        + "        assert len(mrtr_cassette.interactions) == 2\n"
        + "        assert mrtr_cassette.path.name == 'test_ask.json'\n",
    )
    project.run()
    project.run("--mrtr-mode=none")


def test_append_over_pipes_is_refused(project):
    """In mode append, which needs both the server and the cassette, the test fails and says so."""
    result = project.run("--mrtr-mode=append", errors=1)

    result.stdout.fnmatch_lines(["*is recorded over pipes, and can't be added to yet*"])


def test_server_runs_in_the_root_directory(project):
    """The command's paths are those of the suite, wherever the client runs."""
    project.write(
        "server.py",
        "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')",
    )
    upstream = json.dumps(["python", "server.py", LINES_SERVER[-1]])
    project.write("sub/test_one.py", ONE_TEST.replace("SERVER)", f"{upstream})"))
    (project.path / "test_one.py").unlink()
    project.run()
