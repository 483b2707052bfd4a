"""`probe --record`: answers that nobody gave become branches of the recorded calls."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harness import JsonObject, call, looped, playing
from probed import PUSHES, ROUNDS, TASKS, RoundsServer
from probed_http import probed, record

import mrtr_cassette
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.transports import cassette_over_pipes
from mrtr_cassette.core.drive.cut import cut_out_calls
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.options import ProbeOptions
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.runs.probing import RunObserver, probe_cassette

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
YES: JsonObject = {"approve": {"action": "accept", "content": {"approve": True}}}
NO: JsonObject = {"action": "decline"}
RELEASE: JsonObject = {"version": "1.0"}
ON_PIPES = """
import json, secrets, sys
issued = set()
for line in sys.stdin:
    message = json.loads(line)
    params = message["params"]
    answers = params.get("inputResponses")
    if message["method"] != "tools/call":
        tools = [{"name": "deploy", "inputSchema": {"type": "object"}}]
        result = {"resultType": "complete", "tools": tools}
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    elif params.get("requestState") in issued and answers:
        is_good = answers.get("confirm", {}).get("action") == "accept"
        text = "Deployed" if is_good else f"no {params['requestState']} TOKEN"
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    else:
        state = secrets.token_urlsafe(36)
        issued.add(state)
        schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
        asked = {"mode": "form", "message": "Deploy?", "requestedSchema": schema}
        confirm = {"method": "elicitation/create", "params": asked}
        result = {"resultType": "input_required", "requestState": state}
        result["inputRequests"] = {"confirm": confirm}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def branches(cassette: Path, answer: str) -> list[bytes]:
    """Return the last responses of the calls whose last request has an answer."""
    found: list[bytes] = []
    for interaction in load_cassette(cassette).interactions:
        last = interaction.exchanges[-1]
        if answer.encode() in last.request.body and last.response is not None:
            found.append(last.response.body)

    return found


async def answered(
    url: str,
    identity: int,
    *rounds: JsonObject,
    tool: str = "release",
    arguments: JsonObject = RELEASE,
) -> bytes:
    """Call a tool, answer what it asks round after round, and return the last body."""
    answer = await call(url, tool, arguments)
    for given in rounds:
        state = answer.result["requestState"]
        retry = {"inputResponses": given, "requestState": state}
        answer = await call(url, tool, arguments, id=identity, **retry)

    return answer.body


@looped
async def test_a_client_that_declines_gets_what_the_server_said(tmp_path: Path) -> None:
    """Byte for byte, in either round, when the server is gone; no state is on disk."""
    recorded = tmp_path / "recorded.json"
    output = tmp_path / "branches.json"
    said: list[str] = []
    async with probed(ROUNDS) as servers:
        url = servers.url("good")
        await record(servers, recorded, [("release", RELEASE)])
        options = ProbeOptions(record=output)
        probing = await probe_cassette(recorded, url, options, RunObserver(said.append))
        server = servers.servers["good"]

        assert isinstance(server, RoundsServer)

        states = list(server._issued)

    made = [probe for probe in probing.probes if probe.sent.startswith("{")]
    first = load_cassette(recorded).interactions
    kept = load_cassette(output).interactions

    assert said[-1].startswith(f"wrote {output}: {len(kept)} interactions")

    for old, new in zip(first, kept, strict=False):
        assert old.ending_exchange.response == new.ending_exchange.response

    # Extra keys are answers to no question, and are left out; missing ones are in.
    assert len(kept) == len(first) + len(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "branches.json",
        "recorded.json",
    ]

    assert not [state for state in states if state in output.read_text()]

    for answer, rounds in (
        ('"approve":{"action":"decline"}', [{"approve": NO}]),
        ('"window":{"action":"decline"}', [YES, {"window": NO}]),
    ):
        (body,) = branches(output, answer)
        async with playing(output) as replay:
            played = await answered(replay.url, json.loads(body)["id"], *rounds)

            assert played == body


@looped
async def test_the_decline_of_a_task_is_played(tmp_path: Path) -> None:
    """Its call is recorded whole, and the answer chooses it."""
    recorded = tmp_path / "recorded.json"
    output = tmp_path / "branches.json"
    async with probed(TASKS) as servers:
        await record(servers, recorded, [("deploy", {"env": "staging"})])
        await probe_cassette(recorded, servers.url("good"), ProbeOptions(record=output))

    async with playing(output) as replay:
        arguments = {"env": "staging"}
        answers = {"confirm": NO}
        ended = await asyncio.to_thread(
            mrtr_cassette.call, replay.url, "deploy", arguments, answers=answers
        )

    assert ended.text == "deploy cancelled"


@looped
async def test_the_decline_of_a_pushed_question_is_played_where_it_is_cut_out(
    tmp_path: Path,
) -> None:
    """Its call is recorded whole, in the recorded session."""
    recorded = tmp_path / "recorded.json"
    output = tmp_path / "branches.json"
    part = tmp_path / "part.json"
    async with probed(PUSHES) as servers:
        await record(servers, recorded, [("deploy", {"env": "staging"})])
        options = ProbeOptions(record=output)
        await probe_cassette(recorded, servers.url("good"), options)

    whole = load_cassette(output)
    _, second, *_ = [
        interaction.number
        for interaction in whole.interactions
        if interaction.exchanges[0].call.name == "deploy"
    ]

    part.write_bytes(dump(cut_out_calls(whole, [second], alone=True)))
    for cassette, answer, text in (
        (output, {"action": "accept", "content": {"confirm": True}}, "Deployed to"),
        (part, NO, "deploy cancelled"),
    ):
        async with playing(cassette) as replay:
            ended = await asyncio.to_thread(
                mrtr_cassette.call,
                replay.url,
                "deploy",
                {"env": "staging"},
                answers={"#1": answer},
            )

        assert ended.text.startswith(text)


@looped
async def test_an_existing_file_is_replaced_or_added_to_only_if_told(
    tmp_path: Path,
) -> None:
    """The probed cassette itself can get the branches, and no other one."""
    recorded = tmp_path / "recorded.json"
    taken = tmp_path / "taken.json"
    async with probed(ROUNDS) as servers:
        url = servers.url("good")
        await record(servers, recorded, [("release", RELEASE)])
        data = recorded.read_bytes()
        taken.write_bytes(data)
        with pytest.raises(CassetteError, match="the cassette exists"):
            await probe_cassette(recorded, url, ProbeOptions(record=taken))

        adding = ProbeOptions(record=taken, existing="append")
        with pytest.raises(UsageError, match="is not the cassette that is probed"):
            await probe_cassette(recorded, url, adding)

        assert taken.read_bytes() == data

        replacing = ProbeOptions(record=taken, existing="replace")
        await probe_cassette(recorded, url, replacing)
        adding = ProbeOptions(record=recorded, existing="append")
        await probe_cassette(recorded, url, adding)

    assert branches(recorded, '"window":{"action":"decline"}')

    for first, second in zip(
        load_cassette(taken).interactions,
        load_cassette(recorded).interactions,
        strict=True,
    ):
        assert first.ending_exchange.call.key() == second.ending_exchange.call.key()


@looped
async def test_branches_of_a_server_on_pipes(tmp_path: Path) -> None:
    """Of a cassette of either transport; without the states and secrets in the server's texts."""
    server = [sys.executable, "-c", ON_PIPES.replace("TOKEN", TOKEN)]
    over_http = tmp_path / "http.json"
    await asyncio.to_thread(
        mrtr_cassette.call, server, "deploy", answers={"confirm": True}, path=over_http
    )
    lines = replace(cassette_over_pipes(load_cassette(over_http)), transport="stdio")
    on_pipes = tmp_path / "stdio.json"
    on_pipes.write_bytes(dump(lines))
    for recorded in (over_http, on_pipes):
        output = tmp_path / f"branches-{recorded.name}"
        await probe_cassette(recorded, server, ProbeOptions(record=output))
        (line,) = branches(output, '"confirm":{"action":"decline"}')

        assert TOKEN not in output.read_text()

        text = json.loads(line)["result"]["content"][0]["text"]

        assert text.startswith("no mrtr-state:")
        assert text.endswith(" <github:1>")

        async with playing(output) as replay:
            identity = json.loads(line)["id"]
            played = await answered(
                replay.url, identity, {"confirm": NO}, tool="deploy", arguments={}
            )

        assert played == line.strip()
