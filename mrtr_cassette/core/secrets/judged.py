"""Judge values in JSON and in other text by the names beside them: which are secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from mrtr_cassette.core.secrets.decode import (
    as_text,
    string_end,
    undo_json,
    without_percent,
)
from mrtr_cassette.core.secrets.harmless import (
    counts_at_all,
    is_among_settings,
    is_choice,
    is_code,
    is_harmless,
    is_harmless_after_scheme,
    is_no_setting,
    is_plain_setting,
    is_stand_in,
    place_in_assignment,
    texts_in_rows,
)
from mrtr_cassette.core.secrets.names import ref_of, rule_of_number
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    ActiveRules,
    Name,
    folded_name,
    is_encoded,
    is_strong,
)
from mrtr_cassette.core.secrets.shapes import Rule

TextKind = Literal["text", "url", "form"]


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


_CHARS_AROUND = 1024
"""Characters around a find that are looked at."""

_LONGEST_NAME = 64
_LONGEST_VALUE = 2048
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

# Values of JSON

_END_OF_JSON = re.compile(r"\\*\"\s*(?:[,:}\]]|\Z)", re.ASCII)
_OPENING_QUOTE = re.compile(r"\s*+(\\{0,15}[\"'])", re.ASCII)
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)", re.ASCII)
_SPACES_AND_COMMAS = re.compile(r"[\s,]*+", re.ASCII)
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
_IN_SCHEMA_MEMBER = re.compile(
    r"\"dependen(?:tRequired|cies)\\*\"\s*:\s*\{[^{}]*\Z", re.ASCII
)
_INNER_OBJECT = re.compile(r"\{[^{}\0]*+\}")
_OBJECT_AROUND = re.compile(r"[^{}]*\0[^{}]*")
_MEMBER_NAME = re.compile(r"\"([\w-]{2,40})\\*\"\s*:", re.ASCII)

# Values in other text

_AROUND_COLUMN = " \t\r\n\"\\'`[]"

_ESCAPED = r"\\+u(?!00[01])[0-9a-fA-F]{4}|\\\\(?!\\*[\"'])"
_BARE_VALUE = re.compile(rf"(?:[^\s\"'<>&;,(){{}}\[\]`|\\]|{_ESCAPED})*+", re.ASCII)
_END_OF_BARE_VALUE = re.compile(r"[\s&;\"'\\]|\Z|</|<br")
_REST_OF_LINE = re.compile(
    rf"(?:[^\s\"'\\]++|{_ESCAPED})++"
    r"(?=[ \t]*(?:[\r\n]|\\*\Z|[ \t]#|\\*\"\s*(?:[,}\])]|\Z)))",
    re.ASCII,
)
_BARE_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?!.*://|[./~]).{8}")
"""A value that may be a secret behind a colon, or in a sentence."""

_IN_SINGLE_QUOTES = re.compile(rf"[^'\r\n]{{0,{_LONGEST_VALUE}}}")
_OTHER_VALUE = re.compile(r"(?:(\\*[\"'])[^\"'\r\n\\]{0,128}\1|[\w.]{1,64}),[ \t]*+")
_STRING_PREFIX = re.compile(r"[bBrRuUfF]{1,2}(?=\\{0,15}[\"'])")
_SPACES_OF_LINE = re.compile(r"[ \t]*+")
_URL_CHARS = r"[^\s\"'<>\\^`{|}]"
_IN_URL = re.compile(rf"{_URL_CHARS}*+", re.ASCII)
_PARAMETER_VALUE = {
    "text": re.compile(r"[^&#\s\"'<>\\^`{|}]*", re.ASCII),
    "url": re.compile(r"[^&#]*"),
    "form": re.compile(r"[^&]*"),
}
_URL_END = ".,;:!?)]"
_NAME_OF_PARAMETER = re.compile(r"(?:\A|[?&#\"'])([\w-]{2,40})=", re.ASCII)

_AUTH_SCHEME = re.compile(
    r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate|ssws)[ \t]+(?=\S)"
)
_HIDDEN_VALUE = re.compile(r"[*.\u2022\u2026]*")
"""A text that hides a value."""

_RULES_BY_PLACE = ("bearer", "url-password")
"""Rules that go by the text before a secret."""


def secret_in_named_value(
    rule: str, value: str, disabled: Collection[str]
) -> Find | None:
    """Return the secret part of a value that its name makes one: without the scheme, if any."""
    start = 0
    scheme = _AUTH_SCHEME.match(value) if rule == "authorization" else None
    if scheme is not None:
        start = scheme.end()
        name = scheme[1].lower()
        if name in ("basic", "bearer") and name not in disabled:
            rule = name

    secret = value[start:]
    if ref_of(secret) or _HIDDEN_VALUE.fullmatch(secret):
        return None
    if start and is_harmless_after_scheme(secret):
        return None

    return Find(start, len(value), rule, secret)


class _Assignment(NamedTuple):
    """A name and a sign in a text, before a place where a value may begin.

    Attributes:
        start: where the name begins, after any quote.
        value_at: where the value begins, or other values before it.
        closing: the quote after the name; empty if there is none.
        line: the text before the name in its line.
        is_spaced: a space is after the sign.
        has_gap: a space is on either side of the sign, as in code more than in settings.
    """

    name: Name
    start: int
    value_at: int
    sign: str
    closing: str
    line: str
    is_spaced: bool
    has_gap: bool


class JudgedText:
    """A text in which finds are judged by the text around them."""

    def __init__(
        self, rules: ActiveRules, text: str, flat: str, kind: TextKind
    ) -> None:
        self._rules = rules
        self._text = text
        self._text_kind = kind
        self._flat_text = flat
        self._rule_by_span: dict[tuple[int, int], str] = {}
        self._bare_end = 0

    def finds(self) -> Iterator[Find]:
        """Yield the secrets that match shapes, and those that names tell."""
        # Patterns of tables don't count this character as a space, as JSON doesn't.
        searched = self._flat_text.replace("\v", "\1")
        for rule in self._rules.likely_rules(searched):
            yield from self._finds_by_shape(searched, rule)

        if self._rules.may_name(searched):
            yield from self._secrets_by_sign(searched)
            yield from self._secrets_beside_names(searched)
            yield from self._secrets_in_rows(searched)

    def _finds_by_shape(self, searched: str, rule: Rule) -> Iterator[Find]:
        """Yield the texts that a rule's shape matches, and remember where they are."""
        for start, end in rule.spans(searched):
            self._rule_by_span.setdefault((start, end), rule.name)
            outer = _END_OF_JSON.search(self._flat_text, start, end)
            stop = end if outer is None else outer.start()
            if stop == start:
                continue
            if rule.name in _RULES_BY_PLACE and is_stand_in(self._text[start:stop]):
                continue

            yield self._find_at(start, stop, rule.name)

    def _end_of_match(self, pattern: re.Pattern[str], at: int) -> int:
        """Return where a pattern ends that matches the empty text too."""
        match = pattern.match(self._flat_text, at)
        return at if match is None else match.end()

    def _find_at(self, start: int, end: int, rule: str = "") -> Find:
        """Return the find at a place, with the escapes of its text undone."""
        spelled = self._text[start:end]
        in_url = self._is_in_url(start, end)
        if in_url:
            plain = self._without_percent_escapes(spelled)
        else:
            plain = undo_json(spelled)

        return Find(start, end, rule, as_text(plain), in_url=in_url)

    def _without_percent_escapes(self, spelled: str) -> str:
        """Return a part of a URL or a form with its `%` escapes undone."""
        return without_percent(spelled, is_form=self._text_kind == "form").text

    def _is_in_url(self, start: int, end: int) -> bool:
        """Tell whether a place is inside a URL; a target or a form counts as a URL as a whole."""
        if self._text_kind != "text":
            return True

        before = self._flat_text[max(0, start - _CHARS_AROUND) : start]
        scheme, _, rest = before.rpartition("://")
        if not scheme[-1:].isalnum():
            return False

        return _IN_URL.fullmatch(rest + self._flat_text[start:end]) is not None

    def _name_at(
        self, start: int, end: int, *, has_spaces: bool
    ) -> tuple[Name | None, int]:
        """Return the rule of the name whose last part is at a place, and where it all begins."""
        chars = _NAME_CHARS
        if has_spaces:
            chars += " "

        chunk = self._flat_text[max(0, start - _LONGEST_NAME) : start]
        before = chunk.rstrip(chars)
        start -= len(chunk[len(before) :].lstrip(" "))
        spelled = self._flat_text[start:end].rpartition(".")[2]
        if not spelled.isascii() or "\\" in spelled:
            spelled = as_text(undo_json(spelled))

        return self._rules.judge_name(spelled), start

    # A name, a sign and a value

    def _secrets_by_sign(self, searched: str) -> Iterator[Find]:
        """Yield the secrets that follow a name and a sign, in JSON and in other text."""
        flat = self._flat_text
        searched_to = 0
        for stem, end, quote_end, value_at in self._rules.names_before_signs(searched):
            closing = flat[end:quote_end]
            name, start = self._name_at(stem, end, has_spaces=bool(closing))
            if start < searched_to or name is None:
                continue

            quoted_at = start - len(closing)
            if closing and is_choice(self._line_before(quoted_at)):
                continue

            opening = flat[max(0, quoted_at) : start]
            is_member = closing[-1:] == '"' and opening == closing
            is_escaped = flat[quoted_at - 1 : quoted_at] == "\\"
            if is_member and not is_escaped:
                found = self._secrets_of_member(name, start, value_at, len(closing) - 1)
            else:
                found = self._assigned_secret(name, start, end, value_at, closing)

            for find in found:
                yield find
                searched_to = max(searched_to, find.end)

    def _secrets_of_member(
        self, name: Name, start: int, at: int, backslashes: int
    ) -> Iterator[Find]:
        """Yield the secrets in the value of a member, whose quotes have so many backslashes."""
        value = self._value_of_member(at, backslashes)
        if value is not None:
            yield from self._value_if_secret(name, value, start)
            return

        at = self._end_of_match(_SPACES_AND_COMMAS, at)
        if not self._flat_text.startswith("[", at):
            return
        if _IN_SCHEMA_MEMBER.search(
            self._flat_text, max(0, start - _CHARS_AROUND), start
        ):
            return

        item = self._scalar_at(
            self._end_of_match(_SPACES_AND_COMMAS, at + 1), backslashes
        )
        while item is not None:
            end = item.end
            if not item.quote:
                end += backslashes + 1
                yield from self._value_if_secret(name, item, None)

            item = self._scalar_at(
                self._end_of_match(_SPACES_AND_COMMAS, end), backslashes
            )

    def _scalar_at(self, at: int, backslashes: int) -> Find | None:
        """Return the number at an offset, or the string whose quotes have so many backslashes."""
        quote = "\\" * backslashes + '"'
        number = _NUMBER.match(self._flat_text, at)
        if number is not None:
            return Find(*number.span(1), "", number[1], quote)

        opened = _OPENING_QUOTE.match(self._flat_text, at)
        if opened is None or opened[1] != quote:
            return None

        start = opened.end()
        end = string_end(self._text, start, backslashes)
        plain = undo_json(self._text[start:end], (backslashes + 1).bit_length())

        return Find(start, end, "", as_text(plain))

    def _value_of_member(self, at: int, backslashes: int) -> Find | None:
        """Return a scalar, or that of an object: its `value`, or an answer in its only field."""
        scalar = self._scalar_at(at, backslashes)
        if scalar is not None:
            return scalar

        at = self._end_of_match(_SPACES_AND_COMMAS, at)
        inner = _VALUE_IN_OBJECT.match(self._flat_text, at)
        if inner is not None and len(inner[2]) == backslashes:
            return self._scalar_at(inner.end(), backslashes)

        field = _ONLY_FIELD.match(self._flat_text, at)
        if inner is not None or field is None or len(field[2]) != backslashes:
            return None

        value = self._scalar_at(field.end(), backslashes)
        if value is None or not _END_OF_OBJECT.match(self._flat_text, value.end):
            return None

        return value

    def _value_if_secret(
        self, name: Name, value: Find, start: int | None
    ) -> Iterator[Find]:
        """Yield a value of JSON if its name and the members beside it say that it is a secret.

        `start` is the place of the name; an item of an array has nothing beside it.
        """
        # A number may be a status, a size or a count.
        is_count = bool(value.quote) and not name.takes_numbers
        is_secret = name.is_secret_alone(value.plain) and not is_count
        if not is_secret and start is not None and name.may_be_secret(value.plain):
            members = self._member_names_around(start, value.end)
            if not is_count:
                is_secret = name.check_among(members)(value.plain)
            elif not name.companions.isdisjoint(members):
                is_secret = name.is_secret_beside(value.plain)

        if is_secret:
            yield from self._secret_part(name, value)

    def _member_names_around(self, start: int, end: int) -> set[str]:
        """Return the folded names of the members of an object beside one of them."""
        text_before = self._flat_text[max(0, start - _CHARS_AROUND) : start]
        text_after = self._flat_text[end : end + _CHARS_AROUND]
        text_around = f"{text_before}\0{text_after}"
        removed_count = 1
        while removed_count:
            text_around, removed_count = _INNER_OBJECT.subn("", text_around)

        object_text = _OBJECT_AROUND.search(text_around)[0]  # type: ignore[index]
        return set(map(folded_name, _MEMBER_NAME.findall(object_text)))

    def _secret_part(self, name: Name, value: Find) -> Iterator[Find]:
        """Yield the secret in a name's value, unless the value is empty, harmless or hidden."""
        is_custom = name.rule == CUSTOM_KEY
        if not value.plain or (not is_custom and is_harmless(name, value.plain)):
            return

        secret_part = secret_in_named_value(
            name.rule, value.plain, self._rules.disabled
        )
        if secret_part is None:
            return

        start = value.start + secret_part.start
        rule = secret_part.rule
        if rule != CUSTOM_KEY:
            # The same secret has the same placeholder under a name and in other text.
            rule = self._rule_by_span.get((start, value.end), rule)

        if value.quote:
            rule = rule_of_number(rule)

        yield Find(start, value.end, rule, secret_part.plain, value.quote, value.in_url)

    def _assigned_secret(
        self, name: Name, start: int, end: int, at: int, closing: str
    ) -> Iterator[Find]:
        """Yield the secret that is the value of a name before a sign, in other text than JSON."""
        flat = self._flat_text
        sign = flat[at - 1]
        if flat.startswith("=>", at - 2):
            sign = "=>"

        is_parameter = self._may_be_parameter(start)
        is_bare_name = sign == "=" and not closing
        if is_parameter and is_bare_name and self._is_in_url(start, start):
            yield from self._parameter_secret(name, start, at)
            return

        is_spaced = flat[at : at + 1] in {" ", "\t"}
        assignment = _Assignment(
            name=name,
            start=start,
            value_at=self._end_of_match(_SPACES_OF_LINE, at),
            sign=sign,
            closing=closing,
            line=self._line_before(start - len(closing)),
            is_spaced=is_spaced,
            has_gap=is_spaced or end + len(closing) < at - len(sign),
        )

        value = self._on_line_of_its_own(assignment) or self._meant_value(assignment)
        if value is None or self._is_code(assignment, value):
            return

        is_secret_value = name.is_secret_alone
        if is_parameter or (sign == "=" and flat.startswith("&", value.end)):
            parameters = self._parameters_around(start, value.end)
            is_secret_value = name.check_among(parameters, is_parameter=True)

        if is_secret_value(value.plain):
            yield from self._secret_part(name, value)

    def _may_be_parameter(self, start: int) -> bool:
        """Tell whether the character before a name may precede a parameter of a URL or form."""
        before = self._flat_text[start - 1 : start]
        if not before:
            return self._text_kind == "form"
        return before in {"?", "&", "#"}

    def _line_before(self, start: int) -> str:
        """Return the text between the beginning of a line and an offset in it."""
        before = self._flat_text[max(0, start - _LONGEST_NAME) : start]
        return before.rpartition("\n")[2]

    def _is_code(self, assignment: _Assignment, value: Find) -> bool:
        """Tell whether the value of an assignment is code; a value in quotes is not."""
        if self._flat_text[value.start - 1] in "\"'":
            return False

        return is_code(
            assignment.name,
            value.plain,
            assignment.line,
            assignment.sign,
            has_gap=assignment.has_gap,
        )

    def _meant_value(self, assignment: _Assignment) -> Find | None:
        """Return the value of an assignment within a line; None for labels and prose."""
        value_at = assignment.value_at
        if assignment.sign == "=" and assignment.has_gap:
            value_at = self._past_other_values(value_at, assignment.line)

        value = self._value_after(value_at)
        if value is None or not counts_at_all(value.plain):
            return None

        if value.start > assignment.value_at:
            is_meant = self._is_text_meant(assignment, value)
        elif assignment.is_spaced and _BARE_SECRET.match(value.plain):
            is_meant = True
        else:
            is_meant = assignment.sign == "=" and not assignment.has_gap

        return value if is_meant else None

    def _is_text_meant(self, assignment: _Assignment, value: Find) -> bool:
        """Tell whether a text in quotes is the value of a name, and not a label or prose."""
        if assignment.closing or not re.search(r"\s", value.plain):
            return True

        is_label = assignment.name.folded in folded_name(value.plain.replace(" ", ""))
        if assignment.sign != ":" or is_label:
            return False

        return is_among_settings(self._flat_text, assignment.start, value.end)

    def _past_other_values(self, at: int, line: str) -> int:
        """Return where the value of the last name of an assignment begins."""
        for _ in range(place_in_assignment(line)):
            passed = _OTHER_VALUE.match(self._flat_text, at)
            if passed is None:
                break

            at = passed.end()

        return at

    def _parameter_secret(self, name: Name, start: int, at: int) -> Iterator[Find]:
        """Yield the value of a parameter of a URL or form if it is a secret."""
        flat = self._flat_text
        end = self._end_of_match(_PARAMETER_VALUE[self._text_kind], at)
        if self._text_kind == "text" and flat[end : end + 1] not in {"&", "#"}:
            # A link of Markdown ends so.
            end = at + len(flat[at:end].partition(")](")[0].rstrip(_URL_END))

        plain = as_text(self._without_percent_escapes(self._text[at:end]))
        is_secret_value = name.check_among(
            self._parameters_around(start, end), is_parameter=True
        )
        if is_secret_value(plain):
            yield from self._secret_part(name, Find(at, end, "", plain, in_url=True))

    def _parameters_around(self, start: int, end: int) -> Collection[str]:
        """Return the folded names of the parameters in the URL or form around one of them."""
        if self._text_kind != "text":
            return self._parameter_names

        before = self._flat_text[max(0, start - _CHARS_AROUND) : start]
        after = self._flat_text[end : end + _CHARS_AROUND]
        names: set[str] = set()
        for text in [*before.split()[-1:], *after.split()[:1]]:
            names.update(map(folded_name, _NAME_OF_PARAMETER.findall(text)))

        return names

    @cached_property
    def _parameter_names(self) -> Collection[str]:
        """The folded names of the parameters in a text that is a URL or a form."""
        return set(map(folded_name, _NAME_OF_PARAMETER.findall(self._flat_text)))

    def _on_line_of_its_own(self, assignment: _Assignment) -> Find | None:
        """Return the value of a setting that is all of its line; None for other lines."""
        start = assignment.start
        before = self._flat_text[max(0, start - 64) : start]
        before = before.removesuffix("export ").removesuffix("- ").rstrip(" \t")
        if before[-1:] not in '\r\n"':
            return None

        value_at = assignment.value_at
        rest = _REST_OF_LINE.match(self._flat_text, value_at)
        if rest is None:
            return None
        if not 4 <= len(rest[0]) <= _LONGEST_VALUE or is_no_setting(rest[0]):
            return None

        value = rest[0].rstrip(",;")
        if not self._is_setting(assignment, value):
            return None

        return self._find_at(value_at, value_at + len(value))

    def _is_setting(self, assignment: _Assignment, value: str) -> bool:
        """Tell whether the rest of a line is the value of a setting, and not words about it."""
        name = assignment.name
        value_at = assignment.value_at
        spelled = self._flat_text[assignment.start : value_at]
        is_in_capitals = spelled.rstrip(" \t:").isupper()
        if assignment.sign == "=" or is_in_capitals or not name.is_certain:
            return True

        is_pin = name.rule == "password" and value.isdigit()
        if is_pin or is_strong(value) or is_encoded(value):
            return True
        if not is_plain_setting(spelled, value):
            return False

        return is_among_settings(
            self._flat_text, assignment.start, value_at + len(value)
        )

    def _value_after(self, at: int) -> Find | None:
        """Return the value at an offset, quoted or bare; None if it is empty or too long."""
        flat = self._flat_text
        prefix = _STRING_PREFIX.match(flat, at)
        if prefix is not None:
            at = prefix.end()

        opened = _OPENING_QUOTE.match(flat, at)
        if opened is not None and opened.start(1) == at:
            return self._quoted_value(opened)

        if at >= self._bare_end:
            self._bare_end = self._end_of_match(_BARE_VALUE, at)

        end = self._bare_end
        if not 0 < end - at <= _LONGEST_VALUE:
            return None
        if not _END_OF_BARE_VALUE.match(flat, end):
            return None

        return self._find_at(at, end)

    def _quoted_value(self, opened: re.Match[str]) -> Find | None:
        """Return the value after an opening quote; None if it is empty, too long or multiline."""
        flat = self._flat_text
        start = opened.end()
        backslashes = len(opened[1]) - 1
        is_single = opened[1][-1] == "'"
        if is_single:
            end = self._end_of_match(_IN_SINGLE_QUOTES, start)
        else:
            end = string_end(self._text, start, backslashes)

        # The end of an outer string of JSON ends the value too.
        outer = _END_OF_JSON.search(flat, start, end)
        if outer is not None:
            end = outer.start()
        elif is_single and flat[end : end + 1] not in {"", "'"}:
            return None

        value = flat[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE:
            return None
        if "\n" in value or "\r" in value:
            return None
        if backslashes == 0 and _END_OF_JSON.match(flat, opened.start(1)):
            return None

        return self._find_at(start, end)

    # A name and a value side by side

    def _secrets_beside_names(self, searched: str) -> Iterator[Find]:
        """Yield the secrets that have their names in a member, field or description beside them."""
        self._bare_end = 0
        for span, at, backslashes in self._rules.names_beside_values(searched):
            name, start = self._name_at(*span, has_spaces=False)
            if name is None or abs(at - start) > _CHARS_AROUND + _LONGEST_NAME:
                continue

            if backslashes is None:
                value = self._value_after(at)
            else:
                value = self._value_of_member(at, backslashes)

            if value is not None:
                yield from self._value_if_secret(name, value, start)

    def _secrets_in_rows(self, searched: str) -> Iterator[Find]:
        """Yield the secrets in the rows of SQL, whose columns have the names."""
        for start, end, rows_at in self._rules.inserts_in(searched):
            columns = []
            for column in self._flat_text[start:end].split(","):
                columns.append(column.strip(_AROUND_COLUMN))

            companions = set(map(folded_name, columns))
            for place, first, last in texts_in_rows(self._flat_text, rows_at):
                if place >= len(columns):
                    continue

                name = self._rules.judge_name(columns[place])
                if name is None:
                    continue

                value = self._find_at(first, last)
                value = value._replace(plain=value.plain.replace("''", "'"))
                is_secret_value = name.check_among(companions)
                if counts_at_all(value.plain) and is_secret_value(value.plain):
                    yield from self._secret_part(name, value)
