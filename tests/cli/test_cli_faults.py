"""Facts about faults from the outside: the command line, the library and pipes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from pipes import LINES_SERVER, call, recorder, spoken

import pytest
from commands import caller, pinged
from harness import command, looped, post, run_here
from messages import message
from processes import PROGRAM

import mrtr_cassette
from mrtr_cassette import MrtrCassetteError, UsageError


@pytest.fixture(scope="module")
def ping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cassette of one `ping`."""
    return asyncio.run(pinged(tmp_path_factory.mktemp("recorded") / "c.json"))


@looped
async def test_a_replay_tells_which_faults_were_met(ping: Path, tmp_path: Path) -> None:
    """Log, summary, JSON report and JUnit name them; one that nothing met makes it fail."""
    faults = tmp_path / "faults.toml"
    report = tmp_path / "report"
    faults.write_text(
        '[[fault]]\nmethod = "ping"\noccurrence = 1\nstatus = 503\n'
        '[[fault]]\ntool = "dploy"\ndrop = "head"\n'
    )

    options = ("--faults", faults, "--report", f"{report}.json")
    async with command(
        "replay", ping, "--port", 0, *options, "--report", f"{report}.xml"
    ) as process:
        url = await process.listening()

        assert (await post(url, message("ping"))).status == 503
        assert (await post(url, message("ping"))).status == 200

        ended = await process.stopped()

    first = "fault 1 (method ping, occurrence 1, status 503)"
    second = "fault 2 (tool dploy, drop head)"

    assert ended.code == 1
    assert ended.err == (
        f"{first}: ping\n"
        "played 1 of 1 interactions, no misses\n"
        f"  met 1x: {first}\n"
        f"  nothing met {second}\n"
    )

    assert json.loads(report.with_suffix(".json").read_bytes())["faults"] == [
        {"fault": first, "came": 1, "times": 1},
        {"fault": second, "came": 0, "times": 0},
    ]
    assert f'message="nothing met {second}"' in report.with_suffix(".xml").read_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('tol = "x"', "faults.toml, fault 2 has no key 'tol'; did you mean 'tool'?"),
        ("status = 200", "fault 2: status is 200, and not between 400 and 599"),
        ("turn = 1", "fault 2 doesn't say what goes wrong; it needs delay, slow,"),
        (
            'drop = "all"',
            'fault 2: drop is \'all\', and not "head", "body" or a number',
        ),
        ("retry_after = 1", "fault 2: retry_after needs status"),
        ("status = 500\ndrop = 1", "fault 2: status and drop don't go together"),
        ("delay = true", "fault 2: delay is True, and not a number of seconds"),
        ("[more]", "a file of faults has [[fault]] tables and nothing else"),
        ("delay =", "faults.toml: this is not TOML: "),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_place(
    text: str, problem: str, ping: Path, tmp_path: Path
) -> None:
    """A wrong key or value is an error of usage that names file and fault."""
    faults = tmp_path / "faults.toml"
    faults.write_text(f"[[fault]]\ndelay = 1\n[[fault]]\n{text}\n")
    ended = run_here("replay", ping, "--faults", "faults.toml", cwd=tmp_path)

    assert ended.code == 2
    assert problem in ended.err
    assert "faults.toml" in ended.err


def test_the_library_takes_the_same_tables(ping: Path) -> None:
    """They are checked at once, and one that nothing met is an error when the block ends."""
    with pytest.raises(UsageError, match="faults, fault 1 has no key 'tol'"):
        mrtr_cassette.replay(ping, faults=[{"tol": "x"}])

    unmet = mrtr_cassette.replay(ping, faults=[{"turn": 3, "delay": 1}])
    unmet.__enter__()
    with pytest.raises(MrtrCassetteError, match="nothing met fault 1"):
        unmet.__exit__(None, None, None)

    replay = mrtr_cassette.replay(ping, faults=[{"status": 500}], on_miss="report")
    with replay as playing:
        asyncio.run(post(playing.url, message("ping")))

        assert [fault.times for fault in playing.faults] == [1]


def test_a_command_that_only_met_faults_has_come(ping: Path, tmp_path: Path) -> None:
    """A client whose every request met a fault is no missing client."""
    faults = tmp_path / "faults.toml"
    faults.write_text("[[fault]]\nstatus = 503\n")
    client = [sys.executable, "-c", GETS_503]
    ended = run_here("replay", ping, "--faults", faults, "--", *client)

    assert (ended.code, "no client came" in ended.err) == (0, False)


GETS_503 = caller("ping")[2].replace("import json", "import contextlib, json")
GETS_503 = GETS_503.replace(
    "    with urllib", "    with contextlib.suppress(OSError), urllib"
)


def test_faults_of_pipes(tmp_path: Path) -> None:
    """A lost response ends the server; what only HTTP has is refused."""
    path = tmp_path / "c.json"
    faults = tmp_path / "faults.toml"
    spoken(recorder(path), call(1))
    replay = [*PROGRAM, "replay", str(path), "--stdio"]
    whole = spoken(replay, call(1))

    assert whole.stdout

    for drop, kept in (
        ('"head"', b""),
        ('"body"', whole.stdout[: len(whole.stdout) // 2]),
    ):
        faults.write_text(f"[[fault]]\ntool = 't'\ndrop = {drop}\n")
        dropped = spoken([*replay, "--faults", str(faults)], call(1))

        assert (dropped.stdout, dropped.returncode) == (kept, 0), dropped.stderr

    faults.write_text("[[fault]]\ntool = 't'\nslow = 5000\ndelay = 0.01\n")
    slowed = spoken([*replay, "--faults", str(faults)], call(1))

    assert slowed.stdout == whole.stdout

    faults.write_text("[[fault]]\nstatus = 503\n")
    refused = spoken([*replay, "--faults", str(faults)], call(1))

    assert refused.returncode == 2
    assert b"fault 1: status needs HTTP" in refused.stderr

    lost = mrtr_cassette.replay(path, stdio=True, faults=[{"session_lost": True}])
    with pytest.raises(UsageError, match="session_lost needs HTTP"):
        lost.__enter__()


def test_starts_of_a_server_on_pipes_add_up(tmp_path: Path) -> None:
    """What a client's starts have met is told together."""
    path = tmp_path / "c.json"
    spoken(recorder(path, *LINES_SERVER), call(1))
    fault = {"tool": "t", "expired_state": True}
    replay = mrtr_cassette.replay(
        path, stdio=True, faults=[{"tool": "t", "delay": 0.01}, fault]
    )
    playing = replay.__enter__()
    for _ in range(2):
        spoken(playing.command, call(1))

    assert [fault.came for fault in playing.faults] == [2, 0]

    with pytest.raises(MrtrCassetteError, match="nothing met fault 2"):
        replay.__exit__(None, None, None)
