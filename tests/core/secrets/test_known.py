"""Facts about known texts, which are looked for in every spelling."""

from __future__ import annotations

import html
import json
import string
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.credentials import KnownText, KnownTexts

SHOWN = "<token:1>"
PLAIN = "kQ7-state.of_a-conversation"
ODD = 'k<Q7> & "one\'s" é/own+text?'


def known(*texts: str, most: int = 256) -> KnownTexts:
    """Return texts that are known."""
    made = KnownTexts(most)
    for text in texts:
        made.add(KnownText(text, SHOWN))
    return made


def in_json(text: str) -> str:
    """Spell a text in a JSON string, as Go does, with `<`, `>` and `&` escaped."""
    spelled = json.dumps(text)[1:-1]
    return spelled.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@pytest.mark.parametrize("text", [PLAIN, ODD])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        in_json,
        lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
        lambda text: quote(text, safe=""),
        quote,
        quote_plus,
        html.escape,
        lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        lambda text: in_json(html.escape(text)),
        lambda text: text.replace("/", "\\/").replace('"', '\\"'),
    ],
)
def test_text_is_found_in_every_spelling(text: str, spell: Callable[[str], str]) -> None:
    """Escapes of JSON, of JSON in JSON, of URLs and of HTML hide nothing."""
    sealed = known(text).seal(f"before {spell(text)} after".encode())

    assert sealed in [f"before {shown} after".encode() for shown in (SHOWN, "%3Ctoken%3A1%3E")]


@pytest.mark.parametrize("text", [PLAIN, ODD, "12345678", "é" * 2000])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc", '{"state":"'])
@pytest.mark.parametrize("after", ["", "a", '"}'])
def test_text_is_found_within_base64(
    text: str, encode: Callable[[bytes], bytes], before: str, after: str
) -> None:
    """Wherever a text begins in what is encoded, no more than its edge stays."""
    encoded = encode(f"{before}{text}{after}".encode())
    sealed = known(text).seal(b'{"cursor":"%b"}' % encoded)

    assert SHOWN.encode() in sealed
    assert len(sealed) <= len(b'{"cursor":""}') + len(SHOWN) + (len(before + after) // 3 + 2) * 4


@given(
    text=st.text(alphabet=string.ascii_letters + string.digits + "_.-", min_size=24, max_size=40),
    before=st.binary(max_size=4),
    after=st.binary(max_size=4),
)
def test_one_of_many_texts_is_found_within_base64(text: str, before: bytes, after: bytes) -> None:
    """The first text that may have it in base64 is searched for it, and so are those after it."""
    texts = known(*(f"{number:08}-text-of-many-others" for number in range(20)), text)
    raw = b64encode(before + text.encode() + after)

    assert SHOWN.encode() in texts.seal(raw)
    texts.add(KnownText(f"later-{text}", SHOWN))
    assert SHOWN.encode() in texts.seal(b64encode(before + b"later-" + text.encode() + after))


def test_escape_that_stands_for_nothing_stays() -> None:
    """References to characters that no text can have hide nothing and raise nothing."""
    assert known(ODD).seal(f"&#1; &#xD800; &#0; &#9999999; {html.escape(ODD)}".encode()) == (
        f"&#1; &#xD800; &#0; &#9999999; {SHOWN}".encode()
    )


def test_forgotten_text_is_not_found_in_any_form() -> None:
    """The oldest text is forgotten with what was looked for to find it."""
    texts = known(*(f"text-number-{number}-of-many" for number in range(50)), most=20)
    raw = b64encode(b"text-number-1-of-many")

    assert texts.seal(raw) == raw
    assert texts.seal(b"text-number-49-of-many") == SHOWN.encode()
    assert len(texts) == 20


def test_texts_are_told_in_the_order_in_which_they_came() -> None:
    """A text that comes again stays where it is, and one that is not searched for stays."""
    texts = known("first-text", "second-text", "first-text")
    assert not texts.add(KnownText("word", SHOWN, is_searched=False))

    assert list(texts) == ["first-text", "second-text", "word"]
    assert "word" in texts
    assert texts.seal(b"word") == b"word"


def test_texts_are_replaced_in_text_as_in_bytes() -> None:
    """What is no Unicode stays beside them, and a text without any is returned as it is."""
    texts = KnownTexts(shortest=8)
    plain = "nothing of a state"
    assert texts.seal_text(plain) is plain
    texts.add(KnownText(ODD, SHOWN))

    assert texts.seal_text(f"\ud800 {ODD} é") == f"\ud800 {SHOWN} é"
    assert texts.seal_text(plain) is plain
    assert texts.seal_text("short") == "short"
