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
from collections.abc import Callable

SHORTEST_SEARCHED = 24
"""Characters from which on a state is also replaced where it stands outside `requestState`.

A shorter one may be an ordinary word (`confirmed`), which other text has in its own right.
"""

_PLAIN_RUN = re.compile(r"[0-9A-Za-z._=+-]+")
_STATE_MEMBER = re.compile(rb'("requestState"\s*:\s*")((?:[^"\\]|\\.)+)', re.DOTALL)
_PLACEHOLDER = re.compile(r"sha256:([0-9a-f]{64})")
_PLACEHOLDER_BYTES = re.compile(rb"sha256:([0-9a-f]{64})")


def sha256_of(state: str) -> str:
    """Return the hash by which request states are compared, as 64 hexadecimal digits."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def placeholder(secret: str) -> str:
    """Return what stands for a secret in the journal."""
    return f"sha256:{sha256_of(secret)}"


class KnownState:
    """A state that was issued or echoed, and the ways in which other text may repeat it."""

    def __init__(self, state: str) -> None:
        """Work out how it may be spelled."""
        self.state = state
        self.is_searched = len(state) >= SHORTEST_SEARCHED
        # Whatever the escapes are, the longest run of plain characters is in all spellings.
        self._probe = max(_PLAIN_RUN.findall(state), key=len, default="").encode()
        self._spellings: tuple[bytes, ...] | None = None

    def seal(self, raw: bytes) -> bytes:
        """Replace the state wherever it stands, unless it is so short that it may be a word."""
        if not self.is_searched or self._probe not in raw:
            return raw
        if self._spellings is None:
            self._spellings = tuple(
                spelling.encode("utf-8", "surrogatepass")
                for spelling in sorted(_spellings(self.state), key=len, reverse=True)
            )
        new = placeholder(self.state).encode()
        for spelling in self._spellings:
            raw = raw.replace(spelling, new)
        return raw


def _spellings(text: str) -> set[str]:
    """Return how common JSON writers spell a text: in text, in a string, in JSON in a string."""
    once = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    once |= {spelling.replace("/", "\\/") for spelling in once}
    return {text} | once | {json.dumps(spelling)[1:-1] for spelling in once}


def seal_broken(raw: bytes) -> tuple[bytes, str | None]:
    """Replace the states in a body that is no JSON, such as an ask that broke off.

    Returns:
        the body, and the first state in it as it is spelled there, or None.
    """
    found = _STATE_MEMBER.search(raw)
    if found is None:
        return raw, None

    def replaced(match: re.Match[bytes]) -> bytes:
        if _PLACEHOLDER_BYTES.fullmatch(match[2]):
            return match[0]
        return match[1] + placeholder(match[2].decode("latin-1")).encode()

    return _STATE_MEMBER.sub(replaced, raw), found[2].decode("latin-1")


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
