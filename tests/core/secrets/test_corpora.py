"""Code and pages that contain no secret stay as they are: a law over what is installed here."""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from processes import install_node_packages

from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES

TESTS = Path(__file__).parents[2]
PATHS = sysconfig.get_paths()
CORPORA = {
    "standard library": (Path(PATHS["stdlib"]), (".py",)),
    "packages of Python": (
        Path(PATHS["purelib"]),
        (".py", ".pyi", ".md", ".txt", ".toml"),
    ),
    "packages of Node": (
        TESTS / "peers" / "node_modules",
        (".js", ".ts", ".mjs", ".cjs", ".json", ".md", ".html"),
    ),
}
REDACTOR = Redactor(BUILT_IN_RULES, lambda _rule, _secret: "T")
SAMPLED = 400
"""Files of a corpus that are looked at."""

LARGEST = 100_000
_ELSEWHERE = {"site-packages", "test", "tests"}


def _literal() -> set[str]:
    """Read which files have literal secrets, as far as a reader can tell from the text alone."""
    lines = (TESTS / "data" / "secrets" / "literal.tsv").read_text("utf-8").splitlines()
    return {line.partition("\t")[0] for line in lines if not line.startswith("#")}


def _files(corpus: str) -> Iterator[Path]:
    root, suffixes = CORPORA[corpus]
    for folder, inner, names in os.walk(root):
        # Nobody can tell a password that a test made up from a real one.
        inner[:] = [name for name in inner if name not in _ELSEWHERE]
        for name in names:
            if name.endswith(suffixes):
                yield Path(folder, name)


def _sample(corpus: str) -> list[Path]:
    """Return some files, the same ones wherever the same versions are installed."""
    root = CORPORA[corpus][0]

    def drawn(path: Path) -> bytes:
        return hashlib.sha256(path.relative_to(root).as_posix().encode()).digest()

    files = [path for path in _files(corpus) if path.is_file()]
    return sorted(files, key=drawn)[:SAMPLED]


def _is_changed(path: Path) -> bool:
    text = path.read_bytes()[:LARGEST].decode("utf-8", "ignore")
    body = json.dumps(
        {"result": {"content": [{"type": "text", "text": text}]}}
    ).encode()
    return REDACTOR.redacted_body(body, "application/json") != body


def test_code_is_left_alone() -> None:
    """At most one file in a thousand is changed that has no literal password or token."""
    install_node_packages()
    files = [*chain.from_iterable(map(_sample, CORPORA))]
    literal = tuple(_literal())
    changed = [path for path in files if _is_changed(path)]
    wrong = [path for path in changed if not path.as_posix().endswith(literal)]

    assert len(wrong) * 1000 <= len(files), wrong
