"""Announced SHA-256 digests of texts: they stay true where redaction changes the text.

A client of Skills compares each file with the SHA-256 in the list of files. Where a file has a
secret, the cassette's list has the digest of the redacted file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import messages_in
from mrtr_cassette.core.secrets.decode import long_words, words_of
from mrtr_cassette.core.secrets.rules import compiled
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import Response

_DIGITS: Final = 64
_DIGEST: Final = compiled(rf"\b[0-9a-f]{{{_DIGITS}}}\b")
_HEX: Final = words_of("0123456789abcdef")


def may_announce(raw: bytes) -> bool:
    """Tell, quickly, whether a text may have a SHA-256."""
    return bool(long_words(raw, _HEX, _DIGITS))


def announced_in(raw: bytes) -> set[str]:
    """Return what may be a SHA-256 in a text."""
    return set(map(bytes.decode, _DIGEST.findall(raw)))


class Announced:
    """Finds the digests, among those that a server announces, of texts that sealing changes."""

    def __init__(self) -> None:
        self._announced: set[str] = set()
        self._changed: dict[str, str] = {}

    def add(self, received: Response, sealed: Response) -> tuple[tuple[str, str], ...]:
        """Take a response; return digests of texts as they were, and as they are sealed.

        No other digest of a text with a secret is returned, as it could tell the secret.
        """
        announced = announced_in(received.body)
        pairs: Iterable[tuple[Any, Any]] = ()
        if received.body != sealed.body:
            pairs = zip(_values_of(received), _values_of(sealed), strict=False)
        changed = {
            sha256_of(before): sha256_of(after)
            for before, after in pairs
            if isinstance(before, str) and isinstance(after, str) and before != after
        }
        self._announced |= announced
        self._changed |= changed
        found = (announced & self._changed.keys()) | (changed.keys() & self._announced)
        return tuple((digest, self._changed[digest]) for digest in sorted(found))


def new_digests(
    sent: Mapping[str, str], exchanges: Iterable[tuple[RecordedExchange, RecordedExchange]]
) -> dict[str, str]:
    """Return what takes the places of announced digests in a cassette.

    Args:
        sent: by the digest of a text as it was sealed, that of the text as it was sent.
        exchanges: each exchange as it was, and as it stands in the cassette.
    """
    pairs = [(before.response, named.response) for before, named in exchanges]
    responses = [(before, named) for before, named in pairs if before and named]
    announced = {digest for _, named in responses for digest in announced_in(named.body)}
    found: dict[str, str] = {}
    for before, named in responses if announced else ():
        for old, new in zip(_values_of(before), _values_of(named), strict=False):
            if isinstance(old, str) and isinstance(new, str):
                sealed = sha256_of(old)
                digest = sent.get(sealed, sealed)
                if digest in announced and digest != sha256_of(new):
                    found[digest] = sha256_of(new)
    return found


def with_digests(raw: bytes, new: Mapping[str, str]) -> bytes:
    """Replace announced digests in a text."""
    return bytes(
        _DIGEST.sub(lambda match: new.get(match[0].decode(), match[0].decode()).encode(), raw)
    )


def _values_of(response: Response) -> Iterator[Any]:
    """Yield the strings, numbers and other scalars of the messages of a response, in some order."""
    values = [located.message.tree for located in messages_in(response)]
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        else:
            yield value
