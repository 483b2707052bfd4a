from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.exchange.endpoints import EndpointPassing

PLAIN = b"event: endpoint\ndata: /messages?id=1\n\n"
REST = b"data: http://server:80/x\n\n"


def passed(*chunks: bytes, authority: str = "server:80") -> bytes:
    """Return what a client gets of a stream that comes in these chunks."""
    passing = EndpointPassing(authority)
    return b"".join(map(passing.feed, chunks)) + passing.finish()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"event: endpoint\ndata: http://server:80/messages?id=1\n\n", PLAIN),
        (b"event: endpoint\ndata: https://SERVER:80/messages?id=1\n\n", PLAIN),
        (
            b"event:endpoint\r\ndata:http://server:80/m\r\n\r\n",
            b"event:endpoint\r\ndata:/m\r\n\r\n",
        ),
        (PLAIN, PLAIN),
        *(
            (event, event)
            for event in (
                b"event: endpoint\ndata: http://elsewhere:80/messages?id=1\n\n",
                b"event: endpoint\ndata: http://server:8000/messages\n\n",
                b"event: message\ndata: http://server:80/messages\n\n",
                b": ping\n\nevent: endpoint\ndata: http://server:80/messages\n\n",
            )
        ),
    ],
)
@given(data=st.data())
def test_url_at_the_server_leads_back(event: bytes, expected: bytes, data: st.DataObject) -> None:
    """The first event loses the server's host, however it is cut; all other bytes stay."""
    raw = event + REST
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert passed(*chunks) == expected + REST


def test_nothing_waits_but_the_beginning_of_the_event() -> None:
    """What is no such event passes as it comes, and so does one without an end."""
    passing = EndpointPassing("server")

    assert passing.feed(b"ev") == b""
    assert passing.feed(b"ent: m") == b"event: m"
    assert passing.is_over
    assert passing.feed(b"event: endpoint") == b"event: endpoint"
    endless = b"event: endpoint\n" + b":" * 10_000
    assert EndpointPassing("server").feed(endless) == endless
