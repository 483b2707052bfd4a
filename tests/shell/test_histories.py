"""Histories of writes, by each way in which a cassette is played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import cassette_of, encode_cassette, said, tool
from harness import command, looped, post, read, taping
from messages import result, text
from standin import answering, json_response

from mrtr_cassette import replay

pytest_plugins = ["pytester"]

GET = tool("get")
SET = tool("set", to=1)
SET_2 = tool("set", to=2)


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    """Return two cassettes of one store, which was written to in two ways."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, write, value in zip(paths, (SET, SET_2), ("1", "2"), strict=True):
        cassette = cassette_of(
            (GET, text("0")), (write, text("set")), (GET, text(value))
        )
        path.write_bytes(encode_cassette(cassette))

    return [*map(str, paths)]


@looped
async def test_command_plays_the_value_that_was_read_after_the_same_write(
    stores: list[str],
) -> None:
    """Of two cassettes the one goes on that has the write; a read of another history is a miss."""
    async with command("replay", *stores, "--reads", "get", "--port", 0) as process:
        url = await process.listening()
        got = [said((await post(url, call)).body) for call in (SET_2, GET, GET)]
        missed = (
            json.loads((await post(url, SET)).body),
            json.loads((await post(url, GET)).body),
        )
        ended = await process.stopped()

    assert got == ["set", "2", "2"]
    assert missed[0]["result"]["content"][0]["text"] == "set"
    assert missed[1]["error"]["data"]["reason"] == "other-history"
    assert ended.code == 1

    for way in ("--reads set", "--append", "--history order"):
        assert way in ended.err


def test_marker_names_several_cassettes(
    pytester: pytest.Pytester, stores: list[str]
) -> None:
    """They stand in the folder of the test's cassettes."""
    folder = pytester.path / "cassettes"
    folder.mkdir()
    for path in map(Path, stores):
        (folder / path.name).write_bytes(path.read_bytes())

    pytester.makepyfile(f"""
        import json, urllib.request, pytest

        @pytest.mark.mrtr_cassette(cassette=["a", "b"], reads=["get"])
        def test_store(mrtr_cassette):
            for body, words in (({SET_2!r}, "set"), ({GET!r}, "2")):
                headers = {{"Content-Type": "application/json", "Accept": "application/json"}}
                request = urllib.request.Request(mrtr_cassette.url, body, headers)
                with urllib.request.urlopen(request) as response:
                    assert words in response.read().decode()
    """)
    pytester.runpytest("--mrtr-mode=none").assert_outcomes(passed=1)


@looped
async def test_appended_call_belongs_behind_the_writes_that_its_run_had_played(
    tmp_path: Path,
) -> None:
    """The cassette says which these were; a play that did not make them gets a miss."""
    path = tmp_path / "c.json"

    def replies(*words: str) -> list[bytes]:
        return [json_response(result(text(word))) for word in words]

    async with taping(path, answering(*replies("0", "set", "1"))) as tape:
        for call in (GET, SET, GET):
            await post(tape.url, call)

    live = answering(*replies("set", "live", "live"))
    async with taping(path, live, existing="append", reads=["get"]) as tape:
        got = [said((await post(tape.url, call)).body) for call in (SET, SET_2, GET)]

    assert [facts.get("follows") for facts in read(path)["recording"]["exchanges"]][
        3:
    ] == [
        [2],
        None,
    ]

    assert got == ["set", "live", "live"]

    for requests, expected in (
        ((SET, SET_2, GET), ["set", "live", "live"]),
        ((SET_2, GET), ["live", "other-history"]),
    ):
        async with replay(path, reads=["get"], on_miss="report") as playing:
            bodies = [(await post(playing.url, request)).body for request in requests]

        assert [reason_or_text(body) for body in bodies] == expected


def reason_or_text(body: bytes) -> str:
    """Return the text of a result, or the reason of a miss."""
    tree = json.loads(body)
    return said(body) if "result" in tree else str(tree["error"]["data"]["reason"])
