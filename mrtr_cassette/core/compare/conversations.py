"""What differs between two recorded conversations, stage by stage, and between two cassettes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    ResultTurn,
)
from mrtr_cassette.core.compare.responses import (
    ASKS,
    TRACE_MEMBERS,
    asked_question,
    comparable_by_key,
    comparable_text,
    comparable_tree,
    outcome_value,
    pinned_question,
    pushed_question,
    question_changes,
    renamed_keys,
    response_changes,
    task_question,
    with_recorded_keys,
)
from mrtr_cassette.core.compare.values import (
    Change,
    Pair,
    Verdict,
    change_of,
    heaviest,
    in_order,
    matches,
    paired,
    pinned,
    value_changes,
    without_ignored,
)
from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES, answers_text
from mrtr_cassette.core.protocol.methods import INITIALIZE, method_of
from mrtr_cassette.core.protocol.tasks import key_names
from mrtr_cassette.core.wire.http import (
    ANSWERED_BY_HEADER,
    CREDENTIAL_HEADERS,
    LAST_EVENT_ID_HEADER,
    SESSION_HEADER,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.pointers import ABSENT, pointer_path, without_paths

Mark = Literal["=", "~", "-", "+"]
"""Both have it and it is the same, both have it and it differs, only the first, only the second."""
StageKind = Literal["request", "ask", "answer", "result"]
IgnoredFor = Callable[[Call], Collection[str]]
"""Returns the JSON Pointers that don't count in a call: in what it says, and in what it gets."""

_ANSWERS = f"/{INPUT_RESPONSES}"
_VOLATILE_OF_REQUESTS: frozenset[MemberPath] = frozenset(
    (name,) for name in ("progressToken", *TRACE_MEMBERS)
)
_VOLATILE_HEADERS = CREDENTIAL_HEADERS | {LAST_EVENT_ID_HEADER}
"""Headers of which it is told whether they are there."""
_UNTOLD_HEADERS = frozenset({"content-type", SESSION_HEADER, ANSWERED_BY_HEADER})
_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a conversation, compared."""

    kind: StageKind
    turn: int | None
    mark: Mark
    changes: tuple[Change, ...]

    @property
    def counting(self) -> list[Change]:
        """The changes that are more than information."""
        return [change for change in self.changes if not change.is_information]


@dataclass(frozen=True, slots=True)
class InteractionComparison:
    """One interaction of two cassettes, or of one of them."""

    recorded: int | None
    received: int | None
    call: str
    is_moved: bool
    stages: tuple[Stage, ...]

    @property
    def mark(self) -> Mark:
        """Which of the two have it, and whether it is the same."""
        if self.recorded is None or self.received is None:
            return "+" if self.recorded is None else "-"
        return "=" if self.verdict == "same" else "~"

    @property
    def verdict(self) -> Verdict:
        """The heaviest of its changes."""
        verdict = heaviest(change for stage in self.stages for change in stage.changes)
        is_whole = self.recorded is not None and self.received is not None
        return verdict if is_whole or verdict != "same" else "shape-changed"


@dataclass(frozen=True, slots=True)
class CassetteComparison:
    """Two cassettes, compared."""

    recorded: str
    received: str
    interactions: tuple[InteractionComparison, ...]

    @property
    def changes(self) -> list[Change]:
        """All changes, information included."""
        stages = (stage for each in self.interactions for stage in each.stages)
        return [change for stage in stages for change in stage.changes]

    @property
    def verdict(self) -> Verdict:
        """The heaviest of all changes."""
        return heaviest(self.changes)

    @property
    def is_same(self) -> bool:
        """Whether nothing that counts differs; the order of interactions doesn't count."""
        return all(each.mark == "=" for each in self.interactions)

    @property
    def counts(self) -> Counter[Mark]:
        """How many interactions have each mark."""
        return Counter(each.mark for each in self.interactions)


def _nothing(_call: Call) -> tuple[str, ...]:
    return ()


def compared(
    recorded: Cassette, received: Cassette, ignored_for: IgnoredFor = _nothing
) -> CassetteComparison:
    """Compare two cassettes; at the ignored pointers, and below them, nothing counts.

    Interactions belong together by call and occurrence, those with the same answers first.
    """
    old, new = (list(_sides_of(cassette, ignored_for)) for cassette in (recorded, received))
    partners = _partners(old, new)
    kept = in_order(partners)
    moved = set(partners).difference(kept)
    interactions = []
    for pair in _in_both(kept, partners, len(old), len(new)):
        before = None if pair.old is None else old[pair.old]
        after = None if pair.new is None else new[pair.new]
        call = next(side.call for side in (after, before) if side is not None)
        comparison = InteractionComparison(
            None if before is None else before.interaction.number,
            None if after is None else after.interaction.number,
            str(call),
            pair in moved,
            tuple(_stages_of(before, after, ignored_for)),
        )
        interactions.append(comparison)
    return CassetteComparison(recorded.path, received.path, tuple(interactions))


def held_to(
    recorded: Cassette, repeated: Cassette, ignored_for: IgnoredFor, *, is_part: bool
) -> CassetteComparison:
    """Compare a cassette with what happened when its calls, or a part of them, were made again.

    A call that was made once more than recorded may be the same as any recorded one, and a call of
    a part as any that is not the same as another: which of several it was can't be told.
    """
    comparison = compared(recorded, repeated, ignored_for)
    same = {each.recorded for each in comparison.interactions if each.mark == "="}

    def nearest(each: InteractionComparison) -> InteractionComparison:
        if each.received is None or each.mark == "=" or (each.mark == "~" and not is_part):
            return each
        made = replace(repeated, interactions=(repeated.interactions[each.received - 1],))
        for other in recorded.interactions:
            if each.mark == "+" or other.number not in same:
                pair = compared(replace(recorded, interactions=(other,)), made, ignored_for)
                if pair.is_same:
                    same.add(other.number)
                    return pair.interactions[0]
        return each

    found = [nearest(each) for each in comparison.interactions]
    counting = tuple(each for each in found if each.mark != "-" or not is_part)
    return replace(comparison, interactions=counting)


class _Turn(NamedTuple):
    """One turn of an interaction."""

    question: Any
    answers: Any
    exchange: RecordedExchange | None


class _Side(NamedTuple):
    """One interaction as a comparison reads it."""

    interaction: RecordedInteraction
    turns: list[_Turn]
    call: CallKey
    page: int
    ignored: tuple[MemberPath, ...]

    @property
    def keys(self) -> tuple[object, object, object]:
        """What it is found by, the strictest first."""
        key = self.call
        first = _given(self.interaction.exchanges[0], self.ignored)
        given = [first, *(turn.answers for turn in self.turns)]
        answers = tuple("" if each is ABSENT else canonical(each) for each in given)
        # The path of a server may be another one; other HTTP traffic is nothing but its path.
        endpoint = "" if key.method else comparable_text(key.endpoint)
        texts = comparable_text(key.name), comparable_text(key.arguments)
        call = (endpoint, key.method, *texts, self.page)
        return (key.endpoint, call, answers), (call, answers), call


def _sides_of(cassette: Cassette, ignored_for: IgnoredFor) -> Iterator[_Side]:
    pages: dict[tuple[str, str, str | None], int] = {}
    for interaction in cassette.interactions:
        call, issued = interaction.exchanges[0].call, interaction.exchanges[-1].next_cursor
        page = pages.get((call.endpoint, call.method, call.cursor), 0)
        if issued is not None:
            pages[call.endpoint, call.method, issued] = page + 1
        ignored = tuple(map(pointer_path, ignored_for(call)))
        key = call.key((*ignored, ("cursor",)) if page else ignored)
        yield _Side(interaction, list(_turns_of(interaction, ignored)), key, page, ignored)


def _turns_of(interaction: RecordedInteraction, ignored: Collection[MemberPath]) -> Iterator[_Turn]:
    for turn in interaction.turns:
        if isinstance(turn, PushedTurn):
            posted = {each.key: _posted(each.exchange, ignored) for each in turn.answers}
            yield _Turn(pushed_question(turn), posted or ABSENT, None)
        elif isinstance(turn, ResultTurn):
            answers = ABSENT if turn.retry is None else _given(turn.retry, ignored)
            yield _Turn(asked_question(turn.exchange), answers, turn.exchange)
        else:
            task = interaction.task_id
            names = key_names(turn.requests, task)
            given = turn.given and _without_null(comparable_by_key(turn.given, names))
            yield _Turn(task_question(turn.requests, task), given or ABSENT, None)


def _given(retry: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    if retry.call.answers is None:
        return ABSENT
    text = answers_text(retry.request.body)
    answers = {} if text is None else _without_null(comparable_tree(text))
    return without_paths({INPUT_RESPONSES: answers}, ignored).get(INPUT_RESPONSES, {})


def _posted(exchange: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    message = exchange.call.message
    tree = {} if message is None else comparable_tree(message.raw)
    if "result" in tree:
        return without_paths(_without_null(tree["result"]), ignored)
    return _without_null({"error": tree.get("error")})


def _without_null(value: Any) -> Any:
    return parse(canonical(value, without_null=True).encode())


def _partners(old: Sequence[_Side], new: Sequence[_Side]) -> list[tuple[int, int]]:
    old_keys, new_keys = ([side.keys for side in sides] for sides in (old, new))
    partners: dict[int, int] = {}
    for level in range(_LEVELS):
        taken = set(partners.values())
        old_left = [index for index in range(len(old)) if index not in partners]
        new_left = [index for index in range(len(new)) if index not in taken]
        found = matches(
            [old_keys[index][level] for index in old_left],
            [new_keys[index][level] for index in new_left],
        )
        partners |= {old_left[at_old]: new_left[at_new] for at_old, at_new in found}
    return sorted(partners.items())


def _in_both(
    kept: Sequence[tuple[int, int]],
    partners: Sequence[tuple[int, int]],
    old_count: int,
    new_count: int,
) -> Iterator[Pair]:
    partner_of = {new: old for old, new in partners}
    has_partner = {old for old, _ in partners}
    at_old = at_new = 0
    for old, new in [*kept, (old_count, new_count)]:
        yield from (Pair(index, None) for index in range(at_old, old) if index not in has_partner)
        yield from (Pair(partner_of.get(index), index) for index in range(at_new, new))
        if new < new_count:
            yield Pair(old, new)
        at_old, at_new = old + 1, new + 1


def _stages_of(old: _Side | None, new: _Side | None, ignored_for: IgnoredFor) -> Iterator[Stage]:
    side = old or new
    ignored = () if side is None else ignored_for(side.interaction.exchanges[0].call)
    for stage in _all_stages_of(old, new):
        changes = tuple(without_ignored(stage.changes, ignored)) if ignored else stage.changes
        mark = _mark(changes) if stage.mark in ("=", "~") else stage.mark
        yield replace(stage, mark=mark, changes=changes)


def _all_stages_of(old: _Side | None, new: _Side | None) -> Iterator[Stage]:
    if old is not None and new is not None:
        yield _request_stage(old, new)
    old_turns, new_turns = ([] if side is None else side.turns for side in (old, new))
    questions = (
        [canonical(pinned_question(turn.question)) for turn in turns]
        for turns in (old_turns, new_turns)
    )
    verdict: Verdict = "shape-changed" if old is None or new is None else "rounds-changed"
    for at_old, at_new in paired(*questions):
        number = (at_new if at_old is None else at_old) or 0
        before = None if at_old is None else old_turns[at_old]
        after = None if at_new is None else new_turns[at_new]
        yield from _turn_stages(number + 1, before, after, verdict)
    first, last = (_final(side) for side in (old, new))
    if first is not None and last is not None:
        yield _compared("result", None, response_changes(first, last))
    elif first is not None or last is not None:
        outcomes = [ABSENT if each is None else outcome_value(each) for each in (first, last)]
        yield _one_sided("result", None, change_of("shape-changed", "", *outcomes))


def _mark(changes: Collection[Change]) -> Mark:
    return "=" if heaviest(changes) == "same" else "~"


def _compared(kind: StageKind, turn: int | None, changes: list[Change]) -> Stage:
    return Stage(kind, turn, _mark(changes), tuple(changes))


def _one_sided(kind: StageKind, turn: int | None, change: Change) -> Stage:
    return Stage(kind, turn, "+" if change.recorded is None else "-", (change,))


def _request_stage(old: _Side, new: _Side) -> Stage:
    changes: dict[Change, None] = {}
    pairs = zip(old.interaction.exchanges, new.interaction.exchanges, strict=False)
    for before, after in pairs:
        if before is not after:
            recorded, received = _said_beside(before.call), _said_beside(after.call)
            changes |= dict.fromkeys(value_changes(recorded, received, "/#request"))
    information = [change._replace(is_information=True) for change in changes]
    return _compared("request", None, information)


def _said_beside(call: Call) -> dict[str, Any]:
    headers = {
        name.lower(): "..." if name.lower() in _VOLATILE_HEADERS else comparable_text(value)
        for name, value in call.request.headers
        if name.lower() not in _UNTOLD_HEADERS
    }
    message = call.message if call.is_rpc else None
    meta, params = ({}, {}) if message is None else (message.meta, message.params)
    told = method_of(INITIALIZE).not_in_key if call.method == INITIALIZE else ()
    return {
        "_meta": pinned(meta, _VOLATILE_OF_REQUESTS),
        "headers": headers,
        "params": {name: params[name] for name in told if name in params},
    }


def _turn_stages(
    number: int, old: _Turn | None, new: _Turn | None, verdict: Verdict
) -> Iterator[Stage]:
    answers = [ABSENT if turn is None else turn.answers for turn in (old, new)]
    if old is None or new is None:
        questions = [ABSENT if turn is None else turn.question for turn in (old, new)]
        yield _one_sided("ask", number, change_of(verdict, ASKS, *questions))
        if answers != [ABSENT, ABSENT]:
            yield _one_sided("answer", number, change_of(verdict, _ANSWERS, *answers))
        return
    if old.exchange is not None and new.exchange is not None:
        changes = response_changes(old.exchange, new.exchange)
    else:
        changes = question_changes(old.question, new.question)
    yield _compared("ask", number, changes)
    if answers != [ABSENT, ABSENT]:
        received = with_recorded_keys(new.answers, renamed_keys(old.question, new.question))
        yield _compared("answer", number, value_changes(old.answers, received, _ANSWERS))


def _final(side: _Side | None) -> RecordedExchange | None:
    if side is None or side.interaction.is_open:
        return None
    return side.interaction.ending
