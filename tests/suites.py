"""Projects with tests of their own, that the pytest plugin is tested with."""

from __future__ import annotations

import json
import re

import mrtr_cassette.demo.server  # noqa: F401  imported once here, as the next, and not in each run
import mrtr_cassette.testing.uses  # noqa: F401

AGENT = """
import sys
import mrtr_cassette
from mrtr_cassette.demo.server import create_app

APPLICATION = create_app()
COMMAND = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "{port}"]

def deploy(url, env="test", confirm=True):
    result = mrtr_cassette.call(url, "deploy", {"env": env}, answers={"confirm": confirm})
    assert result.error is result.problem is None, result.error or result.problem
    return result.text

def swallowed(url, **options):
    try:
        deploy(url, **options)
    except Exception:
        pass
"""
ONE_TEST = """
    import pytest
    from agent import APPLICATION, COMMAND, deploy

    @pytest.mark.mrtr_cassette(upstream=APPLICATION)
    def test_deploy(mrtr_cassette):
        assert deploy(mrtr_cassette.url) == "Deployed to test"
"""


class Suite:
    """A project with tests of its own."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.path = pytester.path
        self.write("agent.py", AGENT)
        self.write("pytest.ini", "[pytest]\nfilterwarnings = error\npythonpath = .\n")

    def write(self, name, text):
        """Write a file, indented as it may be."""
        lines = text.splitlines()
        indent = min(
            (len(line) - len(line.lstrip()) for line in lines if line.strip()),
            default=0,
        )

        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")

    def run(self, *options, **outcomes):
        words = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options]
        if "-n" in options:
            # What a worker of xdist would import anew, for half a second.
            words += ["-p", "no:anyio", "-p", "no:fakefs"]

        result = self.pytester.runpytest(*words)
        result.assert_outcomes(**(outcomes or {"passed": 1}))
        return result

    def follow(self, result, **outcomes):
        """Run pytest with the only mode that the output of a run offers."""
        (option,) = set(re.findall(r" (--mrtr-mode=\w+)", result.stdout.str()))
        return self.run(option, **outcomes)

    def cassettes(self):
        """Return the files under `cassettes` folders, as paths in the project."""
        found = []
        for folder in self.path.rglob("cassettes"):
            for path in folder.rglob("*"):
                if path.is_file():
                    found.append(str(path.relative_to(self.path)))

        return sorted(found)

    def cassette(self, name):
        return json.loads((self.path / "cassettes" / name).read_text())
