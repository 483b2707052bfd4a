"""Trials with the Python SDK's server: an invalid one is appended, and the next like it is valid."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from playing import Serve, serving

from mrtr_cassette import call

STORE = """
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("store", log_level="WARNING")
stock = {"apples": 3, "pears": 3}


@server.tool("look", annotations=ToolAnnotations(read_only_hint=True))
def look(item: str) -> str:
    return f"{stock[item]} {item}"


@server.tool("sell")
def sell(item: str) -> str:
    stock[item] -= 1
    return "sold"


uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]), log_level="warning")
"""


def trial(serve: Serve, *calls: tuple[str, str], **options: Any) -> dict[str, Any]:
    """Make calls in a play; return its last report with what they said."""
    play = serve.begin("store", history="strict", **options)
    said = []
    for name, item in calls:
        result = call(play["url"], name, {"item": item})
        said.append((result.problem or result.text).partition("\n")[0])

    return {**serve.end(play), "said": said}


def test_an_invalid_trial_is_appended_and_the_next_one_is_valid(tmp_path: Path) -> None:
    """The live server makes the recorded sale again before it sells more; no value is mixed."""
    program = tmp_path / "store.py"
    program.write_text(STORE)
    upstream = [sys.executable, str(program), "{port}"]
    look = ("look", "apples")
    sell = ("sell", "apples")
    with serving(tmp_path) as serve:
        trial(serve, look, sell, look, upstream=upstream)
        tried = (look, sell, sell, look)
        first = trial(serve, *tried, mode="none", on_miss="stop")

        assert (first["valid"], first["said"][:2]) == (False, ["3 apples", "sold"])
        assert all("already-played" in told for told in first["said"][2:])
        assert first["stopped"] > 0

        added = trial(serve, *tried, mode="append", upstream=upstream)

        assert added["outcome"] == "added to", added
        assert added["said"] == ["3 apples", "sold", "sold", "1 apples"]

        second = trial(serve, *tried, mode="none", on_miss="stop")

        assert second["said"] == added["said"]
        assert (second["valid"], second["problems"]) == (True, [])
