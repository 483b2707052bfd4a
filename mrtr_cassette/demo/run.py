"""The main job, shown: record a server, stop it, replay it, and compare byte for byte.

Rule: any difference but a sealed request state ends the demo with an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp

from mrtr_cassette.core.report.calls import CallResult
from mrtr_cassette.demo.calls import CALLS, DemoCall
from mrtr_cassette.demo.client import DemoClient, Received
from mrtr_cassette.demo.no_client import call_without_client
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.replaying import replaying
from mrtr_cassette.shell.upstream_servers import serving_application

Say = Callable[[str], None]


class DemoError(MrtrCassetteError):
    """The replay is not what was recorded."""


async def run_demo(
    say: Say, calls: Sequence[DemoCall] = CALLS, calls_again: Sequence[DemoCall] = CALLS
) -> int:
    """Run the demo.

    Args:
        calls: the calls that are recorded.
        calls_again: the calls that are replayed.

    Returns:
        the exit code.

    Raises:
        DemoError: the replayed bytes are not the recorded ones, or the server still answers.
    """
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-demo-") as folder:
        cassette = Path(folder, "demo.json")
        async with aiohttp.ClientSession() as http:
            async with serving_application(create_app()) as upstream:
                say(f"1. record: a server at {upstream}, a client, and the proxy in between")
                async with recording(upstream, cassette) as recorder:
                    live = await _converse(DemoClient(http, recorder.url), calls)
                called = await call_without_client(upstream, Path(folder, "call.json"))
            count = recorder.exchanges
            say(f"   {len(live)} calls in {count} exchanges")
            say("2. stop the server")
            await _check_gone(http, upstream)
            say("   connection refused: it is gone")
            say("3. replay the cassette to the same client, and compare")
            async with replaying(cassette) as replay:
                replayed = await _converse(DemoClient(http, replay.url), calls_again)
            _check_no_miss(len(replay.player.misses), replay.player.unplayed)
            async with replaying(Path(folder, "call.json")) as replay:
                called_again = await call_without_client(replay.url)
    total = sealed = 0
    for call, before, after in zip(calls, live, replayed, strict=True):
        say("")
        say(f"   {call.method} {call.name}: {call.title}")
        for number, (recorded, again) in enumerate(_paired(call, before, after), start=1):
            check_same(call, recorded, again)
            say(f"     {number}. {len(again.body):>5} bytes, the same  {_describe(recorded)}")
            total += len(again.body)
            sealed += recorded.state is not None
    say("")
    check_same_end(called, called_again)
    who = ", ".join(f"{key} by {source}" for key, source in called.turns[0].answered_by.items())
    say(f"   Without a client: deploy was asked, answered ({who}), recorded, replayed the same")
    say(
        f"{count} responses, {total:,} bytes: all replayed byte for byte; "
        f"{sealed} request states were sealed and are surrogates now"
    )
    return 0


async def _converse(client: DemoClient, calls: Sequence[DemoCall]) -> list[list[Received]]:
    return [await client.converse(call) for call in calls]


async def _check_gone(http: aiohttp.ClientSession, upstream: str) -> None:
    try:
        async with http.get(upstream):
            raise DemoError(f"the server at {upstream} still answers")
    except aiohttp.ClientConnectorError:
        return


def _check_no_miss(misses: int, unplayed: list[int]) -> None:
    if misses:
        raise DemoError(f"{misses} requests of the same client were not found in the cassette")
    if unplayed:
        raise DemoError(f"interactions {unplayed} of the cassette were not played")


def _paired(
    call: DemoCall, before: list[Received], after: list[Received]
) -> list[tuple[Received, Received]]:
    if len(before) != len(after):
        raise DemoError(
            f"{call.name}: {len(before)} exchanges were recorded, {len(after)} replayed"
        )
    return list(zip(before, after, strict=True))


def check_same(call: DemoCall, recorded: Received, replayed: Received) -> None:
    """Compare one exchange, letting nothing differ but the sealed state.

    Raises:
        DemoError: anything else differs.
    """
    expected = recorded.body
    if recorded.state is not None and replayed.state is not None:
        expected = expected.replace(recorded.state.encode(), replayed.state.encode())
    if (recorded.status, expected) != (replayed.status, replayed.body):
        raise DemoError(
            f"{call.name}: the replay differs\n  recorded: {recorded.status} {expected!r}\n"
            f"  replayed: {replayed.status} {replayed.body!r}"
        )


def check_same_end(called: CallResult, again: CallResult) -> None:
    """Compare what a call without a client came to.

    Raises:
        DemoError: it differs, or was no success.
    """
    if called.is_error or called != again:
        raise DemoError(f"without a client: recorded {called}, replayed {again}")


def _describe(received: Received) -> str:
    if received.state is not None or received.asked:
        asked = f"asks {received.asked}" if received.asked else "asks to be called again"
        return f"{asked}{', with state' if received.state is not None else ''}"
    if "error" in received.message:
        return f"error {received.message['error']['code']}: {received.message['error']['message']}"
    result = received.message["result"]
    items = result.get("content") or result.get("contents")
    if items is None:
        items = [message["content"] for message in result["messages"]]
    return f"result: {items[0]['text']}"
