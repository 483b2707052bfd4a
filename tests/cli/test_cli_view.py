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
        "view",
        cassette(tmp_path),
        "-o",
        tmp_path / "p.html",
        "--report",
        report(tmp_path),
    )

    assert ended.code == 0

    made = page(tmp_path / "p.html")

    assert made.by_id("i1").one(class_="miss").attributes["id"] == "m1"


@looped
async def test_view_compares_with_another_cassette(tmp_path: Path) -> None:
    """The page shows what differs from the cassette after --against, but for what is left out."""
    path = cassette(tmp_path)
    changed = tmp_path / "changed.json"
    changed.write_bytes(
        encode_cassette(cassette_of(SCRIPT[0], (SCRIPT[1][0], text("gone"))))
    )
    compared = ("view", changed, "--against", path)
    ended = await run(*compared, cwd=tmp_path)

    assert (ended.code, ended.err) == (0, "wrote changed.html\n")

    made = page(tmp_path / "changed.html")

    assert made.one("h1").text == "deploy.json and changed.json"
    assert [cell.text for cell in made.by_id("c1").every("td")] == ['"done"', '"gone"']

    rules = tmp_path / "ignore.toml"
    rules.write_text(
        '[[ignore]]\ncall = "deploy"\npointers = ["/result/content/0/text"]\n'
    )
    for option in (("--ignore-from", rules), ("--ignore", "/result/content/0/text")):
        await run(*compared, *option, cwd=tmp_path)
        differences = page(tmp_path / "changed.html").by_id("differences")

        assert differences.one("h2").text == "No differences"

        (tmp_path / "changed.html").unlink()

    refused = await run("view", path, changed, "--against", path, cwd=tmp_path)

    assert (refused.code, "--against take a single cassette" in refused.err) == (
        2,
        True,
    )

    needless = await run("view", path, "--ignore-from", rules, cwd=tmp_path)

    assert (needless.code, "--ignore-from need --against" in needless.err) == (2, True)


@looped
async def test_view_writes_two_pages_as_it_writes_three(tmp_path: Path) -> None:
    """Each cassette has its page, however many are named; a report is about one."""
    path = cassette(tmp_path)
    for names in ("ab", "abc"):
        paths = [tmp_path / f"{name}.json" for name in names]
        for copy in paths:
            copy.write_bytes(path.read_bytes())

        ended = await run("view", *paths, cwd=tmp_path)

        assert ended.err == "".join(f"wrote {name}.html\n" for name in names)
        assert page(tmp_path / "b.html").one("h1").text == "b.json"

    refused = await run("view", *paths, "--report", report(tmp_path), cwd=tmp_path)

    assert (refused.code, "take a single cassette" in refused.err) == (2, True)


@looped
async def test_pages_are_written_below_this_directory(tmp_path: Path) -> None:
    """However cassettes are named, their pages have the folders that these don't share."""
    path = cassette(tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    (here / "b.json").write_bytes(path.read_bytes())
    for first in (path, "../deploy.json"):
        ended = await run("view", first, "b.json", cwd=here)

        assert ended.err == "wrote deploy.html\nwrote here/b.html\n"
        assert (here / "here" / "b.html").is_file()

    assert not (tmp_path / "deploy.html").exists()


@looped
async def test_view_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    """A foreign file, a report of another cassette or none, and no cassette are told."""
    path = cassette(tmp_path)
    again = report(tmp_path)
    tree = json.loads(again.read_text())
    again.write_text(json.dumps({**tree, "interactions": tree["interactions"] * 2}))
    for arguments, code, said in (
        ((path, "-o", path), 2, "deploy.json exists and is not a report or page"),
        ((path, "--report", tmp_path / "none.json"), 3, "none.json: no such file"),
        (
            (path, "--report", path),
            2,
            "/deploy-report.json\n",
        ),
        ((path, "--report", again), 2, "is not a JSON report of a replay of this"),
        ((tmp_path / "missing.json",), 3, "there is no such cassette"),
    ):
        ended = await run("view", *arguments, cwd=tmp_path)

        assert ended.code == code
        assert said in ended.err

    assert not list(tmp_path.glob("*.html"))
