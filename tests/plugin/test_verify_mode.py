"""Facts about mode verify: a test's own code runs against its server, and is held to its cassette."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SERVER = """
    import sys
    import time
    from pathlib import Path

    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

    server = MCPServer("talk", log_level="WARNING")
    SAID = Path(__file__).with_name("said.txt")
    SCHEMA = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}

    @server.tool("say", structured_output=False)
    async def say(ctx: Context, to: str) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            form = ElicitRequestFormParams(message=SAID.read_text(), requested_schema=SCHEMA)
            return InputRequiredResult(input_requests={"confirm": ElicitRequest(params=form)})
        return f"said to {to}"

    @server.tool("clock", structured_output=False)
    async def clock(at: str) -> str:
        return str(time.time_ns())

    if __name__ == "__main__":
        if sys.argv[1:]:
            server.run("streamable-http", port=int(sys.argv[1]))
        else:
            server.run("stdio")
"""
CLIENT = """
    import asyncio
    import sys
    from pathlib import Path

    import pytest
    from mcp import Client, StdioServerParameters, stdio_client
    from mcp_types import ElicitResult

    SERVER = str(Path(__file__).with_name("server.py"))
    OVER_HTTP, ON_PIPES = [sys.executable, SERVER, "{port}"], [sys.executable, SERVER]

    class Application:
        # Made when it is served: an application of the SDK serves once.

        served = None

        async def __call__(self, scope, receive, send):
            if self.served is None:
                from server import server
                self.served = server.streamable_http_app()
            await self.served(scope, receive, send)

    APPLICATION = Application()

    async def confirm(context, params):
        return ElicitResult(action="accept", content={"confirm": True})

    async def said(client, tool, arguments):
        return (await client.call_tool(tool, arguments)).content[0].text

    def call(place, tool="say", **arguments):
        if isinstance(place, list):
            place = stdio_client(StdioServerParameters(command=place[0], args=place[1:]))

        async def main():
            async with Client(place, elicitation_callback=confirm) as client:
                return await said(client, tool, arguments)

        return asyncio.run(main())
"""
ONE = """
    import pytest
    from client import ON_PIPES, OVER_HTTP, call

    @pytest.mark.mrtr_cassette(upstream=OVER_HTTP, mode="verify")
    def test_http(mrtr_cassette):
        assert call(mrtr_cassette.url, to="Ada") == "said to Ada"

    @pytest.mark.mrtr_cassette(upstream=ON_PIPES, mode="verify")
    def test_pipes(mrtr_cassette):
        assert call(mrtr_cassette.command, to="Ada") == "said to Ada"
"""
SEVERAL = """
    import pytest
    from client import APPLICATION, call

    pytestmark = pytest.mark.mrtr_cassette(upstream=APPLICATION)

    @pytest.mark.parametrize("to", ["Ada", "Bob"])
    @pytest.mark.mrtr_cassette("named")
    def test_named(mrtr_cassette, to):
        call(mrtr_cassette.url, to=to)

    class TestShared:
        def test_first(self, mrtr_cassette_class):
            call(mrtr_cassette_class.url, to="Ada")

        def test_second(self, mrtr_cassette_class):
            call(mrtr_cassette_class.url, to="Bob")

    def test_opens(mrtr_cassettes):
        call(mrtr_cassettes("opened", upstream=APPLICATION).url, to="Ada")
"""


@pytest.fixture
def talk(suite):
    """A project with a server of the SDK, whose question stands in a file."""
    suite.write("server.py", SERVER)
    suite.write("client.py", CLIENT)
    (suite.path / "said.txt").write_text("Say it?")
    return suite


def shown(suite, *options, **outcomes):
    """Return what a run shows that leaves all cassettes alone."""
    paths = [suite.path / name for name in suite.cassettes()]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths]
    text = suite.run(*options, **outcomes).stdout.str()
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths] == before
    assert len(suite.cassettes()) == len(paths)
    return text


def test_a_marked_test_is_held_to_its_cassette(talk):
    """It runs against its server, passes where all is the same, and fails with what differs."""
    talk.write("test_say.py", ONE)
    missing = shown(talk, failed=2)
    assert "test_http.json: there is no such cassette, and in mode verify no new one" in missing
    assert "record it with --mrtr-mode=once" in missing
    talk.run("--mrtr-mode=once", passed=2)
    assert "2 the same" in shown(talk, passed=2)
    (talk.path / "said.txt").write_text("Really?")
    changed = shown(talk, passed=2, errors=2)
    assert changed.count("turn 1 /inputRequests/confirm/params/message: question-changed") == 2
    assert '- "Say it?"' in changed
    assert '+ "Really?"' in changed
    assert "record what happens now with --mrtr-mode=all" in changed
    assert "2 different" in changed
    shown(talk, "--mrtr-mode=none", passed=2)
    talk.run("--mrtr-mode=all", passed=2)
    assert "2 the same" in shown(talk, passed=2)


def test_the_whole_suite_is_held_to_its_cassettes(talk):
    """The option verifies all tests, by however many processes, and a part of those that share."""
    talk.write("test_several.py", SEVERAL)
    talk.run(passed=5)
    verify = "--mrtr-mode=verify"
    assert "4 the same" in shown(talk, verify, passed=5)
    shown(talk, verify, "-n", "2", passed=5)
    shown(talk, verify, "-k", "Bob or second", passed=2)
    (talk.path / "said.txt").write_text("Really?")
    assert "4 different" in shown(talk, verify, passed=5, errors=4)
    shown(talk, verify, "-k", "Bob or second", passed=2, errors=2)


def test_calls_that_are_missing_or_new_are_differences(talk):
    """A call that the test no longer makes, and one that it makes now, are told."""
    test = """
        import pytest
        from client import APPLICATION, call

        @pytest.mark.mrtr_cassette({name}upstream=APPLICATION)
        def test_say(mrtr_cassette):
            {calls}
    """
    ada, bob = ('call(mrtr_cassette.url, to="Ada")', 'call(mrtr_cassette.url, to="Bob")')
    talk.write("test_say.py", test.format(name="", calls=f"{ada}; {bob}"))
    talk.run()
    talk.write("test_say.py", test.format(name="", calls=ada))
    missing = shown(talk, "--mrtr-mode=verify", passed=1, errors=1)
    assert "- #" in missing
    assert "only in the first" in missing
    talk.write("test_say.py", test.format(name="", calls=f"{ada}; {bob}; {bob}"))
    shown(talk, "--mrtr-mode=verify", passed=1)
    talk.write(
        "test_say.py", test.format(name="", calls=f"{ada}; {bob}; {bob.replace('Bob', 'Eve')}")
    )
    assert "+ #" in shown(talk, "--mrtr-mode=verify", passed=1, errors=1)
    talk.write("test_say.py", test.format(name="", calls="pass"))
    none = shown(talk, "--mrtr-mode=verify", passed=1, errors=1)
    assert none.count("\n- #") >= 2


def test_what_is_ignored_makes_no_difference(talk):
    """In calls and in results, by the marker and by the file that `verify --learn` writes."""
    test = """
        import time
        import pytest
        from client import APPLICATION, call

        @pytest.mark.mrtr_cassette(upstream=APPLICATION, {options})
        def test_clock(mrtr_cassette):
            call(mrtr_cassette.url, "clock", at=str(time.time_ns()))
    """
    at, text = "/arguments/at", "/content/0/text"
    talk.write("test_clock.py", test.format(options=f"ignore=['{at}']"))
    talk.run()
    changed = shown(talk, "--mrtr-mode=verify", passed=1, errors=1)
    assert f"response {text}: text-changed" in changed
    assert f"leave out what differs in every run with ignore=['{text}']" in changed
    for options in (
        f"ignore=['{at}', '{text}']",
        f"ignore=['{at}'], ignore_from='ignored.toml'",
        f"ignore=['{at}'], fail_on=['question-changed']",
    ):
        (talk.path / "ignored.toml").write_text(f"[[ignore]]\ncall='clock'\npointers=['{text}']\n")
        talk.write("test_clock.py", test.format(options=options))
        shown(talk, "--mrtr-mode=verify")


def test_a_test_that_fails_or_is_skipped_is_not_compared(talk):
    """A failure comes with what differs so far; a missing server is told with the way out."""
    talk.write("test_say.py", ONE.replace(' == "said to Ada"', ""))
    talk.run("--mrtr-mode=once", passed=2)
    (talk.path / "said.txt").write_text("Really?")
    talk.write("test_say.py", ONE.replace(' == "said to Ada"', ' == "heard"'))
    failed = shown(talk, failed=2)
    assert failed.count("question-changed") >= 2
    assert "2 not compared (test failed)" in failed
    skipped = ONE.replace("assert call", "pytest.skip(); assert call")
    talk.write("test_say.py", skipped)
    assert "2 not compared (test skipped)" in shown(talk, skipped=2)
    talk.write("test_say.py", ONE.replace("upstream=OVER_HTTP, ", ""))
    assert "there is nothing to hold to" in shown(talk, "-k", "http", errors=1, deselected=1)


def test_a_recording_hides_what_the_cassette_hides(talk):
    """Secrets of a cassette that was recorded with other rules are not shown, and no difference."""
    test = """
        import pytest
        from client import APPLICATION, call

        @pytest.mark.mrtr_cassette(upstream=APPLICATION, {options})
        def test_say(mrtr_cassette):
            call(mrtr_cassette.url, to="Ada")
    """
    talk.write("test_say.py", test.format(options="redact=['Ada'], seal_answers=True"))
    talk.run()
    talk.write("test_say.py", test.format(options=""))
    shown(talk, "--mrtr-mode=verify")
    (talk.path / "said.txt").write_text("Really, Ada?")
    assert "Ada" not in shown(talk, "--mrtr-mode=verify", passed=1, errors=1).partition("- /")[2]
