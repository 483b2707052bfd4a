"""Laws of HTTP+SSE (MCP 2024-11-05), whose servers say in an event where their clients post."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urljoin

from builders import (
    ACCEPTED,
    INITIALIZE,
    INITIALIZED,
    Conversation,
    answer,
    encode_cassette,
    get,
    hit,
    loaded,
    post,
    sent_now,
    sse,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.cassette.sessions import EndpointPassing
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End, Request

PROXY = "http://127.0.0.1:8722"
LEADS = (
    "",
    ": hello\n\n",
    "retry: 500\n\n",
    "event: ping\ndata: 2026\n\n",
    "id: 1\ndata:\n\n",
)
INSIDE = (": hello\n", "retry: 500\n", "id: 7\n")
ORDERS = (
    "event: endpoint\n{}data: {}\n\n",
    "event:endpoint\n{}data:{}\n\n",
    "data: {1}\n{0}event: endpoint\n\n",
    "{}event: endpoint\ndata: {}\n\n",
)
HOSTS = (
    "",
    "relative",
    "http://server:80",
    "http://SERVER",
    "https://server:443",
    "//server:80",
)
TARGETS = (
    "/messages",
    "/v1/messages/",
    "/messages?tenant=a",
    "/messages?session_id={}",
    "/messages?tenant=a&sid={}",
    "/v1/messages/{}",
    "/{}/messages?transport=sse",
)
# None of the short ones may be a part of a hash.
IDS = (("q7", "z9"), ("k4w1", "k4w2"), ("0123456789abcdef01", "fedcba98765432100f"))
CALL = tool("add")


class Server(NamedTuple):
    """How a server says where to post; `targets` are those of two clients."""

    lead: str
    form: str
    inside: str
    host: str
    targets: tuple[str, str]
    line_end: str

    def first(self, client: int) -> bytes:
        """Return the beginning of a client's stream."""
        url = self.host + self.targets[client]
        if self.host == "relative":
            url = self.targets[client].removeprefix("/v1/")

        text = self.lead + self.form.format(self.inside, url)
        return text.replace("\n", self.line_end).encode()


@st.composite
def servers(draw: st.DrawFn) -> Server:
    """Return a server."""
    target = draw(st.sampled_from(TARGETS))
    ids = draw(st.sampled_from(IDS))
    leads = draw(st.lists(st.sampled_from(LEADS), max_size=3))
    order = draw(st.sampled_from(ORDERS))
    inside = draw(st.lists(st.sampled_from(INSIDE), max_size=2, unique=True))
    host = draw(st.sampled_from(HOSTS))
    end = draw(st.sampled_from(("\n", "\r\n")))
    targets = (target.format(ids[0]), target.format(ids[1]))

    return Server("".join(leads), order, "".join(inside), host, targets, end)


def endpoint(stream: bytes) -> str:
    """Return where a client of the SDKs posts, which has to be on the proxy."""
    lines = stream.decode().splitlines()
    data = [
        line.partition(":")[2].strip() for line in lines if line.startswith("data:")
    ]
    url = urljoin(f"{PROXY}/v1/sse", next(text for text in data if "messages" in text))
    assert url.startswith(PROXY), url

    return url.removeprefix(PROXY)


@given(
    server=servers(),
    cuts=st.lists(st.integers(1, 80), max_size=3),
    is_kept=st.booleans(),
)
def test_every_client_posts_to_the_recorder_and_plays_its_own_session(
    *, server: Server, cuts: list[int], is_kept: bool
) -> None:
    """However its server says where to post, and whether the URL has a session id or none."""
    talk = Conversation(redacts=is_kept)
    for client in range(2):
        number = talk.stream(get("/v1/sse?tenant=a"))
        seen = talk.observation(number)
        passing = EndpointPassing(ServerOrigin("http://server:80/v1/sse"))
        got = b""
        raw = server.first(client)
        places = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
        for start, end in pairwise(places):
            chunk = passing.feed(raw[start:end])
            got += chunk
            seen.response_bytes(chunk, talk.tick())

        where = endpoint(got)
        for body in (INITIALIZE, INITIALIZED, CALL):
            posted = talk.request(post(body, target=where))
            talk.response(posted, ACCEPTED)
            if body is not INITIALIZED:
                event = sse(answer(body, {"of": client}))
                seen.response_bytes(passing.feed(event), talk.tick())

        talk.end(number, End.OPEN)

    cassette = talk.cassette()
    file = encode_cassette(cassette)
    for pair in IDS:
        assert not [text for text in pair if text.encode() in file]

    player = Player(loaded(cassette))
    for client in range(2):
        stream = hit(player, get("/v1/sse?tenant=a"))
        where = endpoint(sent_now(stream))
        for body in (INITIALIZE, INITIALIZED, CALL):
            assert sent_now(hit(player, post(body, target=where))) == b""

            if body is not INITIALIZED:
                assert sent_now(stream) == sse(answer(body, {"of": client}))

        unrecorded: Request = post(tool("other"), target=where)

        assert player.respond_on_stream(unrecorded, b"{}")
