from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from builders import converse, rpc

from mrtr_cassette.core.compare.conversations import response_changes
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


def edited(result: Json, path: str, to: Json) -> Json:
    """Return a result with another value at a path; a callable changes what is there."""
    tree = deepcopy(result)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split(" "))
    inner = tree
    for step in steps:
        inner = inner[step]
    inner[last] = to(inner[last]) if callable(to) else to
    return tree


def surface_changes(recorded: Json, received: Json, method: str = "tools/list") -> list[Change]:
    """Return where what a server says that it can do differs."""
    old, new = (converse((rpc(method), result))[0] for result in (recorded, received))
    return response_changes(old, new)


def adding(item: Json) -> Any:
    """Return what adds an item to a list."""
    return lambda items: [*items, item]


SCHEMA, SEAT = "tools 0 inputSchema", "tools 0 inputSchema properties seat"
ARGUMENTS, INFO = "prompts 0 arguments", "_meta io.modelcontextprotocol/serverInfo"
MANDATORY = edited(PROMPTS, f"{ARGUMENTS} 0 required", to=True)
VERSIONS = ["2025-11-25", "2026-07-28"]


@pytest.mark.parametrize(
    ("result", "path", "to", "below", "is_information"),
    [
        (TOOLS, "tools", adding({"name": "new"}), "/2", True),
        (TOOLS, "tools", lambda v: v[:1], "/1", False),
        (TOOLS, "tools 0 description", "Book!", "", False),
        (TOOLS, "tools 0 title", "Book", "", True),
        (TOOLS, "tools 0 execution", {"taskSupport": "required"}, "", False),
        (TOOLS, f"{SCHEMA} properties note", {"type": "string"}, "", True),
        (TOOLS, f"{SCHEMA} properties", lambda v: {"seat": v["seat"]}, "/day", False),
        (TOOLS, f"{SCHEMA} required", ["day", "seat", "note"], "/2", False),
        (TOOLS, f"{SCHEMA} required", ["day"], "/0", True),
        (TOOLS, f"{SCHEMA} type", "array", "", False),
        (TOOLS, "tools 1 inputSchema required", ["id"], "", False),
        (TOOLS, f"{SEAT} enum", ["b", "a", "c"], "/2", True),
        (TOOLS, f"{SEAT} maxLength", 3, "", False),
        (TOOLS, "tools 0 outputSchema required", [], "/0", False),
        (PROMPTS, f"{ARGUMENTS} 0 required", True, "", False),
        (MANDATORY, f"{ARGUMENTS} 0 required", False, "", True),
        (PROMPTS, ARGUMENTS, adding({"name": "b", "required": True}), "/1", False),
        (DISCOVERY, "supportedVersions", [*VERSIONS, "new"], "/2", True),
        (DISCOVERY, "supportedVersions", VERSIONS[1:], "/1", False),
        (DISCOVERY, "capabilities prompts", {}, "", True),
        (DISCOVERY, "capabilities", {}, "/tools", False),
        (DISCOVERY, f"{INFO} version", "2", "", True),
        (DISCOVERY, f"{INFO} name", "t", "", False),
        (RESOURCES, "resources", lambda v: v[1:], "/0", False),
    ],
)
def test_one_change_of_the_surface_is_found(
    result: Json, path: str, to: Json, below: str, *, is_information: bool
) -> None:
    """What is added or optional is information; what is gone or newly required is not."""
    (change,) = surface_changes(result, edited(result, path, to))
    steps = [step.replace("/", "~1") for step in path.split(" ")]
    assert change.pointer == "/" + "/".join(steps) + below
    assert change.is_information is is_information
    assert change.verdict == "surface-changed"
    assert heaviest([change]) == ("same" if is_information else "surface-changed")


def test_the_order_of_a_list_means_nothing() -> None:
    """The same tools in another order, and the same required names, are the same."""
    other = edited(TOOLS, f"{SCHEMA} required", to=["day", "seat"])
    other = edited(other, "tools", to=lambda v: v[::-1])
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
