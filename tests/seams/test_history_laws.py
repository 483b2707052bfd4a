"""A play gives what a live store gives after the same writes (docs/matching.md, "History")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from builders import (
    Conversation,
    as_request,
    loaded,
    result_of,
    retry,
    rpc,
    sent_now,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, Json, asks, text

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Player

HINTED = {"tools": [{"name": "get", "annotations": {"readOnlyHint": True}}]}


class Operation(NamedTuple):
    """One call of a store, and what its user answers if it asks first."""

    name: str
    key: str
    value: int = 0
    agrees: bool | None = None

    @property
    def request(self) -> bytes:
        arguments = {"key": self.key} | (
            {"value": self.value} if self.name == "set" else {}
        )
        return tool(self.name, **arguments)

    def retry(self, state: str) -> bytes:
        return retry(self.request, {"sure": YES if self.agrees else NO}, state=state)


@dataclass
class Store:
    """A live server of lists by key."""

    values: dict[str, list[int]] = field(default_factory=dict)
    asked: int = 0

    def asks(self) -> Json:
        self.asked += 1
        return asks("sure", state=f"state-{self.asked}-of-{'x' * 20}")

    def does(self, operation: Operation) -> str:
        values = self.values.setdefault(operation.key, [0])
        if operation.agrees is False:
            return "left"

        if operation.name == "set":
            values[:] = [operation.value]
            return "set"

        if operation.name == "count":
            values[-1] += 1
        elif operation.name == "push":
            values.append(len(values))

        return str(values)


def operations(answers: list[bool]) -> st.SearchStrategy[list[Operation]]:
    """Return what a client does: up to 12 operations on two keys, of which one asks before writes."""
    nothing = st.none()
    agreeing = {"a": nothing, "b": st.sampled_from(answers)}
    kinds = [
        st.builds(Operation, st.just("get"), st.sampled_from("ab"), st.just(0), nothing)
    ]
    for key, agrees in agreeing.items():
        for name, values in (
            ("set", st.integers(1, 2)),
            ("count", st.just(0)),
            ("push", st.just(0)),
        ):
            kinds.append(
                st.builds(Operation, st.just(name), st.just(key), values, agrees)
            )

    return st.lists(st.one_of(kinds), min_size=1, max_size=12)


def recorded(run: list[Operation], *, hints: bool) -> Cassette:
    """Return the cassette of operations that came one after the other."""
    talk = Conversation()
    store = Store()
    if hints:
        talk.exchange(rpc("tools/list"), HINTED)

    for operation in run:
        request = operation.request
        if operation.agrees is not None:
            asked = store.asks()
            talk.exchange(request, asked)
            request = operation.retry(asked["requestState"])

        talk.exchange(request, text(store.does(operation)))

    return loaded(talk.cassette())


def played(player: Player, request: bytes) -> Json:
    """Return the result that a request gets; None where it is a miss."""
    decision = player.request_received(as_request(request))
    return result_of(sent_now(decision)) if isinstance(decision, Play) else None


def words(result: Json) -> str:
    """Return the text of a final result."""
    return str(result["content"][0]["text"])


PROGRAM = operations([True, False])


@given(st.lists(PROGRAM, min_size=1, max_size=2), PROGRAM, st.booleans(), st.data())
def test_play_gives_what_the_live_store_gives_after_the_same_writes(
    runs: list[list[Operation]],
    client: list[Operation],
    hints: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    """By default so do calls that were recorded with several answers, and in strict mode all."""
    answers: dict[Operation, set[str]] = {}
    for run in runs:
        store = Store()
        for operation in run:
            answers.setdefault(operation, set()).add(store.does(operation))

    history = data.draw(st.sampled_from([History.AUTO, History.STRICT]))
    player = Player(
        combine_cassettes([recorded(run, hints=hints) for run in runs]), history=history
    )
    live = Store()

    for operation in client:
        result = played(player, operation.request)
        if result is not None and operation.agrees is not None:
            result = played(player, operation.retry(result["requestState"]))

        if result is None:
            continue

        told = live.does(operation)
        if history is History.STRICT or len(answers[operation]) > 1:
            assert words(result) == told


@given(st.lists(PROGRAM, min_size=1, max_size=2), PROGRAM, st.booleans(), st.data())
def test_text_of_a_miss_never_contradicts_itself(
    runs: list[list[Operation]],
    client: list[Operation],
    hints: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    """It never says that a call was recorded after the very writes that this play has made."""
    history = data.draw(st.sampled_from([History.AUTO, History.STRICT]))
    cassette = combine_cassettes([recorded(run, hints=hints) for run in runs])
    player = Player(
        cassette, history=history, repeat=data.draw(st.sampled_from(Repeat))
    )

    asked: list[tuple[Operation, str]] = []
    for operation in client:
        result = played(player, operation.request)
        if operation.agrees is not None and result is not None:
            asked.append((operation, result["requestState"]))

        following = data.draw(st.sampled_from(["call", "answer", "answer", "live"]))
        if following == "live":
            player.note_live_request(as_request(operation.request))
        elif following == "answer" and asked:
            place = data.draw(st.integers(0, len(asked) - 1))
            answered, state = asked.pop(place)
            played(player, answered.retry(state))

    for miss in player.tally.misses:
        if miss.reason is Reason.OTHER_HISTORY:
            before, _, made = miss.detail.partition("; this run has made ")
            assert before.removeprefix("this was recorded after ") != made


class Overlapping(NamedTuple):
    """Requests of a recording in the order of their arrival, and which had ended before each."""

    cassette: Cassette
    requests: list[tuple[Operation, bool]]
    before: list[set[int]]


@st.composite
def overlapping(draw: Any) -> Overlapping:
    """Record operations of which up to three are in flight together; their asks are not."""
    talk = Conversation()
    store = Store()
    todo = draw(operations([True]))
    requests: list[tuple[Operation, bool]] = []
    before: list[set[int]] = []
    ended: set[int] = set()
    flying: dict[int, int] = {}

    def arrive(operation: Operation, request: bytes, *, is_retry: bool) -> int:
        requests.append((operation, is_retry))
        before.append(set(ended))
        return talk.request(request)

    while todo or flying:
        if todo and (not flying or (len(flying) < 3 and draw(st.booleans()))):
            operation = todo.pop(0)
            request = operation.request
            if operation.agrees is not None:
                asked = store.asks()
                talk.response(arrive(operation, request, is_retry=False), asked)
                ended.add(len(requests) - 1)
                request = operation.retry(asked["requestState"])

            number = arrive(operation, request, is_retry=operation.agrees is not None)
            flying[len(requests) - 1] = number
        else:
            place = draw(st.sampled_from(sorted(flying)))
            talk.response(flying.pop(place), text(store.does(requests[place][0])))
            ended.add(place)

    return Overlapping(loaded(talk.cassette()), requests, before)


@given(overlapping(), st.sampled_from([History.AUTO, History.STRICT]), st.data())
def test_calls_that_were_in_flight_together_play_in_any_order(
    recording: Overlapping, history: History, data: st.DataObject
) -> None:
    """The recorded order, and all that differ from it in such calls only, have no miss."""
    cassette, requests, before = recording
    for order in ([*range(len(requests))], shuffled(before, data)):
        player = Player(cassette, history=history)
        states: dict[int, str] = {}
        for place in order:
            operation, is_retry = requests[place]
            request = operation.request
            if is_retry:
                request = operation.retry(states[place - 1])

            result = played(player, request)

            assert result is not None, player.tally.misses[-1].detail

            if operation.agrees is not None and not is_retry:
                states[place] = result["requestState"]

        assert player.played_part.unplayed_numbers == []


def shuffled(before: list[set[int]], data: st.DataObject) -> list[int]:
    """Return an order in which nothing comes before what had ended when it came."""
    order: list[int] = []
    while len(order) < len(before):
        done = set(order)
        ready = []
        for place, needed in enumerate(before):
            if place not in done and needed <= done:
                ready.append(place)

        order.append(data.draw(st.sampled_from(ready)))

    return order
