"""Keeping raw request states and session ids off the disk.

Owns: the placeholder that stands for a secret while a recording runs (its hash), and the
surrogate that stands for it in a cassette and on replay.
Rule: a placeholder says nothing but the hash; a surrogate is the same on every re-recording.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable

SHORTEST_SEARCHED = 24
"""Characters from which on a state is also replaced where it stands outside `requestState`.

A shorter one may be an ordinary word (`confirmed`), which other text has in its own right.
"""

_PLACEHOLDER = re.compile(r"sha256:([0-9a-f]{64})")
_PLACEHOLDER_BYTES = re.compile(rb"sha256:([0-9a-f]{64})")


def sha256_of(state: str) -> str:
    """Return the hash by which request states are compared, as 64 hexadecimal digits."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def placeholder(secret: str) -> str:
    """Return what stands for a secret in the journal."""
    return f"sha256:{sha256_of(secret)}"


def seal_everywhere(raw: bytes, states: Iterable[str]) -> bytes:
    """Replace each state that is long enough to be no word, in every JSON spelling of it."""
    for state in states:
        if len(state) >= SHORTEST_SEARCHED:
            new = placeholder(state).encode()
            for spelling in _spellings(state):
                raw = raw.replace(spelling.encode("utf-8", "surrogatepass"), new)
    return raw


def _spellings(text: str) -> set[str]:
    """Return the ways in which common JSON writers spell a text inside a string."""
    plain = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return plain | {spelling.replace("/", "\\/") for spelling in plain}


def reveal(raw: bytes, surrogate_of: Callable[[str], str | None]) -> bytes:
    """Put surrogates in the place of placeholders; one without a surrogate stays."""

    def surrogate(match: re.Match[bytes]) -> bytes:
        found = surrogate_of(match[1].decode())
        return match[0] if found is None else found.encode()

    return _PLACEHOLDER_BYTES.sub(surrogate, raw)


def reveal_text(text: str, surrogate_of: Callable[[str], str | None]) -> str:
    """Do the same in text."""
    return _PLACEHOLDER.sub(lambda match: surrogate_of(match[1]) or match[0], text)


def state_surrogate(call: str, occurrence: int, turn: int) -> str:
    """Return the surrogate of the state that an ask issued.

    Args:
        call: the interaction's call key as text.
        occurrence: which interaction with this call key, from 1.
        turn: the ask's turn, from 1; 0 for a state that no recorded ask issued.
    """
    return f"mrtr-state:{sha256_of(call)[:16]}:{occurrence}:{turn}"


def session_surrogate(number: int) -> str:
    """Return the surrogate of the `number`th session id, from 1."""
    return f"mrtr-session:{number}"
