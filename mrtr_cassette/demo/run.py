"""The main job, shown: record a server, stop it, replay it, and compare byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mrtr_cassette.api import record, replay
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.errors import MrtrCassetteError, counted
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import serving_application
from mrtr_cassette.shell.runs.views import MrtrCassette


class DemoError(MrtrCassetteError):
    """The replay is not what was recorded."""


class DemoCall(NamedTuple):
    """One call of the demo's client: a tool, a prompt or a resource, and its answers by key."""

    name: str
    arguments: Mapping[str, Any] = {}
    answers: Mapping[str, Any] = {}
    method: str = "tools/call"


_YES_ANSWER = {"confirm": True}
CALLS = (
    DemoCall("add", {"a": 1, "b": 2}),
    DemoCall("deploy", {"env": "production"}, _YES_ANSWER),
    DemoCall("tag-release", {"tag": "v2.1.0"}, {"confirm": False}),
    DemoCall("provision", {}, {"name": "analytics", "region": "eu-west-1"}),
    DemoCall("wipe-cache", {}, {"confirm": True, "scope": "sessions"}),
    DemoCall("build", {"target": "docs"}),
    DemoCall("ask-late", {"steps": 2}, _YES_ANSWER),
    DemoCall(
        "release-notes",
        {"version": "2.1"},
        {"audience": "operators"},
        "prompts/get",
    ),
    DemoCall("config://deployment", {}, _YES_ANSWER, "resources/read"),
)


def run_demo(say: Callable[[str], None]) -> None:
    """Record the calls and replay them; a response that is not the same is a `DemoError`."""
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-demo-") as folder:
        recorded_path = Path(folder, "demo.json")
        replayed_path = Path(folder, "again.json")
        with in_thread(serving_application(create_app())) as upstream:
            say(
                f"1. record: a server at {upstream}, a client, and the proxy in between"
            )
            with record(upstream, recorded_path) as recording:
                for line in _make_calls(recording):
                    say(f"   {line}")

        say(
            "2. the server is stopped; replay the cassette to the same client, and record that"
        )
        with (
            replay(recorded_path) as replayed_server,
            record(replayed_server.url, replayed_path) as recording,
        ):
            list(_make_calls(recording))

        count, size = compare_responses(
            load_cassette(recorded_path), load_cassette(replayed_path)
        )
        say(
            f"3. compare: {count} responses, {size:,} bytes: all replayed byte for byte"
        )


def _make_calls(recording: MrtrCassette) -> Iterator[str]:
    """Make all calls, and yield a line about each."""
    for call in CALLS:
        result = recording.call(
            call.name, call.arguments, method=call.method, answers=call.answers
        )
        turns = counted(len(result.turns), "turn")
        yield f"{call.method} {call.name} ({turns}) -> {result.text}"


def compare_responses(recorded: Cassette, replayed: Cassette) -> tuple[int, int]:
    """Compare all responses; return how many they are, and how many bytes they have.

    Raises:
        DemoError: a replayed response differs from the recorded one.
    """
    total_size = 0
    recorded_exchanges = tuple(recorded.exchanges)
    replayed_exchanges = tuple(replayed.exchanges)
    for old, new in zip(recorded_exchanges, replayed_exchanges, strict=False):
        old_body = _response_body(old)
        new_body = _response_body(new)
        if len(recorded_exchanges) != len(replayed_exchanges) or old_body != new_body:
            problem = (
                f"{old.call.title}: the replay differs\n"
                f"  recorded: {old_body!r}\n"
                f"  replayed: {new_body!r}"
            )
            raise DemoError(problem)

        total_size += len(old_body)

    return len(recorded_exchanges), total_size


def _response_body(exchange: RecordedExchange) -> bytes:
    """Return the body of the recorded response; empty if there is no response."""
    return b"" if exchange.response is None else exchange.response.body
