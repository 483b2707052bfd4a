"""Finding raw request states in all that passes, and replacing them.

Owns: where states stand: under `requestState`, at any depth, and which of them are looked for
wherever else text repeats one that was issued or echoed before.
Does not own: what stands in their place (`surrogates`), finding known texts (`known`).
Rule: nothing is read as JSON that needn't be; whatever is replaced, all other bytes stay.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from mrtr_cassette.core.protocol.dialect import REQUEST_STATE
from mrtr_cassette.core.secrets.escapes import (
    Finding,
    JsonToken,
    decode_json,
    json_tokens,
    mapped_back,
)
from mrtr_cassette.core.secrets.known import KnownText, KnownTexts
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

_MEMBER = REQUEST_STATE.encode()
_ESCAPED_LETTER = re.compile(rb"\\u00(?:53|6[15]|7[1-5])")
"""An escape, which JSON doesn't need, of a letter of the member's name."""
_MEMBER_IN_TEXT = re.compile(
    rf'"{REQUEST_STATE}"\s*:\s*"(?P<state>[^"\\]*+(?:\\.[^"\\]*+)*+)', re.DOTALL
)
_PLAIN_MEMBER = re.compile(rb'"%b"[\s\x1c-\x1f]*:[\s\x1c-\x1f]*"([^"]*+)' % _MEMBER)
"""The same in ASCII without escapes, where no offset has to be worked out."""
_IS_JSON = re.compile(r'\s*+[{\["]')


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
    return _MEMBER in raw or _has_escaped_letter(raw)


def _has_escaped_letter(raw: bytes) -> bool:
    # A single byte is found much faster than a pattern.
    return b"\\" in raw and _ESCAPED_LETTER.search(raw) is not None


def find_states(raw: bytes) -> list[StatePlace]:
    """Return the strings under `requestState`, at any depth, and in JSON in a string too.

    Args:
        raw: JSON, also several texts, or one that is cut off; in other text whatever looks like a
            member of JSON counts.
    """
    if not may_have_states(raw):
        return []
    if b"\\" not in raw and raw.isascii():
        return [
            StatePlace(Span(*match.span(1)), match[1].decode(), _spell)
            for match in _PLAIN_MEMBER.finditer(raw)
        ]
    text = raw.decode("utf-8", "surrogateescape")
    places = []
    at = offset = 0
    # Otherwise a search for the name in quotes is enough: a quote within a string is escaped.
    has_layers = _MEMBER + b"\\" in raw or _has_escaped_letter(raw)
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


def _in_json(tokens: Iterable[JsonToken]) -> Iterator[Finding]:
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
    return encode_basestring_ascii(text)[1:-1]


def replaced_states(
    places: Iterable[StatePlace], new: Callable[[str], str]
) -> list[tuple[Span, bytes]]:
    """Return, for `splice`, what `new` returns for the state at each place."""
    return [(place.span, place.spell(new(place.state)).encode()) for place in places]


def seal_states(raw: bytes, new: Callable[[str], str]) -> bytes:
    """Replace each state under `requestState` by what `new` returns for it."""
    return splice(raw, replaced_states(find_states(raw), new))


class KnownState(KnownText):
    """A state that was issued or echoed."""

    def __init__(self, state: str, shown_as: str | None = None) -> None:
        """Work out what to look for.

        Args:
            state: the state.
            shown_as: the recorded state in whose place a live server issued it, and whose sealed
                hash it gets; None if it is no such state.
        """
        shown = sealed_hash(state if shown_as is None else shown_as)
        super().__init__(state, shown, is_searched=len(state) >= SHORTEST_SEARCHED)


class KnownStates(KnownTexts):
    """The last states that were issued or echoed; all that passes is searched for them."""

    def __init__(self, most: int = 256) -> None:
        """Begin without any, and remember `most` at most."""
        super().__init__(most, shortest=SHORTEST_SEARCHED)

    def remember(self, state: str, shown_as: str | None = None) -> None:
        """Search for a state from now on.

        Args:
            state: the state.
            shown_as: the recorded state in whose place a live server issued it.
        """
        if state not in self:
            self.add(KnownState(state, shown_as))
