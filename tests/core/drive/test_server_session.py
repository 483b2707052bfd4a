"""Facts about a session with a live server: what is sent in it, and whose a pushed request is."""

from __future__ import annotations

import json

from builders import get, post, rpc, tool
from messages import compact, message

from mrtr_cassette.core.drive.server_session import ServerSession, in_session
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.lines import line_request

SESSION = ("Mcp-Session-Id", "session-0123456789")
STREAM = (("Content-Type", "text/event-stream"),)


class Owner:
    """Keeps what it gets."""

    def __init__(self) -> None:
        """Begin."""
        self.pushed: list[OpenPush] = []

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a push."""
        self.pushed.append(push)
        return None


def pushed_on(observation: Observation) -> OpenPush:
    """Have the server push something on a stream."""
    observation.response_started(200, STREAM)
    pushed = compact(message("roots/list", id="p"))
    observation.response_bytes(b"data: " + pushed + b"\n\n", 0.0)
    (push,) = observation.take_pushed()
    return push


def test_each_call_has_an_id_of_its_own_in_the_session_that_was_opened() -> None:
    """Everything else of a request stays; notifications and bodies that are no messages too."""
    session, owner = ServerSession(Recorder(seals=True)), Owner()
    first = session.request(post(rpc("initialize")), owner)
    first.response_started(200, (SESSION,))
    session.responded(first)
    second = session.request(post(tool("a"), ("Accept-Encoding", "br")), owner)
    assert [json.loads(each.call.request.body)["id"] for each in (first, second)] == [
        "mrtr-cassette-1", "mrtr-cassette-2",
    ]  # fmt: skip
    assert second.call.request.header("mcp-session-id") == SESSION[1]
    assert second.call.request.header("accept-encoding") == "identity"
    for request in (get("/mcp"), post(b"no JSON"), post(compact(message("a", id=None)))):
        assert session.request(request, owner).call.request.body == request.body
    assert in_session(post(b""), "").headers == post(b"").headers


def test_session_is_the_one_that_initialize_opened() -> None:
    """An id that comes with an error, or with another result, names none that can be used."""
    session, owner = ServerSession(Recorder(seals=True)), Owner()
    for method, status in (("server/discover", 400), ("initialize", 400), ("tools/list", 200)):
        observation = session.request(post(rpc(method)), owner)
        observation.response_started(status, (SESSION,))
        session.responded(observation)
        assert session.id == ""
    opened = session.request(post(rpc("initialize")), owner)
    opened.response_started(200, (SESSION,))
    session.responded(opened)
    assert session.id == SESSION[1]


def test_push_belongs_to_the_call_that_is_pending() -> None:
    """On the call's own stream, and on the session's where one call is pending."""
    session, call, listener = ServerSession(Recorder(seals=True), SESSION[1]), Owner(), Owner()
    listening = session.request(get("/mcp"), listener)
    pending = session.request(post(tool("a")), call)
    session.pushed(pushed_on(listening))
    assert (len(call.pushed), len(listener.pushed)) == (1, 0)
    recorded, _ = session.as_recorded(call.pushed[0])
    assert recorded.response is not None
    assert json.loads(recorded.response.body)["method"] == "roots/list"
    session.responded(pending)
    assert session.pushed(call.pushed[0]) is None


def test_answers_are_posted_in_the_session_of_the_call() -> None:
    """With what all requests of the session have, and nothing of the call."""
    session, owner = ServerSession(Recorder(seals=True), SESSION[1]), Owner()
    version = ("MCP-Protocol-Version", "2025-11-25")
    call = post(tool("a"), version, ("Mcp-Method", "tools/call"), target="/mcp?x=1")
    posted = session.post(call, b"{}", owner).call.request
    assert (posted.method, posted.target, posted.body) == ("POST", "/mcp?x=1", b"{}")
    assert posted.header("mcp-protocol-version") == version[1]
    assert posted.header("mcp-session-id") == SESSION[1]
    assert posted.header("mcp-method") == ""
    line = ServerSession(Recorder(seals=True)).post(line_request(tool("a")), b"{}", owner)
    assert line.call.request == Request("", "", (), b"{}")
