"""Tell harmless values from secrets, by their own text and by the layout around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mrtr_cassette.core.secrets.rules import (
    VARIABLE_REFERENCE,
    SecretName,
    folded_name,
    looks_random,
)

_NO_VALUE = re.compile(
    r"(?i)(?:bearer|basic|token|digest|negotiate|none|null|nil|true|false|undefined|required"
    r"|optional|string|str|u?int[0-9]*|utf-?8|sha-?[0-9]+|base64|argon2\w*|\W*)",
    re.ASCII,
)
_TEMPLATE_BEGINS = re.compile(rf"{VARIABLE_REFERENCE}|<|\{{\{{|%[({{]|\*\*\*|\.\*")
_CODE_TEXT = re.compile(
    r"\A[|>&*!{\[(]|\\|[;,&]\w+="
    # A call or an item of a known one, but no password with brackets: `Hunter2(horse9)`.
    r"|\A(?![A-Za-z]+[0-9]+[(\[{][A-Za-z]+[0-9]+[)\]}])[A-Za-z_][\w.]*[(\[{].*[)\]}]\Z"
    r"|\A(?i:sha[0-9]+|md5|b(?:ase)?64|argon2)\w*\("
    r"|\A[A-Za-z_.]*[0-9]*[,;]\Z|\W[,;]\Z",
    re.ASCII,
)
"""Text behind a name in code, and in a list of names and values, and not in settings."""

_WORDS_TO_REPLACE = re.compile(
    r"(?i)[\"']?(?:(?:put|insert|enter|replace|use)[-_ ](?:with[-_ ])?)?your[-_ ][a-z]"
)
"""`YOUR_API_KEY`, `your-client-secret`, and other words that a reader is to replace."""

_NAME_IN_BRACKETS = re.compile(
    r"\[+[A-Za-z_ -]+\]+|(?:<[\w .-]*>\W?)+|\{[A-Za-z_][\w.]*(?:\([\w.]*\)[\w.()]*)?\}",
    re.ASCII,
)
"""A name in brackets of a value that is put in."""

_CUT_OFF = re.compile(r".*(?:\.\.\.|\u2026)", re.DOTALL)
_FORMAT_TEXT = re.compile(r"[^\w\s{%]*(?:(?:%[sdrqv]|\{[\w.]*\})[^\w\s{%]*)+")
_PLAIN_URL = re.compile(
    r"(?i)https?://[a-z][\w.-]*(?::[0-9]+)?(?:/[a-z0-9._-]{0,24})*", re.ASCII
)
"""A URL without credentials, query and anything long."""

_RELATIVE_PATH = re.compile(r"\.{1,2}/[\w./-]+", re.ASCII)
_VERSION_RANGE = re.compile(
    r"(?:\^|~|[<>]=?)\s?v?[0-9]+(?:\.[\w*-]+)*|workspace:\S+|npm:\S+"
)
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(?:[-+][\w.]+)?(?: \|\| .*)?")
_FETCH_MODES = frozenset(["include", "omit", "same-origin"])
"""Values of `credentials` for `fetch` in browsers."""

_AFTER_SCHEME = frozenset(
    "token key apikey auth authentication authorization scheme tokens header".split()  # noqa: SIM905
)
_NAME_IN_PATH = re.compile(r"(?:[A-Za-z_][\w-]*\.)*_*([A-Za-z][\w-]*)", re.ASCII)

_PATH_PART = r"[A-Za-z_]\w*(?:\[\w*\])?"
_VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DOTTED_PATH = re.compile(rf"(?:{_PATH_PART}\.)+[A-Za-z_]\w*", re.ASCII)
_OPEN_CALL = re.compile(
    rf"(?:await )?(?:(?:{_PATH_PART}\.)+\w+|[A-Za-z_]+)(?:\[[\w., ]*\])?[(\[{{]\Z",
    re.ASCII,
)
_CALL_CHAIN = re.compile(
    rf"(?:{_PATH_PART}\.)*[A-Za-z_]\w*\([^()]*\)(?:\.\w+|\(\)|\[\w*\])+", re.ASCII
)
_NAME_AND_VALUE = re.compile(r"[a-z_]+=[^=]", re.ASCII)
_CASED_NAME = re.compile(
    r"[A-Za-z]*[a-z][A-Z][A-Za-z]*|_*[A-Za-z]+(?:_[A-Za-z]+)+|_[A-Za-z]+", re.ASCII
)
"""Names that nobody takes for words: in camel case, or with underlines."""

_VARIABLE_WORDS = frozenset(
    "value val user username name key token secret creds data text result response arg".split()  # noqa: SIM905
)
_LONGEST_VARIABLE = 64
_WORD_BEGINS = re.compile(r"(?<=_)[A-Za-z]|(?<!\A)[A-Z]", re.ASCII)
_ATTRIBUTE_OWNER = re.compile(
    r"(?:self|this|cls)\.(?:\w+\.)*_*\Z|^[ \t]+(?:[\w\[\]]+\.)+_*\Z", re.MULTILINE
)
_ASSIGNED_TOGETHER = re.compile(r"^[ \t]*((?:[\w.]{1,64}, ?){1,8})\Z", re.MULTILINE)


def may_be_real_value(value: str) -> bool:
    """Tell whether a value in a text is more than a word of an interface, or a template."""
    return not (_NO_VALUE.fullmatch(value.strip()) or _TEMPLATE_BEGINS.match(value))


def is_code_or_no_value(rest_of_line: str) -> bool:
    """Tell whether the rest of a line behind a name is code, or counts in no text."""
    if not may_be_real_value(rest_of_line):
        return True
    return _CODE_TEXT.search(rest_of_line) is not None


def is_dummy_or_hidden(value: str) -> bool:
    """Tell whether a value stands for one that is put in later, or hides one."""
    return bool(
        _WORDS_TO_REPLACE.match(value)
        or _NAME_IN_BRACKETS.fullmatch(value)
        or _FORMAT_TEXT.fullmatch(value)
    )


def is_harmless(name: SecretName, value: str) -> bool:
    """Tell whether a value under a name is none wherever it stands, in quotes or not."""
    if is_dummy_or_hidden(value) or _repeats_name(name, value):
        return True
    if _VERSION_RANGE.fullmatch(value) or _PLAIN_URL.fullmatch(value):
        return True
    if name.rule != "password" and _CUT_OFF.fullmatch(value):
        return True
    if name.rule == "credentials":
        return value in _FETCH_MODES
    if name.rule == "cookie" and _is_version_or_path(value):
        return True

    return not value.isascii() and len(value) <= 2


def _repeats_name(name: SecretName, value: str) -> bool:
    """Tell whether a value is the name itself, as `{ password: config.passwords }` has it."""
    name_in_value = _NAME_IN_PATH.fullmatch(value)
    if name_in_value is None:
        return False
    return folded_name(name_in_value[1]).rstrip("s") == name.folded.rstrip("s")


def _is_version_or_path(value: str) -> bool:
    """Tell whether a value is a version or a path, as of a package that is called `cookie`."""
    is_version = _VERSION.fullmatch(value) is not None
    return is_version or _RELATIVE_PATH.fullmatch(value) is not None


def is_harmless_after_scheme(value: str) -> bool:
    """Tell whether a word after `Bearer` belongs to a sentence."""
    return is_dummy_or_hidden(value) or value.lower() in _AFTER_SCHEME


def is_code_value(
    name: SecretName, value: str, text_before: str, sign: str, *, has_gap: bool
) -> bool:
    """Tell whether a value without quotes is code.

    `text_before` is the text before the name in its line, and `has_gap` whether spaces are around
    the sign, as in code more than in settings.
    """
    if _OPEN_CALL.fullmatch(value) or _CALL_CHAIN.fullmatch(value):
        return True
    if not name.is_certain and _NAME_AND_VALUE.match(value):
        return True

    if _DOTTED_PATH.fullmatch(value):
        is_random = looks_random(value)
        return _is_attribute_of_that_name(name, value) or (has_gap and not is_random)

    if not has_gap or not _VARIABLE_NAME.fullmatch(value):
        return False

    return _is_variable(name, value, text_before, sign)


def _is_attribute_of_that_name(name: SecretName, path: str) -> bool:
    """Tell whether the last part of a path such as `config.password` is the name."""
    last_part = folded_name(path.rpartition(".")[2])
    if not last_part:
        return False
    return name.folded.endswith(last_part) or last_part.endswith(name.folded)


def _is_variable(name: SecretName, value: str, text_before: str, sign: str) -> bool:
    """Tell whether a value that may be a word is a variable or a type, by its line and name."""
    if _ATTRIBUTE_OWNER.search(text_before) or index_among_assigned_names(text_before):
        return True
    if _variable_ends_with_name(value, name.folded):
        return True

    if sign == ":":
        # A type; settings behind a colon are indented too.
        is_type = value[0].isupper() and value[-1].isalpha()
        return is_type and name.folded in folded_name(value)

    if text_before[:1] not in (" ", "\t"):
        return False

    return value in _VARIABLE_WORDS or _CASED_NAME.fullmatch(value) is not None


def _variable_ends_with_name(value: str, folded_secret_name: str) -> bool:
    """Tell whether a variable says what it has: `key_password` and `testRSA2048PrivateKey`."""
    if len(value) > _LONGEST_VARIABLE:
        return False

    for match in _WORD_BEGINS.finditer(value):
        if folded_name(value[match.start() :]) == folded_secret_name:
            return True

    return False


def is_ternary_branch(text_before: str) -> bool:
    """Tell whether a name in quotes, before a colon, is chosen by what stands before it."""
    return text_before.rstrip()[-1:] == "?"


def index_among_assigned_names(text_before: str) -> int:
    """Return how many names stand before one in `user, password = "a", "b"`."""
    assigned_names = _ASSIGNED_TOGETHER.search(text_before)
    if assigned_names is None:
        return 0
    return assigned_names[1].count(",")


# The layout of a text: settings of YAML, and rows of SQL

_QUOTED_VALUE = r"(\\*[\"'])[^\"'\r\n]*\1"
_NO_CODE = r"(?!.*(?:=>| = |[{};]|[,)]\s*\Z))"
_SETTING_LINE = re.compile(
    rf"[ \t]*(?:- )*[\w./-]{{1,64}}:(?:[ \t]+(?:{_QUOTED_VALUE}|{_NO_CODE}\S.*?))?\s*(?:#.*)?",
    re.ASCII,
)
"""A line with a name, a colon and maybe a value."""

_OTHER_LINE = re.compile(r"[ \t]*(?:#|- \S).*|---\s*|\.\.\.\s*")
"""Other lines of YAML: a comment, an item, a mark."""

_INDENT = re.compile(r"[ \t]*(?:- )*")
_END_OF_LINE = re.compile(r"\\*[\"']?\s*(?:#.*)?")
_END_OF_STRING = re.compile(r"(?:\\*'|\\+\")?\\*\"")
_NO_SECRET_WORDS = frozenset(
    "bytes number boolean any unknown object buffer text varchar char void list dict array float"  # noqa: SIM905
    " changed missing invalid hidden masked empty unset expired enabled disabled default prompt"
    " redacted secret password read write inherit".split()
)
"""Types, and what is told of a password."""

_CHARS_AROUND = 1024


def is_among_settings(text: str, start: int, end: int) -> bool:
    """Tell whether a name at `start` and its value until `end` are a line among settings.

    All lines around it are such as YAML has, up to an empty one, and one has a setting of its own.
    """
    *lines_before, indent = text[max(0, start - _CHARS_AROUND) : start].split("\n")
    rest_of_line, *lines_after = text[end : end + _CHARS_AROUND].split("\n")
    begins_string = '"' in indent
    ends_string = not _END_OF_LINE.fullmatch(rest_of_line)
    if not _INDENT.fullmatch(indent.rpartition('"')[2]):
        return False
    if ends_string and not _END_OF_STRING.match(rest_of_line):
        return False

    count_before: int | None = 0
    if not begins_string:
        count_before = _count_settings(reversed(lines_before), at_end=True)

    count_after: int | None = 0
    if not ends_string:
        count_after = _count_settings(lines_after, at_end=False)

    is_beside_other_text = count_before is None or count_after is None
    return not is_beside_other_text and bool(count_before or count_after)


def _count_settings(lines: Iterable[str], *, at_end: bool) -> int | None:
    """Return how many lines up to an empty one are settings, or None if one is no YAML.

    The last one may be in the line where the string that has them all begins or ends; `at_end`
    tells which.
    """
    setting_count = 0
    for line in lines:
        if not line.strip():
            break
        if _OTHER_LINE.fullmatch(line):
            continue

        if _SETTING_LINE.fullmatch(line):
            setting_count += 1
            continue

        parts = _parts_cut_at_quotes(line, at_end=at_end)
        if any(map(_SETTING_LINE.fullmatch, parts)):
            return setting_count + 1

        is_end_of_settings = any(
            not part.strip() or _OTHER_LINE.fullmatch(part) for part in parts
        )
        return setting_count if is_end_of_settings else None

    return setting_count


def _parts_cut_at_quotes(line: str, *, at_end: bool) -> list[str]:
    """Return what stands behind each quote of a line, or before each."""
    quotes = [match.start() for match in re.finditer('"', line)]
    if at_end:
        return [line[quote + 1 :] for quote in quotes]
    return [line[:quote].rstrip("\\") for quote in quotes]


_SQL_STRING = r"'(?:[^'\\]|''|\\.)*+'"
_IN_PARENTHESES = r"\((?:[^()']|'[^']*')*+\)"
_SQL_ITEM = re.compile(rf"(?:{_SQL_STRING}|{_IN_PARENTHESES}|[^,'()])++")
_SQL_ROW = re.compile(rf"[\s,]*+\(((?:{_SQL_STRING}|{_IN_PARENTHESES}|[^'()])*+)\)")
_TEXT_ITEM = re.compile(rf"\s*(?:[NEB]?({_SQL_STRING}))\s*")


def texts_in_sql_rows(text: str, offset: int) -> Iterator[tuple[int, int, int]]:
    """Yield the texts in the rows of a statement of SQL: the column, and where one stands."""
    while row := _SQL_ROW.match(text, offset):
        offset = row.end()
        for column, item in enumerate(_SQL_ITEM.finditer(text, *row.span(1))):
            if text_item := _TEXT_ITEM.fullmatch(item[0]):
                start = item.start() + text_item.start(1) + 1
                yield column, start, item.start() + text_item.end(1) - 1


def is_plain_setting(name: str, value: str) -> bool:
    """Tell whether a word behind a name is no type, no variable, and no translation of the name."""
    is_title = name[:1].isupper()
    return (is_title or value.islower()) and value.lower() not in _NO_SECRET_WORDS
