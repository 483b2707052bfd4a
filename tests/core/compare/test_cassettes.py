from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from builders import cassette_of, get, loaded, post, retry, rpc, tool
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, asks, text

from mrtr_cassette.core.compare.cassettes import CassetteComparison, compared

STATE = "a-recorded-state-0123456789abcdef"


def comparison(old: Any, new: Any, *ignored: str) -> CassetteComparison:
    """Compare the cassettes of two scripts."""
    return compared(loaded(cassette_of(*old), "a"), loaded(cassette_of(*new), "b"), ignored)


def outline(compared: CassetteComparison) -> list[str]:
    """Return each interaction in a few words."""
    return [
        f"{each.mark} {each.recorded or '.'} {each.received or '.'}{' moved' * each.is_moved}"
        for each in compared.interactions
    ]


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
def test_calls_are_aligned_by_what_they_are(old: str, new: str, lines: list[str]) -> None:
    """What is missing, new or elsewhere is told from what changed."""
    found = comparison(calls(old), calls(new))
    assert outline(found) == lines
    assert found.is_same is all(line.startswith("=") for line in lines)
    assert found.verdict == ("same" if found.is_same else "shape-changed")


def test_another_path_of_the_server_is_the_same_call() -> None:
    """Calls are aligned by what they ask for; other traffic by its path."""
    old = [(post(tool("a")), text("a")), (get("/x"), b"{}"), (get("/y"), b"{}")]
    new = [(post(tool("a"), target="/api"), text("a")), (get("/y"), b"{}")]
    assert outline(comparison(old, new)) == ["= 1 1", "- 2 .", "= 3 2"]


def test_placeholders_in_arguments_are_the_same_call() -> None:
    """Which number a secret has depends on what else was recorded."""
    secret = tool("a", key="ghp_" + "c" * 36)
    other = (tool("b", key="ghp_" + "d" * 36), text("b"))
    old, new = (
        loaded(cassette_of(*script, redacts=True))
        for script in ([(secret, text("a"))], [other, (secret, text("a"))])
    )
    assert outline(compared(old, new)) == ["+ . 1", "= 1 2"]


def asked(answer: Any, words: str) -> Any:
    """Return a script of a call that asks once."""
    call = tool("deploy")
    return [(call, asks("a", state=STATE)), (retry(call, {"a": answer}, state=STATE), text(words))]


def test_branches_are_aligned_by_their_answers() -> None:
    """The decline is compared with the decline, wherever it stands."""
    yes, no = asked(YES, "done"), asked(NO, "left")
    branched, other = [*yes, no[1]], [*no, yes[1]]
    assert outline(comparison(branched, other)) == ["= 2 1", "= 1 2 moved"]
    found = comparison(yes, no)
    assert outline(found) == ["~ 1 1"]
    assert [(stage.kind, stage.mark) for stage in found.interactions[0].stages] == [
        ("request", "="),
        ("ask", "="),
        ("answer", "~"),
        ("result", "~"),
    ]
    assert [change[:2] for change in found.interactions[0].stages[2].changes] == [
        ("text-changed", "/inputResponses/a/action"),
        ("shape-changed", "/inputResponses/a/content"),
    ]
    assert found.counts == {"~": 1}


def test_what_is_ignored_is_no_difference() -> None:
    """A pointer hides what is below it in every interaction."""
    old, new = [(tool("a"), text("1"))], [(tool("a"), text("2"))]
    assert comparison(old, new).verdict == "text-changed"
    assert comparison(old, new, "/content/0/text").is_same
    assert comparison(old, new, "/content/1").verdict == "text-changed"


@given(st.text("abcd", max_size=8), st.text("abcd", max_size=8))
def test_every_interaction_stands_once(old: str, new: str) -> None:
    """All of both are there, those of the second in order, and equal ones have partners."""
    found = comparison(calls(old), calls(new)).interactions
    received = [each.received for each in found if each.received is not None]
    recorded = [each.recorded for each in found if each.recorded is not None]
    assert received == list(range(1, len(new) + 1))
    assert sorted(recorded) == list(range(1, len(old) + 1))
    both = [each for each in found if each.recorded and each.received]
    assert len(both) == sum(min(old.count(name), new.count(name)) for name in "abcd")
    assert all(each.mark == "=" for each in both)


def test_large_cassettes_cost_little() -> None:
    """Thousands of equal calls in another order are aligned in seconds."""
    count = 1500
    script = [
        (rpc("tools/call", {"name": "a", "arguments": {"n": n % 50}}), text("a"))
        for n in range(count)
    ]
    old, new = (loaded(cassette_of(*each)) for each in (script, script[::-1]))
    started = process_time()
    assert compared(old, new).counts == {"=": count}
    assert process_time() - started < 5


def pages(run: str, *names: str) -> Any:
    """Return a script that lists one tool a page, under cursors of its run."""
    cursors = [f"{run}-{number}" for number in range(1, len(names))]
    return [
        (rpc("tools/list", {"cursor": before} if before else {}),
         {"tools": [{"name": name}], **({"nextCursor": after} if after else {})})
        for name, before, after in zip(names, [None, *cursors], [*cursors, None], strict=True)
    ]  # fmt: skip


def test_pages_are_aligned_by_which_response_issued_their_cursor() -> None:
    """Cursors that are new on every run are no difference; what stands on a page is one."""
    old, new = pages("old", "a", "b", "c"), pages("new", "a", "b", "c")
    found = comparison([*old, *old], [*new, *new])
    assert found.is_same
    assert outline(found) == [f"= {number} {number}" for number in range(1, 7)]
    assert outline(comparison(old, pages("new", "a", "x", "c"))) == ["= 1 1", "~ 2 2", "= 3 3"]
    assert outline(comparison(old, pages("old", "a", "b"))) == ["= 1 1", "~ 2 2", "- 3 ."]
