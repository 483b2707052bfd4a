"""Many short recordings and replays on pipes: bytes equal, nothing left, and nothing lost by a kill.

python tests/soak/short_sessions.py [--sessions N] [--at-once N]
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pipes import piped, processes_with, recorder

from processes import PROGRAM, run

from mrtr_cassette.shell.files.cassettes import load_cassette


class UnexpectedError(Exception):
    """Something differs, is missing or is left."""


@dataclass(frozen=True, slots=True)
class Session:
    """One client that records, is killed or not, and replays."""

    folder: Path
    number: int

    def run(self) -> bool:
        chance = random.Random(self.number)
        cassette = self.folder / f"{self.number}.json"
        calls = [_call(number, chance) for number in range(chance.randrange(1, 12))]
        kill_after = chance.randrange(len(calls)) if chance.random() < 0.3 else None
        said = self._spoken(recorder(cassette), calls, kill_after)
        wanted = [_answer(call) for call in calls[: len(said)]]
        if said != wanted:
            raise UnexpectedError(f"session {self.number}: {said} is not {wanted}")
        if kill_after is not None:
            done = run([*PROGRAM, "recover", str(cassette)])
            if done.code:
                raise UnexpectedError(f"session {self.number}: {done.stderr}")
        recorded = len(load_cassette(cassette).interactions)
        if recorded < len(said):
            raise UnexpectedError(f"session {self.number}: {recorded} of {len(said)} recorded")
        replayed = self._spoken([*PROGRAM, "replay", "--stdio", str(cassette)], calls[:recorded])
        if replayed[: len(said)] != said:
            raise UnexpectedError(f"session {self.number}: {replayed} was not recorded")
        return kill_after is not None

    def _spoken(
        self, command: Sequence[str], calls: Sequence[bytes], kill_after: int | None = None
    ) -> list[bytes]:
        """Call one after the other, and return the answers; perhaps the server is killed."""
        said = []
        with piped(command) as program:
            for number, call in enumerate(calls):
                program.say(call)
                if number == kill_after and number:
                    time.sleep(random.Random(self.number).random() / 50)
                    program.signal(signal.SIGKILL)
                    break
                said.append(program.hear())
                if number == kill_after:
                    program.signal(signal.SIGKILL)
                    break
            rest, _ = program.end()
        return [*said, *rest.splitlines(keepends=True)]


def _call(number: int, chance: random.Random) -> bytes:
    params = {"name": "t", "arguments": {"v": chance.randrange(10**9)}}
    call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(call).encode() + b"\n"


def _answer(call: bytes) -> bytes:
    message = json.loads(call)
    result = {**message["params"], "big": ""}
    response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return json.dumps(response, separators=(",", ":")).encode() + b"\n"


def main() -> int:
    """Run all sessions, and tell what they came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=50)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-pipes-") as name:
        sessions = [Session(Path(name), number) for number in range(options.sessions)]
        with ThreadPoolExecutor(options.at_once) as pool:
            killed = sum(pool.map(Session.run, sessions))
        time.sleep(2.0)
        left = processes_with(name)
        if left:
            raise UnexpectedError(f"processes are left: {left}")
        wanted = {f"{each.number}.json" for each in sessions}
        files = sorted({file.name for file in Path(name).iterdir()} - wanted)
        if files:
            raise UnexpectedError(f"files are left: {files}")
    took = time.monotonic() - started
    told = f"{options.sessions} sessions, {killed} killed and recovered, in {took:.0f} s"
    sys.stdout.write(f"{told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
