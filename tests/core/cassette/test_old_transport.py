"""Facts about recordings of HTTP+SSE as recordings of lines."""

from __future__ import annotations

import pytest
from builders import (
    ACCEPTED,
    INITIALIZED,
    Conversation,
    answer,
    cassette_of,
    get,
    loaded,
    post,
    progress,
    tool,
    with_id,
    with_token,
)
from messages import text

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.transports import (
    http_sse_over_pipes,
    is_over_old_transport,
)
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.wire.http import End

ENDPOINT = b"event: endpoint\ndata: /messages?session_id=0123456789abcdef01\n\n"
TARGET = "/messages?session_id=0123456789abcdef01"
ONE = with_id(with_token(tool("one"), "one"), "one")
TWO = with_id(with_token(tool("two"), "two"), "two")
AGAIN = with_id(tool("again"), "one")
LOGGED = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'


def session() -> Cassette:
    """Return two calls that overlap, a third with the id of the first, a log, and other HTTP."""
    talk = Conversation()
    talk.exchange(get("/health"), b"ok")
    stream = talk.stream(get("/sse"))
    talk.observation(stream).response_bytes(ENDPOINT, talk.tick())

    def say(body: bytes) -> None:
        talk.exchange(post(body, target=TARGET), ACCEPTED)

    say(INITIALIZED)
    say(ONE)
    say(TWO)
    for message in (
        progress("two"),
        LOGGED,
        progress("one"),
        answer(ONE, text("1")),
        answer(TWO, text("2")),
    ):
        talk.event(stream, message)

    say(AGAIN)
    talk.event(stream, answer(AGAIN, text("3")))
    talk.end(stream, End.OPEN)

    return loaded(talk.cassette())


def test_each_call_has_what_the_stream_says_of_it() -> None:
    """Its progress and its response, by the latest request with the id; the rest is the stream's."""
    assert is_over_old_transport(session())

    cassette = http_sse_over_pipes(session())
    said = {}
    for interaction in cassette.interactions:
        exchange = interaction.exchanges[0]
        if exchange.request.is_line:
            response = exchange.response
            said[exchange.request.body] = None if response is None else response.body

    assert said == {
        b"": LOGGED + b"\n",
        INITIALIZED: None,
        ONE: progress("one") + b"\n" + answer(ONE, text("1")) + b"\n",
        TWO: progress("two") + b"\n" + answer(TWO, text("2")) + b"\n",
        AGAIN: answer(AGAIN, text("3")) + b"\n",
    }

    skipped = [
        planned_call.why_skipped
        for planned_call in planned_interactions(cassette, is_on_pipes=True)
    ]

    assert [reason for reason in skipped if reason] == [
        "it is not part of a session, and the server accepts nothing else"
    ]


def test_other_recordings_have_no_such_sessions() -> None:
    """A stream without the event is that of a session of Streamable HTTP."""
    assert not is_over_old_transport(loaded(cassette_of((ONE, text("done")))))


def test_requests_are_not_read_again_for_each_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many calls are open when the first response comes."""
    calls = [with_id(tool("add", n=n), f"call-{n}") for n in range(20)]
    talk = Conversation()
    stream = talk.stream(get("/sse"))
    talk.observation(stream).response_bytes(ENDPOINT, talk.tick())
    for call in calls:
        talk.exchange(post(call, target=TARGET), ACCEPTED)

    for call in calls:
        talk.event(stream, answer(call, text("done")))

    talk.end(stream, End.OPEN)
    cassette = loaded(talk.cassette())
    read = []

    def call_of(exchange: RecordedExchange) -> Call:
        read.append(exchange.number)
        return read_call(exchange.request)

    monkeypatch.setattr(RecordedExchange, "call", property(call_of))
    http_sse_over_pipes(cassette)

    assert len(calls) <= len(read) <= 3 * len(calls)
