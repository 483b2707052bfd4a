"""Facts about a live server that our own commands use: what is sent, pushed and answered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import FixedScript, get, post, tool
from harness import looped
from messages import input_required, message, result
from standin import (
    PushingServer,
    Script,
    Upstream,
    Visit,
    chunk,
    event,
    json_response,
    response,
    stream_head,
    upstream,
)
from yarl import URL

from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    AskedOtherwise,
    Conversation,
    FinishedCall,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.drive.live_session import ServerSession
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import line_request
from mrtr_cassette.errors import UpstreamError
from mrtr_cassette.shell.http.client import connected_client
from mrtr_cassette.shell.pipes.upstream import pipe_upstream
from mrtr_cassette.shell.runs.live_server import LiveServer

CALL = tool("deploy", env="prod")
SESSION = ("Mcp-Session-Id", "live-session-0123456789")
QUESTION = message("elicitation/create", {"message": "Sure?"}, id="push-1")


refusing = partial(AskedOtherwise, changes=())


def session() -> ServerSession:
    """Return a session that the server has opened."""
    return ServerSession(Recorder(ExchangeSealer(seals_states=True)), SESSION[1])


@asynccontextmanager
async def live(
    script: Script, **options: Any
) -> AsyncIterator[tuple[LiveServer, Upstream]]:
    """Give a live server that does what a script says."""
    async with (
        upstream(script) as server,
        connected_client(URL(server.url).origin(), None) as client,
    ):
        live_server = LiveServer(client, server.url, **options)
        yield live_server, server
        await live_server.close()


@looped
async def test_pushed_question_is_answered_on_whatever_stream_it_stands() -> None:
    """The answer is posted in the session, and the call goes on to its result."""
    for on_session in (False, True):
        server = PushingServer(QUESTION, lambda _: {"done": 1}, on_session=on_session)
        script = FixedScript(AskAnswer(b'{"action":"accept"}'))

        live_session = session()
        async with live(server) as (live_server, seen):
            if on_session:
                await live_server.listen(
                    Conversation(get("/mcp"), FixedScript(refusing), live_session)
                )

            conversation = Conversation(post(CALL), script, live_session)
            await live_server.follow_conversation(conversation)

        assert isinstance(conversation.stopping_point, FinishedCall)
        assert server.posted == [result({"action": "accept"}, id="push-1")]

        for request in seen.received:
            assert request.head.values("mcp-session-id") == [SESSION[1]]

        (push,) = script.asks

        assert (push.turn, push.message.method) == (1, "elicitation/create")


@looped
async def test_whoever_supplies_answers_may_take_their_time() -> None:
    """What the script has no answer to is supplied, or the conversation stands there."""
    asked: list[Any] = []

    async def supply(ask: LiveAsk) -> AskAnswer:
        asked.append(ask)
        await asyncio.sleep(0)
        return AskAnswer(b"{}") if ask.via == "push" else AskAnswer(b'{"a":{}}')

    async def rounds(visit: Visit) -> None:
        body = visit.request.json
        again = "inputResponses" not in body["params"]
        reply = (
            input_required("a", id=body["id"]) if again else result({}, id=body["id"])
        )
        await visit.send(json_response(reply))

    for server in (PushingServer(QUESTION, lambda _: {}), rounds):
        conversations = []
        for supplied in (supply, None):
            async with live(server) as (live_server, _):
                conversation = Conversation(
                    post(CALL), FixedScript(NeedsAnswers), session()
                )
                await live_server.follow_conversation(conversation, supplied)
                conversations.append(conversation)

        assert isinstance(conversations[0].stopping_point, FinishedCall)
        assert isinstance(conversations[1].stopping_point, NeedsAnswers)

    assert len(asked) == 2


@looped
async def test_server_without_a_listening_stream_is_no_problem() -> None:
    """Where there is none, nothing is heard."""

    async def no_stream(visit: Visit) -> None:
        await visit.send(response(b"", status="405 Method Not Allowed"))

    async with live(no_stream) as (live_server, _):
        listening = Conversation(get("/mcp"), FixedScript(refusing), session())
        seen = await live_server.listen(listening)

        assert seen is not None
        assert seen.status == 405
        assert await live_server.listen(listening) is None


class LateServer:
    """A server whose listening stream has a head as soon as it has something to say.

    During each call it asks a question on that stream.
    """

    def __init__(self, *, answer_status: str = "202 Accepted") -> None:
        self._answer_status = answer_status
        self._listening = asyncio.Event()
        self._asked = asyncio.Event()
        self._answered = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        """Answer one request."""
        if visit.request.head.line.startswith("GET"):
            self._listening.set()
            await self._asked.wait()
            await visit.send(stream_head(), chunk(event(QUESTION)))
            await visit.left()

            return

        body = visit.request.json
        if "method" not in body:
            await visit.send(response(b"", status=self._answer_status))
            if self._answer_status.startswith("2"):
                self._answered.set()

            return

        await self._listening.wait()
        self._asked.set()
        await self._answered.wait()
        await visit.send(json_response(result({"done": 1}, id=body["id"])))


@looped
async def test_nothing_waits_for_the_head_of_a_listening_stream() -> None:
    """It may come with the first event, which is taken all the same."""
    live_session = session()
    script = FixedScript(AskAnswer(b'{"action":"accept"}'))
    async with live(LateServer(), head_limit_s=0) as (live_server, _):
        seen = await live_server.listen(
            Conversation(get("/mcp"), FixedScript(refusing), live_session)
        )
        conversation = Conversation(post(CALL), script, live_session)
        await live_server.follow_conversation(conversation)

    assert isinstance(conversation.stopping_point, FinishedCall)
    assert (len(script.asks), seen and seen.status) == (1, 200)


@looped
async def test_refused_answer_ends_its_call_at_once() -> None:
    """What a server takes no answer to never ends; it is told without waiting for that."""
    live_session = session()
    server = LateServer(answer_status="400 Bad Request")
    async with live(server, head_limit_s=0) as (live_server, _):
        await live_server.listen(
            Conversation(get("/mcp"), FixedScript(refusing), live_session)
        )
        conversation = Conversation(
            post(CALL), FixedScript(AskAnswer(b"{}")), live_session
        )
        with pytest.raises(
            UpstreamError, match="refuses the answer to its question: HTTP 400"
        ):
            await live_server.follow_conversation(conversation)


@looped
async def test_ping_is_answered_and_asks_nothing() -> None:
    """On whatever stream it comes; its id goes back as it came, and the script hears nothing."""
    ping = message("ping", id="ping-of-" + SESSION[1])
    for on_session in (False, True):
        server = PushingServer(ping, lambda _: {"done": 1}, on_session=on_session)
        live_session = session()
        script = FixedScript(refusing)
        async with live(server) as (live_server, _):
            if on_session:
                await live_server.listen(
                    Conversation(get("/mcp"), FixedScript(refusing), live_session)
                )

            conversation = Conversation(post(CALL), script, live_session)
            await live_server.follow_conversation(conversation)

        assert isinstance(conversation.stopping_point, FinishedCall)
        assert (server.posted, script.asks) == ([result({}, id=ping["id"])], [])


@looped
async def test_silent_server_gives_no_response() -> None:
    """What does not come in time is an error that says how long it was waited for."""

    async def silent(visit: Visit) -> None:
        await visit.left()

    async with live(silent, call_limit_s=0.01) as (live_server, _):
        with pytest.raises(
            UpstreamError, match=r"gave no response: no complete response within 0.01 s"
        ):
            await live_server.follow_conversation(
                Conversation(post(CALL), FixedScript(refusing), session())
            )


AT_ONCE = """
import json, sys
asked = json.loads(sys.stdin.readline())
progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}
response = {"jsonrpc": "2.0", "id": asked["id"], "result": {}}
sys.stdout.write("".join(json.dumps(said) + "\\n" for said in (progress, progress, response)))
sys.stdout.flush()
sys.stdin.readline()
"""


@looped
async def test_lines_that_come_at_once_are_lines_of_their_own(tmp_path: Path) -> None:
    """However the pipe hands them on, each is a piece of the response."""
    program = tmp_path / "server.py"
    program.write_text(AT_ONCE)
    conversation = Conversation(
        line_request(CALL),
        FixedScript(refusing),
        ServerSession(Recorder(ExchangeSealer(seals_states=True))),
    )
    async with pipe_upstream(
        [sys.executable, str(program)],
        1000,
        ExchangeSealer(seals_states=True).add_settings,
    ) as server:
        await LiveServer(server, "the server").follow_conversation(conversation)

    assert isinstance(conversation.stopping_point, FinishedCall)

    response_ = conversation.stopping_point.exchange.response

    assert response_ is not None
    assert [piece.raw.count(b"\n") for piece in response_.pieces] == [1, 1, 1]
