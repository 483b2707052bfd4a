"""The demo ends well, and fails loudly where the replay differs."""

from __future__ import annotations

import re

import pytest
from builders import cassette_of, loaded, tool
from messages import text

from mrtr_cassette.demo.run import CALLS, DemoError, compare_responses, run_demo


def test_every_call_is_replayed_byte_for_byte():
    """The demo compares every response of every call, and finds each the same."""
    lines: list[str] = []
    run_demo(lines.append)

    assert all(
        any(f"{call.method} {call.name} (" in line for line in lines) for call in CALLS
    )
    assert "tools/call wipe-cache (2 turns) -> Wiped sessions" in "\n".join(lines)
    assert lines[-1].endswith("all replayed byte for byte")


def test_other_bytes_end_the_demo():
    """A response of which one byte differs ends the demo with an error that shows both."""
    recorded, changed = (
        loaded(cassette_of((tool("say"), text(word)))) for word in ("one", "two")
    )

    assert compare_responses(recorded, recorded)[0] == 1

    with pytest.raises(DemoError, match="the replay differs") as failed:
        compare_responses(recorded, changed)

    assert re.findall('"text":"(.*?)"', str(failed.value)) == ["one", "two"]
