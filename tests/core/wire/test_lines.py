from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.wire.http import (
    SESSION_HEADER,
    Line,
    LineFramer,
    channel_request,
    line_request,
    lines_in,
    opens_channel,
)

LONGEST = 12

a_text = st.lists(st.sampled_from([b"\n", b"\r\n", b"{}", b"a", b"", b"\xff", b"long" * 4])).map(
    b"".join
)


def lines_of(*chunks: bytes, longest: int = LONGEST) -> list[Line]:
    """Return the lines of bytes that come in these chunks; parts of a long line are joined."""
    framer = LineFramer(longest)
    lines = [line for chunk in chunks for line in framer.feed(chunk)] + framer.finish()
    joined: list[Line] = []
    for line in lines:
        before = joined[-1] if joined else None
        if before is not None and not before.is_whole and not before.raw.endswith(b"\n"):
            joined[-1] = Line(before.raw + line.raw, is_whole=False)
        else:
            joined.append(line)
    return joined


@given(a_text, st.lists(st.integers(0, 40)))
def test_any_split_into_reads_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    """However bytes are cut, the lines are the same, and together they are the bytes."""
    places = sorted({min(cut, len(data)) for cut in cuts})
    chunks = [
        data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)
    ]

    lines = lines_of(*chunks)

    assert lines == lines_of(data)
    assert b"".join(line.raw for line in lines) == data
    assert all(line.is_whole == (len(line.raw) <= LONGEST) for line in lines)
    assert all(line.raw.endswith(b"\n") for line in lines[:-1])
    assert all(line.raw.count(b"\n") <= 1 for line in lines)


def test_line_comes_when_it_ends() -> None:
    """Nothing is told of a line before its end; only the last one may lack it."""
    framer = LineFramer(100)

    assert framer.feed(b"one\ntw") == [Line(b"one\n")]
    assert framer.feed(b"o") == []
    assert framer.feed(b"\n\nrest") == [Line(b"two\n"), Line(b"\n")]
    assert framer.finish() == [Line(b"rest")]
    assert framer.finish() == []


def test_line_that_is_too_long_passes_in_parts() -> None:
    """A line longer than the limit is not held; the next one is whole again."""
    framer = LineFramer(4)

    assert framer.feed(b"1234") == []
    assert framer.feed(b"5") == [Line(b"12345", is_whole=False)]
    assert framer.feed(b"6") == [Line(b"6", is_whole=False)]
    assert framer.feed(b"7\n123\n") == [Line(b"7\n", is_whole=False), Line(b"123\n")]


@pytest.mark.parametrize(
    ("line", "body"),
    [(b"{}\n", b"{}"), (b"{}\r\n", b"{}"), (b"{}", b"{}"), (b"\n", b"\n"), (b" \n", b" ")],
)
def test_request_is_the_line_without_its_end(line: bytes, body: bytes) -> None:
    """A request has the line's bytes, and never none: that is the beginning of the channel."""
    request = line_request(line)

    assert request.body == body
    assert request.is_line
    assert request.headers == ()
    assert not opens_channel(request)


def test_channel_has_a_request_of_its_own() -> None:
    """The beginning of a channel is a request without a body; a session is named in it."""
    request = channel_request("mrtr-session:1")

    assert opens_channel(request)
    assert request.header(SESSION_HEADER) == "mrtr-session:1"


def test_lines_that_came_together_are_told_apart() -> None:
    """Each keeps its end, and together they are the bytes."""
    for raw, lines in (
        (b"", [b""]),
        (b"a\n", [b"a\n"]),
        (b"a", [b"a"]),
        (b"a\r\n\n\rb\nc", [b"a\r\n", b"\n", b"\rb\n", b"c"]),
    ):
        assert list(lines_in(raw)) == lines
        assert b"".join(lines) == raw
