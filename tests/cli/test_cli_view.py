"""Facts about the command `view`, each of a real process."""

from __future__ import annotations

import json
from pathlib import Path

from builders import cassette_of, encode_cassette, missed, player_of, post, retry, tool
from harness import looped, run
from messages import NO, YES, asks, text
from pages import Node, assert_readable, assert_safe, parsed

from mrtr_cassette.core.report.runs import report_of_replay, summary_data

CALL = tool("deploy", env="prod")
SCRIPT = ((CALL, asks("a")), (retry(CALL, {"a": YES}), text("done")))


def cassette(folder: Path) -> Path:
    """Write a cassette with one call that asks."""
    path = folder / "deploy.json"
    path.write_bytes(encode_cassette(cassette_of(*SCRIPT)))
    return path


def report(folder: Path) -> Path:
    """Write the report of a replay that missed an answer."""
    player = player_of(*SCRIPT)
    player.request_received(post(CALL))
    missed(player, retry(CALL, {"a": NO}))
    path = folder / "report.json"
    path.write_text(json.dumps(summary_data(report_of_replay(player))))
    return path


def page(path: Path) -> Node:
    """Return a page, which is as every page must be."""
    made = parsed(path.read_text("utf-8").removeprefix("<!doctype html>\n"))
    assert_safe(made)
    assert_readable(made)
    return made


@looped
async def test_view_writes_a_page(tmp_path: Path) -> None:
    """The page has the cassette's name, in this directory, and may be written again."""
    path = cassette(tmp_path)
    (tmp_path / "here").mkdir()
    for _ in range(2):
        ended = await run("view", path, cwd=tmp_path / "here")
        assert (ended.code, ended.out, ended.err) == (0, "", "wrote deploy.html\n")
    assert page(tmp_path / "here" / "deploy.html").one("h1").text == "deploy.json"


@looped
async def test_view_shows_a_report_of_a_replay(tmp_path: Path) -> None:
    """With a report, misses stand beside the nearest recorded requests."""
    ended = await run(
        "view", cassette(tmp_path), "-o", tmp_path / "p.html", "--report", report(tmp_path)
    )
    assert ended.code == 0
    made = page(tmp_path / "p.html")
    assert made.by_id("i1").one(class_="miss").attributes["id"] == "m1"


@looped
async def test_view_compares_two_cassettes(tmp_path: Path) -> None:
    """With a second cassette it is the page of that one, and shows what differs from the first."""
    path = cassette(tmp_path)
    other = tmp_path / "other.json"
    other.write_bytes(encode_cassette(cassette_of(SCRIPT[0], (SCRIPT[1][0], text("gone")))))
    ended = await run("view", path, other, cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "wrote other.html\n")
    made = page(tmp_path / "other.html")
    assert made.one("h1").text == "deploy.json and other.json"
    assert [each.text for each in made.by_id("c1").every("td")] == ['"done"', '"gone"']
    refused = await run("view", path, other, "--report", report(tmp_path), cwd=tmp_path)
    assert refused.code == 2
    assert "--report is about one cassette" in refused.err


@looped
async def test_view_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    """A foreign file, a report of another cassette or none, and no cassette are told."""
    path = cassette(tmp_path)
    other = report(tmp_path)
    tree = json.loads(other.read_text())
    other.write_text(json.dumps({**tree, "interactions": tree["interactions"] * 2}))
    for arguments, code, said in (
        ((path, "-o", path), 2, "deploy.json exists and is no report or page"),
        ((path, "--report", tmp_path / "none.json"), 3, "none.json: no such file"),
        ((path, "--report", path), 2, "deploy.json is no JSON report of a replay of"),
        ((path, "--report", other), 2, "is no JSON report of a replay of this"),
        ((tmp_path / "missing.json",), 3, "there is no such cassette"),
    ):
        ended = await run("view", *arguments, cwd=tmp_path)
        assert ended.code == code
        assert said in ended.err
    assert not list(tmp_path.glob("*.html"))
