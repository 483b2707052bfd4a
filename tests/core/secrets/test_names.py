"""Texts are cut into our names and what stands between them, and joined again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from counting import steps
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets import names
from mrtr_cassette.core.secrets.names import (
    Ref,
    id_replacer,
    is_name_of_kind,
    ref_of,
    refs_in,
    split_at_refs,
    strip_volatile,
    with_changed_refs,
)

ROOT = Path(__file__).resolve().parents[3]
CASSETTES = sorted(
    [
        *ROOT.glob("cassettes/*.json"),
        *ROOT.glob("tests/data/**/*.cassette.json"),
    ]
)
DIGEST = "0f" * 32
CALL = "9b2f6a0c51d27e43"
NAMES = (
    f"mrtr-state:{CALL}:1:2",
    f"mrtr-task:{CALL}:12",
    "mrtr-session:3",
    "mrtr-event:3:14",
    "mrtr-elicitation:3:1",
    f"mrtr-answer:{DIGEST}",
    f"sha256:{DIGEST}",
)
PLACEHOLDERS = ("<jwt:1>", "<custom-2:0f0f>", "<password-number:received.7>")
# Nothing that can go on with a name, and nothing that can begin one.
BETWEEN = st.text(
    st.characters(codec="utf-8", exclude_characters="0123456789:abcdef<%\\"), max_size=9
)


@st.composite
def spelled_names(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw one of our names, and a way in which a text may spell it."""
    name = draw(st.sampled_from([*NAMES, *PLACEHOLDERS]))
    colon = draw(st.sampled_from([":", "%3A"]))
    if not name.startswith("<"):
        return name, name.replace(":", colon).encode()

    opening = draw(st.sampled_from(["<", "%3C", "%3c", r"\u003c", r"\\\u003C"]))
    closing = draw(st.sampled_from([">", "%3E", r"\u003e", r"\\u003E"]))
    return name, (opening + name[1:-1].replace(":", colon) + closing).encode()


def joined(raw: bytes) -> bytes:
    """Cut a text at its references, and join the parts again."""
    parts = split_at_refs(raw)
    return b"".join([part.raw if isinstance(part, Ref) else part for part in parts])


@pytest.mark.parametrize("path", CASSETTES, ids=lambda path: path.name)
def test_a_cassette_is_the_same_after_a_cut(path: Path) -> None:
    """Every committed and every frozen file is joined as it was, whatever names it has."""
    raw = path.read_bytes()

    assert joined(raw) == raw
    assert all(ref_of(ref.raw.decode()) == ref for ref in refs_in(raw))


@given(st.lists(st.tuples(BETWEEN, spelled_names())), BETWEEN)
def test_names_are_found_in_any_spelling(
    parts: list[tuple[str, tuple[str, bytes]]], end: str
) -> None:
    """A text is joined as it was, and its references are the names that were put into it."""
    raw = (
        b"".join([before.encode() + spelled for before, (_, spelled) in parts])
        + end.encode()
    )

    assert joined(raw) == raw
    assert [ref.name for ref in refs_in(raw)] == [name for _, (name, _) in parts]


@given(st.binary())
def test_any_bytes_are_joined_as_they_were(raw: bytes) -> None:
    """What is no text has no name, or is spelled again as it was."""
    assert joined(raw) == raw
    assert with_changed_refs(raw, lambda ref: ref) == raw


@pytest.mark.parametrize("name", NAMES)
def test_what_goes_on_is_no_name(name: str) -> None:
    """A name is one as a whole; a longer text only contains it."""
    assert ref_of(name) == Ref(name.partition(":")[0], tuple(name.split(":")[1:]))
    assert ref_of(f"{name}x") is None
    assert [ref.name for ref in refs_in(f"{name}x")] == [name]
    assert is_name_of_kind(name, name.partition(":")[0])
    assert not is_name_of_kind(name, "mrtr-withheld")


def test_text_with_many_references_is_no_reference_after_one_look() -> None:
    """Answers and states may be long documents, and nobody asks what references these have."""
    few = steps(lambda: ref_of("<token:1>" * 2))

    assert ref_of("<token:1>" * 3) is None
    assert steps(lambda: ref_of("<token:1>" * 1000)) == few


def test_a_reference_takes_the_spelling_of_the_one_before() -> None:
    """In a URL the colons of a new name are escaped, as those of the old one were."""
    text = "?s=mrtr-session%3A1 mrtr-session:1 %3Cjwt%3A1%3E"

    changed = with_changed_refs(text, lambda ref: ref.with_last_part(7))

    assert changed == "?s=mrtr-session%3A7 mrtr-session:7 %3Cjwt%3A7%3E"


def test_texts_of_two_recordings_are_alike_without_what_is_new_in_each() -> None:
    """Hashes and the tokens of a journal differ in each; the numbers of a cassette don't."""
    text = f"sha256:{DIGEST} <jwt:{'0f' * 12}> <jwt:2> mrtr-session:1"

    assert strip_volatile(text) == "sha256 <jwt:0> <jwt:2> mrtr-session:1"


def test_ids_take_the_places_of_others_all_at_once() -> None:
    """An id that begins another one is not it, and two may be exchanged."""
    change = id_replacer(
        {
            "mrtr-session:1": "mrtr-session:2",
            "mrtr-session:2": "mrtr-session:1",
            "mine": "live",
        }
    )

    assert change(b"mrtr-session:1 mrtr-session%3A2 mrtr-session:12 mine") == (
        b"mrtr-session:2 mrtr-session%3A1 mrtr-session:12 live"
    )


def test_ids_of_a_cassette_by_hand_may_have_no_colon_and_begin_alike() -> None:
    """A new id has its colon as it stands, where the old one has none."""
    change = id_replacer({"a": "mrtr-session:3", "ab": "mrtr-session:4"})

    assert change(b"a ab") == b"mrtr-session:3 mrtr-session:4"


def test_nobody_else_can_search_with_our_patterns() -> None:
    """The patterns of our names are this module's own."""
    patterns = [
        name for name, value in vars(names).items() if isinstance(value, re.Pattern)
    ]

    assert patterns
    assert all(name.startswith("_") for name in patterns)
