"""The values that differ on every call (id, progress token), and a digest of everything else.

Rule: two bodies with the same digest, if `can_be_cut` is true for one of them, are the same message
except for the values that were cut out.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from mrtr_cassette.core.protocol.jsonrpc import (
    ID_KEY,
    ID_PATH,
    PLAIN_ID,
    PLAIN_TOKEN,
    TOKEN_KEY,
    TOKEN_PATH,
    Kind,
    Message,
)
from mrtr_cassette.core.wire.jsonbytes import find_spans


class CallerValues(NamedTuple):
    """The caller's values as they are spelled; None where the request has none."""

    id: bytes | None
    progress_token: bytes | None


class CutBody(NamedTuple):
    """A body without the caller's values.

    Attributes:
        digest: of the remaining bytes, with a byte that no JSON has in the place of each value.
        values: what was cut out.
    """

    digest: bytes
    values: CallerValues


def caller_values(message: Message | None) -> CallerValues:
    """Return the caller's values in its message."""
    if message is None:
        return CallerValues(None, None)
    cut = cut_body(message.raw) if can_be_cut(message) else None
    if cut is not None:
        return cut.values
    raw, spans = message.raw, find_spans(message.raw, (ID_PATH, TOKEN_PATH))
    # The last of a duplicate key counts.
    identity, token = (spans.get(path, (None,))[-1] for path in (ID_PATH, TOKEN_PATH))
    if message.progress_token is None:
        # What is no string or number, or stands in params that don't count, is no token.
        token = None
    return CallerValues(
        None if identity is None else raw[identity.start : identity.end],
        None if token is None else raw[token.start : token.end],
    )


def cut_body(body: bytes) -> CutBody | None:
    """Cut what looks like the caller's values out of a body; None where nothing does."""
    identity = PLAIN_ID.search(body)
    if identity is None:
        return None
    start, end = identity.span(1)
    if body.find(TOKEN_KEY) < 0:
        remaining = b"%b\0%b" % (body[:start], body[end:])
        return CutBody(_digest(remaining), CallerValues(identity[1], None))
    token = PLAIN_TOKEN.search(body)
    if token is None:
        return None
    (start, end), (later, last) = sorted((identity.span(1), token.span(1)))
    remaining = b"%b\0%b\0%b" % (body[:start], body[end:later], body[last:])
    return CutBody(_digest(remaining), CallerValues(identity[1], token[1]))


def _digest(remaining: bytes) -> bytes:
    return blake2b(remaining, digest_size=16).digest()


def can_be_cut(message: Message) -> bool:
    """Tell whether `cut_body` cuts the very id and progress token out of a message."""
    raw = message.raw
    # A key that stands there once, in its one spelling, is the one that the message has.
    return (
        # The id of anything else is not the caller's.
        message.kind is Kind.REQUEST
        and raw.count(ID_KEY) == 1
        and raw.count(TOKEN_KEY) == (message.progress_token is not None)
        and raw.find(b"\\u") < 0
    )


def digest_of(message: Message) -> bytes | None:
    """Return the digest of a message without the caller's values; None where it can't be cut."""
    cut = cut_body(message.raw) if can_be_cut(message) else None
    return None if cut is None else cut.digest
