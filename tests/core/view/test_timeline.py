"""Facts about the time axis of a session."""

from __future__ import annotations

import pytest
from builders import STREAM_HEADERS, Answer, cassette_of, get, loaded, notification, post, sse, tool
from messages import text

from mrtr_cassette.core.report.details import Stretch, detailed
from mrtr_cassette.core.view.timeline import axis_of, shown_time, timelines


def busy(*times: tuple[float, float]) -> list[Stretch]:
    """Return stretches of the server's time."""
    return [Stretch("server", start, end) for start, end in times]


def test_axis_is_linear_while_something_happens() -> None:
    """Stretches that overlap or follow one another are one."""
    axis = axis_of(busy((10, 20), (15, 40), (40, 110)))

    assert [axis.position(at) for at in (10, 60, 110)] == [0, 50, 100]
    assert (axis.cuts, axis.busy_ms) == ((), 100)


def test_idle_time_is_cut() -> None:
    """Nobody has to look at idle time: it is as narrow however long it was."""
    short = axis_of(busy((0, 50), (1000, 1050)))
    long = axis_of(busy((0, 50), (900_000, 900_050)))

    assert short.positions == long.positions
    assert len(short.cuts) == 1
    assert short.position(50) < short.cuts[0] < short.position(1000)
    assert short.position(1000) - short.position(50) < 3


def test_short_pauses_stay() -> None:
    """A pause that is short beside the rest is as wide as it was."""
    axis = axis_of(busy((0, 50), (55, 100)))

    assert axis.cuts == ()
    assert axis.position(55) == pytest.approx(55)


@pytest.mark.parametrize("stretches", [[], busy((5, 5)), busy((5, 5), (9, 9))])
def test_axis_without_time(stretches: list[Stretch]) -> None:
    """Where nothing takes any time, each moment still has a place."""
    axis = axis_of(stretches)

    assert all(0 <= axis.position(at) <= 100 for at in (0, 5, 7, 9, 10))


def test_moments_beyond_the_axis_stand_at_its_ends() -> None:
    """What was before or after all that counts stands at the end."""
    axis = axis_of(busy((10, 20)))

    assert (axis.position(0), axis.position(99)) == (0, 100)


def test_each_session_has_its_timeline() -> None:
    """Calls are grouped by session; a stream that only listens doesn't stretch the axis."""
    session = ("Mcp-Session-Id", "sess-0123456789abcdef")
    listening = Answer((sse(notification("x")),), STREAM_HEADERS)
    recording = loaded(
        cassette_of(
            (post(tool("a")), text("x")),
            (get("/mcp", session), listening),
            (post(tool("b"), session), text("x")),
        )
    )
    first, second = timelines(detailed(recording).interactions)

    assert [each.name for each in first.interactions] == ["a"]
    assert (first.session, first.client) == ("", "")
    assert [each.method for each in second.interactions] == ["GET /mcp", "tools/call"]
    call = second.interactions[1].stretches[0]
    assert second.axis.busy_ms == call.end_ms - call.start_ms


def test_session_of_a_stream_alone_has_an_axis() -> None:
    """Where nothing but a listening stream was recorded, its time is the axis."""
    listening = Answer((sse(notification("x")),), STREAM_HEADERS)
    (timeline,) = timelines(detailed(loaded(cassette_of((get("/mcp"), listening)))).interactions)

    assert timeline.axis.busy_ms > 0


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (0.2, "under 1 ms"),
        (12.4, "12 ms"),
        (1234, "1.2 s"),
        (59_999, "60.0 s"),
        (60_000, "1 min"),
        (84_400, "1 min 24 s"),
    ],
)
def test_durations_are_said_as_people_do(duration_ms: float, shown: str) -> None:
    """A duration has the unit that fits it."""
    assert shown_time(duration_ms) == shown
