"""A project made from nothing: the built wheel, one test file, and the official SDK's client."""

from __future__ import annotations

import os
import subprocess
from zipfile import ZipFile

SERVER = '''
import argparse

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = MCPServer("deploy-server")
SCHEMA = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}


@server.tool("deploy", structured_output=False)
async def deploy(env: str, ctx: Context) -> str | InputRequiredResult:
    """Deploy after the operator confirms."""
    if ctx.input_responses is None:
        question = ElicitRequestFormParams(message=f"Deploy to {env}?", requested_schema=SCHEMA)
        return InputRequiredResult(input_requests={"confirm": ElicitRequest(params=question)})
    answer = ctx.input_responses["confirm"]
    accepted = isinstance(answer, ElicitResult) and answer.action == "accept"
    return f"Deployed to {env}" if accepted else "Deployment cancelled"


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
uvicorn.run(server.streamable_http_app(), port=parser.parse_args().port)
'''
TEST = """
import asyncio
import sys

import pytest
from mcp import Client
from mcp_types import ElicitResult


async def answer(context, params):
    return ElicitResult(action="accept", content={"confirm": True})


async def deploy(url):
    async with Client(url, elicitation_callback=answer) as client:
        return await client.call_tool("deploy", {"env": "production"})


@pytest.mark.mrtr_cassette(upstream=[sys.executable, "server.py", "--port", "{port}"])
def test_deploy(mrtr_cassette):
    result = asyncio.run(deploy(mrtr_cassette.url))
    assert not result.is_error
"""


def test_the_wheel_has_what_a_user_needs(wheel):
    """Types, the plugin's and the command's entry points, the licence, and nothing but the package."""
    with ZipFile(wheel) as file:
        names = set(file.namelist())
        (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
        text = file.read(entry_points).decode()

    assert "mrtr_cassette/py.typed" in names
    assert {
        f"mrtr_cassette/core/report/page.{kind}" for kind in ("css", "html", "js")
    } <= names
    assert "mrtr-cassette = mrtr_cassette.pytest_plugin" in text
    assert "mrtr-cassette = mrtr_cassette.__main__:main" in text
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "mrtr_cassette"
    }


def test_a_fresh_project_records_replays_and_fails(tmp_path, programs):
    """The first run records; the second replays without the server, and there a decline fails."""
    unwanted = {"CI", "MRTR_CASSETTE_MODE", "PYTHONPATH"}
    env = {name: value for name, value in os.environ.items() if name not in unwanted}

    def run(*arguments: str) -> tuple[int, str]:
        command = [str(programs / "python"), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    origin = run("-c", "import mrtr_cassette; print(mrtr_cassette.__file__)")[1]

    assert origin.startswith(str(programs.parent))

    tests = ("-m", "pytest", "-p", "no:cacheprovider", "tests")
    (tmp_path / "tests").mkdir()
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "tests/test_deploy.py").write_text(TEST)
    code, printed = run(*tests)

    assert (code, "1 passed" in printed) == (0, True), printed

    cassette = tmp_path / "tests/cassettes/test_deploy/test_deploy.json"
    recorded = cassette.read_bytes()

    (tmp_path / "server.py").unlink()
    declines = TEST.replace(
        'action="accept", content={"confirm": True}', 'action="decline"'
    )
    declines = declines.replace(
        "upstream=[", '"test_deploy/test_deploy.json", upstream=['
    )
    (tmp_path / "tests/test_declines.py").write_text(declines)
    code, printed = run(*tests)

    assert (code, "1 failed, 1 passed" in printed) == (1, True), printed
    assert "FAILED tests/test_declines.py" in printed
    assert (
        '/inputResponses/confirm/action: recorded "accept", received "decline"'
        in printed
    )
    assert cassette.read_bytes() == recorded
