"""The command line: options in, one call of the shell, an exit code out."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from mrtr_cassette import __version__
from mrtr_cassette.cli.common import Group

_COMMANDS: Final = {
    "answers": "files",
    "call": "live",
    "check": "files",
    "cut": "files",
    "demo": "live",
    "diff": "files",
    "inspect": "files",
    "merge": "files",
    "probe": "probe",
    "prune": "files",
    "record": "proxies",
    "recover": "files",
    "replay": "proxies",
    "report": "files",
    "schema": "files",
    "serve": "serve",
    "unwrap": "files",
    "verify": "live",
    "view": "files",
    "wrap": "files",
}
"""The module in which each command is defined; it is imported when the command runs."""


class _Program(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"{__name__}.{_COMMANDS[name]}"), name
        )
        return command


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mrtr-cassette")
def main() -> None:
    """Record a conversation between an MCP client and server, and play the server back.

    Calls that ask for input half-way (multi round-trip requests, MCP 2026-07-28) are played to any
    client, in any language. Their raw state tokens are never written to a file.

    \b
      mrtr-cassette record --upstream http://localhost:8000/mcp
      mrtr-cassette inspect cassette.json
      mrtr-cassette replay cassette.json

    A cassette is a file, or an object in a store: s3://bucket/cassette.json.
    `mrtr-cassette demo` shows everything with an included server.
    """  # noqa: D301  \b is click's mark for lines that stay as they are
