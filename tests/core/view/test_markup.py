"""Facts about HTML that no text becomes a part of."""

from __future__ import annotations

import pytest
from harmless import HOSTILE
from pages import parsed

from mrtr_cassette.core.view.markup import Markup, element, joined, plain, recorded, replaced_in


def test_children_are_markup_or_text() -> None:
    """Markup stands as it is, text is escaped, None is nothing, and lists are put one by one."""
    made = element("p", "a<b", element("b", "&"), None, ["x", [Markup("<i></i>")]])

    assert made == "<p>a&lt;b<b>&amp;</b>x<i></i></p>"


def test_attributes_are_escaped() -> None:
    """A value can't end its attribute; True has no value; None and False are no attribute."""
    made = element(
        "input",
        class_="a b",
        aria_label='"><script>',
        checked=True,
        disabled=False,
        title=None,
        max=3,
    )

    assert made == ('<input class="a b" aria-label="&quot;&gt;&lt;script&gt;" checked max="3">')


def test_elements_of_drawings_are_closed() -> None:
    """Only HTML has elements without an end; those of SVG would swallow what follows."""
    assert joined(element("rect"), element("line")) == "<rect></rect><line></line>"


def test_text_is_visible_whole() -> None:
    """Nothing invisible is in a text but its line ends; tabs are spaces."""
    assert plain("a\tb\nc\u202e\x00") == "a   b\nc\\u202e\\x00"
    assert all(line.isprintable() for line in plain(HOSTILE).split("\n"))


@pytest.mark.parametrize(
    ("text", "marked", "kind"),
    [
        ("token <github:1> here", "<github:1>", "redacted"),
        ("mrtr-answer:" + "a" * 64, "mrtr-answer:" + "a" * 64, "sealed"),
        ("mrtr-state:0123456789abcdef:1:2", "mrtr-state:0123456789abcdef:1:2", "sealed"),
        ("in mrtr-session:3 now", "mrtr-session:3", "sealed"),
        ("sha256:" + "0" * 64, "sha256:" + "0" * 64, "sealed"),
    ],
)
def test_what_stands_for_something_else_is_marked(text: str, marked: str, kind: str) -> None:
    """Placeholders, sealed answers and surrogates are marked, and say what they are."""
    node = parsed(recorded(text))

    assert node.raw_text == text
    assert node.one("mark").raw_text == marked
    assert node.one("mark").attributes["class"] == kind
    assert replaced_in(text) == kind


def test_other_text_is_not_marked() -> None:
    """What only looks like a placeholder is plain text."""
    assert recorded("<b:1> & <github:>") == "&lt;b:1&gt; &amp; &lt;github:&gt;"
    assert replaced_in("<b:1>") == ""
