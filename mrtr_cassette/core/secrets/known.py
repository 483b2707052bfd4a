"""Texts that are known, and are looked for in all that passes, in any spelling.

Owns: finding them as they are, with the escapes of JSON, of JSON in JSON, of a URL or of HTML, and
within base64.
Does not own: which texts are known (`states`, `credentials`), and what stands in their place.
Rule: all other bytes stay. A text is walked through once per layer of escapes, however many texts
are known and however long they are.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from mrtr_cassette.core.secrets.escapes import (
    DecodedText,
    decode_layer,
    long_words,
    spell_in_url,
)
from mrtr_cassette.core.wire.jsonbytes import Span, splice

_GRAM = 8
_LONG_RUN = 2 * _GRAM - 1
"""A run of so many characters contains, wherever it begins, a gram at a multiple of its length.

So long is hardly a word of a message but states, hashes and the like.
"""
_PLAIN_RUN = re.compile(rb"[0-9A-Za-z._-]+")
_PLAIN = bytes(code for code in range(128) if _PLAIN_RUN.match(bytes((code,))))
_FEW = 16
"""Texts up to which a search for each costs less than a walk for all."""
_LONGEST_IN_BASE64 = 4096
"""Bytes of a text up to which it is also looked for within base64."""
_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")


class KnownText:
    """A text that is known, and what is looked for to find it in other text.

    Attributes:
        text: the text.
        shown: what replaces it.
        is_searched: it is long enough to be replaced wherever it stands.
        is_plain: all spellings of it are the same.
        probe: characters that every spelling of it contains.
        grams: the parts of the probe by which a text that may contain this one is recognised.
    """

    __slots__ = ("grams", "is_plain", "is_searched", "probe", "shown", "text")

    def __init__(self, text: str, shown: str, *, is_searched: bool = True) -> None:
        """Work out what to look for."""
        raw = text.encode("utf-8", "surrogatepass")
        self.text = text
        self.shown = shown
        self.is_searched = is_searched
        self.is_plain = text != "" and not raw.translate(None, _PLAIN)
        # Whatever the escapes are, all spellings contain the longest run of plain characters.
        self.probe = raw if self.is_plain else max(_PLAIN_RUN.findall(raw), key=len, default=b"")
        end = self.probe[-_LONG_RUN:]
        # Those of its end, as many texts begin with the same characters.
        self.grams = {end[at : at + _GRAM] for at in range(len(end) - _GRAM + 1)}

    @property
    def spelled(self) -> str:
        """Its bytes, as one character each."""
        return self.text.encode("utf-8", "surrogatepass").decode("latin-1")

    def seal(self, raw: bytes) -> bytes:
        """Replace the text wherever it stands, unless it is so short that it may be a word."""
        return _replaced(raw, [self])

    def in_base64(self) -> Iterator[KnownText]:
        """Yield what base64 of a longer text contains of this one, wherever in it that begins."""
        raw = self.text.encode("utf-8", "surrogatepass")
        if not self.is_searched or len(raw) > _LONGEST_IN_BASE64:
            return
        for before in range(3):
            # What shares a character with other bytes is left out.
            first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
            encoded = b64encode(bytes(before) + raw)[first:last]
            yield KnownText(encoded.decode(), self.shown)
            if b"+" in encoded or b"/" in encoded:
                yield KnownText(encoded.translate(_URL_ALPHABET).decode(), self.shown)


def _replaced(raw: bytes, texts: Iterable[KnownText]) -> bytes:
    """Replace texts in whatever layer of another one they stand, the longest first."""
    likely = [known for known in texts if known.is_searched and known.probe in raw]
    if not likely:
        return raw
    layers = _Layers(raw)
    taken: list[tuple[int, int]] = []
    replacements: list[tuple[Span, bytes]] = []
    for known in sorted(likely, key=_by_length):
        spelled = known.spelled
        for layer in layers.of(known):
            shown = known.shown
            if layer.is_in_url:
                shown = spell_in_url(shown).replace(":", "%3A")
            for start, end in layer.places_of(spelled, taken):
                insort(taken, (start, end))
                replacements.append((Span(start, end), shown.encode()))
    return splice(raw, replacements)


class _Layer(NamedTuple):
    """A text with some of its escapes undone.

    Attributes:
        text: the text.
        undone: what undid the escapes, the outermost first.
        is_in_url: they are those of URLs.
    """

    text: str
    undone: tuple[DecodedText, ...] = ()
    is_in_url: bool = False

    def places_of(self, text: str, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield where a text is spelled, except where something has been taken before."""
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
    """A text with its escapes undone: of JSON, of JSON in JSON, of a URL, and of HTML.

    One byte is one character in all of them, so bytes that are no text need no care.
    """

    def __init__(self, raw: bytes) -> None:
        self._plain = _Layer(raw.decode("latin-1"))

    def of(self, known: KnownText) -> Sequence[_Layer]:
        """Return the layers in which a text may be spelled, the deepest of JSON first."""
        return (self._plain,) if known.is_plain else self._all

    @cached_property
    def _all(self) -> tuple[_Layer, ...]:
        in_json = [*_undone(self._plain, "json")]
        in_url = (*_undone(self._plain, "url"), *_undone(self._plain, "form"))
        in_html = [layer for outer in (*in_json, self._plain) for layer in _undone(outer, "html")]
        return (*in_html, *reversed(in_json), self._plain, *in_url)


def _undone(layer: _Layer, kind: str) -> Iterator[_Layer]:
    """Yield a text with the escapes of one layer undone, and of the one below it."""
    for _ in range(2):
        decoded = decode_layer(layer.text, kind)
        if decoded is None:
            return
        layer = _Layer(decoded.text, (*layer.undone, decoded), is_in_url=kind in {"url", "form"})
        yield layer


class KnownTexts:
    """The last texts that became known; all that passes is searched for them."""

    def __init__(self, most: int = 256, *, shortest: int = 1) -> None:
        """Begin without any.

        Args:
            most: how many are remembered, to bound time and memory.
            shortest: characters of the shortest text that is searched for.
        """
        self._most = most
        self._shortest = shortest
        self._forms: dict[str, list[KnownText]] = {}
        self._searched: dict[KnownText, None] = {}
        self._by_gram: dict[bytes, dict[KnownText, None]] = {}
        self._without_run: dict[KnownText, None] = {}

    def __contains__(self, text: str) -> bool:
        """Tell whether a text is known."""
        return text in self._forms

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._forms)

    def __iter__(self) -> Iterator[str]:
        """Yield the texts, the one that has been known longest first."""
        return iter(self._forms)

    def listed(self) -> list[tuple[str, str, bool]]:
        """Return what `relist` takes: each text, what replaces it, and whether it is looked for."""
        texts = [forms[0] for forms in self._forms.values()]
        return [(known.text, known.shown, known.is_searched) for known in texts]

    def relist(self, listed: Iterable[tuple[str, str, bool]]) -> None:
        """Know these texts and no others."""
        for known in (self._forms, self._searched, self._by_gram, self._without_run):
            known.clear()
        for text, shown, is_searched in listed:
            self.add(KnownText(text, shown, is_searched=is_searched))

    def add(self, known: KnownText) -> bool:
        """Search for a text from now on.

        Returns:
            whether another one is forgotten for it.
        """
        if known.text in self._forms:
            return False
        is_full = len(self._forms) == self._most
        if is_full:
            for form in self._forms.pop(next(iter(self._forms))):
                self._forget(form)
        forms = self._forms[known.text] = [known, *known.in_base64()]
        for form in forms:
            if form.is_searched:
                self._searched[form] = None
                if len(form.probe) < _LONG_RUN:
                    self._without_run[form] = None
                    continue
                for gram in form.grams:
                    self._by_gram.setdefault(gram, {})[form] = None
        return is_full

    def _forget(self, known: KnownText) -> None:
        if self._searched.pop(known, known) is known:
            return
        if len(known.probe) < _LONG_RUN:
            del self._without_run[known]
            return
        for gram in known.grams:
            sharing = self._by_gram[gram]
            del sharing[known]
            if not sharing:
                del self._by_gram[gram]

    def may_be_in(self, raw: bytes) -> bool:
        """Tell, quickly, whether a text may contain one of those that are replaced."""
        return any(known.is_searched and known.probe in raw for known in self._likely(raw))

    def seal(self, raw: bytes) -> bytes:
        """Replace the texts wherever they stand, except those so short that they may be words."""
        return _replaced(raw, self._likely(raw))

    def _likely(self, raw: bytes) -> Collection[KnownText]:
        """Return the texts that another one may contain, without a search for each."""
        if len(self._searched) <= _FEW:
            return self._searched
        likely = dict(self._without_run)
        by_gram = self._by_gram
        grams = {
            gram
            for word in long_words(raw, _LONG_RUN)
            for at in range(0, len(word) - _GRAM + 1, _GRAM)
            if (gram := word[at : at + _GRAM]) in by_gram
        }
        for gram in sorted(grams):
            likely.update(by_gram[gram])
        return likely

    def seal_text(self, text: str) -> str:
        """Replace the texts in a text as `seal` does in bytes."""
        if len(text) < self._shortest or not self._searched:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        sealed = self.seal(raw)
        return text if sealed is raw else sealed.decode("utf-8", "surrogatepass")


def _by_length(known: KnownText) -> int:
    return -len(known.text)
