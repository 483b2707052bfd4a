"""Recordings to run commands on, and commands that are clients."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from harness import post, taped, taping
from messages import NO, JsonObject, input_required, message, result, tool_call, yes
from standin import Visit, json_response

UPSTREAM = ("--upstream", "http://127.0.0.1:1/mcp")
STATE = "a-request-state-that-is-long-enough"


def repeated(option: str, values: Iterable[object]) -> list[str]:
    """Return an option of the command line, given once with each value."""
    words = []
    for value in values:
        words += [option, str(value)]

    return words


def words_to_record(path: Path, upstream: str) -> tuple[object, ...]:
    """Return the arguments that record a server to a cassette, at a free port."""
    return "record", "--port", 0, "--output", path, "--upstream", upstream


async def conversation(url: str) -> list[JsonObject]:
    """Call a tool that asks, and decline, then accept; return the results."""
    asked = (await post(url, tool_call("deploy", id=1))).json
    state = asked["result"]["requestState"]
    answers: tuple[JsonObject, ...] = ({"confirm": NO}, yes("confirm"))

    return [asked] + [
        (
            await post(
                url,
                tool_call("deploy", id=n, inputResponses=answer, requestState=state),
            )
        ).json
        for n, answer in enumerate(answers, start=2)
    ]


async def asking(visit: Visit) -> None:
    """Answer a first call with an ask, a decline and an accept each with its own result."""
    body = visit.request.json
    params = body.get("params", {})
    identity = body.get("id")
    if "requestState" not in params:
        await visit.send(
            json_response(input_required("confirm", state=STATE, id=identity))
        )
    else:
        action = params["inputResponses"]["confirm"]["action"]
        await visit.send(json_response(result({"was": action}, id=identity)))


async def recorded(path: Path) -> Path:
    """Record a conversation of one ask and two branches."""
    async with taping(path, asking) as tape:
        await conversation(tape.url)

    return path


async def pinged(path: Path) -> Path:
    """Record one `ping`."""
    await taped(path, (message("ping"), json_response(result({}))))
    return path


def caller(*methods: str, code: int = 0, then: str = "") -> list[str]:
    """Return a command that calls these methods at `MRTR_CASSETTE_URL` and exits with a code."""
    program = f"""
import json, os, sys, urllib.request
for number, method in enumerate({methods!r}):
    body = json.dumps(dict(jsonrpc="2.0", id=number, method=method)).encode()
    request = urllib.request.Request(os.environ["MRTR_CASSETTE_URL"], body)
    with urllib.request.urlopen(request) as response:
        print(response.read().decode())
{then}
sys.exit({code})
"""
    return [sys.executable, "-c", program]


def walk(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with the words that name it, a group before its commands."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk(inner, (*path, name))
