"""End the recorder under load, again and again, and ask for every exchange that a client had whole.

    python tests/soak/soak.py --kills 300 --seed 1

A round starts `mrtr-cassette record`, drives it with concurrent clients, and ends it at a moment
that no timer chooses: after so many responses, after so many bytes, or in the middle of writing
its journal. Every call has a marker of its own, by which it is found again in the cassette.

It ends by SIGKILL, and `recover`; by SIGTERM; or by SIGKILL while it publishes.

The seed decides what is called and when a round ends. The kernel decides what that meets.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import Connection, Process, command, connected, raw_body, read
from messages import CAPABLE, JsonObject, compact
from patience import HANGS_S
from standin import BrokenOffError, Head

from mrtr_cassette.core.cassette.journal import decode_journal_line
from mrtr_cassette.shell.files.cassettes import journal_path
from mrtr_cassette.shell.files.journals import recover_journal

SERVER = (sys.executable, str(Path(__file__).with_name("server.py")))


# --- What is called ---


class Call(NamedTuple):
    """One logical call: what is sent, how it is answered, and when the client loses interest.

    Attributes:
        marker: a text that stands in its arguments, and in no other call's.
        leaves: bytes of a response after which the client leaves; None where it stays.
    """

    marker: str
    path: str
    method: str
    named: tuple[str, str] | None
    arguments: JsonObject
    answers: JsonObject
    leaves: int | None

    def request(self, identity: str, retry: Mapping[str, Any]) -> bytes:
        """Spell the request; its progress token is its id, as the SDKs have it."""
        params: JsonObject = dict([self.named] if self.named else [])
        params |= {"arguments": self.arguments, **retry}
        params["_meta"] = CAPABLE | {"progressToken": identity}
        body = {
            "jsonrpc": "2.0",
            "id": identity,
            "method": self.method,
            "params": params,
        }

        return compact(body)


def _accept(**content: Any) -> JsonObject:
    return {"action": "accept", "content": content}


TRAIN = {
    "approve": _accept(approve=True),
    "window": _accept(window="tonight"),
    "notes": _accept(notes="none"),
}
EVERYTHING = {
    "confirm": _accept(confirm=True),
    "signin": {"action": "accept"},
    "summary": {"role": "assistant", "content": {"type": "text", "text": "All quiet."}},
    "roots": {"roots": [{"uri": "file:///srv", "name": "srv"}]},
}
CONFIRM = {"confirm": _accept(confirm=True)}
DECLINE: JsonObject = {"confirm": {"action": "decline"}}
PROVISION = {"name": _accept(name="db"), "region": _accept(region="eu")}
WIPE = {"confirm": _accept(confirm=True), "scope": _accept(scope="all")}
TEXTS = ([0] * 4) + [100, 3_000, 60_000, 500_000]
STEPS = [0, 1, 5, 40, 400]
ANSWERED = [0, 500, 20_000, 300_000, 2_000_000]


def draw(chance: random.Random, marker: str) -> Call:
    """Choose a call."""
    text = f"{marker} {'x' * chance.choice(TEXTS)}"
    steps = chance.choice(STEPS)
    kinds: list[tuple[str, str, str, JsonObject, JsonObject]] = [
        ("/mcp", "tools/call", "add", {"a": 1, "b": 2, "text": text}, {}),
        ("/mcp", "tools/call", "deploy", {"env": text}, CONFIRM),
        ("/mcp", "tools/call", "tag-release", {"tag": text}, DECLINE),
        ("/mcp", "tools/call", "provision", {"text": text}, PROVISION),
        ("/mcp", "tools/call", "wipe-cache", {"text": text}, WIPE),
        ("/mcp", "tools/call", "release-train", {"version": text}, TRAIN),
        ("/mcp", "tools/call", "everything", {"text": text}, EVERYTHING),
        ("/mcp", "tools/call", "build", {"target": text}, {}),
        ("/mcp", "tools/call", "count", {"to": steps, "text": text}, {}),
        ("/mcp", "tools/call", "ask-late", {"steps": steps, "text": text}, CONFIRM),
        (
            "/mcp",
            "prompts/get",
            "release-notes",
            {"version": text},
            {"audience": _accept(audience="us")},
        ),
        ("/mcp", "tools/list", "", {"text": text}, {}),
        ("/chunked", "tools/call", "any", {"size": chance.choice(ANSWERED)}, {}),
        ("/zipped", "tools/call", "any", {"size": chance.choice(ANSWERED)}, {}),
        ("/zipped-events", "tools/call", "any", {"size": chance.choice(ANSWERED)}, {}),
    ]

    path, method, name, arguments, answers = chance.choice(kinds)
    leaves = chance.choice([0, 1, 200, 5_000]) if chance.random() < 0.05 else None
    named = ("name", name) if name else None

    return Call(
        marker, path, method, named, arguments | {"marker": marker}, answers, leaves
    )


# --- What the clients see ---


@dataclass(slots=True)
class Seen:
    """One exchange as its client saw it.

    Attributes:
        body: the bytes that came, without the framing of HTTP.
        plain: the same without their content coding, as far as they can be decoded.
        is_whole: nothing more had to come: the announced length, the last chunk, or the event that
            is the response.
    """

    call: Call
    turn: int
    identity: str
    request: bytes
    status: int = 0
    body: bytearray = field(default_factory=bytearray)
    plain: bytearray = field(default_factory=bytearray)
    is_whole: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.call.marker, self.turn

    @property
    def message(self) -> JsonObject:
        """The response's message; only of what is whole."""
        return response_in(bytes(self.plain))

    @property
    def state(self) -> str | None:
        return issued_in(self.message)


def issued_in(message: JsonObject) -> str | None:
    """Return the request state that a response issues, or None."""
    state = message.get("result", {}).get("requestState")
    return state if isinstance(state, str) else None


def response_in(body: bytes) -> JsonObject:
    """Return the message that a JSON body is, or that ends a stream."""
    data = body if body.startswith(b"{") else body.strip().rpartition(b"data: ")[2]
    message: JsonObject = json.loads(data)
    return message


@dataclass
class Load:
    """What all clients of a round have seen, and whether the round's moment has come."""

    seen: list[Seen] = field(default_factory=list)
    whole: int = 0
    received: int = 0
    moment: asyncio.Event = field(default_factory=asyncio.Event)
    is_ending: bool = False
    responses_until: int | None = None
    bytes_until: int | None = None

    def count(self, *, whole: int = 0, received: int = 0) -> None:
        self.whole += whole
        self.received += received
        if self.responses_until is not None and self.whole >= self.responses_until:
            self.moment.set()

        if self.bytes_until is not None and self.received >= self.bytes_until:
            self.moment.set()


class LeftError(Exception):
    """The client has lost interest in its call."""


async def exchange(link: Connection, noted: Seen, load: Load) -> None:
    """Do one exchange, noting each byte as it comes."""
    load.seen.append(noted)
    headers = (
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
    )

    head, body = await link.ask("POST", noted.call.path, *headers, body=noted.request)
    noted.status = int(head.line.split()[1])
    plain = _decoder(head)
    searched = 0
    while not body.is_whole:
        if noted.call.leaves is not None and len(noted.body) >= noted.call.leaves:
            raise LeftError

        data = await body.some()
        noted.body += data
        noted.plain += plain(data)
        # The end of an event is seen with the bytes that complete it.
        if not noted.is_whole and noted.plain.endswith(b"\n\n"):
            noted.is_whole = (
                b'"id":"%b"' % noted.identity.encode() in noted.plain[searched:]
            )
            searched = len(noted.plain)
            load.count(whole=noted.is_whole)

        load.count(received=len(data))

    if not noted.is_whole:
        noted.is_whole = True
        load.count(whole=1)


def _decoder(head: Head) -> Callable[[bytes], bytes]:
    if head.values("content-encoding") != ["gzip"]:
        return bytes
    return zlib.decompressobj(wbits=31).decompress


async def converse(link: Connection, call: Call, load: Load, name: str) -> None:
    """Make a call and answer whatever it asks."""
    retry: JsonObject = {}
    for turn in itertools.count():
        identity = f"{name}.{turn}"
        noted = Seen(call, turn, identity, call.request(identity, retry))
        await exchange(link, noted, load)
        result = noted.message.get("result", {})
        if result.get("resultType") != "input_required":
            return

        retry = {}
        if "inputRequests" in result:
            retry["inputResponses"] = {
                key: call.answers[key] for key in result["inputRequests"]
            }

        if "requestState" in result:
            retry["requestState"] = result["requestState"]


GONE = (BrokenOffError, ConnectionError, asyncio.IncompleteReadError)


class UnexpectedError(Exception):
    """What must not be, with what is needed to see it again."""


async def client(url: str, load: Load, chance: random.Random, name: str) -> None:
    """Call until the recorder has ended, on one connection as long as it holds."""
    number = 0
    while True:
        try:
            async with connected(url) as link:
                for _ in range(chance.choice([1, 3, 20])):
                    number += 1
                    marker = f"marker-{name}-{number}."
                    call = draw(chance, marker)
                    await converse(link, call, load, f"{name}-{number}")
        except LeftError:
            continue
        except GONE as error:
            if load.is_ending:
                return

            raise UnexpectedError(f"client {name}: {error!r} before the end") from error


# --- What the cassette has ---


@dataclass(frozen=True, slots=True)
class Kept:
    """One exchange as a cassette has it."""

    marker: str
    turn: int
    request: bytes
    status: int
    end: str | None
    body: bytes

    @property
    def is_complete(self) -> bool:
        return self.status != 0 and self.end is None


def kept_in(cassette: JsonObject) -> list[Kept]:
    """Return the exchanges of a cassette, read without the program that wrote it."""
    found: list[Kept] = []
    for interaction in cassette["interactions"]:
        found += _kept_of(interaction)

    return found


def _kept_of(interaction: JsonObject) -> Iterator[Kept]:
    if "branch" in interaction or "orphan" in interaction:
        raise UnexpectedError("no call of ours is a branch or an orphan")

    request = raw_body(interaction["request"])
    marker = json.loads(request)["params"]["arguments"]["marker"]
    turns = interaction["elicitation_turns"]
    answers = [raw_body(turn["answer"]) for turn in turns if "answer" in turn]
    responses = [turn["ask"] for turn in turns]
    if len(answers) == len(turns):
        responses.append(interaction.get("response"))

    for turn, (asked, given) in enumerate(
        zip([request, *answers], responses, strict=True)
    ):
        if given is None:
            yield Kept(marker, turn, asked, 0, None, b"")
        else:
            body = raw_body(given) if given.keys() & {"body", "text", "events"} else b""
            yield Kept(marker, turn, asked, given["status"], given.get("end"), body)


def index(kept: Iterable[Kept]) -> dict[tuple[str, int], Kept]:
    """Return exchanges by marker and turn."""
    found: dict[tuple[str, int], Kept] = {}
    for kept_exchange in kept:
        key = kept_exchange.marker, kept_exchange.turn
        if key in found:
            raise UnexpectedError(f"{key} is in the cassette twice")

        found[key] = kept_exchange

    return found


_STATE = b'"requestState":"'


def _sealed(raw: bytes, states: Mapping[str, str]) -> bytes:
    """Replace raw request states by what the cassette has for them."""
    for state, surrogate in states.items():
        raw = raw.replace(state.encode(), surrogate.encode())

    return raw


Tally = Counter[str]
"""The figures of a round, or of many: exchanges that clients had `seen` whole, all of which are in
the cassette; those `beyond`, which no client had whole; of these the `halves` that are marked as
such; and journals whose last line was `torn`."""


def compare(seen: Sequence[Seen], cassette: JsonObject) -> Tally:
    """Compare what clients saw with what a cassette has."""
    found = index(kept_in(cassette))
    sent = {noted.key: noted for noted in seen}
    if len(sent) != len(seen):
        raise UnexpectedError("the soak itself has used a marker twice")
    if found.keys() - sent.keys():
        raise UnexpectedError(f"nobody sent {sorted(found.keys() - sent.keys())}")

    of_calls: dict[str, dict[str, str]] = {}
    for noted in seen:
        states = of_calls.setdefault(noted.call.marker, {})
        kept = found.get(noted.key)
        if (
            kept is not None
            and noted.is_whole
            and noted.state is not None
            and kept.is_complete
        ):
            states[noted.state] = issued_in(response_in(kept.body)) or ""

    for noted in seen:
        kept = found.get(noted.key)
        states = of_calls[noted.call.marker]
        if kept is None:
            if noted.is_whole:
                raise UnexpectedError(
                    f"a client had {noted.key} whole, and the cassette has it not"
                )

            continue

        if kept.request != _sealed(noted.request, states):
            raise UnexpectedError(
                f"{noted.key}: sent {noted.request!r:.2000}, kept {kept!r:.2000}"
            )

        (_check_same if noted.is_whole else _check_half)(noted, kept, states)

    beyond = [
        found[noted.key] for noted in seen if not noted.is_whole and noted.key in found
    ]
    return Tally(
        seen=sum(noted.is_whole for noted in seen),
        beyond=len(beyond),
        halves=sum(not kept.is_complete for kept in beyond),
    )


def _check_same(noted: Seen, kept: Kept, states: Mapping[str, str]) -> None:
    expected = noted.status, None, _sealed(bytes(noted.plain), states)
    if (kept.status, kept.end, kept.body) != expected:
        raise UnexpectedError(
            f"{noted.key}: {expected!r:.2000} came, and {kept!r:.2000} is kept"
        )


def _check_half(noted: Seen, kept: Kept, states: Mapping[str, str]) -> None:
    """Check an exchange that its client had not whole: it is whole, or it says that it is not."""
    part = bytes(noted.plain).partition(_STATE)[0]
    if not kept.body.startswith(part):
        raise UnexpectedError(
            f"{noted.key}: {part!r:.2000} came, and {kept!r:.2000} is kept"
        )

    if kept.is_complete:
        try:
            message = response_in(kept.body)
        except ValueError:
            raise UnexpectedError(
                f"{noted.key}: half, and complete: {kept!r:.2000}"
            ) from None

        if message.get("id") != noted.identity or not message.keys() & {
            "result",
            "error",
        }:
            raise UnexpectedError(
                f"{noted.key}: no response, and complete: {kept!r:.2000}"
            )


# --- The journal ---


def is_torn(journal: Path) -> bool:
    """Tell whether the last line of a journal is incomplete; its end may lack the line's end only."""
    last = journal.read_bytes().rpartition(b"\n")[2]
    try:
        return bool(last) and not decode_journal_line(last)
    except ValueError:
        return True


# --- Rounds ---


@dataclass(frozen=True)
class Round:
    """One recorder's life: where, at which server, and by which chances."""

    name: str
    upstream: str
    folder: Path
    chance: random.Random

    @property
    def cassette(self) -> Path:
        return self.folder / "cassette.json"

    @asynccontextmanager
    async def recorder(self) -> AsyncIterator[tuple[Process, str]]:
        arguments = (
            "--upstream",
            self.upstream,
            "--output",
            self.cassette,
            "--port",
            0,
        )
        async with command("record", *arguments) as process:
            yield process, await process.listening()

    def clients(self, url: str, load: Load) -> list[asyncio.Task[None]]:
        tasks = []
        for number in range(self.chance.randint(2, 10)):
            chance = random.Random(self.chance.random())
            running = client(url, load, chance, f"{self.name}-{number}")
            tasks.append(asyncio.create_task(running))

        return tasks

    async def reach_moment(
        self, load: Load, tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        """Wait until the moment has come; what fails before is raised."""
        moment = asyncio.create_task(load.moment.wait())
        done, _ = await asyncio.wait(
            {moment, *tasks}, timeout=HANGS_S, return_when=asyncio.FIRST_COMPLETED
        )
        moment.cancel()
        for task in done - {moment}:
            await task

        if not done:
            raise UnexpectedError("the moment to end never came")

    def choose_moment(self, load: Load) -> None:
        if self.chance.random() < 0.6:
            load.responses_until = int(self.chance.expovariate(1 / 25))
        else:
            load.bytes_until = int(self.chance.expovariate(1 / 3_000_000))

        load.count()


def kill_when(
    has_come: Callable[[], bool], is_over: Callable[[], bool], pid: int
) -> None:
    """Kill a process at a moment, or when that can't come any more.

    A loop without a pause, because the moment is short.
    """
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline and not is_over():
        with contextlib.suppress(FileNotFoundError):
            if has_come():
                break

    # It may have published everything and ended just before.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def killed(this: Round) -> Tally:
    """Kill a recorder under load, recover its journal, and check what is there."""
    load = Load()
    journal = journal_path(this.cassette)
    async with this.recorder() as (process, url):
        if this.chance.random() < 0.4:
            size = int(this.chance.expovariate(1 / 2_000_000)) + 200
            load.is_ending = True
            watching = asyncio.to_thread(
                kill_when,
                lambda: journal.stat().st_size >= size,
                lambda: False,
                process.pid,
            )
            tasks = [*this.clients(url, load), asyncio.create_task(watching)]
        else:
            this.choose_moment(load)
            tasks = this.clients(url, load)
            await this.reach_moment(load, tasks)
            load.is_ending = True
            process.kill(signal.SIGKILL)

        await asyncio.wait_for(asyncio.gather(*tasks), HANGS_S)
        await process.ended()

    was_torn = is_torn(journal)
    _, lost = recover_journal(this.cassette) or (None, None)
    if ("is incomplete" in (lost or "")) != was_torn:
        raise UnexpectedError(f"torn: {was_torn}; recover says {lost!r}")

    return checked(this, load.seen) + Tally(torn=was_torn)


async def terminated(this: Round) -> Tally:
    """End a recorder by SIGTERM under load; it publishes what it has, in good order."""
    load = Load()
    async with this.recorder() as (process, url):
        this.choose_moment(load)
        tasks = this.clients(url, load)
        await this.reach_moment(load, tasks)
        load.is_ending = True
        process.kill(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*tasks), HANGS_S)
        ended = await asyncio.wait_for(process.ended(), HANGS_S)

    if ended.code or journal_path(this.cassette).exists():
        raise UnexpectedError(f"record ended with {ended.code}: {ended.err[-2000:]}")

    return checked(this, load.seen)


def moment_of_publishing(this: Round) -> Callable[[], bool]:
    """Choose what tells that publishing has come to a certain point."""
    return this.chance.choice(
        [
            lambda: sum(1 for _ in this.folder.iterdir()) > 1,
            lambda: any(path.stat().st_size > 2_000 for path in this.folder.glob(".*")),
            this.cassette.exists,
            lambda: not journal_path(this.cassette).exists(),
        ]
    )


async def killed_publishing(this: Round) -> Tally:
    """Kill a recorder while it publishes: the journal or the cassette has everything."""
    load = Load()
    journal = journal_path(this.cassette)
    async with this.recorder() as (process, url):
        load.responses_until = this.chance.randint(5, 60)
        tasks = this.clients(url, load)
        await this.reach_moment(load, tasks)
        load.is_ending = True
        has_come = moment_of_publishing(this)
        watching = asyncio.create_task(
            asyncio.to_thread(
                kill_when, has_come, lambda: not journal.exists(), process.pid
            )
        )

        process.kill(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*tasks, watching), HANGS_S)
        await process.ended()

    has_journal = journal.exists()
    before = this.cassette.read_bytes() if this.cassette.exists() else None
    if has_journal:
        recover_journal(this.cassette)
        if before not in {None, this.cassette.read_bytes()}:
            raise UnexpectedError("recover has changed the cassette")

    if list(this.folder.glob(".*")):
        raise UnexpectedError("a half-written file is left")

    return checked(this, load.seen)


def checked(this: Round, seen: Sequence[Seen]) -> Tally:
    """Compare what clients saw with what is there, and look for what is left behind."""
    litter = {path.name for path in this.folder.iterdir()} - {this.cassette.name}
    if litter - {journal_path(this.cassette).name}:
        raise UnexpectedError(f"{litter} is left behind")

    cassette = read(this.cassette) if this.cassette.exists() else {"interactions": []}
    return compare(seen, cassette) + Tally(rounds=1)


# --- The whole ---


WAYS: dict[str, Callable[[Round], Any]] = {
    "SIGKILL": killed,
    "SIGTERM": terminated,
    "publishing": killed_publishing,
}
AT_ONCE = 4


async def soak(
    counts: Mapping[str, int], seed: int, folder: Path
) -> tuple[dict[str, Tally], list[str]]:
    """Run rounds, and return the figures by way of ending, and what must not be.

    Args:
        counts: how many rounds end in which way.
        seed: decides what is called and when rounds end.
        folder: where recordings are written; that of a round that fails stays.
    """
    tallies = {way: Tally() for way in counts}
    problems: list[str] = []
    waiting = iter(
        [(way, number) for way, count in counts.items() for number in range(count)]
    )

    async def work(upstream: str) -> None:
        for way, number in waiting:
            name = f"{way.lower()}{number}"
            place = folder / name
            place.mkdir()
            digest = hashlib.sha256(f"{seed} {way} {number}".encode()).digest()
            this = Round(name, upstream, place, random.Random(digest))
            try:
                tallies[way] += await WAYS[way](this)
            except (AssertionError, UnexpectedError, TimeoutError, *GONE) as error:
                problems.append(
                    f"--seed {seed}, {way} {number}, in {place}: {error!r:.4000}"
                )
            else:
                shutil.rmtree(place)

    async with command(program=SERVER) as server:
        upstream = await server.listening()
        await asyncio.gather(*(work(upstream) for _ in range(AT_ONCE)))

    return tallies, problems


def main() -> int:
    """Run a soak from the command line."""
    parser = argparse.ArgumentParser(
        description="End the recorder under load, again and again."
    )
    parser.add_argument(
        "--kills", type=int, default=100, help="rounds that SIGKILL ends"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mrtr-soak-"))
    some = math.ceil(options.kills / 10)
    counts = {"SIGKILL": options.kills, "SIGTERM": 2 * some, "publishing": some}
    tallies, problems = asyncio.run(soak(counts, options.seed, folder))
    figures = [f"{way}: {dict(tally)}" for way, tally in tallies.items()]
    sys.stdout.write("\n".join([*figures, f"{len(problems)} problems", *problems, ""]))
    if not problems:
        folder.rmdir()

    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
