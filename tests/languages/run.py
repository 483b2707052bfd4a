"""Record and replay what the official SDKs of other languages say, and tell what became of it.

python -m languages.run [--language NAME]... [--client NAME]... [--server NAME]... [--all]

Each client has each tool called directly, through the recorder, and of the recording with the
server gone; clients of other languages are shown its recording too. All must see the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from languages.peers import GO, JAVA, LANGUAGES, PYTHON, Era, Language
from processes import Run, run
from wild.ways import Pipes, Sockets, Way

NAME = "form: Which plan? name"
CONFIRM = "form: Start it? confirm"
SIGNIN = "url: Sign in https://example.com/auth"
DRAFT = "sampling: Write the plan"
Line = dict[str, Any]


def line(tool: str, result: str, *asked: str) -> Line:
    """Return what a client prints of a call."""
    return {"tool": tool, "asked": list(asked), "result": result, "error": ""}


WANTED = {
    "accept": [
        line("add", "3"),
        line("form", "accept fast", NAME),
        line("url", "accept", SIGNIN),
        line("sampling", "Two steps", DRAFT),
        line("roots", "file:///workspace"),
        line("rounds", "accept fast, accept true", NAME, CONFIRM),
    ],
    "decline": [
        line("form", "decline", NAME),
        line("url", "decline", SIGNIN),
        line("rounds", "decline, decline", NAME, CONFIRM),
    ],
    "cancel": [line("form", "cancel", NAME)],
}
# Of a question without `params`, which roots/list may leave out, this SDK reads nothing.
FAULT = {
    **line("roots", ""),
    "error": 'calling "tools/call": unexpected end of JSON input',
}
REFUSED = ["form", "url", "rounds"]
"""Tools whose question is declined on a recording in which it was accepted."""


def tail(text: str) -> str:
    """Return the last lines of what a program wrote."""
    return " | ".join(text.strip().splitlines()[-4:])[-600:]


def wanted_call(
    client: Language, server: Language, era: Era, answer: str
) -> list[Line]:
    """Return what a client prints of a server's tools, SDKs' own faults included."""
    if client is GO and server is not GO and era == "2026":
        return [FAULT if seen["tool"] == "roots" else seen for seen in WANTED[answer]]
    return WANTED[answer]


class Pair:
    """A client, a server, an era and a way between them."""

    def __init__(
        self, client: Language, server: Language, era: Era, *, is_piped: bool
    ) -> None:
        self.client = client
        self.server = server
        self.era = era
        self.is_piped = is_piped
        self.over = "pipes" if is_piped else "HTTP"
        self.problems: list[str] = []
        self.replays = 0

    def run(self, directory: Path, readers: Sequence[Language]) -> None:
        """Run it in an empty folder; `readers` are shown each recording."""
        server = self.server.server_of(self.era)
        way: Way = Pipes(server, directory) if self.is_piped else Sockets(server)
        for answer in WANTED:
            wanted = self._wanted(self.client, answer)
            tools = [seen["tool"] for seen in wanted]
            with way.serving() as target:
                ended = self._call(self.client, answer, target, tools)

            self._compare(f"{answer}, directly", wanted, ended)
            cassette = directory / f"{answer}.json"
            self._record(way, cassette, answer)
            if not cassette.exists():
                continue

            self._replay(way, cassette, answer, self.client)
            if answer == "accept":
                self._refuse(way, cassette)
                for reader in readers:
                    self._replay(way, cassette, answer, reader)

    def _wanted(self, client: Language, answer: str) -> list[Line]:
        return wanted_call(client, self.server, self.era, answer)

    def _call(
        self, client: Language, answer: str, target: str, tools: Sequence[str]
    ) -> Run:
        return run([*client.client_command(self.era, answer), target, *tools])

    def _compare(self, where: str, wanted: Sequence[Line], ended: Run) -> None:
        seen = lines_of(ended)
        if seen == wanted:
            return

        for number, expected in enumerate(wanted):
            found = seen[number] if number < len(seen) else "nothing"
            if found != expected:
                text = f"{where}: wanted {expected}, seen {found}"
                self.problems.append(f"{text} {tail(ended.stderr)}")
                return

    def _record(self, way: Way, cassette: Path, answer: str) -> None:
        wanted = self._wanted(self.client, answer)
        tools = [seen["tool"] for seen in wanted]
        with way.recording({answer: cassette}) as recorders:
            recorder = recorders[answer]
            ended = self._call(self.client, answer, recorder.url, tools)

        self._compare(f"{answer}, recorded", wanted, ended)
        if recorder.code != 0:
            text = f"{answer}, recorded: exit {recorder.code}"
            self.problems.append(f"{text} {tail(recorder.stderr)}")

    def _replay(self, way: Way, cassette: Path, answer: str, reader: Language) -> None:
        recorded = self._wanted(self.client, answer)
        failed = [seen["tool"] for seen in recorded if seen["error"]]
        wanted = self._wanted(reader, answer)
        if reader is not self.client:
            wanted = [seen for seen in wanted if seen["tool"] not in failed]

        tools = [seen["tool"] for seen in wanted]
        where = f"{answer}, replayed to {reader.name}"
        with way.replaying({answer: cassette}) as replays:
            replay = replays[answer]
            ended = self._call(reader, answer, replay.url, tools)

        self.replays += 1
        self._compare(where, wanted, ended)
        if replay.code != 0 or "no misses" not in replay.stderr:
            text = f"{where}: exit {replay.code}"
            self.problems.append(f"{text} {tail(replay.stderr)}")

    def _refuse(self, way: Way, cassette: Path) -> None:
        """Decline what was accepted in the recording: a miss, which the client is told."""
        with way.replaying({"refused": cassette}) as replays:
            replay = replays["refused"]
            ended = self._call(self.client, "decline", replay.url, REFUSED)

        seen = lines_of(ended)
        missed = [told for told in seen if "decline" in told["error"]]
        is_told = "misses (answers-differ" in replay.stderr
        # On pipes a client may start its server once more, to learn what it speaks.
        has_failed = is_told and (self.is_piped or replay.code == 1)
        if not has_failed or len(missed) != len(REFUSED):
            text = f"declined what was accepted: exit {replay.code}, seen {seen}"
            self.problems.append(f"{text} {tail(ended.stderr)} {tail(replay.stderr)}")


def lines_of(ended: Run) -> list[Line]:
    """Return what a client printed."""
    return [json.loads(text) for text in ended.stdout.splitlines()]


def readers_of(
    client: Language, era: Era, languages: Sequence[Language]
) -> list[Language]:
    """Return who else is shown what a client recorded: all that speak its revision."""
    others = [language for language in languages if language is not client]
    return [language for language in others if era in language.eras]


def pairs_of(options: argparse.Namespace, languages: Sequence[Language]) -> list[Pair]:
    """Return the pairs to run: each with its own kind and with Python, or all with all."""
    pairs: list[Pair] = []
    for client in languages:
        for server in languages:
            if options.client and client.name not in options.client:
                continue
            if options.server and server.name not in options.server:
                continue
            if not server.server:
                continue

            is_close = client is server or PYTHON in {client, server}
            if not is_close and not options.all:
                continue

            for era in client.eras:
                if era not in server.eras:
                    continue

                for is_piped in (False, True):
                    pairs.append(Pair(client, server, era, is_piped=is_piped))

    return [pair for pair in pairs if is_wanted(pair, options)]


def is_wanted(pair: Pair, options: argparse.Namespace) -> bool:
    """Tell whether the command line wants an era and a way, and the pair can connect."""
    if (pair.client, pair.server, pair.over) == (GO, JAVA, "HTTP"):
        # The client waits for the head of the stream that it listens on; the server sends none.
        return False
    return options.era in {None, pair.era} and options.over in {None, pair.over}


def show(pair: Pair, took: float) -> None:
    """Print the row of a pair, and what is wrong with it."""
    words = [pair.client.name, pair.server.name, pair.era, pair.over]
    outcome = "FAILED" if pair.problems else "as live"
    row = [*words, f"{pair.replays} replays", outcome, f"{took:.0f} s"]
    print(
        " | ".join(row), *(f"  {text}" for text in pair.problems), sep="\n", flush=True
    )


def run_pair(languages: Sequence[Language], pair: Pair) -> list[str]:
    """Run a pair in a folder of its own; return what is wrong."""
    started = time.monotonic()
    readers = readers_of(pair.client, pair.era, languages)
    with tempfile.TemporaryDirectory(prefix="languages-") as directory:
        pair.run(Path(directory), readers)

    show(pair, time.monotonic() - started)
    return pair.problems


def problem_of_play(language: Language, cassettes: Path) -> str:
    """Run a language's own test through plays of one `serve`; return what is wrong.

    It records, it replays, and where it declines what was accepted, its failure tells the miss.
    """
    ways: dict[str, dict[str, str]] = {
        "once": {},
        "none": {},
        "none, declined": {"ANSWER": "decline"},
    }

    for way, variables in ways.items():
        mode, _, refusal = way.partition(", ")
        ended = language.run_tests(cassettes, {"MRTR_CASSETTE_MODE": mode, **variables})
        said = [line for line in ended.stdout.splitlines() if line[:1] != "{"]
        missed = any("answers-differ" in line for line in said)
        if (ended.code != 0, missed) != (bool(refusal), bool(refusal)):
            return f"{way}: exit {ended.code}: {' | '.join(said)[-1500:]}"

    return ""


def run_play(language: Language) -> list[str]:
    """Run a language's own test through plays, and tell what came of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="languages-") as directory:
        problem = problem_of_play(language, Path(directory))

    outcome = "FAILED" if problem else "recorded, replayed, refused"
    took = f"{time.monotonic() - started:.0f} s"
    print(" | ".join([f"{language.name}'s own test", "serve", outcome, took]))
    if problem:
        print(f"  {problem}", flush=True)

    return [problem] if problem else []


def built(chosen: Sequence[str]) -> tuple[list[Language], int]:
    """Build what this machine has the tools for; return it, and how many builds failed."""
    languages: list[Language] = []
    failed = 0
    for language in LANGUAGES:
        if chosen and language.name not in chosen and language is not PYTHON:
            continue

        missing = language.missing()
        if missing:
            print(f"{language.name}: left out, {' and '.join(missing)} not found")
            continue

        problem = language.make()
        if problem:
            failed += 1
            print(f"{language.name}: {problem}")
            continue

        languages.append(language)

    return languages, failed


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = partial(parser.add_argument, action="append", default=[], metavar="NAME")
    add("--language")
    add("--client")
    add("--server")
    parser.add_argument("--era", choices=["2025", "2026"])
    parser.add_argument("--over", choices=["HTTP", "pipes"])
    parser.add_argument("--only", choices=["pairs", "plays"])
    parser.add_argument(
        "--all", action="store_true", help="each client with each server"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    languages, failed = built(options.language)
    outcomes: list[list[str]] = []
    if options.only != "plays":
        print("client | server | era | over | replayed | outcome | took")
        with ThreadPoolExecutor(options.jobs) as pool:
            pairs = pairs_of(options, languages)
            outcomes += pool.map(partial(run_pair, languages), pairs)

    if options.only != "pairs":
        outcomes += [run_play(language) for language in languages if language.test]

    passed = outcomes.count([])
    failed += len(outcomes) - passed
    print(f"{passed} passed, {failed} failed")

    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
