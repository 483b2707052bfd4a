"""The options of a test's cassette, from all places that set them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import (
    AnyOptions,
    Option,
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
    check_names,
    checked_value,
    options_of,
)
from mrtr_cassette.terms import Terms
from mrtr_cassette.testing.suite_cassette import Settings

_NOT_FOR_SUITES = (
    "log",
    "admin_port",
    "max_body",
    "existing",
    "stateless",
    "beside",
    "answers",
    "only",
    "learn",
    "allow_destructive",
    "timeout",
)
"""The options on which the mode, pytest itself and the fixture decide."""


def _suite_options() -> dict[str, Option]:
    """Return the options that a test suite can set; `ignore` is the one for requests."""
    options_by_name: dict[str, Option] = {}
    for kind in (VerifyOptions, RecordOptions, ReplayOptions):
        options_by_name.update(options_of(kind))

    for name in _NOT_FOR_SUITES:
        options_by_name.pop(name, None)

    # Whatever it is, a test with a miss fails.
    options_by_name["on_miss"] = options_by_name["on_miss"]._replace(of_programs=())
    options_by_name["max_age"] = Option(
        "number",
        "Days after which a cassette is old: mode once records it anew, the other modes that "
        "replay it warn; 0: never",
    )

    options_by_name["mode"] = Option(
        "choice",
        "verify: the test runs against its upstream, and fails where anything differs from the "
        "cassette, unless --mrtr-mode says otherwise",
        choices=("verify",),
    )

    return options_by_name


OPTIONS: Final[Mapping[str, Option]] = _suite_options()
OPTION_NAMES: Final = ("upstream", *OPTIONS, "answers")


class OptionSource(NamedTuple):
    """One place that sets options and files, and the name that messages have for it."""

    name: str
    values: Mapping[str, Any]
    files: tuple[str | os.PathLike[str], ...] = ()


def option_source_of_call(
    name: str, names: Sequence[Any], keywords: Mapping[str, Any]
) -> OptionSource:
    """Return what a marker, or a call of `mrtr_cassettes`, sets.

    Raises:
        UsageError: they are not the name of one file, and `cassette` does not name files.
    """
    options = dict(keywords)
    files: Any = names
    if len(names) > 1:
        problem = f"{name} takes one file name, and not {', '.join(map(repr, names))}"
        raise UsageError(problem)
    if not names and "cassette" in options:
        files = options.pop("cassette")
        if not files or not isinstance(files, list | tuple):
            files = [files]

    for file in files:
        if not isinstance(file, str | os.PathLike):
            raise UsageError(f"{name} takes the name of a file, and not {file!r}")
        if "://" in str(file):
            raise UsageError(f"{name} takes the name of a file, and not a URL")
        if os.path.normpath(file) in (".", ".."):
            raise UsageError(f"{name} takes the name of a file, and not {file!r}")

    return OptionSource(name, options, tuple(files))


def combined_options(sources: Sequence[OptionSource], terms: Terms) -> dict[str, Any]:
    """Return the options that several places set, from the farthest to the nearest.

    The nearest has the last word; lists and headers of all places add up.

    Raises:
        UsageError: an option is unknown, or its value can't be meant.
    """
    values: dict[str, Any] = {}
    for source in sources:
        check_names(source.values, OPTION_NAMES, source.name)
        if source.files:
            values["name"] = source.files[0]
            values["beside"] = [str(file) for file in source.files[1:]]

        for option, value in source.values.items():
            farther_value = values.get(option)
            try:
                values[option] = _merged_option(option, farther_value, value)
            except UsageError as error:
                text = f"{source.name}: {error.in_terms(terms)}"
                raise UsageError(text) from None

    return values


def settings_from(values: Mapping[str, Any], terms: Terms) -> Settings:
    """Return the settings of a test's cassette with these options; messages have these terms."""

    def options_of_kind(kind: type[AnyOptions], **overriding: Any) -> AnyOptions:
        """Return options of this kind with the values that it knows, but for overriding ones."""
        options = {"terms": terms}
        for name in options_of(kind):
            if name in values:
                options[name] = values[name]

        return kind(**options | overriding)

    return Settings(
        values.get("name"),
        values.get("upstream"),
        record=options_of_kind(
            RecordOptions, existing="append", ignore_from=None, answers=None
        ),
        replay=options_of_kind(ReplayOptions),
        verify=options_of_kind(VerifyOptions),
        max_age=values.get("max_age", 0),
        # Those of the marker are for calls without a client.
        answers=values.get("answers"),
        mode=values.get("mode"),
    )


def _merged_option(name: str, farther_value: Any, value: Any) -> Any:
    """Return what an option is, where a nearer place sets it too."""
    if name not in OPTIONS:
        return farther_value if value is None else value

    option = OPTIONS[name]
    value = checked_value(name, option, value)
    if farther_value is None:
        return value
    if option.kind == "list":
        return tuple(dict.fromkeys((*farther_value, *value)))
    if option.kind in ("faults", "values"):
        return (*farther_value, *value)

    if option.kind == "headers":
        names_set_again = {name.lower() for name, _ in value}
        farther_pairs = [
            pair for pair in farther_value if pair[0].lower() not in names_set_again
        ]
        return (*farther_pairs, *value)

    # The kinds of values that match add up too, unless it is a function.
    has_kinds = isinstance(farther_value, Mapping) and isinstance(value, Mapping)
    return {**farther_value, **value} if has_kinds else value
