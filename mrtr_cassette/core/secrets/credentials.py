"""Credentials: those that users give and those that pass in headers, wherever they are repeated.

Rule: a credential is at least 8 characters long, so that no word of a text is taken for one.
Source: docs/security.md.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from mrtr_cassette.core.secrets.decode import as_text, decoded_base64, spell_in_url
from mrtr_cassette.core.secrets.known import KnownText, KnownTexts
from mrtr_cassette.core.secrets.names import builtin_rule_of, fold
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request

SHORTEST_CREDENTIAL: Final = 8

_REPEATED = 1024
"""Names, texts and lists of headers of which it is remembered what they come to."""

_COOKIES = frozenset({"cookie", "set-cookie"})
_AUTHORIZATIONS = frozenset({"authorization", "proxy-authorization"})
_OPEN = re.compile(
    r"accept.*|content-.*|host|origin|referer|user-agent|cache-control|mcp-(?!session-id).*"
)
"""Headers whose values are no secrets, whoever sets them."""
_WORDS = re.compile(r"[A-Za-z]+(?:[ ,_/-]+[A-Za-z]+)*|[0-9.]+")
"""Words or a number, which other text may have in its own right."""


class Given(NamedTuple):
    """What the user gives for a server; each of it may be a credential, or have some in it.

    Attributes:
        headers: those of every request.
        query: the names and values in the query of its URL.
        target: path and query of its URL.
        environment: the variables of a server that a command starts, and the command's options.
        command: that command, as a shell reads it.
    """

    headers: Headers = ()
    query: Headers = ()
    target: str = ""
    environment: Headers = ()
    command: str = ""


NOTHING: Final = Given()


class Knows(Protocol):
    """Whoever sees what a server says, and must not tell it the credentials that it was given."""

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the user gives for the server from now on."""
        ...


class Credentials:
    """The credentials that are known; all that passes is searched for them.

    Attributes:
        known: the credentials.
    """

    def __init__(self, redactor: Redactor, *, seals_sessions: bool = True) -> None:
        """Begin without any.

        Args:
            redactor: replaces secrets, and these in the same way.
            seals_sessions: session ids are replaced by their sealed hashes.
        """
        self._redactor = redactor
        self._seals_sessions = seals_sessions
        self.known = KnownTexts(shortest=SHORTEST_CREDENTIAL)
        self._given: list[KnownText] = []
        self._seen: set[tuple[str, str]] = set()
        self._read: set[tuple[Headers, bool]] = set()
        # Of most calls nothing is new, so what is known of a header or a text holds.
        self._rule_of = lru_cache(maxsize=_REPEATED)(self._rule_of_header)
        self.sealed_text = lru_cache(maxsize=_REPEATED)(self.known.seal_text)
        self.sealed_headers = lru_cache(maxsize=_REPEATED)(self._sealed_headers)

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the user gives for the server, and never forget them."""
        before = set(self.known)
        self.seen(given.headers, ours=True)
        self.seen(given.query)
        settings = [pair for pair in given.environment if not _WORDS.fullmatch(pair[1])]
        self.seen(tuple(settings))
        find = self._redactor.secrets_in
        found = [*find(given.target, is_target=True), *find(given.command)]
        found += find("\n".join("=".join(pair) for pair in settings))
        for rule, secret in found:
            # What is base64 may have others in it.
            for each in ((rule, secret), *find(as_text(decoded_base64(secret)))):
                if not _WORDS.fullmatch(each[1]):
                    self._know(each[1], self._redactor.placeholder(*each))
        self._given += [known for known in self.known.texts() if known.text not in before]
        self._forget_texts()

    def seen(self, headers: Headers, *, ours: bool = False) -> None:
        """Look for the credentials in headers from now on.

        Args:
            headers: names and values; those of a query and of an environment are read alike.
            ours: the user gave them to us, so each may be one.
        """
        # A client sends the same headers with all of its calls.
        if (headers, ours) in self._read:
            return
        for header in headers:
            rule = self._rule_of(header[0], ours=ours)
            if rule is not None and header not in self._seen:
                self._see(header, rule)
        if len(self._read) >= _REPEATED:
            self._read.clear()
        self._read.add((headers, ours))

    def _rule_of_header(self, name: str, *, ours: bool) -> str | None:
        """Return the rule of the credentials in a header; empty for a session id."""
        if name.lower() == SESSION_HEADER:
            return "" if self._seals_sessions else None
        rule = self._redactor.rule_of(name)
        if not builtin_rule_of(fold(name)) and ours and not _OPEN.fullmatch(name.lower()):
            rule = self._redactor.rule_of("credentials")
        return rule or None

    def _see(self, header: tuple[str, str], rule: str) -> None:
        for secret in _secrets_in(*header):
            if secret not in self.known:
                shown = self._redactor.placeholder(rule, secret) if rule else sealed_hash(secret)
                self._know(secret, shown)
        if len(self._seen) >= _REPEATED:
            self._seen.clear()
            self._read.clear()
        self._seen.add(header)
        self._forget_texts()

    def _know(self, secret: str, shown: str) -> None:
        if len(secret) >= SHORTEST_CREDENTIAL and self.known.add(KnownText(secret, shown)):
            # What is forgotten is known again when it comes again; what the user gave doesn't.
            self._seen.clear()
            self._read.clear()
            for known in self._given:
                self.known.add(known)

    def _forget_texts(self) -> None:
        self.sealed_text.cache_clear()
        self.sealed_headers.cache_clear()

    def sealed(self, raw: bytes) -> bytes:
        """Replace the credentials in a body, or in any piece of one."""
        return self.known.seal(raw)

    def _sealed_headers(self, headers: Headers) -> Headers:
        """Replace the credentials in the values of headers."""
        return tuple([(name, self.sealed_text(value)) for name, value in headers])

    def sealed_request(self, request: Request) -> Request:
        """Replace the credentials in all parts of a request."""
        if not len(self.known):
            return request
        target = self.sealed_text(request.target)
        if target != request.target:
            target = spell_in_url(target)
        headers, body = self.sealed_headers(request.headers), self.sealed(request.body)
        if (target, headers, body) == (request.target, request.headers, request.body):
            return request
        return replace(request, target=target, headers=headers, body=body)


def shown_by(rules: RedactionRules, given: Given = NOTHING) -> Callable[[str], str]:
    """Return what takes secrets, and what was given, out of texts that are shown in any run."""
    redactor = Redactor(rules, lambda _rule, _secret: "1")
    known = Credentials(redactor)
    known.was_given(given)
    return lambda text: known.sealed_text(redactor.text(text))


def _secrets_in(name: str, value: str) -> Iterator[str]:
    """Yield the credentials in a header that has some."""
    name = name.lower()
    if name in _AUTHORIZATIONS:
        yield from _of_authorization(value)
    elif name in _COOKIES:
        # After the value of `Set-Cookie` come its attributes.
        for pair in value.split(";")[: 1 if name == "set-cookie" else None]:
            cookie = pair.partition("=")[2].strip(' \t"')
            if not _WORDS.fullmatch(cookie):
                yield cookie
    elif name == SESSION_HEADER or builtin_rule_of(fold(name)) or not _WORDS.fullmatch(value):
        yield value


def _of_authorization(value: str) -> Iterator[str]:
    """Yield the credential after a scheme, and the password that Basic spells."""
    scheme, _, credential = value.strip().partition(" ")
    yield credential.strip() or scheme
    if scheme.lower() == "basic":
        try:
            user = b64decode(credential.strip()).decode("utf-8", "surrogateescape")
        except Base64Error:
            return
        yield user
        yield user.partition(":")[2]
