"""Judge values in JSON and in other text by the names beside them: which are secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from mrtr_cassette.core.secrets.decode import (
    as_text,
    flattened,
    string_end,
    undo_json,
    without_percent,
)
from mrtr_cassette.core.secrets.harmless import (
    counts_at_all,
    is_choice,
    is_code,
    is_harmless,
    is_harmless_after_scheme,
    is_no_setting,
    is_stand_in,
    place_in_assignment,
)
from mrtr_cassette.core.secrets.layouts import (
    is_among_settings,
    is_plain_setting,
    texts_in_rows,
)
from mrtr_cassette.core.secrets.names import ref_of, rule_of_number
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    ActiveRules,
    Mark,
    Name,
    fold,
    is_encoded,
    is_strong,
)

Kind = Literal["text", "url", "form"]


class Find(NamedTuple):
    """A secret, or a value that may be one, by its offsets in a text."""

    start: int
    end: int
    rule: str
    plain: str
    """The secret with all escapes undone."""
    quote: str = ""
    """What a placeholder needs around it, where a number of JSON stood."""
    in_url: bool = False


_WINDOW = 1024
"""Characters around a find that are looked at."""
_LONGEST_NAME = 64
_LONGEST_VALUE = 2048
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

# Values of JSON

_END_OF_JSON = re.compile(r"\\*\"\s*(?:[,:}\]]|\Z)", re.ASCII)
_OPENING = re.compile(r"\s*+(\\{0,15}[\"'])", re.ASCII)
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)", re.ASCII)
_SPACES = re.compile(r"[\s,]*+", re.ASCII)
_VALUE_IN_OBJECT = re.compile(
    r"\{(?:[^{}]{0,1024}?(?<!\\)(\\*)\"content\1\"\s*:\s*\{)?"
    r"[^{}]{0,1024}?(?<!\\)(\\*)\"value\2\"\s*:",
    re.ASCII,
)
"""Up to the value of a field, or of the field of an answer."""
_ONLY_FIELD = re.compile(
    r"\{[^{}]{0,1024}?(?<!\\)(\\*)\"action\1\"[^{}]{0,1024}?\1\"content\1\"\s*:\s*\{\s*"
    r"(\\*)\"[^\"\\{}]{1,64}\2\"\s*:",
    re.ASCII,
)
"""The same for the first field of an answer, whatever it is called."""
_END_OF_OBJECT = re.compile(r"\\*\"\s*\}", re.ASCII)
_OF_SCHEMA = re.compile(r"\"dependen(?:tRequired|cies)\\*\"\s*:\s*\{[^{}]*\Z", re.ASCII)
_NESTED = re.compile(r"\{[^{}\0]*+\}")
_IN_OBJECT = re.compile(r"[^{}]*\0[^{}]*")
_MEMBERS = re.compile(r"\"([\w-]{2,40})\\*\"\s*:", re.ASCII)

# Values in other text

_AROUND_COLUMN = " \t\r\n\"\\'`[]"

_ESCAPED = r"\\+u(?!00[01])[0-9a-fA-F]{4}|\\\\(?!\\*[\"'])"
_BARE = re.compile(rf"(?:[^\s\"'<>&;,(){{}}\[\]`|\\]|{_ESCAPED})*+", re.ASCII)
_AFTER_BARE = re.compile(r"[\s&;\"'\\]|\Z|</|<br")
_REST_OF_LINE = re.compile(
    rf"(?:[^\s\"'\\]++|{_ESCAPED})++"
    r"(?=[ \t]*(?:[\r\n]|\\*\Z|[ \t]#|\\*\"\s*(?:[,}\])]|\Z)))",
    re.ASCII,
)
_BARE_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?!.*://|[./~]).{8}")
"""What may be one behind a colon, or in a sentence."""
_IN_SINGLE_QUOTES = re.compile(rf"[^'\r\n]{{0,{_LONGEST_VALUE}}}")
_OTHER_VALUE = re.compile(r"(?:(\\*[\"'])[^\"'\r\n\\]{0,128}\1|[\w.]{1,64}),[ \t]*+")
_PREFIX = re.compile(r"[bBrRuUfF]{1,2}(?=\\{0,15}[\"'])")
_SPACES_OF_LINE = re.compile(r"[ \t]*+")
_URL_CHARS = r"[^\s\"'<>\\^`{|}]"
_IN_URL = re.compile(rf"{_URL_CHARS}*+", re.ASCII)
_PARAMETER = {
    "text": re.compile(r"[^&#\s\"'<>\\^`{|}]*", re.ASCII),
    "url": re.compile(r"[^&#]*"),
    "form": re.compile(r"[^&]*"),
}
_URL_END = ".,;:!?)]"
_PARAMETERS = re.compile(r"(?:\A|[?&#\"'])([\w-]{2,40})=", re.ASCII)

_SCHEME = re.compile(
    r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate|ssws)[ \t]+(?=\S)"
)
_HIDDEN = re.compile(r"[*.\u2022\u2026]*")
"""What hides a value."""

_BY_PLACE = ("bearer", "url-password")
"""Rules that go by what stands before a secret."""


def in_named(rule: str, value: str, disabled: Collection[str]) -> Find | None:
    """Return what is secret in a value that its name makes one; a credential's scheme stays."""
    start = 0
    if rule == "authorization" and (scheme := _SCHEME.match(value)):
        start, named = scheme.end(), scheme[1].lower()
        if named in ("basic", "bearer") and named not in disabled:
            rule = named
    secret = value[start:]
    if (
        ref_of(secret)
        or _HIDDEN.fullmatch(secret)
        or (start and is_harmless_after_scheme(secret))
    ):
        return None
    return Find(start, len(value), rule, secret)


class JudgedText:
    """A text in which the finds of RE2 are judged by the text around them."""

    def __init__(self, rules: ActiveRules, text: str, kind: Kind) -> None:
        self._rules = rules
        self._text = text
        self._kind = kind
        self._flat = flattened(text)
        self._shapes: dict[tuple[int, int], str] = {}
        self._bare_end = 0

    def finds(self, marks: Collection[int]) -> Iterator[Find]:
        """Yield the secrets, in so far as the marks say that there may be any."""
        flat = self._flat.encode("latin-1")
        for rule in self._rules.likely(marks):
            for start, end in rule.spans(flat):
                self._shapes.setdefault((start, end), rule.name)
                outer = _END_OF_JSON.search(self._flat, start, end)
                stop = end if outer is None else outer.start()
                is_stood_in = rule.name in _BY_PLACE and is_stand_in(
                    self._text[start:stop]
                )
                if stop > start and not is_stood_in:
                    yield self._found(start, stop, rule.name)
        if Mark.NAME in marks:
            yield from self._given_by_sign(flat)
            yield from self._given_beside(flat)
            yield from self._given_in_rows(flat)

    def _after(self, pattern: re.Pattern[str], at: int) -> int:
        """Return where a pattern ends that matches the empty text too."""
        match = pattern.match(self._flat, at)
        return at if match is None else match.end()

    def _found(self, start: int, end: int, rule: str = "") -> Find:
        spelled = self._text[start:end]
        in_url = self._is_in_url(start, end)
        if in_url:
            plain = self._undone(spelled)
        else:
            plain = undo_json(spelled)
        return Find(start, end, rule, as_text(plain), in_url=in_url)

    def _undone(self, spelled: str) -> str:
        return without_percent(spelled, is_form=self._kind == "form").text

    def _is_in_url(self, start: int, end: int) -> bool:
        if self._kind != "text":
            return True
        before = self._flat[max(0, start - _WINDOW) : start]
        scheme, _, rest = before.rpartition("://")
        if not scheme[-1:].isalnum():
            return False
        return _IN_URL.fullmatch(rest + self._flat[start:end]) is not None

    def _name_at(
        self, start: int, end: int, *, has_spaces: bool
    ) -> tuple[Name | None, int]:
        chars = _NAME_CHARS
        if has_spaces:
            chars += " "
        chunk = self._flat[max(0, start - _LONGEST_NAME) : start]
        before = chunk.rstrip(chars)
        start -= len(chunk[len(before) :].lstrip(" "))
        spelled = self._flat[start:end].rpartition(".")[2]
        if not spelled.isascii() or "\\" in spelled:
            spelled = as_text(undo_json(spelled))
        return self._rules.name(spelled), start

    # A name, a sign and a value

    def _given_by_sign(self, raw: bytes) -> Iterator[Find]:
        flat = self._flat
        at = 0
        for match in self._rules.named.finditer(raw):
            start, end = match.span(1)
            closing = flat[slice(*match.span(2))]
            name, start = self._name_at(start, end, has_spaces=bool(closing))
            if start < at or name is None:
                continue
            quoted_at = start - len(closing)
            if closing and is_choice(self._line_before(quoted_at)):
                continue
            opening = flat[max(0, quoted_at) : start]
            is_member = closing[-1:] == '"' and opening == closing
            is_escaped = flat[quoted_at - 1 : quoted_at] == "\\"
            if is_member and not is_escaped:
                found = self._member(name, start, match.end(), len(closing) - 1)
            else:
                found = self._assigned(name, start, end, match.end(), closing)
            for find in found:
                yield find
                at = max(at, find.end)

    def _member(self, name: Name, start: int, at: int, depth: int) -> Iterator[Find]:
        value = self._scalar(at, depth) or self._scalar_in_object(at, depth)
        if value is not None:
            yield from self._decided(name, value, start)
            return
        at = self._after(_SPACES, at)
        if not self._flat.startswith("[", at):
            return
        if _OF_SCHEMA.search(self._flat, max(0, start - _WINDOW), start):
            return
        item = self._scalar(self._after(_SPACES, at + 1), depth)
        while item is not None:
            end = item.end
            if not item.quote:
                end += depth + 1
                yield from self._decided(name, item, None)
            item = self._scalar(self._after(_SPACES, end), depth)

    def _scalar(self, at: int, depth: int) -> Find | None:
        quote = "\\" * depth + '"'
        number = _NUMBER.match(self._flat, at)
        if number is not None:
            return Find(*number.span(1), "", number[1], quote)
        opened = _OPENING.match(self._flat, at)
        if opened is None or opened[1] != quote:
            return None
        start = opened.end()
        end = string_end(self._text, start, depth)
        plain = undo_json(self._text[start:end], (depth + 1).bit_length())
        return Find(start, end, "", as_text(plain))

    def _scalar_in_object(self, at: int, depth: int) -> Find | None:
        """Return the value that an object has as its `value`, or an answer in its only field."""
        at = self._after(_SPACES, at)
        inner = _VALUE_IN_OBJECT.match(self._flat, at)
        if inner is not None and len(inner[2]) == depth:
            return self._scalar(inner.end(), depth)
        field = _ONLY_FIELD.match(self._flat, at)
        if inner is not None or field is None or len(field[2]) != depth:
            return None
        value = self._scalar(field.end(), depth)
        if value is None or not _END_OF_OBJECT.match(self._flat, value.end):
            return None
        return value

    def _decided(self, name: Name, value: Find, start: int | None) -> Iterator[Find]:
        """Yield a value of JSON if its name and the members beside it say that it is a secret.

        `start` is the place of the name; an item of an array has nothing beside it.
        """
        # A number may be a status, a size or a count.
        is_count = bool(value.quote) and not name.takes_numbers
        is_secret = name.alone(value.plain) and not is_count
        if not is_secret and start is not None and name.may_be(value.plain):
            members = self._members_around(start, value.end)
            if not is_count:
                is_secret = name.among(members)(value.plain)
            elif not name.companions.isdisjoint(members):
                is_secret = name.beside(value.plain)
        if is_secret:
            yield from self._secret(name, value)

    def _members_around(self, start: int, end: int) -> set[str]:
        """Return the folded names of the members of an object beside one of them."""
        flat = self._flat
        around = f"{flat[max(0, start - _WINDOW) : start]}\0{flat[end : end + _WINDOW]}"
        while (fewer := _NESTED.sub("", around)) != around:
            around = fewer
        return set(map(fold, _MEMBERS.findall(_IN_OBJECT.search(around)[0])))  # type: ignore[index]

    def _secret(self, name: Name, value: Find) -> Iterator[Find]:
        is_custom = name.rule == CUSTOM_KEY
        if not value.plain or (not is_custom and is_harmless(name, value.plain)):
            return
        named = in_named(name.rule, value.plain, self._rules.disabled)
        if named is None:
            return
        start = value.start + named.start
        rule = named.rule
        if rule != CUSTOM_KEY:
            # The same secret has the same placeholder under a name and in other text.
            rule = self._shapes.get((start, value.end), rule)
        if value.quote:
            rule = rule_of_number(rule)
        yield Find(start, value.end, rule, named.plain, value.quote, value.in_url)

    def _assigned(
        self, name: Name, start: int, end: int, at: int, closing: str
    ) -> Iterator[Find]:
        flat = self._flat
        sign = flat[at - 1]
        if flat.startswith("=>", at - 2):
            sign = "=>"
        before = flat[start - 1 : start]
        is_parameter = before in {"?", "&", "#"} or (
            self._kind == "form" and not before
        )
        is_bare_name = sign == "=" and not closing
        if is_parameter and is_bare_name and self._is_in_url(start, start):
            yield from self._parameter(name, start, at)
            return
        is_spaced = flat[at : at + 1] in {" ", "\t"}
        has_gap = is_spaced or end + len(closing) < at - len(sign)
        at = self._after(_SPACES_OF_LINE, at)
        line = self._line_before(start - len(closing))
        value = self._on_line_of_its_own(name, start, at, sign)
        if value is None:
            if sign == "=" and has_gap:
                value = self._value_after(self._past_others(at, line))
            else:
                value = self._value_after(at)
            if value is None or not counts_at_all(value.plain):
                return
            if value.start > at:
                is_meant = bool(closing) or self._is_text_meant(
                    name, start, value, sign
                )
            else:
                is_random = is_spaced and _BARE_SECRET.match(value.plain) is not None
                is_meant = is_random or (sign == "=" and not has_gap)
            if not is_meant:
                return
        is_bare = flat[value.start - 1] not in "\"'"
        if is_bare and is_code(name, value.plain, line, sign, has_gap=has_gap):
            return
        counts = name.alone
        if is_parameter or (sign == "=" and flat.startswith("&", value.end)):
            others = self._parameters_around(start, value.end)
            counts = name.among(others, is_parameter=True)
        if counts(value.plain):
            yield from self._secret(name, value)

    def _is_text_meant(self, name: Name, start: int, value: Find, sign: str) -> bool:
        """Tell whether a text in quotes is the value of a name, and not a label or prose."""
        if not re.search(r"\s", value.plain):
            return True
        is_label = name.folded in fold(value.plain.replace(" ", ""))
        if sign != ":" or is_label:
            return False
        return is_among_settings(self._flat, start, value.end)

    def _line_before(self, start: int) -> str:
        return self._flat[max(0, start - _LONGEST_NAME) : start].rpartition("\n")[2]

    def _past_others(self, at: int, line: str) -> int:
        """Return where the value of the last name of an assignment begins."""
        for _ in range(place_in_assignment(line)):
            passed = _OTHER_VALUE.match(self._flat, at)
            if passed is None:
                break
            at = passed.end()
        return at

    def _parameter(self, name: Name, start: int, at: int) -> Iterator[Find]:
        flat = self._flat
        end = self._after(_PARAMETER[self._kind], at)
        if self._kind == "text" and flat[end : end + 1] not in {"&", "#"}:
            # A link of Markdown ends so.
            end = at + len(flat[at:end].partition(")](")[0].rstrip(_URL_END))
        plain = as_text(self._undone(self._text[at:end]))
        counts = name.among(self._parameters_around(start, end), is_parameter=True)
        if counts(plain):
            yield from self._secret(name, Find(at, end, "", plain, in_url=True))

    def _parameters_around(self, start: int, end: int) -> Collection[str]:
        """Return the folded names of the parameters in the URL or form around one of them."""
        if self._kind != "text":
            return self._parameters
        flat = self._flat
        around = flat[max(0, start - _WINDOW) : start].split()[-1:]
        around += flat[end : end + _WINDOW].split()[:1]
        names: set[str] = set()
        for text in around:
            names.update(map(fold, _PARAMETERS.findall(text)))
        return names

    @cached_property
    def _parameters(self) -> Collection[str]:
        return set(map(fold, _PARAMETERS.findall(self._flat)))

    def _on_line_of_its_own(
        self, name: Name, start: int, at: int, sign: str
    ) -> Find | None:
        before = (
            self._flat[max(0, start - 64) : start]
            .removesuffix("export ")
            .removesuffix("- ")
        )
        if before.rstrip(" \t")[-1:] not in '\r\n"':
            return None
        match = _REST_OF_LINE.match(self._flat, at)
        if match is None:
            return None
        given = match[0]
        if not 4 <= len(given) <= _LONGEST_VALUE or is_no_setting(given):
            return None
        given = given.rstrip(",;")
        is_setting = sign == "=" or self._flat[start:at].rstrip(" \t:").isupper()
        is_pin = name.rule == "password" and given.isdigit()
        end = at + len(given)
        is_meant = is_setting or not name.is_certain or is_pin
        if is_meant or is_strong(given) or is_encoded(given):
            return self._found(at, end)
        is_plain = is_plain_setting(self._flat[start:at], given)
        if is_plain and is_among_settings(self._flat, start, end):
            return self._found(at, end)
        return None

    def _value_after(self, at: int) -> Find | None:
        flat = self._flat
        prefix = _PREFIX.match(flat, at)
        if prefix is not None:
            at = prefix.end()
        opened = _OPENING.match(flat, at)
        if opened is not None and opened.start(1) == at:
            return self._quoted(opened)
        if at >= self._bare_end:
            self._bare_end = self._after(_BARE, at)
        end = self._bare_end
        if not 0 < end - at <= _LONGEST_VALUE or not _AFTER_BARE.match(flat, end):
            return None
        return self._found(at, end)

    def _quoted(self, opened: re.Match[str]) -> Find | None:
        flat = self._flat
        start = opened.end()
        depth = len(opened[1]) - 1
        is_single = opened[1][-1] == "'"
        if is_single:
            end = self._after(_IN_SINGLE_QUOTES, start)
        else:
            end = string_end(self._text, start, depth)
        # The end of an outer string of JSON ends the value too.
        outer = _END_OF_JSON.search(flat, start, end)
        if outer is not None:
            end = outer.start()
        elif is_single and flat[end : end + 1] not in {"", "'"}:
            return None
        value = flat[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE or "\n" in value or "\r" in value:
            return None
        if depth == 0 and _END_OF_JSON.match(flat, opened.start(1)):
            return None
        return self._found(start, end)

    # A name and a value side by side

    def _given_beside(self, raw: bytes) -> Iterator[Find]:
        self._bare_end = 0
        for span, at, depth in self._rules.beside_in(raw):
            name, start = self._name_at(*span, has_spaces=False)
            if name is None or abs(at - start) > _WINDOW + _LONGEST_NAME:
                continue
            if depth is None:
                value = self._value_after(at)
            else:
                value = self._scalar(at, depth) or self._scalar_in_object(at, depth)
            if value is not None:
                yield from self._decided(name, value, start)

    def _given_in_rows(self, raw: bytes) -> Iterator[Find]:
        for start, end, at in self._rules.inserts_in(raw):
            columns = [
                column.strip(_AROUND_COLUMN)
                for column in self._flat[start:end].split(",")
            ]
            companions = set(map(fold, columns))
            for place, first, last in texts_in_rows(self._flat, at):
                name = None
                if place < len(columns):
                    name = self._rules.name(columns[place])
                value = self._found(first, last)
                value = value._replace(plain=value.plain.replace("''", "'"))
                if name is None or not counts_at_all(value.plain):
                    continue
                if name.among(companions)(value.plain):
                    yield from self._secret(name, value)
