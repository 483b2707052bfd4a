"""Masks: parts of texts that may differ, found by a user's regular expressions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

from mrtr_cassette.core.secrets.rules import user_pattern
from mrtr_cassette.core.wire.jsonbytes import Number, canonical, parse
from mrtr_cassette.errors import NotJsonError

MASK: Final = "mask:"
"""Begins, among the places that don't count, a pattern: what matches it counts in no text."""

_MASKED: Final = "\U0010fffd"
"""Stands for what a mask matches; texts don't have it."""


def masks_in(pointers: Collection[str]) -> list[str]:
    """Return the regular expressions of the masks among ignored pointers."""
    found = []
    for pointer in pointers:
        if pointer.startswith(MASK):
            found.append(pointer.removeprefix(MASK))

    return found


def masked(value: Any, masks: Sequence[str], *, in_text: bool = False) -> Any:
    """Return a JSON value in whose texts one sign stands for whatever a mask matches.

    In JSON that is a text itself (`in_text`), numbers are texts too.
    """
    if isinstance(value, str):
        return _masked_text(value, masks)

    mask_within = partial(masked, masks=masks, in_text=in_text)
    if isinstance(value, list):
        return list(map(mask_within, value))
    if isinstance(value, dict):
        return {name: mask_within(member) for name, member in value.items()}

    if in_text and (type(value) is int or isinstance(value, Number)):
        spelled = canonical(value)
        text = _masked_text(spelled, masks)
        return value if text == spelled else text

    return value


def _masked_text(text: str, masks: Sequence[str]) -> str:
    """Return a text in which one sign stands for whatever a mask matches."""
    raw = text.encode("utf-8", "surrogatepass")
    for mask in masks:
        raw = user_pattern(mask).sub(_MASKED.encode(), raw)

    return raw.decode("utf-8", "backslashreplace")


def masked_json(text: str, masks: Sequence[str], *, in_text: bool = False) -> str:
    """Return JSON with its texts masked; other text, such as a header, is masked as it is."""
    if not masks:
        return text

    try:
        value = parse(text.encode(errors="surrogatepass"))
    except NotJsonError:
        value = text

    return canonical(masked(value, masks, in_text=in_text))


def has_masked(text: str) -> bool:
    """Tell whether a mask matched something in masked JSON."""
    return canonical(_MASKED)[1:-1] in text
