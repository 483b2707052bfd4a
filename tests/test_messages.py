"""Messages are read by people: a change of their words is seen in tests/data/messages.txt."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from goldens import DATA, expect_file
from test_house import MODULES, name_of

GOLDEN = DATA / "messages.txt"
TABLES = {f"core/secrets/{name}.py" for name in ("harmless", "judged", "shapes")}
"""Modules of patterns, which are not messages."""

FEWEST_SPACES = 2
"""A text with fewer words is a name, a label or a part of a message."""


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of the lines on which a docstring, or a text below a constant, stands."""
    found: set[int] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):
                waiting.append(child)

        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue

        for statement in body:
            is_expression = isinstance(statement, ast.Expr)
            if is_expression and isinstance(statement.value, ast.Constant):
                found.update(range(statement.lineno, (statement.end_lineno or 0) + 1))

    return found


def spelled(node: ast.AST) -> str | None:
    """Return the text of a literal, with `{}` for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None

    parts = []
    for value in node.values:
        is_text = isinstance(value, ast.Constant)
        parts.append(str(value.value) if is_text else "{}")

    return "".join(parts)


def messages_of(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are sentences, in order."""
    documented = docstring_lines(tree)
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(id(value) for value in ast.walk(node) if value is not node)

    literals = []
    for node in ast.walk(tree):
        text = spelled(node)
        is_whole = id(node) not in inner
        if text is not None and is_whole and text.count(" ") >= FEWEST_SPACES:
            literals.append((node.lineno, node.col_offset, text))

    for line, _, text in sorted(literals):
        if line not in documented:
            yield " ".join(text.split())


def test_messages_are_as_reviewed(updates_goldens):
    """Every message of the package is in one file; `pytest --update-goldens` writes it."""
    written = []
    for module in MODULES:
        if name_of(module) in TABLES:
            continue

        messages = dict.fromkeys(messages_of(ast.parse(module.read_text())))
        if messages:
            written.append("\n".join([f"--- {name_of(module)}", *messages]))

    expect_file(GOLDEN, "\n".join([*written, ""]), updates=updates_goldens)
