"""Facts about mode verify: a test's own code runs against its server, and is held to its cassette."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TALK = """
    import time
    from pathlib import Path

    import pytest
    from aiohttp import web
    from mrtr_cassette.demo.server import create_app

    @web.middleware
    async def saying(request, handler):
        # What the server asks stands in a file.
        response = await handler(request)
        said = Path(__file__).with_name("said.txt").read_text()
        response.text = response.text.replace("Deploy to", said)
        return response

    APPLICATION = create_app()
    APPLICATION.middlewares.append(saying)

    def say(cassette, to="Ada"):
        return cassette.call("deploy", {"env": to}, answers={"confirm": True}).text
"""
HEAD = """
    import time
    import pytest
    from talk import APPLICATION, say
"""
ONE = (
    HEAD
    + """
    @pytest.mark.mrtr_cassette({options}upstream=APPLICATION)
    def test_say(mrtr_cassette):
        {body}
"""
)
SEVERAL = (
    HEAD
    + """
    pytestmark = pytest.mark.mrtr_cassette(upstream=APPLICATION)

    @pytest.mark.parametrize("to", ["Ada", "Bob"])
    @pytest.mark.mrtr_cassette("named")
    def test_named(mrtr_cassette, to):
        say(mrtr_cassette, to)

    class TestShared:
        def test_first(self, mrtr_cassette_class):
            say(mrtr_cassette_class, "Ada")

        def test_second(self, mrtr_cassette_class):
            say(mrtr_cassette_class, "Bob")

    def test_opens(mrtr_cassettes):
        say(mrtr_cassettes("opened", upstream=APPLICATION))
"""
)


@pytest.fixture
def talk(suite):
    """A project with a server whose question stands in a file."""
    suite.write("talk.py", TALK)
    (suite.path / "said.txt").write_text("Say it to")
    return suite


def write(talk, body, options=""):
    """Write a project's only test."""
    talk.write("test_say.py", ONE.format(body=body, options=options))


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
    write(talk, 'assert say(mrtr_cassette) == "Deployed to Ada"', 'mode="verify", ')
    missing = shown(talk, failed=1)

    assert (
        "test_say.json: there is no such cassette, and in mode verify no new one"
        in missing
    )

    assert "record it with pytest --mrtr-mode=once" in missing

    talk.run("--mrtr-mode=once")

    assert "1 the same" in shown(talk)

    (talk.path / "said.txt").write_text("Really to")
    changed = shown(talk, failed=1)
    verdict = 'question-changed: tools/call "deploy"'

    assert f"FAILED test_say.py::test_say - Failed: {verdict}\n" in changed
    assert (
        changed.count("turn 1 /inputRequests/confirm/params/message: question-changed")
        == 1
    )

    assert '- "Say it to Ada?"' in changed
    assert '+ "Really to Ada?"' in changed

    renew = (
        "record the new conversation with pytest test_say.py::test_say --mrtr-mode=all"
    )

    assert renew in changed
    assert "1 different" in changed

    shown(talk, "--mrtr-mode=none")
    talk.run(*renew.split()[6:])

    assert "1 the same" in shown(talk)


def test_the_whole_suite_is_held_to_its_cassettes(talk):
    """The option verifies all tests, and a part of those that share a cassette."""
    talk.write("test_several.py", SEVERAL)
    talk.run(passed=5)
    verify = "--mrtr-mode=verify"

    assert "4 the same" in shown(talk, verify, passed=5)

    shown(talk, verify, "-k", "Bob or second", passed=2)
    (talk.path / "said.txt").write_text("Really to")

    assert "4 different" in shown(talk, verify, failed=3, passed=2, errors=1)

    shown(talk, verify, "-k", "Bob or second", failed=1, passed=1, errors=1)


def test_calls_that_are_missing_or_new_are_differences(talk):
    """A call that the test no longer makes, and one that it makes now, are told."""
    ada = 'say(mrtr_cassette, "Ada")'
    bob = 'say(mrtr_cassette, "Bob")'
    eve = 'say(mrtr_cassette, "Eve")'
    write(talk, f"{ada}; {bob}")
    talk.run()
    write(talk, ada)
    missing = shown(talk, "--mrtr-mode=verify", failed=1)
    call = 'tools/call "deploy", answered with confirm: yes, and'

    assert f"\nnot called: {call}" in missing
    assert "- #" in missing
    assert " not called" in missing.split("interaction")[-1]

    write(talk, f"{ada}; {bob}; {bob}")
    shown(talk, "--mrtr-mode=verify", passed=1)
    write(talk, f"{ada}; {bob}; {eve}")

    assert "Failed: not recorded: " in shown(talk, "--mrtr-mode=verify", failed=1)

    write(talk, "pass")
    none = shown(talk, "--mrtr-mode=verify", failed=1)

    assert none.count("\n- #") >= 2


def test_a_call_that_a_fixture_makes_late_is_no_missing_one(talk):
    """Where a fixture speaks to the cassette too, what is missing shows in its teardown."""
    late = (
        HEAD
        + """
    @pytest.fixture
    def client(mrtr_cassette):
        yield mrtr_cassette
        {late}

    @pytest.mark.mrtr_cassette(upstream=APPLICATION)
    def test_say(client):
        say(client, "Ada")
"""
    )

    talk.write("test_say.py", late.format(late='say(mrtr_cassette, "Bob")'))
    talk.run()
    shown(talk, "--mrtr-mode=verify")
    talk.write("test_say.py", late.format(late="pass"))
    missing = shown(talk, "--mrtr-mode=verify", passed=1, errors=1)

    assert (
        'ERROR test_say.py::test_say - Failed: not called: tools/call "deploy"'
        in missing
    )


def test_what_is_ignored_makes_no_difference(talk):
    """In calls and in results, by the marker and by the file that `verify --learn` writes."""
    at = "/arguments/a"
    text = "/content/0/text"
    body = 'mrtr_cassette.call("add", {"a": time.time_ns() % 10**9, "b": 1})'
    write(talk, body, f"ignore=['{at}'], ")
    talk.run()
    changed = shown(talk, "--mrtr-mode=verify", failed=1)

    assert f"response {text}: text-changed" in changed
    assert "ignore=" not in changed

    (talk.path / "ignored.toml").write_text(
        f"[[ignore]]\ncall='add'\npointers=['{text}']\n"
    )
    for options in (
        f"ignore=['{at}', '{text}'], ",
        f"ignore=['{at}'], ignore_from='ignored.toml', ",
        f"ignore=['{at}'], fail_on=['question-changed'], ",
    ):
        write(talk, body, options)
        shown(talk, "--mrtr-mode=verify")

    for options, told in (
        (f"ignore=['{at}', '{text}'], ", "1 same, kept"),
        (f"ignore=['{at}'], ignore_from='ignored.toml', ", "1 same, kept"),
        (f"ignore=['{at}'], ", "1 recorded"),
    ):
        write(talk, body, options)
        talk.run("--mrtr-mode=all").stdout.fnmatch_lines([f"mrtr-cassette: {told}"])


def test_a_test_that_fails_or_is_skipped_is_not_compared(talk):
    """A failure comes with what differs so far; a missing server is told with the way out."""
    write(talk, "say(mrtr_cassette)")
    talk.run()
    (talk.path / "said.txt").write_text("Really to")
    write(talk, "assert not say(mrtr_cassette)")
    failed = shown(talk, "--mrtr-mode=verify", failed=1)

    assert (
        'FAILED test_say.py::test_say - question-changed: tools/call "deploy"\n'
        in failed
    )

    assert "1 different" in failed

    write(talk, "pytest.skip(say(mrtr_cassette))")

    assert "1 not compared (test skipped)" in shown(
        talk, "--mrtr-mode=verify", skipped=1
    )

    talk.write("test_say.py", "def test_say(mrtr_cassette):\n    pass")

    assert "there is nothing to hold to" in shown(talk, "--mrtr-mode=verify", errors=1)


def test_a_recording_hides_what_the_cassette_hides(talk):
    """Secrets of a cassette that was recorded with other rules are not shown, and no difference."""
    write(talk, "say(mrtr_cassette)", "redact=['Ada'], seal_answers=True, ")
    talk.run()
    write(talk, "say(mrtr_cassette)")
    shown(talk, "--mrtr-mode=verify")
    (talk.path / "said.txt").write_text("Really to")

    assert "Ada" not in shown(talk, "--mrtr-mode=verify", failed=1).partition("- /")[2]
