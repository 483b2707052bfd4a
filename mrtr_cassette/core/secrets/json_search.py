"""Finding secrets in JSON: in its strings, and in values by the names that they stand under.

Owns: what names, and other names beside them, make of a value, and the places of a message that no
secret stands in.
Does not own: what a string is searched for (`text_search`), JSON's tokens (`escapes`).
Rule: JSON is read token by token, so that texts that are cut off or nested too deeply to parse are
searched like all others.
Source: docs/design.md, "Redaction".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    NOTIFIED_SUBSCRIPTION_PATH,
    NOTIFIED_TOKEN_PATH,
    RESULT_SUBSCRIPTION_PATH,
    TOKEN_PATH,
)
from mrtr_cassette.core.secrets.blobs import BLOBS
from mrtr_cassette.core.secrets.escapes import (
    Finding,
    JsonToken,
    SpanSet,
    decode_json,
    json_tokens,
    mapped_back,
    shifted,
    spell_as_json,
    spell_in_json,
)
from mrtr_cassette.core.secrets.names import COMPANIONS, AmbiguousName
from mrtr_cassette.core.secrets.placeholders import rule_of_number
from mrtr_cassette.core.secrets.rules import NO_NAME, Name
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

    def name(self, name: str) -> Name:
        """Return what a name tells about its value."""

    def in_member(self, rule: str, value: str, depth: int) -> list[Finding]:
        """Search a string under a name that has this rule."""

    def in_key(self, key: str, depth: int) -> list[Finding]:
        """Search a name itself."""

    def in_blob(self, value: str, depth: int) -> list[Finding]:
        """Search a string that may be text in base64."""


class _Doubted(NamedTuple):
    """A value under an ambiguous name, which is a secret if a companion stands beside it.

    Attributes:
        ambiguous: the name.
        findings: what is secret in the value without a companion.
        as_secret: what is with one.
    """

    ambiguous: AmbiguousName
    findings: list[Finding]
    as_secret: list[Finding]


@dataclass(slots=True)
class _Opened:
    """An object or an array that is open.

    Attributes:
        bracket: how it begins.
        name: what the name of the next value tells, or of each value of an array.
        of_value: the same for the one that is called `value`.
        key: the member's own name.
        names: those of its names that are companions, folded; None for none.
        doubted: values that are decided on when it is closed; None for none.
    """

    bracket: str
    name: Name
    of_value: Name = NO_NAME
    key: str = ""
    names: set[str] | None = None
    doubted: list[_Doubted] | None = None

    def doubt(self, doubted: _Doubted) -> None:
        """Decide on a value later."""
        if self.doubted is None:
            self.doubted = []
        self.doubted.append(doubted)

    def close(self) -> None:
        """Decide on what was in doubt."""
        for ambiguous, findings, as_secret in self.doubted or ():
            if not ambiguous.companions.isdisjoint(self.names or ()):
                findings[:] = as_secret


def secrets_in_json(tokens: Iterable[JsonToken], search: MemberSearch, depth: int) -> list[Finding]:
    """Return the secrets in JSON texts.

    Args:
        tokens: the texts, as `json_tokens` yields them.
        search: searches a string.
        depth: levels of URLs in URLs that are still searched.
    """
    return _JsonSearch(search, depth).secrets(tokens)


class _JsonSearch:
    """Walks through JSON texts."""

    def __init__(self, search: MemberSearch, depth: int) -> None:
        self._search = search
        self._depth = depth
        self._findings: list[list[Finding]] = []
        self._opened = [_Opened("", NO_NAME)]
        self._plain_keys: set[str] = set()

    def secrets(self, tokens: Iterable[JsonToken]) -> list[Finding]:
        """Return what is secret."""
        for token in tokens:
            opened = self._opened[-1]
            match token.lastgroup:
                case "key" if opened.bracket != "[":
                    self._key(opened, token)
                    continue
                case "opening":
                    self._opened.append(_inside(opened, token["opening"]))
                case "closing" if len(self._opened) > 1:
                    self._opened.pop().close()
                case "text" | "key":
                    self._string(opened, token)
                case "number" if opened.bracket != "[":
                    self._number(opened, token)
            opened.key = ""
        for opened in self._opened:
            opened.close()
        return [finding for findings in self._findings for finding in findings]

    def _key(self, opened: _Opened, token: JsonToken) -> None:
        key = token["text"]
        if key not in self._plain_keys and not self._is_secret(token):
            self._plain_keys.add(key)
        opened.key = key = decode_json(key).text if "\\" in key else key
        opened.name = NO_NAME
        if opened.bracket != _OF_SCHEMA:
            name = self._search.name(key)
            opened.name = opened.of_value if key == _VALUE and name.tells_nothing else name
            if name.folded in COMPANIONS:
                opened.names = (opened.names or set()) | {name.folded}

    def _is_secret(self, token: JsonToken) -> bool:
        """Find what is secret in a name; a name comes again in each object of a kind."""
        if len(token["text"]) < self._search.shortest:
            return False
        findings = self._found(token, self._search.in_key)
        self._findings.append(findings)
        return bool(findings)

    def _string(self, opened: _Opened, token: JsonToken) -> None:
        raw, name = token["text"], opened.name
        is_named = opened.bracket == "{" and opened.key in _NAMING and len(raw) <= _LONGEST_NAME
        if is_named and not (named := self._search.name(raw)).tells_nothing:
            opened.of_value = named
        rule, ambiguous = name.rule, name.ambiguous
        if len(raw) < self._search.shortest and not rule and ambiguous is None:
            return

        plain = decode_json(raw).text if ambiguous is not None and "\\" in raw else raw
        if ambiguous is not None and ambiguous.alone(plain):
            rule = ambiguous.rule
        is_blob = not rule and opened.key in BLOBS
        find = self._search.in_blob if is_blob else partial(self._search.in_member, rule)
        findings = self._found(token, find)
        if findings or ambiguous is not None:
            self._findings.append(findings)
        if ambiguous is not None and not rule and opened.bracket == "{" and ambiguous.beside(plain):
            as_secret = self._found(token, partial(self._search.in_member, ambiguous.rule))
            opened.doubt(_Doubted(ambiguous, findings, as_secret))

    def _number(self, opened: _Opened, token: JsonToken) -> None:
        text, rule, ambiguous = token["number"], opened.name.rule, opened.name.ambiguous
        if ambiguous is not None and ambiguous.takes_numbers and ambiguous.alone(text):
            rule = ambiguous.rule
        start, end = token.span("number")
        if rule:
            self._findings.append([Finding(start, end, rule_of_number(rule), text, spell_as_json)])
        elif ambiguous is not None and ambiguous.beside(text):
            findings: list[Finding] = []
            rule = rule_of_number(ambiguous.rule)
            as_secret = [Finding(start, end, rule, text, spell_as_json)]
            opened.doubt(_Doubted(ambiguous, findings, as_secret))
            self._findings.append(findings)

    def _found(self, token: JsonToken, find: Callable[[str, int], list[Finding]]) -> list[Finding]:
        """Return findings of what a JSON string spells as findings of the text that it is in."""
        raw, at = token["text"], token.start("text")
        decoded = decode_json(raw) if "\\" in raw else None
        findings = find(raw if decoded is None else decoded.text, self._depth)
        if not findings:
            return []
        if decoded is None:
            return list(shifted(findings, at))
        return list(mapped_back(decoded, findings, at, spell_in_json))


def _inside(opened: _Opened, bracket: str) -> _Opened:
    """Return an object or an array that begins as a value of what is open."""
    if bracket == "[":
        return _Opened("[", NO_NAME if opened.bracket == "[" else opened.name)
    return _Opened(_OF_SCHEMA if opened.key in _SCHEMAS else "{", NO_NAME, opened.name)


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
