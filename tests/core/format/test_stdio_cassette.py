"""A cassette that was recorded over pipes, as a file and as a journal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import JOURNAL_HEADER, answer, notification, progress, tool, with_token

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.core.format.journal import (
    decode_header,
    decode_line,
    encode_header,
    encode_line,
)
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.wire.http import NO_STATUS, End, Piece, Request, Response
from mrtr_cassette.core.wire.lines import channel_request, line_request
from mrtr_cassette.errors import CassetteError

ADD = with_token(tool("add", a=1), "t")
CLIENT = "0" * 64


def exchange_of(number: int, request: Request, *lines: bytes, end: End | None) -> RecordedExchange:
    """Return what was recorded of one request; without an end there was no response."""
    response = None
    if end is not None:
        pieces = tuple(Piece(line, number + index, number) for index, line in enumerate(lines))
        response = Response(NO_STATUS, (), pieces, end)
    return RecordedExchange(number, request, response, number, number + 5, None, None)


EXCHANGES = (
    exchange_of(1, channel_request(), b"ready\n", end=End.OPEN),
    exchange_of(
        2, line_request(ADD), progress("t") + b"\n", answer(ADD, {}) + b"\n", end=End.COMPLETE
    ),
    exchange_of(
        3, line_request(notification("notifications/initialized"), "mrtr-session:1"), end=None
    ),
    exchange_of(4, line_request(b"no json\n"), end=None),
    exchange_of(5, line_request(tool("die")), end=End.BROKEN),
)
CASSETTE = Cassette(
    path="f",
    upstream="python server.py",
    request_state="sealed",
    redaction=None,
    seals_answers=False,
    recorded_at="2026-08-01T00:00:00+00:00",
    tool="test",
    interactions=tuple(
        RecordedInteraction(number, (exchange,), None, is_orphan=False)
        for number, exchange in enumerate(EXCHANGES, start=1)
    ),
    transport="stdio",
    client=CLIENT,
)


def values_of(exchange: RecordedExchange) -> tuple[Any, ...]:
    """Return what can be compared of an exchange."""
    return exchange.number, exchange.request, exchange.response, exchange.started_ms


def test_file_gives_back_what_was_recorded() -> None:
    """Requests, lines, ends, sessions and the client come back from a file."""
    cassette = load(dump(CASSETTE), "f")

    assert cassette.transport == "stdio"
    assert cassette.client == CLIENT
    assert [values_of(each.exchanges[0]) for each in cassette.interactions] == [
        values_of(exchange) for exchange in EXCHANGES
    ]


def test_file_has_no_http() -> None:
    """A cassette of pipes has lines, and no member that only HTTP gives a meaning."""
    tree = json.loads(dump(CASSETTE))

    assert tree["transport"] == "stdio"
    assert tree["interactions"][0] == {
        "request": {},
        "elicitation_turns": [],
        "response": {"end": "open", "lines": [{"text": "ready\n"}]},
    }
    assert tree["interactions"][1]["request"] == {"body": json.loads(ADD)}
    assert [line["data"]["jsonrpc"] for line in tree["interactions"][1]["response"]["lines"]] == [
        "2.0",
        "2.0",
    ]
    assert tree["interactions"][2]["request"]["session"] == "mrtr-session:1"
    assert tree["interactions"][3] == {"request": {"text": "no json"}, "elicitation_turns": []}
    assert tree["interactions"][4]["response"] == {"end": "broken"}
    assert tree["recording"]["client"] == CLIENT


def test_journal_gives_back_what_was_recorded() -> None:
    """A journal has the same exchanges, and says what is recorded, and for whom."""
    header = replace(JOURNAL_HEADER, transport="stdio", client=CLIENT)

    assert decode_header(encode_header(header), "f") == header
    for exchange in EXCHANGES:
        assert values_of(decode_line(encode_line(exchange))) == values_of(exchange)


@pytest.mark.parametrize(
    ("transport", "place", "value", "reason"),
    [
        ("stdio", ("request", "http"), {"method": "POST", "path": "/", "headers": {}}, "no HTTP"),
        ("stdio", ("response", "status"), 200, "no HTTP"),
        ("stdio", ("response", "headers"), {}, "no HTTP"),
        (None, ("request", "http"), None, "field required"),
    ],
)
def test_transport_says_whether_there_is_http(
    transport: str | None, place: tuple[str, str], value: Any, reason: str
) -> None:
    """Members of HTTP in a cassette of pipes are an error that names them, and so is their lack."""
    tree = json.loads(dump(replace(CASSETTE, interactions=CASSETTE.interactions[1:2])))
    del tree["recording"]["exchanges"][:]
    tree["transport"] = transport
    tree["interactions"][0][place[0]][place[1]] = value

    with pytest.raises(CassetteError, match=f"/interactions/0/{'/'.join(place)}: .*{reason}"):
        load(json.dumps(tree).encode(), "f")
