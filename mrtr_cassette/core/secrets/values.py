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

Place = Literal["body", "header", "target"]
"""Where a text stands; it tells how a reference without a spelling is spelled."""

Spell = Callable[[str], str]

_SHORTEST: Final = 3
"""Characters of a text that is learned; a shorter one is part of too many others."""

_NUMBER: Final = "number"
_IN_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/[^\s\"'<>\\]*\Z")
_LONGEST_URL: Final = 300
"""Characters before a value that may belong to its URL."""

_UNRESERVED: Final = f"{ascii_letters}{digits}_.-~".encode()
_DRIVE: Final = re.compile(r"[A-Za-z]:\\")
_GOES_ON: Final = (
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
_LOOKED_AT: Final = 16
"""Characters before a text that tell whether a value begins there."""


def _as_url_path(text: str) -> str:
    """Return a path of Windows as URLs spell it, with slashes; other text stays."""
    return text.replace("\\", "/") if _DRIVE.match(text) else text


def _quoted(text: str, safe: str) -> str:
    """Return a text with `%` escapes for all bytes but unreserved and `safe` ones."""
    kept = _UNRESERVED + safe.encode()
    spelled = []
    for byte in text.encode("utf-8", "surrogateescape"):
        spelled.append(chr(byte) if byte in kept else f"%{byte:02X}")

    return "".join(spelled)


def _unquoted(text: str) -> str:
    """Return a text with its `%` escapes undone, also those of bytes that aren't UTF-8."""
    raw = text.encode("utf-8", "surrogateescape")
    plain = re.sub(b"%([0-9A-Fa-f]{2})", lambda code: a2b_hex(code[1]), raw)
    return plain.decode("utf-8", "surrogateescape")


def _json(text: str) -> str:
    """Return a text as JSON spells it, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


_SPELLINGS: Final[Mapping[str, Spell]] = {
    "json": _json,
    "ascii": lambda text: json.dumps(text)[1:-1],
    "slash": lambda text: _json(text).replace("/", "\\/"),
    "nested": lambda text: _json(_json(text)),
    "plain": lambda text: text,
    "url": lambda text: _quoted(_as_url_path(text), "/:@!$&'()*+,;=~"),
    "strict": lambda text: _quoted(_as_url_path(text), "/"),
    "component": lambda text: _quoted(text, ""),
}
"""The ways to spell a value, by the names that a reference has for them."""

_PREFERRED: Final[Mapping[str, tuple[str, ...]]] = {
    "json": ("json", "ascii", "slash", "nested", "plain", "url", "strict", "component"),
    "plain": ("plain", "url", "strict", "component", "json"),
    "url": ("url", "strict", "component", "json", "ascii", "slash", "nested", "plain"),
}
"""The spellings that are tried, by the one that is expected."""

_DEFAULTS: Final[Mapping[Place, str]] = {
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
        self._forms: dict[str, dict[str, str]] = {}
        """For each spelled text, the value that it is of, by spelling."""
        for name, text in self.texts.items():
            for spelling, spell in _SPELLINGS.items():
                self._forms.setdefault(spell(text), {}).setdefault(spelling, name)

        if not self.names:
            return

        self._signs = [form.encode("utf-8", "surrogateescape") for form in self._forms]
        self._signs += [name.encode() for name in self.names]
        any_name = "|".join(sorted(self.names, key=len, reverse=True))
        spellings = "|".join([*_SPELLINGS, _NUMBER])
        alike = rf"\{{=*(?:{any_name})(?::(?:{spellings}))?\}}"
        self._ref = re.compile(
            rf'"\{{(?P<number>{any_name}):{_NUMBER}\}}"'
            rf"|\{{(?P<escape>=*)(?P<name>{any_name})(?::(?P<spelling>{spellings}))?\}}"
        )

        self._spelled = re.compile(
            rf"\{{(?P<name>{any_name}):(?!{_NUMBER})[a-z]+\}}".encode()
        )
        found = [rf"\{{(?P<alike>{alike[2:]})"]
        if self._forms:
            found.append(self._form_pattern())

        if any(map(str.isdigit, self._forms)):
            found.append(r'(?P<quote>(?<!\\)\\*")')

        self._found = re.compile("|".join(found))

    def _form_pattern(self) -> str:
        """Return a pattern for this run's texts in all their spellings, the longest first."""
        alternatives = []
        for form in sorted(self._forms, key=len, reverse=True):
            end = "" if form.endswith(_SEPARATORS) else _GOES_ON
            alternatives.append(re.escape(form) + end)

        return f"(?P<form>{'|'.join(alternatives)})"

    def with_texts(self, texts: Mapping[str, str]) -> Values:
        """Return the same with further texts."""
        return Values(self.names, {**self.texts, **texts})

    # Texts

    def seal(self, raw: bytes, place: Place = "body") -> bytes:
        """Put references in the place of this run's texts; escape what looks like a reference."""
        if not self.names or not any(sign in raw for sign in self._signs):
            return raw

        text = raw.decode("utf-8", "surrogateescape")
        sealed = _Sealing(text, place)
        at = 0
        while match := self._found.search(text, at):
            at = match.end()
            if match.lastgroup == "quote":
                sealed.in_string ^= len(match[0]) % 2 == 1
            elif match.lastgroup == "alike":
                sealed.put(match.start(), match.end(), "{=" + match["alike"])
            elif not self._seal_form(sealed, match):
                at = match.start() + 1

        return sealed.whole.encode("utf-8", "surrogateescape")

    def _seal_form(self, sealed: _Sealing, match: re.Match[str]) -> bool:
        """Put a reference in the place of a text; tell whether a value begins there."""
        names = self._forms[match[0]]
        start, end = match.span()
        if not _begins(sealed.text, start, self.texts[next(iter(names.values()))][0]):
            return False

        if match[0].isdigit() and sealed.is_number(start, end):
            name = names["json"]
            sealed.put(start, end, f'"{{{name}:{_NUMBER}}}"')
            return True

        default = sealed.default_at(start)
        for spelling in _PREFERRED[default]:
            if spelling in names:
                end_of_ref = "}" if spelling == default else f":{spelling}}}"
                sealed.put(start, end, f"{{{names[spelling]}{end_of_ref}")
                return True

        return False

    def reveal(self, raw: bytes, place: Place = "body") -> bytes:
        """Put this run's texts in the place of references; one without a text stays."""
        if not self.names or b"{" not in raw:
            return raw

        text = raw.decode("utf-8", "surrogateescape")

        def revealed(match: re.Match[str]) -> str:
            """Return the text for a reference, if any; an escaped reference loses a `=`."""
            number = match["number"]
            if number is not None:
                return self.texts.get(number, match[0])
            if match["escape"]:
                return f"{{{match[0][2:]}"

            value = self.texts.get(match["name"])
            if value is None:
                return match[0]

            spelling = match["spelling"] or _default(text, match.start(), place)
            return _SPELLINGS[spelling](value)

        return self._ref.sub(revealed, text).encode("utf-8", "surrogateescape")

    def names_in(self, raw: bytes) -> set[str]:
        """Return the names of the values to which a text refers."""
        if not self.names or b"{" not in raw:
            return set()

        found = set()
        for match in self._ref.finditer(raw.decode("utf-8", "surrogateescape")):
            if not match["escape"]:
                found.add(match["number"] or match["name"])

        return found

    def alike(self, raw: bytes) -> bytes:
        """Return a text in which references don't tell how clients spelled the value."""
        if not self.names:
            return raw
        return self._spelled.sub(rb"{\g<name>}", raw)

    # Messages

    def sealed(self, request: Request) -> Request:
        """Return a request as it is recorded."""
        return self._changed(request, self.seal)

    def revealed(self, request: Request) -> Request:
        """Return a recorded request as this run would send it."""
        return self._changed(request, self.reveal)

    def alike_request(self, request: Request) -> Request:
        """Return a recorded request in which references don't tell how they were spelled."""
        return self._changed(request, lambda raw, _place: self.alike(raw))

    def sealed_text(self, text: str) -> str:
        """Return a text such as a command as it is recorded."""
        return _in_bytes(text, self.seal, "header")

    def sealed_headers(self, headers: Headers) -> Headers:
        """Return headers as they are recorded."""
        return _with_values(headers, self.seal)

    def revealed_headers(self, headers: Headers) -> Headers:
        """Return recorded headers with this run's texts."""
        if not self.names:
            return headers
        return _with_values(headers, self.reveal)

    def _changed(
        self, request: Request, change: Callable[[bytes, Place], bytes]
    ) -> Request:
        """Return a request with changed texts; the same object if nothing differs."""
        if not self.names:
            return request

        changed = Request(
            request.method,
            _in_bytes(request.target, change, "target"),
            _with_values(request.headers, change),
            change(request.body, "body"),
        )
        return request if changed == request else changed

    # Learning

    def texts_between(self, recorded: str, received: str) -> dict[str, str] | None:
        """Return the texts with which a recorded text becomes a received one.

        None where there are none, and where nothing tells which part is the value's.
        """
        pattern = []
        spellings: dict[str, str] = {}
        end = 0
        for match in self._ref.finditer(recorded):
            name = match["name"]
            if match["escape"] or name is None or name in self.texts:
                continue

            pattern.append(re.escape(recorded[end : match.start()]))
            end = match.end()
            spelling = match["spelling"] or _default(recorded, match.start(), "body")
            if spellings.setdefault(name, spelling) != spelling:
                return None

            is_first = f"(?P<{name}>" not in "".join(pattern)
            group = f"(?P<{name}>.{{{_SHORTEST},}})"
            pattern.append(group if is_first else f"(?P={name})")

        if len(spellings) != 1:
            # With several, nothing tells where the text of the first one ends.
            return {} if recorded == received else None

        pattern.append(re.escape(recorded[end:]))
        found = re.fullmatch("".join(pattern), received, re.DOTALL)
        if found is None:
            return None

        texts = {}
        for name, spelling in spellings.items():
            is_of_url = spelling in ("url", "strict", "component")
            texts[name] = _unquoted(found[name]) if is_of_url else found[name]

        return texts


NO_VALUES: Final = Values()


def values_of(
    known: Sequence[str],
    given: Mapping[str, str],
    path: object,
    *,
    needs_all: bool = False,
) -> Values:
    """Return the values of a cassette with the texts that a run is given.

    Raises:
        UsageError: the cassette doesn't know a name, or nothing says a text that is needed.
    """
    for name in given:
        if name not in known:
            hint = "record it again with this value"
            if known:
                hint = f"it has {', '.join(known)}; another one needs it recorded again"

            raise UsageError(f"<<values>>: {path} has no value {name!r}", hint=hint)

    values = Values(known, given)
    if needs_all and values.unknown:
        name = values.unknown[0]
        raise UsageError(
            f"{path} needs this run's text for its value {name!r}",
            hint="give it with <<give_value>>",
        )

    return values


class _Sealing:
    """A text in which references take the places of values, as far as it has come."""

    def __init__(self, text: str, place: Place) -> None:
        self.text = text
        self.in_string = False
        self._place: Place = place
        self._done: list[str] = []
        self._tail = ""
        self._end = 0

    def put(self, start: int, end: int, new: str) -> None:
        """Put something in the place of a part of the text."""
        between = self.text[self._end : start]
        self._done += (between, new)
        self._tail = (self._tail + between + new)[-_LONGEST_URL:]
        self._end = end

    def default_at(self, start: int) -> str:
        """Return the expected spelling, as whoever reveals what is sealed expects it."""
        before = self._tail + self.text[max(self._end, start - _LONGEST_URL) : start]
        return _default(before, len(before), self._place)

    def is_number(self, start: int, end: int) -> bool:
        """Tell whether digits are a number of JSON, and not part of a string."""
        if self._place != "body" or self.in_string:
            return False

        before = self.text[max(0, start - _LOOKED_AT) : start]
        if _BEFORE_NUMBER.search(before) is None:
            return False

        return _AFTER_NUMBER.match(self.text, end) is not None

    @property
    def whole(self) -> str:
        """The text with all references."""
        return "".join(self._done) + self.text[self._end :]


def _default(text: str, at: int, place: Place) -> str:
    """Return how a value is spelled before which a text has this."""
    before = text[max(0, at - _LONGEST_URL) : at]
    return "url" if _IN_URL.search(before) else _DEFAULTS[place]


def _begins(text: str, start: int, first: str) -> bool:
    """Tell whether a value with this first character begins here, and no longer name or path."""
    before = text[max(0, start - _LOOKED_AT) : start]
    is_path = first in "/\\"
    escape = _AFTER_ESCAPE if is_path else _AFTER_ODD_ESCAPE
    if not before or escape.search(before):
        return True

    percent = _AFTER_PERCENT.search(before)
    last = before[-1] if percent is None else chr(int(percent[1], 16))
    if is_path and last in "/\\":
        return _AFTER_SCHEME.search(before) is not None
    if last.isalnum() or last in "_~-":
        return not (is_path or first.isalnum() or first in "_~-")
    if last == ".":
        return not is_path and not before[-2:-1].isalnum()

    return True


def _with_values(headers: Headers, change: Callable[[bytes, Place], bytes]) -> Headers:
    """Return headers with other values; one in base64 stays so."""
    changed: list[tuple[str, str]] = []
    for name, value in headers:
        plain = decoded_header(value)
        new = _in_bytes(value if plain is None else plain, change, "header")
        if plain is not None:
            encoded = b64encode(new.encode("utf-8", "surrogateescape"))
            new = value if new == plain else f"=?base64?{encoded.decode()}?="
        elif new != value and not new.isascii():
            new = header_text(new)

        changed.append((name, new))

    return tuple(changed)


def _in_bytes(text: str, change: Callable[[bytes, Place], bytes], place: Place) -> str:
    """Return a text with a change made to its bytes, which need not be valid UTF-8."""
    raw = text.encode("utf-8", "surrogateescape")
    return change(raw, place).decode("utf-8", "surrogateescape")
