"""Facts about journals: whole lines come back, and no flipped bit goes unnoticed."""

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
    progress,
    retry,
    sse,
    tool,
    values_of,
)
from messages import asks

from mrtr_cassette.core.cassette.journal import (
    CHECKSUM_LENGTH,
    JournalContent,
    JournalHeader,
    decode_journal,
    decode_journal_header,
    decode_journal_line,
    encode_journal_header,
    encode_journal_line,
    with_checksum,
)
from mrtr_cassette.core.cassette.recorded import RecordedBy, RecordedExchange
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
STREAM = Answer((sse(b"{}"), b": \xff\n\n"), STREAM_HEADERS, end=End.OPEN)
EXCHANGES = [
    exchange(CALL, asks("ok", state="S"), number=1),
    exchange(get("/mcp?x=1", ("Accept", "é")), STREAM, number=2),
    exchange(CALL, Answer((), status=0, end=End.OPEN), number=3),
    exchange(b"\xff\x00", b"\xfe", number=4),
    exchange(rb'"\ud800"', b'"\xed\xa0\x80"', number=5),
    exchange(
        retry(CALL, {"ok": 1}, state="S"),
        Answer((b"a", b"b"), end=End.BROKEN),
        number=6,
    ),
]
LINES = [encode_journal_line(exchange) for exchange in EXCHANGES]
HEADER = JournalHeader(
    "http://localhost:8000/mcp",
    "sealed",
    "2026-08-01T00:00:00+00:00",
    "append",
    RedactionRules(("x+y",), ("pin",), ("jwt",)),
    "sealed",
    recorder="1" * 32,
    wall_ms=1.5,
)
BARE = JournalHeader("u", "verbatim", "now", "keep")


def read(*lines: bytes, header: JournalHeader = BARE) -> JournalContent:
    """Read a journal with these lines behind its header."""
    return decode_journal(encode_journal_header(header) + b"".join(lines), "j")


def known(content: JournalContent) -> dict[int, Any]:
    """Return what was read, for comparing."""
    return {
        number: values_of(exchange) for number, exchange in content.exchanges.items()
    }


KNOWN = known(read(*LINES))


@pytest.mark.parametrize("header", [HEADER, BARE])
def test_header_and_exchanges_come_back(header: JournalHeader) -> None:
    """Each is a line, and comes back as it was, with its recorder where the header names one."""
    content = read(*LINES, header=header)

    assert (content.header, content.lost) == (header, None)
    assert [line.count(b"\n") for line in (*LINES, encode_journal_header(header))] == [
        1
    ] * 7

    for number, recorded in enumerate(EXCHANGES, start=1):
        assert values_of(decode_journal_line(LINES[number - 1])) == values_of(recorded)

        named = None if header.recorder is None else RecordedBy(header.recorder, number)

        assert content.exchanges[number].recorded_by == named


def test_every_prefix_has_its_whole_lines() -> None:
    """Wherever a journal was cut, whole lines come back and the torn one is reported."""
    head = len(encode_journal_header(HEADER))
    data = encode_journal_header(HEADER) + b"".join(LINES[:3])
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    for cut in range(head - 1, len(data) + 1):
        content = decode_journal(data[:cut], "j")
        # A line is whole without the newline that ends it.
        whole = sum(end <= cut for end in ends[1:])

        assert sorted(content.exchanges) == list(range(1, whole + 1))

        rest = cut - max(end for end in ends if end <= cut) - 1
        torn = f"line {whole + 2} is incomplete ({rest:,} bytes); it is left out"

        assert content.lost == (torn if rest > 0 else None)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00" * 30,
        b'{"number":2}',
        LINES[1][:-2],
        LINES[1][1:-1],
        *(
            with_checksum(body)[:-1]
            for body in (
                b"5",
                b"[]",
                b"{}",
                b'{"continues":1}',
                b'{"number":1,"request":5}',
            )
        ),
    ],
)
def test_a_damaged_line_costs_only_itself(bad: bytes) -> None:
    """Each line that can't be read is reported, and those around it are kept."""
    content = read(LINES[0], bad + b"\n", LINES[2], b"{\n")

    assert known(content) == {1: KNOWN[1], 3: KNOWN[3]}

    lost = f"line 3 is incomplete ({len(bad)} bytes); it is left out"

    assert content.lost == f"{lost}; line 5 is incomplete (1 bytes); it is left out"


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_goes_unnoticed(bit: int) -> None:
    """One in a line costs that line, or two where it was the end of one; one in a header all."""
    whole = b"".join(LINES[:3])
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        content = read(bytes(damaged))

        assert content.lost or at == len(whole) - 1
        assert known(content).items() <= KNOWN.items()

    line = encode_journal_header(HEADER)
    for at in range(len(line) - 1):
        damaged = bytearray(line)
        damaged[at] ^= 1 << bit
        with pytest.raises(CassetteError):
            decode_journal(bytes(damaged), "j")


def test_lines_that_continue_an_exchange_are_joined_to_it() -> None:
    """What came of a stream since has the pieces, and how it stands since then."""
    events = [sse(progress(at)) for at in (1, 2, 3)]
    whole = exchange(
        get("/mcp"), Answer(tuple(events), STREAM_HEADERS, end=End.OPEN), number=7
    )

    assert whole.response is not None

    parts = [
        replace(
            whole,
            response=replace(
                whole.response, pieces=whole.response.pieces[some], end=end
            ),
            ended_ms=float(at),
            ended_after=at,
        )
        for at, (some, end) in enumerate(
            [(slice(1), End.OPEN), (slice(1, 3), End.OPEN), (slice(0), End.COMPLETE)]
        )
    ]

    first = encode_journal_line(parts[0])
    further = [encode_journal_line(part, continues=True) for part in parts[1:]]
    content = read(first, *further)

    ended = replace(whole.response, end=End.COMPLETE)
    expected = replace(whole, response=ended, ended_ms=2.0, ended_after=2)

    assert (known(content), content.lost) == ({7: values_of(expected)}, None)

    lost = "line 2 continues a response whose beginning is lost; it is left out"

    assert read(further[0])[1:] == ({}, lost)
    assert isinstance(decode_journal_line(first), RecordedExchange)


def header_with(**members: Any) -> bytes:
    """Return a header's line with other members."""
    tree = json.loads(encode_journal_header(HEADER)[:-CHECKSUM_LENGTH]) | members
    return with_checksum(json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *product(
            (
                b"",
                b'{"version":1}\n',
                b"[1] 00000000",
                b"\xff\n",
                header_with(journal="1"),
            ),
            ["^j: its first line is not a journal's"],
        ),
        *product(
            (header_with(journal=99), header_with(journal=2, piece=1)),
            [
                r"^j: journal version \d+, and this program reads version 3; publish it with the v"
            ],
        ),
        (header_with(journal=True), "^j: its first line is not a journal's"),
        (
            encode_journal_header(HEADER).replace(b"8000", b"8001"),
            "^j: its first line is damaged",
        ),
    ],
)
def test_header_that_cannot_be_meant_is_refused(line: bytes, message: str) -> None:
    """A damaged header, a nonsense value or another version is an error that names it."""
    for data in (line, line.rstrip(b"\n")):
        with pytest.raises(CassetteError, match=message):
            decode_journal_header(data, "j")
