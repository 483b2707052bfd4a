"""What differs between a recording and another one, and how much it matters.

Rule: a verdict says what kind of thing changed, never whose fault it is.
Source: docs/diff.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple, get_args

from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import UsageError

Verdict = Literal[
    "same",
    "skipped",
    "unstable",
    "text-changed",
    "shape-changed",
    "surface-changed",
    "error-changed",
    "rounds-changed",
    "question-changed",
    "not-reached",
]
"""What came of comparing a conversation, a response or one place in it.

- `same`: nothing that counts differs.
- `skipped`: nothing was compared, on purpose.
- `unstable`: two live responses differ from one another.
- `text-changed`: a value is another one of the same type.
- `shape-changed`: a member, an item or a message is missing or new, or has another type.
- `surface-changed`: lists, discovery or `initialize`: what the server says that it can do.
- `error-changed`: an error where there was none, or the other way round, or another error.
- `rounds-changed`: a question more or less.
- `question-changed`: the server asks something else.
- `not-reached`: what should have been compared was not there to compare.
"""

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""All verdicts, the lightest first."""

TEXT_STEP: Final = "#json"
"""In a pointer, the step from a text to the JSON that it is: `/content/0/text#json/total`."""


ORDER: Final = "#order"
"""At the end of a pointer to a list: the order of its items is left out."""


class Change(NamedTuple):
    """One place where a recording and another one differ.

    Attributes:
        verdict: the kind of change.
        pointer: where, as a JSON Pointer into the result. `#json` steps from a text to the JSON
            in it; `/#status`, `/#headers/…`, `/#messages/…`, `/#error`, `/#body` and `/#end` stand
            beside the result.
        recorded: canonical JSON of what was recorded; None where it is absent.
        received: canonical JSON of the other value; None where it is absent.
        is_information: it is worth knowing, and breaks nobody.
    """

    verdict: Verdict
    pointer: str
    recorded: str | None
    received: str | None
    is_information: bool = False

    @property
    def difference(self) -> Difference:
        """The same without its verdict."""
        return Difference(self.pointer, self.recorded, self.received)


def heaviest(changes: Iterable[Change]) -> Verdict:
    """Return the verdict on what has these changes; what is information doesn't count."""
    verdicts = [change.verdict for change in changes if not change.is_information]
    return max(verdicts, key=VERDICTS.index, default="same")


def without_ignored(changes: Iterable[Change], ignored: Collection[str]) -> list[Change]:
    """Return the changes that stand neither at one of these pointers nor below one."""
    return [
        change
        for change in changes
        if not any(is_below(change.pointer, pointer) for pointer in ignored)
    ]


def unused_pointers(pointers: Iterable[str], left_out: Collection[Change]) -> list[str]:
    """Return those of some pointers at or below which nothing was left out."""
    places = {change.pointer for change in left_out}
    return [
        pointer
        for pointer in pointers
        if not any(is_below(place, pointer.removesuffix(ORDER)) for place in places)
    ]


def check_pointers(pointers: Collection[str]) -> None:
    """Make sure that what is to be ignored are pointers.

    Raises:
        UsageError: one is none.
    """
    for pointer in pointers:
        if not pointer.startswith("/"):
            raise UsageError(
                f"<<ignore>> {pointer!r} is no JSON Pointer",
                hint="it begins with a slash, such as /content/0/text or /#headers/vary",
            )


def is_below(pointer: str, outer: str) -> bool:
    """Tell whether a place is another one, or is within it."""
    inner = pointer.removeprefix(outer) if pointer.startswith(outer) else None
    return inner is not None and (not inner or inner.startswith(("/", f"{TEXT_STEP}/")))
