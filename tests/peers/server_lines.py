"""A server on pipes that does what the client's requests say, for tests of pipes alone.

Each request is answered with its own params. Before that `params.say` is written as it is, and
`params.exit` ends the process with that code; `params.big` has the answer so many bytes longer.
Any other line is answered by the same bytes reversed, where `params.echo` of an earlier request
said so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time


def main() -> None:
    """Serve until stdin ends, and beyond where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--deaf", action="store_true", help="ignore SIGTERM and the end of stdin"
    )
    parser.add_argument(
        "--child", action="store_true", help="have a child that ignores SIGTERM"
    )
    parser.add_argument("--code", type=int, default=0, help="the exit code")
    parser.add_argument(
        "--last", default="", help="what is said after the end of stdin"
    )
    parser.add_argument("--mark", default="", help="nothing, but children have it too")
    options = parser.parse_args()
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    if options.child:
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code, options.mark])

    serve()
    write(options.last.encode())
    while options.deaf:
        time.sleep(600)

    sys.exit(options.code)


def serve() -> None:
    """Answer one line after the other."""
    echoes = False
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
            params = message.get("params") or {}
            number = message["id"]
        except (ValueError, AttributeError, KeyError):
            if echoes:
                write(line.rstrip(b"\n")[::-1] + b"\n")

            continue

        echoes = echoes or "echo" in params
        write(params.get("say", "").encode())
        if "exit" in params:
            os._exit(params["exit"])

        result = {**params, "big": "x" * params.get("big", 0)}
        response = {"jsonrpc": "2.0", "id": number, "result": result}
        write(json.dumps(response, separators=(",", ":")).encode() + b"\n")


def write(raw: bytes) -> None:
    """Write bytes at once."""
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
