"""`merge`, and `record --rotate`, on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import JOURNAL_HEADER, converse, retry, tool
from click.testing import CliRunner, Result
from messages import asks, text, yes

from mrtr_cassette.cli import main
from mrtr_cassette.core.format.journal import encode_header, encode_line
from mrtr_cassette.core.secrets.rules import RedactionRules

STATE = "a state that the server signed"
CALL = tool("deploy")
ROUNDS = converse(
    (CALL, asks("ok", state=STATE)), (retry(CALL, yes("ok"), state=STATE), text("done"))
)


def invoke(*words: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def journals(folder: Path) -> list[Path]:
    """Write the journals of two recorders through which one call passed."""
    paths = []
    for number, exchange in enumerate(ROUNDS):
        header = replace(
            JOURNAL_HEADER,
            redaction=RedactionRules(),
            recorder=f"{number:032}",
            wall_ms=1e12 - number * 60_000,
        )
        paths.append(folder / f"{number}.journal")
        line = encode_line(replace(exchange, number=1))
        paths[-1].write_bytes(encode_header(header) + line)
    return paths


def test_merge_says_what_it_wrote_and_what_to_know(tmp_path: Path) -> None:
    """Notes come first; the output is replaced with --force only."""
    paths = journals(tmp_path)
    output = tmp_path / "c.json"

    done = invoke("merge", *paths, "-o", output)

    note, wrote = done.stderr.splitlines()
    assert note.startswith(f"note: {paths[1]}: its clock was at least 59.99")
    assert wrote == f"wrote {output}: 1 interaction of 2 recorders"
    refused = invoke("merge", *paths, "-o", output)
    assert (refused.exit_code, refused.stderr) == (
        3,
        f"error: {output}: the cassette exists; use --force to replace it\n",
    )
    assert invoke("merge", *paths, "-o", output, "--force").exit_code == 0


def test_merge_without_files_is_a_usage_error() -> None:
    """There has to be something to merge, and a place for it."""
    assert invoke("merge", "-o", "c.json").exit_code == 2
    assert invoke("merge", "a.json").exit_code == 2


def test_rotation_that_cannot_be_meant_is_a_usage_error(tmp_path: Path) -> None:
    """Before anything is recorded."""
    output = ("--output", tmp_path / "c.json", "--upstream", "http://127.0.0.1:9/mcp")
    for words, message in (
        (("--rotate", "often"), "--rotate is 'often', and neither a size nor a time"),
        (("--rotate", "1m", "--append"), "--rotate and --append don't go together"),
    ):
        refused = invoke("record", *output, *words)
        assert (refused.exit_code, message in refused.stderr) == (2, True)
    refused = invoke("record", "--stdio", "--rotate", "1m", "--", "server")
    assert (refused.exit_code, "--rotate and --stdio" in refused.stderr) == (2, True)


def test_recover_names_pieces_that_were_taken_away(tmp_path: Path) -> None:
    """And the command that makes a cassette of what there is."""
    output = tmp_path / "c.json"
    (path, _) = journals(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    header = replace(JOURNAL_HEADER, redaction=RedactionRules(), recorder="1", wall_ms=1.0, piece=2)
    (tmp_path / "c.json.journal").write_bytes(encode_header(header) + lines[1])

    refused = invoke("recover", output)

    journal = tmp_path / "c.json.journal"
    assert refused.exit_code == 3
    assert f"error: {journal}: piece 1 of {journal} was taken away" in refused.stderr
    assert refused.stderr.endswith(f"mrtr-cassette merge {journal}* FILES -o {output}\n")
