"""Facts about what stands for a body that can't be searched."""

from __future__ import annotations

import hashlib

import pytest

from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.withheld import is_withheld, withheld


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"x" * 1000])
def test_body_is_known_by_size_and_digest(body: bytes) -> None:
    """Nothing but the size and the SHA-256 of a body is kept."""
    digest = hashlib.sha256(body).hexdigest()

    assert withheld(body) == f"mrtr-withheld:{len(body)}:{digest}".encode()
    assert is_withheld(withheld(body))


@pytest.mark.parametrize("change", [b" %b", b"%b ", b"mrtr-%b"])
def test_other_body_stands_for_none(change: bytes) -> None:
    """A body that contains such a text is one like any other."""
    assert not is_withheld(change % withheld(b"x"))


def test_no_pattern_of_a_user_changes_what_stands_for_a_body() -> None:
    """A digest may look like anything, and is no secret."""
    redactor = Redactor(RedactionRules(patterns=("[0-9]+",)), lambda _rule, _secret: "1")

    assert redactor.body(withheld(b"x"), "text/plain") == withheld(b"x")
    assert redactor.body(b"x 4711", "text/plain") == b"x <custom-1:1>"
