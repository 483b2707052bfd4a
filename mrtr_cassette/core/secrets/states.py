"""Finding raw request states in all that passes, and replacing them.

Owns: where states stand: under `requestState`, at any depth, and wherever else text repeats one
that was issued or echoed before, in any spelling.
Does not own: what stands in their place (`surrogates`).
Rule: nothing is read as JSON that needn't be; whatever is replaced, all other bytes stay. A text is
walked through once per layer of escapes, however many states are known and however long they are.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from mrtr_cassette.core.protocol.dialect import REQUEST_STATE
from mrtr_cassette.core.secrets.escapes import (
    DecodedText,
    Finding,
    decode_json,
    decode_layer,
    json_tokens,
    long_words,
    mapped_back,
)
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.jsonbytes import (
    Span,
    splice,
)
from mrtr_cassette.errors import NotJsonError

SHORTEST_SEARCHED = 24
"""Characters from which on a state is also replaced where it stands outside `requestState`.

A shorter one may be an ordinary word (`confirmed`), which other text has in its own right.
"""

_GRAM = 8
_LONG_RUN = 2 * _GRAM - 1
"""A run of so many characters contains, wherever it begins, a gram at a multiple of its length."""

_MEMBER = REQUEST_STATE.encode()
_ESCAPED_LETTER = re.compile(rb"\\u00(?:53|6[15]|7[1-5])")
"""An escape, which JSON doesn't need, of a letter of the member's name."""
_MEMBER_IN_TEXT = re.compile(
    rf'"{REQUEST_STATE}"\s*:\s*"(?P<state>[^"\\]*+(?:\\.[^"\\]*+)*+)', re.DOTALL
)
_IS_JSON = re.compile(r'\s*+[{\["]')

_PLAIN_RUN = re.compile(r"[0-9A-Za-z._-]+")
_SLICE = 1 << 16
"""Bytes of a long word whose grams are looked up at once."""


class StatePlace(NamedTuple):
    """A state that stands under `requestState`.

    Attributes:
        span: where its spelling stands.
        state: the state itself.
        spell: turns what replaces it into the spelling that this place needs.
    """

    span: Span
    state: str
    spell: Callable[[str], str]


def may_have_states(raw: bytes) -> bool:
    """Tell, quickly, whether `find_states` may find something."""
    return _MEMBER in raw or _ESCAPED_LETTER.search(raw) is not None


def find_states(raw: bytes) -> list[StatePlace]:
    """Return the strings under `requestState`, at any depth, and in JSON in a string too.

    Args:
        raw: JSON, also several texts, or one that is cut off; in other text whatever looks like a
            member of JSON counts.
    """
    if not may_have_states(raw):
        return []
    text = raw.decode("utf-8", "surrogateescape")
    places = []
    at = offset = 0
    # Otherwise a search for the name in quotes is enough: a quote within a string is escaped.
    has_layers = _MEMBER + b"\\" in raw or _ESCAPED_LETTER.search(raw) is not None
    for finding in _in_layers(text) if has_layers else _in_other(text):
        start = offset + len(text[at : finding.start].encode("utf-8", "surrogateescape"))
        at = finding.end
        offset = start + len(text[finding.start : at].encode("utf-8", "surrogateescape"))
        places.append(StatePlace(Span(start, offset), finding.plain, finding.spell))
    return places


def _in_layers(text: str) -> Iterable[Finding]:
    try:
        return list(_in_json(json_tokens(text)))
    except NotJsonError:
        return _in_other(text)


def _in_json(tokens: Iterable[re.Match[str]]) -> Iterator[Finding]:
    key = ""
    for token in tokens:
        raw, at = token["text"] or "", token.start("text")
        if token.lastgroup == "key":
            key = decode_json(raw).text if "\\" in raw else raw
            continue
        if key == REQUEST_STATE and token.lastgroup == "text":
            yield Finding(at, token.end("text"), "", decode_json(raw).text, _spell)
        elif "\\" in raw and _IS_JSON.match(raw):
            decoded = decode_json(raw)
            with suppress(NotJsonError):
                yield from mapped_back(
                    decoded, list(_in_json(json_tokens(decoded.text))), at, _spell
                )
        key = ""


def _in_other(text: str) -> Iterator[Finding]:
    for match in _MEMBER_IN_TEXT.finditer(text):
        start, end = match.span("state")
        yield Finding(start, end, "", decode_json(match["state"]).text, _spell)


def _spell(text: str) -> str:
    """Spell a text inside a JSON string."""
    return json.dumps(text)[1:-1]


def replaced_states(
    places: Iterable[StatePlace], new: Callable[[str], str]
) -> list[tuple[Span, bytes]]:
    """Return, for `splice`, what `new` returns for the state at each place."""
    return [(place.span, place.spell(new(place.state)).encode()) for place in places]


def seal_states(raw: bytes, new: Callable[[str], str]) -> bytes:
    """Replace each state under `requestState` by what `new` returns for it."""
    return splice(raw, replaced_states(find_states(raw), new))


class KnownState:
    """A state that was issued or echoed, and what is looked for to find it in other text.

    Attributes:
        state: the state.
        spelled: its bytes, as one character each.
        shown: what replaces it.
        is_searched: it is long enough to be replaced wherever it stands.
        is_plain: all spellings of it are the same.
        probe: characters that every spelling of it contains.
        grams: the parts of the probe by which a text that may contain the state is recognised.
    """

    def __init__(self, state: str, shown_as: str | None = None) -> None:
        """Work out what to look for.

        Args:
            state: the state.
            shown_as: the recorded state in whose place a live server issued it, and whose sealed
                hash it gets; None if it is no such state.
        """
        self.state = state
        self.spelled = state.encode("utf-8", "surrogatepass").decode("latin-1")
        self.shown = sealed_hash(state if shown_as is None else shown_as)
        self.is_searched = len(state) >= SHORTEST_SEARCHED
        self.is_plain = _PLAIN_RUN.fullmatch(state) is not None
        # Whatever the escapes are, all spellings contain the longest run of plain characters.
        self.probe = max(_PLAIN_RUN.findall(state), key=len, default="").encode()
        end = self.probe[-_LONG_RUN:]
        # Those of its end, as many states begin with the same characters.
        self.grams = [end[at : at + _GRAM] for at in range(len(end) - _GRAM + 1)]

    def seal(self, raw: bytes) -> bytes:
        """Replace the state wherever it stands, unless it is so short that it may be a word."""
        return _with_sealed(raw, [self])


def _with_sealed(raw: bytes, states: Iterable[KnownState]) -> bytes:
    """Replace states in whatever layer of a text they stand, the longest first."""
    likely = [state for state in states if state.is_searched and state.probe in raw]
    if not likely:
        return raw
    layers = _Layers(raw)
    taken: list[tuple[int, int]] = []
    replacements: list[tuple[Span, bytes]] = []
    for known in sorted(likely, key=_by_length):
        for layer in layers.of(known):
            shown = known.shown.replace(":", "%3A") if layer.is_in_url else known.shown
            for start, end in layer.places_of(known.spelled, taken):
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

    def places_of(self, state: str, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield where a state is spelled, except where something has been taken before."""
        at = self.text.find(state)
        while at >= 0:
            start, end = at, at + len(state)
            for decoded in reversed(self.undone):
                start, end = decoded.source(start), decoded.source(end)
            index = bisect_left(taken, (end, -1))
            at += len(state)
            if index == 0 or taken[index - 1][1] <= start:
                yield start, end
            elif not self.undone:
                at = taken[index - 1][1]
            at = self.text.find(state, at)


class _Layers:
    """A text as it is and with its escapes undone: as JSON, as JSON in JSON, and as a URL.

    One byte is one character in all of them, so bytes that are no text need no care.
    """

    def __init__(self, raw: bytes) -> None:
        self._plain = _Layer(raw.decode("latin-1"))

    def of(self, known: KnownState) -> Sequence[_Layer]:
        """Return the layers in which a state may be spelled, the deepest of JSON first."""
        return (self._plain,) if known.is_plain else self._all

    @cached_property
    def _all(self) -> tuple[_Layer, ...]:
        in_json = [*_undone(self._plain, "json")]
        in_url = (*_undone(self._plain, "url"), *_undone(self._plain, "form"))
        return (*reversed(in_json), self._plain, *in_url)


def _undone(layer: _Layer, kind: str) -> Iterator[_Layer]:
    """Yield a text with the escapes of one layer undone, and of the one below it."""
    for _ in range(2):
        decoded = decode_layer(layer.text, kind)
        if decoded is None:
            return
        layer = _Layer(decoded.text, (*layer.undone, decoded), is_in_url=kind != "json")
        yield layer


class KnownStates:
    """The last states that were issued or echoed; all that passes is searched for them."""

    def __init__(self, most: int = 256) -> None:
        """Begin without any.

        Args:
            most: how many are remembered, to bound time and memory.
        """
        self._most = most
        self._by_state: dict[str, KnownState] = {}
        self._by_gram: dict[bytes, list[KnownState]] = {}
        self._without_run: list[KnownState] = []

    def __contains__(self, state: str) -> bool:
        """Tell whether a state is known."""
        return state in self._by_state

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._by_state)

    def __iter__(self) -> Iterator[str]:
        """Yield the states, the one that has been known longest first."""
        return iter(self._by_state)

    def remember(self, state: str, shown_as: str | None = None) -> None:
        """Search for a state from now on.

        Args:
            state: the state.
            shown_as: the recorded state in whose place a live server issued it.
        """
        if state in self._by_state:
            return
        if len(self._by_state) == self._most:
            self._forget(self._by_state.pop(next(iter(self._by_state))))
        known = self._by_state[state] = KnownState(state, shown_as)
        if known.is_searched and len(known.probe) < _LONG_RUN:
            self._without_run.append(known)
        elif known.is_searched:
            for gram in known.grams:
                self._by_gram.setdefault(gram, []).append(known)

    def _forget(self, known: KnownState) -> None:
        if known in self._without_run:
            self._without_run.remove(known)
        for gram in known.grams:
            sharing = self._by_gram.get(gram, [])
            if known in sharing:
                sharing.remove(known)
            if not sharing:
                self._by_gram.pop(gram, None)

    def seal(self, raw: bytes) -> bytes:
        """Replace the states wherever they stand, except those so short that they may be words."""
        return _with_sealed(raw, self._likely(raw))

    def _likely(self, raw: bytes) -> Collection[KnownState]:
        """Return the states that a text may contain, without a search for each."""
        likely = dict.fromkeys(self._without_run)
        grams: set[bytes] = set()
        for word in long_words(raw, _LONG_RUN) if self._by_gram else ():
            for begin in range(0, len(word) - _GRAM + 1, _SLICE):
                end = min(begin + _SLICE, len(word) - _GRAM + 1)
                some = {word[at : at + _GRAM] for at in range(begin, end, _GRAM)}
                grams |= some & self._by_gram.keys()
        for gram in sorted(grams):
            likely.update(dict.fromkeys(self._by_gram[gram]))
        return likely

    def seal_text(self, text: str) -> str:
        """Replace the states in a text as `seal` does in bytes."""
        if len(text) < SHORTEST_SEARCHED or not self._by_state:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        sealed = self.seal(raw)
        return text if sealed is raw else sealed.decode("utf-8", "surrogatepass")


def _by_length(known: KnownState) -> int:
    return -len(known.state)
