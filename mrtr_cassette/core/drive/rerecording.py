"""Recording over a cassette: interactions that are the same stay as they were written."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.digests import new_digests, with_digests
from mrtr_cassette.core.cassette.load import in_time_of
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
    TurnPlace,
)
from mrtr_cassette.core.compare.conversations import compared
from mrtr_cassette.core.compare.responses import elicitation_id
from mrtr_cassette.core.drive.conversation import ISSUED, LiveValues
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import Located, messages_in, splice_pieces
from mrtr_cassette.core.protocol.methods import TASK_VALUES, method_of
from mrtr_cassette.core.protocol.tasks import created_id
from mrtr_cassette.core.record.naming import is_journal_token, with_texts
from mrtr_cassette.core.replay.player import Player
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


class Rerecording(NamedTuple):
    """A recording in the place of an earlier one, and how many interactions stand as they did."""

    cassette: Cassette
    kept: int


def recorded_over(earlier: Cassette, recorded: Cassette) -> Rerecording:
    """Return a recording in which each interaction that is the same stands as it did earlier.

    Where all are the same, that is the earlier cassette itself. Branches, and calls of which one
    stream tells, are kept together or not at all.
    """
    if _settings(earlier) != _settings(recorded):
        return Rerecording(recorded, 0)
    pairs = [
        _Pair(
            # What diff calls the same may say more: a list with a further tool is not kept.
            each.mark == "="
            and not any(stage.changes for stage in each.stages if stage.kind != "request"),
            earlier.interactions[each.recorded - 1],
            recorded.interactions[each.received - 1],
        )
        for each in compared(earlier, recorded).interactions
        if each.recorded is not None and each.received is not None
    ]
    same = [pair for pair in pairs if pair.is_same and not pair.has_new_headers]
    if len(same) == len(earlier.interactions) == len(recorded.interactions):
        return Rerecording(earlier, len(same))
    alike = {pair.new.number: pair for pair in same if pair.has_same_places}
    kept = _kept_together(alike, earlier, recorded)
    names = KeptNames()
    stands_for = {old: new for number in sorted(kept) for old, new in alike[number].exchanges}
    for old_one, new_one in stands_for.items():
        names.keep(old_one, new_one)
    exchanges = {old: _kept(old, new) for old, new in stands_for.items()}
    partners_of = {
        new: old
        for pair in pairs
        if pair.new.number not in kept
        for old, new in pair.in_turn
        # The id of a task stands in more places than are changed.
        if created_id(new.call.message, new.rpc_response) is None
    }
    for new_one, old_one in partners_of.items():
        names.issued(old_one, new_one)
    for interaction in recorded.interactions:
        if interaction.number not in kept:
            for each in interaction.own:
                exchanges[each] = names.in_kept(each, partners_of.get(each))
    # Announced digests become those of the texts as they stand now.
    pairs_now = [(stands_for.get(before, before), now) for before, now in exchanges.items()]
    digests = new_digests({}, pairs_now)
    for each in exchanges.keys() - stands_for.keys() if digests else ():
        exchanges[each] = with_texts(exchanges[each], lambda raw, _: with_digests(raw, digests))
    partners = {pair.new.number: pair.old.number for pair in pairs}
    return Rerecording(_merged(earlier, recorded, exchanges, kept, partners), len(kept))


def _kept_together(
    alike: Mapping[int, _Pair], earlier: Cassette, recorded: Cassette
) -> dict[int, int]:
    """Return which earlier interaction stands for a new one, where all connected ones do."""
    kept = {new: pair.old.number for new, pair in alike.items()}
    before, after = _connected(earlier), _connected(recorded)
    while apart := [
        new for new, old in kept.items() if {kept.get(each) for each in after[new]} != before[old]
    ]:
        for new in apart:
            del kept[new]
    return kept


def _settings(cassette: Cassette) -> tuple[Any, ...]:
    """Return what a recording leaves out or hides: another one can't share its interactions."""
    return cassette.transport, cassette.request_state, cassette.redaction, cassette.seals_answers


class _Pair(NamedTuple):
    """An interaction of the earlier cassette and the one that belongs to it in the recording."""

    is_same: bool
    old: RecordedInteraction
    new: RecordedInteraction

    @property
    def exchanges(self) -> Iterator[tuple[RecordedExchange, RecordedExchange]]:
        """Their own exchanges, where these have the same places.

        A step that the new task lacks stands for itself: how many states a client sees depends on
        when it polls.
        """
        old, new = map(_without_steps, (self.old, self.new))
        yield from ((one, other) for (one, _), (other, _) in zip(old, new, strict=True))
        steps: dict[tuple[str, str], list[RecordedExchange]] = {}
        for step in self.new.steps:
            steps.setdefault(_kind(step), []).append(step.exchange)
        for step in self.old.steps:
            same = steps.get(_kind(step))
            yield step.exchange, same.pop(0) if same else replace(step.exchange, number=None)

    @property
    def in_turn(self) -> Iterator[tuple[RecordedExchange, RecordedExchange]]:
        """Their exchanges from the first request on, as long as both have one."""
        return zip(self.old.exchanges, self.new.exchanges, strict=False)

    @property
    def has_new_headers(self) -> bool:
        """Whether requests have headers that the earlier ones lack, as the user may want."""
        return any(
            {name.lower() for name, _ in new.request.headers}
            - {name.lower() for name, _ in old.request.headers}
            for old, new in self.in_turn
        )

    @property
    def has_same_places(self) -> bool:
        """Whether one can stand in the place of the other, exchange by exchange."""
        old, new = map(_without_steps, (self.old, self.new))
        return [place for _, place in old] == [place for _, place in new]


def _without_steps(
    interaction: RecordedInteraction,
) -> list[tuple[RecordedExchange, TurnPlace]]:
    return [each for each in interaction.placed if each[1].step is None]


def _kind(step: TaskStep) -> tuple[str, str]:
    return step.exchange.call.method, "" if step.state is None else step.state.status


def _connected(cassette: Cassette) -> dict[int, set[int]]:
    """Return, for each interaction, those without which it can't be kept, and itself."""
    connected = {each.number: {each.number} for each in cassette.interactions}
    pairs = [
        (each.number, each.branch.of) for each in cassette.interactions if each.branch is not None
    ]
    for one, other in [*pairs, *Player(cassette).connected]:
        connected[one].add(other)
        connected[other].add(one)
    return connected


def _kept(old: RecordedExchange, new: RecordedExchange) -> RecordedExchange:
    """Return an exchange as it stood, at the place and the time of the new one."""
    response = None if old.response is None else in_time_of(new, old.response)
    return replace(
        new,
        request=old.request,
        response=response,
        issued_sha256=old.issued_sha256,
        echoed_sha256=old.echoed_sha256,
    )


class KeptNames:
    """Names and values of a cassette, by those that stand for the same in a later recording.

    All names that its file has stand for themselves.
    """

    def __init__(self, file: bytes = b"") -> None:
        self._taken = set(_names_in(file))
        self._kept = {name: name for name in self._taken}
        self._values = LiveValues()
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
        if old.rpc_response is not None and new.rpc_response is not None:
            self._values.issued(new.rpc_response, old.rpc_response)
        for question, new_question in zip(_questions_of(old), _questions_of(new), strict=False):
            mine, others = elicitation_id(question), elicitation_id(new_question)
            if mine is not None and others is not None:
                self._question_ids[others.encode()] = mine.encode()

    def in_kept(
        self, exchange: RecordedExchange, partner: RecordedExchange | None
    ) -> RecordedExchange:
        """Return a new exchange that repeats the kept names and values, and shares no other one."""
        response = exchange.response
        if partner is not None and response is not None:
            pieces = splice_pieces(response.pieces, _issued_values(partner, exchange))
            exchange = replace(exchange, response=replace(response, pieces=pieces))
        exchange = with_texts(exchange, self._changed)
        call = exchange.call
        if call.message is None or call.message.kind is not Kind.REQUEST:
            return exchange
        body = self._values.in_live(exchange.request.body)
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


def pushed_in(exchange: RecordedExchange) -> list[Located]:
    """Return the requests that a response has."""
    located = () if exchange.response is None else messages_in(exchange.response)
    return [each for each in located if each.message.kind is Kind.REQUEST]


def _questions_of(exchange: RecordedExchange) -> list[Any]:
    """Return what a response asks: the pushed requests in it, then those of its result."""
    pushed = [each.message.tree for each in pushed_in(exchange)]
    asked = (
        None if exchange.ask is None else exchange.ask.message.tree["result"].get(INPUT_REQUESTS)
    )
    return [*pushed, *(asked.values() if isinstance(asked, dict) else ())]


def _issued_values(
    recorded: RecordedExchange, live: RecordedExchange
) -> Iterator[tuple[Span, bytes]]:
    """Yield where a later response issues a cursor, or an id and times of a task; and those."""
    before, now = recorded.located_response, live.located_response
    if before is None or now is None:
        return
    volatile = method_of(recorded.call.method).volatile
    times = [("result", *path) for path in volatile if len(path) == 1 and path[0] in TASK_VALUES]
    for path, spans in find_spans(now.message.raw, [*ISSUED, *times]).items():
        value, span = value_at(before.message.tree, path), now.in_body(spans[-1])
        if isinstance(value, str) and span is not None:
            yield span, canonical(value).encode()


def _merged(
    earlier: Cassette,
    recorded: Cassette,
    exchanges: Mapping[RecordedExchange, RecordedExchange],
    kept: Mapping[int, int],
    partners: Mapping[int, int],
) -> Cassette:
    """Return both in one: in the earlier order, and what is new after what came before it."""
    before = earlier.with_exchanges(exchanges).interactions
    after = recorded.with_exchanges(exchanges).interactions
    places: dict[int, int] = {}
    place = 0
    for each in after:
        place = partners.get(each.number, place)
        if each.branch is not None and each.number not in kept:
            place = places[each.branch.of]
        places[each.number] = place
    order = sorted(places, key=lambda new: (places[new], new))
    new_numbers = {new: number for number, new in enumerate(order, start=1)}
    old_numbers = {old: new_numbers[new] for new, old in kept.items()}
    interactions = tuple(
        _numbered(before[kept[new] - 1], old_numbers)
        if new in kept
        else _numbered(after[new - 1], new_numbers)
        for new in order
    )
    return replace(recorded, interactions=interactions)


def _numbered(interaction: RecordedInteraction, numbers: Mapping[int, int]) -> RecordedInteraction:
    """Return an interaction with the new numbers of itself and of those that it refers to."""

    def asked(turn: Any) -> Iterator[Any]:
        for each in turn.asked:
            number = each.interaction
            yield replace(each, interaction=None if number is None else numbers[number])

    branch = interaction.branch
    return replace(
        interaction,
        number=numbers[interaction.number],
        branch=None if branch is None else branch._replace(of=numbers[branch.of]),
        pushed_turns=tuple(
            replace(turn, asked=tuple(asked(turn))) for turn in interaction.pushed_turns
        ),
    )
