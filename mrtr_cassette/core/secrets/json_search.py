"""Finding secrets in JSON: in its strings, and in values by the names that they stand under.

Owns: which rule the names make of a value, and the places of a message that no secret stands in.
Does not own: what a string is searched for (`text_search`), JSON's tokens (`escapes`).
Rule: JSON is read token by token, so that texts that are cut off or nested too deeply to parse are
searched like all others.
Source: docs/design.md, "Redaction".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    NOTIFIED_SUBSCRIPTION_PATH,
    NOTIFIED_TOKEN_PATH,
    RESULT_SUBSCRIPTION_PATH,
    TOKEN_PATH,
)
from mrtr_cassette.core.secrets.escapes import (
    Finding,
    SpanSet,
    decode_json,
    json_tokens,
    mapped_back,
    shifted,
    spell_as_json,
    spell_in_json,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, find_spans
from mrtr_cassette.errors import NotJsonError

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

_SCHEMAS = frozenset({"dependentRequired", "dependencies"})
"""Members of a JSON Schema: an object whose keys and values are the names of properties."""
_NAMING = frozenset({"name", "id", "key"})
_VALUE = "value"
"""Members of an object that names its value: `{"name": "DB_PASSWORD", "value": …}`."""
_LONGEST_NAME = 128
_OF_SCHEMA = "{}"
"""Stands for the bracket of such an object."""


class MemberSearch(Protocol):
    """How the strings of JSON are searched.

    Attributes:
        shortest: characters that a text has at least if there may be a secret in it.
    """

    shortest: int

    def rule_of(self, name: str) -> str:
        """Return the rule that makes values under a name secrets, or an empty string."""

    def in_member(self, rule: str, value: str, depth: int) -> list[Finding]:
        """Search a string under a name that has this rule."""


def secrets_in_json(
    tokens: Iterable[re.Match[str]], search: MemberSearch, depth: int
) -> list[Finding]:
    """Return the secrets in JSON texts.

    Args:
        tokens: the texts, as `json_tokens` yields them.
        search: searches a string.
        depth: levels of URLs in URLs that are still searched.
    """
    findings: list[Finding] = []
    # Of each open object or array: its bracket, and the rules for values directly in it and for
    # the one that is called `value`.
    opened = [("", "", "")]
    key = ""
    for token in tokens:
        bracket, rule, of_value = opened[-1]
        match token.lastgroup:
            case "key" if bracket != "[":
                key = token["text"]
                if "\\" in key:
                    key = decode_json(key).text
                rule = "" if bracket == _OF_SCHEMA else search.rule_of(key)
                rule = of_value if key == _VALUE and not rule else rule
                opened[-1] = (bracket, rule, of_value)
                continue
            case "opening":
                opened.append(_opened(token["opening"], bracket, rule, key))
            case "closing" if len(opened) > 1:
                opened.pop()
            case "text" | "key":
                if bracket == "{" and key in _NAMING and len(token["text"]) <= _LONGEST_NAME:
                    opened[-1] = (bracket, rule, search.rule_of(token["text"]) or of_value)
                findings += _in_string(token, rule, search, depth)
            case "number" if rule and bracket != "[":
                start, end = token.span("number")
                findings.append(Finding(start, end, rule, token["number"], spell_as_json))
        key = ""
    return findings


def _opened(bracket: str, outer: str, rule: str, key: str) -> tuple[str, str, str]:
    """Return the bracket, and the rules for values directly inside it."""
    if bracket == "[":
        return "[", "" if outer == "[" else rule, ""
    return (_OF_SCHEMA if key in _SCHEMAS else "{"), "", rule


def _in_string(
    token: re.Match[str], rule: str, search: MemberSearch, depth: int
) -> Iterable[Finding]:
    raw, at = token["text"], token.start("text")
    if len(raw) < search.shortest and not rule:
        return ()
    if "\\" not in raw:
        return shifted(search.in_member(rule, raw, depth), at)
    decoded = decode_json(raw)
    findings = search.in_member(rule, decoded.text, depth)
    return mapped_back(decoded, findings, at, spell_in_json)


def without_exempt(text: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Leave out findings in the exempt places of the messages that a text consists of."""
    messages = _messages(text)
    start = end = 0
    exempt = SpanSet(())
    for finding in findings:
        if finding.start >= end:
            while finding.start >= end:
                start, end = next(messages)
            exempt = _exempt_spans(text[start:end])
        if not exempt.covers(finding.start - start, finding.end - start):
            yield finding


def _messages(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each of the JSON texts that follow one another."""
    start = depth = 0
    for token in json_tokens(text):
        if depth == 0 and token.start() > start:
            yield start, token.start()
            start = token.start()
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
    yield start, len(text)


def _exempt_spans(text: str) -> SpanSet:
    raw = text.encode("utf-8", "surrogateescape")
    skipped = len(raw) - len(raw.lstrip(b"\xef\xbb\xbf \t\r\n,:"))
    try:
        by_path = find_spans(raw[skipped:], _EXEMPT)
    except NotJsonError:
        return SpanSet(())
    spans = sorted(
        (span.start + skipped, span.end + skipped)
        for spans in by_path.values()
        for span in spans
        # An object or an array is no id, so it is like any other value.
        if raw[skipped + span.start] not in b"{["
    )
    characters = {0: 0}
    at = 0
    for boundary in (offset for span in spans for offset in span):
        length = len(raw[at:boundary].decode("utf-8", "surrogateescape"))
        characters[boundary] = characters[at] + length
        at = boundary
    return SpanSet((characters[start], characters[end]) for start, end in spans)
