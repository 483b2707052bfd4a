"""Facts about taking what a live server says into a cassette, from the command line."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import start
from harness import looped, post, run_here, taping
from messages import CAPABLE, YES, asks, compact, result, text, tool_call
from patience import HANGS_S
from processes import PROGRAM
from standin import Visit, response, upstream

from mrtr_cassette.shell.runs.running import in_thread


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--accept", "not-reached"), "is not a verdict that can be accepted"),
        (
            ("--accept", "text"),
            "'text' is not a verdict that can be accepted; use text-ch",
        ),
        (("--accept", "same"), "question-changed, or all"),
        (("--review",), "--review needs a terminal"),
    ],
)
def test_what_can_not_be_accepted_is_said(options: tuple[str, ...], words: str) -> None:
    """Before anything is sent to the server."""
    ended = run_here("verify", "c.json", "http://localhost:1/mcp", *options)

    assert ended.code == 2
    assert words in ended.err


def saying(words: str) -> Any:
    """Return a server that gives every call this text, and a member more where it ends in `!`."""

    async def server(visit: Visit) -> None:
        body = visit.request.json
        said: dict[str, Any] = {"jsonrpc": "2.0", "id": body.get("id")}
        if words == "error":
            said["error"] = {"code": -32603, "message": "Broken"}
        else:
            said["result"] = text(words) | ({"extra": 1} if words.endswith("!") else {})

        await visit.send(response(compact(said), "Content-Type: application/json"))

    return server


def session(
    cassette: Path,
    words: str,
    *arguments: str,
    keys: str = "",
    number: signal.Signals | None = None,
) -> tuple[int, str]:
    """Verify a cassette with a server that says these words; with keys or a signal, at a terminal."""
    with in_thread(upstream(saying(words))) as server:
        command = ("verify", str(cassette), "--upstream", server.url, *arguments)
        if keys or number is not None:
            return at_terminal([*PROGRAM, *command], keys, number)

        ended = run_here(*command)
        return ended.code, ended.err


def at_terminal(
    command: list[str], keys: str, number: signal.Signals | None = None
) -> tuple[int, str]:
    """Run a command at a terminal; return its exit code and what it shows.

    A signal is sent to it when it has asked.
    """
    terminal, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    with os.fdopen(side, "r+b", buffering=0) as file:
        process = start(command, file, file, env, stdin=file)

    os.write(terminal, "".join(f"{key}\n" for key in keys).encode())
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break

        if number is not None and shown.endswith(b"[y/N]: "):
            process.send_signal(number)

    os.close(terminal)
    return process.wait(timeout=HANGS_S), shown.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cassette of one call."""
    path = tmp_path_factory.mktemp("accepted") / "call.json"

    @looped
    async def record() -> None:
        async with taping(path, saying("old words")) as tape:
            await post(tape.url, tool_call("say"))

    record()
    return path


def test_a_cassette_is_updated_from_the_command_line(
    recorded: Path, tmp_path: Path
) -> None:
    """With 0, as everything that differs is accepted; without an option it is only read."""
    cassette = Path(shutil.copy(recorded, tmp_path / "call.json"))
    before = cassette.read_bytes()
    code, _ = session(cassette, "new words")

    assert (code, cassette.read_bytes()) == (1, before)

    code, shown = session(cassette, "new words", "--accept", "all")

    assert code == 0
    assert 'accepted: #1 tools/call "say": text-changed' in shown
    assert f"wrote {cassette}: 1 response accepted" in shown
    assert cassette.read_text().count("new words") == 1
    assert session(cassette, "new words")[0] == 0


def test_a_breakdown_is_taken_after_a_look_only(recorded: Path, tmp_path: Path) -> None:
    """At a terminal somebody is asked, and the answer decides."""
    cassette = Path(shutil.copy(recorded, tmp_path / "call.json"))
    before = cassette.read_bytes()
    code, shown = session(cassette, "error", "--accept", "all")

    assert code == 1
    assert ": the server broke down; --review takes that too\n" in shown

    code, shown = session(cassette, "error", "--review", keys="n")

    assert (code, cassette.read_bytes()) == (1, before)
    assert "#1 tools/call" in shown
    assert "accept? [y/N]" in shown
    assert session(cassette, "error", "--review", keys="y")[0] == 0
    assert "Broken" in cassette.read_text()


def test_response_is_asked_about_with_all_its_changes(
    recorded: Path, tmp_path: Path
) -> None:
    """Each with its place and both values, and none where `--accept` has all its verdicts."""
    cassette = Path(shutil.copy(recorded, tmp_path / "call.json"))
    code, shown = session(cassette, "new \x1b[2J!", "--review", keys="n")

    assert (code, cassette.read_bytes()) == (1, recorded.read_bytes())
    assert '#1 tools/call "say"\n    /content/0/text: text-changed\n' in shown
    assert '    - "old words"\n    + "new' in shown
    assert "    /extra: " in shown
    assert "\x1b[2J" not in shown

    review = ("--review", "--accept", "text-changed")
    code, shown = session(cassette, "new words", *review, keys=" ")

    assert (code, "accept?" in shown) == (0, False)


@pytest.mark.parametrize(
    ("keys", "number", "code"),
    [("\x04", None, 130), ("", signal.SIGINT, 130), ("", signal.SIGTERM, 143)],
    ids=["end of lines", "SIGINT", "SIGTERM"],
)
def test_a_review_can_be_stopped(
    recorded: Path, tmp_path: Path, keys: str, number: signal.Signals | None, code: int
) -> None:
    """At its prompt, by a signal or without an answer: nothing is written, and nothing differs."""
    cassette = Path(shutil.copy(recorded, tmp_path / "call.json"))
    ended, shown = session(cassette, "new words", "--review", keys=keys, number=number)

    assert ended == code
    assert f"error: stopped by SIG{'TERM' if code == 143 else 'INT'}\n" in shown
    assert cassette.read_bytes() == recorded.read_bytes()


STATE_OF = "the-state-of-{}-0123456789abcdef"


def asking(key: str) -> Any:
    """Return a server that asks under this key, and then says which key was answered."""

    async def server(visit: Visit) -> None:
        asked = visit.request.json
        params = visit.request.json["params"]
        said: Any = text(
            "answered" if key in params.get("inputResponses", {}) else "nothing"
        )
        if "inputResponses" not in params:
            said = asks(
                key, state=STATE_OF.format(key), words=f"Sure? {STATE_OF.format(key)}"
            )

        reply = result(said, id=asked["id"])
        await visit.send(response(compact(reply), "Content-Type: application/json"))

    return server


def test_a_question_under_another_key_is_answered_and_accepted_by_itself(
    tmp_path: Path,
) -> None:
    """Its recorded answer goes under the key of today, to the server and into the cassette."""
    path = tmp_path / "call.json"

    @looped
    async def record() -> None:
        async with taping(path, asking("ask_sure")) as tape:
            state = STATE_OF.format("ask_sure")
            for answers in (
                {},
                {"inputResponses": {"ask_sure": YES}, "requestState": state},
            ):
                await post(tape.url, tool_call("deploy", _meta=CAPABLE, **answers))

    record()
    with in_thread(upstream(asking("sure"))) as server:
        command = ("verify", str(path), "--upstream", server.url)
        shown = run_here(*command).out

        assert "turn 1 key-changed: ask_sure → sure\n" in shown
        assert "response" not in shown
        assert run_here(*command, "--accept", "text-changed").code == 1
        assert run_here(*command, "--accept", "key-changed").code == 0
        assert run_here(*command).code == 0

    assert b"ask_sure" not in path.read_bytes()


LINES = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        said = {"content": [{"type": "text", "text": sys.argv[1]}]}
        if asked["method"] == "tools/list":
            said = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
        if asked["method"] == "server/discover":
            said = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": said}
        print(json.dumps(reply, separators=(",", ":")), flush=True)
"""


def test_what_call_recorded_from_a_command_is_updated_from_it(tmp_path: Path) -> None:
    """Such a cassette is one of HTTP, and what the server says on its pipes goes in as such."""
    server = tmp_path / "server.py"
    path = tmp_path / "call.json"
    server.write_text(LINES)
    started = ("--", sys.executable, str(server))

    assert run_here("call", "say", "--record", str(path), *started, "old").code == 0

    before = path.read_text().splitlines()

    assert run_here("verify", str(path), "--accept", "all", *started, "new").code == 0

    after = path.read_text().splitlines()
    changed = [line.strip() for line in after if line not in before]

    assert [line for line in changed if "sha256" not in line] == ['"text": "new"']
    assert run_here("verify", str(path), *started, "new").code == 0
