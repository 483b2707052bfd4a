"""Values that are another text in every run, such as a folder, and the references to them.

A cassette has `{root}` where a recording had the text of the value `root`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from binascii import a2b_hex
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import ascii_letters, digits
from typing import Final, Literal

from mrtr_cassette.core.wire.http import Headers, Request, decoded_header, header_text
from mrtr_cassette.errors import UsageError

TextPlace = Literal["body", "header", "target"]
"""Where a text stands; it tells how a reference without a spelling is spelled."""

Spell = Callable[[str], str]

_SHORTEST_TEXT: Final = 3
"""Characters of a text that is learned; a shorter one is part of too many others."""

_NUMBER_SPELLING: Final = "number"
_URL_BEFORE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/[^\s\"'<>\\]*\Z")
_LONGEST_URL: Final = 300
"""Characters before a value that may belong to its URL."""

_UNRESERVED: Final = f"{ascii_letters}{digits}_.-~".encode()
_WINDOWS_DRIVE: Final = re.compile(r"[A-Za-z]:\\")
_VALUE_ENDS: Final = (
    # A longer name, a file's ending, or the escape of a character that belongs to a name.
    r"(?![\w~-]|\.+\w|%(?!2[2-7CcFf]|3[Ff]|5[Cc]|0[AaDd])[0-9A-Fa-f]{2}"
    r"|\\+u(?!00[0-7])[0-9A-Fa-f]{4})"
)
_SEPARATORS: Final = ("/", "\\", "%2F", "%5C")
_AFTER_ESCAPE: Final = re.compile(r"(?:\\+[nrtbf]|\\+u00[0-7][0-9A-Fa-f])\Z")
_AFTER_ODD_ESCAPE: Final = re.compile(
    r"(?<!\\)(?:\\\\)*\\(?:[nrtbf]|u00[0-7][0-9A-Fa-f])\Z"
)
_AFTER_PERCENT: Final = re.compile(r"%([0-9A-Fa-f]{2})\Z")
_AFTER_SCHEME: Final = re.compile(r":(?:\\*/|%2[Ff]){2}\Z")
_BEFORE_NUMBER: Final = re.compile(r"[:,\[]\s*\Z")
_AFTER_NUMBER: Final = re.compile(r"\s*[,}\]]")
_CHARS_LOOKED_AT: Final = 16
"""Characters before a text that tell whether a value begins there."""


def _as_url_path(text: str) -> str:
    """Return a path of Windows as URLs spell it, with slashes; other text stays."""
    return text.replace("\\", "/") if _WINDOWS_DRIVE.match(text) else text


def _percent_quoted(text: str, safe: str) -> str:
    """Return a text with `%` escapes for all bytes but unreserved and `safe` ones."""
    unquoted_bytes = _UNRESERVED + safe.encode()
    quoted_parts = []
    for byte in text.encode("utf-8", "surrogateescape"):
        quoted_parts.append(chr(byte) if byte in unquoted_bytes else f"%{byte:02X}")

    return "".join(quoted_parts)


def _percent_unquoted(text: str) -> str:
    """Return a text with its `%` escapes undone, also those of bytes that aren't UTF-8."""
    raw = text.encode("utf-8", "surrogateescape")
    plain = re.sub(b"%([0-9A-Fa-f]{2})", lambda code: a2b_hex(code[1]), raw)
    return plain.decode("utf-8", "surrogateescape")


def _json_spelling(text: str) -> str:
    """Return a text as JSON spells it, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


_SPELLINGS: Final[Mapping[str, Spell]] = {
    "json": _json_spelling,
    "ascii": lambda text: json.dumps(text)[1:-1],
    "slash": lambda text: _json_spelling(text).replace("/", "\\/"),
    "nested": lambda text: _json_spelling(_json_spelling(text)),
    "plain": lambda text: text,
    "url": lambda text: _percent_quoted(_as_url_path(text), "/:@!$&'()*+,;=~"),
    "strict": lambda text: _percent_quoted(_as_url_path(text), "/"),
    "component": lambda text: _percent_quoted(text, ""),
}
"""The ways to spell a value, by the names that a reference has for them."""

_SPELLINGS_TO_TRY: Final[Mapping[str, tuple[str, ...]]] = {
    "json": ("json", "ascii", "slash", "nested", "plain", "url", "strict", "component"),
    "plain": ("plain", "url", "strict", "component", "json"),
    "url": ("url", "strict", "component", "json", "ascii", "slash", "nested", "plain"),
}
"""The spellings that are tried, by the one that is expected."""

_SPELLING_BY_PLACE: Final[Mapping[TextPlace, str]] = {
    "body": "json",
    "header": "plain",
    "target": "url",
}


class Values:
    """The values of a cassette by name, and the texts that they have in this run.

    Attributes:
        names: of all values that the cassette refers to.
        texts: of those that are known.
        unknown: the names of all others.
    """

    def __init__(
        self, names: Iterable[str] = (), texts: Mapping[str, str] | None = None
    ) -> None:
        """Spell all texts, and prepare the patterns that find them and references to values."""
        self.texts = dict(sorted((texts or {}).items()))
        self.names = tuple(sorted({*names, *self.texts}))
        self.unknown = [name for name in self.names if name not in self.texts]
        self._names_by_spelled_text: dict[str, dict[str, str]] = {}
        """For each spelled text, the value that it is of, by spelling."""
        for name, text in self.texts.items():
            for spelling, spell in _SPELLINGS.items():
                self._names_by_spelled_text.setdefault(spell(text), {}).setdefault(
                    spelling, name
                )

        if not self.names:
            return

        self._marks_of_values = [
            spelled_text.encode("utf-8", "surrogateescape")
            for spelled_text in self._names_by_spelled_text
        ]
        self._marks_of_values += [name.encode() for name in self.names]
        any_name = "|".join(sorted(self.names, key=len, reverse=True))
        spellings = "|".join([*_SPELLINGS, _NUMBER_SPELLING])
        ref_lookalike = rf"\{{=*(?:{any_name})(?::(?:{spellings}))?\}}"
        self._ref_pattern = re.compile(
            rf'"\{{(?P<number>{any_name}):{_NUMBER_SPELLING}\}}"'
            rf"|\{{(?P<escape>=*)(?P<name>{any_name})(?::(?P<spelling>{spellings}))?\}}"
        )

        self._spelled_ref_pattern = re.compile(
            rf"\{{(?P<name>{any_name}):(?!{_NUMBER_SPELLING})[a-z]+\}}".encode()
        )
        alternatives = [rf"\{{(?P<alike>{ref_lookalike[2:]})"]
        if self._names_by_spelled_text:
            alternatives.append(self._spelled_text_pattern())

        if any(map(str.isdigit, self._names_by_spelled_text)):
            alternatives.append(r'(?P<quote>(?<!\\)\\*")')

        self._spelled_text_or_ref_pattern = re.compile("|".join(alternatives))

    def _spelled_text_pattern(self) -> str:
        """Return a pattern for this run's texts in all their spellings, the longest first."""
        alternatives = []
        for spelled_text in sorted(self._names_by_spelled_text, key=len, reverse=True):
            end = "" if spelled_text.endswith(_SEPARATORS) else _VALUE_ENDS
            alternatives.append(re.escape(spelled_text) + end)

        return f"(?P<form>{'|'.join(alternatives)})"

    def with_further_texts(self, texts: Mapping[str, str]) -> Values:
        """Return the same with further texts."""
        return Values(self.names, {**self.texts, **texts})

    # Texts

    def sealed_bytes(self, raw: bytes, place: TextPlace = "body") -> bytes:
        """Put references in the place of this run's texts; escape what looks like a reference."""
        if not self.names or not any(mark in raw for mark in self._marks_of_values):
            return raw

        text = raw.decode("utf-8", "surrogateescape")
        sealed_so_far = _TextWithReferences(text, place)
        searched_at = 0
        while match := self._spelled_text_or_ref_pattern.search(text, searched_at):
            searched_at = match.end()
            if match.lastgroup == "quote":
                sealed_so_far.in_string ^= len(match[0]) % 2 == 1
            elif match.lastgroup == "alike":
                sealed_so_far.put_reference(
                    match.start(), match.end(), "{=" + match["alike"]
                )
            elif not self._seal_spelled_text(sealed_so_far, match):
                searched_at = match.start() + 1

        return sealed_so_far.whole_text.encode("utf-8", "surrogateescape")

    def _seal_spelled_text(
        self, sealed_so_far: _TextWithReferences, match: re.Match[str]
    ) -> bool:
        """Put a reference in the place of a text; tell whether a value begins there."""
        name_by_spelling = self._names_by_spelled_text[match[0]]
        start, end = match.span()
        if not _may_value_begin_at(
            sealed_so_far.text,
            start,
            self.texts[next(iter(name_by_spelling.values()))][0],
        ):
            return False

        if match[0].isdigit() and sealed_so_far.is_number(start, end):
            name = name_by_spelling["json"]
            sealed_so_far.put_reference(start, end, f'"{{{name}:{_NUMBER_SPELLING}}}"')
            return True

        default_spelling = sealed_so_far.default_spelling_at(start)
        for spelling in _SPELLINGS_TO_TRY[default_spelling]:
            if spelling in name_by_spelling:
                end_of_ref = "}" if spelling == default_spelling else f":{spelling}}}"
                sealed_so_far.put_reference(
                    start, end, f"{{{name_by_spelling[spelling]}{end_of_ref}"
                )
                return True

        return False

    def revealed_bytes(self, raw: bytes, place: TextPlace = "body") -> bytes:
        """Put this run's texts in the place of references; one without a text stays."""
        if not self.names or b"{" not in raw:
            return raw

        text = raw.decode("utf-8", "surrogateescape")

        def text_of_reference(match: re.Match[str]) -> str:
            """Return the text for a reference, if any; an escaped reference loses a `=`."""
            name_of_number = match["number"]
            if name_of_number is not None:
                return self.texts.get(name_of_number, match[0])
            if match["escape"]:
                return f"{{{match[0][2:]}"

            value = self.texts.get(match["name"])
            if value is None:
                return match[0]

            spelling = match["spelling"]
            if not spelling:
                spelling = _default_spelling(text, match.start(), place)

            return _SPELLINGS[spelling](value)

        return self._ref_pattern.sub(text_of_reference, text).encode(
            "utf-8", "surrogateescape"
        )

    def names_in(self, raw: bytes) -> set[str]:
        """Return the names of the values to which a text refers."""
        if not self.names or b"{" not in raw:
            return set()

        names_in_text = set()
        for match in self._ref_pattern.finditer(raw.decode("utf-8", "surrogateescape")):
            if not match["escape"]:
                names_in_text.add(match["number"] or match["name"])

        return names_in_text

    def without_spellings(self, raw: bytes) -> bytes:
        """Return a text in which references don't tell how clients spelled the value."""
        if not self.names:
            return raw
        return self._spelled_ref_pattern.sub(rb"{\g<name>}", raw)

    # Messages

    def sealed_request(self, request: Request) -> Request:
        """Return a request as it is recorded."""
        return self._request_with_changes(request, self.sealed_bytes)

    def revealed_request(self, request: Request) -> Request:
        """Return a recorded request as this run would send it."""
        return self._request_with_changes(request, self.revealed_bytes)

    def request_without_spellings(self, request: Request) -> Request:
        """Return a recorded request in which references don't tell how they were spelled."""
        return self._request_with_changes(
            request, lambda raw, _place: self.without_spellings(raw)
        )

    def sealed_text(self, text: str) -> str:
        """Return a text such as a command as it is recorded."""
        return _with_changed_bytes(text, self.sealed_bytes, "header")

    def sealed_headers(self, headers: Headers) -> Headers:
        """Return headers as they are recorded."""
        return _with_changed_header_values(headers, self.sealed_bytes)

    def revealed_headers(self, headers: Headers) -> Headers:
        """Return recorded headers with this run's texts."""
        if not self.names:
            return headers
        return _with_changed_header_values(headers, self.revealed_bytes)

    def _request_with_changes(
        self, request: Request, change: Callable[[bytes, TextPlace], bytes]
    ) -> Request:
        """Return a request with changed texts."""
        if not self.names:
            return request

        return request.with_parts(
            _with_changed_bytes(request.target, change, "target"),
            _with_changed_header_values(request.headers, change),
            change(request.body, "body"),
        )

    # Learning

    def texts_learned_from(
        self, recorded_text: str, received_text: str
    ) -> dict[str, str] | None:
        """Return the texts with which a recorded text becomes a received one.

        None where there are none, and where nothing tells which part is the value's.
        """
        pattern_parts = []
        spelling_by_name: dict[str, str] = {}
        end = 0
        for match in self._ref_pattern.finditer(recorded_text):
            name = match["name"]
            if match["escape"] or name not in self.unknown:
                continue

            pattern_parts.append(re.escape(recorded_text[end : match.start()]))
            end = match.end()
            spelling = match["spelling"]
            if not spelling:
                spelling = _default_spelling(recorded_text, match.start(), "body")

            is_first = name not in spelling_by_name
            if spelling_by_name.setdefault(name, spelling) != spelling:
                return None

            group = f"(?P<{name}>.{{{_SHORTEST_TEXT},}})"
            pattern_parts.append(group if is_first else f"(?P={name})")

        if len(spelling_by_name) != 1:
            # With several, nothing tells where the text of the first one ends.
            return {} if recorded_text == received_text else None

        pattern_parts.append(re.escape(recorded_text[end:]))
        match_of_received = re.fullmatch(
            "".join(pattern_parts), received_text, re.DOTALL
        )
        if match_of_received is None:
            return None

        ((name, spelling),) = spelling_by_name.items()
        text = match_of_received[name]
        if spelling in ("url", "strict", "component"):
            text = _percent_unquoted(text)

        return {name: text}


NO_VALUES: Final = Values()


def values_of(
    known_names: Sequence[str],
    given_texts: Mapping[str, str],
    path: object,
    *,
    needs_all: bool = False,
) -> Values:
    """Return the values of a cassette with the texts that a run is given.

    Raises:
        UsageError: the cassette doesn't know a name, or nothing says a text that is needed.
    """
    for name in given_texts:
        if name not in known_names:
            hint = "record it again with this value"
            if known_names:
                hint = f"it has {', '.join(known_names)}; another one needs it recorded again"

            raise UsageError(f"<<values>>: {path} has no value {name!r}", hint=hint)

    values = Values(known_names, given_texts)
    if needs_all and values.unknown:
        name = values.unknown[0]
        raise UsageError(
            f"{path} needs this run's text for its value {name!r}",
            hint="give it with <<give_value>>",
        )

    return values


class _TextWithReferences:
    """A text in which references take the places of values, as far as it has come."""

    def __init__(self, text: str, place: TextPlace) -> None:
        self.text = text
        self.in_string = False
        self._place: TextPlace = place
        self._finished_parts: list[str] = []
        self._last_written = ""
        self._end_of_done = 0

    def put_reference(self, start: int, end: int, reference: str) -> None:
        """Put something in the place of a part of the text."""
        text_between = self.text[self._end_of_done : start]
        self._finished_parts += (text_between, reference)
        self._last_written = (self._last_written + text_between + reference)[
            -_LONGEST_URL:
        ]
        self._end_of_done = end

    def default_spelling_at(self, start: int) -> str:
        """Return the expected spelling, as whoever reveals what is sealed expects it."""
        unfinished_start = max(self._end_of_done, start - _LONGEST_URL)
        text_before = self._last_written + self.text[unfinished_start:start]
        return _default_spelling(text_before, len(text_before), self._place)

    def is_number(self, start: int, end: int) -> bool:
        """Tell whether digits are a number of JSON, and not part of a string."""
        if self._place != "body" or self.in_string:
            return False

        text_before = self.text[max(0, start - _CHARS_LOOKED_AT) : start]
        if _BEFORE_NUMBER.search(text_before) is None:
            return False

        return _AFTER_NUMBER.match(self.text, end) is not None

    @property
    def whole_text(self) -> str:
        """The text with all references."""
        return "".join(self._finished_parts) + self.text[self._end_of_done :]


def _default_spelling(text: str, offset: int, place: TextPlace) -> str:
    """Return how a value is spelled before which a text has this."""
    text_before = text[max(0, offset - _LONGEST_URL) : offset]
    return "url" if _URL_BEFORE.search(text_before) else _SPELLING_BY_PLACE[place]


def _may_value_begin_at(text: str, start: int, first_char: str) -> bool:
    """Tell whether a value with this first character begins here, and no longer name or path."""
    text_before = text[max(0, start - _CHARS_LOOKED_AT) : start]
    is_path = first_char in "/\\"
    escape_before = _AFTER_ESCAPE if is_path else _AFTER_ODD_ESCAPE
    if not text_before or escape_before.search(text_before):
        return True

    percent_escape = _AFTER_PERCENT.search(text_before)
    char_before = text_before[-1]
    if percent_escape is not None:
        char_before = chr(int(percent_escape[1], 16))

    if is_path and char_before in "/\\":
        return _AFTER_SCHEME.search(text_before) is not None
    if char_before.isalnum() or char_before in "_~-":
        return not (is_path or first_char.isalnum() or first_char in "_~-")
    if char_before == ".":
        return not is_path and not text_before[-2:-1].isalnum()

    return True


def _with_changed_header_values(
    headers: Headers, change: Callable[[bytes, TextPlace], bytes]
) -> Headers:
    """Return headers with other values; one in base64 stays so."""
    changed_headers: list[tuple[str, str]] = []
    for name, value in headers:
        decoded_value = decoded_header(value)
        plain_value = value if decoded_value is None else decoded_value
        new_value = _with_changed_bytes(plain_value, change, "header")
        if new_value == plain_value:
            new_value = value
        elif decoded_value is not None:
            encoded = b64encode(new_value.encode("utf-8", "surrogateescape"))
            new_value = f"=?base64?{encoded.decode()}?="
        elif not new_value.isascii():
            new_value = header_text(new_value)

        changed_headers.append((name, new_value))

    return tuple(changed_headers)


def _with_changed_bytes(
    text: str, change: Callable[[bytes, TextPlace], bytes], place: TextPlace
) -> str:
    """Return a text with a change made to its bytes, which need not be valid UTF-8."""
    raw = text.encode("utf-8", "surrogateescape")
    return change(raw, place).decode("utf-8", "surrogateescape")
