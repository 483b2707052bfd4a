"""Keeping raw request states and session ids off the disk.

Owns: where raw states stand in what passes, the sealed hash that stands for a secret while a
recording runs (its hash), and the surrogate that stands for it in a cassette and on replay.
Rule: a state is what stands under `requestState`, however deep, and whatever repeats one. A
sealed hash tells nothing but the hash; a surrogate is the same on every re-recording.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from mrtr_cassette.core.protocol.dialect import REQUEST_STATE
from mrtr_cassette.core.secrets.escapes import Found, json_tokens, json_view, long_words, through
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
"""Characters of a run in which, wherever it stands, is a whole gram at a multiple of its length."""

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
_SEALED_HASH = re.compile(r"sha256(:|%3A)([0-9a-f]{64})")
_SEALED_HASH_BYTES = re.compile(rb"sha256(:|%3A)([0-9a-f]{64})")
STATE_SURROGATE = re.compile(
    r"mrtr-state:[0-9a-f]{16}:(?P<occurrence>[0-9]{1,9}):[0-9]{1,9}", re.ASCII
)
SESSION_SURROGATE = re.compile(r"mrtr-session:([0-9]{1,9})", re.ASCII)


def sha256_of(state: str) -> str:
    """Return the hash by which request states are compared, as 64 hexadecimal digits."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def sealed_hash(secret: str) -> str:
    """Return what stands for a secret in the journal."""
    return f"sha256:{sha256_of(secret)}"


def compared_sha256(state: str) -> str:
    """Return the hash of a state on replay, where a sealed hash may stand for it."""
    placed = _SEALED_HASH.fullmatch(state)
    return sha256_of(state) if placed is None else placed[2]


def as_recorded(state: str) -> str:
    """Return what stands in a cassette for a state that a client sends on replay."""
    is_sealed = STATE_SURROGATE.fullmatch(state) or _SEALED_HASH.fullmatch(state)
    return state if is_sealed else sealed_hash(state)


def may_have_states(raw: bytes) -> bool:
    """Tell, quickly, whether `find_states` may find something."""
    return _MEMBER in raw or _ESCAPED_LETTER.search(raw) is not None


def find_states(raw: bytes) -> list[tuple[Span, Found]]:
    """Return the strings under `requestState`, at any depth, and in JSON in a string too.

    Args:
        raw: JSON, also several texts, or one that broke off; of other text what looks like a
            member of JSON counts.
    """
    if not may_have_states(raw):
        return []
    text = raw.decode("utf-8", "surrogateescape")
    placed = []
    at = offset = 0
    # Else it is enough to look for the name in quotes, as a quote within a string is escaped.
    has_layers = _MEMBER + b"\\" in raw or _ESCAPED_LETTER.search(raw) is not None
    tokens = json_tokens(text) if has_layers else None
    for one in _in_json(tokens) if tokens is not None else _in_other(text):
        start = offset + len(text[at : one.start].encode("utf-8", "surrogateescape"))
        at = one.end
        offset = start + len(text[one.start : at].encode("utf-8", "surrogateescape"))
        placed.append((Span(start, offset), one))
    return placed


def _in_json(tokens: list[re.Match[str]]) -> Iterator[Found]:
    key = ""
    for token in tokens:
        raw, at = token["text"] or "", token.start("text")
        if token.lastgroup == "key":
            key = json_view(raw).text if "\\" in raw else raw
            continue
        if key == REQUEST_STATE and token.lastgroup == "text":
            yield Found(at, token.end("text"), "", json_view(raw).text, _as_string)
        elif "\\" in raw and _IS_JSON.match(raw):
            view = json_view(raw)
            inner = json_tokens(view.text)
            yield from through(view, _in_json(inner or []), at, _as_string)
        key = ""


def _in_other(text: str) -> Iterator[Found]:
    for match in _MEMBER_IN_TEXT.finditer(text):
        start, end = match.span("state")
        yield Found(start, end, "", json_view(match["state"]).text, _as_string)


def _as_string(text: str) -> str:
    """Spell a text inside a JSON string."""
    return json.dumps(text)[1:-1]


def seal_found(
    found: Iterable[tuple[Span, Found]], new: Callable[[str], str]
) -> list[tuple[Span, bytes]]:
    """Return what stands in the place of states that were found: what `new` returns for each."""
    return [(span, one.spelled(new(one.secret)).encode()) for span, one in found]


def seal_states(raw: bytes, new: Callable[[str], str]) -> bytes:
    """Replace each state under `requestState` by what `new` returns for it."""
    return splice(raw, seal_found(find_states(raw), new))


class KnownState:
    """A state that was issued or echoed, and the ways in which other text may repeat it."""

    def __init__(self, state: str, shown_as: str | None = None) -> None:
        """Work out what to look for.

        Args:
            state: the state.
            shown_as: the state that it is another issue of, whose sealed hash it gets; None stands
                for the state itself.
        """
        self.state = state
        self._shown = sealed_hash(state if shown_as is None else shown_as)
        self.is_searched = len(state) >= SHORTEST_SEARCHED
        # Whatever the escapes are, the longest run of plain characters is in all spellings.
        self.probe = max(_PLAIN_RUN.findall(state), key=len, default="").encode()
        end = self.probe[-_LONG_RUN:]
        # Those of its end, as many states begin alike.
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
    """The last states that were issued or echoed, which are looked for in all that passes."""

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
        """Look for a state from now on.

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
            those = self._by_gram.get(gram, [])
            if known in those:
                those.remove(known)
            if not those:
                self._by_gram.pop(gram, None)

    def seal(self, raw: bytes) -> bytes:
        """Replace the states wherever they stand, but for those so short that they may be words."""
        # One that contains another comes before it.
        for known in sorted(self._likely(raw), key=_by_length):
            raw = known.seal(raw)
        return raw

    def _likely(self, raw: bytes) -> Collection[KnownState]:
        """Return the states that may stand in a text, without looking for each."""
        likely = dict.fromkeys(self._without_run)
        if self._by_gram:
            for word in long_words(raw, _LONG_RUN):
                for at in range(0, len(word) - _GRAM + 1, _GRAM):
                    likely.update(dict.fromkeys(self._by_gram.get(word[at : at + _GRAM], ())))
        return likely

    def seal_text(self, text: str) -> str:
        """Do the same in text."""
        if len(text) < SHORTEST_SEARCHED or not self._by_state:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        sealed = self.seal(raw)
        return text if sealed is raw else sealed.decode("utf-8", "surrogatepass")


def _by_length(known: KnownState) -> int:
    return -len(known.state)


def _spellings(text: str) -> bytes:
    """Return a pattern of a text as it is, in a JSON string, JSON in such a string, and a URL."""
    runs = _RUNS.findall(text)
    patterns = [b"".join(_in_layer(run, layer) for run in runs) for layer in (2, 1, 0)]
    in_url = b"".join(map(_in_url, runs))
    return b"|".join(dict.fromkeys([*patterns, b"(?P<in_url>%s)" % in_url]))


def _in_layer(run: str, layer: int) -> bytes:
    """Return a pattern of plain characters, backslashes, or another one in that many strings."""
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


def reveal(raw: bytes, surrogate_of: Callable[[str], str | None]) -> bytes:
    """Put surrogates in the place of sealed hashes; one without a surrogate stays."""

    def surrogate(match: re.Match[bytes]) -> bytes:
        found = surrogate_of(match[2].decode())
        return match[0] if found is None else found.encode().replace(b":", match[1])

    return _SEALED_HASH_BYTES.sub(surrogate, raw)


def reveal_text(text: str, surrogate_of: Callable[[str], str | None]) -> str:
    """Do the same in text."""
    return reveal(text.encode("utf-8", "surrogateescape"), surrogate_of).decode(
        "utf-8", "surrogateescape"
    )


def state_surrogate(call: str, occurrence: int, turn: int) -> str:
    """Return the surrogate of the state that an ask issued.

    Args:
        call: the interaction's call key as text.
        occurrence: which interaction with this call key, from 1.
        turn: the ask's turn, from 1; 0 for a state that no recorded ask issued.
    """
    return f"mrtr-state:{sha256_of(call)[:16]}:{occurrence}:{turn}"


def occurrence_in(surrogate: str) -> int | None:
    """Return which interaction with its call key a surrogate stands in; None for another text."""
    match = STATE_SURROGATE.fullmatch(surrogate)
    return None if match is None else int(match["occurrence"])


def session_surrogate(number: int) -> str:
    """Return the surrogate of the `number`th session id, from 1."""
    return f"mrtr-session:{number}"
