"""Finding secrets in one text: by shape, by a name that is given a value, and in URLs.

Owns: the layers below a text (JSON, URLs, base64, and what their escapes spell), and values that
follow a name in prose, logs, settings and code.
Does not own: the shapes and names (`rules`), what a walk through JSON takes to be a value
(`json_search`), the parts of a URL (`url_search`).
Rule: a text is searched with its escapes undone, one layer at a time, and a finding is mapped back
to where it is spelled.
Source: docs/design.md, "Redaction".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from mrtr_cassette.core.secrets.blobs import decoded_blob
from mrtr_cassette.core.secrets.escapes import (
    Finding,
    SpanSet,
    decode_url,
    json_tokens,
    mapped_back,
    shifted,
    spell_in_url,
    without_overlaps,
)
from mrtr_cassette.core.secrets.json_search import secrets_in_json
from mrtr_cassette.core.secrets.names import REFERENCE, is_encoded, is_strong
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, placeholders_in
from mrtr_cassette.core.secrets.rules import (
    CREDENTIALS,
    CUSTOM_KEY,
    NO_NAME,
    ActiveRules,
    Name,
    SearchPlan,
)
from mrtr_cassette.core.secrets.shapes import EncodedText
from mrtr_cassette.core.secrets.url_search import (
    URL_QUERY,
    Query,
    credentials_in,
    inner_urls,
    secrets_in_query,
    urls_in,
)
from mrtr_cassette.errors import NotJsonError

DEEPEST: Final = 5
"""URLs in URLs that are searched. JSON in JSON needs no limit, as its escapes double each time."""

_SEALED = re.compile(r"sha256:[0-9a-f]{64}|mrtr-(?:state|session|answer):[0-9a-f:]+")
"""What sealing has put in the place of a value: the same for everyone, and compared on replay."""

_SHORTEST = len("apikey=x")
"""Characters that a text has at least if one of our own rules finds something in it."""

_JSON_IN_TEXT = re.compile(r'[ \t\r\n]*+(?:[{\[]|"[^"\\]*+(?:\\.[^"\\]*+)*+"\Z)', re.DOTALL)
"""How a text begins that is an object or an array, or one string in quotes."""
_ASSIGNED = re.compile(
    r"(?<![\w.-])-{0,2}(?:\\{0,8}[\"'])?(?P<name>[A-Za-z_][\w.-]{1,63}+)(?P<quote>\\{0,8}[\"'])?"
    r"(?P<sign>[ \t]{0,4}(?:=>|[:=])[ \t]{0,4})"
)
"""A name and what gives it a value in prose, logs, settings and code."""
_OPENING_QUOTE = re.compile(r"\\{0,8}([\"'])")
_QUOTE_OR_LINE_END = {'"': re.compile(r'["\r\n]'), "'": re.compile(r"['\r\n]")}
_BARE_END = re.compile(r"[\s\"'<>&;,(){}\[\]`|\\]")
_AFTER_BARE = frozenset("&;\"'\\")
_TAGS_AFTER_BARE = ("</", "<br")
_LONGEST_INDENT = 64
_LONGEST_NAME = 160
_NAME_BEFORE = re.compile(
    r"\bname[\"']?[ \t]*[:=][ \t]*[\"']?([\w.-]{2,64})[\"']?[ \t]*\r?\n\s{0,64}\Z"
)
_BEGINNING_OF_LINE = re.compile(r"(?:\A|[\r\n])[ \t]*(?:- |export )?\Z")
_REST_OF_LINE = re.compile(r"[^\s\"']{4,2048}(?=[ \t]*(?:[\r\n]|\Z|[ \t]#))")
_CODE = re.compile(
    r"\A[|>&*!{\[(]|\\|[;,&]\w+="
    # A call or an item of a known one, but no password with brackets: `Hunter2(horse9)`.
    r"|\A(?![A-Za-z]+[0-9]+[(\[{][A-Za-z]+[0-9]+[)\]}])[A-Za-z_][\w.]*[(\[{].*[)\]}]\Z"
    r"|\A(?i:sha[0-9]+|md5|b(?:ase)?64|argon2)\w*\("
    r"|\A[A-Za-z_.]*[0-9]*[,;]\Z|\W[,;]\Z"
)
"""What stands behind a name in code, and in a list of names and values, and not in settings."""
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_DIGIT = re.compile(r"[0-9]")
_LONGEST_VALUE = 2048
"""Characters of a value in such text."""

_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate)[ \t]+(?=\S)")
_NO_VALUE = re.compile(
    r"(?i)(?:bearer|basic|token|digest|negotiate|none|null|nil|true|false|undefined|required"
    r"|optional|string|str|u?int[0-9]*|utf-?8|sha-?[0-9]+|base64|argon2\w*|\W*)"
)
_TEMPLATE = re.compile(rf"{REFERENCE}|<|\{{\{{|%[({{]|\*\*\*|\.\*")


class TextSearch:
    """Searches the layers of a text for the secrets that it may contain.

    Attributes:
        shortest: characters that a text has at least if there may be a secret in it.
    """

    def __init__(
        self, rules: ActiveRules, *, by_name: bool = True, has_custom: bool = True
    ) -> None:
        """Begin a search.

        Args:
            rules: the rules of the recording.
            by_name: names make values secrets; otherwise only shapes are looked for.
            has_custom: a user's own patterns are looked for too.
        """
        self._rules = rules
        self._by_name = by_name
        self._has_custom = has_custom
        self.shortest = 0 if rules.custom else _SHORTEST

    def name(self, name: str) -> Name:
        """Return what a name tells about its value."""
        return self._rules.name(name) if self._by_name else NO_NAME

    def in_value(self, text: str, depth: int = DEEPEST) -> list[Finding]:
        """Search a text that may be JSON itself: an object, an array, or one string in quotes."""
        if _JSON_IN_TEXT.match(text):
            with suppress(NotJsonError):
                return secrets_in_json(json_tokens(text), self, depth)
        return self.in_text(text, depth)

    def in_member(self, rule: str, value: str, depth: int = DEEPEST) -> list[Finding]:
        """Search a value that stands under a name; `rule` is empty for most names."""
        return self._in_named(rule, value) if rule else self.in_value(value, depth)

    def in_key(self, key: str, depth: int = DEEPEST) -> list[Finding]:
        """Search the name of a member.

        A user's pattern must not touch the names that a protocol or a schema is made of, so of
        those that a pattern matches only those with a digit count.
        """
        has_custom = _DIGIT.search(key) is not None
        if self._has_custom == has_custom or not self._rules.custom:
            return self.in_value(key, depth)
        return TextSearch(self._rules, has_custom=has_custom).in_value(key, depth)

    def in_blob(self, value: str, depth: int = DEEPEST) -> list[Finding]:
        """Search a value that may be text in base64, which is a secret if it contains one."""
        text = decoded_blob(value) if depth > 0 else None
        if text and self._rules.may_match(text.encode("utf-8", "surrogateescape")):
            for finding in self.in_value(text, depth - 1):
                return [Finding(0, len(value), finding.rule, value)]
        return self.in_value(value, depth)

    def _in_named(self, rule: str, value: str) -> list[Finding]:
        """Return a value that its name makes a secret; the scheme of a credential stays."""
        start = 0
        if rule == "authorization" and (scheme := _SCHEME.match(value)):
            start = scheme.end()
            named = scheme[1].lower()
            if named in ("basic", "bearer") and named not in self._rules.disabled:
                rule = named
        secret = value[start:]
        if not secret or PLACEHOLDER.fullmatch(secret) or _SEALED.fullmatch(secret):
            return []
        if rule != CUSTOM_KEY and self._rules.may_match(value.encode("utf-8", "surrogateescape")):
            # If its shape is known too, it has the same rule as in other places.
            for finding in self._by_shape_only().in_text(value, depth=0):
                if (finding.start, finding.end) == (start, len(value)):
                    rule = finding.rule
        return [Finding(start, len(value), rule, secret)]

    def _by_shape_only(self) -> TextSearch:
        return TextSearch(self._rules, by_name=False)

    def in_text(self, text: str, depth: int = DEEPEST, query: Query | None = None) -> list[Finding]:
        """Search a text that is no JSON, and the URLs in it.

        Args:
            text: the text.
            depth: levels of URLs in URLs that are still searched.
            query: how names and values stand in it, if the whole text is a URL or a form.
        """
        urls: list[tuple[int, int]] = []
        if query is not None:
            urls = [(0, len(text))]
        elif "://" in text:
            urls = list(urls_in(text))
        in_urls = SpanSet(urls)
        encoded = EncodedText(text)
        plan = self._rules.plan(encoded.raw)
        findings = [
            _finding(rule, text, span, in_urls)
            for rule, spans in self._shapes(text, encoded, plan)
            for span in spans
        ]
        if plan.has_names and self._by_name:
            findings += self._assigned(text, in_urls)
        if depth > 0 and _ESCAPE.search(text):
            decoded = (query or URL_QUERY).decode(text)
            below = self.in_text(decoded.text, depth - 1)
            findings += mapped_back(decoded, below, 0, spell_in_url)
        for url in urls if depth > 0 and self._by_name else ():
            for start, end in (url, *inner_urls(text, *url)):
                pairs = secrets_in_query(text[start:end], query or URL_QUERY, self, depth - 1)
                findings += shifted(pairs, start)
        if not findings:
            return []
        placeholders = SpanSet(match.span() for match in placeholders_in(text))
        return without_overlaps(
            text,
            [
                finding
                for finding in findings
                if not placeholders.covers(finding.start, finding.end)
                and not placeholders.cuts(finding.start, finding.end)
            ],
        )

    def _shapes(
        self, text: str, encoded: EncodedText, plan: SearchPlan
    ) -> Iterator[tuple[str, Iterator[tuple[int, int]]]]:
        """Yield rules, each with the spans of what it finds by shape."""
        for rule in plan.rules:
            if self._has_custom or not rule.is_custom:
                yield rule.name, encoded.characters(rule.spans(encoded.raw))
        if CREDENTIALS not in self._rules.disabled:
            yield CREDENTIALS, credentials_in(text)

    def _assigned(self, text: str, urls: SpanSet) -> Iterator[Finding]:
        """Find values that text outside URLs gives to a secret's name: `DB_PASSWORD=…`."""
        values = _Values(text)
        for match in _ASSIGNED.finditer(text):
            spelled = _name_of(text, match)
            name = self.name(spelled)
            if name.tells_nothing:
                continue
            value = _on_line_of_its_own(text, match, name, is_setting=spelled.isupper())
            if value is None:
                value = values.after(match.end())
                if value is None or not _is_meant(match, value):
                    continue
            rule = name.rule
            if name.ambiguous is not None:
                is_parameter = text[match.start() - 1 : match.start()] in ("?", "&")
                known = name.ambiguous
                counts = known.in_query if is_parameter else known.alone
                rule = known.rule if counts(value.text) else ""
            for finding in shifted(self._in_named(rule, value.text) if rule else (), value.start):
                if not urls.covers(finding.start, finding.end):
                    yield finding


class _Value(NamedTuple):
    """What a name is given in a text."""

    start: int
    text: str
    is_bare: bool


class _Values:
    """Reads what names are given in a text; no part of it is read for each of many names."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bare_end = 0

    def after(self, at: int) -> _Value | None:
        """Return the value that begins at an offset: in quotes, or up to a delimiter."""
        opening = _OPENING_QUOTE.match(self._text, at)
        return self._bare(at) if opening is None else self._quoted(opening)

    def _quoted(self, opening: re.Match[str]) -> _Value | None:
        text, start = self._text, opening.end()
        closing = _QUOTE_OR_LINE_END[opening[1]].search(text, start)
        end = len(text) if closing is None else closing.start()
        if closing is not None and closing[0] != opening[1]:
            return None
        value = text[start : min(end, start + _LONGEST_VALUE + 9)]
        if closing is not None:
            # The backslashes before the closing quote are its own.
            escapes = len(value) - len(value.rstrip("\\"))
            value = value[: len(value) - escapes] if escapes <= 8 else ""
        return _Value(start, value, is_bare=False) if 0 < len(value) <= _LONGEST_VALUE else None

    def _bare(self, start: int) -> _Value | None:
        text = self._text
        if start >= self._bare_end:
            delimiter = _BARE_END.search(text, start)
            self._bare_end = len(text) if delimiter is None else delimiter.start()
        end = self._bare_end
        after = text[end : end + 1]
        is_ended = not after or after.isspace() or after in _AFTER_BARE
        is_ended = is_ended or text.startswith(_TAGS_AFTER_BARE, end)
        if not 0 < end - start <= _LONGEST_VALUE or not is_ended:
            return None
        return _Value(start, text[start:end], is_bare=True)


def _name_of(text: str, match: re.Match[str]) -> str:
    """Return what is given a value: the name, or the one in the line before `value: …`."""
    name = match["name"].rpartition(".")[2]
    if name != "value":
        return name
    named = _NAME_BEFORE.search(text, max(0, match.start() - _LONGEST_NAME), match.start())
    return name if named is None else named[1]


def _on_line_of_its_own(
    text: str, match: re.Match[str], name: Name, *, is_setting: bool
) -> _Value | None:
    """Return a value that is all that follows in a line, as in YAML and ini files, or None.

    Args:
        text: the text.
        match: the name and what gives it a value.
        name: what the name tells.
        is_setting: the name is spelled as those of environment variables.
    """
    start = match.start()
    line = text[max(0, start - _LONGEST_INDENT) : start]
    if (line and not line[-1].isspace()) or not _BEGINNING_OF_LINE.search(line):
        return None
    value = _REST_OF_LINE.match(text, match.end())
    given = "" if value is None else value[0]
    if _NO_VALUE.fullmatch(given) or _TEMPLATE.match(given) or _CODE.search(given):
        return None
    given = given.rstrip(",;")
    if not is_setting and match["sign"].strip() != "=" and name.ambiguous is None:
        is_password = name.rule == "password"
        is_figure = is_password and given.isdigit()
        if not (is_figure or is_strong(given) or is_encoded(given)):
            return None
        if match["sign"][-1] not in " \t" and not is_password:
            return None
    return _Value(match.end(), given, is_bare=True)


def _finding(rule: str, text: str, span: tuple[int, int], urls: SpanSet) -> Finding:
    start, end = span
    if not urls.covers(start, end):
        return Finding(start, end, rule, text[start:end])
    return Finding(start, end, rule, decode_url(text[start:end]).text, spell_in_url)


def _is_meant(match: re.Match[str], given: _Value) -> bool:
    """Tell whether a value in text is a secret and not a word, a type or a template."""
    value = given.text
    if _NO_VALUE.fullmatch(value) or _TEMPLATE.match(value):
        return False
    if not given.is_bare:
        return match["quote"] is not None or not re.search(r"\s", value)
    if match["sign"] == "=":
        return match["quote"] is None
    return (
        len(value) >= 8
        and match["sign"][-1] in " \t"
        and re.search(r"\d", value) is not None
        and re.search(r"[A-Za-z]", value) is not None
        and "://" not in value
        and value[0] not in "./~"
    )
