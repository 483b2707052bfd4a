"""Laws of what a server says on a pipe of its own accord: it stays after what came before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from builders import answer, assembled, loaded, notification, rpc, with_id
from hypothesis import given
from hypothesis import strategies as st
from messages import compact, result, text

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.transports import FIRST_SESSION, cassette_over_pipes
from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.deliveries import Delivery, Play, Sending
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Request,
    channel_request,
    line_request,
    opens_channel,
)

METHODS = ("tools/list", "tools/call", "prompts/list")


def call(number: int, method: str) -> bytes:
    """Return a call that only its number tells from others."""
    return rpc(method, {"name": f"t{number}"}, number)


@dataclass
class PipedRecording:
    """A server on pipes under the recorder; each line takes a millisecond."""

    recorder: Recorder = field(
        default_factory=lambda: Recorder(ExchangeSealer(seals_states=True))
    )
    ended: list[RecordedExchange] = field(default_factory=list)
    now_ms: float = 0

    def __post_init__(self) -> None:
        """Begin with the channel."""
        self.channel: Channel[Observation] = Channel(self._begin)

    def _begin(self, request: Request) -> Observation:
        observation = self.recorder.request_received(request, self.now_ms)
        if opens_channel(request):
            observation.response_started(NO_STATUS, ())

        return observation

    def client(self, line: bytes) -> None:
        self.now_ms += 1
        observation, is_over = self.channel.take_client_line(line + b"\n")
        if is_over:
            self.ended.append(observation.seal(End.COMPLETE, self.now_ms))
        else:
            observation.response_started(NO_STATUS, ())

    def server(self, line: bytes) -> None:
        self.now_ms += 1
        observation, is_over = self.channel.take_server_line(line + b"\n")
        observation.response_bytes(line + b"\n", self.now_ms)
        if is_over:
            self.ended.append(observation.seal(End.COMPLETE, self.now_ms))

    def cassette(self) -> Cassette:
        for observation, end in self.channel.ended_exchanges(by_server=False):
            if end is not None:
                self.ended.append(observation.seal(end, self.now_ms))

        return loaded(assembled(self.ended, transport="stdio"))


def sent_by(delivery: Delivery | None) -> list[bytes]:
    """Return the lines that are due of a reply."""
    said = []
    while delivery is not None and isinstance(step := delivery.take_next(), Sending):
        said += step.raw.splitlines()

    return said


def played(player: Player, request: Request) -> Delivery:
    """Return the reply to a request, which must be recorded."""
    decision: Any = player.request_received(request)
    assert isinstance(decision, Play), decision
    assert decision.delivery is not None

    return decision.delivery


def recorded(
    methods: list[str], script: list[tuple[str, int]]
) -> tuple[Cassette, list[bytes], list[bytes]]:
    """Record a script; return what the server said, and the calls in the order of their answers."""
    recording = PipedRecording()
    waiting = [call(number, method) for number, method in enumerate(methods)]
    pending: list[bytes] = []
    came: list[bytes] = []
    answered: list[bytes] = []
    rest = [(step, 0) for step in ("call", "answer") for _ in methods]
    for step, choice in [*script, *rest, ("log", 0)]:
        if step == "call" and waiting:
            pending.append(waiting.pop(0))
            recording.client(pending[-1])
        elif step == "answer" and pending:
            answered.append(pending.pop(choice % len(pending)))
            came.append(answer(answered[-1], text("done")))
            recording.server(came[-1])
        elif step == "log":
            came.append(b"log %d" % len(came))
            recording.server(came[-1])

    return recording.cassette(), came, answered


def responses_before(lines: list[bytes], log: bytes) -> int:
    """Return how many responses stand before a line."""
    return sum(line.startswith(b"{") for line in lines[: lines.index(log)])


steps = st.tuples(st.sampled_from(["call", "answer", "log"]), st.integers(0, 3))


@given(
    st.lists(st.sampled_from(METHODS), min_size=1, max_size=4),
    st.lists(steps, max_size=12),
)
def test_what_is_logged_after_a_response_stays_after_it(
    methods: list[str], script: list[tuple[str, int]]
) -> None:
    """Calls overlap, and logs come between; each stays behind the responses that it came behind."""
    cassette, came, answered = recorded(methods, script)
    player = Player(cassette_over_pipes(cassette))
    channel = played(player, channel_request(FIRST_SESSION))
    heard = sent_by(channel)
    for asked in answered:
        delivery = played(player, line_request(with_id(asked, 99), FIRST_SESSION))
        # The stream of the channel may be faster than the response to a request that has come.
        heard += sent_by(channel)
        heard += sent_by(delivery)
        delivery.note_finished()
        heard += sent_by(channel)

    logs = [line for line in came if line.startswith(b"log")]

    assert sorted(line for line in heard if line.startswith(b"log")) == sorted(logs)

    for log in logs:
        assert responses_before(heard, log) >= responses_before(came, log), log


class Said(NamedTuple):
    """One line of a conversation on a pipe.

    Attributes:
        is_pushed: the server spoke of its own accord, and no call was under way.
    """

    line: bytes
    by_client: bool
    is_pushed: bool = False


class Talk:
    """A recorded conversation on a pipe, in which both sides may speak at any time."""

    def __init__(self) -> None:
        self.recording = PipedRecording()
        self.trace: list[Said] = []
        self.pending: list[bytes] = []
        self.questions: list[bytes] = []

    def client(self, line: bytes) -> None:
        self.trace.append(Said(line, by_client=True))
        self.recording.client(line)

    def server(self, line: bytes, *, responds: bool = False) -> None:
        is_pushed = not responds and not self.pending
        self.trace.append(Said(line, by_client=False, is_pushed=is_pushed))
        self.recording.server(line)

    def make(self, step: str, place: int = 0) -> None:
        number = len(self.trace)
        if step in ("tools/call", "tools/list", "initialize"):
            self.pending.append(call(number, step))
            self.client(self.pending[-1])
        elif step == "answer" and self.pending:
            asked = self.pending.pop(place)
            self.server(answer(asked, text(f"{number}")), responds=True)
        elif step == "push":
            self.server(notification("notifications/message", data=number))
        elif step == "ask":
            self.questions.append(b"q%d" % number)
            self.server(rpc("roots/list", {}, f"q{number}"))
        elif step == "reply" and self.questions:
            said = self.questions.pop(0).decode()
            self.client(compact(result({"roots": []}, id=said)))
        elif step.startswith("notifications/"):
            self.client(notification(step, number=number))


class Listener:
    """A client of a replay: it says what was recorded, as early as it may, and checks the order."""

    def __init__(self, talk: Talk) -> None:
        self.trace = talk.trace
        cassette = cassette_over_pipes(talk.recording.cassette())
        self.player = Player(cassette)
        self.open: list[Delivery] = []
        self.sent: list[bytes] = []
        self.heard: list[bytes] = []
        if opens_channel(cassette.interactions[0].exchanges[0].request):
            self.open.append(played(self.player, channel_request(FIRST_SESSION)))

    def send(self, line: bytes) -> None:
        decision: Any = self.player.request_received(line_request(line, FIRST_SESSION))
        assert isinstance(decision, Play), decision
        self.sent.append(line)
        if decision.delivery is not None:
            self.open.append(decision.delivery)

    def hear(self) -> None:
        """Take all that is due, of the channel first."""
        had_any = True
        while had_any:
            had_any = False
            for delivery in list(self.open):
                step = delivery.take_next()
                if isinstance(step, Sending):
                    self.check(step.raw.rstrip())
                    had_any = True

                is_over = isinstance(step, End) or (
                    isinstance(step, Sending) and step.is_last
                )
                if is_over and not delivery.entry.is_listening:
                    delivery.note_finished()
                    self.open.remove(delivery)

                if had_any:
                    break

    def check(self, line: bytes) -> None:
        """Take a line; what the server said of its own accord overtakes nothing."""
        self.heard.append(line)
        place = next(n for n, said in enumerate(self.trace) if said.line == line)
        if not self.trace[place].is_pushed:
            return

        for before in self.trace[:place]:
            had = self.sent if before.by_client else self.heard
            assert before.line in had, (before, line)

    def may_say(self, place: int, *, is_eager: bool) -> bool:
        """Tell whether it has had what it waits for: a question, or all that came before."""
        earlier = [said.line for said in self.trace[:place] if not said.by_client]
        if is_eager:
            answers = b'"roots"' in self.trace[place].line
            identity = self.trace[place].line.rpartition(b'"id":')[2].rstrip(b"}")
            earlier = [line for line in earlier if answers and identity in line]

        return set(earlier) <= set(self.heard)


STEPS = (
    "tools/call",
    "tools/list",
    "notifications/progressed",
    "answer",
    "push",
    "ask",
    "reply",
)


@given(
    script=st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from([0, -1])), max_size=12
    ),
    opened=st.integers(0, 3),
    is_eager=st.booleans(),
)
def test_what_is_pushed_overtakes_nothing_that_came_before_it(
    script: list[tuple[str, int]], opened: int, *, is_eager: bool
) -> None:
    """For clients that say all as early as they can, or when they have had all that came before."""
    talk = Talk()
    handshake = ["initialize", "answer", "notifications/initialized"]
    for place, step in enumerate(handshake):
        if place == opened:
            talk.make("push")

        talk.make(step)

    for step, place in script:
        talk.make(step, place)

    while talk.pending:
        talk.make("answer")

    client = Listener(talk)
    client.hear()
    for place, said in enumerate(talk.trace):
        if said.by_client:
            assert client.may_say(place, is_eager=is_eager), said

            client.send(said.line)
            client.hear()

    said_by_server = [said.line for said in talk.trace if not said.by_client]

    assert sorted(client.heard) == sorted(said_by_server)
