"""Facts about `mrtr-cassette diff`, and about the library's `diff`."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import cassette_of, encode_cassette, retry, tool
from click.testing import CliRunner, Result
from commands import repeated
from forked import start
from messages import YES, asks, text
from patience import HANGS_S
from processes import PROGRAM

import mrtr_cassette
from mrtr_cassette.cli import main


def write(path: Path, *words: str) -> Path:
    """Write a cassette with one call for each word, which is returned."""
    script = [(tool(f"tool-{number}"), text(word)) for number, word in enumerate(words)]
    path.write_bytes(encode_cassette(cassette_of(*script)))
    return path


def diff(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(
        main, ["diff", *map(str, arguments)], catch_exceptions=False
    )


def test_what_a_file_ignores_is_no_difference(tmp_path: Path) -> None:
    """`--ignore-from` leaves out of `diff`, and of what git is shown, what `verify` leaves out."""
    old = write(tmp_path / "a.json", "x", "y")
    new = write(tmp_path / "b.json", "x", "z")

    file = tmp_path / "ignored.toml"
    for_git = ("--git", "c.json", old, "0", "100644", new, "1", "100644")
    for call, differs in (("tool-1", False), ("tool-9", True)):
        file.write_text(
            f"[[ignore]]\ncall = '{call}'\npointers = ['/content/0/text']\n"
        )

        assert diff(old, new, "--ignore-from", file).exit_code == int(differs)
        assert (
            "text-changed" in diff(*for_git, "--ignore-from", file).output
        ) == differs
        assert mrtr_cassette.diff(old, new, ignore_from=file).is_same != differs

    file.unlink()
    refused = diff(old, new, "--ignore-from", file)

    assert (refused.exit_code, "there is no file" in refused.stderr) == (2, True)


def test_a_mask_leaves_out_a_part_of_a_text(tmp_path: Path) -> None:
    """What it matches doesn't count in responses and requests, and the rest of the text does."""
    files = []
    for name, time, number in (("a", "12:01", 3), ("b", "13:59", 3), ("c", "13:59", 4)):
        call = tool("list", since=f"at {time}")
        rows = text(f"{number} rows at {time}")
        path = tmp_path / f"{name}.json"
        path.write_bytes(encode_cassette(cassette_of((call, rows))))
        files.append(path)

    old, same, changed = files
    mask = "[0-9]{2}:[0-9]{2}"

    assert diff(old, same).exit_code == 1

    masked = diff(old, same, "--mask", mask)

    assert (masked.exit_code, masked.stderr) == (0, "")

    differing = diff(old, changed, "--mask", mask, "--mask", "x{9}")

    assert differing.exit_code == 1
    assert "text-changed" in differing.output
    assert differing.stderr == "note: --mask x{9} left nothing out\n"
    assert mrtr_cassette.diff(old, same, masks=[mask]).is_same

    rules = tmp_path / "ignore.toml"
    rules.write_text(f"[[ignore]]\ncall = 'list'\nmasks = ['{mask}']\n")

    assert diff(old, same, "--ignore-from", rules).exit_code == 0
    assert diff(old, changed, "--ignore-from", rules).exit_code == 1


def test_the_exit_code_tells_whether_something_differs(tmp_path: Path) -> None:
    """0 where nothing does that counts, 1 where something does, 3 where a file can't be read."""
    old = write(tmp_path / "a.json", "x", "y")
    new = write(tmp_path / "b.json", "x", "z")

    same = diff(old, old)
    changed = diff(old, new)

    assert (same.exit_code, changed.exit_code) == (0, 1)
    assert same.output.splitlines()[-1] == "the same: 2 interactions"
    assert '~ #2 tools/call "tool-1": text-changed' in changed.output
    assert "\x1b" not in changed.output

    left_out = diff(old, new, "--ignore", "/content/0/text", "--ignore", "/contents")

    assert left_out.exit_code == 0
    assert left_out.stderr == "note: --ignore /contents left nothing out\n"

    missing = diff(old, tmp_path / "c.json")

    assert missing.exit_code == 3
    assert "there is no such cassette" in missing.stderr

    new.write_text("{}")

    assert diff(old, new).exit_code == 3


def test_the_null_device_is_a_cassette_without_calls(tmp_path: Path) -> None:
    """It stands for a file that git adds or deletes."""
    old = write(tmp_path / "a.json", "x")
    added = diff(os.devnull, old)
    deleted = diff(old, os.devnull)

    assert (added.exit_code, deleted.exit_code) == (1, 1)
    assert '+ #1 tools/call "tool-0"' in added.output
    assert '- #1 tools/call "tool-0"' in deleted.output


def test_other_formats(tmp_path: Path) -> None:
    """JSON for programs, Markdown for people; not both."""
    old = write(tmp_path / "a.json", "x")
    new = write(tmp_path / "b.json", "z")
    data = json.loads(diff(old, new, "--json").stdout)

    assert (data["same"], data["verdict"]) == (False, "text-changed")

    markdown = diff(old, new, "--markdown").output.splitlines()

    assert markdown[:3] == ["**1 of 1 interaction differs: 1 changed**", "", "```diff"]


def said(path: Path, *results: Any, key: str = "ask_sure") -> Path:
    """Write a cassette of a call that asks once under this key, and of calls with these results."""
    state = f"a-state-0123456789-{key}"
    asking = [
        (tool("deploy"), asks(key, state=state, words="Sure?")),
        (retry(tool("deploy"), {key: YES}, state=state), text("done")),
    ]

    calls = [(tool(f"tool-{number}"), result) for number, result in enumerate(results)]
    path.write_bytes(encode_cassette(cassette_of(*asking, *calls)))

    return path


def listed(member: str, unit: str = "EUR") -> Any:
    """Return a result with three rows, which its text repeats as the SDKs have it."""
    rows = {"rows": [{member: number, "unit": unit} for number in range(3)]}
    return {
        "structuredContent": rows,
        "content": [{"type": "text", "text": json.dumps(rows)}],
    }


def test_what_changed_everywhere_is_told_once(tmp_path: Path) -> None:
    """A member of all rows, and the text that repeats it; such a place is ignored."""
    old = said(tmp_path / "a.json", listed("total"))
    new = said(tmp_path / "b.json", listed("total", "USD"), key="sure")
    rows = "/structuredContent/rows/*"
    text_ = "and again at /content/0/text#json/rows/*"

    shown = diff(old, new).output

    assert [line.strip() for line in shown.splitlines()[2:-1]] == [
        '~ #1 tools/call "deploy": key-changed',
        "turn 1 key-changed: ask_sure → sure",
        '~ #2 tools/call "tool-0": text-changed',
        f"response {rows}/unit: text-changed in 3 places, {text_}/unit",
        '- "EUR"',
        '+ "USD"',
    ]

    ignored = [f"{rows}/unit", "/content/*/text#json/rows/*/unit"]
    left_out = diff(old, new, *repeated("--ignore", ignored))

    assert "1 of 2 interactions differs" in left_out.output
    assert left_out.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "b", "--json", "--markdown"), "--json and --markdown don't go together"),
        (("a", "b", "--ignore", "content"), "--ignore 'content' is not a JSON Pointer"),
        (("a",), "diff needs two cassettes"),
        (("a", "b", "--git"), "the seven arguments of git"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], words: str) -> None:
    """What can't be meant is said on stderr."""
    done = diff(*arguments)

    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_colour_is_for_terminals(
    tmp_path: Path, no_color: str, is_coloured: Any
) -> None:
    """A terminal gets colour, unless its user wants none."""
    old = write(tmp_path / "a.json", "x")
    new = write(tmp_path / "b.json", "z")
    terminal, side = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    with os.fdopen(side, "wb", buffering=0) as file:
        command = (*PROGRAM, "diff", str(old), str(new))
        process = start(command, file, file, environment)
        code = process.wait(timeout=HANGS_S)

    shown = os.read(terminal, 65536).decode()
    os.close(terminal)

    assert code == 1
    assert ("\x1b[31m" in shown) is is_coloured
    assert '- "x"' in shown


def test_the_library_compares_with_typed_results(tmp_path: Path) -> None:
    """What the command shows, as values."""
    old = write(tmp_path / "a.json", "x", "y")
    new = write(tmp_path / "b.json", "x", "z")

    comparison = mrtr_cassette.diff(old, str(new))

    assert not comparison.is_same

    first, second = comparison.interactions

    assert (first.mark, second.mark, second.verdict) == ("=", "~", "text-changed")

    changes: list[mrtr_cassette.Change] = []
    for stage in second.stages:
        changes += stage.changes

    (change,) = changes

    assert change == mrtr_cassette.Change(
        "text-changed", "/content/0/text", '"y"', '"z"'
    )

    for spelled in ("/content", "/result/content"):
        assert mrtr_cassette.diff(old, new, ignore=[spelled]).is_same

    with pytest.raises(
        mrtr_cassette.UsageError, match="ignore 'content' is not a JSON Pointer"
    ):
        mrtr_cassette.diff(old, new, ignore=["content"])


def test_history_with_files_that_are_no_cassettes_is_shown_by_git(
    tmp_path: Path,
) -> None:
    """As text, each as it is, with the configuration of docs/diff.md, to the first commit."""
    docs = Path(__file__).parents[2] / "docs" / "diff.md"
    programs = Path(sys.executable).parent

    def git(*words: str) -> str:
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }

        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=False
        )

        assert ended.returncode == 0, ended.stderr

        return ended.stdout.decode()

    git("init", "-q")
    for line in docs.read_text().splitlines():
        if line.startswith("$ git config diff."):
            git(*shlex.split(line)[2:])

    (tmp_path / ".gitattributes").write_text("*.json diff=mrtr-cassette\n")
    path = tmp_path / "c.json"
    states: list[bytes] = []
    for word in ("first", "last"):
        states.append(write(path, word).read_bytes())

    others = {
        "empty": b"",
        "list": b"[1]\n",
        "pointer": b"version https://git-lfs.github.com\n",
    }
    for name, content in others.items():
        (tmp_path / f"{name}.json").write_bytes(content)

    for state in (states[0], b'{"version": 1, "inter', states[1]):
        path.write_bytes(state)
        git("add", ".")
        git("commit", "-q", "-m", "changed")

    shown = git("log", "-p", "--format=tformat:commit")

    assert shown.count("commit\n") == 3

    for line in (
        "+[1]",
        '-{"version": 1, "inter',
        "+version https://git-lfs.github.com",
    ):
        assert line in shown

    for word in ("first", "last"):
        assert f'+            "text": "{word}"\n' in shown

    assert "digest" not in shown
