"""Facts about replay without a network: it needs none, and asks for none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Process, command, demo_server, http, looped, post, run
from messages import message, result
from processes import PROGRAM
from standin import answering, json_response, upstream

CLIENT = (sys.executable, str(Path(__file__).parent.parent / "peers" / "client_raw.py"))
EXCHANGES = 13
ISOLATED = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--net")
LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
UP_AND_RUNNING, SET_FLAGS = 0x41, 0x8914
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH22x", b"lo", UP_AND_RUNNING))
os.execv(sys.argv[1], sys.argv[1:])
"""
WITHOUT_NETWORK = (*ISOLATED, sys.executable, "-c", LOOPBACK_UP)

AUDITED = """
import sys
CALLS = {"connect", "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo", "sendto", "sendmsg"}
def hook(event, arguments):
    module, _, call = event.partition(".")
    if module == "socket" and call in CALLS:
        print("AUDIT", call, arguments[-1], file=sys.stderr, flush=True)
sys.addaudithook(hook)
sys.modules["uvloop"] = None  # libuv's calls are no events; the namespace speaks for them
from mrtr_cassette.cli import main
main()
"""


def check_isolation() -> None:
    """Fail, with the reason, where a process can't be cut off from the network."""
    if shutil.which("unshare") is None:
        pytest.fail("`unshare` (util-linux) is missing: nothing shows that replay needs no network")
    tried = subprocess.run([*ISOLATED, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.fail(
            f"`{' '.join(ISOLATED)}` is not permitted here ({tried.stderr.strip()}): nothing shows "
            "that replay needs no network; run the tests as root, or allow user namespaces"
        )


@looped
async def test_replay_needs_no_network(tmp_path: Path) -> None:
    """Where there is loopback only, replay gives a client what the server gave it, byte for byte."""
    check_isolation()
    path = tmp_path / "c.json"
    async with demo_server() as url:
        live = await run("record", "--port", 0, "--output", path, "--upstream", url, "--", *CLIENT)
    assert live.code == 0, live.err
    replay = (*WITHOUT_NETWORK, *PROGRAM)
    played = await run("replay", path, "--port", 0, "--", *CLIENT, "--offline", program=replay)
    assert played.code == 0, played.err
    assert played.out.splitlines()[1:] == live.out.splitlines()[1:]
    assert len(live.out.splitlines()) == 1 + EXCHANGES


def audited(process_stderr: str) -> list[str]:
    """Return the calls that the hook has seen."""
    return [line for line in process_stderr.splitlines() if line.startswith("AUDIT ")]


async def serve_all_kinds(process: Process) -> None:
    """Have hits, misses, other traffic and a wrong host served."""
    url = await process.listening()
    assert (await post(url, message("ping"))).json == result({})
    assert "error" in (await post(url, message("pong"))).json
    assert (await http("GET", url, target="/other")).status == 404
    assert (await http("GET", url, "Host: example.com")).status == 403


@looped
async def test_replay_connects_to_nothing_and_resolves_no_name(tmp_path: Path) -> None:
    """No audit event tells of a connection or a name, from the start of a replay to its end."""
    path = tmp_path / "c.json"
    program = (sys.executable, "-c", AUDITED)
    async with upstream(answering(json_response(result({})))) as server:
        arguments = ("--port", 0, "--output", path, "--upstream", server.url)
        async with command("record", *arguments, program=program) as process:
            await post(await process.listening(), message("ping"))
            recorded = await process.stopped()
    async with command("replay", path, "--port", 0, program=program) as process:
        await serve_all_kinds(process)
        replayed = await process.stopped()
    assert audited(replayed.err) == []
    assert replayed.code == 1, "the misses count"
    lookup, connection = audited(recorded.err)
    assert lookup.startswith("AUDIT getaddrinfo ")
    assert connection.startswith("AUDIT connect ('127.0.0.1', ")
