"""Facts about the library: the same sessions with `with` and with `async with`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
import trio
from aiohttp import ClientSession
from harness import demo_server
from messages import CAPABLE, tool_call
from patience import HANGS_S

from mrtr_cassette import MissesError, UnplayedError, UnpublishedError, record, replay
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.runs.running import in_thread


def deploy(env="test", **params):
    """Return a call of the demo server's tool that asks for confirmation."""
    return tool_call("deploy", arguments={"env": env}, **params, _meta=CAPABLE)


DEPLOY = deploy()
CONFIRMED = {"confirm": {"action": "accept", "content": {"confirm": True}}}
ACCEPT = deploy(inputResponses=CONFIRMED)
DECLINE = tool_call(
    "deploy",
    arguments={"env": "test"},
    inputResponses={"confirm": {"action": "decline"}},
)


@pytest.fixture
def server():
    """The URL of the demo server, in a thread."""
    with in_thread(demo_server()) as url:
        yield url


def post(url, body):
    """Send one message, and return the answer."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }

    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


async def apost(url, body):
    """Do the same in an event loop."""
    async with ClientSession() as client, client.post(url, json=body) as response:
        return await response.json()


def test_record_and_replay_in_plain_code(server, tmp_path):
    """In a `with` block a blocking client records and replays; the sessions tell what was said."""
    path = tmp_path / "deploy.json"
    lines = []
    with record(server, path, log=lines.append) as recording:
        assert recording.path == path
        assert recording.interactions == ()

        post(recording.url, DEPLOY)
        first = post(recording.url, ACCEPT)
        response_so_far = recording.interactions

        assert not path.exists()

    assert recording.interactions == response_so_far
    assert recording.problem is None
    assert recording.unreachable == 0
    assert any("asks: " in line for line in lines)

    (call,) = response_so_far

    assert call.number == 1
    assert call.call == 'tools/call "deploy"'
    assert call.arguments == {"env": "test"}
    assert call.ended == "HTTP 200, result"

    (turn,) = call.turns

    assert turn.asked == {"confirm": "Deploy to test?"}
    assert turn.answered == CONFIRMED

    with replay(path, on_miss="report") as replaying:
        assert replaying.path == path
        assert replaying.unplayed == replaying.interactions == response_so_far

        post(replaying.url, DEPLOY)

        assert post(replaying.url, ACCEPT) == first
        assert replaying.unplayed == ()
        assert replaying.misses == ()

        error = post(replaying.url, DECLINE)["error"]

    (miss,) = replaying.misses

    assert miss.reason == "answers-differ"
    assert miss.text == error["message"]
    assert miss.facts == error["data"]
    assert 'recorded "accept", received "decline"' in miss.text


def test_errors_only_are_no_recording(server, tmp_path):
    """The block ends with an error that says what was seen."""
    path = tmp_path / "deploy.json"
    with (
        pytest.raises(UnpublishedError) as caught,
        record(f"{server.removesuffix('/mcp')}/no", path) as recording,
        pytest.raises(HTTPError, match="404"),
    ):
        post(recording.url, DEPLOY)

    assert caught.value.reason == "the only request got 404; is the path /no right?"
    assert recording.objection == caught.value.reason
    assert caught.value.exit_code == 4
    assert len(recording.interactions) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["deploy.json.journal"]


@pytest.fixture
def deployed(server, tmp_path):
    """A cassette with the answered question of the demo server's tool."""
    path = tmp_path / "deploy.json"
    with record(server, path) as recording:
        post(recording.url, DEPLOY)
        post(recording.url, ACCEPT)

    return path


def test_a_miss_is_raised_when_the_block_ends(deployed):
    """A client that swallows its error doesn't make the block succeed."""
    with pytest.raises(MissesError) as caught, replay(deployed) as replaying:
        assert "error" in post(replaying.url, deploy("elsewhere"))

    (miss,) = caught.value.misses

    assert replaying.misses == (miss,)
    assert miss.reason == "arguments-differ"
    assert (
        str(caught.value)
        == f"1 request had no recorded answer on {deployed}\n\n{miss.text}"
    )
    assert caught.value.exit_code == 1


def test_an_exception_of_the_block_comes_before_its_misses(deployed):
    """What went wrong in the block is what the caller sees; an exit with success is no error."""

    async def main(error):
        async with replay(deployed) as replaying:
            await apost(replaying.url, deploy("elsewhere"))
            if error is not None:
                raise error

    for error in (None, SystemExit(), SystemExit(0)):
        with pytest.raises(MissesError):
            asyncio.run(main(error))

    for error in (ZeroDivisionError(), SystemExit("no")):
        with pytest.raises(type(error)):
            asyncio.run(main(error))


def test_what_was_not_played_is_raised_where_that_is_asked_for(deployed):
    """With `fail_on_unplayed` a block that plays a part of the cassette fails; misses come first."""
    with (
        pytest.raises(UnplayedError) as caught,
        replay(deployed, fail_on_unplayed=True) as replaying,
    ):
        post(replaying.url, DEPLOY)

    assert caught.value.unplayed == replaying.unplayed != ()
    assert str(caught.value).endswith('\n  #1 tools/call "deploy"')
    assert caught.value.exit_code == 1

    with (
        pytest.raises(MissesError),
        replay(deployed, fail_on_unplayed=True) as replaying,
    ):
        post(replaying.url, deploy("elsewhere"))


def test_record_and_replay_in_asyncio(server, tmp_path):
    """In an `async with` block both run in the caller's loop, and in no other thread."""

    async def main():
        before = threading.active_count()
        async with record(server, tmp_path / "deploy.json") as recording:
            assert threading.active_count() == before

            await apost(recording.url, DEPLOY)
            first = await apost(recording.url, ACCEPT)

        async with replay(recording.path) as replaying:
            await apost(replaying.url, DEPLOY)

            assert await apost(replaying.url, ACCEPT) == first

        assert replaying.interactions == recording.interactions
        assert replaying.unplayed == ()

    asyncio.run(main())


def test_async_with_needs_asyncio(tmp_path):
    """Under trio the error names the form that works there."""

    async def main():
        async with replay(tmp_path / "c.json"):
            pass

    with pytest.raises(UsageError, match="use `with`, which works anywhere"):
        trio.run(main)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: record("http://h", redct=[]),
            "record has no option 'redct'; did you mean 'redac",
        ),
        (
            lambda: replay("c", ignore="/a"),
            r"ignore is a single text; give a list: ignore=\['/a'\]",
        ),
    ],
)
def test_a_wrong_option_is_named_at_once(wrong, text):
    """What can't be meant is refused before the block begins."""
    with pytest.raises(UsageError, match=text):
        wrong()


def test_a_program_that_leaves_no_block_ends_all_the_same(tmp_path):
    """A proxy that nobody stopped keeps no program from ending."""
    text = (
        "from mrtr_cassette import record\n"
        f"record('http://localhost:1/mcp', {str(tmp_path / 'c.json')!r}).__enter__()\n"
    )

    done = subprocess.run([sys.executable, "-c", text], check=False, timeout=HANGS_S)

    assert done.returncode == 0


def test_importing_the_package_imports_nothing_else():
    """Package and plugin load nothing that only recording and replaying need."""
    text = (
        "import sys, mrtr_cassette, mrtr_cassette.pytest_plugin\n"
        "heavy = {'aiohttp', 'multidict', 'orjson', 'pydantic', 'uvloop', 'yarl'}\n"
        "ours = [name for name in sys.modules if name.startswith('mrtr_cassette')]\n"
        "print(sorted(heavy & sys.modules.keys()), sorted(ours))\n"
    )

    printed = subprocess.check_output([sys.executable, "-c", text], text=True)

    assert printed == (
        "[] ['mrtr_cassette', 'mrtr_cassette.errors', 'mrtr_cassette.options', "
        "'mrtr_cassette.pytest_plugin', 'mrtr_cassette.terms']\n"
    )


def test_types_are_as_documented():
    """`mypy --strict` agrees with the example, and would not with another."""
    root = Path(__file__).parent.parent
    # With the project's own settings, which are strict, so that what its linter found out is used.
    command = [sys.executable, "-m", "mypy", "tests/typing/library.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=root
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [("x" * 300, "file name too long"), ("a\0b", "no name of a file has a NUL")],
)
def test_a_name_that_no_file_may_have_is_named(name: str, reason: str) -> None:
    """Recording and playing tell it in the same words."""
    for proxy in (lambda: record("http://127.0.0.1:1/mcp", name), lambda: replay(name)):
        with pytest.raises(CassetteError, match=reason), proxy():
            pass
