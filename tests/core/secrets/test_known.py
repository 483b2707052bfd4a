"""Facts about known texts, which are looked for in every spelling."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.credentials import RepeatedSecrets
from mrtr_cassette.core.secrets.names import sealed_hash

SHOWN = "<token:1>"
PLAIN = "kQ7-state.of_a-conversation"
ODD = 'k<Q7> & "one\'s" é/own+text?'


OTHERS = [f"known-but-not-repeated-{number}" for number in range(9)]
AMONG_FEW_AND_MANY = pytest.mark.parametrize(
    "others", [[], OTHERS], ids=["few", "many"]
)
"""Many texts are found in another way than a few."""


def known(*texts: str, most: int = 256) -> RepeatedSecrets:
    """Return texts that are known."""
    made = RepeatedSecrets(most)
    for text in texts:
        made.add(text, SHOWN)

    return made


def in_json(text: str) -> str:
    """Spell a text in a JSON string, as Go does, with `<`, `>` and `&` escaped."""
    spelled = json.dumps(text)[1:-1]
    return (
        spelled.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


@AMONG_FEW_AND_MANY
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
        lambda text: text.replace("/", "\\/").replace('"', '\\"'),
    ],
)
def test_text_is_found_in_every_spelling(
    text: str, spell: Callable[[str], str], others: list[str]
) -> None:
    """Escapes of JSON, of JSON in JSON and of URLs hide nothing."""
    sealed = known(text, *others).seal(f"before {spell(text)} after".encode())

    assert sealed in [
        f"before {shown} after".encode() for shown in (SHOWN, "%3Ctoken%3A1%3E")
    ]


@AMONG_FEW_AND_MANY
@pytest.mark.parametrize("text", [PLAIN, ODD, "12345678", "é" * 2000])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc", '{"state":"'])
@pytest.mark.parametrize("after", ["", "a", '"}'])
def test_text_is_found_within_base64(
    text: str,
    encode: Callable[[bytes], bytes],
    before: str,
    after: str,
    others: list[str],
) -> None:
    """Wherever a text begins in what is encoded, no more than its edge stays."""
    encoded = encode(f"{before}{text}{after}".encode())
    sealed = known(text, *others).seal(b'{"cursor":"%b"}' % encoded)

    assert SHOWN.encode() in sealed
    assert (
        len(sealed)
        <= len(b'{"cursor":""}') + len(SHOWN) + (len(before + after) // 3 + 2) * 4
    )


def test_only_the_last_texts_are_known() -> None:
    """The oldest text is forgotten in every spelling; one that comes again stays as old as it is."""
    words = [f"text-number-{number}-of-many" for number in range(50)]
    texts = known("first-text", words[0], '"' * 30, most=20)
    for word in (words[0], *words):
        texts.add(word, SHOWN)

    oldest = words[29].encode()
    forgotten = b'"' * 30 + oldest + b64encode(oldest)

    assert texts.seal(forgotten) == forgotten
    assert (
        texts.seal(words[30].encode())
        == texts.seal(words[49].encode())
        == SHOWN.encode()
    )
    assert (len(texts.texts), words[30] in texts, words[29] in texts) == (
        20,
        True,
        False,
    )


def test_text_that_is_kept_is_never_forgotten() -> None:
    """However many texts become known after it, also such as are kept."""
    texts = RepeatedSecrets(most=2)
    for number in range(4):
        texts.add(f"kept-{number}", SHOWN, is_permanent=True)
        texts.add(f"other-{number}", SHOWN)

    assert (
        texts.seal_text("kept-0 kept-3 other-0 other-3")
        == f"{SHOWN} {SHOWN} other-0 {SHOWN}"
    )


@AMONG_FEW_AND_MANY
def test_shorter_text_is_found_that_became_known_after_a_search(
    others: list[str],
) -> None:
    """Words are looked at from the length of the shortest known text on."""
    texts = known("long-enough-" * 8, *others)
    texts.may_be_in(b"any text")
    texts.add("a-shorter-text-17", SHOWN)

    assert texts.seal_text("is a-shorter-text-17 here") == f"is {SHOWN} here"


def test_texts_are_replaced_in_text_as_in_bytes() -> None:
    """What is no Unicode stays beside them."""
    assert known(ODD).seal_text(f"\ud800 {ODD} é") == f"\ud800 {SHOWN} é"
    assert RepeatedSecrets().seal_text("nothing is known") == "nothing is known"


# States

STATES = st.text('aZ9"\\/é🔑\n +=%{', min_size=24, max_size=30).map(
    lambda text: f"begin{text}"
)


def sealed(raw: bytes, *states: str, most: int = 256) -> bytes:
    """Replace states that are known."""
    texts = RepeatedSecrets(most)
    for state in states:
        texts.remember_state(state)

    return texts.seal(raw)


@pytest.mark.parametrize(
    ("state", "shown"), [("c" * 23, None), ("c" * 24, sealed_hash("c" * 24))]
)
def test_state_that_may_be_a_word_is_left(state: str, shown: str | None) -> None:
    """A state of 24 characters and more is replaced in other text, a shorter one is not."""
    assert sealed(f'"is {state}"'.encode(), state) == f'"is {shown or state}"'.encode()


@AMONG_FEW_AND_MANY
@example(f"begin{'9' * 24}\\", 0, False, "", "0")
@given(
    STATES, st.integers(0, 2), st.booleans(), st.text(max_size=4), st.text(max_size=4)
)
def test_known_state_is_found_in_every_layer(
    others: list[str],
    state: str,
    layers: int,
    ensure_ascii: bool,  # noqa: FBT001
    before: str,
    after: str,
) -> None:
    """However deep in strings of JSON a state is repeated, it is replaced and the rest stays."""
    text = before + state + after
    expected = before + sealed_hash(state) + after
    for _ in range(layers):
        text = json.dumps(text, ensure_ascii=ensure_ascii)
        expected = json.dumps(expected, ensure_ascii=ensure_ascii)

    raw = text.encode("utf-8", "surrogatepass")

    assert sealed(raw, state, *others) == expected.encode("utf-8", "surrogatepass")


def test_state_of_a_live_server_is_replaced_as_the_recorded_one() -> None:
    """A state that a live server issued again gets the sealed hash of the recorded one."""
    texts = RepeatedSecrets()
    texts.remember_state("issued-by-the-live-server-x7y", "recorded-before")

    assert texts.seal(b"is issued-by-the-live-server-x7y") == (
        b"is " + sealed_hash("recorded-before").encode()
    )


def test_longest_text_is_replaced_first() -> None:
    """A text that contains another one gets its own placeholder."""
    texts = RepeatedSecrets()
    for text in ("state-of-one", "state-of-one-and-more"):
        texts.add(text, f"<{len(text)}>")

    assert texts.seal(b"state-of-one-and-more state-of-one") == b"<21> <12>"


@AMONG_FEW_AND_MANY
@pytest.mark.parametrize(
    "text", ["qk/7+Jx0bW9kZWw/aGVsbG8+d29ybA==", "c3RhdGUtb2YtYS1jb252ZXJzYXQ="]
)
def test_base64_is_found_in_the_alphabet_of_urls(text: str, others: list[str]) -> None:
    """What is base64 itself may come back as base64url, with or without its padding."""
    spelled = text.replace("+", "-").replace("/", "_")
    sealed = (
        known(text, *others)
        .seal(f"{text} {spelled} {spelled.rstrip('=')}.".encode())
        .decode()
    )

    assert text.rstrip("=") not in sealed
    assert spelled.rstrip("=") not in sealed
    assert sealed.count(SHOWN) == 3
