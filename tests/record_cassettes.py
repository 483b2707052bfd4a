"""Record the cassettes in `cassettes/` again, with the transcripts of the clients that made them.

    python tests/record_cassettes.py [NAME ...]

Each is recorded from a server on a port of its own, so that `upstream` stays the same. Where this
changes a file, something that matters has changed, and the difference is worth reading.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from processes import (
    CASSETTES,
    TRANSCRIPTS,
    ProcessError,
    Side,
    install_node_packages,
    listening,
    peer,
    record_command,
    run,
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a cassette comes from: the command that serves it, its port, and the SDK client."""

    server: tuple[str, ...]
    port: int
    client: Side


SOURCES = {
    "python-sdk": Source(peer("server", "python"), 8700, "python"),
    "typescript-sdk": Source(peer("server", "typescript"), 8701, "typescript"),
    "demo-server": Source(
        (sys.executable, "-m", "mrtr_cassette.demo.server"), 8702, "python"
    ),
}


def converse(name: str, url: str) -> str:
    """Hold the conversation of a cassette, and return the transcript of an SDK's client."""
    client = SOURCES[name].client
    done = run((*peer("client", client), url))
    if done.code or done.stderr:
        raise ProcessError(
            f"the {client} client failed with {done.code}: {done.stderr}"
        )

    return done.stdout


def record(name: str, cassette: Path, port: int) -> str:
    """Record over one cassette, and return the transcript of an SDK's client."""
    with listening((*SOURCES[name].server, "--port", str(port))) as server:
        live = converse(name, server.url)
        with listening(
            record_command(server.url, cassette, "--force"), signal.SIGINT
        ) as proxy:
            recorded = converse(name, proxy.url)

    if proxy.code:
        raise ProcessError(f"the recorder failed with {proxy.code}: {proxy.stderr}")
    if recorded != live:
        raise ProcessError(
            f"{name}: the client saw another transcript through the proxy"
        )

    return live


def main() -> int:
    """Record the cassettes of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SOURCES))
    names = parser.parse_args().names or list(SOURCES)
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        parser.error(f"no such cassette: {', '.join(unknown)}")

    CASSETTES.mkdir(exist_ok=True)
    TRANSCRIPTS.mkdir(parents=True, exist_ok=True)
    try:
        install_node_packages()
        for name in names:
            cassette = CASSETTES / f"{name}.json"
            before = cassette.read_bytes() if cassette.exists() else b""
            transcript = record(name, cassette, SOURCES[name].port)
            (TRANSCRIPTS / f"{name}.txt").write_text(transcript)
            what = "unchanged" if cassette.read_bytes() == before else "changed"
            print(f"{name}: {what}")  # noqa: T201  for whoever runs it
    except ProcessError as error:
        sys.exit(f"error: {error}")

    return 0


if __name__ == "__main__":
    sys.exit(main())
