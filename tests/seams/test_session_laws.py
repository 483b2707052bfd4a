"""Laws of sessions: whatever a client and a server said to each other, a replay says it again.

A made-up recording has up to three sessions whose calls, pushed requests, posted answers,
notifications, streams and ends come in any order; streams are let go and resumed, and calls are
cancelled.
It is replayed to the same clients: each sends its next message when it has had what it had had
before that message while recording.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Conversation,
    answer,
    changed,
    get,
    id_of,
    loaded,
    notification,
    post,
    rpc,
    sse,
    tool,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import text

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.drive.rerecording import recorded_over
from mrtr_cassette.core.protocol.jsonrpc import Kind, message_in
from mrtr_cassette.core.replay.deliveries import Delivery, Play, Sending
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import (
    SESSION_HEADER,
    End,
    Headers,
    Request,
    header_value,
)
from mrtr_cassette.core.wire.sse import read_event

ACCEPTED = 202
LISTEN = get("/mcp", ("Accept", "text/event-stream"))


def with_values(headers: Headers, new: Change) -> Headers:
    """Return headers as another run has them."""
    return tuple((name, new(value)) for name, value in headers)


class Sent(NamedTuple):
    """A client sends a request, the `number`th of the recording.

    One that resumes a stream names the last event that it had in response to request `resumes`.
    """

    session: int
    number: int
    request: Request
    resumes: int | None = None


class Said(NamedTuple):
    """A server says something in response to a request; None stands for the end."""

    session: int
    number: int
    piece: bytes | None


@dataclass
class Stream:
    """A response under way, or the response that resumes it; `last` is the id of its last event."""

    number: int
    request: bytes
    is_listening: bool
    is_json: bool = False
    last: str = ""
    last_number: int = 0


@dataclass
class Session:
    """One session while it is recorded."""

    id: str
    number: int
    pending: list[Stream] = field(default_factory=list)
    listening: Stream | None = None
    close_after_request: list[Stream] = field(default_factory=list)
    unanswered: list[bytes] = field(default_factory=list)
    is_over: bool = False
    has_listened: bool = False
    count: int = 0
    events: int = 0

    def next_id(self) -> int:
        self.count += 1
        return self.count


Change = Callable[[str], str]
"""What a text becomes in another run of the same clients and servers."""


class Recording:
    """A recording that grows by one step at a time; `steps` does the same in another one."""

    def __init__(self) -> None:
        self.talk = Conversation()
        self.steps: list[Callable[[Conversation, Change], Any]] = []
        self.trace: list[Sent | Said] = []
        self.sessions: list[Session] = []

    def do(self, step: Callable[[Conversation, Change], Any]) -> Any:
        self.steps.append(step)
        return step(self.talk, str)

    def send(
        self, session: Session, request: Request, resumes: Stream | None = None
    ) -> int:
        if resumes is not None:
            request = replace(
                request, headers=(*request.headers, ("Last-Event-ID", resumes.last))
            )

        headers = request.headers
        if session.id:
            headers = (*headers, ("Mcp-Session-Id", session.id))

        number = self.do(
            lambda talk, new: talk.request(
                replace(request, headers=with_values(headers, new))
            )
        )

        last = None if resumes is None else resumes.last_number
        self.trace.append(Sent(session.number, number, request, last))

        return number

    def begin(self, number: int, headers: Any, status: int = 200) -> None:
        self.do(
            lambda talk, new: talk.observation(number).response_started(
                status, with_values(headers, new)
            )
        )

    def say(self, session: Session, number: int, piece: bytes) -> None:
        self.do(
            lambda talk, new: talk.observation(number).response_bytes(
                new(piece.decode()).encode(), talk.tick()
            )
        )
        self.trace.append(Said(session.number, number, piece))

    def event(self, session: Session, stream: Stream, message: bytes) -> None:
        if stream.is_json:
            self.say(session, stream.number, message + b"\n")
            return

        event_id = b""
        if stream.last:
            session.events += 1
            stream.last = f"e{session.events}"
            stream.last_number = stream.number
            event_id = b"id: %b\n" % stream.last.encode()

        self.say(session, stream.number, event_id + sse(message))

    def end(self, session: Session, number: int, end: End = End.COMPLETE) -> None:
        self.do(lambda talk, _: talk.end(number, end))
        if end is End.COMPLETE:
            self.trace.append(Said(session.number, number, None))

    # What can happen next

    def open(self) -> None:
        session = Session("", len(self.sessions) + 1)
        self.sessions.append(session)
        request = rpc(
            "initialize", {"clientInfo": {"name": f"c{session.number}"}}, number=0
        )
        number = self.send(session, post(request))
        session.id = f"{session.number}" * 32
        self.begin(number, (*JSON_HEADERS, ("Mcp-Session-Id", session.id)))
        self.say(session, number, answer(request, {"serverInfo": {"name": "s"}}))
        self.end(session, number)

    def call(self, session: Session, *, is_json: bool, is_primed: bool) -> None:
        request = changed(tool("work", n=session.count % 3), "id", to=session.next_id())
        number = self.send(session, post(request))
        stream = Stream(number, request, is_listening=False, is_json=is_json)
        if not is_json:
            self.begin(number, STREAM_HEADERS)

        if is_primed:
            stream.last = "primed"
            self.event(session, stream, b"")

        session.pending.append(stream)

    def finish(self, session: Session, stream: Stream) -> None:
        result = answer(stream.request, text(f"done {len(self.trace)}"))
        if stream.is_json:
            self.begin(stream.number, JSON_HEADERS)
            self.say(session, stream.number, result)
        else:
            self.event(session, stream, result)

        self.end(session, stream.number)
        session.pending.remove(stream)

    def notify(self, session: Session) -> None:
        number = self.send(
            session, post(notification("notifications/x", n=session.count % 2))
        )
        session.count += 1
        self.begin(number, (), ACCEPTED)
        self.end(session, number)

    def listen(self, session: Session, *, is_json: bool, is_primed: bool) -> None:
        request = LISTEN
        if is_json:
            request = post(rpc("subscriptions/listen", {}, session.next_id()))

        number = self.send(session, request)
        self.begin(number, JSON_HEADERS if is_json else STREAM_HEADERS)
        session.listening = Stream(number, b"", is_listening=True, is_json=is_json)
        if is_primed and not is_json:
            session.listening.last = "primed"
            self.event(session, session.listening, b"")

        self.heard(session)

    def heard(self, session: Session) -> None:
        if session.has_listened and session.listening is not None:
            self.tell(session, session.listening)

        session.has_listened = True

    def close_after_request(self, session: Session, stream: Stream) -> None:
        self.end(session, stream.number)
        self.ended(session, stream)
        if stream.last:
            session.close_after_request.append(stream)

    def ended(self, session: Session, stream: Stream) -> None:
        if stream is session.listening:
            session.listening = None
        else:
            session.pending.remove(stream)

    def resume(self, session: Session, stream: Stream) -> None:
        session.close_after_request.remove(stream)
        number = self.send(session, LISTEN, stream)
        self.begin(number, STREAM_HEADERS)
        stream = replace(stream, number=number)
        if stream.is_listening:
            session.listening = stream
            self.heard(session)
        else:
            session.pending.append(stream)

    def cancel(self, session: Session, stream: Stream, how: End | None) -> None:
        request_id = id_of(stream.request)
        cancelled = notification("notifications/cancelled", requestId=request_id)
        number = self.send(session, post(cancelled))
        self.begin(number, (), ACCEPTED)
        self.end(session, number)
        if how is not None:
            self.end(session, stream.number, how)
            self.ended(session, stream)

    def push(self, session: Session, stream: Stream) -> None:
        pushed = rpc(
            "elicitation/create", {"message": f"{session.count}?"}, session.next_id()
        )
        self.event(session, stream, pushed)
        session.unanswered.append(pushed)

    def tell(self, session: Session, stream: Stream) -> None:
        self.event(
            session, stream, notification("notifications/message", n=session.count)
        )

    def respond(self, session: Session, pushed: bytes, action: str) -> None:
        number = self.send(session, post(answer(pushed, {"action": action})))
        session.unanswered.remove(pushed)
        self.begin(number, (), ACCEPTED)
        self.end(session, number)

    def delete(self, session: Session, *, is_refused: bool) -> None:
        number = self.send(session, Request("DELETE", "/mcp", (), b""))
        self.begin(number, (), 405 if is_refused else 200)
        self.end(session, number)
        if is_refused:
            return

        for stream in (*session.pending, session.listening):
            if stream is not None:
                self.end(session, stream.number)

        session.pending.clear()
        session.listening = None
        session.is_over = True

    def close(self) -> None:
        for session in self.sessions:
            for stream in session.pending:
                self.end(session, stream.number, End.OPEN)

            if session.listening is not None:
                self.end(session, session.listening.number, End.OPEN)


def resumable(session: Session) -> list[Stream]:
    """Return the streams that a client may come back for: it listens to one at a time."""
    if session.listening is None:
        return session.close_after_request

    return [stream for stream in session.close_after_request if not stream.is_listening]


def steps_of(session: Session) -> list[str]:
    """Return what can happen in a session next."""
    if session.is_over:
        return []

    steps = ["call", "JSON call", "notify"]
    if session.listening is None:
        steps.append("listen")

    if session.pending:
        steps += ["finish", "finish"]

    if resumable(session):
        steps += ["resume"] * 3

    if any(stream.last for stream in session.pending) or session.listening is not None:
        steps.append("let go")

    if any(not stream.is_json for stream in session.pending):
        steps.append("cancel")

    has_stream = any(not stream.is_json for stream in session.pending)
    if has_stream or session.listening is not None:
        steps += ["push", "push", "tell"]

    if session.unanswered:
        steps += ["respond"] * 3

    if not any(stream.is_json for stream in session.pending):
        steps.append("delete")

    return steps


def step(recording: Recording, session: Session, data: st.DataObject) -> None:
    """Let something happen in a session."""
    steps = steps_of(session)
    if not steps:
        return

    name = data.draw(st.sampled_from(steps))
    streams = [stream for stream in session.pending if not stream.is_json]
    if session.listening is not None:
        streams.append(session.listening)

    match name:
        case "call" | "JSON call":
            is_json = name == "JSON call"
            is_primed = not is_json and data.draw(st.booleans())
            recording.call(session, is_json=is_json, is_primed=is_primed)
        case "let go":
            primed = [
                stream for stream in streams if stream.last or stream.is_listening
            ]
            recording.close_after_request(session, data.draw(st.sampled_from(primed)))
        case "resume":
            recording.resume(session, data.draw(st.sampled_from(resumable(session))))
        case "cancel":
            calls = [stream for stream in streams if not stream.is_listening]
            how = data.draw(st.sampled_from([None, End.OPEN, End.COMPLETE]))
            recording.cancel(session, data.draw(st.sampled_from(calls)), how)
        case "push" | "tell":
            say = recording.push if name == "push" else recording.tell
            say(session, data.draw(st.sampled_from(streams)))
        case "finish":
            recording.finish(session, data.draw(st.sampled_from(session.pending)))
        case "respond":
            pushed = data.draw(st.sampled_from(session.unanswered))
            recording.respond(
                session, pushed, data.draw(st.sampled_from(["accept", "decline"]))
            )
        case "notify":
            recording.notify(session)
        case "listen":
            is_json = data.draw(st.booleans())
            is_primed = data.draw(st.booleans())
            recording.listen(session, is_json=is_json, is_primed=is_primed)
        case "delete":
            recording.delete(session, is_refused=data.draw(st.booleans()))


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
        wanted: dict[int, int] = {}
        sends = 0
        for entry in self.trace:
            if isinstance(entry, Said):
                wanted[entry.number] = wanted.get(entry.number, 0) + 1
            elif sends == self.sent:
                ready = all(
                    len(self.had.get(number, ())) >= count
                    for number, count in wanted.items()
                    if number not in self.left_out
                )

                if entry.number not in self.left_out:
                    return entry if ready else None

                self.sent += 1
                sends += 1
            else:
                sends += 1

        return None

    def expected(self) -> dict[int, list[bytes | None]]:
        said: dict[int, list[bytes | None]] = {}
        for entry in self.trace:
            if isinstance(entry, Said):
                said.setdefault(entry.number, []).append(entry.piece)

        return said

    def send(self, player: Player, sent: Sent) -> None:
        request = sent.request
        if self.session_id:
            session = ("Mcp-Session-Id", self.session_id)
            request = replace(request, headers=(*request.headers, session))

        if sent.resumes is not None:
            (*_, last) = re.findall(
                rb"id: (\S+)\n", b"".join(filter(None, self.had[sent.resumes]))
            )
            headers = tuple(
                (name, last.decode() if name == "Last-Event-ID" else value)
                for name, value in request.headers
            )
            request = replace(request, headers=headers)

        play = player.request_received(request)
        assert isinstance(play, Play), play
        self.sent += 1
        self.had.setdefault(sent.number, [])
        if play.delivery is not None:
            self.deliveries[sent.number] = play.delivery
            self.open.add(sent.number)
            self.session_id = self.session_id or header_value(
                play.delivery.headers, SESSION_HEADER
            )

    def give_up(self) -> bool:
        for number in self.open:
            notification = self.deliveries[number].skippable_request
            if notification is not None:
                self.deliveries[number].session.waive_request(notification)
                return True

        return False

    def receive(self) -> bool:
        had_any = False
        # What listens comes last, as it was opened first.
        for number in sorted(self.open, reverse=True):
            while (due := self.deliveries[number].take_next()) is not None:
                had_any = True
                if isinstance(due, Sending):
                    self.assert_caused(number, len(self.had[number]))
                    self.assert_last(number, len(self.had[number]))
                    self.had[number].append(due.raw)
                    if not due.is_last:
                        continue

                self.open.discard(number)
                self.deliveries[number].note_finished()
                if isinstance(due, Sending) or due is End.COMPLETE:
                    self.had[number].append(None)

                break

        return had_any

    def assert_last(self, number: int, place: int) -> None:
        """Check that a response comes after all that came before it on open listening streams."""
        if self.left_out:
            return

        said = sends = 0
        before: dict[int, int] = {}
        for entry in self.trace:
            if isinstance(entry, Sent):
                sends += 1
                continue

            if entry.number == number and said == place:
                break

            said += entry.number == number
            # What other requests cause waits for these.
            if entry.piece is not None and sends <= self.sent:
                before[entry.number] = before.get(entry.number, 0) + 1

        message = message_in(without_framing(entry.piece) or b"")
        if message is None or message.kind is not Kind.RESPONSE:
            return

        for stream in self.open - {number}:
            if self.deliveries[stream].entry.is_listening:
                assert len(self.had[stream]) >= before.get(stream, 0), (
                    "said before what came first"
                )

    def assert_caused(self, number: int, place: int) -> None:
        # Any stream is caused by notifications, and by answers to what was asked in it; a listening
        # stream by all answers. Nothing waits for the cancellation of a call that was not made.
        said = sends = needed = 0
        owners: dict[bytes | None, int] = {}
        calls: dict[Any, int] = {}
        begun: dict[int, int] = {}
        listening = set()
        for entry in self.trace:
            if isinstance(entry, Sent):
                resumed = (
                    entry.number if entry.resumes is None else begun[entry.resumes]
                )
                begun[entry.number] = resumed
                if entry.resumes is None and (
                    entry.request.method == "GET"
                    or b"subscriptions/listen" in entry.request.body
                ):
                    listening.add(entry.number)

        for entry in self.trace:
            if isinstance(entry, Sent):
                sends += 1
                message = message_in(entry.request.body)
                is_left_out = entry.number in self.left_out
                if message is None or is_left_out:
                    continue
                if message.kind is Kind.REQUEST:
                    calls[message.id] = sends
                    continue
                if calls.get(message.cancelled_id, 0) > self.sent:
                    continue

                owner = owners.get(message.spelled(("id",)), begun[number])
                if begun[number] in listening or owner == begun[number]:
                    needed = sends

                continue

            pushed = message_in(without_framing(entry.piece) or b"")
            if pushed is not None and pushed.kind is Kind.REQUEST:
                owners[pushed.spelled(("id",))] = begun[entry.number]

            if entry.number == number:
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
            (client, sent)
            for client in clients
            if (sent := client.next_request()) is not None
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
    clients = []
    for session in recording.sessions:
        trace = [entry for entry in recording.trace if entry.session == session.number]
        clients.append(Client(trace))

    return clients


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
    assert client.sent == sum(isinstance(entry, Sent) for entry in client.trace), (
        "stuck"
    )


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_session_plays_again_stream_by_stream(data: st.DataObject) -> None:
    """Each stream has the same history, nothing comes before its cause, and nobody waits for ever.

    So it is again for clients that leave some notifications out, but cancellations: what was caused
    by all the rest comes after that.
    """
    recording = recorded(data)
    player = Player(loaded(recording.talk.cassette()))
    for leaves_out in (False, True):
        clients = clients_of(recording)
        for client in clients if leaves_out else ():
            left_out = set()
            for entry in client.trace:
                if not isinstance(entry, Sent):
                    continue

                tells = b'"notifications/x"' in entry.request.body
                if tells and data.draw(st.booleans()):
                    left_out.add(entry.number)

            client.left_out = frozenset(left_out)

        replay(player, clients, data)
        for client in clients:
            assert_same_history(client)

        assert not player.tally.misses
        assert not player.played_part.unplayed_numbers


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_session_that_was_recorded_over_plays_as_it_is_now(data: st.DataObject) -> None:
    """Whatever results changed, each stream has what the server says now, and nothing waits."""
    recording = recorded(data)
    changed = data.draw(st.sets(st.integers(0, 40)))

    def now(words: str) -> str:
        return re.sub(
            r"done (\d+)",
            lambda found: f"done {found[1]}" + " now" * (int(found[1]) in changed),
            words,
        )

    def new(words: str) -> str:
        letters = {49: 97, 50: 98, 51: 99}
        words = re.sub("[123]{32}", lambda found: found[0].translate(letters), words)
        return now(re.sub(r"\be(\d+)$|(?<=id: )e(\d+)", r"new-\1\2", words))

    talk = Conversation()
    for repeat in recording.steps:
        repeat(talk, new)

    before = loaded(recording.talk.cassette())
    after = loaded(talk.cassette())
    whole, _ = recorded_over(before, after)

    def as_now(entry: Sent | Said) -> Sent | Said:
        if isinstance(entry, Sent) or entry.piece is None:
            return entry

        return entry._replace(piece=now(entry.piece.decode()).encode())

    is_same = all(as_now(entry) == entry for entry in recording.trace)

    assert (whole is before) is is_same

    clients = clients_of(recording)
    for client in clients:
        client.trace = [as_now(entry) for entry in client.trace]

    player = Player(load(dump(whole), "f"))
    replay(player, clients, data)
    for client in clients:
        assert_same_history(client)

    assert not player.tally.misses
    assert not player.played_part.unplayed_numbers
