"""Facts about masks: what they match in texts keeps its bytes, and doesn't count."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from harness import command, looped, post, run_here, taped
from messages import result, tool_call
from standin import answering, json_response, upstream

import mrtr_cassette

CALL = tool_call("now", arguments={})
MASK = r"\d\d:\d\d(?:, by [a-z]+)?"


def says(words: str) -> bytes:
    """Return a response of a tool."""
    return json_response(result({"content": [{"type": "text", "text": words}]}))


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two recordings that differ in a time within a text."""
    paths = (tmp_path / "old.json", tmp_path / "new.json")
    for path, words in zip(
        paths, ("it is 07:15, by me: ok", "it is 08:20: ok"), strict=True
    ):
        asyncio.run(taped(path, (CALL, says(words))))

    return paths


def test_a_diff_tells_nothing_within_a_mask(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    """The option, its file and the library leave it out; all else in the text counts."""
    assert run_here("diff", *two).code == 1
    assert run_here("diff", *two, "--mask", MASK).code == 0
    assert run_here("diff", *two, "--mask", r"\d+").code == 1

    rules = tmp_path / "ignore.toml"
    rules.write_text(f"[[ignore]]\nmasks = ['{MASK}']\n")

    assert run_here("diff", *two, "--ignore-from", rules).code == 0

    rules.write_text(f"[[ignore]]\ncall = 'other'\nmasks = ['{MASK}']\n")

    assert run_here("diff", *two, "--ignore-from", rules).code == 1
    assert mrtr_cassette.diff(*two, masks=[MASK]).is_same


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ("(", "--mask '(' is not a regular expression: missing )"),
        ("x*", "--mask 'x*' matches an empty text; let it need a character"),
    ],
)
def test_a_mask_that_can_not_be_meant_is_refused(
    mask: str, problem: str, two: tuple[Path, Path], tmp_path: Path
) -> None:
    """It is an error of usage in each command, and in a file."""
    for words in (
        ["diff", *two],
        ["verify", two[0], "--upstream", "http://127.0.0.1:1"],
    ):
        ended = run_here(*words, "--mask", mask)

        assert (ended.code, problem in ended.err) == (2, True), ended.err

    rules = tmp_path / "ignore.toml"
    rules.write_text("[[ignore]]\nmasks = 'x'\n")
    ended = run_here("diff", *two, "--ignore-from", rules)

    assert "[[ignore]] 1: `masks` is not a list of regular expressions" in ended.err


@looped
async def test_verify_and_a_new_recording_keep_what_is_masked(
    two: tuple[Path, Path],
) -> None:
    """A live server that says another time is the same, and leaves the file alone."""
    old = two[0]
    before = json.loads(old.read_bytes())["interactions"]
    async with upstream(answering(*[says("it is 23:59: ok")] * 9)) as server:
        url = server.url
        for mask, code in ((MASK, 0), ("nothing", 1)):
            words = ("verify", old, "--upstream", url, "--mask", mask)
            async with command(*words) as process:
                assert (await process.ended()).code == code

        again = ("record", "--force", "-o", old, "--upstream", url, "--port", 0)
        async with command(*again, "--mask", MASK) as process:
            await post(await process.listening(), CALL)

            assert (await process.stopped()).code == 0

    assert json.loads(old.read_bytes())["interactions"] == before
