"""Finding raw request states in all that passes, and replacing them.

Owns: where states stand: under `requestState`, at any depth, and wherever else text repeats one
that was issued or echoed before, in any spelling.
Does not own: what stands in their place (`surrogates`).
Rule: spell_nothing is read as JSON that needn't be; whatever is replaced, all other bytes stay.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from mrtr_cassette.core.protocol.dialect import REQUEST_STATE
from mrtr_cassette.core.secrets.escapes import (
    Finding,
    decode_json,
    json_tokens,
    long_words,
    mapped_back,
)
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.jsonbytes import (
    Span,
    splice,
)

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
_SHORT_ESCAPES: Final = dict(zip("/\b\f\n\r\t", "/bfnrt", strict=True))
_RUNS = re.compile(r"[0-9A-Za-z._-]+|\\+|.", re.DOTALL)


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
    tokens = json_tokens(text) if has_layers else None
    for finding in _in_json(tokens) if tokens is not None else _in_other(text):
        start = offset + len(text[at : finding.start].encode("utf-8", "surrogateescape"))
        at = finding.end
        offset = start + len(text[finding.start : at].encode("utf-8", "surrogateescape"))
        places.append(StatePlace(Span(start, offset), finding.plain, finding.spell))
    return places


def _in_json(tokens: list[re.Match[str]]) -> Iterator[Finding]:
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
            inner = json_tokens(decoded.text)
            yield from mapped_back(decoded, _in_json(inner or []), at, _spell)
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
    """A state that was issued or echoed, and the spellings in which other text may repeat it.

    Attributes:
        state: the state.
        is_searched: it is long enough to be replaced wherever it stands.
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
        self._shown = sealed_hash(state if shown_as is None else shown_as)
        self.is_searched = len(state) >= SHORTEST_SEARCHED
        # Whatever the escapes are, all spellings contain the longest run of plain characters.
        self.probe = max(_PLAIN_RUN.findall(state), key=len, default="").encode()
        end = self.probe[-_LONG_RUN:]
        # Those of its end, as many states begin with the same characters.
        self.grams = [end[at : at + _GRAM] for at in range(len(end) - _GRAM + 1)]
        self._spellings: re.Pattern[bytes] | None = None

    def seal(self, raw: bytes) -> bytes:
        """Replace the state wherever it stands, unless it is so short that it may be a word."""
        if not self.is_searched or self.probe not in raw:
            return raw
        if self._spellings is None:
            self._spellings = re.compile(_spellings(self.state))
        return self._spellings.sub(self._spelled, raw)

    def _spelled(self, match: re.Match[bytes]) -> bytes:
        new = self._shown
        return (new.replace(":", "%3A") if match.lastgroup == "in_url" else new).encode()


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
        # A state that contains another comes before it.
        for known in sorted(self._likely(raw), key=_by_length):
            raw = known.seal(raw)
        return raw

    def _likely(self, raw: bytes) -> Collection[KnownState]:
        """Return the states that a text may contain, without a search for each."""
        likely = dict.fromkeys(self._without_run)
        if self._by_gram:
            for word in long_words(raw, _LONG_RUN):
                for at in range(0, len(word) - _GRAM + 1, _GRAM):
                    likely.update(dict.fromkeys(self._by_gram.get(word[at : at + _GRAM], ())))
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


def _spellings(text: str) -> bytes:
    """Return a pattern for a text as it is, in a JSON string, JSON in such a string, and a URL."""
    runs = _RUNS.findall(text)
    patterns = [b"".join(_in_layer(run, layer) for run in runs) for layer in (2, 1, 0)]
    in_url = b"".join(map(_in_url, runs))
    return b"|".join(dict.fromkeys([*patterns, b"(?P<in_url>%s)" % in_url]))


def _in_layer(run: str, layer: int) -> bytes:
    """Return a pattern for a run of `_RUNS` inside so many nested JSON strings."""
    raw = re.escape(run.encode("utf-8", "surrogatepass"))
    if layer == 0 or _PLAIN_RUN.fullmatch(run):
        return raw
    escape = rb"\\{1,%d}" % layer
    units = run.encode("utf-16-be", "surrogatepass").hex(" ", 2).encode().split()
    spelled = [b"".join(rb"%su(?i:%s)" % (escape, unit) for unit in units)]
    if run[0] == "\\":
        spelled.append(rb"\\{%d}" % (len(run) * 2**layer))
    elif run == '"':
        spelled.append(rb'\\{%d}"' % (2**layer - 1))
    else:
        spelled += [raw, *(escape + short.encode() for short in _SHORT_ESCAPES.get(run, ""))]
    return b"(?:%s)" % b"|".join(spelled)


def _in_url(run: str) -> bytes:
    raw = run.encode("utf-8", "surrogatepass")
    if _PLAIN_RUN.fullmatch(run):
        return re.escape(raw)
    encoded = b"".join(rb"%%(?:25)?(?i:%02x)" % byte for byte in raw)
    return rb"(?:%s|%s%s)" % (encoded, re.escape(raw), rb"|\+" if run == " " else b"")
