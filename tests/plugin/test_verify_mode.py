"""Facts about pytest's mode verify: the outcome of a test is that of its cassette."""

from __future__ import annotations

import json

pytest_plugins = ["pytester"]

TESTS = """
    import asyncio
    import json
    import pathlib
    import urllib.request

    import pytest
    from aiohttp import web

    SAID = pathlib.Path(__file__).with_name("said.txt")

    async def say(request):
        body = await request.json()
        text = SAID.read_text() if body["params"]["name"] == "say" else "Hi"
        result = {"content": [{"type": "text", "text": text}]}
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result})

    APPLICATION = web.Application()
    APPLICATION.router.add_post("/mcp", say)

    def call(url, name):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request).read()

    @pytest.fixture
    def client(mrtr_cassette):
        call(mrtr_cassette.url, "say")

    @pytest.fixture(scope="session")
    def mrtr_upstream():
        return APPLICATION

    def test_say(client):
        pass

    @pytest.mark.parametrize("name", ["greet", "wave"])
    def test_other(mrtr_cassette, name):
        call(mrtr_cassette.url, name)

    class TestShared:
        def test_first(self, mrtr_cassette_class):
            call(mrtr_cassette_class.url, "greet")

        def test_second(self, mrtr_cassette_class):
            call(mrtr_cassette_class.url, "wave")

    def test_without():
        assert SAID.read_text() == "one"
"""


def test_selected_cassettes_are_held_to_their_upstreams(suite):
    """No test runs: unchanged ones pass, a changed one fails with its place, others are deselected."""
    suite.write("test_talk.py", TESTS)
    (suite.path / "said.txt").write_text("one")
    suite.run(passed=6)
    before = {name: (suite.path / name).read_bytes() for name in suite.cassettes()}
    assert len(before) == 4

    same = suite.run("--mrtr-mode=verify", passed=5, deselected=1)
    assert "mrtr-cassette: mode verify" in same.stdout.str()
    assert "4 the same" in same.stdout.str()
    (suite.path / "said.txt").write_text("two")
    changed = suite.run("--mrtr-mode=verify", passed=4, errors=1, deselected=1).stdout.str()
    assert "response /content/0/text: text-changed" in changed
    assert '- "one"' in changed
    assert "1 different, 3 the same" in changed
    suite.run("--mrtr-mode=verify", "-k", "other", passed=2, deselected=4)
    (suite.path / "ignore.toml").write_text(
        '[[ignore]]\ncall = "say"\npointers = ["/content/0/text"]\n'
    )
    suite.write(
        "conftest.py",
        """
        import pytest

        @pytest.fixture(scope="session")
        def mrtr_cassette_config():
            return {"ignore_from": "ignore.toml"}
        """,
    )
    suite.run("--mrtr-mode=verify", passed=5, deselected=1)
    assert {name: (suite.path / name).read_bytes() for name in suite.cassettes()} == before


def test_no_test_runs_and_each_cassette_that_is_left_out_is_listed(suite):
    """Nothing runs of a unittest or of a fixture that wraps ours; what is opened later is named."""
    suite.write("test_talk.py", TESTS)
    (suite.path / "said.txt").write_text("one")
    suite.write(
        "conftest.py",
        """
        import pytest

        @pytest.fixture
        def mrtr_cassette(mrtr_cassette):
            assert mrtr_cassette.mode == "once"
            return mrtr_cassette
        """,
    )
    suite.write(
        "test_later.py",
        """
        import unittest
        import pytest
        from test_talk import call, mrtr_upstream

        def called(cassette):
            assert cassette.mode == "once"
            call(cassette.url, "say")

        class TestUnit(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def handed(self, mrtr_cassette_class):
                self.cassette = mrtr_cassette_class

            def test_unit(self):
                called(self.cassette)

        def test_opens(mrtr_cassettes):
            called(mrtr_cassettes("opened.json"))

        def test_asks(request):
            called(request.getfixturevalue("mrtr_cassette"))
        """,
    )
    suite.write(
        "read.txt",
        """
        >>> import test_talk
        >>> from test_later import called
        >>> getfixture("request").node.add_marker(test_talk.MARK)
        >>> called(getfixture("mrtr_cassette"))
        """,
    )
    marked = TESTS + "    MARK = pytest.mark.mrtr_cassette(upstream=APPLICATION)\n"
    suite.write("test_talk.py", marked)
    suite.run("--doctest-glob=*.txt", passed=10)
    for options in ((), ("-n", "2")):
        result = suite.run("--mrtr-mode=verify", "--doctest-glob=*.txt", *options, passed=6)
        result.stdout.fnmatch_lines(
            [
                "cassettes/opened.json: no test has it by a fixture: one opens it by name *",
                "cassettes/read/read.txt.json: read.txt::read.txt asks for it while it runs",
                "cassettes/test_later/test_asks.json: test_later.py::test_asks asks for it *",
                "*verify these with: mrtr-cassette verify CASSETTE UPSTREAM",
                "mrtr-cassette: * the same",
            ]
        )


def test_what_cannot_be_verified_fails(suite):
    """A cassette that is missing, and one without an upstream, are told with the way out."""
    suite.write("test_talk.py", TESTS)
    (suite.path / "said.txt").write_text("one")
    missing = suite.run("--mrtr-mode=verify", "-k", "say", errors=1, deselected=5)
    assert "there is no such cassette to verify" in missing.stdout.str()
    suite.run("-k", "say", passed=1, deselected=5)
    suite.write("test_talk.py", TESTS.replace("return APPLICATION", "return None"))
    nothing = suite.run("--mrtr-mode=verify", "-k", "say", errors=1, deselected=5)
    assert "there is nothing to hold to" in nothing.stdout.str()
    assert json.loads((suite.path / "cassettes/test_talk/test_say.json").read_bytes())
