from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    exchange,
    get,
    post,
    progress,
    retry,
    sse,
    stream,
    tool,
    values_of,
)
from messages import asks, text

from mrtr_cassette.core.cassette.journal import (
    CHECKSUM_LENGTH,
    Continuation,
    JournalHeader,
    decode_header,
    decode_line,
    encode_header,
    encode_line,
    joined,
    with_checksum,
)
from mrtr_cassette.core.cassette.recorded import RecordedBy, RecordedExchange
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")

STREAM = Answer((sse(b"{}"), b": \xff\n\n"), STREAM_HEADERS, end=End.OPEN)


@pytest.mark.parametrize(
    "recorded",
    [
        exchange(CALL, text("done")),
        exchange(b"\xff\x00", b"\xfe"),
        exchange(rb'"\ud800"', b'"\xed\xa0\x80"'),
        exchange(get("/mcp?x=1", ("Accept", "é")), STREAM),
        exchange(CALL, Answer((), status=0, end=End.OPEN)),
        exchange(CALL, asks("ok", state="S"), number=7),
        exchange(retry(CALL, {"ok": 1}, state="S"), Answer((b"a", b"b"), end=End.BROKEN)),
    ],
)
def test_journal_line_comes_back(recorded: Any) -> None:
    """An exchange is one line, and comes back as it was; the line cut short is refused."""
    line = encode_line(recorded)

    assert line.count(b"\n") == 1
    assert values_of(decode_line(line)) == values_of(recorded)
    for cut in range(len(line) - 1):
        with pytest.raises(ValueError, match=r"."):
            decode_line(line[:cut])


@pytest.mark.parametrize("body", [b"5", b"{}", b'{"continues":1}', b'{"number":1,"request":5}'])
def test_journal_line_of_another_shape_is_refused(body: bytes) -> None:
    """JSON that is no exchange is refused by the one documented error."""
    with pytest.raises(ValueError, match=r"."):
        decode_line(with_checksum(body))


HEADER = JournalHeader(
    "http://localhost:8000/mcp",
    "sealed",
    "2026-08-01T00:00:00+00:00",
    "append",
    RedactionRules(("x+y",), ("pin",), ("jwt",)),
    "sealed",
)
BARE = replace(HEADER, redaction=None, answers=None, existing="keep", request_state="verbatim")


NAMED = replace(HEADER, recorder="1" * 32, wall_ms=1.5)


@pytest.mark.parametrize("header", [HEADER, BARE, NAMED])
def test_header_comes_back(header: JournalHeader) -> None:
    """What a recording says of itself is one line, with or without the line's end."""
    line = encode_header(header)

    assert line.count(b"\n") == 1
    assert decode_header(line, "j") == decode_header(line[:-1], "j") == header


def header_with(**members: Any) -> bytes:
    """Return a header's line with other members; None removes one."""
    tree = json.loads(encode_header(HEADER)[:-CHECKSUM_LENGTH]) | members
    return with_checksum(json.dumps({k: v for k, v in tree.items() if v != "gone"}).encode())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", r"^j: its first line is not that of a journal"),
        (b'{"version":1}\n', r"^j: its first line is not that of a journal"),
        (b"[1] 00000000", r"^j: its first line is not that of a journal"),
        (header_with(journal="1"), r"^j: its first line is not that of a journal"),
        (header_with(journal=True), r"^j: its first line is not that of a journal"),
        (
            header_with(journal=99),
            r"^j: journal version 99, and this program reads version 3; publish it with the version",
        ),
        (
            header_with(journal=2, piece=1),
            r"^j: journal version 2, and this program reads version 3; publish it with the version",
        ),
        (encode_header(HEADER).replace(b"8000", b"8001"), r"^j: its first line is damaged"),
    ],
)
def test_header_that_cannot_be_meant_is_refused(line: bytes, message: str) -> None:
    """A damaged header, a nonsense value or another version is an error that names it."""
    with pytest.raises(CassetteError, match=message):
        decode_header(line, "j")


def test_exchange_knows_its_recorder() -> None:
    """Where the journal names one."""
    found = decode_line(encode_line(exchange(CALL, text("x"), number=4)), "r")

    assert isinstance(found, RecordedExchange)
    assert found.recorded_by == RecordedBy("r", 4)


def test_no_flipped_bit_of_a_header_goes_unnoticed() -> None:
    """Each bit counts, those of the checksum and of the line's end too."""
    line = encode_header(HEADER)
    for at, bit in product(range(len(line) - 1), range(8)):
        damaged = bytearray(line)
        damaged[at] ^= 1 << bit
        # As reading lines does it.
        with pytest.raises(CassetteError):
            decode_header(bytes(damaged).partition(b"\n")[0], "j")


LINES = [
    encode_line(exchange(CALL, asks("ok", state="S"), number=1)),
    encode_line(exchange(post(b"\xff"), STREAM, number=2)),
    encode_line(exchange(CALL, Answer((), status=0, end=End.OPEN), number=3)),
]


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_a_journal_goes_unnoticed(bit: int) -> None:
    """A flipped bit costs the line that it is in, or two where it was the end of one."""
    whole = b"".join(LINES)
    known = [values_of(decode_line(line)) for line in LINES]
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        read, lost = [], 0
        for line in lines_of(damaged):
            try:
                read.append(values_of(decode_line(line)))
            except ValueError:
                lost += 1
        assert lost or at == len(whole) - 1
        assert [values for values in known if values in read] == read


def lines_of(data: bytearray) -> list[bytes]:
    """Return lines as a file has them: only a line feed ends one."""
    return [line for line in bytes(data).split(b"\n") if line]


def test_lines_that_continue_an_exchange_are_joined_to_it() -> None:
    """What came of a stream since has the pieces, and how it stands since then."""
    whole = exchange(get("/mcp"), stream(progress(1), progress(2), progress(3), end=End.OPEN))
    assert whole.response is not None
    pieces = whole.response.pieces
    lines = [
        encode_line(
            replace(
                whole,
                response=replace(whole.response, pieces=some, end=end),
                ended_ms=float(at),
                ended_after=at,
            ),
            continues=at > 0,
        )
        for at, (some, end) in enumerate(
            [(pieces[:1], End.OPEN), (pieces[1:], End.OPEN), ((), End.COMPLETE)]
        )
    ]
    first, *further = map(decode_line, lines)

    assert isinstance(first, RecordedExchange)
    assert all(isinstance(each, Continuation) for each in further)
    assert values_of(joined(first, further)) == values_of(
        replace(
            whole,
            response=replace(whole.response, end=End.COMPLETE),
            ended_ms=2.0,
            ended_after=2,
        )
    )
    assert joined(first, ()) is first
    for line in lines:
        for at in range(len(line) - CHECKSUM_LENGTH):
            flipped = bytes([line[at] ^ 1])
            with pytest.raises(ValueError, match="checksum"):
                decode_line(line[:at] + flipped + line[at + 1 :])
