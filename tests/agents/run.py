"""Run agents of other frameworks at a recorder and at a replay, and print what became of each.

python -m agents.run [--agent NAME]...
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from processes import (
    PROGRAM,
    TESTS,
    ProcessError,
    install_node_packages,
    install_python_packages,
    listening,
    run,
)

HERE = Path(__file__).parent
EXAMPLES = TESTS.parent / "docs" / "examples" / "agents"
SERVER = (sys.executable, str(EXAMPLES / "server.py"), "--port", "{port}")
MODEL = (sys.executable, str(HERE / "model.py"))
SEEN = re.compile(r"^(?:asked|agent|tool|score): .*|\d+ passed.*", re.MULTILINE)
"""Lines of an agent that are the same in each run."""

DECLINES = {"ANSWER": "decline"}
ASKS_OTHERWISE = {"VERSION": "3.0"}


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of a framework.

    Attributes:
        environment: the requirements file that has it, or `node` or `promptfoo`.
        packages: those whose versions are told.
        unrecorded: variables with which it does what was not recorded.
    """

    name: str
    environment: str
    script: str
    packages: tuple[str, ...]
    unrecorded: Mapping[str, str]
    has_model: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """Return how it is run."""
        script = str(EXAMPLES / self.script)
        if self.environment == "node":
            # Node finds packages from where the script is.
            return "node", str(shutil.copy(script, HERE / "node"))

        if self.environment == "promptfoo":
            program = HERE / "promptfoo" / "node_modules" / ".bin" / "promptfoo"
            return str(program), "eval", "--no-cache", "--config", script

        python = HERE / ".venv" / self.environment / "bin" / "python"
        return str(python), script

    def install(self) -> None:
        """Have its packages installed."""
        if self.environment in ("node", "promptfoo"):
            install_node_packages(HERE / self.environment)
        else:
            wanted = HERE / f"requirements-{self.environment}.txt"
            install_python_packages(wanted, HERE / ".venv" / self.environment)

    @property
    def versions(self) -> list[str]:
        """Return its packages with their versions."""
        if self.environment in ("node", "promptfoo"):
            modules = HERE / self.environment / "node_modules"
            found = []
            for name in self.packages:
                data = json.loads((modules / name / "package.json").read_bytes())
                found.append(f"{name} {data['version']}")

            return found

        text = (HERE / f"requirements-{self.environment}.txt").read_text()
        pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))
        return [f"{name} {pinned[name]}" for name in self.packages]


AGENTS = (
    Agent(
        "pydantic-ai",
        "pydantic-ai",
        "with_pydantic_ai.py",
        ("pydantic-ai-slim", "fastmcp-slim", "mcp"),
        DECLINES,
    ),
    Agent(
        "LangChain",
        "langchain",
        "with_langchain.py",
        ("langchain", "langchain-mcp-adapters", "mcp"),
        DECLINES,
    ),
    Agent("AI SDK", "node", "with_ai_sdk.mjs", ("ai", "@ai-sdk/mcp"), DECLINES),
    Agent(
        "OpenAI Agents",
        "openai-agents",
        "with_openai_agents.py",
        ("openai-agents", "mcp"),
        ASKS_OTHERWISE,
    ),
    Agent(
        "Inspect", "inspect", "with_inspect.py", ("inspect_ai", "mcp"), ASKS_OTHERWISE
    ),
    Agent(
        "promptfoo", "promptfoo", "promptfooconfig.yaml", ("promptfoo",), ASKS_OTHERWISE
    ),
    Agent(
        "VCR.py",
        "vcr",
        "with_vcr.py",
        ("vcrpy", "openai", "mcp"),
        DECLINES,
        has_model=True,
    ),
)


@dataclass(slots=True)
class Outcome:
    """What became of an agent."""

    era: str = ""
    questions: int = 0
    faults: list[str] = field(default_factory=list)


def try_agent(agent: Agent, folder: Path) -> Outcome:
    """Record an agent, replay it with the server and the model gone, and do something else."""
    outcome = Outcome()
    cassette = folder / "cassette.json"
    variables = {
        "INSPECT_LOG_DIR": str(folder / "logs"),
        "MODEL_CASSETTE": str(folder / "model.yaml"),
        "PROMPTFOO_CONFIG_DIR": str(folder),
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
    }

    upstream = " ".join(SERVER)
    record = (*PROGRAM, "record", "--upstream", upstream, "--output", str(cassette))
    with listening(MODEL) as model:
        variables["MODEL_URL"] = model.url
        recorded = run((*record, "--", *agent.command), variables)

    if recorded.code:
        outcome.faults.append(f"recorded: {recorded.stdout}{recorded.stderr}")
        return outcome

    seen = SEEN.findall(recorded.stdout)
    outcome.era = "2025"
    if '"server/discover"' in cassette.read_text():
        outcome.era = "2026"

    outcome.questions = recorded.stdout.count("asked: ")
    report = folder / "report.json"
    replay = (*PROGRAM, "replay", str(cassette), "--report", str(report), "--")
    replayed = run((*replay, *agent.command), variables)
    if replayed.code or not seen or SEEN.findall(replayed.stdout) != seen:
        outcome.faults.append(f"replayed: {replayed.stdout}{replayed.stderr}")

    unrecorded = run((*replay, *agent.command), {**variables, **agent.unrecorded})
    if not unrecorded.code or not json.loads(report.read_bytes())["misses"]:
        outcome.faults.append(f"unrecorded: {unrecorded.stdout}{unrecorded.stderr}")

    return outcome


def row(agent: Agent, outcome: Outcome, seconds: float) -> str:
    """Return a line of the table."""
    answered = str(outcome.questions or "none")
    result = "replayed, and missed what was not recorded"
    if outcome.faults:
        result = "failed"

    cells = (", ".join(agent.versions), outcome.era, answered, result)
    return " | ".join([agent.name, *cells, f"{seconds:.0f} s"])


def main() -> int:
    """Try the agents that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [agent.name for agent in AGENTS]
    parser.add_argument("--agent", action="append", choices=names, metavar="NAME")
    chosen = parser.parse_args().agent or names
    failed = 0
    print("agent | versions | MCP of | questions answered | result | time")
    for agent in AGENTS:
        if agent.name not in chosen:
            continue

        try:
            agent.install()
        except ProcessError as error:
            print(error, file=sys.stderr)
            return 2

        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="agents-") as folder:
            outcome = try_agent(agent, Path(folder))

        print(
            row(agent, outcome, time.monotonic() - started), *outcome.faults, sep="\n"
        )
        failed += bool(outcome.faults)

    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
