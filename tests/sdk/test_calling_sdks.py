"""The flows of the TypeScript SDK's page on `input_required`, called without a client.

Against both SDKs' servers, with the call's answers and by rules, recorded, and replayed to both clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import looped
from processes import (
    SIDES,
    Listening,
    RunClient,
    Side,
    StartServer,
    peer,
    replay_command,
    run_all,
)

import mrtr_cassette
from mrtr_cassette.core.answers.fulfilment import AnswerSources
from mrtr_cassette.core.answers.written import (
    GivenAnswers,
    answers_from_tree,
    read_pairs,
    wanted_call,
)
from mrtr_cassette.core.report.runs import CallResult
from mrtr_cassette.options import CallOptions
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.runs.calling import call

FLOWS: dict[str, tuple[Sequence[str], int, str]] = {
    "deploy": (["deploy", "env=production"], 0, "Deployed to production"),
    "tag-release": (
        ["tag-release", "tag=v2.1.0"],
        1,
        "Tagging cancelled by the operator",
    ),
    "provision": (["provision"], 0, "Provisioned analytics in eu-west-1"),
    "everything": (
        ["everything"],
        0,
        "confirm accept, signin accept, summary Two commits, roots file:///workspace",
    ),
    "wipe-cache": (["wipe-cache"], 0, "Wiped sessions"),
    "build": (["build", "target=wheel"], 0, "Built wheel"),
}
"""Each flow's call, exit code and text."""

ACCEPTED = {
    "name": "analytics",
    "region": "eu-west-1",
    "scope": "sessions",
    "confirm": True,
}
SUMMARY = {
    "role": "assistant",
    "content": {"type": "text", "text": "Two commits"},
    "model": "stub",
}
ROOTS = {"roots": [{"uri": "file:///workspace", "name": "workspace"}]}
MESSAGES = {
    "Database name?": "name",
    "Which region?": "region",
    "Which scope?": "scope",
    "Deploy to production?": "confirm",
    "Continue?": "confirm",
    "Really wipe the cache?": "confirm",
}
RULES: list[Any] = [
    {"tool": "tag-release", "pattern": "Tag .*", "action": "decline"},
    *(
        {"message": message, "action": "accept", "content": {field: ACCEPTED[field]}}
        for message, field in MESSAGES.items()
    ),
    {"kind": "url", "action": "accept"},
    {"kind": "sampling", "result": SUMMARY},
    {"kind": "roots", "result": ROOTS},
]
GIVEN = (
    "name=analytics",
    "region=eu-west-1",
    "scope=sessions",
    "confirm=yes",
    "signin=accept",
    f"summary:={json.dumps(SUMMARY)}",
    f"roots:={json.dumps(ROOTS)}",
)


@dataclass(frozen=True)
class Server:
    """A server on one of the SDKs."""

    side: Side
    url: str


@pytest.fixture(scope="module", params=SIDES)
def server(
    request: pytest.FixtureRequest, start_server: StartServer
) -> Iterator[Server]:
    """Give a server, which all tests of this module share."""
    peer_: Listening
    with start_server(request.param, 0) as peer_:
        yield Server(request.param, peer_.url)


async def flow(
    server: Server,
    name: str,
    sources: AnswerSources,
    cassette: Path | None = None,
    **more: Any,
) -> CallResult:
    """Call one flow."""
    options = CallOptions(existing="append")
    wanted = wanted_call(FLOWS[name][0])
    return await call(
        server.url, wanted, sources, options, Announcer(), cassette=cassette, **more
    )


RULED = AnswerSources(file=answers_from_tree({"rule": RULES}, "a.toml"))


def given(*pairs: str) -> AnswerSources:
    """Return the sources of a call that has its answers with it."""
    return AnswerSources(GivenAnswers(read_pairs(pairs, "answer")))


@looped
async def test_each_flow_is_answered_by_the_call_and_by_rules(server: Server) -> None:
    """The state is echoed as it came."""
    for name, (_, code, text) in FLOWS.items():
        given_here = (
            given("confirm=decline") if name == "tag-release" else given(*GIVEN)
        )
        for kind, sources in (("call", given_here), ("rule", RULED)):
            ended = await flow(server, name, sources)

            assert (ended.exit_code, ended.text) == (code, text), (kind, name)

            for turn in ended.turns:
                for source in turn.answered_by.values():
                    assert source.startswith(kind)


def test_recorded_calls_play_to_both_clients(
    server: Server, tmp_path: Path, run_client: RunClient
) -> None:
    """One cassette of several calls, each added to it; the clients answer as was answered."""
    cassette = tmp_path / "flows.json"
    names = list(FLOWS)

    @looped
    async def record() -> None:
        for name in names:
            ended = await flow(server, name, RULED, cassette)

            assert ended.exit_code == FLOWS[name][1], (name, ended)

    record()
    flows = [option for name in names for option in ("--flow", name)]
    commands = [
        replay_command(cassette, "--", *peer("client", client), *flows)
        for client in SIDES
    ]

    held = mrtr_cassette.verify(cassette, server.url)

    assert (held.compared, held.failures) == (8, ())

    for client, replayed in zip(SIDES, run_all(commands), strict=True):
        assert replayed.code == 0, (client, replayed.stderr)

        for _, _, text in FLOWS.values():
            assert text in replayed.stdout, client
