"""One server of the Python SDK, recorded by its clients of both eras: the same turns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from harness import looped
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from processes import listening
from pydantic import FileUrl

from mrtr_cassette import Interaction, Recording, Replay, record, replay
from mrtr_cassette.shell.runs.recording import recording

SERVER = Path(__file__).parent.parent / "peers" / "server_both_eras.py"
Era = Literal["legacy", "auto"]


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """Run the server."""
    with listening((sys.executable, str(SERVER))) as server:
        yield server.url


async def elicit(context: Any, params: Any) -> ElicitResult:
    """Enter a name."""
    return ElicitResult(action="accept", content={"name": "alpha"})


async def decline(context: Any, params: Any) -> ElicitResult:
    """Enter nothing."""
    return ElicitResult(action="decline")


async def sample(context: Any, params: Any) -> CreateMessageResult:
    """Write what was asked for."""
    asked = params.messages[0].content.text
    return CreateMessageResult(
        role="assistant", model="none", content=TextContent(text=f"{asked}: done")
    )


async def list_roots(context: Any) -> ListRootsResult:
    """Tell where the files are."""
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///work"))])


async def called(url: Any, era: Era, answer: Any = elicit) -> list[str]:
    """Call both tools, and return what they said, or the text of an error."""
    said = []
    async with Client(
        url,
        mode=era,
        elicitation_callback=answer,
        sampling_callback=sample,
        list_roots_callback=list_roots,
    ) as client:
        for name, arguments in (("plan", {}), ("add", {"a": 1, "b": 2})):
            try:
                result = await client.call_tool(name, arguments)
            except MCPError as error:
                said.append(str(error))
                continue

            assert isinstance(result.content[0], TextContent)
            said.append(result.content[0].text)

    return said


def told(run: Recording | Replay) -> list[tuple[Any, ...]]:
    """Return what is shown of the calls of tools: their turns, without keys, and how they ended."""
    calls = [
        interaction
        for interaction in run.interactions
        if interaction.call.startswith("tools/call")
    ]
    return [
        (call.call, call.arguments, *_turns(call), _outcome(call)) for call in calls
    ]


def _turns(interaction: Interaction) -> list[tuple[Any, Any]]:
    turns = []
    for turn in interaction.turns:
        requests = turn.input_requests.values()
        asked = [(request.kind, request.message) for request in requests]
        turns.append((asked, list((turn.answered or {}).values())))

    return turns


def _outcome(interaction: Interaction) -> str:
    return interaction.ended.split(", ")[1]


@looped
async def test_both_eras_are_shown_alike(tmp_path: Path, upstream: str) -> None:
    """Questions, answers and results are the same, whether results or pushed requests ask."""
    recorded = {}
    said = {}
    eras: tuple[Era, Era] = ("auto", "legacy")
    for era in eras:
        async with record(upstream, tmp_path / f"{era}.json", log=None) as recording:
            said[era] = await called(recording.url, era)

        recorded[era] = recording

    assert said["legacy"] == said["auto"]
    assert told(recorded["legacy"]) == told(recorded["auto"])

    vias = {
        era: {
            turn.via for interaction in run.interactions for turn in interaction.turns
        }
        for era, run in recorded.items()
    }

    assert vias == {"auto": {"result"}, "legacy": {"push"}}


@pytest.mark.parametrize("era", ["auto", "legacy"])
@looped
async def test_client_that_declines_gets_what_a_later_one_got_in_both_eras(
    tmp_path: Path, upstream: str, era: Era
) -> None:
    """It may come first, or be the only one."""
    path = tmp_path / "c.json"
    async with record(upstream, path, log=None) as recording:
        accepted = await called(recording.url, era, elicit)
        declined = await called(recording.url, era, decline)

    assert accepted != declined

    async with replay(path, log=None) as session:
        assert await called(session.url, era, decline) == declined
        assert await called(session.url, era, elicit) == accepted

    async with replay(path, log=None) as session:
        assert await called(session.url, era, decline) == declined


@pytest.mark.parametrize("era", ["auto", "legacy"])
@looped
async def test_wrong_answer_is_told_by_its_question_in_both_eras(
    tmp_path: Path, upstream: str, era: Era
) -> None:
    """A decline where an accept was recorded fails the call, with the question and the field."""
    path = tmp_path / "c.json"
    async with record(upstream, path, log=None) as recording:
        said = await called(recording.url, era)

    async with replay(path, log=None) as session:
        assert await called(session.url, era) == said
        assert told(session) == told(recording)

    async with replay(path, log=None, on_miss="report") as session:
        failed, added = await called(session.url, era, decline)

    (miss,) = session.misses

    assert (failed, added) == (miss.text, "3")
    assert miss.nearest is not None
    assert (miss.nearest.call, miss.nearest.turn) == ('tools/call "plan"', 1)
    assert [question.partition(" ")[2] for question in miss.questions] == [
        '(form) "Which plan?"'
    ]

    differing = {
        difference.pointer.rpartition("/")[2]: difference[1:]
        for difference in miss.differences
    }

    assert differing["action"] == ('"accept"', '"decline"')


@looped
async def test_questions_of_a_server_on_pipes_reach_a_client_over_http(
    tmp_path: Path,
) -> None:
    """Its client of the 2025 era has a session, and is asked during calls at the same time too."""
    path = tmp_path / "c.json"
    server = (sys.executable, str(SERVER), "--stdio")
    said = ["Write the plan alpha: done in file:///work", "3"]
    async with recording(server, path) as recording_run:
        assert await asyncio.gather(
            *(called(recording_run.url, "legacy") for _ in "ab")
        ) == [
            said,
            said,
        ]

    assert recording_run.outcome.unreachable == 0

    async with replay(path, log=None) as played:
        assert [await called(played.url, "legacy") for _ in "ab"] == [said, said]


@looped
async def test_recording_of_a_server_on_pipes_behind_a_url_plays_on_pipes(
    tmp_path: Path,
) -> None:
    """What one client did in its session over HTTP is a server that another one starts."""
    path = tmp_path / "c.json"
    async with recording(
        (sys.executable, str(SERVER), "--stdio"), path
    ) as recording_run:
        said = await called(recording_run.url, "legacy")

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mrtr_cassette", "replay", "--stdio", str(path)],
    )

    assert await called(stdio_client(command), "legacy") == said
