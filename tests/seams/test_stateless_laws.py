"""Any replica of a pure function: made-up servers, recorded, and played by several processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest
from builders import (
    Conversation,
    answer,
    loaded,
    missed,
    play,
    progress,
    retry,
    stream,
    tool,
    with_id,
    with_token,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import NO, YES, Json, asks, text

from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.errors import CassetteError

CALLS = (tool("deploy", env="prod"), tool("deploy", env="test"), tool("sell"))
ANSWERS = (YES, NO, {"action": "accept", "content": {"note": "é", "n": 1.5}})
REPLICAS = 2
FEW = settings(max_examples=settings.default.max_examples // 4)
ROUNDS = 3


class Place(NamedTuple):
    """Where a conversation stands, as far as the server can know it from the request."""

    call: bytes
    has_token: bool
    round: int = 0
    history: tuple[int, ...] = ()


Sent = tuple[Place, bytes, "str | None"]
Chooses = Callable[[Place], "int | None"]


class Server:
    """Says what depends on the request alone; most of its states are new each time."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self.kinds: dict[Place, str] = {}
        self.issued = 0

    def kind(self, place: Place) -> str:
        """Return how the server asks at a place; it is made up when somebody comes there first."""
        if place not in self.kinds:
            kinds = ["none", "new", "new", "fixed", "only", "end"]
            self.kinds[place] = (
                "end" if place.round == ROUNDS else self._draw(st.sampled_from(kinds))
            )
        return self.kinds[place]

    def new_state(self, place: Place) -> str | None:
        """Return the state that the ask at a place issues."""
        kind = self.kind(place)
        self.issued += 1
        number = f"{place[1:]}" if kind == "fixed" else self.issued
        return None if kind in ("none", "end") else f"state-{number}-of-{'x' * 20}"

    def says(self, place: Place, state: str | None) -> Json:
        """Return the result at a place."""
        words = f"{place.call!r} {place.round} {place.history}"
        kind = self.kind(place)
        if kind == "end":
            return text(words)
        keys = () if kind == "only" else (f"q{place.round}",)
        return {**asks(*keys, state=state), "log": f"{words}: {state}"}


def result_in(body: bytes) -> Json:
    """Return the result in a response, whatever its framing."""
    (line,) = (line for line in body.splitlines() if b'"result"' in line)
    return json.loads(line.removeprefix(b"data: "))["result"]


def client(
    server: Server, place: Place, number: int, chooses: Chooses
) -> Generator[Sent, bytes, None]:
    """Have a conversation: yields each request, and takes its response."""
    request, echoed = place.call, None
    while True:
        request = with_id(request, f"{number}.{place.round}")
        if place.has_token:
            request = with_token(request, f"t{number}")
        result = result_in((yield place, request, echoed))
        chosen = chooses(place) if server.kind(place) != "end" else None
        if chosen is None:
            return
        echoed = result.get("requestState")
        is_only = server.kind(place) == "only"
        answers = None if is_only else {f"q{place.round}": ANSWERS[chosen]}
        request = retry(place.call, answers, state=echoed)
        # What no state tells, the server can't know.
        history = () if echoed is None else place.history
        place = Place(*place[:2], place.round + 1, (*history, 0 if is_only else chosen))


class Recorded:
    """What made-up clients did with a made-up server, at the same time."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.server = Server(draw)
        self.talk = Conversation(draw(st.booleans()))
        self.answers: dict[Place, set[int]] = {}
        self.requests: list[bytes] = []
        begun = draw(st.lists(st.sampled_from([*range(6), 0, 0]), min_size=1, max_size=5))
        self.firsts = [Place(CALLS[which % 3], which > 2) for which in begun]
        self.have(self._answered, self._chosen, [*enumerate(self.firsts)])

    def have(
        self, respond: Callable[[Sent], bytes], chooses: Chooses, begun: list[tuple[int, Place]]
    ) -> None:
        """Have conversations, interleaved by chance."""
        clients = [client(self.server, place, number, chooses) for number, place in begun]
        waiting = [(each, next(each)) for each in clients]
        while waiting:
            at = self.draw(st.integers(0, len(waiting) - 1))
            each, sent = waiting.pop(at)
            try:
                waiting.append((each, each.send(respond(sent))))
            except StopIteration:
                continue

    def _answered(self, sent: Sent) -> bytes:
        place, request, _ = sent
        body = answer(request, self.server.says(place, self.server.new_state(place)))
        self.requests.append(request)
        number = self.talk.request(request)
        token = json.loads(request)["params"].get("_meta", {}).get("progressToken")
        self.talk.response(number, stream(progress(token), body) if place.has_token else body)
        return body

    def _chosen(self, place: Place) -> int | None:
        chosen: int | None = self.draw(st.sampled_from([0, 0, 1, 2, None]))
        if chosen is not None:
            self.answers.setdefault(place, set()).add(chosen)
        return chosen

    def any_recorded(self, place: Place) -> int | None:
        """Return one of the answers that somebody gave at a place."""
        recorded = sorted(self.answers.get(place, ()))
        return self.draw(st.sampled_from(recorded)) if recorded else None

    def replicas(self, number: int) -> list[Player]:
        """Return several replays without memory."""
        cassette = loaded(self.talk.cassette())
        return [Player(cassette, stateless=True) for _ in range(number)]


@FEW
@given(st.data())
def test_any_replica_says_what_the_server_said(data: st.DataObject) -> None:
    """However clients and replicas take turns, each gets the response to its own request.

    A client may give any answer that was recorded at its place, by whomever. One process alone
    says the same, byte by byte, and a state that was never issued gets nothing.
    """
    recorded = Recorded(data.draw)
    *replicas, alone = recorded.replicas(REPLICAS + 1)

    def respond(sent: Sent) -> bytes:
        place, request, echoed = sent
        player = replicas[data.draw(st.integers(0, REPLICAS - 1))]
        body = play(player, request)
        result = result_in(body)
        assert result == recorded.server.says(place, result.get("requestState"))
        assert json.dumps(json.loads(request)["id"]).encode() in body
        assert body == play(alone, request)
        if echoed is not None:
            forged = echoed[:-1] + "~"
            missed(player, request.replace(echoed.encode(), forged.encode()))
        return body

    begun = [data.draw(st.sampled_from(recorded.firsts)) for _ in range(4)]
    recorded.have(respond, recorded.any_recorded, [*enumerate(begun, start=50)])

    reasons = {miss.reason.value for player in replicas for miss in player.misses}
    assert reasons <= {"state-unknown"}


@FEW
@given(st.data())
def test_what_was_recorded_once_is_never_refused(data: st.DataObject) -> None:
    """Every recorded conversation plays on replicas in turns, in the order of the recording."""
    recorded = Recorded(data.draw)
    replicas = recorded.replicas(2)

    for at, request in enumerate([*recorded.requests, *reversed(recorded.requests)]):
        play(replicas[at % 2], request)

    one, other = (set(player.unplayed) for player in replicas)
    assert not one & other


@FEW
@given(st.data())
def test_second_answer_to_any_request_is_refused_by_name(data: st.DataObject) -> None:
    """Wherever a server changes its mind, the request is named, and both of its interactions."""
    recorded = Recorded(data.draw)
    again = data.draw(st.sampled_from(recorded.requests))
    recorded.talk.response(recorded.talk.request(again), answer(again, text("changed")))

    with pytest.raises(CassetteError) as error:
        recorded.replicas(1)
    (line,) = error.value.args[0].splitlines()[1:]
    name = "sell" if b"sell" in again else "deploy"
    assert line.endswith(f'tools/call "{name}"')
    assert line.count("#") >= 1
