"""Digests by which a damaged or edited cassette is noticed.

Owns: what is hashed, as docs/cassette-format.md describes it, and the errors of a mismatch.
Does not own: reading the file (`codec`, `load`), and mending it (`check`).
Rule: the digests cover values, not spelling, so whitespace and the order of members don't count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

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
        place = f"interaction {facts.interaction}"
        if facts.turn:
            place += f", turn {facts.turn}"
        if facts.answer is not None:
            place += f", answer {facts.answer + 1}"
        raise changed(path, f"{place}: the sha256 of the exchange is {digest}, not {facts.sha256}")


def changed(path: str, reason: str) -> CassetteError:
    """Return the error for a cassette that is not as it was recorded."""
    return CassetteError(
        path,
        reason,
        hint="restore the file, or if you edited it on purpose, accept the edit with: "
        f"mrtr-cassette check {path} --fix",
    )


class RecordingDigest:
    """The digest of all that the digests of exchanges leave out."""

    def __init__(self) -> None:
        """Begin with a cassette without items in its lists."""
        self._facts = hashlib.sha256()
        self._interactions: list[bytes] = []

    def add_facts(self, facts: Any) -> None:
        """Add the next item of `recording.exchanges`."""
        self._facts.update(_canonical_line(facts))

    def add_interaction(self, interaction: Any) -> None:
        """Add the next interaction."""
        kept = {}
        if isinstance(interaction, dict):
            kept = {name: interaction[name] for name in ("branch", "orphan") if name in interaction}
            turns = interaction.get("elicitation_turns")
            if isinstance(turns, list) and any(map(_is_pushed, turns)):
                kept["elicitation_turns"] = list(map(_without_exchanges, turns))
        self._interactions.append(_canonical_line(kept) if kept else b"{}\n")

    def sha256(self, cassette: Any) -> str:
        """Return the digest.

        Args:
            cassette: the file's content with both lists empty.
        """
        recording = {key: value for key, value in cassette["recording"].items() if key != "sha256"}
        digest = self._facts.copy()
        digest.update(b"".join(self._interactions))
        digest.update(_canonical_line({**cassette, "recording": recording}))
        return digest.hexdigest()


def _is_pushed(turn: Any) -> bool:
    return isinstance(turn, dict) and turn.get("via") == "push"


def _without_exchanges(turn: Any) -> Any:
    """Return what the digests of exchanges leave out of a turn."""
    if not _is_pushed(turn):
        return None
    answer = turn.get("answer")
    responses = answer.get("responses") if isinstance(answer, dict) else None
    keys = []
    if isinstance(responses, list):
        keys = [each.get("key") if isinstance(each, dict) else None for each in responses]
    return [turn.get("ask"), keys]


def _canonical_line(tree: Any) -> bytes:
    # Of strings, integers and ASCII keys this is the canonical form of RFC 8785.
    return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
