"""Typed matchers: values that may differ from the recorded ones, if both are of a kind."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import REQUEST_STATE
from mrtr_cassette.core.protocol.jsonrpc import Kind, LocatedMessage
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.secrets.shapes import whole_matcher
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Number,
    Span,
    canonical,
    parse,
    spans_of_values,
    splice,
)
from mrtr_cassette.core.wire.pointers import ANY, pointer_path, without_side
from mrtr_cassette.errors import UsageError

ANY_DEPTH: Final = "**"
"""In a path, any number of members and items, also none."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
RFC3339: Final = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[T ]"
    r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)",
    re.ASCII | re.IGNORECASE,
)
_ECHOING_MEMBERS: Final = (("text",), ("message",))
"""Members outside of structured content that may repeat a value of the caller as a whole."""


def _is_number(value: Any) -> bool:
    """Tell whether a value is a JSON number; a boolean is none."""
    return type(value) is int or isinstance(value, Number)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_anything(_value: Any) -> bool:
    return True


def _test_of_matching_text(matches: Callable[[str], object]) -> Callable[[Any], bool]:
    """Return a function that tells whether a value is a text that fulfils a condition."""

    def is_matching_text(value: Any) -> bool:
        return isinstance(value, str) and bool(matches(value))

    return is_matching_text


_TEST_BY_KIND: Final[Mapping[str, Callable[[Any], bool]]] = {
    "uuid": _test_of_matching_text(_UUID.fullmatch),
    "rfc3339": _test_of_matching_text(RFC3339.fullmatch),
    "number": _is_number,
    "string": _is_text,
    "any": _is_anything,
}


class Matcher(NamedTuple):
    """A place in the params of requests, and the kind of value that matches there."""

    pointer: str
    path: MemberPath
    kind: str
    accepts: Callable[[Any], bool]

    def __str__(self) -> str:
        """Return it as a user gives it."""
        return f"{self.pointer}={self.kind}"


def read_matchers(kind_by_pointer: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return the matchers that a user gives by pointer.

    Raises:
        UsageError: a pointer or a kind can't be meant.
    """
    matchers = []
    for pointer, kind in kind_by_pointer.items():
        try:
            path = pointer_path(without_side(pointer, "params"))
        except ValueError:
            raise UsageError(
                f"<<match>> {pointer!r} is not a JSON Pointer",
                hint="it begins with a slash, such as /arguments/id or /arguments/**",
            ) from None

        matchers.append(Matcher(pointer, path, kind, _test_of_kind(pointer, kind)))

    return tuple(matchers)


def _test_of_kind(pointer: str, kind: str) -> Callable[[Any], bool]:
    """Return what tells whether a value is of a kind."""
    if kind in _TEST_BY_KIND:
        return _TEST_BY_KIND[kind]

    pattern = kind[1:-1]
    if not pattern or kind[0] != "/" or kind[-1] != "/":
        close_kinds = difflib.get_close_matches(kind, _TEST_BY_KIND, n=1)
        hint = f"the kinds are {', '.join(_TEST_BY_KIND)} and /regex/"
        if close_kinds:
            hint = f"did you mean {close_kinds[0]!r}? {hint}"

        raise UsageError(
            f"<<match>> {pointer!r}: no kind is called {kind!r}", hint=hint
        )

    try:
        return _test_of_matching_text(whole_matcher(pattern))
    except ValueError as error:
        raise UsageError(
            f"<<match>> {pointer!r}: {kind} is not a regular expression: {error}"
        ) from None


class MatcherPlace(NamedTuple):
    """A value of a request at the place of a matcher."""

    path: MemberPath
    matcher: Matcher
    span: Span
    value: Any

    @property
    def is_of_kind(self) -> bool:
        """Whether the value may be another one of its kind."""
        return self.matcher.accepts(self.value)

    @property
    def compared_text(self) -> str | None:
        """The text that stands for the value where requests are compared; None if it stays."""
        name = f"<{self.matcher.kind}>"
        if self.is_of_kind:
            return name
        if isinstance(self.value, str) and self.value.startswith(name):
            # It only looks as if it stood for another value.
            return f"{self.value}'"

        return None


class Matchers:
    """The matchers of a replay, and which of them were of use."""

    def __init__(self, matchers: Sequence[Matcher], *, echo: bool = False) -> None:
        """Take matchers; with `echo`, responses repeat the caller's values."""
        self.echo = echo
        self._matchers = matchers
        self._used_matchers: set[Matcher] = set()

    def for_another_play(self) -> Matchers:
        """Return the same matchers for another play."""
        matchers = Matchers(self._matchers, echo=self.echo)
        matchers._used_matchers = set(self._used_matchers)
        return matchers

    def places_with_matcher(self, request: Request) -> list[MatcherPlace]:
        """Return the values of a request at whose places there are matchers."""
        call = read_call(request)
        message = call.message
        if message is None:
            return []

        outer_member = "params"
        excluded_members = ["_meta", REQUEST_STATE, method_of(message.method).named_by]
        if message.kind is Kind.RESPONSE:
            outer_member = "result"
            excluded_members = []

        places: list[MatcherPlace] = []
        end_of_last_place = 0
        for path, span in spans_of_values(request.body):
            if len(path) < 2 or path[0] != outer_member or path[1] in excluded_members:
                continue
            if span.start < end_of_last_place:
                continue

            matcher = self._matcher_at(path[1:])
            if matcher is None:
                continue

            value = parse(span.slice_of(request.body))
            if isinstance(value, dict | list) and not matcher.accepts(value):
                continue

            self._used_matchers.add(matcher)
            places.append(MatcherPlace(path, matcher, span, value))
            end_of_last_place = span.end

        return places

    def _matcher_at(self, path: MemberPath) -> Matcher | None:
        """Return the first matcher of a place."""
        for matcher in self._matchers:
            if _path_matches(path, matcher.path):
                return matcher

        return None

    def comparable_request(self, request: Request) -> Request:
        """Return a request as it is compared: kinds stand in the places of their values."""
        replacements = []
        for place in self.places_with_matcher(request):
            if place.compared_text is not None:
                text = json.dumps(place.compared_text).encode()
                replacements.append((place.span, text))

        if not replacements:
            return request

        return replace(request, body=splice(request.body, replacements))

    def matchers_of_differences(
        self, recorded_request: Request, received_request: Request
    ) -> list[str]:
        """Return the matchers of the values in which a request differs from a recorded one."""
        pairs = self._differing_places(recorded_request, received_request)
        return [str(place.matcher) for _, place in pairs]

    def differing_values(
        self, recorded_request: Request, received_request: Request
    ) -> list[tuple[Any, Any]]:
        """Return the recorded values in whose places a request has others of their kind."""
        pairs = self._differing_places(recorded_request, received_request)
        return [(value, place.value) for value, place in pairs]

    def _differing_places(
        self, recorded_request: Request, received_request: Request
    ) -> Iterator[tuple[Any, MatcherPlace]]:
        """Yield each recorded value in whose place a request has another one of its kind."""
        recorded_value_by_path = {
            place.path: place.value
            for place in self.places_with_matcher(recorded_request)
        }
        for place in self.places_with_matcher(received_request):
            if place.path not in recorded_value_by_path or not place.is_of_kind:
                continue

            recorded_value = recorded_value_by_path[place.path]
            if canonical(recorded_value) != canonical(place.value):
                yield recorded_value, place

    def unused_matchers(self) -> list[str]:
        """Return the matchers at whose places nothing was, recorded or received."""
        return [
            str(matcher)
            for matcher in self._matchers
            if matcher not in self._used_matchers
        ]

    # What responses repeat

    def echoed_spellings(
        self, recorded_request: Request, received_request: Request
    ) -> dict[str, bytes]:
        """Return how the caller spells each value that it sent in the place of a recorded one.

        A recorded value in whose places the caller has several is left out.
        """
        spelled_by_path: dict[MemberPath, bytes] = {}
        for place in self.places_with_matcher(received_request):
            span = place.span
            spelled_by_path[place.path] = span.slice_of(received_request.body)

        spelling_by_name: dict[str, bytes] = {}
        ambiguous_names = set()
        for name, path in self._replaceable_values_of(recorded_request):
            if path not in spelled_by_path:
                continue

            spelling = spelled_by_path[path]
            if spelling_by_name.setdefault(name, spelling) != spelling:
                ambiguous_names.add(name)

        for name in ambiguous_names:
            del spelling_by_name[name]

        return spelling_by_name

    def _replaceable_values_of(
        self, recorded_request: Request
    ) -> list[tuple[str, MemberPath]]:
        """Return the texts and numbers for which others may come, with their names."""
        names_and_paths = []
        for place in self.places_with_matcher(recorded_request):
            if place.is_of_kind and (_is_text(place.value) or _is_number(place.value)):
                names_and_paths.append((f"={canonical(place.value)}", place.path))

        return names_and_paths

    def spans_repeating_values(
        self, recorded_request: Request, located: LocatedMessage
    ) -> list[tuple[Span, str]]:
        """Return where a message repeats recorded values as a whole, and the names of these."""
        if not self.echo:
            return []

        names = {name for name, _ in self._replaceable_values_of(recorded_request)}
        if not names:
            return []

        raw = located.message.raw
        spans_and_names = []
        for path, span in spans_of_values(raw):
            is_structured = "structuredContent" in path[:-1]
            may_repeat_value = is_structured or path[-1:] in _ECHOING_MEMBERS
            if not may_repeat_value or raw[span.start] in b"{[":
                continue

            name = f"={canonical(parse(span.slice_of(raw)))}"
            if name in names:
                spans_and_names.append((span, name))

        return spans_and_names


@lru_cache(maxsize=4096)
def _path_matches(path: MemberPath, pattern: MemberPath) -> bool:
    """Tell whether a path is one of those that a pattern means."""
    if not pattern:
        return not path

    if pattern[0] == ANY_DEPTH:
        possible_rests = [path[start:] for start in range(len(path) + 1)]
        return any(_path_matches(rest, pattern[1:]) for rest in possible_rests)

    if not path or pattern[0] not in (ANY, path[0]):
        return False

    return _path_matches(path[1:], pattern[1:])


def matcher_kinds_by_pointer(texts: Sequence[str]) -> dict[str, str]:
    """Return what is given as POINTER=KIND by pointer.

    Raises:
        UsageError: a text has no kind.
    """
    kind_by_pointer = {}
    for text in texts:
        pointer, equals, kind = text.rpartition("=")
        if text.endswith("/") and "=/" in text:
            pointer, equals, kind = text.partition("=/")
            kind = f"/{kind}"

        if not equals:
            raise UsageError(
                f"<<match>> {text!r} has no kind",
                hint="give it as POINTER=KIND, such as /arguments/id=uuid",
            )

        kind_by_pointer[pointer] = kind

    return kind_by_pointer
