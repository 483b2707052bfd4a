"""What one client sees of one server: directly, while it is recorded, and of the recording.

Rule: one process of a client runs the scenarios one after the other. They share a proxy and a
cassette, as the sessions of one program do; on pipes each has its own.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import groupby
from pathlib import Path
from typing import Any

from patience import seconds
from processes import Run, lasting_part, run
from wild.peers import Client, Server
from wild.ways import Pipes, Proxies, Sockets, Way

JsonObject = dict[str, Any]
Transcript = dict[str, list[JsonObject]]
"""The lines of each scenario."""

PATIENCE_S = seconds(60)
LONGEST = 150
WHOLE = "all in one cassette"
CALLS = {"tools/call", "prompts/get", "resources/read"}


@dataclass
class Outcome:
    """What became of one scenario with one pair."""

    server: str
    client: str
    scenario: str
    calls: int = 0
    questions: int = 0
    turns: int = 0
    misses: int = 0
    differing: int = 0
    samples: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Tell all that is wrong, lines that differ between two recordings included."""
        if not self.differing:
            return self.problems

        text = (
            f"recorded again: {self.differing} lines differ: {'; '.join(self.samples)}"
        )
        return [*self.problems, text]


def run_client(
    client: Client, targets: Mapping[str, str], patience: float
) -> tuple[Run, Transcript]:
    """Run scenarios, each against its own URL."""
    pairs = [f"{name}={url}" for name, url in targets.items()]
    ended = run([*client.command, "--patience", f"{patience:.0f}", *pairs])
    transcript: Transcript = defaultdict(list)
    for line in ended.stdout.splitlines():
        event = json.loads(line)
        transcript[event["scenario"]].append(event)

    return ended, transcript


def in_lanes(lines: Sequence[JsonObject]) -> dict[tuple[int, str], list[str]]:
    """Return what came in order: the lines of each session, those that may race apart."""
    lanes: dict[tuple[int, str], list[str]] = defaultdict(list)
    for line in lines:
        place = line["session"], line["lane"]
        shown = {
            k: v for k, v in line.items() if k not in {"scenario", "session", "lane"}
        }
        lanes[place].append(json.dumps(shown, sort_keys=True, ensure_ascii=False))

    return lanes


def asks_before_answers(lines: Sequence[JsonObject]) -> list[JsonObject]:
    """Put what was asked at once before the answers: SDKs differ in whether they wait."""
    ordered: list[JsonObject] = []
    kinds = {"ask": 0, "answer": 1}
    for is_dialogue, block in groupby(lines, lambda line: line["kind"] in kinds):
        listed = list(block)
        if is_dialogue:
            listed.sort(
                key=lambda line: (kinds[line["kind"]], json.dumps(line, sort_keys=True))
            )

        ordered += listed

    return ordered


def difference(wanted: Sequence[JsonObject], seen: Sequence[JsonObject]) -> str:
    """Tell where two transcripts of a scenario part, or nothing."""
    all_wanted = in_lanes(wanted)
    all_seen = in_lanes(seen)
    for place in sorted({*all_wanted, *all_seen}):
        lane = all_wanted.get(place, [])
        seen_lane = all_seen.get(place, [])
        if lane != seen_lane:
            at = next(
                (
                    n
                    for n, (a, b) in enumerate(zip(lane, seen_lane, strict=False))
                    if a != b
                ),
                min(len(lane), len(seen_lane)),
            )

            session, _ = place
            first = brief(lane[at]) if at < len(lane) else "nothing"
            second = brief(seen_lane[at]) if at < len(seen_lane) else "nothing"

            return f"session {session}, line {at + 1}: wanted {first}, seen {second}"

    return ""


def brief(line: str) -> str:
    """Spell a line of a transcript in a few words."""
    event: JsonObject = json.loads(line)
    what = event.pop("kind")
    return f"{what} {json.dumps(event, ensure_ascii=False)[:LONGEST]}"


def differing_lines(first: bytes, second: bytes) -> list[str]:
    """Return the lines that only one of two cassettes has."""
    diff = unified_diff(
        first.decode().splitlines(), second.decode().splitlines(), lineterm="", n=0
    )
    return [
        line for line in diff if line[:1] in "+-" and line[:3] not in {"+++", "---"}
    ]


class Pair:
    """One server and one client, and what becomes of each scenario."""

    def __init__(
        self,
        server: Server,
        client: Client,
        scenarios: Sequence[str],
        *,
        patience: float = PATIENCE_S,
        is_piped: bool = False,
    ) -> None:
        self.server = server
        self.client = client
        self._patience = patience
        self._is_piped = is_piped
        self._cassettes = {name: name if is_piped else WHOLE for name in scenarios}
        name = f"{server.name} on pipes" if is_piped else server.name
        named = dict.fromkeys([*scenarios, *self._cassettes.values()])
        self.outcomes = {
            scenario: Outcome(name, client.name, scenario) for scenario in named
        }

    def run(
        self,
        directory: Path,
        others: Sequence[Client] = (),
        *,
        is_brief: bool = False,
    ) -> list[Outcome]:
        """Run all scenarios in all ways; `others` are shown what this client has recorded.

        Args:
            is_brief: nothing is recorded again, and the client runs on a replay only once.
        """
        self._directory = directory
        way = Pipes(self.server, directory) if self._is_piped else Sockets(self.server)
        self._way: Way = way
        direct = self._directly()
        first = self._recorded("first", direct)
        again = first
        if not is_brief:
            again = self._recorded("again", direct, first)

        for name in first.keys() & again.keys():
            self._count(name, first[name], again[name])

        if first:
            self._replayed(first, direct, self.client, runs=1 if is_brief else 2)
            for other_client in others:
                self._replayed(first, direct, other_client, 1)

        return list(self.outcomes.values())

    def _trouble(self, scenario: str, text: str) -> None:
        self.outcomes[scenario].problems.append(text)

    def _directly(self) -> Transcript:
        """Run all scenarios without a proxy; once more where a client came to no end by itself."""
        ended, direct = self._run_directly()
        if self._unended(direct):
            ended, direct = self._run_directly()

        for name, last in self._unended(direct).items():
            self._trouble(name, f"direct: {json.dumps(last)} {_tail(ended.stderr)}")

        for name in self._cassettes:
            asks = [line for line in direct[name] if line["kind"] == "ask"]
            self.outcomes[name].questions = len(asks)

        return direct

    def _run_directly(self) -> tuple[Run, Transcript]:
        with self._way.serving() as target:
            targets = dict.fromkeys(self._cassettes, target)
            return run_client(self.client, targets, self._patience)

    def _unended(self, transcript: Transcript) -> dict[str, JsonObject]:
        """Return the last line of each scenario that did not come to its end."""
        unended: dict[str, JsonObject] = {}
        for name in self._cassettes:
            lines = transcript[name] or [{"kind": "nothing"}]
            if lines[-1]["kind"] != "end":
                unended[name] = lines[-1]

        return unended

    def _recorded(
        self, label: str, direct: Transcript, over: Mapping[str, Path] | None = None
    ) -> dict[str, Path]:
        """Record all scenarios, over copies of some cassettes; return the cassettes that there are."""
        paths = {
            cassette: self._directory / f"{number}-{label}.json"
            for number, cassette in enumerate(dict.fromkeys(self._cassettes.values()))
        }

        for name, cassette in (over or {}).items():
            shutil.copy(cassette, paths[name])

        with self._way.recording(paths) as recorders:
            _, seen = run_client(self.client, self._targets(recorders), self._patience)

        for name in self._cassettes:
            self._compare(f"record {label}", name, direct, seen, self.client)

        for name, recorder in recorders.items():
            if recorder.code != 0 or not paths[name].exists():
                text = f"record {label}: exit {recorder.code}: {_tail(recorder.stderr)}"
                self._trouble(name, text)

        return {name: path for name, path in paths.items() if path.exists()}

    def _targets(self, proxies: Proxies) -> dict[str, str]:
        """Return what the client connects to for each scenario."""
        return {
            scenario: proxies[cassette].url
            for scenario, cassette in self._cassettes.items()
            if cassette in proxies
        }

    def _count(self, name: str, first: Path, again: Path) -> None:
        """Take down what a cassette has, and what is different in one of a restarted server."""
        outcome = self.outcomes[name]
        interactions = json.loads(first.read_bytes())["interactions"]
        methods = [_method(interaction) for interaction in interactions]
        outcome.calls = sum(method in CALLS for method in methods)
        outcome.turns = sum(
            len(interaction["elicitation_turns"]) for interaction in interactions
        )
        lines = differing_lines(lasting_part(first), lasting_part(again))
        outcome.differing = len(lines)
        outcome.samples = [line.strip()[:LONGEST] for line in lines[:2]]

    def _replayed(
        self, cassettes: dict[str, Path], direct: Transcript, client: Client, runs: int
    ) -> None:
        """Replay each cassette to a client, with the server gone."""
        options = (
            () if self.server.replays_alike(client.era) else ("--repeat", "always")
        )
        with self._way.replaying(cassettes, *options) as replays:
            targets = self._targets(replays)
            for number in range(1, runs + 1):
                _, seen = run_client(client, targets, self._patience)
                for name in targets:
                    where = f"replay to {client.name}, run {number}"
                    self._compare(where, name, direct, seen, client)

        for name, replay in replays.items():
            missed = [int(count) for count in re.findall(r"(\d+) miss", replay.stderr)]
            self.outcomes[name].misses += sum(missed)
            if replay.code != 0 or "no misses" not in replay.stderr:
                text = f"replay to {client.name}: exit {replay.code}: {_tail(replay.stderr)}"
                self._trouble(name, text)

    def _compare(
        self,
        run_: str,
        name: str,
        direct: Transcript,
        transcript: Transcript,
        client: Client,
    ) -> None:
        wanted = direct[name]
        seen = transcript[name]
        if client != self.client or client.answers_at_once:
            wanted = asks_before_answers(wanted)
            seen = asks_before_answers(seen)

        has_one_stream = self._is_piped or "sse" in self.server.arguments
        if has_one_stream and (client.loses_progress or self.client.loses_progress):
            wanted = [line for line in wanted if line["kind"] != "progress"]
            seen = [line for line in seen if line["kind"] != "progress"]

        where = difference(wanted, seen)
        if where:
            self._trouble(name, f"{run_}: {where}")


def _method(interaction: JsonObject) -> str | None:
    body = interaction["request"].get("body")
    method: str | None = body.get("method") if isinstance(body, dict) else None
    return method


def _tail(text: str) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-3:])[-500:]
