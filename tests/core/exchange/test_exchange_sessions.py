from __future__ import annotations

import pytest
from builders import JSON_HEADERS, STREAM_HEADERS, Answer, get, post, response_of, rpc, tool

from mrtr_cassette.core.exchange.sessions import endpoint_in, listens, opened_session
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.wire.http import Headers, Request

ENDPOINT = b"event: endpoint\ndata: /messages?session_id=mrtr-session%3A7\n\n"


def test_session_is_opened_by_a_header_or_by_the_url_to_post_to() -> None:
    """Streamable HTTP names the session in a header, HTTP+SSE in its first event."""
    headers = (*JSON_HEADERS, ("Mcp-Session-Id", "mrtr-session:3"))

    assert opened_session(response_of(Answer((b"{}",), headers))) == "mrtr-session:3"
    assert opened_session(response_of(Answer((ENDPOINT,), STREAM_HEADERS))) == "mrtr-session:7"
    assert opened_session(response_of(Answer((b": hello\n\n",), STREAM_HEADERS))) == ""
    assert opened_session(response_of(Answer((b"{}",)))) == ""
    assert opened_session(None) == ""


def test_endpoint_is_the_data_of_its_event() -> None:
    """Any other event has none."""
    assert endpoint_in(ENDPOINT) == b"/messages?session_id=mrtr-session%3A7"
    assert endpoint_in(b"event: message\ndata: /messages\n\n") is None


@pytest.mark.parametrize(
    ("request_", "headers", "is_listening"),
    [
        (get("/mcp"), STREAM_HEADERS, True),
        (get("/mcp"), JSON_HEADERS, False),
        (post(rpc("subscriptions/listen")), JSON_HEADERS, True),
        (post(tool("work")), STREAM_HEADERS, False),
    ],
)
def test_stream_of_a_get_and_of_a_subscription_listens(
    request_: Request, headers: Headers, *, is_listening: bool
) -> None:
    """Both tell what other requests caused."""
    response = response_of(Answer((b"x",), headers))

    assert listens(read_call(request_), response) is is_listening
