"""Facts about session ids in headers and in the URLs of HTTP+SSE."""

from __future__ import annotations

import pytest
from builders import post

from mrtr_cassette.core.protocol.calls import ids_given_in, session_in, session_of, without_session

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("target", "session"),
    [
        ("/messages/?session_id=mrtr-session%3A12", "mrtr-session:12"),
        ("/messages/mrtr-session:3", "mrtr-session:3"),
        (f"/messages?sessionId=sha256%3A{HASH}", f"sha256:{HASH}"),
        ("/messages?sessionId=4711", ""),
    ],
)
def test_session_is_found_in_a_url(target: str, session: str) -> None:
    """Surrogates and hashes are found, percent-encoded or not; anything else is no session."""
    assert session_in(target) == session
    assert session_of(post(b"", target=target)) == session


def test_header_comes_before_the_url() -> None:
    """A request with a session header is in that session."""
    request = post(b"", ("Mcp-Session-Id", "s"), target="/?session_id=mrtr-session:1")

    assert session_of(request) == "s"


def test_urls_differ_in_everything_but_the_session() -> None:
    """All sessions have the same URL, and a hash under another name is no session."""
    urls = [
        "/m?session_id=mrtr-session%3A1",
        "/m?session_id=mrtr-session:22",
        f"/m?session_id=sha256:{HASH}",
    ]

    assert {without_session(url) for url in urls} == {"/m?session_id=mrtr-session"}
    assert without_session("/m?session_id=4711") == "/m?session_id=4711"
    assert without_session(f"/blobs/sha256:{HASH}") == f"/blobs/sha256:{HASH}"


@pytest.mark.parametrize(
    ("url", "ids"),
    [
        ("/messages/?session_id=0f9d8c7b6a5e4d3c", ["0f9d8c7b6a5e4d3c"]),
        (
            "/m?sessionId=0f9d8c7b-6a5e4d3c&v=1&t=0123456789abcdefg",
            ["0f9d8c7b-6a5e4d3c", "0123456789abcdefg"],
        ),
        ("http://a-long-name-1.example:80/m/0f9d8c7b6a5e4d3c2b/post", ["0f9d8c7b6a5e4d3c2b"]),
        ("http://a-long-name-1.example:80/conversation-messages", []),
        ("/messages?session=4711", []),
    ],
)
def test_ids_in_the_url_that_a_server_gives(url: str, ids: list[str]) -> None:
    """A session id is long: a value of the query, or a segment of the path with a digit in it."""
    assert ids_given_in(url) == ids
