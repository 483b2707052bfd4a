"""A law: a live server gets its own values back, whatever is in them and wherever they stand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    loaded,
    post,
    push_on,
    respond,
    retry,
    rpc,
    show,
    stream,
    tool,
    with_id,
    within,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import YES, Json, asks, result, text
from pushing import elicit
from tasking import created, state
from verifying import verifier_for

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.drive.conversation import Conversation as LiveConversation
from mrtr_cassette.core.drive.conversation import ToolList
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    other_request_of_client,
    resuming_request,
)
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.secrets.credentials import Credentials, UserSettings
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules

CREDENTIAL = "a-credential-of-the-user-9876"
SECRET = "ghp_" + "aB3dE6gH9" * 4
RELATED = "io.modelcontextprotocol/related-task"


@dataclass(frozen=True)
class Server:
    """The values that a server makes up: each has its name, and these parts."""

    name: str
    parts: dict[str, tuple[str, ...]]

    @property
    def session(self) -> str:
        return f"{self.name}-session-0123456789abcdef"

    def value(self, place: str) -> str:
        """Return the value that stands at a place."""
        known = {
            "session": self.session,
            "state": f"{self.name}-request-state-0123456789",
            "secret": SECRET,
            "credential": CREDENTIAL,
            "quote": '"ü',
        }

        parts = [known[part] for part in self.parts[place]]
        return "/".join([*parts, f"{self.name[:1]}-{place}"])


PLACES = ("state", "cursor", "push", "key", "task", "task-key", "event")


def servers(name: str, *parts: str) -> st.SearchStrategy[Server]:
    """Return servers whose values have any of these parts."""
    some = st.lists(st.sampled_from(parts), max_size=2, unique=True).map(tuple)
    return st.fixed_dictionaries(dict.fromkeys(PLACES, some)).map(
        lambda parts_of: Server(name, parts_of)
    )


LIST = rpc("tools/list")
ASKING = tool("ask")
PUSHING = tool("push")
BUILD = with_id(tool("build"), 7)
STATE_ISSUED = tool("first")


def opening(server: Server) -> tuple[bytes, Answer]:
    """Return what opens a session."""
    request = rpc("initialize", {"capabilities": {}}, number=0)
    headers = (*JSON_HEADERS, ("Mcp-Session-Id", server.session))
    return request, Answer((answer(request, {"serverInfo": {}}),), headers)


def earlier_state(server: Server) -> Json:
    """Return an ask with the state that other values may have in them."""
    return asks("k", state=f"{server.name}-request-state-0123456789")


def recorded(server: Server) -> Cassette:
    """Return a recording of every kind of conversation with a server."""
    talk = Conversation(redacts=True)

    def say(request: bytes, response: Json) -> None:
        talk.exchange(within(server.session, request), response)

    request, response = opening(server)
    talk.exchange(request, response)
    say(STATE_ISSUED, earlier_state(server))
    say(LIST, {"tools": [], "nextCursor": server.value("cursor")})
    say(rpc("tools/list", {"cursor": server.value("cursor")}), {"tools": []})
    question = asks(server.value("key"), state=server.value("state"), words="Sure?")
    say(ASKING, question)
    say(
        retry(ASKING, {server.value("key"): YES}, state=server.value("state")),
        text("done"),
    )

    pushing = talk.stream(within(server.session, PUSHING))
    talk.event(pushing, elicit(server.value("push")))
    related = {"action": "accept", "_meta": {RELATED: {"taskId": server.session}}}
    post_of = result(related, id=server.value("push"))
    body = json.dumps(post_of).encode()
    talk.exchange(within(server.session, body), Answer((), (), 202))

    talk.event(pushing, answer(PUSHING, text("done")))
    talk.end(pushing)
    task = server.value("task")
    key = server.value("task-key")
    say(BUILD, created(task))
    say(rpc("tasks/get", {"taskId": task}, 8), state(task, "input_required", key))
    say(rpc("tasks/update", {"taskId": task, "inputResponses": {key: YES}}, 9), {})
    say(
        rpc("tasks/get", {"taskId": task}, 10),
        state(task, "completed", result=text("built")),
    )

    return loaded(talk.cassette(), "c.json")


def params_of(request: Any) -> Json:
    """Return the params of what was sent."""
    return json.loads(request.body)["params"]


class Driver:
    """Verifies a cassette, one interaction after the other."""

    def __init__(self, cassette: Cassette) -> None:
        self.verifier: Any = verifier_for(
            cassette,
            token_of=lambda _, secret: sha256_of(secret)[:24],
        )

        self.verifier.sessions.add_settings(
            UserSettings(headers=(("Authorization", f"Bearer {CREDENTIAL}"),))
        )
        self._plan = iter(planned_interactions(cassette))

    def begin(self) -> Any:
        """Begin the next interaction, which is not skipped."""
        running = self.verifier.begin_interaction(next(self._plan))
        assert hasattr(running, "conversation"), running.reason
        return running

    def run(self, *responses: Json) -> list[Any]:
        """Have a server give these responses, of which none is left; return what was sent."""
        running = self.begin()
        sent = [respond(running.conversation, response) for response in responses]
        assert running.conversation.next_request() is None
        assert self.verifier.end_interaction(running).verdict in ("same", "key-changed")

        return sent


WORDS = ("session", "state", "quote")


@given(servers("recorded", *WORDS), servers("live", *WORDS, "secret", "credential"))
def test_a_live_server_gets_its_own_values_back(old: Server, live: Server) -> None:
    """States, cursors, ids of what it pushes, keys, tasks and sessions go back as they came."""
    driver = Driver(recorded(old))
    driver.run(opening(live)[1])
    driver.run(earlier_state(live))
    driver.run({"tools": [], "nextCursor": live.value("cursor")})
    (page,) = driver.run({"tools": []})

    assert params_of(page)["cursor"] == live.value("cursor")
    assert page.header("mcp-session-id") == live.session

    question = asks(live.value("key"), state=live.value("state"), words="Sure?")
    _, again = driver.run(question, text("done"))

    assert params_of(again)["requestState"] == live.value("state")
    assert params_of(again)["inputResponses"] == {live.value("key"): YES}

    running = driver.begin()
    observation = running.conversation.next_request()
    push = push_on(observation, elicit(live.value("push")))
    posted = json.loads(
        running.conversation.session.give_push_to_owner(push).call.request.body
    )

    assert posted["id"] == live.value("push")
    assert posted["result"]["_meta"] == {RELATED: {"taskId": live.session}}

    show(observation, lambda body: stream(answer(body, text("done"))))
    running.conversation.response_received(observation)

    assert driver.verifier.end_interaction(running).verdict == "same"

    task = live.value("task")
    key = live.value("task-key")
    sent = driver.run(
        created(task),
        state(task, "input_required", key),
        {},
        state(task, "completed", result=text("built")),
    )

    assert [params_of(request)["taskId"] for request in sent[1:]] == [task] * 3
    assert params_of(sent[2])["inputResponses"] == {key: YES}


@given(servers("live", *WORDS, "secret", "credential"))
def test_what_is_listed_and_resumed_has_the_live_values(live: Server) -> None:
    """The cursor of a list of tools, and the id of the event after which a stream is resumed."""
    redactor = Redactor(RedactionRules(), lambda _, secret: sha256_of(secret)[:24])
    sealer = ExchangeSealer(
        seals_states=True, redactor=redactor, credentials=Credentials(redactor)
    )
    sealer.add_settings(
        UserSettings(headers=(("Authorization", f"Bearer {CREDENTIAL}"),))
    )
    session = ServerSession(Recorder(sealer))
    first, answered = opening(live)
    respond(LiveConversation(post(first), None, session), answered)
    respond(LiveConversation(post(STATE_ISSUED), None, session), earlier_state(live))

    tools = ToolList(other_request_of_client(post(PUSHING), "tools/list"), session)
    respond(tools, {"tools": [], "nextCursor": live.value("cursor")})

    assert params_of(respond(tools, {"tools": []}))["cursor"] == live.value("cursor")

    calling: Any = LiveConversation(post(PUSHING), None, session).next_request()
    calling.response_started(200, STREAM_HEADERS)
    calling.response_bytes(f"id: {live.value('event')}\ndata:\n\n".encode(), 0.0)
    rest = resuming_request(calling)

    assert rest is not None
    assert rest[0].header("last-event-id") == live.value("event")
    assert rest[0].header("mcp-session-id") == live.session
