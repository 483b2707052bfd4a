"""Differences between two conversations, and between two cassettes."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    RecordedTurn,
    in_conversation_order,
)
from mrtr_cassette.core.cassette.sessions import without_pongs
from mrtr_cassette.core.compare.handles import Handles, handles_in
from mrtr_cassette.core.compare.responses import (
    ASKS_POINTER,
    comparable_by_key,
    comparable_text,
    comparable_tree,
    only_logs,
    outcome_value,
    pinned_question,
    question_changes,
    question_of,
    renamed_keys,
    response_changes,
    with_recorded_keys,
)
from mrtr_cassette.core.compare.values import (
    Change,
    Verdict,
    change_of,
    heaviest_verdict,
    longest_rising_pairs,
    masked_json,
    masks_in,
    matching_places,
    paired_indices,
    value_changes,
    with_masked_texts,
    without_ignored,
    without_masks,
)
from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES, answers_text
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical
from mrtr_cassette.core.wire.pointers import (
    ABSENT,
    Difference,
    differences,
    pointer_path,
    without_null_members,
    without_paths,
)

Mark = Literal["=", "~", "-", "+"]
"""Both have it and it is the same, both have it and it differs, only the first, only the second."""

StageKind = Literal["ask", "answer", "result"]
IgnoredFor = Callable[[Call], Collection[str]]
"""Returns the JSON Pointers that don't count in a call: in its request, and in its response."""

_ANSWERS_POINTER = f"/{INPUT_RESPONSES}"


def ignores_nothing(_call: Call) -> Collection[str]:
    """Return no pointers: everything counts in a call."""
    return ()


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a conversation, compared."""

    kind: StageKind
    turn: int | None
    mark: Mark
    changes: tuple[Change, ...]

    @property
    def counting_changes(self) -> list[Change]:
        """The changes that are more than information."""
        return [change for change in self.changes if not change.is_information]


def _changes_in(stages: Iterable[Stage]) -> Iterator[Change]:
    """Yield all changes of some stages."""
    for stage in stages:
        yield from stage.changes


@dataclass(frozen=True, slots=True)
class InteractionComparison:
    """One interaction of two cassettes, or of one of them.

    Attributes:
        request: if only the second has the call, the differences of its arguments from a call
            with its name that only the first has.
    """

    recorded: int | None
    received: int | None
    call: str
    is_moved: bool
    stages: tuple[Stage, ...]
    request: tuple[Difference, ...] = ()

    @property
    def mark(self) -> Mark:
        """Which of the two have it, and whether it is the same."""
        mark = _mark_of(self.recorded, self.received)
        if mark == "~" and self.verdict == "same":
            return "="

        return mark

    @property
    def verdict(self) -> Verdict:
        """The heaviest of its changes."""
        verdict = heaviest_verdict(_changes_in(self.stages))
        is_whole = self.recorded is not None and self.received is not None
        if verdict == "same" and not is_whole:
            return "shape-changed"

        return verdict


@dataclass(frozen=True, slots=True)
class CassetteComparison:
    """Two cassettes, compared."""

    recorded: str
    received: str
    interactions: tuple[InteractionComparison, ...]

    @property
    def changes(self) -> list[Change]:
        """All changes, information included."""
        changes: list[Change] = []
        for interaction in self.interactions:
            changes += _changes_in(interaction.stages)

        return changes

    @property
    def verdict(self) -> Verdict:
        """The heaviest of all changes."""
        return heaviest_verdict(self.changes)

    @property
    def is_same(self) -> bool:
        """Whether nothing that counts differs; the order of interactions doesn't count."""
        return not self.differing_interactions

    @property
    def differing_interactions(self) -> list[InteractionComparison]:
        """The interactions with differences that count."""
        return [pair for pair in self.interactions if pair.mark != "="]

    @property
    def count_by_mark(self) -> Counter[Mark]:
        """How many interactions have each mark."""
        return Counter(interaction.mark for interaction in self.interactions)


def cassette_comparison(
    recorded: Cassette,
    received: Cassette,
    ignored_for: IgnoredFor = ignores_nothing,
    handles: Handles | None = None,
) -> CassetteComparison:
    """Compare two cassettes; at the ignored pointers, and below them, nothing counts.

    Interactions belong together by call and occurrence, those with the same answers first. Handles
    are those of `handles_between`, unless they are known.
    """
    if handles is None:
        handles = handles_between(recorded, received, ignored_for)

    received = _with_recorded_handles(received, handles)
    old_sides = list(_sides_of(recorded, ignored_for))
    new_sides = list(_sides_of(received, ignored_for))
    interactions = _compared_sides(old_sides, new_sides)
    return CassetteComparison(recorded.path, received.path, tuple(interactions))


def _compared_sides(
    old_sides: Sequence[_Side], new_sides: Sequence[_Side]
) -> list[InteractionComparison]:
    """Compare the interactions of two cassettes with the same handles."""
    partners: dict[int, int] = {}
    for level in range(3):
        for old_index, new_index in _pairs_at_level(
            level, partners, old_sides, new_sides
        ):
            partners[new_index] = old_index

    namesakes: dict[int, _Side] = {}
    for old_index, new_index in _pairs_at_level(3, partners, old_sides, new_sides):
        namesakes[new_sides[new_index].interaction.number] = old_sides[old_index]

    interactions = []
    for pair in _aligned_pairs(partners, old_sides, new_sides):
        if not pair.only_logs:
            interactions.append(_interaction_comparison(pair, namesakes))

    return interactions


def handles_between(
    recorded: Cassette, received: Cassette, ignored_for: IgnoredFor
) -> Handles:
    """Return the handles of a recording, and those of another one in the same places."""
    live_names = handles_in(received)
    handles = Handles(handles_in(recorded) if live_names else (), live_names)
    if not handles.has_handles:
        return handles

    waiting_by_key: dict[object, deque[RecordedInteraction]] = defaultdict(deque)
    for side in _sides_of(recorded, ignored_for):
        waiting_by_key[side.keys[2]].append(side.interaction)

    for interaction in in_conversation_order(received.interactions):
        # Calls that send handles back are equal to recorded ones once these are known.
        single_cassette = _with_recorded_handles(
            replace(received, interactions=(interaction,)), handles
        )
        for side in _sides_of(single_cassette, ignored_for):
            partners = waiting_by_key[side.keys[2]]
            if partners:
                _take_handles(handles, partners.popleft(), side.interaction)

    return handles


def _take_handles(
    handles: Handles, old: RecordedInteraction, new: RecordedInteraction
) -> None:
    """Take what the second interaction has in the places of the first one's handles."""
    for old_exchange, new_exchange in zip(old.exchanges, new.exchanges, strict=False):
        handles.take_response(old_exchange.rpc_response, new_exchange.rpc_response)

    handles.take_response(
        old.ending_exchange.rpc_response, new.ending_exchange.rpc_response
    )


def _with_recorded_handles(received: Cassette, handles: Handles) -> Cassette:
    """Return a cassette with the handles of the recording that it is compared with."""
    changed_exchanges = {}
    for interaction in received.interactions:
        for exchange in (*interaction.exchanges, *interaction.unshared_exchanges):
            with_handles = handles.with_recorded_handles(exchange)
            if with_handles is not exchange:
                changed_exchanges[exchange] = with_handles

    return received.with_exchanges(changed_exchanges)


def _interaction_comparison(
    pair: _SidePair, namesakes: Mapping[int, _Side]
) -> InteractionComparison:
    """Compare two interactions that belong together, or describe one without a partner."""
    request: tuple[Difference, ...] = ()
    new = pair.new
    if new is not None and new.interaction.number in namesakes:
        request = _request_differences(namesakes[new.interaction.number], new)

    side = pair.side
    stages = []
    for stage in _stages_of(pair.old, pair.new):
        stages.append(_without_ignored(stage, side.pointers))

    return InteractionComparison(
        recorded=_interaction_number(pair.old),
        received=_interaction_number(new),
        call=str(side.call),
        is_moved=pair.is_moved,
        stages=tuple(stages),
        request=request,
    )


def _interaction_number(side: _Side | None) -> int | None:
    """Return the number of an interaction, if there is one."""
    if side is None:
        return None
    return side.interaction.number


def comparison_with_run(
    recorded: Cassette,
    repeated: Cassette,
    ignored_for: IgnoredFor,
    *,
    may_lack_calls: bool,
) -> CassetteComparison:
    """Compare a cassette with a run in which its calls, or a part of them, were made again.

    A call that was made once more than recorded may be the same as any recorded one, and a call of
    a part as any that is not the same as another: nobody can tell which of several it was.
    """
    handles = handles_between(recorded, repeated, ignored_for)
    old_sides = list(_sides_of(recorded, ignored_for))
    new_sides = list(_sides_of(_with_recorded_handles(repeated, handles), ignored_for))
    pairs = _compared_sides(old_sides, new_sides)
    same_numbers = {pair.recorded for pair in pairs if pair.mark == "="}
    made_sides = {side.interaction.number: side for side in new_sides}
    old_by_key: dict[object, list[_Side]] = defaultdict(list)
    for side in old_sides:
        old_by_key[side.keys[2]].append(side)

    taken_by_mark: dict[str, Collection[int | None]] = {"+": ()}
    if may_lack_calls:
        pairs = [pair for pair in pairs if pair.mark != "-"]
        taken_by_mark["~"] = same_numbers

    shown_pairs = []
    for pair in pairs:
        shown_pair = pair
        if pair.mark in taken_by_mark and pair.received is not None:
            made_side = made_sides[pair.received]
            candidates = old_by_key[made_side.keys[2]]
            taken_numbers = taken_by_mark[pair.mark]
            shown_pair = _equal_pair(candidates, taken_numbers, made_side) or pair
            if shown_pair is not pair:
                same_numbers.add(shown_pair.recorded)

        shown_pairs.append(shown_pair)

    return CassetteComparison(recorded.path, repeated.path, tuple(shown_pairs))


def _equal_pair(
    candidates: Iterable[_Side], taken_numbers: Collection[int | None], made_side: _Side
) -> InteractionComparison | None:
    """Return the comparison of a made call with the first equal recorded one that is not taken."""
    for recorded in candidates:
        if recorded.interaction.number in taken_numbers:
            continue

        comparison = _interaction_comparison(
            _SidePair(made_side, recorded, made_side), {}
        )
        if comparison.mark == "=":
            return comparison

    return None


class _ComparedTurn(NamedTuple):
    """One turn of an interaction."""

    question: Any
    answers: Any
    exchange: RecordedExchange | None


_ABSENT_TURN = _ComparedTurn(ABSENT, ABSENT, None)


class _Side(NamedTuple):
    """One interaction as a comparison reads it.

    Its `keys` find its partner, the strictest first; the last one only finds one of its name.
    """

    interaction: RecordedInteraction
    turns: list[_ComparedTurn]
    call: CallKey
    keys: tuple[object, object, object, object]
    pointers: Collection[str]


class _SidePair(NamedTuple):
    """Two interactions that belong together, or one; `side` is the new one, or the only one."""

    side: _Side
    old: _Side | None
    new: _Side | None
    is_moved: bool = False

    @property
    def only_logs(self) -> bool:
        """Whether it is one side alone, on which a server only logs."""
        is_alone = self.old is None or self.new is None
        return is_alone and only_logs(self.side.interaction.exchanges[0])


def _sides_of(cassette: Cassette, ignored_for: IgnoredFor) -> Iterator[_Side]:
    """Yield the interactions of a cassette as a comparison reads them."""
    pages: dict[tuple[str, str, str | None], int] = {}
    for interaction in without_pongs(in_conversation_order(cassette.interactions)):
        call = interaction.exchanges[0].call
        issued_cursor = interaction.exchanges[-1].next_cursor
        page = pages.get((call.endpoint, call.method, call.cursor), 0)
        if issued_cursor is not None:
            pages[call.endpoint, call.method, issued_cursor] = page + 1

        pointers = ignored_for(call)
        ignored = _unmasked_paths(pointers)
        turns = list(_turns_of(interaction, ignored))
        answers = [_answers_of_retry(interaction.exchanges[0], ignored)]
        for turn in turns:
            answers.append(turn.answers)

        if page:
            ignored.append(("cursor",))

        key = call.key(tuple(ignored))
        keys = _partner_keys(key, page, answers, masks_in(pointers))
        yield _Side(interaction, turns, key, keys, pointers)


def _unmasked_paths(pointers: Collection[str]) -> list[MemberPath]:
    """Return the paths of the places that don't count, but for masks."""
    return list(map(pointer_path, without_masks(pointers)))


def _partner_keys(
    key: CallKey, page: int, answers: Sequence[Any], masks: Sequence[str]
) -> tuple[object, object, object, object]:
    """Return the keys by which a partner is found, the strictest first, and one of its name."""
    # The path of a server may be another one; other HTTP traffic is nothing but its path.
    endpoint = ""
    if not key.method:
        endpoint = comparable_text(key.endpoint)

    name = comparable_text(key.name)
    arguments = comparable_text(key.arguments)
    equal_call = (endpoint, key.method, name, arguments, page)
    equal = (key.endpoint, equal_call, _masked_answers(answers, ()))
    same_call = (endpoint, key.method, name, masked_json(arguments, masks), page)

    same_answers = (same_call, _masked_answers(answers, masks))

    return equal, same_answers, same_call, (key.method, key.name)


def _masked_answers(answers: Iterable[Any], masks: Sequence[str]) -> tuple[str, ...]:
    """Return answers as masked JSON, empty for those that are absent."""
    texts = []
    for value in answers:
        text = ""
        if value is not ABSENT:
            text = canonical(with_masked_texts(value, masks))

        texts.append(text)

    return tuple(texts)


def _turns_of(
    interaction: RecordedInteraction, ignored: Collection[MemberPath]
) -> Iterator[_ComparedTurn]:
    """Yield the turns of an interaction in a form that is equal for all ways of asking."""
    for turn in interaction.turns:
        question = question_of(turn)
        if turn.ask is not None:
            answers: Any = ABSENT
            if turn.answering_exchanges:
                answers = _answers_of_retry(turn.answering_exchanges[0], ignored)

            yield _ComparedTurn(question, answers, turn.asking_exchange)
        elif question:
            yield _ComparedTurn(
                question, _answers_by_key(turn, question, ignored), None
            )


def _answers_of_retry(retry: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    """Return the answers of a retry; `ABSENT` if it has none."""
    if retry.call.answers is None:
        return ABSENT

    answers = {}
    text = answers_text(retry.request.body)
    if text is not None:
        answers = without_null_members(comparable_tree(text))

    return without_paths({INPUT_RESPONSES: answers}, ignored).get(INPUT_RESPONSES, {})


def _answers_by_key(
    turn: RecordedTurn, question: Collection[str], ignored: Collection[MemberPath]
) -> Any:
    """Return the answers to the questions of a turn, by their keys; `ABSENT` if it has none."""
    given_answers = without_null_members(
        comparable_by_key(turn.given_answers or {}, turn.names_by_key)
    )
    answers = {key: given_answers[key] for key in given_answers if key in question}
    if turn.is_posted:
        # The paths are into each answer.
        for key, answer in answers.items():
            answers[key] = without_paths(answer, ignored)

    return answers or ABSENT


def _pairs_at_level(
    level: int, partners: Mapping[int, int], old: Sequence[_Side], new: Sequence[_Side]
) -> list[tuple[int, int]]:
    """Return the indices of interactions without a partner that have equal keys of a level."""
    old_left = _keys_without_partner(old, set(partners.values()), level)
    new_left = _keys_without_partner(new, partners, level)
    return matching_places(old_left, new_left)


def _keys_without_partner(
    sides: Sequence[_Side], paired_indices: Collection[int], level: int
) -> list[tuple[int, object]]:
    """Return the keys of the interactions without a partner, with their indices."""
    keys = []
    for index, side in enumerate(sides):
        if index not in paired_indices:
            keys.append((index, side.keys[level]))

    return keys


def _request_differences(old: _Side, new: _Side) -> tuple[Difference, ...]:
    """Return where the arguments of two calls of the same name differ."""
    ignored = _unmasked_paths(new.pointers)
    old_arguments = without_paths(old.interaction.exchanges[0].call.arguments, ignored)
    new_arguments = without_paths(new.interaction.exchanges[0].call.arguments, ignored)
    if isinstance(old_arguments, bytes) or isinstance(new_arguments, bytes):
        return ()

    return tuple(differences(old_arguments, new_arguments))


def _aligned_pairs(
    partners: Mapping[int, int], old: Sequence[_Side], new: Sequence[_Side]
) -> Iterator[_SidePair]:
    """Yield the sides that belong together, in the order of both cassettes."""
    with_partner = set(partners.values())
    pairs = sorted(zip(partners.values(), partners.keys(), strict=True))
    pairs_in_order = longest_rising_pairs(pairs)
    next_old = 0
    next_new = 0
    for at_old, at_new in [*pairs_in_order, (len(old), len(new))]:
        for index in range(next_old, at_old):
            if index not in with_partner:
                yield _SidePair(old[index], old[index], None)

        for index in range(next_new, at_new):
            partner = partners.get(index)
            moved_partner = None if partner is None else old[partner]
            is_moved = moved_partner is not None
            yield _SidePair(new[index], moved_partner, new[index], is_moved)

        if at_new < len(new):
            yield _SidePair(new[at_new], old[at_old], new[at_new])

        next_old = at_old + 1
        next_new = at_new + 1


def _without_ignored(stage: Stage, ignored: Collection[str]) -> Stage:
    """Leave the changes at ignored places out of a stage."""
    changes = tuple(without_ignored(stage.changes, ignored))
    mark = stage.mark
    if mark == "~" and heaviest_verdict(changes) == "same":
        mark = "="

    return replace(stage, changes=changes, mark=mark)


def _stages_of(old: _Side | None, new: _Side | None) -> Iterator[Stage]:
    """Yield the questions, the answers and the outcome of two interactions, compared."""
    verdict: Verdict = "rounds-changed"
    if old is None or new is None:
        verdict = "shape-changed"

    old_questions = _question_texts(old)
    new_questions = _question_texts(new)
    for old_index, new_index in paired_indices(old_questions, new_questions):
        old_turn = _turn_at(old, old_index)
        new_turn = _turn_at(new, new_index)
        index = new_index if old_index is None else old_index
        number = 1 + (index or 0)
        mark = _mark_of(old_index, new_index)
        asked, answered = _turn_changes(old_turn, new_turn, verdict)
        yield Stage("ask", number, mark, tuple(asked))
        if old_turn.answers is not ABSENT or new_turn.answers is not ABSENT:
            yield Stage("answer", number, mark, tuple(answered))

    old_end = _last_exchange(old)
    new_end = _last_exchange(new)
    if old_end is not None or new_end is not None:
        mark = _mark_of(old_end, new_end)
        yield Stage("result", None, mark, tuple(_outcome_changes(old_end, new_end)))


def _outcome_changes(
    last: RecordedExchange | None, live: RecordedExchange | None
) -> list[Change]:
    """Return the differences of two outcomes, of which one may be missing."""
    if last is not None and live is not None:
        return response_changes(last, live)

    old_outcome = ABSENT if last is None else outcome_value(last)
    new_outcome = ABSENT if live is None else outcome_value(live)
    return [change_of("shape-changed", "", old_outcome, new_outcome)]


def _question_texts(side: _Side | None) -> list[str]:
    """Return the questions of an interaction as texts that are the same for equal ones."""
    if side is None:
        return []
    return [canonical(pinned_question(turn.question)) for turn in side.turns]


def _turn_at(side: _Side | None, index: int | None) -> _ComparedTurn:
    """Return a turn of an interaction; one with nothing in it if there is none."""
    if side is None or index is None:
        return _ABSENT_TURN
    return side.turns[index]


def _last_exchange(side: _Side | None) -> RecordedExchange | None:
    """Return the last exchange of an interaction that has ended."""
    if side is None or side.interaction.is_open:
        return None
    return side.interaction.ending_exchange


def _mark_of(old: object, new: object) -> Mark:
    """Return which of two sides has something; None stands for a side that lacks it."""
    if old is None:
        return "+"
    if new is None:
        return "-"
    return "~"


def _turn_changes(
    old: _ComparedTurn, new: _ComparedTurn, verdict: Verdict
) -> tuple[list[Change], list[Change]]:
    """Return the differences of the questions of two turns, and of their answers."""
    if _ABSENT_TURN in (old, new):
        asked = change_of(verdict, ASKS_POINTER, old.question, new.question)
        answered = change_of(verdict, _ANSWERS_POINTER, old.answers, new.answers)
        return [asked], [answered]

    if old.exchange is not None and new.exchange is not None:
        changes = response_changes(old.exchange, new.exchange)
    else:
        changes = question_changes(old.question, new.question)

    names = renamed_keys(old.question, new.question)
    received = with_recorded_keys(new.answers, names)
    return changes, value_changes(old.answers, received, _ANSWERS_POINTER)
