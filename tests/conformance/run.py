"""Run the official conformance suite directly, while it is recorded, and on the recording.

    PYTHONPATH=tests python -m conformance.run [--server NAME] [--typescript-server FILE]

On the recording it has other request ids, and the server is gone. The servers are those that the SDKs
test themselves with: Python's is in its source package, TypeScript's in its repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

from patience import HANGS_S
from processes import (
    PYTHON,
    free_port,
    install_node_packages,
    listening,
    record_command,
    replay_command,
    run,
    wait_for_port,
)

HERE = Path(__file__).parent
BUILT = HERE.parent.parent / "build" / "conformance"
MODULES = HERE / "node_modules"
NODE = str(MODULES / ".bin" / "node")
SUITE = (NODE, str(MODULES / "@modelcontextprotocol/conformance/dist/index.js"))
REVISIONS = ("2025-11-25", "2026-07-28")
TYPESCRIPT_COMMIT = "3924de99df834302d89f5997a1b64ca268282284"
TYPESCRIPT_SERVER = (
    "https://raw.githubusercontent.com/modelcontextprotocol/typescript-sdk/"
    f"{TYPESCRIPT_COMMIT}/test/conformance/src/everythingServer.ts"
)
TYPESCRIPT_SHA256 = "3a94417774fa20b17971e8162f9865b1cefd2650c7d88fdcd17f971d91213852"
TIME = re.compile(r"-\d{4}(-\d\d){2}T[\d-]+Z$")
"""What the suite adds to a scenario in the name of its folder."""

Check = tuple[str, str, str]
"""A scenario, the id of a check in it, and how it went."""

EXPLAINED = {
    # HTTP drops the spaces around the value of a header, and so does the proxy.
    ("http-header-validation", "sep-2243-server-accepts-whitespace-header-value"),
    # The proxy refuses a foreign `Host` itself.
    ("dns-rebinding-protection", "localhost-host-rebinding-rejected"),
}
"""Checks that pass behind the proxy though the server fails them."""


def python_server() -> list[str]:
    """Return the command of the server in the source package of the installed Python SDK."""
    wanted = version("mcp")
    place = BUILT / f"mcp-{wanted}" / "examples/servers/everything-server"
    if not place.exists():
        options = ["--quiet", "--no-deps", "--no-binary", "mcp", "--dest", BUILT]
        pip = [sys.executable, "-m", "pip", "download", *options, f"mcp=={wanted}"]
        subprocess.run(pip, check=True)
        with tarfile.open(BUILT / f"mcp-{wanted}.tar.gz") as source:
            source.extractall(BUILT, filter="data")

    return [*PYTHON, "-c", f"import sys; sys.path.insert(0, {str(place)!r})\n{START}"]


START = "from mcp_everything_server.server import main; main()"


def typescript_server(file: Path | None) -> list[str]:
    """Return the command of the server of the TypeScript SDK's repository."""
    # Beside node_modules, where it finds its packages.
    place = HERE / "everything_server.mts"
    if file is not None:
        source = file.read_bytes()
    elif place.exists():
        source = place.read_bytes()
    else:
        try:
            with urlopen(TYPESCRIPT_SERVER, timeout=60) as answer:
                source = answer.read()
        except OSError as error:
            raise SystemExit(
                f"{TYPESCRIPT_SERVER}: {error}; name a copy with --typescript-server"
            ) from None

    if hashlib.sha256(source).hexdigest() != TYPESCRIPT_SHA256:
        raise SystemExit(f"the server is not that of {TYPESCRIPT_SERVER}")

    place.write_bytes(source)
    return [NODE, str(place)]


def demo_server() -> list[str]:
    """Return the command of our demo's server."""
    return [*PYTHON, "-m", "mrtr_cassette.demo.server"]


@contextmanager
def serving(command: Sequence[str]) -> Iterator[str]:
    """Run a server at a free port until the block ends, and give its URL."""
    port = free_port()
    words = [*command]
    if NODE not in words:
        words += ["--port", str(port)]

    environment = {**os.environ, "PORT": str(port)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        try:
            wait_for_port(port, process)
            yield f"http://localhost:{port}/mcp"
        finally:
            process.kill()
            process.wait(timeout=HANGS_S)


def checks_at(url: str, revision: str) -> list[Check]:
    """Run all scenarios of a revision at a URL, and return how every check went."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--url", url, "--requirements", revision, "--output-dir", folder]
        run([*SUITE, "server", *options])
        found = []
        for path in Path(folder).glob("*/checks.json"):
            scenario = TIME.sub("", path.parent.name.removeprefix("server-"))
            for check in json.loads(path.read_bytes()):
                found.append((scenario, check["id"], check["status"]))

        return found


def recorded(url: str, revision: str, cassette: Path) -> list[Check]:
    """Run the suite through a recorder."""
    with listening(record_command(url, cassette)) as recorder:
        return checks_at(recorder.url, revision)


def replayed(cassette: Path, revision: str) -> tuple[list[Check], str]:
    """Run the suite under other ids on a recording; return the replay's summary too."""
    with ExitStack() as stack:
        replay = stack.enter_context(listening(replay_command(cassette)))
        front = [sys.executable, str(HERE / "other_ids.py"), replay.url]
        url = stack.enter_context(listening(front)).url
        checks = checks_at(url, revision)

    played = re.findall("^played .*", replay.stderr, re.MULTILINE)
    return checks, "".join(played)


def score(checks: list[Check]) -> str:
    """Say how many checks passed and failed."""
    found = Counter(status for _, _, status in checks)
    return f"{found['SUCCESS']} passed, {found['FAILURE']} failed"


def differences(way: str, expected: list[Check], seen: list[Check]) -> Iterator[str]:
    """Yield a line for every check that went otherwise than directly."""
    for mark, more in ("-", expected), ("+", seen):
        less = seen if more is expected else expected
        for scenario, name, status in sorted(
            (Counter(more) - Counter(less)).elements()
        ):
            reason = " (explained)" if (scenario, name) in EXPLAINED else ""
            yield f"{mark} {way}: {scenario}: {name}: {status}{reason}"


def measure(name: str, command: Sequence[str], revision: str) -> bool:
    """Print a row, and the differences below it; tell whether there are none without a reason."""
    with tempfile.TemporaryDirectory() as folder:
        cassette = Path(folder) / "conformance.json"
        with serving(command) as url:
            direct = checks_at(url, revision)

        with serving(command) as url:
            while_recorded = recorded(url, revision, cassette)

        of_recording, summary = replayed(cassette, revision)

    cells = [name, revision, score(direct), score(while_recorded), score(of_recording)]
    print(f"| {' | '.join([*cells, summary])} |", flush=True)
    found = [*differences("recorded", direct, while_recorded)]
    found += differences("replayed", direct, of_recording)
    for line in found:
        print(f"  {line}", flush=True)

    return bool(direct) and all(line.endswith("(explained)") for line in found)


def main() -> int:
    """Print the table as Markdown; return 1 if a check differs without a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", default=[], metavar="NAME")
    parser.add_argument("--typescript-server", type=Path, metavar="FILE")
    options = parser.parse_args()
    install_node_packages(HERE)
    BUILT.mkdir(parents=True, exist_ok=True)
    servers = {
        "python": python_server,
        "typescript": lambda: typescript_server(options.typescript_server),
        "demo": demo_server,
    }

    print("| server | revision | direct | recorded | replayed | summary |")
    print("| --- | --- | --- | --- | --- | --- |")
    is_identical = True
    for name in options.server or servers:
        command = servers[name]()
        for revision in REVISIONS:
            is_identical &= measure(name, command, revision)

    return not is_identical


if __name__ == "__main__":
    sys.exit(main())
