"""Facts about what differs between cassettes, or a cassette and a live server, as a report."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from builders import cassette_of, follow, loaded, refusal, tool
from goldens import DATA, read_case
from harmless import assert_harmless
from messages import Json, form, text
from verifying import verifier_for

from mrtr_cassette.core.compare.conversations import (
    CassetteComparison,
    cassette_comparison,
)
from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.ignored import LearnedPlace
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.script import TurnChange
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.report.comparison import (
    Verification,
    comparison_data,
    comparison_markdown,
    comparison_text,
    exit_code_of,
    response_line,
    shown_values,
    verification_annotations,
    verification_data,
    verification_junit,
    verification_markdown,
    verification_text,
)


def comparison(old: Any, new: Any) -> CassetteComparison:
    """Compare the cassettes of two scripts."""
    return cassette_comparison(
        loaded(cassette_of(*old), "a.json"), loaded(cassette_of(*new), "b.json")
    )


@pytest.mark.parametrize("content", ["5", "true", '"x"', "null"])
def test_content_that_is_no_list_has_no_text(content: str) -> None:
    """A server may say anything there, and its response is shown as it is."""
    said = f'{{"content": {content}}}'

    assert response_line(said) == said


def versioned(words: str, version: str) -> Json:
    """Return a result of a server that tells its version."""
    info = {"name": "s", "version": version}
    return {**text(words), "_meta": {"io.modelcontextprotocol/serverInfo": info}}


OLD = [
    (tool("a"), versioned("1", "1")),
    (tool("b"), text("b")),
    (tool("c"), text("c")),
    (tool("d"), text("d")),
]
NEW = [
    (tool("b"), text("b")),
    (tool("a"), versioned("2", "1.1")),
    (tool("d"), text("d")),
    (tool("e"), text("e")),
]


def test_the_same_is_said_in_one_line() -> None:
    """Where nothing differs, there is nothing else to show."""
    assert (
        comparison_text(comparison(OLD, OLD))
        == "- a.json\n+ b.json\nthe same: 4 interactions"
    )
    assert comparison_text(comparison([], [])).endswith("the same: 0 interactions")


def test_values_read_as_people_write_them() -> None:
    """Letters stand for themselves; of long values there is what stands where they part."""
    same = "x" * 500

    assert shown_values(Change("text-changed", "", '"\\u00e9"', "[1]")) == (
        '"é"',
        "[1]",
    )

    old, new = shown_values(
        Change("text-changed", "", f'"{same}A{same}"', f'"{same}B{same}"')
    )
    for value, differing in ((old, "A"), (new, "B")):
        assert value is not None
        assert value.startswith(f"… {'x' * 40}{differing}")
        assert value.endswith("more characters)")


CHANGED = TurnChange(1, Change("question-changed", "/inputRequests/a", '"x"', None))
NOTE = TurnChange(
    0, Change("surface-changed", "/tools/1", None, "{}", is_information=True)
)
ROWS = [
    TurnChange(0, Change("text-changed", f"/rows/{row}/at", f"{row}", "9"))
    for row in range(3)
]
GO = form("Go?")
PLAN = planned_interactions(loaded(cassette_of((tool("a"), text("x"))), "c.json"))[0]
STRANGE = "\x1b[2J\n::error::`|*<b>"


def interaction(
    verdict: Verdict, *changes: TurnChange, reason: str | None = None
) -> VerifiedInteraction:
    """Return one interaction."""
    return VerifiedInteraction(PLAN, verdict, changes, reason)


def verification(
    *interactions: VerifiedInteraction, **more: frozenset[str]
) -> Verification:
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
        (
            [interaction("same"), interaction("not-reached", reason="x")],
            ["text-changed"],
            1,
        ),
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

    assert exit_code_of([came_of_it]) == code
    assert came_of_it.is_good is (code == 0)
    assert exit_code_of([came_of_it, verification(interaction("same"))]) == bool(
        came_of_it.failures
    )


def texts() -> dict[str, str]:
    """Return what differs in every form, by name."""
    places = (
        ("tools/call a", LearnedPlace("/at")),
        ("tools/call a", LearnedPlace("", "it hides all")),
    )

    all_ = Verification(
        "c.json",
        "http://h/mcp",
        (
            interaction("same"),
            interaction("same", NOTE),
            interaction("question-changed", CHANGED),
            interaction("text-changed", *ROWS),
            interaction("not-reached", reason="it is away"),
            interaction("skipped", reason="it was not selected"),
        ),
        places=places,
    )

    good = verification(interaction("same"))

    return {
        "diff": comparison_text(comparison(OLD, NEW)),
        "diff --json": json.dumps(comparison_data(comparison(OLD, NEW)), indent=1),
        "diff --markdown": comparison_markdown(
            comparison(OLD, [(tool("a"), text("```\n# x"))])
        ),
        "verify": verification_text(all_),
        "verify, nothing compared": verification_text(verification()),
        "verify, JSON": json.dumps(verification_data([all_, good]), indent=1),
        "verify, JUnit": verification_junit([all_, good]).decode(),
        "verify, Markdown": verification_markdown([all_, good]),
        "verify, annotations": "\n".join(verification_annotations(all_)),
    }


@pytest.mark.parametrize("name", texts())
def test_what_differs_is_shown(name: str, *, updates_goldens: bool) -> None:
    """Each line begins with its mark, what is the same is folded; programs get every verdict."""
    case = read_case(DATA / "reports" / "comparison.case")
    case.expect(name, f"{texts()[name]}\n", updates=updates_goldens)


def verified(script: Any, *responses: Any) -> list[VerifiedInteraction]:
    """Return what comes of a recording with a live server that gives these responses."""
    cassette = loaded(cassette_of(*script), "c.json")
    verifier = verifier_for(cassette)
    found = []
    for plan, response in zip(planned_interactions(cassette), responses, strict=True):
        repeated = verifier.begin_interaction(plan)
        assert not isinstance(repeated, VerifiedInteraction)
        follow(repeated.conversation, response)
        found.append(verifier.end_interaction(repeated))

    return found


@pytest.mark.parametrize(
    ("script", "response", "lines", "expected", "received"),
    [
        (
            (
                (
                    tool("deploy"),
                    {"resultType": "input_required", "inputRequests": {"ok": GO}},
                ),
            ),
            lambda body: refusal(body, words="Unknown tool: deploy"),
            [
                "turn 1 /: refused",
                '- asks ok: "Go?"',
                '+ error -32602: "Unknown tool: deploy"',
            ],
            '"message": "Go?"',
            '"message": "Unknown tool: deploy"',
        ),
        (
            ((tool("deploy"), text("done\nat noon")),),
            {**text("no way\nat all"), "isError": True},
            ["response /isError: refused", '- "done"', '+ isError: "no way"'],
            "at noon",
            "at all",
        ),
        (
            ((tool("deploy"), text("done\nat noon")),),
            {"resultType": "input_required", "inputRequests": {"ok": GO}},
            ["turn 1 /inputRequests: rounds-changed", '- "done"', '+ asks ok: "Go?"'],
            "at noon",
            '"message": "Go?"',
        ),
    ],
    ids=["question refused", "result refused", "question more"],
)
def test_what_was_expected_and_what_came_is_told(
    script: Any, response: Any, lines: list[str], expected: str, received: str
) -> None:
    """The text has its first lines, and every report has it whole."""
    found = verification(*verified(script, response))
    shown = [line.strip() for line in verification_text(found).splitlines()]

    assert shown[1:4] == lines

    (interaction,) = found.interactions
    (data,) = verification_data([found])["cassettes"][0]["interactions"]

    (response,) = interaction.reached

    assert data["responses"] == [
        {
            "turn": response.turn,
            "expected": response.expected,
            "received": response.received,
        }
    ]

    whole = verification_markdown([found]), verification_junit([found]).decode()
    for report in (*whole, json.dumps(data["responses"])):
        text_of = report.replace("&quot;", '"').replace("\\", "\\")

        assert expected in text_of
        assert received in text_of


def test_a_new_version_of_the_server_is_one_line() -> None:
    """However many responses say it."""
    script = [(tool(name), versioned("1", "1.0")) for name in "abc"]
    responses = [versioned("1", "1.1"), versioned("1", "1.1"), versioned("2", "1.1")]
    found = verification(*verified(script, *responses))
    line = 'information, 3 times: /serverInfo/version: surface-changed: "1.0" → "1.1"'
    told = [
        line for line in verification_text(found).splitlines() if "serverInfo" in line
    ]

    assert told == [line]
    assert verification_markdown([found]).count("information") == 1


def test_what_a_server_says_steers_nothing() -> None:
    """Neither a terminal, a runner, XML nor Markdown."""
    plan = planned_interactions(
        loaded(cassette_of((tool(STRANGE), text("x"))), "c.json")
    )
    change = TurnChange(
        0, Change("text-changed", f"/{STRANGE}", *[json.dumps(STRANGE)] * 2)
    )
    verified = VerifiedInteraction(plan[0], "text-changed", (change,), STRANGE)
    came_of_it = Verification("c.json", STRANGE, (verified,))
    assert_harmless(verification_text(came_of_it))
    assert_harmless(comparison_text(comparison([], [(tool(STRANGE), text("x"))])))
    ET.fromstring(verification_junit([came_of_it]))
    (line,) = verification_annotations(came_of_it)

    assert "\n" not in line

    markdown = verification_markdown([came_of_it])
    assert_harmless(markdown)

    assert markdown.count("\n```") == 2
