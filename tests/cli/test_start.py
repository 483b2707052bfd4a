"""Facts about a start: a command imports what it needs and nothing else, and Ctrl-C ends it silently."""

from __future__ import annotations

import signal
import subprocess
import sys

import click
import pytest
from shown import ROOT

from mrtr_cassette.cli import COMMANDS, main

CASSETTE = str(ROOT / "cassettes" / "demo-server.json")
GROUP = {"mrtr_cassette", "mrtr_cassette.__main__"} | {
    f"mrtr_cassette.{name}" for name in ("cli", "cli.group", "errors", "terms")
}
"""The modules of this package that print a help."""

RUN = """
import runpy, sys
runpy.run_module("mrtr_cassette", run_name="__main__", alter_sys=True)
"""

AT_EXIT = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
"""

AT_READY = """
import sys
write = sys.stdout.write
def writing(text):
    if "listening on" in text:
        print(*sys.modules, file=sys.stderr)
    return write(text)
sys.stdout.write = writing
"""

INTERRUPTED = """
import os, signal, sys
# A suite that a script runs in the background is started with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""


def started(before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program after some lines of Python."""
    command = [sys.executable, "-c", before + RUN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def loaded(before: str, *arguments: str) -> set[str]:
    """Return the modules that a run has loaded when the lines before it print them."""
    run = started(before, *arguments)
    return {*run.stderr.split()}


def ours(modules: set[str]) -> set[str]:
    """Return the modules of this package."""
    return {name for name in modules if name.startswith("mrtr_cassette")}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_help_imports_no_command(option):
    """The program's own help and version load the group alone, and of others' packages only click."""
    modules = loaded(AT_EXIT, option)

    assert ours(modules) <= GROUP
    assert "click" in modules
    assert not {"asyncio", "orjson", "pydantic", "re2"} & modules


def test_short_helps_are_the_commands_own():
    """The table of commands says of each what its own help begins with."""
    context = click.Context(main)
    for name, (_, short) in COMMANDS.items():
        assert main.get_command(context, name).get_short_help_str(limit=200) == short


def test_a_replay_imports_nothing_of_others_until_it_is_ready():
    """By its ready line a replay has loaded no recorder, no answers, no comparison and no pages."""
    modules = loaded(AT_READY, "replay", CASSETTE, "--", sys.executable, "-c", "")

    assert "mrtr_cassette.shell.runs.replaying" in modules

    for folder in ("answers", "drive", "record"):
        assert not [name for name in modules if f".core.{folder}." in name]

    assert "mrtr_cassette.core.compare.conversations" not in modules
    assert "mrtr_cassette.shell.runs.piped" not in modules
    assert not {"aiohttp", "fsspec", "jinja2", "prometheus_client", "yarl"} & modules


def test_a_run_of_pytest_that_uses_no_cassette_loads_the_plugin_alone(tmp_path):
    """The plugin costs a suite without cassettes its options and nothing else."""
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure(): print('loaded', *sys.modules)\n"
    )
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    line = next(line for line in run.stdout.splitlines() if line.startswith("loaded"))

    assert ours({*line.split()}) == {
        "mrtr_cassette",
        *(f"mrtr_cassette.{name}" for name in ("errors", "options", "terms")),
        "mrtr_cassette.pytest_plugin",
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("click", -signal.SIGINT),
        ("mrtr_cassette.cli.proxies", -signal.SIGINT),
        ("pydantic", 0),
    ],
)
def test_ctrl_c_during_a_start_is_no_traceback(name, code):
    """Whatever is being imported, Ctrl-C ends the program; once it serves, as a replay ends."""
    run = started(INTERRUPTED.format(name=name), "replay", CASSETTE, "--port", "0")

    assert "Traceback" not in run.stderr
    assert "KeyboardInterrupt" not in run.stderr
    assert run.returncode == code

    if code:
        assert run.stdout + run.stderr == ""
