"""Facts about the report of a replay as JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from builders import play, player_of, post, retry, rpc, state_in, tool
from harmless import assert_harmless
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import NO, YES, asks, text

from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.ci import junit
from mrtr_cassette.core.report.runs import InteractionOutcome, ReplayReport, report_of_replay

STATE = "state-of-the-server-0123456789"
CALL = tool("deploy", env="prod")


def replayed(*, answers: Any = YES) -> Player:
    """Return a replay in which one interaction was played, one in part, and one not at all."""
    player = player_of(
        (tool("add"), text("1")),
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        (tool("drop"), text("gone")),
    )
    play(player, tool("add"))
    state = state_in(play(player, CALL))
    player.request_received(post(retry(CALL, {"a": answers}, state=state)))
    return player


def test_junit_has_a_case_for_each_interaction_and_each_miss() -> None:
    """Misses are failures with the whole text, what was not played is skipped."""
    root = ET.fromstring(junit(report_of_replay(replayed(answers=NO))))
    cases = list(root.iter("testcase"))

    assert [case.get("name") for case in cases][:3] == [
        '#1 tools/call "add"',
        '#2 tools/call "deploy"',
        '#3 tools/call "drop"',
    ]
    assert [[child.tag for child in case] for case in cases] == [
        [],
        ["skipped"],
        ["skipped"],
        ["failure"],
    ]
    failure = cases[-1][0]
    assert failure.get("type") == "answers-differ"
    assert (failure.text or "").startswith("miss: answers-differ")
    for suite in (root, root[0]):
        assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["4", "1", "2"]


def test_harmless_requests_are_the_output_of_the_suite() -> None:
    """They are neither cases nor failures."""
    player = replayed()
    before = ET.fromstring(junit(report_of_replay(player)))
    assert before.find(".//system-out") is None
    assert before.find(".//failure") is None
    assert len(before.findall(".//skipped")) == 1
    player.request_received(post(rpc("ping")))
    root = ET.fromstring(junit(report_of_replay(player)))

    assert (root.findtext("testsuite/system-out") or "").strip().endswith("any server: ping")
    assert root.get("tests") == "3"


@settings(max_examples=25)
@given(st.text(st.characters()))
def test_junit_is_well_formed_whatever_the_names(words: str) -> None:
    """Control characters, lone surrogates and markup are spelled so that XML can hold them."""
    report = report_of_replay(replayed(answers=NO))
    (miss,) = report.misses
    first, *others = report.interactions
    hostile = ReplayReport(
        words,
        (InteractionOutcome(1, words, first.outcome, 1), *others),
        (replace(miss, request=words, detail=words, text=words),),
    )
    root = ET.fromstring(junit(hostile))

    assert len(list(root.iter("testcase"))) == 4
    assert_harmless(junit(hostile).decode().replace("\t", ""))
