"""Keeping known secrets off the disk: in bodies, in header values and in URLs.

Owns: which texts a request or a response consists of, and what replaces a secret in them.
Does not own: which secrets are known (`rules`), where in a text they stand (`text_search`), request
states and session ids (`states`), which headers are kept (`wire`).
Rule: every byte outside a secret stays; JSON stays the same JSON with other string values; a text
that has been redacted is not changed by redacting it again.
Source: docs/design.md, "Redaction".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial

from mrtr_cassette.core.secrets.escapes import Finding, json_tokens, spell_nothing
from mrtr_cassette.core.secrets.json_search import secrets_in_json, without_exempt
from mrtr_cassette.core.secrets.names import by_ending
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, placeholder
from mrtr_cassette.core.secrets.rules import ActiveRules, RedactionRules
from mrtr_cassette.core.secrets.stream_search import secrets_in_stream
from mrtr_cassette.core.secrets.text_search import DEEPEST, TextSearch
from mrtr_cassette.core.secrets.url_search import FORM_QUERY, URL_QUERY, Query
from mrtr_cassette.core.wire.http import EVENT_STREAM, Headers, Request, decoded_header
from mrtr_cassette.errors import NotJsonError

_FORM = "application/x-www-form-urlencoded"
_PASSES = 100
"""How often a text is searched again at most, for patterns that match next to a placeholder."""

_REPEATED = 1024
"""Header values, targets and lines of a log whose redacted form is remembered."""


_Find = Callable[[TextSearch, str], list[Finding]]


@lru_cache(maxsize=8)
def _active(rules: RedactionRules) -> ActiveRules:
    """Return what rules come to; most cassettes of a test suite have the same ones."""
    return ActiveRules(rules)


def keyed_hash(key: bytes) -> Callable[[str, str], str]:
    """Return what stands for a secret in the journal: its hash under a key that nobody keeps."""

    def token(_rule: str, secret: str) -> str:
        raw = secret.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, key=key, digest_size=12).hexdigest()

    return token


class Redactor:
    """Replaces secrets by placeholders, the same text always by the same ones."""

    def __init__(
        self,
        rules: RedactionRules,
        token: Callable[[str, str], str],
        *,
        is_thorough: bool = False,
    ) -> None:
        """Prepare the search.

        Args:
            rules: what the user changes about redaction.
            token: returns the token that a placeholder has for a rule and a secret: 1 to 200
                letters, digits, `_`, `-` and `.`. The secret has all escapes undone and may have
                lone surrogates. Anything else it returns raises ValueError where it is used.
            is_thorough: search also what has none of the rules' markers.
        """
        self._token = token
        self._rules = _active(rules)
        self._search = TextSearch(self._rules)
        self._is_thorough = is_thorough
        # A value that comes again is not searched again.
        self.header = lru_cache(maxsize=_REPEATED)(self._redacted_header)
        self.headers = lru_cache(maxsize=_REPEATED)(self._redacted_headers)
        self.text = lru_cache(maxsize=_REPEATED)(self._redacted_text)
        self.target = lru_cache(maxsize=_REPEATED)(self._redacted_target)

    def rule_of(self, name: str) -> str:
        """Return the rule that makes a header of a name a credential, or an empty string."""
        _, rule, ambiguous = self._rules.name(name)
        return rule or (ambiguous.rule if ambiguous is not None and by_ending(name) else "")

    def placeholder(self, rule: str, secret: str) -> str:
        """Return what stands for a secret."""
        return placeholder(rule, self._token(rule, secret))

    def secrets_in(self, text: str, *, is_target: bool = False) -> list[tuple[str, str]]:
        """Return what is replaced in a text, or in a request's target: rules and secrets."""
        find: _Find = TextSearch.in_value
        if is_target:
            find = partial(TextSearch.in_text, query=URL_QUERY)
        findings = find(self._search, text)
        return [(each.rule, each.plain) for each in findings if each.spell is not spell_nothing]

    def body(self, raw: bytes, content_type: str) -> bytes:
        """Redact a body, or any piece of one; of an event stream whole events.

        JSON, also line by line or cut off, forms, event streams and other text are searched, and
        in bytes that are no text what is spelled as in ASCII.
        """
        media_type = content_type.partition(";")[0].strip().lower()
        find = _in_stream if media_type == EVENT_STREAM else _in_body
        if media_type == _FORM:
            find = partial(_in_body, query=FORM_QUERY)
        # Again, as a pattern may match next to a placeholder what it didn't match before.
        for _ in range(_PASSES):
            if not self.may_change(raw):
                return raw
            text = raw.decode("utf-8", "surrogateescape")
            findings = find(self._search, text)
            if not findings:
                return raw
            raw = self._replaced(text, findings).encode("utf-8", "surrogateescape")
        return raw

    def request(self, request: Request) -> Request:
        """Redact a request."""
        body = self.body(request.body, request.header("content-type"))
        return self.head(request if body == request.body else replace(request, body=body))

    def head(self, request: Request) -> Request:
        """Redact target and headers of a request."""
        target, headers = self.target(request.target), self.headers(request.headers)
        if target == request.target and headers == request.headers:
            return request
        return replace(request, target=target, headers=headers)

    def _redacted_text(self, value: str) -> str:
        """Redact a log line, or any text that is no body."""
        return self._redacted(value, TextSearch.in_value)

    def _redacted_target(self, path_with_query: str) -> str:
        """Redact a request target; placeholders in it are percent-encoded."""
        return self._redacted(path_with_query, partial(TextSearch.in_text, query=URL_QUERY))

    def _redacted_headers(self, headers: Headers) -> Headers:
        """Redact the values of headers."""
        return tuple([(name, self.header(name, value)) for name, value in headers])

    def _redacted_header(self, name: str, value: str) -> str:
        """Redact a header's value, which the header's name may make a secret.

        A value in MCP's base64 spelling that contains a secret comes back as plain text if a header
        can hold that, else as a placeholder alone.
        """
        plain = decoded_header(value)
        searched = value if plain is None else plain
        _, rule, ambiguous = self._rules.name(name.lower().removeprefix("mcp-param-"))
        if ambiguous is not None and ambiguous.beside(searched):
            # It mirrors an argument, whose companions are in the body.
            rule = ambiguous.rule
        redacted = self._redacted(
            searched,
            lambda search, text: search.in_member(rule, text),
            is_named=bool(rule),
        )
        if redacted == plain:
            return value
        if plain is not None and not (redacted.isascii() and redacted.isprintable()):
            first = PLACEHOLDER.search(redacted)
            return value if first is None else first[0]
        return redacted

    def _redacted(self, text: str, find: _Find, *, is_named: bool = False) -> str:
        for _ in range(_PASSES):
            if not is_named and not self.may_change(text.encode("utf-8", "surrogatepass")):
                return text
            findings = find(self._search, text)
            if not findings:
                return text
            text = self._replaced(text, findings)
        return text

    def may_change(self, raw: bytes) -> bool:
        """Tell, quickly, whether there may be a secret in a body."""
        return self._is_thorough or self._rules.may_match(raw)

    def _replaced(self, text: str, findings: Iterable[Finding]) -> str:
        parts: list[str] = []
        at = 0
        for finding in sorted(findings, key=lambda finding: finding.start):
            new = ""
            if finding.spell is not spell_nothing:
                new = self.placeholder(finding.rule, finding.plain)
            parts += (text[at : finding.start], finding.spell(new))
            at = finding.end
        parts.append(text[at:])
        return "".join(parts)


def _in_body(search: TextSearch, text: str, query: Query | None = None) -> list[Finding]:
    try:
        findings = secrets_in_json(json_tokens(text), search, DEEPEST)
    except NotJsonError:
        return search.in_text(text, query=query)
    return list(without_exempt(text, findings))


def _in_stream(search: TextSearch, text: str) -> list[Finding]:
    return secrets_in_stream(text, partial(_in_body, search), search.in_text)
