from __future__ import annotations

import pytest

from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    MrtrCassetteError,
    UpstreamError,
    UsageError,
    printable,
    shorten,
)


@pytest.mark.parametrize(
    ("error", "text", "exit_code"),
    [
        (MrtrCassetteError("no"), "no", 1),
        (MrtrCassetteError("no", hint="say yes"), "no; say yes", 1),
        (UsageError("bad option", hint="use another"), "bad option; use another", 2),
        (CassetteError("a.json", "is empty"), "a.json: is empty", 3),
        (CassetteError("a.json", "is empty", hint="record"), "a.json: is empty; record", 3),
        (
            BodyTooLargeError("GET /", 1_000_000),
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


def test_cassette_error_knows_its_file() -> None:
    """File and reason can be had apart."""
    error = CassetteError("a.json", "is empty")

    assert (error.path, error.reason, error.hint) == ("a.json", "is empty", None)


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("", 3, ""),
        ("abc", 3, "abc"),
        ("abcd", 3, "abc… (1 more characters)"),
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
