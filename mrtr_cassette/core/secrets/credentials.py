"""Find states and credentials seen before, wherever they are repeated, and replace them."""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from string import ascii_letters, digits
from typing import Final, NamedTuple

from mrtr_cassette.core.secrets.decode import (
    Decoded,
    JsonPart,
    JsonParts,
    decoded_base64,
    long_words,
    spell_in_url,
    utf8_text_of_latin1,
    without_ascii_escapes,
    without_framing,
    without_json_escapes,
    without_percent,
    word_table,
)
from mrtr_cassette.core.secrets.names import (
    has_secrets,
    plain_rule,
    ref_of,
    rule_of_number,
    sealed_hash,
)
from mrtr_cassette.core.secrets.redact import ExemptValues, Redactor
from mrtr_cassette.core.secrets.rules import CUSTOM_KEY, RedactionRules, builtin_name
from mrtr_cassette.core.secrets.sealed import is_searched_everywhere, reads_as_words
from mrtr_cassette.core.secrets.shapes import rule_of_kind
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import Span, splice

_GRAM_LENGTH = 8
_LONG_RUN = 2 * _GRAM_LENGTH - 1
"""A run of so many characters contains, wherever it begins, a gram at a multiple of its length.

So long is hardly a word of a message but states, hashes and the like.
"""

_LONGEST_RUN = 4096
"""Characters of a run by which a text is looked for at most."""

_MOST_LAYERS = 4
"""Escapes within one another that are undone, as of JSON in a string of JSON."""

_SHORT_TEXT = b""
"""Stands for the grams of a text that has a shorter run, which is looked for in all other text."""

_FEW_TEXTS = 4
"""Up to so many texts are sought one after the other, which is faster than by their grams."""

_PLAIN_RUN = re.compile(rb"[0-9A-Za-z._-]+")
_ESCAPED_PROBE_CHAR = re.compile(
    rb"\\u00(?:2[dDeE]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[fF])"
)
_PROBE_CHARS = word_table(f"{ascii_letters}{digits}._-")
_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")
_PADDED_OR_STANDARD = re.compile(rb"(?=.*[+/=])[0-9A-Za-z+/]{16,}={0,2}")


class _Spelling(NamedTuple):
    """How a text may be written: as it is, or within base64 of a longer text."""

    raw: bytes
    probe: bytes
    """The longest part that escapes hardly ever change."""


class _KnownText(NamedTuple):
    """A text that is replaced."""

    substitute: str
    is_permanent: bool
    is_searched_everywhere: bool


class _IndexedText(NamedTuple):
    """The spellings of a known text, and the grams by which they are found."""

    spellings: tuple[_Spelling, ...]
    grams: set[bytes]
    """Parts of the ends of its spellings, as many texts begin with the same characters.

    Wherever a spelling is in a word, one of them is at a multiple of their length.
    """


def _grams_of_spellings(spellings: Sequence[_Spelling]) -> set[bytes]:
    """Return the grams by which spellings are found, with `_SHORT_TEXT` for a short probe."""
    grams: set[bytes] = set()
    for spelling in spellings:
        if len(spelling.probe) < _LONG_RUN:
            grams.add(_SHORT_TEXT)
            continue

        probe_end = spelling.probe[-_LONG_RUN:]
        for start in range(_GRAM_LENGTH):
            grams.add(probe_end[start : start + _GRAM_LENGTH])

    return grams


def _spelling_with_probe(raw: bytes) -> _Spelling:
    """Return the spelling of a text, whose longest plain run is the probe."""
    runs = _PLAIN_RUN.findall(raw)
    return _Spelling(raw, probe=max(runs, key=len, default=b""))


def _spellings_of(text: str) -> Iterator[_Spelling]:
    """Yield a text as it is, and as base64 of a longer text may contain it."""
    raw = text.encode("utf-8", "surrogatepass")
    yield _spelling_with_probe(raw)
    if _PADDED_OR_STANDARD.fullmatch(raw):
        # A text that is base64 itself may come back in the other alphabet, and without its padding.
        yield _spelling_with_probe(raw.rstrip(b"=").translate(_URL_ALPHABET))

    for bytes_before in range(3):
        # A character that also encodes bytes of the surrounding text is left out.
        first_char = -(-8 * bytes_before // 6)
        end_of_chars = 8 * (bytes_before + len(raw)) // 6
        encoded = b64encode(bytes(bytes_before) + raw)[first_char:end_of_chars]
        url_spelling = encoded.translate(_URL_ALPHABET)
        if url_spelling != encoded:
            yield _spelling_with_probe(encoded)

        yield _Spelling(url_spelling, probe=url_spelling)


class _Layer(NamedTuple):
    """A text with some of its escapes undone."""

    text: str
    undone_escapes: tuple[Decoded, ...] = ()
    is_in_url: bool = False

    def places_in_source(
        self, text: str, replaced_spans: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Yield where a text is spelled, but for places of which a part is taken."""
        found_at = self.text.find(text)
        while found_at >= 0:
            start = found_at
            found_at += len(text)
            end = found_at
            for decoded in reversed(self.undone_escapes):
                start = decoded.source_offset(start)
                end = decoded.source_offset(end)

            index = bisect_left(replaced_spans, (end, -1))
            replaced_until = 0
            if index:
                _, replaced_until = replaced_spans[index - 1]

            if replaced_until <= start:
                yield start, end
            elif not self.undone_escapes:
                found_at = replaced_until

            found_at = self.text.find(text, found_at)

    def layers_with_escapes_undone(
        self, mark: str, undo: Callable[[str], Decoded]
    ) -> Iterator[_Layer]:
        """Yield the text with escapes undone once, and again while there are any."""
        layer = self
        is_in_url = mark != "\\"
        while len(layer.undone_escapes) < _MOST_LAYERS and mark in layer.text:
            decoded = undo(layer.text)
            layer = _Layer(decoded.text, (*layer.undone_escapes, decoded), is_in_url)
            yield layer

    def spelled_in_layer(self, substitute: str) -> bytes:
        """Spell the text that takes the place of one that was found here."""
        if self.is_in_url:
            substitute = spell_in_url(substitute).replace(":", "%3A")

        return substitute.encode()


def _layers_with_escapes_undone(raw: bytes) -> list[_Layer]:
    """Return a text with its escapes undone, those of JSON first, and those of URLs last."""
    plain = _Layer(raw.decode("latin-1"))
    in_json = list(plain.layers_with_escapes_undone("\\", without_json_escapes))
    in_url = plain.layers_with_escapes_undone("%", without_percent)
    in_form = plain.layers_with_escapes_undone(
        "+", partial(without_percent, is_form=True)
    )

    return [*reversed(in_json), plain, *in_url, *in_form]


def _with_escapes_undone(raw: bytes) -> bytes:
    """Return a text, and again without escapes if it escapes characters that probes have."""
    if b"\\u00" not in raw or not _ESCAPED_PROBE_CHAR.search(raw):
        return raw

    unescaped = without_ascii_escapes(raw.decode("latin-1")).text
    return raw + b"\0" + unescaped.encode("latin-1")


class _JsonPreservingBody:
    """A body whose JSON stays JSON."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parts = JsonParts(raw)

    @cached_property
    def _exempt_values(self) -> ExemptValues:
        """The values that are never replaced."""
        return ExemptValues(without_framing(self._raw.decode("latin-1")))

    def replacement_at(self, start: int, end: int, replacement: bytes) -> bytes:
        """Return what takes the place of a text; nothing where the text must stay.

        A number becomes a string, if it is a secret. What is no secret may be a number in its own
        right.
        """
        part = self._parts.json_part_at(start, end)
        if part == JsonPart.TEXT:
            return replacement

        ref = ref_of(replacement.decode())
        if part == JsonPart.STRUCTURE or ref is None or not ref.is_secret:
            return b""
        if self._exempt_values.contain_span(start, end):
            return b""

        number_ref = ref._replace(kind=rule_of_number(plain_rule(ref.kind)))
        return b'"%b"' % number_ref.raw


def _with_texts_replaced(
    raw: bytes, likely_spellings: list[tuple[_Spelling, str]], *, is_body: bool
) -> bytes:
    """Return a text in which spellings of known texts are replaced, also where escaped."""
    if not likely_spellings:
        return raw

    has_no_escapes = all(
        spelling.raw == spelling.probe for spelling, _ in likely_spellings
    )
    if has_no_escapes and not _ESCAPED_PROBE_CHAR.search(raw):
        layers = [_Layer(raw.decode("latin-1"))]
    else:
        layers = _layers_with_escapes_undone(raw)

    body = _JsonPreservingBody(raw) if is_body else None
    replaced_spans: list[tuple[int, int]] = []
    replacements = []
    # The longest first: it may contain others.
    likely_spellings.sort(key=lambda pair: len(pair[0].raw), reverse=True)
    for spelling, substitute in likely_spellings:
        text = spelling.raw.decode("latin-1")
        for layer in layers:
            replacement = layer.spelled_in_layer(substitute)
            for start, end in layer.places_in_source(text, replaced_spans):
                replacement_here = replacement
                if body is not None:
                    replacement_here = body.replacement_at(start, end, replacement)

                if replacement_here:
                    insort(replaced_spans, (start, end))
                    replacements.append((Span(start, end), replacement_here))

    return splice(raw, replacements)


class RepeatedSecrets:
    """The last secrets that were seen; replaced wherever they are repeated."""

    def __init__(self, most_texts: int | None = 256) -> None:
        """Forget the oldest when there are more than `most_texts`; None: forget none."""
        self._most_texts = most_texts
        self.texts: dict[str, _KnownText] = {}
        """The texts, the oldest first, and what takes their places."""
        self._unindexed: dict[str, None] = {}
        """Those that are not indexed yet."""
        self._indexed: dict[str, _IndexedText] = {}
        self._texts_by_gram: dict[bytes, list[str]] = {}
        self._shortest_run = _LONGEST_RUN
        """Characters of the shortest run that a gram was taken from."""

    def __contains__(self, text: object) -> bool:
        """Tell whether a text is known."""
        return text in self.texts

    def add_known_text(
        self,
        text: str,
        substitute: str,
        *,
        is_searched_everywhere: bool = True,
        is_permanent: bool = False,
    ) -> None:
        """Replace a text from now on; the oldest one that is not permanent is forgotten for it."""
        known_text = self.texts.get(text)
        if known_text is not None:
            # It may have been seen before the user called it a secret.
            stays_permanent = known_text.is_permanent or is_permanent
            self.texts[text] = known_text._replace(is_permanent=stays_permanent)
            return

        if self._most_texts is not None and len(self.texts) >= self._most_texts:
            self._forget_oldest()

        self.texts[text] = _KnownText(substitute, is_permanent, is_searched_everywhere)
        # Of the many secrets of a large body, most are forgotten before the next search.
        self._unindexed[text] = None

    def _forget_oldest(self) -> None:
        """Forget the oldest text that is not permanent, if there is any."""
        for text, known_text in self.texts.items():
            if known_text.is_permanent:
                continue

            del self.texts[text]
            self._unindexed.pop(text, None)
            indexed = self._indexed.pop(text, None)
            if indexed is not None:
                self._forget_grams(text, indexed.grams)

            return

    def _forget_grams(self, text: str, grams: Iterable[bytes]) -> None:
        """Find a text by its grams no longer."""
        for gram in grams:
            texts = self._texts_by_gram[gram]
            texts.remove(text)
            if not texts:
                del self._texts_by_gram[gram]

    def _index_added_texts(self) -> None:
        """Index the texts that were added after the last search."""
        for text in self._unindexed:
            known_text = self.texts[text]
            spellings: tuple[_Spelling, ...] = ()
            if known_text.is_searched_everywhere:
                spellings = tuple(_spellings_of(text))

            grams = _grams_of_spellings(spellings)
            self._indexed[text] = _IndexedText(spellings, grams)
            for gram in grams:
                self._texts_by_gram.setdefault(gram, []).append(text)

            for spelling in spellings:
                if _LONG_RUN <= len(spelling.probe) < self._shortest_run:
                    self._shortest_run = len(spelling.probe)

        self._unindexed.clear()

    def remember_state(self, state: str, hashed_text: str | None = None) -> None:
        """Replace a state from now on, unless it is so short that it may be a word."""
        if state in self.texts:
            return

        text_to_hash = state if hashed_text is None else hashed_text
        self.add_known_text(
            state,
            sealed_hash(text_to_hash),
            is_searched_everywhere=is_searched_everywhere(state),
        )

    def may_occur_in(self, raw: bytes) -> bool:
        """Tell, quickly, whether a text may contain one of those that are replaced."""
        return bool(self._likely_spellings(raw))

    def sealed_bytes(self, raw: bytes) -> bytes:
        """Replace the texts in a body, but where other JSON than a string or a number has them."""
        return _with_texts_replaced(raw, self._likely_spellings(raw), is_body=True)

    def _likely_spellings(self, raw: bytes) -> list[tuple[_Spelling, str]]:
        """Return the spellings whose probes a text has, and what takes their places."""
        searched_text = _with_escapes_undone(raw)
        likely_spellings = []
        for text in self._likely_texts(searched_text):
            for spelling in self._indexed[text].spellings:
                if spelling.probe in searched_text:
                    likely_spellings.append((spelling, self.texts[text].substitute))

        return likely_spellings

    def _likely_texts(self, raw: bytes) -> Iterable[str]:
        """Return the known texts that some bytes may contain, and few others."""
        self._index_added_texts()
        if not self._texts_by_gram:
            return ()
        if len(self._indexed) <= _FEW_TEXTS:
            return self._indexed

        likely_texts = dict.fromkeys(self._texts_by_gram.get(_SHORT_TEXT, ()))
        for start, end in long_words(raw, _PROBE_CHARS, self._shortest_run):
            for gram_start in range(start, end - _GRAM_LENGTH + 1, _GRAM_LENGTH):
                texts_with_gram = self._texts_by_gram.get(
                    raw[gram_start : gram_start + _GRAM_LENGTH]
                )
                if texts_with_gram:
                    likely_texts |= dict.fromkeys(texts_with_gram)

        return likely_texts

    def sealed_text(self, text: str) -> str:
        """Replace the texts wherever they are in a text that is no body."""
        if not self.texts:
            return text

        raw = text.encode("utf-8", "surrogatepass")
        sealed_raw = _with_texts_replaced(
            raw, self._likely_spellings(raw), is_body=False
        )
        if sealed_raw is raw:
            return text

        return sealed_raw.decode("utf-8", "surrogatepass")

    def sealed_headers(self, headers: Headers) -> Headers:
        """Replace the texts in the values of headers."""
        return tuple([(name, self.sealed_text(value)) for name, value in headers])

    def sealed_request(self, request: Request) -> Request:
        """Replace the texts in all parts of a request."""
        target = self.sealed_text(request.target)
        if target != request.target:
            target = spell_in_url(target)

        headers = self.sealed_headers(request.headers)
        return request.with_parts(target, headers, self.sealed_bytes(request.body))


SHORTEST_CREDENTIAL: Final = 8
_LONGEST_REPEATED = 2048
"""Characters of a secret up to which it is looked for in other places too."""

_COOKIE_HEADERS = frozenset({"cookie", "set-cookie"})
_AUTHORIZATION_HEADERS = frozenset({"authorization", "proxy-authorization"})
_HARMLESS_HEADERS = re.compile(
    r"accept.*|content-.*|host|origin|referer|user-agent|cache-control|mcp-(?!session-id).*"
)
"""Headers whose values are no secrets, whoever sets them."""

_WORDS_OR_NUMBER = re.compile(r"[A-Za-z]+(?:[ ,_/-]+[A-Za-z]+)*|[0-9.]+")
"""Words or a number, which other text may have in its own right."""


class UserSettings(NamedTuple):
    """Settings of the user for a server; each may be a credential, or contain some."""

    headers: Headers = ()
    query: Headers = ()
    target: str = ""
    environment: Headers = ()
    command: str = ""
    secrets: tuple[str, ...] = ()
    """Texts that the user calls secrets."""


NO_SETTINGS: Final = UserSettings()


AddSettings = Callable[[UserSettings], None]
"""Tells a reader of a server's messages which settings the server was given."""


class Credentials:
    """Credentials seen so far; replaced everywhere."""

    def __init__(
        self,
        redactor: Redactor,
        *,
        seals_sessions: bool = True,
        known_secrets: RepeatedSecrets | None = None,
    ) -> None:
        self._redactor = redactor
        self._seals_sessions = seals_sessions
        self.known_secrets = known_secrets or RepeatedSecrets()
        self.has_found_repeatable_secret = False
        """Whether the redactor has found a secret that may stand in earlier texts too."""
        redactor.on_find = self._add_found_secret
        # Most exchanges bring the same headers again.
        self._credentials_in = lru_cache(maxsize=1024)(self._read_credentials)

    def add_settings(self, settings: UserSettings) -> None:
        """Look for the credentials in the user's settings from now on, and never forget them."""
        redactor = self._redactor
        for secret in settings.secrets:
            substitute = redactor.placeholder("secret", secret)
            self._add_secret(secret, substitute, is_permanent=True)

        variables = []
        for name, value in settings.environment:
            if not _WORDS_OR_NUMBER.fullmatch(value):
                variables.append((name, value))

        self.add_headers(settings.headers, are_from_user=True, is_permanent=True)
        self.add_headers((*settings.query, *variables), is_permanent=True)
        lines = [f"{name}={value}" for name, value in variables]
        found_secrets = redactor.secrets_in(settings.target, is_target=True)
        found_secrets += redactor.secrets_in(settings.command)
        found_secrets += redactor.secrets_in("\n".join(lines))
        for rule, secret in found_secrets:
            self._add_permanent_secret(rule, secret)
            # If it is base64, there may be others in it.
            decoded = utf8_text_of_latin1(decoded_base64(secret))
            for inner_rule, inner_secret in redactor.secrets_in(decoded):
                self._add_permanent_secret(inner_rule, inner_secret)

    def _add_permanent_secret(self, rule: str, secret: str) -> None:
        """Look for a secret in all that passes, unless other text may have it in its own right."""
        if not _WORDS_OR_NUMBER.fullmatch(secret):
            substitute = self._redactor.placeholder(rule, secret)
            self._add_secret(secret, substitute, is_permanent=True)

    def add_headers(
        self,
        headers: Headers,
        *,
        are_from_user: bool = False,
        is_permanent: bool = False,
    ) -> None:
        """Look for the credentials in headers from now on, which the user may have added."""
        for secret, substitute in self._credentials_in(
            headers, are_from_user=are_from_user
        ):
            self._add_secret(secret, substitute, is_permanent=is_permanent)

    def _add_found_secret(self, rule: str, secret: str) -> None:
        """Look from now on, in all that passes, for a secret that the redactor has found."""
        if secret in self.known_secrets or not is_secret_anywhere(rule, secret):
            return

        self.has_found_repeatable_secret = True
        self._add_secret(
            secret, self._redactor.placeholder(rule, secret), is_permanent=False
        )

    def _read_credentials(
        self, headers: Headers, *, are_from_user: bool
    ) -> list[tuple[str, str]]:
        """Return the credentials in headers, each with the text that takes its place."""
        secrets_and_substitutes = []
        for name, value in headers:
            if name.lower() == SESSION_HEADER:
                # One that reads as words is sealed in its header, and stays in other text.
                if self._seals_sessions and not reads_as_words(value):
                    secrets_and_substitutes.append((value, sealed_hash(value)))

                continue

            rule = self._rule_of_header(name, is_from_user=are_from_user)
            if not rule:
                continue

            for secret in _secrets_in_header(name, value):
                secrets_and_substitutes.append(
                    (secret, self._redactor.placeholder(rule, secret))
                )

        return secrets_and_substitutes

    def _rule_of_header(self, name: str, *, is_from_user: bool) -> str:
        """Return the rule of a header's value; most headers that the user adds have secrets."""
        is_known_header = _is_secret_header(name) or _HARMLESS_HEADERS.fullmatch(
            name.lower()
        )
        if is_from_user and not is_known_header:
            return self._redactor.rule_of_header("credentials")

        return self._redactor.rule_of_header(name)

    def _add_secret(self, secret: str, substitute: str, *, is_permanent: bool) -> None:
        """Replace a secret from now on, unless it is too short."""
        if len(secret) >= SHORTEST_CREDENTIAL:
            self.known_secrets.add_known_text(
                secret, substitute, is_permanent=is_permanent
            )


def is_secret_anywhere(rule: str, secret: str) -> bool:
    """Tell whether a secret that was found in one place is a secret in any other text too.

    A word or a number may be there in its own right, and a pattern of the user's says itself where
    a secret is.
    """
    is_rule_with_context = rule.startswith("custom-") and rule != CUSTOM_KEY
    is_rule_with_context = is_rule_with_context or rule == rule_of_kind("text")
    has_usual_length = SHORTEST_CREDENTIAL <= len(secret) <= _LONGEST_REPEATED
    if is_rule_with_context or not has_usual_length:
        return False

    return _WORDS_OR_NUMBER.fullmatch(secret) is None and not has_secrets(secret)


def text_redactor(
    rules: RedactionRules,
    settings: UserSettings = NO_SETTINGS,
    *,
    is_target: bool = False,
) -> Callable[[str], str]:
    """Return what takes all secrets, also the user's, out of texts, or targets, that are shown."""
    redactor = Redactor(rules, lambda _rule, _secret: "1")
    credentials = Credentials(redactor)
    credentials.add_settings(settings)

    redact = redactor.redacted_target if is_target else redactor.redacted_text
    return lambda text: credentials.known_secrets.sealed_text(redact(text))


def _secrets_in_header(name: str, value: str) -> list[str]:
    """Return the secrets in the value of a header, whose name tells how the value is read."""
    name = name.lower()
    if name in _AUTHORIZATION_HEADERS:
        return _secrets_of_authorization(value)
    if name in _COOKIE_HEADERS:
        return _secrets_of_cookies(name, value)
    if _is_secret_header(name) or not _WORDS_OR_NUMBER.fullmatch(value):
        return [value]

    return []


def _secrets_of_authorization(value: str) -> list[str]:
    """Return the credential after the scheme; of Basic, also the decoded pair and its password."""
    scheme, _, credential = value.strip().partition(" ")
    secret = credential.strip() or scheme
    if scheme.lower() != "basic":
        return [secret]

    user_and_password = utf8_text_of_latin1(decoded_base64(secret))
    _, _, password = user_and_password.partition(":")
    return [secret, user_and_password, password]


def _secrets_of_cookies(name: str, value: str) -> list[str]:
    """Return the values of cookies, but for words and numbers."""
    pairs = value.split(";")
    if name == "set-cookie":
        # After the value come its attributes.
        pairs = pairs[:1]

    secrets = []
    for pair in pairs:
        _, _, cookie_value = pair.partition("=")
        secret = cookie_value.strip(' \t"')
        if not _WORDS_OR_NUMBER.fullmatch(secret):
            secrets.append(secret)

    return secrets


def _is_secret_header(name: str) -> bool:
    """Tell whether any value of a header with this name is a secret."""
    secret_name = builtin_name(name)
    return secret_name is not None and secret_name.is_certain
