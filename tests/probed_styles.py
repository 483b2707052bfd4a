"""Probe servers of several SDKs, written as their documentation shows it, and print what each does.

python tests/probed_styles.py prints the table of docs/probe.md.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from languages.peers import BUILT, CARGO_OPTIONS, GO, RUST, Language
from messages import JsonObject
from processes import PEERS, PROGRAM, PYTHON, install_node_packages, listening, run

from mrtr_cassette import call, record
from mrtr_cassette.core.drive.probing import PROBES


class Style(NamedTuple):
    """A way to write a server, and the command of one that is written so."""

    name: str
    command: tuple[str, ...]


_PYTHON_SDK = (*PYTHON, str(PEERS / "probed_python.py"), "--style")
_FASTMCP = (*PYTHON, str(PEERS / "probed_fastmcp.py"), "--style")
_TYPESCRIPT_SDK = ("node", str(PEERS / "probed_typescript.mjs"), "--style")
_GO = str(BUILT / "go" / "probed")
STYLES = [
    Style("Python SDK, `Resolve` with strict models", (*_PYTHON_SDK, "resolve")),
    Style("Python SDK, `MCPServer` by hand", (*_PYTHON_SDK, "guard")),
    Style("Python SDK, `Server` by hand", (*_PYTHON_SDK, "lowlevel")),
    Style("Python SDK, `ctx.elicit`", (*_PYTHON_SDK, "pushed")),
    Style("FastMCP, by hand", (*_FASTMCP, "guard")),
    Style("FastMCP, as tasks", (*_FASTMCP, "tasks")),
    Style("FastMCP, `ctx.elicit`", (*_FASTMCP, "pushed")),
    Style("TypeScript SDK, by hand", (*_TYPESCRIPT_SDK, "guard")),
    Style("TypeScript SDK, by hand, pushed", (*_TYPESCRIPT_SDK, "pushed")),
    Style("TypeScript SDK, with its codec", (*_TYPESCRIPT_SDK, "codec")),
    Style("TypeScript SDK, bound codec and schemas", (*_TYPESCRIPT_SDK, "bound")),
    Style("Go SDK, by hand", (_GO,)),
    Style("Go SDK, `session.Elicit`", (_GO, "--pushed")),
    Style("Rust SDK, by hand", (str(BUILT / "rust" / "debug" / "probed"),)),
]
_BUILDS: list[tuple[Language, tuple[str, ...]]] = [
    (GO, ("go", "build", "-p", "1", "-o", f"{BUILT / 'go'}/", "./probed")),
    (RUST, ("cargo", "build", "--quiet", "--bin", "probed", *CARGO_OPTIONS)),
]
"""What builds the servers that are compiled."""

Called = tuple[str, JsonObject, JsonObject]
CALLS: list[Called] = [
    ("deploy", {"env": "staging"}, {"confirm": True}),
    ("wipe", {"env": "staging"}, {"confirm": True, "scope": "sessions"}),
    ("wipe", {"env": "production"}, {"confirm": True, "scope": "sessions"}),
    ("resize", {"group": "web"}, {"size": 3, "kind": "small"}),
]
"""Tools, their arguments, and what is answered."""

SIGN_IN: Called = (
    "signin",
    {"site": "forge"},
    {"signin": {"action": "accept"}},
)
"""A call of the servers that hold a client to what it was asked; the page was visited once."""


def probed(style: Style, folder: Path, calls: Sequence[Called] = CALLS) -> JsonObject:
    """Record a server, probe it, and return the report on its cassette."""
    cassette = folder / "cassette.json"
    report = folder / "report.json"
    for path in (cassette, report):
        path.unlink(missing_ok=True)

    with listening(style.command) as server:
        with record(server.url, cassette) as recorder:
            for tool, arguments, answers in calls:
                call(recorder.url, tool, arguments, answers=answers)

        command = (*PROGRAM, "probe", str(cassette), server.url)
        ended = run((*command, "--report", str(report)))

    if ended.code not in {0, 1}:
        raise SystemExit(ended.stdout + ended.stderr)

    found: JsonObject = json.loads(report.read_bytes())["cassettes"][0]
    return found


def findings_in(report: JsonObject) -> str:
    """Return the names of the probes that found something, each once."""
    found = {made["probe"] for made in report["probes"] if made["is_finding"]}
    return ", ".join(f"`{name}`" for name in PROBES if name in found) or "none"


def row_of(style: Style, report: JsonObject) -> str:
    """Return the row of a style."""
    is_unprotected = "unprotected" in report["counts"]
    words = "yes" if is_unprotected else "no"
    return f"| {style.name} | {findings_in(report)} | {words} |"


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_made(style: Style) -> bool:
    """Build what a style needs; tell whether this machine can."""
    for language, command in _BUILDS:
        if style.name.lower().startswith(language.name):
            is_there = not language.missing()
            return is_there and language.run(command).code == 0

    return True


def main(chosen: Sequence[str]) -> None:
    """Print the table, of all styles or of those whose names have one of these words."""
    install_node_packages()
    say("| server | findings | unprotected |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for style in STYLES:
            is_wanted = not chosen or any(word in style.name for word in chosen)
            if is_wanted and is_made(style):
                say(row_of(style, probed(style, Path(folder))))

    lock = json.loads((PEERS / "package-lock.json").read_bytes())["packages"]
    typescript = lock["node_modules/@modelcontextprotocol/server"]["version"]
    go = re.search(r"go-sdk v(\S+)", (GO.folder / "go.mod").read_text())
    versions = [f"`mcp` {version('mcp')}", f"FastMCP {version('fastmcp')}"]
    versions.append(f"`@modelcontextprotocol/server` {typescript}")
    versions.append(f"`go-sdk` {go[1] if go else ''}")
    rust = re.search(
        r'"rmcp"\nversion = "(\S+)"', (RUST.folder / "Cargo.lock").read_text()
    )
    versions.append(f"`rmcp` {rust[1] if rust else ''}")
    say(f"\n{', '.join(versions)}")


if __name__ == "__main__":
    main(sys.argv[1:])
