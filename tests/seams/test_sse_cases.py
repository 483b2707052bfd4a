"""Event streams as files: framed whole, byte by byte, and cut at every place."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import framed
from goldens import as_bytes, cases, read_case, shown

from mrtr_cassette.core.wire.sse import read_event


@pytest.mark.parametrize("path", cases("sse"), ids=lambda path: path.stem)
def test_stream_is_framed_however_it_is_cut(
    path: Path, *, updates_goldens: bool
) -> None:
    """Events and rest are as the file says, make up the input, and don't depend on the cut."""
    case = read_case(path)
    raw = as_bytes(case.text("stream") or "")
    events, rest = framed(raw)

    assert b"".join(events) + rest == raw
    assert framed(*(raw[at : at + 1] for at in range(len(raw)))) == (events, rest)

    for cut in range(len(raw) + 1):
        assert framed(raw[:cut], raw[cut:]) == (events, rest)

    lines = []
    for number, event in enumerate(events):
        data = read_event(event, first=number == 0).data
        lines.append(f"event {shown(event)}\n")
        lines.append("no data\n" if data is None else f"data  {shown(data)}\n")

    lines.append(f"rest  {shown(rest)}\n" if rest else "")
    case.expect("events", "".join(lines), updates=updates_goldens)
