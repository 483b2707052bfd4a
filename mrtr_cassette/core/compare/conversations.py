"""Differences between two conversations, and between two cassettes."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

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
    without_ignored_changes,
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
    old_interactions = list(_comparable_interactions_of(recorded, ignored_for))
    new_interactions = list(_comparable_interactions_of(received, ignored_for))
    interactions = _compared_interactions(old_interactions, new_interactions)
    return CassetteComparison(recorded.path, received.path, tuple(interactions))


def _compared_interactions(
    old_interactions: Sequence[_ComparableInteraction],
    new_interactions: Sequence[_ComparableInteraction],
) -> list[InteractionComparison]:
    """Compare the interactions of two cassettes with the same handles."""
    partners: dict[int, int] = {}
    for level in _PAIRING_LEVELS:
        for old_index, new_index in _pairs_at_level(
            level, partners, old_interactions, new_interactions
        ):
            partners[new_index] = old_index

    namesakes: dict[int, _ComparableInteraction] = {}
    for old_index, new_index in _pairs_at_level(
        "same_name", partners, old_interactions, new_interactions
    ):
        namesakes[new_interactions[new_index].interaction.number] = old_interactions[
            old_index
        ]

    interactions = []
    for pair in _aligned_pairs(partners, old_interactions, new_interactions):
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

    waiting_by_call: dict[object, deque[RecordedInteraction]] = defaultdict(deque)
    for comparable in _comparable_interactions_of(recorded, ignored_for):
        waiting_by_call[comparable.keys.same_call].append(comparable.interaction)

    for interaction in in_conversation_order(received.interactions):
        # Calls that send handles back are equal to recorded ones once these are known.
        single_cassette = _with_recorded_handles(
            replace(received, interactions=(interaction,)), handles
        )
        for live in _comparable_interactions_of(single_cassette, ignored_for):
            partners = waiting_by_call[live.keys.same_call]
            if partners:
                _learn_live_handles(handles, partners.popleft(), live.interaction)

    return handles


def _learn_live_handles(
    handles: Handles, old: RecordedInteraction, new: RecordedInteraction
) -> None:
    """Take what the second interaction has in the places of the first one's handles."""
    for old_exchange, new_exchange in zip(old.exchanges, new.exchanges, strict=False):
        handles.learn_live_handles(old_exchange.rpc_response, new_exchange.rpc_response)

    handles.learn_live_handles(
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
    pair: _InteractionPair, namesakes: Mapping[int, _ComparableInteraction]
) -> InteractionComparison:
    """Compare two interactions that belong together, or describe one without a partner."""
    request: tuple[Difference, ...] = ()
    new = pair.new
    if new is not None and new.interaction.number in namesakes:
        request = _request_differences(namesakes[new.interaction.number], new)

    shown = pair.shown
    stages = []
    for stage in _stages_of(pair.old, pair.new):
        stages.append(_stage_without_ignored_changes(stage, shown.ignored_pointers))

    return InteractionComparison(
        recorded=_number_of_interaction(pair.old),
        received=_number_of_interaction(new),
        call=str(shown.call),
        is_moved=pair.is_moved,
        stages=tuple(stages),
        request=request,
    )


def _number_of_interaction(comparable: _ComparableInteraction | None) -> int | None:
    """Return the number of an interaction, if there is one."""
    if comparable is None:
        return None
    return comparable.interaction.number


def comparison_with_run(
    recorded: Cassette,
    repeated: Cassette,
    ignored_for: IgnoredFor,
    *,
    may_lack_calls: bool,
) -> CassetteComparison:
    """Compare a cassette with a run in which its calls, or a part of them, were made again.

    Of a call that was made more often than recorded, each may be the same as any recorded one, as
    long as all of these were made; one of a part may be any that is not the same as another:
    nobody can tell which of several it was.
    """
    handles = handles_between(recorded, repeated, ignored_for)
    old_interactions = list(_comparable_interactions_of(recorded, ignored_for))
    new_interactions = list(
        _comparable_interactions_of(
            _with_recorded_handles(repeated, handles), ignored_for
        )
    )
    pairs = _compared_interactions(old_interactions, new_interactions)
    if may_lack_calls:
        pairs = [pair for pair in pairs if pair.mark != "-"]

    same_numbers = {pair.recorded for pair in pairs if pair.mark == "="}
    equal_pairs = _equal_pairs(
        pairs,
        old_interactions,
        new_interactions,
        same_numbers,
        may_lack_calls=may_lack_calls,
    )
    same_numbers |= {pair.recorded for pair in equal_pairs.values()}
    shown_pairs = []
    for pair in pairs:
        is_made = pair.recorded is None or pair.recorded in same_numbers
        can_be_another = is_made or may_lack_calls
        equal_pair = equal_pairs.get(pair.received) if can_be_another else None
        shown_pairs.append(equal_pair or pair)

    return CassetteComparison(recorded.path, repeated.path, tuple(shown_pairs))


def _equal_pairs(
    pairs: Sequence[InteractionComparison],
    old_interactions: Iterable[_ComparableInteraction],
    new_interactions: Iterable[_ComparableInteraction],
    same_numbers: Collection[int | None],
    *,
    may_lack_calls: bool,
) -> dict[int | None, InteractionComparison]:
    """Return the comparisons of calls that differ with others that they equal, by their numbers.

    What was made as often as recorded has another only in a part, and none of `same_numbers`.
    """
    recorded_by_call: dict[object, list[_ComparableInteraction]] = defaultdict(list)
    for comparable in old_interactions:
        recorded_by_call[comparable.keys.same_call].append(comparable)

    made_by_number: dict[int | None, _ComparableInteraction] = {}
    for made in new_interactions:
        made_by_number[made.interaction.number] = made

    repeated_calls = set()
    for pair in pairs:
        if pair.mark == "+":
            repeated_calls.add(made_by_number[pair.received].keys.same_call)

    taken_numbers = set(same_numbers)
    equal_pairs: dict[int | None, InteractionComparison] = {}
    for pair in pairs:
        if pair.mark not in ("+", "~"):
            continue

        made_call = made_by_number[pair.received]
        candidates = recorded_by_call[made_call.keys.same_call]
        equal_pair = None
        if made_call.keys.same_call in repeated_calls:
            equal_pair = _equal_pair(candidates, (), made_call)
        elif may_lack_calls:
            equal_pair = _equal_pair(candidates, taken_numbers, made_call)

        if equal_pair is not None:
            equal_pairs[pair.received] = equal_pair
            taken_numbers.add(equal_pair.recorded)

    return equal_pairs


def _equal_pair(
    candidates: Iterable[_ComparableInteraction],
    taken_numbers: Collection[int | None],
    made_call: _ComparableInteraction,
) -> InteractionComparison | None:
    """Return the comparison of a made call with the first equal recorded one that is not taken."""
    for recorded in candidates:
        if recorded.interaction.number in taken_numbers:
            continue

        comparison = _interaction_comparison(
            _InteractionPair(made_call, recorded, made_call), {}
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


class _PartnerKeys(NamedTuple):
    """The keys by which an interaction finds its partner, the strictest first.

    Attributes:
        same_call: the same for calls with the same arguments, whatever was answered.
        same_name: only finds a call of the same tool, or of the same method and name.
    """

    equal: object
    same_answers: object
    same_call: object
    same_name: object


_PAIRING_LEVELS: Final = ("equal", "same_answers", "same_call")
"""The keys by which interactions become partners, in this order."""


class _ComparableInteraction(NamedTuple):
    """One interaction as a comparison reads it."""

    interaction: RecordedInteraction
    turns: list[_ComparedTurn]
    call: CallKey
    keys: _PartnerKeys
    ignored_pointers: Collection[str]


class _InteractionPair(NamedTuple):
    """Two interactions that belong together, or one; `shown` is the new one, or the only one."""

    shown: _ComparableInteraction
    old: _ComparableInteraction | None
    new: _ComparableInteraction | None
    is_moved: bool = False

    @property
    def only_logs(self) -> bool:
        """Whether it is one interaction alone, in which a server only logs."""
        is_alone = self.old is None or self.new is None
        return is_alone and only_logs(self.shown.interaction.exchanges[0])


def _comparable_interactions_of(
    cassette: Cassette, ignored_for: IgnoredFor
) -> Iterator[_ComparableInteraction]:
    """Yield the interactions of a cassette as a comparison reads them."""
    page_by_cursor: dict[tuple[str, str, str | None], int] = {}
    for interaction in without_pongs(in_conversation_order(cassette.interactions)):
        call = interaction.exchanges[0].call
        issued_cursor = interaction.exchanges[-1].next_cursor
        page = page_by_cursor.get((call.endpoint, call.method, call.cursor), 0)
        if issued_cursor is not None:
            page_by_cursor[call.endpoint, call.method, issued_cursor] = page + 1

        ignored_pointers = ignored_for(call)
        ignored_paths = _unmasked_paths(ignored_pointers)
        turns = list(_turns_of(interaction, ignored_paths))
        answers = [_answers_of_retry(interaction.exchanges[0], ignored_paths)]
        for turn in turns:
            answers.append(turn.answers)

        if page:
            ignored_paths.append(("cursor",))

        call_key = call.key(tuple(ignored_paths))
        keys = _partner_keys(call_key, page, answers, masks_in(ignored_pointers))
        yield _ComparableInteraction(
            interaction, turns, call_key, keys, ignored_pointers
        )


def _unmasked_paths(pointers: Collection[str]) -> list[MemberPath]:
    """Return the paths of the places that don't count, but for masks."""
    return list(map(pointer_path, without_masks(pointers)))


def _partner_keys(
    key: CallKey, page: int, answers: Sequence[Any], masks: Sequence[str]
) -> _PartnerKeys:
    """Return the keys by which a partner is found."""
    # The path of a server may be another one; other HTTP traffic is nothing but its path.
    endpoint = ""
    if not key.method:
        endpoint = comparable_text(key.endpoint)

    name = comparable_text(key.name)
    arguments = comparable_text(key.arguments)
    equal_call = (endpoint, key.method, name, arguments, page)
    same_call = (endpoint, key.method, name, masked_json(arguments, masks), page)

    return _PartnerKeys(
        equal=(key.endpoint, equal_call, _masked_answers(answers, ())),
        same_answers=(same_call, _masked_answers(answers, masks)),
        same_call=same_call,
        same_name=(key.method, key.name),
    )


def _masked_answers(answers: Iterable[Any], masks: Sequence[str]) -> tuple[str, ...]:
    """Return answers as masked JSON, empty for those that are absent."""
    masked_answers = []
    for answer in answers:
        masked_answer = ""
        if answer is not ABSENT:
            masked_answer = canonical(with_masked_texts(answer, masks))

        masked_answers.append(masked_answer)

    return tuple(masked_answers)


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
    spelled_answers = answers_text(retry.request.body)
    if spelled_answers is not None:
        answers = without_null_members(comparable_tree(spelled_answers))

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
    level: str,
    partners: Mapping[int, int],
    old: Sequence[_ComparableInteraction],
    new: Sequence[_ComparableInteraction],
) -> list[tuple[int, int]]:
    """Return the indices of interactions without a partner whose keys of a level are equal."""
    old_keys = _keys_without_partner(old, set(partners.values()), level)
    new_keys = _keys_without_partner(new, partners, level)
    return matching_places(old_keys, new_keys)


def _keys_without_partner(
    interactions: Sequence[_ComparableInteraction],
    paired_indices: Collection[int],
    level: str,
) -> list[tuple[int, object]]:
    """Return the keys of a level of the interactions without a partner, with their indices."""
    indexed_keys = []
    for index, comparable in enumerate(interactions):
        if index not in paired_indices:
            indexed_keys.append((index, getattr(comparable.keys, level)))

    return indexed_keys


def _request_differences(
    old: _ComparableInteraction, new: _ComparableInteraction
) -> tuple[Difference, ...]:
    """Return where the arguments of two calls of the same name differ."""
    ignored_paths = _unmasked_paths(new.ignored_pointers)
    old_call = old.interaction.exchanges[0].call
    new_call = new.interaction.exchanges[0].call
    old_arguments = without_paths(old_call.arguments, ignored_paths)
    new_arguments = without_paths(new_call.arguments, ignored_paths)
    if isinstance(old_arguments, bytes) or isinstance(new_arguments, bytes):
        return ()

    return tuple(differences(old_arguments, new_arguments))


def _aligned_pairs(
    partners: Mapping[int, int],
    old: Sequence[_ComparableInteraction],
    new: Sequence[_ComparableInteraction],
) -> Iterator[_InteractionPair]:
    """Yield the interactions that belong together, in the order of both cassettes."""
    old_indices_with_partner = set(partners.values())
    pairs = sorted(zip(partners.values(), partners.keys(), strict=True))
    pairs_in_order = longest_rising_pairs(pairs)
    next_old = 0
    next_new = 0
    for at_old, at_new in [*pairs_in_order, (len(old), len(new))]:
        for index in range(next_old, at_old):
            if index not in old_indices_with_partner:
                yield _InteractionPair(old[index], old[index], None)

        for index in range(next_new, at_new):
            partner_index = partners.get(index)
            moved_partner = None if partner_index is None else old[partner_index]
            is_moved = moved_partner is not None
            yield _InteractionPair(new[index], moved_partner, new[index], is_moved)

        if at_new < len(new):
            yield _InteractionPair(new[at_new], old[at_old], new[at_new])

        next_old = at_old + 1
        next_new = at_new + 1


def _stage_without_ignored_changes(stage: Stage, ignored: Collection[str]) -> Stage:
    """Leave the changes at ignored places out of a stage."""
    changes = tuple(without_ignored_changes(stage.changes, ignored))
    mark = stage.mark
    if mark == "~" and heaviest_verdict(changes) == "same":
        mark = "="

    return replace(stage, changes=changes, mark=mark)


def _stages_of(
    old: _ComparableInteraction | None, new: _ComparableInteraction | None
) -> Iterator[Stage]:
    """Yield the questions, the answers and the outcome of two interactions, compared."""
    verdict_without_partner: Verdict = "rounds-changed"
    if old is None or new is None:
        verdict_without_partner = "shape-changed"

    old_questions = _question_texts(old)
    new_questions = _question_texts(new)
    for old_index, new_index in paired_indices(old_questions, new_questions):
        old_turn = _turn_at(old, old_index)
        new_turn = _turn_at(new, new_index)
        index = new_index if old_index is None else old_index
        turn_number = 1 + (index or 0)
        mark = _mark_of(old_index, new_index)
        asked, answered = _turn_changes(old_turn, new_turn, verdict_without_partner)
        yield Stage("ask", turn_number, mark, tuple(asked))
        if old_turn.answers is not ABSENT or new_turn.answers is not ABSENT:
            yield Stage("answer", turn_number, mark, tuple(answered))

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


def _question_texts(comparable: _ComparableInteraction | None) -> list[str]:
    """Return the questions of an interaction as texts that are the same for equal ones."""
    if comparable is None:
        return []
    return [canonical(pinned_question(turn.question)) for turn in comparable.turns]


def _turn_at(
    comparable: _ComparableInteraction | None, index: int | None
) -> _ComparedTurn:
    """Return a turn of an interaction; one with nothing in it if there is none."""
    if comparable is None or index is None:
        return _ABSENT_TURN
    return comparable.turns[index]


def _last_exchange(
    comparable: _ComparableInteraction | None,
) -> RecordedExchange | None:
    """Return the last exchange of an interaction that has ended."""
    if comparable is None or comparable.interaction.is_open:
        return None
    return comparable.interaction.ending_exchange


def _mark_of(old: object, new: object) -> Mark:
    """Return which of two cassettes has something; None stands for one that lacks it."""
    if old is None:
        return "+"
    if new is None:
        return "-"
    return "~"


def _turn_changes(
    old: _ComparedTurn, new: _ComparedTurn, verdict_without_partner: Verdict
) -> tuple[list[Change], list[Change]]:
    """Return the differences of the questions of two turns, and of their answers."""
    if _ABSENT_TURN in (old, new):
        verdict = verdict_without_partner
        asked = change_of(verdict, ASKS_POINTER, old.question, new.question)
        answered = change_of(verdict, _ANSWERS_POINTER, old.answers, new.answers)
        return [asked], [answered]

    if old.exchange is not None and new.exchange is not None:
        changes = response_changes(old.exchange, new.exchange)
    else:
        changes = question_changes(old.question, new.question)

    new_keys = renamed_keys(old.question, new.question)
    received = with_recorded_keys(new.answers, new_keys)
    return changes, value_changes(old.answers, received, _ANSWERS_POINTER)
