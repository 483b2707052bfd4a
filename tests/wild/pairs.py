"""What one client sees of one server: directly, while it is recorded, and of the recording.

Owns: the runs of a pair, and how their transcripts and cassettes are compared.
Rule: each scenario has a proxy and a cassette of its own, so that none stands in another's way; one
process of the client runs them one after the other.
"""

from __future__ import annotations

import json
import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import groupby
from pathlib import Path
from typing import Any

from patience import seconds
from processes import (
    Listening,
    Run,
    free_port,
    lasting_part,
    listening,
    record_command,
    replay_command,
    run,
)
from wild.peers import Client, Server

JsonObject = dict[str, Any]
Transcript = dict[str, list[JsonObject]]
"""The lines of each scenario."""

PATIENCE_S = seconds(15)
LONGEST = 150
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
        text = f"recorded again: {self.differing} lines differ: {'; '.join(self.samples)}"
        return [*self.problems, text]


@contextmanager
def together(
    contexts: Mapping[str, AbstractContextManager[Listening]],
) -> Iterator[dict[str, Listening]]:
    """Start several processes at once, and stop them so."""
    with ThreadPoolExecutor(len(contexts)) as pool:
        started = list(pool.map(lambda each: each.__enter__(), contexts.values()))
        try:
            yield dict(zip(contexts, started, strict=True))
        finally:
            list(pool.map(lambda each: each.__exit__(None, None, None), contexts.values()))


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
        shown = {k: v for k, v in line.items() if k not in {"scenario", "session", "lane"}}
        lanes[place].append(json.dumps(shown, sort_keys=True, ensure_ascii=False))
    return lanes


def asks_before_answers(lines: Sequence[JsonObject]) -> list[JsonObject]:
    """Put what was asked at once before the answers: SDKs differ in whether they wait."""
    ordered: list[JsonObject] = []
    kinds = {"ask": 0, "answer": 1}
    for is_dialogue, block in groupby(lines, lambda line: line["kind"] in kinds):
        listed = list(block)
        if is_dialogue:
            listed.sort(key=lambda line: (kinds[line["kind"]], json.dumps(line, sort_keys=True)))
        ordered += listed
    return ordered


def difference(wanted: Sequence[JsonObject], seen: Sequence[JsonObject]) -> str:
    """Tell where two transcripts of a scenario part, or nothing."""
    all_wanted, all_seen = in_lanes(wanted), in_lanes(seen)
    for place in sorted({*all_wanted, *all_seen}):
        lane, other = all_wanted.get(place, []), all_seen.get(place, [])
        if lane != other:
            at = next(
                (n for n, (a, b) in enumerate(zip(lane, other, strict=False)) if a != b),
                min(len(lane), len(other)),
            )
            session, _ = place
            first, second = (
                brief(each[at]) if at < len(each) else "nothing" for each in (lane, other)
            )
            return f"session {session}, line {at + 1}: wanted {first}, seen {second}"
    return ""


def brief(line: str) -> str:
    """Spell a line of a transcript in a few words."""
    event: JsonObject = json.loads(line)
    what = event.pop("kind")
    return f"{what} {json.dumps(event, ensure_ascii=False)[:LONGEST]}"


def differing_lines(first: bytes, second: bytes) -> list[str]:
    """Return the lines that only one of two cassettes has."""
    diff = unified_diff(first.decode().splitlines(), second.decode().splitlines(), lineterm="", n=0)
    return [line for line in diff if line[:1] in "+-" and line[:3] not in {"+++", "---"}]


class Pair:
    """One server and one client, and what becomes of each scenario."""

    def __init__(
        self,
        server: Server,
        client: Client,
        directory: Path,
        *,
        only: Sequence[str] = (),
        patience: float = PATIENCE_S,
    ) -> None:
        self._patience = patience
        self._server, self._client = server, client
        self._directory = directory
        self._port = free_port()
        offered = server.scenarios[client.era]
        scenarios = [name for name in offered if not only or name in only]
        self.outcomes = {name: Outcome(server.name, client.name, name) for name in scenarios}

    def run(self, others: Sequence[Client] = (), runs: int = 2) -> list[Outcome]:
        """Run all scenarios in all ways; `others` are shown what this client has recorded.

        Args:
            runs: how often the client runs on one replay.
        """
        direct = self._directly()
        first = self._recorded("first", direct)
        again = self._recorded("again", direct)
        for name in first.keys() & again.keys():
            self._count(name, first[name], again[name])
        self._replayed(first, direct, self._client, runs)
        for other in others:
            self._replayed(first, direct, other, 1)
        return list(self.outcomes.values())

    def _trouble(self, scenario: str, text: str) -> None:
        self.outcomes[scenario].problems.append(text)

    def _serving(self) -> AbstractContextManager[Listening]:
        return listening(self._server.command(self._port))

    def _directly(self) -> Transcript:
        with self._serving() as server:
            ended, direct = run_client(
                self._client, dict.fromkeys(self.outcomes, server.url), self._patience
            )
        for name, outcome in self.outcomes.items():
            outcome.questions = sum(line["kind"] == "ask" for line in direct[name])
            last = direct[name][-1] if direct[name] else {"kind": "nothing"}
            if last["kind"] != "end":
                self._trouble(name, f"direct: {json.dumps(last)} {_tail(ended.stderr)}")
        return direct

    def _recorded(self, label: str, direct: Transcript) -> dict[str, Path]:
        """Record each scenario; return the cassettes that there are."""
        paths = {name: self._directory / f"{name}-{label}.json" for name in self.outcomes}
        with self._serving() as server:
            proxies = {
                name: listening(record_command(server.url, path), signal.SIGINT)
                for name, path in paths.items()
            }
            with together(proxies) as recorders:
                urls = {name: proxy.url for name, proxy in recorders.items()}
                _, seen = run_client(self._client, urls, self._patience)
        for name, proxy in recorders.items():
            self._compare(f"record {label}", direct[name], seen[name])
            if proxy.code != 0 or not paths[name].exists():
                self._trouble(name, f"record {label}: exit {proxy.code}: {_tail(proxy.stderr)}")
        return {name: path for name, path in paths.items() if path.exists()}

    def _count(self, name: str, first: Path, again: Path) -> None:
        """Take down what a cassette has, and what is different in one of a restarted server."""
        outcome = self.outcomes[name]
        interactions = json.loads(first.read_bytes())["interactions"]
        methods = [_method(interaction) for interaction in interactions]
        outcome.calls = sum(method in CALLS for method in methods)
        outcome.turns = sum(len(each["elicitation_turns"]) for each in interactions)
        lines = differing_lines(lasting_part(first), lasting_part(again))
        outcome.differing = len(lines)
        outcome.samples = [line.strip()[:LONGEST] for line in lines[:2]]

    def _replayed(
        self, cassettes: dict[str, Path], direct: Transcript, client: Client, runs: int
    ) -> None:
        """Replay each cassette to a client, with the server gone."""
        options = () if self._server.replays_alike(client.era) else ("--repeat", "always")
        proxies = {
            name: listening(replay_command(path, *options), signal.SIGINT)
            for name, path in cassettes.items()
        }
        with together(proxies) as replays:
            urls = {name: proxy.url for name, proxy in replays.items()}
            for number in range(1, runs + 1):
                _, seen = run_client(client, urls, self._patience)
                for name in cassettes:
                    wanted, got = direct[name], seen[name]
                    if client != self._client:
                        wanted, got = asks_before_answers(wanted), asks_before_answers(got)
                    self._compare(f"replay to {client.name}, run {number}", wanted, got)
        for name, proxy in replays.items():
            missed = re.search(r"(\d+) miss", proxy.stderr)
            self.outcomes[name].misses += int(missed[1]) if missed else 0
            if proxy.code != 0 or "no misses" not in proxy.stderr:
                self._trouble(
                    name, f"replay to {client.name}: exit {proxy.code}: {_tail(proxy.stderr)}"
                )

    def _compare(self, run_: str, wanted: Sequence[JsonObject], seen: Sequence[JsonObject]) -> None:
        where = difference(wanted, seen)
        if where:
            self._trouble((wanted or seen)[0]["scenario"], f"{run_}: {where}")


def _method(interaction: JsonObject) -> str | None:
    body = interaction["request"].get("body")
    method: str | None = body.get("method") if isinstance(body, dict) else None
    return method


def _tail(text: str) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-3:])[-500:]
