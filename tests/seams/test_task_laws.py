"""Recorded tasks, played to clients that poll, answer and cancel at any pace."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple

from builders import (
    Conversation,
    delivery_of,
    loaded,
    play,
    result_of,
    rpc,
    sent_now,
    told,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import Json, compact, message
from tasking import cancel, created, get, state, update

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Request

TASK = "786512e2-9e0d-44bd-8f29-789f320fe840"
CALL = tool("deploy")
YES = {"action": "accept", "content": {}}
NO = {"action": "decline", "content": {}}


class Event(NamedTuple):
    """A state that asks for some keys, an update that answers them, or a cancellation."""

    kind: str
    keys: frozenset[str] = frozenset()


class Recording(NamedTuple):
    """What happened to a task, in order, and the cassette of that."""

    events: list[Event]
    cassette: Cassette
    is_heard: bool
    """Whether the client listened to notifications of all states too."""

    def causes(self, until: int | None = None) -> list[int]:
        """Return the places of updates and cancellations before a place."""
        events = self.events[:until]
        return [at for at, event in enumerate(events) if event.kind != "state"]


@st.composite
def recordings(draw: Any) -> Recording:
    """Record a task that asks for up to six keys, and is cancelled or not."""
    talk = Conversation(seals=draw(st.booleans()))
    events = [Event("state")]
    talk.exchange(CALL, created(TASK))
    stream = talk.stream(listen(TASK)) if draw(st.booleans()) else 0
    shown = frozenset[str]()
    answered = frozenset[str]()
    for number in range(draw(st.integers(1, 10))):
        waiting = sorted(shown - answered)
        kinds = ["state", "state", "cancel", *(["update"] * 4 if waiting else [])]
        event = Event(draw(st.sampled_from(kinds)))
        if event.kind == "update":
            answered_keys = draw(st.frozensets(st.sampled_from(waiting), min_size=1))
            event = Event("update", answered_keys)
            answered |= event.keys
        elif event.kind == "state":
            more = draw(st.integers(0, 2)) if len(shown) < 5 else 0
            # What was answered may be asked still, as answers take effect later.
            late = answered if draw(st.booleans()) else frozenset()
            shown |= {f"k{number}{at}" for at in range(more)}
            event = Event("state", shown - answered | late)

        events.append(event)

    for number, (kind, keys) in enumerate(events):
        asked = [f"{TASK}:{key}" for key in sorted(keys)]
        for _ in range(draw(st.integers(1, 2)) if kind == "state" else 0):
            status = "input_required" if keys else "working"
            said = state(TASK, status, *asked, statusMessage=str(number))
            talk.exchange(get(TASK), said)

        if kind == "state" and stream:
            talk.event(stream, compact(message("notifications/tasks", said, id=None)))

        if kind != "state":
            answers = update(TASK, dict.fromkeys(asked, YES))
            request = answers if kind == "update" else cancel(TASK)
            talk.exchange(request, {"acknowledged": number})

    if stream:
        talk.end(stream)

    return Recording(events, loaded(talk.cassette()), is_heard=stream > 0)


def listen(task: str) -> bytes:
    """Return the request that opens the stream of a task's notifications."""
    return rpc("subscriptions/listen", {"taskIds": [task]}, 7)


class Client:
    """Does something to the task of a call, and remembers what it saw and what was accepted."""

    def __init__(self, recording: Recording, player: Player) -> None:
        self._player = player
        self._recording = recording
        self._task = result_of(play(player, CALL))["taskId"]
        self._stream = (
            delivery_of(player, listen(self._task)) if recording.is_heard else None
        )
        self.seen: list[int] = []
        self.heard: list[int] = []
        self.names: dict[str, str] = {}
        self.given: set[str] = set()
        self.cancelled = 0

    def _told(self, request: Request) -> Json:
        """Return the result that a request gets; None where it is a miss."""
        decision = self._player.request_received(request)
        sent = [] if self._stream is None else told(self._stream)
        for part in sent:
            raw = part if isinstance(part, bytes) else b""
            for event in re.findall(rb"data: (.*)\n\n", raw):
                self.heard.append(self._read(json.loads(event)["params"]))

        return result_of(sent_now(decision)) if isinstance(decision, Play) else None

    def _read(self, state: Json) -> int:
        """Return the place of a state, and remember what it asks."""
        self.names |= {
            key.rpartition(":")[2]: key for key in state.get("inputRequests", {})
        }
        return int(state["statusMessage"])

    def poll(self) -> int:
        """Return the place of the state that a poll gets."""
        place = self._read(self._told(get(self._task)))
        self.seen += [place] if self.seen[-1:] != [place] else []
        return place

    def answer(self, *keys: str, value: Json = YES) -> bool:
        """Tell whether answers are accepted."""
        answers = {self.names.get(key, f"{self._task}:{key}"): value for key in keys}
        is_accepted = self._told(update(self._task, answers)) is not None
        self.given |= set(keys) if is_accepted else set()

        return is_accepted

    def cancel(self) -> bool:
        """Tell whether a cancellation is accepted."""
        is_next = self.next_is_cancel
        is_accepted = self._told(cancel(self._task)) is not None
        self.cancelled += is_next and is_accepted

        return is_accepted

    def has_come(self, cause: int) -> bool:
        """Tell whether all has been done that an update or a cancellation did in the recording."""
        events = self._recording.events
        if events[cause].kind == "update":
            return events[cause].keys <= self.given

        return (
            Counter(event.kind for event in events[: cause + 1])["cancel"]
            <= self.cancelled
        )

    @property
    def following(self) -> int:
        """The first update or cancellation that has not come, or the end."""
        waiting = [
            cause for cause in self._recording.causes() if not self.has_come(cause)
        ]
        return min(waiting, default=len(self._recording.events))

    @property
    def next_is_cancel(self) -> bool:
        """Whether a cancellation comes next."""
        return "cancel" in {
            event.kind for event in self._recording.events[self.following :][:1]
        }


@given(recordings(), st.data())
def test_states_come_in_order_after_their_causes(
    recording: Recording, data: st.DataObject
) -> None:
    """No state comes before its cause, and none is left out but by what was recorded after it.

    Exactly the recorded answers to what was asked are accepted, and cancellations in their places.
    """
    events = recording.events
    client = Client(recording, Player(recording.cassette))
    recorded = sorted(
        {key for event in events if event.kind == "update" for key in event.keys}
    )
    for _ in range(data.draw(st.integers(1, 24))):
        does = data.draw(
            st.sampled_from(["poll", "poll", "answer", "answer", "decline", "cancel"])
        )
        keys = sorted(client.names)
        if does == "poll":
            place = client.poll()

            assert place < client.following

            if place < max(recording.causes(client.following), default=-1):
                # Nothing else was polled until now.
                later = events[place + 1 : client.following]
                assert "state" not in {event.kind for event in later}

            left_out = {at for at in range(place) if events[at].kind == "state"}
            left_out -= {*client.seen, *client.heard}
            causes = [cause for cause in recording.causes() if client.has_come(cause)]

            assert all(at < max(causes, default=-1) for at in left_out)
            assert client.seen == sorted(client.seen)
        elif does == "cancel":
            is_acceptable = client.cancelled > 0 or client.next_is_cancel
            assert client.cancel() == is_acceptable
        elif does == "decline" and keys:
            assert not client.answer(data.draw(st.sampled_from(keys)), value=NO)
        elif recorded:
            chosen = data.draw(st.frozensets(st.sampled_from(recorded), min_size=1))
            assert client.answer(*chosen) == (chosen <= {*keys})

        assert all(place < client.following for place in client.heard)


@given(recordings(), st.booleans(), st.data())
def test_clients_that_answer_alike_see_alike(
    recording: Recording,
    one_by_one: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    """Whatever their pace, they see the same, but what others leave out by answering first.

    That is what was polled behind another state, and before the next update or cancellation.
    """
    events = recording.events
    player = Player(recording.cassette, repeat=Repeat.ALWAYS)
    seen = []
    for _ in range(2):
        client = Client(recording, player)
        for cause in recording.causes():
            paces = data.draw(st.integers(1, 5))
            while paces > 0 or not events[cause].keys <= client.names.keys():
                client.poll()
                paces -= 1

                assert paces > -2 * len(events), "the question never comes"

            if events[cause].kind == "cancel":
                assert client.cancel()

            for keys in (
                [[key] for key in events[cause].keys]
                if one_by_one
                else [events[cause].keys]
            ):
                assert not keys or client.answer(*keys)

        for _ in events:
            client.poll()

        seen.append({*client.seen, *client.heard})

    last = max(recording.causes(), default=-1)
    for place in seen[0] ^ seen[1]:
        assert place < last
        assert events[place - 1].kind == "state"

    assert player.played_part.unplayed_numbers == []
