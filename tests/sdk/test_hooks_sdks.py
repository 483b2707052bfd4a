"""Functions of a user with the official SDK: in a suite, and in the library, over several rounds."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import mcp.server.mcpserver  # noqa: F401  imported once here, and not in each run
import pytest
from mcp import Client
from mcp_types import ElicitResult
from suites import Suite

import mrtr_cassette
from mrtr_cassette import ClientRequest
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import serving_application

pytest_plugins = ["pytester"]

SERVER = '''
    """A shop that asks before it sells."""

    from typing import Annotated

    from mcp.server.mcpserver import Elicit, MCPServer, Resolve
    from pydantic import BaseModel

    server = MCPServer("shop", log_level="WARNING")


    class Answer(BaseModel):
        """An answer to a question."""

        yes: bool


    async def ask(item: str) -> Elicit[Answer]:
        """Ask whoever pays."""
        return Elicit(f"Buy {item}?", Answer)


    @server.tool("buy", structured_output=False)
    async def buy(
        item: str, key: str, answer: Annotated[Answer, Resolve(ask)], card: str = ""
    ) -> str:
        """Sell an item once for each key."""
        return f"{item} sold" if answer.yes else f"{item} kept"


    @server.tool("poll", structured_output=False)
    async def poll(answer: Annotated[Answer, Resolve(ask)], item: str = "") -> str:
        """Tell nothing that a test needs."""
        return "polled"
'''
CONFTEST = """
    from dataclasses import replace

    import pytest
    from shop import server

    def scrubbed(request):
        if request.name == "poll":
            return None
        if "card" in request.arguments:
            request.arguments["card"] = "0000"
        return request

    @pytest.fixture(scope="session")
    def mrtr_upstream():
        return server.streamable_http_app()

    @pytest.fixture(scope="session")
    def mrtr_cassette_config():
        return {"before_record": scrubbed}
"""
TEST = """
    import asyncio
    import os
    import uuid

    import pytest
    from mcp import Client
    from mcp_types import ElicitResult

    def same_item(recorded, received):
        return recorded.arguments["item"] == received.arguments["item"]

    async def shop(url, yes):
        async def answer(context, params):
            return ElicitResult(action="accept", content={"yes": yes})

        async with Client(url, elicitation_callback=answer) as client:
            if os.environ.get("POLLS"):
                await client.call_tool("poll", {"item": "a clock"})
            key, card = str(uuid.uuid4()), str(uuid.uuid4())
            order = {"item": "a hat", "key": key, "card": card}
            return (await client.call_tool("buy", order)).content[0].text

    @pytest.mark.mrtr_cassette(match=same_item)
    def test_shop(mrtr_cassette):
        yes = os.environ.get("ANSWER", "yes") == "yes"
        assert asyncio.run(shop(mrtr_cassette.url, yes)) == "a hat sold"
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite whose shop asks before it sells."""
    monkeypatch.delenv("CI", raising=False)
    suite = Suite(pytester)
    suite.write("shop.py", SERVER)
    suite.write("conftest.py", CONFTEST)
    suite.write("test_shop.py", TEST)

    return suite


CARD = "4000-1234"


def scrubbed(request: ClientRequest) -> ClientRequest | None:
    """Leave polls out, and the numbers of cards."""
    if request.name == "poll":
        return None
    if "card" not in request.arguments:
        return request
    return replace(request, arguments={**request.arguments, "card": ""})


def same_item(recorded: ClientRequest, received: ClientRequest) -> bool:
    """Match orders whatever their keys are."""
    return bool(recorded.arguments["item"] == received.arguments["item"])


async def shopping(url: str, *, polls: bool = False) -> str:
    """Buy a hat with a new key; return what the shop says."""

    async def answer(_context: object, _params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"yes": True})

    async with Client(url, elicitation_callback=answer) as client:
        if polls:
            await client.call_tool("poll", {"item": "a clock"})

        order = {"item": "a hat", "key": str(uuid.uuid4()), "card": CARD}
        result = await client.call_tool("buy", order)
        return str(getattr(result.content[0], "text", ""))


def test_the_library_takes_both_functions(tmp_path: Path) -> None:
    """What was recorded without polls and cards plays to who sends another card and key."""
    space: dict[str, Any] = {}
    exec(dedent(SERVER), space)
    path = tmp_path / "c.json"
    failing: Any = {"before_record": lambda request: request.no_such}
    failed = pytest.raises(mrtr_cassette.CassetteError, match="<lambda> raised Attr")
    with in_thread(serving_application(space["server"].streamable_http_app())) as url:
        with mrtr_cassette.record(url, path, before_record=scrubbed) as recording:
            assert asyncio.run(shopping(recording.url, polls=True)) == "a hat sold"

        with failed, mrtr_cassette.record(url, tmp_path / "d.json", **failing) as wrong:
            assert asyncio.run(shopping(wrong.url)) == "a hat sold"

    text = path.read_text()

    assert CARD not in text
    assert "a clock" not in text

    hooks: Any = {"match": same_item, "before_record": scrubbed}
    with mrtr_cassette.replay(path, **hooks, fail_on_unplayed=False) as replay:
        assert asyncio.run(shopping(replay.url)) == "a hat sold"
        assert replay.results.matched == {"same_item": 2}


def test_a_suite_takes_both_functions(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of each run match, cards are scrubbed, polls are left out, and answers still count."""
    monkeypatch.setenv("POLLS", "1")
    suite.run().stdout.fnmatch_lines(["mrtr-cassette: 1 recorded"])
    monkeypatch.delenv("POLLS")
    text = (suite.path / "cassettes/test_shop/test_shop.json").read_text()

    assert "0000" in text
    assert "a clock" not in text

    ended = suite.run("--mrtr-mode=none")
    ended.stdout.fnmatch_lines(["mrtr-cassette: 2 matched by same_item, 1 replayed"])
    monkeypatch.setenv("ANSWER", "no")
    ended = suite.run("--mrtr-mode=none", failed=1)
    ended.stdout.fnmatch_lines(["miss: answers-differ: other answers were recorded"])
    suite.write("test_shop.py", TEST.replace('["item"] ==', '["thing"] =='))
    ended = suite.run("--mrtr-mode=none", failed=1)
    failed = "*hook-failed: match: same_item raised KeyError at line 11 of test_shop.py: 'thing'*"
    ended.stdout.fnmatch_lines([failed])

    assert "Internal Server Error" not in ended.stdout.str()

    suite.write("conftest.py", CONFTEST.replace('"card" in', '"card" <'))
    (suite.path / "cassettes/test_shop/test_shop.json").unlink()
    monkeypatch.delenv("ANSWER")
    ended = suite.run("--mrtr-mode=once", passed=1, errors=1)
    ended.stdout.fnmatch_lines(
        ["*incomplete: before_record: scrubbed raised TypeError*"]
    )

    assert not suite.cassettes()
