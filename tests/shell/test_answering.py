"""Facts about a recording proxy that answers in its client's place, and the replay of that."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness import looped, post
from messages import form, input_required, message, result
from standin import Visit, event_stream, json_response, upstream
from tasking import created, state

from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.text import inspection_text
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"experimental": {"x": {}}},
}
RULES = '[[rule]]\nmessage = "Are you sure?"\naction = "accept"\n'
DONE = {"content": [{"type": "text", "text": "done"}]}
QUESTION = form()
TASK = "a-task-of-this-server-0123456789"


class Server:
    """A server that asks who can answer, and refuses whoever can't."""

    def __init__(self, *, streams: bool = False, question: Any = QUESTION) -> None:
        self._streams = streams
        self._question = question
        self.received: list[Any] = []

    async def __call__(self, visit: Visit) -> None:
        body = visit.request.json
        self.received.append((body, visit.request.head))
        params = body["params"]
        state = "a raw state of this server"
        if (
            "elicitation"
            not in params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        ):
            reply = result({"content": [], "isError": True}, id=body["id"])
        elif "inputResponses" in params:
            reply = result(DONE, id=body["id"])
        else:
            requests = {"confirm": self._question}
            reply = input_required(id=body["id"], state=state, inputRequests=requests)

        if self._streams:
            await visit.send(event_stream(message("notifications/x", id=None), reply))
        else:
            await visit.send(json_response(reply))


async def call(url: str) -> tuple[int, str]:
    """Call the tool as a client that can't answer; return status and body."""
    params = {"name": "deploy", "arguments": {}, "_meta": META}
    body = message("tools/call", params, id=7)
    async with aiohttp.ClientSession() as client, client.post(url, json=body) as got:
        return got.status, await got.text()


def options(tmp_path: Path, rules: str = RULES) -> RecordOptions:
    """Return the options of a recording with answers."""
    file = tmp_path / "answers.toml"
    file.write_text(rules)
    return RecordOptions(answers=file)


@pytest.mark.parametrize("streams", [False, True])
@looped
async def test_client_gets_the_end_of_the_conversation(
    tmp_path: Path,
    streams: bool,  # noqa: FBT001
) -> None:
    """With its own id; the cassette says who answered, and its replay gives the same."""
    cassette = tmp_path / "cassette.json"
    server = Server(streams=streams)
    async with AsyncExitStack() as stack:
        live = await stack.enter_async_context(upstream(server))
        opened = recording(live.url, cassette, options(tmp_path))
        async with opened as recording_run:
            recorded = await call(recording_run.url)

    assert recorded[0] == 200
    assert '"id":7' in recorded[1]
    assert "done" in recorded[1]

    (first, _), (second, head) = server.received

    assert first["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {
        "experimental": {"x": {}},
        "elicitation": {"form": {}, "url": {}},
    }

    assert second["params"]["requestState"] == "a raw state of this server"
    assert first["id"] != second["id"]
    assert not head.values("mrtr-cassette-answered-by")

    text = inspection_text(details_of(load_cassette(cassette)))

    assert "by the recording proxy (rule 1), and not by the client" in text
    assert "raw state" not in cassette.read_text()

    async with replaying(cassette, ReplayOptions()) as replay:
        assert await call(replay.url) == recorded
        assert not replay.outcome.misses
        assert not replay.outcome.unplayed


@looped
async def test_what_nobody_answers_is_passed_on(tmp_path: Path) -> None:
    """As the server asked it, with the client's id."""
    server = Server(question=form("Wipe all?"))
    async with upstream(server) as live:
        opened = recording(live.url, tmp_path / "cassette.json", options(tmp_path))
        async with opened as recording_run:
            _, body = await call(recording_run.url)

    assert '"id":7' in body
    assert "Wipe all?" in body
    assert len(server.received) == 1


@looped
async def test_response_larger_than_what_is_kept_is_told(tmp_path: Path) -> None:
    """A conversation has to keep what it passes on; that a server says too much is no fault of ours."""
    progress = message("notifications/progress", {"progressToken": 1}, id=None)

    async def talkative(visit: Visit) -> None:
        await visit.send(event_stream(*[progress] * 100_001, result(DONE, id=1)))

    lines: list[str] = []
    answering = replace(options(tmp_path), log=lines.append)
    async with AsyncExitStack() as stack:
        live = await stack.enter_async_context(upstream(talkative))
        opened = recording(live.url, tmp_path / "cassette.json", answering)
        async with opened as recording_run:
            status, text = await call(recording_run.url)

    assert status == 502
    assert "more than 100,000 events" in text
    assert "INTERNAL ERROR" not in "".join(lines)


@looped
async def test_what_is_no_call_passes_as_ever(tmp_path: Path) -> None:
    """Another method, a retry of the client's own, and a client of an earlier revision."""
    received: list[Any] = []

    async def server(visit: Visit) -> None:
        received.append(visit.request.json)
        await visit.send(json_response(result(DONE, id=visit.request.json["id"])))

    async with upstream(server) as live:
        opened = recording(live.url, tmp_path / "cassette.json", options(tmp_path))
        async with opened as recording_run, aiohttp.ClientSession() as client:
            for body in (
                message("tools/list", {"_meta": META}),
                message("tools/call", {"name": "deploy"}),
                message(
                    "tools/call", {"name": "a", "inputResponses": {}, "_meta": META}
                ),
            ):
                async with client.post(recording_run.url, json=body) as got:
                    assert (await got.json())["result"] == DONE

                assert received.pop() == body


@looped
async def test_questions_of_a_task_are_answered_between_polls(tmp_path: Path) -> None:
    """The client sees the task go on, and never asked; the replay is the same to it."""
    cassette = tmp_path / "cassette.json"
    key = f"{TASK}:1"
    asked = state(TASK, "input_required", key)
    asked["inputRequests"] = {key: QUESTION}
    # The answer has not taken effect in the poll after it.
    states = [
        state(TASK),
        asked,
        asked,
        state(TASK),
        state(TASK, "completed", result=DONE),
    ]

    seen: list[Any] = []

    async def server(visit: Visit) -> None:
        body = visit.request.json
        seen.append(body)
        replies = {"tools/call": created(TASK), "tasks/update": {}}
        found = replies.get(body["method"]) or (
            states.pop(0) if "get" in body["method"] else {}
        )
        await visit.send(json_response(result(found, id=body["id"])))

    async def statuses(url: str) -> list[str]:
        found = json.loads((await call(url))[1])["result"]
        told = [found["status"]]
        poll = message("tasks/get", {"taskId": found["taskId"], "_meta": META}, id=8)
        async with aiohttp.ClientSession() as client:
            while told[-1] != "completed":
                async with client.post(url, json=poll) as got:
                    body = await got.json()

                    assert (body["id"], "inputRequests" in body["result"]) == (8, False)

                    told.append(body["result"]["status"])

        return told

    async with upstream(server) as live:
        opened = recording(live.url, cassette, options(tmp_path))
        async with opened as recording_run:
            told = await statuses(recording_run.url)

    assert told == ["working", "working", "working", "completed"]

    (given,) = [body["params"] for body in seen if body["method"] == "tasks/update"]

    assert given["inputResponses"] == {key: {"action": "accept"}}

    text = inspection_text(details_of(load_cassette(cassette)))

    assert "by the recording proxy (rule 1), and not by the client" in text

    async with replaying(cassette, ReplayOptions()) as replay:
        assert await statuses(replay.url) == told
        assert not replay.outcome.misses
        assert not replay.outcome.unplayed


@looped
async def test_question_of_a_task_that_nobody_answers_is_the_clients(
    tmp_path: Path,
) -> None:
    """Each of its polls gets the state as the server said it, and the sources are asked once."""
    asked = state(TASK, "input_required", f"{TASK}:1")
    told: list[Any] = []

    async def server(visit: Visit) -> None:
        body = visit.request.json
        found = created(TASK) if body["method"] == "tools/call" else asked
        await visit.send(json_response(result(found, id=body["id"])))

    poll = message("tasks/get", {"taskId": TASK, "_meta": META}, id=8)
    chosen = replace(options(tmp_path), log=told.append)
    async with (
        upstream(server) as live,
        recording(live.url, tmp_path / "cassette.json", chosen) as recording_run,
    ):
        await call(recording_run.url)
        for _ in range(2):
            assert (await post(recording_run.url, poll)).json == result(asked, id=8)

    assert sum("not answered" in line for line in told) == 1


def test_answering_and_appending_exclude_each_other(tmp_path: Path) -> None:
    """What is played and what is answered would be two things."""
    with pytest.raises(
        UsageError, match='answers and existing="append" don\'t go together'
    ):
        RecordOptions(answers=tmp_path / "a.toml", existing="append")
