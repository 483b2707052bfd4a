"""What a test says of its cassette, from the ini file to the marker of the test itself.

Rule: the nearest place has the last word; lists and headers of all places add up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mrtr_cassette.errors import LIBRARY_TERMS, Terms, UsageError
from mrtr_cassette.options import (
    Option,
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
    check_names,
    checked,
    options_of,
)
from mrtr_cassette.shell.runs.plays import Settings

TERMS: Final[Terms] = {
    **LIBRARY_TERMS,
    "append": "--mrtr-mode=append",
    "cassette": "file name",
    "ignore_value": 'ignore=["/POINTER"] in the marker mrtr_cassette',
    "record": "pytest --mrtr-mode=once",
    "record_too": "--mrtr-mode=append",
    "repeat_always": 'repeat="always" in the marker mrtr_cassette',
    "replace": "--mrtr-mode=all",
}
"""What pytest's side writes where a text names an option."""


OPTIONS: Final[Mapping[str, Option]] = {
    name: option
    for options in (VerifyOptions, RecordOptions, ReplayOptions)
    for name, option in options_of(options).items()
    if option.in_suites
} | {
    "max_age": Option(
        "number",
        "Days after which a cassette is old: mode once records it anew, the other modes that "
        "replay it warn; 0: never",
    )
}
"""The options that a test suite can set; of two with one name, `ignore` is about requests."""

_NAMES = ("upstream", *OPTIONS, "answers")


class Place(NamedTuple):
    """One place that sets options.

    Attributes:
        name: how messages name it.
        values: what it sets; `name` is the file.
    """

    name: str
    values: Mapping[str, Any]


def place_of_call(name: str, names: Sequence[Any], keywords: Mapping[str, Any]) -> Place:
    """Return what a marker, or a call of `mrtr_cassettes`, sets."""
    if len(names) > 1:
        raise UsageError(f"{name} takes one file name, and not {', '.join(map(repr, names))}")
    if not names:
        return Place(name, keywords)
    if not isinstance(names[0], str | os.PathLike):
        raise UsageError(f"{name} takes the name of a file, and not {names[0]!r}")
    if "://" in str(names[0]):
        raise UsageError(f"{name} takes the name of a file, and not a URL")
    return Place(name, {**keywords, "name": names[0]})


def settings_of(places: Sequence[Place]) -> Settings:
    """Return what several places say together.

    Args:
        places: from the farthest to the nearest.
    """
    merged: dict[str, Any] = {}
    for place in places:
        values = dict(place.values)
        name = values.pop("name", None)
        if name is not None:
            merged["name"] = name
        check_names(values, _NAMES, place.name)
        for option, value in values.items():
            merged[option] = _merged(place.name, option, merged.get(option), value)
    name, upstream = merged.pop("name", None), merged.pop("upstream", None)
    answers = merged.pop("answers", None)
    max_age = merged.pop("max_age", 0)
    recorded, replayed = options_of(RecordOptions), options_of(ReplayOptions)
    return Settings(
        name,
        upstream,
        RecordOptions(
            **{key: value for key, value in merged.items() if key in recorded},
            existing="append",
            terms=TERMS,
        ),
        ReplayOptions(
            **{key: value for key, value in merged.items() if key in replayed}, terms=TERMS
        ),
        max_age,
        VerifyOptions(
            **{key: value for key, value in merged.items() if key in options_of(VerifyOptions)}
            | {"ignore": ()},
            terms=TERMS,
        ),
        answers,
    )


def _merged(place: str, name: str, farther: Any, value: Any) -> Any:
    """Return what an option is, where a nearer place sets it too."""
    if name in ("answers", "upstream"):
        return value
    option = OPTIONS[name]
    try:
        value = checked(name, option, value)
    except UsageError as error:
        raise UsageError(f"{place}: {error.in_terms(TERMS)}") from None
    if farther is None:
        return value
    if option.kind == "list":
        return tuple(dict.fromkeys((*farther, *value)))
    if option.kind == "headers":
        set_again = {name.lower() for name, _ in value}
        return (*(pair for pair in farther if pair[0].lower() not in set_again), *value)
    return value
