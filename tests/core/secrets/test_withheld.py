"""Facts about what stands for a body that can't be searched."""

from __future__ import annotations

import hashlib

import pytest

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
