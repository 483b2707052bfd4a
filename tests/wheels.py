"""Print which wheels the runtime dependencies have, for each Python and platform of a promise.

The index is the one that pip is configured with; a server's answer is JSON (PEP 691).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import Request, urlopen
from zipfile import ZipFile

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import Version

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
ACCEPT = "application/vnd.pypi.simple.v1+json"
PYTHONS = [(3, 11), (3, 12), (3, 13), (3, 14), (3, 15)]
GLIBC = 34
"""The newest minor version of glibc 2 that may be asked for."""

GLIBC_OF_NEWEST = 39
"""The same for the newest Python, which comes with distributions that have it."""

MACOS = 14


def linux(machine: str, python: tuple[int, int]) -> list[str]:
    """Return the tags of glibc's platforms, the old names included."""
    newest = GLIBC_OF_NEWEST if python == PYTHONS[-1] else GLIBC
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    old = [f"{name}_{machine}" for name in ("manylinux2014", "manylinux1")]

    return [*tags, *old]


def musl(machine: str) -> list[str]:
    """Return the tags of musl's platforms."""
    return [f"musllinux_1_{minor}_{machine}" for minor in range(2, -1, -1)]


def macos(machine: str) -> list[str]:
    """Return the tags of the versions of macOS, and of both machines in one file."""
    versions = [f"{major}_0" for major in range(MACOS, 10, -1)]
    versions += [f"10_{minor}" for minor in range(16, 5, -1)]
    return [
        f"macosx_{version}_{kind}"
        for version in versions
        for kind in (machine, "universal2")
    ]


def platform_tags(platform: str, python: tuple[int, int]) -> list[str]:
    """Return the tags of a platform, by its name in the table."""
    kind, machine = PLATFORMS[platform]
    if kind == "glibc":
        return linux(machine, python)
    return musl(machine) if kind == "musl" else macos(machine)


PLATFORMS = {
    "glibc x86-64": ("glibc", "x86_64"),
    "glibc Arm": ("glibc", "aarch64"),
    "musl x86-64": ("musl", "x86_64"),
    "musl Arm": ("musl", "aarch64"),
    "macOS x86-64": ("macOS", "x86_64"),
    "macOS Arm": ("macOS", "arm64"),
}
"""The kind and the machine of each platform."""

MARKERS = {
    "glibc x86-64": ("linux", "Linux", "x86_64"),
    "glibc Arm": ("linux", "Linux", "aarch64"),
    "musl x86-64": ("linux", "Linux", "x86_64"),
    "musl Arm": ("linux", "Linux", "aarch64"),
    "macOS x86-64": ("darwin", "Darwin", "x86_64"),
    "macOS Arm": ("darwin", "Darwin", "arm64"),
}
"""What requirements may depend on, by platform."""


def tags_of(python: tuple[int, int], platform: str) -> frozenset[Tag]:
    """Return all tags of wheels that an interpreter installs."""
    names = platform_tags(platform, python)
    found = set(cpython_tags(python, platforms=names))
    interpreter = f"cp{python[0]}{python[1]}"
    found.update(compatible_tags(python, interpreter, names))

    return frozenset(found)


@cache
def index() -> str:
    """Return the address of the index that pip asks."""
    for setting in (":env:.index-url", "install.index-url", "global.index-url"):
        command = [sys.executable, "-m", "pip", "config", "get", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()

    command = [sys.executable, "-m", "pip", "download", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    described = shown.split("--index-url", 1)[1].split()

    return next(word for word in described if "://" in word).strip(").")


def page_of(name: str) -> tuple[str, dict[str, Any]]:
    """Return where the files of a project are listed, and the list."""
    address = f"{index().rstrip('/')}/{canonicalize_name(name)}/"
    with urlopen(Request(address, headers={"Accept": ACCEPT}), timeout=60) as answer:
        return answer.url, json.load(answer)


def requirements_in(address: str) -> list[Requirement]:
    """Return what a wheel needs, as its metadata says."""
    with (
        urlopen(address, timeout=60) as answer,
        ZipFile(BytesIO(answer.read())) as wheel,
    ):
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        raw, _ = parse_email(wheel.read(name))

    return [Requirement(line) for line in raw.get("requires_dist", [])]


class Project:
    """A project of the index, and the tags of its newest version that has wheels."""

    def __init__(self, requirement: Requirement) -> None:
        address, page = page_of(requirement.name)
        wheels: dict[Version, list[tuple[frozenset[Tag], str]]] = {}
        for file in page["files"]:
            if file.get("yanked") or not file["filename"].endswith(".whl"):
                continue

            try:
                _, version, _, tags = parse_wheel_filename(file["filename"])
            except InvalidWheelFilename:
                continue

            if requirement.specifier.contains(version):
                wheels.setdefault(version, []).append((tags, file["url"]))

        self.version = max(wheels)
        self.tags = frozenset[Tag]().union(*[tags for tags, _ in wheels[self.version]])
        self._any_wheel = urljoin(address, wheels[self.version][0][1])

    @cached_property
    def needs(self) -> list[Requirement]:
        """What the version needs besides its extras."""
        return requirements_in(self._any_wheel)

    def has(self, python: tuple[int, int], platform: str) -> bool:
        """Tell whether an interpreter installs one of the wheels."""
        return not self.tags.isdisjoint(tags_of(python, platform))


@cache
def project(requirement: str) -> Project:
    """Return the project that a requirement names."""
    return Project(Requirement(requirement))


def applies(requirement: Requirement, python: tuple[int, int], platform: str) -> bool:
    """Tell whether an interpreter needs what a requirement names."""
    sys_platform, system, machine = MARKERS[platform]
    version = f"{python[0]}.{python[1]}"
    environment = {
        "extra": "",
        "platform_machine": machine,
        "platform_system": system,
        "python_full_version": f"{version}.0",
        "python_version": version,
        "sys_platform": sys_platform,
    }

    return requirement.marker is None or requirement.marker.evaluate(environment)


def needed(python: tuple[int, int], platform: str) -> Iterator[tuple[str, Project]]:
    """Yield the projects that an installation consists of."""
    text = PYPROJECT.read_text(encoding="utf-8")
    waiting = [
        Requirement(line) for line in tomllib.loads(text)["project"]["dependencies"]
    ]
    seen = set()
    while waiting:
        requirement = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        if name in seen or not applies(requirement, python, platform):
            continue

        seen.add(name)
        found = project(f"{name}{requirement.specifier}")
        yield name, found
        waiting += found.needs


def main() -> int:
    """Print a row for each project; a cell has the platforms without a wheel."""
    cells: dict[str, dict[tuple[int, int], list[str]]] = {}
    for python in PYTHONS:
        for platform in PLATFORMS:
            for name, found in needed(python, platform):
                row = cells.setdefault(f"{name} {found.version}", {})
                missing = row.setdefault(python, [])
                if not found.has(python, platform):
                    missing.append(platform)

    heads = [f"{major}.{minor}" for major, minor in PYTHONS]
    print(f"| {' | '.join(['package', *heads])} |")
    print(f"| {' | '.join(['---'] * (len(heads) + 1))} |")
    is_complete = True
    for name, row in sorted(cells.items()):
        shown = []
        for python in PYTHONS:
            missing = row.get(python)
            is_complete = is_complete and not missing
            if missing is None:
                shown.append("not needed")
            elif missing:
                shown.append(f"none for {', '.join(missing)}")
            else:
                shown.append("all")

        print(f"| {' | '.join([name, *shown])} |")

    return not is_complete


if __name__ == "__main__":
    sys.exit(main())
