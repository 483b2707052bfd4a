from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    INITIALIZE,
    answer,
    cassette_of,
    get,
    loaded,
    notification,
    pipe_cassette,
    post,
    retry,
    rpc,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, Json, asks, text
from pushing import branched

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.cassette.transports import FIRST_SESSION
from mrtr_cassette.core.compare.conversations import (
    CassetteComparison,
    Stage,
    cassette_comparison,
    comparison_with_run,
)
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.wire.http import End, channel_request, line_request
from mrtr_cassette.core.wire.pointers import Difference

STATE = "a-recorded-state-0123456789abcdef"


def comparison(old: Any, new: Any, *ignored: str) -> CassetteComparison:
    """Compare the cassettes of two scripts."""
    return cassette_comparison(
        loaded(cassette_of(*old), "a"),
        loaded(cassette_of(*new), "b"),
        lambda _: ignored,
    )


def outline(compared: CassetteComparison) -> list[str]:
    """Return each interaction in a few words."""
    lines = []
    for interaction in compared.interactions:
        recorded = interaction.recorded or "."
        received = interaction.received or "."
        moved = " moved" if interaction.is_moved else ""
        lines.append(f"{interaction.mark} {recorded} {received}{moved}")

    return lines


def calls(names: str) -> Any:
    """Return a script with one call for each letter, which returns the letter."""
    return [(tool(name), text(name)) for name in names]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("abc", "abc", ["= 1 1", "= 2 2", "= 3 3"]),
        ("abc", "ac", ["= 1 1", "- 2 .", "= 3 2"]),
        ("ac", "abc", ["= 1 1", "+ . 2", "= 2 3"]),
        ("abc", "cab", ["= 3 1 moved", "= 1 2", "= 2 3"]),
        ("aa", "a", ["= 1 1", "- 2 ."]),
        ("a", "b", ["- 1 .", "+ . 1"]),
        ("", "b", ["+ . 1"]),
        ("", "", []),
    ],
)
def test_calls_are_aligned_by_what_they_are(
    old: str, new: str, lines: list[str]
) -> None:
    """What is missing, new or elsewhere is told from what changed."""
    found = comparison(calls(old), calls(new))

    assert outline(found) == lines
    assert found.is_same is all(line.startswith("=") for line in lines)
    assert found.verdict == ("same" if found.is_same else "shape-changed")


def test_call_with_other_arguments_is_held_to_one_by_its_name() -> None:
    """It is another call, of which is told where it differs from one that is missing."""
    old = [(tool("add", a=1, b=2), text("3")), (tool("drop"), text("x"))]
    new = [(tool("add", a=1, b=3, at=9), text("4")), (tool("add", a=1, b=4), text("5"))]
    found = comparison(old, new, "/arguments/at")

    assert outline(found) == ["- 1 .", "- 2 .", "+ . 1", "+ . 2"]
    assert [interaction.request for interaction in found.interactions] == [
        (),
        (),
        (Difference("/arguments/b", "2", "3"),),
        (),
    ]


def test_another_path_of_the_server_is_the_same_call() -> None:
    """Calls are aligned by what they ask for; other traffic by its path."""
    old = [(post(tool("a")), text("a")), (get("/x"), b"{}"), (get("/y"), b"{}")]
    new = [(post(tool("a"), target="/api"), text("a")), (get("/y"), b"{}")]

    assert outline(comparison(old, new)) == ["= 1 1", "- 2 .", "= 3 2"]

    call_of_x = (post(tool("a"), target="/x"), text("/x"))
    call_of_y = (post(tool("a"), target="/y"), text("/y"))
    found = comparison([call_of_x, call_of_y], [call_of_y, call_of_x])

    assert outline(found) == ["= 2 1", "= 1 2 moved"]


def test_placeholders_in_arguments_are_the_same_call() -> None:
    """Which number a secret has depends on what else was recorded."""
    secret = tool("a", key="ghp_" + "c" * 36)
    another = (tool("b", key="ghp_" + "d" * 36), text("b"))
    with_secret = (secret, text("a"))
    old = loaded(cassette_of(with_secret, redacts=True))
    new = loaded(cassette_of(another, with_secret, redacts=True))

    assert outline(cassette_comparison(old, new)) == ["+ . 1", "= 1 2"]


def asked(answer: Any, words: str) -> Any:
    """Return a script of a call that asks once."""
    call = tool("deploy")
    return [
        (call, asks("a", state=STATE)),
        (retry(call, {"a": answer}, state=STATE), text(words)),
    ]


def test_branches_are_aligned_by_their_answers() -> None:
    """The decline is compared with the decline, wherever it stands."""
    yes = asked(YES, "done")
    no = asked(NO, "left")
    accepted_first = [*yes, no[1]]
    declined_first = [*no, yes[1]]
    found = comparison(accepted_first, declined_first)

    assert outline(found) == ["= 2 1", "= 1 2 moved"]

    found = comparison(yes, no)

    assert outline(found) == ["~ 1 1"]
    assert [(stage.kind, stage.mark) for stage in found.interactions[0].stages] == [
        ("ask", "="),
        ("answer", "~"),
        ("result", "~"),
    ]

    assert [change[:2] for change in found.interactions[0].stages[1].changes] == [
        ("text-changed", "/inputResponses/a/action"),
        ("shape-changed", "/inputResponses/a/content"),
    ]
    assert found.count_by_mark == {"~": 1}


@given(st.text("abcd", max_size=8), st.text("abcd", max_size=8))
def test_every_interaction_stands_once(old: str, new: str) -> None:
    """All of both are there, those of the second in order, and equal ones have partners."""
    found = comparison(calls(old), calls(new)).interactions
    received = [
        interaction.received
        for interaction in found
        if interaction.received is not None
    ]
    recorded = [
        interaction.recorded
        for interaction in found
        if interaction.recorded is not None
    ]

    assert received == list(range(1, len(new) + 1))
    assert sorted(recorded) == list(range(1, len(old) + 1))

    marks = [
        interaction.mark
        for interaction in found
        if interaction.recorded and interaction.received
    ]
    common = sum(min(old.count(name), new.count(name)) for name in "abcd")

    assert len(marks) == common
    assert set(marks) <= {"="}


def pages(run: str, *names: str) -> Any:
    """Return a script that lists one tool a page, under cursors of its run."""
    script = []
    params = {}
    for number, name in enumerate(names, start=1):
        request = rpc("tools/list", params)
        page: Json = {"tools": [{"name": name}]}
        if number < len(names):
            cursor = f"{run}-{number}"
            page["nextCursor"] = cursor
            params = {"cursor": cursor}

        script.append((request, page))

    return script


def test_pages_are_aligned_by_which_response_issued_their_cursor() -> None:
    """Cursors that are new on every run are no difference; what stands on a page is one."""
    old = pages("old", "a", "b", "c")
    new = pages("new", "a", "b", "c")
    found = comparison([*old, *old], [*new, *new])

    assert found.is_same
    assert outline(found) == [f"= {number} {number}" for number in range(1, 7)]
    assert outline(comparison(old, pages("new", "a", "x", "c"))) == [
        "= 1 1",
        "~ 2 2",
        "= 3 3",
    ]
    assert outline(comparison(old, pages("old", "a", "b"))) == [
        "= 1 1",
        "~ 2 2",
        "- 3 .",
    ]


# Stage by stage

CALL = tool("deploy", env="prod")


def asking(
    *keys: str, words: str = "done", answers: Json = YES, end: bool = True
) -> Any:
    """Return the interaction of a call that asks once for each of these keys."""
    states = [f"state-of-{key}-0123456789abcdefghij" for key in keys]
    script: list[Any] = []
    request = CALL
    for key, state in zip(keys, states, strict=True):
        script.append((request, asks(key, state=state, words=f"about {key}?")))
        request = retry(CALL, {key: answers}, state=state, number=len(script) + 1)

    if end:
        script.append((request, text(words)))

    return loaded(cassette_of(*script)).interactions[0]


def stages_of(
    old: RecordedInteraction | None, new: RecordedInteraction | None, *ignored: str
) -> tuple[Stage, ...]:
    """Compare two interactions, of which one may be missing."""
    empty = loaded(cassette_of())
    before = replace(empty, interactions=() if old is None else (old,))
    after = replace(empty, interactions=() if new is None else (new,))
    (found,) = cassette_comparison(before, after, lambda _: ignored).interactions

    return found.stages


def transcript(old: Any, new: Any, *ignored: str) -> str:
    """Return the stages of two interactions, with the verdicts of their changes."""
    words = []
    for stage in stages_of(old, new, *ignored):
        verdicts = sorted(
            {change.verdict.removesuffix("-changed") for change in stage.changes}
        )
        words.append(
            f"{stage.mark} {stage.kind}{stage.turn or ''} {','.join(verdicts)}"
        )

    return "  ".join(map(str.rstrip, words))


ONE = asking("a")


@pytest.mark.parametrize(
    ("old", "new", "stages"),
    [
        (ONE, ONE, "= ask1  = answer1  = result"),
        (ONE, asking("a", answers=NO), "= ask1  ~ answer1 shape,text  = result"),
        (
            asking("a", "b"),
            ONE,
            "= ask1  = answer1  - ask2 rounds  - answer2 rounds  = result",
        ),
        (
            asking("b"),
            asking("a", "b"),
            "+ ask1 rounds  + answer1 rounds  = ask1  = answer1  = result",
        ),
        (ONE, asking("b"), "~ ask1 question  ~ answer1 shape  = result"),
        (ONE, asking("a", end=False), "= ask1  ~ answer1 shape  - result shape"),
        (None, ONE, "+ ask1 shape  + answer1 shape  + result shape"),
        (asking("a", end=False), None, "- ask1 shape"),
    ],
)
def test_turns_are_compared_one_by_one(old: Any, new: Any, stages: str) -> None:
    """A turn that only one of them has is a change of rounds; the others stay beside theirs."""
    assert transcript(old, new) == stages


def test_null_in_an_answer_is_as_good_as_nothing() -> None:
    """Some clients write members that have no value, others leave them out."""
    plain = asking("a")
    spelled = asking("a", answers={**YES, "_meta": None, "list": [None]})

    assert "~ answer1" in transcript(plain, spelled)
    assert "= answer1" in transcript(plain, spelled, "/inputResponses/a/list")


def test_pushed_turns_are_compared_like_others() -> None:
    """A question that was pushed is compared by what it asks; its id is another one."""
    interactions = branched().interactions
    for interaction in interactions:
        assert "~" not in transcript(interaction, interaction)

    turned = next(
        interaction for interaction in interactions if interaction.pushed_turns
    )
    without = replace(turned, pushed_turns=())

    assert "- ask1 rounds  - answer1 rounds" in transcript(turned, without)


READS = tool("get")
WRITES = tool("set", to="1")
HISTORY = [(READS, text("0")), (WRITES, text("done")), (READS, text("1"))]


@pytest.mark.parametrize(
    ("made", "is_part", "found"),
    [
        (HISTORY, False, ["= 1 1", "= 2 2", "= 3 3"]),
        ([*HISTORY[:2], HISTORY[0]], False, ["= 1 1", "= 2 2", "~ 3 3"]),
        (HISTORY[:2], False, ["= 1 1", "= 2 2", "- 3 ."]),
        ([*HISTORY, HISTORY[2]], False, ["= 1 1", "= 2 2", "= 3 3", "= 3 4"]),
        ([*HISTORY, (READS, text("2"))], False, ["= 1 1", "= 2 2", "= 3 3", "+ . 4"]),
        ([HISTORY[0], *HISTORY], False, ["= 1 1", "= 1 2", "= 2 3 moved", "= 3 4"]),
        ([HISTORY[0], *HISTORY], True, ["= 1 1", "= 1 2", "= 2 3 moved", "= 3 4"]),
        (
            [*HISTORY[:2], HISTORY[0], HISTORY[0]],
            False,
            ["= 1 1", "= 2 2", "~ 3 3", "= 1 4"],
        ),
        (HISTORY[1:], True, ["= 2 1", "= 3 2"]),
        ([HISTORY[0], HISTORY[0]], True, ["= 1 1", "~ 3 2"]),
    ],
)
def test_calls_that_were_made_again_are_held_to_the_recorded_ones(
    made: Any, *, is_part: bool, found: list[str]
) -> None:
    """A read after other writes differs; one more of the same doesn't; a part lacks nothing."""
    recorded = loaded(cassette_of(*HISTORY), "a")
    received = loaded(cassette_of(*made), "b")
    comparison = comparison_with_run(
        recorded, received, lambda _: (), may_lack_calls=is_part
    )

    assert sorted(outline(comparison)) == sorted(found)


def test_each_call_of_a_run_is_read_once() -> None:
    """Also where none is equal to a recorded one, so that any of them might be."""
    read = []

    def ignored_for(call: Call) -> tuple[str, ...]:
        read.append(call.name)
        return ()

    old = loaded(cassette_of(*[(tool("a", n=n), text("x")) for n in range(9)]), "a")
    new = loaded(cassette_of(*[(tool("a", n=-n), text("y")) for n in range(1, 9)]), "b")
    comparison = comparison_with_run(old, new, ignored_for, may_lack_calls=False)

    assert comparison.count_by_mark == {"-": 9, "+": 8}
    assert len(read) == 9 + 8


def test_what_is_ignored_in_calls_and_answers_does_not_keep_them_apart() -> None:
    """Calls whose arguments or answers differ there alone are the same."""

    def said_at(time: str) -> Any:
        call = tool("say", at=time)
        answers = {"ok": {"action": "accept", "content": {"n": time}}}
        return [
            (call, asks("ok", state=STATE)),
            (retry(call, answers, state=STATE), text("x")),
        ]

    old = said_at("1")
    new = said_at("2")

    assert outline(comparison(old, new)) == ["- 1 .", "+ . 1"]
    assert outline(comparison(old, new, "/arguments/at")) == ["~ 1 1"]

    ignored = "/arguments/at", "/inputResponses/ok/content/n"

    assert outline(comparison(old, new, *ignored)) == ["= 1 1"]


LISTED = rpc("tools/list")
CALLED = tool("a")
STARTED = notification("notifications/message", data="up")
LOADED = notification("notifications/message", data="loaded")


def logging(channel: list[bytes], opened: list[bytes], listed: list[bytes]) -> Cassette:
    """Return a session on pipes whose server logs of its own accord, and before two responses."""
    said = [(channel_request(FIRST_SESSION), channel, End.OPEN)] if channel else []
    for request, result, logs in (
        (INITIALIZE, {"serverInfo": {}}, opened),
        (LISTED, {"tools": []}, listed),
        (CALLED, text("done"), []),
    ):
        line = line_request(request, FIRST_SESSION)
        said.append((line, [*logs, answer(request, result)], End.COMPLETE))

    return pipe_cassette(*said)


@pytest.mark.parametrize(
    "old",
    [
        logging([STARTED], [], [LOADED]),
        logging([], [STARTED], [LOADED]),
        logging([], [], []),
    ],
)
@pytest.mark.parametrize(
    "new",
    [
        logging([STARTED, LOADED], [], []),
        logging([], [LOADED], []),
        logging([], [], [STARTED]),
    ],
)
def test_logs_of_start_up_over_a_pipe_belong_to_no_call(
    old: Cassette, new: Cassette
) -> None:
    """Before which response they come, and whether before any, is chance."""
    found = cassette_comparison(old, new)

    assert [line for line in outline(found) if not line.startswith("=")] == []
    assert comparison_with_run(old, new, lambda _: (), may_lack_calls=False).is_same
