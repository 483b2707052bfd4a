"""What differs between two recorded conversations, stage by stage, and between two cassettes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
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
    Verdict,
    change_of,
    heaviest,
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
    interactions = []
    for at_old, at_new, is_moved in _aligned(_partners(old, new), len(old), len(new)):
        before = None if at_old is None else old[at_old]
        after = None if at_new is None else new[at_new]
        call, ignored = next((it.call, it.pointers) for it in (after, before) if it is not None)
        comparison = InteractionComparison(
            None if before is None else before.interaction.number,
            None if after is None else after.interaction.number,
            str(call),
            is_moved,
            tuple(_stages_of(before, after, ignored)),
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


_NO_TURN = _Turn(ABSENT, ABSENT, None)


class _Side(NamedTuple):
    """One interaction as a comparison reads it; `keys` find its partner, the strictest first."""

    interaction: RecordedInteraction
    turns: list[_Turn]
    call: CallKey
    keys: tuple[object, object]
    pointers: Collection[str]


def _sides_of(cassette: Cassette, ignored_for: IgnoredFor) -> Iterator[_Side]:
    pages: dict[tuple[str, str, str | None], int] = {}
    for interaction in cassette.interactions:
        call, issued = interaction.exchanges[0].call, interaction.exchanges[-1].next_cursor
        page = pages.get((call.endpoint, call.method, call.cursor), 0)
        if issued is not None:
            pages[call.endpoint, call.method, issued] = page + 1
        pointers = ignored_for(call)
        ignored = tuple(map(pointer_path, pointers))
        turns = list(_turns_of(interaction, ignored))
        key = call.key((*ignored, ("cursor",)) if page else ignored)
        given = [_given(interaction.exchanges[0], ignored), *(turn.answers for turn in turns)]
        answers = tuple("" if each is ABSENT else canonical(each) for each in given)
        # The path of a server may be another one; other HTTP traffic is nothing but its path.
        endpoint = "" if key.method else comparable_text(key.endpoint)
        texts = comparable_text(key.name), comparable_text(key.arguments)
        same_call = (endpoint, key.method, *texts, page)
        yield _Side(interaction, turns, key, ((same_call, answers), same_call), pointers)


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


def _partners(old: Sequence[_Side], new: Sequence[_Side]) -> dict[int, int]:
    """Return the index of the old interaction for that of a new one."""
    partners: dict[int, int] = {}
    for level in range(2):
        taken = set(partners.values())
        old_left = [index for index in range(len(old)) if index not in taken]
        new_left = [index for index in range(len(new)) if index not in partners]
        found = matches(
            [old[index].keys[level] for index in old_left],
            [new[index].keys[level] for index in new_left],
        )
        partners |= {new_left[at_new]: old_left[at_old] for at_old, at_new in found}
    return partners


def _aligned(
    partners: Mapping[int, int], old_count: int, new_count: int
) -> Iterator[tuple[int | None, int | None, bool]]:
    """Yield the indices that belong together, in the order of both; and whether they moved."""
    with_partner = set(partners.values())
    order = [partners.get(index, -1 - index) for index in range(new_count)]
    for tag, *ends in SequenceMatcher(None, range(old_count), order, autojunk=False).get_opcodes():
        if tag != "equal":
            alone = set(range(*ends[:2])) - with_partner
            yield from ((index, None, False) for index in sorted(alone))
        for index in range(*ends[2:]):
            yield partners.get(index), index, tag != "equal" and index in partners


def _stages_of(old: _Side | None, new: _Side | None, ignored: Collection[str]) -> Iterator[Stage]:
    def stage(kind: StageKind, turn: int | None, changes: Sequence[Change], mark: Mark) -> Stage:
        counting = tuple(without_ignored(changes, ignored))
        if mark == "~" and heaviest(counting) == "same":
            mark = "="
        return Stage(kind, turn, mark, counting)

    if old is not None and new is not None:
        yield stage("request", None, _request_changes(old, new), "~")
    turns = [[] if side is None else side.turns for side in (old, new)]
    questions = [[canonical(pinned_question(turn.question)) for turn in its] for its in turns]
    verdict: Verdict = "shape-changed" if old is None or new is None else "rounds-changed"
    for at_old, at_new in paired(*questions):
        number = ((at_new if at_old is None else at_old) or 0) + 1
        before = _NO_TURN if at_old is None else turns[0][at_old]
        after = _NO_TURN if at_new is None else turns[1][at_new]
        mark: Mark = "+" if at_old is None else "-" if at_new is None else "~"
        asked, answered = _turn_changes(before, after, verdict)
        yield stage("ask", number, asked, mark)
        if (before.answers, after.answers) != (ABSENT, ABSENT):
            yield stage("answer", number, answered, mark)
    first, last = (
        None if side is None or side.interaction.is_open else side.interaction.ending
        for side in (old, new)
    )
    if first is not None and last is not None:
        yield stage("result", None, response_changes(first, last), "~")
    elif first is not None or last is not None:
        outcomes = [ABSENT if each is None else outcome_value(each) for each in (first, last)]
        change = change_of("shape-changed", "", *outcomes)
        yield stage("result", None, [change], "+" if first is None else "-")


def _request_changes(old: _Side, new: _Side) -> list[Change]:
    changes: dict[Change, None] = {}
    for before, after in zip(old.interaction.exchanges, new.interaction.exchanges, strict=False):
        if before is not after:
            recorded, received = _said_beside(before.call), _said_beside(after.call)
            changes |= dict.fromkeys(value_changes(recorded, received, "/#request"))
    return [change._replace(is_information=True) for change in changes]


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


def _turn_changes(old: _Turn, new: _Turn, verdict: Verdict) -> tuple[list[Change], list[Change]]:
    """Return where the questions of two turns differ, and where their answers do."""
    if _NO_TURN in (old, new):
        asked = [change_of(verdict, ASKS, old.question, new.question)]
        return asked, [change_of(verdict, _ANSWERS, old.answers, new.answers)]
    if old.exchange is not None and new.exchange is not None:
        asked = response_changes(old.exchange, new.exchange)
    else:
        asked = question_changes(old.question, new.question)
    received = with_recorded_keys(new.answers, renamed_keys(old.question, new.question))
    return asked, value_changes(old.answers, received, _ANSWERS)
