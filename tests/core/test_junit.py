"""Facts about reports of a replay: as data, as JUnit XML, as annotations."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from builders import NO, YES, asks, play, player_of, post, retry, state_in, text, tool
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.junit import junit
from mrtr_cassette.core.report.report import annotation, replay_report

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


def test_report_tells_played_unplayed_and_missed() -> None:
    """Each interaction has an outcome, and each miss what its error has."""
    report = replay_report(replayed(answers=NO))

    assert [(one["number"], one["outcome"], one["plays"]) for one in report["interactions"]] == [
        (1, "played", 1),
        (2, "played in part", 1),
        (3, "unplayed", 0),
    ]
    (miss,) = report["misses"]
    assert miss["reason"] == "answers-differ"
    assert miss["nearest"]["interaction"] == 2
    assert miss["text"].startswith("miss: answers-differ")


def test_junit_has_a_case_for_each_interaction_and_each_miss() -> None:
    """Misses are failures with the whole text, what was not played is skipped."""
    root = ET.fromstring(junit(replay_report(replayed(answers=NO))))
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


def test_replay_without_misses_has_no_failures() -> None:
    """What was played whole is a case that passed."""
    root = ET.fromstring(junit(replay_report(replayed())))

    assert root.find(".//failure") is None
    assert len(root.findall(".//skipped")) == 1


@given(st.text(st.characters()))
def test_junit_is_well_formed_whatever_the_names(words: str) -> None:
    """Control characters, lone surrogates and markup are spelled so that XML can hold them."""
    report = replay_report(replayed(answers=NO))
    report["cassette"] = words
    report["interactions"][0]["call"] = words
    report["misses"][0] |= {"asked": words, "detail": words, "text": words}
    root = ET.fromstring(junit(report))

    assert len(list(root.iter("testcase"))) == 4


@pytest.mark.parametrize(("text", "shown"), [("a\x00b", "a\\u0000b"), ("é<&\t", "é<&\t")])
def test_what_xml_cannot_hold_is_escaped(text: str, shown: str) -> None:
    """The rest stays."""
    report = replay_report(replayed(answers=NO))
    report["misses"][0]["text"] = text
    failure = ET.fromstring(junit(report)).find(".//failure")

    assert failure is not None
    assert failure.text == shown


def test_annotation_is_one_line_that_names_the_file() -> None:
    """Workflow commands end with the line, so what ends one is escaped, and so are separators."""
    miss = {"cassette": "a,b:c%.json", "reason": "answers-differ", "text": "50%\r\n::x"}

    assert annotation(miss) == (
        "::error file=a%2Cb%3Ac%25.json,title=miss%3A answers-differ::50%25%0D%0A::x"
    )


def test_report_has_no_secrets() -> None:
    """A secret that a client sends is redacted, also where the cassette has none."""
    player = player_of((tool("login", user="ada"), text("in")), redacts=True)
    player.request_received(post(tool("login", user="ada", password="correct-horse")))
    report = replay_report(player)

    assert "correct-horse" not in str(report)
    assert report["misses"][0]["differences"] == [
        {"pointer": "/arguments/password", "recorded": None, "received": '"<password>"'}
    ]
    assert b"correct-horse" not in junit(report)
