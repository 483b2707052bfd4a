"""The fixtures, where a client starts its server."""

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
    project.run("--mrtr-mode=all").stdout.fnmatch_lines(["mrtr-cassette: 1 same, kept"])
    project.run("--mrtr-mode=verify").stdout.fnmatch_lines(
        ["mrtr-cassette: 1 the same"]
    )
    project.write(
        "test_one.py", ONE_TEST.replace("upstream=SERVER", 'upstream=["gone"]')
    )
    project.run("--mrtr-mode=none")

    assert project.cassettes() == [f"cassettes/{CASSETTE}"]
    assert before["transport"] == "stdio"
    assert len(before["interactions"]) == 2
    assert project.cassette(CASSETTE) == before


def test_append_records_what_is_missing(project):
    """In mode append what the cassette has is played, and a failed test leaves it as it is."""
    project.run("--mrtr-mode=append")
    before = project.cassette(CASSETTE)
    project.write("test_one.py", ONE_TEST.replace("1, 2) == [1, 2]", "2, 3) == [2, 4]"))
    project.run("--mrtr-mode=append", failed=1)

    assert project.cassette(CASSETTE) == before

    project.write("test_one.py", ONE_TEST.replace("1, 2) == [1, 2]", "2, 3) == [2, 3]"))
    result = project.run("--mrtr-mode=append")
    after = project.cassette(CASSETTE)

    result.stdout.fnmatch_lines(["*1 added to*"])

    assert after["interactions"][:2] == before["interactions"]
    assert len(after["interactions"]) == 3


def test_tests_that_share_a_cassette_record_all_of_it(project):
    """Each use adds what it asks to what those before it asked, and a failed one leaves nothing."""
    project.write(
        "test_one.py",
        """
        import pytest
        from piped import SERVER, ask

        pytestmark = pytest.mark.mrtr_cassette("test_one", upstream=SERVER)

        @pytest.mark.flaky(reruns=1)
        @pytest.mark.parametrize("value", [2, 3])
        def test_ask(mrtr_cassette, value, request):
            count = request.node.execution_count
            assert ask(mrtr_cassette.command, value * count) == [value * 2]
        """,
    )

    project.run(passed=2)

    assert len(project.cassette("test_one.json")["interactions"]) == 2


def test_client_that_is_left_open_is_told(project):
    """The test fails with the way out, and there is no cassette; the process ends well later."""
    project.write(
        "test_one.py",
        """
        import json
        import subprocess
        import pytest
        from piped import SERVER

        CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"v": 1}}

        @pytest.fixture(scope="session")
        def clients():
            clients = []
            yield clients
            for client in clients:
                client.communicate()
                assert client.returncode == 0

        @pytest.mark.mrtr_cassette("c.json", upstream=SERVER)
        def test_ask(clients, mrtr_cassette):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            clients.append(subprocess.Popen(mrtr_cassette.command, **pipes))
            print(json.dumps(CALL), file=clients[0].stdin, flush=True)
            assert json.loads(clients[0].stdout.readline())["result"]["v"] == 1

        def test_later(clients):
            pass
        """,
    )

    told = "*a process that the client started as its server is still running: close the client *"
    result = project.run(passed=2, errors=1)
    result.stdout.fnmatch_lines([told])

    assert project.cassettes() == []
