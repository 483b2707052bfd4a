"""Projects for TypeScript into which the package of npm/ is installed from its tarball."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from patience import HANGS_S
from processes import PEERS, PROGRAM, TESTS, install_node_packages, listening, peer

NPM_PACKAGE = TESTS.parent / "npm"
PROJECT = TESTS / "npm" / "project"
DEPLOYED = (
    "suite/cassettes/flows.test/"
    "deploy-asks-before-it-deploys-to-production-346c2362aa.json"
)
"""The cassette that other tests of the project play."""


@dataclass(frozen=True)
class Project:
    """A project into which the tarball was installed; `program` starts mrtr-cassette."""

    folder: Path
    program: Path
    starts: Path
    """Has the process ids of all servers that were started by `program`."""

    def run(
        self, *words: str, environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with the variables that tests of users have."""
        inherited = {}
        for name, value in os.environ.items():
            if name != "CI" and not name.startswith(("MRTR_CASSETTE_", "NODE_")):
                inherited[name] = value

        ours = {
            "MRTR_CASSETTE_BIN": str(self.program),
            "RECORDED": DEPLOYED,
            "STARTS": str(self.starts),
            "NO_COLOR": "1",
        }
        return subprocess.run(
            words,
            cwd=self.folder,
            env={**inherited, **ours, **environment},
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )

    def vitest(
        self, *words: str, environment: Mapping[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Run vitest; return its tests by their titles, and all that it printed."""
        report = self.starts.with_suffix(".json")
        reporters = ("--reporter=default", "--reporter=json", f"--outputFile={report}")
        ended = self.run(
            "node_modules/.bin/vitest",
            "run",
            *words,
            *reporters,
            environment=environment,
        )

        printed = ended.stdout + ended.stderr
        assert report.exists(), printed
        tests = {}
        for file in json.loads(report.read_text())["testResults"]:
            for test in file["assertionResults"]:
                tests[test["title"]] = test

        return tests, printed

    def cassettes(self) -> dict[str, bytes]:
        """Return what is recorded, by names."""
        found = {}
        for path in self.folder.glob("suite/cassettes/**/*.json"):
            found[str(path.relative_to(self.folder))] = path.read_bytes()

        return found


def npm(folder: Path, *words: str) -> str:
    """Run npm in a folder."""
    ended = subprocess.run(
        ["npm", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def install_package(folder: Path) -> None:
    """Make a project with the tarball, and with other packages beside it."""
    with ThreadPoolExecutor() as installing:
        list(installing.map(install_node_packages, (NPM_PACKAGE, PROJECT, PEERS)))

    folder.mkdir()
    npm(NPM_PACKAGE, "pack", "--pack-destination", str(folder))
    (tarball,) = folder.glob("*.tgz")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    npm(folder, "install", "--offline", "--no-audit", "--no-fund", tarball.name)
    packages = folder / "node_modules"
    assert [path.name for path in packages.glob("[!.]*")] == ["mrtr-cassette"]
    for package in (PROJECT / "node_modules").iterdir():
        if package.name not in {".package-lock.json", ".vite"}:
            (packages / package.name).unlink(missing_ok=True)
            (packages / package.name).symlink_to(package)

    configurations = ("tsconfig.json", "vitest.config.ts", "playwright.config.ts")
    for name in ("suite", *configurations):
        source = PROJECT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)


@contextmanager
def typescript_server() -> Iterator[dict[str, str]]:
    """Run a server of the SDK; yield the variables that tests find it by."""
    command = (*peer("server", "typescript"), "--port", "0")
    with listening(command) as server:
        script = str(PEERS / "server_typescript.mjs")
        yield {"UPSTREAM": server.url, "STDIO_SERVER": script}


def used_by(folder: Path, place: Path) -> Project:
    """Return a project whose program is started by a script in a place."""
    program = place / "program"
    starts = place / "starts"
    command = shlex.join(PROGRAM)
    program.write_text(
        f'#!/bin/sh\necho $$ >> {shlex.quote(str(starts))}\nexec {command} "$@"\n'
    )
    program.chmod(0o755)

    return Project(folder, program, starts)
