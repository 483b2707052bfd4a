"""`merge` on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import JOURNAL_HEADER, converse, retry, tool
from click.testing import CliRunner, Result
from messages import asks, text, yes

from mrtr_cassette.cli import main
from mrtr_cassette.core.cassette.journal import encode_header, encode_line
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
            wall_ms=1e12,
            upstream=f"http://10.0.0.{number}/mcp",
        )
        paths.append(folder / f"{number}.journal")
        line = encode_line(replace(exchange, number=1))
        paths[-1].write_bytes(encode_header(header) + line + b"torn" * number)
    return paths


def test_merge_says_what_it_wrote_and_what_to_know(tmp_path: Path) -> None:
    """Notes come first; the output is replaced with --force only."""
    paths = journals(tmp_path)
    output = tmp_path / "c.json"

    done = invoke("merge", *paths, "-o", output)

    note, wrote = done.stderr.splitlines()
    assert note == f"note: {paths[1]}: line 3 is not whole (4 bytes); it is left out"
    assert wrote == f"wrote {output}: 1 interaction of 2 recorders"
    refused = invoke("merge", *paths, "-o", output)
    assert (refused.exit_code, refused.stderr) == (
        3,
        f"error: {output}: the cassette exists; use --force to replace it\n",
    )
    assert invoke("merge", *paths, "-o", output, "--force").exit_code == 0
