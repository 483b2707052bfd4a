"""The demo ends well, and fails loudly where the replay differs."""

from __future__ import annotations

import asyncio

import pytest

from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.demo import run as demo


def _run() -> list[str]:
    lines: list[str] = []
    assert asyncio.run(demo.run_demo(lines.append)) == 0
    return lines


def test_every_flow_is_replayed_byte_for_byte():
    """The demo compares every exchange of every flow, and finds each the same."""
    lines = _run()
    compared = [line for line in lines if "bytes, the same" in line]
    assert len(compared) == 27
    assert all(any(f"{flow.method} {flow.name}: " in line for line in lines) for flow in demo.FLOWS)
    assert "all replayed byte for byte" in lines[-1]


def test_another_answer_ends_the_demo(monkeypatch):
    """A client that answers differently on replay ends the demo with an error."""
    flows = demo.FLOWS

    async def declining(client: demo.Client) -> list[list[demo.Turn]]:
        turns = [await client.converse(flow) for flow in demo.FLOWS]
        changed = demo.Flow("", "tools/call", "deploy", flows[1].arguments, {"confirm": {}})
        monkeypatch.setattr(demo, "FLOWS", (flows[0], changed, *flows[2:]))
        return turns

    monkeypatch.setattr(demo, "_all_flows", declining)
    with pytest.raises(demo.DemoError, match="not found in the cassette"):
        _run()


def test_other_bytes_end_the_demo(monkeypatch):
    """A replay that changes one byte ends the demo with an error that shows both."""
    reply = Player._reply

    def changed(self, node):
        found = reply(self, node)
        first = found.parts[0]
        segments = (b" ", *first.segments)
        part = type(first)(segments, first.at_ms, first.gate)
        return type(found)(
            found.status, found.headers, (part, *found.parts[1:]), found.end, found.is_event_stream
        )

    monkeypatch.setattr(Player, "_reply", changed)
    with pytest.raises(demo.DemoError, match="the replay differs"):
        _run()
