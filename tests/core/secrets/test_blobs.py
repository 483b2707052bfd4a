from __future__ import annotations

import base64
import json

import pytest
import re2

from mrtr_cassette.core.secrets.blobs import LONGEST, MARKER, decoded_blob


def encoded(raw: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(raw).decode()


TEXT = "the key is: ÿ?>~ made up"


@pytest.mark.parametrize(
    "spelled",
    [
        encoded(TEXT.encode()),
        encoded(TEXT.encode()).rstrip("="),
        base64.urlsafe_b64encode(TEXT.encode()).decode(),
        encoded(TEXT.encode())[:20] + "\r\n" + encoded(TEXT.encode())[20:] + "\n",
        encoded(b"\xef\xbb\xbf" + TEXT.encode()),
    ],
)
def test_text_is_decoded_in_each_spelling(spelled: str) -> None:
    """Padding, lines, the alphabet of URLs and a byte order mark don't matter."""
    assert decoded_blob(spelled) == TEXT
    assert re2.search(MARKER, json.dumps({"blob": spelled}))
    assert re2.search(MARKER, json.dumps(json.dumps({"data": spelled}, indent=1)))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "plain words that are no base64",
        encoded(b"shorter"),
        encoded(b"\x89PNG\r\n\x1a\n" + bytes(40)),
        encoded(b"\xff\xd8\xff\xe0" + bytes(40)),
        encoded(b"RIFF" + b"abcdWAVEfmt " + bytes(40)),
        encoded(b"latin-1 \xfc is not read"),
        encoded(TEXT.encode()) + "!",
    ],
)
def test_other_data_is_not_decoded(value: str) -> None:
    """Images, sounds and words are none of our business."""
    assert decoded_blob(value) is None


def test_images_are_not_even_looked_at() -> None:
    """A body with an image has no marker."""
    image = encoded(b"\x89PNG\r\n\x1a\n" + bytes(40))

    assert not re2.search(MARKER, json.dumps({"type": "image", "data": image}))


def test_no_more_is_decoded_than_has_to_be() -> None:
    """Of a long text the beginning is decoded, and what is cut in a group of four is left out."""
    text = decoded_blob(encoded(b"a" * LONGEST))

    assert text == "a" * (LONGEST * 3 // 4)
    assert decoded_blob(encoded(b"abcdefghijkl") + "Q") == "abcdefghijkl"
    assert decoded_blob(encoded("abcdefghijklmné".encode()[:-1])) == "abcdefghijklmn"
    assert decoded_blob(encoded("Schlüssel ключ".encode())) == "Schlüssel ключ"
    assert decoded_blob(encoded("ключ".encode())) == "ключ"
