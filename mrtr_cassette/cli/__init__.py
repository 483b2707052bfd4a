"""The command line: options in, one call of the shell, an exit code out."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

import click

from mrtr_cassette import __version__
from mrtr_cassette.cli.group import Group

COMMANDS: Final = {
    "answers": ("files", "Write an answers file from a recording."),
    "call": ("live", "Make a call on a live server, and answer its questions."),
    "check": ("files", "Check that cassettes are as recorded, without secrets."),
    "cut": ("files", "Cut calls out of a cassette."),
    "demo": ("live", "Record and replay an included server."),
    "diff": ("files", "Show the differences between two cassettes."),
    "inspect": ("files", "Show calls, questions and answers."),
    "merge": ("files", "Merge the recordings of several recorders into a cassette."),
    "probe": ("live", "Try answers on a live server that were never recorded."),
    "prune": ("files", "Remove calls that a replay never played."),
    "record": ("proxies", "Record what passes between client and server."),
    "recover": ("files", "Publish killed recordings from their journals."),
    "replay": ("proxies", "Serve CASSETTE as if it were the server."),
    "report": ("files", "Write a call as an issue."),
    "schema": ("files", "Print the JSON Schema of the cassette format."),
    "serve": (
        "serve",
        "Serve the cassettes in FOLDER to a whole suite, in any language.",
    ),
    "unwrap": ("proxies", "Restore a wrapped server's own command."),
    "verify": ("live", "Repeat recorded calls with a live server, and compare."),
    "view": ("files", "Write cassettes as pages for a browser."),
    "wrap": (
        "proxies",
        "Let a client start a recorder or a replay instead of a server.",
    ),
}
"""The module in which each command is defined, imported when it runs; and its help's first line."""


def load_command(words: Sequence[str]) -> None:
    """Import what a command line needs: the module of the command that it begins with."""
    if words and words[0] in COMMANDS:
        _module_of(words[0])


def _module_of(name: str) -> ModuleType:
    """Import the module in which a command is defined."""
    return import_module(f"{__name__}.{COMMANDS[name][0]}")


class _LazyGroup(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands in alphabetical order, without an import."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a command and return the command; None if there is none."""
        if name not in COMMANDS:
            return None

        command: click.Command = getattr(_module_of(name), name)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands in the order of `COMMANDS`, without importing them."""
        rows = [(name, short) for name, (_, short) in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
