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
    decoded_base64,
    end_of_base64,
    long_words,
    spell_in_url,
    unescaped_json,
    utf8_text_of_latin1,
    with_real_line_ends,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    word_table,
)
from mrtr_cassette.core.secrets.judged import (
    Finding,
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
    name_by_ending,
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
_BREAK_BETWEEN_DATA_LINES = re.compile(rb"(?:\r\n|\r|\n)(?:data: ?)?")
"""Kept of a secret in the data of an event that goes over several lines."""

_CHALLENGE = re.compile(r"(?<=[?&]code_challenge=)[\w.~-]{43,128}(?=&|\Z)")
"""A challenge for one authorization (RFC 7636), in the request that asks for it."""

_MOST_CACHED = 1024
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

    def hash_of_secret(_rule: str, secret: str) -> str:
        raw = secret.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, key=key, digest_size=12).hexdigest()

    return hash_of_secret


class _RedactedText(NamedTuple):
    """A text with placeholders."""

    text: str
    findings: Sequence[Finding] = ()
    """The secrets that were replaced."""


class Redactor:
    """Replaces secrets by placeholders, the same text always by the same ones."""

    def __init__(
        self, rules: RedactionRules, token_of_secret: Callable[[str, str], str]
    ) -> None:
        self._token_of_secret = token_of_secret
        self._rules = _active_rules(rules)
        self.on_find: Callable[[str, str], None] = _ignore_secret
        """Takes the rule and the text of each secret, whenever it is replaced."""
        # Most exchanges bring the same target and headers again.
        cached = lru_cache(maxsize=_MOST_CACHED)
        self._cached_target_with_findings = cached(self._target_with_findings)
        self._cached_headers_with_findings = cached(self._headers_with_findings)

    def rule_of_header(self, name: str) -> str:
        """Return the rule that makes a header of a name a credential, or an empty string."""
        secret_name = self._rules.judge_name(name)
        if secret_name is None:
            return ""
        if secret_name.is_certain or name_by_ending(name) is not None:
            return secret_name.rule

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
        return [
            (finding.rule, finding.plain) for finding in self._find_secrets(raw, kind)
        ]

    def redacted_body(self, raw: bytes, content_type: str) -> bytes:
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

        findings = self._find_secrets(raw, kind, is_stream=is_stream)
        if not findings:
            return raw

        self._report_findings(findings)
        return self._with_placeholders(raw, findings, is_stream=is_stream)

    def redacted_request(self, request: Request) -> Request:
        """Redact a request."""
        target = self.redacted_target(request.target)
        headers = self.redacted_headers(request.headers)
        content_type = header_value(request.headers, "content-type")
        body = self.redacted_body(request.body, content_type)
        return request.with_parts(target, headers, body)

    def redacted_target(self, path_with_query: str) -> str:
        """Redact a target, also the challenge (RFC 7636) of an authorization request."""
        redacted = self._cached_target_with_findings(path_with_query)
        self._report_findings(redacted.findings)
        return redacted.text

    def redacted_headers(self, headers: Headers) -> Headers:
        """Redact the values of headers, which a header's name may make secrets.

        A value in MCP's base64 spelling that contains a secret comes back as plain text if a header
        can hold that, else as a placeholder alone.
        """
        redacted_headers, findings = self._cached_headers_with_findings(headers)
        self._report_findings(findings)
        return redacted_headers

    def redacted_text(self, value: str) -> str:
        """Redact any text."""
        redacted = self._text_with_findings(value)
        self._report_findings(redacted.findings)
        return redacted.text

    def _report_findings(self, findings: Iterable[Finding]) -> None:
        """Tell of the secrets in a text each time: they may have been forgotten meanwhile."""
        for finding in findings:
            self.on_find(finding.rule, finding.plain)

    def _target_with_findings(self, path_with_query: str) -> _RedactedText:
        redacted = self._text_with_findings(path_with_query, "url")
        if "token" in self._rules.disabled:
            return redacted

        def challenge_placeholder(challenge: re.Match[str]) -> str:
            return spell_in_url(self.placeholder("token", challenge[0]))

        return redacted._replace(
            text=_CHALLENGE.sub(challenge_placeholder, redacted.text)
        )

    def _headers_with_findings(
        self, headers: Headers
    ) -> tuple[Headers, Sequence[Finding]]:
        """Return headers with placeholders, and their secrets."""
        redacted_headers = []
        findings: list[Finding] = []
        for name, value in headers:
            redacted = self._header_with_findings(name, value)
            redacted_headers.append((name, redacted.text))
            findings += redacted.findings

        return tuple(redacted_headers), findings

    def _text_with_findings(self, value: str, kind: TextKind = "text") -> _RedactedText:
        raw = value.encode("utf-8", "surrogatepass")
        findings = self._find_secrets(raw, kind)
        if not findings:
            return _RedactedText(value)

        redacted = self._with_placeholders(raw, findings)
        return _RedactedText(redacted.decode("utf-8", "surrogatepass"), findings)

    def _header_with_findings(self, name: str, value: str) -> _RedactedText:
        decoded_value = decoded_header(value)
        searched_value = value if decoded_value is None else decoded_value
        credential = self._credential_in(name, searched_value)
        if credential is None:
            redacted = self._text_with_findings(searched_value)
        else:
            placeholder_text = self.placeholder(credential.rule, credential.plain)
            redacted = _RedactedText(
                searched_value[: credential.start] + placeholder_text, [credential]
            )

        text = redacted.text
        if text == decoded_value:
            return redacted._replace(text=value)
        if decoded_value is None or (text.isascii() and text.isprintable()):
            return redacted

        # Not all that the text had beside its secrets can be in a header.
        placeholders = secrets_in(text)
        text = placeholders[0].raw.decode() if placeholders else value
        return redacted._replace(text=text)

    def _credential_in(self, name: str, value: str) -> Finding | None:
        """Return the part of a header's value that is a credential because of the header's name."""
        # It may mirror an argument, whose companions are in the body.
        secret_name = self._rules.judge_name(name.lower().removeprefix("mcp-param-"))
        if secret_name is None or not secret_name.is_secret_beside(value):
            return None

        credential = secret_in_named_value(
            secret_name.rule, value, self._rules.disabled
        )
        if credential is None or credential.rule == CUSTOM_KEY:
            return credential

        # If its shape is known too, it has the same rule as in other places.
        for rule, secret in self.secrets_in(value):
            if secret == credential.plain:
                return credential._replace(rule=rule)

        return credential

    def _with_placeholders(
        self, raw: bytes, findings: Sequence[Finding], *, is_stream: bool = False
    ) -> bytes:
        """Return a text with placeholders for its secrets."""
        parts = []
        end = 0
        for finding in findings:
            placeholder_text = self._shown_placeholder(finding).encode()
            parts.append(raw[end : finding.start])
            parts.append(placeholder_text)
            end = finding.end
            if not is_stream:
                continue

            for line_break in _BREAK_BETWEEN_DATA_LINES.findall(
                raw, finding.start, finding.end
            ):
                parts.append(line_break)
                # A line that is no data must not become an empty one, which ends an event.
                if b":" not in line_break:
                    parts.append(placeholder_text)

        parts.append(raw[end:])
        return b"".join(parts)

    def _shown_placeholder(self, finding: Finding) -> str:
        """Return the placeholder of a finding, in quotes for a number, and escaped inside a URL."""
        plain_placeholder = self.placeholder(finding.rule, finding.plain)
        placeholder_text = f"{finding.quote}{plain_placeholder}{finding.quote}"
        return spell_in_url(placeholder_text) if finding.in_url else placeholder_text

    def _find_secrets(
        self, raw: bytes, kind: TextKind, *, is_stream: bool = False
    ) -> list[Finding]:
        """Return the secrets in a text, in order; no two overlap."""
        raw_text = raw.decode("latin-1")
        text = raw_text
        if is_stream:
            text = without_framing(raw_text)

        findings = list(self._findings_in_layer(text, kind, _MOST_LAYERS))
        if self._rules.custom_rules and is_stream:
            for field in _EVENT_FIELD.finditer(text):
                start = field.start(1)
                findings += _findings_in_outer_text(
                    self._custom_findings(field[1], kind), start.__add__
                )
        elif self._rules.custom_rules:
            findings += self._custom_findings(text, kind)

        if not findings:
            return []

        if is_stream:
            findings = [
                _joined_over_data_lines(raw_text, finding) for finding in findings
            ]

        if is_stream or text.lstrip()[:1] in ("{", "[", '"'):
            findings = list(_findings_cut_at_quotes(text, findings))

        return list(_without_exempt_findings(text, _without_overlaps(text, findings)))

    def _findings_in_layer(
        self, text: str, kind: TextKind, layers_left: int
    ) -> Iterator[Finding]:
        """Yield the secrets in a text, and those in what it has escaped or encoded.

        `layers_left`: of URL escapes and base64, how many are still undone.
        """
        if filter_of(ESCAPED)(text):
            decoded = without_ascii_escapes(text)
            if decoded.text != text:
                inner_findings = self._findings_in_layer(
                    decoded.text, kind, layers_left
                )
                yield from _findings_in_outer_text(
                    inner_findings, decoded.source_offset
                )
                return

        multiline_text = with_real_line_ends(text)
        if self._rules.may_find_secrets(multiline_text):
            findings = JudgedText(self._rules, text, multiline_text, kind).findings()
            if filter_of(PLACEHOLDER_MARKER)(text):
                findings = _findings_apart_from_placeholders(text, findings)

            yield from findings

        if layers_left and filter_of(_LONG_WORD_OF_TEXT)(text):
            yield from self._findings_in_base64(text, layers_left)

        if layers_left and filter_of(ESCAPED_IN_URL)(text):
            yield from self._findings_in_percent_escapes(text, kind, layers_left)

    def _findings_in_percent_escapes(
        self, text: str, kind: TextKind, layers_left: int
    ) -> Iterator[Finding]:
        """Yield the secrets that a text has in `%` escapes, at their places in the text."""
        decoded = without_percent(text, is_form=kind == "form")
        for finding in self._findings_in_layer(decoded.text, kind, layers_left - 1):
            char_before = ""
            if finding.start:
                char_before = text[decoded.source_offset(finding.start - 1)]

            # Whatever begins at a quote that is no escape was judged before, with that quote.
            if char_before != '"':
                yield _finding_in_outer_url(finding, decoded)

    def _findings_in_base64(self, text: str, layers_left: int) -> Iterator[Finding]:
        """Yield the texts in base64 that encode a secret, by the rule of the first secret."""
        raw = text.encode("latin-1")
        end = 0
        undecodable_until = 0
        for start, word_end in long_words(raw, _BASE64_CHARS, 11):
            if start < end or not _TEXT_MAY_BEGIN.match(raw, start):
                continue

            beginning_length = 12 if word_end - start >= 12 else 8
            first_chars = raw[start : start + beginning_length].translate(
                _TO_STANDARD_BASE64
            )
            if not _TEXT_BEGINS.match(a2b_base64(first_chars)):
                continue

            decoded_text = ""
            if start >= undecodable_until:
                # Base64 may go over several lines.
                match = _BASE64_TEXT.match(text, start)
                if match is None:
                    continue

                end = match.end()
                decoded_text = decoded_base64(match[0])
                if not decoded_text:
                    undecodable_until = end

            if not decoded_text:
                # Words after it may have been taken for its next line.
                end = max(end_of_base64(text, start), word_end)
                decoded_text = decoded_base64(text[start:end])
                if not decoded_text:
                    continue

            finding = next(
                self._findings_in_layer(decoded_text, "text", layers_left - 1), None
            )
            if finding is not None:
                yield Finding(start, end, finding.rule, text[start:end])

    def _custom_findings(
        self, text: str, kind: TextKind, *, is_string: bool = False
    ) -> Iterator[Finding]:
        """Find what a user's patterns match in a text; in JSON, in each string and number."""
        if _is_json(text):
            yield from self._custom_findings_in_json(text)
            return

        raw = text.encode("latin-1")
        in_url = kind != "text"
        findings = []
        for rule in self._rules.custom_rules:
            # Whole texts are taken out of messages, and not out of headers and lines.
            if rule.name == rule_of_kind("text") and not is_string:
                continue

            for start, end in rule.secret_spans(raw):
                decoded_text = utf8_text_of_latin1(text[start:end])
                findings.append(
                    Finding(start, end, rule.name, decoded_text, in_url=in_url)
                )

        yield from _findings_apart_from_placeholders(text, findings)
        if in_url and "%" in text:
            decoded = without_percent(text, is_form=kind == "form")
            for finding in self._custom_findings(decoded.text, "text"):
                yield _finding_in_outer_url(finding, decoded)

    def _custom_findings_in_json(self, text: str) -> Iterator[Finding]:
        """Find what a user's patterns match in the strings and the numbers of JSON.

        A pattern must not touch the names that a protocol or a schema is made of, so only names
        that no schema has are searched.
        """
        for value in _STRING_OR_NUMBER.finditer(text):
            spelled_string, colon, number = value.groups()
            if number:
                yield from self._custom_findings_in_number(number, value.start())
                continue

            if not spelled_string:
                continue
            if colon and not _VALUE_AS_NAME.search(spelled_string):
                continue

            start = value.start(1)
            decoded = without_json_escapes(spelled_string)
            inner_findings = self._custom_findings(decoded.text, "text", is_string=True)
            for finding in _findings_in_outer_text(
                inner_findings, decoded.source_offset
            ):
                yield finding._replace(
                    start=start + finding.start,
                    end=start + finding.end,
                    quote=_escaped_quote(finding.quote),
                )

    def _custom_findings_in_number(self, number: str, start: int) -> Iterator[Finding]:
        """Find a number of JSON of which a user's pattern matches a part; all of it is replaced."""
        for rule in self._rules.user_rules:
            if any(rule.secret_spans(number.encode())):
                end = start + len(number)
                yield Finding(start, end, rule_of_number(rule.name), number, quote='"')
                return


def _is_json(text: str) -> bool:
    """Tell whether a text looks like JSON, by its beginning and by all that is between strings."""
    if _JSON_TEXT.match(text) is None:
        return False
    return _BETWEEN_STRINGS.fullmatch(_JSON_STRING.sub("", text)) is not None


def _without_exempt_findings(
    text: str, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield all findings but those in values that are never redacted."""
    exempt_values = ExemptValues(text)
    for finding in findings:
        if not exempt_values.contain_span(finding.start, finding.end):
            yield finding


class ExemptValues:
    """The ids, tokens and states of a message, or of a text's lines, which are never redacted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans_between = lru_cache(maxsize=None)(self._exempt_spans_in)

    def contain_span(self, start: int, end: int) -> bool:
        """Tell whether a part of the text is in such a value."""
        text = self._text
        search_start = max(0, start - _CHARS_BEFORE_ID)
        if not _EXEMPT_KEY.search(text, search_start, start):
            return False

        # The message is the whole text, or a line of it.
        last_end = max(text.rfind("\r", 0, start), text.rfind("\n", 0, start))
        line_span = _WHOLE_LINE.match(text, last_end + 1).span()  # type: ignore[union-attr]
        exempt_spans = [
            *self._spans_between(0, len(text)),
            *self._spans_between(*line_span),
        ]
        return any(span.start <= start and end <= span.end for span in exempt_spans)

    def _exempt_spans_in(self, start: int, end: int) -> list[Span]:
        """Return where a part of the text, if it is a message, has such values."""
        text = self._text
        start = _BEFORE_MESSAGE.match(text, start, end).end()  # type: ignore[union-attr]
        try:
            paths_and_spans = find_spans(
                text[start:end].encode("latin-1"), (*_EXEMPT_PATHS, _VERSION_PATH)
            )
        except NotJsonError:
            return []

        has_version = False
        exempt_spans = []
        for path, span in paths_and_spans:
            # An object or an array is no id, and a string no code, so it is like any other value.
            other_beginnings = '{["' if path == _CODE_PATH else "{["
            if path == _VERSION_PATH:
                has_version = True
            elif text[start + span.start] not in other_beginnings:
                exempt_spans.append(span.moved(start))

        return exempt_spans if has_version else []


def _escaped_quote(quote: str) -> str:
    """Return the quote of a finding as a string of JSON spells it that is around its text."""
    return quote.replace("\\", "\\\\").replace('"', '\\"')


def _ignore_secret(_rule: str, _secret: str) -> None:
    """Do nothing with a secret that was found."""


def _findings_cut_at_quotes(
    text: str, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Cut each secret at the end of the string of JSON in which it begins."""
    for finding in findings:
        quote = _BARE_QUOTE.search(text, finding.start, finding.end)
        if quote is None:
            yield finding
        elif quote.start() > finding.start:
            spelled_secret = text[finding.start : quote.start()]
            plain_secret = utf8_text_of_latin1(unescaped_json(spelled_secret))
            yield finding._replace(end=quote.start(), plain=plain_secret)


def _joined_over_data_lines(text: str, finding: Finding) -> Finding:
    """Return a secret of an event stream, which may go over several lines of data."""
    spelled_secret = text[finding.start : finding.end]
    if not _DATA_LINE_BREAK.search(spelled_secret):
        return finding
    return finding._replace(plain=_DATA_LINE_BREAK.sub("\n", spelled_secret))


def _findings_in_outer_text(
    findings: Iterable[Finding], source: Callable[[int], int]
) -> Iterator[Finding]:
    """Yield findings of an inner text at their offsets in the outer text, by `source`."""
    for finding in findings:
        yield finding._replace(start=source(finding.start), end=source(finding.end))


def _finding_in_outer_url(finding: Finding, decoded_url: Decoded) -> Finding:
    """Return a finding in a decoded URL at the place where the URL spells it."""
    start = decoded_url.source_offset(finding.start)
    end = decoded_url.source_offset(finding.end)
    return finding._replace(start=start, end=end, in_url=True)


def _findings_apart_from_placeholders(
    text: str, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Leave out findings that are a placeholder or cut one; a secret may contain placeholders."""
    placeholder_spans = [
        span for span, ref in ref_spans(text.encode("latin-1")) if ref.is_secret
    ]
    starts = [span.start for span in placeholder_spans]
    ends = [span.end for span in placeholder_spans]
    for finding in findings:
        first_touched = bisect_right(ends, finding.start)
        end_of_touched = bisect_left(starts, finding.end)
        touched_spans = placeholder_spans[first_touched:end_of_touched]
        contains_all = all(
            finding.start <= span.start and span.end <= finding.end
            for span in touched_spans
        )
        if contains_all and finding[:2] not in touched_spans:
            yield finding


def _without_overlaps(text: str, findings: list[Finding]) -> list[Finding]:
    """Join findings that overlap into one, which has the rule of the first."""
    findings.sort(key=lambda finding: (finding.start, -finding.end))
    joined_findings: list[Finding] = []
    for finding in findings:
        if not joined_findings or finding.start >= joined_findings[-1].end:
            joined_findings.append(finding)
            continue

        last_finding = joined_findings[-1]
        if finding.end > last_finding.end:
            plain_secret = utf8_text_of_latin1(
                unescaped_json(text[last_finding.start : finding.end])
            )
            joined_findings[-1] = last_finding._replace(
                end=finding.end, plain=plain_secret
            )

    return joined_findings
