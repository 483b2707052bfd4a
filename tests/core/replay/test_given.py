from __future__ import annotations

import pytest
from builders import JSON_HEADERS, Answer, response_of

from mrtr_cassette.core.replay.given import GivenOut

HASH = "ab" * 32


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (f'{{"requestState":"sha256:{HASH}"}}', f"sha256:{HASH}"),
        (f"/mcp?state=sha256%3A{HASH}", f"sha256:{HASH}"),
        ("<password:1>", "<password:1>"),
        ("\\u003cjwt:12\\u003e %3Cjwt%3A3%3E", "<jwt:3>"),
        (f'"mrtr-answer:{HASH}"', f"mrtr-answer:{HASH}"),
    ],
)
def test_what_is_played_is_given(body: str, given: str) -> None:
    """What stands for something else in a response counts from then on, in any spelling."""
    out = GivenOut("http://localhost/mcp")
    assert given not in out

    out.played(response_of(Answer((b'{"a":1}',))))
    assert given not in out
    out.played(response_of(Answer((body.encode(),))))
    assert given in out
    assert given.replace("1", "2").replace("3", "4").replace("a", "b") not in out


def test_headers_and_the_url_give_too() -> None:
    """A client knows the path and query that it is to connect to, and the headers it got."""
    out = GivenOut("http://localhost/mcp?api_key=%3Capi_key%3A1%3E")
    out.played(response_of(Answer((b"{}",), (*JSON_HEADERS, ("Location", "/x?t=<jwt:4>")))))

    assert "<jwt:4>" in out
    assert "<jwt:1>" not in out
