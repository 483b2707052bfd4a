"""Our names in texts: a cassette or a journal has one for each state, session, id and secret.

A text is cut into its bytes and the references in it, and joined again. Nothing else searches texts
for our names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import AnyStr, Final, NamedTuple

from mrtr_cassette.core.secrets.rules import PLACED_NAMES
from mrtr_cassette.core.secrets.shapes import example_of
from mrtr_cassette.core.wire.jsonbytes import Span, splice

STATE: Final = "mrtr-state"
TASK: Final = "mrtr-task"
SESSION: Final = "mrtr-session"
HASH: Final = "sha256"
"""Of a state or an id: in a journal, and in a cassette where no response issued it."""

ISSUED: Final = (STATE, TASK)
"""What the response to a call issues, and later requests send back."""

LIVE: Final = (*ISSUED, SESSION)
"""The kinds of names in whose place a live server has values of its own."""

ANSWER: Final = "mrtr-answer"

_DIGITS = "[0-9]{1,9}"
_NAME_SHAPES = (
    f"{STATE}:[0-9a-f]{{16}}:{_DIGITS}(?::{_DIGITS})?",
    f"{TASK}:[0-9a-f]{{16}}:{_DIGITS}",
    f"{SESSION}:{_DIGITS}",
    f"mrtr-event:{_DIGITS}(?::{_DIGITS})?",
    f"mrtr-elicitation:{_DIGITS}(?::{_DIGITS})?",
    f"{ANSWER}:[0-9a-f]{{64}}",
    f"{HASH}:[0-9a-f]{{64}}",
)
_PLAIN_NAME = "|".join(_NAME_SHAPES)
_NAME_IN_URL = re.sub(r"(?<!\?):", "%3A", _PLAIN_NAME)
_NAME_PATTERN = re.compile(f"{_PLAIN_NAME}|{_NAME_IN_URL}".encode())
_SIGN_OF_NUMBER = "-number"
_ANY_RULE = "|".join(
    [*sorted(map(re.escape, PLACED_NAMES), key=len, reverse=True), r"custom-\d+"]
)
_PLACEHOLDER_PATTERN = re.compile(
    # Clients that echo one may escape it: Go and .NET write `\\u003c` for `<` in JSON.
    # Each way to begin does so with a literal, which makes the search several times faster.
    rf"(<|%3[Cc]|\\\\{{0,7}}u003[cC])((?:{_ANY_RULE})(?:{_SIGN_OF_NUMBER})?)(:|%3[Aa])"
    rf"([A-Za-z0-9_.-]{{1,200}})(>|%3[Ee]|\\{{1,8}}u003[eE])".encode()
)
_PLACEHOLDER_WITHOUT_NUMBER = re.compile(
    rf"<(?:{_ANY_RULE})({_SIGN_OF_NUMBER})?>", re.ASCII
)
_JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")
_CASSETTE_TOKEN = re.compile(_DIGITS)


_NAME_SPELLING = (b"", b":", b"")
_PLACEHOLDER_SPELLING = (b"<", b":", b">")


class Ref(NamedTuple):
    """A reference in a text to what the text doesn't have itself.

    Attributes:
        kind: the first word of a name, or the rule that found a secret.
        parts: the digests and the numbers of a name, or the token of a secret.
        spelling: what it begins with, what is between its parts, and what it ends with: URLs and
            JSON may escape each.
    """

    kind: str
    parts: tuple[str, ...]
    spelling: tuple[bytes, bytes, bytes] = _NAME_SPELLING

    @property
    def is_secret(self) -> bool:
        """Whether it is a placeholder."""
        return self.spelling[0] != b""

    @property
    def in_cassette_spelling(self) -> Ref:
        """The same as a cassette spells it."""
        if self.is_secret:
            return self._replace(spelling=_PLACEHOLDER_SPELLING)
        return self._replace(spelling=_NAME_SPELLING)

    @property
    def raw(self) -> bytes:
        """The bytes in the text."""
        opening, colon, closing = self.spelling
        name = ":".join((self.kind, *self.parts)).encode()
        return opening + name.replace(b":", colon) + closing

    @property
    def name(self) -> str:
        """The name or placeholder as a cassette spells it."""
        return self.in_cassette_spelling.raw.decode()

    @property
    def token(self) -> str:
        """The part that tells a secret from others of its rule."""
        return self.parts[-1]

    def with_last_part(self, part: int | str) -> Ref:
        """Return the reference with another last number, or another token."""
        return self._replace(parts=(*self.parts[:-1], str(part)))


RefChange = Callable[[Ref], Ref | bytes | None]
"""Returns the replacement of a reference; None leaves it."""


def ref_spans(raw: bytes) -> list[tuple[Span, Ref]]:
    """Return the references in a text, in order, and where they are."""
    spans_and_refs = []
    if b"mrtr-" in raw or b"sha256" in raw:
        for match in _NAME_PATTERN.finditer(raw):
            spans_and_refs.append((Span(*match.span()), _ref_of_name(match)))

    if _may_have_secrets(raw):
        for match in _PLACEHOLDER_PATTERN.finditer(raw):
            spans_and_refs.append((Span(*match.span()), _ref_of_placeholder(match)))

    return sorted(spans_and_refs)


def _ref_of_name(match: re.Match[bytes]) -> Ref:
    """Return the reference that a match of a name is."""
    colon = b"%3A" if b"%3A" in match[0] else b":"
    kind, *parts = match[0].decode().split(colon.decode())
    return Ref(kind, tuple(parts), (b"", colon, b""))


def _ref_of_placeholder(match: re.Match[bytes]) -> Ref:
    """Return the reference that a match of a placeholder is."""
    opening, rule, colon, token, closing = match.groups()
    return Ref(rule.decode(), (token.decode(),), (opening, colon, closing))


def split_at_refs(raw: bytes) -> list[bytes | Ref]:
    """Cut a text into its references and what stands between them."""
    text: list[bytes | Ref] = []
    end = 0
    for span, ref in ref_spans(raw):
        text += (raw[end : span.start], ref)
        end = span.end

    return [*text, raw[end:]]


def as_bytes(text: AnyStr) -> bytes:
    """Return a text as bytes, which `split_at_refs` takes."""
    if isinstance(text, bytes):
        return text
    return text.encode("utf-8", "surrogatepass")


def refs_in(text: AnyStr) -> list[Ref]:
    """Return the references in a text, in order."""
    return [ref for _, ref in ref_spans(as_bytes(text))]


def secrets_in(text: AnyStr) -> list[Ref]:
    """Return the placeholders in a text, in order."""
    return [ref for ref in refs_in(text) if ref.is_secret]


def has_secrets(text: AnyStr) -> bool:
    """Tell whether a text has a placeholder."""
    raw = as_bytes(text)
    return _may_have_secrets(raw) and _PLACEHOLDER_PATTERN.search(raw) is not None


def _may_have_secrets(raw: bytes) -> bool:
    """Tell, quickly, whether a text has what a placeholder begins with, in any spelling."""
    return b"<" in raw or b"%3" in raw or b"u003" in raw


def has_kind(text: AnyStr, *kinds: str) -> bool:
    """Tell whether a text has a reference of some kinds."""
    return any(ref.kind in kinds for ref in refs_in(text))


def with_changed_refs(text: AnyStr, change: RefChange) -> AnyStr:
    """Return a text with other references, or with other bytes in their places."""
    raw = as_bytes(text)
    replacements: list[tuple[Span, bytes]] = []
    for span, ref in ref_spans(raw):
        replacement = change(ref)
        if replacement is not None:
            replacements.append(
                (span, replacement.raw if isinstance(replacement, Ref) else replacement)
            )

    if not replacements:
        return text

    changed_raw = splice(raw, replacements)
    if isinstance(text, bytes):
        return changed_raw

    return changed_raw.decode("utf-8", "surrogatepass")


def ref_of(text: str, *kinds: str) -> Ref | None:
    """Return the reference that a text is as a whole, if it is of one of the kinds, or None."""
    ref = _whole_ref(text)
    if ref is None or (kinds and ref.kind not in kinds):
        return None

    return ref


@lru_cache(maxsize=128)
def _whole_ref(text: str) -> Ref | None:
    """Return the reference that a text is as a whole, or None; a state is asked about again."""
    raw = as_bytes(text)
    name_match = _NAME_PATTERN.fullmatch(raw)
    if name_match is not None:
        return _ref_of_name(name_match)

    placeholder_match = _PLACEHOLDER_PATTERN.fullmatch(raw)
    return None if placeholder_match is None else _ref_of_placeholder(placeholder_match)


def is_name_of_kind(text: str, *kinds: str) -> bool:
    """Tell whether a text is a reference of some kinds, and nothing else."""
    return ref_of(text, *kinds) is not None


# Placeholders


def rule_of_number(rule: str) -> str:
    """Return the name of a rule in the placeholder of a number of JSON."""
    return f"{rule}{_SIGN_OF_NUMBER}"


def plain_rule(rule: str) -> str:
    """Return a rule without what a placeholder adds where it finds a number."""
    return rule.removesuffix(_SIGN_OF_NUMBER)


def placeholder(rule: str, token: str) -> str:
    """Return the placeholder of a secret; a token has letters, digits, `_`, `-` and `.`."""
    return f"<{rule}:{token}>"


def is_journal_token(token: str) -> bool:
    """Tell whether a text in a placeholder is a journal's token; any other is somebody's text."""
    return _JOURNAL_TOKEN.fullmatch(token) is not None


def is_cassette_token(token: str) -> bool:
    """Tell whether a text in a placeholder is a cassette's token."""
    return _CASSETTE_TOKEN.fullmatch(token) is not None


def renumber_secrets(
    text: AnyStr, new_number_of: Callable[[str, str], int | str | None]
) -> AnyStr:
    """Put numbers in the place of the tokens of placeholders: `<rule:TOKEN>` to `<rule:1>`."""

    def renumbered_placeholder(ref: Ref) -> Ref | None:
        """Return a placeholder with its number in place of the token; None if it stays."""
        if not ref.is_secret:
            return None

        new_token = new_number_of(ref.kind, ref.token)
        return None if new_token is None else ref.with_last_part(new_token)

    return with_changed_refs(text, renumbered_placeholder)


def without_rules(text: str) -> str:
    """Return a text without numbers in which a placeholder doesn't tell its rule either.

    It still tells whether it stands for a number.
    """
    return _PLACEHOLDER_WITHOUT_NUMBER.sub(r"<\1>", text)


def without_numbers(text: AnyStr) -> AnyStr:
    """Return a text in which a placeholder tells the rule, but not which of its secrets it is."""
    return with_changed_refs(text, placeholder_without_token)


def placeholder_without_token(ref: Ref) -> bytes | None:
    """Return a placeholder without its token."""
    if not ref.is_secret:
        return None
    return f"<{ref.kind}>".encode()


def example_in_place(ref: Ref) -> bytes | None:
    """Return a text in the place of one that was taken out to share a cassette; else None."""
    return example_of(ref.kind, ref.token)


# Hashes and names


@lru_cache(maxsize=16)
def sha256_of(state: str) -> str:
    """Return the hash by which request states are compared, as 64 hexadecimal digits."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def sealed_hash(secret: str) -> str:
    """Return the hash that takes the place of a request state or a session id in the journal."""
    return f"{HASH}:{sha256_of(secret)}"


def compared_sha256(state: str) -> str:
    """Return the hash by which a state is compared on replay; a sealed hash is compared as such."""
    ref = ref_of(state, HASH)
    return sha256_of(state) if ref is None else ref.token


def reveal_states(text: AnyStr, state_of: Callable[[str], str | None]) -> AnyStr:
    """Replace sealed hashes in JSON by states, which may be any text; one that has none stays."""

    def state_of_hash(ref: Ref) -> bytes | None:
        """Return the state that a hash stands for, escaped as in JSON; None if there is none."""
        if ref.kind != HASH:
            return None

        state = state_of(ref.token)
        if state is None:
            return None

        _, colon, _ = ref.spelling
        spelled_state = encode_basestring_ascii(state)[1:-1].encode()
        return spelled_state.replace(b":", colon)

    return with_changed_refs(text, state_of_hash)


def strip_volatile(text: str) -> str:
    """Return a text of the journal without the hashes that differ in every recording."""

    def without_volatile_part(ref: Ref) -> Ref | bytes | None:
        """Return a hash without its digits, or a journal's placeholder with 0 as its token."""
        if ref.kind == HASH:
            return HASH.encode()
        if ref.is_secret and is_journal_token(ref.token):
            return ref.with_last_part(0)
        return None

    return with_changed_refs(text, without_volatile_part)


def state_surrogate(call_sha256: str, occurrence: int, turn: int) -> str:
    """Return the surrogate of the state that an ask issued."""
    return f"{STATE}:{call_sha256[:16]}:{occurrence}:{turn}"


def id_surrogate(call_sha256: str, occurrence: int) -> str:
    """Return the surrogate of the id of the task that a call created."""
    return f"{TASK}:{call_sha256[:16]}:{occurrence}"


def occurrence_in(surrogate: str) -> int | None:
    """Return which interaction with its call key a surrogate belongs to; None for other text."""
    ref = ref_of(surrogate, *ISSUED)
    return None if ref is None else int(ref.parts[1])


def session_surrogate(number: int) -> str:
    """Return the surrogate of the `number`th session id, from 1."""
    return f"{SESSION}:{number}"


def session_number(session: str) -> int:
    """Return the number of a session that has a surrogate; 0 for any other."""
    ref = ref_of(session, SESSION)
    return 0 if ref is None else int(ref.token)


def id_replacer(names: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """Return a function that replaces ids of sessions and tasks by others, all at once.

    In a cassette that was written by hand, they may be any text.
    """
    new_by_old: dict[bytes, bytes] = {}
    for old_id, new_id in names.items():
        if not old_id or old_id == new_id:
            continue

        for colon in (b"%3A", b":"):
            old_name = old_id.encode().replace(b":", colon)
            new_by_old[old_name] = new_id.encode().replace(b":", colon)

    if not new_by_old:
        return bytes

    # One id may begin another one: that of session 1 that of session 12.
    longest_first = sorted(map(re.escape, new_by_old), key=len, reverse=True)
    pattern = re.compile(b"(?:%b)(?![0-9])" % b"|".join(longest_first))
    return lambda raw: pattern.sub(lambda match: new_by_old[match[0]], raw)
