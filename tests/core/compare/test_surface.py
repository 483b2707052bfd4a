from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from builders import converse, rpc

from mrtr_cassette.core.compare.responses import response_changes
from mrtr_cassette.core.compare.values import Change, heaviest

Json = Any
TOOLS = {
    "tools": [
        {
            "name": "book",
            "description": "Book a seat",
            "inputSchema": {
                "type": "object",
                "properties": {"seat": {"type": "string", "enum": ["a", "b"]}, "day": {}},
                "required": ["seat", "day"],
            },
            "outputSchema": {"type": "object", "properties": {}, "required": ["id"]},
        },
        {"name": "cancel", "inputSchema": {"type": "object"}, "execution": {}},
    ]
}
PROMPTS = {"prompts": [{"name": "ask", "arguments": [{"name": "topic", "required": False}]}]}
DISCOVERY = {
    "supportedVersions": ["2026-07-28", "2025-11-25"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
}
RESOURCES = {"resources": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b", "name": "a"}]}


def edited(result: Json, *path: str | int, to: Json) -> Json:
    """Return a result with another value at a path; a callable changes what is there."""
    tree = deepcopy(result)
    inner = tree
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to(inner[path[-1]]) if callable(to) else to
    return tree


def surface_changes(recorded: Json, received: Json, method: str = "tools/list") -> list[Change]:
    """Return where what a server says that it can do differs."""
    old, new = (converse((rpc(method), result))[0] for result in (recorded, received))
    return response_changes(old, new)


BOOK = ("tools", 0)
SCHEMA = (*BOOK, "inputSchema")
EXECUTION = "/tools/0/execution"


@pytest.mark.parametrize(
    ("received", "pointer", "is_information"),
    [
        (edited(TOOLS, "tools", to=lambda v: [*v, {"name": "new"}]), "/tools/2", True),
        (edited(TOOLS, "tools", to=lambda v: v[:1]), "/tools/1", False),
        (edited(TOOLS, *BOOK, "description", to="Book!"), "/tools/0/description", False),
        (edited(TOOLS, *BOOK, "title", to="Book"), "/tools/0/title", True),
        (edited(TOOLS, "tools", to=lambda v: [*v, {"name": "book"}]), "/tools/2", False),
        (edited(TOOLS, *BOOK, "execution", to={"taskSupport": "required"}), EXECUTION, False),
        (
            edited(TOOLS, *SCHEMA, "properties", "note", to={"type": "string"}),
            "/tools/0/inputSchema/properties/note",
            True,
        ),
        (
            edited(TOOLS, *SCHEMA, "properties", to=lambda v: {"seat": v["seat"]}),
            "/tools/0/inputSchema/properties/day",
            False,
        ),
        (
            edited(TOOLS, *SCHEMA, "required", to=["day", "seat", "note"]),
            "/tools/0/inputSchema/required/2",
            False,
        ),
        (edited(TOOLS, *SCHEMA, "required", to=["day"]), "/tools/0/inputSchema/required/0", True),
        (
            edited(TOOLS, "tools", 1, "inputSchema", "required", to=["id"]),
            "/tools/1/inputSchema/required",
            False,
        ),
        (
            edited(TOOLS, *SCHEMA, "properties", "seat", "enum", to=["b", "a", "c"]),
            "/tools/0/inputSchema/properties/seat/enum/2",
            True,
        ),
        (
            edited(TOOLS, *SCHEMA, "properties", "seat", "maxLength", to=3),
            "/tools/0/inputSchema/properties/seat/maxLength",
            False,
        ),
        (edited(TOOLS, *SCHEMA, "type", to="array"), "/tools/0/inputSchema/type", False),
        (
            edited(TOOLS, *BOOK, "outputSchema", "required", to=[]),
            "/tools/0/outputSchema/required/0",
            False,
        ),
        (
            edited(PROMPTS, "prompts", 0, "arguments", 0, "required", to=True),
            "/prompts/0/arguments/0/required",
            False,
        ),
        (
            edited(
                PROMPTS,
                *("prompts", 0, "arguments"),
                to=lambda v: [*v, {"name": "b", "required": True}],
            ),
            "/prompts/0/arguments/1",
            False,
        ),
        (
            edited(DISCOVERY, "supportedVersions", to=["2025-11-25", "2026-07-28", "new"]),
            "/supportedVersions/2",
            True,
        ),
        (edited(DISCOVERY, "supportedVersions", to=["2026-07-28"]), "/supportedVersions/1", False),
        (edited(DISCOVERY, "capabilities", "prompts", to={}), "/capabilities/prompts", True),
        (edited(DISCOVERY, "capabilities", to={}), "/capabilities/tools", False),
        (
            edited(DISCOVERY, "_meta", "io.modelcontextprotocol/serverInfo", "version", to="2"),
            "/_meta/io.modelcontextprotocol~1serverInfo/version",
            True,
        ),
        (
            edited(DISCOVERY, "_meta", "io.modelcontextprotocol/serverInfo", "name", to="t"),
            "/_meta/io.modelcontextprotocol~1serverInfo/name",
            False,
        ),
        (edited(RESOURCES, "resources", to=lambda v: v[1:]), "/resources/0", False),
    ],
)
def test_one_change_of_the_surface_is_found(
    received: Json,
    pointer: str,
    *,
    is_information: bool,
) -> None:
    """What is added or optional is information; what is gone or newly required is not."""
    whole = next(
        each for each in (TOOLS, PROMPTS, DISCOVERY, RESOURCES) if each.keys() == received.keys()
    )
    (change,) = surface_changes(whole, received)

    assert (change.pointer, change.is_information) == (pointer, is_information)
    assert change.verdict == "surface-changed"
    assert heaviest([change]) == ("same" if is_information else "surface-changed")


def test_what_is_optional_now_is_information() -> None:
    """An argument of a prompt that need not be given any more breaks nobody."""
    before = edited(PROMPTS, "prompts", 0, "arguments", 0, "required", to=True)
    (change,) = surface_changes(before, PROMPTS)
    assert change.is_information


def test_the_order_of_a_list_means_nothing() -> None:
    """The same tools in another order, and the same required names, are the same."""
    other = edited(TOOLS, "tools", to=lambda v: v[::-1])
    other = edited(other, "tools", 1, "inputSchema", "required", to=["day", "seat"])
    assert surface_changes(TOOLS, other) == []
    assert [change.pointer for change in surface_changes({"a": [{}]}, {"a": [{"b": 1}]})] == [
        "/a/0/b"
    ]


def test_surfaces_are_lists_and_discovery() -> None:
    """What a call returns is no surface."""
    for method, verdict in (
        ("tools/list", "surface-changed"),
        ("initialize", "surface-changed"),
        ("tools/call", "shape-changed"),
        ("tasks/list", "shape-changed"),
    ):
        (change,) = surface_changes({"tools": [{"name": "a"}]}, {"tools": []}, method)
        assert change.verdict == verdict
