"""Facts about the embedded demo server, each over a real socket."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession
from harness import call, demo_server, http, looped, post
from messages import message
from patience import HANGS_S

INVALID_STATE = {"code": -32602, "message": "Invalid or expired requestState"}
PROGRAMS = (
    (sys.executable, "-m", "mrtr_cassette.demo.server", "--port"),
    (sys.executable, "-m", "mrtr_cassette", "demo", "--serve"),
)


@looped
async def test_answers_are_compact_json_with_the_callers_id() -> None:
    """An answer is compact UTF-8 JSON; `_meta` may be left out, and a notification is accepted."""
    async with demo_server() as url:
        pong = await post(url, '{"jsonrpc":"2.0","method":"ping","id":"é-1"}'.encode())

        assert pong.body.startswith(
            '{"jsonrpc":"2.0","id":"é-1","result":{"resultType"'.encode()
        )

        told = await post(url, {"jsonrpc": "2.0", "method": "notifications/cancelled"})

        assert (told.status, told.body) == (202, b"")
        assert (await http("GET", url)).status == 405


@looped
async def test_bad_requests_are_refused() -> None:
    """The error has the code of the protocol; a state is of one call."""
    async with demo_server() as url:
        state = (await call(url, "wipe-cache", {})).state
        for body, status, code in (
            (b"{", 400, -32700),
            (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
            (message("tools/nothing", {}), 404, -32601),
            (message("tools/call", {"name": "nothing"}), 400, -32602),
            (message("tools/call", {"name": "deploy", "arguments": {}}), 400, -32602),
            (
                message("tools/call", {"name": "wipe-cache", "requestState": "x"}),
                400,
                -32602,
            ),
            (
                message("tools/call", {"name": "everything", "requestState": state}),
                400,
                -32602,
            ),
        ):
            refused = await post(url, body)

            assert (refused.status, refused.error["code"]) == (status, code)


@pytest.mark.parametrize("program", PROGRAMS, ids=["module", "command"])
def test_process_announces_itself_and_ends_quietly(program: Sequence[str]) -> None:
    """The process prints one line once it accepts connections, and a signal ends it with code 0."""
    with subprocess.Popen(
        [*program, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None

        url = server.stdout.readline().removeprefix("listening on ").strip()

        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)

        async def ping_and_signal() -> None:
            # The connection stays open, so that the end is quick in spite of it.
            async with ClientSession() as session:
                async with session.post(
                    url, data=json.dumps(message("ping", {}))
                ) as response:
                    assert response.status == 200

                    await response.read()

                server.send_signal(signal.SIGTERM)

                assert await asyncio.to_thread(server.communicate, timeout=HANGS_S) == (
                    "",
                    "",
                )

        asyncio.run(ping_and_signal())

        assert server.returncode == 0


@looped
async def test_taken_port_is_a_message() -> None:
    """A port that is taken gives one line on stderr and no traceback."""
    async with demo_server() as url:
        port = str(urlsplit(url).port)
        run = await asyncio.to_thread(
            subprocess.run, [*PROGRAMS[0], port], capture_output=True, text=True
        )

    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"cannot listen on port {port}: ")
