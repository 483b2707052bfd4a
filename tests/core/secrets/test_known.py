"""Facts about known texts, which are looked for in every spelling."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
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
        made.add_known_text(text, SHOWN)

    return made


def in_json(text: str) -> str:
    """Spell a text in a JSON string, as Go does, with `<`, `>` and `&` escaped."""
    spelled = json.dumps(text)[1:-1]
    return (
        spelled.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def all_escaped(text: str) -> str:
    """Spell a text in a JSON string with an escape for each character."""
    return "".join(f"\\u{ord(char):04X}" for char in text)


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
        all_escaped,
        lambda text: json.dumps(all_escaped(text))[1:-1],
    ],
)
def test_text_is_found_in_every_spelling(
    text: str, spell: Callable[[str], str], others: list[str]
) -> None:
    """Escapes of JSON, of JSON in JSON and of URLs hide nothing."""
    sealed = known(text, *others).sealed_bytes(f"before {spell(text)} after".encode())

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
    sealed = known(text, *others).sealed_bytes(b'{"cursor":"%b"}' % encoded)

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
        texts.add_known_text(word, SHOWN)

    oldest = words[29].encode()
    forgotten = b'"' * 30 + oldest + b64encode(oldest)

    assert texts.sealed_bytes(forgotten) == forgotten
    assert (
        texts.sealed_bytes(words[30].encode())
        == texts.sealed_bytes(words[49].encode())
        == SHOWN.encode()
    )
    assert (len(texts.texts), words[30] in texts, words[29] in texts) == (
        20,
        True,
        False,
    )


def test_text_that_is_kept_is_never_forgotten() -> None:
    """However many texts become known after it, also such as are kept."""
    texts = RepeatedSecrets(most_texts=2)
    for number in range(4):
        texts.add_known_text(f"kept-{number}", SHOWN, is_permanent=True)
        texts.add_known_text(f"other-{number}", SHOWN)

    assert (
        texts.sealed_text("kept-0 kept-3 other-0 other-3")
        == f"{SHOWN} {SHOWN} other-0 {SHOWN}"
    )


@AMONG_FEW_AND_MANY
def test_shorter_text_is_found_that_became_known_after_a_search(
    others: list[str],
) -> None:
    """Words are looked at from the length of the shortest known text on."""
    texts = known("long-enough-" * 8, *others)
    texts.may_occur_in(b"any text")
    texts.add_known_text("a-shorter-text-17", SHOWN)

    assert texts.sealed_text("is a-shorter-text-17 here") == f"is {SHOWN} here"


def test_texts_are_replaced_in_text_as_in_bytes() -> None:
    """What is no Unicode stays beside them."""
    assert known(ODD).sealed_text(f"\ud800 {ODD} é") == f"\ud800 {SHOWN} é"
    assert RepeatedSecrets().sealed_text("nothing is known") == "nothing is known"


# States

STATES = st.text('aZ9"\\/é🔑\n +=%{', min_size=24, max_size=30).map(
    lambda text: f"begin{text}"
)


def sealed(raw: bytes, *states: str, most: int = 256) -> bytes:
    """Replace states that are known."""
    texts = RepeatedSecrets(most)
    for state in states:
        texts.remember_state(state)

    return texts.sealed_bytes(raw)


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

    assert texts.sealed_bytes(b"is issued-by-the-live-server-x7y") == (
        b"is " + sealed_hash("recorded-before").encode()
    )


def test_longest_text_is_replaced_first() -> None:
    """A text that contains another one gets its own placeholder."""
    texts = RepeatedSecrets()
    for text in ("state-of-one", "state-of-one-and-more"):
        texts.add_known_text(text, f"<{len(text)}>")

    assert texts.sealed_bytes(b"state-of-one-and-more state-of-one") == b"<21> <12>"


@AMONG_FEW_AND_MANY
@pytest.mark.parametrize(
    "text", ["qk/7+Jx0bW9kZWw/aGVsbG8+d29ybA==", "c3RhdGUtb2YtYS1jb252ZXJzYXQ="]
)
def test_base64_is_found_in_the_alphabet_of_urls(text: str, others: list[str]) -> None:
    """What is base64 itself may come back as base64url, with or without its padding."""
    spelled = text.replace("+", "-").replace("/", "_")
    sealed = (
        known(text, *others)
        .sealed_bytes(f"{text} {spelled} {spelled.rstrip('=')}.".encode())
        .decode()
    )

    assert text.rstrip("=") not in sealed
    assert spelled.rstrip("=") not in sealed
    assert sealed.count(SHOWN) == 3


# JSON

STATE = '{"environment": "production", "replicas": 3}'
NUMBER = "4111111111111111"
MESSAGE = '{"jsonrpc": "2.0", "id": 1, "result": {"a": %s, "b": "%s"}}'


@pytest.mark.parametrize(
    "frame",
    [
        str,
        lambda message: f"\ufeff{message}",
        lambda message: f"{message}\n{message}\n",
        lambda message: f'event: "message\ndata: {message}\n\ndata: {message}\n\n',
        lambda message: "data:" + message.replace('{"a"', '\r\ndata:{"a"') + "\r\n\r\n",
        lambda message: message.replace('"}}', '"}, "NaN": NaN}'),
        lambda message: message.replace(', "b"', ',\n\t"b"'),
    ],
)
@pytest.mark.parametrize(
    ("text", "shown", "number_shown"),
    [
        (STATE, sealed_hash("state"), STATE),
        (NUMBER, "<token:1>", '"<token-number:1>"'),
        (f"-{NUMBER}.5e+10", "<password-number:1>", '"<password-number:1>"'),
        ("1764504649.1234567890123", sealed_hash("state"), "1764504649.1234567890123"),
    ],
)
def test_json_stays_json(
    text: str, shown: str, number_shown: str, frame: Callable[[str], str]
) -> None:
    """A text is replaced in strings; as a number it is too if it is a secret, else it stays."""
    texts = RepeatedSecrets()
    texts.add_known_text(text, shown)
    escaped = text.replace('"', '\\"')
    raw = frame(MESSAGE % (text, f"is {escaped} in text"))

    assert texts.sealed_bytes(raw.encode()) == (
        frame(MESSAGE % (number_shown, f"is {shown} in text")).encode()
    )


@pytest.mark.parametrize(
    "part", ['1234567890123456789012345"}', '{"v":"1234567890123456789']
)
def test_text_up_to_an_end_of_a_message_leaves_it(part: str) -> None:
    """It is JSON, of which nothing may be missing."""
    message = b'{"v":"1234567890123456789012345"}'

    assert sealed(message, part) == message


@pytest.mark.parametrize("text", ["[1, 2, 3, 4, 5]", NUMBER])
@pytest.mark.parametrize(
    "other",
    ["is %s", "[info] %s", '{"cut off": %s', 'id: %s\n: %s\ndata: {"a": 1}\n\n'],
)
def test_text_that_is_no_json_hides_nothing(text: str, other: str) -> None:
    """Brackets and digits in lines of a log are text."""
    raw = other.replace("%s", text)

    assert known(text).sealed_bytes(raw.encode()) == other.replace("%s", SHOWN).encode()


@pytest.mark.parametrize(
    "message",
    [
        {"id": int(NUMBER), "result": {}},
        {"error": {"code": int(NUMBER), "message": ""}, "id": 1},
        {"method": "m", "id": 1, "params": {"_meta": {"progressToken": int(NUMBER)}}},
    ],
)
def test_number_that_tells_messages_apart_stays(message: dict[str, Any]) -> None:
    """The id of a message is a number in its own right; under the same name elsewhere it is not."""
    raw = json.dumps({"jsonrpc": "2.0", **message}).encode()
    inner = json.dumps({"jsonrpc": "2.0", "id": 1, "result": message}).encode()

    assert known(NUMBER).sealed_bytes(raw) == raw
    assert known(NUMBER).sealed_bytes(b"data: %b\n\n" % raw) == b"data: %b\n\n" % raw
    assert known(NUMBER).sealed_bytes(inner) == (
        inner.replace(NUMBER.encode(), b'"<token-number:1>"')
    )


def test_secret_within_a_structure_that_stays_is_replaced() -> None:
    """What is left because it is no string has its own secrets."""
    texts = known("kq7x-4711-inner")
    texts.remember_state('{"a": "kq7x-4711-inner", "b": 1}')

    assert texts.sealed_bytes(b'{"x": {"a": "kq7x-4711-inner", "b": 1}}') == (
        b'{"x": {"a": "<token:1>", "b": 1}}'
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.text('ab"\\/é\n{}[],: 1u')
TREES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('ab"\\{:', max_size=9), inner, max_size=3)
        | inner.map(json.dumps)
    ),
    max_leaves=8,
)


def same_shape(before: Any, after: Any) -> bool:
    """Tell whether two values differ in strings, and in numbers that became strings, only."""
    if isinstance(before, dict | list):
        if type(after) is not type(before) or len(before) != len(after):
            return False
        if isinstance(before, dict):
            return all(map(same_shape, before.values(), after.values()))

        return all(map(same_shape, before, after))

    if isinstance(after, str):
        return isinstance(before, str) or "<token-number:1>" in after

    return before == after and type(before) is type(after)


@pytest.mark.parametrize("shown", [SHOWN, sealed_hash("state")])
@given(TREES, st.sampled_from([None, 1]), st.data())
def test_whatever_is_known_messages_keep_their_shape(
    shown: str, tree: Any, indent: int | None, data: st.DataObject
) -> None:
    """Any part of a message may be a secret or a state, also one that is cut anywhere."""
    message = {"jsonrpc": "2.0", "id": 17645046, "result": {"a": tree}}
    raw = json.dumps(message, indent=indent)
    start = data.draw(st.integers(0, len(raw) - 8))
    end = data.draw(st.integers(start + 8, len(raw)))
    texts = RepeatedSecrets()
    texts.add_known_text(raw[start:end], shown)

    sealed_message = json.loads(texts.sealed_bytes(raw.encode()))
    (event,) = texts.sealed_bytes(
        f"data: {json.dumps(message)}\n\n".encode()
    ).splitlines()[:1]

    assert same_shape(message, sealed_message)
    assert sealed_message.get("id", 17645046) == 17645046
    assert same_shape(message, json.loads(event[6:]))
