"""Replace secrets by placeholders, in bodies, in headers and in URLs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from mrtr_cassette.core.secrets.decode import spell_in_url
from mrtr_cassette.core.secrets.rules import ActiveRules, RedactionRules, by_ending
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, placeholder
from mrtr_cassette.core.secrets.search import Kind, Search
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    Headers,
    Request,
    decoded_header,
    header_value,
)

_FORM = "application/x-www-form-urlencoded"
_SCALAR = re.compile(rb"\s*(?:-?[0-9][0-9.eE+-]*|true|false|null)\s*")
_FRAMING = re.compile(rb"(?:\r\n|\r|\n)(?:data: ?)?")
"""What stays of a secret in the data of an event that goes over several lines."""
_CHALLENGE = re.compile(r"(?<=[?&]code_challenge=)[\w.~-]{43,128}(?=&|\Z)")
"""What a client makes for one authorization (RFC 7636), in the request that asks for it."""
_REPEATED = 1024
"""Headers and targets whose redacted form is remembered."""


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
        self._search = Search(self._rules)
        # Most exchanges bring the same target and headers again.
        self.target = lru_cache(maxsize=_REPEATED)(self._redacted_target)
        self.headers = lru_cache(maxsize=_REPEATED)(self._redacted_headers)

    def rule_of(self, name: str) -> str:
        """Return the rule that makes a header of a name a credential, or an empty string."""
        _, rule, ambiguous = self._rules.name(name)
        return rule or (ambiguous.rule if ambiguous is not None and by_ending(name) else "")

    def placeholder(self, rule: str, secret: str) -> str:
        """Return what stands for a secret."""
        return placeholder(rule, self._token(rule, secret))

    def secrets_in(self, text: str, *, is_target: bool = False) -> list[tuple[str, str]]:
        """Return what is replaced in a text, or in a request's target: rules and secrets."""
        raw = text.encode("utf-8", "surrogatepass")
        finds = self._search.finds(raw, "url" if is_target else "text")
        return [(find.rule, find.plain) for find in finds]

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
        body = self.body(request.body, header_value(request.headers, "content-type"))
        return self.head(request if body == request.body else replace(request, body=body))

    def head(self, request: Request) -> Request:
        """Redact target and headers of a request."""
        target, headers = self.target(request.target), self.headers(request.headers)
        if target == request.target and headers == request.headers:
            return request
        return replace(request, target=target, headers=headers)

    def text(self, value: str) -> str:
        """Redact any text."""
        return self._redacted(value, "text")

    def _redacted_target(self, path_with_query: str) -> str:
        redacted = self._redacted(path_with_query, "url")
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
        _, rule, ambiguous = self._rules.name(name.lower().removeprefix("mcp-param-"))
        if ambiguous is not None and ambiguous.beside(searched):
            # It mirrors an argument, whose companions are in the body.
            rule = ambiguous.rule
        named = self._search.in_named(rule, searched) if rule else None
        if named is None:
            redacted = self._redacted(searched, "text")
        else:
            redacted = searched[: named.start] + self.placeholder(named.rule, named.plain)
        if redacted == plain:
            return value
        if plain is not None and not (redacted.isascii() and redacted.isprintable()):
            first = PLACEHOLDER.search(redacted)
            return value if first is None else first[0]
        return redacted

    def _redacted(self, text: str, kind: Kind) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        redacted = self._replaced(raw, kind)
        return text if redacted is raw else redacted.decode("utf-8", "surrogatepass")

    def _replaced(self, raw: bytes, kind: Kind, *, is_stream: bool = False) -> bytes:
        parts: list[bytes] = []
        at = 0
        for find in self._search.finds(raw, kind, is_stream=is_stream):
            new = f"{find.quote}{self.placeholder(find.rule, find.plain)}{find.quote}"
            spelled = spell_in_url(new) if find.in_url else new
            parts += (raw[at : find.start], spelled.encode())
            if is_stream:
                for framing in _FRAMING.findall(raw, find.start, find.end):
                    # A line that is no data must not become an empty one, which ends an event.
                    parts += (framing, b"" if b":" in framing else spelled.encode())
            at = find.end
        return b"".join([*parts, raw[at:]]) if parts else raw
