"""`mrtr-cassette wrap` and `mrtr-cassette unwrap`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mrtr_cassette.cli.common import CASSETTE, say
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.stores import Location, path_of

_file = click.argument("file", type=click.Path(path_type=Path))
_server = click.argument("server")


@click.command()
@_file
@_server
@click.option("--record", type=CASSETTE, metavar="CASSETTE", help="Record the server to this.")
@click.option("--replay", type=CASSETTE, metavar="CASSETTE", help="Play this in its place.")
def wrap(file: Path, server: str, record: Location | None, replay: Location | None) -> None:
    """Put a recorder or a replay in the place of a server.

    FILE is the client's configuration (its `mcpServers`), SERVER a name in it. Everything else in
    FILE stays as it is; what was there before stands beside it. `unwrap` takes it back.
    """
    from mrtr_cassette.core.format.client_config import wrapped
    from mrtr_cassette.shell.config_file import change_config

    if record is not None and replay is None:
        # The journal of any other would stand wherever the client runs.
        ours = ["record", "--stdio", "--output", str(path_of(record).absolute())]
    elif replay is not None and record is None:
        place = replay.absolute() if isinstance(replay, Path) else replay.url
        ours = ["replay", "--stdio", str(place)]
    else:
        raise UsageError("give either --record or --replay, with a cassette")
    command = [*program(), *ours]
    backup = change_config(file, lambda data: wrapped(data, str(file), server, command))
    say(f"wrote {file}, and what was there before to {backup}; restart the client")


@click.command()
@_file
@_server
def unwrap(file: Path, server: str) -> None:
    """Give a server that was wrapped its own command again."""
    from mrtr_cassette.core.format.client_config import unwrapped
    from mrtr_cassette.shell.config_file import change_config

    backup = change_config(file, lambda data: unwrapped(data, str(file), server))
    say(f"wrote {file}, and what was there before to {backup}; restart the client")


def program() -> list[str]:
    """Return how a client starts this program, whatever PATH it has."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "mrtr-cassette" and script.is_file():
        return [str(script)]
    return [sys.executable, "-m", "mrtr_cassette"]
