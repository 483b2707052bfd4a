"""Differences of two JSON values, by value and not by spelling, and how much each one matters."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from mrtr_cassette.core.secrets.rules import compiled_user_pattern
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Number, canonical, parse
from mrtr_cassette.core.wire.pointers import (
    ABSENT,
    ANY,
    Difference,
    ValuesAt,
    canonical_or_none,
    differences,
    differing_places_within,
    without_side,
)
from mrtr_cassette.errors import NotJsonError, UsageError

Verdict = Literal[
    "same",
    "skipped",
    "unstable",
    "text-changed",
    "shape-changed",
    "surface-changed",
    "key-changed",
    "error-changed",
    "refused",
    "rounds-changed",
    "question-changed",
    "not-reached",
]
"""The outcome of comparing a conversation, a response or one place in it; see docs/diff.md.

- `skipped`: nothing was compared, on purpose.
- `unstable`: two live responses differ from one another.
- `text-changed`: another value of the same type, or a list in another order.
- `shape-changed`: a member, an item or a message is missing or new, or has another type.
- `surface-changed`: lists, discovery or `initialize`: the capabilities that the server names.
- `key-changed`: the same question under another key.
- `error-changed`: another error, or a result in place of an error.
- `refused`: an error in place of a result or a question.
- `rounds-changed`: a question more or less.
- `not-reached`: there was nothing to compare with.
"""

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""All verdicts, the lightest first."""

TEXT_STEP: Final = "#json"
"""In a pointer, the step from a text to the JSON that it is: `/content/0/text#json/total`."""

ORDER_STEP: Final = "#order"
"""At the end of a pointer to a list: the order of its items."""

WORD_STEP: Final = "#word/"
"""After a pointer to a text, before the place of one of its words, from 0."""

_PINNED_VALUE: Final = "..."
_TYPE_BY_FIRST_CHAR: Final = {
    '"': "text",
    "{": "object",
    "[": "array",
    "t": "bool",
    "f": "bool",
    "n": "null",
}
"""The type of a value by the first character of its JSON."""

_END_OR_STEP_BELOW = re.compile(rf"({TEXT_STEP})?($|/|{ORDER_STEP}$)")
_MADE_UP_WORD = re.compile(r"[\w.:+-]*[0-9][\w.:+-]*")
"""A number, or a word with a digit, such as an id or a time."""

_TIME: Final = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|\d{10,}(?:\.\d+)?"
)
_RANDOM_ID: Final = r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|[0-9a-f]{20,}"
_TIME_OR_ID: Final = re.compile(
    rf"(?<![0-9a-z])(?:{_TIME}|{_RANDOM_ID})(?![0-9a-z])", re.IGNORECASE | re.ASCII
)

_INDEX_STEP = re.compile(r"(?<=/)[0-9]+(?=$|[/#])")
_ANY_STEP = re.compile(r"(?<=/)\\\*(?=$|/|\\#)")
"""A step that is `*`, in a pointer with escapes for a regular expression."""


class Change(NamedTuple):
    """One place where a recording and another one differ.

    Attributes:
        pointer: a JSON Pointer into the result. `#json` steps from a text to the JSON in it,
            `#order` is the order of a list; `/#status`, `/#headers/…`, `/#messages/…`, `/#error`,
            `/#body` and `/#end` are beside the result.
        recorded, received: canonical JSON of either value; None if it is absent.
        is_information: it is worth knowing, and breaks nobody.
    """

    verdict: Verdict
    pointer: str
    recorded: str | None
    received: str | None
    is_information: bool = False


def heaviest_verdict(changes: Iterable[Change]) -> Verdict:
    """Return the heaviest verdict of some changes; information doesn't count."""
    verdict: Verdict = "same"
    for change in changes:
        if not change.is_information:
            verdict = max(verdict, change.verdict, key=VERDICTS.index)

    return verdict


def without_ignored_changes(
    changes: Iterable[Change], ignored: Collection[str]
) -> list[Change]:
    """Return the changes that are neither at one of these pointers nor below one.

    If pointers name words of a text, it counts when other words differ.
    """
    masks = masks_in(ignored)
    counting_changes = []
    for change in changes:
        if any(is_below(change.pointer, place) for place in ignored):
            continue
        if _only_words_differ(change, ignored) or _only_masked_differs(change, masks):
            continue

        counting_changes.append(change)

    return counting_changes


def _only_words_differ(change: Change, ignored: Collection[str]) -> bool:
    """Tell whether two texts differ only in words whose places are ignored."""
    ignored_word_places = set()
    for pointer in ignored:
        text, _, place = pointer.partition(WORD_STEP)
        if place.isdigit() and is_below(change.pointer, text):
            ignored_word_places.add(int(place))

    if not ignored_word_places:
        return False

    differing_words = changed_words(change)
    return bool(differing_words) and ignored_word_places.issuperset(differing_words)


def changed_words(change: Change) -> list[int]:
    """Return the places of words that differ in two texts of equal length that share a word."""
    texts = changed_texts(change)
    if texts is None:
        return []

    old_words = texts[0].split()
    new_words = texts[1].split()
    if len(old_words) != len(new_words):
        return []

    differing_places = []
    for place, word in enumerate(old_words):
        if word != new_words[place]:
            differing_places.append(place)

    if len(differing_places) == len(old_words):
        return []

    return differing_places


def word_places(change: Change) -> list[str]:
    """Return the places of the words that differ, or of the whole change if it isn't some words."""
    places_of_words = changed_words(change)
    if not places_of_words:
        return [change.pointer]
    return [f"{change.pointer}{WORD_STEP}{place}" for place in places_of_words]


def without_times_and_ids(value: str) -> str:
    """Replace times and ids by one placeholder in a JSON value, or in the text that it is.

    A header's value, which is no JSON, is taken as it is.
    """
    return _TIME_OR_ID.sub("<time or id>", _decoded_json_text(value))


def is_time_or_id(value: str) -> bool:
    """Tell whether a JSON value, or the text that it is, is as a whole a time or an id."""
    decoded_value = _decoded_json_text(value)
    match = _TIME_OR_ID.match(decoded_value)
    return match is not None and match.end() == len(decoded_value)


def _decoded_json_text(value: str) -> str:
    """Return the text that a JSON value is; the value itself if it is none."""
    if not value.lstrip().startswith('"'):
        return value

    try:
        text: str = parse(value.encode(errors="surrogatepass"))
    except NotJsonError:
        return value

    return text


def changed_texts(change: Change) -> tuple[str, str] | None:
    """Return both values if they are texts."""
    old_value = parse((change.recorded or "null").encode())
    new_value = parse((change.received or "null").encode())
    if isinstance(old_value, str) and isinstance(new_value, str):
        return old_value, new_value

    return None


def unused_pointers(pointers: Iterable[str], left_out: Iterable[Change]) -> list[str]:
    """Return the pointers at or below which nothing was left out."""
    changed_pointers = {change.pointer for change in left_out}
    unused = []
    for pointer in pointers:
        outer, _, _ = without_side(pointer, "params", "result").partition(WORD_STEP)
        if not any(is_below(place, outer) for place in changed_pointers):
            unused.append(pointer)

    return unused


def check_pointers(pointers: Collection[str]) -> None:
    """Make sure that ignored places are JSON Pointers.

    Raises:
        UsageError: a place is not a JSON Pointer.
    """
    for pointer in pointers:
        if not pointer.startswith("/"):
            raise UsageError(
                f"<<ignore>> {pointer!r} is not a JSON Pointer",
                hint="it begins with a slash, such as /content/0/text or /#headers/vary",
            )


def is_below(pointer: str, outer: str) -> bool:
    """Tell whether a place is at or within an outer one, in which `*` is any one step."""
    if "/*" not in outer:
        if not pointer.startswith(outer):
            return False
        return _END_OR_STEP_BELOW.match(pointer, len(outer)) is not None

    pattern = _ANY_STEP.sub("[^/#]+", re.escape(outer))
    outer_match = re.match(pattern, pointer)
    if outer_match is None:
        return False

    return _END_OR_STEP_BELOW.match(pointer, outer_match.end()) is not None


def without_indices(pointer: str) -> str:
    """Return a pointer with `*` in the place of each index."""
    return _INDEX_STEP.sub(ANY, pointer)


def common_pointer(pointers: Sequence[str]) -> str:
    """Return pointers that differ in indices alone as one, with `*` for these."""
    paths = [pointer.split("/") for pointer in pointers]
    common_steps = []
    for steps in zip(*paths, strict=True):
        step = steps[0]
        if len(set(steps)) > 1:
            step = without_indices(f"/{step}")[1:]

        common_steps.append(step)

    return "/".join(common_steps)


IndexPair = tuple[int | None, int | None]
"""Indices of two items that belong together; None if an item has no partner."""


def paired_indices(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[IndexPair]:
    """Pair the items of two sequences in order: equal ones, and between these the n-th ones."""
    index_pairs: list[IndexPair] = []
    next_old = 0
    next_new = 0
    equal_pairs = longest_rising_pairs(matching_places(enumerate(old), enumerate(new)))
    equal_pairs.append((len(old), len(new)))
    for at_old, at_new in equal_pairs:
        index_pairs += zip_longest(range(next_old, at_old), range(next_new, at_new))
        index_pairs.append((at_old, at_new))
        next_old = at_old + 1
        next_new = at_new + 1

    return index_pairs[:-1]


OldPlace = TypeVar("OldPlace")
NewPlace = TypeVar("NewPlace")


def matching_places(
    old: Iterable[tuple[OldPlace, Hashable]], new: Iterable[tuple[NewPlace, Hashable]]
) -> list[tuple[OldPlace, NewPlace]]:
    """Return the places of equal items, the first with the first and so on."""
    places_by_item: dict[Hashable, deque[NewPlace]] = defaultdict(deque)
    for new_place, item in new:
        places_by_item[item].append(new_place)

    place_pairs = []
    for old_place, item in old:
        if places_by_item[item]:
            place_pairs.append((old_place, places_by_item[item].popleft()))

    return place_pairs


def longest_rising_pairs(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest choice of pairs, given by rising first indices, whose second ones rise."""
    lowest: list[int] = []
    ends: list[int] = []
    previous_positions = []
    for position, (_, value) in enumerate(pairs):
        length_index = bisect_left(lowest, value)
        previous = ends[length_index - 1] if length_index else None
        previous_positions.append(previous)
        lowest[length_index : length_index + 1] = [value]
        ends[length_index : length_index + 1] = [position]

    chosen_pairs = []
    last_position = ends[-1] if ends else None
    while last_position is not None:
        chosen_pairs.append(pairs[last_position])
        last_position = previous_positions[last_position]

    return chosen_pairs[::-1]


PairItems = Callable[[list[Any], list[Any]], list[IndexPair]]
"""Says which items of two arrays are compared with one another."""


def pairs_by_place(recorded: list[Any], received: list[Any]) -> list[IndexPair]:
    """Pair items by their index; in arrays of different lengths equal ones first."""
    if len(recorded) == len(received):
        places = range(len(recorded))
        return list(zip(places, places, strict=True))

    old_texts = list(map(canonical, recorded))
    new_texts = list(map(canonical, received))
    return paired_indices(old_texts, new_texts)


def value_changes(
    recorded: Any,
    received: Any,
    pointer: str = "",
    pair_items: PairItems = pairs_by_place,
) -> list[Change]:
    """Return the innermost places where two values differ, in order; JSON in a text is entered.

    A list whose items are only in another order has one change; with `pair_items`, none.
    """
    differing_places = differences(
        recorded, received, pointer, partial(_inner_places, pair_items)
    )
    return list(map(_change_of_difference, differing_places))


def _change_of_difference(difference: Difference) -> Change:
    """Return a difference with its verdict."""
    pointer, recorded, received = difference
    kind = _json_type(recorded)
    if kind != _json_type(received):
        return Change("shape-changed", pointer, recorded, received)

    if kind == "array":
        pointer = f"{pointer.removesuffix(ORDER_STEP)}{ORDER_STEP}"

    return Change("text-changed", pointer, recorded, received)


def _json_type(value: str | None) -> str | None:
    """Return the type of a value of JSON; None if it is absent."""
    if value is None:
        return None
    return _TYPE_BY_FIRST_CHAR.get(value[:1], "number")


def change_of(verdict: Verdict, pointer: str, recorded: Any, received: Any) -> Change:
    """Return a change from one value to another; either may be `ABSENT`."""
    return Change(
        verdict, pointer, canonical_or_none(recorded), canonical_or_none(received)
    )


def _inner_places(pair_items: PairItems, place: ValuesAt) -> list[ValuesAt] | None:
    """Return the places within two values, or None if they are compared as a whole."""
    pointer, old, new = place
    if isinstance(old, list) and isinstance(new, list):
        return _item_places(pair_items, place)

    if isinstance(old, str) and isinstance(new, str) and old != new:
        old_tree = json_in(old)
        new_tree = json_in(new)
        if old_tree is None or new_tree is None:
            return None
        return [ValuesAt(f"{pointer}{TEXT_STEP}", old_tree, new_tree)]

    return differing_places_within(place)


def _item_places(pair_items: PairItems, place: ValuesAt) -> list[ValuesAt] | None:
    """Return the places within two lists, or None if only their order differs."""
    pointer, old, new = place
    if pointer.endswith(ORDER_STEP):
        return None

    is_order_compared = pair_items is pairs_by_place
    if is_order_compared:
        old_texts = list(map(canonical, old))
        new_texts = list(map(canonical, new))
        if old_texts != new_texts and sorted(old_texts) == sorted(new_texts):
            return None

        shuffled_places = _shuffled_item_places(pointer, old, new)
        if shuffled_places:
            return shuffled_places

    item_places = []
    for at_old, at_new in pair_items(old, new):
        index = at_new if at_old is None else at_old
        item_values = ValuesAt(
            f"{pointer}/{index}", _item_at(old, at_old), _item_at(new, at_new)
        )
        item_places.append(item_values)

    return item_places


def _item_at(items: list[Any], index: int | None) -> Any:
    """Return an item; `ABSENT` for one that has no partner."""
    if index is None:
        return ABSENT
    return items[index]


def _shuffled_item_places(
    pointer: str, old: list[Any], new: list[Any]
) -> list[ValuesAt]:
    """Return the places in two lists whose items differ in numbers and are in another order."""
    old_texts = list(map(_json_without_made_up_words, old))
    new_texts = list(map(_json_without_made_up_words, new))
    if old_texts == new_texts or sorted(old_texts) != sorted(new_texts):
        return []

    places = [ValuesAt(f"{pointer}{ORDER_STEP}", old, new)]
    for at_old, at_new in matching_places(enumerate(old_texts), enumerate(new_texts)):
        places.append(ValuesAt(f"{pointer}/{at_old}", old[at_old], new[at_new]))

    return places


def _json_without_made_up_words(item: Any) -> str:
    """Return an item as JSON in which all made-up words are the same."""
    return _MADE_UP_WORD.sub("#", canonical(item))


def json_in(text: str) -> Any:
    """Return the object or array that a text is, or None."""
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return None

    try:
        return parse(text.encode())
    except (NotJsonError, UnicodeEncodeError):
        return None


def with_pinned_places(value: Any, places: Collection[MemberPath]) -> Any:
    """Return a value with one fixed text in place of whatever is at some places.

    The places are paths, in which `ANY` stands for every member and item.
    """
    if () in places:
        return _PINNED_VALUE
    if not places or not isinstance(value, dict | list):
        return value

    def pinned_at(key: str, item: Any) -> Any:
        """Return a member or an item with the same text at the places below it."""
        places_below = set()
        for place in places:
            if place[0] in (key, ANY):
                places_below.add(place[1:])

        return with_pinned_places(item, places_below)

    if isinstance(value, list):
        return [pinned_at(str(index), item) for index, item in enumerate(value)]

    return {key: pinned_at(key, item) for key, item in value.items()}


# Values that responses repeat from their requests


def without_repeated_values(
    changes: Iterable[Change], values: Sequence[tuple[Any, Any]]
) -> list[Change]:
    """Return changes but for those that only repeat what the request has.

    Args:
        values: values of the recorded request, with those of the other request in their places.
    """
    recorded_by_sent = {}
    for recorded, sent in values:
        recorded_by_sent[_text_in_json(sent)] = _text_in_json(recorded)

    # The longest comes first, as another value may be its beginning.
    sent_texts = sorted(filter(None, recorded_by_sent), key=len, reverse=True)
    if not sent_texts:
        return [*changes]

    any_sent = "|".join(map(re.escape, sent_texts))
    sent_pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{any_sent})(?![A-Za-z0-9])")
    counting_changes = []
    for change in changes:
        as_recorded = sent_pattern.sub(
            lambda match: recorded_by_sent[match[0]], change.received or ""
        )
        if as_recorded != change.recorded:
            counting_changes.append(change)

    return counting_changes


def _text_in_json(value: Any) -> str:
    """Return a value as JSON spells it within a text."""
    return canonical(value).removeprefix('"').removesuffix('"')


# Masks: parts of texts that may differ, found by a user's regular expressions


MASK_PREFIX: Final = "mask:"
"""Begins, among the places that don't count, a pattern: what matches it counts in no text."""

_MASK_SIGN: Final = "\U0010fffd"
"""Stands for what a mask matches; texts don't have it."""


def masks_in(pointers: Collection[str]) -> list[str]:
    """Return the regular expressions of the masks among ignored pointers."""
    masks = []
    for pointer in pointers:
        if pointer.startswith(MASK_PREFIX):
            masks.append(pointer.removeprefix(MASK_PREFIX))

    return masks


def with_masked_texts(
    value: Any, masks: Sequence[str], *, in_text: bool = False
) -> Any:
    """Return a JSON value in whose texts one sign stands for whatever a mask matches.

    In JSON that is a text itself (`in_text`), numbers are texts too.
    """
    if isinstance(value, str):
        return _masked_text(value, masks)

    mask_within = partial(with_masked_texts, masks=masks, in_text=in_text)
    if isinstance(value, list):
        return list(map(mask_within, value))
    if isinstance(value, dict):
        return {name: mask_within(member) for name, member in value.items()}

    if in_text and (type(value) is int or isinstance(value, Number)):
        spelled_number = canonical(value)
        masked_number = _masked_text(spelled_number, masks)
        return value if masked_number == spelled_number else masked_number

    return value


def _masked_text(text: str, masks: Sequence[str]) -> str:
    """Return a text in which one sign stands for whatever a mask matches."""
    masked_text = text.encode("utf-8", "surrogatepass")
    for mask in masks:
        masked_text = compiled_user_pattern(mask).sub(_MASK_SIGN.encode(), masked_text)

    return masked_text.decode("utf-8", "backslashreplace")


def masked_json(text: str, masks: Sequence[str], *, in_text: bool = False) -> str:
    """Return JSON with its texts masked; other text, such as a header, is masked as it is."""
    if not masks:
        return text

    try:
        value = parse(text.encode(errors="surrogatepass"))
    except NotJsonError:
        value = text

    return canonical(with_masked_texts(value, masks, in_text=in_text))


def _only_masked_differs(change: Change, masks: Sequence[str]) -> bool:
    """Tell whether two values differ only in what masks match."""
    if change.recorded == change.received:
        return False
    if change.recorded is None or change.received is None:
        return False

    recorded = _masked_value_of_change(change, change.recorded, masks)
    return recorded == _masked_value_of_change(change, change.received, masks)


def _masked_value_of_change(change: Change, value: str, masks: Sequence[str]) -> str:
    """Return a value of a change as masked JSON."""
    return masked_json(value, masks, in_text=TEXT_STEP in change.pointer)


def unused_masks(masks: Iterable[str], left_out: Sequence[Change]) -> list[str]:
    """Return the masks that match nothing in what was left out."""
    return [mask for mask in masks if not _is_masked(mask, left_out)]


def _is_masked(mask: str, changes: Iterable[Change]) -> bool:
    """Tell whether a mask matches something in a value of some changes."""
    sign = _text_in_json(_MASK_SIGN)
    for change in changes:
        for value in (change.recorded, change.received):
            if value is None:
                continue
            if sign in _masked_value_of_change(change, value, [mask]):
                return True

    return False


def masks_as_places(masks: Collection[str]) -> tuple[str, ...]:
    """Return masks as they stand among the places that don't count.

    Raises:
        UsageError: a mask is not a regular expression, or matches nothing at all.
    """
    for mask in masks:
        try:
            search_pattern = compiled_user_pattern(mask)
        except ValueError as error:
            raise UsageError(
                f"<<masks>> {mask!r} is not a regular expression: {error}"
            ) from None

        if search_pattern.fullmatch(b""):
            raise UsageError(
                f"<<masks>> {mask!r} matches an empty text",
                hint="let it need a character, such as \\d+ in place of \\d*",
            )

    return tuple([f"{MASK_PREFIX}{mask}" for mask in masks])


def without_masks(places: Iterable[str]) -> list[str]:
    """Return the places that are pointers."""
    return [place for place in places if not place.startswith(MASK_PREFIX)]
