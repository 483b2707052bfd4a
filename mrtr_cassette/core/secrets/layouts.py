"""What the layout of a text says about a value: settings of YAML, and rows of SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
    *earlier, indent = text[max(0, start - _CHARS_AROUND) : start].split("\n")
    rest_of_line, *later = text[end : end + _CHARS_AROUND].split("\n")
    begins_string = '"' in indent
    ends_string = not _END_OF_LINE.fullmatch(rest_of_line)
    if not _INDENT.fullmatch(indent.rpartition('"')[2]):
        return False
    if ends_string and not _END_OF_STRING.match(rest_of_line):
        return False

    settings_before = (
        0 if begins_string else _settings_in(reversed(earlier), at_end=True)
    )
    settings_after = 0 if ends_string else _settings_in(later, at_end=False)
    if settings_before is None or settings_after is None:
        return False

    return settings_before + settings_after > 0


def _settings_in(lines: Iterable[str], *, at_end: bool) -> int | None:
    """Return how many lines up to an empty one are settings, or None if one is no YAML.

    The last one may be in the line where the string that has them all begins or ends; `at_end`
    tells which.
    """
    count = 0
    for line in lines:
        if not line.strip():
            break
        if _OTHER_LINE.fullmatch(line):
            continue

        if _SETTING_LINE.fullmatch(line):
            count += 1
            continue

        parts = _parts_at_quotes(line, at_end=at_end)
        if any(map(_SETTING_LINE.fullmatch, parts)):
            return count + 1

        is_end = any(not part.strip() or _OTHER_LINE.fullmatch(part) for part in parts)
        return count if is_end else None

    return count


def _parts_at_quotes(line: str, *, at_end: bool) -> list[str]:
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


def texts_in_rows(text: str, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield the texts in the rows of a statement of SQL: the column, and where one stands."""
    while row := _SQL_ROW.match(text, at):
        at = row.end()
        for column, item in enumerate(_SQL_ITEM.finditer(text, *row.span(1))):
            if found := _TEXT_ITEM.fullmatch(item[0]):
                start = item.start() + found.start(1) + 1
                yield column, start, item.start() + found.end(1) - 1


def is_plain_setting(name: str, value: str) -> bool:
    """Tell whether a word behind a name is no type, no variable, and no translation of the name."""
    is_title = name[:1].isupper()
    return (is_title or value.islower()) and value.lower() not in _NO_SECRET_WORDS
