"""Compare record/replay tools on the same traffic; prints the table of docs/comparison.md.

    PYTHONPATH=tests python -m compared.run [--only NAME]

The server and the clients are on the official SDKs. The server sits behind a recorder of this project
that keeps raw states, so that all that reaches it is known; on replay it is gone.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from patience import HANGS_S
from processes import (
    PEERS,
    Side,
    free_port,
    install_node_packages,
    listening,
    peer,
    record_command,
    run,
    wait_for_port,
)

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venv"
SERVER = PEERS / "server_typescript.mjs"
ACCEPTED = ("Deploy to production?", "Which scope?")
"""Questions that are accepted while recording; declining them was never recorded."""

DECLINED_FLOWS = ("deploy", "wipe-cache")
CLIENT_S: Final = 60
COLUMNS = (
    "same client",
    "other order",
    "other language",
    "two at once",
    "declined",
    "requests to the server",
    "raw states on disk",
    "after kill -9",
)


@dataclass
class Tool:
    """A tool, and how it is started."""

    name: str
    record: str
    replay: str
    install: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    recover: str | None = None
    pipes: bool = False

    def command(self, text: str, **values: object) -> list[str]:
        """Return the words of a command."""
        filled = text.format(
            python=sys.executable, here=HERE, place=self.place, **values
        )
        return shlex.split(filled)

    @property
    def place(self) -> Path:
        """The folder that it is installed in."""
        return ENVIRONMENTS / re.sub(r"\W+", "-", self.name)

    @property
    def missing(self) -> list[str]:
        """The programs that it needs and that are not on the PATH."""
        return [program for program in self.needs if shutil.which(program) is None]

    def make_ready(self) -> None:
        """Install it, unless that was done before."""
        installed = self.place / ".installed"
        if installed.exists():
            return

        self.place.mkdir(parents=True, exist_ok=True)
        for text in self.install:
            subprocess.run(self.command(text), check=True)

        installed.touch()


def flows_of(transcript: str) -> dict[str, str]:
    """Return what a client saw in each flow, by the flow's name."""
    parts = re.split(r"^(?:\d+ )?== (\S+)$", transcript, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def client(
    target: Sequence[str], side: Side = "python", options: Sequence[str] = ()
) -> str:
    """Run a client against a URL, or against the command of a server; return what it saw."""
    is_url = len(target) == 1
    words = [*peer("client", side), *(target if is_url else ()), *options]
    if not is_url:
        words += ["--", *target]

    try:
        ended = subprocess.run(
            words, capture_output=True, text=True, timeout=CLIENT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        seen = error.stdout or b""
        return seen.decode() if isinstance(seen, bytes) else seen

    return ended.stdout


def score(expected: dict[str, str], seen: dict[str, str]) -> str:
    """Say how many flows were right, and how many of the others were wrong without an error."""
    right = 0
    wrong = 0
    for flow, transcript in expected.items():
        received = seen.get(flow, "error")
        if received == transcript:
            right += 1
        elif "error" not in received:
            wrong += 1

    text = f"{right} of {len(expected)}"
    return f"{text}, {wrong} wrong" if wrong else text


@contextmanager
def started(
    tool: Tool, command: list[str], port: int, stop: signal.Signals = signal.SIGINT
) -> Iterator[list[str]]:
    """Run a tool, and give the target for clients: its URL, or on pipes its command."""
    if tool.pipes:
        yield command
        return

    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for_port(port, process)
            yield [f"http://127.0.0.1:{port}/mcp"]
        finally:
            process.send_signal(stop)
            process.wait(timeout=HANGS_S)


@dataclass
class Recorded:
    """A recording of a tool, and what really reached the server meanwhile.

    Replays listen at its port too, as some tools match the `Host` header.
    """

    file: Path
    port: int
    seen: str
    states: set[str]
    requests: int


def record(
    tool: Tool,
    folder: Path,
    stop: signal.Signals = signal.SIGINT,
    options: Sequence[str] = (),
) -> Recorded:
    """Have a tool record all flows of the Python client."""
    file = folder / "recording.json"
    if tool.pipes:
        command = tool.command(tool.record, file=file, server=SERVER)
        return Recorded(file, 0, client(command), set(), 0)

    spied = folder / "spied.json"
    with listening(["node", str(SERVER)]) as server:
        spy = record_command(server.url, spied, "--request-state", "verbatim")
        with listening(spy) as upstream:
            port = free_port()
            address = urlsplit(upstream.url)
            origin = f"{address.scheme}://{address.netloc}"
            command = tool.command(
                tool.record,
                upstream=origin,
                host=address.hostname,
                upstream_port=address.port,
                port=port,
                file=file,
            )
            with started(tool, command, port, stop) as target:
                seen = client(target, options=options)

    calls = json.loads(spied.read_bytes())["recording"]["exchanges"]
    states = {
        state
        for state in re.findall(r'"requestState": ?"([^"]+)"', spied.read_text())
        if len(state) > 16
    }
    return Recorded(file, port, seen, states, len(calls))


@contextmanager
def replaying(tool: Tool, recorded: Recorded) -> Iterator[list[str]]:
    """Have a tool replay a recording without a server, and give the target for clients."""
    gone = f"http://127.0.0.1:{free_port()}"
    command = tool.command(
        tool.replay, file=recorded.file, port=recorded.port, upstream=gone
    )
    with started(tool, command, recorded.port) as target:
        yield target


def measure(tool: Tool) -> dict[str, str]:
    """Run all that a row of the table has."""
    if tool.missing:
        return {"while recording": f"not run without {' and '.join(tool.missing)}"}

    tool.make_ready()
    with listening(["node", str(SERVER)]) as server:
        expected = flows_of(client([server.url]))

    with tempfile.TemporaryDirectory() as folder:
        recorded = record(tool, Path(folder))
        cells = replayed(tool, recorded, expected)
        cells["while recording"] = score(expected, flows_of(recorded.seen))

    with tempfile.TemporaryDirectory() as folder:
        killed = record(tool, Path(folder), signal.SIGKILL)
        if tool.recover is not None:
            run(tool.command(tool.recover, file=killed.file))

        cells["after kill -9"] = replay_score(tool, killed, expected)

    return cells


def replay_score(
    tool: Tool,
    recorded: Recorded,
    expected: dict[str, str],
    side: Side = "python",
    options: Sequence[str] = (),
) -> str:
    """Return the score of a client of a new replay."""
    if not recorded.file.exists():
        return "nothing was recorded"

    with replaying(tool, recorded) as target:
        return score(expected, flows_of(client(target, side, options)))


def replayed(
    tool: Tool, recorded: Recorded, expected: dict[str, str]
) -> dict[str, str]:
    """Replay a recording in all ways of the table."""
    cells = {"same client": replay_score(tool, recorded, expected)}
    backwards = ["--flow", *reversed(expected)]
    cells["other order"] = replay_score(tool, recorded, expected, options=backwards)
    cells["other language"] = replay_score(tool, recorded, expected, "typescript")
    cells["two at once"] = two_at_once(tool, expected)
    cells["declined"] = declined(tool, recorded)
    if not tool.pipes:
        cells["requests to the server"] = str(recorded.requests)
        file = recorded.file
        written = file.read_bytes() if file.exists() else b""
        found = sum(state.encode() in written for state in recorded.states)
        cells["raw states on disk"] = f"{found} of {len(recorded.states)}"

    return cells


def two_at_once(tool: Tool, expected: dict[str, str]) -> str:
    """Record two sessions of a client at once, and replay both; the worse one counts."""
    if tool.pipes:
        return "not possible"

    options = ["--sessions", "2"]
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(tool, Path(folder), options=options)
        if not recorded.file.exists():
            return "nothing was recorded"

        with replaying(tool, recorded) as target:
            seen = client(target, options=options)

    scores = []
    for session in "12":
        lines = re.findall(rf"^{session} (.*\n)", seen, re.MULTILINE)
        scores.append(score(expected, flows_of("".join(lines))))

    return min(scores, key=lambda text: int(text.split()[0]))


def declined(tool: Tool, recorded: Recorded) -> str:
    """Decline what was accepted while recording: only an error is right."""
    if not recorded.file.exists():
        return "nothing was recorded"

    options = ["--flow", *DECLINED_FLOWS]
    for question in ACCEPTED:
        options += ["--decline", question]

    with replaying(tool, recorded) as target:
        seen = flows_of(client(target, options=options))

    wrong = sum("result" in seen.get(flow, "") for flow in DECLINED_FLOWS)
    return f"{wrong} of {len(DECLINED_FLOWS)} answered as accepted"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    options = parser.parse_args()
    install_node_packages()
    listed = tomllib.loads((HERE / "tools.toml").read_text())["tool"]
    tools = [Tool(**values) for values in listed]
    print("| tool |", " | ".join(("while recording", *COLUMNS)), "|")
    print("| --- " * (len(COLUMNS) + 2) + "|")
    for tool in tools:
        if options.only and tool.name not in options.only:
            continue

        cells = measure(tool)
        shown = [cells.get(column, "—") for column in ("while recording", *COLUMNS)]
        print(f"| {tool.name} |", " | ".join(shown), "|", flush=True)


if __name__ == "__main__":
    main()
