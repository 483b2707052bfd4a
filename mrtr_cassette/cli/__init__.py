"""The command line: options in, one call of the shell, an exit code out."""

from __future__ import annotations

import click

from mrtr_cassette import __version__
from mrtr_cassette.cli import files, live, proxies
from mrtr_cassette.cli.common import Group


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
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


for command in (proxies.record, proxies.replay, live.call, live.verify, live.demo, files.answers):
    main.add_command(command)
for command in (
    files.inspect,
    files.view,
    files.diff,
    files.merge,
    files.recover,
    files.check,
    files.prune,
):
    main.add_command(command)
for command in (files.wrap, files.unwrap, files.schema):
    main.add_command(command)
