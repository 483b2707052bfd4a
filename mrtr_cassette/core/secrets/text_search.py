"""Finding secrets in one text: by shape, by a name that is given a value, and in URLs.

Owns: the layers below a text: JSON in it, URLs in it, and what their escapes spell.
Does not own: the shapes and names (`rules`), what a walk through JSON takes to be a value
(`json_search`).
Rule: a text is searched with its escapes undone, one layer at a time, and a finding is mapped back
to where it is spelled.
Source: docs/design.md, "Redaction".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from mrtr_cassette.core.secrets.escapes import (
    DecodedText,
    Finding,
    SpanSet,
    decode_form,
    decode_url,
    json_tokens,
    mapped_back,
    shifted,
    spell_in_url,
    without_overlaps,
)
from mrtr_cassette.core.secrets.json_search import secrets_in_json
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER
from mrtr_cassette.core.secrets.rules import CUSTOM_KEY, ActiveRules, SearchPlan
from mrtr_cassette.core.secrets.shapes import EncodedText
from mrtr_cassette.errors import NotJsonError

DEEPEST: Final = 5
"""URLs in URLs that are searched. JSON in JSON needs no limit, as its escapes double each time."""

_SEALED = re.compile(r"sha256:[0-9a-f]{64}|mrtr-(?:state|session|answer):[0-9a-f:]+")
"""What sealing has put in the place of a value: the same for everyone, and compared on replay."""

_SHORTEST = len("apikey=x")
"""Characters that a text has at least if one of our own rules finds something in it."""

_JSON_IN_TEXT = re.compile(r'[ \t\r\n]*+(?:[{\[]|"[^"\\]*+(?:\\.[^"\\]*+)*+"\Z)', re.DOTALL)
"""How a text begins that is an object or an array, or one string in quotes."""
_SCHEME_AT_END = re.compile(r"(?:\A|(?<![A-Za-z0-9+.-]))[A-Za-z][A-Za-z0-9+.-]{0,30}\Z")
_AFTER_SCHEME = re.compile(r"[^\s\"'<>\\^`{|}]*[^\s\"'<>\\^`{|}.,;:!?)\]]")
_LONGEST_SCHEME = 31
_ASSIGNED = re.compile(
    r"(?<![\w.-])-{0,2}(?:\\{0,8}[\"'])?(?P<name>[A-Za-z_][\w.-]{1,63}+)(?P<quote>\\{0,8}[\"'])?"
    r"(?P<sign>[ \t]{0,4}(?:=>|[:=])[ \t]{0,4})"
)
"""A name and what gives it a value in prose, logs, settings and code."""
_OPENING_QUOTE = re.compile(r"\\{0,8}([\"'])")
_QUOTE_OR_LINE_END = {'"': re.compile(r'["\r\n]'), "'": re.compile(r"['\r\n]")}
_BARE_END = re.compile(r"[\s\"'<>&;,(){}\[\]$`|\\]")
_AFTER_BARE = frozenset("&;\"'\\")
_LONGEST_VALUE = 2048
"""Characters of a value in such text."""

_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate)[ \t]+(?=\S)")
_NO_VALUE = re.compile(
    r"(?i)(?:bearer|basic|token|digest|negotiate|none|null|nil|true|false|undefined|required"
    r"|optional|string|str|\W*)"
)
_TEMPLATE = re.compile(r"[$<]|\{\{|%[({]")


class Query(NamedTuple):
    """How names and values stand in a URL or a form.

    Attributes:
        pair: a name and its value, in groups 1 and 2.
        decode: undoes their escapes.
    """

    pair: re.Pattern[str]
    decode: Callable[[str], DecodedText]


URL_QUERY: Final = Query(re.compile(r"[?&#]([^=&?#]{1,200})=([^&#]*)"), decode_url)
FORM_QUERY: Final = Query(re.compile(r"(?:\A|&)([^=&]{1,200})=([^&]*)"), decode_form)


class TextSearch:
    """Searches the layers of a text for the secrets that it may contain.

    Attributes:
        shortest: characters that a text has at least if there may be a secret in it.
    """

    def __init__(self, rules: ActiveRules, *, by_name: bool = True) -> None:
        """Begin a search.

        Args:
            rules: the rules of the recording.
            by_name: names make values secrets; otherwise only shapes are looked for.
        """
        self._rules = rules
        self._by_name = by_name
        self.shortest = 0 if rules.custom else _SHORTEST

    def rule_of(self, name: str) -> str:
        """Return the rule that makes values under a name secrets, or an empty string."""
        return self._rules.rule_of(name) if self._by_name else ""

    def in_value(self, text: str, depth: int = DEEPEST) -> list[Finding]:
        """Search a text that may be JSON itself: an object, an array, or one string in quotes."""
        if _JSON_IN_TEXT.match(text):
            with suppress(NotJsonError):
                return secrets_in_json(json_tokens(text), self, depth)
        return self.in_text(text, depth)

    def in_member(self, rule: str, value: str, depth: int = DEEPEST) -> list[Finding]:
        """Search a value that stands under a name; `rule` is empty for most names."""
        return self._in_named(rule, value) if rule else self.in_value(value, depth)

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
        if rule != CUSTOM_KEY:
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
            urls = list(_urls(text))
        in_urls = SpanSet(urls)
        encoded = EncodedText(text)
        plan = self._rules.plan(encoded.raw)
        findings = list(_shapes(text, encoded, plan, in_urls))
        if plan.has_names and self._by_name:
            findings += self._assigned(text, in_urls)
        for start, end in urls if depth > 0 else ():
            url = text[start:end]
            if self._by_name or "%" in url:
                findings += shifted(self._in_url(url, query or URL_QUERY, depth - 1), start)
        if not findings:
            return []
        placeholders = SpanSet(match.span() for match in PLACEHOLDER.finditer(text))
        return without_overlaps(
            text,
            [
                finding
                for finding in findings
                if not placeholders.covers(finding.start, finding.end)
                and not placeholders.cuts(finding.start, finding.end)
            ],
        )

    def _assigned(self, text: str, urls: SpanSet) -> Iterator[Finding]:
        """Find values that text outside URLs gives to a secret's name: `DB_PASSWORD=…`."""
        values = _Values(text)
        for match in _ASSIGNED.finditer(text):
            rule = self.rule_of(match["name"].rpartition(".")[2])
            value = values.after(match.end()) if rule else None
            if value is not None and _is_meant(match, value):
                for finding in shifted(self._in_named(rule, value.text), value.start):
                    if not urls.covers(finding.start, finding.end):
                        yield finding

    def _in_url(self, url: str, query: Query, depth: int) -> Iterator[Finding]:
        for pair in query.pair.finditer(url):
            rule = self.rule_of(query.decode(pair[1]).text)
            value = query.decode(pair[2])
            # A value without escapes has been searched as part of the URL, unless it is JSON.
            if rule or value.text != pair[2] or pair[2][:1] in ("{", "["):
                findings = self.in_member(rule, value.text, depth)
                yield from mapped_back(value, findings, pair.start(2), spell_in_url)
        if "%" in url:
            decoded = decode_url(url)
            findings = self._by_shape_only().in_text(decoded.text, depth)
            yield from mapped_back(decoded, findings, 0, spell_in_url)


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
        if not 0 < end - start <= _LONGEST_VALUE or not is_ended:
            return None
        return _Value(start, text[start:end], is_bare=True)


def _urls(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of URLs, each of which is looked for from its `://`."""
    end = 0
    at = text.find("://")
    while at >= 0:
        # One character more tells whether the scheme is the inside of a longer word.
        before = max(end, at - _LONGEST_SCHEME - 1)
        scheme = _SCHEME_AT_END.search(text[before:at])
        rest = _AFTER_SCHEME.match(text, at + 3) if scheme else None
        if scheme is not None and rest is not None:
            end = rest.end()
            yield before + scheme.start(), end
        at = text.find("://", max(end, at + 3))


def _shapes(text: str, encoded: EncodedText, plan: SearchPlan, urls: SpanSet) -> Iterator[Finding]:
    for rule in plan.rules:
        for start, end in encoded.characters(rule.spans(encoded.raw)):
            finding = Finding(start, end, rule.name, text[start:end])
            if urls.covers(start, end):
                plain = decode_url(finding.plain).text
                finding = replace(finding, plain=plain, spell=spell_in_url)
            yield finding


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
