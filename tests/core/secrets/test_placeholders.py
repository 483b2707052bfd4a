from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.sealed import (
    placeholder,
    renumber,
    without_numbers,
    without_rules,
)


@pytest.mark.parametrize("wrong", ["", "a b", '"', "<", "é", "x" * 201])
def test_token_that_would_break_a_placeholder_is_refused(wrong: str) -> None:
    """A token has letters, digits and little else."""
    with pytest.raises(ValueError, match="placeholder"):
        placeholder("jwt", wrong)


def test_tokens_become_numbers() -> None:
    """Each placeholder of a rule that exists gets its number, spelled as it was."""
    asked = []

    def number(rule: str, token: str) -> int:
        asked.append((rule, token))
        return len(asked)

    raw = b"\xff<password:ab-1> %3Cjwt:x%3E %3cjwt%3Ax%3e <custom-12:z> <custom-key:k> <div:1> <password:> <password>"

    assert renumber(raw, number) == (
        b"\xff<password:1> %3Cjwt:2%3E %3cjwt%3A3%3e <custom-12:4> <custom-key:5> <div:1> <password:> <password>"
    )
    assert " ".join(map("=".join, asked)) == "password=ab-1 jwt=x jwt=x custom-12=z custom-key=k"


def test_numbers_can_be_left_out() -> None:
    """Which secret of a rule it was doesn't show, nor how the placeholder was spelled."""
    assert without_numbers('"\\u003cjwt:1\\u003e \\\\u003Cjwt:2\\\\u003E"') == '"<jwt> <jwt>"'
    assert without_numbers("<password:1> %3Cpassword:T%3E %3Cjwt%3A2%3E <div:1> <custom-2:x>") == (
        "<password> <password> <jwt> <div:1> <custom-2>"
    )
    assert without_rules("<jwt> <custom-2> <div>") == "<> <> <div>"


def test_placeholder_without_a_number_keeps_its_token() -> None:
    """It may be text that only looks like a placeholder."""
    raw = "<jwt:a> é <jwt:b>"

    assert renumber(raw, lambda _rule, token: 1 if token == "b" else None) == "<jwt:a> é <jwt:1>"


@pytest.mark.parametrize("opening", ["<", "%3C", "%3c", "\\u003c", "\\\\u003C"])
@pytest.mark.parametrize("closing", [">", "%3E", "\\u003e"])
def test_placeholder_is_found_in_each_spelling(opening: str, closing: str) -> None:
    """Both ends may be escaped, each in its own way."""
    text = f"a{opening}jwt:5{closing}b{opening}div:5{closing}"
    assert without_numbers(text) == f"a<jwt>b{opening}div:5{closing}"
    assert renumber(text, lambda _rule, _token: 7) == text.replace("jwt:5", "jwt:7")


def test_numbers_can_be_left_out_of_bytes() -> None:
    """Bytes that are no text stay as they are."""
    assert without_numbers(b"\xff\xc3<jwt:1>\x80 %3Cjwt:2%3E") == b"\xff\xc3<jwt>\x80 <jwt>"
