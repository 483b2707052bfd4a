"""Facts about the list of a live server's tools."""

from __future__ import annotations

import json

from builders import as_answer, changed, post, refusal, rpc, tool
from messages import CAPABLE, Json

from mrtr_cassette.core.drive.server_session import ServerSession
from mrtr_cassette.core.drive.tool_list import ToolList, listing_beside
from mrtr_cassette.core.protocol.dialect import input_request
from mrtr_cassette.core.protocol.jsonrpc import classify
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Recorder

CALL = changed(tool("a"), "params", "_meta", to=CAPABLE)


def listed(*pages: Json) -> tuple[ToolList, list[Json]]:
    """Have a server list its tools; return what it was sent."""
    session = ServerSession(Recorder(seals=True), "session-0123456789")
    request = post(CALL, ("Mcp-Method", "tools/call"), ("Mcp-Name", "a"), ("Mcp-Param-Env", "b"))
    tools, sent = ToolList(listing_beside(request), session), []
    coming = list(pages)
    while (observation := tools.next()) is not None:
        sent.append(observation.call.request)
        given = as_answer(observation.call.request, coming.pop(0))
        observation.response_started(given.status, given.headers)
        for chunk in given.chunks:
            observation.response_bytes(chunk, 0.0)
        observation.response_ended(0.0)
        tools.responded(observation)
    return tools, sent


def test_tools_are_listed_page_after_page_as_the_client_would() -> None:
    """In the session of the call, with its `_meta`, and with headers that fit the method."""
    first = {"tools": [{"name": "a", "annotations": {"destructiveHint": True}}], "nextCursor": "2"}
    second = {"tools": [{"name": "b", "annotations": {"readOnlyHint": True}}, {"name": "c"}, 5]}
    tools, sent = listed(first, second)
    assert [tools.destroys(name) for name in "abcd"] == [True, False, False, False]
    assert [tools.only_reads(name) for name in "abcd"] == [False, True, False, False]
    bodies = [json.loads(request.body) for request in sent]
    assert [body["method"] for body in bodies] == ["tools/list"] * 2
    assert bodies[1]["params"] == {"_meta": CAPABLE, "cursor": "2"}
    for request in sent:
        assert request.header("mcp-method") == "tools/list"
        assert request.header("mcp-name") == request.header("mcp-param-env") == ""
        assert request.header("mcp-session-id") == "session-0123456789"


def test_server_that_lists_no_tools_says_nothing_of_them() -> None:
    """A refusal, and a result of another shape, are no tools."""
    for page in (refusal(CALL), {"tools": None}, b"no JSON"):
        tools, sent = listed(page)
        assert not tools.destroys("a")
        assert len(sent) == 1


def test_what_a_server_asks_meanwhile_is_not_answered() -> None:
    """Nobody is there who could: the call comes later."""
    tools = ToolList(listing_beside(post(CALL)), ServerSession(Recorder(seals=True)))
    listing = tools.next()
    assert listing is not None
    message = classify(rpc("roots/list"))
    assert message is not None
    request = input_request(message.method, message.params)
    assert tools.pushed(OpenPush(listing.number, listing.call, "roots-1", request, message)) is None


def test_hint_that_it_only_reads_outweighs_the_other() -> None:
    """The other means something only where a tool changes things."""
    both = {"destructiveHint": True, "readOnlyHint": True}
    tools, _ = listed({"tools": [{"name": "a", "annotations": both}]})
    assert not tools.destroys("a")
