"""Coverage of recordings: which answers, arguments and histories clients were tried with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.forms import ACTIONS
from mrtr_cassette.core.protocol.dialect import ELICITATION_KINDS
from mrtr_cassette.core.protocol.methods import CALL_TOOL
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, Turn
from mrtr_cassette.core.report.text import markdown_table
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.errors import counted, printable

_REJECTED_ANSWER: Final = "rejected"
"""An accept that an error or the same question follows."""


class GivenAnswer(NamedTuple):
    """An answer to a question of a tool's turn; an empty one if the client never answered."""

    tool: str
    turn: int
    key: str
    answer: str


@dataclass(slots=True)
class ToolCoverage:
    """What is recorded of one tool, or of another call that asks.

    Attributes:
        histories: a hash of the writes that were made before it, for each sequence of them.
        questions: how often each answer was given, by turn and key.
    """

    arguments: set[str | None] = field(default_factory=set)
    histories: set[str] = field(default_factory=set)
    errors: int = 0
    questions: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)


def coverage_of(cassettes: Sequence[CassetteDetails]) -> dict[str, ToolCoverage]:
    """Return what cassettes cover together, by tool."""
    covered: dict[str, ToolCoverage] = defaultdict(ToolCoverage)
    for details in cassettes:
        histories = _histories_by_interaction(details)
        for interaction in details.interactions:
            if interaction.method != CALL_TOOL and not interaction.turns:
                continue

            tool = covered[_tool_of(interaction)]
            tool.arguments.add(interaction.arguments_json)
            tool.histories.add(histories[interaction.number])
            tool.errors += _has_failed(interaction)
            for given_answer in given_answers([interaction]):
                place = (given_answer.turn, given_answer.key)
                tool.questions.setdefault(place, Counter())[given_answer.answer] += 1

    return dict(covered)


def _histories_by_interaction(details: CassetteDetails) -> dict[int, str]:
    """Return a hash of the writes that were made before each interaction, by its number."""
    player = Player(details.recorded)
    history = ""
    histories = {}
    for number, entries in enumerate(player.entries.by_interaction, start=1):
        histories[number] = history
        for entry in entries:
            if player.effects.is_write(entry):
                history = sha256_of(f"{history} {entry.key!r}")

    return histories


def given_answers(interactions: Iterable[Interaction]) -> Iterator[GivenAnswer]:
    """Yield what was answered to each question that a person can decline."""
    for interaction in interactions:
        tool = _tool_of(interaction)
        branch = interaction.branch
        first = 1 if branch is None else branch.turn
        for number, turn in enumerate(interaction.turns, start=1):
            if number < first:
                # Another interaction has the same turn.
                continue

            for key, request in turn.input_requests.items():
                answer = _action_answered(turn, key)
                if request.kind not in ELICITATION_KINDS or answer is None:
                    continue

                yield GivenAnswer(tool, number, key, answer)
                if answer == "accept" and _is_rejected(interaction, number, key):
                    yield GivenAnswer(tool, number, key, _REJECTED_ANSWER)


def _action_answered(turn: Turn, key: str) -> str | None:
    """Return the answer to a question; None if it can't be told."""
    answered = turn.answered
    if answered is None or key not in answered:
        return ""

    answer = answered[key]
    action = answer.get("action") if isinstance(answer, dict) else None
    return action if action in ACTIONS else None


def _is_rejected(interaction: Interaction, number: int, key: str) -> bool:
    """Tell whether the server asked a question again after its answer, or the call failed then."""
    if number == len(interaction.turns):
        return _has_failed(interaction)

    asked = interaction.turns[number - 1].asked[key]
    return interaction.turns[number].asked.get(key) == asked


def _has_failed(interaction: Interaction) -> bool:
    """Tell whether a call ended with an error, or with a result that has `isError`."""
    return interaction.final.kind in ("error", "failed result")


def _tool_of(interaction: Interaction) -> str:
    """Return the name of the tool that was called; for another method, the whole call."""
    return interaction.name if interaction.method == CALL_TOOL else interaction.call


def coverage_data(covered: dict[str, ToolCoverage]) -> dict[str, Any]:
    """Return what is covered as JSON-ready data."""
    tools = {}
    for name, tool in covered.items():
        questions = []
        for (turn, key), counts in tool.questions.items():
            question = {"turn": turn, "key": key}
            for answer in (*ACTIONS, _REJECTED_ANSWER):
                question[answer] = counts[answer]

            questions.append(question)

        tools[name] = {
            "arguments": len(tool.arguments),
            "errors": tool.errors,
            "histories": len(tool.histories),
            "questions": questions,
        }

    return {"tools": tools}


def coverage_text(covered: dict[str, ToolCoverage]) -> str:
    """Return what is covered as lines for people."""
    lines = []
    for name, tool in covered.items():
        facts = [
            f"{counted(len(tool.arguments), 'set')} of arguments",
            f"{counted(len(tool.histories), 'sequence')} of earlier writes",
            counted(tool.errors, "error"),
        ]
        lines.append(f"{printable(name)}: {', '.join(facts)}")
        for (turn, key), counts in tool.questions.items():
            question = f"turn {turn}, {printable(key)}"
            lines.append(f"  {question}: {answer_counts(counts)}")

    return "\n".join(lines) or "no tool was called"


def coverage_markdown(covered: dict[str, ToolCoverage]) -> str:
    """Return what is covered as tables for a pull request: tools, then their questions."""
    tools = [["tool", "different arguments", "histories", "errors"]]
    questions = [["tool", "turn", "question", *ACTIONS, "accept rejected"]]
    for name, tool in covered.items():
        numbers = (len(tool.arguments), len(tool.histories), tool.errors)
        tools.append([name, *map(str, numbers)])
        for (turn, key), counts in tool.questions.items():
            times = [counts[answer] or "never" for answer in ACTIONS]
            row = [
                name,
                str(turn),
                key,
                *map(str, times),
                str(counts[_REJECTED_ANSWER]),
            ]
            questions.append(row)

    lines = _markdown_table_lines(tools)
    if len(questions) > 1:
        lines += ["", *_markdown_table_lines(questions)]

    return "\n".join(lines)


def _markdown_table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose head is the first row."""
    return markdown_table(rows, "| --- " * len(rows[0]) + "|")


def untried_questions(
    covered: dict[str, ToolCoverage], answer: str, percent: int
) -> str | None:
    """Return which questions lack an answer; None if enough of them have it."""
    total = 0
    untried_names = []
    for name, tool in covered.items():
        for (turn, key), counts in tool.questions.items():
            total += 1
            if not counts[answer]:
                untried_names.append(printable(f"{name} turn {turn} {key}"))

    tried_count = total - len(untried_names)
    if tried_count * 100 >= percent * total:
        return None

    share = f"{tried_count * 100 // total}% of the questions"
    return f"tried on {share}, never on {', '.join(untried_names)}"


def answer_counts(counts: Counter[str]) -> str:
    """Return how often each answer was given, such as `accept 2, decline never`."""
    accept, *others = [f"{answer} {counts[answer] or 'never'}" for answer in ACTIONS]
    if counts[_REJECTED_ANSWER]:
        accept += f" ({counts[_REJECTED_ANSWER]} rejected)"

    return ", ".join([accept, *others])


def untried_line(answers_given: Iterable[GivenAnswer]) -> str | None:
    """Return how many questions never got which answer; None if all got each."""
    questions: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    for tool, turn, key, given_answer in answers_given:
        questions[tool, turn, key].add(given_answer)

    never_given = []
    for answer in ACTIONS:
        tried_count = sum(answer in answers for answers in questions.values())
        if tried_count == 0 and questions:
            never_given.append(f"{answer} on any question")
        elif tried_count < len(questions):
            untried_count = len(questions) - tried_count
            never_given.append(
                f"{answer} on {untried_count} of {len(questions)} questions"
            )

    if not never_given:
        return None

    return f"never tried: {', '.join(never_given)} (mrtr-cassette inspect --coverage)"
