"""The calls that the demo's client makes, one for each thing that is worth seeing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def _accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@dataclass(frozen=True, slots=True)
class DemoCall:
    """One call that the scripted client makes.

    Attributes:
        title: what the call shows.
        method: JSON-RPC method.
        name: the tool or prompt, or the resource's URI.
        arguments: what the call is given.
        answers: what the client answers, by key.
        tampers: the client changes the request state before it echoes it.
    """

    title: str
    method: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    tampers: bool = False


CALLS = (
    DemoCall("a plain call", "tools/call", "add", {"a": 1, "b": 2}),
    DemoCall(
        "one question, accepted",
        "tools/call",
        "deploy",
        {"env": "production"},
        {"confirm": _accept(confirm=True)},
    ),
    DemoCall(
        "one question, declined",
        "tools/call",
        "tag-release",
        {"tag": "v2.1.0"},
        {"confirm": {"action": "decline"}},
    ),
    DemoCall(
        "two questions in one round",
        "tools/call",
        "provision",
        answers={"name": _accept(name="analytics"), "region": _accept(region="eu-west-1")},
    ),
    DemoCall(
        "two rounds, with a signed state that expires",
        "tools/call",
        "wipe-cache",
        answers={"confirm": _accept(confirm=True), "scope": _accept(scope="sessions")},
    ),
    DemoCall(
        "three rounds",
        "tools/call",
        "release-train",
        {"version": "2.1"},
        {
            "approve": _accept(approve=True),
            "window": _accept(window="tonight"),
            "notes": _accept(notes="none"),
        },
    ),
    DemoCall(
        "all four kinds of input at once",
        "tools/call",
        "everything",
        answers={
            "confirm": _accept(confirm=True),
            "signin": {"action": "accept"},
            "summary": {
                "role": "assistant",
                "content": {"type": "text", "text": "All quiet."},
                "model": "demo-model",
                "stopReason": "endTurn",
            },
            "roots": {"roots": [{"uri": "file:///srv/app", "name": "app"}]},
        },
    ),
    DemoCall("a state and no question", "tools/call", "build", {"target": "docs"}),
    DemoCall("a stream with progress", "tools/call", "count", {"to": 3}),
    DemoCall(
        "a question at the end of a stream",
        "tools/call",
        "ask-late",
        {"steps": 2},
        {"confirm": _accept(confirm=True)},
    ),
    DemoCall(
        "a prompt that asks",
        "prompts/get",
        "release-notes",
        {"version": "2.1"},
        {"audience": _accept(audience="operators")},
    ),
    DemoCall(
        "a resource that asks",
        "resources/read",
        "config://deployment",
        answers={"confirm": _accept(confirm=True)},
    ),
    DemoCall(
        "a tampered state, refused",
        "tools/call",
        "wipe-cache",
        answers={"confirm": _accept(confirm=True)},
        tampers=True,
    ),
)
