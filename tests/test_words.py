"""README and docs stay in plain English: bounds on habits of speech that a reader stumbles over."""

from __future__ import annotations

import re

import pytest
from words import HABITS, PAGES, ROOT, habits_per_thousand_words, long_sentences

MOST = {"what": 2, "that of": 1, "each, one, nobody": 6}
"""In a thousand words of prose: at most twice as often as in pages that are read with ease."""

MOST_LONG_SENTENCES = 4


def test_habits_of_speech_are_rare():
    """The words of every habit are bounded; `python tests/words.py` shows them page by page."""
    found = habits_per_thousand_words()

    assert {habit: found[habit] for habit in HABITS if found[habit] > MOST[habit]} == {}


def test_sentences_are_short():
    """Sentences, items of lists and cells of tables have at most thirty words, with few exceptions."""
    found: list[str] = []
    for page in PAGES:
        found += long_sentences(page.read_text("utf-8"))

    assert len(found) <= MOST_LONG_SENTENCES, "\n".join(found)


def _anchors(page: str) -> set[str]:
    """Return the anchors that headings of a page have where it is shown."""
    code = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", code.sub("", page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_section_leads_to_its_heading(page):
    """A link with an anchor names a heading that exists, on this page or another one."""
    text = page.read_text("utf-8")
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([^)]+)\)", text):
        linked = (page.parent / target).resolve() if target else page

        assert anchor in _anchors(linked.read_text("utf-8")), (
            page.relative_to(ROOT),
            target,
            anchor,
        )
