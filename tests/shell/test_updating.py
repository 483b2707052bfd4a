"""Facts about taking what a live server says now into a cassette."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from contract import TOOLS, Contract, Plant, Reply, record_contract, text
from harness import looped, post, read, taping
from messages import YES, asks, result, tool_call
from standin import Script, Visit, json_response, upstream

from mrtr_cassette.core.drive.updating import (
    ACCEPTABLE_VERDICTS,
    Proposal,
    accepted_by_verdict,
)
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.options import VerifyOptions
from mrtr_cassette.shell.runs.verifying import Update, update_cassette, verify_cassette


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cassette of all that the server says."""
    return record_contract(tmp_path_factory.mktemp("updated") / "contract.json")


@pytest.fixture
def cassette(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copy(recorded, tmp_path / "contract.json"))


def by(*verdicts: str) -> Any:
    """Return a choice of what has these verdicts only."""
    return lambda proposed: accepted_by_verdict(proposed, verdicts)


def all_possible(proposed: Sequence[Proposal]) -> list[Proposal]:
    """Choose all that can be taken."""
    return [proposal for proposal in proposed if proposal.problem is None]


async def updated(path: Path, server: Contract, choose: Any = None) -> Update:
    """Hold a server to a cassette, and take what is chosen, or what has no verdict of its own."""
    choose = by(*ACCEPTABLE_VERDICTS) if choose is None else choose
    async with upstream(server) as live:
        return await update_cassette(path, live.url, VerifyOptions(), choose)


async def counts(path: Path, server: Contract) -> dict[str, int]:
    """Return the verdicts on a server."""
    async with upstream(server) as live:
        return (await verify_cassette(path, live.url, VerifyOptions())).counts


def lines_of(path: Path) -> list[str]:
    """Return the lines of a cassette before its recording block."""
    return path.read_text().partition('\n  "recording"')[0].split("\n")


def new_lines(path: Path, before: list[str]) -> list[str]:
    """Return the lines of a cassette that it did not have."""
    return [line.strip() for line in lines_of(path) if line not in before]


def result_of(to: Any) -> Plant:
    """Return what gives another result."""

    def plant(reply: Reply) -> None:
        reply.said[-1]["result"] = to

    return plant


def question(name: str, words: str) -> Plant:
    """Return what asks with other words."""

    def plant(reply: Reply) -> None:
        reply.result["inputRequests"][name]["params"]["message"] = words

    return plant


@looped
async def test_what_is_not_accepted_is_not_written(cassette: Path) -> None:
    """Other verdicts stay; where none is accepted, the file is not even written."""
    before = cassette.read_bytes()
    plants = {
        "report": result_of(text("none")),
        "tools_list": result_of({"tools": TOOLS[:2]}),
    }

    update = await updated(cassette, Contract(**plants), by("surface-changed"))

    assert [accepted.call for accepted in update.accepted_proposals] == ["tools/list"]
    assert [proposal.call for proposal in update.left_proposals] == [
        'tools/call "report"'
    ]
    assert not update.verification.is_good

    cassette.write_bytes(before)
    made = cassette.stat().st_mtime_ns
    update = await updated(cassette, Contract(**plants), by("shape-changed"))

    assert (update.accepted_proposals, update.written_path) == ((), None)
    assert cassette.stat().st_mtime_ns == made
    assert cassette.read_bytes() == before


@looped
async def test_an_accepted_question_is_answered_and_the_conversation_goes_on(
    cassette: Path,
) -> None:
    """All three rounds are taken in one run, each with the recorded answer; states stay linked."""
    before = lines_of(cassette)
    plants = {
        "train.1": question("a", "First?"),
        "train.2": question("b", "Second?"),
        "train.end": result_of(text("Arrived")),
        "deploy.1": question("confirm", "Sure?"),
    }

    server = Contract(**plants)
    update = await updated(cassette, server)

    assert (update.left_proposals, update.written_path) == ((), cassette)
    assert update.verification.is_good
    # Both branches of `deploy` share its question.
    assert sorted(new_lines(cassette, before)) == [
        *['"message": "First?",', '"message": "Second?",'],
        *['"message": "Sure?",'] * 2,
        '"text": "Arrived"',
    ]

    assert [server.answers[f"train.{turn}"] for turn in (1, 2, 3)] == [1, 1, 1]
    assert set(await counts(cassette, Contract(**plants))) == {"same"}


@looped
async def test_a_file_that_somebody_changed_meanwhile_is_left_alone(
    cassette: Path,
) -> None:
    """What they wrote is not lost."""

    def choose(proposed: Sequence[Proposal]) -> list[Proposal]:
        tree = json.loads(cassette.read_text())
        cassette.write_text(json.dumps(tree))
        return all_possible(proposed)

    plants = {"report": result_of(text("none"))}
    with pytest.raises(CassetteError, match="it was changed meanwhile"):
        await updated(cassette, Contract(**plants), choose)

    assert len(cassette.read_text().splitlines()) == 1


def repeating(words: str, *, earlier: bool = False) -> Script:
    """Say in a result which request it is for, in several spellings, or for which one it is not."""
    identities: list[Any] = []

    async def script(visit: Visit) -> None:
        identities.append(visit.request.json["id"])
        about = identities[0 if earlier else -1]
        said = text(f"{words} {about!r} {json.dumps({'id': about})}")
        said = {**said, "structuredContent": {"about": about}}
        await visit.send(json_response(result(said, id=identities[-1])))

    return script


@looped
async def test_ids_of_verify_stay_out_of_the_cassette(tmp_path: Path) -> None:
    """A result that repeats its request's id is compared, and taken, with the recorded one."""
    path = tmp_path / "c.json"
    identity = "seven"
    async with taping(path, repeating("for")) as tape:
        for name in "ab":
            await post(tape.url, tool_call(name, id=identity))

    async with upstream(repeating("for")) as live:
        assert (await verify_cassette(path, live.url, VerifyOptions())).counts == {
            "same": 2
        }

    async with upstream(repeating("now for")) as live:
        update = await update_cassette(
            path, live.url, VerifyOptions(), by(*ACCEPTABLE_VERDICTS)
        )

    assert len(update.accepted_proposals) == 2
    assert b"mrtr-cassette-" not in path.read_bytes().partition(b'"recording"')[0]

    for interaction in read(path)["interactions"]:
        taken = interaction["response"]["body"]["result"]

        assert taken["structuredContent"] == {"about": identity}
        assert (
            taken["content"][0]["text"]
            == f"now for {identity!r} {json.dumps({'id': identity})}"
        )

    before = path.read_bytes()
    async with upstream(repeating("now for", earlier=True)) as live:
        update = await update_cassette(path, live.url, VerifyOptions(), all_possible)

    assert [
        proposal.problem for proposal in update.left_proposals if proposal.changes
    ] == [
        "it repeats the id that another request of this comparison had",
        "it may depend on #1, which did not end as recorded",
    ]
    assert path.read_bytes() == before


def store(words: str) -> Script:
    """Keep what is put, once the user agrees to these words."""
    values: list[str] = []

    async def script(visit: Visit) -> None:
        body = visit.request.json
        params = body["params"]
        if body["method"] == "tools/list":
            said = {"tools": TOOLS}
        elif params["name"] == "get":
            said = text(json.dumps(values))
        elif "inputResponses" in params:
            values.append(params["arguments"]["value"])
            said = text("kept")
        else:
            said = asks("sure", state=f"state-of-{len(values)}", words=words)

        await visit.send(json_response(result(said, id=body["id"])))

    return script


@looped
async def test_a_read_after_an_accepted_question_is_compared_after_the_write(
    tmp_path: Path,
) -> None:
    """The write goes to its end on the live server first, so what is read stays as recorded."""
    path = tmp_path / "store.json"
    put = tool_call("put", arguments={"value": "A"})
    get = tool_call("get")
    async with taping(path, store("Put it?")) as tape:
        asked = await post(tape.url, put)
        state = asked.json["result"]["requestState"]
        answered = {"inputResponses": {"sure": YES}, "requestState": state}
        await post(tape.url, {**put, "params": {**put["params"], **answered}})
        await post(tape.url, get)

    before = lines_of(path)
    async with upstream(store("Really put it?")) as live:
        update = await update_cassette(
            path, live.url, VerifyOptions(), by("question-changed")
        )

    assert update.verification.counts == {"same": 1, "question-changed": 1}
    assert new_lines(path, before) == ['"message": "Really put it?"']
    assert update.left_proposals == ()

    async with upstream(store("Really put it?")) as live:
        assert (await verify_cassette(path, live.url, VerifyOptions())).counts == {
            "same": 2
        }
