"""Facts about values: what the disk, the live server and the client each get of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import looped, playing, post, read, run_here, taping
from messages import JsonObject, asks, message, result, text, tool_call
from standin import Visit, json_response, upstream

import mrtr_cassette
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions, VerifyOptions
from mrtr_cassette.shell.files.journals import recover_journal
from mrtr_cassette.shell.runs.verifying import verify_cassette

HERE = "/tmp/pytest-1/a0"
THERE = "/tmp/pytest-2/ab"
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


class Files:
    """A server that says which path it was given; it asks before it deletes one."""

    def __init__(self, word: str = "did") -> None:
        self.word = word
        self.paths: list[str] = []

    async def __call__(self, visit: Visit) -> None:
        call = visit.request.json
        params = call["params"]
        if "name" not in params:
            await visit.send(json_response(result({"tools": []}, id=call["id"])))
            return

        path = params["arguments"]["path"]
        self.paths.append(path)
        reply: JsonObject = text(f"{self.word} {params['name']}\n{path}")
        if params["name"] == "delete" and "requestState" not in params:
            reply = asks("sure", state=STATE, words=f"{path}?")
        elif params["name"] == "delete":
            root = params["inputResponses"]["sure"]["content"]["root"]
            reply = text(f"deleted {path} of {root}")

        await visit.send(json_response(result(reply, id=call["id"])))


def on(folder: str, tool: str, name: str = "one.txt", number: int = 1) -> JsonObject:
    """Return a call about a file of a folder."""
    return tool_call(tool, id=number, arguments={"path": f"{folder}/{name}"})


def answered(folder: str, asked: JsonObject) -> JsonObject:
    """Return the retry of a deletion, whose answer has the folder too."""
    content = {"action": "accept", "content": {"root": f"file://{folder}"}}
    again = on(folder, "delete", number=2)
    again["params"] |= {
        "inputResponses": {"sure": content},
        "requestState": asked["result"]["requestState"],
    }

    return again


async def talk(url: str, folder: str) -> list[str]:
    """Read a file and delete it; return what the server says."""
    first = await post(url, on(folder, "read"))
    asked = await post(url, on(folder, "delete", number=2))
    last = await post(url, answered(folder, asked.json))
    assert f"{folder}/one.txt?" in json.dumps(asked.json)

    return [said(first.json), said(last.json)]


def said(answer: Any) -> str:
    """Return the text of a result."""
    return str(answer["result"]["content"][0]["text"])


async def recorded(path: Path, folder: str, **options: Any) -> None:
    """Record the talk in a folder."""
    values = {"root": folder}
    async with taping(path, Files(), values=values, **options) as tape:
        assert (await talk(tape.url, folder))[0] == f"did read\n{folder}/one.txt"
        journal = path.with_name(f"{path.name}.journal").read_bytes()
        assert folder.encode() not in journal
        assert b"{root}/one.txt" in journal


@looped
async def test_a_folder_reaches_no_disk_and_a_run_in_another_one_plays(
    tmp_path: Path,
) -> None:
    """The journal and the cassette have the name; the client of each run has its own folder."""
    cassette = tmp_path / "c.json"
    await recorded(cassette, HERE)
    before = cassette.read_bytes()

    assert HERE.encode() not in before
    assert read(cassette)["values"] == ["root"]

    async with playing(cassette, values={"root": THERE}) as replay_run:
        assert await talk(replay_run.url, THERE) == [
            f"did read\n{THERE}/one.txt",
            f"deleted {THERE}/one.txt of file://{THERE}",
        ]

        assert not replay_run.player.tally.misses

        await post(replay_run.url, on(THERE, "read", "two.txt"))

        assert replay_run.player.tally.misses[0].reason is Reason.ARGUMENTS_DIFFER

    await recorded(cassette, THERE, existing="replace")

    assert cassette.read_bytes() == before


@looped
async def test_a_killed_recording_is_recovered_with_its_names(tmp_path: Path) -> None:
    """The journal says which values it has, and the cassette that is made of it too."""
    cassette = tmp_path / "c.json"
    whole = tmp_path / "whole.json"
    async with taping(cassette, Files(), values={"root": HERE}) as tape:
        await talk(tape.url, HERE)
        journal = tmp_path / "whole.json.journal"
        journal.write_bytes((tmp_path / "c.json.journal").read_bytes())

    recover_journal(whole)

    assert read(whole)["interactions"] == read(cassette)["interactions"]
    assert read(whole)["values"] == ["root"]


@looped
async def test_what_is_added_in_another_folder_has_the_same_name(
    tmp_path: Path,
) -> None:
    """Recorded calls are played, and made by the live server with this run's paths first."""
    cassette = tmp_path / "c.json"
    await recorded(cassette, HERE)
    before = read(cassette)
    files = Files()
    options = {"existing": "append", "values": {"root": THERE}}
    async with taping(cassette, files, **options) as tape:
        await talk(tape.url, THERE)
        added = await post(tape.url, on(THERE, "write", "new.txt", number=3))

        assert said(added.json) == f"did write\n{THERE}/new.txt"

    assert files.paths[-1] == f"{THERE}/new.txt"
    assert all(path.startswith(THERE) for path in files.paths)

    after = read(cassette)

    assert after["interactions"][:2] == before["interactions"]
    assert "{root}/new.txt" in json.dumps(after["interactions"][2])
    assert THERE not in cassette.read_text()


@looped
async def test_a_server_is_held_to_a_cassette_in_another_folder(tmp_path: Path) -> None:
    """Verify sends this run's paths, and says what differs but for them."""
    cassette = tmp_path / "c.json"
    await recorded(cassette, HERE)
    options = VerifyOptions(values={"root": THERE})
    for word, is_good in (("did", True), ("has done", False)):
        files = Files(word)
        async with upstream(files) as server:
            verification = await verify_cassette(cassette, server.url, options)

        assert verification.is_good is is_good, verification
        assert files.paths == [f"{THERE}/one.txt"] * 3

    async with upstream(Files()) as server:
        with pytest.raises(UsageError, match="needs this run's text for its value"):
            await verify_cassette(cassette, server.url, VerifyOptions())


@looped
async def test_diff_reads_a_text_as_a_value(tmp_path: Path) -> None:
    """A cassette without the name is the same as one with it, but for other files."""
    named = tmp_path / "a.json"
    unnamed = tmp_path / "b.json"
    await recorded(named, HERE)
    async with taping(unnamed, Files()) as tape:
        await talk(tape.url, THERE)

    assert not mrtr_cassette.diff(named, unnamed).is_same
    assert mrtr_cassette.diff(named, unnamed, values={"root": THERE}).is_same

    shown = run_here("diff", named, unnamed, "--value", f"root={THERE}")

    assert shown.code == 0, shown
    assert run_here("diff", named, unnamed, "--value", "root").code == 2


@looped
async def test_a_name_that_is_unknown_is_an_error_with_the_known_ones(
    tmp_path: Path,
) -> None:
    """A replay, and what adds to a cassette, know its names and no other."""
    cassette = tmp_path / "c.json"
    await recorded(cassette, HERE)
    with pytest.raises(UsageError, match=r"has no value 'rot'; it has root"):
        async with playing(cassette, values={"rot": THERE}):
            pass

    with pytest.raises(UsageError, match="needs this run's text"):
        async with playing(cassette, stateless=True):
            pass

    with pytest.raises(UsageError, match=r"'root'.*give it|'root'.*say it"):
        async with taping(cassette, Files(), existing="append"):
            pass


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"a b": "/tmp/x"}, "'a b' is not a name"),
        ({"root": "/a"}, "fewer than 3 characters"),
        ({"root": ""}, "fewer than 3 characters"),
        (["tmp_path"], "not a mapping of names to texts; give it as"),
        ([("root", "/tmp/x", "y")], "not a mapping"),
        ([5], "not a mapping"),
        ("root=/tmp/x", "not a mapping"),
    ],
)
def test_a_value_that_can_not_be_meant_is_an_error(values: Any, problem: str) -> None:
    """Names are identifiers, and a text is long enough to be told from others."""
    with pytest.raises(UsageError, match=problem):
        RecordOptions(values=values)


@looped
async def test_a_secret_beside_a_value_stays_redacted(tmp_path: Path) -> None:
    """A value is no secret, and hides none."""
    cassette = tmp_path / "c.json"
    token = f"ghp_{'a1B2c3D4e5F6' * 3}"
    async with taping(cassette, Files(), values={"root": HERE}) as tape:
        await post(tape.url, on(HERE, "read", token))

    shown = cassette.read_text()

    assert token not in shown
    assert "{root}/<" in shown

    async with playing(cassette, values={"root": THERE}) as replay_run:
        await post(replay_run.url, on(THERE, "read", f"ghp_{'z9Y8x7W6v5U4' * 3}"))

        assert not replay_run.player.tally.misses


@looped
async def test_a_ping_needs_no_value(tmp_path: Path) -> None:
    """What no value is in teaches nothing, and is played as ever."""
    cassette = tmp_path / "c.json"
    await recorded(cassette, HERE)
    async with playing(cassette) as replay_run:
        await post(replay_run.url, message("ping"))

        assert replay_run.player.tally.learned == {}

        await talk(replay_run.url, THERE)

        assert replay_run.player.tally.learned == {"root": THERE}
