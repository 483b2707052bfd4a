"""Replace secrets by placeholders, in bodies, in headers and in URLs."""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from string import ascii_letters, digits
from typing import Final

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import ECHO_PLACES, TOKEN_PATH
from mrtr_cassette.core.secrets.decode import (
    as_text,
    decoded_base64,
    long_words,
    spell_in_url,
    undo_json,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    words_of,
)
from mrtr_cassette.core.secrets.judged import Find, JudgedText, Kind, in_named
from mrtr_cassette.core.secrets.names import placeholder, ref_spans, secrets_in
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    ActiveRules,
    Mark,
    RedactionRules,
    by_ending,
)
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    Headers,
    Request,
    decoded_header,
    header_value,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.errors import NotJsonError

_DEEPEST: Final = 5
"""Escapes of URLs within one another, and base64 in base64, that are undone."""
_FORM = "application/x-www-form-urlencoded"
_SCALAR = re.compile(rb"\s*(?:-?[0-9][0-9.eE+-]*|true|false|null)\s*")
_FRAMING = re.compile(rb"(?:\r\n|\r|\n)(?:data: ?)?")
"""What stays of a secret in the data of an event that goes over several lines."""
_CHALLENGE = re.compile(r"(?<=[?&]code_challenge=)[\w.~-]{43,128}(?=&|\Z)")
"""What a client makes for one authorization (RFC 7636), in the request that asks for it."""
_REPEATED = 1024
"""Headers and targets whose redacted form is remembered."""
_BASE64 = words_of(f"{ascii_letters}{digits}+/-_")
_AS_STANDARD = bytes.maketrans(b"-_", b"+/")
_TEXT_BEGINS = re.compile(
    rb"(?:[\t\r\n -~]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}"
    rb"|[\xf0-\xf4][\x80-\xbf]{3}){4}"
)
"""How text in UTF-8 begins, which most long words don't when they are read as base64."""
_ENCODED = re.compile(
    r"(?:[A-Za-z0-9+/_-]{60,}+(?:\s{1,4}[A-Za-z0-9+/_-]{2,})*|[A-Za-z0-9+/_-]{11,})={0,2}",
    re.ASCII,
)
_DATA = re.compile(r"(?:\r\n|\r|\n)data: ?")
_FIELD = re.compile(r"(?:(?:data|event|id|retry|):[ ]?)?([^\r\n]+)")
_JSON_TEXT = re.compile(
    r"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"\Z)", re.DOTALL
)
_STRINGS = re.compile(
    r"\"([^\"\\]*+(?:\\.[^\"\\]*+)*+)\\?(?:\"|\Z)([ \t\r\n]*:)?", re.DOTALL
)
_BETWEEN_STRINGS = re.compile(
    r"(?:\xef\xbb\xbf)?[\s{}\[\],:\d.eE+truefalsn-]*", re.ASCII
)
_BARE_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\"")
_BEFORE_ID = 192
_EXEMPT_KEY = re.compile(
    r"\"(?:id|progressToken|requestId|requestState|io\.modelcontextprotocol/subscriptionId)\"\s*:\s*\"?[^\"]*\Z",
    re.ASCII,
)
_LINE = re.compile(r"[^\r\n]*")
_BEFORE_MESSAGE = re.compile(r"(?:\xef\xbb\xbf)?(?:data:)?[ \t\r\n]*")
_EXEMPT: Final[tuple[MemberPath, ...]] = (
    TOKEN_PATH,
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    *[place.path for place in ECHO_PLACES],
)
"""Places of a message that replay splices, seals or compares by itself."""
_VERSION: Final[MemberPath] = ("jsonrpc",)
"""What each message has, and other JSON with such members hasn't."""


@lru_cache(maxsize=8)
def _active(rules: RedactionRules) -> ActiveRules:
    return ActiveRules(rules)


def keyed_hash(key: bytes) -> Callable[[str, str], str]:
    """Return what stands for a secret in the journal: its hash under a key that nobody keeps."""

    def token(_rule: str, secret: str) -> str:
        raw = secret.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, key=key, digest_size=12).hexdigest()

    return token


class Redactor:
    """Replaces secrets by placeholders, the same text always by the same ones."""

    def __init__(self, rules: RedactionRules, token: Callable[[str, str], str]) -> None:
        self._token = token
        self._rules = _active(rules)
        self.on_find: Callable[[str, str], None] = _ignore
        """Takes the rule and the text of each secret that is replaced."""
        # Most exchanges bring the same target and headers again.
        self.target = lru_cache(maxsize=_REPEATED)(self._redacted_target)
        self.headers = lru_cache(maxsize=_REPEATED)(self._redacted_headers)

    def rule_of(self, name: str) -> str:
        """Return the rule that makes a header of a name a credential, or an empty string."""
        known = self._rules.name(name)
        return known.rule if known and (known.is_certain or by_ending(name)) else ""

    def placeholder(self, rule: str, secret: str) -> str:
        """Return what stands for a secret."""
        return placeholder(rule, self._token(rule, secret))

    def secrets_in(
        self, text: str, *, is_target: bool = False
    ) -> list[tuple[str, str]]:
        """Return what is replaced in a text, or in a request's target: rules and secrets."""
        raw = text.encode("utf-8", "surrogatepass")
        return [
            (each.rule, each.plain)
            for each in self._finds(raw, "url" if is_target else "text")
        ]

    def body(self, raw: bytes, content_type: str) -> bytes:
        """Redact a body, or any piece of one; of an event stream whole events.

        JSON, also line by line or cut off, forms, event streams and other text are searched, and
        in bytes that are no text what is spelled as in ASCII.
        """
        if _SCALAR.fullmatch(raw):
            return raw
        media_type = content_type.partition(";")[0].strip().lower()
        is_form = media_type == _FORM and raw.lstrip()[:1] not in (b"{", b"[")
        is_stream = media_type == EVENT_STREAM
        return self._replaced(raw, "form" if is_form else "text", is_stream=is_stream)

    def request(self, request: Request) -> Request:
        """Redact a request."""
        target, headers = self.target(request.target), self.headers(request.headers)
        body = self.body(request.body, header_value(request.headers, "content-type"))
        if (target, headers, body) == (request.target, request.headers, request.body):
            return request
        return replace(request, target=target, headers=headers, body=body)

    def text(self, value: str, kind: Kind = "text") -> str:
        """Redact any text."""
        raw = value.encode("utf-8", "surrogatepass")
        redacted = self._replaced(raw, kind)
        return value if redacted is raw else redacted.decode("utf-8", "surrogatepass")

    def _redacted_target(self, path_with_query: str) -> str:
        redacted = self.text(path_with_query, "url")
        if "token" in self._rules.disabled:
            return redacted
        return _CHALLENGE.sub(
            lambda match: spell_in_url(self.placeholder("token", match[0])), redacted
        )

    def _redacted_headers(self, headers: Headers) -> Headers:
        return tuple([(name, self.header(name, value)) for name, value in headers])

    def header(self, name: str, value: str) -> str:
        """Redact a header's value, which the header's name may make a secret.

        A value in MCP's base64 spelling that contains a secret comes back as plain text if a header
        can hold that, else as a placeholder alone.
        """
        plain = decoded_header(value)
        searched = value if plain is None else plain
        known = self._rules.name(name.lower().removeprefix("mcp-param-"))
        # It may mirror an argument, whose companions are in the body.
        is_named = known is not None and known.beside(searched)
        named = (
            in_named(known.rule, searched, self._rules.disabled)
            if known and is_named
            else None
        )
        if named is None:
            redacted = self.text(searched)
        else:
            rule = named.rule
            if rule != CUSTOM_KEY:
                # If its shape is known too, it has the same rule as in other places.
                shaped = (
                    rule
                    for rule, secret in self.secrets_in(searched)
                    if secret == named.plain
                )
                rule = next(shaped, rule)
            self.on_find(rule, named.plain)
            redacted = searched[: named.start] + self.placeholder(rule, named.plain)
        if redacted == plain:
            return value
        if plain is not None and not (redacted.isascii() and redacted.isprintable()):
            placed = secrets_in(redacted)
            return placed[0].raw.decode() if placed else value
        return redacted

    def _replaced(self, raw: bytes, kind: Kind, *, is_stream: bool = False) -> bytes:
        parts: list[bytes] = []
        at = 0
        for find in self._finds(raw, kind, is_stream=is_stream):
            self.on_find(find.rule, find.plain)
            new = f"{find.quote}{self.placeholder(find.rule, find.plain)}{find.quote}"
            spelled = spell_in_url(new) if find.in_url else new
            parts += (raw[at : find.start], spelled.encode())
            if is_stream:
                for framing in _FRAMING.findall(raw, find.start, find.end):
                    # A line that is no data must not become an empty one, which ends an event.
                    parts += (framing, b"" if b":" in framing else spelled.encode())
            at = find.end
        return b"".join([*parts, raw[at:]]) if parts else raw

    def _finds(self, raw: bytes, kind: Kind, *, is_stream: bool = False) -> list[Find]:
        """Return what is secret in a text, in order; no two overlap."""
        spelled = text = raw.decode("latin-1")
        if is_stream:
            text = without_framing(text)
        found = list(self._in_layer(text, kind, _DEEPEST))
        if self._rules.custom:
            lines = (
                [line.span(1) for line in _FIELD.finditer(text)]
                if is_stream
                else [(0, len(text))]
            )
            for start, end in lines:
                found += _moved(self._custom(text[start:end], kind), start.__add__)
        if not found:
            return []
        if is_stream:
            found = [_of_lines(spelled, find) for find in found]
        if is_stream or text.lstrip()[:1] in ("{", "[", '"'):
            found = [cut for find in found if (cut := _in_one_string(text, find))]
        return list(_without_exempt(text, _without_overlaps(text, found)))

    def _in_layer(self, text: str, kind: Kind, depth: int) -> Iterator[Find]:
        marks = self._rules.marks(text.encode("latin-1"))
        if Mark.ESCAPE in marks:
            decoded = without_ascii_escapes(text)
            if decoded.text != text:
                yield from _moved(
                    self._in_layer(decoded.text, kind, depth), decoded.source
                )
                return
        if marks and max(marks) >= Mark.NAME:
            found = JudgedText(self._rules, text, kind).finds(marks)
            yield from (
                _beside_placeholders(text, found)
                if Mark.PLACEHOLDER in marks
                else found
            )
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
            for find in _moved(escaped, decoded.source):
                yield find._replace(in_url=True)

    def _custom(self, text: str, kind: Kind) -> Iterator[Find]:
        """Find what a user's patterns match in a text, or if it is JSON in each of its strings.

        A pattern must not touch the names that a protocol or a schema is made of, so of those that
        it matches only those with a digit count.
        """
        if _JSON_TEXT.match(text) and _BETWEEN_STRINGS.fullmatch(
            _STRINGS.sub("", text)
        ):
            for string in _STRINGS.finditer(text):
                is_name, start = string[2], string.start(1)
                if string[1] and not (is_name and not re.search("[0-9]", string[1])):
                    inner = without_json_escapes(string[1])
                    found = self._custom(inner.text, "text")
                    yield from _moved(_moved(found, inner.source), start.__add__)
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
            for find in _moved(self._custom(decoded.text, "text"), decoded.source):
                yield find._replace(in_url=True)

    def _in_base64(self, text: str, depth: int) -> Iterator[Find]:
        raw, end = text.encode("latin-1"), 0
        for start, stop in long_words(raw, _BASE64, 11):
            first = raw[start : start + (12 if stop - start >= 12 else 8)].translate(
                _AS_STANDARD
            )
            if start < end or not _TEXT_BEGINS.match(a2b_base64(first)):
                continue
            # Base64 may go over several lines.
            match = _ENCODED.match(text, start)
            if match is not None:
                end = match.end()
                inner = decoded_base64(match[0])
                for find in self._in_layer(inner, "text", depth - 1) if inner else ():
                    yield Find(start, end, find.rule, match[0])
                    break


def _ignore(_rule: str, _secret: str) -> None:
    """Do nothing with a secret that was found."""


def _without_exempt(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    # The message is the whole text, or a line of it.
    spans_in = lru_cache(maxsize=None)(partial(_exempt_spans, text))
    for find in finds:
        if _EXEMPT_KEY.search(text, max(0, find.start - _BEFORE_ID), find.start):
            line = max(text.rfind(end, 0, find.start) for end in "\r\n") + 1
            line_end = _LINE.match(text, line).end()  # type: ignore[union-attr]
            spans = (*spans_in(0, len(text)), *spans_in(line, line_end))
            if any(span.start <= find.start and find.end <= span.end for span in spans):
                continue
        yield find


def _exempt_spans(text: str, start: int, end: int) -> list[Span]:
    start = _BEFORE_MESSAGE.match(text, start, end).end()  # type: ignore[union-attr]
    try:
        found = find_spans(text[start:end].encode("latin-1"), (*_EXEMPT, _VERSION))
    except NotJsonError:
        return []
    if not found.pop(_VERSION, None):
        return []
    spans = (
        Span(s.start + start, s.end + start) for spans in found.values() for s in spans
    )
    # An object or an array is no id, so it is like any other value.
    return [span for span in spans if text[span.start] not in "{["]


def _in_one_string(text: str, find: Find) -> Find | None:
    quote = _BARE_QUOTE.search(text, find.start, find.end)
    if quote is None:
        return find
    cut = text[find.start : quote.start()]
    end = find.start + len(cut)
    return find._replace(end=end, plain=as_text(undo_json(cut))) if cut else None


def _of_lines(text: str, find: Find) -> Find:
    spelled = text[find.start : find.end]
    return (
        find._replace(plain=_DATA.sub("\n", spelled)) if _DATA.search(spelled) else find
    )


def _moved(finds: Iterable[Find], source: Callable[[int], int]) -> Iterator[Find]:
    for find in finds:
        yield find._replace(start=source(find.start), end=source(find.end))


def _beside_placeholders(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    """Leave out what a placeholder stands for or cuts; a secret may contain placeholders."""
    placed = [span for span, ref in ref_spans(text.encode("latin-1")) if ref.is_secret]
    starts, ends = [start for start, _ in placed], [end for _, end in placed]
    for find in finds:
        touched = placed[bisect_right(ends, find.start) : bisect_left(starts, find.end)]
        if find[:2] not in touched and all(
            find.start <= start and end <= find.end for start, end in touched
        ):
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
