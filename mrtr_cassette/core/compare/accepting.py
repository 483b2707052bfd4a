"""Taking responses of a live server into a cassette.

Rule: a response is taken whole, as a cassette only has what a server said; requests and answers
stay as the client sent them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from mrtr_cassette.core.compare.own_ids import repeats_own_id
from mrtr_cassette.core.compare.responses import elicitation_id
from mrtr_cassette.core.exchange.caller_values import caller_values
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.format.replacing import with_responses
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.protocol.messages import Ask, Located, messages_in, splice_pieces
from mrtr_cassette.core.record.history import is_journal_token
from mrtr_cassette.core.record.secret_numbers import SecretNumbers
from mrtr_cassette.core.replay.reply import echoes_in
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, renumber
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH, reveal_in_json, reveal_text
from mrtr_cassette.core.wire.http import SESSION_HEADER, Piece, Response, header_value
from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, splice
from mrtr_cassette.core.wire.sse import event_id_spans

_NUMBER = re.compile("[0-9]{1,9}")


class TakenResponse(NamedTuple):
    """A response of a live server that is to stand in a cassette.

    Attributes:
        interaction: the interaction that it belongs to.
        position: index of its exchange there.
        live: the live exchange, in the form in which it would be recorded.
        states: the recorded request state or session id by the SHA-256 of the live one.
    """

    interaction: RecordedInteraction
    position: int
    live: RecordedExchange
    states: Mapping[str, str]

    @property
    def recorded(self) -> RecordedExchange:
        """The exchange whose response goes."""
        return self.interaction.exchanges[self.position]


def why_not_taken(taken: TakenResponse, cassette: Cassette) -> str | None:
    """Return why a live response can't stand in the cassette, as a sentence; None where it can."""
    recorded, live = taken.recorded, taken.live
    if live.response is None:
        return "the live server gave no response"
    if repeats_own_id(live, recorded):
        return "it repeats the id that another request of this comparison had"
    pushes = [[each.piece for each in _pushed_in(side)] for side in (recorded, live)]
    if pushes[0] != pushes[1]:
        return "the server pushed other requests in it, or at other places, than was recorded"
    old, new = recorded.ask, live.ask
    if old is not None and new is not None:
        return _why_not_asked(taken, old, new)
    return _why_not_answered(taken, cassette)


def _why_not_answered(taken: TakenResponse, cassette: Cassette) -> str | None:
    """Return why a response can't come or go where the other one asks."""
    recorded, live = taken.recorded, taken.live
    if recorded.ask is not None and _has_branches(recorded, cassette):
        return "other branches answer the question that is gone"
    if live.ask is not None:
        return "the server asks once more, and no answer is recorded"
    is_elsewhere = recorded.rpc_response is None and live.rpc_response is not None
    return (
        "its response stands in what resumed its stream: record it again" if is_elsewhere else None
    )


def _why_not_asked(taken: TakenResponse, old: Ask, new: Ask) -> str | None:
    """Return why the recorded answer can't be one to a live ask."""
    if (old.request_state is None) != (new.request_state is None):
        return "a request state came or went, which the recorded answer has to repeat"
    if old.dialect != new.dialect:
        return f"the server asks in the dialect {new.dialect}, and the answer is in {old.dialect}"
    unanswered = new.input_requests.keys() - old.input_requests.keys()
    if unanswered and taken.position + 1 < len(taken.interaction.exchanges):
        return f"no answer is recorded for {', '.join(sorted(unanswered))}"
    return None


def _pushed_in(exchange: RecordedExchange) -> list[Located]:
    """Return the requests that a server pushed in a response."""
    located = () if exchange.response is None else messages_in(exchange.response)
    return [each for each in located if each.message.kind is Kind.REQUEST]


def _has_branches(exchange: RecordedExchange, cassette: Cassette) -> bool:
    return sum(exchange in each.exchanges for each in cassette.interactions) > 1


def accepted(data: bytes, cassette: Cassette, responses: Iterable[TakenResponse]) -> bytes:
    """Return the file of a cassette with responses of a live server in it.

    Args:
        responses: those that are taken; for none of them `why_not_taken` gives a reason.
    """
    numbers = SecretNumbers()
    numbers.leave_out_those_in(data)
    taken = {
        each.recorded: _as_recorded(each, each.live.response, numbers)
        for each in responses
        if each.live.response is not None
    }
    return with_responses(data, cassette, taken) if taken else data


def _as_recorded(taken: TakenResponse, response: Response, numbers: SecretNumbers) -> Response:
    """Return a live response in the form in which the cassette would have it."""
    recorded, live = taken.recorded, taken.live
    values = caller_values(recorded.call.message)
    echoed = [
        (echo.span, own)
        for echo in echoes_in(live.call.message, response)
        if (own := echo.value.of(values)) is not None
    ]
    pieces = splice_pieces(response.pieces, [*echoed, *_push_ids(recorded, live)])
    old = recorded.response
    old_pieces = () if old is None else old.pieces
    pieces = _with_event_ids(pieces, old_pieces)
    pieces = _with_elicitation_ids(pieces, recorded, live)
    texts = [reveal_in_json(piece.raw, taken.states) for piece in pieces]
    before = b"".join(piece.raw for piece in old_pieces)
    texts = _with_numbers(texts, before, numbers)
    pieces = tuple(piece._replace(raw=raw) for piece, raw in zip(pieces, texts, strict=True))
    session = "" if old is None else header_value(old.headers, SESSION_HEADER)
    headers = tuple(
        (
            name,
            session
            if session and name.lower() == SESSION_HEADER
            else renumber(reveal_text(value, taken.states.get), numbers.number),
        )
        for name, value in response.headers
    )
    return replace(response, headers=headers, pieces=pieces)


def _push_ids(recorded: RecordedExchange, live: RecordedExchange) -> Iterator[tuple[Span, bytes]]:
    """Yield the recorded ids of pushed requests, as the posted answers have them, and where."""
    for before, now in zip(_pushed_in(recorded), _pushed_in(live), strict=True):
        identity = before.message.spelled(ID_PATH)
        span = now.in_body(find_spans(now.message.raw, [ID_PATH])[ID_PATH][-1])
        if identity is not None and span is not None:
            yield span, identity


def _with_elicitation_ids(
    pieces: tuple[Piece, ...], recorded: RecordedExchange, live: RecordedExchange
) -> tuple[Piece, ...]:
    """Give questions the recorded ids that the server made up for them, in their URLs too."""
    for before, now in zip(_questions_of(recorded), _questions_of(live), strict=False):
        old, new = elicitation_id(before), elicitation_id(now)
        if old is not None and new is not None:
            pieces = tuple(
                piece._replace(raw=piece.raw.replace(new.encode(), old.encode()))
                for piece in pieces
            )
    return pieces


def _questions_of(exchange: RecordedExchange) -> list[Any]:
    """Return the requests for input in a response, in their order."""
    pushed = [each.message.tree for each in _pushed_in(exchange)]
    result = {} if exchange.ask is None else exchange.ask.message.tree["result"]
    asked = result.get(INPUT_REQUESTS)
    return [*pushed, *(asked.values() if isinstance(asked, dict) else ())]


def _with_event_ids(new: tuple[Piece, ...], old: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Give the events of a response the ids of the recorded ones, in order.

    An event of which there was none loses its id: no client can have it.
    """
    recorded_ids = deque(
        piece.raw[span.start : span.end] for piece in old for span in event_id_spans(piece.raw)
    )
    changed = []
    for piece in new:
        spans = [
            span
            for span in event_id_spans(piece.raw)
            if SEALED_HASH.fullmatch(piece.raw[span.start : span.end].decode("latin-1"))
        ]
        ids = [(span, recorded_ids.popleft() if recorded_ids else b"") for span in spans]
        changed.append(piece._replace(raw=splice(piece.raw, ids)))
    return tuple(changed)


def _with_numbers(texts: list[bytes], before: bytes, numbers: SecretNumbers) -> list[bytes]:
    """Number the placeholders of a response: as in the recorded one where it has as many."""
    recorded: dict[str, deque[str]] = defaultdict(deque)
    for match in PLACEHOLDER.finditer(before.decode("latin-1")):
        if _NUMBER.fullmatch(match["token"]):
            recorded[match["rule"]].append(match["token"])
    whole = b"".join(texts).decode("latin-1")
    matches = PLACEHOLDER.finditer(whole)
    counts = Counter(match["rule"] for match in matches if is_journal_token(match["token"]))
    as_many = {rule for rule, tokens in recorded.items() if len(tokens) == counts[rule]}

    def number(rule: str, token: str) -> int | str | None:
        if rule in as_many and is_journal_token(token):
            return recorded[rule].popleft()
        return numbers.number(rule, token)

    return [renumber(text, number) for text in texts]
