"""Replace secrets by placeholders, in bodies, in headers and in URLs."""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from string import ascii_letters, digits
from typing import Final, Literal, NamedTuple

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import ECHO_PLACES, TOKEN_PATH
from mrtr_cassette.core.secrets.decode import (
    as_text,
    decoded_base64,
    flattened,
    long_words,
    spell_in_url,
    string_end,
    undo_json,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    words_of,
)
from mrtr_cassette.core.secrets.harmless import (
    counts_at_all,
    is_choice,
    is_code,
    is_harmless,
    is_harmless_after_scheme,
    is_no_setting,
    is_stand_in,
    place_in_assignment,
)
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    ActiveRules,
    Mark,
    Name,
    RedactionRules,
    by_ending,
    fold,
    is_encoded,
    is_strong,
)
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, placeholder, rule_of_number
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    Headers,
    Request,
    decoded_header,
    header_value,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.errors import NotJsonError

Kind = Literal["text", "url", "form"]


class _Find(NamedTuple):
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

_BARE_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\"")
_END_OF_JSON = re.compile(r"\\*\"\s*(?:[,:}\]]|\Z)", re.ASCII)
_OPENING = re.compile(r"\s*+(\\{0,15}[\"'])", re.ASCII)
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)", re.ASCII)
_SPACES = re.compile(r"[\s,]*+", re.ASCII)
_VALUE_IN_OBJECT = re.compile(r"\{[^{}]{0,1024}?(?<!\\)(\\*)\"value\1\"\s*:", re.ASCII)
_OF_SCHEMA = re.compile(r"\"dependen(?:tRequired|cies)\\*\"\s*:\s*\{[^{}]*\Z", re.ASCII)
_NESTED = re.compile(r"\{[^{}\0]*+\}")
_IN_OBJECT = re.compile(r"[^{}]*\0[^{}]*")
_MEMBERS = re.compile(r"\"([\w-]{2,40})\\*\"\s*:", re.ASCII)

# Values in other text

_ESCAPED = r"\\+u(?!00[01])[0-9a-fA-F]{4}|\\\\(?!\\*[\"'])"
_BARE = re.compile(rf"(?:[^\s\"'<>&;,(){{}}\[\]`|\\]|{_ESCAPED})*+", re.ASCII)
_AFTER_BARE = re.compile(r"[\s&;\"'\\]|\Z|</|<br")
_REST_OF_LINE = re.compile(
    rf"(?:[^\s\"'\\]++|{_ESCAPED})++"
    r"(?=[ \t]*(?:[\r\n]|\\*\Z|[ \t]#|\\*\"\s*(?:[,}\])]|\Z)))",
    re.ASCII,
)
_BARE_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?!.*://|[./~]).{8}")
"""What may be one behind a colon, or in a sentence."""
_IN_SINGLE_QUOTES = re.compile(rf"[^'\r\n]{{0,{_LONGEST_VALUE}}}")
_OTHER_VALUE = re.compile(r"(?:(\\*[\"'])[^\"'\r\n\\]{0,128}\1|[\w.]{1,64}),[ \t]*+")
_PREFIX = re.compile(r"[bBrRuUfF]{1,2}(?=\\{0,15}[\"'])")
_SPACES_OF_LINE = re.compile(r"[ \t]*+")
_URL_CHARS = r"[^\s\"'<>\\^`{|}]"
_IN_URL = re.compile(rf"{_URL_CHARS}*+", re.ASCII)
_PARAMETER = {
    "text": re.compile(r"[^&#\s\"'<>\\^`{|}]*", re.ASCII),
    "url": re.compile(r"[^&#]*"),
    "form": re.compile(r"[^&]*"),
}
_URL_END = ".,;:!?)]"
_PARAMETERS = re.compile(r"(?:\A|[?&#\"'])([\w-]{2,40})=", re.ASCII)

_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate|ssws)[ \t]+(?=\S)")
_NOT_SECRET = re.compile(
    r"sha256:[0-9a-f]{64}|mrtr-(?:state|session|answer):[0-9a-f:]+|[*.\u2022\u2026]+|"
)
"""What sealing has put in the place of a value, and what hides one."""

_BY_PLACE = ("bearer", "url-password")
"""Rules that go by what stands before a secret."""

# Texts as a whole

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
    r"(?:[A-Za-z0-9+/_-]{60,}+(?:\s{1,4}[A-Za-z0-9+/_-]{2,})*|[A-Za-z0-9+/_-]{11,})={0,2}", re.ASCII
)
_DATA = re.compile(r"(?:\r\n|\r|\n)data: ?")
_FIELD = re.compile(r"(?:(?:data|event|id|retry|):[ ]?)?([^\r\n]+)")
_JSON_TEXT = re.compile(
    r"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"\Z)", re.DOTALL
)
_STRINGS = re.compile(r"\"([^\"\\]*+(?:\\.[^\"\\]*+)*+)\\?(?:\"|\Z)([ \t\r\n]*:)?", re.DOTALL)
_BETWEEN_STRINGS = re.compile(r"(?:\xef\xbb\xbf)?[\s{}\[\],:\d.eE+truefalsn-]*", re.ASCII)
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

    def secrets_in(self, text: str, *, is_target: bool = False) -> list[tuple[str, str]]:
        """Return what is replaced in a text, or in a request's target: rules and secrets."""
        raw = text.encode("utf-8", "surrogatepass")
        return [
            (each.rule, each.plain) for each in self._finds(raw, "url" if is_target else "text")
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
            _in_named(known.rule, searched, self._rules.disabled) if known and is_named else None
        )
        if named is None or PLACEHOLDER.fullmatch(named.plain):
            redacted = self.text(searched)
        else:
            rule = named.rule
            if rule != CUSTOM_KEY:
                # If its shape is known too, it has the same rule as in other places.
                shaped = (
                    rule for rule, secret in self.secrets_in(searched) if secret == named.plain
                )
                rule = next(shaped, rule)
            self.on_find(rule, named.plain)
            redacted = searched[: named.start] + self.placeholder(rule, named.plain)
        if redacted == plain:
            return value
        if plain is not None and not (redacted.isascii() and redacted.isprintable()):
            first = PLACEHOLDER.search(redacted)
            return value if first is None else first[0]
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

    def _finds(self, raw: bytes, kind: Kind, *, is_stream: bool = False) -> list[_Find]:
        """Return what is secret in a text, in order; no two overlap."""
        spelled = text = raw.decode("latin-1")
        if is_stream:
            text = without_framing(text)
        found = list(self._in_layer(text, kind, _DEEPEST))
        if self._rules.custom:
            lines = (
                [line.span(1) for line in _FIELD.finditer(text)] if is_stream else [(0, len(text))]
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

    def _in_layer(self, text: str, kind: Kind, depth: int) -> Iterator[_Find]:
        marks = self._rules.marks(text.encode("latin-1"))
        if Mark.ESCAPE in marks:
            decoded = without_ascii_escapes(text)
            if decoded.text != text:
                yield from _moved(self._in_layer(decoded.text, kind, depth), decoded.source)
                return
        if marks and max(marks) >= Mark.NAME:
            found = _JudgedText(self._rules, text, kind).finds(marks)
            yield from _beside_placeholders(text, found) if Mark.PLACEHOLDER in marks else found
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

    def _custom(self, text: str, kind: Kind) -> Iterator[_Find]:
        """Find what a user's patterns match in a text, or if it is JSON in each of its strings.

        A pattern must not touch the names that a protocol or a schema is made of, so of those that
        it matches only those with a digit count.
        """
        if _JSON_TEXT.match(text) and _BETWEEN_STRINGS.fullmatch(_STRINGS.sub("", text)):
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
            _Find(start, end, rule.name, as_text(text[start:end]), in_url=in_url)
            for rule in self._rules.custom
            for start, end in rule.spans(raw)
        )
        yield from _beside_placeholders(text, found)
        if in_url and "%" in text:
            decoded = without_percent(text, is_form=kind == "form")
            for find in _moved(self._custom(decoded.text, "text"), decoded.source):
                yield find._replace(in_url=True)

    def _in_base64(self, text: str, depth: int) -> Iterator[_Find]:
        raw, end = text.encode("latin-1"), 0
        for start, stop in long_words(raw, _BASE64, 11):
            first = raw[start : start + (12 if stop - start >= 12 else 8)].translate(_AS_STANDARD)
            if start < end or not _TEXT_BEGINS.match(a2b_base64(first)):
                continue
            # Base64 may go over several lines.
            match = _ENCODED.match(text, start)
            if match is not None:
                end = match.end()
                inner = decoded_base64(match[0])
                for find in self._in_layer(inner, "text", depth - 1) if inner else ():
                    yield _Find(start, end, find.rule, match[0])
                    break


def _ignore(_rule: str, _secret: str) -> None:
    """Do nothing with a secret that was found."""


def _without_exempt(text: str, finds: Iterable[_Find]) -> Iterator[_Find]:
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
        found = find_spans(text[start:end].encode("latin-1"), _EXEMPT)
    except NotJsonError:
        return []
    spans = (Span(s.start + start, s.end + start) for spans in found.values() for s in spans)
    # An object or an array is no id, so it is like any other value.
    return [span for span in spans if text[span.start] not in "{["]


def _in_one_string(text: str, find: _Find) -> _Find | None:
    quote = _BARE_QUOTE.search(text, find.start, find.end)
    if quote is None:
        return find
    cut = text[find.start : quote.start()]
    end = find.start + len(cut)
    return find._replace(end=end, plain=as_text(undo_json(cut))) if cut else None


def _of_lines(text: str, find: _Find) -> _Find:
    spelled = text[find.start : find.end]
    return find._replace(plain=_DATA.sub("\n", spelled)) if _DATA.search(spelled) else find


def _moved(finds: Iterable[_Find], source: Callable[[int], int]) -> Iterator[_Find]:
    for find in finds:
        yield find._replace(start=source(find.start), end=source(find.end))


def _beside_placeholders(text: str, finds: Iterable[_Find]) -> Iterator[_Find]:
    """Leave out what a placeholder stands for or cuts; a secret may contain placeholders."""
    placed = [match.span() for match in PLACEHOLDER.finditer(text)]
    starts, ends = [start for start, _ in placed], [end for _, end in placed]
    for find in finds:
        touched = placed[bisect_right(ends, find.start) : bisect_left(starts, find.end)]
        if find[:2] not in touched and all(
            find.start <= start and end <= find.end for start, end in touched
        ):
            yield find


def _without_overlaps(text: str, finds: list[_Find]) -> list[_Find]:
    finds.sort(key=lambda find: (find.start, -find.end))
    kept: list[_Find] = []
    for find in finds:
        if not kept or find.start >= kept[-1].end:
            kept.append(find)
        elif find.end > kept[-1].end:
            wider = undo_json(text[kept[-1].start : find.end])
            kept[-1] = kept[-1]._replace(end=find.end, plain=as_text(wider))
    return kept


def _in_named(rule: str, value: str, disabled: Collection[str]) -> _Find | None:
    """Return what is secret in a value that its name makes one; a credential's scheme stays."""
    start = 0
    if rule == "authorization" and (scheme := _SCHEME.match(value)):
        start, named = scheme.end(), scheme[1].lower()
        if named in ("basic", "bearer") and named not in disabled:
            rule = named
    secret = value[start:]
    if _NOT_SECRET.fullmatch(secret) or (start and is_harmless_after_scheme(secret)):
        return None
    return _Find(start, len(value), rule, secret)


class _JudgedText:
    """A text in which the finds of RE2 are judged by what stands around them."""

    def __init__(self, rules: ActiveRules, text: str, kind: Kind) -> None:
        self._rules, self._text, self._kind = rules, text, kind
        self._flat = flattened(text)
        self._shapes: dict[tuple[int, int], str] = {}
        self._bare_end = 0

    def finds(self, marks: Collection[int]) -> Iterator[_Find]:
        """Yield what is secret, where the marks say that there may be something."""
        flat = self._flat.encode("latin-1")
        for rule in self._rules.likely(marks):
            for start, end in rule.spans(flat):
                self._shapes.setdefault((start, end), rule.name)
                outer = _END_OF_JSON.search(self._flat, start, end)
                stop = end if outer is None else outer.start()
                is_given = rule.name in _BY_PLACE and is_stand_in(self._text[start:stop])
                if stop > start and not is_given:
                    yield self._found(start, stop, rule.name)
        if Mark.NAME in marks:
            yield from self._given_by_sign(flat)
            yield from self._given_beside(flat)

    def _found(self, start: int, end: int, rule: str = "") -> _Find:
        plain = self._text[start:end]
        in_url = self._is_in_url(start, end)
        plain = self._undone(plain) if in_url else undo_json(plain)
        return _Find(start, end, rule, as_text(plain), in_url=in_url)

    def _undone(self, spelled: str) -> str:
        return without_percent(spelled, is_form=self._kind == "form").text

    def _is_in_url(self, start: int, end: int) -> bool:
        before = self._flat[max(0, start - _WINDOW) : start]
        scheme, _, rest = before.rpartition("://")
        return self._kind != "text" or (
            scheme[-1:].isalnum() and _IN_URL.fullmatch(rest + self._flat[start:end]) is not None
        )

    def _name_at(self, start: int, end: int, *, has_spaces: bool) -> tuple[Name | None, int]:
        chunk = self._flat[max(0, start - _LONGEST_NAME) : start]
        before = chunk.rstrip(_NAME_CHARS + " " if has_spaces else _NAME_CHARS)
        start -= len(chunk[len(before) :].lstrip(" "))
        spelled = self._flat[start:end].rpartition(".")[2]
        if not spelled.isascii() or "\\" in spelled:
            spelled = as_text(undo_json(spelled))
        return self._rules.name(spelled), start

    # A name, a sign and a value

    def _given_by_sign(self, raw: bytes) -> Iterator[_Find]:
        flat, at = self._flat, 0
        for match in self._rules.named.finditer(raw):
            (start, end), after = match.span(1), match.end()
            closing = flat[slice(*match.span(2))]
            name, start = self._name_at(start, end, has_spaces=bool(closing))
            if start < at or name is None:
                continue
            opening = flat[max(0, start - len(closing)) : start] if closing else ""
            if closing and is_choice(self._line_before(start - len(closing))):
                continue
            is_member = closing[-1:] == '"' and opening == closing
            if is_member and flat[start - len(closing) - 1 : start - len(closing)] != "\\":
                found = self._member(name, start, after, len(closing) - 1)
            else:
                found = self._assigned(name, start, end, after, closing)
            for find in found:
                yield find
                at = max(at, find.end)

    def _member(self, name: Name, start: int, at: int, depth: int) -> Iterator[_Find]:
        flat = self._flat
        if value := self._scalar(at, depth):
            yield from self._decided(name, value, start)
            return
        at = _SPACES.match(flat, at).end()  # type: ignore[union-attr]
        if inner := _VALUE_IN_OBJECT.match(flat, at):
            if len(inner[1]) == depth and (value := self._scalar(inner.end(), depth)):
                yield from self._decided(name, value, start)
        elif flat.startswith("[", at) and not _OF_SCHEMA.search(
            flat, max(0, start - _WINDOW), start
        ):
            at += 1
            while value := self._scalar(_SPACES.match(flat, at).end(), depth):  # type: ignore[union-attr]
                at = value.end + (0 if value.quote else depth + 1)
                if not value.quote:
                    yield from self._decided(name, value, None)

    def _scalar(self, at: int, depth: int) -> _Find | None:
        if number := _NUMBER.match(self._flat, at):
            return _Find(*number.span(1), "", number[1], "\\" * depth + '"')
        opened = _OPENING.match(self._flat, at)
        if opened is None or opened[1] != "\\" * depth + '"':
            return None
        start, end = opened.end(), string_end(self._text, opened.end(), depth)
        times = (depth + 1).bit_length()
        return _Find(start, end, "", as_text(undo_json(self._text[start:end], times)))

    def _decided(self, name: Name, value: _Find, start: int | None) -> Iterator[_Find]:
        """Yield a value of JSON if its name, and what stands beside it, say that it is a secret.

        `start` is where the name stands; beside an item of an array stands nothing.
        """
        # A number may be a status, a size or a count.
        is_number = bool(value.quote) and not name.takes_numbers
        is_secret = name.alone(value.plain) and not is_number
        if not is_secret and start is not None and name.may_be(value.plain):
            members = self._members_around(start, value.end)
            is_meant = not (is_number and name.companions.isdisjoint(members))
            counts = name.beside if is_number else name.among(members)
            is_secret = is_meant and counts(value.plain)
        if is_secret:
            yield from self._secret(name, value)

    def _members_around(self, start: int, end: int) -> set[str]:
        """Return the folded names of the members of an object beside one of them."""
        flat = self._flat
        around = f"{flat[max(0, start - _WINDOW) : start]}\0{flat[end : end + _WINDOW]}"
        while (fewer := _NESTED.sub("", around)) != around:
            around = fewer
        return set(map(fold, _MEMBERS.findall(_IN_OBJECT.search(around)[0])))  # type: ignore[index]

    def _secret(self, name: Name, value: _Find) -> Iterator[_Find]:
        if not value.plain or (name.rule != CUSTOM_KEY and is_harmless(name, value.plain)):
            return
        named = _in_named(name.rule, value.plain, self._rules.disabled)
        if named is not None:
            start = value.start + named.start
            rule = named.rule
            if rule != CUSTOM_KEY:
                # The same secret has the same placeholder under a name and in other text.
                rule = self._shapes.get((start, value.end), rule)
            rule = rule_of_number(rule) if value.quote else rule
            yield _Find(start, value.end, rule, named.plain, value.quote, value.in_url)

    def _assigned(self, name: Name, start: int, end: int, at: int, closing: str) -> Iterator[_Find]:
        flat = self._flat
        sign = "=>" if flat.startswith("=>", at - 2) else flat[at - 1]
        before = flat[start - 1 : start] if start else ""
        is_parameter = before in ("?", "&", "#") or (self._kind == "form" and not before)
        if sign == "=" and is_parameter and not closing and self._is_in_url(start, start):
            yield from self._parameter(name, start, at)
            return
        is_spaced = flat[at : at + 1] in (" ", "\t")
        has_gap = is_spaced or end + len(closing) < at - len(sign)
        at = _SPACES_OF_LINE.match(flat, at).end()  # type: ignore[union-attr]
        line = self._line_before(start - len(closing))
        value = self._on_line_of_its_own(name, start, at, sign)
        if value is None:
            is_assigned = sign == "=" and has_gap
            value = self._value_after(self._past_others(at, line) if is_assigned else at)
            if value is None or not counts_at_all(value.plain):
                return
            if value.start > at:
                is_meant = bool(closing) or not re.search(r"\s", value.plain)
            else:
                is_meant = sign == "=" and not has_gap
                is_meant |= is_spaced and _BARE_SECRET.match(value.plain) is not None
            if not is_meant:
                return
        is_bare = flat[value.start - 1] not in "\"'"
        if is_bare and is_code(name, value.plain, line, sign, has_gap=has_gap):
            return
        counts = name.alone
        if is_parameter or (sign == "=" and flat.startswith("&", value.end)):
            others = self._parameters_around(start, value.end)
            counts = name.among(others, is_parameter=True)
        if counts(value.plain):
            yield from self._secret(name, value)

    def _line_before(self, start: int) -> str:
        return self._flat[max(0, start - _LONGEST_NAME) : start].rpartition("\n")[2]

    def _past_others(self, at: int, line: str) -> int:
        """Return where the value begins that belongs to the last name of an assignment."""
        for _ in range(place_in_assignment(line)):
            passed = _OTHER_VALUE.match(self._flat, at)
            if passed is None:
                break
            at = passed.end()
        return at

    def _parameter(self, name: Name, start: int, at: int) -> Iterator[_Find]:
        flat, kind = self._flat, self._kind
        end = _PARAMETER[kind].match(flat, at).end()  # type: ignore[union-attr]
        if kind == "text" and flat[end : end + 1] not in ("&", "#"):
            # A link of Markdown ends so.
            end = at + len(flat[at:end].partition(")](")[0].rstrip(_URL_END))
        plain = as_text(self._undone(self._text[at:end]))
        counts = name.among(self._parameters_around(start, end), is_parameter=True)
        if counts(plain):
            yield from self._secret(name, _Find(at, end, "", plain, in_url=True))

    def _parameters_around(self, start: int, end: int) -> Collection[str]:
        """Return the folded names of the parameters of the URL or form that one stands in."""
        if self._kind != "text":
            return self._parameters
        flat = self._flat
        around = flat[max(0, start - _WINDOW) : start].split()[-1:]
        around += flat[end : end + _WINDOW].split()[:1]
        return {fold(other) for text in around for other in _PARAMETERS.findall(text)}

    @cached_property
    def _parameters(self) -> Collection[str]:
        return set(map(fold, _PARAMETERS.findall(self._flat)))

    def _on_line_of_its_own(self, name: Name, start: int, at: int, sign: str) -> _Find | None:
        before = self._flat[max(0, start - 64) : start].removesuffix("export ").removesuffix("- ")
        if before.rstrip(" \t")[-1:] not in '\r\n"':
            return None
        match = _REST_OF_LINE.match(self._flat, at)
        if match is None:
            return None
        given = match[0]
        if not 4 <= len(given) <= _LONGEST_VALUE or is_no_setting(given):
            return None
        given = given.rstrip(",;")
        is_setting = sign == "=" or self._flat[start:at].rstrip(" \t:").isupper()
        is_pin = name.rule == "password" and given.isdigit()
        is_meant = is_setting or not name.is_certain or is_pin
        if not (is_meant or is_strong(given) or is_encoded(given)):
            return None
        return self._found(at, at + len(given))

    def _value_after(self, at: int) -> _Find | None:
        flat = self._flat
        if prefix := _PREFIX.match(flat, at):
            at = prefix.end()
        opened = _OPENING.match(flat, at)
        if opened is not None and opened.start(1) == at:
            return self._quoted(opened)
        if at >= self._bare_end:
            self._bare_end = _BARE.match(flat, at).end()  # type: ignore[union-attr]
        end = self._bare_end
        if not 0 < end - at <= _LONGEST_VALUE or not _AFTER_BARE.match(flat, end):
            return None
        return self._found(at, end)

    def _quoted(self, opened: re.Match[str]) -> _Find | None:
        start, depth, flat = opened.end(), len(opened[1]) - 1, self._flat
        if opened[1][-1] == "'":
            end = _IN_SINGLE_QUOTES.match(flat, start).end()  # type: ignore[union-attr]
        else:
            end = string_end(self._text, start, depth)
        # What ends a string of JSON that the text stands in ends the value too.
        if outer := _END_OF_JSON.search(flat, start, end):
            end = outer.start()
        elif opened[1][-1] == "'" and flat[end : end + 1] not in ("", "'"):
            return None
        value = flat[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE or "\n" in value or "\r" in value:
            return None
        if depth == 0 and _END_OF_JSON.match(flat, opened.start(1)):
            return None
        return self._found(start, end)

    # A name and a value side by side

    def _given_beside(self, raw: bytes) -> Iterator[_Find]:
        flat, self._bare_end = self._flat, 0
        for match in self._rules.beside_in(raw):
            name, start = self._name_at(*match.span(2), has_spaces=False)
            end = match.end()
            if name is None or end - start > _WINDOW + _LONGEST_NAME:
                continue
            quote = flat[slice(*match.span(1))]
            is_member = match.start(3) >= 0
            depth = max(len(quote) - 1, 0)
            value = self._scalar(end, depth) if is_member else self._value_after(end)
            if value is not None:
                yield from self._decided(name, value, start)
