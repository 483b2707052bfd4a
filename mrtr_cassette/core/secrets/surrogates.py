"""What stands for a request state or the id of a session, an event or an elicitation.

That is a sealed hash, later a surrogate; an elicitation's id is no secret and is not hashed.

Rule: a sealed hash, which a running recording writes, tells nothing but the hash. A surrogate,
which a cassette has, is the same on every re-recording.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii

SEALED_HASH = re.compile(r"sha256(:|%3A)([0-9a-f]{64})")
SEALED_HASH_BYTES = re.compile(rb"sha256(:|%3A)([0-9a-f]{64})")
EVENT_SURROGATE_BYTES = re.compile(rb"mrtr-event:([0-9]{1,9}):([0-9]{1,9})")
ELICITATION_SURROGATE_BYTES = re.compile(rb"mrtr-elicitation:([0-9]{1,9}):([0-9]{1,9})")
STATE_SURROGATE = re.compile(
    r"mrtr-state:[0-9a-f]{16}:(?P<occurrence>[0-9]{1,9}):[0-9]{1,9}", re.ASCII
)
SESSION_SURROGATE = re.compile(r"mrtr-session:([0-9]{1,9})", re.ASCII)


@lru_cache(maxsize=16)
def sha256_of(state: str) -> str:
    """Return the hash by which request states are compared, as 64 hexadecimal digits."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def sealed_hash(secret: str) -> str:
    """Return what stands for a request state or a session id in the journal."""
    return f"sha256:{sha256_of(secret)}"


def compared_sha256(state: str) -> str:
    """Return the hash by which a state is compared on replay; a sealed hash is compared as such."""
    sealed = SEALED_HASH.fullmatch(state)
    return sha256_of(state) if sealed is None else sealed[2]


def as_recorded(state: str) -> str:
    """Return what stands in a cassette for a state that a client sends on replay."""
    is_sealed = STATE_SURROGATE.fullmatch(state) or SEALED_HASH.fullmatch(state)
    return state if is_sealed else sealed_hash(state)


def reveal(raw: bytes, surrogate_of: Callable[[str], str | None]) -> bytes:
    """Replace sealed hashes by their surrogates; one that has no surrogate stays."""

    def revealed(match: re.Match[bytes]) -> bytes:
        surrogate = surrogate_of(match[2].decode())
        return match[0] if surrogate is None else surrogate.encode().replace(b":", match[1])

    return SEALED_HASH_BYTES.sub(revealed, raw)


def reveal_in_json(raw: bytes, states: Mapping[str, str]) -> bytes:
    """Replace sealed hashes in a JSON text by recorded states, which may be any text.

    Args:
        raw: the JSON text.
        states: the recorded state or session id by the hash of the live one.
    """

    def spelled(sha256: str) -> str | None:
        state = states.get(sha256)
        return None if state is None else encode_basestring_ascii(state)[1:-1]

    return reveal(raw, spelled)


def reveal_text(text: str, surrogate_of: Callable[[str], str | None]) -> str:
    """Replace sealed hashes in a text as `reveal` does in bytes."""
    return reveal(text.encode("utf-8", "surrogateescape"), surrogate_of).decode(
        "utf-8", "surrogateescape"
    )


def state_surrogate(call_sha256: str, occurrence: int, turn: int) -> str:
    """Return the surrogate of the state that an ask issued.

    Args:
        call_sha256: hash of the interaction's call key.
        occurrence: which interaction with this call key, from 1.
        turn: the ask's turn, from 1; 0 for a state that no recorded ask issued.
    """
    return f"mrtr-state:{call_sha256[:16]}:{occurrence}:{turn}"


def occurrence_in(surrogate: str) -> int | None:
    """Return which interaction with its call key a surrogate belongs to; None for other text."""
    match = STATE_SURROGATE.fullmatch(surrogate)
    return None if match is None else int(match["occurrence"])


def session_surrogate(number: int) -> str:
    """Return the surrogate of the `number`th session id, from 1."""
    return f"mrtr-session:{number}"


def event_surrogate(session: int, index: int) -> str:
    """Return the surrogate of the id of an event.

    Args:
        session: the number of its session; 0 where it has none.
        index: which of the events with an id in this session, from 1.
    """
    return f"mrtr-event:{session}:{index}"


def elicitation_surrogate(session: int, index: int) -> str:
    """Return the surrogate of the id that a server made up for a question.

    Args:
        session: the number of its session; 0 where it has none.
        index: which of the elicitations with such an id in this session, from 1.
    """
    return f"mrtr-elicitation:{session}:{index}"
