"""Facts about what differs between two cassettes, on a page."""

from __future__ import annotations

from builders import Step, cassette_of, loaded, retry, tool
from messages import NO, YES, asks, text
from pages import Node, parsed

from mrtr_cassette.core.compare.cassettes import compared
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.details import CassetteDetails, detailed
from mrtr_cassette.core.view.differences import (
    Earlier,
    difference_notes,
    differences_section,
)
from mrtr_cassette.core.view.notes import Note

CALL = tool("deploy", env="prod")


def recording_of(name: str, *script: Step) -> Cassette:
    """Return the recording of a script."""
    return loaded(cassette_of(*script), name)


def asking(words: str, *, ends: str = "done", answers: object = YES) -> tuple[Step, ...]:
    """Return a call that asks in these words."""
    ask = asks("a")
    ask["inputRequests"]["a"]["params"]["message"] = words
    return ((CALL, ask), (retry(CALL, {"a": answers}), text(ends)))


def compared_pair(old: tuple[Step, ...], new: tuple[Step, ...]) -> tuple[Earlier, CassetteDetails]:
    """Return what differs between two scripts, and the later one."""
    first, second = recording_of("old.json", *old), recording_of("new.json", *new)
    return Earlier(detailed(first), compared(first, second)), detailed(second)


def notes_of(old: tuple[Step, ...], new: tuple[Step, ...]) -> dict[int, tuple[Note, Node]]:
    """Return the notes of the later of two scripts, as elements."""
    notes = difference_notes(*compared_pair(old, new))
    return {number: (note, parsed(note.content)) for number, note in notes.items()}


def test_changed_question_is_drawn_before_and_after() -> None:
    """Both forms stand side by side, and below them the places that differ."""
    notes = notes_of(asking("Sure?"), asking("Really?", ends="gone"))

    ((number, (note, article)),) = notes.items()
    assert (number, note.label, note.kind) == (1, "question-changed", "bad")
    columns = list(article.one(class_="columns").children)
    assert [column.attributes["class"] for column in columns if isinstance(column, Node)] == [
        "before",
        "after",
    ]
    assert [each.text for each in article.every(class_="message")] == ["Sure?", "Really?"]
    assert [each.text for each in article.every("caption")] == [
        "The question of turn 1: question-changed",
        "The result: text-changed",
    ]
    assert [each.text for each in article.every("td")] == [
        '"Sure?"', '"Really?"', '"done"', '"gone"',
    ]  # fmt: skip


def test_turn_of_one_cassette_alone_is_drawn_once() -> None:
    """A turn that was added or is gone stands on its side; the others are counted on."""
    state = "x" * 40
    more: tuple[Step, ...] = (
        (CALL, asks("new", state=state)),
        (retry(CALL, {"new": YES}, state=state), asks("a")),
        (retry(CALL, {"a": YES}), text("done")),
    )
    ((_, (_, added)),) = notes_of(asking("a?"), more).items()
    ((_, (_, gone)),) = notes_of(more, asking("a?")).items()

    assert [each.text for each in added.every("p", class_="side")] == ["after"]
    assert [each.text for each in gone.every("p", class_="side")] == ["before"]
    assert [each.text for each in added.every("legend")] == ["new asks for a form"]


def test_added_call_says_so() -> None:
    """A call that the first cassette lacks is noted as such, and the same ones are not noted."""
    notes = notes_of((), asking("Sure?"))
    ((_, (note, article)),) = notes.items()

    assert (note.label, note.kind) == ("added", "good")
    assert article.text == "This call is not in old.json."
    assert notes_of(asking("Sure?"), asking("Sure?")) == {}


def test_all_that_differs_is_listed() -> None:
    """The list leads to each call that differs, also to those that are gone."""
    old = (*asking("Sure?"), (tool("gone"), text("x")), (tool("same"), text("x")))
    new = (*asking("Really?"), (tool("same"), text("x")), (tool("new"), text("x")))
    earlier, _ = compared_pair(old, new)
    section = parsed(differences_section(earlier.comparison))

    assert [(item.text, item.one("a").attributes["href"]) for item in section.every("li")] == [
        ('~ #1 tools/call "deploy" question-changed the question of turn 1', "#i1"),
        ('- #2 tools/call "gone" only in the first', "#o2"),
        ('+ #3 tools/call "new" only in the second', "#i3"),
    ]
    assert section.one("h2").text == "Differences"


def test_equal_cassettes_have_no_differences() -> None:
    """Where nothing differs, the page says so."""
    earlier, _ = compared_pair(asking("Sure?"), asking("Sure?"))
    section = parsed(differences_section(earlier.comparison))

    assert section.text == "No differencesthe same: 1 interaction"
    assert "good" in section.one("section").attributes["class"]


def test_other_answer_is_told() -> None:
    """An answer that differs is a table, without forms."""
    old = asking("Sure?")
    new = asking("Sure?", answers=NO)
    ((_, (note, article)),) = notes_of(old, new).items()

    assert note.label == "shape-changed"
    assert not list(article.every("fieldset"))
