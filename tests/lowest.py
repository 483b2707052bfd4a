"""Print the lowest version that every dependency allows, as constraints for pip."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest_versions() -> list[str]:
    """Return the dependencies of the package and of its extras, each at its lower bound."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = list(project["dependencies"])
    for name in sorted(extras.keys() - {"dev", "docs"}):
        wanted += extras[name]

    pins = []
    for line in wanted:
        requirement = Requirement(line)
        (bound,) = requirement.specifier
        assert bound.operator == ">=", line
        marker = f"; {requirement.marker}" if requirement.marker else ""
        pins.append(f"{requirement.name}=={bound.version}{marker}")

    return pins


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
