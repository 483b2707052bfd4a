"""What a run that appends says is what the live server alone would have said (docs/matching.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from builders import (
    Conversation,
    as_request,
    assembled,
    loaded,
    result_of,
    retry,
    rpc,
    sent_now,
    show,
    tool,
)
from hypothesis import example, given
from hypothesis import strategies as st
from messages import NO, YES, Json, asks, compact, result, text

from mrtr_cassette.core.cassette.matchers import Matchers, read_matchers
from mrtr_cassette.core.cassette.model import CassetteModel
from mrtr_cassette.core.cassette.sessions import LiveStreams
from mrtr_cassette.core.compare.conversations import ignores_nothing
from mrtr_cassette.core.drive.appending import Appending
from mrtr_cassette.core.record.linking import LiveAsks
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.order import History
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Request

LIST = rpc("tools/list")
HINTED = {
    "tools": [
        {"name": name, "annotations": {"readOnlyHint": True}}
        for name in ("rows", "count")
    ]
}
NAMES = ("inc", "add", "rows", "count", "total", "book", "cancel")


class Operation(NamedTuple):
    """One call of the store, and what its user answers if it asks first."""

    name: str
    item: str
    agrees: bool

    @property
    def request(self) -> bytes:
        arguments = (
            {"item": self.item} if self.name in {"add", "book", "cancel"} else {}
        )
        return tool(self.name, **arguments)

    def retry(self, state: str | None) -> bytes:
        return retry(self.request, {"sure": YES if self.agrees else NO}, state=state)


@dataclass
class Store:
    """A live server of a counter, rows and bookings; it asks before it books, with a state of its own, and before it cancels, without one."""

    run: str
    start: int = 0
    rows: list[str] = field(default_factory=list)
    booked: list[str] = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        """Begin to count."""
        self.counter = self.start

    def handle(self, body: bytes) -> bytes:
        """Respond to a request."""
        tree = json.loads(body)
        if tree["method"] == "tools/list":
            return compact(result(HINTED, id=tree["id"]))
        return compact(result(self.called(tree["params"]), id=tree["id"]))

    def called(self, params: Json) -> Json:
        name = params["name"]
        item = params["arguments"].get("item", "")
        answers = params.get("inputResponses")
        if name in {"book", "cancel"} and answers is None:
            self.asked += 1
            return asks(
                "sure", state=self.state(self.asked) if name == "book" else None
            )

        if name == "book" and params.get("requestState") not in self.issued():
            return text("unknown state")

        is_agreed = answers is None or answers["sure"]["action"] == "accept"
        return text(self.does(name, item) if is_agreed else "left")

    def state(self, number: int) -> str:
        return f"state-{number}-of-{self.run}-{'x' * 20}"

    def issued(self) -> list[str]:
        return [self.state(number) for number in range(1, self.asked + 1)]

    def does(self, name: str, item: str) -> str:
        """Do what a call without questions does."""
        if name == "inc":
            self.counter += 1
        elif name == "add":
            self.rows.append(item)
            return "added"
        elif name == "book":
            self.booked.append(item)
            return f"booking {len(self.booked)}"
        elif name == "cancel":
            self.booked = [booked for booked in self.booked if booked != item]
            return "cancelled"

        is_counter = name in {"inc", "count"}
        return str(self.counter) if is_counter else f"{self.rows} {self.booked}"


def told(send: Any, operation: Operation) -> str | None:
    """Have a client make a call; return the text of its result, or None where it was refused."""
    response = send(operation.request)
    if (
        response is not None
        and result_of(response).get("resultType") == "input_required"
    ):
        state = result_of(response).get("requestState")
        response = send(operation.retry(state))

    return None if response is None else str(result_of(response)["content"][0]["text"])


def recorded(run: Iterable[Operation], store: Store) -> CassetteModel:
    """Return the cassette of a run, which lists the tools first."""
    talk = Conversation()

    def send(body: bytes) -> bytes:
        number = talk.request(body)
        response = store.handle(body)
        talk.response(number, response)

        return response

    send(LIST)
    for operation in run:
        told(send, operation)

    return talk.cassette()


@dataclass
class AppendingRun:
    """A run that appends to a cassette, with a live server; what is sent there is noted."""

    earlier: CassetteModel
    server: Store
    history: History
    matchers: Matchers | None = None
    refused: list[Miss] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    """The places of the requests that went to the server, in the order of the client's."""

    sent: int = 0

    def __post_init__(self) -> None:
        """Begin to play and to record."""
        self.talk = Conversation()
        self.player = Player(
            loaded(self.earlier),
            strict=True,
            history=self.history,
            matchers=self.matchers,
        )
        self.asked = LiveAsks()
        self.appending = Appending(
            self.player,
            self.talk.recorder,
            self.asked,
            LiveStreams(),
            ExchangeSealer,
            ignores_nothing,
        )

    def send(self, body: bytes) -> bytes | None:
        request = as_request(body)
        self.sent += 1
        decision = self.appending.play_if_recorded(request, None)
        if isinstance(decision, Play):
            return sent_now(decision)

        sent = (
            decision if isinstance(decision, Miss) else self._brought(request, decision)
        )
        if isinstance(sent, Miss):
            self.refused.append(sent)
            return None

        self.live.append(self.sent)
        number = self.talk.request(request)
        response = self.server.handle(sent.body)
        self.talk.response(number, response)
        ask = self.talk.observation(number).ask
        if ask is not None:
            self.asked.add_ask(self.talk.observation(number).call, ask)

        return response

    def _brought(self, request: Request, shown: Any) -> Request | Miss:
        steps = self.appending.bring_server_to_client(request, shown)
        try:
            while True:
                conversation = next(steps)
                while (observation := conversation.next_request()) is not None:
                    show(observation, self.server.handle)
                    conversation.response_received(observation)
        except StopIteration as brought:
            value: Request | Miss = brought.value
            return value

    def cassette(self) -> CassetteModel:
        return assembled(self.talk.exchanges, earlier=self.earlier)


OPERATION = st.builds(
    Operation, st.sampled_from(NAMES), st.sampled_from("ab"), st.booleans()
)


@st.composite
def runs(draw: Any) -> tuple[list[Operation], list[Operation]]:
    """Draw a recorded run, and one that does the same with other operations between and after."""
    before = draw(st.lists(OPERATION, min_size=1, max_size=6))
    client: list[Operation] = []
    for operation in before:
        client += draw(st.lists(OPERATION, max_size=1))
        if draw(st.integers(0, 3)):
            client.append(operation)

    return before, client + draw(st.lists(OPERATION, max_size=4))


def final_response_of(exchange: Any) -> tuple[Operation, str] | None:
    """Return what a recorded exchange did, and what it says; None where it did nothing."""
    tree = json.loads(exchange.request.body)
    response = exchange.rpc_members["result"]
    if tree["method"] != "tools/call" or "content" not in response:
        return None

    params = tree["params"]
    answers = params.get("inputResponses")
    agrees = answers is None or answers["sure"]["action"] == "accept"
    operation = Operation(params["name"], params["arguments"].get("item", "a"), agrees)

    return operation, response["content"][0]["text"]


def does(store: Store, operation: Operation) -> str | None:
    """Make a call of a store directly; return what it says in the end."""
    return told(store.handle, operation)


COUNTED = [Operation("inc", "a", agrees=True)]


@example((COUNTED, [*COUNTED, Operation("count", "a", agrees=True)]), History.AUTO, 1)
@given(runs(), st.sampled_from([History.AUTO, History.STRICT]), st.integers(0, 1))
def test_what_is_appended_is_what_the_live_server_alone_would_have_said(
    recorded_and_client: tuple[list[Operation], list[Operation]],
    history: History,
    start: int,
) -> None:
    """Each result came after the writes that the cassette says were before it, on a server that has made only these; a call is refused only where the server is another one than was recorded."""
    before, client = recorded_and_client
    run = AppendingRun(
        recorded(before, Store("first")), Store("second", start), history
    )
    is_same_server = history is History.STRICT and start == 0
    alone = Store("alone", start)
    has_written = False
    for operation in client:
        count = len(run.live)
        words = told(run.send, operation)
        expected = None if words is None else does(alone, operation)
        if is_same_server or has_written:
            assert words == expected

        has_written |= len(run.live) > count and operation.name not in {"rows", "count"}

    if is_same_server:
        assert run.refused == []

    cassette = loaded(run.cassette())
    exchanges = {}
    for interaction in cassette.interactions:
        exchanges.update(
            {exchange.number: exchange for exchange in interaction.unshared_exchanges}
        )

    alone = Store("alone", start)
    for number in range(run.player.recording.highest_number + 1, len(exchanges) + 1):
        for played in exchanges[number].played_writes:
            made = final_response_of(exchanges[played])

            assert made is not None
            assert does(alone, made[0]) == made[1]

        if (final := final_response_of(exchanges[number])) is not None:
            assert does(alone, final[0]) == final[1]


@dataclass
class Confirming(Store):
    """A store that repeats in words of its own what it has added."""

    words: str = "added"

    def does(self, name: str, item: str) -> str:
        """Do what a call without questions does."""
        said = super().does(name, item)
        return f"{self.words} {item}" if name == "add" else said


@pytest.mark.parametrize(("words", "refusals"), [("added", 0), ("kept", 1)])
@pytest.mark.parametrize("echo", [False, True])
def test_a_write_may_repeat_the_value_that_matched(
    words: str, refusals: int, *, echo: bool
) -> None:
    """It differs from the recorded one by the caller's own value, which is no other result."""
    earlier = recorded([Operation("add", "item-1", agrees=True)], Confirming("first"))
    matchers = Matchers(read_matchers({"/arguments/item": "/item-./"}), echo=echo)
    server = Confirming("second", words=words)
    run = AppendingRun(earlier, server, History.AUTO, matchers)
    run.send(tool("add", item="item-2"))
    run.send(tool("inc"))

    assert server.rows == ["item-2"]
    assert len(run.refused) == refusals
    assert server.counter == 1 - refusals
