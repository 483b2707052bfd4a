"""Trials of an agent on recordings of a store: how many are valid, how fast, and no wrong value.

Owns: the store with its live twin, the agent, and the targets of the section.
"""

from __future__ import annotations

import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
from builders import (
    Conversation,
    as_request,
    encode_cassette,
    refusal,
    rpc,
    said,
    sent_now,
    tool,
)
from ground import Bench
from messages import text
from processes import PROGRAM, listening
from traffic import Incoming

from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.order import History
from mrtr_cassette.core.replay.player import Player

_RECORDINGS = (1, 2, 5, 10, 20)
_TRIALS = 1_000
_BY_HTTP = 200
_CLIENTS = 4
_SEED = 18
_ITEMS = ("apples", "pears", "plums")
_READS = {"annotations": {"readOnlyHint": True}}
_TOOLS = {
    "tools": [
        {"name": "stock", **_READS},
        {"name": "items", **_READS},
        {"name": "order"},
        {"name": "sell"},
    ]
}
_LIST = rpc("tools/list")


class _Step(NamedTuple):
    """A call of the agent; an unknown tool is one that it has made up."""

    name: str
    item: str = ""

    @property
    def request(self) -> bytes:
        return tool(self.name, **({"item": self.item} if self.item else {}))


class _Played(NamedTuple):
    """What trials over HTTP have taken, each on average."""

    a_second: float
    server_ms: float
    client_ms: float


class Store:
    """The live twin of what is recorded: how many there are of each item."""

    def __init__(self) -> None:
        self._stock = dict.fromkeys(_ITEMS, 3)

    def does(self, step: _Step) -> str | None:
        """Return what a call says; None where there is no such tool."""
        stock = self._stock
        if step.name == "stock":
            return f"{stock[step.item]} {step.item}"
        if step.name == "items":
            return str(stock)
        if step.name not in ("order", "sell"):
            return None
        stock[step.item] += 1 if step.name == "order" else -1
        return f"now {stock[step.item]}"


def _run_of(agent: random.Random) -> list[_Step]:
    """Return what the agent does in one trial: it looks around, and changes one or two things."""
    steps = [_Step("items")]
    for _ in range(agent.choice((1, 1, 2))):
        for item in agent.sample(_ITEMS, agent.randint(0, 3)):
            steps.append(_Step("stock", item))
        if agent.random() < 0.1:
            steps.append(_Step(f"discount{agent.randint(1, 9)}", "apples"))
        item = agent.choice(_ITEMS)
        steps.append(_Step(agent.choice(("order", "order", "sell")), item))
        if agent.random() < 0.7:
            steps.append(_Step("stock", item))
    return steps


def _recorded(run: list[_Step]) -> bytes:
    """Return the cassette of a run."""
    talk = Conversation()
    store = Store()
    talk.response(talk.request(_LIST), _TOOLS)
    for step in run:
        number = talk.request(step.request)
        words = store.does(step)
        if words is None:
            talk.response(number, refusal(step.request, -32602, f"no tool {step.name}"))
        else:
            talk.response(number, text(words))
    return encode_cassette(talk.cassette())


def trials(bench: Bench) -> None:
    """Try an agent on more and more recordings, and hold what it gets to the live twin."""
    is_quick = bench.size.repeats == 1
    agent = random.Random(_SEED)  # noqa: S311  the same in every run
    cassettes = [_recorded(_run_of(agent)) for _ in range(max(_RECORDINGS))]
    runs = [_run_of(agent) for _ in range(50 if is_quick else _TRIALS)]
    results = bench.results
    wrong = 0
    for count in _RECORDINGS:
        wrong += _in_process(bench, cassettes[:count], runs)
    results.at_most(
        "values that the live twin would not have given", wrong, 0, "values"
    )
    if wrong:
        results.problems.append(f"{wrong} values of trials were wrong")
    folder = bench.folder / "trials"
    folder.mkdir()
    for place, data in enumerate(cassettes):
        (folder / f"{place}.json").write_bytes(data)
    played = _over_http(folder, runs[: 10 if is_quick else _BY_HTTP])
    trial = "a trial of replay --trials, 20 recordings"
    results.fact(f"CPU time of {trial}", "ms", played.server_ms)
    results.fact(f"CPU time of the client of {trial}", "ms", played.client_ms)
    rate = played.a_second
    results.at_least("trials a second of replay --trials, 20 recordings", rate, 200)


def _in_process(bench: Bench, cassettes: list[bytes], runs: list[list[_Step]]) -> int:
    """Try the agent on some recordings; return how many values were wrong."""
    count = len(cassettes)
    loaded = [load(data, f"{place}.json") for place, data in enumerate(cassettes)]
    template = Player(combine_cassettes(loaded), history=History.STRICT)
    valid = 0
    wrong = 0
    started = time.perf_counter()
    for run in runs:
        player = template.fresh_player()
        wrong += _wrong_values(player, run)
        valid += not player.tally.misses
    rate = len(runs) / (time.perf_counter() - started)
    bench.results.fact("valid trials", "%", 100 * valid / len(runs), size=count)
    bench.results.fact("trials a second, in one process", "", rate, size=count)
    return wrong


def _wrong_values(player: Player, run: list[_Step]) -> int:
    """Run a trial; return how many of its values its live twin would not have given."""
    store = Store()
    wrong = 0
    for step in run:
        decision = player.request_received(as_request(step.request))
        if isinstance(decision, Miss):
            break
        words = store.does(step)
        if isinstance(decision, Play):
            got = sent_now(decision)
            is_right = said(got) == words if words else b"no tool" in got
        else:
            is_right = isinstance(decision, HarmlessReply) and words is None
        wrong += not is_right
    return wrong


def _over_http(folder: Path, runs: list[list[_Step]]) -> _Played:
    """Let some clients make trials at once."""
    words = ("replay", "--trials", str(folder), "--port", "0", "--on-miss", "stop")
    with listening((*PROGRAM, *words)) as process:
        place = urlsplit(process.url).netloc
        _try_each(place, runs[:1])
        # The number of that clock, as clock_getcpuclockid(3) makes it.
        clock = ~process.pid << 3 | 2
        server_before = time.clock_gettime(clock)
        client_before = time.process_time()
        started = time.perf_counter()
        with ThreadPoolExecutor(_CLIENTS) as clients:
            shares = [runs[client::_CLIENTS] for client in range(_CLIENTS)]
            list(clients.map(partial(_try_each, place), shares))
        seconds = time.perf_counter() - started
        client_s = time.process_time() - client_before
        server_s = time.clock_gettime(clock) - server_before
    each_ms = 1000 / len(runs)
    return _Played(len(runs) / seconds, server_s * each_ms, client_s * each_ms)


def _try_each(place: str, runs: list[list[_Step]]) -> None:
    """Make trials one after the other on one connection.

    A client of a library would take as much time as the server that is measured.
    """
    host, _, port = place.partition(":")
    head = f"Host: {place}\r\nContent-Type: application/json\r\nContent-Length: "
    incoming = Incoming()

    def asked(method: str, path: str, body: bytes = b"") -> bytes:
        line = f"{method} {path} HTTP/1.1\r\n{head}{len(body)}\r\n\r\n"
        connection.sendall(line.encode() + body)
        response = None
        while response is None:
            response = incoming.feed(connection.recv(65_536))
        answer_head, answer = response
        if not answer_head.startswith(b"HTTP/1.1 20"):
            raise AssertionError(answer)
        return answer

    with socket.create_connection((host, int(port))) as connection:
        for run in runs:
            play = orjson.loads(asked("POST", "/.mrtr/plays", b"{}"))
            path = urlsplit(play["url"]).path
            for step in run:
                asked("POST", path, step.request)
            asked("DELETE", f"/.mrtr/plays/{play['id']}")
