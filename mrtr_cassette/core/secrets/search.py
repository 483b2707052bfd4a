"""Find secrets in any text: RE2 finds names and shapes, and what stands around each is judged."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

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
    undo_json,
    undo_percent,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    words_of,
)
from mrtr_cassette.core.secrets.named import (
    BARE_QUOTE,
    END_OF_JSON,
    Find,
    Kind,
    NamedValues,
    Searched,
    in_named,
    is_in_url,
)
from mrtr_cassette.core.secrets.rules import (
    CREDENTIALS,
    CUSTOM_KEY,
    ActiveRules,
    Mark,
    looks_random,
)
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.errors import NotJsonError

_LONGEST_USERINFO = 1024
_REST = re.compile(r"[^\s\"'<>\\]*")
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST = r"(?:[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}|localhost|[0-9]+(?:\.[0-9]+){3}|[\w.-]+(?=:[0-9]))"
_UP_TO_HOST = re.compile(rf"[/?#][^@]{{1,256}}?(?:@[^@/?#]{{1,64}})??(?=@{_HOST}(?![\w.-]))")
_UP_TO_SECOND_HOST = re.compile(rf"/[^@/?#=&]{{1,256}}?(?=@{_HOST}(?![\w.-]))")
_WORD = re.compile(r"(?!localhost\Z)[\w-]+")
_TEMPLATE = re.compile(r"[$%]?\{")
_PORT = re.compile(r"[0-9]{1,5}/")
_DATABASE = re.compile(r"(?i)(?:postgres|sql|mariadb|mongodb|srv|rediss?|amqps?)\Z")
_TOKEN = re.compile(
    r"[A-Za-z0-9]{24,}|(?=.{20})(?=[\w-]*[0-9])(?=[\w-]*[A-Za-z])[\w-]*|(?=.{10})(?:[A-Za-z]*[0-9]+(?=[A-Za-z])){2}[A-Za-z0-9]*"
)
_BEFORE_QUERY = re.compile(r"[?#]")
_RANDOM_HEX = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")
_KINDS = ("[0-9a-f]", "[0-9a-f-]", "[0-9A-Za-z]", "[0-9A-Za-z_-]", "[^/?#]")
_NO_PASSWORDS = frozenset({"", "x-oauth-basic"})
"""What stands in the place of a password where the user's name is a token."""


def patterns_of_path(url: str) -> list[str]:
    """Return patterns that find what looks random in the path of a URL, each as its group 1."""
    patterns = []
    # What stands before the first segment is the host, which a request's target doesn't have.
    segments = ["", *_BEFORE_QUERY.split(url)[0].split("/")[3:]]
    for before, segment in pairwise(segments):
        if looks_random(segment) or _RANDOM_HEX.fullmatch(segment):
            kind = next(kind for kind in _KINDS if re.fullmatch(f"{kind}+", segment))
            beside = f"{before}/" if _WORD.fullmatch(before) else ""
            patterns.append(f"/{beside}({kind}{{{len(segment)}}})")
    return patterns


def credentials_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of passwords before the hosts of URLs, and of tokens in their place."""
    at = text.find("://")
    while at >= 0:
        start = at + 3
        at = text.find("://", start)
        end = min(len(text) if at < 0 else at, start + _LONGEST_USERINFO)
        if text.find("@", start, end) >= 0:
            rest = _REST.match(text, start, end)
            is_of_database = _DATABASE.search(text[max(0, start - 16) : start - 3]) is not None
            before_host = _of_database if is_of_database else _before_host
            for first, last in before_host(rest[0] if rest else ""):
                yield start + first, start + last


def _of_database(rest: str) -> Iterator[tuple[int, int]]:
    """Yield the password of a database's URL, whose path has no `@`."""
    path, _, _ = rest.partition("?")
    userinfo, has_host, _ = (path if "@" in path else rest).rpartition("@")
    user, colon, password = userinfo.partition(":")
    if "@" not in path and _PORT.match(password):
        return
    if has_host and colon and password and "/" not in user and not _TEMPLATE.match(password):
        yield len(user) + 1, len(userinfo)


def _before_host(rest: str) -> Iterator[tuple[int, int]]:
    """Yield what is secret in that part of a URL that follows the scheme."""
    authority = _AUTHORITY.match(rest)
    end = authority.end() if authority else 0
    userinfo, has_host, host = rest[:end].rpartition("@")
    user, colon, password = (userinfo if has_host else host).partition(":")
    if has_host:
        # What has been taken for a host may be the middle of a password.
        more = _UP_TO_SECOND_HOST.match(rest, end) if _WORD.fullmatch(host) else None
        last = len(userinfo) if more is None else more.end()
        if host.startswith("sha256:"):
            return
        if (not colon or password in _NO_PASSWORDS) and _is_token(user):
            yield 0, len(user)
            return
    else:
        # What looks like a port is one.
        is_port = not password or password.isdigit() or user.startswith("[")
        more = None if is_port else _UP_TO_HOST.match(rest, end)
        last = 0 if more is None else more.end()
    first = len(user) + 1
    if colon and first < last and not _TEMPLATE.match(rest, first):
        yield first, last


def _is_token(user: str) -> bool:
    """Tell whether what stands in the place of a user's name is none."""
    return looks_random(user) or _TOKEN.fullmatch(user) is not None


DEEPEST: Final = 5
"""Escapes of URLs within one another, and base64 in base64, that are undone."""
_BEFORE_ID = 192
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
        if is_stream or text.lstrip()[:1] in ("{", "[", '"'):
            found = [cut for find in found if (cut := _in_one_string(text, find))]
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
            layer = Searched(text, flat, kind, {})
            found = [find for find in self._found(layer, marks) if find.start < find.end]
            if found and Mark.PLACEHOLDER in marks:
                found = list(_beside_placeholders(text, found))
            yield from found
        if depth:
            if Mark.BASE64 in marks:
                yield from self._in_base64(text, depth)
            if Mark.PERCENT in marks:
                decoded = without_percent(text, is_form=kind == "form")
                inner = self._layer(decoded.text, kind, depth - 1)
                # Whatever begins at a quote that is no escape was judged above, with that quote.
                escaped = (
                    find
                    for find in inner
                    if not find.start or text[decoded.source(find.start - 1)] != '"'
                )
                for find in mapped_back(decoded, escaped):
                    yield find._replace(in_url=True)

    def _found(self, layer: Searched, marks: set[int]) -> Iterator[Find]:
        flat = layer.flat.encode("latin-1")
        for rule in self._rules.likely(marks):
            for start, end in rule.spans(flat):
                layer.shapes.setdefault((start, end), rule.name)
                yield self._find(layer, start, end, rule.name)
        if Mark.CREDENTIALS in marks:
            for start, end in credentials_in(layer.flat):
                yield self._find(layer, start, end, CREDENTIALS)
        if Mark.NAME in marks:
            yield from NamedValues(self._rules, layer).finds(flat)

    def _find(self, layer: Searched, start: int, end: int, rule: str) -> Find:
        if outer := END_OF_JSON.search(layer.flat, start, end):
            end = outer.start()
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


def _lines_of(text: str, *, is_stream: bool) -> Iterator[tuple[int, int]]:
    """Yield the texts in which a user's patterns are looked for: of a stream, values of fields."""
    if not is_stream:
        yield 0, len(text)
        return
    for line in _FIELD.finditer(text):
        yield line.span(2)


def _in_one_string(text: str, find: Find) -> Find | None:
    """Return a find up to the end of the string of JSON in which it begins: JSON stays JSON."""
    quote = BARE_QUOTE.search(text, find.start, find.end)
    if quote is None:
        return find
    cut = text[find.start : quote.start()]
    end = find.start + len(cut)
    return find._replace(end=end, plain=as_text(undo_json(cut))) if cut else None


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
