from __future__ import annotations

from typing import Any

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
    with_id,
    with_token,
)
from messages import SUBSCRIPTION_KEY, text

from mrtr_cassette.core.cassette.lookup import caller_values
from mrtr_cassette.core.protocol.jsonrpc import Message, message_in
from mrtr_cassette.core.replay.reply import EchoSources, Part, Reply, build_reply
from mrtr_cassette.core.replay.timelines import NO_WAITS, PieceArrival
from mrtr_cassette.core.wire.http import End, Response

CALL = with_token(tool("deploy"), 1)
DONE = answer(CALL, text("done"))


def message(raw: bytes) -> Message:
    """Return a message that must be one."""
    found = message_in(raw)
    assert found is not None
    return found


def reply_of(
    asked: Message | None, recorded: Response, *, piecewise: bool = False
) -> Reply:
    """Return what to send for a recorded response that waits for nothing."""
    return build_reply(
        asked,
        recorded,
        NO_WAITS,
        started_ms=0,
        end_arrival=PieceArrival(0, 0),
        piecewise=piecewise,
        echo_sources=EchoSources((), None),
    )


def parts_of(
    response: Answer | bytes,
    *,
    request: bytes | None = CALL,
    piecewise: bool = False,
) -> tuple[Part, ...]:
    """Return the parts in which a recorded response is served."""
    recorded = response_of(response)
    asked = None if request is None else message(request)
    return reply_of(asked, recorded, piecewise=piecewise).parts


def served(
    response: Answer | bytes, caller: bytes | None, *, request: bytes | None = CALL
) -> bytes:
    """Return the bytes that a caller gets."""
    parts = parts_of(response, request=request)
    return b"".join(filled(part, caller) for part in parts)


def filled(part: Part, caller: bytes | None = None) -> bytes:
    """Return the bytes of a part for a caller."""
    values = caller_values(None if caller is None else message(caller))
    filled = b""
    for segment in part.segments:
        if isinstance(segment, bytes):
            filled += segment
        else:
            filled += values.spelled_value(segment.value) or segment.recorded

    return filled


OTHER = with_token(with_id(tool("deploy"), "call-7"), "t")


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (DONE, DONE.replace(b'"id":1', b'"id":"call-7"')),
        (
            DONE.replace(b'"id":1', b'"id" : 1.0'),
            DONE.replace(b'"id":1', b'"id" : "call-7"'),
        ),
        (
            b'{"result":{"n":1e2,"n":1,"id":1},"id":1,"jsonrpc":"2.0"}',
            b'{"result":{"n":1e2,"n":1,"id":1},"id":"call-7","jsonrpc":"2.0"}',
        ),
        (b'{"jsonrpc":"2.0","error":{"code":-32020}}', None),
        (b'{"jsonrpc":"2.0","id":null,"error":{}}', None),
        (
            b'{"jsonrpc":"2.0","id":"1","result":{}}',
            b'{"jsonrpc":"2.0","id":"call-7","result":{}}',
        ),
        (b"<html>1</html>", None),
        (b"\xff\x001", None),
        (b"", None),
    ],
)
def test_response_has_the_callers_id(recorded: bytes, expected: bytes | None) -> None:
    """The id of a response is the caller's, and every other byte the recorded one."""
    assert served(recorded, OTHER) == (recorded if expected is None else expected)
    assert served(recorded, CALL) == recorded.replace(b"1.0", b"1")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (sse(progress(1)), sse(progress("t"))),
        (sse(progress(2)), sse(progress(2))),
        (
            sse(rpc("elicitation/create", {}, number=1)),
            sse(rpc("elicitation/create", {}, number=1)),
        ),
        (
            sse(notification("n", _meta={SUBSCRIPTION_KEY: 1})),
            sse(notification("n", _meta={SUBSCRIPTION_KEY: "call-7"})),
        ),
        (
            b"id: 1\r\ndata: " + DONE + b"\r\n: 1\r\n\r\n",
            b"id: 1\r\ndata: " + with_id(DONE, "call-7") + b"\r\n: 1\r\n\r\n",
        ),
        (b": 1\n\n", b": 1\n\n"),
        (b"id: 1\ndata\n\n", b"id: 1\ndata\n\n"),
        (
            b'data: {"jsonrpc":"2.0",\ndata:"id":1,\ndata: "result":{}}\n\n',
            b'data: {"jsonrpc":"2.0",\ndata:"id":"call-7",\ndata: "result":{}}\n\n',
        ),
        (
            b'\xef\xbb\xbfdata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n',
            b'\xef\xbb\xbfdata: {"jsonrpc":"2.0","id":"call-7","result":{}}\n\n',
        ),
    ],
)
def test_event_has_the_callers_values(event: bytes, expected: bytes) -> None:
    """In an event, framing and all else survive around the caller's values."""
    assert served(Answer((event,), STREAM_HEADERS), OTHER) == expected


def test_caller_without_a_value_gets_the_recorded_one() -> None:
    """Where the caller has no token or no id, the recorded one stands."""
    bare = with_id(tool("deploy"), 7)

    assert served(stream(progress(1), DONE), bare) == sse(progress(1), with_id(DONE, 7))
    assert served(stream(progress(1), DONE), None) == sse(progress(1), DONE)
    assert served(stream(progress(1), DONE), notification("n")) == sse(
        progress(1), DONE
    )


@pytest.mark.parametrize("request_", [None, notification("n"), DONE])
def test_nothing_is_spliced_where_no_request_was_recorded(
    request_: bytes | None,
) -> None:
    """What answers no request has nothing of the caller's."""
    assert served(DONE, OTHER, request=request_) == DONE


def test_value_goes_with_the_piece_in_which_it_begins() -> None:
    """In the recorded rhythm nothing is sent before it came."""
    at = DONE.index(b"1,")

    first, second = parts_of(Answer((DONE[:at], DONE[at:])), piecewise=True)

    assert filled(first, OTHER) == DONE[:at]
    assert filled(second, OTHER) == b'"call-7"' + DONE[at + 1 :]


@pytest.mark.parametrize(
    ("caller", "subscription"),
    [(7, b'"7"'), ("x", b'"x"'), ("7", b'"7"'), (1.5, b'"1.5"')],
)
def test_subscription_id_that_is_a_string_stays_one(
    caller: Any, subscription: bytes
) -> None:
    """Where a server made a string of the id, the caller's id is put in as a string."""
    listen = rpc("subscriptions/listen", number=5)
    told = notification("n", _meta={SUBSCRIPTION_KEY: "5"})

    sent = served(stream(told), with_id(listen, caller), request=listen)

    assert b'"%b":%b' % (SUBSCRIPTION_KEY.encode(), subscription) in sent


@pytest.mark.parametrize(("spelled", "sent"), [(5, b"7"), ("5", b'"7"')])
def test_cancelled_subscription_is_the_callers(spelled: Any, sent: bytes) -> None:
    """A server that ends a subscription by a cancellation names it by the caller's id."""
    listen = rpc("subscriptions/listen", number=5)
    cancelled = stream(notification("notifications/cancelled", requestId=spelled))

    assert b'"requestId":%b}' % sent in served(
        cancelled, with_id(listen, 7), request=listen
    )


def test_acknowledgement_that_its_client_left_ends() -> None:
    """Clients that read it to its end don't wait for ever because the recorded one did not."""
    recorded = response_of(Answer((), (), 202, End.OPEN))

    assert reply_of(None, recorded).end is End.COMPLETE


def test_header_that_no_recorder_keeps_is_not_sent() -> None:
    """A stranger's cassette sets no cookie, and no framing, of a client that replays it."""
    headers = (
        ("Content-Type", "application/json"),
        ("Server", "s"),
        ("Mcp-Session-Id", "i"),
    )

    strange = (
        ("Set-Cookie", "a=b"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
    )

    recorded = response_of(
        Answer((DONE,), (*headers, *strange, ("Refresh", "0; url=/")))
    )

    assert reply_of(message(CALL), recorded).headers == headers
