from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.escapes import (
    Finding,
    SpanSet,
    decode_form,
    decode_json,
    decode_layer,
    decode_url,
    json_tokens,
    long_words,
    mapped_back,
    shifted,
    spell_as_json,
    spell_in_json,
    spell_in_url,
    spell_nothing,
    without_overlaps,
)
from mrtr_cassette.errors import NotJsonError


@pytest.mark.parametrize(
    ("decode", "raw", "text"),
    [
        (decode_json, r"a\u002db\n\"\ud83d\ude00\ud800", 'a-b\n"😀\ud800'),
        (decode_url, "a%2Db%C3%A9+%zz%FF", "a-bé+%zz\udcff"),
        (decode_form, "a+b%20c", "a b c"),
        (decode_json, "plain", "plain"),
    ],
)
def test_one_layer_of_escapes_is_undone(decode, raw: str, text: str) -> None:
    """Each character of the decoded text is where its spelling begins."""
    decoded = decode(raw)

    assert decoded.text == text
    assert decoded.source(0) == 0
    assert decoded.source(len(text)) == len(raw)


def test_finding_is_mapped_back_to_its_spelling() -> None:
    """A finding in a decoded text stands where the text spells it, and is replaced as it needs."""
    raw = r"say \u0022key\u0022 now"
    decoded = decode_json(raw)
    at = decoded.text.index("key")

    (finding,) = mapped_back(decoded, [Finding(at, at + 3, "r", "key")], 100, spell_in_json)

    assert raw[finding.start - 100 : finding.end - 100] == "key"
    assert finding.spell('<"\\>') == r"<\"\\>"
    (finding,) = shifted([finding], 5)
    assert finding.start == 105 + raw.index("key")


def test_replacements_are_spelled_for_their_layer() -> None:
    """What replaces a finding keeps JSON JSON and a URL a URL."""
    assert Finding(0, 1, "r", "x").spell("<r:1>") == "<r:1>"
    assert spell_as_json("<r:1>") == '"<r:1>"'
    assert spell_in_url('<r:1>"\\') == "%3Cr:1%3E%22%5C"
    assert spell_nothing("<r:1>") == ""


def test_spans_cover_and_cut() -> None:
    """A span that lies in one of a set is covered; one that one of them ends inside is cut."""
    spans = SpanSet([(2, 5), (8, 9)])

    assert spans.covers(2, 5)
    assert spans.covers(3, 4)
    assert not spans.covers(0, 3)
    assert not spans.covers(4, 6)
    assert spans.cuts(4, 7)
    assert spans.cuts(0, 3)
    assert not spans.cuts(0, 2)
    assert not spans.cuts(5, 8)
    assert not SpanSet(()).covers(0, 0)


def test_overlapping_findings_become_one() -> None:
    """Of two findings in one place the wider one counts, and two that overlap in part are one."""
    findings = [
        Finding(4, 8, "b", "4567"),
        Finding(0, 2, "a", "01"),
        Finding(0, 1, "c", "0"),
        Finding(6, 9, "d", "678"),
        Finding(9, 10, "e", "9"),
    ]

    kept = without_overlaps("0123456789", findings)

    assert [(one.start, one.end, one.rule, one.plain) for one in kept] == [
        (0, 2, "a", "01"),
        (4, 9, "b", "45678"),
        (9, 10, "e", "9"),
    ]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('{"a": [1, "b"], "c": true}', ["opening", "key", "opening", "number", "text", "closing"]),
        ('\ufeff{"a":1}\n{"b', ["opening", "key", "number", "closing", "opening", "text"]),
        ("[" * 1_000, ["opening"] * 6),
        ('"cut off \\', ["text"]),
    ],
)
def test_tokens_of_json_are_read(text: str, kinds: list[str]) -> None:
    """JSON texts may follow one another, be cut off, or be nested to any depth."""
    tokens = list(json_tokens(text))

    assert [token.lastgroup for token in tokens][: len(kinds)] == kinds


@pytest.mark.parametrize("text", ["prose", "", "{a: 1}", '{"a" 1} and more'])
def test_other_text_has_no_tokens(text: str) -> None:
    """Text that is no JSON is told apart."""
    with pytest.raises(NotJsonError):
        list(json_tokens(text))


def test_many_numbers_are_one_token() -> None:
    """Of numbers in a row only the first is read, as only that one can stand under a name."""
    tokens = list(json_tokens("[" + "0, -1.5e7,\n" * 1_000 + '"a"]'))

    assert [token.lastgroup for token in tokens] == ["opening", "number", "text", "closing"]


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        ("json", r"a\u00e9\/\x", "a\u00c3\u00a9/\\x"),
        ("url", "a%C3%A9+", "a\u00c3\u00a9+"),
        ("form", "a%C3%A9+", "a\u00c3\u00a9 "),
        ("json", "plain", None),
        ("url", "a+", None),
    ],
)
def test_escapes_of_bytes_are_undone(kind: str, raw: str, text: str | None) -> None:
    """Of bytes that are one character each an escape stands for the bytes of UTF-8."""
    decoded = decode_layer(raw, kind)

    assert (decoded and decoded.text) == text
    if decoded is not None:
        assert decoded.source(len(decoded.text)) == len(raw)


def test_long_words_are_found() -> None:
    """Words are letters, digits, `_`, `.` and `-`, of at least the given length."""
    assert list(long_words(b"abc a_.-1 \xe9\xe9\xe9\xe9 last", 4)) == [b"a_.-1", b"last"]
    assert list(long_words(b"abc", 4)) == []
