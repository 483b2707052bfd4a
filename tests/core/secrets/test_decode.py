"""How base64 of text begins."""

from __future__ import annotations

import re
from base64 import b64encode

from mrtr_cassette.core.secrets.decode import BEGINNING_OF_TEXT_IN_BASE64

BEGINNING = re.compile(BEGINNING_OF_TEXT_IN_BASE64.encode())
CHARACTERS = [
    *"\t\n\r ",
    *map(chr, range(0x21, 0x7F)),
    *map(chr, range(0x80, 0x800)),
    *map(chr, range(0x800, 0xD800, 61)),
    *map(chr, range(0xE000, 0x10FFFF, 997)),
]
SHORT = [*"\t ~", "\x80", "\u07ff", "\u0800", "\uffff", "\U00010000", "\U0010ffff"]


def test_base64_of_all_text_begins_so() -> None:
    """Whatever character a text begins with, and whatever follows, in both alphabets."""
    missed = []
    for first in CHARACTERS:
        for second in SHORT:
            for text in (f"{first}{second}--", f"{second}{first}--"):
                standard = b64encode(text.encode())
                in_url = standard.replace(b"+", b"-").replace(b"/", b"_")
                if not (BEGINNING.match(standard) and BEGINNING.match(in_url)):
                    missed.append(text)

    assert missed == []


def test_most_words_begin_otherwise() -> None:
    """Names in messages of MCP are not decoded."""
    words = (
        b"protocolVersion clientCapabilities inputResponses requestState elicitation"
    )

    assert [word for word in words.split() if BEGINNING.match(word)] == []
