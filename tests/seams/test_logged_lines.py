"""Law of what a server logs on stdout: a line after a response stays after it on replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from builders import answer, assembled, loaded, rpc, with_id
from hypothesis import given
from hypothesis import strategies as st
from messages import text

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.transports import FIRST_SESSION, over_pipes
from mrtr_cassette.core.record.recorder import Channel, Observation, Recorder
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.replay.reply import Delivery, Sending
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Request,
    channel_request,
    line_request,
)

METHODS = ("tools/list", "tools/call", "prompts/list")


def call(number: int, method: str) -> bytes:
    """Return a call that only its number tells from others."""
    return rpc(method, {"name": f"t{number}"}, number)


@dataclass
class PipedRecording:
    """A server on pipes under the recorder; each line takes a millisecond."""

    recorder: Recorder = field(default_factory=lambda: Recorder(seals=True))
    ended: list[RecordedExchange] = field(default_factory=list)
    now_ms: float = 0

    def __post_init__(self) -> None:
        """Begin with the channel."""
        self.channel: Channel[Observation] = Channel(self._begin)

    def _begin(self, request: Request) -> Observation:
        observation = self.recorder.request_received(request, self.now_ms)
        observation.response_started(NO_STATUS, ())
        return observation

    def client(self, line: bytes) -> None:
        self.now_ms += 1
        self.channel.client_line(line + b"\n")

    def server(self, line: bytes) -> None:
        self.now_ms += 1
        observation, is_over = self.channel.server_line(line + b"\n")
        observation.response_bytes(line + b"\n", self.now_ms)
        if is_over:
            self.ended.append(observation.seal(End.COMPLETE, self.now_ms))

    def cassette(self) -> Cassette:
        for observation, end in self.channel.ended(by_server=False):
            if end is not None:
                self.ended.append(observation.seal(end, self.now_ms))
        return loaded(assembled(self.ended, transport="stdio"))


def sent_by(delivery: Delivery | None) -> list[bytes]:
    """Return the lines that are due of a reply."""
    said = []
    while delivery is not None and isinstance(step := delivery.next(), Sending):
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
    player = Player(over_pipes(cassette))
    channel = played(player, channel_request(FIRST_SESSION))
    heard = sent_by(channel)
    for asked in answered:
        delivery = played(player, line_request(with_id(asked, 99), FIRST_SESSION))
        # The stream of the channel may be faster than the response to a request that has come.
        heard += sent_by(channel)
        heard += sent_by(delivery)
        delivery.end()
        heard += sent_by(channel)

    logs = [line for line in came if line.startswith(b"log")]
    assert sorted(line for line in heard if line.startswith(b"log")) == sorted(logs)
    for log in logs:
        assert responses_before(heard, log) >= responses_before(came, log), log
