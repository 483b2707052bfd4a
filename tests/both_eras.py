"""A client of both eras that has a live server ask, and answers: `server_both_eras.py` its server."""

from __future__ import annotations

import sys
from typing import Any

from builders import get, post
from messages import CAPABLE, compact, message
from processes import PEERS

from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    Conversation,
    FinishedCall,
    LiveAsk,
    PushedAsk,
)
from mrtr_cassette.core.drive.live_session import ServerSession
from mrtr_cassette.core.protocol.jsonrpc import response_to
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import Request, channel_request, line_request
from mrtr_cassette.shell.runs.live_server import LiveServer

OVER_HTTP = (sys.executable, str(PEERS / "server_both_eras.py"))


def on_pipes(module: str) -> tuple[str, ...]:
    """Return the command that serves a Python peer on pipes."""
    program = f"import sys; sys.path.insert(0, {str(PEERS)!r})\n"
    return (
        sys.executable,
        "-c",
        f"{program}from {module} import server; server.run('stdio')",
    )


ON_PIPES = on_pipes("server_both_eras")
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ACCEPTS = ("Accept", "application/json, text/event-stream")
ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"name": "Autumn"}},
    "roots/list": {"roots": [{"uri": "file:///plans"}]},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "Leaves fall"},
        "model": "m",
    },
}
KINDS = {"elicitation": {"form": {}}, "roots": {}, "sampling": {}}


class Helpful:
    """Answers whatever the server asks, by the method of the request."""

    def reply_to_ask(self, ask: LiveAsk) -> AskAnswer:
        if isinstance(ask, PushedAsk):
            return AskAnswer(compact(ANSWERS[ask.message.method]))

        live = ask.exchange.ask
        assert live is not None
        requests = live.message.tree["result"]["inputRequests"]
        answers = {key: ANSWERS[request["method"]] for key, request in requests.items()}

        return AskAnswer(compact(answers))


async def planned(server: LiveServer, era: str, *, on_pipe: bool) -> str:
    """Call the tool that asks three times, and return the text of its result."""
    session = ServerSession(Recorder(ExchangeSealer(seals_states=True)))

    def sent(value: Any) -> Request:
        body = compact(value)
        headers = (("Mcp-Protocol-Version", era), ("Mcp-Method", value["method"]))
        more = (("Mcp-Name", "plan"),) if value["method"] == "tools/call" else ()

        return line_request(body) if on_pipe else post(body, ACCEPTS, *headers, *more)

    params: Any = {"name": "plan", "arguments": {}}
    if era == MODERN:
        params["_meta"] = CAPABLE
    else:
        about: Any = {"protocolVersion": era, "capabilities": KINDS}
        about["clientInfo"] = {"name": "test", "version": "1"}
        opening = post(compact(message("initialize", about)), ACCEPTS)
        opening = line_request(opening.body) if on_pipe else opening
        await server.follow_conversation(Conversation(opening, Helpful(), session))
        assert bool(session.id) is not on_pipe
        initialized = sent(message("notifications/initialized", id=None))
        await server.follow_conversation(Conversation(initialized, Helpful(), session))
        listening_ = (
            channel_request()
            if on_pipe
            else get("/mcp", ACCEPTS, ("Mcp-Protocol-Version", era))
        )
        await server.listen(Conversation(listening_, Helpful(), session))

    call = Conversation(sent(message("tools/call", params)), Helpful(), session)
    await server.follow_conversation(call)
    await server.close()
    assert isinstance(call.stopping_point, FinishedCall)
    assert call.stopping_point.turn == 4
    exchange = call.stopping_point.exchange
    assert exchange.response is not None
    located = response_to(exchange.call.message, exchange.response)
    assert located is not None

    return str(located.message.tree["result"]["content"][0]["text"])
