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


def may_have_sha256(raw: bytes) -> bool:
    """Tell, quickly, whether a text may have a SHA-256."""
    return bool(long_words(raw, _HEX_WORDS, _DIGEST_LENGTH))


def sha256_words_in(raw: bytes) -> set[str]:
    """Return the words of a text that look like a SHA-256."""
    if not may_have_sha256(raw):
        return set()

    return set(map(bytes.decode, _DIGEST.findall(raw)))


class AnnouncedDigests:
    """Finds the digests, among those that a server announces, of texts that sealing changes."""

    def __init__(self) -> None:
        self._announced_digests: set[str] = set()
        self._changed_digests: dict[str, str] = {}

    def add_response(
        self, received_response: Response, sealed_response: Response
    ) -> tuple[tuple[str, str], ...]:
        """Take a response; return digests of texts as they were, and as they are sealed.

        No other digest of a text with a secret is returned, as it could tell the secret.
        """
        announced_here = sha256_words_in(received_response.body)
        changed_here = {}
        if received_response.body != sealed_response.body:
            for text_before, text_after in _texts_before_and_after(
                *_responses_without_same_pieces(received_response, sealed_response)
            ):
                if text_before != text_after:
                    changed_here[sha256_of(text_before)] = sha256_of(text_after)

        self._announced_digests |= announced_here
        self._changed_digests |= changed_here
        newly_announced = announced_here & self._changed_digests.keys()
        newly_changed = changed_here.keys() & self._announced_digests
        pairs = []
        for digest in sorted(newly_announced | newly_changed):
            pairs.append((digest, self._changed_digests[digest]))

        return tuple(pairs)


def digest_replacements(
    sent_digest_by_sealed: Mapping[str, str],
    exchanges: Iterable[tuple[RecordedExchange, RecordedExchange]],
) -> dict[str, str]:
    """Return the replacements of announced digests in a cassette.

    Args:
        sent_digest_by_sealed: the digest of each text as it was sent, by that of the text as it
            was sealed.
        exchanges: each exchange as it was, and as it is written to the cassette.
    """
    responses = []
    announced_digests = set()
    for exchange_before, exchange_after in exchanges:
        if exchange_before.response is not None and exchange_after.response is not None:
            responses.append((exchange_before.response, exchange_after.response))
            announced_digests |= sha256_words_in(exchange_after.response.body)

    if not announced_digests:
        return {}

    replacements: dict[str, str] = {}
    for sealed_response, written_response in responses:
        for sealed_text, written_text in _texts_before_and_after(
            sealed_response, written_response
        ):
            sealed_digest = sha256_of(sealed_text)
            sent_digest = sent_digest_by_sealed.get(sealed_digest, sealed_digest)
            written_digest = sha256_of(written_text)
            if sent_digest in announced_digests and sent_digest != written_digest:
                replacements[sent_digest] = written_digest

    return replacements


def with_digests(raw: bytes, new_digests: Mapping[str, str]) -> bytes:
    """Replace announced digests in a text."""

    def new_digest_of_match(match: Any) -> bytes:
        digest: str = match[0].decode()
        return new_digests.get(digest, digest).encode()

    text_with_new_digests: bytes = _DIGEST.sub(new_digest_of_match, raw)
    return text_with_new_digests


def _texts_before_and_after(
    response_before: Response, response_after: Response
) -> Iterator[tuple[str, str]]:
    """Yield the texts of the messages of a response, each before and after a change of them."""
    pairs: list[tuple[Any, Any]] = [
        (_message_trees_of(response_before), _message_trees_of(response_after))
    ]
    while pairs:
        value_before, value_after = pairs.pop()
        if isinstance(value_before, str) and isinstance(value_after, str):
            yield value_before, value_after
        elif isinstance(value_before, dict) and isinstance(value_after, dict):
            pairs.extend(zip(value_before.values(), value_after.values(), strict=False))
        elif isinstance(value_before, list) and isinstance(value_after, list):
            # It may have millions of numbers.
            if not _MAY_HAVE_TEXTS.isdisjoint(map(type, value_before)):
                pairs.extend(zip(value_before, value_after, strict=False))


_MAY_HAVE_TEXTS = frozenset({str, dict, list})


def _responses_without_same_pieces(
    response_before: Response, response_after: Response
) -> tuple[Response, Response]:
    """Return two responses without the events or lines that are the same in both."""
    if not response_before.is_message_stream or len(response_before.pieces) != len(
        response_after.pieces
    ):
        return response_before, response_after

    pieces_before = []
    pieces_after = []
    for piece_before, piece_after in zip(
        response_before.pieces, response_after.pieces, strict=True
    ):
        if piece_before.raw != piece_after.raw:
            pieces_before.append(piece_before)
            pieces_after.append(piece_after)

    shorter_before = replace(response_before, pieces=tuple(pieces_before))
    shorter_after = replace(response_after, pieces=tuple(pieces_after))
    return shorter_before, shorter_after


def _message_trees_of(response: Response) -> list[Any]:
    """Return the messages of a response as JSON, in order; numbers may be inexact."""
    if not response.is_message_stream:
        with suppress(orjson.JSONDecodeError):
            # Exact numbers would take ten times as long, and none of them is a text.
            message = message_of(response.body, orjson.loads(response.body))
            if message is not None:
                return [message.tree]

    return [located.message.tree for located in messages_in(response)]
