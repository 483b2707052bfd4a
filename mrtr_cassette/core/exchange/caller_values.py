"""What is the caller's own in a request, and the rest by which the request comes again.

Owns: cutting the id and the progress token out of a body, without reading the body as JSON.
Does not own: what a body means (`jsonrpc`, `calls`).
Law: two bodies with the same rest, one of which `is_cut_right`, are the same message but for the
values that were cut out.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from mrtr_cassette.core.protocol.jsonrpc import (
    ID,
    ID_KEY,
    PLAIN_ID,
    PLAIN_TOKEN,
    PROGRESS_TOKEN,
    TOKEN_KEY,
    Kind,
    Message,
)
from mrtr_cassette.core.wire.jsonbytes import find_spans


class Own(NamedTuple):
    """The caller's own values as they are spelled; None where it has none."""

    id: bytes | None
    progress_token: bytes | None


def own_of(message: Message | None) -> Own:
    """Return what is the caller's own in its message."""
    if message is None:
        return Own(None, None)
    cut = cut_own(message.raw) if is_cut_right(message) else None
    if cut is not None:
        return cut[1]
    raw, found = message.raw, find_spans(message.raw, (ID, PROGRESS_TOKEN))
    # The last of a duplicate key counts.
    identity, token = (found.get(path, (None,))[-1] for path in (ID, PROGRESS_TOKEN))
    return Own(
        None if identity is None else raw[identity.start : identity.end],
        None if token is None else raw[token.start : token.end],
    )


def cut_own(body: bytes) -> tuple[bytes, Own] | None:
    """Cut what looks like the caller's own values out of a body.

    Returns:
        a digest of the rest, with a byte that no JSON has in the place of each value, and the
        values; None where there are none that can be cut out at a glance.
    """
    found = PLAIN_ID.search(body)
    if found is None:
        return None
    start, end = found.span(1)
    if body.find(TOKEN_KEY) < 0:
        rest = b"%b\0%b" % (body[:start], body[end:])
        return blake2b(rest, digest_size=16).digest(), Own(found[1], None)
    token = PLAIN_TOKEN.search(body)
    if token is None:
        return None
    (start, end), (later, last) = sorted((found.span(1), token.span(1)))
    rest = b"%b\0%b\0%b" % (body[:start], body[end:later], body[last:])
    return blake2b(rest, digest_size=16).digest(), Own(found[1], token[1])


def rest_of(message: Message) -> bytes | None:
    """Return the digest of what `cut_own` leaves of a message; None where it can't be cut."""
    cut = cut_own(message.raw) if is_cut_right(message) else None
    return None if cut is None else cut[0]


def is_cut_right(message: Message) -> bool:
    """Tell whether `cut_own` cuts the very id and progress token out of a message."""
    raw = message.raw
    # A key that stands there once, in its one spelling, is the one that the message has.
    return (
        # The id of anything else is not the caller's.
        message.kind is Kind.REQUEST
        and raw.count(ID_KEY) == 1
        and raw.count(TOKEN_KEY) == (message.progress_token is not None)
        and raw.find(b"\\u") < 0
    )
