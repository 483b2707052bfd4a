"""Find secrets in any text: RE2 finds names and shapes, and what stands around each is judged.

The text may be JSON, also in a string of JSON, cut off or nested to any depth, an event stream, a
form, a URL, a header's value, or any other text. Nothing of it is parsed: a value is read where its
name was found. A text is a Latin-1 decoding, so an offset in it is one in its bytes.
"""

from __future__ import annotations

import re
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
    BASE64_WORDS,
    Decoded,
    as_text,
    decoded_base64,
    flattened,
    long_words,
    may_be_text,
    string_end,
    undo_json,
    undo_percent,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    words_of,
)
from mrtr_cassette.core.secrets.names import REFERENCE, AmbiguousName, fold, is_encoded, is_strong
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, rule_of_number
from mrtr_cassette.core.secrets.rules import CREDENTIALS, CUSTOM_KEY, ActiveRules, Mark, Name
from mrtr_cassette.core.secrets.urls import credentials_in
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.errors import NotJsonError

Kind = Literal["text", "url", "form"]
DEEPEST: Final = 5
"""Escapes of URLs within one another, and base64 in base64, that are undone."""
_WINDOW = 1024
"""Characters before and after a find that are looked at."""
_BEFORE_ID = 192
_LONGEST_NAME = 64
_LONGEST_VALUE = 2048

_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_QUOTE_BEFORE = re.compile(r"\\{0,15}[\"']\Z")
_OPENING = re.compile(r"\s*+(\\{0,15}[\"'])", re.ASCII)
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)", re.ASCII)
_SPACES = re.compile(r"[\s,]*+", re.ASCII)
_VALUE_IN_OBJECT = re.compile(r"\s*+\{[^{}]{0,1024}?\\*\"value\\*\"\s*:", re.ASCII)
_VALUE_AFTER = re.compile(r"[^{}]{0,1024}?\\*\"value\\*\"\s*:", re.ASCII)
_NAMING = re.compile(r"(\\{0,15}\")(?:name|id|key)\\{0,15}\"\s{0,8}:\s{0,8}\\{0,15}\"\Z", re.ASCII)
_NAMING_LINE = re.compile(r"\bname[\"']?[ \t]*[:=][ \t]*[\"']?\Z", re.ASCII)
_VALUE_LINE = re.compile(r"[\"']?[ \t]*\r?\n\s{0,64}value[ \t]*[:=][ \t]*", re.ASCII)
_OF_SCHEMA = re.compile(r"\"(?:dependentRequired|dependencies)\\*\"\s*:\s*\Z", re.ASCII)
_MEMBERS = re.compile(r"\"([\w-]{2,40})\\*\"\s*:", re.ASCII)
_PARAMETERS = re.compile(r"(?:\A|[?&#])([\w-]{2,40})=", re.ASCII)
_STRING_BEGIN = re.compile(r"(?:[:\[{]\s{0,4}|\A)\\{0,8}\"")
_AROUND_CELL = " \r\"'\\`*"
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

_ESCAPED = r"\\+u(?!00[01])[0-9a-fA-F]{4}|\\\\"
_BARE = re.compile(rf"(?:[^\s\"'<>&;,(){{}}\[\]`|\\]|{_ESCAPED})*+", re.ASCII)
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
_BASE64_WORDS = words_of(BASE64_WORDS)
_SHORTEST_BASE64 = 11
_ENCODED = re.compile(
    r"(?:[A-Za-z0-9+/_-]{60,}+(?:\s{1,4}[A-Za-z0-9+/_-]{2,})*|[A-Za-z0-9+/_-]{11,})={0,2}", re.ASCII
)
_EXEMPT_KEY = re.compile(
    r"\"(?:id|progressToken|requestState|io\.modelcontextprotocol/subscriptionId)\"\s*:\s*\"?[^\"]*\Z",
    re.ASCII,
)


_LINE = re.compile(r"[^\r\n]*")
_DATA = re.compile(r"(?:\r\n|\r|\n)data: ?")
_FIELD = re.compile(r"(?:(data|event|id|retry|):[ ]?)?([^\r\n]+)")
_JSON_TEXT = re.compile(
    r"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"\Z)", re.DOTALL
)
_STRINGS = re.compile(r"\"([^\"\\]*+(?:\\.[^\"\\]*+)*+)\\?(?:\"|\Z)([ \t\r\n]*:)?", re.DOTALL)
_BETWEEN_STRINGS = re.compile(r"(?:\xef\xbb\xbf)?[\s{}\[\],:\d.eE+truefalsn-]*", re.ASCII)
_DIGIT = re.compile(r"[0-9]")
_BEFORE_MESSAGE = re.compile("(?:\xef\xbb\xbf)?(?:data:)?[ \\t\\r\\n]*")


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


class _Searched(NamedTuple):
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


class Search:
    """Searches texts for the secrets that the rules of a recording know."""

    def __init__(self, rules: ActiveRules) -> None:
        """Begin a search."""
        self._rules = rules

    def finds(self, raw: bytes, kind: Kind = "text", *, is_stream: bool = False) -> list[Find]:
        """Return what is secret in a text, in order; no two overlap."""
        spelled = text = raw.decode("latin-1")
        if is_stream:
            text = without_framing(text)
        found = list(self._layer(text, kind, DEEPEST))
        if self._rules.custom:
            for start, end in _lines_of(text, is_stream=is_stream):
                found += _shifted(self._custom(text[start:end], kind), start)
        if is_stream:
            found = [_of_lines(spelled, find) for find in found]
        found = without_overlaps(text, found)
        return list(_without_exempt(text, found))

    def in_named(self, rule: str, value: str) -> Find | None:
        """Return what is secret in a value whose name has a rule."""
        find = in_named(rule, value, self._rules.disabled)
        if find is None or PLACEHOLDER.fullmatch(find.plain):
            return None
        if rule != CUSTOM_KEY:
            # If its shape is known too, it has the same rule as in other places.
            raw = value.encode("utf-8", "surrogatepass")
            span = len(raw) - len(find.plain.encode("utf-8", "surrogatepass")), len(raw)
            for shape in self._rules.likely(self._rules.marks(raw)):
                if span in shape.spans(raw):
                    return find._replace(rule=shape.name)
        return find

    def _layer(self, text: str, kind: Kind, depth: int) -> Iterator[Find]:
        raw = text.encode("latin-1")
        marks = self._rules.marks(raw)
        if Mark.ESCAPE in marks:
            decoded = without_ascii_escapes(text)
            if decoded.text != text:
                inner = self._layer(decoded.text, kind, depth)
                yield from mapped_back(decoded, inner)
                return
        if marks:
            flat = flattened(text)
            layer = _Searched(text, flat, kind, {})
            found = list(self._found(layer, marks))
            if found and Mark.PLACEHOLDER in marks:
                found = list(_beside_placeholders(text, found))
            yield from found
        if depth:
            if Mark.BASE64 in marks:
                yield from self._in_base64(text, depth)
            if Mark.PERCENT in marks:
                decoded = without_percent(text, is_form=kind == "form")
                inner = self._layer(decoded.text, kind, depth - 1)
                for find in mapped_back(decoded, inner):
                    yield find._replace(in_url=True)

    def _found(self, layer: _Searched, marks: set[int]) -> Iterator[Find]:
        flat = layer.flat.encode("latin-1")
        for rule in self._rules.likely(marks):
            for start, end in rule.spans(flat):
                layer.shapes.setdefault((start, end), rule.name)
                yield self._find(layer, start, end, rule.name)
        if Mark.CREDENTIALS in marks:
            for start, end in credentials_in(layer.flat):
                yield self._find(layer, start, end, CREDENTIALS)
        if Mark.NAME in marks:
            yield from _Named(self._rules, layer).finds(flat)

    def _find(self, layer: _Searched, start: int, end: int, rule: str) -> Find:
        plain = layer.text[start:end]
        in_url = is_in_url(layer, start, end)
        plain = undo_percent(plain, is_form=layer.kind == "form") if in_url else undo_json(plain)
        return Find(start, end, rule, as_text(plain), in_url=in_url)

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
                yield from _shifted(mapped_back(inner, self._custom(inner.text, "text")), start)
            return
        raw = text.encode("latin-1")
        placed = list(_beside_placeholders(text, self._by_pattern(raw, kind)))
        yield from placed
        if kind != "text" and "%" in text:
            decoded = without_percent(text, is_form=kind == "form")
            for find in mapped_back(decoded, self._custom(decoded.text, "text")):
                yield find._replace(in_url=True)

    def _by_pattern(self, raw: bytes, kind: Kind) -> Iterator[Find]:
        for rule in self._rules.custom:
            for start, end in rule.spans(raw):
                plain = raw[start:end].decode("utf-8", "surrogateescape")
                yield Find(start, end, rule.name, plain, in_url=kind != "text")

    def _in_base64(self, text: str, depth: int) -> Iterator[Find]:
        """Find text in base64 that has a secret, which is one as a whole."""
        raw = text.encode("latin-1")
        end = 0
        for start, stop in long_words(raw, _BASE64_WORDS, _SHORTEST_BASE64):
            if start < end or not may_be_text(raw[start : min(stop, start + 12)]):
                continue
            match = _ENCODED.match(text, start)
            word, end = (match[0], match.end()) if match else ("", end)
            inner = decoded_base64(word)
            for find in self._layer(inner, "text", depth - 1) if inner else ():
                yield Find(start, end, find.rule, word)
                break


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


def _without_exempt(text: str, finds: list[Find]) -> Iterator[Find]:
    """Leave out finds in the places of a message that replay handles by itself."""
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
    """Return the exempt places of a message."""
    start = _BEFORE_MESSAGE.match(text, start, end).end()  # type: ignore[union-attr]
    try:
        found = find_spans(text[start:end].encode("latin-1"), _EXEMPT)
    except NotJsonError:
        return []
    spans = (Span(s.start + start, s.end + start) for spans in found.values() for s in spans)
    # An object or an array is no id, so it is like any other value.
    return [span for span in spans if text[span.start] not in "{["]


def is_in_url(layer: _Searched, start: int, end: int) -> bool:
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


def _lines_of(text: str, *, is_stream: bool) -> Iterator[tuple[int, int]]:
    """Yield the texts in which a user's patterns are looked for: of a stream, values of fields."""
    if not is_stream:
        yield 0, len(text)
        return
    for line in _FIELD.finditer(text):
        yield line.span(2)


def _of_lines(text: str, find: Find) -> Find:
    """Return a find in an event stream as one of the data, which may go over several lines."""
    spelled = text[find.start : find.end]
    return find._replace(plain=_DATA.sub("\n", spelled)) if _DATA.search(spelled) else find


def _shifted(finds: Iterable[Find], by: int) -> Iterator[Find]:
    for find in finds:
        yield find._replace(start=find.start + by, end=find.end + by)


def mapped_back(decoded: Decoded, finds: Iterable[Find]) -> Iterator[Find]:
    """Yield finds of a decoded text as those of the text that spells it."""
    for find in finds:
        yield find._replace(start=decoded.source(find.start), end=decoded.source(find.end))


def _beside_placeholders(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    """Leave out what a placeholder covers or cuts: it is what stands for a secret."""
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


def without_overlaps(text: str, finds: list[Find]) -> list[Find]:
    """Return finds in order that don't overlap: of two in one place the wider one counts.

    Two that overlap in part become one, or a rest of the second would stay.
    """
    finds.sort(key=lambda find: (find.start, -find.end))
    kept: list[Find] = []
    for find in finds:
        if not kept or find.start >= kept[-1].end:
            kept.append(find)
        elif find.end > kept[-1].end:
            wider = undo_json(text[kept[-1].start : find.end])
            kept[-1] = kept[-1]._replace(end=find.end, plain=as_text(wider))
    return kept


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


class _Named:
    """Judges the values of names in one text."""

    def __init__(self, rules: ActiveRules, layer: _Searched) -> None:
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
        elif inner := _VALUE_IN_OBJECT.match(text, at):
            for value in self._scalar(inner.end(), depth):
                yield from self._decided(name, value, start, is_number=bool(value.quote))

    def _items(self, name: Name, at: int, depth: int) -> Iterator[Find]:
        """Yield the strings of an array."""
        while True:
            at = _SPACES.match(self._flat, at).end()  # type: ignore[union-attr]
            number = _NUMBER.match(self._flat, at)
            if number is None and not _OPENING.match(self._flat, at):
                return
            for value in self._scalar(at, depth):
                at = value.end + (0 if number else depth + 1)
                if number is None:
                    yield from self._decided(name, value, None)
            if not _OPENING.match(self._flat, at) and not self._flat.startswith(",", at):
                return

    def _scalar(self, at: int, depth: int) -> Iterator[_Value]:
        """Yield the string or the number of JSON that stands at an offset."""
        text = self._flat
        if number := _NUMBER.match(text, at):
            yield _Value(*number.span(1), number[1], '"' if not depth else "\\" * depth + '"')
            return
        opened = _OPENING.match(text, at)
        if opened is None or opened[1][-1] != '"':
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
        self._table_end = end
        if last < 0:
            return
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
        for begins, row in self._rows(last + 1, has_quotes='"' in header):
            if row.count(delimiter) != len(names) - 1:
                break
            if delimiter == "|" and self._table_end == end and not _RULE.fullmatch(row):
                return
            self._table_end, at = begins + len(row), begins
            for column, cell in enumerate(row.split(delimiter)):
                plain = cell.strip(_AROUND_CELL)
                begin = at + cell.index(plain)
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
            row = row.lstrip(" ") if has_quotes else row.lstrip(" ").partition('"')[0]
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
        value = self._flat[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE or "\n" in value or "\r" in value:
            return None
        return _Value(start, end, as_text(undo_json(self._text[start:end])), "")

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
