"""Replace secrets by placeholders, in bodies, in headers and in URLs."""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from string import ascii_letters, digits
from typing import Final, NamedTuple

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import ECHO_PLACES, TOKEN_PATH
from mrtr_cassette.core.secrets.decode import (
    BEGINNING_OF_TEXT_IN_BASE64,
    Decoded,
    as_text,
    decoded_base64,
    end_of_base64,
    long_words,
    spell_in_url,
    undo_json,
    with_real_line_ends,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    word_table,
)
from mrtr_cassette.core.secrets.judged import (
    Find,
    JudgedText,
    TextKind,
    secret_in_named_value,
)
from mrtr_cassette.core.secrets.names import (
    placeholder,
    ref_spans,
    rule_of_number,
    secrets_in,
)
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    ESCAPED,
    ESCAPED_IN_URL,
    PLACEHOLDER_MARKER,
    ActiveRules,
    RedactionRules,
    by_ending,
)
from mrtr_cassette.core.secrets.shapes import filter_of, rule_of_kind
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    Headers,
    Request,
    decoded_header,
    header_value,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.errors import NotJsonError

_MOST_LAYERS = 5
"""Layers of escapes of URLs, and of base64 in base64, that are undone."""

_FORM_TYPE = "application/x-www-form-urlencoded"
_JSON_SCALAR = re.compile(rb"\s*(?:-?[0-9][0-9.eE+-]*|true|false|null)\s*")
_FRAMING = re.compile(rb"(?:\r\n|\r|\n)(?:data: ?)?")
"""Kept of a secret in the data of an event that goes over several lines."""

_CHALLENGE = re.compile(r"(?<=[?&]code_challenge=)[\w.~-]{43,128}(?=&|\Z)")
"""A challenge for one authorization (RFC 7636), in the request that asks for it."""

_MOST_REMEMBERED = 1024
"""Headers and targets whose redacted form is remembered."""

_BASE64_CHARS = word_table(f"{ascii_letters}{digits}+/-_")
_TO_STANDARD_BASE64 = bytes.maketrans(b"-_", b"+/")
_TEXT_BEGINS = re.compile(
    rb"(?:[\t\r\n -~]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}"
    rb"|[\xf0-\xf4][\x80-\xbf]{3}){4}"
)
"""How text in UTF-8 begins, which most long words don't when they are read as base64."""

_TEXT_MAY_BEGIN = re.compile(BEGINNING_OF_TEXT_IN_BASE64.encode())
"""How such a word begins; most words, numbers and hashes don't, of which a body may have many."""

_LONG_WORD_OF_TEXT = (
    f"(?:^|[^A-Za-z0-9+/_-]){BEGINNING_OF_TEXT_IN_BASE64}[A-Za-z0-9+/_-]{{8}}"
)
_BASE64_TEXT = re.compile(
    r"(?:[A-Za-z0-9+/_-]{60,}+(?:\s{1,4}[A-Za-z0-9+/_-]{2,})*|[A-Za-z0-9+/_-]{11,})={0,2}",
    re.ASCII,
)
_DATA_LINE_BREAK = re.compile(r"(?:\r\n|\r|\n)data: ?")
_EVENT_FIELD = re.compile(r"(?:(?:data|event|id|retry|):[ ]?)?([^\r\n]+)")
_JSON_TEXT = re.compile(
    r"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"\Z)", re.DOTALL
)
_JSON_STRING = re.compile(
    r"\"([^\"\\]*+(?:\\.[^\"\\]*+)*+)\\?(?:\"|\Z)([ \t\r\n]*:)?", re.DOTALL
)
_STRING_OR_NUMBER = re.compile(
    rf"{_JSON_STRING.pattern}|(-?\d[\d.eE+-]*+)", re.DOTALL | re.ASCII
)
_VALUE_AS_NAME = re.compile(r"[0-9@]|home|[Uu]sers[\\/]")
"""In a member's name that may be a value, such as a path."""

_BETWEEN_STRINGS = re.compile(
    r"(?:\xef\xbb\xbf)?[\s{}\[\],:\d.eE+truefalsn-]*", re.ASCII
)
_BARE_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\"")
_CHARS_BEFORE_ID = 192
_EXEMPT_KEY = re.compile(
    r"\"(?:id|progressToken|requestId|requestState|code|io\.modelcontextprotocol/subscriptionId)\"\s*:\s*\"?[^\"]*\Z",
    re.ASCII,
)
_WHOLE_LINE = re.compile(r"[^\r\n]*")
_BEFORE_MESSAGE = re.compile(r"(?:\xef\xbb\xbf)?(?:data:)?[ \t\r\n]*")
_CODE_PATH: Final[MemberPath] = ("error", "code")
_EXEMPT_PATHS: Final[tuple[MemberPath, ...]] = (
    TOKEN_PATH,
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    _CODE_PATH,
    *[place.path for place in ECHO_PLACES],
)
"""Values that replay splices, seals or compares by itself, and the code of an error."""

_VERSION_PATH: Final[MemberPath] = ("jsonrpc",)
"""A member that each message has, unlike other JSON with such members."""


_active_rules = lru_cache(maxsize=8)(ActiveRules)
"""Returns the rules that a user's changes leave, prepared once for many redactors."""


def keyed_hash(key: bytes) -> Callable[[str, str], str]:
    """Return what stands for a secret in the journal: its hash under a key that nobody keeps."""

    def token(_rule: str, secret: str) -> str:
        raw = secret.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, key=key, digest_size=12).hexdigest()

    return token


class _Redacted(NamedTuple):
    """A text with placeholders."""

    text: str
    finds: Sequence[Find] = ()
    """The secrets that were replaced."""


class Redactor:
    """Replaces secrets by placeholders, the same text always by the same ones."""

    def __init__(self, rules: RedactionRules, token: Callable[[str, str], str]) -> None:
        self._token_of_secret = token
        self._rules = _active_rules(rules)
        self.on_find: Callable[[str, str], None] = _ignore_secret
        """Takes the rule and the text of each secret, whenever it is replaced."""
        # Most exchanges bring the same target and headers again.
        remembered = lru_cache(maxsize=_MOST_REMEMBERED)
        self._redacted_target = remembered(self._read_target)
        self._redacted_headers = remembered(self._read_headers)

    def rule_of(self, name: str) -> str:
        """Return the rule that makes a header of a name a credential, or an empty string."""
        known = self._rules.judge_name(name)
        if known is None:
            return ""
        if known.is_certain or by_ending(name) is not None:
            return known.rule

        return ""

    def placeholder(self, rule: str, secret: str) -> str:
        """Return what stands for a secret."""
        return placeholder(rule, self._token_of_secret(rule, secret))

    def secrets_in(
        self, text: str, *, is_target: bool = False
    ) -> list[tuple[str, str]]:
        """Return the rules and the secrets that are replaced in a text, or in a target."""
        kind: TextKind = "url" if is_target else "text"
        raw = text.encode("utf-8", "surrogatepass")
        return [(find.rule, find.plain) for find in self._secrets_found(raw, kind)]

    def body(self, raw: bytes, content_type: str) -> bytes:
        """Redact a body, or any piece of one; of an event stream whole events.

        JSON, also line by line or cut off, forms, event streams and other text are searched; in
        bytes that are no text, the parts that are ASCII.
        """
        if _JSON_SCALAR.fullmatch(raw):
            return raw

        media_type = content_type.partition(";")[0].strip().lower()
        is_stream = media_type == EVENT_STREAM
        kind: TextKind = "text"
        if media_type == _FORM_TYPE and raw.lstrip()[:1] not in (b"{", b"["):
            kind = "form"

        finds = self._secrets_found(raw, kind, is_stream=is_stream)
        self._tell(finds)
        return self._with_placeholders(raw, finds, is_stream=is_stream)

    def request(self, request: Request) -> Request:
        """Redact a request."""
        target = self.target(request.target)
        headers = self.headers(request.headers)
        content_type = header_value(request.headers, "content-type")
        body = self.body(request.body, content_type)
        return request.with_parts(target, headers, body)

    def target(self, path_with_query: str) -> str:
        """Redact a target, also the challenge (RFC 7636) of an authorization request."""
        redacted = self._redacted_target(path_with_query)
        self._tell(redacted.finds)
        return redacted.text

    def headers(self, headers: Headers) -> Headers:
        """Redact the values of headers, which a header's name may make secrets.

        A value in MCP's base64 spelling that contains a secret comes back as plain text if a header
        can hold that, else as a placeholder alone.
        """
        redacted, found = self._redacted_headers(headers)
        self._tell(found)
        return redacted

    def text(self, value: str) -> str:
        """Redact any text."""
        redacted = self._redacted_text(value)
        self._tell(redacted.finds)
        return redacted.text

    def _tell(self, finds: Iterable[Find]) -> None:
        """Tell of the secrets in a text each time: they may have been forgotten meanwhile."""
        for find in finds:
            self.on_find(find.rule, find.plain)

    def _read_target(self, path_with_query: str) -> _Redacted:
        redacted = self._redacted_text(path_with_query, "url")
        if "token" in self._rules.disabled:
            return redacted

        def stand_in(challenge: re.Match[str]) -> str:
            return spell_in_url(self.placeholder("token", challenge[0]))

        return redacted._replace(text=_CHALLENGE.sub(stand_in, redacted.text))

    def _read_headers(self, headers: Headers) -> tuple[Headers, Sequence[Find]]:
        """Return headers with placeholders, and their secrets."""
        redacted_headers = []
        found: list[Find] = []
        for name, value in headers:
            redacted = self._redacted_header(name, value)
            redacted_headers.append((name, redacted.text))
            found += redacted.finds

        return tuple(redacted_headers), found

    def _redacted_text(self, value: str, kind: TextKind = "text") -> _Redacted:
        raw = value.encode("utf-8", "surrogatepass")
        finds = self._secrets_found(raw, kind)
        if not finds:
            return _Redacted(value)

        redacted = self._with_placeholders(raw, finds)
        return _Redacted(redacted.decode("utf-8", "surrogatepass"), finds)

    def _redacted_header(self, name: str, value: str) -> _Redacted:
        plain = decoded_header(value)
        searched = value if plain is None else plain
        credential = self._credential_in(name, searched)
        if credential is None:
            redacted = self._redacted_text(searched)
        else:
            shown = self.placeholder(credential.rule, credential.plain)
            redacted = _Redacted(searched[: credential.start] + shown, [credential])

        text = redacted.text
        if text == plain:
            return redacted._replace(text=value)
        if plain is None or (text.isascii() and text.isprintable()):
            return redacted

        # Not all that the text had beside its secrets can be in a header.
        placeholders = secrets_in(text)
        text = placeholders[0].raw.decode() if placeholders else value
        return redacted._replace(text=text)

    def _credential_in(self, name: str, value: str) -> Find | None:
        """Return the part of a header's value that is a credential because of the header's name."""
        # It may mirror an argument, whose companions are in the body.
        known = self._rules.judge_name(name.lower().removeprefix("mcp-param-"))
        if known is None or not known.is_secret_beside(value):
            return None

        credential = secret_in_named_value(known.rule, value, self._rules.disabled)
        if credential is None or credential.rule == CUSTOM_KEY:
            return credential

        # If its shape is known too, it has the same rule as in other places.
        for rule, secret in self.secrets_in(value):
            if secret == credential.plain:
                return credential._replace(rule=rule)

        return credential

    def _with_placeholders(
        self, raw: bytes, finds: Sequence[Find], *, is_stream: bool = False
    ) -> bytes:
        """Return a text with placeholders for its secrets; the same object if it has none."""
        if not finds:
            return raw

        parts = []
        end = 0
        for find in finds:
            shown = self._shown_placeholder(find).encode()
            parts.append(raw[end : find.start])
            parts.append(shown)
            end = find.end
            if not is_stream:
                continue

            for framing in _FRAMING.findall(raw, find.start, find.end):
                parts.append(framing)
                # A line that is no data must not become an empty one, which ends an event.
                if b":" not in framing:
                    parts.append(shown)

        parts.append(raw[end:])
        return b"".join(parts)

    def _shown_placeholder(self, find: Find) -> str:
        """Return the placeholder of a find, in quotes for a number, and escaped inside a URL."""
        shown = f"{find.quote}{self.placeholder(find.rule, find.plain)}{find.quote}"
        return spell_in_url(shown) if find.in_url else shown

    def _secrets_found(
        self, raw: bytes, kind: TextKind, *, is_stream: bool = False
    ) -> list[Find]:
        """Return the secrets in a text, in order; no two overlap."""
        spelled = raw.decode("latin-1")
        text = spelled
        if is_stream:
            text = without_framing(spelled)

        found = list(self._finds_in_layer(text, kind, _MOST_LAYERS))
        if self._rules.custom_rules and is_stream:
            for field in _EVENT_FIELD.finditer(text):
                start = field.start(1)
                found += _finds_in_outer_text(
                    self._custom_finds(field[1], kind), start.__add__
                )
        elif self._rules.custom_rules:
            found += self._custom_finds(text, kind)

        if not found:
            return []

        if is_stream:
            found = [_find_over_lines(spelled, find) for find in found]

        if is_stream or text.lstrip()[:1] in ("{", "[", '"'):
            found = list(_finds_cut_at_quotes(text, found))

        return list(_without_exempt(text, _without_overlaps(text, found)))

    def _finds_in_layer(
        self, text: str, kind: TextKind, layers_left: int
    ) -> Iterator[Find]:
        """Yield the secrets in a text, and those in what it has escaped or encoded.

        `layers_left`: of URL escapes and base64, how many are still undone.
        """
        if filter_of(ESCAPED)(text):
            decoded = without_ascii_escapes(text)
            if decoded.text != text:
                inner = self._finds_in_layer(decoded.text, kind, layers_left)
                yield from _finds_in_outer_text(inner, decoded.source_offset)
                return

        flat = with_real_line_ends(text)
        if self._rules.may_find(flat):
            found = JudgedText(self._rules, text, flat, kind).finds()
            if filter_of(PLACEHOLDER_MARKER)(text):
                found = _finds_beside_placeholders(text, found)

            yield from found

        if layers_left and filter_of(_LONG_WORD_OF_TEXT)(text):
            yield from self._finds_in_base64(text, layers_left)

        if layers_left and filter_of(ESCAPED_IN_URL)(text):
            yield from self._finds_in_percent(text, kind, layers_left)

    def _finds_in_percent(
        self, text: str, kind: TextKind, layers_left: int
    ) -> Iterator[Find]:
        """Yield the secrets that a text has in `%` escapes, at their places in the text."""
        decoded = without_percent(text, is_form=kind == "form")
        for find in self._finds_in_layer(decoded.text, kind, layers_left - 1):
            char_before = ""
            if find.start:
                char_before = text[decoded.source_offset(find.start - 1)]

            # Whatever begins at a quote that is no escape was judged before, with that quote.
            if char_before != '"':
                yield _find_in_outer_url(find, decoded)

    def _finds_in_base64(self, text: str, layers_left: int) -> Iterator[Find]:
        """Yield the texts in base64 that encode a secret, by the rule of the first secret."""
        raw = text.encode("latin-1")
        end = 0
        unread_end = 0
        for start, stop in long_words(raw, _BASE64_CHARS, 11):
            if start < end or not _TEXT_MAY_BEGIN.match(raw, start):
                continue

            beginning_length = 12 if stop - start >= 12 else 8
            first = raw[start : start + beginning_length].translate(_TO_STANDARD_BASE64)
            if not _TEXT_BEGINS.match(a2b_base64(first)):
                continue

            inner = ""
            if start >= unread_end:
                # Base64 may go over several lines.
                match = _BASE64_TEXT.match(text, start)
                if match is None:
                    continue

                end = match.end()
                inner = decoded_base64(match[0])
                if not inner:
                    unread_end = end

            if not inner:
                # Words after it may have been taken for its next line.
                end = max(end_of_base64(text, start), stop)
                inner = decoded_base64(text[start:end])
                if not inner:
                    continue

            find = next(self._finds_in_layer(inner, "text", layers_left - 1), None)
            if find is not None:
                yield Find(start, end, find.rule, text[start:end])

    def _custom_finds(
        self, text: str, kind: TextKind, *, is_string: bool = False
    ) -> Iterator[Find]:
        """Find what a user's patterns match in a text; in JSON, in each string and number."""
        if _is_json(text):
            yield from self._custom_finds_in_json(text)
            return

        raw = text.encode("latin-1")
        in_url = kind != "text"
        found = []
        for rule in self._rules.custom_rules:
            # Whole texts are taken out of messages, and not out of headers and lines.
            if rule.name == rule_of_kind("text") and not is_string:
                continue

            for start, end in rule.spans(raw):
                plain = as_text(text[start:end])
                found.append(Find(start, end, rule.name, plain, in_url=in_url))

        yield from _finds_beside_placeholders(text, found)
        if in_url and "%" in text:
            decoded = without_percent(text, is_form=kind == "form")
            for find in self._custom_finds(decoded.text, "text"):
                yield _find_in_outer_url(find, decoded)

    def _custom_finds_in_json(self, text: str) -> Iterator[Find]:
        """Find what a user's patterns match in the strings and the numbers of JSON.

        A pattern must not touch the names that a protocol or a schema is made of, so only names
        that no schema has are searched.
        """
        for value in _STRING_OR_NUMBER.finditer(text):
            spelled, colon, number = value.groups()
            if number:
                yield from self._custom_finds_in_number(number, value.start())
                continue

            is_plain_name = bool(colon) and _VALUE_AS_NAME.search(spelled) is None
            if not spelled or is_plain_name:
                continue

            start = value.start(1)
            decoded = without_json_escapes(spelled)
            inner = self._custom_finds(decoded.text, "text", is_string=True)
            for find in _finds_in_outer_text(inner, decoded.source_offset):
                yield find._replace(
                    start=start + find.start,
                    end=start + find.end,
                    quote=_escaped_quote(find.quote),
                )

    def _custom_finds_in_number(self, number: str, start: int) -> Iterator[Find]:
        """Find a number of JSON of which a user's pattern matches a part; all of it is replaced."""
        for rule in self._rules.user_rules:
            if any(rule.spans(number.encode())):
                end = start + len(number)
                yield Find(start, end, rule_of_number(rule.name), number, quote='"')
                return


def _is_json(text: str) -> bool:
    """Tell whether a text looks like JSON, by its beginning and by all that is between strings."""
    if _JSON_TEXT.match(text) is None:
        return False
    return _BETWEEN_STRINGS.fullmatch(_JSON_STRING.sub("", text)) is not None


def _without_exempt(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    """Yield all finds but those in values that are never redacted."""
    exempt = ExemptValues(text)
    for find in finds:
        if not exempt.contain(find.start, find.end):
            yield find


class ExemptValues:
    """The ids, tokens and states of a message, or of a text's lines, which are never redacted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans_between = lru_cache(maxsize=None)(self._read_spans)

    def contain(self, start: int, end: int) -> bool:
        """Tell whether a part of the text is in such a value."""
        text = self._text
        begin = max(0, start - _CHARS_BEFORE_ID)
        if not _EXEMPT_KEY.search(text, begin, start):
            return False

        # The message is the whole text, or a line of it.
        last_end = max(text.rfind("\r", 0, start), text.rfind("\n", 0, start))
        line = _WHOLE_LINE.match(text, last_end + 1).span()  # type: ignore[union-attr]
        exempt = [*self._spans_between(0, len(text)), *self._spans_between(*line)]
        return any(span.start <= start and end <= span.end for span in exempt)

    def _read_spans(self, start: int, end: int) -> list[Span]:
        """Return where a part of the text, if it is a message, has such values."""
        text = self._text
        start = _BEFORE_MESSAGE.match(text, start, end).end()  # type: ignore[union-attr]
        try:
            found = find_spans(
                text[start:end].encode("latin-1"), (*_EXEMPT_PATHS, _VERSION_PATH)
            )
        except NotJsonError:
            return []

        has_version = False
        exempt = []
        for path, span in found:
            # An object or an array is no id, and a string no code, so it is like any other value.
            others = '{["' if path == _CODE_PATH else "{["
            if path == _VERSION_PATH:
                has_version = True
            elif text[start + span.start] not in others:
                exempt.append(span.moved(start))

        return exempt if has_version else []


def _escaped_quote(quote: str) -> str:
    """Return the quote of a find as a string of JSON spells it that is around its text."""
    return quote.replace("\\", "\\\\").replace('"', '\\"')


def _ignore_secret(_rule: str, _secret: str) -> None:
    """Do nothing with a secret that was found."""


def _finds_cut_at_quotes(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    """Cut each secret at the end of the string of JSON in which it begins."""
    for find in finds:
        quote = _BARE_QUOTE.search(text, find.start, find.end)
        if quote is None:
            yield find
        elif quote.start() > find.start:
            spelled = text[find.start : quote.start()]
            plain = as_text(undo_json(spelled))
            yield find._replace(end=quote.start(), plain=plain)


def _find_over_lines(text: str, find: Find) -> Find:
    """Return a secret of an event stream, which may go over several lines of data."""
    spelled = text[find.start : find.end]
    if not _DATA_LINE_BREAK.search(spelled):
        return find
    return find._replace(plain=_DATA_LINE_BREAK.sub("\n", spelled))


def _finds_in_outer_text(
    finds: Iterable[Find], source: Callable[[int], int]
) -> Iterator[Find]:
    """Yield finds of an inner text at their offsets in the outer text, which `source` returns."""
    for find in finds:
        yield find._replace(start=source(find.start), end=source(find.end))


def _find_in_outer_url(find: Find, decoded: Decoded) -> Find:
    """Return a find in a decoded URL at the place where the URL spells it."""
    start = decoded.source_offset(find.start)
    end = decoded.source_offset(find.end)
    return find._replace(start=start, end=end, in_url=True)


def _finds_beside_placeholders(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    """Leave out finds that are a placeholder or cut one; a secret may contain placeholders."""
    placeholder_spans = [
        span for span, ref in ref_spans(text.encode("latin-1")) if ref.is_secret
    ]
    starts = [span.start for span in placeholder_spans]
    ends = [span.end for span in placeholder_spans]
    for find in finds:
        first = bisect_right(ends, find.start)
        beyond = bisect_left(starts, find.end)
        touched = placeholder_spans[first:beyond]
        contains_all = all(
            find.start <= span.start and span.end <= find.end for span in touched
        )
        if contains_all and find[:2] not in touched:
            yield find


def _without_overlaps(text: str, finds: list[Find]) -> list[Find]:
    """Join finds that overlap into one, which has the rule of the first."""
    finds.sort(key=lambda find: (find.start, -find.end))
    kept: list[Find] = []
    for find in finds:
        if not kept or find.start >= kept[-1].end:
            kept.append(find)
            continue

        last = kept[-1]
        if find.end > last.end:
            plain = as_text(undo_json(text[last.start : find.end]))
            kept[-1] = last._replace(end=find.end, plain=plain)

    return kept
