"""The command line: options in, one call of the shell, an exit code out."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

import click

from mrtr_cassette import __version__
from mrtr_cassette.cli.common import Group

_MODULES: Final = ("proxies", "live", "files")
"""Where the commands are defined, as names of the module; it is imported when one runs."""


class _Program(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        names = {name for module in map(_module, _MODULES) for name in vars(module)}
        return sorted(name for name in names if self.get_command(ctx, name))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        for module in _MODULES:
            command = getattr(_module(module), name, None)
            if isinstance(command, click.Command):
                return command
        return None


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mrtr-cassette")
def main() -> None:
    """Record a conversation between an MCP client and server, and play the server back.

    A call that asks for input half-way (multi round-trip requests, MCP 2026-07-28) plays to any
    client, in any language, and its raw state token stands in no file.

    \b
      mrtr-cassette record --upstream http://localhost:8000/mcp
      mrtr-cassette inspect cassette.json
      mrtr-cassette replay cassette.json

    A cassette is a file, or an object in a store: s3://bucket/cassette.json.
    `mrtr-cassette demo` shows all of it with a server of its own.
    """  # noqa: D301  \b is click's mark for lines that stay as they are
