from __future__ import annotations

import json
from typing import Any

import pytest
from builders import cassette_of, loaded, rpc, tool
from messages import Json, text

from mrtr_cassette.core.compare.conversations import CassetteComparison, compared
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.report.comparison import (
    change_lines,
    comparison_data,
    comparison_markdown,
    comparison_text,
    shown_values,
)


def comparison(old: Any, new: Any) -> CassetteComparison:
    """Compare the cassettes of two scripts."""
    return compared(loaded(cassette_of(*old), "a.json"), loaded(cassette_of(*new), "b.json"))


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
SHOWN = """\
- a.json
+ b.json
= #2 (now #1) tools/call "b"
- #3 tools/call "c"
~ #1 (now #2) tools/call "a": text-changed, moved
  ~ result
      /content/0/text: text-changed
      - "1"
      + "2"
= #4 (now #3) tools/call "d"
+ #4 tools/call "e"
information, 1 time: /_meta/io.modelcontextprotocol~1serverInfo/version: surface-changed
      - "1"
      + "1.1"
3 of 5 interactions differ: 1 changed, 1 only in the first, 1 only in the second; 1 moved"""


def test_two_cassettes_as_text() -> None:
    """Each line begins with its mark; what is the same is folded, information told once."""
    shown = comparison_text(comparison(OLD, NEW))
    assert shown == SHOWN


def test_the_same_is_said_in_one_line() -> None:
    """Where nothing differs, there is nothing else to show."""
    *_, run, last = comparison_text(comparison(OLD, OLD)).split("\n")
    assert run == "= #1 to #4: 4 interactions"
    assert last == "the same: 4 interactions"
    assert comparison_text(comparison([], [])).endswith("the same: 0 interactions")


def test_lines_have_the_colour_of_their_mark() -> None:
    """What went, what came and what changed can be told at a glance."""
    shown = comparison_text(comparison(OLD, NEW), lambda mark, line: f"<{mark}>{line}")
    assert '<~>~ #1 (now #2) tools/call "a"' in shown
    assert '      <->- "1"\n      <+>+ "2"' in shown


@pytest.mark.parametrize(
    ("recorded", "received", "shown"),
    [
        ('"a"', '"b"', ('"a"', '"b"')),
        ('"\\u00e9"', None, ('"é"', None)),
        (None, '"\\u001b[31m"', (None, '"\\\\u001b[31m"')),
        ('{"a":1}', "[1]", ('{"a":1}', "[1]")),
    ],
)
def test_values_read_as_people_write_them(recorded: Any, received: Any, shown: Any) -> None:
    """Letters stand for themselves, and what a terminal would obey is escaped."""
    values = shown_values(Change("text-changed", "/a", recorded, received))
    assert values[0] == shown[0]
    assert (values[1] or "").replace("\\\\", "\\") == (shown[1] or "").replace("\\\\", "\\")
    assert not any("\x1b" in (value or "") for value in values)


def test_long_values_are_shown_from_where_they_part() -> None:
    """What both have is left out up to some words before the difference."""
    same = "x" * 500
    old, new = shown_values(Change("text-changed", "/a", f'"{same}A{same}"', f'"{same}B{same}"'))
    assert old is not None
    assert new is not None
    assert old.startswith(f"… {'x' * 40}A")
    assert new.startswith(f"… {'x' * 40}B")
    assert "more characters" in old
    assert len(old) < 300


def test_a_change_at_the_root_has_a_place_too() -> None:
    """An empty pointer is shown as a slash, and what is information says so."""
    change = Change("surface-changed", "", None, "1", is_information=True)
    assert list(change_lines(change)) == ["/: surface-changed, information only", "+ 1"]


def test_two_cassettes_as_data() -> None:
    """Programs get every stage and every change, with canonical JSON as values."""
    data = json.loads(json.dumps(comparison_data(comparison(OLD, NEW))))
    assert (data["recorded"], data["received"], data["same"]) == ("a.json", "b.json", False)
    changed = next(each for each in data["interactions"] if each["mark"] == "~")
    assert (changed["verdict"], data["verdict"]) == ("text-changed", "shape-changed")
    (result,) = [stage for stage in changed["stages"] if stage["kind"] == "result"]
    assert result["changes"][1] == {
        "verdict": "text-changed",
        "pointer": "/content/0/text",
        "recorded": '"1"',
        "received": '"2"',
        "is_information": False,
    }


def test_two_cassettes_as_markdown() -> None:
    """A `diff` block has each mark in its first column, and nothing in a value can end it."""
    shown = comparison_markdown(comparison(OLD, [(tool("a"), text("```\n# x"))]))
    first, _, fence, *block, end = shown.split("\n")
    assert first.startswith("**4 of 4 interactions differ")
    assert (fence, end) == ("````diff", "````")
    assert '+       "```\\n# x"' in block
    assert '! #1 tools/call "a": shape-changed' in block
    assert '- #2 tools/call "b"' in block
    assert all(line[:2] in ("- ", "+ ", "! ", "  ") for line in block)


def test_names_can_not_forge_lines() -> None:
    """What servers and clients call things steers no terminal and ends no line."""
    shown = comparison_text(comparison([], [(rpc("x\n= #9 y\x1b[2J"), text("a"))]))
    assert "\x1b" not in shown
    assert len(shown.split("\n")) == 4
