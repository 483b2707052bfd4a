"""Judge what a secret's name is given, in the spelling of the place that it stands in.

A value is read where its name was found: in JSON, also in a string of JSON, in lines of settings,
in parameters of URLs and forms, in code, and in columns of tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from mrtr_cassette.core.secrets.decode import as_text, string_end, undo_json, undo_percent
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    REFERENCE,
    ActiveRules,
    AmbiguousName,
    Name,
    fold,
    is_encoded,
    is_strong,
)
from mrtr_cassette.core.secrets.sealed import rule_of_number

Kind = Literal["text", "url", "form"]
_WINDOW = 1024
"""Characters before and after a find that are looked at."""
_LONGEST_NAME = 64
_LONGEST_VALUE = 2048

_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_QUOTE_BEFORE = re.compile(r"\\{0,15}[\"']\Z")
_OPENING = re.compile(r"\s*+(\\{0,15}[\"'])", re.ASCII)
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)", re.ASCII)
_SPACES = re.compile(r"[\s,]*+", re.ASCII)
_VALUE_IN_OBJECT = re.compile(r"\s*+\{[^{}]{0,1024}?(?<!\\)(\\*)\"value\1\"\s*:", re.ASCII)
_VALUE_AFTER = re.compile(r"[^{}]{0,1024}?\\*\"value\\*\"\s*:", re.ASCII)
_NAMING = re.compile(r"(\\{0,15}\")(?:name|id|key)\\{0,15}\"\s{0,8}:\s{0,8}\\{0,15}\"\Z", re.ASCII)
_NAMING_LINE = re.compile(r"\bname[\"']?[ \t]*[:=][ \t]*[\"']?\Z", re.ASCII)
_VALUE_LINE = re.compile(r"[\"']?[ \t]*\r?\n\s{0,64}value[ \t]*[:=][ \t]*", re.ASCII)
_OF_SCHEMA = re.compile(r"\"(?:dependentRequired|dependencies)\\*\"\s*:\s*\Z", re.ASCII)
_MEMBERS = re.compile(r"\"([\w-]{2,40})\\*\"\s*:", re.ASCII)
_PARAMETERS = re.compile(r"(?:\A|[?&#])([\w-]{2,40})=", re.ASCII)
_STRING_BEGIN = re.compile(r"(?:[:\[{]\s{0,4}|\A)\\{0,8}\"")
_AROUND_CELL = " \r\"'\\`*"
_IN_CELL = re.compile(r"[\s\"'`*]*+(?:\\+[\"'])?(.{0,512}?)(?:\\+[\"'])?[\s\"'`*]*", re.ASCII)
_DELIMITERS = re.compile(r"[|\t;,]")
_CELL = re.compile(r"[A-Za-z_][\w.-]*(?: [\w.-]+)?|", re.ASCII)
_RULE = re.compile(r"[ |:-]*-[ |:-]*\s*")
_BRACES = re.compile(r"[{}]")

_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate|ssws)[ \t]+(?=\S)")
_NO_VALUE = re.compile(
    r"(?i)(?:bearer|basic|token|digest|negotiate|none|null|nil|true|false|undefined|required"
    r"|optional|string|str|u?int[0-9]*|utf-?8|sha-?[0-9]+|base64|argon2\w*|\W*)",
    re.ASCII,
)
_TEMPLATE = re.compile(rf"{REFERENCE}|<|\{{\{{|%[({{]|\*\*\*|\.\*")
_SEALED = re.compile(r"sha256:[0-9a-f]{64}|mrtr-(?:state|session|answer):[0-9a-f:]+")
"""What sealing has put in the place of a value: the same for everyone, and compared on replay."""

_HIDDEN = re.compile(r"[*.\u2022\u2026]+")

_ESCAPED = r"\\+u(?!00[01])[0-9a-fA-F]{4}|\\\\(?!\\*[\"'])"
_BARE = re.compile(rf"(?:[^\s\"'<>&;,(){{}}\[\]`|\\]|{_ESCAPED})*+", re.ASCII)
BARE_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\"")
END_OF_JSON = re.compile(r"\\*\"\s*(?:[,:}\]]|\Z)", re.ASCII)
_AFTER_BARE = frozenset("&;\"'\\")
_TAGS_AFTER_BARE = ("</", "<br")
_LINE_BEFORE = re.compile(r"(?:\A|[\r\n\"])[ \t]*(?:- |export )?\Z")
_REST_OF_LINE = re.compile(
    rf"(?:[^\s\"'\\]|{_ESCAPED}){{4,2048}}"
    r"(?=[ \t]*(?:[\r\n]|\\*\Z|[ \t]#|\\*\"\s*(?:[,}\])]|\Z)))",
    re.ASCII,
)
_CODE = re.compile(
    r"\A[|>&*!{\[(]|\\|[;,&]\w+="
    # A call or an item of a known one, but no password with brackets: `Hunter2(horse9)`.
    r"|\A(?![A-Za-z]+[0-9]+[(\[{][A-Za-z]+[0-9]+[)\]}])[A-Za-z_][\w.]*[(\[{].*[)\]}]\Z"
    r"|\A(?i:sha[0-9]+|md5|b(?:ase)?64|argon2)\w*\("
    r"|\A[A-Za-z_.]*[0-9]*[,;]\Z|\W[,;]\Z",
    re.ASCII,
)
"""What stands behind a name in code, and in a list of names and values, and not in settings."""

_IN_URL = re.compile(r"[^\s\"'<>\\^`{|}]*+", re.ASCII)
_SCHEME_BEFORE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>\\^`{|}]*\Z", re.ASCII)
_URL_VALUE = re.compile(r"[^&#\s\"'<>\\^`{|}]*", re.ASCII)
_URL_END = ".,;:!?)]"


class Find(NamedTuple):
    """A secret in a text.

    Attributes:
        start: offset of its first byte.
        end: offset after its last one.
        rule: the rule that it was found by.
        plain: the secret itself, with all escapes undone.
        quote: what a placeholder needs before and after it, where a number stood.
        in_url: it stands in a URL or a form.
    """

    start: int
    end: int
    rule: str
    plain: str
    quote: str = ""
    in_url: bool = False


class Searched(NamedTuple):
    """A text with what is needed to judge what was found in it.

    Attributes:
        text: the text.
        flat: the same with real line ends.
        kind: what the whole text is.
        shapes: the rules of what was found by its shape, by place.
    """

    text: str
    flat: str
    kind: Kind
    shapes: dict[tuple[int, int], str]


def is_in_url(layer: Searched, start: int, end: int) -> bool:
    """Tell whether a part of a text stands in a URL."""
    if layer.kind != "text":
        return True
    before = layer.flat[max(0, start - _WINDOW) : start]
    at = before.rfind("://")
    return (
        at >= 0
        and _SCHEME_BEFORE.search(before, max(0, at - 31)) is not None
        and (_IN_URL.fullmatch(layer.flat, start, end) is not None)
    )


class _Value(NamedTuple):
    """What a name is given.

    Attributes:
        start, end: where it stands.
        plain: the value itself.
        quote: what a placeholder needs around it.
    """

    start: int
    end: int
    plain: str
    quote: str = ""


class NamedValues:
    """Judges the values of names in one text."""

    def __init__(self, rules: ActiveRules, layer: Searched) -> None:
        self._rules = rules
        self._layer = layer
        self._text, self._flat = layer.text, layer.flat
        self._bare_end = self._table_end = 0

    def finds(self, raw: bytes) -> Iterator[Find]:
        """Yield the secrets that names tell.

        Args:
            raw: the bytes of the flat text.
        """
        pattern, at = self._rules.named, 0
        while match := pattern.search(raw, at):
            start, end = match.span(1)
            at = end
            chunk = self._flat[max(0, start - _LONGEST_NAME) : start]
            closing = (match[2] or b"").decode()
            chars = _NAME_CHARS + " " if closing else _NAME_CHARS
            prefix = chunk[len(chunk.rstrip(chars)) :].lstrip(" ")
            start -= len(prefix)
            spelled = self._flat[start:end].rpartition(".")[2]
            if not spelled.isascii() or "\\" in spelled:
                spelled = as_text(undo_json(spelled))
            name = self._rules.name(spelled)
            if name.tells_nothing:
                continue
            for find in self._judged(name, start, end, match):
                yield find
                at = max(at, find.end)

    def _judged(self, name: Name, start: int, end: int, match: re.Match[bytes]) -> Iterator[Find]:
        """Yield what is secret of what stands after a name."""
        opening = _QUOTE_BEFORE.search(self._flat[max(0, start - 16) : start])
        quote = opening[0] if opening else ""
        closing, sign = (match[2] or b"").decode(), (match[3] or b"").decode()
        if not sign:
            yield from self._beside(name, start, end)
        elif quote and quote == closing and quote[-1] == '"':
            yield from self._member(name, start, match.end(3), len(quote) - 1)
        else:
            yield from self._assigned(name, start, match, closing)

    # Members of JSON

    def _member(self, name: Name, start: int, at: int, depth: int) -> Iterator[Find]:
        """Yield the secrets in the value of a member, which begins at an offset."""
        text = self._flat
        opened = _OPENING.match(text, at)
        if opened or _NUMBER.match(text, at):
            for value in self._scalar(at, depth):
                yield from self._decided(name, value, start, is_number=bool(value.quote))
            return
        at = _SPACES.match(text, at).end()  # type: ignore[union-attr]
        if text.startswith("[", at):
            if not self._is_schema(start):
                yield from self._items(name, at + 1, depth)
        elif (inner := _VALUE_IN_OBJECT.match(text, at)) and len(inner[1]) == depth:
            for value in self._scalar(inner.end(), depth):
                yield from self._decided(name, value, start, is_number=bool(value.quote))

    def _items(self, name: Name, at: int, depth: int) -> Iterator[Find]:
        """Yield the strings of an array."""
        while True:
            at = _SPACES.match(self._flat, at).end()  # type: ignore[union-attr]
            number = _NUMBER.match(self._flat, at)
            if number is None and not _OPENING.match(self._flat, at):
                return
            values = list(self._scalar(at, depth))
            if not values:
                return
            at = values[0].end + (0 if number else depth + 1)
            if number is None:
                yield from self._decided(name, values[0], None)
            if not _OPENING.match(self._flat, at) and not self._flat.startswith(",", at):
                return

    def _scalar(self, at: int, depth: int) -> Iterator[_Value]:
        """Yield the string or the number of JSON that stands at an offset."""
        text = self._flat
        if number := _NUMBER.match(text, at):
            yield _Value(*number.span(1), number[1], '"' if not depth else "\\" * depth + '"')
            return
        opened = _OPENING.match(text, at)
        if opened is None or opened[1] != "\\" * depth + '"':
            return
        start = opened.end()
        end = string_end(self._text, start, len(opened[1]) - 1)
        times = len(opened[1]).bit_length()
        yield _Value(start, end, as_text(undo_json(self._text[start:end], times)))

    def _is_schema(self, start: int) -> bool:
        """Tell whether a member is one of those by which a schema names properties."""
        opening = self._flat.rfind("{", max(0, start - _WINDOW), start)
        return opening >= 0 and bool(_OF_SCHEMA.search(self._flat[max(0, opening - 64) : opening]))

    def _beside(self, name: Name, start: int, end: int) -> Iterator[Find]:
        """Yield the value of an object or of lines that have the name as another value."""
        before = self._flat[max(0, start - 64) : start]
        if _NAMING.search(before):
            if value := _VALUE_AFTER.match(self._flat, end):
                depth = len(_QUOTE_BEFORE.search(before)[0]) - 1  # type: ignore[index]
                for given in self._scalar(value.end(), depth):
                    yield from self._decided(name, given, start, is_number=bool(given.quote))
        elif _NAMING_LINE.search(before) and (line := _VALUE_LINE.match(self._flat, end)):
            if given_after := self._value_after(line.end()):
                yield from self._decided(name, given_after, start)
        elif start >= self._table_end:
            yield from self._columns(start, end)

    def _object_after(self, at: int) -> str:
        """Return what follows directly in the same object, without what is nested in it."""
        window = self._flat[at : at + _WINDOW]
        pieces, depth, begin = [], 0, 0
        for brace in _BRACES.finditer(window):
            if not depth:
                pieces.append(window[begin : brace.start()])
            depth += 1 if brace[0] == "{" else -1
            begin = brace.end()
            if depth < 0:
                return "".join(pieces)
        return "".join(pieces) if depth else "".join((*pieces, window[begin:]))

    def _object_before(self, at: int) -> str:
        """Return what stands directly before in the same object."""
        window = self._flat[max(0, at - _WINDOW) : at]
        pieces, depth, end = [], 0, len(window)
        for brace in reversed([*_BRACES.finditer(window)]):
            if not depth:
                pieces.append(window[brace.end() : end])
            depth += 1 if brace[0] == "}" else -1
            end = brace.start()
            if depth < 0:
                return "".join(pieces)
        return "".join(pieces) if depth else "".join((*pieces, window[:end]))

    # Tables

    def _columns(self, start: int, end: int) -> Iterator[Find]:
        """Yield the values of columns that a line of names has, in CSV and in Markdown."""
        flat = self._flat
        first = flat.rfind("\n", max(0, start - _WINDOW), start) + 1 or max(0, start - _WINDOW)
        for opening in _STRING_BEGIN.finditer(flat, first, start):
            first = opening.end()
        last = flat.find("\n", end, end + _WINDOW)
        # No other name of this line makes a table of it either.
        self._table_end = end + _WINDOW if last < 0 else last
        if last < 0:
            return
        if any(cell.count('"') % 2 for cell in _DELIMITERS.split(flat[first:last])):
            # A string of JSON begins here, which has the table.
            first = flat.rfind('"', first, last) + 1
        header = flat[first:last]
        delimiter = next((each for each in "|\t;," if each in header), None)
        if delimiter is None:
            return
        names = [cell.strip(_AROUND_CELL) for cell in header.split(delimiter)]
        before = flat[max(0, first - _WINDOW) : max(0, first - 1)].rpartition("\n")[2]
        if delimiter in ",;" and (
            header[0] == " " or any(" " in each or not each for each in names)
        ):
            return
        if not all(map(_CELL.fullmatch, names)) or before.count(delimiter) == len(names) - 1:
            return
        known = {column: self._rules.name(name) for column, name in enumerate(names)}
        for begins, row in self._rows(last + 1, has_quotes=BARE_QUOTE.search(header) is not None):
            if row.count(delimiter) != len(names) - 1:
                break
            if delimiter == "|" and self._table_end == last and not _RULE.fullmatch(row):
                return
            self._table_end, at = begins + len(row), begins
            for column, cell in enumerate(row.split(delimiter)):
                inner = _IN_CELL.fullmatch(cell)
                plain, begin = (inner[1], at + inner.start(1)) if inner else ("", at)
                at += len(cell) + 1
                if plain and self._counts(plain) and not known[column].tells_nothing:
                    value = _Value(begin, begin + len(plain), as_text(undo_json(plain)))
                    yield from self._decided(known[column], value, None)

    def _rows(self, at: int, *, has_quotes: bool) -> Iterator[tuple[int, str]]:
        """Yield the lines that follow, each with where it begins."""
        while at < len(self._flat):
            end = self._flat.find("\n", at)
            end = len(self._flat) if end < 0 else end
            row = self._flat[at:end]
            row = row.lstrip(" ")
            if not has_quotes and (quote := END_OF_JSON.search(row) or BARE_QUOTE.search(row)):
                row = row[: quote.start()]
            yield end - len(self._flat[at:end].lstrip(" ")), row
            at = end + 1

    def _counts(self, value: str) -> bool:
        return not (_NO_VALUE.fullmatch(value) or _TEMPLATE.match(value))

    def _decided(
        self, name: Name, value: _Value, start: int | None, *, is_number: bool = False
    ) -> Iterator[Find]:
        """Yield a value if its name, and what stands beside it, say that it is a secret."""
        rule, known = name.rule, name.ambiguous
        if not rule and known is not None:
            if known.alone(value.plain) and (not is_number or known.takes_numbers):
                rule = known.rule
            elif start is not None and known.beside(value.plain):
                around = self._object_before(start) + self._object_after(value.end)
                if has_companion(known, _MEMBERS.findall(around), in_query=False):
                    rule = known.rule
        yield from self._secret(rule, value)

    def _secret(self, rule: str, value: _Value, *, in_url: bool = False) -> Iterator[Find]:
        """Yield a value that is a secret; the scheme of a credential stays."""
        named = in_named(rule, value.plain, self._rules.disabled) if rule and value.plain else None
        if named is not None:
            start = value.start + named.start
            if rule != CUSTOM_KEY:
                rule = self._layer.shapes.get((start, value.end), named.rule)
            rule = rule_of_number(rule) if value.quote else rule
            yield Find(start, value.end, rule, named.plain, value.quote, in_url)

    # Parameters, settings, headers and code

    def _assigned(
        self, name: Name, start: int, match: re.Match[bytes], closing: str
    ) -> Iterator[Find]:
        """Yield the secret that text outside JSON gives to a name."""
        sign, at = (match[3] or b"").decode(), match.end(3)
        flat, kind = self._flat, self._layer.kind
        before = flat[start - 1 : start]
        is_parameter = before in ("?", "&", "#") and start > 0
        is_parameter = is_parameter or (kind == "form" and before in ("", "&"))
        if sign == "=" and is_parameter and not closing and is_in_url(self._layer, start, start):
            yield from self._parameter(name, start, at)
            return
        spaces = len(flat[at : at + 5]) - len(flat[at : at + 5].lstrip(" \t"))
        gap = flat[match.end(1) + len(closing) : match.end(3) - len(sign)]
        if len(gap) > 4 or spaces > 4 or "\n" in gap or "\r" in gap:
            return
        is_spaced = spaces > 0
        at += spaces
        value = self._on_line_of_its_own(name, start, at, sign, is_spaced=is_spaced)
        if value is None:
            value = self._value_after(at)
            sign = "" if gap or is_spaced else sign
            if value is None or not self._is_meant(value, at, sign, closing, is_spaced=is_spaced):
                return
        rule = name.rule
        if name.ambiguous is not None:
            counts = name.ambiguous.in_query if is_parameter else name.ambiguous.alone
            rule = name.ambiguous.rule if counts(value.plain) else ""
        yield from self._secret(rule, value, in_url=is_in_url(self._layer, value.start, value.end))

    def _parameter(self, name: Name, start: int, at: int) -> Iterator[Find]:
        """Yield the value of a parameter of a URL or a form."""
        kind = self._layer.kind
        if kind == "text":
            end = _URL_VALUE.match(self._flat, at).end()  # type: ignore[union-attr]
            if end == len(self._flat) or self._flat[end] not in "&#":
                end -= len(self._flat[at:end]) - len(self._flat[at:end].rstrip(_URL_END))
        else:
            ends = [self._text.find(char, at) for char in ("&#" if kind == "url" else "&")]
            end = min((each for each in ends if each >= 0), default=len(self._text))
        plain = as_text(undo_percent(self._text[at:end], is_form=kind == "form"))
        rule, known = name.rule, name.ambiguous
        if not rule and known is not None:
            if known.in_query(plain):
                rule = known.rule
            elif known.beside(plain):
                around = self._flat[max(0, start - _WINDOW) : start].split()[-1:] or [""]
                behind = self._flat[end : end + _WINDOW].split()[:1] or [""]
                names = _PARAMETERS.findall(around[0]) + _PARAMETERS.findall(behind[0])
                if has_companion(known, names, in_query=True):
                    rule = known.rule
        yield from self._secret(rule, _Value(at, end, plain), in_url=True)

    def _on_line_of_its_own(
        self, name: Name, start: int, at: int, sign: str, *, is_spaced: bool
    ) -> _Value | None:
        """Return a value that is all that follows in a line, as in YAML and ini files, or None."""
        if not _LINE_BEFORE.search(self._flat[max(0, start - 64) : start]):
            return None
        match = _REST_OF_LINE.match(self._flat, at)
        given = "" if match is None else match[0]
        if _NO_VALUE.fullmatch(given) or _TEMPLATE.match(given) or _CODE.search(given):
            return None
        given = given.rstrip(",;")
        is_setting = self._flat[start:at].rstrip(" \t:=").isupper()
        if not is_setting and sign != "=" and name.ambiguous is None:
            is_password = name.rule == "password"
            if not (is_password and given.isdigit()) and not (
                is_strong(given) or is_encoded(given)
            ):
                return None
            if not is_spaced and not is_password:
                return None
        return _Value(at, at + len(given), as_text(undo_json(given)))

    def _value_after(self, at: int) -> _Value | None:
        """Return the value that begins at an offset: in quotes, or up to a delimiter."""
        flat = self._flat
        opened = _OPENING.match(flat, at)
        if opened is not None and opened.start(1) == at:
            return self._quoted(opened)
        if at >= self._bare_end:
            self._bare_end = _BARE.match(flat, at).end()  # type: ignore[union-attr]
        end = self._bare_end
        after = flat[end : end + 1]
        is_ended = not after or after.isspace() or after in _AFTER_BARE
        is_ended = is_ended or flat.startswith(_TAGS_AFTER_BARE, end)
        if not 0 < end - at <= _LONGEST_VALUE or not is_ended:
            return None
        return _Value(at, end, as_text(undo_json(self._text[at:end])))

    def _quoted(self, opened: re.Match[str]) -> _Value | None:
        start, depth = opened.end(), len(opened[1]) - 1
        stop = min(len(self._flat), start + _LONGEST_VALUE + 16)
        if opened[1][-1] == "'":
            end = self._flat.find("'", start, stop)
            end = stop if end < 0 and stop == len(self._flat) else end
            end -= len(self._flat[start:end]) - len(self._flat[start:end].rstrip("\\"))
        else:
            end = string_end(self._text, start, depth)
        # What ends a string of JSON that the text stands in ends the value too.
        outer = END_OF_JSON.search(self._flat, start, end)
        end = end if outer is None else outer.start()
        value = self._flat[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE or "\n" in value or "\r" in value:
            return None
        if END_OF_JSON.match(self._flat, opened.start(1)) and depth == 0:
            return None
        return _Value(start, end, as_text(undo_json(self._text[start:end])))

    def _is_meant(
        self, given: _Value, at: int, sign: str, closing: str, *, is_spaced: bool
    ) -> bool:
        """Tell whether a value in text is a secret and not a word, a type or a template."""
        value = given.plain
        if not self._counts(value):
            return False
        if given.start > at:
            return bool(closing) or not re.search(r"\s", value)
        if sign == "=":
            return not closing
        return (
            len(value) >= 8
            and is_spaced
            and re.search(r"\d", value) is not None
            and re.search(r"[A-Za-z]", value) is not None
            and "://" not in value
            and value[0] not in "./~"
        )


def in_named(rule: str, value: str, disabled: Collection[str]) -> Find | None:
    """Return what is secret in a value that its name makes one; a credential's scheme stays."""
    start = 0
    if rule == "authorization" and (scheme := _SCHEME.match(value)):
        start, named = scheme.end(), scheme[1].lower()
        if named in ("basic", "bearer") and named not in disabled:
            rule = named
    secret = value[start:]
    if not secret or _SEALED.fullmatch(secret) or _HIDDEN.fullmatch(secret):
        return None
    return Find(start, len(value), rule, secret)


def has_companion(known: AmbiguousName, names: Sequence[str], *, in_query: bool) -> bool:
    """Tell whether one of some names makes a value beside it a secret."""
    companions = known.companions | known.in_query_only if in_query else known.companions
    return not companions.isdisjoint(map(fold, set(names)))
