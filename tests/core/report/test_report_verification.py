"""Facts about how the verdicts on a cassette read, and whether a run is good."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from builders import cassette_of, loaded, tool
from harmless import assert_harmless
from messages import text

from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.verification import Learned, TurnChange, VerifiedInteraction, planned
from mrtr_cassette.core.report.ci import verification_annotations, verification_junit
from mrtr_cassette.core.report.comparison import (
    Verification,
    exit_code_of,
    verification_data,
    verification_markdown,
    verification_text,
)

CHANGED = TurnChange(1, Change("question-changed", "/inputRequests/a", '"x"', None))
NOTE = TurnChange(0, Change("surface-changed", "/tools/1", None, "{}", is_information=True))
PLAN = planned(loaded(cassette_of((tool("a"), text("x"))), "c.json"))[0]
ANNOTATION = '::error file=c.json,title=#1 tools/call "a"%3A'
STRANGE = "\x1b[2J\n::error::`|*<b>"


def interaction(
    verdict: Verdict, *changes: TurnChange, reason: str | None = None
) -> VerifiedInteraction:
    """Return one interaction."""
    return VerifiedInteraction(PLAN, verdict, changes, reason)


def verification(*interactions: VerifiedInteraction, **more: frozenset[str]) -> Verification:
    """Return what came of a cassette with these."""
    return Verification("c.json", "http://h/mcp", interactions, **more)


@pytest.mark.parametrize(
    ("interactions", "fail_on", "code"),
    [
        ([interaction("same")], [], 0),
        ([interaction("same"), interaction("skipped", reason="x")], [], 0),
        ([interaction("same", NOTE)], [], 0),
        ([interaction("question-changed", CHANGED)], [], 1),
        ([interaction("question-changed", CHANGED)], ["text-changed"], 0),
        ([interaction("question-changed", CHANGED)], ["question-changed"], 1),
        ([interaction("same"), interaction("not-reached", reason="x")], ["text-changed"], 1),
        ([interaction("unstable", reason="x")], [], 1),
        ([interaction("skipped", reason="x")], [], 4),
        ([interaction("not-reached", reason="x")], [], 4),
        ([], [], 4),
    ],
)
def test_run_is_good_only_if_something_was_compared_and_nothing_fails(
    interactions: list[VerifiedInteraction], fail_on: list[str], code: int
) -> None:
    """What was not reached always fails, and what is information never does."""
    came_of_it = verification(*interactions, fail_on=frozenset(fail_on))
    assert came_of_it.exit_code == code
    assert came_of_it.is_good is (code == 0)
    assert exit_code_of([came_of_it, verification(interaction("same"))]) == bool(
        came_of_it.failures
    )


def test_text_has_what_is_not_the_same() -> None:
    """With turn, place, both values and reasons; then the counts."""
    came_of_it = verification(
        interaction("same"),
        interaction("same", NOTE),
        interaction("question-changed", CHANGED),
        interaction("skipped", reason="it was not selected"),
    )
    assert verification_text(came_of_it).splitlines() == [
        '= #1 tools/call "a": same, with notes',
        "    response /tools/1: surface-changed, information only",
        "      + {}",
        '~ #1 tools/call "a": question-changed',
        "    turn 1 /inputRequests/a: question-changed",
        '      - "x"',
        '- #1 tools/call "a": skipped',
        "    it was not selected",
        "c.json against http://h/mcp: 4 interactions: 2 same, 1 skipped, 1 question-changed",
    ]
    assert verification_text(verification()).endswith("0 interactions: none; nothing was compared")


def test_what_was_learned_is_told_with_what_was_refused() -> None:
    """Each with its call, and a refusal with its reason."""
    places = ("tools/call a", Learned("/at")), ("tools/call a", Learned("", "it hides all"))
    came_of_it = Verification("c.json", "u", (interaction("same"),), places=places)
    lines = verification_text(came_of_it).splitlines()
    assert lines[:2] == ["learned: tools/call a /at", "not learned: tools/call a /: it hides all"]


def test_reports_for_programs_have_every_verdict() -> None:
    """JSON has all, JUnit a case for each, Markdown and annotations what fails."""
    came_of_it = verification(
        interaction("same", NOTE),
        interaction("question-changed", CHANGED),
        interaction("not-reached", reason="it is away"),
        interaction("skipped", reason="it was not selected"),
    )
    (cassette,) = verification_data([came_of_it])["cassettes"]
    assert [each["verdict"] for each in cassette["interactions"]] == [
        "same", "question-changed", "not-reached", "skipped",
    ]  # fmt: skip
    assert cassette["interactions"][1]["changes"][0]["turn"] == 1
    root = ET.fromstring(verification_junit([came_of_it]))
    assert [[child.tag for child in case] for case in root.iter("testcase")] == [
        [], ["failure"], ["failure"], ["skipped"],
    ]  # fmt: skip
    markdown = verification_markdown([came_of_it])
    assert "\n```diff\n! #1 tools/call" in markdown
    assert 'turn 1 /inputRequests/a: question-changed\n-       "x"\n' in markdown
    assert verification_annotations(came_of_it) == [
        f"{ANNOTATION} question-changed::/inputRequests/a question-changed",
        f"{ANNOTATION} not-reached::it is away",
    ]
    assert "diff" not in verification_markdown([verification(interaction("same"))])


def test_what_a_server_says_steers_nothing() -> None:
    """Neither a terminal, a runner, XML nor Markdown."""
    plan = planned(loaded(cassette_of((tool(STRANGE), text("x"))), "c.json"))
    change = TurnChange(0, Change("text-changed", f"/{STRANGE}", *[json.dumps(STRANGE)] * 2))
    verified = VerifiedInteraction(plan[0], "text-changed", (change,), STRANGE)
    came_of_it = Verification("c.json", STRANGE, (verified,))
    assert_harmless(verification_text(came_of_it))
    ET.fromstring(verification_junit([came_of_it]))
    (line,) = verification_annotations(came_of_it)
    assert "\n" not in line
    markdown = verification_markdown([came_of_it])
    assert_harmless(markdown)
    assert markdown.count("\n```") == 2
