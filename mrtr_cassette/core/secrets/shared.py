"""Rules that find what could identify somebody, by which a cassette is shared with strangers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from mrtr_cassette.core.secrets.shapes import Rule

SharedKind = Literal["email", "host", "ip", "text", "user"]

_SLASH: Final = r"(?:[\\/]+|%2[Ff]|%5[Cc])"
_HOME: Final = rf"(?:(?:home|Users){_SLASH}|[A-Za-z](?::|%3[Aa]){_SLASH}users{_SLASH})"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_HEX: Final = "[0-9A-Fa-f]{1,4}"
_LONG_IP: Final = rf"(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{1,6}}:(?:{_HEX}:){{0,5}}{_HEX}"


def rule_of_kind(kind: SharedKind) -> str:
    """Return the name of a rule, which its placeholders have."""
    return f"shared-{kind}"


def _rule(kind: SharedKind, pattern: str, needs: bytes = b"") -> Rule:
    return Rule(rule_of_kind(kind), pattern, needs, is_custom=True)


SHARED_RULES: Final[Mapping[SharedKind, Rule]] = {
    "email": _rule(
        "email",
        r"[\pL\pN._%+-]+(?:@|%40)(?:[\pL\pN-]+\.)+\pL[\pL\pN-]+",
    ),
    "ip": _rule(
        "ip",
        rf"\b(?:{_BYTE}(?:\.{_BYTE}){{3}}|{_LONG_IP})\b",
        # The addresses of each machine itself say nothing.
        rb"(?!127\.|0\.0\.0\.0)(?=.*[0-9])",
    ),
    "text": _rule("text", r"(?s)\A(?:\s*\S+\s.*|.*[^\x00-\x7F].*)\z"),
    "user": _rule("user", rf"{_SLASH}{_HOME}([^\\/\s\"'<>:%?#]+)"),
}
"""By kind. In JSON each finds its texts in strings; `text` is a whole string of several words.

No pattern finds a `host`: the server's own is known.
"""
SHARED_NAMES: Final = frozenset(map(rule_of_kind, get_args(SharedKind)))
