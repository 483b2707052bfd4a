"""Names and values that a cassette keeps when something in it is recorded anew."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.texts import with_texts
from mrtr_cassette.core.compare.responses import question_ids
from mrtr_cassette.core.drive.live_session import ISSUED, SENT_BACK, issued_values, with_values
from mrtr_cassette.core.protocol.jsonrpc import Kind, splice_pieces
from mrtr_cassette.core.protocol.methods import TASK_VALUES, method_of
from mrtr_cassette.core.record.assembly import is_journal_token
from mrtr_cassette.core.secrets.sealed import (
    NAME_BYTES,
    PLACEHOLDER,
    placeholder,
    renumber,
    sealed_hash,
)
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans
from mrtr_cassette.core.wire.pointers import value_at

_NUMBER = re.compile("[0-9]{1,9}")
_COUNTED = re.compile(r"(.*:)([0-9]{1,9})(>?)")
"""A name that ends with a count: of a state without its turn, an id, or a secret."""


class KeptNames:
    """Names and values of a cassette, by those that stand for the same in a later recording.

    All names that its file has stand for themselves.
    """

    def __init__(self, file: bytes = b"") -> None:
        self._taken = set(_names_in(file))
        self._kept = {name: name for name in self._taken}
        self._values: dict[str, str] = {}
        self._question_ids: dict[bytes, bytes] = {}

    def keep(self, old: RecordedExchange, new: RecordedExchange) -> None:
        """Take an exchange that stays, and the new one that says the same, if it has a number."""
        before, after = _texts_of(old), {} if new.number is None else _texts_of(new)
        for part, raw in before.items():
            names, new_names = _names_in(raw), _names_in(after.get(part, b""))
            self._taken.update(names)
            if len(names) == len(new_names):
                self._kept = dict(zip(new_names, names, strict=True)) | self._kept
        if new.number is not None:
            self.issued(old, new)

    def issued(self, old: RecordedExchange, new: RecordedExchange) -> None:
        """Take two responses, of which one stands where the other issued cursors and ids."""
        self._values |= issued_values(new.rpc_response, old.rpc_response)
        mine, others = (question_ids(_texts_of(each)[""]) for each in (old, new))
        self._question_ids |= zip(others, mine, strict=False)

    def in_kept(
        self, exchange: RecordedExchange, partner: RecordedExchange | None
    ) -> RecordedExchange:
        """Return a new exchange that repeats the kept names and values, and shares no other one."""
        response = exchange.response
        if partner is not None and response is not None:
            pieces = splice_pieces(response.pieces, _issued_again(partner, exchange))
            exchange = replace(exchange, response=replace(response, pieces=pieces))
        exchange = with_texts(exchange, self._changed)
        call = exchange.call
        if call.message is None or call.message.kind is not Kind.REQUEST:
            return exchange
        body = with_values(exchange.request.body, SENT_BACK, self._values.get)
        return replace(exchange, request=replace(exchange.request, body=body))

    def _changed(self, raw: bytes, _header: str) -> bytes:
        for identity, kept in self._question_ids.items():
            raw = raw.replace(identity, kept)

        def named(match: re.Match[bytes]) -> bytes:
            name = match[0].replace(b"%3A", b":").decode()
            name = self._name(name, name)
            return name.encode().replace(b":", b"%3A" if b"%3A" in match[0] else b":")

        def number(rule: str, token: str) -> str | None:
            if not _is_counted(token):
                return None
            first = placeholder(rule, "1" if is_journal_token(token) else token)
            name = self._name(placeholder(rule, token), first)
            return name.removesuffix(">").rpartition(":")[2]

        return renumber(NAME_BYTES.sub(named, raw), number)

    def _name(self, name: str, first: str) -> str:
        """Return the kept name for one, or one that no other has, from the first one on."""
        if name not in self._kept:
            while first in self._taken:
                match = _COUNTED.fullmatch(first)
                first = f"{match[1]}{int(match[2]) + 1}{match[3]}" if match else sealed_hash(first)
            self._kept[name] = first
            self._taken.add(first)
        return self._kept[name]


def _is_counted(token: str) -> bool:
    return is_journal_token(token) or _NUMBER.fullmatch(token) is not None


def _texts_of(exchange: RecordedExchange) -> dict[str, bytes]:
    """Return the values of headers by their names; without a name, the target and the bodies."""
    texts: dict[str, bytes] = defaultdict(bytes)

    def read(raw: bytes, name: str) -> bytes:
        texts[name] += raw
        return raw

    with_texts(exchange, read)
    return texts


def _names_in(raw: bytes) -> list[str]:
    names = [match[0].replace(b"%3A", b":").decode() for match in NAME_BYTES.finditer(raw)]
    found = PLACEHOLDER.finditer(raw.decode("latin-1"))
    secrets = [(match["rule"], match["token"]) for match in found]
    return [*names, *(placeholder(*each) for each in secrets if _is_counted(each[1]))]


def _issued_again(
    recorded: RecordedExchange, live: RecordedExchange
) -> Iterator[tuple[Span, bytes]]:
    """Yield where a later response issues a cursor, or an id and times of a task; and those."""
    before, now = recorded.located_response, live.located_response
    if before is None or now is None:
        return
    volatile = method_of(recorded.call.method).volatile
    times = [("result", *path) for path in volatile if path[0] in TASK_VALUES]
    for path, spans in find_spans(now.message.raw, [*ISSUED, *times]).items():
        value, span = value_at(before.message.tree, path), now.in_body(spans[-1])
        if isinstance(value, str) and span is not None:
            yield span, canonical(value).encode()
