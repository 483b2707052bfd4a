"""Facts about the methods by which requests are counted."""

from __future__ import annotations

import pytest

from mrtr_cassette.core.protocol.methods import METHODS, OTHER, known_method, target_of


def test_each_method_has_one_name() -> None:
    """The list is in order and has nothing twice; what MCP does not name comes last."""
    assert [*METHODS] == [*sorted(set(METHODS) - {OTHER}), OTHER]


@pytest.mark.parametrize(
    ("method", "known"),
    [
        ("tools/call", "tools/call"),
        ("server/discover", "server/discover"),
        ("", OTHER),
        ("x", OTHER),
    ],
)
def test_what_mcp_does_not_name_is_one_method(method: str, known: str) -> None:
    """A client that makes methods up makes no new label."""
    assert known_method(method) == known


@pytest.mark.parametrize(
    ("method", "target"),
    [("tools/call", "a"), ("prompts/get", "a"), ("resources/read", ""), ("ping", "")],
)
def test_a_target_is_a_tool_or_a_prompt(method: str, target: str) -> None:
    """A resource's URI may have anything in it."""
    assert target_of(method, "a") == target


def test_a_target_can_be_written_whatever_it_is() -> None:
    """A lone surrogate would make all numbers unreadable, and a line's end two lines."""
    assert target_of("tools/call", "a\ud800\n").encode().isascii()
