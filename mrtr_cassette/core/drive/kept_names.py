"""Names and values that a cassette keeps when something in it is recorded anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.texts import with_texts
from mrtr_cassette.core.compare.responses import question_ids
from mrtr_cassette.core.drive.live_session import (
    ISSUED,
    SENT_BACK,
    issued_values,
    with_values,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, splice_pieces
from mrtr_cassette.core.protocol.methods import TASK_VALUES, method_of
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    HASH,
    STATE,
    Ref,
    is_cassette_token,
    is_journal_token,
    refs_in,
    sha256_of,
    with_refs,
)
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans
from mrtr_cassette.core.wire.pointers import value_at


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

        return with_refs(raw, self._renamed)

    def _renamed(self, ref: Ref) -> Ref | None:
        name = _counted(ref)
        if name is None:
            return None
        kept = self._kept_for(name)
        turn = ref.parts[len(name.parts) :]
        return Ref(kept.kind, (*kept.parts, *turn), ref.spelling)

    def _kept_for(self, name: Ref) -> Ref:
        """Return the kept name for one, or the next one that no other has."""
        if name not in self._kept:
            is_of_journal = name.is_secret and is_journal_token(name.token)
            new = name.with_last(1) if is_of_journal else name
            while new in self._taken:
                if new.kind == HASH:
                    new = new.with_last(sha256_of(new.name))
                else:
                    new = new.with_last(int(new.token) + 1)
            self._kept[name] = new
            self._taken.add(new)
        return self._kept[name]


def _counted(ref: Ref) -> Ref | None:
    """Return what is counted of a name: all but the turn of a state; None where nothing is."""
    if ref.is_secret:
        is_counted = is_journal_token(ref.token) or is_cassette_token(ref.token)
        return ref.plain if is_counted else None
    if ref.kind == ANSWER:
        return None
    name = ref.plain
    return name._replace(parts=name.parts[:2]) if name.kind == STATE else name


def _texts_of(exchange: RecordedExchange) -> dict[str, bytes]:
    """Return the values of headers by their names; without a name, the target and the bodies."""
    texts: dict[str, bytes] = defaultdict(bytes)

    def read(raw: bytes, name: str) -> bytes:
        texts[name] += raw
        return raw

    with_texts(exchange, read)
    return texts


def _names_in(raw: bytes) -> list[Ref]:
    names = [name for ref in refs_in(raw) if (name := _counted(ref)) is not None]
    return sorted(names, key=lambda name: name.is_secret)


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
