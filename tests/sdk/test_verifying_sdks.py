"""Verifying servers on the official SDKs: unchanged ones are the same, restarted with new keys."""

from __future__ import annotations

import json
from pathlib import Path
from pipes import piped, recorder

import pytest
from both_eras import LEGACY, MODERN, ON_PIPES, OVER_HTTP, on_pipes, planned
from harness import looped
from messages import compact, message, result, tool_call
from processes import CASSETTES, PEERS, PROGRAM, SIDES, Side, StartServer, listening
from yarl import URL

from mrtr_cassette import VerifyOptions
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.http.client import connected_client
from mrtr_cassette.shell.pipes.upstream import pipe_upstream
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.verifying import verify_cassette

PLANNED = "Leaves fall in file:///plans"
"""What the server says after three questions, by the result or pushed."""


@pytest.mark.parametrize("side", SIDES)
def test_restarted_server_is_the_same(side: Side, start_server: StartServer) -> None:
    """All kinds of input, three rounds with a state, a declined branch, streams, prompts and resources."""

    @looped
    async def check(url: str) -> None:
        path = CASSETTES / f"{side}-sdk.json"
        verification = await verify_cassette(path, url, VerifyOptions())

        assert verification.counts == {"same": 19}
        assert not any(interaction.changes for interaction in verification.interactions)

    with start_server(side, 0) as server:
        check(server.url)


@looped
async def test_server_that_pushes_is_the_same_over_http(tmp_path: Path) -> None:
    """Questions on the call's stream and on the session's are answered as recorded, in both eras."""
    path = tmp_path / "c.json"
    with listening(OVER_HTTP) as server:
        async with recording(server.url, path, RecordOptions()) as recording_run:
            for era in (LEGACY, MODERN):
                async with connected_client(
                    URL(recording_run.url).origin(), None
                ) as client:
                    live = LiveServer(client, recording_run.url)

                    assert await planned(live, era, on_pipe=False) == PLANNED

    with listening(OVER_HTTP) as server:
        verification = await verify_cassette(path, server.url, VerifyOptions())

    assert verification.is_good
    assert verification.counts == {"same": 4, "skipped": 1}


@looped
async def test_server_on_pipes_is_the_same(tmp_path: Path) -> None:
    """Each recorded start of the server is a start of its own, and it pushes as it did."""
    path = tmp_path / "c.json"
    record = (*PROGRAM, "record", "--stdio", "--output", str(path), "--", *ON_PIPES)
    async with pipe_upstream(
        record, 2**20, ExchangeSealer(seals_states=True).add_settings
    ) as piped:
        assert (
            await planned(LiveServer(piped, "the recorder"), LEGACY, on_pipe=True)
            == PLANNED
        )

    verification = await verify_cassette(path, ON_PIPES, VerifyOptions())

    assert verification.is_good, verification
    assert verification.counts == {"same": 3}


@looped
async def test_what_was_recorded_over_http_is_held_to_a_server_on_pipes() -> None:
    """What was said counts, and not how it was framed; the SDK's keys name the module of a tool."""
    path = CASSETTES / "python-sdk.json"
    verification = await verify_cassette(
        path, on_pipes("server_python"), VerifyOptions()
    )

    assert verification.counts == {"same": 18, "key-changed": 1}

    (failure,) = verification.failures

    assert [change.pointer for _, change in failure.changes] == [
        "/inputRequests/__main__:confirm",
        "/inputRequests/__main__:scope",
    ]


HABITS = ("node", str(PEERS / "server_habits.mjs"))


def record_habits(path: Path) -> list[str]:
    """Record a session on pipes, whose roots are told before its calls; return what these say.

    A page is searched, and opened by its id; the last call never ends, and is cancelled.
    """
    client = {
        "protocolVersion": LEGACY,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "c"},
    }

    client["clientInfo"]["version"] = "1"
    with piped(recorder(path, *HABITS)) as server:
        server.say(compact(message("initialize", client, id=0)) + b"\n")
        server.hear()
        server.say(compact(message("notifications/initialized", id=None)) + b"\n")
        while json.loads(asked := server.hear()).get("method") != "roots/list":
            pass

        roots = {"roots": [{"uri": "file:///work"}]}
        server.say(compact(result(roots, id=json.loads(asked)["id"])) + b"\n")

        def called(name: str, **arguments: str) -> str:
            server.say(compact(tool_call(name, id=name, arguments=arguments)) + b"\n")
            return str(json.loads(server.hear())["result"]["content"][0]["text"])

        said = [called("folders"), called("search", words="tea")]
        said.append(called("open", id=said[-1].rpartition(" ")[2]))
        slow = tool_call("slow", id="slow", arguments={}, _meta={"progressToken": 1})
        server.say(compact(slow) + b"\n")
        server.hear()
        notice = message("notifications/cancelled", {"requestId": "slow"}, id=None)
        server.say(compact(notice) + b"\n")
        assert server.end() == (b"", 0)

    return said


@looped
async def test_a_session_on_pipes_is_repeated_event_by_event(tmp_path: Path) -> None:
    """Roots are told before the calls, an id of today is sent back, and a call is cancelled."""
    path = tmp_path / "c.json"
    folders, _, page = record_habits(path)

    assert (folders, page) == ("in file:///work", "The page")

    verification = await verify_cassette(path, HABITS, VerifyOptions())

    assert verification.counts == {"same": 7, "skipped": 1}
