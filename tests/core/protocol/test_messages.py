from __future__ import annotations

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    answer,
    notification,
    progress,
    response_of,
    rpc,
    sse,
    stream,
    tool,
)
from messages import asks, text

from mrtr_cassette.core.protocol.jsonrpc import (
    Message,
    ask_in,
    classify,
    completed_by,
    messages_in,
    response_to,
    splice_pieces,
)
from mrtr_cassette.core.wire.http import Piece
from mrtr_cassette.core.wire.jsonbytes import Span

CALL = tool("deploy")
DONE = answer(CALL, text("done"))
ASK = answer(CALL, asks("ok", state="S"))


def message(raw: bytes) -> Message:
    """Return a message that must be one."""
    found = classify(raw)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (DONE, [(DONE, 0, 0)]),
        (Answer((DONE[:9], DONE[9:])), [(DONE, 1, 0)]),
        (Answer((b"",)), []),
        (b"<html>\n</html>", []),
        (b"no message\n", []),
        (
            Answer((progress(1) + b"\n", DONE)),
            [(progress(1) + b"\n", 0, 0), (DONE, 1, len(progress(1)) + 1)],
        ),
        (
            Answer((progress(1)[:9], progress(1)[9:] + b"\r\n" + DONE[:5], DONE[5:] + b"\n")),
            [(progress(1) + b"\r\n", 1, 0), (DONE + b"\n", 2, len(progress(1)) + 2)],
        ),
        (Answer((b"junk\n" + DONE,)), [(DONE, 0, 5)]),
        (stream(progress(1), DONE), [(progress(1), 0, 0), (DONE, 1, len(sse(progress(1))))]),
        (
            stream(progress(1), progress(22), DONE),
            [
                (progress(1), 0, 0),
                (progress(22), 1, len(sse(progress(1)))),
                (DONE, 2, len(sse(progress(1), progress(22)))),
            ],
        ),
        (Answer((b": ping\n\n", b"data\n\n", b"data: junk\n\n"), STREAM_HEADERS), []),
    ],
)
def test_messages_are_found_where_they_stand(
    response: Answer | bytes, found: list[tuple[bytes, int, int]]
) -> None:
    """Messages are found in JSON, newline-delimited JSON and event streams, with their place."""
    located = messages_in(response_of(response))

    assert [(one.message.raw, one.piece, one.offset) for one in located] == found


def test_span_of_a_message_is_placed_in_the_body() -> None:
    """A span of a message stands where its event's data line does, or nowhere across lines."""
    event = b'id: 1\ndata: {"jsonrpc":"2.0",\ndata: "id":1,"result":{}}\n\n'
    response = response_of(Answer((b": ping\n\n", event), STREAM_HEADERS))
    (located,) = messages_in(response)
    raw = located.message.raw

    def placed(part: bytes) -> bytes | None:
        at = raw.index(part)
        span = located.in_body(Span(at, at + len(part)))
        return None if span is None else response.body[span.start : span.end]

    assert placed(b'"id":1') == b'"id":1'
    assert placed(b'"2.0"') == b'"2.0"'
    assert placed(b'"2.0",\n"id"') is None


@pytest.mark.parametrize(
    ("bodies", "found"),
    [
        ([DONE], DONE),
        ([progress(1), DONE, answer(CALL, text("again"))], DONE),
        ([rpc("elicitation/create", {}, number=1), DONE], DONE),
        ([DONE.replace(b'"id":1', b'"id":1.0')], DONE.replace(b'"id":1', b'"id":1.0')),
        ([DONE.replace(b'"id":1', b'"id":"1"')], None),
        ([DONE.replace(b'"id":1', b'"id":null')], None),
        ([rpc("elicitation/create", {}, number=1)], None),
        ([], None),
    ],
)
def test_response_is_the_one_with_the_requests_id(bodies: list[bytes], found: bytes | None) -> None:
    """Only a response answers a request, whatever id a pushed request has."""
    located = response_to(message(CALL), response_of(stream(*bodies)))

    assert (None if located is None else located.message.raw) == found


NOTICE = notification("n")
PUSH = rpc("roots/list", number="p")


@pytest.mark.parametrize(
    ("response", "completed"),
    [
        (stream(NOTICE, PUSH), [NOTICE, PUSH]),
        (Answer((b": hello\n\n", sse(PUSH)), STREAM_HEADERS), [None, PUSH]),
        (Answer((NOTICE + b"\n", PUSH + b"\n")), [NOTICE, PUSH]),
        (Answer((NOTICE + b"\n" + PUSH[:9], PUSH[9:] + b"\n")), [NOTICE, PUSH]),
        (Answer((b"<", b">")), [None, None]),
    ],
)
def test_piece_completes_a_message(response: Answer, completed: list[bytes | None]) -> None:
    """A message stands in the piece with its last byte, wherever it began."""
    whole = response_of(response)

    messages = [completed_by(whole, piece) for piece in range(len(whole.pieces))]

    assert [None if each is None else each.raw.strip() for each in messages] == completed


def test_ask_is_a_response_to_a_request() -> None:
    """An ask is found as the last event of a stream too; nothing else asks."""
    found = ask_in(message(CALL), response_of(stream(progress(1), ASK)))

    assert found is not None
    assert (found.message.raw, found.piece) == (ASK, 1)
    assert (found.dialect, found.request_state) == ("2026-07-28", "S")
    assert list(found.input_requests) == ["ok"]
    assert ask_in(message(CALL), response_of(DONE)) is None
    assert (
        ask_in(message(CALL), response_of(Answer((b'{"jsonrpc":"2.0","id":1,"error":{}}',))))
        is None
    )
    assert ask_in(None, response_of(ASK)) is None
    assert ask_in(message(notification("n")), response_of(ASK)) is None


@pytest.mark.parametrize(
    ("replacements", "spliced"),
    [
        ([], [b"abc", b"def", b"ghi"]),
        ([(Span(1, 2), b"-")], [b"a-c", b"def", b"ghi"]),
        ([(Span(2, 7), b"=")], [b"ab=", b"", b"hi"]),
        ([(Span(3, 6), b"=")], [b"abc", b"=", b"ghi"]),
        ([(Span(7, 8), b"x"), (Span(0, 1), b"y")], [b"ybc", b"def", b"gxi"]),
        ([(Span(2, 4), b"="), (Span(4, 6), b"-"), (Span(6, 7), b"+")], [b"ab=", b"-", b"+hi"]),
    ],
)
def test_span_is_replaced_across_pieces(
    replacements: list[tuple[Span, bytes]], spliced: list[bytes]
) -> None:
    """What replaces a span stands in the piece where the span began."""
    pieces = tuple(Piece(raw, at, 0) for at, raw in enumerate((b"abc", b"def", b"ghi")))

    changed = splice_pieces(pieces, replacements)

    assert [piece.raw for piece in changed] == spliced
    assert [piece.at_ms for piece in changed] == [0, 1, 2]
