"""Find secrets in any text: by their shapes, before the hosts of URLs, and as values of names."""

from __future__ import annotations

import re
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    NOTIFIED_SUBSCRIPTION_PATH,
    NOTIFIED_TOKEN_PATH,
    RESULT_SUBSCRIPTION_PATH,
    TOKEN_PATH,
)
from mrtr_cassette.core.secrets.decode import (
    AS_STANDARD,
    BASE64_WORDS,
    TEXT_BEGINS,
    Decoded,
    as_text,
    decoded_base64,
    flattened,
    long_words,
    string_end,
    undo_json,
    undo_percent,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    words_of,
)
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    REFERENCE,
    ActiveRules,
    Mark,
    Name,
    fold,
    is_encoded,
    is_strong,
)
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, rule_of_number
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.errors import NotJsonError

Kind = Literal["text", "url", "form"]
DEEPEST: Final = 5
"""Escapes of URLs within one another, and base64 in base64, that are undone."""


class Find(NamedTuple):
    """A secret, or a value that may be one, by its offsets in a text."""

    start: int
    end: int
    rule: str
    plain: str
    """The secret with all escapes undone."""
    quote: str = ""
    """What a placeholder needs around it, where a number of JSON stood."""
    in_url: bool = False


_WINDOW = 1024
"""Characters around a find that are looked at."""
_LONGEST_NAME = 64
_LONGEST_VALUE = 2048
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

# Values of JSON

BARE_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\"")
_END_OF_JSON = re.compile(r"\\*\"\s*(?:[,:}\]]|\Z)", re.ASCII)
_OPENING = re.compile(r"\s*+(\\{0,15}[\"'])", re.ASCII)
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)", re.ASCII)
_SPACES = re.compile(r"[\s,]*+", re.ASCII)
_VALUE_IN_OBJECT = re.compile(r"\{[^{}]{0,1024}?(?<!\\)(\\*)\"value\1\"\s*:", re.ASCII)
_OF_SCHEMA = re.compile(r"\"(?:dependentRequired|dependencies)\\*\"\s*:\s*\Z", re.ASCII)
_NESTED = re.compile(r"\{[^{}]*+\}")
_BRACE = re.compile(r"[{}]")
_MEMBERS = re.compile(r"\"([\w-]{2,40})\\*\"\s*:", re.ASCII)

# Values in other text

_NO_VALUE = re.compile(
    r"(?i)(?:bearer|basic|token|digest|negotiate|none|null|nil|true|false|undefined|required"
    r"|optional|string|str|u?int[0-9]*|utf-?8|sha-?[0-9]+|base64|argon2\w*|\W*)",
    re.ASCII,
)
_TEMPLATE = re.compile(rf"{REFERENCE}|<|\{{\{{|%[({{]|\*\*\*|\.\*")
_ESCAPED = r"\\+u(?!00[01])[0-9a-fA-F]{4}|\\\\(?!\\*[\"'])"
_BARE = re.compile(rf"(?:[^\s\"'<>&;,(){{}}\[\]`|\\]|{_ESCAPED})*+", re.ASCII)
_AFTER_BARE = re.compile(r"[\s&;\"'\\]|\Z|</|<br")
_BEFORE_LINE = frozenset(["", "\r", "\n", '"'])
_REST_OF_LINE = re.compile(
    rf"(?:[^\s\"'\\]++|{_ESCAPED})++"
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
_SPACES_OF_LINE = re.compile(r"[ \t]{0,4}(?![ \t])")
_URL_CHARS = r"[^\s\"'<>\\^`{|}]"
_SCHEME_BEFORE = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]{{0,30}}://{_URL_CHARS}*\Z", re.ASCII)
_IN_URL = re.compile(rf"{_URL_CHARS}*+", re.ASCII)
_PARAMETER = {
    "text": re.compile(r"[^&#\s\"'<>\\^`{|}]*", re.ASCII),
    "url": re.compile(r"[^&#]*"),
    "form": re.compile(r"[^&]*"),
}
_URL_END = ".,;:!?)]"
_PARAMETERS = re.compile(r"(?:\A|[?&#])([\w-]{2,40})=", re.ASCII)

# Tables

_ROW = re.compile(r" *([^\r\n]*)\r? *(?:\n|\Z)")
_CELL = re.compile(r"[\s\"'`*]*+(?:\\+[\"'])?(.{0,512}?)(?:\\+[\"'])?[\s\"'`*]*", re.ASCII)

_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate|ssws)[ \t]+(?=\S)")
_NOT_SECRET = re.compile(
    r"sha256:[0-9a-f]{64}|mrtr-(?:state|session|answer):[0-9a-f:]+|[*.\u2022\u2026]+|"
)
"""What sealing has put in the place of a value, and what hides one."""


def in_named(rule: str, value: str, disabled: Collection[str]) -> Find | None:
    """Return what is secret in a value that its name makes one; a credential's scheme stays."""
    start = 0
    if rule == "authorization" and (scheme := _SCHEME.match(value)):
        start, named = scheme.end(), scheme[1].lower()
        if named in ("basic", "bearer") and named not in disabled:
            rule = named
    secret = value[start:]
    return None if _NOT_SECRET.fullmatch(secret) else Find(start, len(value), rule, secret)


class _JudgedText:
    """A text in which the finds of RE2 are judged by what stands around them."""

    def __init__(self, rules: ActiveRules, text: str, kind: Kind) -> None:
        self._rules, self._text, self._kind = rules, text, kind
        self._flat = flattened(text)
        self._shapes: dict[tuple[int, int], str] = {}
        self._bare_end = 0

    def finds(self, marks: Collection[int]) -> Iterator[Find]:
        flat = self._flat.encode("latin-1")
        for rule in self._rules.likely(marks):
            for start, end in rule.spans(flat):
                self._shapes.setdefault((start, end), rule.name)
                yield self._shaped(start, end, rule.name)
        if Mark.NAME in marks:
            yield from self._given_by_sign(flat)
            yield from self._given_beside(flat)
            yield from self._columns(flat)

    def _shaped(self, start: int, end: int, rule: str) -> Find:
        if outer := _END_OF_JSON.search(self._flat, start, end):
            end = outer.start()
        plain = self._text[start:end]
        in_url = self._is_in_url(start, end)
        plain = undo_percent(plain, is_form=self._kind == "form") if in_url else undo_json(plain)
        return Find(start, end, rule, as_text(plain), in_url=in_url)

    def _is_in_url(self, start: int, end: int) -> bool:
        if self._kind != "text":
            return True
        before = self._flat[max(0, start - _WINDOW) : start]
        at = before.rfind("://")
        return (
            at >= 0
            and _SCHEME_BEFORE.search(before, max(0, at - 31)) is not None
            and _IN_URL.fullmatch(self._flat, start, end) is not None
        )

    def _name_at(self, start: int, end: int, *, has_spaces: bool) -> tuple[Name, int]:
        chunk = self._flat[max(0, start - _LONGEST_NAME) : start]
        before = chunk.rstrip(_NAME_CHARS + " " if has_spaces else _NAME_CHARS)
        start -= len(chunk[len(before) :].lstrip(" "))
        spelled = self._flat[start:end].rpartition(".")[2]
        if not spelled.isascii() or "\\" in spelled:
            spelled = as_text(undo_json(spelled))
        return self._rules.name(spelled), start

    # A name, a sign and a value

    def _given_by_sign(self, raw: bytes) -> Iterator[Find]:
        flat, at = self._flat, 0
        for match in self._rules.named.finditer(raw):
            (start, end), after = match.span(1), match.end()
            closing = "" if after == end + 1 else flat[slice(*match.span(2))]
            name, start = self._name_at(start, end, has_spaces=bool(closing))
            if start < at or name.tells_nothing:
                continue
            opening = flat[max(0, start - len(closing)) : start] if closing else ""
            is_member = closing[-1:] == '"' and opening == closing
            if is_member and flat[start - len(closing) - 1 : start - len(closing)] != "\\":
                found = self._member(name, start, after, len(closing) - 1)
            else:
                found = self._assigned(name, start, end, after, closing)
            for find in found:
                yield find
                at = max(at, find.end)

    def _member(self, name: Name, start: int, at: int, depth: int) -> Iterator[Find]:
        flat = self._flat
        if value := self._scalar(at, depth):
            yield from self._decided(name, value, start)
            return
        at = _SPACES.match(flat, at).end()  # type: ignore[union-attr]
        if inner := _VALUE_IN_OBJECT.match(flat, at):
            if len(inner[1]) == depth and (value := self._scalar(inner.end(), depth)):
                yield from self._decided(name, value, start)
        elif flat.startswith("[", at):
            opening = flat.rfind("{", max(0, start - _WINDOW), start)
            if opening >= 0 and _OF_SCHEMA.search(flat[max(0, opening - 64) : opening]):
                return
            at += 1
            while value := self._scalar(_SPACES.match(flat, at).end(), depth):  # type: ignore[union-attr]
                at = value.end + (0 if value.quote else depth + 1)
                if not value.quote:
                    yield from self._decided(name, value, None)

    def _scalar(self, at: int, depth: int) -> Find | None:
        if number := _NUMBER.match(self._flat, at):
            return Find(*number.span(1), "", number[1], "\\" * depth + '"')
        opened = _OPENING.match(self._flat, at)
        if opened is None or opened[1] != "\\" * depth + '"':
            return None
        start, end = opened.end(), string_end(self._text, opened.end(), depth)
        times = (depth + 1).bit_length()
        return Find(start, end, "", as_text(undo_json(self._text[start:end], times)))

    def _decided(self, name: Name, value: Find, start: int | None) -> Iterator[Find]:
        """Yield a value of JSON if its name, and what stands beside it, say that it is a secret.

        `start` is where the name stands; beside an item of an array stands nothing.
        """
        rule, known = name.rule, name.ambiguous
        if not rule and known is not None:
            if known.alone(value.plain) and (not value.quote or known.takes_numbers):
                rule = known.rule
            elif start is not None and known.beside(value.plain):
                members = _MEMBERS.findall(self._object_around(start, value.end))
                rule = "" if known.companions.isdisjoint(map(fold, members)) else known.rule
        yield from self._secret(rule, value)

    def _object_around(self, start: int, end: int) -> str:
        before, after = self._flat[max(0, start - _WINDOW) : start], self._flat[end : end + _WINDOW]
        while (fewer := _NESTED.sub("", before)) != before:
            before = fewer
        while (fewer := _NESTED.sub("", after)) != after:
            after = fewer
        return _BRACE.split(before)[-1] + _BRACE.split(after, maxsplit=1)[0]

    def _secret(self, rule: str, value: Find) -> Iterator[Find]:
        named = in_named(rule, value.plain, self._rules.disabled) if rule and value.plain else None
        if named is not None:
            start = value.start + named.start
            rule = named.rule
            if rule != CUSTOM_KEY:
                # The same secret has the same placeholder under a name and in other text.
                rule = self._shapes.get((start, value.end), rule)
            rule = rule_of_number(rule) if value.quote else rule
            yield Find(start, value.end, rule, named.plain, value.quote, value.in_url)

    def _assigned(self, name: Name, start: int, end: int, at: int, closing: str) -> Iterator[Find]:
        flat = self._flat
        sign = "=>" if flat.startswith("=>", at - 2) else flat[at - 1]
        before = flat[start - 1 : start] if start else ""
        is_parameter = before in ("?", "&", "#") or (self._kind == "form" and not before)
        if sign == "=" and is_parameter and not closing and self._is_in_url(start, start):
            yield from self._parameter(name, start, at)
            return
        gap = flat[end + len(closing) : at - len(sign)]
        spaces = _SPACES_OF_LINE.match(flat, at)
        if spaces is None:
            return
        is_spaced, at = spaces.end() > at, spaces.end()
        value = self._on_line_of_its_own(name, start, at, sign)
        if value is None:
            value = self._value_after(at)
            sign = "" if gap or is_spaced else sign
            if value is None or not _is_meant(value, at, sign, closing, is_spaced=is_spaced):
                return
        rule = name.rule
        if name.ambiguous is not None:
            counts = name.ambiguous.beside if is_parameter else name.ambiguous.alone
            rule = name.ambiguous.rule if counts(value.plain) else ""
        if rule:
            in_url = self._is_in_url(value.start, value.end)
            yield from self._secret(rule, value._replace(in_url=True) if in_url else value)

    def _parameter(self, name: Name, start: int, at: int) -> Iterator[Find]:
        flat, kind = self._flat, self._kind
        end = _PARAMETER[kind].match(flat, at).end()  # type: ignore[union-attr]
        if kind == "text" and flat[end : end + 1] not in ("&", "#"):
            end = at + len(flat[at:end].rstrip(_URL_END))
        plain = as_text(undo_percent(self._text[at:end], is_form=kind == "form"))
        rule, known = name.rule, name.ambiguous
        if known is not None:
            around = flat[max(0, start - _WINDOW) : start].split()[-1:]
            around += flat[end : end + _WINDOW].split()[:1]
            names = {fold(name) for text in around for name in _PARAMETERS.findall(text)}
            is_beside = not known.parameters or not known.parameters.isdisjoint(names)
            counts = known.beside if is_beside else known.alone
            rule = known.rule if counts(plain) else ""
        yield from self._secret(rule, Find(at, end, "", plain, in_url=True))

    def _on_line_of_its_own(self, name: Name, start: int, at: int, sign: str) -> Find | None:
        before = self._flat[max(0, start - 64) : start].removesuffix("export ").removesuffix("- ")
        if before.rstrip(" \t")[-1:] not in _BEFORE_LINE:
            return None
        match = _REST_OF_LINE.match(self._flat, at)
        given = "" if match is None else match[0]
        if not 4 <= len(given) <= _LONGEST_VALUE or not _counts(given) or _CODE.search(given):
            return None
        given = given.rstrip(",;")
        is_setting = self._flat[start:at].rstrip(" \t:=").isupper()
        if not is_setting and sign != "=" and name.ambiguous is None:
            is_password = name.rule == "password"
            is_pin = is_password and given.isdigit()
            if not (is_pin or is_strong(given) or is_encoded(given)):
                return None
        return Find(at, at + len(given), "", as_text(undo_json(given)))

    def _value_after(self, at: int) -> Find | None:
        flat = self._flat
        opened = _OPENING.match(flat, at)
        if opened is not None and opened.start(1) == at:
            return self._quoted(opened)
        if at >= self._bare_end:
            self._bare_end = _BARE.match(flat, at).end()  # type: ignore[union-attr]
        end = self._bare_end
        if not 0 < end - at <= _LONGEST_VALUE or not _AFTER_BARE.match(flat, end):
            return None
        return Find(at, end, "", as_text(undo_json(self._text[at:end])))

    def _quoted(self, opened: re.Match[str]) -> Find | None:
        start, depth, flat = opened.end(), len(opened[1]) - 1, self._flat
        stop = min(len(flat), start + _LONGEST_VALUE + 16)
        if opened[1][-1] == "'":
            end = flat.find("'", start, stop)
            end = stop if end < 0 and stop == len(flat) else end
        else:
            end = string_end(self._text, start, depth)
        # What ends a string of JSON that the text stands in ends the value too.
        if outer := _END_OF_JSON.search(flat, start, end):
            end = outer.start()
        value = flat[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE or "\n" in value or "\r" in value:
            return None
        if depth == 0 and _END_OF_JSON.match(flat, opened.start(1)):
            return None
        return Find(start, end, "", as_text(undo_json(self._text[start:end])))

    # A name and a value side by side

    def _given_beside(self, raw: bytes) -> Iterator[Find]:
        flat, self._bare_end = self._flat, 0
        for match in self._rules.beside.finditer(raw):
            name, start = self._name_at(*match.span(2), has_spaces=False)
            end = match.end()
            if name.tells_nothing or end - start > _WINDOW + _LONGEST_NAME:
                continue
            quote = flat[slice(*match.span(1))]
            is_member = match.start(3) >= 0
            depth = max(len(quote) - 1, 0)
            value = self._scalar(end, depth) if is_member else self._value_after(end)
            if value is not None:
                yield from self._decided(name, value, start)

    def _columns(self, raw: bytes) -> Iterator[Find]:
        flat, at = self._flat, 0
        while match := self._rules.heading.search(raw, at):
            start, end = match.span(match.lastindex)
            at = match.end()
            heading = flat[start:end]
            delimiter = next((each for each in "|\t;," if each in heading), None)
            if delimiter is None:
                continue
            names = [
                self._rules.name(each.strip(" \r\"'\\`*")) for each in heading.split(delimiter)
            ]
            previous = flat[max(0, start - _WINDOW) : max(0, start - 1)].rpartition("\n")[2]
            if previous.count(delimiter) == len(names) - 1:
                continue
            has_quotes = BARE_QUOTE.search(heading) is not None
            while at < len(flat) and (row := _ROW.match(flat, at)):
                cells = row[1]
                if not has_quotes and (
                    quote := _END_OF_JSON.search(cells) or BARE_QUOTE.search(cells)
                ):
                    cells = cells[: quote.start()]
                if cells.count(delimiter) != len(names) - 1:
                    break
                yield from self._cells(names, cells.split(delimiter), row.start(1))
                at = row.end()

    def _cells(self, names: Sequence[Name], cells: Sequence[str], at: int) -> Iterator[Find]:
        for name, cell in zip(names, cells, strict=True):
            inner = _CELL.fullmatch(cell)
            if inner and inner[1] and not name.tells_nothing and _counts(inner[1]):
                plain = as_text(undo_json(inner[1]))
                value = Find(at + inner.start(1), at + inner.end(1), "", plain)
                yield from self._decided(name, value, None)
            at += len(cell) + 1


def _counts(value: str) -> bool:
    return not (_NO_VALUE.fullmatch(value) or _TEMPLATE.match(value))


def _is_meant(given: Find, at: int, sign: str, closing: str, *, is_spaced: bool) -> bool:
    value = given.plain
    if not _counts(value):
        return False
    if given.start > at:
        return bool(closing) or not re.search(r"\s", value)
    if sign == "=":
        return True
    return (
        len(value) >= 8
        and is_spaced
        and re.search(r"\d", value) is not None
        and re.search(r"[A-Za-z]", value) is not None
        and "://" not in value
        and value[0] not in "./~"
    )


_BEFORE_ID = 192
_BASE64 = words_of(BASE64_WORDS)
_SHORTEST_BASE64 = 11
_FIRST_OF_BASE64 = b"CDIJKLMNOPQRSTUVWXYZabcdefwxyz0123456789"
"""How base64 of text begins: with a character of ASCII, or with the first byte of another."""
_ENCODED = re.compile(
    r"(?:[A-Za-z0-9+/_-]{60,}+(?:\s{1,4}[A-Za-z0-9+/_-]{2,})*|[A-Za-z0-9+/_-]{11,})={0,2}", re.ASCII
)
_EXEMPT_KEY = re.compile(
    r"\"(?:id|progressToken|requestState|io\.modelcontextprotocol/subscriptionId)\"\s*:\s*\"?[^\"]*\Z",
    re.ASCII,
)
_LINE = re.compile(r"[^\r\n]*")
_DATA = re.compile(r"(?:\r\n|\r|\n)data: ?")
_FIELD = re.compile(r"(?:(?:data|event|id|retry|):[ ]?)?([^\r\n]+)")
_JSON_TEXT = re.compile(
    r"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"\Z)", re.DOTALL
)
_STRINGS = re.compile(r"\"([^\"\\]*+(?:\\.[^\"\\]*+)*+)\\?(?:\"|\Z)([ \t\r\n]*:)?", re.DOTALL)
_BETWEEN_STRINGS = re.compile(r"(?:\xef\xbb\xbf)?[\s{}\[\],:\d.eE+truefalsn-]*", re.ASCII)
_DIGIT = re.compile(r"[0-9]")
_BEFORE_MESSAGE = re.compile("(?:\xef\xbb\xbf)?(?:data:)?[ \\t\\r\\n]*")
_EXEMPT: Final[tuple[MemberPath, ...]] = (
    ID_PATH,
    TOKEN_PATH,
    NOTIFIED_TOKEN_PATH,
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    NOTIFIED_SUBSCRIPTION_PATH,
    RESULT_SUBSCRIPTION_PATH,
)
"""Places of a message that replay splices, seals or compares by itself."""


class Search:
    """Searches texts for the secrets that the rules of a recording know."""

    def __init__(self, rules: ActiveRules) -> None:
        self._rules = rules

    def finds(self, raw: bytes, kind: Kind = "text", *, is_stream: bool = False) -> list[Find]:
        """Return what is secret in a text, in order; no two overlap."""
        spelled = text = raw.decode("latin-1")
        if is_stream:
            text = without_framing(text)
        found = list(self._in_layer(text, kind, DEEPEST))
        if self._rules.custom:
            for start, end in _lines_of(text, is_stream=is_stream):
                found += _shifted(self._custom(text[start:end], kind), start)
        if not found:
            return []
        if is_stream:
            found = [_of_lines(spelled, find) for find in found]
        if is_stream or text.lstrip()[:1] in ("{", "[", '"'):
            found = [cut for find in found if (cut := _in_one_string(text, find))]
        return list(_without_exempt(text, _without_overlaps(text, found)))

    def in_named(self, rule: str, value: str) -> Find | None:
        """Return what is secret in a value whose name has a rule."""
        find = in_named(rule, value, self._rules.disabled)
        if find is None or PLACEHOLDER.fullmatch(find.plain):
            return None
        if rule != CUSTOM_KEY:
            # If its shape is known too, it has the same rule as in other places.
            raw = value.encode("utf-8", "surrogatepass")
            shaped = [each.rule for each in self.finds(raw) if each.plain == find.plain]
            return find._replace(rule=next(iter(shaped), find.rule))
        return find

    def _in_layer(self, text: str, kind: Kind, depth: int) -> Iterator[Find]:
        marks = self._rules.marks(text.encode("latin-1"))
        if Mark.ESCAPE in marks:
            decoded = without_ascii_escapes(text)
            if decoded.text != text:
                yield from _mapped_back(decoded, self._in_layer(decoded.text, kind, depth))
                return
        if marks and max(marks) >= Mark.NAME:
            layer = _JudgedText(self._rules, text, kind)
            found = [find for find in layer.finds(marks) if find.start < find.end]
            if found and Mark.PLACEHOLDER in marks:
                found = list(_beside_placeholders(text, found))
            yield from found
        if depth and Mark.BASE64 in marks:
            yield from self._in_base64(text, depth)
        if depth and Mark.PERCENT in marks:
            decoded = without_percent(text, is_form=kind == "form")
            inner = self._in_layer(decoded.text, kind, depth - 1)
            # Whatever begins at a quote that is no escape was judged above, with that quote.
            escaped = (
                find
                for find in inner
                if not find.start or text[decoded.source(find.start - 1)] != '"'
            )
            for find in _mapped_back(decoded, escaped):
                yield find._replace(in_url=True)

    def _custom(self, text: str, kind: Kind) -> Iterator[Find]:
        """Find what a user's patterns match in a text, or if it is JSON in each of its strings.

        A pattern must not touch the names that a protocol or a schema is made of, so of those that
        it matches only those with a digit count.
        """
        if _JSON_TEXT.match(text) and _BETWEEN_STRINGS.fullmatch(_STRINGS.sub("", text)):
            for string in _STRINGS.finditer(text):
                start, end = string.span(1)
                if start == end or (string[2] and not _DIGIT.search(string[1])):
                    continue
                inner = without_json_escapes(text[start:end])
                yield from _shifted(_mapped_back(inner, self._custom(inner.text, "text")), start)
            return
        raw = text.encode("latin-1")
        in_url = kind != "text"
        found = (
            Find(start, end, rule.name, as_text(text[start:end]), in_url=in_url)
            for rule in self._rules.custom
            for start, end in rule.spans(raw)
        )
        yield from _beside_placeholders(text, found)
        if in_url and "%" in text:
            decoded = without_percent(text, is_form=kind == "form")
            for find in _mapped_back(decoded, self._custom(decoded.text, "text")):
                yield find._replace(in_url=True)

    def _in_base64(self, text: str, depth: int) -> Iterator[Find]:
        raw = text.encode("latin-1")
        end = 0
        for start, stop in long_words(raw, _BASE64, _SHORTEST_BASE64):
            if start < end or raw[start] not in _FIRST_OF_BASE64:
                continue
            first = raw[start : start + (12 if stop - start >= 12 else 8)].translate(AS_STANDARD)
            if not TEXT_BEGINS.match(a2b_base64(first)):
                continue
            match = _ENCODED.match(text, start)
            word, end = (match[0], match.end()) if match else ("", end)
            inner = decoded_base64(word)
            find = next(self._in_layer(inner, "text", depth - 1), None) if inner else None
            if find is not None:
                yield Find(start, end, find.rule, word)


def _without_exempt(text: str, finds: list[Find]) -> Iterator[Find]:
    whole: list[Span] | None = None
    in_line: list[Span] = []
    line_end = 0
    for find in finds:
        if _EXEMPT_KEY.search(text, max(0, find.start - _BEFORE_ID), find.start):
            # The message is the whole text, or a line of it.
            if whole is None:
                whole = _exempt_spans(text, 0, len(text))
            if find.start >= line_end:
                line = max(text.rfind(end, line_end, find.start) for end in "\r\n") + 1
                line_end = _LINE.match(text, find.start).end()  # type: ignore[union-attr]
                in_line = _exempt_spans(text, line, line_end)
            if any(s.start <= find.start and find.end <= s.end for s in (*whole, *in_line)):
                continue
        yield find


def _exempt_spans(text: str, start: int, end: int) -> list[Span]:
    start = _BEFORE_MESSAGE.match(text, start, end).end()  # type: ignore[union-attr]
    try:
        found = find_spans(text[start:end].encode("latin-1"), _EXEMPT)
    except NotJsonError:
        return []
    spans = (Span(s.start + start, s.end + start) for spans in found.values() for s in spans)
    # An object or an array is no id, so it is like any other value.
    return [span for span in spans if text[span.start] not in "{["]


def _lines_of(text: str, *, is_stream: bool) -> Iterator[tuple[int, int]]:
    if is_stream:
        yield from (line.span(1) for line in _FIELD.finditer(text))
    else:
        yield 0, len(text)


def _in_one_string(text: str, find: Find) -> Find | None:
    quote = BARE_QUOTE.search(text, find.start, find.end)
    if quote is None:
        return find
    cut = text[find.start : quote.start()]
    end = find.start + len(cut)
    return find._replace(end=end, plain=as_text(undo_json(cut))) if cut else None


def _of_lines(text: str, find: Find) -> Find:
    spelled = text[find.start : find.end]
    return find._replace(plain=_DATA.sub("\n", spelled)) if _DATA.search(spelled) else find


def _shifted(finds: Iterable[Find], by: int) -> Iterator[Find]:
    for find in finds:
        yield find._replace(start=find.start + by, end=find.end + by)


def _mapped_back(decoded: Decoded, finds: Iterable[Find]) -> Iterator[Find]:
    for find in finds:
        yield find._replace(start=decoded.source(find.start), end=decoded.source(find.end))


def _beside_placeholders(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    placed = [match.span() for match in PLACEHOLDER.finditer(text)]
    starts = [start for start, _ in placed]
    for find in finds:
        # The last one that begins before the find does, and the last that begins in it.
        first = bisect_right(starts, find.start) - 1
        last = bisect_right(starts, find.end - 1) - 1
        end = placed[first][1] if first >= 0 else 0
        is_cut = end > find.start and (starts[first] < find.start or find.end <= end)
        if not is_cut and (last < 0 or placed[last][1] <= find.end):
            yield find


def _without_overlaps(text: str, finds: list[Find]) -> list[Find]:
    finds.sort(key=lambda find: (find.start, -find.end))
    kept: list[Find] = []
    for find in finds:
        if not kept or find.start >= kept[-1].end:
            kept.append(find)
        elif find.end > kept[-1].end:
            wider = undo_json(text[kept[-1].start : find.end])
            kept[-1] = kept[-1]._replace(end=find.end, plain=as_text(wider))
    return kept
