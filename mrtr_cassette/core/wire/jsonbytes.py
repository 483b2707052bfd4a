"""JSON as bytes (RFC 8259): read exactly, compared by exact decimal value, changed by span."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import orjson

from mrtr_cassette.errors import NotJsonError

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_PLAIN_INTEGER = re.compile(r"-?(?:[1-9]\d{0,17}|0)")
_LONGEST_PLAIN = 20
"""Numbers are written out up to this many digits in the canonical form; others get an exponent."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was spelled; no `str`, so that nothing confuses `5` with `"5"`."""

    text: str


def _integer(text: str) -> int | Number:
    return int(text) if _PLAIN_INTEGER.fullmatch(text) else Number(text)


def _fraction(text: str) -> Number:
    try:
        _canonical_number(text)
    except ValueError as error:
        # What can't be compared can't be matched.
        raise NotJsonError(str(error)) from None
    return Number(text)


def _canonical_number(text: str) -> str:
    """Return the canonical spelling of a JSON number: `1`, `1.0` and `1e0` give `1`."""
    if _PLAIN_INTEGER.fullmatch(text):
        return "0" if text == "-0" else text
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, whole, fraction, exponent_text = match.groups()
    fraction = fraction or ""
    digits = (whole + fraction).lstrip("0")
    exponent = int(exponent_text or 0) - len(fraction) + len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    exponent -= len(digits)
    if 0 <= exponent <= _LONGEST_PLAIN - len(digits):
        return f"{sign}{digits}{'0' * exponent}"
    if -_LONGEST_PLAIN <= exponent < 0 and len(digits) <= _LONGEST_PLAIN:
        padded = digits.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{digits}e{exponent}"


MemberPath = tuple[str, ...]
"""The keys that lead to a member, from the outermost object inwards."""

_LEAST_UNPLAIN = 10**18
_SPACE = re.compile(r"[ \t\n\r]*")
DEEPEST = 200
"""The most levels of nesting that are read; Python's stack and orjson can take many more."""
_CANONICAL = (
    orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""Numbers that lose something are written here."""


class Span(NamedTuple):
    """Byte offsets of a value: the first byte and the one after the last."""

    start: int
    end: int


def _refuse_constant(name: str) -> Any:
    msg = f"{name} is no JSON value"
    raise NotJsonError(msg)


_decoder = json.JSONDecoder(
    parse_int=_integer, parse_float=_fraction, parse_constant=_refuse_constant, strict=True
)
# Where a value ends needs no number, and a body may have millions of them.
_ends = json.JSONDecoder(parse_int=float, parse_constant=_refuse_constant, strict=True)
_scan_value: Callable[[str, int], tuple[Any, int]] = _ends.scan_once  # type: ignore[attr-defined]


def parse(raw: bytes) -> Any:
    """Read one JSON text; the last of duplicate keys counts.

    Integers of up to 18 digits come as `int`, all other numbers as `Number`.

    Raises:
        NotJsonError: not UTF-8, a byte order mark, no JSON, nested too deeply to read, or a number
            whose exponent has thousands of digits.
    """
    try:
        # Much faster, and the same for all but some numbers. What it refuses may still be JSON.
        tree = orjson.loads(raw)
        levels, is_exact = _levels_and_exactness(tree)
    except orjson.JSONDecodeError:
        is_exact = False
    if not is_exact:
        try:
            tree = _decoder.decode(raw.decode())
        except (ValueError, RecursionError) as error:
            raise NotJsonError(str(error)) from None
        levels, _ = _levels_and_exactness(tree)
    if levels > DEEPEST:
        raise NotJsonError(f"nested deeper than {DEEPEST} levels")
    return tree


def is_deep(tree: Any) -> bool:
    """Tell whether a value has more levels of nesting than are read."""
    return _levels_and_exactness(tree)[0] > DEEPEST


def _levels_and_exactness(tree: Any) -> tuple[int, bool]:
    """Return how many levels a value has, and whether orjson reads all of its numbers exactly."""
    levels, is_exact = -1, True
    containers: list[Any] = [[tree]]
    # Level by level and without recursion: a call for each object would take longer than the rest.
    while containers:
        levels += 1
        inner: list[Any] = []
        for container in containers:
            for value in container.values() if type(container) is dict else container:
                kind = type(value)
                if kind is dict or kind is list:
                    inner.append(value)
                elif kind is float or (kind is int and abs(value) >= _LEAST_UNPLAIN):
                    is_exact = False
        containers = inner
    return levels, is_exact


def canonical(value: Any, *, without_null: bool = False) -> str:
    """Return the text that two values share if and only if they are the same value.

    Keys are ordered by code point, numbers written by their exact decimal value.
    """
    if value is None:
        return "null"
    try:
        text = orjson.dumps(value, option=_CANONICAL)
    except TypeError:
        pass
    else:
        # For printable ASCII the spelling is the one below.
        if text.isascii() and b"\x7f" not in text and not (without_null and b"null" in text):
            return text.decode()
    parts: list[str] = []
    _write_canonical(value, parts.append, without_null=without_null)
    return "".join(parts)


def _write_canonical(value: Any, write: Callable[[str], None], *, without_null: bool) -> None:
    if isinstance(value, Number):
        write(_canonical_number(value.text))
    elif type(value) is int:
        write(str(value))
    elif isinstance(value, str):
        write(encode_basestring_ascii(value))
    elif isinstance(value, dict):
        separator = "{"
        for key in sorted(value):
            if without_null and value[key] is None:
                continue
            write(separator)
            write(encode_basestring_ascii(key))
            write(":")
            _write_canonical(value[key], write, without_null=without_null)
            separator = ","
        write("{}" if separator == "{" else "}")
    elif isinstance(value, list):
        separator = "["
        for item in value:
            write(separator)
            _write_canonical(item, write, without_null=without_null)
            separator = ","
        write("[]" if separator == "[" else "]")
    else:
        write("null" if value is None else "true" if value else "false")


def find_spans(raw: bytes, paths: Collection[MemberPath]) -> dict[MemberPath, list[Span]]:
    """Return the spans of the values at some paths, every one of a duplicate key.

    Raises:
        NotJsonError: `raw` is no JSON.
    """
    # One byte is one character in Latin-1, so the decoder's offsets are byte offsets, and all
    # that delimits JSON is ASCII.
    text = raw.decode("latin-1")
    spans: dict[MemberPath, list[Span]] = {}
    try:
        _collect_spans(text, _skip_space(text, 0), frozenset(paths), (), spans)
    except (StopIteration, ValueError, IndexError, TypeError, RecursionError) as error:
        raise NotJsonError(str(error)) from None
    return spans


def spelled_at(raw: bytes, path: MemberPath) -> bytes | None:
    """Return the value at a path as it is spelled; of duplicate keys the last one counts.

    Raises:
        NotJsonError: `raw` is no JSON.
    """
    spans = find_spans(raw, [path]).get(path)
    return raw[spans[-1].start : spans[-1].end] if spans else None


def _skip_space(text: str, index: int) -> int:
    match = _SPACE.match(text, index)
    return match.end() if match else index


def _collect_spans(
    text: str,
    index: int,
    paths: frozenset[MemberPath],
    at: MemberPath,
    spans: dict[MemberPath, list[Span]],
) -> int:
    depth = len(at)
    deeper = {path[depth] for path in paths if len(path) > depth}
    if at in paths or not deeper or text[index] != "{":
        end = _scan_value(text, index)[1]
        if at in paths:
            spans.setdefault(at, []).append(Span(index, end))
        return end
    index = _skip_space(text, index + 1)
    while text[index] != "}":
        key, index = _scan_value(text, index)
        index = _skip_space(text, _skip_space(text, index) + 1)
        if key in deeper:
            here = (*at, key)
            below = frozenset(path for path in paths if path[: depth + 1] == here)
            index = _collect_spans(text, index, below, here, spans)
        else:
            index = _scan_value(text, index)[1]
        index = _skip_space(text, index)
        if text[index] == ",":
            index = _skip_space(text, index + 1)
    return index + 1


def splice(raw: bytes, replacements: Sequence[tuple[Span, bytes]]) -> bytes:
    """Replace the bytes of each span, leaving all others."""
    if not replacements:
        return raw
    parts: list[bytes] = []
    at = 0
    for span, new in sorted(replacements):
        parts += (raw[at : span.start], new)
        at = span.end
    parts.append(raw[at:])
    return b"".join(parts)


def replace_members(raw: bytes, at: MemberPath, members: Mapping[str, bytes | None]) -> bytes:
    """Give members of an object other values, leaving all other bytes.

    A member that exists gets its new value in its place, every one of a duplicate key. A new one
    is added at the end.

    Raises:
        NotJsonError: `raw` is no JSON, or there is something other than an object at the path.
    """
    replacements: list[tuple[Span, bytes]] = []
    for span in find_spans(raw, [at]).get(at, []):
        if raw[span.start : span.start + 1] != b"{":
            raise NotJsonError("no object")
        replacements += _replacements_in(list(_parts_of(raw, span)), span, members)
    return splice(raw, replacements)


class _Member(NamedTuple):
    name: str
    start: int
    value: Span


def _replacements_in(
    existing: Sequence[_Member], of: Span, members: Mapping[str, bytes | None]
) -> Iterator[tuple[Span, bytes]]:
    kept = [member for member in existing if members.get(member.name, b"") is not None]
    for member, following in pairwise(existing):
        new = members.get(member.name, b"")
        # A member goes with the comma after it, the last ones with the comma before them.
        if new is None and kept and member.start < kept[-1].start:
            yield Span(member.start, following.start), b""
    for member in kept:
        if new := members.get(member.name):
            yield member.value, new
    names = {member.name for member in existing}
    added = [
        b"%s:%s" % (encode_basestring_ascii(name).encode(), value)
        for name, value in members.items()
        if value is not None and name not in names
    ]
    if kept:
        start, added = kept[-1].value.end, [b"", *added]
    else:
        start = existing[0].start if existing else of.start + 1
    end = existing[-1].value.end if existing else start
    yield Span(start, end), b",".join(added)


def name_spans(raw: bytes, of: Span) -> list[Span]:
    """Return the spans of the names in the object at a span, in order."""
    text = raw.decode("latin-1")
    starts = [each.start for each in _parts_of(raw, of)]
    return [Span(start, _scan_value(text, start)[1]) for start in starts]


def item_spans(raw: bytes, of: Span) -> list[Span]:
    """Return the spans of the items of the array at a span, in order."""
    return [item.value for item in _parts_of(raw, of)]


def _parts_of(raw: bytes, of: Span) -> Iterator[_Member]:
    """Yield the members of the object, or the items of the array, at a span."""
    text = raw.decode("latin-1")
    is_object = text[of.start] == "{"
    index = _skip_space(text, of.start + 1)
    while text[index] not in "}]":
        start, name = index, ""
        if is_object:
            name, index = _scan_value(text, index)
            index = _skip_space(text, _skip_space(text, index) + 1)
        end = _scan_value(text, index)[1]
        yield _Member(name, start, Span(index, end))
        index = _skip_space(text, end)
        if text[index] == ",":
            index = _skip_space(text, index + 1)
