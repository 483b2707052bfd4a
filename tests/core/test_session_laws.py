"""Laws of sessions: whatever a client and a server said to each other, a replay says it again.

A made-up recording has up to three sessions whose calls, pushed requests, posted answers,
notifications, streams and ends come in any order.
It is replayed to the same clients: each sends its next message when it has had what it had had
before that message while recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Conversation,
    answer,
    changed,
    get,
    loaded,
    notification,
    post,
    rpc,
    sse,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import text

from mrtr_cassette.core.protocol.jsonrpc import Kind, classify
from mrtr_cassette.core.replay.delivery import Delivery, Ending, Sending
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Request, header_value
from mrtr_cassette.core.wire.sse import read_event

ACCEPTED = 202


class Sent(NamedTuple):
    """A client sends a request, the `number`th of the recording."""

    session: int
    number: int
    request: Request


class Said(NamedTuple):
    """A server says something in response to a request; None stands for the end."""

    session: int
    number: int
    piece: bytes | None


@dataclass
class Stream:
    """A response under way."""

    number: int
    request: bytes
    is_listening: bool
    is_json: bool = False


@dataclass
class Session:
    """One session while it is recorded."""

    id: str
    number: int
    pending: list[Stream] = field(default_factory=list)
    listening: Stream | None = None
    unanswered: list[bytes] = field(default_factory=list)
    is_over: bool = False
    count: int = 0

    def next_id(self) -> int:
        """Return an id for the next message; those of client and server are the same ones."""
        self.count += 1
        return self.count


class Recording:
    """A recording that grows by one step at a time."""

    def __init__(self) -> None:
        self.talk = Conversation()
        self.trace: list[Sent | Said] = []
        self.sessions: list[Session] = []

    def send(self, session: Session, request: Request) -> int:
        """Let the client of a session send a request."""
        in_session = (
            request
            if not session.id
            else Request(
                request.method,
                request.target,
                (*request.headers, ("Mcp-Session-Id", session.id)),
                request.body,
            )
        )
        number = self.talk.request(in_session)
        self.trace.append(Sent(session.number, number, request))
        return number

    def begin(self, number: int, headers: Any, status: int = 200) -> None:
        """Let a response begin."""
        self.talk.observation(number).response_started(status, headers)

    def say(self, session: Session, number: int, piece: bytes) -> None:
        """Let the server say something in a response."""
        self.talk.observation(number).response_bytes(piece, self.talk.tick())
        self.trace.append(Said(session.number, number, piece))

    def end(self, session: Session, number: int, end: End = End.COMPLETE) -> None:
        """Let a response end."""
        self.talk.end(number, end)
        if end is End.COMPLETE:
            self.trace.append(Said(session.number, number, None))

    # What can happen next

    def open(self) -> None:
        """A client opens a session."""
        session = Session("", len(self.sessions) + 1)
        self.sessions.append(session)
        request = rpc("initialize", {"clientInfo": {"name": f"c{session.number}"}}, number=0)
        number = self.send(session, post(request))
        session.id = f"{session.number}" * 32
        self.begin(number, (*JSON_HEADERS, ("Mcp-Session-Id", session.id)))
        self.say(session, number, answer(request, {"serverInfo": {"name": "s"}}))
        self.end(session, number)

    def call(self, session: Session, *, is_json: bool) -> None:
        """A client calls a tool."""
        request = changed(tool("work", n=session.count % 3), "id", to=session.next_id())
        number = self.send(session, post(request))
        stream = Stream(number, request, is_listening=False, is_json=is_json)
        if not is_json:
            self.begin(number, STREAM_HEADERS)
        session.pending.append(stream)

    def finish(self, session: Session, stream: Stream) -> None:
        """A call gets its result."""
        result = answer(stream.request, text(f"done {len(self.trace)}"))
        if stream.is_json:
            self.begin(stream.number, JSON_HEADERS)
            self.say(session, stream.number, result)
        else:
            self.say(session, stream.number, sse(result))
        self.end(session, stream.number)
        session.pending.remove(stream)

    def notify(self, session: Session) -> None:
        """A client sends a notification."""
        number = self.send(session, post(notification("notifications/x", n=session.count % 2)))
        session.count += 1
        self.begin(number, (), ACCEPTED)
        self.end(session, number)

    def listen(self, session: Session) -> None:
        """A client opens a listening stream."""
        number = self.send(session, get("/mcp", ("Accept", "text/event-stream")))
        self.begin(number, STREAM_HEADERS)
        session.listening = Stream(number, b"", is_listening=True)

    def push(self, session: Session, stream: Stream) -> None:
        """The server asks in a stream."""
        pushed = rpc("elicitation/create", {"message": f"{session.count}?"}, session.next_id())
        self.say(session, stream.number, sse(pushed))
        session.unanswered.append(pushed)

    def tell(self, session: Session, stream: Stream) -> None:
        """The server says something in a stream."""
        self.say(
            session, stream.number, sse(notification("notifications/message", n=session.count))
        )

    def respond(self, session: Session, pushed: bytes, action: str) -> None:
        """A client answers what the server asked."""
        number = self.send(session, post(answer(pushed, {"action": action})))
        session.unanswered.remove(pushed)
        self.begin(number, (), ACCEPTED)
        self.end(session, number)

    def delete(self, session: Session) -> None:
        """A client ends its session, and with it the listening stream."""
        number = self.send(session, Request("DELETE", "/mcp", (), b""))
        self.begin(number, ())
        self.end(session, number)
        if session.listening is not None:
            self.end(session, session.listening.number)
            session.listening = None
        session.is_over = True

    def close(self) -> None:
        """The recording is stopped."""
        for session in self.sessions:
            for stream in session.pending:
                if not stream.is_json:
                    self.end(session, stream.number, End.OPEN)
                else:
                    self.talk.exchanges.append(
                        self.talk.observation(stream.number).seal(End.OPEN, self.talk.tick())
                    )
            if session.listening is not None:
                self.end(session, session.listening.number, End.OPEN)


def steps_of(session: Session) -> list[str]:
    """Return what can happen in a session next."""
    if session.is_over:
        return []
    steps = ["call", "JSON call", "notify"]
    if session.listening is None:
        steps.append("listen")
    if session.pending:
        steps += ["finish", "finish"]
    if session.listening is not None or any(not each.is_json for each in session.pending):
        steps += ["push", "push", "tell"]
    if session.unanswered:
        steps += ["respond"] * 3
    if not session.pending:
        steps.append("delete")
    return steps


def step(recording: Recording, session: Session, data: st.DataObject) -> None:
    """Let something happen in a session."""
    steps = steps_of(session)
    if not steps:
        return
    name = data.draw(st.sampled_from(steps))
    streams = [each for each in session.pending if not each.is_json]
    if session.listening is not None:
        streams.append(session.listening)
    match name:
        case "call" | "JSON call":
            recording.call(session, is_json=name == "JSON call")
        case "finish":
            recording.finish(session, data.draw(st.sampled_from(session.pending)))
        case "push":
            recording.push(session, data.draw(st.sampled_from(streams)))
        case "tell":
            recording.tell(session, data.draw(st.sampled_from(streams)))
        case "respond":
            pushed = data.draw(st.sampled_from(session.unanswered))
            recording.respond(session, pushed, data.draw(st.sampled_from(["accept", "decline"])))
        case "notify":
            recording.notify(session)
        case "listen":
            recording.listen(session)
        case "delete":
            recording.delete(session)


def recorded(data: st.DataObject) -> Recording:
    """Return a made-up recording."""
    recording = Recording()
    recording.open()
    for _ in range(data.draw(st.integers(0, 30))):
        if len(recording.sessions) < 3 and data.draw(st.integers(0, 5)) == 0:
            recording.open()
        else:
            step(recording, data.draw(st.sampled_from(recording.sessions)), data)
    recording.close()
    return recording


@dataclass
class Client:
    """The client of one session, on replay."""

    trace: list[Sent | Said]
    left_out: frozenset[int] = frozenset()
    """Numbers of the notifications that it never sends."""
    session_id: str = ""
    sent: int = 0
    had: dict[int, list[bytes | None]] = field(default_factory=dict)
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def next_request(self) -> Sent | None:
        """Return what the client sends next, once it has had all that came before that."""
        wanted: dict[int, int] = {}
        sends = 0
        for each in self.trace:
            if isinstance(each, Said):
                wanted[each.number] = wanted.get(each.number, 0) + 1
            elif sends == self.sent:
                ready = all(
                    len(self.had.get(number, ())) >= count
                    for number, count in wanted.items()
                    if number not in self.left_out
                )
                if each.number not in self.left_out:
                    return each if ready else None
                self.sent += 1
                sends += 1
            else:
                sends += 1
        return None

    def expected(self) -> dict[int, list[bytes | None]]:
        """Return what the server said to it in each response while recording."""
        said: dict[int, list[bytes | None]] = {}
        for each in self.trace:
            if isinstance(each, Said):
                said.setdefault(each.number, []).append(each.piece)
        return said

    def send(self, player: Player, sent: Sent) -> None:
        """Send a request."""
        request = sent.request
        if self.session_id:
            session = (("Mcp-Session-Id", self.session_id),)
            request = Request(
                request.method, request.target, (*request.headers, *session), request.body
            )
        play = player.request_received(request)
        assert isinstance(play, Play), play
        self.sent += 1
        self.had.setdefault(sent.number, [])
        if play.delivery is not None:
            self.deliveries[sent.number] = play.delivery
            self.open.add(sent.number)
            self.session_id = self.session_id or header_value(play.delivery.headers, SESSION_HEADER)

    def give_up(self) -> bool:
        """Wait for a notification that is left out no more; return whether there was one."""
        for number in self.open:
            notification = self.deliveries[number].missing_notification
            if notification is not None:
                self.deliveries[number].session.waive(notification)
                return True
        return False

    def receive(self) -> bool:
        """Take what is due; return whether there was anything."""
        had_any = False
        for number in sorted(self.open):
            while (due := self.deliveries[number].next()) is not None:
                had_any = True
                if isinstance(due, Sending):
                    self.assert_caused(number, len(self.had[number]))
                    self.had[number].append(due.raw)
                    if not due.is_last:
                        continue
                self.open.discard(number)
                if isinstance(due, Sending) or (
                    isinstance(due, Ending) and due.end is End.COMPLETE
                ):
                    self.had[number].append(None)
                break
        return had_any

    def assert_caused(self, number: int, place: int) -> None:
        """Check that what had caused a piece of a response while recording has come again.

        Any stream is caused by notifications, and by answers to what was asked in it; a listening
        stream by all answers.
        """
        said = sends = needed = 0
        owners: dict[bytes | None, int] = {}
        listening = {
            each.number
            for each in self.trace
            if isinstance(each, Sent) and each.request.method == "GET"
        }
        for each in self.trace:
            if isinstance(each, Sent):
                sends += 1
                message = classify(each.request.body)
                if message is None or message.kind is Kind.REQUEST or each.number in self.left_out:
                    continue
                owner = owners.get(message.spelled(("id",)), number)
                if number in listening or owner == number:
                    needed = sends
                continue
            pushed = None if each.piece is None else classify(without_framing(each.piece) or b"")
            if pushed is not None and pushed.kind is Kind.REQUEST:
                owners[pushed.spelled(("id",))] = each.number
            if each.number == number:
                if said == place:
                    break
                said += 1
        assert self.sent >= needed, "said before its cause"


def replay(player: Player, clients: list[Client], data: st.DataObject) -> None:
    """Replay a recording to its clients, until none of them can go on."""
    while True:
        while sum(client.receive() for client in clients):
            pass
        ready = [
            (client, sent) for client in clients if (sent := client.next_request()) is not None
        ]
        if not ready:
            # Nobody says anything any more.
            if any(client.give_up() for client in clients):
                continue
            return
        client, sent = data.draw(st.sampled_from(ready))
        client.send(player, sent)


def clients_of(recording: Recording) -> list[Client]:
    """Return the clients of a recording, who have had nothing yet."""
    return [
        Client([each for each in recording.trace if each.session == session.number])
        for session in recording.sessions
    ]


def without_framing(raw: bytes | None) -> bytes | None:
    """Return the message of a piece."""
    if raw is None or raw.startswith(b"{"):
        return raw
    return read_event(raw, first=True).data


def assert_same_history(client: Client) -> None:
    """Check that a client has had what it had while recording, stream by stream, in order."""
    expected = client.expected()
    for number, had in client.had.items():
        wanted = [without_framing(piece) for piece in expected.get(number, [])]
        assert number not in client.left_out
        assert [without_framing(piece) for piece in had] == wanted
    assert client.next_request() is None
    assert client.sent == sum(isinstance(each, Sent) for each in client.trace), "stuck"


@given(st.data())
def test_session_plays_again_stream_by_stream(data: st.DataObject) -> None:
    """Each stream has the same history, nothing comes before its cause, and nobody waits for ever."""
    recording = recorded(data)
    player = Player(loaded(recording.talk.cassette()))
    for _ in range(2):
        clients = clients_of(recording)
        replay(player, clients, data)
        for client in clients:
            assert_same_history(client)
    assert not player.misses
    assert not player.unplayed


@given(st.data())
def test_client_that_leaves_notifications_out_is_not_stuck(data: st.DataObject) -> None:
    """Each stream has the same history, and what was caused by all the rest comes after that."""
    recording = recorded(data)
    player = Player(loaded(recording.talk.cassette()))
    clients = clients_of(recording)
    for client in clients:
        told = [
            each.number
            for each in client.trace
            if isinstance(each, Sent) and b'"notifications/' in each.request.body
        ]
        client.left_out = frozenset(number for number in told if data.draw(st.booleans()))
    replay(player, clients, data)
    for client in clients:
        assert_same_history(client)
    assert not player.misses
