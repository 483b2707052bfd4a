"""Conversations as files: each is recorded, recovered, inspected and replayed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from conversations import Conversation, other_values, record, recorded_values, repeat
from goldens import cases, read_case
from harness import looped
from processes import lasting_part

from mrtr_cassette.cli import main
from mrtr_cassette.shell.files.journals import publish_journal

VARYING = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=at )\d{4}-\S+|[\d,]+(?= ms)")
"""What of an inspection differs between two recordings: the port, and times."""


@pytest.mark.parametrize("path", cases("conversations"), ids=lambda path: path.stem)
@looped
async def test_conversation_is_recorded_and_replayed(
    path: Path, tmp_path: Path, *, updates_goldens: bool
) -> None:
    """A recording is stable and whole, and its replay says the same bytes to the same client."""
    case = read_case(path)
    conversation = Conversation(case)
    cassette = tmp_path / "cassette.json"
    recovered = tmp_path / "recovered.json"
    await record(conversation, cassette, recovered)
    publish_journal(recovered)

    assert lasting_part(recovered) == lasting_part(cassette)

    await repeat(conversation, cassette, recorded_values())
    await repeat(conversation, cassette, other_values())
    if case.text("inspect") is not None:
        inspected = CliRunner().invoke(
            main, ["inspect", str(cassette)], catch_exceptions=False
        )
        said = inspected.output.replace(str(cassette), "cassette.json")
        case.expect("inspect", VARYING.sub("…", said), updates=updates_goldens)
