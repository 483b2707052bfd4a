"""Facts about the embedded demo server, each over a real socket."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession
from harness import Answer, call, demo_server, http, looped, post
from messages import CAPABLE, JsonObject, message
from patience import HANGS_S

INVALID_STATE = {"code": -32602, "message": "Invalid or expired requestState"}
PROGRAM = (sys.executable, "-m", "mrtr_cassette.demo.server", "--port")


def accepted(**values: object) -> JsonObject:
    """Return answers that accept forms of one field each."""
    return {key: {"action": "accept", "content": {key: value}} for key, value in values.items()}


YES = accepted(confirm=True)
DECLINE = {"confirm": {"action": "decline"}}
ALL_KINDS: JsonObject = {
    **YES,
    "signin": {"action": "accept"},
    "summary": {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"},
    "roots": {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]},
}


@asynccontextmanager
async def asked(tool: str, **arguments: object) -> AsyncIterator[tuple[str, Answer]]:
    """Give a server's URL and the first ask of one of its tools."""
    async with demo_server() as url:
        yield url, await call(url, tool, arguments)


async def sent(url: str, method: str, **params: Any) -> Answer:
    """Make a request of any method."""
    return await post(url, message(method, {**params, "_meta": CAPABLE}))


@looped
async def test_discovery_and_lists_are_complete() -> None:
    """Lists name every offer with the hints for caches; discovery names the one version."""
    async with demo_server() as url:
        about = (await sent(url, "server/discover")).result
        assert about["supportedVersions"] == ["2026-07-28"]
        assert about["capabilities"].keys() == {"tools", "prompts", "resources"}
        assert "io.modelcontextprotocol/serverInfo" in about["_meta"]
        for kind, size in (("tools", 10), ("prompts", 1), ("resources", 2)):
            listed = (await sent(url, f"{kind}/list")).result
            assert len(listed[kind]) == size
            assert (listed["resultType"], listed["ttlMs"]) == ("complete", 0)


@looped
async def test_answers_are_compact_json_with_the_callers_id() -> None:
    """An answer is compact UTF-8 JSON; `_meta` may be left out, and a notification is accepted."""
    async with demo_server() as url:
        pong = await post(url, '{"jsonrpc":"2.0","method":"ping","id":"é-1"}'.encode())
        assert pong.body.startswith('{"jsonrpc":"2.0","id":"é-1","result":{"resultType"'.encode())
        told = await post(url, {"jsonrpc": "2.0", "method": "notifications/cancelled"})
        assert (told.status, told.body) == (202, b"")
        assert (await http("GET", url)).status == 405


@pytest.mark.parametrize(
    ("tool", "arguments", "rounds", "text"),
    [
        ("add", {"a": 2**64, "b": 1}, (), "18446744073709551617"),
        ("add", {"a": 1, "b": 0.5}, (), "1.5"),
        ("deploy", {"env": "production"}, (YES,), "Deployed to production"),
        ("deploy", {"env": "production"}, (accepted(confirm=False),), "Deployment cancelled"),
        ("deploy", {"env": "production"}, (DECLINE,), "Deployment cancelled"),
        ("tag-release", {"tag": "v2"}, (DECLINE,), "Tagging cancelled by the operator"),
        ("provision", {}, (accepted(name="a", region="b"),), "Provisioned a in b"),
        ("wipe-cache", {}, (YES, accepted(scope="all")), "Wiped all"),
        (
            "release-train",
            {"version": "2"},
            (accepted(approve=True), accepted(window="now"), accepted(notes="none")),
            "Train 2: now, none",
        ),
        (
            "everything",
            {},
            (ALL_KINDS,),
            "confirm accept, signin accept, summary ok, roots file:///a file:///b",
        ),
        ("build", {"target": "docs"}, ({},), "Built docs"),
    ],
)
@looped
async def test_call_asks_its_rounds_and_ends(
    tool: str, arguments: JsonObject, rounds: tuple[JsonObject, ...], text: str
) -> None:
    """Each round asks for the keys that its answers have; the state remembers earlier answers."""
    async with demo_server() as url:
        answer = await call(url, tool, arguments)
        for given in rounds:
            assert answer.result["resultType"] == "input_required"
            assert answer.result.get("inputRequests", {}).keys() == given.keys()
            state = answer.result.get("requestState")
            more = {} if state is None else {"requestState": state}
            answer = await call(url, tool, arguments, inputResponses=given, **more)
        assert answer.text == text
        assert answer.result["isError"] is (tool == "tag-release")


@pytest.mark.parametrize("token", [3, "t-1", None])
@looped
async def test_progress_is_streamed_to_the_callers_token(token: int | str | None) -> None:
    """Without a token the stream has the response alone; a question may come last in it."""
    async with demo_server() as url:
        meta = {} if token is None else {"meta": {"progressToken": token}}
        counted = await call(url, "count", {"to": 2}, **meta)
        *steps, last = counted.events
        assert [each["params"]["progressToken"] for each in steps] == [token] * len(steps)
        assert len(steps) == (0 if token is None else 2)
        assert last["result"]["content"][0]["text"] == "Counted to 2"
        late = await call(url, "ask-late", {"steps": 2}, **meta)
        assert late.events[-1]["result"]["resultType"] == "input_required"


@looped
async def test_states_are_of_one_call_and_never_the_same() -> None:
    """A state that is altered, another call's or another server's is refused; a good one is not."""
    async with asked("wipe-cache") as (url, first), asked("wipe-cache") as (_, foreign):
        again = await call(url, "wipe-cache", {})
        assert again.state != first.state
        for tool, arguments, state in (
            ("wipe-cache", {}, first.state + "x"),
            ("wipe-cache", {}, "x" + first.state),
            ("wipe-cache", {}, foreign.state),
            ("build", {"target": "docs"}, first.state),
        ):
            refused = await call(url, tool, arguments, inputResponses=YES, requestState=state)
            assert (refused.status, refused.error) == (400, INVALID_STATE)
        # Answers without the state of their questions answer nothing.
        assert (await call(url, "wipe-cache", {}, inputResponses=YES)).result["inputRequests"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":NaN}', 400, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
        (message("tools/nothing", {}), 404, -32601),
        (message("tools/call", {"name": "nothing"}), 400, -32602),
        (message("tools/call", {"name": "add", "arguments": {"a": "1", "b": 2}}), 400, -32602),
        (message("tools/call", {"name": "count", "arguments": {"to": 1.5}}), 400, -32602),
        (message("tools/call", {"name": "deploy", "arguments": {}}), 400, -32602),
    ],
)
@looped
async def test_bad_requests_are_refused(body: bytes | JsonObject, status: int, code: int) -> None:
    """The error has the code of the protocol."""
    async with demo_server() as url:
        refused = await post(url, body)
        assert (refused.status, refused.error["code"]) == (status, code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_process_announces_itself_and_ends_quietly(number: signal.Signals) -> None:
    """The process prints one line once it accepts connections, and a signal ends it with code 0."""
    with subprocess.Popen(
        [*PROGRAM, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix("listening on ").strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)

        async def ping_and_signal() -> None:
            # The connection stays open, so that the end is quick in spite of it.
            async with ClientSession() as session:
                async with session.post(url, data=json.dumps(message("ping", {}))) as response:
                    assert response.status == 200
                    await response.read()
                server.send_signal(number)
                assert await asyncio.to_thread(server.communicate, timeout=HANGS_S) == ("", "")

        asyncio.run(ping_and_signal())
        assert server.returncode == 0


@looped
async def test_taken_port_is_a_message() -> None:
    """A port that is taken gives one line on stderr and no traceback."""
    async with demo_server() as url:
        port = str(urlsplit(url).port)
        run = await asyncio.to_thread(
            subprocess.run, [*PROGRAM, port], capture_output=True, text=True
        )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == f"port {port} is in use; choose another with --port, or 0 for a free one\n"
