"""Announced SHA-256 digests of texts: they stay true when redaction changes a text.

A client of Skills compares each file with the SHA-256 in the list of files. If a file has a secret,
the list in the cassette has the digest of the redacted file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import message_of, messages_in
from mrtr_cassette.core.secrets.decode import long_words, word_table
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import Response

_DIGEST_LENGTH = 64
_DIGEST = re.compile(rb"\b[0-9a-f]{%d}\b" % _DIGEST_LENGTH)
_HEX_WORDS = word_table("0123456789abcdef")


def may_announce(raw: bytes) -> bool:
    """Tell, quickly, whether a text may have a SHA-256."""
    return bool(long_words(raw, _HEX_WORDS, _DIGEST_LENGTH))


def announced_in(raw: bytes) -> set[str]:
    """Return the words of a text that look like a SHA-256."""
    if not may_announce(raw):
        return set()

    return set(map(bytes.decode, _DIGEST.findall(raw)))


class AnnouncedDigests:
    """Finds the digests, among those that a server announces, of texts that sealing changes."""

    def __init__(self) -> None:
        self._announced_digests: set[str] = set()
        self._changed_digests: dict[str, str] = {}

    def add(self, received: Response, sealed: Response) -> tuple[tuple[str, str], ...]:
        """Take a response; return digests of texts as they were, and as they are sealed.

        No other digest of a text with a secret is returned, as it could tell the secret.
        """
        announced = announced_in(received.body)
        changed = {}
        if received.body != sealed.body:
            for before, after in _text_pairs(*_changed_parts(received, sealed)):
                if before != after:
                    changed[sha256_of(before)] = sha256_of(after)

        self._announced_digests |= announced
        self._changed_digests |= changed
        announced_now = announced & self._changed_digests.keys()
        changed_now = changed.keys() & self._announced_digests
        pairs = []
        for digest in sorted(announced_now | changed_now):
            pairs.append((digest, self._changed_digests[digest]))

        return tuple(pairs)


def digest_replacements(
    sent: Mapping[str, str],
    exchanges: Iterable[tuple[RecordedExchange, RecordedExchange]],
) -> dict[str, str]:
    """Return the replacements of announced digests in a cassette.

    Args:
        sent: the digest of each text as it was sent, by the digest of the text as it was sealed.
        exchanges: each exchange as it was, and as it is written to the cassette.
    """
    responses = []
    announced = set()
    for before, after in exchanges:
        if before.response is not None and after.response is not None:
            responses.append((before.response, after.response))
            announced |= announced_in(after.response.body)

    if not announced:
        return {}

    replacements: dict[str, str] = {}
    for sealed, written in responses:
        for sealed_text, written_text in _text_pairs(sealed, written):
            sealed_digest = sha256_of(sealed_text)
            sent_digest = sent.get(sealed_digest, sealed_digest)
            written_digest = sha256_of(written_text)
            if sent_digest in announced and sent_digest != written_digest:
                replacements[sent_digest] = written_digest

    return replacements


def with_digests(raw: bytes, new: Mapping[str, str]) -> bytes:
    """Replace announced digests in a text."""

    def replacement(match: Any) -> bytes:
        digest: str = match[0].decode()
        return new.get(digest, digest).encode()

    replaced: bytes = _DIGEST.sub(replacement, raw)
    return replaced


def _text_pairs(before: Response, after: Response) -> Iterator[tuple[str, str]]:
    """Yield the texts of the messages of a response, each before and after a change of them."""
    pairs: list[tuple[Any, Any]] = [(_trees_of(before), _trees_of(after))]
    while pairs:
        old, new = pairs.pop()
        if isinstance(old, str) and isinstance(new, str):
            yield old, new
        elif isinstance(old, dict) and isinstance(new, dict):
            pairs.extend(zip(old.values(), new.values(), strict=False))
        elif isinstance(old, list) and isinstance(new, list):
            # It may have millions of numbers.
            if not _MAY_HAVE_TEXTS.isdisjoint(map(type, old)):
                pairs.extend(zip(old, new, strict=False))


_MAY_HAVE_TEXTS = frozenset({str, dict, list})


def _changed_parts(before: Response, after: Response) -> tuple[Response, Response]:
    """Return two responses without the events or lines that are the same in both."""
    if not before.is_message_stream or len(before.pieces) != len(after.pieces):
        return before, after

    pieces_before = []
    pieces_after = []
    for piece_before, piece_after in zip(before.pieces, after.pieces, strict=True):
        if piece_before.raw != piece_after.raw:
            pieces_before.append(piece_before)
            pieces_after.append(piece_after)

    return (
        replace(before, pieces=tuple(pieces_before)),
        replace(after, pieces=tuple(pieces_after)),
    )


def _trees_of(response: Response) -> list[Any]:
    """Return the messages of a response as JSON, in order; numbers may be inexact."""
    if not response.is_message_stream:
        with suppress(orjson.JSONDecodeError):
            # Exact numbers would take ten times as long, and none of them is a text.
            message = message_of(response.body, orjson.loads(response.body))
            if message is not None:
                return [message.tree]

    return [located.message.tree for located in messages_in(response)]
