"""Facts about what a run's surroundings do to it: streams, disks, limits and names."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from commands import caller, pinged, words_to_record
from harness import Outcome, command, looped, post, read, run
from messages import message, result
from processes import PROGRAM
from standin import Visit, answering, json_response, upstream


async def pong(visit: Visit) -> None:
    """Answer any request."""
    await visit.send(json_response(result({}, id=0)))


def shell(line: str) -> list[str]:
    """Return what runs a line of a shell, in which `"$@"` is the program with its arguments."""
    return ["sh", "-c", line, "sh", *PROGRAM]


def assert_one_line(ended: Outcome, code: int, text: str) -> None:
    """Make sure that a run ended with one line of error."""
    assert (ended.code, ended.err.count("\n")) == (code, 1), ended
    assert text in ended.err


@pytest.mark.parametrize("closed", ["2>/dev/full", "<&- 2>&-"])
@looped
async def test_stderr_that_takes_nothing_changes_nothing(
    tmp_path: Path, closed: str
) -> None:
    """The exit code is the run's own, and what was recorded is published."""
    path = tmp_path / "c.json"
    program = shell(f'exec "$@" {closed}')
    async with upstream(pong) as server:
        recording = (*words_to_record(path, server.url), "--")

        assert (await run(*recording, *caller("ping"), program=program)).code == 0
        assert len(read(path)["interactions"]) == 1

        again = (*recording[:-1], "--append", "--", *caller("ping", code=7))

        assert (await run(*again, program=program)).code == 7

    for methods, code in (("ping",), 0), (("ping", "tools/list"), 1):
        replay = ("replay", path, "--port", 0, "--", *caller(*methods))

        assert (await run(*replay, program=program)).code == code

    assert (await run("inspect", tmp_path / "none.json", program=program)).code == 3


@looped
async def test_full_disk_behind_stdout_is_one_line(tmp_path: Path) -> None:
    """With the exit code of files."""
    path = await pinged(tmp_path / "c.json")
    program = shell('unset PYTHONUNBUFFERED; exec "$@" >/dev/full')
    for arguments in (
        ("inspect", path),
        ("schema",),
        ("--help",),
        ("replay", path, "--port", 0),
    ):
        ended = await run(*arguments, program=program)
        assert_one_line(ended, 3, "no space left on the device")


@looped
async def test_terminal_that_lacks_a_character_gets_its_escape(tmp_path: Path) -> None:
    """As stderr always does: a result in Japanese is shown where the locale is Latin-1."""
    answer = json_response(
        result({"content": [{"type": "text", "text": "日本 here"}]}, id=0)
    )
    path = tmp_path / "c.json"
    async with upstream(answering(answer)) as server:
        recording = words_to_record(path, server.url)
        assert (await run(*recording, "--", *caller("tools/call"))).code == 0

    program = shell('PYTHONIOENCODING=latin-1 exec "$@"')
    ended = await run("inspect", path, program=program)

    assert (ended.code, ended.err) == (0, "")
    assert r"\u65e5\u672c here" in ended.out


@looped
async def test_long_name_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    """A cassette whose name no journal can have is read, and a name that nothing can have told."""
    path = await pinged(tmp_path / "c.json")
    long = path.rename(tmp_path / ("n" * 245 + ".json"))

    assert (await run("inspect", long)).code == 0

    ended = await run("replay", long, "--port", 0, "--", *caller("ping"))

    assert (ended.code, ended.err) == (0, "played 1 of 1 interactions, no misses\n")

    longer = tmp_path / ("n" * 256)
    url = "http://127.0.0.1:9/mcp"
    for arguments in (
        ("record", "--output", longer, "--upstream", url),
        ("record", "--output", long, "--force", "--upstream", url),
        ("inspect", longer),
        ("merge", long, "-o", longer),
        ("verify", longer, "--upstream", url),
        ("view", long, "-o", longer),
    ):
        assert_one_line(await run(*arguments), 3, "file name too long")


@looped
async def test_run_that_is_to_survive_its_terminal_does(tmp_path: Path) -> None:
    """SIGHUP is not taken where `nohup` has it ignored."""
    path = tmp_path / "c.json"
    program = shell("""trap '' HUP; exec "$@\"""")
    async with (
        upstream(pong) as server,
        command(*words_to_record(path, server.url), program=program) as process,
    ):
        url = await process.listening()
        process.kill(signal.SIGHUP)
        await post(url, message("ping"))

        assert (await process.stopped(signal.SIGTERM)).code == 0

    assert len(read(path)["interactions"]) == 1
