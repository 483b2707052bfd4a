"""JSON as bytes (RFC 8259): read exactly, compared by exact decimal value, changed by span.

What tolerant clients read although it is no JSON is read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice, zip_longest
from typing import Any, AnyStr, Final, NamedTuple

import orjson

from mrtr_cassette.errors import NotJsonError

DEEPEST_NESTING: Final = 200
"""The most levels of nesting that are read; Python's stack and orjson can take many more."""

_NUMBER_PARTS = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_PLAIN_INTEGER = re.compile(r"-?(?:[1-9]\d{0,17}|0)")
_DIGITS_OF_SHORT_INTEGER = 18
_DIGITS_OF_ANY_INTEGER = 640
"""Digits that Python makes an integer of, however few it is told to."""

_MOST_WRITTEN_OUT_DIGITS = 20
"""Numbers are written out up to this many digits in the canonical form; others get an exponent."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was spelled; no `str`, so that nothing confuses `5` with `"5"`."""

    text: str


def decimal_of(value: Any) -> Decimal | None:
    """Return the exact value of a number; None for one out of all bounds, or any other value."""
    if isinstance(value, Number):
        spelled_number = value.text
    elif isinstance(value, int | float) and not isinstance(value, bool):
        spelled_number = str(value)
    else:
        return None

    try:
        return Decimal(spelled_number)
    except InvalidOperation:
        return None


def _short_integer_or_number(text: str) -> int | Number:
    """Return an integer of up to 18 digits as `int`, and a longer one as it was spelled."""
    if len(text) <= _DIGITS_OF_SHORT_INTEGER or _PLAIN_INTEGER.fullmatch(text):
        return int(text)
    return Number(text)


def _exact_number(text: str) -> Number:
    """Return a number as it was spelled, and refuse a long one that can't be compared."""
    if len(text) > _DIGITS_OF_ANY_INTEGER:
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

    match = _NUMBER_PARTS.fullmatch(text)
    if match is None:
        raise ValueError(text)

    sign, whole, fraction, exponent_text = match.groups()
    fraction = fraction or ""
    digits = (whole + fraction).rstrip("0")
    # Of the number that the digits are without a point.
    exponent = int(exponent_text or 0) + len(whole) - len(digits)
    digits = digits.lstrip("0")
    if not digits:
        return "0"

    if 0 <= exponent <= _MOST_WRITTEN_OUT_DIGITS - len(digits):
        return f"{sign}{digits}{'0' * exponent}"

    is_short_fraction = -_MOST_WRITTEN_OUT_DIGITS <= exponent < 0
    if is_short_fraction and len(digits) <= _MOST_WRITTEN_OUT_DIGITS:
        padded_digits = digits.rjust(1 - exponent, "0")
        return f"{sign}{padded_digits[:exponent]}.{padded_digits[exponent:]}"

    return f"{sign}{digits}e{exponent}"


MemberPath = tuple[str, ...]
"""The keys that lead to a member, from the outermost object inwards."""

_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789eE,[", b"000000000..::")
"""Makes 0 of digits, a point of marks within a number, and a colon of what precedes a value."""

_BETWEEN_COLON_AND_NUMBER = b" \t\n\r-"
"""What may be between a number and the `:` that comes before it, after `_DIGITS_AS_ZEROS`."""

_LEAST_LONG_NUMBER = 10**18
_LEAST_LONG_DIGITS = b":" + b"0" * 19
_FRACTION = re.compile(rb":0+\.")

_SMALL_TEXT_BYTES = 4096
"""Bytes up to which reading a text again is faster than looking at all of its values."""

_ALL_BUT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_PASSES_OVER_INNERMOST_LEVELS = 5
"""How often the innermost levels of a text are taken away before the others are counted."""

_CONTAINER_TYPES = frozenset({dict, list})
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")
_CANONICAL_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""Numbers that lose something are written here."""


class Span(NamedTuple):
    """Byte offsets of a value: the first byte and the one after the last."""

    start: int
    end: int

    def slice_of(self, text: AnyStr) -> AnyStr:
        """Return what a text has there."""
        return text[self.start : self.end]

    def moved(self, offset: int) -> Span:
        """Return the same place in a text in which this one begins at an offset."""
        return Span(self.start + offset, self.end + offset)


def _refuse_constant(name: str) -> Any:
    """Refuse `NaN` and the infinities, which Python's decoder would read."""
    msg = f"{name} is not a JSON value"
    raise NotJsonError(msg)


_json_decoder = json.JSONDecoder(
    parse_int=_short_integer_or_number,
    parse_float=_exact_number,
    parse_constant=_refuse_constant,
    strict=True,
)
# Where a value ends needs no number, and a body may have millions of them.
_scanning_decoder = json.JSONDecoder(
    parse_int=float, parse_constant=_refuse_constant, strict=True
)
_scan_value: Callable[[str, int], tuple[Any, int]] = _scanning_decoder.scan_once  # type: ignore[attr-defined]


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
        is_exact = _is_exact(raw, tree)
    except orjson.JSONDecodeError:
        is_exact = False

    if not is_exact:
        try:
            tree = _json_decoder.decode(raw.decode())
        except (ValueError, RecursionError) as error:
            raise NotJsonError(str(error)) from None

    if _may_be_deep(raw) and is_deep(tree):
        raise NotJsonError(f"nested deeper than {DEEPEST_NESTING} levels")

    return tree


def parse_tolerantly(raw: bytes) -> Any:
    """Read JSON as the most tolerant of clients do: `NaN`, a trailing comma, text of any encoding.

    What `parse` reads it reads alike. Words and values that are no JSON come as strings.

    Raises:
        NotJsonError: no client can read it.
    """
    try:
        return parse(raw)
    except NotJsonError:
        return parse(repaired_json(raw).decode("utf-8", "replace").encode())


def is_json(raw: bytes) -> bool:
    """Tell, quickly, whether every client can read a text as JSON."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False

    return True


def _may_be_deep(raw: bytes) -> bool:
    """Tell, quickly, whether a JSON text may have more levels of nesting than are read."""
    if raw.count(b"{") + raw.count(b"[") <= DEEPEST_NESTING:
        return False

    without_escapes = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Quotes stay, so that a bracket in a string never meets one of the structure.
    marks = without_escapes.translate(None, _ALL_BUT_MARKS)
    for _ in range(_PASSES_OVER_INNERMOST_LEVELS):
        # The innermost level, or two.
        marks = marks.replace(b'""', b"").replace(b"{}", b"").replace(b"[]", b"")

    # At most every second one opens a level.
    return len(marks) > DEEPEST_NESTING


def is_deep(tree: Any) -> bool:
    """Tell whether a value has more levels of nesting than are read."""
    # The first one is not the value's own.
    too_deep_levels = islice(_containers_by_level(tree), DEEPEST_NESTING + 1, None)
    return next(too_deep_levels, None) is not None


def _containers_by_level(tree: Any) -> Iterator[list[Any]]:
    """Yield the objects and arrays of each level, after an array that has the value alone."""
    containers: list[Any] = [[tree]]
    # Without recursion: a call for each object would take longer than the rest.
    while containers:
        yield containers
        inner_containers = []
        for container in containers:
            values = container.values() if type(container) is dict else container
            # One may have millions of numbers.
            if not _CONTAINER_TYPES.isdisjoint(map(type, values)):
                inner_containers += [
                    value for value in values if type(value) in _CONTAINER_TYPES
                ]

        containers = inner_containers


def _is_exact(raw: bytes, tree: Any) -> bool:
    """Tell whether orjson has surely read all numbers of a text exactly."""
    # A text may be a number as a whole.
    digits = b":" + raw.translate(_DIGITS_AS_ZEROS, _BETWEEN_COLON_AND_NUMBER)
    may_be_long = _LEAST_LONG_DIGITS in digits
    if not may_be_long and _FRACTION.search(digits) is None:
        return True
    if len(raw) <= _SMALL_TEXT_BYTES:
        return False

    for containers in _containers_by_level(tree):
        for container in containers:
            values = container.values() if type(container) is dict else container
            if float in set(map(type, values)):
                return False
            if may_be_long and any(map(_is_long, values)):
                return False

    return True


def _is_long(value: Any) -> bool:
    """Tell whether a value is an integer of at least 19 digits."""
    return type(value) is int and abs(value) >= _LEAST_LONG_NUMBER


def canonical(value: Any) -> str:
    """Return the text that two values share if and only if they are the same value.

    Keys are ordered by code point, numbers written by their exact decimal value.
    """
    if value is None:
        return "null"

    try:
        text = orjson.dumps(value, option=_CANONICAL_OPTIONS)
    except TypeError:
        pass
    else:
        # For printable ASCII the spelling is the one below.
        if text.isascii() and b"\x7f" not in text:
            return text.decode()

    # Also with numbers that orjson can't write.
    return to_json(value, _canonical_number)


def to_json(value: Any, spell_number: Callable[[str], str] = str) -> str:
    """Return the JSON text of a value, its keys in order and each number as it was spelled.

    `spell_number` returns another spelling of numbers.
    """
    if isinstance(value, Number):
        return spell_number(value.text)

    if isinstance(value, dict):
        members = []
        for key in sorted(value):
            members.append(f"{json.dumps(key)}:{to_json(value[key], spell_number)}")

        return f"{{{','.join(members)}}}"

    if isinstance(value, list | tuple):
        items = [to_json(item, spell_number) for item in value]
        return f"[{','.join(items)}]"

    return json.dumps(value)


def find_spans(
    raw: bytes, paths: Collection[MemberPath]
) -> list[tuple[MemberPath, Span]]:
    """Return the values at some paths and their spans, every one of a duplicate key, in order.

    Raises:
        NotJsonError: `raw` is no JSON that any client reads.
    """
    try:
        return _spans_in_valid_json(raw, paths)
    except NotJsonError:
        return _spans_in_valid_json(repaired_json(raw), paths)


def _spans_in_valid_json(
    raw: bytes, paths: Collection[MemberPath]
) -> list[tuple[MemberPath, Span]]:
    """Return the spans at some paths, as `find_spans` does, of JSON that needs no repair."""
    # One byte is one character in Latin-1, so the decoder's offsets are byte offsets, and all
    # that delimits JSON is ASCII.
    text = raw.decode("latin-1")
    spans: list[tuple[MemberPath, Span]] = []
    try:
        start_of_value = _offset_after_space(text, 0)
        # What is no object has no members, but it has to be JSON.
        if () in paths or text[start_of_value] != "{":
            spans.append(
                ((), Span(start_of_value, _scan_value(text, start_of_value)[1]))
            )

        spans += _spans_of_members(text, start_of_value, frozenset(paths), ())
    except (StopIteration, ValueError, IndexError, TypeError, RuntimeError) as error:
        raise NotJsonError(str(error)) from None

    return [pair for pair in spans if pair[0] in paths]


def _spans_of_members(
    text: str, start: int, paths: frozenset[MemberPath], outer_path: MemberPath
) -> Iterator[tuple[MemberPath, Span]]:
    """Yield path and span of the members at some paths of the object at `outer_path`."""
    names_on_paths = {
        path[len(outer_path)] for path in paths if len(path) > len(outer_path)
    }
    if not names_on_paths or text[start] != "{":
        return

    for member in _members_or_items_in(text, start):
        if member.name in names_on_paths:
            member_path = (*outer_path, member.name)
            if member_path in paths:
                yield member_path, member.value

            paths_below = frozenset(
                path for path in paths if path[: len(member_path)] == member_path
            )
            yield from _spans_of_members(
                text, member.value.start, paths_below, member_path
            )


def spelled_at(raw: bytes, path: MemberPath) -> bytes | None:
    """Return the value at a path as it is spelled; of duplicate keys the last one counts."""
    spelled_value = None
    for _, span in find_spans(raw, [path]):
        spelled_value = span.slice_of(raw)

    return spelled_value


def _offset_after_space(text: str, index: int) -> int:
    """Return the offset of the first character that is no white space, from an index on."""
    match = _WHITE_SPACE.match(text, index)
    return match.end() if match else index


def splice(raw: bytes, replacements: Sequence[tuple[Span, bytes]]) -> bytes:
    """Replace the bytes of each span, leaving all others.

    A span that begins within another one is gone with it, to its end.
    """
    if not replacements:
        return raw

    kept_and_new_bytes: list[bytes] = []
    end_of_last = 0
    for span, new_bytes in sorted(replacements):
        if span.start >= end_of_last:
            kept_and_new_bytes += (raw[end_of_last : span.start], new_bytes)

        end_of_last = max(end_of_last, span.end)

    kept_and_new_bytes.append(raw[end_of_last:])
    return b"".join(kept_and_new_bytes)


def replace_members(
    raw: bytes, object_path: MemberPath, members: Mapping[str, bytes | None]
) -> bytes:
    """Give members of an object other values, or with None take them out; others stay as spelled.

    Every one of a duplicate key changes. A new member is added at the end.

    Raises:
        NotJsonError: `raw` is no JSON, or there is something other than an object at the path.
    """
    text = raw.decode("latin-1")
    replacements = []
    for _, span in find_spans(raw, [object_path]):
        if text[span.start] != "{":
            raise NotJsonError("no object")

        existing_members = list(_members_or_items_in(text, span.start))
        inside_span = Span(span.start + 1, span.start + 1)
        if existing_members:
            inside_span = Span(
                existing_members[0].start, existing_members[-1].value.end
            )

        replacements.append(
            (inside_span, _with_members(raw, existing_members, members))
        )

    return splice(raw, replacements)


def _with_members(
    raw: bytes,
    existing_members: Sequence[_MemberOrItem],
    new_values: Mapping[str, bytes | None],
) -> bytes:
    """Return the inside of an object with some members changed, added or taken out."""
    written_bytes: list[bytes] = []
    for member, following_member in zip_longest(existing_members, existing_members[1:]):
        value = new_values.get(member.name, member.value.slice_of(raw))
        if value is not None:
            separator = b","
            if following_member is not None:
                separator = raw[member.value.end : following_member.start]

            written_bytes += (raw[member.start : member.value.start], value, separator)

    names = {member.name for member in existing_members}
    for name, new_value in new_values.items():
        if new_value is not None and name not in names:
            written_bytes += (json.dumps(name).encode(), b":", new_value, b",")

    # Behind the last member nothing is separated.
    return b"".join(written_bytes[:-1])


def item_spans(raw: bytes, array_span: Span) -> list[Span]:
    """Return the spans of the items of the array at a span, in order.

    Raises:
        NotJsonError: no client reads the array.
    """
    valid = raw if is_json(raw) else repaired_json(raw)
    return [
        item.value
        for item in _members_or_items_in(valid.decode("latin-1"), array_span.start)
    ]


def spans_of_values(raw: bytes) -> Iterator[tuple[MemberPath, Span]]:
    """Yield path and span of every value in a JSON text, the outer ones before the inner ones.

    Raises:
        NotJsonError: no client reads the text.
    """
    valid = raw if is_json(raw) else repaired_json(raw)
    text = valid.decode("latin-1")
    start = _offset_after_space(text, 0)
    # A list and no recursion, as JSON may be deep.
    pending_spans: list[tuple[MemberPath, Span]] = [
        ((), Span(start, _scan_value(text, start)[1]))
    ]
    while pending_spans:
        path, span = pending_spans.pop()
        yield path, span
        if text[span.start] not in "{[":
            continue

        inner_spans = []
        for index, part in enumerate(_members_or_items_in(text, span.start)):
            name = part.name if text[span.start] == "{" else str(index)
            inner_spans.append(((*path, name), part.value))

        pending_spans += reversed(inner_spans)


class _MemberOrItem(NamedTuple):
    """A member of an object, or an item of an array, which has no name."""

    name: str
    start: int
    value: Span


def _members_or_items_in(text: str, start: int) -> Iterator[_MemberOrItem]:
    """Yield the members of the object, or the items of the array, that begins at an offset."""
    is_object = text[start] == "{"
    index = _offset_after_space(text, start + 1)
    while text[index] not in "}]":
        start_of_part = index
        name = ""
        if is_object:
            name, index = _scan_value(text, index)
            if not name.isascii():
                spelled_name = text[start_of_part:index].encode("latin-1")
                # Tolerant clients read a name that is no UTF-8, too.
                name = parse(spelled_name.decode("utf-8", "replace").encode())

            index = _offset_after_space(text, _offset_after_space(text, index) + 1)

        end_of_value = _scan_value(text, index)[1]
        yield _MemberOrItem(name, start_of_part, Span(index, end_of_value))
        index = _offset_after_space(text, end_of_value)
        if text[index] == ",":
            index = _offset_after_space(text, index + 1)


# Making JSON valid that tolerant clients read although it is not, without moving a byte

# All repetitions are possessive, so that no text takes longer than its length.
_STRING_PATTERN: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANKS_OR_COMMENTS: Final = (
    r"(?:[\x00-\x20]|\xef\xbb\xbf|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)++"
)
_WORD_PATTERN: Final = r'[^\x00-\x20"{}\[\],:/]++'
_NEXT_TOKEN: Final = re.compile(
    rf"(?P<string>{_STRING_PATTERN})"
    r"|(?P<mark>[{}\[\],:])"
    rf"|(?P<nothing>{_BLANKS_OR_COMMENTS})"
    rf"|(?P<word>{_WORD_PATTERN})"
    r"|(?P<other>.)",
    re.DOTALL,
)
_BEFORE_COLON: Final = rf"(?:{_BLANKS_OR_COMMENTS})?:"
_OTHER_WORD: Final = rf"{_WORD_PATTERN}(?!{_BEFORE_COLON})"
_BRACKETS_RUN: Final = re.compile(
    rf"(?:{_STRING_PATTERN}|[,:]|{_BLANKS_OR_COMMENTS}|{_OTHER_WORD})*+"
    rf'(?:(?P<opening>[{{\[](?:[{{\[,: ]|"[^"\\{{}}\[\]]*+"|{_OTHER_WORD})*+)'
    r"|(?P<closing>[}\]]++)|\Z)",
    re.DOTALL,
)
"""The next brackets of one kind, behind all else that a tolerant client reads.

Between opening ones may be what has no other bracket in it.
"""

_VALID_WORD: Final = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]{1,18})?|true|false|null",
    re.ASCII,
)
_VALID_VALUE: Final = (
    r'(?:"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
    rf"|(?:{_VALID_WORD.pattern})(?!{_WORD_PATTERN}|{_BEFORE_COLON}))"
)
_VALID_RUN: Final = re.compile(
    rf"[ \t\r\n]*+{_VALID_VALUE}"
    rf"(?:{_VALID_VALUE}|[ \t\r\n]++|:|,(?!(?:{_BLANKS_OR_COMMENTS})?[}}\]]))*+",
    re.DOTALL,
)
"""Valid JSON between two brackets, which may be millions of numbers."""

_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f]")
_NOT_QUOTABLE: Final = re.compile(r'["\\\x00-\x1f]')


def repaired_json(raw: bytes) -> bytes:
    """Return JSON with the same values at the same offsets.

    Byte order marks, NULs, comments, a trailing comma and all that follows the first value become
    spaces. Words such as `NaN`, and what is nested too deeply, become strings. Valid JSON stays.
    What is no JSON in any other way stays invalid.

    Raises:
        NotJsonError: some of it can be in no JSON.
    """
    text = raw.decode("latin-1")
    repair = _Repair(bytearray(raw))
    next_position = 0
    while not repair.is_whole:
        valid_token = repair.valid_at(text, next_position)
        token = valid_token or _NEXT_TOKEN.match(text, next_position)
        if token is None:
            break

        repair.take_token(token)
        next_position = token.end()
        if repair.is_deep:
            next_position = _end_of_deep(text, next_position)

    return bytes(repair.text)


def _end_of_deep(text: str, offset: int) -> int:
    """Return where the bracket is that closes the one before an offset, or the end of the text."""
    depth = 1
    while depth > 0:
        brackets = _BRACKETS_RUN.match(text, offset)
        if brackets is None:
            raise _unreadable_error()

        offset = brackets.end()
        if brackets["opening"]:
            depth += brackets["opening"].count("{") + brackets["opening"].count("[")
        elif brackets["closing"]:
            depth -= len(brackets["closing"])
        else:
            return offset

    # The run of brackets may close outer ones too.
    return offset + depth - 1


def _unreadable_error() -> NotJsonError:
    """Return the error for a text that no tolerant reader understands."""
    return NotJsonError("not JSON, even to a tolerant reader")


class _Repair:
    """A text under repair, token by token."""

    def __init__(self, text: bytearray) -> None:
        self.text = text
        self.is_whole = False
        """Whether the first value has ended, and all that follows is blank."""
        self._depth = 0
        self._start_of_deep_value = 0
        self._last_mark_or_kind = ""
        """The last token of the text: a mark, or the kind of another one."""
        self._comma_start = 0

    @property
    def is_deep(self) -> bool:
        """Whether the text is nested too deeply here."""
        return self._depth > DEEPEST_NESTING

    def valid_at(self, text: str, offset: int) -> re.Match[str] | None:
        """Return the valid JSON at an offset, if it is inside the first value and not deep."""
        is_inside = 0 < self._depth <= DEEPEST_NESTING
        return _VALID_RUN.match(text, offset) if is_inside else None

    def take_token(self, token: re.Match[str]) -> None:
        """Take the next token."""
        kind = token.lastgroup or ""
        lexeme = token[0]
        is_name_of_no_string = lexeme == ":" and self._last_mark_or_kind == "word"
        if kind == "other" or is_name_of_no_string:
            raise _unreadable_error()

        if kind == "nothing":
            self._replace_by_spaces(token.start(), token.end())
            return

        if kind == "mark":
            self._take_mark(lexeme, token.start())
        elif kind:
            self._take_value(kind, token)

        self._last_mark_or_kind = lexeme if kind == "mark" else kind
        if self._depth == 0:
            self._replace_by_spaces(token.end(), len(self.text))
            self.is_whole = True

    def _take_mark(self, mark: str, start: int) -> None:
        """Count brackets, blank a trailing comma, and quote a value that was nested too deeply."""
        if mark in "{[":
            self._depth += 1
            if self._depth == DEEPEST_NESTING + 1:
                self._start_of_deep_value = start
        elif mark in "}]":
            if self._last_mark_or_kind == ",":
                self._replace_by_spaces(self._comma_start, self._comma_start + 1)

            if self._depth == DEEPEST_NESTING + 1:
                self._quote_bytes(self._start_of_deep_value, start + 1)

            self._depth -= 1
        elif mark == ",":
            self._comma_start = start

    def _take_value(self, kind: str, token: re.Match[str]) -> None:
        """Blank the control characters of a string, and quote a word that JSON doesn't have."""
        start, end = token.span()
        if kind == "string":
            self.text[start:end] = _CONTROL_CHARACTER.sub(" ", token[0]).encode(
                "latin-1"
            )
        elif _VALID_WORD.fullmatch(token[0]) is None:
            self._quote_bytes(start, end)

    def _replace_by_spaces(self, start: int, end: int) -> None:
        """Put spaces in the place of some bytes, unless they are white space already."""
        if self.text[start:end].strip(b" \t\r\n"):
            self.text[start:end] = b" " * (end - start)

    def _quote_bytes(self, start: int, end: int) -> None:
        """Make a string of some bytes; of a single one, which has no room for quotes, a number."""
        if end - start == 1:
            self.text[start] = ord("0")
            return

        quoted_text = self.text[start + 1 : end - 1].decode("latin-1")
        self.text[start:end] = b'"%b"' % _NOT_QUOTABLE.sub("'", quoted_text).encode(
            "latin-1"
        )
