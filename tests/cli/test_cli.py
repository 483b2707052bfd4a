"""Facts about the command line, each of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import without_digests
from commands import UPSTREAM, pinged, recorded, words_to_record
from harness import Outcome, command, looped, playing, post, read, run, run_here
from messages import JsonObject, compact, result, tool_call
from processes import PROGRAM
from standin import JSON, answering, response, upstream

import mrtr_cassette
from mrtr_cassette.cli import COMMANDS
from mrtr_cassette.errors import CassetteError

# --- Usage ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("record",), "there is no server to record; give its URL"),
        (
            ("record", *UPSTREAM, "nothing"),
            "unexpected argument 'nothing'; write the command after --",
        ),
        (
            ("record", *UPSTREAM, "--force", "--append"),
            "--force and --append don't go together",
        ),
        (
            ("record", *UPSTREAM, "--ignore", "/a"),
            "--ignore and --mask need --append or --force",
        ),
        (
            ("record", *UPSTREAM, "--repeat", "never"),
            "--repeat, --history, --reads and --match need --append",
        ),
        (
            ("record", "--upstream", "localhost:8000"),
            "'localhost:8000' has no scheme; write http://",
        ),
        (("record", "--upstream", ""), "there is no server to record"),
        (
            ("record", *UPSTREAM, "--header", "no colon"),
            "--header: the value is missing; give it as --header",
        ),
        (("record", *UPSTREAM, "--header", "Na me: x"), "not valid in HTTP"),
        (("record", *UPSTREAM, "--header", ": x"), "not valid in HTTP"),
        (("record", *UPSTREAM, "--header", "X: a\nY: b"), "not valid in HTTP"),
        (("record", *UPSTREAM, "--request-state", "raw"), "'raw' is not one of"),
        (("record", *UPSTREAM, "--ca-file", "none.pem"), "none.pem"),
        (
            ("record", *UPSTREAM, "--ca-file", "/dev/null"),
            "can't use /dev/null: it has no valid certificates in PEM form",
        ),
        (("record", *UPSTREAM, "--port", "65536"), "65536 is not in the range"),
        (("record", *UPSTREAM, "--host", "192.0.2.1"), "can't listen on 192.0.2.1"),
        (("replay",), "Missing argument 'CASSETTE...'"),
        (
            ("replay", "c.json", "--ignore", "arguments/at"),
            "--ignore 'arguments/at' is not a JSON Pointer",
        ),
        (("replay", "c.json", "--ignore", ""), "--ignore '' is not a JSON Pointer"),
        (("replay", "c.json", "--repeat", "once"), "'once' is not one of"),
        (("replay", "c.json", "--pace", "slow"), "'slow' is not one of"),
        (("inspect",), "Missing argument 'CASSETTES...'"),
        (
            ("replay", "-c", "x"),
            "error: no such option '-c'; options of CLIENT go after --",
        ),
        (
            ("record", *UPSTREAM, "--prot", "1"),
            "no such option '--prot' (did you mean --port?); see mrtr-cassette record --help",
        ),
        (
            ("call", "--prot", "1"),
            "an argument of the tool is written prot=VALUE; see mrtr-cassette call --help",
        ),
        (("--frobnicate",), "error: no such option '--frobnicate'"),
        (("diff", "a"), "error: diff needs two cassettes; name them: OLD NEW"),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)
def test_wrong_usage_is_2_and_said(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """A wrong option or a wrong value is told in a line of one style, with 2, and nothing is made."""
    ended = run_here(*arguments, cwd=tmp_path)

    assert (ended.code, ended.out) == (2, "")
    assert re.fullmatch("error: [^A-Z].*", ended.err.splitlines()[-1])
    assert said.lower() in ended.err.lower()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_help(name: str) -> None:
    """`--help` explains a subcommand and ends with 0."""
    ended = run_here(name, "--help")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: mrtr-cassette {name} ")


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("record", "CLIENT"),
        ("replay", "CLIENT"),
        ("verify", "SERVER"),
        ("call", "SERVER"),
    ],
)
def test_usage_says_what_stands_after_the_dashes(command: str, program: str) -> None:
    """A client is run by record and replay, and a server by verify and call."""
    usage = run_here(command, "--help").out.partition("\n\n")[0]

    assert " ".join(usage.split()).endswith(f"[-- {program} ...]")


@looped
async def test_the_program_names_its_subcommands_and_version() -> None:
    """The program's own help lists the subcommands; `--version` is one line."""
    ended = await run("-h")

    assert ended.code == 0
    assert await run("--help") == ended

    listed = ended.out.partition("Commands:\n")[2].split("\n")

    assert {line.split()[0] for line in listed if line.startswith("  ")} >= set(
        COMMANDS
    )
    assert "..." not in "".join(listed)

    groups = re.findall(r"^([A-Z].*):$", (await run("record", "-h")).out, re.MULTILINE)

    assert groups == ["Options", "Recording", "Matching", "TLS", "Operation"]

    version = await run("--version")

    assert (version.code, version.out.split()[0]) == (0, "mrtr-cassette,")


# --- Damaged cassettes ---


def edited(change: Callable[[JsonObject], object]) -> Callable[[bytes], bytes]:
    """Change a cassette as JSON."""

    def edit(data: bytes) -> bytes:
        tree = json.loads(data)
        change(tree)
        return compact(tree)

    return edit


def final(tree: JsonObject) -> JsonObject:
    """Return the response of the first interaction."""
    found: JsonObject = tree["interactions"][0]["response"]
    return found


@looped
async def test_a_damaged_cassette_is_3_and_explained(tmp_path: Path) -> None:
    """Reading a damaged file is an error that names file and reason, as it is to a program."""
    path = await recorded(tmp_path / "c.json")
    path.write_bytes(b"")
    ended = await run("inspect", path)

    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"error: {path}: not JSON: ")

    with pytest.raises(CassetteError) as caught:
        async with playing(path):
            pass

    assert ended.err == f"error: {caught.value}\n"


@pytest.mark.parametrize("side", ["request", "response"])
@looped
async def test_a_cassette_with_a_withheld_body_is_never_played(
    tmp_path: Path, side: str
) -> None:
    """No command and no program loads it, and each names the file, the place and the way out."""
    path = await pinged(tmp_path / "c.json")
    tree = without_digests(read(path))
    del tree["interactions"][0][side]["body"]
    tree["interactions"][0][side]["text"] = f"mrtr-withheld:40:{'0' * 64}"
    path.write_bytes(compact(tree))
    why = (
        f"{path}: at /interactions/0: a body was withheld by --strict-redaction, so it "
    )
    refused = Outcome(
        3, "", f"error: {why}can't be played; restore the file, or record it again\n"
    )
    for words in (
        ("replay", path, "--port", 0),
        ("inspect", path),
        ("check", path, "--fix"),
    ):
        assert await run(*words) == refused

    with pytest.raises(CassetteError, match=re.escape(why)), mrtr_cassette.replay(path):
        raise AssertionError("unreachable because nothing is served")


@pytest.mark.parametrize("name", ["replay", "inspect", "recover"])
@looped
async def test_a_missing_cassette_is_3(tmp_path: Path, name: str) -> None:
    """What doesn't exist is named, with 3."""
    path = tmp_path / "none.json"
    ended = await run(name, path)

    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"error: {path}")
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_is_no_cassette_is_told_without_its_credentials() -> None:
    """Of a URL in the place of a cassette, no password and no query reaches the terminal."""
    fetched = "http://host/c.json: a cassette is fetched by https://"
    for name, told in (
        ("inspect", fetched),
        ("check", fetched),
        ("prune", "http://***@host/c.json?*** is the URL of a server"),
        ("replay", fetched),
    ):
        words = ("--report", "none.json") if name == "prune" else ()
        url = "http://ann:hunter2@host/c.json?token=abcdef#sig=x"
        ended = run_here(name, url, *words)

        assert (ended.code, ended.out) == (2, "")
        assert told in ended.err
        assert not any(
            secret in ended.err for secret in ("ann", "hunter2", "abcdef", "sig")
        )


# --- check ---


@looped
async def test_an_edit_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    """The command that the error names makes an edited cassette one that is read again."""
    path = await recorded(tmp_path / "c.json")

    assert (await run("check", path)) == Outcome(
        0, f"{path}: 2 interactions, all as recorded\n", ""
    )

    data = edited(lambda t: final(t)["body"].update(id=99))(path.read_bytes())
    path.write_bytes(data)
    refused = await run("check", path)

    assert refused.code == 3
    assert refused.err.endswith(
        f"accept the edit with: mrtr-cassette check {path} --fix\n"
    )
    assert path.read_bytes() == data

    accepted = await run("check", path, "--fix")

    assert accepted.code == 0
    assert accepted.err == f"{path}: 1 exchange changed; accepted\n"
    assert accepted.out == f"{path}: 2 interactions, all as recorded\n"
    assert (await run("inspect", path)).code == 0


@looped
async def test_what_was_copied_by_hand_is_told(tmp_path: Path) -> None:
    """An interaction without facts of its recording is played, and `check` says it checks none."""
    path = await recorded(tmp_path / "c.json")
    tree = json.loads(path.read_bytes())
    tree["interactions"].append(tree["interactions"][0])
    path.write_text(json.dumps(tree))
    told = f"{path}: #3 was written by hand: `recording` has no digest to check it by\n"

    assert (
        await run("check", path)
    ).out == f"{path}: 3 interactions, all as recorded\n{told}"


def test_a_pointer_of_git_lfs_is_not_recorded_over(tmp_path: Path) -> None:
    """A cassette that is not fetched is no file to replace, and the error says how to fetch it."""
    path = tmp_path / "c.json"
    path.write_bytes(
        pointer := b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    )
    for words in ("check",), ("record", *UPSTREAM, "--force", "-o"):
        ended = run_here(*words, path)

        assert (ended.code, "git lfs pull" in ended.err) == (3, True)

    assert path.read_bytes() == pointer


def test_both_sides_of_a_conflict_are_merged_by_the_commands_of_the_error(
    tmp_path: Path,
) -> None:
    """What two branches recorded into one file is in it after what the error says to run."""
    path = tmp_path / "two words.json"

    def git(*words: str) -> int:
        named = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words)
        return subprocess.run(
            named, check=False, cwd=tmp_path, capture_output=True
        ).returncode

    git("init", "--initial-branch=first")
    git("commit", "--allow-empty", "--message=first")
    for branch in ("theirs", "ours"):
        git("checkout", "-b", branch, "first")
        asyncio.run(recorded(path))
        git("add", "--all")
        git("commit", "--message=recorded")

    assert git("merge", "theirs") == 1

    refused = run_here("check", path)

    assert (refused.code, refused.out) == (3, "")

    commands = refused.err.partition("merge both sides with: ")[2].partition("; or ")[0]
    found = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": found}
    subprocess.run(commands, shell=True, cwd=tmp_path, check=True, env=environment)

    assert run_here("check", path).out == f"{path}: 4 interactions, all as recorded\n"


@looped
async def test_a_secret_in_a_cassette_is_found(tmp_path: Path) -> None:
    """What the rules of redaction find is told by its place and its rule, never itself, with 1."""
    path = await recorded(tmp_path / "c.json")
    token = "ghp_" + "aB3dE5fG7h" * 3 + "123456"
    path.write_bytes(
        edited(lambda t: final(t)["body"].update(note=token))(path.read_bytes())
    )
    ended = await run("check", path, "--fix")

    assert ended.code == 1
    assert (
        f"{path}: #1, answer of turn 1, response: a secret by the rule 'github'\n"
        in ended.out
    )

    accept = (
        f"replace them by hand and accept that with: mrtr-cassette check {path} --fix\n"
    )

    assert ended.err.endswith(accept)
    assert token not in ended.err + ended.out


# --- inspect and schema ---


def test_inspect_shows_what_all_cassettes_cover(tmp_path: Path) -> None:
    """`--coverage` counts answers by tool, turn and key; with `--json` for programs."""
    path = asyncio.run(recorded(tmp_path / "c.json"))
    shown = run_here("inspect", path, path.parent, "--coverage")

    assert shown.code == 0
    assert "  turn 1, confirm: accept 2, decline 2, cancel never\n" in shown.out

    data = json.loads(run_here("inspect", path, "--coverage", "--json").out)
    (question,) = data["tools"]["deploy"]["questions"]

    assert question["decline"] == 1

    refused = run_here("inspect", path, "--coverage", "--full")

    assert (refused.code, "don't go together" in refused.err) == (2, True)


def test_inspect_fails_where_an_answer_was_tried_too_seldom(tmp_path: Path) -> None:
    """It names the questions after the report in any form; a wrong threshold is refused."""
    path = asyncio.run(recorded(tmp_path / "c.json"))
    words = ("inspect", path, "--coverage", "--markdown", "--fail-under")
    enough = run_here(*words, "decline=100")

    assert (enough.code, enough.err) == (0, "")
    assert "| deploy | 1 | confirm | 1 | 1 | never | 0 |\n" in enough.out

    never = run_here(*words, "decline=100", "--fail-under", "cancel=80")

    assert (never.code, never.out) == (1, enough.out)
    assert never.err == (
        "--fail-under cancel=80: tried on 0% of the questions, "
        "never on deploy turn 1 confirm\n"
    )

    for wrong in ("decline", "decline=101", "rejected=1", "decline=-1"):
        assert run_here(*words, wrong).code == 2

    assert run_here("inspect", path, "--fail-under", "decline=1").code == 2


def test_inspect_shows_a_cassette_in_short_whole_as_json_and_drawn(
    tmp_path: Path,
) -> None:
    """What each form says is a fact of the report; two of them at once are refused."""
    path = asyncio.run(recorded(tmp_path / "c.json"))
    short = run_here("inspect", path)
    whole = run_here("inspect", path, "--full")
    data = run_here("inspect", path, "--json")
    drawn = run_here("inspect", path, "--markdown")
    both = run_here("inspect", path, "--markdown", "--full")

    assert short.code == 0
    assert whole.code == 0
    assert data.code == 0
    assert drawn.code == 0
    assert both.code == 2
    assert "turn 1, with request state: confirm (form)\n" in short.out
    assert "branch: shares the ask of turn 1 with #1" in short.out
    assert "      asked    confirm\n        confirm?\n" in whole.out
    assert json.loads(data.out)["interactions"][0]["final"]["kind"] == "result"
    assert drawn.out.startswith("```mermaid\nsequenceDiagram\n")
    assert both.err == "error: --markdown and --full don't go together\n"

    (tmp_path / "other.json").write_bytes(path.read_bytes())
    for words in (tmp_path,), (tmp_path / "*.json",), (path, tmp_path / "other.json"):
        listed = json.loads(run_here("inspect", *words, "--json").out)

        assert [Path(facts["cassette"]).name for facts in listed] == [
            "c.json",
            "other.json",
        ]
        assert run_here("check", *words).out.count("all as recorded\n") == 2


def test_the_schema_is_the_published_one() -> None:
    """`schema` prints what stands in docs."""
    docs = Path(mrtr_cassette.__file__).parents[1] / "docs"

    assert run_here("schema") == Outcome(
        0, (docs / "cassette.schema.json").read_text(), ""
    )


# --- Size ---

LARGE = 20_000_000
SANE_KB = 400_000
"""Kilobytes that a recorder of 20 MB bodies may have in memory at most."""


MEASURED = """
import resource, signal, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGINT, lambda *_: process.send_signal(signal.SIGINT))
code = process.wait()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""Runs a program, and tells at the end how many KiB it took: no other child of ours counts."""


@looped
async def test_twenty_megabytes_pass_in_both_directions(tmp_path: Path) -> None:
    """20 MB pass through a recorder each way and are kept, within 400 MB of memory."""
    path = tmp_path / "c.json"
    text = b"x" * LARGE
    asked = compact(tool_call("x", arguments={"a": "@"})).replace(b"@", text)
    answered = compact(result({"a": "@"})).replace(b"@", text)
    async with upstream(answering(response(answered, JSON))) as server:
        words = words_to_record(path, server.url)
        measured = [sys.executable, "-c", MEASURED, *PROGRAM]
        async with command(*words, program=measured) as process:
            answer = await post(await process.listening(), asked)
            ended = await process.stopped()

        assert server.only.body == asked

    assert answer.body == answered
    assert ended.code == 0
    assert path.stat().st_size > 2 * LARGE
    assert int(ended.err.split()[-1]) < SANE_KB
