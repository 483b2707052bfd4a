from __future__ import annotations

import json

import pytest
from harmless import assert_harmless
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    MrtrCassetteError,
    UpstreamError,
    UsageError,
    printable,
    printable_json,
    printable_lines,
    shorten,
)


@pytest.mark.parametrize(
    ("error", "text", "exit_code"),
    [
        (MrtrCassetteError("no"), "no", 1),
        (MrtrCassetteError("no", hint="say yes"), "no; say yes", 1),
        (UsageError("bad option", hint="use another"), "bad option; use another", 2),
        (CassetteError("a.json", "is empty"), "a.json: is empty", 3),
        (
            CassetteError("a.json", "is empty", hint="record"),
            "a.json: is empty; record",
            3,
        ),
        (
            BodyTooLargeError("the response to GET /", 1_000_000),
            (
                "the response to GET / has more than 1,000,000 bytes and is not recorded; "
                "allow more with max_body"
            ),
            3,
        ),
        (UpstreamError("away"), "away", 4),
    ],
)
def test_error_says_what_happened_and_what_to_do(
    error: MrtrCassetteError, text: str, exit_code: int
) -> None:
    """The text of an error has its facts and its hint, and the command ends with its code."""
    assert str(error) == text
    assert error.exit_code == exit_code


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("", 3, ""),
        ("abc", 3, "abc"),
        ("abcd" * 6, 3, "abcd" * 6),
        ("x" * 1_200, 200, "x" * 200 + "… (1000 more characters)"),
    ],
)
def test_long_text_is_cut(text: str, limit: int, shown: str) -> None:
    """A text is cut to a limit, and says how much is left out."""
    assert shorten(text, limit) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 😀", "plain é 😀"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\t", r"a\nb\t"),
        ("\ud800", r"\ud800"),
        ("\u202eevil", r"\u202eevil"),
    ],
)
def test_text_is_safe_to_print(text: str, shown: str) -> None:
    """What a terminal would obey, and what UTF-8 can't hold, is escaped; the rest stays."""
    assert printable(text) == shown
    assert shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb: é\n", "a\nb: é\n"),
        ("a\x1b[31m\n\x9bb\r\n", "a\\x1b[31m\n\\x9bb\\r\n"),
        ("::error::x", "\\x3a:error::x"),
        ("a\n  ::stop-commands::x\n::::", "a\n  \\x3a:stop-commands::x\n\\x3a:::"),
        ("\t::error::x", "\\t::error::x"),
        ("a ##[command]b ##vso[x]", "a \\x23#[command]b \\x23#vso[x]"),
        ("a ::1 # ## [x]", "a ::1 # ## [x]"),
    ],
)
def test_lines_steer_neither_terminal_nor_runner(text: str, shown: str) -> None:
    """Of whole lines the line ends stay, and no line is a command to a CI runner."""
    assert printable_lines(text) == shown


@given(st.text(st.sampled_from(":#[vso] \n\r\t\x1b\x85\u2028\ud800\U000e0001a\\")))
def test_no_text_steers_neither_terminal_nor_runner(text: str) -> None:
    """Whatever a text is made of, nothing of it is obeyed; what is shown stays as it is."""
    shown = printable_lines(text)
    assert_harmless(shown)

    assert printable_lines(shown) == shown

    assert_harmless(str(CassetteError("f", text)))


@given(
    st.recursive(st.text(st.characters()), lambda values: st.lists(values, max_size=2))
)
def test_json_that_steers_nothing_means_the_same(value: object) -> None:
    """What is escaped in JSON is escaped as JSON does."""
    shown = printable_json(json.dumps(["##[x]", value], ensure_ascii=False, indent=1))
    assert_harmless(shown)

    assert json.loads(shown) == ["##[x]", value]
