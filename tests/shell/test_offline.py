"""Facts about replay without a network: it needs none, and asks for none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from harness import looped, run
from processes import CASSETTES, PROGRAM, TRANSCRIPTS, peer

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
async def test_replay_needs_no_network() -> None:
    """Where there is loopback only, an SDK's client sees what it saw when it was recorded."""
    check_isolation()
    cassette = CASSETTES / "python-sdk.json"
    arguments = ("replay", cassette, "--port", 0, "--", *peer("client", "python"))
    played = await run(*arguments, program=(*WITHOUT_NETWORK, *PROGRAM))
    assert played.code == 0, played.err
    announced, _, told = played.out.partition("\n")
    assert announced.startswith("listening on ")
    assert told == (TRANSCRIPTS / "python-sdk.txt").read_text()
