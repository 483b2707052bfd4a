"""Secrets that are known: states and credentials, looked for in what passes, in any spelling."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, Protocol

from mrtr_cassette.core.secrets.decode import (
    Decoded,
    as_text,
    decoded_base64,
    long_words,
    spell_in_url,
    without_html,
    without_json_escapes,
    without_percent,
    words_of,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules, builtin_rule_of, fold
from mrtr_cassette.core.secrets.sealed import SHORTEST_SEARCHED, sealed_hash
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import Span, splice

_GRAM = 8
_GRAMS = [slice(at, at + _GRAM) for at in range(_GRAM)]
_LONG_RUN = 2 * _GRAM - 1
"""A run of so many characters contains, wherever it begins, a gram at a multiple of its length.

So long is hardly a word of a message but states, hashes and the like.
"""
_PLAIN_RUN = re.compile(rb"[0-9A-Za-z._-]+")
_PLAIN = bytes(code for code in range(128) if _PLAIN_RUN.match(bytes((code,))))
_LONGEST_IN_BASE64 = 4096
"""Bytes of a text up to which it is also looked for within base64."""
_PROBED = words_of("".join(map(chr, _PLAIN)))
_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")


class _Spelling(NamedTuple):
    """What is looked for: a text, or what base64 of a longer text contains of it."""

    raw: bytes
    probe: bytes

    @property
    def is_plain(self) -> bool:
        return len(self.raw) == len(self.probe)


class KnownText:
    """A text that is known, and what is looked for to find it in other text."""

    def __init__(self, text: str, shown: str, *, is_searched: bool = True) -> None:
        self.text = text
        self.shown = shown
        self.is_searched = is_searched
        raw = text.encode("utf-8", "surrogatepass")
        self.spellings = [_spelling(raw), *_in_base64(raw)] if is_searched else []

    def spellings_in(self, raw: bytes) -> list[_Spelling]:
        """Return in which spellings another text may contain this one."""
        return [each for each in self.spellings if each.probe in raw]


def _spelling(raw: bytes) -> _Spelling:
    if not raw.translate(None, _PLAIN):
        return _Spelling(raw, raw)
    return _Spelling(raw, max(_PLAIN_RUN.findall(raw), key=len, default=b""))


def _in_base64(raw: bytes) -> Iterator[_Spelling]:
    if len(raw) > _LONGEST_IN_BASE64:
        return
    for before in range(3):
        # What shares a character with other bytes is left out.
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        encoded = b64encode(bytes(before) + raw)[first:last]
        yield _spelling(encoded)
        if b"+" in encoded or b"/" in encoded:
            yield _spelling(encoded.translate(_URL_ALPHABET))


def _replaced(raw: bytes, texts: Iterable[KnownText]) -> bytes:
    likely = [(spelling, known.shown) for known in texts for spelling in known.spellings_in(raw)]
    if not likely:
        return raw
    layers = _Layers(raw)
    taken: list[tuple[int, int]] = []
    replacements: list[tuple[Span, bytes]] = []
    for spelling, shown in sorted(likely, key=_by_length):
        spelled = spelling.raw.decode("latin-1")
        for layer in layers.of(spelling):
            new = spell_in_url(shown).replace(":", "%3A") if layer.is_in_url else shown
            for start, end in layer.places_of(spelled, taken):
                insort(taken, (start, end))
                replacements.append((Span(start, end), new.encode()))
    return splice(raw, replacements)


class _Layer(NamedTuple):
    """A text with some of its escapes undone."""

    text: str
    undone: tuple[Decoded, ...] = ()
    is_in_url: bool = False

    def places_of(self, text: str, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        at = self.text.find(text)
        while at >= 0:
            start, end = at, at + len(text)
            for decoded in reversed(self.undone):
                start, end = decoded.source(start), decoded.source(end)
            index = bisect_left(taken, (end, -1))
            at += len(text)
            if index == 0 or taken[index - 1][1] <= start:
                yield start, end
            elif not self.undone:
                at = taken[index - 1][1]
            at = self.text.find(text, at)


class _Layers:
    """A text with its escapes undone: of JSON, of JSON in JSON, of a URL, and of HTML."""

    def __init__(self, raw: bytes) -> None:
        self._plain = _Layer(raw.decode("latin-1"))

    def of(self, spelling: _Spelling) -> Sequence[_Layer]:
        return (self._plain,) if spelling.is_plain else self._all

    @cached_property
    def _all(self) -> tuple[_Layer, ...]:
        in_json = [*_undone(self._plain, "json")]
        in_url = (*_undone(self._plain, "url"), *_undone(self._plain, "form"))
        in_html = [layer for outer in (*in_json, self._plain) for layer in _undone(outer, "html")]
        return (*in_html, *reversed(in_json), self._plain, *in_url)


_UNDO: dict[str, tuple[str, Callable[[str], Decoded]]] = {
    "json": ("\\", without_json_escapes),
    "url": ("%", without_percent),
    "form": ("+", lambda text: without_percent(text, is_form=True)),
    "html": ("&", without_html),
}


def _undone(layer: _Layer, kind: str) -> Iterator[_Layer]:
    mark, undo = _UNDO[kind]
    for _ in range(2):
        if mark not in layer.text:
            return
        decoded = undo(layer.text)
        layer = _Layer(decoded.text, (*layer.undone, decoded), is_in_url=kind in {"url", "form"})
        yield layer


class KnownTexts:
    """The last texts that became known; all that passes is searched for them."""

    def __init__(self, most: int = 256, *, shortest: int = 1) -> None:
        self._most = most
        self._shortest = shortest
        self._known: dict[str, KnownText] = {}
        self._by_gram: dict[bytes, dict[KnownText, None]] = {}
        self._short: dict[KnownText, list[bytes]] = {}

    def __contains__(self, text: str) -> bool:
        """Tell whether a text is known."""
        return text in self._known

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._known)

    def __iter__(self) -> Iterator[str]:
        """Yield the texts, the one that has been known longest first."""
        return iter(self._known)

    def texts(self) -> list[KnownText]:
        """Return them, the one that has been known longest first."""
        return list(self._known.values())

    def add(self, known: KnownText) -> bool:
        """Search for a text from now on."""
        if known.text in self._known:
            return False
        is_full = len(self._known) == self._most
        if is_full:
            self._forget(next(iter(self._known.values())))
        self._known[known.text] = known
        for _, probe in known.spellings:
            if len(probe) < _LONG_RUN:
                self._short.setdefault(known, []).append(probe)
            for gram in _grams_of(probe):
                self._by_gram.setdefault(gram, {})[known] = None
        return is_full

    def _forget(self, known: KnownText) -> None:
        del self._known[known.text]
        self._short.pop(known, None)
        for gram in {gram for _, probe in known.spellings for gram in _grams_of(probe)}:
            del self._by_gram[gram][known]
            if not self._by_gram[gram]:
                del self._by_gram[gram]

    def may_be_in(self, raw: bytes) -> bool:
        """Tell, quickly, whether a text may contain one of those that are replaced."""
        return any(known.spellings_in(raw) for known in self._likely(raw))

    def seal(self, raw: bytes) -> bytes:
        """Replace the texts wherever they stand, except those so short that they may be words."""
        return _replaced(raw, self._likely(raw))

    def _likely(self, raw: bytes) -> Collection[KnownText]:
        likely = {
            known: None
            for known, probes in self._short.items()
            if any(probe in raw for probe in probes)
        }
        grams = {
            gram
            for start, end in (long_words(raw, _PROBED, _LONG_RUN) if self._by_gram else ())
            for at in range(start, end - _GRAM + 1, _GRAM)
            if (gram := raw[at : at + _GRAM]) in self._by_gram
        }
        for gram in sorted(grams):
            likely.update(self._by_gram[gram])
        return likely

    def seal_text(self, text: str) -> str:
        """Replace the texts in a text as `seal` does in bytes."""
        if len(text) < self._shortest or not self._known:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        sealed = self.seal(raw)
        return text if sealed is raw else sealed.decode("utf-8", "surrogatepass")


def _grams_of(probe: bytes) -> Iterable[bytes]:
    """Return parts of the end of what is looked for, as many texts begin with the same characters.

    Wherever it stands in a word, one of them is at a multiple of its length.
    """
    return map(probe[-_LONG_RUN:].__getitem__, _GRAMS) if len(probe) >= _LONG_RUN else ()


def _by_length(likely: tuple[_Spelling, str]) -> int:
    return -len(likely[0].raw)


class KnownStates(KnownTexts):
    """The last states that were issued or echoed; all that passes is searched for them."""

    def __init__(self, most: int = 256) -> None:
        super().__init__(most, shortest=SHORTEST_SEARCHED)

    def remember(self, state: str, shown_as: str | None = None) -> None:
        """Search for a state from now on."""
        if state not in self:
            shown = sealed_hash(state if shown_as is None else shown_as)
            self.add(KnownText(state, shown, is_searched=len(state) >= SHORTEST_SEARCHED))


SHORTEST_CREDENTIAL: Final = 8

_REPEATED = 1024
"""Headers and texts of which it is remembered what they come to."""

_COOKIES = frozenset({"cookie", "set-cookie"})
_AUTHORIZATIONS = frozenset({"authorization", "proxy-authorization"})
_OPEN = re.compile(
    r"accept.*|content-.*|host|origin|referer|user-agent|cache-control|mcp-(?!session-id).*"
)
"""Headers whose values are no secrets, whoever sets them."""
_WORDS = re.compile(r"[A-Za-z]+(?:[ ,_/-]+[A-Za-z]+)*|[0-9.]+")
"""Words or a number, which other text may have in its own right."""


class Given(NamedTuple):
    """What the user gives for a server; each of it may be a credential, or have some in it."""

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
    """The credentials that are known; all that passes is searched for them."""

    def __init__(self, redactor: Redactor, *, seals_sessions: bool = True) -> None:
        self._redactor = redactor
        self._seals_sessions = seals_sessions
        self.known = KnownTexts(shortest=SHORTEST_CREDENTIAL)
        self._given: list[KnownText] = []
        self._seen: set[tuple[tuple[str, str], bool]] = set()
        # Of most calls nothing is new, so what is known of a header or a text holds.
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

    def seen(self, headers: Headers, *, ours: bool = False) -> None:
        """Look for the credentials in headers from now on."""
        for header in headers:
            # A client sends the same headers with all of its calls.
            if (header, ours) not in self._seen:
                self._see(header, ours=ours)

    def _rule_of(self, name: str, *, ours: bool) -> str | None:
        if name.lower() == SESSION_HEADER:
            return "" if self._seals_sessions else None
        rule = self._redactor.rule_of(name)
        if not builtin_rule_of(fold(name)) and ours and not _OPEN.fullmatch(name.lower()):
            rule = self._redactor.rule_of("credentials")
        return rule or None

    def _see(self, header: tuple[str, str], *, ours: bool) -> None:
        rule = self._rule_of(header[0], ours=ours)
        for secret in _secrets_in(*header) if rule is not None else ():
            if secret not in self.known:
                self._know(
                    secret,
                    self._redactor.placeholder(rule, secret) if rule else sealed_hash(secret),
                )
        if len(self._seen) >= _REPEATED:
            self._seen.clear()
        self._seen.add((header, ours))

    def _know(self, secret: str, shown: str) -> None:
        if len(secret) < SHORTEST_CREDENTIAL:
            return
        if self.known.add(KnownText(secret, shown)):
            # What is forgotten is known again when it comes again; what the user gave doesn't.
            self._seen.clear()
            for known in self._given:
                self.known.add(known)
        self.sealed_text.cache_clear()
        self.sealed_headers.cache_clear()

    def sealed(self, raw: bytes) -> bytes:
        """Replace the credentials in a body, or in any piece of one."""
        return self.known.seal(raw)

    def _sealed_headers(self, headers: Headers) -> Headers:
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
    scheme, _, credential = value.strip().partition(" ")
    yield credential.strip() or scheme
    if scheme.lower() == "basic":
        try:
            user = b64decode(credential.strip()).decode("utf-8", "surrogateescape")
        except Base64Error:
            return
        yield user
        yield user.partition(":")[2]
