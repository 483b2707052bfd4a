"""Digests by which a damaged or edited cassette is noticed.

Rule: the digests cover values, not spelling, so whitespace and the order of members don't count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from mrtr_cassette.core.format.model import ExchangeFactsModel
from mrtr_cassette.core.wire.http import End, Headers, Request, Response
from mrtr_cassette.errors import CassetteError

_ENDS = {End.COMPLETE: b"", End.OPEN: b"open", End.BROKEN: b"broken"}


def exchange_sha256(request: Request, response: Response | None) -> str:
    """Return the digest of one exchange."""
    fields = [
        request.method.encode(),
        request.target.encode(),
        _header_fields(request.headers),
        request.body,
    ]
    if response is None:
        fields += (b"", b"", b"", b"")
    else:
        fields += (
            b"%d" % response.status,
            _header_fields(response.headers),
            _ENDS[response.end],
            response.body,
        )
    return hashlib.sha256(_netstrings(fields)).hexdigest()


def _netstrings(fields: Iterable[bytes]) -> bytes:
    return b"".join([b"%d:%b," % (len(field), field) for field in fields])


@lru_cache(maxsize=1024)
def _header_fields(headers: Headers) -> bytes:
    return _netstrings([text.encode() for pair in headers for text in pair])


def check_exchange(
    facts: ExchangeFactsModel, request: Request, response: Response | None, path: str
) -> None:
    """Make sure that an exchange is the one that was recorded; without a digest, any is.

    Raises:
        CassetteError: it is another one.
    """
    if facts.sha256 is None:
        return
    digest = exchange_sha256(request, response)
    if digest != facts.sha256:
        reason = f"the sha256 of the exchange is {digest}, not {facts.sha256}"
        raise changed(path, f"{place_of(facts)}: {reason}")


def place_of(facts: ExchangeFactsModel) -> str:
    """Return where an exchange stands, as messages say it."""
    place = f"interaction {facts.interaction}"
    if facts.turn:
        place += f", turn {facts.turn}"
    if facts.answer is not None:
        place += f", answer {facts.answer + 1}"
    return place


def changed(path: str, reason: str) -> CassetteError:
    """Return the error for a cassette that is not as it was recorded."""
    return CassetteError(
        path,
        reason,
        hint="restore the file, or if you edited it on purpose, accept the edit with: "
        f"mrtr-cassette check {path} --fix",
    )
