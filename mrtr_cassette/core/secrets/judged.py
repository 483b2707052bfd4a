"""Judge values in JSON and in other text by the names beside them: which are secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from mrtr_cassette.core.secrets.decode import (
    end_of_json_string,
    unescaped_json,
    utf8_text_of_latin1,
    without_percent,
)
from mrtr_cassette.core.secrets.harmless import (
    index_among_assigned_names,
    is_among_settings,
    is_code_or_no_value,
    is_code_value,
    is_dummy_or_hidden,
    is_harmless,
    is_harmless_after_scheme,
    is_plain_setting,
    is_ternary_branch,
    may_be_real_value,
    texts_in_sql_rows,
)
from mrtr_cassette.core.secrets.names import ref_of, rule_of_number
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    ActiveRules,
    SecretName,
    folded_name,
    is_strong,
    may_be_base64,
)
from mrtr_cassette.core.secrets.shapes import Rule

TextKind = Literal["text", "url", "form"]


class Finding(NamedTuple):
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

_RULES_FROM_TEXT_BEFORE = ("bearer", "url-password")
"""Rules that go by the text before a secret."""


def secret_in_named_value(
    rule: str, value: str, disabled: Collection[str]
) -> Finding | None:
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

    return Finding(start, len(value), rule, secret)


class _Assignment(NamedTuple):
    """A name and a sign in a text, before a place where a value may begin.

    Attributes:
        start: where the name begins, after any quote.
        value_start: where the value begins, or other values before it.
        closing_quote: the quote after the name; empty if there is none.
        text_before: the text before the name in its line.
        is_spaced: a space is after the sign.
        has_gap: a space is on either side of the sign, as in code more than in settings.
    """

    name: SecretName
    start: int
    value_start: int
    sign: str
    closing_quote: str
    text_before: str
    is_spaced: bool
    has_gap: bool


class JudgedText:
    """A text in which findings are judged by the text around them."""

    def __init__(
        self, rules: ActiveRules, text: str, multiline_text: str, kind: TextKind
    ) -> None:
        self._rules = rules
        self._text = text
        self._text_kind = kind
        self._multiline_text = multiline_text
        self._rule_by_span: dict[tuple[int, int], str] = {}
        self._end_of_bare_value = 0

    def findings(self) -> Iterator[Finding]:
        """Yield the secrets that match shapes, and those that names tell."""
        # Patterns of tables don't count this character as a space, as JSON doesn't.
        searched_text = self._multiline_text.replace("\v", "\1")
        for rule in self._rules.likely_rules(searched_text):
            yield from self._findings_by_shape(searched_text, rule)

        if self._rules.may_have_names(searched_text):
            yield from self._secrets_after_names_and_signs(searched_text)
            yield from self._secrets_beside_names(searched_text)
            yield from self._secrets_in_sql_rows(searched_text)

    def _findings_by_shape(self, searched_text: str, rule: Rule) -> Iterator[Finding]:
        """Yield the texts that a rule's shape matches, and remember where they are."""
        for start, end in rule.secret_spans(searched_text):
            self._rule_by_span.setdefault((start, end), rule.name)
            end_of_outer_string = _END_OF_JSON.search(self._multiline_text, start, end)
            secret_end = end
            if end_of_outer_string is not None:
                secret_end = end_of_outer_string.start()

            if secret_end == start:
                continue
            if rule.name in _RULES_FROM_TEXT_BEFORE and is_dummy_or_hidden(
                self._text[start:secret_end]
            ):
                continue

            yield self._finding_at(start, secret_end, rule.name)

    def _end_of_match(self, pattern: re.Pattern[str], offset: int) -> int:
        """Return where a pattern ends that matches the empty text too."""
        match = pattern.match(self._multiline_text, offset)
        return offset if match is None else match.end()

    def _finding_at(self, start: int, end: int, rule: str = "") -> Finding:
        """Return the find at a place, with the escapes of its text undone."""
        spelled_text = self._text[start:end]
        in_url = self._is_in_url(start, end)
        if in_url:
            unescaped_text = self._without_percent_escapes(spelled_text)
        else:
            unescaped_text = unescaped_json(spelled_text)

        return Finding(
            start, end, rule, utf8_text_of_latin1(unescaped_text), in_url=in_url
        )

    def _without_percent_escapes(self, spelled_text: str) -> str:
        """Return a part of a URL or a form with its `%` escapes undone."""
        return without_percent(spelled_text, is_form=self._text_kind == "form").text

    def _is_in_url(self, start: int, end: int) -> bool:
        """Tell whether a place is inside a URL; a target or a form counts as a URL as a whole."""
        if self._text_kind != "text":
            return True

        text_before = self._multiline_text[max(0, start - _CHARS_AROUND) : start]
        scheme, _, text_after_scheme = text_before.rpartition("://")
        if not scheme[-1:].isalnum():
            return False

        rest_of_url = text_after_scheme + self._multiline_text[start:end]
        return _IN_URL.fullmatch(rest_of_url) is not None

    def _judged_name_at(
        self, start: int, end: int, *, has_spaces: bool
    ) -> tuple[SecretName | None, int]:
        """Return the rule of the name whose last part is at a place, and where it all begins."""
        name_chars = _NAME_CHARS
        if has_spaces:
            name_chars += " "

        text_before = self._multiline_text[max(0, start - _LONGEST_NAME) : start]
        text_before_name = text_before.rstrip(name_chars)
        start -= len(text_before[len(text_before_name) :].lstrip(" "))
        spelled_name = self._multiline_text[start:end].rpartition(".")[2]
        if not spelled_name.isascii() or "\\" in spelled_name:
            spelled_name = utf8_text_of_latin1(unescaped_json(spelled_name))

        return self._rules.judge_name(spelled_name), start

    # A name, a sign and a value

    def _secrets_after_names_and_signs(self, searched_text: str) -> Iterator[Finding]:
        """Yield the secrets that follow a name and a sign, in JSON and in other text."""
        multiline_text = self._multiline_text
        searched_to = 0
        for stem, name_end, quote_end, value_start in self._rules.names_before_signs(
            searched_text
        ):
            closing_quote = multiline_text[name_end:quote_end]
            name, name_start = self._judged_name_at(
                stem, name_end, has_spaces=bool(closing_quote)
            )
            if name_start < searched_to or name is None:
                continue

            opening_quote_start = name_start - len(closing_quote)
            if closing_quote and is_ternary_branch(
                self._line_before(opening_quote_start)
            ):
                continue

            opening_quote = multiline_text[max(0, opening_quote_start) : name_start]
            is_member = closing_quote[-1:] == '"' and opening_quote == closing_quote
            char_before = multiline_text[opening_quote_start - 1 : opening_quote_start]
            is_escaped = char_before == "\\"
            if is_member and not is_escaped:
                findings = self._secrets_of_member(
                    name, name_start, value_start, len(closing_quote) - 1
                )
            else:
                findings = self._secret_of_assignment(
                    name, name_start, name_end, value_start, closing_quote
                )

            for finding in findings:
                yield finding
                searched_to = max(searched_to, finding.end)

    def _secrets_of_member(
        self, name: SecretName, name_start: int, value_start: int, backslashes: int
    ) -> Iterator[Finding]:
        """Yield the secrets in the value of a member, whose quotes have so many backslashes."""
        value = self._value_of_member(value_start, backslashes)
        if value is not None:
            yield from self._member_value_if_secret(name, value, name_start)
            return

        value_start = self._end_of_match(_SPACES_AND_COMMAS, value_start)
        if not self._multiline_text.startswith("[", value_start):
            return
        if _IN_SCHEMA_MEMBER.search(
            self._multiline_text, max(0, name_start - _CHARS_AROUND), name_start
        ):
            return

        item = self._string_or_number_at(
            self._end_of_match(_SPACES_AND_COMMAS, value_start + 1), backslashes
        )
        while item is not None:
            end = item.end
            if not item.quote:
                end += backslashes + 1
                yield from self._member_value_if_secret(name, item, None)

            item = self._string_or_number_at(
                self._end_of_match(_SPACES_AND_COMMAS, end), backslashes
            )

    def _string_or_number_at(self, offset: int, backslashes: int) -> Finding | None:
        """Return the number at an offset, or the string whose quotes have so many backslashes."""
        quote = "\\" * backslashes + '"'
        number = _NUMBER.match(self._multiline_text, offset)
        if number is not None:
            start, end = number.span(1)
            return Finding(start, end, rule="", plain=number[1], quote=quote)

        opening_quote = _OPENING_QUOTE.match(self._multiline_text, offset)
        if opening_quote is None or opening_quote[1] != quote:
            return None

        start = opening_quote.end()
        end = end_of_json_string(self._text, start, backslashes)
        unescaped_text = unescaped_json(
            self._text[start:end], (backslashes + 1).bit_length()
        )

        return Finding(start, end, "", utf8_text_of_latin1(unescaped_text))

    def _value_of_member(self, offset: int, backslashes: int) -> Finding | None:
        """Return a scalar, or that of an object: its `value`, or an answer in its only field."""
        scalar = self._string_or_number_at(offset, backslashes)
        if scalar is not None:
            return scalar

        offset = self._end_of_match(_SPACES_AND_COMMAS, offset)
        value_member = _VALUE_IN_OBJECT.match(self._multiline_text, offset)
        if value_member is not None and len(value_member[2]) == backslashes:
            return self._string_or_number_at(value_member.end(), backslashes)

        if value_member is not None:
            return None

        only_field = _ONLY_FIELD.match(self._multiline_text, offset)
        if only_field is None or len(only_field[2]) != backslashes:
            return None

        value = self._string_or_number_at(only_field.end(), backslashes)
        if value is None or not _END_OF_OBJECT.match(self._multiline_text, value.end):
            return None

        return value

    def _member_value_if_secret(
        self, name: SecretName, value: Finding, name_start: int | None
    ) -> Iterator[Finding]:
        """Yield a value of JSON if its name and the members beside it say that it is a secret.

        `name_start` is the place of the name; an item of an array has nothing beside it.
        """
        # A number may be a status, a size or a count.
        is_count = bool(value.quote) and not name.takes_numbers
        is_secret = name.is_secret_alone(value.plain) and not is_count
        if not is_secret and name_start is not None and name.may_be_secret(value.plain):
            member_names = self._member_names_around(name_start, value.end)
            if not is_count:
                is_secret = name.value_check_beside(member_names)(value.plain)
            elif not name.companions.isdisjoint(member_names):
                is_secret = name.is_secret_beside(value.plain)

        if is_secret:
            yield from self._secret_part_of_value(name, value)

    def _member_names_around(self, start: int, end: int) -> set[str]:
        """Return the folded names of the members of an object beside one of them."""
        text_before = self._multiline_text[max(0, start - _CHARS_AROUND) : start]
        text_after = self._multiline_text[end : end + _CHARS_AROUND]
        text_around = f"{text_before}\0{text_after}"
        removed_count = 1
        while removed_count:
            text_around, removed_count = _INNER_OBJECT.subn("", text_around)

        object_text = _OBJECT_AROUND.search(text_around)[0]  # type: ignore[index]
        return set(map(folded_name, _MEMBER_NAME.findall(object_text)))

    def _secret_part_of_value(
        self, name: SecretName, value: Finding
    ) -> Iterator[Finding]:
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

        yield Finding(
            start, value.end, rule, secret_part.plain, value.quote, value.in_url
        )

    def _secret_of_assignment(
        self,
        name: SecretName,
        name_start: int,
        name_end: int,
        value_start: int,
        closing_quote: str,
    ) -> Iterator[Finding]:
        """Yield the secret that is the value of a name before a sign, in other text than JSON."""
        multiline_text = self._multiline_text
        sign = multiline_text[value_start - 1]
        if multiline_text.startswith("=>", value_start - 2):
            sign = "=>"

        is_parameter = self._may_be_parameter(name_start)
        is_bare_name = sign == "=" and not closing_quote
        if is_parameter and is_bare_name and self._is_in_url(name_start, name_start):
            yield from self._secret_of_parameter(name, name_start, value_start)
            return

        is_spaced = multiline_text[value_start : value_start + 1] in {" ", "\t"}
        assignment = _Assignment(
            name=name,
            start=name_start,
            value_start=self._end_of_match(_SPACES_OF_LINE, value_start),
            sign=sign,
            closing_quote=closing_quote,
            text_before=self._line_before(name_start - len(closing_quote)),
            is_spaced=is_spaced,
            has_gap=is_spaced
            or name_end + len(closing_quote) < value_start - len(sign),
        )

        value = self._value_of_whole_line(assignment) or self._value_within_line(
            assignment
        )
        if value is None or self._is_code(assignment, value):
            return

        is_secret_value = name.is_secret_alone
        if is_parameter or (sign == "=" and multiline_text.startswith("&", value.end)):
            parameters = self._parameters_around(name_start, value.end)
            is_secret_value = name.value_check_beside(parameters, is_parameter=True)

        if is_secret_value(value.plain):
            yield from self._secret_part_of_value(name, value)

    def _may_be_parameter(self, name_start: int) -> bool:
        """Tell whether the character before a name may precede a parameter of a URL or form."""
        char_before = self._multiline_text[name_start - 1 : name_start]
        if not char_before:
            return self._text_kind == "form"
        return char_before in {"?", "&", "#"}

    def _line_before(self, offset: int) -> str:
        """Return the text between the beginning of a line and an offset in it."""
        text_before = self._multiline_text[max(0, offset - _LONGEST_NAME) : offset]
        return text_before.rpartition("\n")[2]

    def _is_code(self, assignment: _Assignment, value: Finding) -> bool:
        """Tell whether the value of an assignment is code; a value in quotes is not."""
        if self._multiline_text[value.start - 1] in "\"'":
            return False

        return is_code_value(
            assignment.name,
            value.plain,
            assignment.text_before,
            assignment.sign,
            has_gap=assignment.has_gap,
        )

    def _value_within_line(self, assignment: _Assignment) -> Finding | None:
        """Return the value of an assignment within a line; None for labels and prose."""
        value_start = assignment.value_start
        if assignment.sign == "=" and assignment.has_gap:
            value_start = self._skip_values_of_other_names(
                value_start, assignment.text_before
            )

        value = self._bare_or_quoted_value_at(value_start)
        if value is None or not may_be_real_value(value.plain):
            return None

        if value.start > assignment.value_start:
            belongs_to_name = self._is_value_and_not_prose(assignment, value)
        elif assignment.is_spaced and _BARE_SECRET.match(value.plain):
            belongs_to_name = True
        else:
            belongs_to_name = assignment.sign == "=" and not assignment.has_gap

        return value if belongs_to_name else None

    def _is_value_and_not_prose(self, assignment: _Assignment, value: Finding) -> bool:
        """Tell whether a text in quotes is the value of a name, and not a label or prose."""
        if assignment.closing_quote or not re.search(r"\s", value.plain):
            return True

        is_label = assignment.name.folded in folded_name(value.plain.replace(" ", ""))
        if assignment.sign != ":" or is_label:
            return False

        return is_among_settings(self._multiline_text, assignment.start, value.end)

    def _skip_values_of_other_names(self, offset: int, text_before: str) -> int:
        """Return where the value of the last name of an assignment begins."""
        for _ in range(index_among_assigned_names(text_before)):
            other_value = _OTHER_VALUE.match(self._multiline_text, offset)
            if other_value is None:
                break

            offset = other_value.end()

        return offset

    def _secret_of_parameter(
        self, name: SecretName, name_start: int, value_start: int
    ) -> Iterator[Finding]:
        """Yield the value of a parameter of a URL or form if it is a secret."""
        multiline_text = self._multiline_text
        value_end = self._end_of_match(_PARAMETER_VALUE[self._text_kind], value_start)
        if self._text_kind == "text" and multiline_text[
            value_end : value_end + 1
        ] not in {"&", "#"}:
            # A link of Markdown ends so.
            value_end = value_start + len(
                multiline_text[value_start:value_end]
                .partition(")](")[0]
                .rstrip(_URL_END)
            )

        decoded_value = utf8_text_of_latin1(
            self._without_percent_escapes(self._text[value_start:value_end])
        )
        is_secret_value = name.value_check_beside(
            self._parameters_around(name_start, value_end), is_parameter=True
        )
        if is_secret_value(decoded_value):
            yield from self._secret_part_of_value(
                name, Finding(value_start, value_end, "", decoded_value, in_url=True)
            )

    def _parameters_around(self, start: int, end: int) -> Collection[str]:
        """Return the folded names of the parameters in the URL or form around one of them."""
        if self._text_kind != "text":
            return self._parameter_names

        text_before = self._multiline_text[max(0, start - _CHARS_AROUND) : start]
        text_after = self._multiline_text[end : end + _CHARS_AROUND]
        names: set[str] = set()
        for text in [*text_before.split()[-1:], *text_after.split()[:1]]:
            names.update(map(folded_name, _NAME_OF_PARAMETER.findall(text)))

        return names

    @cached_property
    def _parameter_names(self) -> Collection[str]:
        """The folded names of the parameters in a text that is a URL or a form."""
        return set(map(folded_name, _NAME_OF_PARAMETER.findall(self._multiline_text)))

    def _value_of_whole_line(self, assignment: _Assignment) -> Finding | None:
        """Return the value of a setting that is all of its line; None for other lines."""
        name_start = assignment.start
        text_before = self._multiline_text[max(0, name_start - 64) : name_start]
        text_before = text_before.removesuffix("export ").removesuffix("- ")
        text_before = text_before.rstrip(" \t")
        if text_before[-1:] not in '\r\n"':
            return None

        value_start = assignment.value_start
        rest_of_line = _REST_OF_LINE.match(self._multiline_text, value_start)
        if rest_of_line is None:
            return None
        if not 4 <= len(rest_of_line[0]) <= _LONGEST_VALUE or is_code_or_no_value(
            rest_of_line[0]
        ):
            return None

        value = rest_of_line[0].rstrip(",;")
        if not self._is_setting_and_not_prose(assignment, value):
            return None

        return self._finding_at(value_start, value_start + len(value))

    def _is_setting_and_not_prose(self, assignment: _Assignment, value: str) -> bool:
        """Tell whether the rest of a line is the value of a setting, and not words about it."""
        name = assignment.name
        value_start = assignment.value_start
        name_and_sign = self._multiline_text[assignment.start : value_start]
        is_in_capitals = name_and_sign.rstrip(" \t:").isupper()
        if assignment.sign == "=" or is_in_capitals or not name.is_certain:
            return True

        is_pin = name.rule == "password" and value.isdigit()
        if is_pin or is_strong(value) or may_be_base64(value):
            return True
        if not is_plain_setting(name_and_sign, value):
            return False

        return is_among_settings(
            self._multiline_text, assignment.start, value_start + len(value)
        )

    def _bare_or_quoted_value_at(self, offset: int) -> Finding | None:
        """Return the value at an offset, quoted or bare; None if it is empty or too long."""
        multiline_text = self._multiline_text
        string_prefix = _STRING_PREFIX.match(multiline_text, offset)
        if string_prefix is not None:
            offset = string_prefix.end()

        opening_quote = _OPENING_QUOTE.match(multiline_text, offset)
        if opening_quote is not None and opening_quote.start(1) == offset:
            return self._quoted_value(opening_quote)

        if offset >= self._end_of_bare_value:
            self._end_of_bare_value = self._end_of_match(_BARE_VALUE, offset)

        end = self._end_of_bare_value
        if not 0 < end - offset <= _LONGEST_VALUE:
            return None
        if not _END_OF_BARE_VALUE.match(multiline_text, end):
            return None

        return self._finding_at(offset, end)

    def _quoted_value(self, opening_quote: re.Match[str]) -> Finding | None:
        """Return the value after an opening quote; None if it is empty, too long or multiline."""
        multiline_text = self._multiline_text
        start = opening_quote.end()
        backslashes = len(opening_quote[1]) - 1
        is_single = opening_quote[1][-1] == "'"
        if is_single:
            end = self._end_of_match(_IN_SINGLE_QUOTES, start)
        else:
            end = end_of_json_string(self._text, start, backslashes)

        # The end of an outer string of JSON ends the value too.
        end_of_outer_string = _END_OF_JSON.search(multiline_text, start, end)
        if end_of_outer_string is not None:
            end = end_of_outer_string.start()
        elif is_single and multiline_text[end : end + 1] not in {"", "'"}:
            return None

        value = multiline_text[start:end]
        if not 0 < len(value) <= _LONGEST_VALUE:
            return None
        if "\n" in value or "\r" in value:
            return None
        if backslashes == 0 and _END_OF_JSON.match(
            multiline_text, opening_quote.start(1)
        ):
            return None

        return self._finding_at(start, end)

    # A name and a value side by side

    def _secrets_beside_names(self, searched_text: str) -> Iterator[Finding]:
        """Yield the secrets that have their names in a member, field or description beside them."""
        self._end_of_bare_value = 0
        for name_span, value_start, backslashes in self._rules.names_beside_values(
            searched_text
        ):
            name, name_start = self._judged_name_at(*name_span, has_spaces=False)
            distance = abs(value_start - name_start)
            if name is None or distance > _CHARS_AROUND + _LONGEST_NAME:
                continue

            if backslashes is None:
                value = self._bare_or_quoted_value_at(value_start)
            else:
                value = self._value_of_member(value_start, backslashes)

            if value is not None:
                yield from self._member_value_if_secret(name, value, name_start)

    def _secrets_in_sql_rows(self, searched_text: str) -> Iterator[Finding]:
        """Yield the secrets in the rows of SQL, whose columns have the names."""
        for start, end, rows_start in self._rules.sql_inserts_in(searched_text):
            columns = []
            for column in self._multiline_text[start:end].split(","):
                columns.append(column.strip(_AROUND_COLUMN))

            companions = set(map(folded_name, columns))
            for column_index, text_start, text_end in texts_in_sql_rows(
                self._multiline_text, rows_start
            ):
                if column_index >= len(columns):
                    continue

                name = self._rules.judge_name(columns[column_index])
                if name is None:
                    continue

                value = self._finding_at(text_start, text_end)
                value = value._replace(plain=value.plain.replace("''", "'"))
                is_secret_value = name.value_check_beside(companions)
                if may_be_real_value(value.plain) and is_secret_value(value.plain):
                    yield from self._secret_part_of_value(name, value)
