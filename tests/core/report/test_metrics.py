"""Facts about the numbers of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from builders import Answer, conversation, get, missed, player_of, post, retry, rpc, tool
from messages import YES, asks, text
from pushing import PushingSession, elicit, posted

import mrtr_cassette
from mrtr_cassette.core.replay.harmless import Harmless
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.report.events import (
    answered_event,
    asked_by_push_event,
    asked_event,
    failed_event,
    harmless_event,
    missed_event,
    pushed_event,
    request_event,
    response_event,
    unreachable_event,
    unrecorded_event,
)
from mrtr_cassette.core.report.metrics import FAMILIES, PLAYS, Counts, Traffic
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
READ = rpc("resources/read", {"uri": "file:///x"})
ASKED = ((CALL, asks("a", state=STATE)), (retry(CALL, {"a": YES}, state=STATE), text("done")))


class Run:
    """The numbers of a run."""

    def __init__(self, playables: Sequence[Playable] = ()) -> None:
        self.counts = Counts(playables)

    def told(self, function: Any, *arguments: Any) -> None:
        """Tell of an event as an announcer does."""
        event = partial(function, *arguments)
        self.counts.counted[event.func](*event.args)

    def numbers(self) -> dict[tuple[str, ...], Any]:
        """Return what is not zero; a gauge or a counter as one number."""
        return {
            (family.name.removeprefix("mrtr_cassette_"), *sample.labels): (
                sample.numbers if family.kind == "histogram" else sample.numbers[0]
            )
            for family, samples in self.counts.samples().items()
            for sample in samples
            if any(sample.numbers)
        }


def test_a_replay_counts_what_it_played_missed_and_asked() -> None:
    """Plays go by method and tool, misses by reason, turns by how they were asked."""
    player = player_of(*ASKED, (READ, text("r")))
    run = Run(player.playables)
    for request, times in (
        (ASKED[0][0], 1),
        (ASKED[1][0], 1),
        (READ, 2),
    ):
        for _ in range(times):
            decision = player.request_received(post(request))
            assert isinstance(decision, Play)
    first, second = player.interactions[0]
    run.told(asked_event, first)
    run.told(answered_event, second)
    run.told(missed_event, missed(player, tool("deploy", env="x")))
    harmless = player.request_received(post(rpc("ping")))
    assert isinstance(harmless, Harmless)
    run.told(harmless_event, harmless)
    for _ in range(2):
        run.counts.played()

    assert run.numbers() == {
        ("plays", "tools/call", "deploy"): 2,
        ("plays", "resources/read", ""): 2,
        ("misses", "arguments-differ"): 1,
        ("harmless",): 1,
        ("asks", "result"): 1,
        ("answers", "result"): 1,
    }


def test_a_recording_counts_exchanges_and_turns() -> None:
    """An ask by a result is a whole exchange; a pushed one and the answer to it are turns."""
    run = Run()
    talk = conversation(*ASKED)
    for number in (1, 2):
        run.told(request_event, talk.observation(number))
        run.told(response_event, talk.observation(number), End.COMPLETE, 1.0)
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.say(stream, elicit())
    (push,) = session.talk.observation(stream).take_pushed()
    run.told(pushed_event, session.talk.observation(stream), push)
    run.told(request_event, session.talk.observation(session.post(posted(elicit(), YES))))
    run.told(unreachable_event, "refused")
    run.told(unrecorded_event, None)
    run.told(failed_event, "the disk is full")

    assert run.numbers() == {
        ("exchanges",): 2,
        ("asks", "result"): 1,
        ("answers", "result"): 1,
        ("asks", "push"): 1,
        ("answers", "push"): 1,
        ("unreachable",): 1,
        ("unrecorded",): 1,
        ("recording_failed",): 1,
    }


def test_a_replay_counts_what_is_pushed() -> None:
    """It is told by the ask itself, not by an exchange."""
    run = Run()
    run.told(asked_by_push_event, None)

    assert run.numbers() == {("asks", "push"): 1}


def test_time_goes_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    """A histogram has its buckets one by one, then what exceeds all, then the sum."""
    run = Run()
    run.counts.loop_was_late(0.001)
    run.counts.loop_was_late(0.0011)
    run.counts.loop_was_late(11)
    run.counts.handled(Traffic(3, 10, 20, {"made/up": [0.5], "": [0.5], "ping": [0.0]}))  # type: ignore[arg-type]
    numbers = run.numbers()

    lag = numbers["loop_lag_seconds",]
    assert (lag[0], lag[1], lag[-2]) == (1, 1, 1)
    assert abs(lag[-1] - 11.0021) < 1e-9
    assert sum(numbers["request_duration_seconds", "other"][:-1]) == 2
    assert sum(numbers["request_duration_seconds", "ping"][:-1]) == 1
    assert ("request_duration_seconds", "tools/call") not in numbers
    assert [numbers[name,] for name in ("requests_in_flight", "received_bytes", "sent_bytes")] == [
        3,
        10,
        20,
    ]


def test_labels_are_bounded_by_the_cassette() -> None:
    """Only the plays depend on the cassette; without one there are none of them."""
    some = player_of(
        (CALL, text("a")), (get("/x"), Answer((), status=404)), (rpc("made/up"), text("c"))
    )
    names = [each.labels for each in Counts(some.playables).samples()[PLAYS]]

    assert names == [("other", ""), ("tools/call", "deploy")]
    assert not Counts().samples()[PLAYS]


def test_the_guide_lists_every_metric() -> None:
    """The table of docs/fleet.md has the metrics that exist, as they are told apart and described."""
    guide = Path(mrtr_cassette.__file__).parents[1] / "docs" / "fleet.md"
    table = guide.read_text(encoding="utf-8").partition("| metric |")[2].partition("\n\n")[0]
    total = {"counter": "_total"}
    assert table.split("\n")[2:] == [
        f"| `{each.name}{total.get(each.kind, '')}` | {each.kind} "
        f"| {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |".replace(
            "|  |", "| |"
        )
        for each in FAMILIES
    ]
