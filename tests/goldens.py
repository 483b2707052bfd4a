"""Golden cases: plain files whose sections are input and expected output, with bytes made visible.

A line of a file stands for its bytes and an LF. What can't be seen is written:

    ␍          a CR; a line that ends in it ends in CR LF
    ∎          at the end of a line: no LF follows
    «ef bb bf» bytes, in hexadecimal

A section begins with `--- its title`. `pytest --update-goldens` writes the expected sections, and
adds one that is not there yet.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import pytest

DATA = Path(__file__).parent / "data"
_BYTES = re.compile("«([0-9a-f]{2}(?: [0-9a-f]{2})*)»")


class Section(NamedTuple):
    """One section of a case; the title of the first is empty."""

    title: str
    text: str


@dataclass(frozen=True)
class Case:
    """One file."""

    path: Path
    sections: tuple[Section, ...]

    @property
    def shows(self) -> str:
        """What the case shows: its first line, after `# `."""
        return self.sections[0].text.partition("\n")[0].removeprefix("# ")

    def text(self, title: str) -> str | None:
        """Return the text of the section of this title, if there is one."""
        return next(
            (section.text for section in self.sections if section.title == title), None
        )

    def expect(self, title: str, actual: str, *, updates: bool) -> None:
        """Compare a section with what came; write it down instead if that is asked for."""
        if updates:
            self._with_section(title, actual)._write()
        else:
            _compare(f"{self.path.name}, {title}", self.text(title) or "", actual)

    def _with_section(self, title: str, text: str) -> Case:
        """Return the case with another text of a section, which may be new."""
        sections = list(self.sections)
        for place, section in enumerate(sections):
            if section.title == title:
                sections[place] = Section(title, text)
                break
        else:
            sections.append(Section(title, text))

        return replace(self, sections=tuple(sections))

    def _write(self) -> None:
        """Write the file."""
        parts = []
        for section in self.sections:
            if section.title:
                parts.append(f"--- {section.title}\n")

            parts.append(section.text)

        self.path.write_text("".join(parts), encoding="utf-8")


def expect_file(path: Path, actual: str, *, updates: bool) -> None:
    """Compare a whole file with what came; write it instead if that is asked for."""
    if updates:
        path.write_text(actual, encoding="utf-8")
    else:
        _compare(path.name, path.read_text(encoding="utf-8"), actual)


def _compare(name: str, expected: str, actual: str) -> None:
    """Fail unless two texts are the same, with their differing lines and what to do."""
    if actual == expected:
        return

    test_file = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
    differing_lines = unified_diff(
        expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm=""
    )
    lines = [
        f"{name} is not as expected",
        *differing_lines,
        f"if this is meant, write it: pytest {test_file} --update-goldens",
    ]
    pytest.fail("\n".join(lines), pytrace=False)


def read_case(path: Path) -> Case:
    """Read a case."""
    head, *rest = re.split(r"^--- (.*)\n", path.read_text(), flags=re.MULTILINE)
    titles = rest[::2]
    texts = rest[1::2]

    return Case(path, (Section("", head), *map(Section, titles, texts)))


def cases(folder: str) -> list[Path]:
    """Return the cases in a folder."""
    return sorted((DATA / folder).glob("*.case"))


def as_bytes(text: str) -> bytes:
    """Return the bytes that lines of a file stand for."""
    raw = b""
    at = 0
    text = text.replace("∎\n", "").replace("␍", "\r")
    for match in _BYTES.finditer(text):
        raw += text[at : match.start()].encode() + bytes.fromhex(match[1])
        at = match.end()

    return raw + text[at:].encode()


def shown(raw: bytes) -> str:
    """Return bytes on one line, each line end visible."""
    text = raw.decode("utf-8", "surrogateescape")
    text = re.sub(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x85\u2028\u2029\ufeff\udc80-\udcff]", _as_hex, text
    )
    return text.replace("\r", "␍").replace("\n", "␊")


def _as_hex(match: re.Match[str]) -> str:
    return f"«{match[0].encode('utf-8', 'surrogateescape').hex(' ')}»"
