"""The demo ends well, and fails loudly where the replay differs."""

from __future__ import annotations

import asyncio
import re

import pytest

from mrtr_cassette.demo.run import CALLS, DemoError, Received, check_same, run_demo


def test_every_call_is_replayed_byte_for_byte():
    """The demo compares every exchange of every call, and finds each the same."""
    lines: list[str] = []
    assert asyncio.run(run_demo(lines.append)) == 0
    compared = [line for line in lines if "bytes, the same" in line]
    assert len(compared) == 27
    assert all(any(f"{call.method} {call.name}: " in line for line in lines) for call in CALLS)
    assert "all replayed byte for byte" in lines[-1]


def test_other_bytes_end_the_demo():
    """A response of which one byte differs ends the demo with an error that shows both."""
    recorded = Received(200, b'{"result":{}}', {}, None)
    check_same(CALLS[0], recorded, recorded)
    changed = recorded._replace(body=b' {"result":{}}')
    with pytest.raises(DemoError, match="the replay differs") as failed:
        check_same(CALLS[0], recorded, changed)
    assert re.findall("b'(.*)'", str(failed.value)) == ['{"result":{}}', ' {"result":{}}']
