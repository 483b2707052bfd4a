from __future__ import annotations

import pytest
from builders import Answer, exchange, get, notification, refusal, sse, stream, tool
from messages import Json, text

from mrtr_cassette.core.drive.unrecorded import has_error, outcome
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.errors import SHOWN_CHARS

CALL = tool("deploy", env="prod")
REFUSED = 'error {"code":-32602,"message":"invalid state"}'


@pytest.mark.parametrize(
    ("request_", "response", "words"),
    [
        (CALL, text("done"), "HTTP 200"),
        (CALL, Answer((b"Bad Gateway",), (), 502), "HTTP 502"),
        (CALL, Answer((), (), 204), "HTTP 204"),
        (CALL, Answer((), status=0, end=End.OPEN), "no response"),
        (CALL, refusal(CALL), f"HTTP 200, {REFUSED}"),
        (CALL, Answer((refusal(CALL),), status=400), f"HTTP 400, {REFUSED}"),
        (
            CALL,
            stream(notification("notifications/message"), refusal(CALL)),
            f"HTTP 200, {REFUSED}",
        ),
        (CALL, refusal(tool("other").replace(b'"id":1', b'"id":2')), "HTTP 200"),
        (CALL, b'{"jsonrpc":"2.0","id":1,"error":null}', "HTTP 200"),
        (notification("notifications/initialized"), refusal(CALL), "HTTP 200"),
        (get("/mcp"), Answer((sse(refusal(CALL)),)), "HTTP 200"),
    ],
)
def test_outcome_is_the_status_and_the_error_of_the_request(
    request_: bytes | Request, response: Json, words: str
) -> None:
    """What a live server responded is told by its status and, if it sent one, its JSON-RPC error."""
    recorded = exchange(request_, response)

    assert outcome(recorded) == words
    assert has_error(recorded) == ("error" in words)


def test_long_error_is_shortened() -> None:
    """An outcome stays short, whatever a server says."""
    words = outcome(exchange(CALL, refusal(CALL, words="x" * 10 * SHOWN_CHARS)))

    assert words.endswith("more characters)")
    assert len(words) < 2 * SHOWN_CHARS
