"""Facts about replay without a network: it needs none, and asks for none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import demo_server, looped, run
from processes import PROGRAM

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
