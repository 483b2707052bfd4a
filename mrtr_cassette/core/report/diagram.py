"""A cassette as a sequence diagram, small enough for a pull request.

Rule: at most `MOST_ARROWS` arrows. Calls that ask come first, as they are what a reader wants to
see; each is drawn whole or, if it alone has too many arrows, cut; a note counts the others.
Source: Mermaid, "Sequence diagrams" and "Entity codes to escape characters".
"""

from __future__ import annotations

from typing import Final

from mrtr_cassette.core.report.inspection import Inspection, Interaction, Turn
from mrtr_cassette.errors import counted, printable, shorten

MOST_ARROWS: Final = 12
_LONGEST_TEXT: Final = 60
_PLAIN: Final = frozenset(" ,.?!'()/_-=+*")
"""What may stand in a Mermaid text as it is, beside letters and digits."""


def diagram(inspection: Inspection) -> str:
    """Return a cassette as a Mermaid block of Markdown."""
    # Of equal importance, the order of the file stays.
    by_importance = sorted(inspection.interactions, key=lambda each: not each.turns)
    drawn: dict[int, list[str]] = {}
    remaining = MOST_ARROWS
    for each in by_importance:
        arrows = _arrows(each)
        if len(arrows) <= remaining:
            drawn[each.number] = arrows
        elif not drawn:
            note = f"    Note over client,server: #35;{each.number} goes on"
            drawn[each.number] = [*arrows[:remaining], note]
        else:
            continue
        remaining -= len(arrows)
    lines = ["sequenceDiagram", "    participant client", "    participant server"]
    for number in sorted(drawn):
        lines += drawn[number]
    others = len(inspection.interactions) - len(drawn)
    if others:
        lines.append(f"    Note over client,server: and {counted(others, 'more call')}")
    return "\n".join(["```mermaid", *lines, "```"])


def _arrows(interaction: Interaction) -> list[str]:
    arrows = [_arrow("->>", f"#{interaction.number} {interaction.call}")]
    for turn in interaction.turns:
        arrows.append(_arrow("-->>", f"asks {_asked_text(turn)}"))
        if turn.answers_json is not None:
            arrows.append(_arrow("->>", _answer_text(turn)))
    if not interaction.turns or interaction.turns[-1].answers_json is not None:
        arrows.append(_arrow("-->>", interaction.ended.removeprefix("HTTP 200, ")))
    return arrows


def _asked_text(turn: Turn) -> str:
    """Name what a turn asks, the only question with its words."""
    names = [f"{key} ({request.kind})" for key, request in turn.input_requests.items()]
    messages = list(turn.asked.values())
    words = f": {messages[0]}" if len(messages) == 1 and messages[0] else ""
    return f"{', '.join(names)}{words}" if names else "for a retry"


def _answer_text(turn: Turn) -> str:
    actions = {
        key: value["action"]
        if isinstance(value, dict) and isinstance(value.get("action"), str)
        else "answer"
        for key, value in (turn.answered or {}).items()
    }
    if len(actions) == 1:
        return next(iter(actions.values()))
    return ", ".join(f"{key}: {action}" for key, action in actions.items()) or "retry"


def _arrow(line: str, text: str) -> str:
    ends = "client{}server" if line == "->>" else "server{}client"
    return f"    {ends.format(line)}: {_escaped(shorten(printable(text), _LONGEST_TEXT))}"


def _escaped(text: str) -> str:
    """Spell a text so that nothing of it is Mermaid, HTML or the end of a Markdown block."""
    return "".join(char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in text)
