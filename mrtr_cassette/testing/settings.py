"""The options of a test's cassette, from ini file to marker, and its file."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from mrtr_cassette.errors import MrtrCassetteError, UsageError
from mrtr_cassette.options import (
    AnyOptions,
    Option,
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
    check_names,
    checked,
    options_of,
)
from mrtr_cassette.terms import (
    RECORDING,
    SHELL_TERMS,
    SUITE_TERMS,
    SUITE_TERMS_WITHOUT_UPSTREAM,
)
from mrtr_cassette.testing.suite_cassette import Settings

_NOT_FOR_SUITES = (
    "log",
    "admin_port",
    "max_body",
    "existing",
    "stateless",
    "beside",
    "on_miss",
    "answers",
    "only",
    "learn",
    "allow_destructive",
    "timeout",
)
"""The options on which the mode, pytest itself and the fixture decide."""


def _options() -> dict[str, Option]:
    """Return the options that a test suite can set; `ignore` is the one for requests."""
    found: dict[str, Option] = {}
    for kind in (VerifyOptions, RecordOptions, ReplayOptions):
        found |= options_of(kind)
    for name in _NOT_FOR_SUITES:
        found.pop(name, None)
    found["max_age"] = Option(
        "number",
        "Days after which a cassette is old: mode once records it anew, the other modes that "
        "replay it warn; 0: never",
    )
    found["mode"] = Option(
        "choice",
        "verify: the test runs against its upstream, and fails where anything differs from the "
        "cassette, unless --mrtr-mode says otherwise",
        choices=("verify",),
    )
    return found


OPTIONS: Final[Mapping[str, Option]] = _options()
_NAMES = ("upstream", *OPTIONS, "answers")


class Place(NamedTuple):
    """One place that sets options, and the name that messages have for it; `name` is the file."""

    name: str
    values: Mapping[str, Any]


def place_of_call(
    name: str, names: Sequence[Any], keywords: Mapping[str, Any]
) -> Place:
    """Return what a marker, or a call of `mrtr_cassettes`, sets."""
    if "cassette" in keywords and not names:
        further = dict(keywords)
        named = further.pop("cassette")
        if isinstance(named, str | os.PathLike):
            return place_of_call(name, [named], further)
        first, *beside = named
        if beside:
            further["beside"] = [*map(str, beside)]
        return place_of_call(name, [first], further)
    if len(names) > 1:
        raise UsageError(
            f"{name} takes one file name, and not {', '.join(map(repr, names))}"
        )
    if not names:
        return Place(name, keywords)
    file = names[0]
    if not isinstance(file, str | os.PathLike):
        raise UsageError(f"{name} takes the name of a file, and not {file!r}")
    if "://" in str(file):
        raise UsageError(f"{name} takes the name of a file, and not a URL")
    return Place(name, {**keywords, "name": file})


def settings_of(
    places: Sequence[Place], test: str = "", *, has_upstream: bool = True
) -> Settings:
    """Return what several places say together, from the farthest to the nearest.

    The nearest has the last word; lists and headers of all places add up.

    Args:
        test: what pytest is given to run the test again.
        has_upstream: the suite may name an upstream elsewhere.
    """
    merged: dict[str, Any] = {}
    for place in places:
        names = [name for name in place.values if name not in ("name", "beside")]
        check_names(names, _NAMES, place.name)
        for option, value in place.values.items():
            merged[option] = _merged(place.name, option, merged.get(option), value)

    # Those of the marker are for calls without a client.
    answers = merged.pop("answers", None)
    merged["terms"] = _terms(
        test,
        has_upstream=has_upstream or "upstream" in merged,
        is_named="name" in merged,
        is_beside=bool(merged.get("beside")),
    )

    def chosen(kind: type[AnyOptions], **fixed: Any) -> AnyOptions:
        values = {}
        for name in ("terms", *options_of(kind)):
            if name in merged:
                values[name] = merged[name]
        return kind(**values | fixed)

    return Settings(
        merged.get("name"),
        merged.get("upstream"),
        record=chosen(RecordOptions, existing="append", ignore_from=None),
        replay=chosen(ReplayOptions),
        verify=chosen(VerifyOptions),
        max_age=merged.get("max_age", 0),
        answers=answers,
        mode=merged.get("mode"),
    )


def _terms(
    test: str, *, has_upstream: bool, is_named: bool, is_beside: bool
) -> dict[str, str]:
    """Return the terms of messages for a test, which may play several cassettes as one."""
    terms = {**SUITE_TERMS, "test": ""}
    if not has_upstream:
        terms |= SUITE_TERMS_WITHOUT_UPSTREAM
    if test:
        terms["test"] = f" {shlex.quote(test)}"
    if is_named:
        # Other tests may use it, so only a run of all replaces it.
        for name in RECORDING:
            if name.endswith("_again"):
                terms[name] = terms[name].replace("<<test>>", "")
    if is_beside:
        # Several cassettes are recorded one by one.
        for name in RECORDING:
            terms[name] = SHELL_TERMS[name]
    return terms


def _merged(place: str, name: str, farther: Any, value: Any) -> Any:
    """Return what an option is, where a nearer place sets it too."""
    if name not in OPTIONS:
        return farther if value is None else value
    option = OPTIONS[name]
    try:
        value = checked(name, option, value)
    except UsageError as error:
        raise UsageError(f"{place}: {error.in_terms(SUITE_TERMS)}") from None
    if farther is None:
        return value
    if option.kind == "list":
        return tuple(dict.fromkeys((*farther, *value)))
    if option.kind == "headers":
        set_again = {name.lower() for name, _ in value}
        kept = [pair for pair in farther if pair[0].lower() not in set_again]
        return (*kept, *value)
    return value


MARKER: Final = "mrtr_cassette"
"""The marker that says of a test what its cassette is."""

FIXTURES: Final[dict[str, Any]] = {
    "mrtr_cassette": pytest.Function,
    "mrtr_cassette_class": pytest.Class,
    "mrtr_cassette_module": pytest.Module,
    "mrtr_cassette_session": pytest.Session,
}
"""The fixtures that give a test its cassette, and what each one's cassette belongs to."""

_LONGEST_NAME = 120
"""Characters of a file name's readable part; file systems take 255 bytes."""


def marked(node: pytest.Item | pytest.Collector) -> list[Place]:
    """Return what the markers of a test, class or module set, from the farthest to the nearest."""
    marks = reversed(list(node.iter_markers(MARKER)))
    return [
        place_of_call(f"the marker {MARKER}", mark.args, mark.kwargs) for mark in marks
    ]


def cassettes_of(items: Iterable[pytest.Item]) -> dict[Path, list[str]]:
    """Return the cassettes that tests have by their fixtures, with the ids of these tests."""
    tests: dict[Path, list[str]] = {}
    for item in items:
        for fixture, kind in FIXTURES.items():
            if fixture not in getattr(item, "fixturenames", ()):
                continue
            # Outside of a class its fixture belongs to the test.
            node: Any = item.getparent(kind) or item
            named = None
            try:
                for place in marked(node):
                    if place.values.get("name") is not None:
                        named = place.values["name"]
            except MrtrCassetteError:
                continue  # the test itself will say so
            tests.setdefault(cassette_path(node, named), []).append(item.nodeid)
    return tests


def hint_at_rename(path: Path, items: Iterable[pytest.Item]) -> str:
    """Return a line about an unused cassette whose test may have been renamed, or nothing."""
    used = cassettes_of(items)
    unused = {
        _short_name(file): file
        for file in path.parent.glob("*.json")
        if file not in used
    }
    for name in difflib.get_close_matches(_short_name(path), unused, n=1):
        old = unused[name]
        return f"\nno test uses {old}; if this one was renamed: mv {old} {path}"
    return ""


def _short_name(path: Path) -> str:
    return path.stem.removeprefix("test_")


def cassette_path(node: Any, name: str | os.PathLike[str] | None) -> Path:
    """Return the file of a test's, a class's, a module's or a whole run's cassette."""
    folder = cassette_folder(node)
    if name is not None:
        path = folder / name
        return path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    if isinstance(node, pytest.Session):
        return folder / "session.json"
    module = _module(node)
    if isinstance(node, pytest.Module):
        return folder / f"{module}.json"
    classes = [part for part in node.listchain() if isinstance(part, pytest.Class)]
    names = [part.name for part in classes]
    if not isinstance(node, pytest.Class):
        names.append(node.name)
    return folder / module / f"{file_name('.'.join(names))}.json"


def cassette_folder(node: Any) -> Path:
    """Return the folder of the cassettes of a test file, or of a whole run."""
    one_for_all = node.config.getini("mrtr_cassette_dir")
    if one_for_all:
        return Path(node.config.rootpath / one_for_all)
    if isinstance(node, pytest.Session):
        return Path(node.config.rootpath / "cassettes")
    return Path(node.path).parent / "cassettes"


def _module(node: Any) -> Path:
    """Return a test file as a part of its cassettes' path: two of one name are told apart."""
    path = Path(node.path).with_suffix("")
    root = node.config.rootpath
    if node.config.getini("mrtr_cassette_dir") and path.is_relative_to(root):
        return path.relative_to(root)
    return Path(path.name)


def file_name(name: str) -> str:
    """Return the name of a test's own cassette, without `.json`.

    `test_deploy[prod]` becomes `test_deploy-prod`. A hash follows where the readable part does not
    tell tests apart on every file system: other characters than ASCII letters, digits, `_`, `-`
    and `.`, capitals in a parameter, or a long name.
    """
    function, bracket, parameters = name.partition("[")
    plain = f"{function}-{parameters.removesuffix(']')}" if bracket else function
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:_LONGEST_NAME]
    if safe == plain and parameters == parameters.lower():
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe}-{digest[:10]}"
