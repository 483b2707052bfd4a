"""Facts about a user's function that tells whether a recorded call stands for a received one."""

from __future__ import annotations

from builders import (
    cassette_of,
    heard,
    loaded,
    missed,
    notification,
    play,
    post,
    retry,
    said,
    state_in,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, asks, text

from mrtr_cassette.core.protocol.hooks import ClientRequest, MatchHook, RecordHook
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Player

asked: list[tuple[ClientRequest, ClientRequest]] = []


def same_end(recorded: ClientRequest, received: ClientRequest) -> bool:
    """Take calls whose ids end alike for the same."""
    asked.append((recorded, received))
    return bool(recorded.arguments["id"][-1] == received.arguments["id"][-1])


def matching(*script: tuple[bytes, object], **options: object) -> Player:
    """Return a replay of a script in which the function tells what matches."""
    asked.clear()
    recorded = loaded(cassette_of(*script))
    return Player(recorded, matchers=MatchHook(same_end), **options)  # type: ignore[arg-type]


def made(identity: str) -> bytes:
    """Return a call that makes something."""
    return tool("make", id=identity)


def test_the_function_is_asked_where_no_equal_recording_is_free() -> None:
    """What is equal comes first, then what the function matches, each as often as recorded."""
    player = matching((made("1a"), text("first")), (made("2a"), text("second")))

    assert said(play(player, made("2a"))) == "second"
    assert not asked
    assert said(play(player, made("3a"))) == "first"
    assert [received.arguments for _, received in asked] == [{"id": "3a"}] * 2
    assert heard(player, made("2a")) == "miss already-played"
    assert heard(player, made("3a")) == "miss already-played"
    assert player.tally.match_counts_by_kind == {"same_end": 1}


def test_a_miss_says_that_the_function_matched_none() -> None:
    """Its name is beside the difference from the nearest recording."""
    player = matching((made("1a"), text("first")))
    miss = missed(player, made("1b"))

    assert miss.detail == (
        'tools/call "make" was recorded with other arguments, and same_end matched none'
    )
    assert [difference.pointer for difference in miss.differences] == ["/arguments/id"]


def test_matched_comes_before_ignored() -> None:
    """A recording that differs in an ignored value too is for who gets no other."""
    first = tool("make", id="1a", at=1)
    second = tool("make", id="2a", at=2)
    options = {"ignored": [("arguments", "at")], "repeat": Repeat.ALWAYS}
    player = matching((first, text("first")), (second, text("second")), **options)

    assert said(play(player, tool("make", id="2a", at=2))) == "second"
    assert said(play(player, tool("make", id="2a", at=9))) == "first"
    assert said(play(player, tool("make", id="1a", at=9))) == "second"


def test_answers_and_states_match_by_themselves() -> None:
    """The function says nothing of what a user answered, nor of which question that was about."""
    ask = asks("k", state="eyJhIjoxfQ.signature-of-it")
    script = (
        (made("1a"), ask),
        (
            retry(made("1a"), {"k": YES}, state="eyJhIjoxfQ.signature-of-it"),
            text("yes"),
        ),
    )

    player = matching(*script)
    state = state_in(play(player, made("2a")))
    for answers, echoed in (
        ({"k": NO}, state),
        ({"k": YES}, "another"),
        ({"k": YES}, None),
    ):
        heard_of = heard(player, retry(made("2a"), answers, state=echoed))

        assert heard_of.startswith("miss "), (answers, echoed)

    retried = retry(made("2a"), {"k": YES}, state=state)

    assert said(play(player, retried)) == "yes"
    assert player.tally.match_counts_by_kind == {"same_end": 2}


def test_what_is_no_call_of_the_same_tool_is_not_asked_about() -> None:
    """Other tools, notifications, and requests that contradict their headers never match."""
    player = matching((made("1a"), text("first")))

    assert heard(player, tool("take", id="1a")) == "miss unknown-name"

    contradicting = post(made("2a"), ("Mcp-Name", "take"))

    assert heard(player, contradicting) == "miss headers-contradict"

    noted = notification("tools/call", name="make", arguments={"id": "2a"})

    assert heard(player, noted).startswith("miss ")
    assert not asked


def test_a_failing_function_is_a_miss_of_its_own() -> None:
    """Its client gets an error that names the function, whatever any server would have said."""
    player = matching((made("1a"), text("first")))
    miss = missed(player, tool("make"))

    assert miss.reason is Reason.HOOK_FAILED
    assert miss.detail.startswith("match: same_end raised KeyError at line ")

    player.before_record = RecordHook(lambda _: 1)
    miss = missed(player, notification("notifications/roots/list_changed"))

    assert "before_record: <lambda> returned 1, and not a request" in miss.detail


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=8))
def test_every_call_gets_a_recording_that_the_function_matches(
    calls: list[tuple[int, str]],
) -> None:
    """Whatever the order: an equal one while it is free, else a matching one, else a miss."""
    recorded = [(0, "a"), (1, "b"), (0, "b"), (1, "a"), (0, "a")]
    script = [
        (made(f"{n}{end}"), text(f"{n}{end} {at}"))
        for at, (n, end) in enumerate(recorded)
    ]

    player = matching(*script, history=History.ORDER)
    left = [f"{n}{end} {at}" for at, (n, end) in enumerate(recorded)]
    for number, end in calls:
        wanted = f"{number}{end}"
        got = heard(player, made(wanted))
        equal = [name for name in left if name.startswith(wanted)]
        alike = [name for name in left if name[1] == end]
        if got.startswith("miss"):
            assert not alike

            continue

        assert got == (equal or alike)[0]

        left.remove(got)
